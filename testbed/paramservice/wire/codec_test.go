package wire

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

func testJob() control.Job {
	return control.Job{ID: 7, Name: "VGG19", Workers: 2, Servers: 2, Rate: 0.1, Tensors: []control.Tensor{
		{Name: "fc6", Elements: 1 << 20, Work: time.Millisecond}, {Name: "bias", Elements: 1},
	}}
}

// samples has a message of each type, with no field left at zero.
func samples() []control.Message {
	key := control.Key{Job: 7, Tensor: 1}
	return []control.Message{
		control.Migrate{Key: key, Message: migrate.Message[control.None]{
			Kind: migrate.MigrateInit, From: migrate.Node{Role: migrate.PMaster, ID: 1}, To: migrate.Node{Role: migrate.Aggregator, ID: 3},
			Term: migrate.Term{Epoch: 1, Seq: 2}, Version: 9, Next: migrate.Term{Epoch: 2, Seq: 1}, At: 4, Seeder: 1,
		}},
		control.Admit{Job: testJob()},
		control.Admitted{Job: 7},
		control.Dismiss{Job: 7, Why: "worker 1 has vanished"},
		control.Reserve{Cycle: time.Second, Slots: []control.Slot{{Key: key, Iteration: time.Second, Exec: time.Millisecond}}},
		control.Peers{Aggregators: []control.Peer{{ID: 3, Address: "10.0.0.1:7000"}, {ID: 4, Address: "[::1]:7000"}}},
		control.Failed{Job: 7, Why: "tensor 1 has another size here"},
		control.Finished{Job: 7},
		control.WorkerReport{Job: 7, Rank: 1, Iterations: 10, Spent: time.Second, Stalled: time.Millisecond,
			Transfers: []control.Transfer{{Aggregator: 3, Exchanges: 10, Bytes: 1 << 30, Spent: time.Second}}},
		control.AggregatorReport{Span: time.Second, Busy: time.Millisecond, CPU: time.Millisecond,
			Tensors: []control.TensorReport{{Key: key, Runs: 10, Busy: time.Millisecond, Spare: 1, Postponed: 2, NaNs: 3, Ranks: []int32{0, 1}}}},
	}
}

// throughWire is what comes out of bytes that a message was made into.
func throughWire(t testing.TB, m *Message) *Message {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out Message
	if err := proto.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestRoundTrip(t *testing.T) {
	for _, m := range samples() {
		if v := reflect.ValueOf(m); v.NumField() > 0 {
			for i := range v.NumField() {
				if v.Field(i).IsZero() {
					t.Errorf("%T: the sample has no %s", m, v.Type().Field(i).Name)
				}
			}
		}
		got, err := Decode(throughWire(t, Encode(m)))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: %+v, %v; want %+v", m, got, err, m)
		}
	}
	for _, g := range []Greeting{
		{Life: 5, Aggregator: &control.Peer{ID: 3, Address: "h1:7000"}},
		{Life: 5, Job: testJob(), Rank: 1},
		{Life: 5, Job: testJob(), Rank: 1, Measured: &Measured{Iteration: time.Second, Tasks: []time.Duration{1, 2}, Transfer: 0.5, Reverts: 1}},
	} {
		got, err := DecodeHello(g.Encode())
		if err != nil || !reflect.DeepEqual(*got, g) {
			t.Errorf("%+v, %v; want %+v", got, err, g)
		}
	}
}

// Everything that is wrong with a message is said, at once.
func TestBadMessages(t *testing.T) {
	bad := testJob()
	bad.Name, bad.Workers, bad.Servers, bad.Rate = "", -1, MaxServers+1, float32(math.NaN())
	bad.Tensors[0].Elements, bad.Tensors[1].Work = 0, -1
	hello := func(change func(*Hello)) *Hello {
		h := (&Greeting{Job: testJob(), Rank: 1}).Encode()
		change(h)
		return h
	}
	worker := func(change func(*Worker)) *Hello {
		return hello(func(h *Hello) { change(h.GetWorker()) })
	}
	decode := func(m *Message) error { _, err := Decode(m); return err }
	greet := func(h *Hello) error { _, err := DecodeHello(h); return err }
	move := func(change func(*Migrate)) error {
		m := Encode(samples()[0])
		change(m.GetMigrate())
		return decode(m)
	}
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"nothing", decode(&Message{}), []string{"of no known type"}},
		{"nil", decode(nil), []string{"of no known type"}},
		{"a job", func() error { _, err := DecodeJob(EncodeJob(bad)); return err }(), []string{
			"no name", "-1 workers, not 1 to 4096", "1025 servers", "learning rate NaN", `tensor 0, "fc6": 0 values`, `tensor 1, "bias": -1ns of work`}},
		{"a job without tensors", decode(&Message{Body: &Message_Admit{&Job{Name: "a", Workers: 1}}}), []string{"0 tensors, not 1 to 65536"}},
		{"a long name", decode(&Message{Body: &Message_Admit{&Job{Name: strings.Repeat("a", 256), Workers: 1, Tensors: EncodeJob(testJob()).Tensors}}}), []string{"name of 256 bytes"}},
		{"data on the control plane", move(func(m *Migrate) { m.Kind = uint32(migrate.Push) }), []string{"push, which is not of the control plane"}},
		{"an unknown kind", move(func(m *Migrate) { m.Kind = 300 }), []string{"kind 300"}},
		{"nodes", move(func(m *Migrate) { m.From.Role = 3; m.To.Id = -1; m.At = -1; m.Seeder = -2; m.Key = nil }), []string{
			"a node of role 3", "node -1", "at Aggregator -1", "seeder -2", "no tensor is named"}},
		{"a tensor too many", move(func(m *Migrate) { m.Key.Tensor = control.MaxTensors }), []string{"tensor 65536"}},
		{"a cycle", decode(&Message{Body: &Message_Reserve{&Reserve{Cycle: -1, Slots: []*Slot{{Exec: -1}}}}}), []string{"cycle of -1ns", "no tensor", "no iteration", "work of -1ns"}},
		{"addresses", decode(&Message{Body: &Message_Peers{&Peers{Aggregators: []*Aggregator{{Id: -1, Address: "h1"}, {Address: "h1:0"}, {Address: ":1"}}}}}), []string{
			`address "h1"`, "Aggregator -1", `"h1:0"`, `":1"`}},
		{"a worker's report", decode(&Message{Body: &Message_WorkerReport{&WorkerReport{Rank: -1, Iterations: -1, Spent: math.MaxInt64, Transfers: []*Transfer{{Bytes: -1, Spent: -1}}}}}), []string{
			"rank -1", "-1 iterations", "iterations of 2562047h", "-1 bytes", "transfers of -1ns"}},
		{"an Aggregator's report", decode(&Message{Body: &Message_AggregatorReport{&AggregatorReport{Cpu: -1, Tensors: []*TensorReport{{Runs: -1, Nans: -1, Ranks: []int32{-5}}}}}}), []string{
			"CPU time of -1ns", "no tensor", "-1 runs", "-1 NaNs", "rank -5"}},
		{"a list that is cut", decode(&Message{Body: &Message_AggregatorReport{&AggregatorReport{Tensors: make([]*TensorReport, 20)}}}), []string{"and 8 more"}},
		{"another protocol", greet(hello(func(h *Hello) { h.Protocol = 2; h.Node = nil })), []string{"protocol version 2, and pMaster speaks 1"}},
		{"nobody", greet(hello(func(h *Hello) { h.Node = nil })), []string{"neither an Aggregator nor a worker"}},
		{"a rank too many", greet(worker(func(w *Worker) { w.Rank = 2 })), []string{"rank 2 of 2 workers"}},
		{"a profile", greet(worker(func(w *Worker) { w.Profile = &Profile{Tasks: []int64{5, -1, 0}, Transfer: math.NaN(), Reverts: -1} })), []string{
			"no length", "NaN ns for a byte", "3 tensors are profiled of 2", "work of 5ns in an iteration of 0s", "work of -1ns", "reverts -1"}},
	} {
		if !errors.Is(tt.err, ErrMessage) {
			t.Errorf("%s: %v", tt.name, tt.err)
			continue
		}
		for _, w := range tt.want {
			if !strings.Contains(tt.err.Error(), w) {
				t.Errorf("%s: %v\nsays nothing of %q", tt.name, tt.err, w)
			}
		}
	}
}

// Reasons of any length and content arrive, cut if need be.
func TestClip(t *testing.T) {
	for _, why := range []string{"", "a\xff b", strings.Repeat("é", MaxWhy)} {
		m, err := Decode(throughWire(t, Encode(control.Dismiss{Job: 1, Why: why})))
		if err != nil || why != "" && m.(control.Dismiss).Why == "" {
			t.Errorf("%.10q: %v, %v", why, m, err)
		}
	}
}

// FuzzDecode: what bytes mean is either an error and nothing, or a message that goes through the
// wire again as it is.
func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		text, err := proto.Marshal(Encode(m))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var w Message
		if proto.Unmarshal(text, &w) != nil {
			return
		}
		m, err := Decode(&w)
		if (err == nil) != (m != nil) {
			t.Fatalf("%v and %v", m, err)
		}
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		again, err := Decode(throughWire(t, Encode(m)))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v becomes %+v, %v", m, again, err)
		}
	})
}

// FuzzDecodeHello is the same of what nodes say first.
func FuzzDecodeHello(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 4 {
		g := Greeting{Life: r.Uint64(), Job: testJob(), Rank: 1, Measured: &Measured{Iteration: time.Second, Tasks: make([]time.Duration, r.IntN(4))}}
		if r.IntN(2) == 0 {
			g.Aggregator = &control.Peer{ID: 3, Address: "h1:7000"}
		}
		text, err := proto.Marshal(g.Encode())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var h Hello
		if proto.Unmarshal(text, &h) != nil {
			return
		}
		g, err := DecodeHello(&h)
		if (err == nil) != (g != nil) {
			t.Fatalf("%v and %v", g, err)
		}
		if err != nil {
			return
		}
		again, err := DecodeHello(g.Encode())
		if err != nil || !reflect.DeepEqual(again, g) {
			t.Fatalf("%+v becomes %+v, %v", g, again, err)
		}
	})
}

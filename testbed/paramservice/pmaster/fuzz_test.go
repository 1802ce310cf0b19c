package pmaster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// nowhere is a Pool whose Aggregators join when the test wants, and whose processes end with it.
type nowhere chan struct{}

func (n nowhere) Start(context.Context, int32) (Process, error) { return n, nil }
func (n nowhere) Done() <-chan struct{}                         { return n }
func (n nowhere) Stop(context.Context) error                    { return nil }

// FuzzNodes: whatever the nodes of one job and its Aggregator say, pMaster goes on, and a job beside
// them is neither ended nor moved.
func FuzzNodes(f *testing.F) {
	const job = 2
	key := control.Key{Job: job}
	about := func(who byte, k migrate.Kind, role migrate.Role, id int32, at int32) []byte {
		m := control.Migrate{Key: key, Message: migrate.Message[control.None]{
			Kind: k, From: migrate.Node{Role: role, ID: id}, Term: migrate.Term{Epoch: 1, Seq: 1}, Next: migrate.Term{Epoch: 1, Seq: 2}, At: at, Version: 1,
		}}
		return said(f, who, m)
	}
	var all []byte
	for _, text := range [][]byte{
		about(0, migrate.Status, migrate.Worker, 0, 1), about(1, migrate.Status, migrate.Worker, 1, 1),
		said(f, 2, control.Admitted{Job: job}),
		about(0, migrate.Fenced, migrate.Worker, 0, 0), about(1, migrate.Fenced, migrate.Worker, 1, 0),
		about(0, migrate.Assigned, migrate.Worker, 0, 0), about(0, migrate.CopyDone, migrate.Worker, 0, 1),
		about(2, migrate.WorkerDone, migrate.Aggregator, 1, 0), about(2, migrate.Migrating, migrate.Aggregator, 1, 0),
		about(1, migrate.Stuck, migrate.Worker, 1, 1),
		said(f, 0, control.WorkerReport{Job: job, Iterations: 3, Spent: 100, Transfers: []control.Transfer{{Aggregator: 1, Bytes: 5, Spent: 5}}}),
		said(f, 1, control.WorkerReport{Job: job, Rank: 1, Iterations: 3, Spent: 100}),
		said(f, 2, control.AggregatorReport{Tensors: []control.TensorReport{{Key: key, Runs: 1, Busy: 5, NaNs: 1}}}),
		said(f, 0, control.Finished{Job: job}), said(f, 1, control.Failed{Job: job, Why: "so"}),
	} {
		f.Add(text)
		all = append(all, text...)
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		pool := make(nowhere)
		m, err := New(Config{Plan: paramservice.DefaultMaster(), Pool: pool, State: filepath.Join(inMemory(t), "epoch"), Times: migrate.Times{Resend: 1 << 40, Attempts: 1}, Profile: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Abandon(func() { close(pool) }) // which nobody waits for
		var nodes []member
		var conns []*conn
		join := func(g wire.Greeting) {
			g.Life = uint64(len(nodes) + 1)
			c := newConn()
			who, err := m.attach(&g, c)
			if err != nil {
				t.Fatal(err)
			}
			nodes, conns = append(nodes, who), append(conns, c)
		}
		keep, err := m.Submit(t.Context(), control.Job{Name: "keep", Workers: 1, Tensors: make([]control.Tensor, 1)})
		if err != nil {
			t.Fatal(err)
		}
		evil, err := m.Submit(t.Context(), control.Job{Name: "evil", Workers: 2, Tensors: make([]control.Tensor, 2)})
		if err != nil || evil.ID != job {
			t.Fatal(evil, err)
		}
		join(wire.Greeting{Job: evil, Rank: 0})
		join(wire.Greeting{Job: evil, Rank: 1})
		join(wire.Greeting{Aggregator: &control.Peer{ID: 1, Address: "h1:1"}})
		join(wire.Greeting{Job: keep})
		join(wire.Greeting{Aggregator: &control.Peer{ID: 0, Address: "h0:1"}})
		for len(text) > 2 {
			who, n := int(text[0]%3), min(int(text[1]), len(text)-2)
			var msg wire.Message
			if proto.Unmarshal(text[2:2+n], &msg) == nil {
				m.receive(nodes[who], conns[who], &wire.Batch{Messages: []*wire.Message{&msg}})
			}
			text = text[2+n:]
		}
		s, err := m.Statistics()
		if err != nil || len(s.Jobs) == 0 || s.Jobs[0].Job.Name != "keep" || m.plan.Where("keep")[0] != 0 || !conns[3].live() || !conns[4].live() {
			t.Fatalf("%v, %v", s, err)
		}
	})
}

// inMemory is a directory that takes no time to write to, where there is one.
func inMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "inabench-fuzz-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// said is a node's number, and what it says.
func said(t testing.TB, who byte, m control.Message) []byte {
	text, err := proto.Marshal(wire.Encode(m))
	if err != nil || len(text) > 255 {
		t.Fatal(len(text), err)
	}
	return append([]byte{who, byte(len(text))}, text...)
}

package p4rt_test

// The same client against servers that answer as those of real switches do.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/dataplane/dataplanetest"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// target is a switch of some kind of server: what it is reached with, and what it runs.
type target struct {
	personality.Personality
	device uint64
	ports  map[uint32]uint32 // SDK ports
	config []byte
}

func targets() []target {
	stratum := bfrt.Config{Program: "ina_tna", BFRT: []byte("{}"), Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte("{}"), Binary: []byte{1}}}}.Marshal()
	sde := p4rt.SDEConfig{Program: "ina_tna", Binary: []byte{1}, Context: []byte("{}")}.Marshal()
	return []target{
		{personality.Stratum(), 1, map[uint32]uint32{1: 132, 2: 140, 3: 148, 4: 64}, stratum},
		{personality.SDE(), 0, nil, sde},
		{personality.PI(), 3, nil, []byte(`{"program": "ina.p4"}`)},
	}
}

// start serves a personality before a switch of its own.
func (g target) start(t *testing.T) (*personality.Server, *memory) {
	t.Helper()
	soft := loopback(t)
	names := map[uint32]string{1: "1/0", 2: "2/0", 3: "3/0", 4: "4/0"}
	s, err := personality.Start(g.Personality, personality.Options{
		Upstream: soft.addr, UpstreamDevice: device, Device: g.device, Ports: g.ports, Names: names,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, soft.mem
}

func (g target) options() p4rt.Options {
	return p4rt.Options{Options: dataplane.Options{Ports: g.ports}, WholeCounters: g.Name != "bmv2", FullWidth: g.FullWidth}
}

// compiled is the p4info as a compiler for another target might number it.
func compiled() *p4configv1.P4Info {
	info := p4.Info()
	for _, tab := range info.Tables {
		tab.Preamble.Id += 0x4711
		for _, m := range tab.MatchFields {
			m.Id += 6
		}
	}
	for _, a := range info.Actions {
		a.Preamble.Id += 0x815
		for _, p := range a.Params {
			p.Id = 50 - p.Id
		}
	}
	for _, tab := range info.Tables {
		for _, r := range tab.ActionRefs {
			r.Id += 0x815
		}
	}
	for _, k := range info.Counters {
		k.Preamble.Id += 0x100
	}
	return info
}

func (g target) pipeline() dataplane.Pipeline {
	return dataplane.Pipeline{Info: compiled(), DeviceConfig: g.config}
}

// Every server passes the tests of all switches.
func TestDataPlanes(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.Name, func(t *testing.T) {
			dataplanetest.Run(t, dataplanetest.Subject{Pipeline: g.pipeline(), Refused: []byte("no program"), Open: func(t *testing.T) (dataplane.Switch, *softswitchtest.Memory) {
				srv, mem := g.start(t)
				o := g.options()
				if o.Ports == nil { // those that there are
					o.Ports = map[uint32]uint32{1: 1, 2: 2, 3: 3, 4: 4}
				}
				c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, o)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close(context.Background()) })
				return c, mem
			}})
		})
	}
}

// One and the same code programs the INA pipeline on all of them: pushed twice over, ports
// by their own numbers, entries written, read back, counted and undone.
func TestPersonalities(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.Name, func(t *testing.T) {
			srv, mem := g.start(t)
			ctx := t.Context()
			c, err := p4rt.Dial(ctx, "tor1", srv.P4RT, g.device, g.options())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			for range 2 {
				if err := c.Push(ctx, g.pipeline()); err != nil {
					t.Fatal(err)
				}
				if err := c.Write(ctx, sample()); err != nil {
					t.Fatal(err)
				}
			}
			want := sample() // the switch behind counts from 1 whatever the server calls ports
			if diff := cmp.Diff(want, mem.State()); diff != "" {
				t.Errorf("switch (-want +got):\n%s", diff)
			}
			var got dataplane.Batch
			if got.Groups, err = c.ReadGroups(ctx); err != nil {
				t.Error(err)
			}
			if got.Routes, err = c.ReadRoutes(ctx); err != nil {
				t.Error(err)
			}
			if got.Jobs, err = c.ReadJobs(ctx); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}

			mem.Count(softswitch.PortRx, 2, 5)
			mem.Count(softswitch.JobIn, 1, 7)
			var cells []dataplane.CounterValue
			for name, index := range map[string]int{"port_rx": 2, "job_in": 1} {
				some, err := c.ReadCounters(ctx, []string{name}, []int{index})
				if err != nil {
					t.Error(err)
				}
				cells = append(cells, some...)
			}
			for _, v := range cells {
				if want := map[string]int64{"port_rx": 5, "job_in": 7}[v.Name]; v.Packets != want {
					t.Errorf("%+v, want %d packets", v, want)
				}
			}
			if len(cells) != 2 {
				t.Errorf("%d cells, want 2", len(cells))
			}
			if l := c.Loaded(); len(l.P4Info) != 64 || len(l.DeviceConfig) != 64 || l.Kept {
				t.Errorf("loaded %+v", l)
			}
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
				t.Errorf("after closing (-want +got):\n%s", diff)
			}
		})
	}
}

// What servers refuse, and how the client says it: each error names the switch, and what a
// person can do about it is a hint.
func TestPersonalityRefusals(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel() // it waits for somebody to give way
			srv, _ := g.start(t)
			ctx := t.Context()

			_, err := p4rt.Dial(ctx, "tor1", srv.P4RT, 9, p4rt.Options{})
			var hint interface{ Hint() string }
			if !errors.Is(err, dataplane.ErrDevice) || !strings.Contains(err.Error(), "device 9") || !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "device_id") {
				t.Errorf("another device: %v", err)
			}
			watcher, err := p4rt.Observe("tor1", srv.P4RT, 9, p4rt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer watcher.Close(context.Background())
			if err := watcher.Attach(ctx); !errors.Is(err, dataplane.ErrDevice) {
				t.Errorf("watching another device: %v", err)
			}
			if g.Name == "stratum" {
				if _, err := p4rt.Dial(ctx, "tor1", srv.P4RT, 0, p4rt.Options{}); err == nil || !strings.Contains(err.Error(), "Invalid device ID") {
					t.Errorf("device 0: %v", err)
				}
			}

			c, err := p4rt.Dial(ctx, "tor1", srv.P4RT, g.device, g.options())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			wrong := g.pipeline()
			for _, other := range targets() {
				if wrong.DeviceConfig = other.config; other.Name == g.Name {
					continue
				}
				var e *dataplane.Error
				if err := c.Push(ctx, wrong); !errors.As(err, &e) || e.Code != codes.InvalidArgument {
					t.Errorf("with the device config of %s: %v", other.Name, err)
				}
			}
			if err := c.Push(ctx, g.pipeline()); err != nil {
				t.Fatal(err)
			}

			// One bad update does not keep the others out, and is named.
			bad := sample()
			bad.Jobs = append(bad.Jobs, job(softswitchtest.RefusedJob, 8))
			var e *dataplane.Error
			if err := c.Write(ctx, bad); !errors.As(err, &e) || len(e.Updates) != 1 || e.Updates[0].Op != fmt.Sprintf("insert job %d", softswitchtest.RefusedJob) {
				t.Errorf("a job it has no room for: %v", err)
			}
			if jobs, err := c.ReadJobs(ctx); err != nil || len(jobs) != 2 {
				t.Errorf("%d jobs, %v, want those that were not refused", len(jobs), err)
			}
			if g.ports != nil {
				if err := c.WriteRoutes(ctx, []p4.Route{route(9, 5)}); !errors.Is(err, p4.ErrRange) || !strings.Contains(err.Error(), "port 5") {
					t.Errorf("a port that is not cabled: %v", err)
				}
			}

			// Who is outbid does not write any more.
			heir, err := p4rt.Dial(ctx, "tor1", srv.P4RT, g.device, g.options())
			if err != nil {
				t.Fatal(err)
			}
			defer heir.Close(context.Background())
			if err := c.WriteJob(ctx, job(3, 8)); !errors.Is(err, dataplane.ErrNotPrimary) {
				t.Errorf("after another controller came: %v", err)
			}
			if _, err := p4rt.Dial(ctx, "tor1", srv.P4RT, g.device, p4rt.Options{Options: dataplane.Options{Polite: true}}); !errors.Is(err, dataplane.ErrNotPrimary) {
				t.Errorf("politely: %v", err)
			}
		})
	}
}

// A server without table entries says so once and clearly: it is no use for inabench.
func TestServerWithoutTables(t *testing.T) {
	g := target{Personality: personality.SDE(), config: p4rt.SDEConfig{Program: "ina", Binary: []byte{1}, Context: []byte{1}}.Marshal()}
	g.NoTables = true
	srv, _ := g.start(t)
	c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, 0, p4rt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.Push(t.Context(), g.pipeline()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadJobs(t.Context()); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "cannot do that") {
		t.Errorf("read: %v", err)
	}
	if err := c.WriteJob(t.Context(), job(1, 8)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("write: %v", err)
	}
}

// The SDE's server wants all bytes of a field, and refuses the shortest byte strings, which others want.
func TestFullWidth(t *testing.T) {
	g := targets()[1]
	srv, mem := g.start(t)
	for full, code := range map[bool]codes.Code{false: codes.InvalidArgument, true: codes.OK} {
		o := g.options()
		o.FullWidth = full
		c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Push(t.Context(), g.pipeline()); err != nil {
			t.Fatal(err)
		}
		var refused *dataplane.Error
		if err := c.Write(t.Context(), sample()); err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
		if (refused == nil) != (code == codes.OK) || refused != nil && (len(refused.Updates) == 0 || refused.Updates[0].Code != code) {
			t.Errorf("all bytes %v: %v, want %v", full, refused, code)
		}
		if b := mem.State(); full && !cmp.Equal(b, sample()) || !full && len(b.Jobs)+len(b.Routes) > 0 {
			t.Errorf("all bytes %v: the switch has %+v", full, b)
		}
		c.Close(context.Background())
	}
}

// Stratum takes no bid without an election id: the polite question has one, and wins nothing.
func TestPoliteToStratum(t *testing.T) {
	g := targets()[0]
	srv, _ := g.start(t)
	c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, p4rt.Options{Options: dataplane.Options{Polite: true, Ports: g.ports}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if err := c.Push(t.Context(), g.pipeline()); err != nil {
		t.Error(err)
	}
	if err := c.Write(t.Context(), sample()); err != nil {
		t.Error(err)
	}
}

// Stratum takes five controllers.
func TestTooManyControllers(t *testing.T) {
	g := targets()[0]
	srv, _ := g.start(t)
	for i := range 6 {
		c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, p4rt.Options{})
		for began := time.Now(); i < 5 && status.Code(err) == codes.ResourceExhausted && time.Since(began) < time.Minute; {
			c, err = p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, p4rt.Options{}) // one of before still hangs up
		}
		var hint interface{ Hint() string }
		if i == 5 {
			if err == nil || !strings.Contains(err.Error(), "takes no more controllers") || !errors.As(err, &hint) {
				t.Errorf("the sixth: %v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		if i > 0 { // the one before has been outbid and hangs up: it comes back to watch
			observe(t, srv.P4RT, g.device, uint64(i))
		}
	}
}

// observe keeps a stream open that only watches, as soon as there is room for one. Its bid is
// lower than that of any who writes, and nobody else's.
func observe(t *testing.T, addr string, device, bid uint64) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		k := newController(t, rawClient(t, subject{addr: addr}), device)
		k.bid(id(bid))
		_, err := k.stream.Recv()
		if err == nil {
			return
		}
		if status.Code(err) != codes.ResourceExhausted || time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

// A pipeline that runs already is kept, empty of what others left. Not so where jobs are
// left, whose aggregators may be taken, nor another build.
func TestKeep(t *testing.T) {
	for _, g := range targets() {
		t.Run(g.Name, func(t *testing.T) {
			srv, mem := g.start(t)
			ctx := t.Context()
			open := func(p dataplane.Pipeline) *p4rt.Client {
				t.Helper()
				c, err := p4rt.Dial(ctx, "tor1", srv.P4RT, g.device, g.options())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close(context.Background()) })
				if err := c.Push(ctx, p); err != nil {
					t.Fatal(err)
				}
				return c
			}
			p := g.pipeline()
			p.Keep = true
			first := open(p)
			if err := first.Write(ctx, sample()); err != nil {
				t.Fatal(err)
			}
			if err := first.Delete(ctx, dataplane.Batch{Groups: sample().Groups[:1], Jobs: sample().Jobs}); err != nil {
				t.Fatal(err)
			}
			addSession(t, srv.P4RT, g.device, 77)
			second := open(p) // the first one has not undone the rest
			if !second.Loaded().Kept || first.Loaded().Kept || srv.Pushes() != 1 {
				t.Errorf("kept %v after %d pushes", second.Loaded().Kept, srv.Pushes())
			}
			if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" || srv.Sessions() != 0 {
				t.Errorf("left of the first run, beside %d clone sessions (-want +got):\n%s", srv.Sessions(), diff)
			}
			if err := second.Write(ctx, sample()); err != nil {
				t.Error(err)
			}
			if third := open(p); third.Loaded().Kept || srv.Pushes() != 2 {
				t.Errorf("with jobs of a run that was killed: kept %v after %d pushes", third.Loaded().Kept, srv.Pushes())
			}
			p.DeviceConfig = append([]byte(nil), g.config...)
			if g.Name == "bmv2" {
				p.DeviceConfig = append(p.DeviceConfig, ' ')
			} else {
				p.DeviceConfig[len(p.DeviceConfig)-1] ^= 1
			}
			if fourth := open(p); fourth.Loaded().Kept || srv.Pushes() != 3 {
				t.Errorf("another build: kept %v after %d pushes", fourth.Loaded().Kept, srv.Pushes())
			}
			p.Keep = false
			if fifth := open(p); fifth.Loaded().Kept || srv.Pushes() != 4 {
				t.Errorf("on demand: kept %v after %d pushes", fifth.Loaded().Kept, srv.Pushes())
			}
		})
	}
}

// addSession makes a clone session as some other program might have.
func addSession(t *testing.T, addr string, device uint64, session uint32) {
	t.Helper()
	rpc := rawClient(t, subject{addr: addr})
	k := newController(t, rpc, device)
	bid := id(uint64(time.Now().UnixNano()))
	k.bid(bid)
	k.hears(bid, codes.OK)
	e := cloneSession(session)
	e.GetPacketReplicationEngineEntry().GetCloneSessionEntry().Replicas = []*p4v1.Replica{{PortKind: &p4v1.Replica_EgressPort{EgressPort: 64}, Instance: 1}}
	_, err := rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: device, ElectionId: bid, Updates: []*p4v1.Update{{Type: p4v1.Update_INSERT, Entity: e}}})
	if err != nil {
		t.Fatal(err)
	}
	k.hangUp()
}

// A switch that has restarted says more than that its stream was lost.
func TestRestartRecognised(t *testing.T) {
	g := targets()[0]
	for what, restart := range map[string]func(t *testing.T) (addr string, restart func()){
		"it has no pipeline any more": func(t *testing.T) (string, func()) {
			s := loopback(t)
			srv, err := personality.Start(g.Personality, personality.Options{Upstream: s.addr, UpstreamDevice: device, Device: g.device})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(srv.Close)
			return srv.P4RT, s.restart
		},
		"it is controlled again, and has kept what was written into it": func(t *testing.T) (string, func()) {
			s, _ := target{Personality: g.Personality, device: g.device}.start(t)
			return s.P4RT, s.Drop
		},
		"what was written into it is gone": func(t *testing.T) (string, func()) { // Stratum loads what it has saved
			s, _ := target{Personality: g.Personality, device: g.device}.start(t)
			return s.P4RT, func() {
				if err := s.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			addr, restart := restart(t)
			c, err := p4rt.Dial(t.Context(), "tor1", addr, g.device, p4rt.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			if err := c.Push(t.Context(), g.pipeline()); err != nil {
				t.Fatal(err)
			}
			if err := c.Write(t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{job(1, 8)}}); err != nil {
				t.Fatal(err)
			}
			restart()
			<-c.Lost()
			kept := strings.Contains(what, "kept")
			if err := c.Explain(deadline(t)); errors.Is(err, dataplane.ErrRestarted) == kept || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want %q", err, what)
			}
		})
	}
}

// Stratum answers a read of whole counters with one message, above gRPC's own limit.
func TestLargeReply(t *testing.T) {
	proof.Only(t, "six megabytes of counters")
	g := targets()[0]
	srv, mem := g.start(t)
	o := g.options()
	o.CallTimeout = time.Minute
	c, err := p4rt.Dial(t.Context(), "tor1", srv.P4RT, g.device, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	p := g.pipeline()
	const size = 1 << 16
	names := []string{"job_in", "job_out", "job_granted", "job_denied", "job_hold"}
	for _, k := range p.Info.Counters {
		k.Size = size
	}
	if err := c.Push(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for i := range 4096 {
		mem.Count(softswitch.JobIn, i, 1<<40) // numbers that take room
	}
	all, err := c.ReadCounters(t.Context(), names, nil)
	if err != nil || len(all) != len(names)*size {
		t.Fatalf("%d cells, %v", len(all), err)
	}
	if first := all[0]; first.Index != 0 || first.Packets != 1<<40 {
		t.Errorf("the first cell is %+v", first)
	}
}

// unsynced answers reads of counters without the data of cells that it has not copied from
// the chip.
type unsynced struct {
	*recorder
	queries int
}

func (u *unsynced) Read(q *p4v1.ReadRequest, stream p4v1.P4Runtime_ReadServer) error {
	r := new(p4v1.ReadResponse)
	for _, e := range q.Entities {
		if k := e.GetCounterEntry(); k != nil {
			u.queries++
			for i := range int64(4) {
				cell := &p4v1.CounterEntry{CounterId: k.CounterId, Index: &p4v1.Index{Index: i}}
				if i%2 == 0 {
					cell.Data = &p4v1.CounterData{PacketCount: i}
				}
				r.Entities = append(r.Entities, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: cell}})
			}
		}
	}
	return stream.Send(r)
}

// What the server has no value of is unknown, not zero; and a counter is asked for once,
// whole, where many of its cells are wanted, and otherwise cell by cell.
func TestUnsyncedCells(t *testing.T) {
	u := &unsynced{recorder: &recorder{mute: make(chan struct{})}}
	close(u.mute)
	c, err := p4rt.Dial(t.Context(), "tor1", u.serve(t, u), device, p4rt.Options{WholeCounters: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	info := p4.Info()
	for _, k := range info.Counters {
		if k.Preamble.Alias == "job_in" {
			k.Size = 32
		}
	}
	if err := c.Push(t.Context(), dataplane.Pipeline{Info: info}); err != nil {
		t.Fatal(err)
	}
	got, err := c.ReadCounters(t.Context(), []string{"job_in"}, []int{0, 1, 2})
	want := []dataplane.CounterValue{{Name: "job_in", Index: 0}, {Name: "job_in", Index: 2, Packets: 2}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || u.queries != 1 {
		t.Errorf("%v after %d queries (-want +got):\n%s", err, u.queries, diff)
	}
	u.queries = 0
	if _, err := c.ReadCounters(t.Context(), []string{"job_out"}, []int{0, 1, 2}); err != nil || u.queries != 3 {
		t.Errorf("three of 4,096 cells: %v, %d queries", err, u.queries)
	}
	if _, err := c.ReadCounters(t.Context(), []string{"job_in"}, []int{32}); !errors.Is(err, p4.ErrRange) {
		t.Errorf("a cell that is not there: %v", err)
	}
}

// jealous says that the first bids are in use by somebody else.
type jealous struct {
	*recorder
	refuse int
	ids    []uint64
}

func (j *jealous) StreamChannel(stream p4v1.P4Runtime_StreamChannelServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.ids = append(j.ids, m.GetArbitration().GetElectionId().GetLow())
	refuse := len(j.ids) <= j.refuse
	j.mu.Unlock()
	if refuse {
		return status.Error(codes.InvalidArgument, "election id is in use")
	}
	err = stream.Send(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: m.GetArbitration()}})
	if err == nil {
		<-stream.Context().Done()
	}
	return err
}

// A bid that somebody else has made already is made again, higher; not for ever.
func TestDuplicateBids(t *testing.T) {
	for _, refuse := range []int{1, 2, 10} {
		j := &jealous{recorder: &recorder{mute: make(chan struct{})}, refuse: refuse}
		close(j.mute)
		c, err := p4rt.Dial(t.Context(), "tor1", j.serve(t, j), device, p4rt.Options{})
		if (err == nil) != (refuse < 10) {
			t.Errorf("%d bids refused: %v", refuse, err)
		}
		if err == nil {
			c.Close(context.Background())
		}
		j.mu.Lock()
		if n := len(j.ids); n != min(refuse+1, 3) || !slices.IsSorted(j.ids) || len(slices.Compact(j.ids)) != n {
			t.Errorf("%d bids refused: bid %d", refuse, j.ids)
		}
		j.mu.Unlock()
	}
}

// own is a server that numbers entities its own way, whatever the p4info says that is pushed.
type own struct {
	*recorder
	written []*p4v1.Entity
}

func (o *own) GetForwardingPipelineConfig(context.Context, *p4v1.GetForwardingPipelineConfigRequest) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	return &p4v1.GetForwardingPipelineConfigResponse{Config: &p4v1.ForwardingPipelineConfig{P4Info: compiled()}}, nil
}

func (o *own) Write(_ context.Context, w *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	for _, u := range w.Updates {
		o.written = append(o.written, u.Entity)
	}
	return &p4v1.WriteResponse{}, nil
}

// Ids are those of the p4info that the switch gives, not of the one that was pushed.
func TestIDsOfTheTarget(t *testing.T) {
	o := &own{recorder: &recorder{mute: make(chan struct{})}}
	close(o.mute)
	c, err := p4rt.Dial(t.Context(), "tor1", o.serve(t, o), device, p4rt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	push(t, c)
	o.written = nil // groups of before
	if err := c.WriteJob(t.Context(), job(1, 8)); err != nil {
		t.Fatal(err)
	}
	pipe, err := p4.NewPipeline(compiled())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pipe.DecodeJob(o.written[0].GetTableEntry()); err != nil || got != job(1, 8) {
		t.Errorf("%+v, %v", got, err)
	}
}

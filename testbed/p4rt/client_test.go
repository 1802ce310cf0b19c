package p4rt_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/softswitch"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
	"github.com/inabench/inabench/testbed/testbedtest"
)

func dial(t testing.TB, addr string) *p4rt.Client {
	t.Helper()
	c, err := p4rt.Dial(t.Context(), "tor1", addr, device, p4rt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func push(t testing.TB, c *p4rt.Client) {
	t.Helper()
	if err := c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info()}); err != nil {
		t.Fatal(err)
	}
}

func job(id uint16, size uint32) ina.JobEntry {
	return ina.JobEntry{Job: id, Epoch: 1, Mode: ina.Statistical, Size: size, Expect: 3, Window: 8, UpPort: 4, DownGroup: id}
}

func route(last byte, port uint32) p4.Route {
	return p4.Route{Dst: [4]byte{10, 0, 0, last}, Port: port, MAC: [6]byte{2, 0, 0, 0, 0, last}}
}

// sample is one of everything.
func sample() dataplane.Batch {
	return dataplane.Batch{
		Groups: []p4.Group{{ID: 1, Ports: []uint32{1, 2}}, {ID: 2, Ports: []uint32{3}}},
		Routes: []p4.Route{route(1, 1), route(2, 2)},
		Jobs:   []ina.JobEntry{job(1, 64), {Job: 2, Epoch: 1, UpPort: 4, DownGroup: 2}},
	}
}

// TestWriteReadUndo writes the same batch twice, reads it back, deletes some of it
// twice and closes: what was written is in force, and in the end nothing is left.
func TestWriteReadUndo(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *server{"tcp": loopback, "unix": unixSocket} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			ctx := t.Context()
			c := dial(t, s.addr)
			push(t, c)
			want := sample()
			for range 2 {
				if err := c.Write(ctx, want); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, s.mem.State()); diff != "" {
				t.Errorf("switch (-want +got):\n%s", diff)
			}
			var got dataplane.Batch
			var err error
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

			want.Jobs[0].Size = 16 // a live resize is a second write
			if err := c.WriteJob(ctx, want.Jobs[0]); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, s.mem.State()); diff != "" {
				t.Errorf("after a resize (-want +got):\n%s", diff)
			}
			for range 2 {
				gone := dataplane.Batch{Jobs: want.Jobs[:1], Routes: want.Routes[:1]}
				for _, err := range []error{c.Delete(ctx, gone), c.DeleteGroup(ctx, 1)} {
					if err != nil {
						t.Error(err)
					}
				}
			}
			want = dataplane.Batch{Groups: want.Groups[1:], Routes: want.Routes[1:], Jobs: want.Jobs[1:]}
			if diff := cmp.Diff(want, s.mem.State()); diff != "" {
				t.Errorf("after deleting (-want +got):\n%s", diff)
			}
			for range 2 {
				if err := c.Close(ctx); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(dataplane.Batch{}, s.mem.State()); diff != "" {
				t.Errorf("after closing (-want +got):\n%s", diff)
			}
			if err := c.Err(); err != nil {
				t.Errorf("closing counts as a loss: %v", err)
			}
			if err := c.WriteJob(ctx, job(1, 1)); !errors.Is(err, dataplane.ErrClosed) {
				t.Errorf("write after close: %v", err)
			}
		})
	}
}

// TestUndoRestores attaches to a switch that someone has set up: their entries are
// back after Close, also those that were overwritten or deleted meanwhile.
func TestUndoRestores(t *testing.T) {
	s := loopback(t)
	ctx := t.Context()
	owner, err := p4rt.Dial(ctx, "tor1", s.addr, device, p4rt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	push(t, owner)
	theirs := sample()
	if err := owner.Write(ctx, theirs); err != nil {
		t.Fatal(err)
	}

	c := dial(t, s.addr) // outbids the owner
	if err := c.Attach(ctx); err != nil {
		t.Fatal(err)
	}
	ours := dataplane.Batch{
		Groups: []p4.Group{{ID: 1, Ports: []uint32{4}}, {ID: 3, Ports: []uint32{4}}},
		Routes: []p4.Route{route(1, 4), route(3, 4)},
		Jobs:   []ina.JobEntry{{Job: 1, Epoch: 9, DownGroup: 3}, job(3, 8)}, // another action for job 1
	}
	if err := c.Write(ctx, ours); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, dataplane.Batch{Routes: ours.Routes[:1]}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(theirs, s.mem.State()); diff != "" {
		t.Errorf("theirs (-want +got):\n%s", diff)
	}

	<-owner.Lost()
	if err := owner.Err(); !errors.Is(err, dataplane.ErrNotPrimary) || !strings.HasPrefix(err.Error(), "switch tor1: P4Runtime stream lost: another controller") {
		t.Errorf("outbid: %v", err)
	}
	if err := owner.WriteJob(ctx, job(1, 1)); !errors.Is(err, dataplane.ErrNotPrimary) {
		t.Errorf("write after being outbid: %v", err)
	}
	if err := owner.Close(ctx); err != nil {
		t.Errorf("close after being outbid: %v", err)
	}
	if diff := cmp.Diff(theirs, s.mem.State()); diff != "" {
		t.Errorf("a client that was outbid changed the switch (-want +got):\n%s", diff)
	}
}

// TestReconnect restarts the switch under a client: the loss is reported and stays
// known, the client is primary again by itself, and can load everything anew.
func TestReconnect(t *testing.T) {
	s := loopback(t)
	ctx := t.Context()
	c := dial(t, s.addr)
	push(t, c)
	if err := c.Write(ctx, sample()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Lost():
		t.Fatalf("lost before anything happened: %v", c.Err())
	default:
	}
	s.restart()
	select {
	case <-c.Lost():
	case <-time.After(answerTime):
		t.Fatal("the loss was not reported")
	}
	if err := c.Err(); err == nil || !strings.HasPrefix(err.Error(), "switch tor1: P4Runtime stream lost: ") {
		t.Errorf("loss: %v", err)
	}
	// The switch came back empty, without a pipeline.
	err := c.WriteJob(ctx, job(1, 64))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("write to a restarted switch: %v", err)
	}
	push(t, c)
	if err := c.Write(ctx, sample()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(sample(), s.mem.State()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if c.Err() == nil {
		t.Error("the loss was forgotten")
	}
}

// TestCloseAfterRestart: there is nothing to undo on a switch that came back empty.
func TestCloseAfterRestart(t *testing.T) {
	s := loopback(t)
	c := dial(t, s.addr)
	push(t, c)
	if err := c.Write(t.Context(), sample()); err != nil {
		t.Fatal(err)
	}
	s.restart()
	<-c.Lost()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a run that was interrupted cleans up all the same
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestCloseWithoutSwitch is bounded and says what it could not do.
func TestCloseWithoutSwitch(t *testing.T) {
	s := loopback(t)
	c, err := p4rt.Dial(t.Context(), "tor1", s.addr, device, p4rt.Options{Options: dataplane.Options{CallTimeout: 3 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	push(t, c)
	if err := c.WriteJob(t.Context(), job(1, 1)); err != nil {
		t.Fatal(err)
	}
	s.stop()
	err = c.Close(context.Background())
	if err == nil || !strings.HasPrefix(err.Error(), "switch tor1: undo what was written: ") {
		t.Errorf("close: %v", err)
	}
}

// TestRefusedUpdates: the error names the switch, the entries and the switch's own
// reasons; what was not refused is in force.
func TestRefusedUpdates(t *testing.T) {
	s := loopback(t)
	c := dial(t, s.addr)
	push(t, c)
	err := c.WriteJobs(t.Context(), []ina.JobEntry{job(1, 4), job(softswitchtest.RefusedJob, 4), job(2, 4)})
	var e *dataplane.Error
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || len(e.Updates) != 1 {
		t.Fatalf("got %#v", err)
	}
	want := "switch tor1: write: insert job 4000: InvalidArgument: no aggregators left"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := s.mem.State().Jobs; len(got) != 2 {
		t.Errorf("in force: %v", got)
	}
	err = c.WriteJob(t.Context(), ina.JobEntry{Job: 9, Mode: ina.Exclusive + 1})
	if !errors.Is(err, p4.ErrInvalid) || !strings.HasPrefix(err.Error(), "switch tor1: write: ") {
		t.Errorf("an entry that cannot be encoded: %v", err)
	}
}

// TestLargeBatch needs several requests, and details for thousands of updates.
func TestLargeBatch(t *testing.T) {
	s := loopback(t)
	c := dial(t, s.addr)
	push(t, c)
	var jobs []ina.JobEntry
	for id := range uint16(ina.MaxJob) {
		jobs = append(jobs, job(id+1, 8))
	}
	err := c.WriteJobs(t.Context(), jobs)
	var e *dataplane.Error
	if !errors.As(err, &e) || len(e.Updates) != 1 {
		t.Fatalf("only job %d has no room: %v", softswitchtest.RefusedJob, err)
	}
	got, err := c.ReadJobs(t.Context())
	if err != nil || len(got) != ina.MaxJob-1 {
		t.Fatalf("%d jobs, %v", len(got), err)
	}
	err = c.WriteJobs(t.Context(), jobs)
	if !errors.As(err, &e) || len(e.Updates) != 1 {
		t.Fatalf("again: %v", err)
	}
}

func TestCounters(t *testing.T) {
	s := loopback(t)
	ctx := t.Context()
	c := dial(t, s.addr)
	if _, err := c.ReadCounters(ctx, nil, nil); !errors.Is(err, dataplane.ErrNoPipeline) {
		t.Errorf("without a pipeline: %v", err)
	}
	push(t, c)
	s.mem.Count(softswitch.PortRx, 3, 5)
	s.mem.Count(softswitch.JobIn, 4095, 7)

	got, err := c.ReadCounters(ctx, []string{"port_rx", "port_tx"}, []int{2, 3})
	want := []dataplane.CounterValue{{Name: "port_rx", Index: 2, Packets: 0, Bytes: 0}, {Name: "port_rx", Index: 3, Packets: 5, Bytes: 500}, {Name: "port_tx", Index: 2, Packets: 0, Bytes: 0}, {Name: "port_tx", Index: 3, Packets: 0, Bytes: 0}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	all, err := c.ReadCounters(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, info := range p4.Info().Counters {
		cells += int(info.Size)
	}
	counted := slices.DeleteFunc(slices.Clone(all), func(v dataplane.CounterValue) bool { return v.Packets == 0 })
	want = []dataplane.CounterValue{{Name: "port_rx", Index: 3, Packets: 5, Bytes: 500}, {Name: "job_in", Index: 4095, Packets: 7, Bytes: 700}}
	if diff := cmp.Diff(want, counted); diff != "" || len(all) != cells {
		t.Errorf("%d cells, want %d; of these not zero (-want +got):\n%s", len(all), cells, diff)
	}

	if _, err := c.ReadCounters(ctx, []string{"port_smell"}, nil); !errors.Is(err, p4.ErrUnknown) {
		t.Errorf("no such counter: %v", err)
	}
	if _, err := c.ReadCounters(ctx, []string{"port_rx"}, []int{512}); !errors.Is(err, p4.ErrRange) {
		t.Errorf("no such index: %v", err)
	}
}

// TestOtherIDs: a target compiled to other ids works, because they are looked up.
func TestOtherIDs(t *testing.T) {
	s := loopback(t)
	c := dial(t, s.addr)
	info := p4.Info()
	for _, tab := range info.Tables {
		tab.Preamble.Id += 0x4711
	}
	for _, a := range info.Actions {
		a.Preamble.Id += 0x815
		for _, p := range a.Params {
			p.Id = 50 - p.Id
		}
	}
	for _, k := range info.Counters {
		k.Preamble.Id += 0x100
	}
	if err := c.Push(t.Context(), dataplane.Pipeline{Info: info}); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), sample()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), s.mem.State()); diff != "" {
		t.Errorf("switch (-want +got):\n%s", diff)
	}
	s.mem.Count(softswitch.JobHold, 1, 3)
	got, err := c.ReadCounters(t.Context(), []string{"job_hold"}, []int{1})
	if err != nil || len(got) != 1 || got[0].Packets != 3 {
		t.Errorf("job_hold: %v, %v", got, err)
	}
}

// TestDialErrors: each says which switch, where, and why.
func TestDialErrors(t *testing.T) {
	closed, err := testbedtest.Nobody(t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	good := loopback(t)

	for _, tt := range []struct {
		name   string
		addr   string
		device uint64
		want   string
	}{
		{"nobody listens", closed, device, "no answer within 1s: dial tcp " + closed + ": connect: connection refused"},
		{"no socket", "unix:/nonexistent/socket", device, "no such file or directory"},
		{"mute server", mute.Addr().String(), device, "no answer within 1s"},
		{"other device", good.addr, 99, "NotFound: device 99 is not here, 7 is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most wait
			_, err := p4rt.Dial(t.Context(), "tor1", tt.addr, tt.device, p4rt.Options{Options: dataplane.Options{DialTimeout: time.Second}})
			if err == nil || !strings.HasPrefix(err.Error(), "switch tor1: connect to P4Runtime at "+tt.addr) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p4rt.Dial(ctx, "tor1", mute.Addr().String(), device, p4rt.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDialWaits: a switch that starts a little later than its controller is found.
func TestDialWaits(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	lis.Close()
	var late sync.WaitGroup
	late.Go(func() {
		time.Sleep(100 * time.Millisecond) // the delay is the point
		startServer(t, "tcp", addr)
	})
	defer late.Wait()
	dial(t, addr)
}

// TestSkewedClock: someone was primary with an id far in the future and left. The
// client bids above it; while they are there, it does not.
func TestSkewedClock(t *testing.T) {
	s := loopback(t)
	future := &p4v1.Uint128{High: 1, Low: 1<<64 - 1}
	other := newController(t, rawClient(t, subject{addr: s.addr}), device)
	other.bid(future)
	other.hears(future, codes.OK)
	_, err := p4rt.Dial(t.Context(), "tor1", s.addr, device, p4rt.Options{})
	if !errors.Is(err, dataplane.ErrNotPrimary) || !strings.Contains(err.Error(), "election id 1:18446744073709551615") {
		t.Errorf("someone else is primary: %v", err)
	}
	watcher := newController(t, rawClient(t, subject{addr: s.addr}), device)
	watcher.bid(nil)
	watcher.hears(future, codes.AlreadyExists)
	other.hangUp()
	watcher.hears(future, codes.NotFound)
	push(t, dial(t, s.addr))
	watcher.hears(&p4v1.Uint128{High: 2}, codes.AlreadyExists)
}

// TestPolite dials a switch that is free, then one that is controlled, then the same
// one when its controller has left.
func TestPolite(t *testing.T) {
	s := loopback(t)
	polite := func() (*p4rt.Client, error) {
		return p4rt.Dial(t.Context(), "tor1", s.addr, device, p4rt.Options{Options: dataplane.Options{Polite: true}})
	}
	owner, err := polite()
	if err != nil {
		t.Fatalf("free switch: %v", err)
	}
	push(t, owner)
	if _, err := polite(); !errors.Is(err, dataplane.ErrNotPrimary) || !strings.Contains(err.Error(), "primary, since 2") {
		t.Errorf("switch in use: %v", err)
	}
	if err := owner.WriteJob(t.Context(), job(1, 1)); err != nil {
		t.Errorf("the owner was disturbed: %v", err)
	}
	if err := owner.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := polite()
	if err != nil {
		t.Fatalf("switch that is free again: %v", err)
	}
	if err := next.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestObserve: an observer reads what another client controls, which does not notice, and
// changes nothing, also with its end.
func TestObserve(t *testing.T) {
	s := loopback(t)
	ctx := t.Context()
	o, err := p4rt.Observe("tor1", s.addr, device, p4rt.Options{Options: dataplane.Options{CallTimeout: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Attach(ctx); err == nil {
		t.Error("attached to a switch without a pipeline")
	}
	owner := dial(t, s.addr)
	push(t, owner)
	if err := owner.WriteJob(ctx, job(1, 64)); err != nil {
		t.Fatal(err)
	}
	s.mem.Count(softswitch.JobIn, 1, 7)
	if err := o.Attach(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := o.ReadCounters(ctx, []string{"job_in"}, []int{1})
	if diff := cmp.Diff([]dataplane.CounterValue{{Name: "job_in", Index: 1, Packets: 7, Bytes: 700}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	jobs, err := o.ReadJobs(ctx)
	if err != nil || len(jobs) != 1 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	for what, err := range map[string]error{
		"write": o.WriteJob(ctx, job(2, 64)), "delete": o.Delete(ctx, dataplane.Batch{Jobs: jobs}),
		"push": o.Push(ctx, dataplane.Pipeline{Info: p4.Info()}),
	} {
		if !errors.Is(err, dataplane.ErrNotPrimary) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := o.Close(ctx); err != nil {
		t.Error(err)
	}
	if _, err := o.ReadJobs(ctx); err == nil {
		t.Error("read after Close")
	}
	if jobs, err := owner.ReadJobs(ctx); err != nil || len(jobs) != 1 || owner.Err() != nil {
		t.Errorf("the owner was disturbed: %+v, %v, %v", jobs, err, owner.Err())
	}
}

// recorder is a P4Runtime server that notes the order of requests, behind another one.
type recorder struct {
	p4v1.UnimplementedP4RuntimeServer
	mu    sync.Mutex
	calls []string
	// groups are what a read finds; loading a pipeline does not change them, as the
	// data plane of BMv2 keeps them.
	groups, sessions []*p4v1.Entity
	mute             chan struct{} // Capabilities answers when closed
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, s)
}

func (r *recorder) StreamChannel(stream p4v1.P4Runtime_StreamChannelServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		r.note("arbitration")
		a := m.GetArbitration()
		err = stream.Send(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: a.DeviceId, ElectionId: a.ElectionId},
		}})
		if err != nil {
			return err
		}
	}
}

func (r *recorder) Read(q *p4v1.ReadRequest, stream p4v1.P4Runtime_ReadServer) error {
	if q.Entities[0].GetPacketReplicationEngineEntry().GetCloneSessionEntry() != nil {
		r.note("read clone sessions")
		return stream.Send(&p4v1.ReadResponse{Entities: r.sessions})
	}
	r.note("read groups")
	return stream.Send(&p4v1.ReadResponse{Entities: r.groups})
}

func (r *recorder) Write(_ context.Context, w *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	for _, u := range w.Updates {
		what := " group"
		if u.Entity.GetPacketReplicationEngineEntry().GetCloneSessionEntry() != nil {
			what = " clone session"
		}
		r.note(u.Type.String() + what)
	}
	return &p4v1.WriteResponse{}, nil
}

func (r *recorder) SetForwardingPipelineConfig(_ context.Context, q *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	r.note(q.Action.String())
	return &p4v1.SetForwardingPipelineConfigResponse{}, nil
}

func (r *recorder) Capabilities(ctx context.Context, _ *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	select {
	case <-r.mute:
	case <-ctx.Done():
	}
	return &p4v1.CapabilitiesResponse{}, nil
}

func (r *recorder) serve(t *testing.T, as ...p4v1.P4RuntimeServer) string {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	p4v1.RegisterP4RuntimeServer(g, append(as, r)[0])
	var served sync.WaitGroup
	served.Go(func() { g.Serve(lis) })
	t.Cleanup(func() {
		g.Stop()
		served.Wait()
	})
	return lis.Addr().String()
}

// TestPushOrder: arbitration first, then groups and clone sessions go, then the pipeline comes.
func TestPushOrder(t *testing.T) {
	r := &recorder{groups: []*p4v1.Entity{group(4, 1), group(5, 1, 2)}, sessions: []*p4v1.Entity{cloneSession(9)}, mute: make(chan struct{})}
	close(r.mute)
	c := dial(t, r.serve(t))
	push(t, c)
	want := []string{"arbitration", "read groups", "read clone sessions", "DELETE group", "DELETE group", "DELETE clone session", "VERIFY_AND_COMMIT"}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		t.Errorf("got %q, want %q", r.calls, want)
	}
}

func cloneSession(id uint32) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: id}},
	}}}
}

// TestJobs: how many jobs a program can sum for is known from its p4info, before a job with
// an id beyond is refused.
func TestJobs(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	c := dial(t, r.serve(t))
	if got := c.Jobs(); got != ina.MaxJob {
		t.Errorf("without a program: %d", got)
	}
	push(t, c)
	if got := c.Jobs(); got != ina.MaxJob {
		t.Errorf("embedded switch: %d", got)
	}
	info, config, _, err := p4.BMv2()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(t.Context(), dataplane.Pipeline{Info: info, DeviceConfig: config}); err != nil {
		t.Fatal(err)
	}
	if got := c.Jobs(); got != 127 {
		t.Errorf("BMv2: %d, its program has 128 places of which 0 is none", got)
	}
}

// TestDeleteByKey: a job goes with its group for resends, whatever its way up is called here.
func TestDeleteByKey(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	close(r.mute)
	o := p4rt.Options{Options: dataplane.Options{Ports: map[uint32]uint32{1: 301, 2: 302}}}
	c, err := p4rt.Dial(t.Context(), "tor1", r.serve(t), device, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	info, config, _, err := p4.BMv2()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Push(t.Context(), dataplane.Pipeline{Info: info, DeviceConfig: config}); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.calls = nil
	r.mu.Unlock()
	if err := c.Delete(t.Context(), dataplane.Batch{Jobs: []ina.JobEntry{{Job: 7}}}); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(slices.DeleteFunc(slices.Clone(r.calls), func(s string) bool { return !strings.HasPrefix(s, "DELETE") })); n != 2 {
		t.Errorf("%q, want an entry and a group deleted", r.calls)
	}
}

// TestSilentSwitch: a switch that keeps its connection but answers nothing is lost.
func TestSilentSwitch(t *testing.T) {
	r := &recorder{mute: make(chan struct{})}
	c, err := p4rt.Dial(t.Context(), "tor1", r.serve(t), device, p4rt.Options{Options: dataplane.Options{Keepalive: 20 * time.Millisecond, CallTimeout: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	select {
	case <-c.Lost():
	case <-time.After(answerTime):
		t.Fatal("silence was not noticed")
	}
	if err := c.Err(); !strings.Contains(err.Error(), "no sign of life within 100ms") {
		t.Error(err)
	}
}

// BenchmarkSession is what a run pays per switch: connect, push, program, undo.
func BenchmarkSession(b *testing.B) {
	s := loopback(b)
	for b.Loop() {
		c, err := p4rt.Dial(b.Context(), "tor1", s.addr, device, p4rt.Options{})
		if err == nil {
			err = c.Push(b.Context(), dataplane.Pipeline{Info: p4.Info()})
		}
		if err == nil {
			err = c.Write(b.Context(), sample())
		}
		if err == nil {
			err = c.Close(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteJobs is one request with 500 entries, inserted or replaced.
func BenchmarkWriteJobs(b *testing.B) {
	s := loopback(b)
	c := dial(b, s.addr)
	push(b, c)
	var jobs []ina.JobEntry
	for id := range uint16(500) {
		jobs = append(jobs, job(id+1, 8))
	}
	for b.Loop() {
		if err := c.WriteJobs(b.Context(), jobs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(jobs)), "µs/entry")
}

// BenchmarkReadCounters is a sampler's tick: every counter of 16 ports.
func BenchmarkReadCounters(b *testing.B) {
	s := loopback(b)
	c := dial(b, s.addr)
	push(b, c)
	var names []string
	for _, info := range p4.Info().Counters {
		if strings.HasPrefix(info.Preamble.Alias, "port_") {
			names = append(names, info.Preamble.Alias)
		}
	}
	var ports []int
	for p := range 16 {
		ports = append(ports, p+1)
	}
	for b.Loop() {
		if _, err := c.ReadCounters(b.Context(), names, ports); err != nil {
			b.Fatal(err)
		}
	}
}

package bfrt_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/dataplane/dataplanetest"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// devPorts are the SDK's numbers of ports, by those of an inventory.
var devPorts = map[uint32]uint32{1: 132, 2: 140, 3: 148, 4: 64}

func options() bfrt.Options { return bfrt.Options{Options: dataplane.Options{Ports: devPorts}} }

// serve is a BFRuntime server before a switch of its own.
func serve(t *testing.T) (*personality.BFRuntime, *softswitchtest.Memory) {
	t.Helper()
	mem := softswitchtest.NewMemory()
	s, err := personality.StartBFRuntime(t.Context(), personality.Options{
		Upstream: softswitchtest.Serve(t, 1, mem), UpstreamDevice: 1, Ports: devPorts,
		Names: map[uint32]string{1: "1/0", 2: "2/0", 3: "3/0", 4: "33/2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, mem
}

func dial(t *testing.T, s *personality.BFRuntime, o bfrt.Options) *bfrt.Client {
	t.Helper()
	c, err := bfrt.Dial(t.Context(), "tor1", s.Addr, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// config is a program whose profiles, so many, have one name: of more than one the server takes none.
func config(profiles int) []byte {
	pipe := bfrt.Profile{Name: "pipe", Context: []byte("{}"), Binary: []byte{1}}
	return bfrt.Config{Program: "ina_tna", BFRT: personality.BFRTInfo(p4.Info()), Profiles: slices.Repeat([]bfrt.Profile{pipe}, profiles)}.Marshal()
}

func pipeline() dataplane.Pipeline {
	return dataplane.Pipeline{Info: p4.Info(), DeviceConfig: config(1)}
}

func TestConformance(t *testing.T) {
	dataplanetest.Run(t, dataplanetest.Subject{Pipeline: pipeline(), Refused: config(2), Open: func(t *testing.T) (dataplane.Switch, *softswitchtest.Memory) {
		s, mem := serve(t)
		return dial(t, s, options()), mem
	}})
}

// A program has one client: another one waits for it, and then says who is in the way.
func TestBusy(t *testing.T) {
	s, mem := serve(t)
	first := dial(t, s, options())
	if err := first.Push(t.Context(), pipeline()); err != nil {
		t.Fatal(err)
	}
	if err := first.Write(t.Context(), dataplanetest.Sample()); err != nil {
		t.Fatal(err)
	}
	polite := options()
	polite.Polite = true
	_, err := bfrt.Dial(t.Context(), "tor1", s.Addr, 0, polite)
	var hint interface{ Hint() string }
	if !errors.Is(err, dataplane.ErrNotPrimary) || !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "end the other client") {
		t.Errorf("while another is bound: %v", err)
	}
	reader, err := bfrt.Observe("tor1", s.Addr, 0, options())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(t.Context())
	if err := reader.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if jobs, err := reader.ReadJobs(t.Context()); err != nil || !cmp.Equal(jobs, dataplanetest.Sample().Jobs) {
		t.Errorf("who only looks reads %+v, %v", jobs, err)
	}
	if err := reader.Write(t.Context(), dataplanetest.Sample()); !errors.Is(err, dataplane.ErrNotPrimary) {
		t.Errorf("who only looks writes: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := dial(t, s, polite)
	if err := second.Attach(t.Context()); err != nil {
		t.Errorf("when the other has left: %v", err)
	}
	if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Attach finds what is there, and Close puts back what was changed of it.
func TestAttach(t *testing.T) {
	s, mem := serve(t)
	first := dial(t, s, options())
	if err := first.Push(t.Context(), pipeline()); err != nil {
		t.Fatal(err)
	}
	if err := first.Write(t.Context(), dataplanetest.Sample()); err != nil {
		t.Fatal(err)
	}
	first.HangUp() // as who is killed
	second := dial(t, s, options())
	if err := second.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := second.Loaded(); !l.Kept || l.Cookie != first.Loaded().Cookie {
		t.Errorf("loaded: %+v, want %+v", l, first.Loaded())
	}
	b := dataplanetest.Sample()
	b.Jobs[0].Size, b.Groups[0].Ports, b.Routes = 16, []uint32{4}, nil
	b.Jobs[1].Job = 7
	if err := second.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dataplanetest.Sample(), mem.State()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	third := dial(t, s, options()) // as clean does
	if err := third.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := dataplanetest.Sample()
	if err := third.Delete(t.Context(), dataplane.Batch{Jobs: want.Jobs[:1], Routes: want.Routes[:1], Groups: want.Groups[:1]}); err != nil {
		t.Fatal(err)
	}
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want.Jobs, want.Routes, want.Groups = want.Jobs[1:], want.Routes[1:], want.Groups[1:]
	if diff := cmp.Diff(want, mem.State()); diff != "" {
		t.Errorf("what was deleted has come back (-want +got):\n%s", diff)
	}
}

// TestResends: whoever knows the program that it attaches to deletes a job's group for resends with the job.
func TestResends(t *testing.T) {
	info, _, _, err := p4.BMv2()
	if err != nil {
		t.Fatal(err)
	}
	s, mem := serve(t)
	first := dial(t, s, options())
	p := pipeline()
	p.Info = info
	if err := first.Push(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	b := dataplanetest.Sample()
	b.Jobs = b.Jobs[:1]
	if err := first.Write(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if n := len(mem.State().Groups); n != 3 {
		t.Fatalf("%d groups, want two and that for resends", n)
	}
	first.HangUp() // as who is killed
	o := options()
	o.Info = info
	second := dial(t, s, o)
	if err := second.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Keep leaves a program that is the same, if it has no jobs; routes and groups go.
func TestKeep(t *testing.T) {
	s, mem := serve(t)
	p := pipeline()
	p.Keep = true
	for i, tt := range []struct {
		leave dataplane.Batch
		kept  bool // by the next
	}{
		{dataplane.Batch{Groups: dataplanetest.Sample().Groups, Routes: dataplanetest.Sample().Routes}, false},
		{dataplanetest.Sample(), true},
		{dataplane.Batch{}, false},
	} {
		c := dial(t, s, options())
		if err := c.Push(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if c.Loaded().Kept != tt.kept {
			t.Errorf("push %d: %+v, want kept %v", i+1, c.Loaded(), tt.kept)
		}
		if diff := cmp.Diff(dataplane.Batch{}, mem.State()); diff != "" {
			t.Errorf("push %d (-want +got):\n%s", i+1, diff)
		}
		if err := c.Write(t.Context(), tt.leave); err != nil {
			t.Fatal(err)
		}
		c.HangUp()
	}
	if s.Pushes() != 2 {
		t.Errorf("%d loads", s.Pushes())
	}
}

// A stream that ends is a loss that stays known; what became of the switch is found out.
func TestLost(t *testing.T) {
	for what, forget := range map[string]bool{"and has kept what was written into it": false, "the switch has restarted": true} {
		t.Run(what, func(t *testing.T) {
			s, _ := serve(t)
			c := dial(t, s, options())
			if err := c.Push(t.Context(), pipeline()); err != nil {
				t.Fatal(err)
			}
			if err := c.Write(t.Context(), dataplanetest.Sample()); err != nil {
				t.Fatal(err)
			}
			if err := s.Drop(t.Context(), forget); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Lost():
			case <-time.After(10 * time.Second):
				t.Fatal("nobody noticed")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := c.Explain(ctx); errors.Is(err, dataplane.ErrRestarted) != forget || !strings.Contains(err.Error(), what) {
				t.Errorf("%v", err)
			}
			if err := c.Write(t.Context(), dataplane.Batch{Routes: []p4.Route{{Dst: [4]byte{10, 0, 0, 9}, Port: 1}}}); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// Ports are found by what the front panel calls them, and are set up again each time that a program is loaded, which
// removes them; a program that is kept keeps them.
func TestPorts(t *testing.T) {
	s, mem := serve(t)
	o := bfrt.Options{
		Names: map[uint32]string{1: "1/0", 2: "2/0", 3: "3/0", 4: "33/2"},
		Links: map[uint32]bfrt.Link{1: {Speed: 100e9, FEC: "rs"}, 2: {Speed: 25e9, Autoneg: "off", Lanes: 1}},
	}
	p := pipeline()
	p.Keep = true
	for i, loads := range []int{1, 1} {
		c := dial(t, s, o)
		if err := c.Push(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got, want := s.Links(), map[uint32]string{132: "BF_SPEED_100G BF_FEC_TYP_RS PM_AN_DEFAULT 0", 140: "BF_SPEED_25G BF_FEC_TYP_NONE PM_AN_FORCE_DISABLE 1"}; !cmp.Equal(got, want) {
			t.Errorf("push %d: links %v, want %v", i+1, got, want)
		}
		if s.Pushes() != loads {
			t.Errorf("push %d: %d loads, want %d", i+1, s.Pushes(), loads)
		}
		if err := c.Write(t.Context(), dataplanetest.Sample()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(dataplanetest.Sample(), mem.State()); diff != "" {
			t.Errorf("push %d (-want +got):\n%s", i+1, diff)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	plain := dial(t, s, options())
	if err := plain.Push(t.Context(), pipeline()); err != nil {
		t.Fatal(err)
	}
	if got := s.Links(); len(got) > 0 {
		t.Errorf("links that nobody asked for: %v", got)
	}
	plain.Close(t.Context())

	o.Names[2], o.Links = "2/7", nil
	c := dial(t, s, o)
	if err := c.Push(t.Context(), pipeline()); !errors.Is(err, p4.ErrRange) || !strings.Contains(err.Error(), "2 (2/7)") {
		t.Errorf("a port that there is not: %v", err)
	}
	c.Close(t.Context())
	o.Names[2], o.LinkTimeout = "2/0", 200*time.Millisecond
	for what, tt := range map[string]struct {
		link bfrt.Link
		want error
	}{
		"another speed":   {bfrt.Link{Speed: 3e9}, p4.ErrRange},
		"another FEC":     {bfrt.Link{Speed: 25e9, FEC: "ldpc"}, p4.ErrInvalid},
		"no other end":    {bfrt.Link{Speed: 400e9}, bfrt.ErrLink},
		"no such autoneg": {bfrt.Link{Speed: 25e9, Autoneg: "maybe"}, p4.ErrInvalid},
	} {
		o.Links = map[uint32]bfrt.Link{2: tt.link}
		c := dial(t, s, o)
		if err := c.Push(t.Context(), pipeline()); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", what, err)
		}
		c.Close(t.Context())
	}
}

// Nothing that is no BFRuntime server is taken for one.
func TestOtherServers(t *testing.T) {
	o := options()
	o.DialTimeout = time.Second
	for what, tt := range map[string]struct{ addr, want string }{
		"P4Runtime": {softswitchtest.Serve(t, 1, softswitchtest.NewMemory()), "there is no BFRuntime"},
		"nobody":    {"127.0.0.1:1", "refused"},
	} {
		if _, err := bfrt.Dial(t.Context(), "tor1", tt.addr, 0, o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRefusedConfigs(t *testing.T) {
	s, _ := serve(t)
	c := dial(t, s, options())
	for what, cfg := range map[string]bfrt.Config{
		"no name":     {BFRT: []byte("{}"), Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}, Binary: []byte{1}}}},
		"no profile":  {Program: "ina", BFRT: []byte("{}")},
		"no binary":   {Program: "ina", BFRT: []byte("{}"), Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}}}},
		"no bf-rt":    {Program: "ina", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}, Binary: []byte{1}}}},
		"other table": {Program: "ina", BFRT: []byte(`{"tables": []}`), Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}, Binary: []byte{1}}}},
	} {
		if err := c.Push(t.Context(), dataplane.Pipeline{Info: p4.Info(), DeviceConfig: cfg.Marshal()}); !errors.Is(err, bfrt.ErrInfo) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s.Pushes() != 0 {
		t.Errorf("%d loads", s.Pushes())
	}
}

// FuzzInfo: whatever a bf-rt.json says, it is refused or has tables that can be found.
func FuzzInfo(f *testing.F) {
	f.Add(personality.BFRTInfo(p4.Info()))
	f.Add([]byte(`{"tables": [{"name": "pipe.job", "id": 1, "key": [{"id": 1, "name": "x", "type": {"type": "bytes", "width": 16}}]}, {"name": "a.job", "id": 2}]}`))
	f.Add([]byte(`{"tables": [{"name": "$PORT", "id": 4294967295, "data": [{"singleton": {"id": 1, "name": "$SPEED", "type": {"type": "string"}}}, {"oneof": [{"id": 2, "name": "y", "type": {"type": "uint64"}}]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		info, err := bfrt.ParseInfo(text)
		if err != nil {
			if !errors.Is(err, bfrt.ErrInfo) {
				t.Errorf("%v", err)
			}
			return
		}
		for _, name := range []string{"job", "ipv4_forward", "$PORT", "$pre.mgid"} {
			if table, err := info.Table(name); err == nil && table.ID == 0 {
				t.Errorf("table %s has id 0", name)
			}
		}
	})
}

// What runs in some of the pipes is not kept where it is to run in others.
func TestKeepPipes(t *testing.T) {
	s, _ := serve(t)
	for i, tt := range []struct {
		pipes []uint32
		kept  bool
	}{{[]uint32{0}, false}, {[]uint32{0}, true}, {[]uint32{0, 1}, false}, {nil, true}, {[]uint32{0}, false}, {nil, false}} {
		p := pipeline()
		cfg, err := bfrt.ParseConfig(p.DeviceConfig)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Profiles[0].Pipes = tt.pipes
		p.DeviceConfig, p.Keep = cfg.Marshal(), true
		c := dial(t, s, options())
		if err := c.Push(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if c.Loaded().Kept != tt.kept {
			t.Errorf("push %d, pipes %v: %+v, want kept %v", i+1, tt.pipes, c.Loaded(), tt.kept)
		}
		c.HangUp()
	}
}

// deafServer subscribes its clients, and says nothing of what the switch runs.
type deafServer struct {
	bfrtpb.UnimplementedBfRuntimeServer
	early bool // it gives up before its client does
}

func (deafServer) StreamChannel(s bfrtpb.BfRuntime_StreamChannelServer) error {
	in, err := s.Recv()
	if err != nil {
		return err
	}
	if err := s.Send(&bfrtpb.StreamMessageResponse{Update: &bfrtpb.StreamMessageResponse_Subscribe{Subscribe: in.GetSubscribe()}}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func (s deafServer) GetForwardingPipelineConfig(ctx context.Context, _ *bfrtpb.GetForwardingPipelineConfigRequest) (*bfrtpb.GetForwardingPipelineConfigResponse, error) {
	if s.early {
		return nil, context.DeadlineExceeded
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A server that is stuck behind its subscription is not waited for without an end, whichever end says first that time is up.
func TestDialDeaf(t *testing.T) {
	for _, early := range []bool{false, true} {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := grpc.NewServer()
		bfrtpb.RegisterBfRuntimeServer(srv, deafServer{early: early})
		go srv.Serve(lis)
		defer srv.Stop()
		_, err = bfrt.Dial(t.Context(), "tor1", lis.Addr().String(), 0, bfrt.Options{Options: dataplane.Options{DialTimeout: 200 * time.Millisecond, CallTimeout: 200 * time.Millisecond}})
		if err == nil || !strings.Contains(err.Error(), "tor1") || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("early %v: %v", early, err)
		}
	}
}

package gnmi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/gnmi"
	"github.com/inabench/inabench/testbed/personality"
)

// stratum is a server that knows ports as Stratum does; nothing counts behind it.
func stratum(t *testing.T) string {
	t.Helper()
	s, err := personality.Start(personality.Stratum(), personality.Options{
		Upstream: serve(t, func(g *grpc.Server) {
			p4v1.RegisterP4RuntimeServer(g, p4v1.UnimplementedP4RuntimeServer{})
		}), Device: 1,
		Ports: map[uint32]uint32{1: 132, 2: 140, 3: 64}, Names: map[uint32]string{1: "1/0", 2: "2/0", 3: "33/2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.GNMI
}

func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	var served sync.WaitGroup
	served.Go(func() { g.Serve(lis) })
	t.Cleanup(func() {
		g.Stop()
		served.Wait()
	})
	return lis.Addr().String()
}

func client(t *testing.T, addr string, o gnmi.Options) *gnmi.Client {
	t.Helper()
	c, err := gnmi.New("tor1", addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The numbers that the SDK has for ports are learnt by name.
func TestPorts(t *testing.T) {
	c := client(t, stratum(t), gnmi.Options{})
	got, err := c.Ports(t.Context(), []uint32{1, 2, 3}, map[uint32]string{1: "1/0", 2: "2/0", 3: "33/2"})
	if diff := cmp.Diff(map[uint32]uint32{1: 132, 2: 140, 3: 64}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	_, err = c.Ports(t.Context(), []uint32{1, 2, 9}, map[uint32]string{1: "1/0"})
	const want = `switch tor1: ask gNMI for numbers of ports: no such port: "2", "9"; there are 1/0, 2/0, 33/2`
	if !errors.Is(err, gnmi.ErrNoPort) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Counters that Stratum gives without counting are not there at all: a constant 0 must not
// be read as "no drops".
func TestCounters(t *testing.T) {
	addr := stratum(t)
	for name, o := range map[string]gnmi.Options{"as they come": {}, "Tofino": {Uncounted: gnmi.StratumTofino()}} {
		got, err := client(t, addr, o).Counters(t.Context(), []string{"1/0", "33/2"})
		if err != nil || len(got) != 2 {
			t.Fatalf("%s: %v, %v", name, got, err)
		}
		for port, counters := range got {
			_, there := counters["out-discards"]
			if there != (o.Uncounted == nil) {
				t.Errorf("%s: %s: out-discards is there: %v", name, port, there)
			}
			if _, there := counters["in-discards"]; !there {
				t.Errorf("%s: %s: no in-discards in %v", name, port, counters)
			}
		}
	}
	if _, err := client(t, addr, gnmi.Options{}).Counters(t.Context(), []string{"7/0"}); err == nil || !strings.Contains(err.Error(), "7/0") {
		t.Errorf("a port that is not there: %v", err)
	}
}

// endless is a server whose answers have no end.
type endless struct{ gnmipb.UnimplementedGNMIServer }

func (endless) Subscribe(stream gnmipb.GNMI_SubscribeServer) error {
	u := &gnmipb.Update{Path: &gnmipb.Path{}, Val: &gnmipb.TypedValue{Value: &gnmipb.TypedValue_StringVal{StringVal: strings.Repeat("x", 10_000)}}}
	for {
		err := stream.Send(&gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_Update{Update: &gnmipb.Notification{Update: []*gnmipb.Update{u}}}})
		if err != nil {
			return err
		}
	}
}

// TestEndlessAnswer: it ends when it is longer than any can be.
func TestEndlessAnswer(t *testing.T) {
	c := client(t, serve(t, func(g *grpc.Server) { gnmipb.RegisterGNMIServer(g, endless{}) }), gnmi.Options{Timeout: 30 * time.Second})
	if _, err := c.Counters(t.Context(), []string{"1/0"}); !errors.Is(err, bounded.ErrTooLarge) {
		t.Error(err)
	}
}

// state answers with the states of ports, one after the other, the last for ever.
type state struct {
	gnmipb.UnimplementedGNMIServer
	mu    sync.Mutex
	asked int
	up    []map[string]string
}

func (s *state) Subscribe(stream gnmipb.GNMI_SubscribeServer) error {
	q, err := stream.Recv()
	if err != nil {
		return err
	}
	s.mu.Lock()
	now := s.up[min(s.asked, len(s.up)-1)]
	s.asked++
	s.mu.Unlock()
	for _, sub := range q.GetSubscribe().GetSubscription() {
		port := sub.GetPath().GetElem()[1].GetKey()["name"]
		v := &gnmipb.TypedValue{Value: &gnmipb.TypedValue_StringVal{StringVal: now[port]}}
		if err := stream.Send(update("", v, sub.GetPath().GetElem()...)); err != nil {
			return err
		}
	}
	return stream.Send(synced)
}

// Ports are waited for until all of them have a link; those that never get one are named.
func TestAwaitUp(t *testing.T) {
	t.Parallel() // it waits
	s := &state{up: []map[string]string{{"1/0": "DOWN", "2/0": "DOWN"}, {"1/0": "UP", "2/0": "DOWN"}, {"1/0": "UP", "2/0": "UP", "3/0": "LOWER_LAYER_DOWN"}}}
	c := client(t, serve(t, func(g *grpc.Server) { gnmipb.RegisterGNMIServer(g, s) }), gnmi.Options{})
	if err := c.AwaitUp(t.Context(), []string{"1/0", "2/0"}); err != nil || s.asked != 3 {
		t.Errorf("after %d questions: %v", s.asked, err)
	}
	if err := c.AwaitUp(t.Context(), nil); err != nil || s.asked != 3 {
		t.Errorf("no ports: %v", err)
	}
	late, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("a second is over"))
	defer cancel()
	err := c.AwaitUp(late, []string{"1/0", "3/0"})
	if !errors.Is(err, gnmi.ErrDown) || err.Error() != "switch tor1: ask gNMI for states of ports: no link: 3/0 (a second is over)" {
		t.Errorf("a port that stays down: %v", err)
	}
}

// canned answers every subscription with the same messages.
type canned struct {
	gnmipb.UnimplementedGNMIServer
	answers []*gnmipb.SubscribeResponse
	hang    bool
}

func (s canned) Subscribe(stream gnmipb.GNMI_SubscribeServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	for _, a := range s.answers {
		if err := stream.Send(a); err != nil {
			return err
		}
	}
	if s.hang {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return nil
}

func update(prefix string, v *gnmipb.TypedValue, elems ...*gnmipb.PathElem) *gnmipb.SubscribeResponse {
	n := &gnmipb.Notification{Update: []*gnmipb.Update{{Path: &gnmipb.Path{Elem: elems}, Val: v}}}
	if prefix != "" {
		n.Prefix = &gnmipb.Path{Elem: []*gnmipb.PathElem{{Name: prefix}}}
	}
	return &gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_Update{Update: n}}
}

var synced = &gnmipb.SubscribeResponse{Response: &gnmipb.SubscribeResponse_SyncResponse{SyncResponse: true}}

// Other servers answer with a container as JSON, names with their module, 64-bit numbers as
// strings, and part of the path as a prefix.
func TestAnswersOfOthers(t *testing.T) {
	eth := &gnmipb.PathElem{Name: "interface", Key: map[string]string{"name": "Ethernet1/1"}}
	json := func(s string) *gnmipb.TypedValue {
		return &gnmipb.TypedValue{Value: &gnmipb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(s)}}
	}
	want := map[string]map[string]uint64{"Ethernet1/1": {"in-octets": 18446744073709551615, "out-discards": 7}}
	for name, s := range map[string]canned{
		"container": {answers: []*gnmipb.SubscribeResponse{
			update("interfaces", json(`{"openconfig-interfaces:in-octets":"18446744073709551615","out-discards":7}`), eth, &gnmipb.PathElem{Name: "state"}, &gnmipb.PathElem{Name: "counters"}),
			synced}, hang: true},
		"state": {answers: []*gnmipb.SubscribeResponse{
			update("", json(`{"oper-status":"UP","ifindex":5,"counters":{"in-octets":"18446744073709551615","out-discards":"7"}}`),
				&gnmipb.PathElem{Name: "openconfig-interfaces:interfaces"}, eth, &gnmipb.PathElem{Name: "state"})}},
	} {
		got, err := client(t, serve(t, func(g *grpc.Server) { gnmipb.RegisterGNMIServer(g, s) }), gnmi.Options{}).Counters(t.Context(), []string{"Ethernet1/1"})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// What can go wrong, in a bounded time and with the switch's name.
func TestErrors(t *testing.T) {
	t.Parallel() // it waits
	none := serve(t, func(g *grpc.Server) { gnmipb.RegisterGNMIServer(g, gnmipb.UnimplementedGNMIServer{}) })
	silent := serve(t, func(g *grpc.Server) { gnmipb.RegisterGNMIServer(g, canned{hang: true}) })
	empty := serve(t, func(g *grpc.Server) {
		gnmipb.RegisterGNMIServer(g, canned{answers: []*gnmipb.SubscribeResponse{synced}})
	})
	for name, c := range map[string]struct {
		addr    string
		timeout time.Duration
		want    error
	}{
		"no gNMI there":    {none, 3 * time.Second, errors.ErrUnsupported},
		"no answer":        {silent, time.Second, context.DeadlineExceeded},
		"an answer of nil": {empty, 3 * time.Second, gnmi.ErrNoAnswer},
	} {
		cl := client(t, c.addr, gnmi.Options{Timeout: c.timeout})
		if _, err := cl.Indexes(t.Context()); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "tor1") {
			t.Errorf("%s: ports: %v", name, err)
		}
		if got, err := cl.Counters(t.Context(), []string{"1/0"}); !errors.Is(err, c.want) || len(got) != 0 {
			t.Errorf("%s: counters: %v, %v", name, got, err)
		}
	}
}

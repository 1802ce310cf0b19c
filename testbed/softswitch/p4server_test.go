package softswitch

// These tests look into the server: what it tells the target, and what it keeps.
// What clients see is tested through gRPC in testbed/p4rt, where the same tables
// also run against other servers.

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// p4Memory is a target that only remembers. It is driven under the server's lock,
// one call at a time.
type p4Memory struct {
	Resets   int
	Jobs     map[uint16]ina.JobEntry
	Routes   map[[4]byte]Route
	Groups   map[uint16][]uint32
	counters map[counterCell]int64
	refuse   error // by every Set and Delete, if not nil
}

func newP4Memory() *p4Memory {
	m := new(p4Memory)
	m.clear()
	return m
}

func (m *p4Memory) clear() {
	m.Jobs, m.Routes = make(map[uint16]ina.JobEntry), make(map[[4]byte]Route)
	m.Groups, m.counters = make(map[uint16][]uint32), make(map[counterCell]int64)
}

func (m *p4Memory) Reset() { m.Resets++; m.clear() }

func (m *p4Memory) SetJob(e ina.JobEntry) error {
	if m.refuse == nil {
		m.Jobs[e.Job] = e
	}
	return m.refuse
}

func (m *p4Memory) DeleteJob(job uint16) error {
	if m.refuse == nil {
		delete(m.Jobs, job)
	}
	return m.refuse
}

func (m *p4Memory) SetRoute(r Route) error {
	if m.refuse == nil {
		m.Routes[r.Dst] = r
	}
	return m.refuse
}

func (m *p4Memory) DeleteRoute(dst [4]byte) error {
	if m.refuse == nil {
		delete(m.Routes, dst)
	}
	return m.refuse
}

func (m *p4Memory) SetGroup(id uint16, ports []uint32) error {
	if m.refuse == nil {
		m.Groups[id] = ports
	}
	return m.refuse
}

func (m *p4Memory) DeleteGroup(id uint16) error {
	if m.refuse == nil {
		delete(m.Groups, id)
	}
	return m.refuse
}

func (m *p4Memory) Counter(c Counter, index int) (packets, bytes int64) {
	n := m.counters[counterCell{c, index}]
	return n, 1000 * n
}

func (m *p4Memory) ResetCounter(c Counter, index int) { delete(m.counters, counterCell{c, index}) }

// p4State is what a write may change: the target and the server's shadow of it.
type p4State struct {
	Jobs   map[uint16]ina.JobEntry
	Routes map[[4]byte]Route
	Groups map[uint16][]uint32
	Shadow map[p4.Table]map[uint64]*p4v1.TableEntry
	Multi  map[uint16]*p4v1.MulticastGroupEntry
	Resets int
}

func (f *p4Fixture) state() p4State {
	s := p4State{
		Jobs: maps.Clone(f.mem.Jobs), Routes: maps.Clone(f.mem.Routes), Groups: maps.Clone(f.mem.Groups),
		Resets: f.mem.Resets,
	}
	if cfg := f.current(); cfg != nil {
		s.Multi = maps.Clone(cfg.groups)
		s.Shadow = make(map[p4.Table]map[uint64]*p4v1.TableEntry)
		for t, entries := range cfg.tables {
			s.Shadow[t] = maps.Clone(entries)
		}
	}
	return s
}

// p4Fixture is a server with a primary, called directly.
type p4Fixture struct {
	*p4server
	mem  *p4Memory
	sess *session
	pipe *p4.Pipeline
}

var testElection = &p4v1.Uint128{Low: 42}

func newP4Fixture(t testing.TB) *p4Fixture {
	t.Helper()
	mem := newP4Memory()
	f := &p4Fixture{p4server: newP4Server(1, mem), mem: mem, sess: newSession()}
	err := f.receive(f.sess, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: testElection},
	}})
	if err == nil {
		f.pipe, err = p4.NewPipeline(p4.Info())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *p4Fixture) configure(action p4v1.SetForwardingPipelineConfigRequest_Action, cfg *p4v1.ForwardingPipelineConfig) codes.Code {
	_, err := f.SetForwardingPipelineConfig(context.Background(), &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: 1, ElectionId: testElection, Action: action, Config: cfg,
	})
	return status.Code(err)
}

func (f *p4Fixture) write(updates ...*p4v1.Update) error {
	_, err := f.Write(context.Background(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: testElection, Updates: updates})
	return err
}

func (f *p4Fixture) jobs(typ p4v1.Update_Type, ids ...uint16) (us []*p4v1.Update) {
	for _, id := range ids {
		te, err := f.pipe.EncodeJob(ina.JobEntry{Job: id, Mode: ina.Statistical, Size: 8})
		if err != nil {
			panic(err)
		}
		us = append(us, &p4v1.Update{Type: typ, Entity: tableEntity(te)})
	}
	return us
}

const (
	actVerify    = p4v1.SetForwardingPipelineConfigRequest_VERIFY
	actSave      = p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE
	actCommit    = p4v1.SetForwardingPipelineConfigRequest_COMMIT
	actLoad      = p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT
	actReconcile = p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT
)

// TestP4Actions walks through the actions of SetForwardingPipelineConfig: when the
// target is reset, what it then holds, and which config reads and writes refer to.
func TestP4Actions(t *testing.T) {
	f := newP4Fixture(t)
	good := &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()}
	steps := []struct {
		name   string
		do     func() codes.Code
		want   codes.Code
		resets int
		jobs   []uint16 // on the target
	}{
		{"write without a pipeline", func() codes.Code { return status.Code(f.write(f.jobs(p4v1.Update_INSERT, 1)...)) }, codes.FailedPrecondition, 0, nil},
		{"read without a pipeline", func() codes.Code { _, err := f.read(&p4v1.ReadRequest{DeviceId: 1}); return status.Code(err) }, codes.FailedPrecondition, 0, nil},
		{"commit of nothing", func() codes.Code { return f.configure(actCommit, nil) }, codes.NotFound, 0, nil},
		{"verify", func() codes.Code { return f.configure(actVerify, good) }, codes.OK, 0, nil},
		{"verify saves nothing", func() codes.Code { return f.configure(actCommit, nil) }, codes.NotFound, 0, nil},
		{"save without a config", func() codes.Code { return f.configure(actSave, nil) }, codes.InvalidArgument, 0, nil},
		{"load", func() codes.Code { return f.configure(actLoad, good) }, codes.OK, 1, nil},
		{"write", func() codes.Code { return status.Code(f.write(f.jobs(p4v1.Update_INSERT, 1, 2)...)) }, codes.OK, 1, []uint16{1, 2}},
		{"a bad config changes nothing", func() codes.Code { return f.configure(actLoad, &p4v1.ForwardingPipelineConfig{}) }, codes.InvalidArgument, 1, []uint16{1, 2}},
		{"save", func() codes.Code { return f.configure(actSave, good) }, codes.OK, 1, []uint16{1, 2}},
		{"writes are for the saved config", func() codes.Code { return status.Code(f.write(f.jobs(p4v1.Update_INSERT, 1, 3)...)) }, codes.OK, 1, []uint16{1, 2}},
		{"reconcile", func() codes.Code { return f.configure(actReconcile, good) }, codes.Unimplemented, 1, []uint16{1, 2}},
		{"commit with a config", func() codes.Code { return f.configure(actCommit, good) }, codes.InvalidArgument, 1, []uint16{1, 2}},
		{"commit replays", func() codes.Code { return f.configure(actCommit, nil) }, codes.OK, 2, []uint16{1, 3}},
		{"commit once", func() codes.Code { return f.configure(actCommit, nil) }, codes.NotFound, 2, []uint16{1, 3}},
		{"load empties", func() codes.Code { return f.configure(actLoad, good) }, codes.OK, 3, nil},
		{"no action", func() codes.Code { return f.configure(0, good) }, codes.InvalidArgument, 3, nil},
	}
	for _, s := range steps {
		if got := s.do(); got != s.want {
			t.Errorf("%s: %v, want %v", s.name, got, s.want)
		}
		if got := slices.Sorted(maps.Keys(f.mem.Jobs)); f.mem.Resets != s.resets || !slices.Equal(got, s.jobs) {
			t.Errorf("%s: %d resets, jobs %v; want %d, %v", s.name, f.mem.Resets, got, s.resets, s.jobs)
		}
	}
}

// TestP4CannotRealise: pipelines that the switch is not.
func TestP4CannotRealise(t *testing.T) {
	for name, change := range map[string]func(*p4configv1.P4Info){
		"another table": func(i *p4configv1.P4Info) {
			i.Tables = append(i.Tables, &p4configv1.Table{Preamble: &p4configv1.Preamble{Id: 0x02009999, Name: "acl"}})
		},
		"another counter": func(i *p4configv1.P4Info) { i.Counters[3].Preamble.Name = "ingress.port_smell" },
		"a huge counter":  func(i *p4configv1.P4Info) { i.Counters[3].Size = maxCells + 1 },
		"no job table":    func(i *p4configv1.P4Info) { i.Tables = i.Tables[:1] },
	} {
		f := newP4Fixture(t)
		info := p4.Info()
		change(info)
		if got := f.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: info}); got != codes.InvalidArgument || f.mem.Resets != 0 {
			t.Errorf("%s: %v, %d resets", name, got, f.mem.Resets)
		}
	}
}

// TestP4Counters: the p4info and the switch know the same counters.
func TestP4Counters(t *testing.T) {
	var got, want []string
	for _, c := range p4.Info().Counters {
		got = append(got, c.Preamble.Alias)
		if i := slices.Index(counterNames[:], c.Preamble.Alias); i >= 0 {
			if size := map[bool]int64{true: ina.MaxJob + 1, false: 512}[Counter(i).PerJob()]; c.Size != size {
				t.Errorf("%s has %d cells, want %d", c.Preamble.Alias, c.Size, size)
			}
		}
	}
	want = append(want, counterNames[:]...)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-switch +p4info):\n%s", diff)
	}
}

// TestP4TargetRefuses: an update that the target refuses fails with its reason and
// changes neither the target nor what is read back.
func TestP4TargetRefuses(t *testing.T) {
	f := newP4Fixture(t)
	f.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()})
	group := &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: 3}},
	}}}
	if err := f.write(append(f.jobs(p4v1.Update_INSERT, 1), &p4v1.Update{Type: p4v1.Update_INSERT, Entity: group})...); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		refuse error
		want   codes.Code
	}{
		{errors.New("64 aggregators from 1000: there are 1024"), codes.InvalidArgument},
		{status.Error(codes.ResourceExhausted, "no more"), codes.ResourceExhausted},
		{errors.ErrUnsupported, codes.Unimplemented},
	} {
		f.mem.refuse = tt.refuse
		before := f.state()
		for _, u := range slices.Concat(
			f.jobs(p4v1.Update_INSERT, 2), f.jobs(p4v1.Update_MODIFY, 1), f.jobs(p4v1.Update_DELETE, 1),
			[]*p4v1.Update{{Type: p4v1.Update_MODIFY, Entity: group}, {Type: p4v1.Update_DELETE, Entity: group}},
		) {
			err := f.write(u)
			var e p4v1.Error
			if d := status.Convert(err).Proto().GetDetails(); len(d) != 1 || d[0].UnmarshalTo(&e) != nil || codes.Code(e.CanonicalCode) != tt.want {
				t.Errorf("%v: %v, want %v", u.Type, &e, tt.want)
			}
		}
		if diff := cmp.Diff(before, f.state(), protocmp.Transform()); diff != "" {
			t.Errorf("refused updates changed (-before +after):\n%s", diff)
		}
	}
}

// TestP4TableFull: a table holds what the p4info says.
func TestP4TableFull(t *testing.T) {
	f := newP4Fixture(t)
	info := p4.Info()
	info.Tables[1].Size = 2
	f.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: info})
	if err := f.write(f.jobs(p4v1.Update_INSERT, 1, 2)...); err != nil {
		t.Fatal(err)
	}
	err := f.write(f.jobs(p4v1.Update_INSERT, 3)...)
	var e p4v1.Error
	if d := status.Convert(err).Proto().GetDetails(); len(d) != 1 || d[0].UnmarshalTo(&e) != nil || codes.Code(e.CanonicalCode) != codes.ResourceExhausted {
		t.Errorf("third of two: %v", err)
	}
	if err := f.write(slices.Concat(f.jobs(p4v1.Update_MODIFY, 1), f.jobs(p4v1.Update_DELETE, 2), f.jobs(p4v1.Update_INSERT, 3))...); err != nil {
		t.Errorf("replacing one: %v", err)
	}
}

// TestP4SetCounter: a cell can be set to any value and counts on from there.
func TestP4SetCounter(t *testing.T) {
	f := newP4Fixture(t)
	f.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()})
	info, err := f.pipe.Counter("port_tx")
	if err != nil {
		t.Fatal(err)
	}
	entity := func(d *p4v1.CounterData) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: info.ID, Index: &p4v1.Index{Index: 4}, Data: d}}}
	}
	reads := func(want int64) {
		t.Helper()
		got, err := f.read(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{entity(nil)}})
		if err != nil || len(got) != 1 || got[0].GetCounterEntry().GetData().GetPacketCount() != want {
			t.Fatalf("got %v, %v; want %d packets", got, err, want)
		}
	}
	set := func(d *p4v1.CounterData) error {
		return f.write(&p4v1.Update{Type: p4v1.Update_MODIFY, Entity: entity(d)})
	}
	cell := counterCell{PortTx, 4}
	f.mem.counters[cell] = 5
	reads(5)
	if err := set(nil); err != nil { // no data: no change
		t.Fatal(err)
	}
	reads(5)
	if err := set(&p4v1.CounterData{PacketCount: 100}); err != nil {
		t.Fatal(err)
	}
	reads(100)
	f.mem.counters[cell] += 3
	reads(103)
	if err := set(&p4v1.CounterData{PacketCount: -1}); err == nil {
		t.Error("below zero")
	}
	reads(103)
	if err := set(&p4v1.CounterData{}); err != nil {
		t.Fatal(err)
	}
	reads(0)
	if err := set(&p4v1.CounterData{PacketCount: 9}); err != nil {
		t.Fatal(err)
	}
	f.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()})
	reads(0)
}

// TestP4Stream: messages the switch does not serve are answered, a client that does
// not read what it is sent loses its stream, and so does one stream too many.
func TestP4Stream(t *testing.T) {
	f := newP4Fixture(t)
	c := newSession()
	for name, tt := range map[string]struct {
		m    *p4v1.StreamMessageRequest
		want codes.Code
	}{
		"packet": {&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Packet{Packet: &p4v1.PacketOut{}}}, codes.Unimplemented},
		"digest": {&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_DigestAck{DigestAck: &p4v1.DigestListAck{}}}, codes.InvalidArgument},
		"empty":  {&p4v1.StreamMessageRequest{}, codes.InvalidArgument},
	} {
		if err := f.receive(c, tt.m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		e := (<-c.out).GetError()
		if codes.Code(e.GetCanonicalCode()) != tt.want || e.GetDetails() == nil {
			t.Errorf("%s: %v, want %v", name, e, tt.want)
		}
	}
	for range maxBacklog + 2 {
		if err := f.receive(c, &p4v1.StreamMessageRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-c.full:
	default:
		t.Error("a client that does not read keeps its stream")
	}
	backup := &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1},
	}}
	for len(f.sessions) < maxSessions {
		if err := f.receive(newSession(), backup); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.receive(newSession(), backup); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one stream too many: %v", err)
	}
	for role, want := range map[*p4v1.Role]codes.Code{
		{}:            codes.OK,
		{Name: "sdn"}: codes.FailedPrecondition,
	} {
		m := proto.Clone(backup).(*p4v1.StreamMessageRequest)
		m.GetArbitration().ElectionId = testElection
		m.GetArbitration().Role = role
		if err := f.receive(f.sess, m); status.Code(err) != want {
			t.Errorf("role %v: %v, want %v", role, err, want)
		}
	}
}

// TestServeP4Stops: with a stream open, a client that never reads, and without
// either; and an error when it cannot serve.
func TestServeP4Stops(t *testing.T) {
	dir, err := os.MkdirTemp("", "p4") // t.TempDir is too long for a socket's address
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lis, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- ServeP4(ctx, lis, 1, newP4Memory()) }()

	conn, err := grpc.NewClient("unix:"+lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := p4v1.NewP4RuntimeClient(conn).StreamChannel(t.Context())
	if err == nil {
		err = stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: testElection},
		}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	deaf, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if _, err := io.ReadFull(deaf, make([]byte, 9)); err != nil { // the server speaks first: it waits for us now
		t.Fatal(err)
	}

	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("stream: %v", err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	case <-time.After(10 * p4StopGrace):
		t.Fatal("did not stop")
	}
	if err := ServeP4(t.Context(), lis, 1, newP4Memory()); err == nil {
		t.Error("served on a closed listener")
	}
}

// FuzzP4Server throws arbitrary messages at the server. It must not panic; what it
// refuses must change nothing; target and shadow must agree; and whatever can be
// read back can be written again.
func FuzzP4Server(f *testing.F) {
	fix := newP4Fixture(f)
	seed := func(kind byte, m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(kind, b)
	}
	route, err := fix.pipe.EncodeRoute(Route{Dst: [4]byte{10, 0, 0, 1}, Port: 1})
	if err != nil {
		f.Fatal(err)
	}
	group := &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: &p4v1.MulticastGroupEntry{
			MulticastGroupId: 3, Replicas: []*p4v1.Replica{{PortKind: &p4v1.Replica_Port{Port: []byte{1}}}, {PortKind: &p4v1.Replica_EgressPort{EgressPort: 2}}},
		}},
	}}}
	counter := &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{
		CounterId: fix.pipe.Counters()[0].ID, Index: &p4v1.Index{Index: 1}, Data: &p4v1.CounterData{PacketCount: 3},
	}}}
	for _, u := range append(fix.jobs(p4v1.Update_INSERT, 1, 2),
		&p4v1.Update{Type: p4v1.Update_INSERT, Entity: tableEntity(route)},
		&p4v1.Update{Type: p4v1.Update_INSERT, Entity: group},
		&p4v1.Update{Type: p4v1.Update_MODIFY, Entity: counter},
	) {
		seed(0, &p4v1.WriteRequest{Updates: []*p4v1.Update{u, {Type: p4v1.Update_MODIFY, Entity: u.Entity}, {Type: p4v1.Update_DELETE, Entity: u.Entity}}})
		seed(1, &p4v1.ReadRequest{Entities: []*p4v1.Entity{u.Entity}})
	}
	seed(1, &p4v1.ReadRequest{Entities: []*p4v1.Entity{tableEntity(&p4v1.TableEntry{})}})
	seed(2, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: &p4v1.Uint128{High: 1}},
	}})
	seed(3, &p4v1.SetForwardingPipelineConfigRequest{Action: actLoad, Config: &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()}})
	seed(3, &p4v1.SetForwardingPipelineConfigRequest{Action: actSave, Config: &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()}})

	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		fix := newP4Fixture(t)
		if code := fix.configure(actLoad, &p4v1.ForwardingPipelineConfig{P4Info: p4.Info()}); code != codes.OK {
			t.Fatal(code)
		}
		if err := fix.write(fix.jobs(p4v1.Update_INSERT, 1, 7)...); err != nil {
			t.Fatal(err)
		}
		switch kind % 4 {
		case 0:
			var r p4v1.WriteRequest
			if proto.Unmarshal(b, &r) != nil {
				return
			}
			fix.Write(context.Background(), &r)
			for _, u := range r.Updates {
				before := fix.state()
				if err := fix.write(u); err == nil {
					continue
				}
				if diff := cmp.Diff(before, fix.state(), protocmp.Transform()); diff != "" {
					t.Fatalf("a refused update changed (-before +after):\n%s", diff)
				}
			}
		case 1:
			var r p4v1.ReadRequest
			if proto.Unmarshal(b, &r) != nil {
				return
			}
			r.DeviceId, r.Role = 1, ""
			before := fix.state()
			if out, err := fix.read(&r); err != nil && out != nil {
				t.Fatalf("error %v and %d entities", err, len(out))
			}
			if diff := cmp.Diff(before, fix.state(), protocmp.Transform()); diff != "" {
				t.Fatalf("a read changed (-before +after):\n%s", diff)
			}
		case 2:
			var m p4v1.StreamMessageRequest
			if proto.Unmarshal(b, &m) != nil {
				return
			}
			fix.receive(fix.sess, &m)
			c := newSession()
			fix.receive(c, &m)
			fix.leave(c)
			if fix.primary != nil && (fix.highest == nil || *fix.primary.id != *fix.highest) {
				t.Fatal("the primary does not have the highest election id")
			}
		case 3:
			var r p4v1.SetForwardingPipelineConfigRequest
			if proto.Unmarshal(b, &r) != nil {
				return
			}
			r.DeviceId, r.Role, r.ElectionId = 1, "", testElection
			before := fix.state()
			if _, err := fix.SetForwardingPipelineConfig(context.Background(), &r); err != nil {
				if diff := cmp.Diff(before, fix.state(), protocmp.Transform()); diff != "" {
					t.Fatalf("a refused config changed (-before +after):\n%s", diff)
				}
			}
			return // ids may be others now
		}
		s := fix.state()
		if len(s.Shadow[p4.JobTable]) != len(s.Jobs) || len(s.Shadow[p4.RouteTable]) != len(s.Routes) || len(s.Multi) != len(s.Groups) {
			t.Fatalf("the target holds %d jobs, %d routes, %d groups; the shadow %d, %d, %d", len(s.Jobs), len(s.Routes), len(s.Groups),
				len(s.Shadow[p4.JobTable]), len(s.Shadow[p4.RouteTable]), len(s.Multi))
		}
		fix.receive(fix.sess, &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
			Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: testElection},
		}})
		all, err := fix.read(&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{tableEntity(&p4v1.TableEntry{})}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if fix.checkPrimary(testElection) != nil {
				break // the fuzzer bid higher
			}
			if err := fix.write(&p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e}); err != nil {
				t.Fatalf("%v was read and cannot be written: %v", e, err)
			}
		}
	})
}

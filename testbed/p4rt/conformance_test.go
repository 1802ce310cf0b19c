package p4rt_test

// What a P4Runtime server must do for inabench, as tables of requests and answers.
// The same tables run against the embedded server and, if the environment says
// where one is (see subjects), against BMv2 or a switch.
//
// Where an answer's code is not what the specification says but what PI (BMv2,
// SDE) is known or likely to give, the row lists both, the specification's first:
// the embedded server must give the first.

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

const answerTime = time.Minute // far above what any answer takes

func rawClient(t *testing.T, s subject) p4v1.P4RuntimeClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return p4v1.NewP4RuntimeClient(conn)
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	t.Cleanup(cancel)
	return ctx
}

// controller is a client that only arbitrates.
type controller struct {
	t      *testing.T
	device uint64
	stream p4v1.P4Runtime_StreamChannelClient
	hangUp context.CancelFunc
}

func newController(t *testing.T, rpc p4v1.P4RuntimeClient, device uint64) *controller {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	t.Cleanup(cancel)
	stream, err := rpc.StreamChannel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &controller{t, device, stream, cancel}
}

func id(low uint64) *p4v1.Uint128 { return &p4v1.Uint128{Low: low} }

func (c *controller) bid(id *p4v1.Uint128) { c.bidFor(c.device, id, nil) }

func (c *controller) bidFor(device uint64, id *p4v1.Uint128, role *p4v1.Role) {
	c.t.Helper()
	err := c.stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: device, ElectionId: id, Role: role},
	}})
	if err != nil {
		c.t.Fatal(err)
	}
}

// hears waits for one notification: the highest election id and the status.
func (c *controller) hears(highest *p4v1.Uint128, code codes.Code) {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatalf("got %v, want a notification", err)
	}
	a := m.GetArbitration()
	if got := codes.Code(a.GetStatus().GetCode()); a == nil || got != code {
		c.t.Fatalf("status %v (%v), want %v", got, m, code)
	}
	if diff := cmp.Diff(highest, a.ElectionId, protocmp.Transform()); diff != "" {
		c.t.Fatalf("election id (-want +got):\n%s", diff)
	}
}

// ended waits for the server to end the stream.
func (c *controller) ended(code codes.Code) {
	c.t.Helper()
	for {
		_, err := c.stream.Recv()
		if err == nil {
			continue
		}
		if got := status.Code(err); got != code {
			c.t.Fatalf("stream ended with %v, want %v", err, code)
		}
		return
	}
}

// TestArbitration plays three controllers. Election ids start high, so that an
// external server which has seen earlier runs can be tested again.
func TestArbitration(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		rpc := rawClient(t, s)
		base := uint64(time.Now().UnixNano())
		bump := func(n uint64) *p4v1.Uint128 { return id(base + n) }

		a := newController(t, rpc, s.device)
		a.bid(bump(10))
		a.hears(bump(10), codes.OK)

		b := newController(t, rpc, s.device)
		b.bid(bump(5)) // lower: backup, and nobody else need know
		b.hears(bump(10), codes.AlreadyExists)

		c := newController(t, rpc, s.device)
		c.bid(nil) // never primary
		c.hears(bump(10), codes.AlreadyExists)

		b.bid(bump(20)) // takes over
		b.hears(bump(20), codes.OK)
		a.hears(bump(20), codes.AlreadyExists)
		c.hears(bump(20), codes.AlreadyExists)

		a.bid(bump(20)) // in use: a loses its stream, the others hear nothing
		a.ended(codes.InvalidArgument)

		a = newController(t, rpc, s.device)
		a.bid(bump(15))
		a.hears(bump(20), codes.AlreadyExists)

		b.hangUp() // the primary dies: nobody follows by itself
		a.hears(bump(20), codes.NotFound)
		c.hears(bump(20), codes.NotFound)

		a.bid(bump(19)) // still below the highest ever seen
		a.hears(bump(20), codes.NotFound)
		a.bid(bump(20)) // equal is enough
		a.hears(bump(20), codes.OK)
		c.hears(bump(20), codes.AlreadyExists)

		a.bid(bump(3)) // steps down
		a.hears(bump(20), codes.NotFound)
		c.hears(bump(20), codes.NotFound)

		c.bid(bump(21))
		c.hears(bump(21), codes.OK)
		a.hears(bump(21), codes.AlreadyExists)

		c.bidFor(s.device+1, bump(22), nil) // a stream belongs to one device
		c.ended(codes.FailedPrecondition)
		a.hears(bump(21), codes.NotFound)

		d := newController(t, rpc, s.device+1)
		d.bid(bump(30))
		d.ended(codes.NotFound)
	})
}

// fixture is a primary with a pipeline, speaking raw P4Runtime.
type fixture struct {
	subject
	rpc      p4v1.P4RuntimeClient
	pipe     *p4.Pipeline
	election *p4v1.Uint128
}

func newFixture(t *testing.T, s subject) *fixture {
	t.Helper()
	f := &fixture{subject: s, rpc: rawClient(t, s), election: id(uint64(time.Now().UnixNano()))}
	var err error
	if f.pipe, err = p4.NewPipeline(s.pipeline.Info); err != nil {
		t.Fatal(err)
	}
	c := newController(t, f.rpc, s.device)
	c.bid(f.election)
	c.hears(f.election, codes.OK)
	_, err = f.rpc.SetForwardingPipelineConfig(deadline(t), &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: s.device, ElectionId: f.election,
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: s.pipeline.Info, P4DeviceConfig: s.pipeline.DeviceConfig},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// write returns the code of each update, and whether the call as a whole was refused.
func (f *fixture) write(t *testing.T, updates ...*p4v1.Update) (perUpdate []codes.Code, call codes.Code) {
	t.Helper()
	_, err := f.rpc.Write(deadline(t), &p4v1.WriteRequest{DeviceId: f.device, ElectionId: f.election, Updates: updates})
	perUpdate = make([]codes.Code, len(updates))
	if err == nil {
		return perUpdate, codes.OK
	}
	details := status.Convert(err).Proto().GetDetails()
	for i, d := range details {
		var e p4v1.Error
		if err := d.UnmarshalTo(&e); err != nil {
			t.Fatal(err)
		}
		perUpdate[i] = codes.Code(e.CanonicalCode)
	}
	return perUpdate, status.Code(err)
}

func (f *fixture) read(t *testing.T, entities ...*p4v1.Entity) ([]*p4v1.Entity, error) {
	t.Helper()
	return p4rt.ReadAll(deadline(t), f.rpc, f.device, entities...)
}

func (f *fixture) job(t *testing.T, job uint16, change func(*p4v1.TableEntry)) *p4v1.Entity {
	t.Helper()
	te, err := f.pipe.EncodeJob(ina.JobEntry{Job: job, Epoch: 1, Mode: ina.Statistical, Size: 64, Expect: 7, Window: 16, UpPort: 1, DownGroup: job})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(te)
	}
	return tableEntity(te)
}

func tableEntity(te *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: te}}
}

func (f *fixture) route(t *testing.T, last byte) *p4v1.Entity {
	t.Helper()
	te, err := f.pipe.EncodeRoute(p4.Route{Dst: [4]byte{10, 0, 0, last}, Port: 2, MAC: [6]byte{2, 0, 0, 0, 0, last}})
	if err != nil {
		t.Fatal(err)
	}
	return tableEntity(te)
}

func group(id uint32, ports ...uint32) *p4v1.Entity {
	m := &p4v1.MulticastGroupEntry{MulticastGroupId: id}
	for _, p := range ports {
		m.Replicas = append(m.Replicas, &p4v1.Replica{PortKind: &p4v1.Replica_EgressPort{EgressPort: p}, Instance: 1})
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
		PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: m},
		},
	}}
}

func (f *fixture) counter(t *testing.T, name string, index *int64, data *p4v1.CounterData) *p4v1.Entity {
	t.Helper()
	info, err := f.pipe.Counter(name)
	if err != nil {
		t.Skip(err)
	}
	e := &p4v1.CounterEntry{CounterId: info.ID, Data: data}
	if index != nil {
		e.Index = &p4v1.Index{Index: *index}
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: e}}
}

const (
	unspecified = p4v1.Update_UNSPECIFIED
	insert      = p4v1.Update_INSERT
	modify      = p4v1.Update_MODIFY
	remove      = p4v1.Update_DELETE
)

// TestLifeOfAnEntity: the same five steps for every kind of entity.
func TestLifeOfAnEntity(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		for name, entity := range map[string]*p4v1.Entity{
			"job":   f.job(t, 5, nil),
			"route": f.route(t, 9),
			"group": group(5, 1, 2),
		} {
			for i, step := range []struct {
				typ  p4v1.Update_Type
				want codes.Code
			}{
				{modify, codes.NotFound},
				{remove, codes.NotFound},
				{insert, codes.OK},
				{insert, codes.AlreadyExists},
				{modify, codes.OK},
				{remove, codes.OK},
				{remove, codes.NotFound},
			} {
				got, _ := f.write(t, &p4v1.Update{Type: step.typ, Entity: entity})
				if got[0] != step.want {
					t.Errorf("%s, step %d: %v gives %v, want %v", name, i, step.typ, got[0], step.want)
				}
			}
		}
	})
}

// TestRefusals: each row is one update that must fail with one of the codes, and
// leave no entry behind.
func TestRefusals(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		index := func(i int64) *int64 { return &i }
		zero := &p4v1.CounterData{}
		param := func(i int, b ...byte) func(*p4v1.TableEntry) {
			return func(e *p4v1.TableEntry) { e.Action.GetAction().Params[i].Value = b }
		}
		pre := func(e *p4v1.PacketReplicationEngineEntry) *p4v1.Entity {
			return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: e}}
		}
		const (
			ok      = codes.OK
			invalid = codes.InvalidArgument
			missing = codes.NotFound
			wide    = codes.OutOfRange
			todo    = codes.Unimplemented
			unknown = codes.Unknown
		)
		tests := []struct {
			name   string
			typ    p4v1.Update_Type
			entity *p4v1.Entity
			want   []codes.Code
		}{
			{"no update type", unspecified, f.job(t, 1, nil), []codes.Code{invalid}},
			{"odd update type", 77, f.job(t, 1, nil), []codes.Code{invalid}},
			{"no entity", insert, nil, []codes.Code{invalid, unknown}},
			{"empty entity", insert, &p4v1.Entity{}, []codes.Code{invalid, unknown}},
			{"no such table", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.TableId++; e.TableId += 1 << 20 }), []codes.Code{invalid, missing}},
			{"no table", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.TableId = 0 }), []codes.Code{invalid}},
			{"no match key", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match = nil }), []codes.Code{invalid}},
			{"match field twice", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match = append(e.Match, e.Match[0]) }), []codes.Code{invalid}},
			{"no such match field", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match[0].FieldId += 50 }), []codes.Code{invalid}},
			{"key too wide", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = []byte{1, 0, 0} }), []codes.Code{wide, invalid}},
			{"key empty", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = nil }), []codes.Code{wide, invalid}},
			{"priority in an exact table", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Priority = 3 }), []codes.Code{invalid}},
			{"no action", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Action = nil }), []codes.Code{invalid}},
			{"no such action", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Action.GetAction().ActionId += 1 << 20 }), []codes.Code{invalid}},
			{"action of another table", insert, f.job(t, 1, func(e *p4v1.TableEntry) {
				e.Action = f.route(t, 1).GetTableEntry().Action
			}), []codes.Code{invalid}},
			{"action profile", insert, f.job(t, 1, func(e *p4v1.TableEntry) {
				e.Action.Type = &p4v1.TableAction_ActionProfileMemberId{ActionProfileMemberId: 1}
			}), []codes.Code{invalid}},
			{"parameter missing", insert, f.job(t, 1, func(e *p4v1.TableEntry) { a := e.Action.GetAction(); a.Params = a.Params[1:] }), []codes.Code{invalid}},
			{"parameter twice", insert, f.job(t, 1, func(e *p4v1.TableEntry) { a := e.Action.GetAction(); a.Params[1] = a.Params[0] }), []codes.Code{invalid}},
			{"parameter too wide", insert, f.job(t, 1, param(0, 1, 0, 0)), []codes.Code{wide, invalid}},
			{"parameter empty", insert, f.job(t, 1, param(0)), []codes.Code{wide, invalid}},
			{"direct counter", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.CounterData = zero }), []codes.Code{invalid}},
			{"idle timeout", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.IdleTimeoutNs = 1e9 }), []codes.Code{invalid}},
			{"insert of the default entry", insert, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match, e.IsDefaultAction = nil, true }), []codes.Code{invalid}},
			{"change of a constant default entry", modify, f.job(t, 1, func(e *p4v1.TableEntry) { e.Match, e.IsDefaultAction = nil, true }), []codes.Code{codes.PermissionDenied}},
			{"group 0", insert, group(0, 1), []codes.Code{invalid}},
			{"group 65536", insert, group(65536, 1), []codes.Code{wide}},
			{"replica twice", insert, group(9, 1, 1), []codes.Code{invalid}},
			{"replica without a port", insert, pre(&p4v1.PacketReplicationEngineEntry{Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
				MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: 9, Replicas: []*p4v1.Replica{{Instance: 1}}},
			}}), []codes.Code{invalid}},
			{"empty replication entry", insert, pre(&p4v1.PacketReplicationEngineEntry{}), []codes.Code{invalid}},
			{"counter insert", insert, f.counter(t, "port_rx", index(1), zero), []codes.Code{invalid}},
			{"wildcard counter write", modify, f.counter(t, "port_rx", nil, zero), []codes.Code{todo}},
			{"counter index below zero", modify, f.counter(t, "port_rx", index(-1), zero), []codes.Code{invalid}},
			{"counter index too high", modify, f.counter(t, "port_rx", index(1<<20), zero), []codes.Code{wide, unknown}},
			{"no such counter", modify, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: 0x12ABCDEF, Index: &p4v1.Index{}}}}, []codes.Code{invalid, missing}},
			{"register", modify, &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{RegisterId: 0x16000001}}}, []codes.Code{todo}},
			{"value set", modify, &p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: &p4v1.ValueSetEntry{ValueSetId: 0x03000001}}}, []codes.Code{todo}},
			{"meter", modify, &p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{MeterId: 0x14000001}}}, []codes.Code{invalid}},
			{"non-canonical is accepted", insert, f.job(t, 300, func(e *p4v1.TableEntry) { e.Match[0].GetExact().Value = []byte{0, 0, 1, 44} }), []codes.Code{ok}},
			{"and names the same entry", insert, f.job(t, 300, nil), []codes.Code{codes.AlreadyExists}},
			{"a delete needs no action", remove, f.job(t, 300, func(e *p4v1.TableEntry) { e.Action = nil }), []codes.Code{ok}},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				got, call := f.write(t, &p4v1.Update{Type: tt.typ, Entity: tt.entity})
				want := tt.want
				if s.embedded {
					want = want[:1]
				}
				if !slices.Contains(want, got[0]) {
					t.Errorf("got %v, want %v", got[0], want)
				}
				if got[0] != codes.OK && call != codes.Unknown {
					t.Errorf("the call ended with %v, want UNKNOWN and details", call)
				}
			})
		}
		if left, err := f.read(t, tableEntity(&p4v1.TableEntry{})); err != nil || len(left) != 0 {
			t.Errorf("refused updates left %v, %v", left, err)
		}
	})
}

// TestBatch: a failed update does not keep the others from being applied, and the
// details tell one from the other.
func TestBatch(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		got, call := f.write(t,
			&p4v1.Update{Type: insert, Entity: f.job(t, 21, nil)},
			&p4v1.Update{Type: modify, Entity: f.job(t, 22, nil)},
			&p4v1.Update{Type: insert, Entity: f.job(t, 23, nil)},
			&p4v1.Update{Type: insert, Entity: f.job(t, 21, nil)},
		)
		want := []codes.Code{codes.OK, codes.NotFound, codes.OK, codes.AlreadyExists}
		if !slices.Equal(got, want) || call != codes.Unknown {
			t.Errorf("got %v with %v, want %v with UNKNOWN", got, call, want)
		}
		found, err := f.read(t, tableEntity(&p4v1.TableEntry{TableId: f.pipe.TableID(p4.JobTable)}))
		if err != nil || len(found) != 2 {
			t.Errorf("%d entries, %v; want jobs 21 and 23", len(found), err)
		}
	})
}

// TestCalls: requests that fail as a whole, without details.
func TestCalls(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		write := func(change func(*p4v1.WriteRequest)) error {
			r := &p4v1.WriteRequest{
				DeviceId: f.device, ElectionId: f.election,
				Updates: []*p4v1.Update{{Type: insert, Entity: f.job(t, 31, nil)}},
			}
			change(r)
			_, err := f.rpc.Write(deadline(t), r)
			return err
		}
		push := func(change func(*p4v1.SetForwardingPipelineConfigRequest)) error {
			r := &p4v1.SetForwardingPipelineConfigRequest{
				DeviceId: f.device, ElectionId: f.election, Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY,
				Config: &p4v1.ForwardingPipelineConfig{P4Info: s.pipeline.Info, P4DeviceConfig: s.pipeline.DeviceConfig},
			}
			change(r)
			_, err := f.rpc.SetForwardingPipelineConfig(deadline(t), r)
			return err
		}
		read := func(change func(*p4v1.ReadRequest)) error {
			r := &p4v1.ReadRequest{DeviceId: f.device}
			change(r)
			stream, err := f.rpc.Read(deadline(t), r)
			if err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		registers := &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{}}}
		for _, tt := range []struct {
			name string
			err  error
			want []codes.Code
		}{
			{"write to another device", write(func(r *p4v1.WriteRequest) { r.DeviceId++ }), []codes.Code{codes.NotFound, codes.FailedPrecondition}},
			{"write in another role", write(func(r *p4v1.WriteRequest) { r.Role = "x" }), []codes.Code{codes.NotFound, codes.PermissionDenied}},
			{"write without an election id", write(func(r *p4v1.WriteRequest) { r.ElectionId = nil }), []codes.Code{codes.PermissionDenied}},
			{"write of a backup", write(func(r *p4v1.WriteRequest) { r.ElectionId = id(1) }), []codes.Code{codes.PermissionDenied}},
			{"write with rollback", write(func(r *p4v1.WriteRequest) { r.Atomicity = p4v1.WriteRequest_ROLLBACK_ON_ERROR }), []codes.Code{codes.Unimplemented}},
			{"push to another device", push(func(r *p4v1.SetForwardingPipelineConfigRequest) { r.DeviceId++ }), []codes.Code{codes.NotFound, codes.FailedPrecondition}},
			{"push of a backup", push(func(r *p4v1.SetForwardingPipelineConfigRequest) { r.ElectionId = id(1) }), []codes.Code{codes.PermissionDenied}},
			{"push without an action", push(func(r *p4v1.SetForwardingPipelineConfigRequest) { r.Action = 0 }), []codes.Code{codes.InvalidArgument}},
			{"push without a config", push(func(r *p4v1.SetForwardingPipelineConfigRequest) { r.Config = nil }), []codes.Code{codes.InvalidArgument}},
			{"verify", push(func(r *p4v1.SetForwardingPipelineConfigRequest) {}), []codes.Code{codes.OK}},
			{"read of another device", read(func(r *p4v1.ReadRequest) { r.DeviceId++ }), []codes.Code{codes.NotFound, codes.FailedPrecondition}},
			{"read of an empty entity", read(func(r *p4v1.ReadRequest) { r.Entities = []*p4v1.Entity{{}} }), []codes.Code{codes.InvalidArgument, codes.Unknown}},
			{"read of registers", read(func(r *p4v1.ReadRequest) { r.Entities = []*p4v1.Entity{registers} }), []codes.Code{codes.Unimplemented}},
			{"read of nothing", read(func(r *p4v1.ReadRequest) {}), []codes.Code{codes.OK}},
		} {
			want := tt.want
			if s.embedded {
				want = want[:1]
			}
			if got := status.Code(tt.err); !slices.Contains(want, got) {
				t.Errorf("%s: %v, want %v", tt.name, tt.err, want)
			}
			if len(status.Convert(tt.err).Proto().GetDetails()) != 0 {
				t.Errorf("%s: has details, which are for updates", tt.name)
			}
		}
	})
}

// TestReads: what each query selects out of the same entries.
func TestReads(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		forwardOnly, err := f.pipe.EncodeJob(ina.JobEntry{Job: 3, UpPort: 1, DownGroup: 3})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := f.write(t,
			&p4v1.Update{Type: insert, Entity: f.job(t, 1, nil)},
			&p4v1.Update{Type: insert, Entity: f.job(t, 2, func(e *p4v1.TableEntry) { e.Metadata = []byte("mine") })},
			&p4v1.Update{Type: insert, Entity: tableEntity(forwardOnly)},
			&p4v1.Update{Type: insert, Entity: f.route(t, 1)},
			&p4v1.Update{Type: insert, Entity: group(1, 1, 2)},
			&p4v1.Update{Type: insert, Entity: group(2, 2, 3)},
		)
		if !slices.Equal(got, make([]codes.Code, 6)) {
			t.Fatalf("writing gives %v", got)
		}
		jobs := f.pipe.TableID(p4.JobTable)
		key := func(job uint16) *p4v1.TableEntry {
			te, err := f.pipe.JobKey(job)
			if err != nil {
				t.Fatal(err)
			}
			return te
		}
		one := int64(1)
		info, err := f.pipe.Counter("job_in")
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name  string
			query *p4v1.Entity
			want  int
			same  *p4v1.Entity // the only result, exactly
		}{
			{"all tables", tableEntity(&p4v1.TableEntry{}), 4, nil},
			{"one table", tableEntity(&p4v1.TableEntry{TableId: jobs}), 3, nil},
			{"one key", tableEntity(key(1)), 1, f.job(t, 1, nil)},
			{"a key with no entry", tableEntity(key(99)), 0, nil},
			{"one action", tableEntity(&p4v1.TableEntry{TableId: jobs, Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{
				Action: &p4v1.Action{ActionId: forwardOnly.Action.GetAction().ActionId},
			}}}), 1, tableEntity(forwardOnly)},
			{"metadata", tableEntity(&p4v1.TableEntry{TableId: jobs, Metadata: []byte("mine")}), 1, nil},
			{"all groups", group(0), 2, nil},
			{"one group", group(2), 1, group(2, 2, 3)},
			{"one cell", f.counter(t, "job_in", &one, nil), 1, f.counter(t, "job_in", &one, &p4v1.CounterData{})},
			{"a whole counter", f.counter(t, "job_in", nil, nil), info.Size, nil},
		} {
			got, err := f.read(t, tt.query)
			if err != nil || len(got) != tt.want {
				t.Errorf("%s: %d entities, %v; want %d", tt.name, len(got), err, tt.want)
				continue
			}
			if tt.same != nil {
				if diff := cmp.Diff(tt.same, got[0], protocmp.Transform()); diff != "" {
					t.Errorf("%s (-written +read):\n%s", tt.name, diff)
				}
			}
		}
		if _, err := f.read(t, group(77)); status.Code(err) != codes.NotFound {
			t.Errorf("group 77: %v, want NOT_FOUND", err)
		}
		if all, err := f.read(t, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{}}}); err != nil || len(all) < info.Size {
			t.Errorf("every counter: %d cells, %v", len(all), err)
		}
	})
}

// TestPipelineConfig: what was pushed comes back as asked for, and a push empties
// the switch.
func TestPipelineConfig(t *testing.T) {
	subjects(t, func(t *testing.T, s subject) {
		f := newFixture(t, s)
		if got, _ := f.write(t, &p4v1.Update{Type: insert, Entity: f.job(t, 1, nil)}); got[0] != codes.OK {
			t.Fatal(got)
		}
		cookie := &p4v1.ForwardingPipelineConfig_Cookie{Cookie: 0xC0FFEE}
		_, err := f.rpc.SetForwardingPipelineConfig(deadline(t), &p4v1.SetForwardingPipelineConfigRequest{
			DeviceId: f.device, ElectionId: f.election,
			Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
			Config: &p4v1.ForwardingPipelineConfig{P4Info: s.pipeline.Info, P4DeviceConfig: s.pipeline.DeviceConfig, Cookie: cookie},
		})
		if err != nil {
			t.Fatal(err)
		}
		if left, err := f.read(t, tableEntity(&p4v1.TableEntry{})); err != nil || len(left) != 0 {
			t.Errorf("a push left %v, %v", left, err)
		}
		for typ, want := range map[p4v1.GetForwardingPipelineConfigRequest_ResponseType][2]bool{ // p4info, device config
			p4v1.GetForwardingPipelineConfigRequest_ALL:                      {true, true},
			p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY:              {false, false},
			p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE:        {true, false},
			p4v1.GetForwardingPipelineConfigRequest_DEVICE_CONFIG_AND_COOKIE: {false, true},
		} {
			r, err := f.rpc.GetForwardingPipelineConfig(deadline(t), &p4v1.GetForwardingPipelineConfigRequest{DeviceId: f.device, ResponseType: typ})
			if err != nil {
				t.Fatal(err)
			}
			if r.Config.GetCookie().GetCookie() != cookie.Cookie || (r.Config.P4Info != nil) != want[0] ||
				string(r.Config.P4DeviceConfig) != map[bool]string{true: string(s.pipeline.DeviceConfig)}[want[1]] {
				t.Errorf("%v: cookie %v, p4info %v, device config of %d bytes", typ, r.Config.GetCookie(), r.Config.P4Info != nil, len(r.Config.P4DeviceConfig))
			}
		}
		caps, err := f.rpc.Capabilities(deadline(t), &p4v1.CapabilitiesRequest{})
		if err != nil || caps.P4RuntimeApiVersion == "" {
			t.Errorf("capabilities: %v, %v", caps, err)
		}
	})
}

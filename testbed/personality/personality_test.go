package personality_test

import (
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/personality"
	"github.com/inabench/inabench/testbed/softswitch/softswitchtest"
)

// start serves a personality, with its pipeline pushed by a controller whose election id is
// returned.
func start(t *testing.T, p personality.Personality, device uint64, config []byte) (p4v1.P4RuntimeClient, *p4v1.Uint128) {
	t.Helper()
	upstream := softswitchtest.Serve(t, 7, softswitchtest.Nowhere{})
	s, err := personality.Start(p, personality.Options{Upstream: upstream, UpstreamDevice: 7, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.P4RT, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Close()
	})
	rpc := p4v1.NewP4RuntimeClient(conn)
	id := &p4v1.Uint128{Low: uint64(time.Now().UnixNano())}
	if err := bid(t, rpc, device, id); err != nil {
		t.Fatal(err)
	}
	_, err = rpc.SetForwardingPipelineConfig(t.Context(), &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: device, ElectionId: id, Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config: &p4v1.ForwardingPipelineConfig{P4Info: small(), P4DeviceConfig: config},
	})
	if err != nil {
		t.Fatal(err)
	}
	return rpc, id
}

// small is the pipeline with counters of few cells.
func small() *p4configv1.P4Info {
	info := p4.Info()
	for _, c := range info.Counters {
		c.Size = 4
	}
	return info
}

// bid opens a stream that stays open, and returns how the first answer was.
func bid(t *testing.T, rpc p4v1.P4RuntimeClient, device uint64, id *p4v1.Uint128) error {
	t.Helper()
	stream, err := rpc.StreamChannel(t.Context())
	if err != nil {
		return err
	}
	if err := stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: device, ElectionId: id},
	}}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// What each server refuses of what the specification allows, and with which code.
func TestRefusals(t *testing.T) {
	kinds := []struct {
		personality.Personality
		device uint64
		config []byte
	}{
		{personality.Stratum(), 1, bfrt.Config{Program: "ina", Profiles: []bfrt.Profile{{Name: "pipe", Context: []byte{1}, Binary: []byte{1}}}}.Marshal()},
		{personality.SDE(), 0, p4rt.SDEConfig{Program: "ina", Context: []byte{1}, Binary: []byte{1}}.Marshal()},
		{personality.PI(), 4, []byte("{}")},
	}
	group := func(id, instance uint32) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: &p4v1.MulticastGroupEntry{
				MulticastGroupId: id, Replicas: []*p4v1.Replica{{PortKind: &p4v1.Replica_EgressPort{EgressPort: 1}, Instance: instance}},
			}}}}}
	}
	clone := func(id uint32, replicas int) *p4v1.Entity {
		e := &p4v1.CloneSessionEntry{SessionId: id}
		for i := range replicas {
			e.Replicas = append(e.Replicas, &p4v1.Replica{PortKind: &p4v1.Replica_EgressPort{EgressPort: uint32(i + 1)}, Instance: 1})
		}
		return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
			Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: e}}}}
	}
	counter := func(id uint32, index *p4v1.Index) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: id, Index: index, Data: &p4v1.CounterData{}}}}
	}
	register := &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{RegisterId: 1}}}
	anyCounter := p4.Info().Counters[0].Preamble.Id
	const ok, invalid, unimplemented = codes.OK, codes.InvalidArgument, codes.Unimplemented
	for i, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			rpc, id := start(t, k.Personality, k.device, k.config)
			write := func(typ p4v1.Update_Type, e *p4v1.Entity) error {
				_, err := rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: k.device, ElectionId: id, Updates: []*p4v1.Update{{Type: typ, Entity: e}}})
				for _, d := range status.Convert(err).Details() { // the code of the one update
					return status.Error(codes.Code(d.(*p4v1.Error).GetCanonicalCode()), d.(*p4v1.Error).GetMessage())
				}
				return err
			}
			read := func(e *p4v1.Entity) error {
				stream, err := rpc.Read(t.Context(), &p4v1.ReadRequest{DeviceId: k.device, Entities: []*p4v1.Entity{e}})
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			}
			for _, row := range []struct {
				what string
				err  error
				want [3]codes.Code // of Stratum, SDE, PI
			}{
				{"a group", write(p4v1.Update_INSERT, group(1, 1)), [3]codes.Code{ok, ok, ok}},
				{"a high group", write(p4v1.Update_INSERT, group(40000, 1)), [3]codes.Code{ok, ok, invalid}},
				{"a high instance", write(p4v1.Update_INSERT, group(2, 70000)), [3]codes.Code{invalid, invalid, invalid}},
				{"a clone session", write(p4v1.Update_INSERT, clone(5, 1)), [3]codes.Code{ok, ok, ok}},
				{"a clone session of two", write(p4v1.Update_INSERT, clone(6, 2)), [3]codes.Code{invalid, invalid, invalid}},
				{"a high clone session", write(p4v1.Update_INSERT, clone(1016, 1)), [3]codes.Code{invalid, invalid, ok}},
				{"inserting a counter", write(p4v1.Update_INSERT, counter(anyCounter, &p4v1.Index{})), [3]codes.Code{invalid, invalid, invalid}},
				{"cell 0 of a counter", write(p4v1.Update_MODIFY, counter(anyCounter, &p4v1.Index{})), [3]codes.Code{ok, ok, ok}},
				{"all cells of a counter", write(p4v1.Update_MODIFY, counter(anyCounter, nil)), [3]codes.Code{unimplemented, unimplemented, unimplemented}},
				{"a register", write(p4v1.Update_MODIFY, register), [3]codes.Code{unimplemented, unimplemented, unimplemented}},
				{"reading a register", read(register), [3]codes.Code{unimplemented, unimplemented, unimplemented}},
				{"reading all counters", read(counter(0, nil)), [3]codes.Code{invalid, ok, ok}},
				{"reading a counter", read(counter(anyCounter, nil)), [3]codes.Code{ok, ok, ok}},
				{"all or nothing", func() error {
					_, err := rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: k.device, ElectionId: id, Atomicity: p4v1.WriteRequest_ROLLBACK_ON_ERROR})
					return err
				}(), [3]codes.Code{unimplemented, unimplemented, unimplemented}},
				{"reconciling", func() error {
					_, err := rpc.SetForwardingPipelineConfig(t.Context(), &p4v1.SetForwardingPipelineConfigRequest{
						DeviceId: k.device, ElectionId: id, Action: p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT,
						Config: &p4v1.ForwardingPipelineConfig{P4Info: p4.Info(), P4DeviceConfig: k.config},
					})
					return err
				}(), [3]codes.Code{unimplemented, unimplemented, unimplemented}},
				{"a bid without an id", bid(t, rpc, k.device, nil), [3]codes.Code{invalid, ok, ok}},
				{"a bid that is in use", bid(t, rpc, k.device, id), [3]codes.Code{invalid, invalid, invalid}},
				{"a bid for device 0", bid(t, rpc, 0, &p4v1.Uint128{Low: 1}), [3]codes.Code{invalid, ok, invalid}},
				{"a bid for device 99", bid(t, rpc, 99, &p4v1.Uint128{Low: 2}), [3]codes.Code{codes.NotFound, codes.NotFound, codes.NotFound}},
				{"a writer that is not primary", func() error {
					_, err := rpc.Write(t.Context(), &p4v1.WriteRequest{DeviceId: k.device, ElectionId: &p4v1.Uint128{Low: 3}, Updates: []*p4v1.Update{{Type: p4v1.Update_INSERT, Entity: group(9, 1)}}})
					return err
				}(), [3]codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.PermissionDenied}},
			} {
				if got := status.Code(row.err); got != row.want[i] {
					t.Errorf("%s: %v, want %v", row.what, row.err, row.want[i])
				}
			}
		})
	}
}

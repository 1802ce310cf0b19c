package personality

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// linkless is how often after a push ports say that they have no link.
const linkless = 3

// p4runtime is the P4Runtime service of a Server.
type p4runtime struct {
	p4v1.UnimplementedP4RuntimeServer
	*Server
}

// device checks a device id in a request.
func (s *p4runtime) device(id uint64) error {
	switch {
	case id == 0 && !s.p.ZeroDevice:
		return status.Error(codes.InvalidArgument, "Invalid device ID.")
	case id != s.o.Device:
		return status.Errorf(codes.NotFound, "Node %d is unknown: no such device.", id)
	}
	return nil
}

// StreamChannel passes arbitration on, one stream upstream for each.
func (s *p4runtime) StreamChannel(down p4v1.P4Runtime_StreamChannelServer) error {
	s.starting.RLock()
	drop := s.drop
	s.open.Add(1)
	s.starting.RUnlock()
	defer s.open.Done()
	s.mu.Lock()
	s.streams++
	full := s.p.Controllers > 0 && s.streams > s.p.Controllers
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams--
	}()
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := s.upstream.StreamChannel(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { // ends with down's context at the latest
		for {
			m, err := up.Recv()
			if err == nil {
				if a := m.GetArbitration(); a != nil {
					a.DeviceId = s.o.Device
				}
				err = down.Send(m)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	asked := make(chan error, 1)
	go func() {
		joined := false
		for {
			m, err := down.Recv()
			if errors.Is(err, io.EOF) {
				up.CloseSend()
				return
			}
			if a := m.GetArbitration(); err == nil && a != nil {
				id := a.GetElectionId()
				switch derr := s.device(a.GetDeviceId()); {
				case derr != nil && joined:
					err = status.Error(codes.FailedPrecondition, "Node id cannot be changed.")
				case derr != nil:
					err = derr
				case full:
					err = status.Errorf(codes.ResourceExhausted, "Can have max %d active streams for node %d.", s.p.Controllers, s.o.Device)
				case s.p.NeedsElection && id.GetHigh() == 0 && id.GetLow() == 0:
					err = status.Error(codes.InvalidArgument, "Invalid election ID.")
				}
				a.DeviceId, joined = s.o.UpstreamDevice, true
			}
			if err == nil {
				err = up.Send(m)
			}
			if err != nil {
				asked <- err
				return
			}
		}
	}()
	select {
	case err = <-ended:
	case err = <-asked:
	case <-drop:
		return status.Error(codes.Unavailable, "The server is restarting.")
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Capabilities passes the question on.
func (s *p4runtime) Capabilities(ctx ctx, _ *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	return s.upstream.Capabilities(ctx, &p4v1.CapabilitiesRequest{})
}

// SetForwardingPipelineConfig refuses what the server could not load.
func (s *p4runtime) SetForwardingPipelineConfig(ctx ctx, r *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	if err := s.device(r.GetDeviceId()); err != nil {
		return nil, err
	}
	if r.GetAction() == p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT {
		return nil, status.Error(codes.Unimplemented, "RECONCILE_AND_COMMIT is not supported")
	}
	if c := r.GetConfig(); c != nil {
		if err := s.p.Config(c.GetP4DeviceConfig()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "P4 device config: %v", err)
		}
	}
	r.DeviceId = s.o.UpstreamDevice
	if info := r.GetConfig().GetP4Info(); info != nil && !p4.OfINA(info) {
		return s.host(ctx, r)
	}
	ok, err := s.upstream.SetForwardingPipelineConfig(ctx, r)
	if err == nil {
		s.mu.Lock()
		s.foreign = nil
		s.pushes++
		s.linkless = linkless
		s.mu.Unlock()
	}
	return ok, err
}

// host has the server run a program that is none of INA, which the embedded switch could not: of that it is told nothing. Who
// is not primary is refused, as for any write.
func (s *p4runtime) host(ctx ctx, r *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	if _, err := s.upstream.Write(ctx, &p4v1.WriteRequest{DeviceId: s.o.UpstreamDevice, ElectionId: r.GetElectionId()}); err != nil && status.Code(err) != codes.FailedPrecondition {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign = proto.Clone(r.GetConfig()).(*p4v1.ForwardingPipelineConfig)
	s.pushes++
	return &p4v1.SetForwardingPipelineConfigResponse{}, nil
}

// told is what a server that runs such a program says of it; nil: it runs none.
func (s *p4runtime) told(how p4v1.GetForwardingPipelineConfigRequest_ResponseType) *p4v1.ForwardingPipelineConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.foreign == nil {
		return nil
	}
	out := proto.Clone(s.foreign).(*p4v1.ForwardingPipelineConfig)
	if how != p4v1.GetForwardingPipelineConfigRequest_ALL || s.p.Withholds {
		out.P4DeviceConfig = nil
	}
	return out
}

// GetForwardingPipelineConfig passes the question on, unless the program is none of INA.
func (s *p4runtime) GetForwardingPipelineConfig(ctx ctx, r *p4v1.GetForwardingPipelineConfigRequest) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	if err := s.device(r.GetDeviceId()); err != nil {
		return nil, err
	}
	if s.p.Untold {
		return nil, status.Error(codes.Unimplemented, "GetForwardingPipelineConfig is not supported")
	}
	if c := s.told(r.GetResponseType()); c != nil {
		return &p4v1.GetForwardingPipelineConfigResponse{Config: c}, nil
	}
	r.DeviceId = s.o.UpstreamDevice
	return s.upstream.GetForwardingPipelineConfig(ctx, r)
}

// pipeline is the one that the embedded switch runs, if it runs one.
func (s *p4runtime) pipeline(ctx ctx) *p4.Pipeline {
	r, err := s.upstream.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{
		DeviceId: s.o.UpstreamDevice, ResponseType: p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE,
	})
	if err != nil || r.GetConfig().GetP4Info() == nil {
		return nil
	}
	p, _ := p4.NewPipeline(r.GetConfig().GetP4Info())
	return p
}

// Write answers what concerns the server alone, and passes the rest on. Errors of updates
// come back in their order, as details of UNKNOWN.
func (s *p4runtime) Write(ctx ctx, r *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	if err := s.device(r.GetDeviceId()); err != nil {
		return nil, err
	}
	if r.GetAtomicity() != p4v1.WriteRequest_CONTINUE_ON_ERROR {
		return nil, status.Errorf(codes.Unimplemented, "Request atomicity %v is not supported.", r.GetAtomicity())
	}
	pipe := s.pipeline(ctx)
	answers := make([]*p4v1.Error, len(r.GetUpdates()))
	pass := &p4v1.WriteRequest{DeviceId: s.o.UpstreamDevice, ElectionId: r.GetElectionId()}
	var at []int
	for i, u := range r.GetUpdates() {
		answers[i] = new(p4v1.Error)
		here, err := s.update(pipe, u)
		if err == nil && !here {
			var e *p4v1.Entity
			if e, err = translate(pipe, u.GetEntity(), s.theirs()); err == nil {
				pass.Updates = append(pass.Updates, &p4v1.Update{Type: u.GetType(), Entity: e})
				at = append(at, i)
			}
		}
		if err != nil {
			st := status.Convert(err)
			answers[i].CanonicalCode, answers[i].Message = int32(st.Code()), st.Message()
		}
	}
	if len(pass.Updates) > 0 || len(r.GetUpdates()) == 0 {
		_, err := s.upstream.Write(ctx, pass)
		details := status.Convert(err).Proto().GetDetails()
		if err != nil && len(details) != len(at) {
			return nil, err // of the call as a whole
		}
		for k, d := range details {
			if err := d.UnmarshalTo(answers[at[k]]); err != nil {
				return nil, err
			}
		}
	}
	st := &rpcstatus.Status{Code: int32(codes.Unknown), Message: "One or more write operations failed."}
	failed := false
	for _, a := range answers {
		failed = failed || a.GetCanonicalCode() != 0
		d, err := anypb.New(a)
		if err != nil {
			return nil, err
		}
		st.Details = append(st.Details, d)
	}
	if failed {
		return nil, status.FromProto(st).Err()
	}
	return &p4v1.WriteResponse{}, nil
}

// update refuses what the server refuses, and does what the embedded switch cannot.
func (s *p4runtime) update(pipe *p4.Pipeline, u *p4v1.Update) (here bool, err error) {
	switch e := u.GetEntity().GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		if s.p.NoTables {
			return false, status.Error(codes.Unimplemented, "Table entries are not implemented.")
		}
		return false, s.widths(pipe, e.TableEntry)
	case *p4v1.Entity_RegisterEntry, *p4v1.Entity_ValueSetEntry:
		return false, status.Errorf(codes.Unimplemented, "%T is not supported", e)
	case *p4v1.Entity_CounterEntry:
		switch {
		case u.GetType() != p4v1.Update_MODIFY:
			return false, status.Error(codes.InvalidArgument, "Update type of CounterEntry must be MODIFY.")
		case e.CounterEntry.GetCounterId() == 0:
			return false, status.Error(codes.InvalidArgument, "Missing counter id.")
		case e.CounterEntry.GetIndex() == nil:
			return false, status.Error(codes.Unimplemented, "Wildcard write is not supported for indirect counters yet")
		}
	case *p4v1.Entity_PacketReplicationEngineEntry:
		g, c := e.PacketReplicationEngineEntry.GetMulticastGroupEntry(), e.PacketReplicationEngineEntry.GetCloneSessionEntry()
		if g.GetMulticastGroupId() > s.p.MaxGroup {
			return false, status.Errorf(codes.InvalidArgument, "Multicast group %d, at most %d.", g.GetMulticastGroupId(), s.p.MaxGroup)
		}
		for _, r := range g.GetReplicas() {
			if r.GetInstance() > s.p.MaxGroup {
				return false, status.Errorf(codes.InvalidArgument, "Replica instance %d, at most %d.", r.GetInstance(), s.p.MaxGroup)
			}
		}
		if c != nil {
			return true, s.cloneSession(u.GetType(), c)
		}
	}
	return false, nil
}

// cloneSession keeps sessions; no packet is ever cloned.
func (s *p4runtime) cloneSession(typ p4v1.Update_Type, e *p4v1.CloneSessionEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := e.GetSessionId()
	_, there := s.sessions[id]
	switch {
	case id == 0 || id > s.p.MaxSession:
		return status.Errorf(codes.InvalidArgument, "Clone session %d outside 1..%d.", id, s.p.MaxSession)
	case typ == p4v1.Update_DELETE && !there, typ == p4v1.Update_MODIFY && !there:
		return status.Errorf(codes.NotFound, "Clone session %d.", id)
	case typ == p4v1.Update_DELETE:
		delete(s.sessions, id)
	case typ == p4v1.Update_INSERT && there:
		return status.Errorf(codes.AlreadyExists, "Clone session %d.", id)
	case len(e.GetReplicas()) != 1:
		return status.Error(codes.InvalidArgument, "A clone session takes exactly one replica.")
	default:
		s.sessions[id] = proto.Clone(e).(*p4v1.CloneSessionEntry)
	}
	return nil
}

// Read answers each entity by itself, all of it in one message.
func (s *p4runtime) Read(r *p4v1.ReadRequest, down p4v1.P4Runtime_ReadServer) error {
	if err := s.device(r.GetDeviceId()); err != nil {
		return err
	}
	ctx := down.Context()
	pipe := s.pipeline(ctx)
	all := new(p4v1.ReadResponse)
	for _, e := range r.GetEntities() {
		found, err := s.read(ctx, pipe, e)
		if err != nil {
			return err
		}
		all.Entities = append(all.Entities, found...)
	}
	return down.Send(all)
}

func (s *p4runtime) read(ctx ctx, pipe *p4.Pipeline, query *p4v1.Entity) ([]*p4v1.Entity, error) {
	counter := ""
	switch e := query.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		if s.p.NoTables {
			return nil, status.Error(codes.Unimplemented, "Table entries are not implemented.")
		}
		if err := s.widths(pipe, e.TableEntry); err != nil {
			return nil, err
		}
	case *p4v1.Entity_RegisterEntry:
		return nil, status.Error(codes.Unimplemented, "Register reads are not supported yet")
	case *p4v1.Entity_ValueSetEntry:
		return nil, status.Error(codes.Unimplemented, "ValueSetEntry reads are not supported yet")
	case *p4v1.Entity_CounterEntry:
		if e.CounterEntry.GetCounterId() == 0 && s.p.CounterID0 {
			return nil, status.Error(codes.InvalidArgument, "Missing counter id.")
		}
		counter = counterName(pipe, e.CounterEntry.GetCounterId())
	case *p4v1.Entity_PacketReplicationEngineEntry:
		if c := e.PacketReplicationEngineEntry.GetCloneSessionEntry(); c != nil {
			return s.readSessions(c.GetSessionId())
		}
	}
	ask, err := translate(pipe, query, s.theirs())
	if err != nil {
		return nil, err
	}
	out, err := p4rt.ReadAll(ctx, s.upstream, s.o.UpstreamDevice, ask)
	if err != nil {
		return nil, err
	}
	if s.o.Ports != nil && strings.HasPrefix(counter, "port_") && query.GetCounterEntry().GetIndex() == nil {
		return s.spread(out), nil
	}
	for i := range out {
		if out[i], err = translate(pipe, out[i], s.ours()); err != nil {
			return nil, err
		}
		if te := out[i].GetTableEntry(); te != nil && s.p.FullWidth {
			for _, f := range fields(pipe, te) {
				*f.value = append(make([]byte, max(0, p4.Width(f.bits)-len(*f.value))), *f.value...)
			}
		}
	}
	return out, nil
}

// widths refuses byte strings that are narrower or wider than their fields, where the server does.
func (s *p4runtime) widths(pipe *p4.Pipeline, te *p4v1.TableEntry) error {
	if !s.p.FullWidth {
		return nil
	}
	for _, f := range fields(pipe, te) {
		if len(*f.value) != p4.Width(f.bits) {
			return status.Errorf(codes.InvalidArgument, "A byte string of %d bytes for bit<%d>.", len(*f.value), f.bits)
		}
	}
	return nil
}

// valued is a byte string of an entry, of a field of so many bits.
type valued struct {
	value *[]byte
	bits  int
}

// fields are the byte strings of an entry whose fields the p4info has: exact matches and parameters of its action.
func fields(pipe *p4.Pipeline, te *p4v1.TableEntry) (out []valued) {
	if pipe == nil {
		return nil
	}
	for _, t := range pipe.Info().GetTables() {
		if t.GetPreamble().GetId() != te.GetTableId() {
			continue
		}
		for _, m := range te.GetMatch() {
			for _, f := range t.GetMatchFields() {
				if f.GetId() == m.GetFieldId() && m.GetExact() != nil {
					out = append(out, valued{&m.GetExact().Value, int(f.GetBitwidth())})
				}
			}
		}
	}
	action := te.GetAction().GetAction()
	for _, a := range pipe.Info().GetActions() {
		if a.GetPreamble().GetId() != action.GetActionId() {
			continue
		}
		for _, p := range action.GetParams() {
			for _, f := range a.GetParams() {
				if f.GetId() == p.GetParamId() {
					out = append(out, valued{&p.Value, int(f.GetBitwidth())})
				}
			}
		}
	}
	return out
}

// spread puts the cells of a counter of ports where the ports are here; the rest are 0.
func (s *p4runtime) spread(cells []*p4v1.Entity) []*p4v1.Entity {
	data := map[int64]*p4v1.CounterData{}
	for _, c := range cells {
		if own, ok := s.o.Ports[uint32(c.GetCounterEntry().GetIndex().GetIndex())]; ok {
			data[int64(own)] = c.GetCounterEntry().GetData()
		}
	}
	for _, c := range cells {
		e := c.GetCounterEntry()
		if e.Data = data[e.GetIndex().GetIndex()]; e.Data == nil {
			e.Data = new(p4v1.CounterData)
		}
	}
	return cells
}

func (s *p4runtime) readSessions(id uint32) ([]*p4v1.Entity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*p4v1.Entity
	for _, k := range slices.Sorted(maps.Keys(s.sessions)) {
		if id == 0 || id == k {
			out = append(out, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: s.sessions[k]},
			}}})
		}
	}
	return out, nil
}

// theirs gives the embedded switch's number of a port, ours the one here; nil: they are the
// same.
func (s *p4runtime) theirs() func(uint32) (uint32, error) { return s.lookUp(s.back) }
func (s *p4runtime) ours() func(uint32) (uint32, error)   { return s.lookUp(s.o.Ports) }

func (s *p4runtime) lookUp(ports map[uint32]uint32) func(uint32) (uint32, error) {
	if s.o.Ports == nil {
		return nil
	}
	return func(p uint32) (uint32, error) {
		other, ok := ports[p]
		if !ok {
			return 0, status.Errorf(codes.InvalidArgument, "Unknown port %d.", p)
		}
		return other, nil
	}
}

func counterName(pipe *p4.Pipeline, id uint32) string {
	if pipe == nil {
		return ""
	}
	for _, c := range pipe.Counters() {
		if c.ID == id {
			return c.Name
		}
	}
	return ""
}

// translate is an entity with other numbers of ports. What is not understood stays: the
// embedded switch refuses it in its own words.
func translate(pipe *p4.Pipeline, e *p4v1.Entity, number func(uint32) (uint32, error)) (_ *p4v1.Entity, err error) {
	out := proto.Clone(e).(*p4v1.Entity)
	if number == nil {
		return out, nil
	}
	switch e := out.GetEntity().(type) {
	case *p4v1.Entity_PacketReplicationEngineEntry:
		for _, r := range e.PacketReplicationEngineEntry.GetMulticastGroupEntry().GetReplicas() {
			var port uint32
			if port, err = number(r.GetEgressPort()); err == nil {
				r.PortKind = &p4v1.Replica_EgressPort{EgressPort: port}
			}
		}
	case *p4v1.Entity_CounterEntry:
		if i := e.CounterEntry.GetIndex(); i != nil && strings.HasPrefix(counterName(pipe, e.CounterEntry.GetCounterId()), "port_") {
			var port uint32
			if port, err = number(uint32(i.GetIndex())); err == nil {
				i.Index = int64(port)
			}
		}
	case *p4v1.Entity_TableEntry:
		if pipe == nil || e.TableEntry.GetAction() == nil {
			break
		}
		if job, derr := pipe.DecodeJob(e.TableEntry); derr == nil && !(job.Root && job.UpPort == 0) {
			if job.UpPort, err = number(job.UpPort); err == nil {
				e.TableEntry, err = pipe.EncodeJob(job)
			}
		}
		if r, derr := pipe.DecodeRoute(e.TableEntry); derr == nil {
			if r.Port, err = number(r.Port); err == nil {
				e.TableEntry, err = pipe.EncodeRoute(r)
			}
		}
	}
	return out, err
}

package softswitch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

const (
	p4APIVersion  = "1.5.0"
	p4StopGrace   = time.Second // for clients to hang up once the server wants to stop
	maxSessions   = 64          // open streams; the specification leaves the limit to the server
	maxBacklog    = 256         // messages waiting for a client that does not read its stream
	maxRequest    = 64 << 20    // bytes; compiled pipelines are megabytes
	readChunk     = 1024        // entities in one ReadResponse
	p4ErrorDomain = "inabench-softswitch"
)

// ServeP4 serves P4Runtime 1.5.0 on lis for one device until ctx ends, and drives
// t with what is written. It closes lis, and returns nil after ctx has ended:
// within about a second, when clients that do not hang up are cut off.
//
// Where the specification leaves a choice, and for registers, it behaves as BMv2
// does: a failed batch is UNKNOWN with one p4.v1.Error per update in the details,
// only CONTINUE_ON_ERROR is offered, and registers and wildcard counter writes are
// UNIMPLEMENTED. Only the default role exists.
func ServeP4(ctx context.Context, lis net.Listener, deviceID uint64, t Target) error {
	s := newP4Server(deviceID, t)
	g := rpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest),
		// A controller that vanished without closing its connection stays primary
		// until this finds out.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	p4v1.RegisterP4RuntimeServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve P4Runtime on %s: %w", lis.Addr(), err)
		served <- nil // it is over; for the wait below
	case <-ctx.Done():
	}
	close(s.stop) // ends every stream

	late := time.AfterFunc(p4StopGrace, g.Stop)
	g.GracefulStop()
	late.Stop()
	<-served
	s.receivers.Wait()
	return err
}

// p4server is the P4Runtime service of one device.
type p4server struct {
	p4v1.UnimplementedP4RuntimeServer
	device    uint64
	target    Target
	stop      chan struct{}
	receivers sync.WaitGroup // goroutines reading streams

	// mu makes each request atomic with respect to all others: a Write is finished
	// before a new primary is chosen or anything is read.
	mu       sync.RWMutex
	sessions map[*session]struct{} // streams that have sent an arbitration update
	primary  *session
	highest  *electionID // of any primary so far
	live     *p4config   // what the target runs; nil before the first pipeline
	saved    *p4config   // verified and saved, not committed yet
	offsets  map[counterCell]*p4v1.CounterData
}

func newP4Server(deviceID uint64, t Target) *p4server {
	return &p4server{
		device:   deviceID,
		target:   t,
		stop:     make(chan struct{}),
		sessions: make(map[*session]struct{}),
		offsets:  make(map[counterCell]*p4v1.CounterData),
	}
}

// session is one open stream.
type session struct {
	id   *electionID // nil: backup for ever
	out  chan *p4v1.StreamMessageResponse
	full chan struct{} // closed when out overflowed
}

func newSession() *session {
	return &session{out: make(chan *p4v1.StreamMessageResponse, maxBacklog), full: make(chan struct{})}
}

// send queues m, never blocking: a client that does not read loses its stream. It
// is only called with the server's lock held.
func (c *session) send(m *p4v1.StreamMessageResponse) {
	select {
	case c.out <- m:
	default:
		select {
		case <-c.full:
		default:
			close(c.full)
		}
	}
}

type electionID struct{ high, low uint64 }

func newElectionID(u *p4v1.Uint128) *electionID {
	if u == nil {
		return nil
	}
	return &electionID{u.GetHigh(), u.GetLow()}
}

func (a electionID) less(b electionID) bool {
	return a.high < b.high || a.high == b.high && a.low < b.low
}

// StreamChannel arbitrates between controllers for as long as their streams are open.
func (s *p4server) StreamChannel(stream p4v1.P4Runtime_StreamChannelServer) error {
	c := newSession()
	defer s.leave(c)
	type received struct {
		m   *p4v1.StreamMessageRequest
		err error
	}
	in := make(chan received)
	s.receivers.Add(1)
	go func() { // Recv returns when this handler has; ServeP4 waits for the goroutine
		defer s.receivers.Done()
		for {
			m, err := stream.Recv()
			select {
			case in <- received{m, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case r := <-in:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := s.receive(c, r.m); err != nil {
				return err
			}
		case m := <-c.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done(): // the client is gone, whether or not Recv got to say so
			return status.FromContextError(stream.Context().Err()).Err()
		case <-c.full:
			return status.Errorf(codes.ResourceExhausted, "%d messages wait to be read", maxBacklog)
		case <-s.stop:
			return status.Error(codes.Unavailable, "the switch is shutting down")
		}
	}
}

// receive handles one message of a stream. An error ends the stream.
func (s *p4server) receive(c *session, m *p4v1.StreamMessageRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &p4v1.StreamError{Space: p4ErrorDomain}
	switch u := m.GetUpdate().(type) {
	case *p4v1.StreamMessageRequest_Arbitration:
		return s.arbitrate(c, u.Arbitration)
	case *p4v1.StreamMessageRequest_Packet:
		e.CanonicalCode, e.Message = int32(codes.Unimplemented), "the switch has no packet I/O"
		e.Details = &p4v1.StreamError_PacketOut{PacketOut: &p4v1.PacketOutError{}}
	case *p4v1.StreamMessageRequest_DigestAck:
		e.CanonicalCode, e.Message = int32(codes.InvalidArgument), "the pipeline has no digests"
		e.Details = &p4v1.StreamError_DigestListAck{DigestListAck: &p4v1.DigestListAckError{}}
	default:
		e.CanonicalCode, e.Message = int32(codes.InvalidArgument), "empty or unknown stream message"
		e.Details = &p4v1.StreamError_Other{Other: &p4v1.StreamOtherError{}}
	}
	c.send(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Error{Error: e}})
	return nil
}

// arbitrate follows the specification's "Rules for Handling
// MasterArbitrationUpdate Messages" step by step.
func (s *p4server) arbitrate(c *session, m *p4v1.MasterArbitrationUpdate) error {
	_, joined := s.sessions[c]
	strange := codes.NotFound
	if joined {
		strange = codes.FailedPrecondition
	}
	switch {
	case m.GetDeviceId() != s.device:
		return status.Errorf(strange, "device %d is not here, %d is", m.GetDeviceId(), s.device)
	case m.GetRole().GetName() != "":
		return status.Errorf(strange, "role %q: there is only the default role", m.GetRole().GetName())
	case m.GetRole().GetConfig() != nil:
		return status.Error(codes.InvalidArgument, "the default role takes no configuration")
	}
	id := newElectionID(m.GetElectionId())
	for other := range s.sessions {
		if other != c && id != nil && other.id != nil && *other.id == *id {
			return status.Errorf(codes.InvalidArgument, "election id %d:%d is in use", id.high, id.low)
		}
	}
	if !joined {
		if len(s.sessions) >= maxSessions {
			return status.Errorf(codes.ResourceExhausted, "%d streams are open", maxSessions)
		}
		s.sessions[c] = struct{}{}
	}
	c.id = id
	switch {
	case id != nil && (s.highest == nil || !id.less(*s.highest)):
		s.highest, s.primary = id, c
		s.notifyAll()
	case s.primary == c: // stepped down
		s.primary = nil
		s.notifyAll()
	default:
		s.notify(c)
	}
	return nil
}

func (s *p4server) leave(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c)
	if s.primary == c {
		s.primary = nil
		s.notifyAll()
	}
}

// notifyAll tells every controller who is primary, the primary last.
func (s *p4server) notifyAll() {
	for c := range s.sessions {
		if c != s.primary {
			s.notify(c)
		}
	}
	if s.primary != nil {
		s.notify(s.primary)
	}
}

func (s *p4server) notify(c *session) {
	m := &p4v1.MasterArbitrationUpdate{DeviceId: s.device}
	if s.highest != nil {
		m.ElectionId = &p4v1.Uint128{High: s.highest.high, Low: s.highest.low}
	}
	switch s.primary {
	case c:
		m.Status = &rpcstatus.Status{Code: int32(codes.OK), Message: "you are primary"}
	case nil:
		m.Status = &rpcstatus.Status{Code: int32(codes.NotFound), Message: "there is no primary"}
	default:
		m.Status = &rpcstatus.Status{Code: int32(codes.AlreadyExists), Message: "you are backup"}
	}
	c.send(&p4v1.StreamMessageResponse{Update: &p4v1.StreamMessageResponse_Arbitration{Arbitration: m}})
}

// checkTarget answers requests for devices and roles that are not here.
func (s *p4server) checkTarget(device uint64, role string) error {
	if device != s.device {
		return status.Errorf(codes.NotFound, "device %d is not here, %d is", device, s.device)
	}
	if role != "" {
		return status.Errorf(codes.NotFound, "role %q: there is only the default role", role)
	}
	return nil
}

func (s *p4server) checkPrimary(u *p4v1.Uint128) error {
	id := newElectionID(u)
	if id == nil || s.primary == nil || *id != *s.primary.id {
		return status.Error(codes.PermissionDenied, "not primary")
	}
	return nil
}

// current is the config that reads and writes refer to: a saved one hides the live one.
func (s *p4server) current() *p4config {
	if s.saved != nil {
		return s.saved
	}
	return s.live
}

// SetForwardingPipelineConfig verifies, saves and commits pipelines; every one with
// the tables of package p4, under whatever ids, can be realised.
func (s *p4server) SetForwardingPipelineConfig(_ context.Context, r *p4v1.SetForwardingPipelineConfigRequest) (*p4v1.SetForwardingPipelineConfigResponse, error) {
	if err := s.checkTarget(r.GetDeviceId(), r.GetRole()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkPrimary(r.GetElectionId()); err != nil {
		return nil, err
	}
	ok := new(p4v1.SetForwardingPipelineConfigResponse)
	switch r.GetAction() {
	case p4v1.SetForwardingPipelineConfigRequest_VERIFY,
		p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE,
		p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT:
		cfg, err := newP4Config(r.GetConfig())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "forwarding pipeline config: %v", err)
		}
		switch r.GetAction() {
		case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_SAVE:
			s.saved = cfg
		case p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT:
			return ok, s.commit(cfg)
		}
		return ok, nil
	case p4v1.SetForwardingPipelineConfigRequest_COMMIT:
		if r.GetConfig() != nil {
			return nil, status.Error(codes.InvalidArgument, "COMMIT takes the saved config, none may be given")
		}
		if s.saved == nil {
			return nil, status.Error(codes.NotFound, "no config is saved")
		}
		return ok, s.commit(s.saved)
	case p4v1.SetForwardingPipelineConfigRequest_RECONCILE_AND_COMMIT:
		return nil, status.Error(codes.Unimplemented, "RECONCILE_AND_COMMIT is not supported, use VERIFY_AND_COMMIT")
	}
	return nil, status.Errorf(codes.InvalidArgument, "action %v", r.GetAction())
}

// commit makes cfg what the target runs, with the entries written since it was saved.
func (s *p4server) commit(cfg *p4config) error {
	s.target.Reset()
	clear(s.offsets)
	s.live, s.saved = cfg, nil
	return cfg.replay(s.target)
}

// GetForwardingPipelineConfig returns what was set, without a config before that.
func (s *p4server) GetForwardingPipelineConfig(_ context.Context, r *p4v1.GetForwardingPipelineConfigRequest) (*p4v1.GetForwardingPipelineConfigResponse, error) {
	if err := s.checkTarget(r.GetDeviceId(), ""); err != nil {
		return nil, err
	}
	s.mu.RLock()
	cfg := s.current()
	s.mu.RUnlock()
	resp := new(p4v1.GetForwardingPipelineConfigResponse)
	if cfg == nil {
		return resp, nil
	}
	resp.Config = &p4v1.ForwardingPipelineConfig{Cookie: cfg.fwd.GetCookie()}
	switch r.GetResponseType() {
	case p4v1.GetForwardingPipelineConfigRequest_ALL:
		resp.Config = cfg.fwd
	case p4v1.GetForwardingPipelineConfigRequest_COOKIE_ONLY:
	case p4v1.GetForwardingPipelineConfigRequest_P4INFO_AND_COOKIE:
		resp.Config.P4Info = cfg.fwd.GetP4Info()
	case p4v1.GetForwardingPipelineConfigRequest_DEVICE_CONFIG_AND_COOKIE:
		resp.Config.P4DeviceConfig = cfg.fwd.GetP4DeviceConfig()
	default:
		return nil, status.Errorf(codes.InvalidArgument, "response type %v", r.GetResponseType())
	}
	return resp, nil
}

// Write applies updates in order, each by itself.
func (s *p4server) Write(_ context.Context, r *p4v1.WriteRequest) (*p4v1.WriteResponse, error) {
	if err := s.checkTarget(r.GetDeviceId(), r.GetRole()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkPrimary(r.GetElectionId()); err != nil {
		return nil, err
	}
	cfg := s.current()
	if cfg == nil {
		return nil, errNoPipeline
	}
	if r.GetAtomicity() != p4v1.WriteRequest_CONTINUE_ON_ERROR {
		return nil, status.Errorf(codes.Unimplemented, "atomicity %v is not supported, use CONTINUE_ON_ERROR", r.GetAtomicity())
	}
	target := s.target
	if cfg != s.live {
		target = nil // saved, not committed: replayed later
	}
	failed := false
	results := make([]*p4v1.Error, len(r.GetUpdates()))
	for i, u := range r.GetUpdates() {
		results[i] = new(p4v1.Error)
		if err := s.update(cfg, target, u); err != nil {
			failed = true
			st := toStatus(err)
			results[i].CanonicalCode = int32(st.Code())
			results[i].Message = st.Message()
			results[i].Space = p4ErrorDomain
		}
	}
	if !failed {
		return new(p4v1.WriteResponse), nil
	}
	st := &rpcstatus.Status{Code: int32(codes.Unknown), Message: "write failure"}
	for _, e := range results {
		d, err := anypb.New(e)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "pack error details: %v", err)
		}
		st.Details = append(st.Details, d)
	}
	return nil, status.FromProto(st).Err()
}

var errNoPipeline = status.Error(codes.FailedPrecondition, "no forwarding pipeline config is set")

func (s *p4server) update(cfg *p4config, t Target, u *p4v1.Update) error {
	switch u.GetType() {
	case p4v1.Update_INSERT, p4v1.Update_MODIFY, p4v1.Update_DELETE:
	default:
		return status.Errorf(codes.InvalidArgument, "update type %v", u.GetType())
	}
	switch e := u.GetEntity().GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return cfg.writeTable(u.GetType(), e.TableEntry, t)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		switch e := e.PacketReplicationEngineEntry.GetType().(type) {
		case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
			return cfg.writeGroup(u.GetType(), e.MulticastGroupEntry, t)
		case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
			return status.Error(codes.Unimplemented, "the switch has no clone sessions")
		}
		return status.Error(codes.InvalidArgument, "replication engine entry is empty")
	case *p4v1.Entity_CounterEntry:
		return s.writeCounter(cfg, u.GetType(), e.CounterEntry)
	case *p4v1.Entity_RegisterEntry:
		return status.Error(codes.Unimplemented, "Register writes are not supported yet") // PI's words
	case *p4v1.Entity_ValueSetEntry, *p4v1.Entity_ExternEntry:
		return status.Errorf(codes.Unimplemented, "%T is not supported", e)
	case nil:
		return status.Error(codes.InvalidArgument, "entity is not set")
	default:
		return status.Errorf(codes.InvalidArgument, "%T: the pipeline has none", e)
	}
}

// Read answers all of r from one state of the switch. As on BMv2 the first entity
// that cannot be read ends the call with its code, and nothing is returned.
func (s *p4server) Read(r *p4v1.ReadRequest, stream p4v1.P4Runtime_ReadServer) error {
	entities, err := s.read(r)
	if err != nil {
		return err
	}
	for len(entities) > 0 {
		n := min(len(entities), readChunk)
		if err := stream.Send(&p4v1.ReadResponse{Entities: entities[:n]}); err != nil {
			return err
		}
		entities = entities[n:]
	}
	return nil
}

func (s *p4server) read(r *p4v1.ReadRequest) ([]*p4v1.Entity, error) {
	if err := s.checkTarget(r.GetDeviceId(), r.GetRole()); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	cfg := s.current()
	if cfg == nil {
		return nil, errNoPipeline
	}
	var out []*p4v1.Entity
	for _, e := range r.GetEntities() {
		got, err := s.readEntity(cfg, e)
		if err != nil {
			return nil, toStatus(err).Err()
		}
		if len(out)+len(got) > maxRead {
			return nil, status.Errorf(codes.ResourceExhausted, "more than %d entities in one read", maxRead)
		}
		out = append(out, got...)
	}
	return out, nil
}

// maxRead bounds the memory one read can ask for; every counter of the pipeline
// together has about 50,000 cells.
const maxRead = 1 << 18

func (s *p4server) readEntity(cfg *p4config, e *p4v1.Entity) ([]*p4v1.Entity, error) {
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		return cfg.readTable(e.TableEntry)
	case *p4v1.Entity_PacketReplicationEngineEntry:
		switch e := e.PacketReplicationEngineEntry.GetType().(type) {
		case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
			return cfg.readGroup(e.MulticastGroupEntry.GetMulticastGroupId())
		case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
			return none(e.CloneSessionEntry.GetSessionId(), "clone session")
		}
		return nil, status.Error(codes.InvalidArgument, "replication engine entry is empty")
	case *p4v1.Entity_CounterEntry:
		return s.readCounter(cfg, e.CounterEntry)
	case *p4v1.Entity_RegisterEntry:
		return nil, status.Error(codes.Unimplemented, "Register reads are not supported yet") // PI's words
	case *p4v1.Entity_ActionProfileMember:
		return none(e.ActionProfileMember.GetActionProfileId(), "action profile")
	case *p4v1.Entity_ActionProfileGroup:
		return none(e.ActionProfileGroup.GetActionProfileId(), "action profile")
	case *p4v1.Entity_MeterEntry:
		return none(e.MeterEntry.GetMeterId(), "meter")
	case *p4v1.Entity_DirectMeterEntry:
		return none(e.DirectMeterEntry.GetTableEntry().GetTableId(), "direct meter")
	case *p4v1.Entity_DirectCounterEntry:
		return none(e.DirectCounterEntry.GetTableEntry().GetTableId(), "direct counter")
	case *p4v1.Entity_DigestEntry:
		return none(e.DigestEntry.GetDigestId(), "digest")
	case nil:
		return nil, status.Error(codes.InvalidArgument, "entity is not set")
	default:
		return nil, status.Errorf(codes.Unimplemented, "%T is not supported", e)
	}
}

// none reads entities of a kind the pipeline lacks: a wildcard finds nothing.
func none(id uint32, kind string) ([]*p4v1.Entity, error) {
	if id == 0 {
		return nil, nil
	}
	return nil, status.Errorf(codes.InvalidArgument, "the pipeline has no %s %#x", kind, id)
}

// Capabilities tells the version of the API.
func (s *p4server) Capabilities(_ context.Context, r *p4v1.CapabilitiesRequest) (*p4v1.CapabilitiesResponse, error) {
	if id := r.GetDeviceId(); id != 0 && id != s.device {
		return nil, status.Errorf(codes.NotFound, "device %d is not here, %d is", id, s.device)
	}
	return &p4v1.CapabilitiesResponse{P4RuntimeApiVersion: p4APIVersion}, nil
}

// counterCell is one cell of one counter.
type counterCell struct {
	counter Counter
	index   int
}

// writeCounter sets a cell: the target is reset, and what is not zero is added to
// what it counts from then on.
func (s *p4server) writeCounter(cfg *p4config, typ p4v1.Update_Type, e *p4v1.CounterEntry) error {
	if typ != p4v1.Update_MODIFY {
		return status.Errorf(codes.InvalidArgument, "%v of a counter, only MODIFY is possible", typ)
	}
	info, c, err := cfg.counter(e.GetCounterId())
	if err != nil {
		return err
	}
	if e.GetIndex() == nil {
		return status.Error(codes.Unimplemented, "Wildcard write is not supported for indirect counters yet") // PI's words
	}
	index, err := cellIndex(info, e.GetIndex())
	if err != nil {
		return err
	}
	d := e.GetData()
	if d == nil {
		return nil
	}
	if d.GetPacketCount() < 0 || d.GetByteCount() < 0 {
		return status.Errorf(codes.InvalidArgument, "counter %s cannot be set below zero", info.Name)
	}
	cell := counterCell{c, index}
	s.target.ResetCounter(c, index)
	delete(s.offsets, cell)
	if d.GetPacketCount() != 0 || d.GetByteCount() != 0 {
		s.offsets[cell] = proto.Clone(d).(*p4v1.CounterData)
	}
	return nil
}

func (s *p4server) readCounter(cfg *p4config, e *p4v1.CounterEntry) ([]*p4v1.Entity, error) {
	if e.GetCounterId() == 0 {
		if e.GetIndex() != nil {
			return nil, status.Error(codes.InvalidArgument, "an index without a counter id")
		}
		var out []*p4v1.Entity
		for _, info := range cfg.pipe.Counters() {
			out = append(out, s.readCells(cfg.counters[info.ID], info, 0, info.Size)...)
		}
		return out, nil
	}
	info, c, err := cfg.counter(e.GetCounterId())
	if err != nil {
		return nil, err
	}
	if e.GetIndex() == nil {
		return s.readCells(c, info, 0, info.Size), nil
	}
	i, err := cellIndex(info, e.GetIndex())
	if err != nil {
		return nil, err
	}
	return s.readCells(c, info, i, i+1), nil
}

func (s *p4server) readCells(c Counter, info p4.Counter, from, to int) []*p4v1.Entity {
	out := make([]*p4v1.Entity, 0, to-from)
	for i := from; i < to; i++ {
		packets, bytes := s.target.Counter(c, i)
		d := s.offsets[counterCell{c, i}]
		out = append(out, &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{
			CounterId: info.ID,
			Index:     &p4v1.Index{Index: int64(i)},
			Data:      &p4v1.CounterData{PacketCount: packets + d.GetPacketCount(), ByteCount: bytes + d.GetByteCount()},
		}}})
	}
	return out
}

func cellIndex(info p4.Counter, i *p4v1.Index) (int, error) {
	switch {
	case i.GetIndex() < 0:
		return 0, status.Errorf(codes.InvalidArgument, "counter %s has no index %d", info.Name, i.GetIndex())
	case i.GetIndex() >= int64(info.Size):
		return 0, status.Errorf(codes.OutOfRange, "counter %s has %d cells, there is no index %d", info.Name, info.Size, i.GetIndex())
	}
	return int(i.GetIndex()), nil
}

// toStatus gives every error its canonical code.
func toStatus(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	switch {
	case errors.Is(err, ina.ErrQuota):
		return status.New(codes.ResourceExhausted, err.Error())
	case errors.Is(err, p4.ErrRange):
		return status.New(codes.OutOfRange, err.Error())
	case errors.Is(err, errors.ErrUnsupported):
		return status.New(codes.Unimplemented, err.Error())
	}
	return status.New(codes.InvalidArgument, err.Error())
}

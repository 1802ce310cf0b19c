package personality

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/bfrt/bfrtpb"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/p4rt"
)

// BFRuntime answers as the BFRuntime server of open-p4studio 9.13.4 does, in front of an embedded switch. Files are
// those of pkgsrc/bf-drivers/src/bf_rt:
//
//   - proto/bf_rt_server_mgr.cpp: two clients of one number are refused (addConnection); who has not subscribed is
//     unknown (forwardingConfigBind, BF_NOT_READY is UNAVAILABLE); a program has one client (ALREADY_EXISTS), and to who
//     is bound to it already, too; a program with two profiles of one name is refused before anything is loaded
//     (DeviceForwardingConfig); one that is loaded forgets all entries and multicast, clients are told that it has begun
//     when it is in place (warmInitBegin), and those of programs that are gone lose their stream (refreshConnections).
//   - proto/bf_rt_server_impl.cpp: Write and Read need a bound client, or a program's name (getBfRtInfo); an entry's
//     table, action and fields must be known, and its values have all bytes of their fields (make_key, make_data); a
//     default entry is not inserted; DATAPLANE_ATOMIC is not implemented; each update has an answer of its own, and what
//     follows the last failure has none (BfRtServerErrorReporter); a read of everything of an empty table is no error,
//     one of a key that is not there is NOT_FOUND; counters are what they were when they were copied last.
//   - bf_rt_pre: a group's nodes are there before it.
//   - init and proto/bf_rt_server_mgr.cpp: the program that is told has its pipes filled in, and "$SHARED" is told beside
//     it; a load that fails is answered well, and only the stream does not say that it has finished.
//
// Loading a program removes all ports, which nothing brings back (hardware says so: fabric-p4test#10); one that is
// enabled has a link a little later, unless it is of 400 Gbit/s, to which nothing here is the other end. To insert one that
// is there is no error, and changes neither its speed nor its FEC (bf_pm_intf.c, bf_pm_port_add).
type BFRuntime struct {
	Addr string

	o        Options
	switched *p4rt.Client
	server   *rpc.Server
	served   sync.WaitGroup

	mu      sync.Mutex
	clients map[uint32]*bfClient
	config  *bfrtpb.ForwardingPipelineConfig
	tables  map[uint32]*bfTable
	entries map[uint32]map[string]*bfrtpb.TableEntry
	counted map[uint32][]dataplane.CounterValue // by counter, when it was copied last
	pushes  int
	asked   int               // for ports, since the last of these
	broken  map[uint32]uint64 // frames with an error of FCS, by the chip's ports

	unplugged []uint32 // ports without a link, by the chip's numbers
}

// bfClient is a client that has subscribed.
type bfClient struct {
	bound string
	drop  context.CancelFunc
	send  func(*bfrtpb.StreamMessageResponse) error // with the lock held
}

// bfTable is a table of a bf-rt.json, read by other code than the client's.
type bfTable struct {
	Name    string     `json:"name"`
	ID      uint32     `json:"id"`
	Type    string     `json:"table_type"`
	Key     []bfField  `json:"key"`
	Actions []bfAction `json:"action_specs"`
	Data    []struct {
		Singleton bfField `json:"singleton"`
	} `json:"data"`
}

type bfAction struct {
	Name string    `json:"name"`
	ID   uint32    `json:"id"`
	Data []bfField `json:"data"`
}

type bfField struct {
	Name      string `json:"name"`
	ID        uint32 `json:"id"`
	Repeated  bool   `json:"repeated"`
	Mandatory bool   `json:"mandatory"`
	Type      struct {
		Type  string `json:"type"`
		Width int    `json:"width"`
	} `json:"type"`
}

// size is how many bytes a field's value has.
func (f bfField) size() int {
	switch f.Type.Type {
	case "uint8", "bool":
		return 1
	case "uint16":
		return 2
	case "uint32":
		return 4
	case "uint64":
		return 8
	}
	return (f.Type.Width + 7) / 8
}

// fixed are the tables of a device that the client uses, as bf_rt_pre_tf1.json has them.
const fixed = `{"tables": [
 {"name": "$pre.mgid", "id": 4278321153, "table_type": "PreMgid", "key": [{"id": 1, "name": "$MGID", "mandatory": true, "type": {"type": "uint16"}}], "data": [
  {"singleton": {"id": 1, "name": "$MULTICAST_NODE_ID", "repeated": true, "type": {"type": "uint32"}}},
  {"singleton": {"id": 2, "name": "$MULTICAST_NODE_L1_XID_VALID", "repeated": true, "type": {"type": "bool"}}},
  {"singleton": {"id": 3, "name": "$MULTICAST_NODE_L1_XID", "repeated": true, "type": {"type": "uint16"}}}]},
 {"name": "tf1.snapshot.phv", "id": 4278190593, "table_type": "SnapshotPhv", "key": [{"id": 0, "name": "stage", "type": {"type": "uint32"}}], "data": []},
 {"name": "$mirror.cfg", "id": 4278386688, "table_type": "MirrorCfg", "key": [{"id": 1, "name": "$sid", "type": {"type": "uint16"}}], "action_specs": [
  {"id": 1, "name": "$normal", "data": [{"mandatory": false, "singleton": {"id": 1, "name": "$session_enable", "type": {"type": "bool"}}}]}], "data": []},
 {"name": "$PORT", "id": 4278255617, "table_type": "PortConfigure", "key": [{"id": 1, "name": "$DEV_PORT", "mandatory": true, "type": {"type": "uint32"}}], "data": [
  {"singleton": {"id": 1, "name": "$SPEED", "type": {"type": "string"}}},
  {"singleton": {"id": 2, "name": "$FEC", "type": {"type": "string"}}},
  {"singleton": {"id": 3, "name": "$N_LANES", "type": {"type": "uint32"}}},
  {"singleton": {"id": 4, "name": "$PORT_ENABLE", "type": {"type": "bool"}}},
  {"singleton": {"id": 5, "name": "$AUTO_NEGOTIATION", "type": {"type": "string"}}},
  {"singleton": {"id": 25, "name": "$PORT_UP", "type": {"type": "bool"}}}]},
 {"name": "$PORT_STAT", "id": 4278255618, "table_type": "PortStat", "key": [{"id": 1, "name": "$DEV_PORT", "mandatory": true, "type": {"type": "uint32"}}], "data": [
  {"singleton": {"id": 1, "name": "$FramesReceivedOK", "type": {"type": "uint64"}}},
  {"singleton": {"id": 3, "name": "$FramesReceivedwithFCSError", "type": {"type": "uint64"}}},
  {"singleton": {"id": 4, "name": "$FrameswithanyError", "type": {"type": "uint64"}}}]},
 {"name": "$PORT_STR_INFO", "id": 4278255621, "table_type": "PortStrInfo", "key": [{"id": 1, "name": "$PORT_NAME", "mandatory": true, "type": {"type": "string"}}], "data": [
  {"singleton": {"id": 1, "name": "$DEV_PORT", "type": {"type": "uint32"}}}]},
 {"name": "$pre.node", "id": 4278321154, "table_type": "PreNode", "key": [{"id": 1, "name": "$MULTICAST_NODE_ID", "mandatory": true, "type": {"type": "uint32"}}], "data": [
  {"singleton": {"id": 1, "name": "$MULTICAST_RID", "mandatory": true, "type": {"type": "uint16"}}},
  {"singleton": {"id": 2, "name": "$MULTICAST_LAG_ID", "mandatory": true, "repeated": true, "type": {"type": "uint8"}}},
  {"singleton": {"id": 3, "name": "$DEV_PORT", "mandatory": true, "repeated": true, "type": {"type": "uint32"}}}]}
]}`

// BFRTInfo is a bf-rt.json for a p4info, as a compiler for Tofino would write it: ids of its own, counters as tables.
func BFRTInfo(info *p4configv1.P4Info) []byte {
	type object = map[string]any
	bytesOf := func(width int32) object { return object{"type": "bytes", "width": width} }
	var tables []object
	actions := map[uint32]*p4configv1.Action{}
	for _, a := range info.GetActions() {
		actions[a.GetPreamble().GetId()] = a
	}
	for _, t := range info.GetTables() {
		table := object{"name": "pipe.SwitchIngress." + short(t.GetPreamble()), "id": t.GetPreamble().GetId() + 7, "table_type": "MatchAction_Direct", "size": t.GetSize(), "data": []object{}}
		var key, specs []object
		for _, m := range t.GetMatchFields() {
			key = append(key, object{"id": m.GetId(), "name": m.GetName(), "match_type": "Exact", "mandatory": false, "type": bytesOf(m.GetBitwidth())})
		}
		for _, r := range t.GetActionRefs() {
			a := actions[r.GetId()]
			data := []object{}
			for _, p := range a.GetParams() {
				data = append(data, object{"id": p.GetId() + 1, "name": p.GetName(), "mandatory": true, "type": bytesOf(p.GetBitwidth())})
			}
			specs = append(specs, object{"id": r.GetId() + 9, "name": "SwitchIngress." + short(a.GetPreamble()), "data": data})
		}
		table["key"], table["action_specs"] = key, specs
		tables = append(tables, table)
	}
	for _, c := range info.GetCounters() {
		tables = append(tables, object{
			"name": "pipe.SwitchIngress." + short(c.GetPreamble()), "id": c.GetPreamble().GetId() + 7, "table_type": "Counter", "size": c.GetSize(),
			"key": []object{{"id": 65556, "name": "$COUNTER_INDEX", "mandatory": true, "match_type": "Exact", "type": object{"type": "uint32"}}},
			"data": []object{
				{"singleton": object{"id": 65553, "name": "$COUNTER_SPEC_BYTES", "type": object{"type": "uint64"}}},
				{"singleton": object{"id": 65554, "name": "$COUNTER_SPEC_PKTS", "type": object{"type": "uint64"}}},
			},
			"supported_operations": []string{"Sync"},
		})
	}
	text, err := json.MarshalIndent(object{"schema_version": "1.0.0", "tables": tables}, "", "  ")
	if err != nil {
		panic(err)
	}
	return text
}

func short(p *p4configv1.Preamble) string {
	return p.GetName()[strings.LastIndexByte(p.GetName(), '.')+1:]
}

// StartBFRuntime serves until Close.
func StartBFRuntime(ctx context.Context, o Options) (*BFRuntime, error) {
	s := &BFRuntime{o: o, clients: map[uint32]*bfClient{}, server: rpc.NewServer(grpc.MaxRecvMsgSize(1<<30 - 1))}
	s.forget()
	var err error
	if s.switched, err = p4rt.Dial(ctx, "embedded", o.Upstream, o.UpstreamDevice, p4rt.Options{}); err != nil {
		return nil, err
	}
	bfrtpb.RegisterBfRuntimeServer(s.server, &bfService{s: s})
	lis, err := listen(o.Listen)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("BFRuntime: %w", err)
	}
	s.Addr = lis.Addr().String()
	s.served.Go(func() { _ = s.server.Serve(lis) }) // until Stop
	return s, nil
}

// Close stops serving; what the embedded switch was told is undone.
func (s *BFRuntime) Close() {
	s.server.Stop()
	s.served.Wait()
	s.switched.Close(context.Background())
}

// Pushes is how many programs have been loaded.
func (s *BFRuntime) Pushes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pushes
}

// Drop ends all streams, as a network does that is cut for a moment; with forget as a server does that restarts with the
// program that it was started with, and nothing else.
func (s *BFRuntime) Drop(ctx context.Context, forget bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if forget {
		if err := s.reload(ctx, s.config); err != nil {
			return err
		}
	}
	for _, c := range s.clients {
		c.drop()
	}
	return nil
}

// forget drops all entries. The lock is held, or nobody has it yet.
func (s *BFRuntime) forget() {
	s.entries, s.counted = map[uint32]map[string]*bfrtpb.TableEntry{}, map[uint32][]dataplane.CounterValue{}
}

// reload makes the switch run a program. The lock is held.
func (s *BFRuntime) reload(ctx context.Context, c *bfrtpb.ForwardingPipelineConfig) error {
	tables := map[uint32]*bfTable{}
	for _, text := range [][]byte{[]byte(fixed), c.GetBfruntimeInfo()} {
		var info struct{ Tables []*bfTable }
		if err := json.Unmarshal(text, &info); err != nil {
			return status.Errorf(codes.InvalidArgument, "Invalid device config sent: %v", err)
		}
		for _, t := range info.Tables {
			tables[t.ID] = t
		}
	}
	if err := s.switched.Push(ctx, dataplane.Pipeline{Info: p4.Info()}); err != nil {
		return status.Errorf(codes.Unknown, "Failed to add device during warm_init: %v", err)
	}
	s.config, s.tables = c, tables
	s.forget()
	s.pushes++
	s.asked = 0
	return nil
}

// bfService is the service of a BFRuntime.
type bfService struct {
	bfrtpb.UnimplementedBfRuntimeServer
	s *BFRuntime
}

// StreamChannel serves one client's stream.
func (g *bfService) StreamChannel(stream bfrtpb.BfRuntime_StreamChannelServer) error {
	s := g.s
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	var id uint32
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, id)
	}()
	asked := make(chan error, 1)
	go func() { // ends with the stream at the latest
		for joined := false; ; {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				asked <- nil
				return
			}
			if err != nil {
				asked <- err
				return
			}
			if m.GetSubscribe() == nil || joined {
				continue
			}
			s.mu.Lock()
			_, twice := s.clients[m.GetClientId()]
			if !twice {
				id, joined = m.GetClientId(), true
				s.clients[id] = &bfClient{drop: cancel, send: stream.Send}
				_ = stream.Send(&bfrtpb.StreamMessageResponse{Update: &bfrtpb.StreamMessageResponse_Subscribe{
					Subscribe: &bfrtpb.Subscribe{Status: &bfrtpb.Status{}},
				}}) // its end says that it has gone
			}
			s.mu.Unlock()
			if twice {
				asked <- status.Error(codes.InvalidArgument, "Can't have two clients with the same client id Invalid arguments")
				return
			}
		}
	}()
	select {
	case err := <-asked:
		return err
	case <-ctx.Done():
		return status.Error(codes.Canceled, "the connection is closed")
	}
}

// GetForwardingPipelineConfig tells what runs.
func (g *bfService) GetForwardingPipelineConfig(_ context.Context, r *bfrtpb.GetForwardingPipelineConfigRequest) (*bfrtpb.GetForwardingPipelineConfigResponse, error) {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.device(r.GetDeviceId()); err != nil {
		return nil, err
	}
	out := &bfrtpb.GetForwardingPipelineConfigResponse{NonP4Config: &bfrtpb.NonP4Config{BfruntimeInfo: []byte(fixed)}}
	out.Config = append(out.Config, &bfrtpb.ForwardingPipelineConfig{P4Name: "$SHARED"})
	if s.config != nil {
		c := proto.Clone(s.config).(*bfrtpb.ForwardingPipelineConfig)
		for _, p := range c.GetProfiles() {
			if len(p.GetPipeScope()) == 0 { // as the server has it (bf_rt_init_impl.cpp)
				p.PipeScope = []uint32{0, 1, 2, 3}
			}
		}
		out.Config = append(out.Config, c)
	}
	return out, nil
}

// tell tells all clients how far a load has come. The lock is held.
func (s *BFRuntime) tell(how bfrtpb.SetForwardingPipelineConfigResponseType) {
	for _, c := range s.clients {
		_ = c.send(&bfrtpb.StreamMessageResponse{Update: &bfrtpb.StreamMessageResponse_SetForwardingPipelineConfigResponse{
			SetForwardingPipelineConfigResponse: &bfrtpb.SetForwardingPipelineConfigResponse{SetForwardingPipelineConfigResponseType: how},
		}}) // who has gone is told nothing
	}
}

func (s *BFRuntime) device(id uint32) error {
	if uint64(id) != s.o.Device {
		return status.Errorf(codes.NotFound, "Unable to get device %d Object not found", id)
	}
	return nil
}

// SetForwardingPipelineConfig binds, or loads.
func (g *bfService) SetForwardingPipelineConfig(ctx context.Context, r *bfrtpb.SetForwardingPipelineConfigRequest) (*bfrtpb.SetForwardingPipelineConfigResponse, error) {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.device(r.GetDeviceId()); err != nil {
		return nil, err
	}
	out := &bfrtpb.SetForwardingPipelineConfigResponse{}
	client := s.clients[r.GetClientId()]
	switch r.GetAction() {
	case bfrtpb.SetForwardingPipelineConfigRequest_BIND:
		switch {
		case client == nil:
			return nil, status.Errorf(codes.Unavailable, "Unknown client. Client_id:%d Not ready", r.GetClientId())
		case len(r.GetConfig()) != 1:
			return nil, status.Error(codes.InvalidArgument, "Exactly one config message required. Invalid arguments")
		}
		name := r.GetConfig()[0].GetP4Name()
		for id, c := range s.clients {
			if c.bound == name {
				return nil, status.Errorf(codes.AlreadyExists, "Client ID %d trying to bind but Client ID %d already owns this P4 Already exists", r.GetClientId(), id)
			}
		}
		if s.config.GetP4Name() != name {
			return nil, status.Errorf(codes.NotFound, "Failed to find BfRtInfo for program %s Object not found", name)
		}
		client.bound = name
		return out, nil
	case bfrtpb.SetForwardingPipelineConfigRequest_VERIFY_AND_WARM_INIT_BEGIN_AND_END:
		if len(r.GetConfig()) != 1 {
			return nil, status.Error(codes.InvalidArgument, "Invalid device config sent Invalid arguments")
		}
		c := r.GetConfig()[0]
		names := map[string]bool{}
		for _, p := range c.GetProfiles() {
			if len(p.GetContext()) == 0 || len(p.GetBinary()) == 0 || names[p.GetProfileName()] {
				return nil, status.Error(codes.InvalidArgument, "Invalid device config sent Invalid arguments")
			}
			names[p.GetProfileName()] = true
		}
		if len(c.GetProfiles()) == 0 {
			return nil, status.Error(codes.InvalidArgument, "Invalid device config sent Invalid arguments")
		}
		if err := s.reload(ctx, c); err != nil {
			return out, nil // refreshConnections answers, and well
		}
		s.tell(bfrtpb.SetForwardingPipelineConfigResponseType_WARM_INIT_STARTED)
		s.tell(bfrtpb.SetForwardingPipelineConfigResponseType_WARM_INIT_FINISHED)
		for _, other := range s.clients {
			if other.bound != "" && other.bound != c.GetP4Name() {
				other.drop()
				other.bound = ""
			}
		}
		return out, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "%v is not supported", r.GetAction())
}

// bound is an error if a client may not write or read.
func (s *BFRuntime) bound(device, client uint32, name string) error {
	if err := s.device(device); err != nil {
		return err
	}
	c := s.clients[client]
	switch {
	case s.config == nil || (name != "" || c == nil) && name != s.config.GetP4Name():
		return status.Errorf(codes.NotFound, "Unable to obtain BF_RT info for (%s) Object not found", name)
	case name == "" && c.bound == "":
		return status.Error(codes.Unknown, "Unable to get bound_program Unexpected error")
	}
	return nil
}

// Write makes updates, each by itself.
func (g *bfService) Write(ctx context.Context, r *bfrtpb.WriteRequest) (*bfrtpb.WriteResponse, error) {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bound(r.GetTarget().GetDeviceId(), r.GetClientId(), r.GetP4Name()); err != nil {
		return nil, err
	}
	if r.GetAtomicity() == bfrtpb.WriteRequest_DATAPLANE_ATOMIC {
		return nil, status.Error(codes.Unimplemented, "DATAPLANE_ATOMIC isn't implemented Not implemented")
	}
	var answers []error
	for _, u := range r.GetUpdates() {
		answers = append(answers, s.update(ctx, u))
	}
	return &bfrtpb.WriteResponse{}, reported("Write Error Status", answers)
}

// reported is what a call with several answers ends with.
func reported(what string, answers []error) error {
	st := &rpcstatus.Status{Code: int32(codes.Unknown), Message: what}
	last := 0
	for i, err := range answers {
		if err != nil {
			last = i + 1
		}
	}
	for _, err := range answers[:last] {
		e := status.Convert(err)
		d, err := anypb.New(&bfrtpb.Error{CanonicalCode: int32(e.Code()), Message: e.Message()})
		if err != nil {
			return err
		}
		st.Details = append(st.Details, d)
	}
	if last == 0 {
		return nil
	}
	return status.FromProto(st).Err()
}

// update makes one update.
func (s *BFRuntime) update(ctx context.Context, u *bfrtpb.Update) error {
	if op := u.GetEntity().GetTableOperation(); op != nil {
		t := s.tables[op.GetTableId()]
		if t == nil || t.Type != "Counter" || op.GetTableOperationsType() != "Sync" && op.GetTableOperationsType() != "SyncCounters" {
			return status.Error(codes.Unimplemented, "Operation not supported Not supported")
		}
		return s.copyCounter(ctx, t)
	}
	e := u.GetEntity().GetTableEntry()
	t := s.tables[e.GetTableId()]
	if t == nil {
		return status.Errorf(codes.NotFound, "Table not found for id %d Object not found", e.GetTableId())
	}
	key, err := t.check(e)
	if err != nil {
		return err
	}
	if s.entries[t.ID] == nil {
		s.entries[t.ID] = map[string]*bfrtpb.TableEntry{}
	}
	_, there := s.entries[t.ID][key]
	switch typ := u.GetType(); {
	case e.GetIsDefaultEntry():
		return status.Errorf(codes.Unimplemented, "INSERT of default entry is not supported. Please use MODIFY instead table:%s Not supported", t.Name)
	case typ == bfrtpb.Update_INSERT && there && t.Name == "$PORT":
		return nil
	case typ == bfrtpb.Update_INSERT && there:
		return status.Errorf(codes.AlreadyExists, "Table Add failed table:%s Already exists", t.Name)
	case typ == bfrtpb.Update_MODIFY && !there:
		return status.Errorf(codes.NotFound, "Table Entry modify failed table:%s Object not found", t.Name)
	case typ == bfrtpb.Update_DELETE && !there:
		return status.Errorf(codes.NotFound, "Table Entry delete failed table:%s Object not found", t.Name)
	case typ != bfrtpb.Update_INSERT && typ != bfrtpb.Update_MODIFY && typ != bfrtpb.Update_DELETE:
		return status.Error(codes.InvalidArgument, "Invalid update type Invalid arguments")
	case typ == bfrtpb.Update_DELETE:
		old := s.entries[t.ID][key]
		delete(s.entries[t.ID], key)
		if err := s.become(ctx, t, key, nil); err != nil {
			s.entries[t.ID][key] = old
			return err
		}
		return nil
	}
	old := s.entries[t.ID][key]
	s.entries[t.ID][key] = proto.Clone(e).(*bfrtpb.TableEntry)
	if err := s.become(ctx, t, key, e); err != nil {
		if delete(s.entries[t.ID], key); there {
			s.entries[t.ID][key] = old
		}
		return err
	}
	return nil
}

// words are what fields of $PORT may say.
var words = map[string]bool{
	"BF_SPEED_1G": true, "BF_SPEED_10G": true, "BF_SPEED_25G": true, "BF_SPEED_40G": true, "BF_SPEED_50G": true,
	"BF_SPEED_100G": true, "BF_SPEED_200G": true, "BF_SPEED_400G": true,
	"BF_FEC_TYP_NONE": true, "BF_FEC_TYP_FC": true, "BF_FEC_TYP_RS": true,
	"PM_AN_DEFAULT": true, "PM_AN_FORCE_ENABLE": true, "PM_AN_FORCE_DISABLE": true,
}

// Links are the ports that are enabled, by the chip's numbers: speed, FEC, autonegotiation, lanes.
func (s *BFRuntime) Links() map[uint32]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]string{}
	t := s.table("$PORT")
	if t == nil {
		return out
	}
	for key, e := range s.entries[t.ID] {
		n, _ := p4.Uint([]byte(key), 32)
		lanes, _ := p4.Uint(append([]byte{0}, t.data(e, "$N_LANES").GetStream()...), 32)
		if t.data(e, "$PORT_ENABLE").GetBoolVal() {
			out[uint32(n)] = fmt.Sprint(t.data(e, "$SPEED").GetStrVal(), " ", t.data(e, "$FEC").GetStrVal(), " ", t.data(e, "$AUTO_NEGOTIATION").GetStrVal(), " ", lanes)
		}
	}
	return out
}

// Unplug takes the link of a port, by the chip's number, away for good.
func (s *BFRuntime) Unplug(port uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unplugged = append(s.unplugged, port)
}

// Break has so many frames arrive damaged at a port, by the chip's number.
func (s *BFRuntime) Break(port uint32, frames uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = map[uint32]uint64{}
	}
	s.broken[port] += frames
}

// counts are those of a port that is set up; what arrives well is not among them.
func (s *BFRuntime) counts(t *bfTable, key string) ([]*bfrtpb.TableEntry, error) {
	if s.entries[s.table("$PORT").ID][key] == nil {
		return nil, status.Errorf(codes.NotFound, "Error reading table:%s Object not found", t.Name)
	}
	port, _ := p4.Uint([]byte(key), 32)
	e := &bfrtpb.TableEntry{TableId: t.ID, Value: t.keyed(key), Data: &bfrtpb.TableData{}}
	for _, f := range t.Data {
		n := uint64(0)
		if strings.HasSuffix(f.Singleton.Name, "Error") {
			n = s.broken[uint32(port)]
		}
		e.Data.Fields = append(e.Data.Fields, &bfrtpb.DataField{FieldId: f.Singleton.ID, Value: &bfrtpb.DataField_Stream{Stream: binary.BigEndian.AppendUint64(nil, n)}})
	}
	return []*bfrtpb.TableEntry{e}, nil
}

// port is what the server knows of a port besides what it was told.
func (s *BFRuntime) port(t *bfTable, e *bfrtpb.TableEntry) *bfrtpb.TableEntry {
	s.asked++
	port, _ := p4.Uint(e.GetKey().GetFields()[0].GetExact().GetValue(), 32) // it was checked when it was written
	up := t.data(e, "$PORT_ENABLE").GetBoolVal() && s.asked > linkless && !slices.Contains(s.unplugged, uint32(port)) && t.data(e, "$SPEED").GetStrVal() != "BF_SPEED_400G"
	out := proto.Clone(e).(*bfrtpb.TableEntry)
	out.Data.Fields = append(out.Data.Fields, &bfrtpb.DataField{FieldId: 25, Value: &bfrtpb.DataField_BoolVal{BoolVal: up}})
	return out
}

// check refuses what the server could not make an entry of, and returns its key.
func (t *bfTable) check(e *bfrtpb.TableEntry) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", status.Errorf(codes.InvalidArgument, format+" table:%s Invalid arguments", append(args, t.Name)...)
	}
	var key string
	for _, k := range e.GetKey().GetFields() {
		i := slices.IndexFunc(t.Key, func(f bfField) bool { return f.ID == k.GetFieldId() })
		if i < 0 || t.Key[i].Type.Type != "string" && len(k.GetExact().GetValue()) != t.Key[i].size() {
			return bad("Failed to create key for field:%d", k.GetFieldId())
		}
		key += string(k.GetExact().GetValue())
	}
	if len(e.GetKey().GetFields()) != len(t.Key) {
		return bad("Table key cannot be empty")
	}
	if e.GetData() == nil {
		return key, nil
	}
	var fields []bfField
	for _, d := range t.Data {
		fields = append(fields, d.Singleton)
	}
	if len(t.Actions) > 0 {
		i := slices.IndexFunc(t.Actions, func(a bfAction) bool { return a.ID == e.GetData().GetActionId() })
		if i < 0 {
			return bad("Table data allocation failed")
		}
		fields = t.Actions[i].Data
	}
	seen := map[uint32]bool{}
	for _, d := range e.GetData().GetFields() {
		i := slices.IndexFunc(fields, func(f bfField) bool { return f.ID == d.GetFieldId() })
		if i < 0 {
			return bad("SetValue failed for field:%d", d.GetFieldId())
		}
		f := fields[i]
		seen[f.ID] = true
		ok := false
		switch v := d.GetValue().(type) {
		case *bfrtpb.DataField_Stream:
			ok = !f.Repeated && f.Type.Type != "bool" && len(v.Stream) == f.size()
		case *bfrtpb.DataField_IntArrVal:
			ok = f.Repeated && f.Type.Type != "bool"
		case *bfrtpb.DataField_BoolArrVal:
			ok = f.Repeated && f.Type.Type == "bool"
		case *bfrtpb.DataField_StrVal:
			ok = f.Type.Type == "string" && words[v.StrVal]
		case *bfrtpb.DataField_BoolVal:
			ok = !f.Repeated && f.Type.Type == "bool"
		}
		if !ok {
			return bad("SetValue failed for field:%d", f.ID)
		}
	}
	for _, f := range fields {
		if f.Mandatory && !seen[f.ID] {
			return bad("field:%d is mandatory", f.ID)
		}
	}
	return key, nil
}

// become tells the embedded switch what has become of an entry; nil: it is gone.
func (s *BFRuntime) become(ctx context.Context, t *bfTable, key string, e *bfrtpb.TableEntry) error {
	n, _ := p4.Uint([]byte(key), 64)
	switch {
	case t.Name == "$pre.node":
		return s.node(ctx, uint32(n), e != nil)
	case t.Name == "$pre.mgid":
		return s.group(ctx, uint16(n), e)
	case t.Name == "$PORT":
		_, err := s.theirs(uint32(n))
		return err
	case !strings.HasPrefix(t.Name, "pipe."):
		return status.Errorf(codes.Unimplemented, "table:%s Not supported", t.Name)
	}
	a := p4.Action{Params: map[string]uint64{}}
	for _, of := range t.Actions {
		if of.ID != e.GetData().GetActionId() {
			continue
		}
		a.Name = of.Name[strings.LastIndexByte(of.Name, '.')+1:]
		for _, f := range of.Data {
			for _, d := range e.GetData().GetFields() {
				if d.GetFieldId() == f.ID {
					a.Params[f.Name], _ = p4.Uint(d.GetStream(), 64)
				}
			}
		}
	}
	pipe, err := p4.NewPipeline(p4.Info())
	if err != nil {
		return err
	}
	var b dataplane.Batch
	switch t.Name[strings.LastIndexByte(t.Name, '.')+1:] {
	case "job":
		job, err := pipe.JobOf(uint16(n), a)
		if e == nil {
			job.Job, err = uint16(n), nil
		}
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if e != nil && (!job.Root || job.UpPort != 0) {
			if job.UpPort, err = s.theirs(job.UpPort); err != nil {
				return err
			}
		}
		b.Jobs = append(b.Jobs, job)
	case "ipv4_forward":
		var dst [4]byte
		binary.BigEndian.PutUint32(dst[:], uint32(n))
		r, err := pipe.RouteOf(dst, a)
		if e == nil {
			r.Dst, err = dst, nil
		}
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if e != nil {
			if r.Port, err = s.theirs(r.Port); err != nil {
				return err
			}
		}
		b.Routes = append(b.Routes, r)
	default:
		return status.Errorf(codes.Unimplemented, "table:%s Not supported", t.Name)
	}
	do := s.switched.Write
	if e == nil {
		do = s.switched.Delete
	}
	return do(ctx, b)
}

// theirs is the embedded switch's number of a port.
func (s *BFRuntime) theirs(port uint32) (uint32, error) {
	if s.o.Ports == nil {
		return port, nil
	}
	for theirs, own := range s.o.Ports {
		if own == port {
			return theirs, nil
		}
	}
	return 0, status.Errorf(codes.InvalidArgument, "Unknown port %d.", port)
}

// data is a field of an entry of a fixed table.
func (t *bfTable) data(e *bfrtpb.TableEntry, name string) *bfrtpb.DataField {
	for _, f := range t.Data {
		for _, d := range e.GetData().GetFields() {
			if f.Singleton.Name == name && d.GetFieldId() == f.Singleton.ID {
				return d
			}
		}
	}
	return nil
}

func (s *BFRuntime) table(name string) *bfTable {
	for _, t := range s.tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// node is a node of multicast that was written, or deleted.
func (s *BFRuntime) node(ctx context.Context, id uint32, there bool) error {
	groups := s.table("$pre.mgid")
	for key, e := range s.entries[groups.ID] {
		if !slices.Contains(groups.data(e, "$MULTICAST_NODE_ID").GetIntArrVal().GetVal(), id) {
			continue
		}
		if !there {
			return nil // the group goes without it (mc_mgr_intf.c dissociates it)
		}
		n, _ := p4.Uint([]byte(key), 16)
		if err := s.group(ctx, uint16(n), e); err != nil {
			return err
		}
	}
	return nil
}

// group is a multicast group that was written, or deleted.
func (s *BFRuntime) group(ctx context.Context, id uint16, e *bfrtpb.TableEntry) error {
	if e == nil {
		return s.switched.DeleteGroup(ctx, id)
	}
	groups, nodes := s.table("$pre.mgid"), s.table("$pre.node")
	var ports []uint32
	for _, n := range groups.data(e, "$MULTICAST_NODE_ID").GetIntArrVal().GetVal() {
		node := s.entries[nodes.ID][string(binary.BigEndian.AppendUint32(nil, n))]
		if node == nil {
			return status.Errorf(codes.NotFound, "Table Add failed table:$pre.mgid Object not found")
		}
		for _, p := range nodes.data(node, "$DEV_PORT").GetIntArrVal().GetVal() {
			theirs, err := s.theirs(p)
			if err != nil {
				return err
			}
			if !slices.Contains(ports, theirs) { // of several nodes, with replication ids that the embedded switch does not know
				ports = append(ports, theirs)
			}
		}
	}
	return s.switched.WriteGroup(ctx, id, ports)
}

// copyCounter is what the chip has counted.
func (s *BFRuntime) copyCounter(ctx context.Context, t *bfTable) error {
	name := t.Name[strings.LastIndexByte(t.Name, '.')+1:]
	values, err := s.switched.ReadCounters(ctx, []string{name}, nil)
	if err != nil {
		return status.Error(codes.Unknown, err.Error())
	}
	if strings.HasPrefix(name, "port_") && s.o.Ports != nil {
		var here []dataplane.CounterValue
		for _, v := range values {
			if own, ok := s.o.Ports[uint32(v.Index)]; ok {
				v.Index = int(own)
				here = append(here, v)
			}
		}
		values = here
	}
	s.counted[t.ID] = values
	return nil
}

// Read answers all in one message.
func (g *bfService) Read(r *bfrtpb.ReadRequest, stream bfrtpb.BfRuntime_ReadServer) error {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bound(r.GetTarget().GetDeviceId(), r.GetClientId(), r.GetP4Name()); err != nil {
		return err
	}
	out := &bfrtpb.ReadResponse{}
	var answers []error
	for _, q := range r.GetEntities() {
		found, err := s.read(stream.Context(), q.GetTableEntry())
		for _, e := range found {
			out.Entities = append(out.Entities, &bfrtpb.Entity{Entity: &bfrtpb.Entity_TableEntry{TableEntry: e}})
		}
		answers = append(answers, err)
	}
	if err := stream.Send(out); err != nil {
		return err
	}
	return reported("Read Error Status", answers)
}

func (s *BFRuntime) read(ctx context.Context, q *bfrtpb.TableEntry) ([]*bfrtpb.TableEntry, error) {
	t := s.tables[q.GetTableId()]
	if t == nil {
		return nil, status.Errorf(codes.NotFound, "Table not found for id %d Object not found", q.GetTableId())
	}
	key := ""
	if q.GetKey() != nil {
		var err error
		if key, err = t.check(&bfrtpb.TableEntry{TableId: q.GetTableId(), Value: q.GetValue()}); err != nil {
			return nil, err
		}
	}
	if t.Type == "Counter" {
		if q.GetTableFlags().GetFromHw() {
			if err := s.copyCounter(ctx, t); err != nil {
				return nil, err
			}
		}
		return t.cells(key, s.counted[t.ID]), nil
	}
	if t.Name == "$PORT_STR_INFO" {
		for port, name := range s.o.Names {
			if own, ok := s.o.Ports[port]; ok && name == key {
				return []*bfrtpb.TableEntry{{TableId: t.ID, Value: q.GetValue(), Data: &bfrtpb.TableData{Fields: []*bfrtpb.DataField{
					{FieldId: 1, Value: &bfrtpb.DataField_Stream{Stream: binary.BigEndian.AppendUint32(nil, own)}},
				}}}}, nil
			}
		}
		return nil, status.Errorf(codes.InvalidArgument, "Error reading table:%s Invalid arguments", t.Name)
	}
	if t.Name == "$PORT_STAT" {
		return s.counts(t, key)
	}
	if e := s.entries[t.ID][key]; e != nil && t.Name == "$PORT" {
		return []*bfrtpb.TableEntry{s.port(t, e)}, nil
	}
	if key != "" {
		e := s.entries[t.ID][key]
		if e == nil {
			return nil, status.Errorf(codes.NotFound, "Error reading table:%s Object not found", t.Name)
		}
		return []*bfrtpb.TableEntry{e}, nil
	}
	var out []*bfrtpb.TableEntry
	for _, k := range slices.Sorted(maps.Keys(s.entries[t.ID])) {
		out = append(out, s.entries[t.ID][k])
	}
	return out, nil
}

// keyed is a key of one field.
func (t *bfTable) keyed(key string) *bfrtpb.TableEntry_Key {
	return &bfrtpb.TableEntry_Key{Key: &bfrtpb.TableKey{Fields: []*bfrtpb.KeyField{{
		FieldId: t.Key[0].ID, MatchType: &bfrtpb.KeyField_Exact_{Exact: &bfrtpb.KeyField_Exact{Value: []byte(key)}},
	}}}}
}

// cells are those of a counter: one of them, or all.
func (t *bfTable) cells(key string, values []dataplane.CounterValue) (out []*bfrtpb.TableEntry) {
	at := map[string]dataplane.CounterValue{}
	for _, v := range values {
		at[string(binary.BigEndian.AppendUint32(nil, uint32(v.Index)))] = v
	}
	keys := slices.SortedFunc(maps.Keys(at), func(a, b string) int { return bytes.Compare([]byte(a), []byte(b)) })
	if key != "" {
		keys = []string{key} // a cell that nothing has counted is 0
	}
	for _, k := range keys {
		e := &bfrtpb.TableEntry{TableId: t.ID, Value: t.keyed(k), Data: &bfrtpb.TableData{}}
		for _, f := range t.Data {
			n := uint64(at[k].Packets)
			if f.Singleton.Name == "$COUNTER_SPEC_BYTES" {
				n = uint64(at[k].Bytes)
			}
			e.Data.Fields = append(e.Data.Fields, &bfrtpb.DataField{FieldId: f.Singleton.ID, Value: &bfrtpb.DataField_Stream{Stream: binary.BigEndian.AppendUint64(nil, n)}})
		}
		out = append(out, e)
	}
	return out
}

// Package personality answers P4Runtime and gNMI as the servers of real switches do, in
// front of an embedded switch: for tests of everything that has to get along with them.
//
// A Server is a proxy. What the embedded switch's server would do otherwise than Stratum,
// or the P4Runtime server of Intel's SDE, it refuses as those refuse it; ports have other
// numbers there, as those of a Tofino have. What each of them does, with its source, is
// stated on the Personality.
package personality

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/bfrt"
	"github.com/inabench/inabench/testbed/p4rt"
)

// Personality is what one kind of server does otherwise than the embedded switch's.
type Personality struct {
	Name string
	// Config refuses a device config that the server cannot use.
	Config func([]byte) error
	// ZeroDevice: the device id is 0. Otherwise it is at least 1, and 0 is invalid.
	ZeroDevice bool
	// NeedsElection: a bid without an election id, or with 0, is invalid, where the
	// specification makes a backup of it.
	NeedsElection bool
	Controllers   int    // streams at once; 0: as many as come
	MaxGroup      uint32 // highest multicast group and replica instance
	MaxSession    uint32 // highest clone session, from 1; each takes exactly one replica
	// CounterID0 says that a counter read needs a counter id: 0, for all, is invalid.
	CounterID0 bool
	NoTables   bool // table entries are not implemented: a server that is not finished
	FullWidth  bool // byte strings are as wide as their fields, in both directions
	Withholds  bool // the device config is told to nobody
	Untold     bool // what runs is told to nobody
	GNMI       bool // it has a gNMI server, which knows ports by name
}

// Stratum is Stratum on Tofino (stratum/hal/lib/common/p4_service.cc,
// stratum/hal/lib/barefoot/bfrt_node.cc and bfrt_pre_manager.cc at f8f7130).
func Stratum() Personality {
	return Personality{
		Name: "stratum",
		Config: func(b []byte) error {
			_, err := bfrt.ParseConfig(b)
			return err
		},
		NeedsElection: true, Controllers: 5, MaxGroup: 65535, MaxSession: 1015, CounterID0: true, GNMI: true,
	}
}

// SDE is the P4Runtime server of Intel's SDE, open-p4studio 9.13.4 too, where it was built with one: P4RT is off by
// default (CMakeLists.txt). It is PI in front of the drivers (pkgsrc/bf-drivers/src/pi/CMakeLists.txt and
// server.cpp), of April 2020, 4546038, whose check_proto_bytestring (proto/frontend/src/common.cpp) wants all bytes
// of a field. That open-p4studio ships a stub too, src/p4_rt/device_mgr.cpp, which it does not build, says nothing.
func SDE() Personality {
	return Personality{
		Name: "sde",
		Config: func(b []byte) error {
			_, err := p4rt.ParseSDEConfig(b)
			return err
		},
		ZeroDevice: true, MaxGroup: 65535, MaxSession: 1015, FullWidth: true,
	}
}

// PI is PI in front of BMv2: simple_switch_grpc started with some --device-id.
func PI() Personality {
	return Personality{Name: "bmv2", Config: func(b []byte) error {
		if len(b) == 0 || b[0] != '{' {
			return errors.New("the device config is not BMv2's JSON")
		}
		return nil
	}, MaxGroup: 32767, MaxSession: 32767}
}

// Options say what is behind a Server, and where it is.
type Options struct {
	Upstream       string // P4Runtime address of the embedded switch
	UpstreamDevice uint64
	Device         uint64            // id that the Server has; with Personality.ZeroDevice 0
	Ports          map[uint32]uint32 // numbers that ports have here, by those of the embedded switch; nil: the same
	Names          map[uint32]string // names of ports at the gNMI server, by those of the embedded switch
	TLS            *tls.Config       // of both servers; nil: plain text
	Listen         string            // host to listen at; empty: 127.0.0.1
}

// Server is running servers.
type Server struct {
	P4RT, GNMI string // addresses; no GNMI: the personality has none

	p        Personality
	o        Options
	conn     *grpc.ClientConn
	upstream p4v1.P4RuntimeClient
	servers  []*rpc.Server
	served   sync.WaitGroup
	back     map[uint32]uint32 // ports of the embedded switch by the numbers here

	starting sync.RWMutex // held while the server restarts
	drop     chan struct{}
	open     sync.WaitGroup // streams

	mu       sync.Mutex
	streams  int
	sessions map[uint32]*p4v1.CloneSessionEntry
	pushes   int
	linkless int // questions that are answered with ports without links

	foreign *p4v1.ForwardingPipelineConfig // a program that is none of INA, which runs; nil: the embedded switch runs what there is
}

// down is whether ports have no link yet.
func (s *Server) down() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linkless--
	return s.linkless >= 0
}

// Start serves until Close.
func Start(p Personality, o Options) (_ *Server, err error) {
	s := &Server{p: p, o: o, drop: make(chan struct{}), back: map[uint32]uint32{}, sessions: map[uint32]*p4v1.CloneSessionEntry{}}
	for port, own := range o.Ports {
		s.back[own] = port
	}
	s.conn, err = grpc.NewClient("passthrough:///"+o.Upstream, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(p4rt.MaxReply)))
	if err != nil {
		return nil, fmt.Errorf("personality %s: %w", p.Name, err)
	}
	s.upstream = p4v1.NewP4RuntimeClient(s.conn)
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.P4RT, err = s.serve(func(g grpc.ServiceRegistrar) { p4v1.RegisterP4RuntimeServer(g, &p4runtime{Server: s}) }); err != nil {
		return nil, err
	}
	if p.GNMI {
		s.GNMI, err = s.serve(func(g grpc.ServiceRegistrar) { gnmipb.RegisterGNMIServer(g, &gnmiServer{s: s}) })
	}
	return s, err
}

func (s *Server) serve(register func(grpc.ServiceRegistrar)) (string, error) {
	lis, err := listen(s.o.Listen)
	if err != nil {
		return "", fmt.Errorf("personality %s: %w", s.p.Name, err)
	}
	opts := []grpc.ServerOption{grpc.MaxRecvMsgSize(256 << 20)} // Stratum's limit
	if s.o.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.o.TLS)))
	}
	g := rpc.NewServer(opts...)
	register(g)
	s.servers = append(s.servers, g)
	s.served.Go(func() { _ = g.Serve(lis) }) // until Stop
	return lis.Addr().String(), nil
}

// listen listens at some port of a host; empty: 127.0.0.1.
func listen(host string) (net.Listener, error) {
	if host == "" {
		host = "127.0.0.1"
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// Pushes is how many pipelines have been loaded.
func (s *Server) Pushes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pushes
}

// Drop ends all streams, as a network does that is cut for a moment.
func (s *Server) Drop() {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.dropAll()
}

func (s *Server) dropAll() {
	close(s.drop)
	s.open.Wait()
	s.drop = make(chan struct{})
}

// Restart is what a restart of Stratum looks like: streams end, the pipeline that it has
// saved is loaded again, and entries are gone.
func (s *Server) Restart(ctx context.Context) error {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.dropAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := s.upstream.GetForwardingPipelineConfig(ctx, &p4v1.GetForwardingPipelineConfigRequest{DeviceId: s.o.UpstreamDevice})
	if err != nil {
		return err
	}
	stream, err := s.upstream.StreamChannel(ctx)
	if err != nil {
		return err
	}
	id := &p4v1.Uint128{Low: uint64(time.Now().UnixNano())}
	if err := stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: s.o.UpstreamDevice, ElectionId: id},
	}}); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	_, err = s.upstream.SetForwardingPipelineConfig(ctx, &p4v1.SetForwardingPipelineConfigRequest{
		DeviceId: s.o.UpstreamDevice, ElectionId: id, Config: r.GetConfig(),
		Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
	})
	return err
}

// Sessions is how many clone sessions there are.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Close stops serving; what the embedded switch was told stays.
func (s *Server) Close() {
	for _, g := range s.servers {
		g.Stop()
	}
	s.served.Wait()
	s.conn.Close()
}

// context of a call to the embedded switch.
type ctx = context.Context

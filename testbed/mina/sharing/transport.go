package sharing

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/inabench/inabench/internal/rpc"
	"github.com/inabench/inabench/testbed/mina/commit"
	"github.com/inabench/inabench/testbed/mina/sharing/wire"
)

// faults says after how long each copy of the next message goes, 0 for at once; no copies: it is lost. It is how tests make
// a network that fails. nil: each message goes once, at once.
type faults func() []time.Duration

// post sends messages to addresses, and serves those that come. A message that cannot be
// delivered is lost: nobody ever waits for a network.
type post struct {
	server *rpc.Server
	lis    net.Listener
	faults faults

	mu     sync.Mutex // below
	routes map[string]*route
	closed bool

	running sync.WaitGroup
}

// route is the way to one address.
type route struct {
	conn    *grpc.ClientConn
	waiting []*wire.Message // for the one before to be taken
	more    *sync.Cond      // one waits, or closed
	closed  bool            // ends when none waits
}

// repeats reports whether a message need not wait beside those that do: one says the same, or
// was a report that this one replaces. What is repeated because nobody answers would otherwise
// keep a slow machine from answering.
func (r *route) repeats(m *wire.Message) bool {
	for i, w := range r.waiting {
		if m.Kind == uint32(commit.Report) && w.Kind == m.Kind && w.Run == m.Run && proto.Equal(w.From, m.From) {
			r.waiting[i] = m
			return true
		}
		if proto.Equal(w, m) {
			return true
		}
	}
	return false
}

// Bounds of a route: messages that wait, and how long one may take.
const (
	queued  = 128
	timeout = 500 * time.Millisecond
)

func newPost(listen string, f faults) (*post, error) {
	lis, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("sharing of INA: listen: %w", err)
	}
	return &post{server: rpc.NewServer(), lis: lis, faults: f, routes: map[string]*route{}}, nil
}

// serve gives what comes to handle.
func (p *post) serve(handle func(*wire.Message)) {
	wire.RegisterSharingServer(p.server, deliverer{handle: handle})
	p.running.Go(func() { p.server.Serve(p.lis) })
}

type deliverer struct {
	wire.UnimplementedSharingServer
	handle func(*wire.Message)
}

func (d deliverer) Deliver(_ context.Context, m *wire.Message) (*wire.Taken, error) {
	d.handle(m)
	return &wire.Taken{}, nil
}

func (p *post) address() string { return p.lis.Addr().String() }

// send never waits.
func (p *post) send(to string, m *wire.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.routes[to]; r != nil && r.repeats(m) {
		return
	}
	if to == "" {
		return
	}
	copies := []time.Duration{0}
	if p.faults != nil {
		copies = p.faults()
	}
	for _, after := range copies {
		if after == 0 {
			p.put(to, m)
			continue
		}
		time.AfterFunc(after, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.put(to, m)
		})
	}
}

// put is called with the lock held.
func (p *post) put(to string, m *wire.Message) {
	if p.closed {
		return
	}
	r := p.routes[to]
	if r == nil {
		conn, err := grpc.NewClient("passthrough:///"+to,
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			return
		}
		r = &route{conn: conn, more: sync.NewCond(&p.mu)}
		p.routes[to] = r
		p.running.Go(r.run)
	}
	if len(r.waiting) < queued {
		r.waiting = append(r.waiting, m)
		r.more.Signal()
	}
}

func (r *route) run() {
	client := wire.NewSharingClient(r.conn)
	for {
		m := r.next()
		if m == nil {
			break
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		_, _ = client.Deliver(ctx, m) // what is lost is repeated by who waits for an answer
		cancel()
	}
	r.conn.Close()
}

// next waits for a message; nil: there will be none.
func (r *route) next() *wire.Message {
	r.more.L.Lock()
	defer r.more.L.Unlock()
	for len(r.waiting) == 0 {
		if r.closed {
			return nil
		}
		r.more.Wait()
	}
	m := r.waiting[0]
	r.waiting = r.waiting[1:]
	return m
}

// close is called with the lock held.
func (r *route) close() {
	r.closed = true
	r.more.Signal()
}

// forget gives up the way to an address.
func (p *post) forget(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.routes[to]; r != nil {
		delete(p.routes, to)
		r.close()
	}
}

// close ends it and waits for what it started.
func (p *post) close() {
	p.mu.Lock()
	p.closed = true
	for to, r := range p.routes {
		delete(p.routes, to)
		r.conn.Close()
		r.close()
	}
	p.mu.Unlock()
	p.server.Stop()
	p.running.Wait()
}

func toWire(m *commit.Message) *wire.Message {
	return &wire.Message{
		Kind: uint32(m.Kind),
		From: &wire.Node{Job: m.From.Job, Rank: m.From.Rank},
		To:   &wire.Node{Job: m.To.Job, Rank: m.To.Rank},
		Run:  m.Run, Txn: &wire.Txn{Epoch: m.Txn.Epoch, Seq: m.Txn.Seq},
		Index: m.Index, Applied: m.Applied, Body: []byte(m.Body),
	}
}

// fromWire is what a message says; a kind that there is not means nothing to machines.
func fromWire(m *wire.Message) commit.Message {
	return commit.Message{
		Kind: commit.Kind(min(m.GetKind(), 255)),
		From: commit.Node{Job: m.GetFrom().GetJob(), Rank: m.GetFrom().GetRank()},
		To:   commit.Node{Job: m.GetTo().GetJob(), Rank: m.GetTo().GetRank()},
		Run:  m.GetRun(), Txn: commit.Txn{Epoch: m.GetTxn().GetEpoch(), Seq: m.GetTxn().GetSeq()},
		Index: m.GetIndex(), Applied: m.GetApplied(), Body: string(m.GetBody()),
	}
}

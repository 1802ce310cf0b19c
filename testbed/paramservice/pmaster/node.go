package pmaster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/wire"
)

// node is a worker or an Aggregator, as seen from here.
type node struct {
	life  uint64 // of its process; 0: it has never been there
	conn  *conn  // nil: it is not there
	gone  time.Time
	known map[int32]bool // Aggregators that it was told of over this connection
}

// attach gives it a connection instead of the one it had.
func (n *node) attach(life uint64, c *conn) {
	n.conn.close(status.Error(codes.Aborted, "it has another connection"))
	n.life, n.conn, n.known = life, c, map[int32]bool{}
}

func (n *node) send(msg control.Message) { n.conn.send(msg) }

// conn is a node's stream. Nil is none. Master.mu guards it, so that what follows from one thing goes
// together.
type conn struct {
	out     []*wire.Message
	profile *wire.Profile
	beats   bool
	ended   bool // it ends with err when all has been sent
	err     error
	heard   time.Time
	wake    chan struct{}
}

var errGone = status.Error(codes.Unavailable, "pMaster ends")

func newConn() *conn { return &conn{heard: time.Now(), wake: make(chan struct{}, 1)} }

func (c *conn) change(f func()) {
	if !c.live() {
		return
	}
	f()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) send(m control.Message) { c.change(func() { c.out = append(c.out, wire.Encode(m)) }) }

func (c *conn) remember(p *wire.Profile) { c.change(func() { c.profile = p }) }

func (c *conn) close(err error) { c.change(func() { c.ended, c.err = true, err }) }

// live says whether messages may still get through.
func (c *conn) live() bool { return c != nil && !c.ended }

// beat sends a heartbeat, and ends a connection without any.
func (c *conn) beat(now time.Time, lease time.Duration) {
	c.change(func() {
		c.beats = true
		if now.Sub(c.heard) > lease {
			c.ended, c.err = true, status.Errorf(codes.Unavailable, "nothing was heard for %v", lease)
		}
	})
}

// write sends until the connection ends, and returns how.
func (m *Master) write(ctx context.Context, c *conn, stream grpc.BidiStreamingServer[wire.FromNode, wire.ToNode]) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		m.mu.Lock()
		out, profile, beats, ended, err := c.out, c.profile, c.beats, c.ended, c.err
		c.out, c.profile, c.beats = nil, nil, false
		m.mu.Unlock()
		if profile != nil {
			if err := stream.Send(&wire.ToNode{What: &wire.ToNode_Profile{Profile: profile}}); err != nil {
				return err
			}
		}
		if len(out) > 0 || beats {
			if err := stream.Send(&wire.ToNode{What: &wire.ToNode_Batch{Batch: &wire.Batch{Messages: out}}}); err != nil {
				return err
			}
		}
		if ended {
			return err
		}
	}
}

// Register adds the service to a gRPC server, which is to have wire.Options.
func (m *Master) Register(s grpc.ServiceRegistrar) {
	wire.RegisterParameterServiceServer(s, &service{m: m})
}

type service struct {
	wire.UnimplementedParameterServiceServer
	m *Master
}

// Register implements wire.ParameterServiceServer.
func (s *service) Register(ctx context.Context, w *wire.Job) (*wire.Job, error) {
	j, err := wire.DecodeJob(w)
	if err != nil {
		return nil, s.m.refuse("job "+clean(w.GetName()), status.Error(codes.InvalidArgument, err.Error()))
	}
	j, err = s.m.Submit(ctx, j)
	if err != nil {
		return nil, err
	}
	return wire.EncodeJob(j), nil
}

// clean is a name as it may be shown.
func clean(name string) string { return fmt.Sprintf("%.80q", name) }

// Deregister implements wire.ParameterServiceServer.
func (s *service) Deregister(ctx context.Context, d *wire.Deregistration) (*wire.Nothing, error) {
	return &wire.Nothing{}, s.m.End(ctx, d.Job, d.Why)
}

// Statistics implements wire.ParameterServiceServer.
func (s *service) Statistics(context.Context, *wire.Nothing) (*wire.Stats, error) {
	return s.m.Statistics()
}

// refuse writes down that somebody was refused.
func (m *Master) refuse(who string, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.emit(Event{Event: "refused", Name: who, Why: status.Convert(err).Message()})
	}
	return err
}

// Attach implements wire.ParameterServiceServer.
func (s *service) Attach(stream grpc.BidiStreamingServer[wire.FromNode, wire.ToNode]) error {
	m := s.m
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	c := newConn()
	hello := make(chan *wire.Hello, 1)
	lost := make(chan error, 1)
	var from member
	attached := make(chan struct{})
	err := m.do(func() {
		m.work.Go(func() { // until the stream ends, which it does when Attach returns
			first, err := stream.Recv()
			if err != nil {
				lost <- err
				return
			}
			hello <- first.GetHello()
			select {
			case <-attached:
			case <-ctx.Done():
				return
			}
			for {
				b, err := stream.Recv()
				if err != nil {
					lost <- err
					cancel()
					return
				}
				m.receive(from, c, b.GetBatch())
			}
		})
	})
	if err != nil {
		return errGone
	}
	late := time.NewTimer(m.cfg.Lease)
	defer late.Stop()
	select {
	case h := <-hello:
		g, err := wire.DecodeHello(h)
		if err == nil {
			from, err = m.attach(g, c)
		} else {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		if err != nil {
			return m.refuse(nameOf(h), err)
		}
	case err := <-lost:
		return err
	case <-late.C:
		return status.Errorf(codes.DeadlineExceeded, "no hello within %v", m.cfg.Lease)
	case <-m.ctx.Done():
		return errGone
	}
	defer m.detach(from, c)
	if err := stream.Send(&wire.ToNode{What: &wire.ToNode_Welcome{Welcome: &wire.Welcome{Epoch: m.Epoch(), Lease: int64(m.cfg.Lease)}}}); err != nil {
		return err
	}
	close(attached)
	return m.write(ctx, c, stream)
}

func nameOf(h *wire.Hello) string {
	if a := h.GetAggregator(); a != nil {
		return fmt.Sprintf("Aggregator %d", a.Id)
	}
	w := h.GetWorker()
	return fmt.Sprintf("worker %d of job %d, %s", w.GetRank(), w.GetJob().GetId(), clean(w.GetJob().GetName()))
}

// member is a worker or an Aggregator.
type member interface {
	at() *node
	String() string
	// take handles a message; an error says that no node of this kind sends it.
	take(m *Master, msg control.Message) error
	// expel is what follows from such an error.
	expel(m *Master, why string)
}

var errSender = errors.New("not for this node to say")

// attach makes a node's connection known.
func (m *Master) attach(g *wire.Greeting, c *conn) (who member, err error) {
	closed := m.do(func() {
		if g.Aggregator != nil {
			who, err = m.attachAggregator(g, c)
		} else {
			who, err = m.attachWorker(g, c)
		}
	})
	if closed != nil {
		return nil, errGone
	}
	return who, err
}

// detach takes note of the end of a connection.
func (m *Master) detach(who member, c *conn) {
	_ = m.do(func() {
		c.close(errGone)
		if n := who.at(); n.conn == c {
			n.conn, n.gone = nil, time.Now()
		}
	})
}

// receive handles what a node says.
func (m *Master) receive(who member, c *conn, b *wire.Batch) {
	_ = m.do(func() {
		c.heard = time.Now()
		for _, w := range b.GetMessages() {
			if who.at().conn != c || !c.live() {
				return
			}
			msg, err := wire.Decode(w)
			if err == nil {
				err = who.take(m, msg)
			}
			if err != nil {
				err = fmt.Errorf("%v: %w", who, err)
				m.emit(Event{Event: "refused", Name: who.String(), Why: err.Error()})
				c.close(status.Error(codes.InvalidArgument, err.Error()))
				who.expel(m, err.Error())
				return
			}
		}
	})
}

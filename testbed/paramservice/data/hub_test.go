package data

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// script is a connection on which something has been sent.
type script struct {
	net.Conn
	io.Reader
}

func (s *script) Read(b []byte) (int, error) { return s.Reader.Read(b) }

// frame is one that came.
type frame struct {
	from Node
	head Header
	b    *Block
}

// recorder is a handler that keeps what comes.
type recorder struct {
	pool   Pool
	frames chan frame
	lost   chan error
	mu     sync.Mutex
	reply  func(*Peer, *Header)
}

func newRecorder() *recorder {
	return &recorder{frames: make(chan frame, 1000), lost: make(chan error, 1000)}
}

func (r *recorder) Place(_ *Peer, h *Header) *Block { return r.pool.Get(h.Elements) }
func (r *recorder) Lost(_ Node, err error)          { r.lost <- err }
func (r *recorder) Frame(from *Peer, h *Header, b *Block) {
	r.mu.Lock()
	reply := r.reply
	r.mu.Unlock()
	if reply != nil {
		reply(from, h)
	}
	r.frames <- frame{from.Who(), *h, b}
}

// answer makes it reply to frames.
func (r *recorder) answer(f func(*Peer, *Header)) {
	r.mu.Lock()
	r.reply = f
	r.mu.Unlock()
}

func (r *recorder) next(t *testing.T) frame {
	t.Helper()
	select {
	case f := <-r.frames:
		return f
	case <-time.After(10 * time.Second):
		t.Fatal("no frame")
		return frame{}
	}
}

func (r *recorder) gone(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.lost:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the connection lasts")
		return nil
	}
}

func listen(t *testing.T, id int32) (*Hub, *recorder, string) {
	t.Helper()
	tr := &TCP{}
	l, err := tr.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	h := NewHub(Config{Self: AggregatorNode(id), Transport: tr, Handler: r, Listener: l})
	t.Cleanup(h.Close)
	return h, r, l.Address()
}

func worker(t *testing.T, self Node) (*Hub, *recorder) {
	r := newRecorder()
	h := NewHub(Config{Self: self, Transport: &TCP{Local: "127.0.0.1"}, Handler: r})
	t.Cleanup(h.Close)
	return h, r
}

// resend repeats what the other side has got, as soon as this one knows that it has sent it.
func resend(t *testing.T, h *Hub, to Node, head Header, b *Block) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); h.Send(to, head, b); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("pending after it arrived")
		}
	}
}

// Both ends know who the other one is, and talk over one connection. What has values goes over it
// once, and again if it is asked for.
func TestHub(t *testing.T) {
	server, at, address := listen(t, 5)
	self := WorkerNode(3, 1)
	agent, back := worker(t, self)
	key := control.Key{Job: 3, Tensor: 8}
	push := Header{Kind: migrate.Push, Key: key, Term: migrate.Term{Epoch: 1, Seq: 2}, Version: 4}
	b := &Block{Values: []float32{1, 2.5, -3}}
	b.Use()
	agent.Send(AggregatorNode(5), push, b) // the address is not known
	agent.Know(5, address)
	agent.Send(AggregatorNode(5), push, b)
	f := at.next(t)
	if f.from != self || f.head.Kind != migrate.Push || f.head.Elements != 3 || f.b.Values[1] != 2.5 || f.head.Term != push.Term {
		t.Errorf("%+v", f)
	}
	resend(t, agent, AggregatorNode(5), push, b)
	if f := at.next(t); f.head.Kind != Poke || f.b != nil || f.head.Version != 4 {
		t.Errorf("%+v", f)
	}
	at.answer(func(p *Peer, h *Header) { p.Send(Header{Kind: Unknown, Key: h.Key}, nil) })
	agent.Send(AggregatorNode(5), push, b)
	at.next(t)
	at.answer(nil)
	model := Header{Kind: migrate.Model, Key: key, Version: 5}
	server.Send(self, model, b)
	server.Send(self, model, b)
	model.Version = 6
	server.Send(self, model, b)
	for _, v := range []uint64{5, 6} {
		if f := back.next(t); f.head.Version != v || f.from != AggregatorNode(5) {
			t.Errorf("%+v", f)
		}
	}
	agent.Send(AggregatorNode(5), push, b) // it has heard that this is not known
	if f := at.next(t); f.head.Kind != migrate.Push || f.b.Values[2] != -3 {
		t.Errorf("%+v", f)
	}
	server.Send(WorkerNode(3, 0), model, b) // nobody
	agent.Close()
	if err := at.gone(t); err == nil {
		t.Error("no reason")
	}
}

// stalled is a transport on which a frame with values takes until it is told to go on.
type stalled struct {
	TCP
	sending, proceed chan struct{}
}

type stalledConn struct {
	Conn
	s *stalled
}

func (s *stalled) Dial(ctx context.Context, address string) (Conn, error) {
	c, err := s.TCP.Dial(ctx, address)
	return &stalledConn{c, s}, err
}

func (c *stalledConn) Send(h *Header, values []float32) error {
	if h.Elements > 0 {
		c.s.sending <- struct{}{}
		<-c.s.proceed
	}
	return c.Conn.Send(h, values)
}

// What is still on its way out is not repeated, and that is said; small frames do not wait
// for large ones that have not begun.
func TestPending(t *testing.T) {
	_, at, address := listen(t, 0)
	tr := &stalled{sending: make(chan struct{}), proceed: make(chan struct{})}
	r := newRecorder()
	agent := NewHub(Config{Self: WorkerNode(1, 0), Transport: tr, Handler: r})
	defer agent.Close()
	agent.Know(0, address)
	b := r.pool.Get(10)
	to := AggregatorNode(0)
	push := func(tensor uint32) Header {
		return Header{Kind: migrate.Push, Key: control.Key{Job: 1, Tensor: tensor}, Version: 1}
	}
	if agent.Send(to, push(1), b) {
		t.Error("pending before it was sent")
	}
	<-tr.sending
	agent.Send(to, push(2), b)
	agent.Send(to, Header{Kind: migrate.Pull, Version: 9}, nil)
	if !agent.Send(to, push(1), b) || !agent.Send(to, push(2), b) {
		t.Error("not pending")
	}
	tr.proceed <- struct{}{}
	<-tr.sending
	tr.proceed <- struct{}{}
	for _, want := range []Kind{migrate.Push, migrate.Pull, migrate.Push} {
		if f := at.next(t); f.head.Kind != want {
			t.Errorf("%v instead of %v", f.head.Kind, want)
		}
	}
	resend(t, agent, to, push(1), b)
	if f := at.next(t); f.head.Kind != Poke {
		t.Errorf("%+v", f)
	}
}

// What was meant for an Aggregator that crashed does not reach the one at its address.
func TestAnotherAggregator(t *testing.T) {
	_, at, address := listen(t, 6)
	agent, back := worker(t, WorkerNode(1, 0))
	agent.Know(5, address)
	agent.Send(AggregatorNode(5), Header{Kind: migrate.Pull}, nil)
	if err := back.gone(t); !errors.Is(err, ErrGone) || err.Error() != `another Aggregator: "this is aggregator 6, not 5: another Aggregator"` {
		t.Error(err)
	}
	if len(at.frames) > 0 {
		t.Error("it got a frame")
	}
}

// A node is told what was wrong with a frame, and nothing that it sends later counts.
func TestRefuse(t *testing.T) {
	_, at, address := listen(t, 1)
	agent, back := worker(t, WorkerNode(1, 0))
	agent.Know(1, address)
	at.answer(func(p *Peer, h *Header) { p.Refuse(h.Key, "no "+h.Kind.String()) })
	pull := Header{Kind: migrate.Pull, Key: control.Key{Job: 1, Tensor: 2}}
	agent.Send(AggregatorNode(1), pull, nil)
	if err := back.gone(t); !errors.Is(err, ErrRefused) || err.Error() != `tensor 2 of job 1: refused: "no pull"` {
		t.Error(err)
	}
	at.next(t)
	at.gone(t)
}

// Connections with something else than frames on them end, and those of others go on.
func TestGarbage(t *testing.T) {
	server, at, address := listen(t, 0)
	agent, _ := worker(t, WorkerNode(1, 0))
	agent.Know(0, address)
	ping := func() {
		t.Helper()
		agent.Send(AggregatorNode(0), Header{Kind: migrate.Pull}, nil)
		if f := at.next(t); f.head.Kind != migrate.Pull {
			t.Errorf("%+v", f)
		}
	}
	ping()
	frame := func(h Header, change ...byte) string {
		b := AppendHeader(nil, &h)
		copy(b[4:], change)
		return string(b)
	}
	hi := hello(WorkerNode(2, 0), 0)
	for _, c := range []struct {
		name, in string
		answer   string
	}{
		{"HTTP", "GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: something that is long enough\r\n\r\n", "it begins with 0x202f instead of 0x5350: not a frame"},
		{"another version", frame(hi, 'P', 'S', 9), "version 9, this is 1: another version of the protocol"},
		{"no hello", frame(Header{Kind: migrate.Pull}), "pull instead of a hello: not a frame"},
		{"nobody", frame(Header{Kind: Hello}), "hello of nobody: not a frame"},
		{"another hello", frame(hi) + frame(hi), ""},
		{"garbage after a hello", frame(hi) + strings.Repeat("x", 100), ""},
		{"a wrong frame after a hello", frame(hi) + frame(Header{Kind: migrate.Push}), ""},
	} {
		before := server.Garbage()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(c.in)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		if err != nil && c.answer == "" {
			err = nil // closed with bytes unread
		}
		if err != nil || !strings.Contains(string(got), c.answer) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		conn.Close()
		if n := server.Garbage(); n != before+1 {
			t.Errorf("%s: %d connections, not %d", c.name, n, before+1)
		}
		ping()
	}
}

// Nobody listens, then somebody does: what is sent after that arrives.
func TestLaterListener(t *testing.T) {
	tr := &TCP{}
	l, err := tr.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Address()
	l.Close()
	agent, back := worker(t, WorkerNode(1, 0))
	agent.Know(0, address)
	agent.Send(AggregatorNode(0), Header{Kind: migrate.Pull}, nil)
	if err := back.gone(t); err == nil {
		t.Error("no reason")
	}
	if l, err = tr.Listen(context.Background(), address); err != nil {
		t.Skip(err) // somebody else has the port by now
	}
	at := newRecorder()
	defer NewHub(Config{Self: AggregatorNode(0), Transport: tr, Handler: at, Listener: l}).Close()
	agent.Know(0, address) // so that it does not pause
	agent.Send(AggregatorNode(0), Header{Kind: migrate.Wait}, nil)
	if f := at.next(t); f.head.Kind != migrate.Wait {
		t.Errorf("%+v", f)
	}
}

// BenchmarkFrames compares frames with a plain copy between two sockets, both on one machine:
// large values, one direction, until the last byte was read.
func BenchmarkFrames(b *testing.B) {
	const n = 4 << 20 / 4
	b.Run("copy", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			buf := make([]byte, 4*n)
			for {
				if _, err := io.ReadFull(c, buf); err != nil {
					return
				}
				if _, err := c.Write(buf[:1]); err != nil {
					return
				}
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 4*n)
		b.SetBytes(4 * n)
		for b.Loop() {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf[:1]); err != nil {
				b.Fatal(err)
			}
		}
		c.Close()
		<-done
	})
	b.Run("frames", func(b *testing.B) {
		tr := &TCP{}
		l, err := tr.Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		at, back := newRecorder(), newRecorder()
		server := NewHub(Config{Self: AggregatorNode(0), Transport: tr, Handler: at, Listener: l})
		defer server.Close()
		agent := NewHub(Config{Self: WorkerNode(1, 0), Transport: &TCP{}, Handler: back})
		defer agent.Close()
		agent.Know(0, l.Address())
		block := back.pool.Get(n)
		at.answer(func(p *Peer, h *Header) { p.Send(Header{Kind: migrate.Wait, Version: h.Version}, nil) })
		b.SetBytes(4 * n)
		for v := uint64(1); b.Loop(); v++ {
			agent.Send(AggregatorNode(0), Header{Kind: migrate.Push, Version: v}, block)
			(<-at.frames).b.Done()
			<-back.frames
		}
	})
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/client"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/data"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// memory is a transport within a process that works as RDMA with a rendezvous does: the header is
// sent, the receiver says where values go and reads them from the sender's memory, and then the
// sender's completion comes. There is no socket and no buffer.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
	next      int
}

type memoryListener struct {
	m       *memory
	address string
	arrive  chan data.Conn
	closed  chan struct{}
	once    sync.Once
}

func (m *memory) Listen(context.Context, string) (data.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &memoryListener{m: m, address: fmt.Sprint("memory:", m.next), arrive: make(chan data.Conn), closed: make(chan struct{})}
	m.next++
	m.listeners[l.address] = l
	return l, nil
}

func (m *memory) Dial(ctx context.Context, address string) (data.Conn, error) {
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens")
	}
	closed := make(chan struct{})
	a, b := make(chan region), make(chan region)
	end := sync.OnceFunc(func() { close(closed) })
	select {
	case l.arrive <- &memoryConn{in: a, out: b, closed: closed, end: end, wake: make(chan struct{})}:
		return &memoryConn{in: b, out: a, closed: closed, end: end, wake: make(chan struct{})}, nil
	case <-l.closed:
		return nil, errors.New("nobody listens any more")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (data.Conn, error) {
	select {
	case c := <-l.arrive:
		return c, nil
	case <-l.closed:
		return nil, io.EOF
	}
}

func (l *memoryListener) Address() string { return l.address }
func (l *memoryListener) Close() error    { l.once.Do(func() { close(l.closed) }); return nil }

// region is memory that may be read until read is closed.
type region struct {
	head   data.Header
	values []float32
	read   chan struct{}
}

type memoryConn struct {
	in, out chan region
	closed  chan struct{}
	end     func()

	mu       sync.Mutex
	deadline time.Time
	wake     chan struct{} // closed when the deadline changes
}

func (c *memoryConn) Close() error { c.end(); return nil }

func (c *memoryConn) Deadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	close(c.wake)
	c.wake = make(chan struct{})
	return nil
}

// late is when an operation gives up; ask again when wake is closed.
func (c *memoryConn) late() (expired <-chan time.Time, wake <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline.IsZero() {
		return nil, c.wake
	}
	return time.After(time.Until(c.deadline)), c.wake
}

func (c *memoryConn) Send(h *data.Header, values []float32) error {
	r := region{*h, values, make(chan struct{})}
	out, read := c.out, (chan struct{})(nil)
	for {
		expired, wake := c.late()
		select {
		case out <- r:
			out, read = nil, r.read
		case <-read:
			return nil
		case <-c.closed:
			return io.ErrClosedPipe
		case <-expired:
			return os.ErrDeadlineExceeded
		case <-wake:
		}
	}
}

func (c *memoryConn) Receive(place func(*data.Header) []float32) (data.Header, error) {
	for {
		expired, wake := c.late()
		select {
		case r := <-c.in:
			if r.head.Elements > 0 {
				copy(place(&r.head), r.values)
			}
			close(r.read)
			return r.head, nil
		case <-c.closed:
			return data.Header{}, io.EOF
		case <-expired:
			return data.Header{}, os.ErrDeadlineExceeded
		case <-wake:
		}
	}
}

// The service does not need sockets: on another transport it makes the same models, through
// migrations and the crash of an Aggregator.
func TestOtherTransport(t *testing.T) {
	const iterations = 40
	m := &memory{listeners: map[string]*memoryListener{}}
	s := newServiceOn(t, newJob(2, 500, 3000), 3, m, func(int32) data.Transport { return m }, times)
	s.master.start()
	s.check(s.train(iterations, func(rank int32, l *client.Loop) {
		l.Forward = []time.Duration{time.Millisecond}
		l.Done = func(it client.Iteration) {
			switch {
			case rank == 0 && it.Number%5 == 4 && it.Number < 30:
				s.master.migrate(0, int32(it.Number/5%3))
			case rank == 1 && it.Number == 32:
				at, _ := s.agents[1].Where()
				s.servers[at[1]].Close()
				s.master.lost(at[1])
			}
		}
	}), iterations)
}

// FuzzFrames: an Aggregator takes frames of any kind, in any order, of nodes that may send them and
// of others. It does not panic, and a job with which they had nothing to do is served.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{2, 0, 0, 1, 1, 4, 2, 1, 0, 1, 1, 4})
	f.Add([]byte{8, 0, 0, 1, 1, 4, 2, 0, 0, 1, 1, 4, 2, 1, 0, 1, 1, 4, 67, 0, 0, 1, 1, 4})
	f.Fuzz(func(t *testing.T, in []byte) {
		m := &memory{listeners: map[string]*memoryListener{}}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l, err := m.Listen(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		bad, good := newJob(2, 4, 4), newJob(1, 3)
		good.ID = 8
		v := aggregator.Listen(aggregator.Config{ID: 0, Listener: l, Transport: m, Link: control.StaticServer(bad, good), Times: times})
		defer v.Close()
		go v.Run(ctx)
		drop := &dropper{}
		nodes := []*data.Hub{}
		for _, who := range []data.Node{data.WorkerNode(bad.ID, 0), data.WorkerNode(bad.ID, 1), data.AggregatorNode(9), data.WorkerNode(77, 3)} {
			h := data.NewHub(data.Config{Self: who, Transport: m, Handler: drop})
			defer h.Close()
			h.Know(0, l.Address())
			nodes = append(nodes, h)
		}
		for ; len(in) >= 6; in = in[6:] {
			h := data.Header{Kind: data.Kind(in[0]), Key: control.Key{Job: bad.ID, Tensor: uint32(in[2])}, Term: migrate.Term{Epoch: uint64(in[3])}, Version: uint64(in[4])}
			var b *data.Block
			if in[5] > 0 {
				b = drop.pool.Get(int(in[5]))
			}
			nodes[int(in[1])%len(nodes)].Send(data.AggregatorNode(0), h, b)
		}
		a, err := client.New(client.Config{Job: good, Link: control.StaticWorker(good, 0, []control.Peer{{ID: 0, Address: l.Address()}}), Transport: m, Times: times})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if err := a.Run(ctx, client.Loop{Iterations: 2}); err != nil {
			t.Error(err)
		}
	})
}

// dropper is a handler that listens to nothing.
type dropper struct {
	pool data.Pool
}

func (d *dropper) Place(*data.Peer, *data.Header) *data.Block  { return nil }
func (d *dropper) Frame(*data.Peer, *data.Header, *data.Block) {}
func (d *dropper) Lost(data.Node, error)                       {}

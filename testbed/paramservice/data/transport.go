package data

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Transport connects nodes.
type Transport interface {
	Listen(ctx context.Context, address string) (Listener, error)
	Dial(ctx context.Context, address string) (Conn, error)
}

// Listener takes connections.
type Listener interface {
	Accept() (Conn, error)
	Address() string // for Dial
	Close() error
}

// Conn carries frames both ways, in order, and loses none until it breaks. One goroutine may
// send while another one receives; Close may be called at any time.
type Conn interface {
	// Send sends a frame. When it returns the values may be written to.
	Send(h *Header, values []float32) error
	// Receive waits for a frame. place says where its values go, as many as the header says; if it
	// returns nil they are dropped. It is asked only if there are any.
	Receive(place func(*Header) []float32) (Header, error)
	// Deadline is when Send and Receive give up; the zero time: never.
	Deadline(time.Time) error
	Close() error
}

// Give-way of TENSOR_COPY: it goes in pieces of so many bytes, and each waits until what others
// have written has arrived, or until they have written so many times its size since it came, so that
// copies have their part of a link that is never idle. It does not wait longer than bulkPatience for
// others that get nowhere, a smaller piece as much less, but leastPatience.
const (
	bulkPiece     = 64 << 10
	bulkWeight    = 16
	bulkPatience  = 100 * time.Millisecond
	leastPatience = 5 * time.Millisecond
	bulkPoll      = 200 * time.Microsecond
)

// TCP is the transport over TCP. The copies of tensors that go over connections of one TCP give
// way to other frames of the same. The zero value is ready.
type TCP struct {
	// Local is the IP address that connections to others are from; empty: the kernel's choice.
	Local string

	gate gate

	mu      sync.Mutex
	ahead   map[*tcpConn]bool // that had values to send, and may still have
	written int64             // bytes of values that are not bulk
}

// keepalive notices a host that is gone after some seconds; unacknowledged data does, too.
var keepalive = net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 5}

const userTimeout = 10 * time.Second

func littleEndian() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return fmt.Errorf("values on a big-endian machine: %w", errors.ErrUnsupported)
	}
	return nil
}

// Listen implements Transport.
func (t *TCP) Listen(ctx context.Context, address string) (Listener, error) {
	if err := littleEndian(); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{KeepAliveConfig: keepalive}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &tcpListener{t, l}, nil
}

// Dial implements Transport.
func (t *TCP) Dial(ctx context.Context, address string) (Conn, error) {
	if err := littleEndian(); err != nil {
		return nil, err
	}
	d := net.Dialer{KeepAliveConfig: keepalive}
	if t.Local != "" {
		local, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(t.Local, "0"))
		if err != nil {
			return nil, fmt.Errorf("address of our own: %w", err)
		}
		d.LocalAddr = local
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newTCPConn(t, c), nil
}

type tcpListener struct {
	t *TCP
	l net.Listener
}

func (l *tcpListener) Accept() (Conn, error) {
	c, err := l.l.Accept()
	if err != nil {
		return nil, err
	}
	return newTCPConn(l.t, c), nil
}

func (l *tcpListener) Address() string { return l.l.Addr().String() }
func (l *tcpListener) Close() error    { return l.l.Close() }

type tcpConn struct {
	t    *TCP
	c    net.Conn
	raw  syscall.RawConn
	bulk bool // its packets are marked

	in     *bufio.Reader
	head   [HeaderSize]byte
	out    [HeaderSize]byte
	vector [2][]byte
	parts  net.Buffers
}

func newTCPConn(t *TCP, c net.Conn) *tcpConn {
	tc := &tcpConn{t: t, c: c, in: bufio.NewReaderSize(c, 16<<10)}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			tc.raw = raw
			tc.option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond))
		}
	}
	return tc
}

// option sets a socket option that is good to have, and no more than that.
func (c *tcpConn) option(level, name, value int) {
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), level, name, value) })
	}
}

func (c *tcpConn) Close() error               { return c.c.Close() }
func (c *tcpConn) Deadline(t time.Time) error { return c.c.SetDeadline(t) }
func (c *tcpConn) write(head, body []byte) error {
	c.vector = [2][]byte{head, body}
	c.parts = c.vector[:]
	if len(body) == 0 {
		c.parts = c.vector[:1]
	}
	_, err := c.parts.WriteTo(c.c)
	return err
}

// Send implements Conn.
func (c *tcpConn) Send(h *Header, values []float32) error {
	if err := h.check(); err != nil {
		return err
	}
	if len(values) != h.Elements {
		return fmt.Errorf("%v: %d values instead of %d: %w", h.Kind, len(values), h.Elements, ErrFrame)
	}
	head, body := AppendHeader(c.out[:0], h), bytesOf(values)
	if h.Kind != migrate.TensorCopy {
		c.mark(false)
		c.t.gate.enter()
		defer c.t.gate.leave()
		err := c.write(head, body)
		if len(body) > 0 {
			c.t.sent(c, len(body))
		}
		return err
	}
	c.mark(true)
	for {
		n := min(len(body), bulkPiece)
		c.t.giveWay(n)
		if err := c.write(head, body[:n]); err != nil {
			return err
		}
		if body, head = body[n:], nil; len(body) == 0 {
			return nil
		}
	}
}

// giveWay waits until n bytes of bulk may be written.
func (t *TCP) giveWay(n int) {
	patience := time.Now().Add(max(leastPatience, bulkPatience*time.Duration(n)/bulkPiece))
	turn := t.turn(n)
	for {
		t.gate.yield(time.Until(patience))
		if !t.pending(turn) || time.Now().After(patience) {
			return
		}
		time.Sleep(bulkPoll) // the kernel does not tell when it has sent everything
	}
}

// turn is how much others will have written when it is the turn of n bytes of bulk that come now.
func (t *TCP) turn(n int) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written + bulkWeight*int64(n)
}

// sent notes that a connection has n bytes of values on their way that bulk gives way to.
func (t *TCP) sent(c *tcpConn, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written += int64(n)
	if t.ahead == nil {
		t.ahead = map[*tcpConn]bool{}
	}
	t.ahead[c] = true
}

// pending says whether there are any that have not arrived, and less than so many have been written.
func (t *TCP) pending(turn int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written >= turn {
		return false
	}
	for c := range t.ahead {
		if !c.unsent() {
			delete(t.ahead, c)
		}
	}
	return len(t.ahead) > 0
}

// unsent says whether the other side's kernel has not acknowledged all that was written.
func (c *tcpConn) unsent() (left bool) {
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) {
			n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			left = err == nil && n > 0
		})
	}
	return left
}

// mark sets the priority of packets: TC_PRIO_BULK or TC_PRIO_BESTEFFORT.
func (c *tcpConn) mark(bulk bool) {
	if bulk != c.bulk {
		c.bulk = bulk
		priority := 0
		if bulk {
			priority = 2
		}
		c.option(unix.SOL_SOCKET, unix.SO_PRIORITY, priority)
	}
}

// Receive implements Conn.
func (c *tcpConn) Receive(place func(*Header) []float32) (Header, error) {
	if _, err := io.ReadFull(c.in, c.head[:]); err != nil {
		return Header{}, err
	}
	h, err := ParseHeader(c.head[:])
	if err != nil || h.Elements == 0 {
		return h, err
	}
	values := place(&h)
	if values == nil {
		_, err = io.CopyN(io.Discard, c.in, 4*int64(h.Elements))
	} else {
		_, err = io.ReadFull(c.in, bytesOf(values[:h.Elements]))
	}
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

// gate is what bulk waits at while others write.
type gate struct {
	mu     sync.Mutex
	busy   int
	opened chan struct{} // closed when busy becomes 0; nil if nobody waits
}

func (g *gate) enter() {
	g.mu.Lock()
	g.busy++
	g.mu.Unlock()
}

func (g *gate) leave() {
	g.mu.Lock()
	if g.busy--; g.busy == 0 && g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
	g.mu.Unlock()
}

// yield waits until nobody writes, but no longer than so long.
func (g *gate) yield(most time.Duration) {
	g.mu.Lock()
	if g.busy == 0 {
		g.mu.Unlock()
		return
	}
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
	opened := g.opened
	g.mu.Unlock()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-opened:
	case <-t.C:
	}
}

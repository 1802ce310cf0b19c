package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/udp"
)

// RingPortBase + job is the TCP port on which a ring worker takes the connection of
// the one before it: 20481..24575, below the ports that Linux gives to outgoing
// connections (32768 and up), which could be taken, and not a port of INA packets.
const RingPortBase = 0x5000

// ringMessage is the vector of a ring job without a message size, in bytes.
const ringMessage = 4 << 20

// tcpOverhead is the bytes of a frame around a TCP payload: Ethernet, IPv4, TCP with
// timestamps.
const tcpOverhead = 14 + 20 + 32

// ring is a worker of a ring all-reduce over TCP: in n-1 steps each rank adds the
// chunk it got to its own and passes it on (reduce-scatter), in n-1 more the reduced
// chunks go round (all-gather).
//
// A lane behind the vector counts the workers that want to stop, so that all of
// them end after the same iteration.
type ring struct {
	cfg  Config
	ref  ina.Reference
	ln   *net.TCPListener
	next netip.AddrPort
	vec  []byte // lanes in wire order, the votes last
	msg  message

	mu      sync.Mutex // below
	out, in *net.TCPConn
	total   Stats
}

func newRing(cfg Config, c *udp.Clock) (*ring, error) {
	n := len(cfg.Peers)
	switch {
	case n != cfg.Workers || n < 2 || n > ina.MaxWorkers:
		return nil, fmt.Errorf("%w: %d peers for %d workers, want 2..%d", ErrConfig, n, cfg.Workers, ina.MaxWorkers)
	case cfg.Rank < 0 || cfg.Rank >= n:
		return nil, fmt.Errorf("%w: rank %d of %d workers", ErrConfig, cfg.Rank, n)
	case cfg.Job == 0 || cfg.Job > ina.MaxJob:
		return nil, fmt.Errorf("%w: job %d outside 1..%d", ErrConfig, cfg.Job, ina.MaxJob)
	}
	var addrs [2]netip.Addr
	for i, rank := range [2]int{cfg.Rank, (cfg.Rank + 1) % n} {
		a, err := netip.ParseAddr(cfg.Peers[rank])
		if err != nil {
			return nil, fmt.Errorf("%w: address of worker %d: %w", ErrConfig, rank, err)
		}
		addrs[i] = a
	}
	cfg.Lanes = 1 // the vector is cut into lanes, not into packets
	if cfg.Message == 0 && len(cfg.Layers) == 0 {
		cfg.Message = ringMessage
	}
	r := &ring{
		cfg:  cfg,
		ref:  ina.NewReference(cfg.Seed, cfg.Job, n),
		next: netip.AddrPortFrom(addrs[1], RingPortBase|cfg.Job),
		msg:  newMessage(cfg),
	}
	r.vec = make([]byte, 4*(r.msg.packets+1))
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addrs[0], RingPortBase|cfg.Job)))
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	r.ln = ln
	return r, nil
}

func (r *ring) close() { r.ln.Close() }

// interrupt is called for a stop: the others then have a while to finish the
// iteration in which they hear of it.
func (r *ring) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	patience := 10 * time.Second
	if n := r.total.Iterations; n > 0 {
		patience += time.Duration(4 * r.total.IterationSum / float64(n) * 1e9)
	}
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c != nil {
			c.SetDeadline(time.Now().Add(patience))
		}
	}
}

func (r *ring) run(ctx context.Context, c *control) error {
	defer r.hangUp()
	defer context.AfterFunc(ctx, func() { r.close(); r.hangUp() })()
	err := r.connect(ctx, c)
	if err == nil {
		err = r.reduce(ctx, c)
	}
	if ctx.Err() != nil || errors.Is(err, errStopped) {
		return nil
	}
	return err
}

var errStopped = errors.New("stopped")

// connect dials the next rank and takes the connection of the one before.
func (r *ring) connect(ctx context.Context, c *control) error {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: r.ln.Addr().(*net.TCPAddr).IP}}
	conn, err := d.DialContext(ctx, "tcp", r.next.String())
	if err != nil {
		return fmt.Errorf("ring: dial the next worker: %w", err)
	}
	out := conn.(*net.TCPConn)
	r.mu.Lock()
	r.out = out
	r.mu.Unlock()
	if err := limitRate(out, r.cfg.Rate); err != nil {
		return fmt.Errorf("ring: limit rate: %w", err)
	}
	if _, err := out.Write(r.hello(r.cfg.Rank)); err != nil {
		return fmt.Errorf("ring: greet the next worker: %w", err)
	}
	n := len(r.cfg.Peers)
	want := r.hello((r.cfg.Rank + n - 1) % n)
	for {
		r.ln.SetDeadline(time.Now().Add(200 * time.Millisecond))
		in, err := r.ln.AcceptTCP()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && c.stop.Load():
			return errStopped
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			return fmt.Errorf("ring: %w", err)
		}
		got := make([]byte, len(want))
		in.SetDeadline(time.Now().Add(time.Second))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != string(want) {
			in.Close() // left over from another run
			continue
		}
		in.SetDeadline(time.Time{})
		r.mu.Lock()
		r.in = in
		r.mu.Unlock()
		return nil
	}
}

// hello is how a rank presents itself to the next.
func (r *ring) hello(rank int) []byte {
	b := binary.BigEndian.AppendUint16(nil, r.cfg.Job)
	b = binary.BigEndian.AppendUint16(b, r.cfg.Epoch)
	return append(b, byte(rank))
}

// hangUp closes the connections, keeping their totals.
func (r *ring) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total = r.totals()
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c != nil {
			c.Close()
		}
	}
	r.out, r.in = nil, nil
}

// reduce runs iterations until one ends in which somebody wanted to stop.
func (r *ring) reduce(ctx context.Context, c *control) error {
	write, wrote := make(chan []byte), make(chan error, 1)
	defer close(write)
	go func() {
		for b := range write {
			_, err := r.out.Write(b)
			wrote <- err
		}
	}()
	t := c.clock.Now()
	c.started(t)
	sampling := make(chan struct{})
	defer func() { <-sampling }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(sampling)
		r.sample(ctx, c)
	}()

	m := &r.msg
	m.started = true
	scratch := make([]byte, 64<<10)
	for m.begin(t); !m.finished; {
		r.fill(m.done)
		votes := r.vec[4*m.packets:]
		clear(votes)
		if c.stop.Load() {
			votes[3] = 1
		}
		begin := int64(0)
		for i, l := range m.layers {
			at, _ := m.ready()
			m.next++
			if err := pause(ctx, at-c.clock.Now()); err != nil {
				return err
			}
			end := begin + 4*l.packets
			if i == len(m.layers)-1 {
				end += 4
			}
			if err := r.allReduce(r.vec[begin:end], scratch, write, wrote); err != nil {
				return fmt.Errorf("ring: iteration %d: %w", m.done, err)
			}
			begin = end
		}
		t = max(c.clock.Now(), m.lastReady())
		checked, wrong := r.check(m.done)
		m.end(t)
		r.mu.Lock()
		r.total.Iterations, r.total.IterationSum, r.total.CommSum = m.done, m.sum.Seconds(), m.comm.Seconds()
		r.total.Goodput += 4 * m.packets
		r.total.SumsChecked += checked
		r.total.SumErrors += wrong
		r.mu.Unlock()
		if binary.BigEndian.Uint32(votes) > 0 {
			return nil
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (r *ring) sample(ctx context.Context, c *control) {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.sample(c.clock.Now(), r.stats())
		}
	}
}

// allReduce sums vec over all ranks, in place.
func (r *ring) allReduce(vec, scratch []byte, write chan<- []byte, wrote <-chan error) error {
	n, lanes := len(r.cfg.Peers), len(vec)/4
	chunk := func(i int) []byte {
		i = (i%n + n) % n
		return vec[4*(lanes*i/n) : 4*(lanes*(i+1)/n)]
	}
	for step := range 2 * (n - 1) {
		add := step < n-1
		at := r.cfg.Rank - step
		if !add {
			at++ // the chunk of which this rank has the whole sum, then those it was sent
			at += n - 1
		}
		write <- chunk(at)
		err := receive(r.in, chunk(at-1), scratch, add)
		if err := errors.Join(err, <-wrote); err != nil {
			return err
		}
	}
	return nil
}

// receive reads into vec, or adds what it reads to it.
func receive(in io.Reader, vec, scratch []byte, add bool) error {
	if !add {
		_, err := io.ReadFull(in, vec)
		return err
	}
	for len(vec) > 0 {
		b := scratch[:min(len(scratch), len(vec))]
		if _, err := io.ReadFull(in, b); err != nil {
			return err
		}
		for i := 0; i+4 <= len(b); i += 4 {
			binary.BigEndian.PutUint32(vec[i:], binary.BigEndian.Uint32(vec[i:])+binary.BigEndian.Uint32(b[i:]))
		}
		vec = vec[len(b):]
	}
	return nil
}

// pieces cuts the gradients into what the reference knows as packets, numbered on
// from one iteration to the next.
func (r *ring) pieces(iteration int64, do func(b []byte, psn uint32)) {
	const size = 4 * ina.MaxLanes
	b := r.vec[:4*r.msg.packets]
	psn := uint32(iteration * ((int64(len(b)) + size - 1) / size))
	for ; len(b) > 0; psn++ {
		n := min(len(b), size)
		do(b[:n], psn)
		b = b[n:]
	}
}

func (r *ring) fill(iteration int64) {
	r.pieces(iteration, func(b []byte, psn uint32) { r.ref.Fill(b, r.cfg.Rank, psn) })
}

func (r *ring) check(iteration int64) (checked, wrong int64) {
	r.pieces(iteration, func(b []byte, psn uint32) {
		w, votes := r.ref.Check(b, psn)
		checked += int64(len(b) / 4)
		wrong += int64(w)
		if votes > 0 { // they have a lane of their own here
			wrong++
		}
	})
	return checked, wrong
}

func (r *ring) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.totals()
}

// totals adds what the kernel counts for the open connections.
func (r *ring) totals() Stats {
	s := r.total
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c == nil {
			continue
		}
		i, err := tcpInfo(c)
		if err != nil {
			continue // closed meanwhile
		}
		s.PacketsSent += int64(i.Segs_out)
		s.BytesSent += int64(i.Bytes_sent) + tcpOverhead*int64(i.Segs_out)
		s.PacketsReceived += int64(i.Segs_in)
		s.BytesReceived += int64(i.Bytes_received) + tcpOverhead*int64(i.Segs_in)
		s.Resends += int64(i.Total_retrans)
	}
	return s
}

func tcpInfo(c *net.TCPConn) (info *unix.TCPInfo, err error) {
	e := onSocket(c, func(fd int) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, errors.Join(e, err)
}

// limitRate has the kernel pace a connection so that frames leave at rate bit/s; it
// paces payload. What it cannot express, above 34 Gbit/s, is left unlimited.
func limitRate(c *net.TCPConn, rate float64) error {
	const mss = 1448 // of an MTU of 1,500
	payload := rate / 8 * mss / (mss + tcpOverhead)
	if rate == 0 || payload >= 1<<32-1 {
		return nil
	}
	var err error
	return errors.Join(onSocket(c, func(fd int) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, int(payload))
	}), err)
}

func onSocket(c *net.TCPConn, do func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { do(int(fd)) })
}

package collective

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
)

// TCPOverhead is the bytes of a frame around a TCP payload: Ethernet, IPv4, TCP with
// timestamps.
const TCPOverhead = 14 + 20 + 32

// A vector is cut into pieces, which is what the reference gradients know as packets;
// ranks pass it on in blocks of these.
const (
	pieceLen = 4 * ina.MaxLanes
	minBlock = 4 * pieceLen
	maxBlock = 64 * pieceLen
	// A chunk is passed on in that many blocks, if these are no smaller or larger: more cost
	// more, fewer are longer on their way.
	blocksPerChunk = 8
)

// RingConfig is what a rank of a ring has to know.
type RingConfig struct {
	Job   uint16
	Epoch uint16 // of the run: a rank of an earlier one is not listened to
	Rank  int
	Peers []string // data addresses of all ranks, in order
	Rate  float64  // of frames, bit/s, at most; 0: as fast as TCP goes
	Seed  uint64   // of the reference gradients
	// Timeout is how long a rank waits for a neighbour within an all-reduce; 0: for ever.
	Timeout time.Duration
	// Spoil makes gradients of this rank wrong on purpose, some at a time, before they are
	// sent. One operation after the other calls it. nil: they are right.
	Spoil func(values []byte)
}

// Ring reduces over TCP: in n-1 steps each rank adds what it gets of a chunk to its own
// and passes it on (reduce-scatter), in n-1 more the sums go round (all-gather). What has
// come of a chunk goes on at once, so that links are busy throughout and an all-reduce of
// B bytes takes 2(n-1)/n·B at their rate, and the delay of the way round once.
//
// One goroutine uses it; only what is marked so may be called by others.
type Ring struct {
	cfg     RingConfig
	ref     ina.Reference
	ln      *net.TCPListener
	next    netip.AddrPort
	vec     []byte
	scratch []byte
	heads   []byte
	low     int // SO_RCVLOWAT of in

	mu      sync.Mutex // below
	out, in *net.TCPConn
	total   Traffic
	reduced int64 // bytes of the vectors of the operations that are done
	part    int64 // bytes received of the one under way
	size    int64 // of its vector
}

// Traffic is what passed a rank's sockets: frames as a NIC counts them, so far as the
// kernel tells.
type Traffic struct {
	PacketsSent, BytesSent         int64
	PacketsReceived, BytesReceived int64
	Resends                        int64
	Drops                          int64 // packets that the socket had no room for
}

// Add adds other traffic.
func (t *Traffic) Add(o Traffic) {
	t.PacketsSent += o.PacketsSent
	t.BytesSent += o.BytesSent
	t.PacketsReceived += o.PacketsReceived
	t.BytesReceived += o.BytesReceived
	t.Resends += o.Resends
	t.Drops += o.Drops
}

// Errors of all-reduces. They name the ranks that they are about.
var (
	ErrConfig   = errors.New("collective config")
	ErrMismatch = errors.New("ranks at different operations")
	ErrSilent   = errors.New("no answer in time")
	ErrGone     = errors.New("rank is gone")
)

// NewRing opens the port on which the rank before this one will connect.
func NewRing(cfg RingConfig) (*Ring, error) {
	n := len(cfg.Peers)
	if err := checkRank(cfg.Job, cfg.Rank, n); err != nil {
		return nil, err
	}
	var addrs [2]netip.Addr
	for i, rank := range [2]int{cfg.Rank, (cfg.Rank + 1) % n} {
		a, err := netip.ParseAddr(cfg.Peers[rank])
		if err != nil {
			return nil, fmt.Errorf("%w: address of worker %d: %w", ErrConfig, rank, err)
		}
		addrs[i] = a
	}
	r := &Ring{
		cfg:     cfg,
		ref:     ina.NewReference(cfg.Seed, cfg.Job, n),
		next:    netip.AddrPortFrom(addrs[1], ina.RingPortBase|cfg.Job),
		scratch: make([]byte, maxBlock),
		heads:   make([]byte, headLen*(2*n-2)),
	}
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addrs[0], ina.RingPortBase|cfg.Job)))
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	r.ln = ln
	return r, nil
}

// checkRank is an error if there cannot be such a rank of a job with so many.
func checkRank(job uint16, rank, n int) error {
	switch {
	case n < 2 || n > ina.MaxWorkers:
		return fmt.Errorf("%w: %d ranks, want 2..%d", ErrConfig, n, ina.MaxWorkers)
	case rank < 0 || rank >= n:
		return fmt.Errorf("%w: rank %d of %d", ErrConfig, rank, n)
	case job == 0 || job > ina.MaxJob:
		return fmt.Errorf("%w: job %d outside 1..%d", ErrConfig, job, ina.MaxJob)
	}
	return nil
}

// Close stops listening, and ends what is under way with an error. Any goroutine may call
// it, and again.
func (r *Ring) Close() {
	r.ln.Close()
	r.HangUp()
}

// HangUp closes the connections, keeping their totals; it is part of Close.
func (r *Ring) HangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total = r.traffic()
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c != nil {
			c.Close()
		}
	}
	r.out, r.in = nil, nil
}

// Patience bounds how long the all-reduces from now on take, all together. Any goroutine
// may call it.
func (r *Ring) Patience(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c != nil {
			c.SetDeadline(time.Now().Add(d))
		}
	}
}

// Connect dials the next rank and takes the connection of the one before, until ctx is
// done.
func (r *Ring) Connect(ctx context.Context) error {
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
	want := r.hello(r.before())
	defer context.AfterFunc(ctx, func() { r.ln.SetDeadline(time.Now()) })()
	for {
		in, err := r.ln.AcceptTCP()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				in.Close()
			}
			return ctx.Err()
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

func (r *Ring) before() int { return (r.cfg.Rank + len(r.cfg.Peers) - 1) % len(r.cfg.Peers) }

func (r *Ring) after() int { return (r.cfg.Rank + 1) % len(r.cfg.Peers) }

// hello is how a rank presents itself to the next.
func (r *Ring) hello(rank int) []byte {
	b := binary.BigEndian.AppendUint16(nil, r.cfg.Job)
	b = binary.BigEndian.AppendUint16(b, r.cfg.Epoch)
	return append(b, byte(rank))
}

// Op is one all-reduce over a ring. It is the same for all ranks, but for Vote.
type Op struct {
	Index int64
	Bytes int64  // padded to whole values
	PSN   uint32 // of the reference gradients of its first piece; Pieces(Bytes) follow each other
	Asked bool   // for a tree, in vain
	Vote  uint32 // of this rank
	Stop  bool   // this rank wants the job to end
}

// Pieces is how many PSNs of the reference gradients so many bytes take on a ring.
func Pieces(bytes int64) int64 { return (bytes + pieceLen - 1) / pieceLen }

// Reduced is what came of an all-reduce.
type Reduced struct {
	Least, Most uint32 // vote of all ranks
	Stop        bool   // of any rank
	Checked     int64  // int32 values that were compared with the reference
	Wrong       int64  // of these, different
}

// A message of the ring begins with a header.
//
//	 0  index  u64
//	 8  bytes  u40, step u8, asked u8, stop u8
//	16  least  u32
//	20  most   u32
const headLen = 24

type head struct {
	index, bytes int64
	step         uint8
	asked, stop  bool
	least, most  uint32
}

func (h *head) put(b []byte) {
	binary.BigEndian.PutUint64(b, uint64(h.index))
	binary.BigEndian.PutUint64(b[8:], uint64(h.bytes)<<24)
	b[13] = h.step
	b[14] = flag(h.asked)
	b[15] = flag(h.stop)
	binary.BigEndian.PutUint32(b[16:], h.least)
	binary.BigEndian.PutUint32(b[20:], h.most)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

func parseHead(b []byte) head {
	return head{
		index: int64(binary.BigEndian.Uint64(b)),
		bytes: int64(binary.BigEndian.Uint64(b[8:]) >> 24),
		step:  b[13],
		asked: b[14] != 0,
		stop:  b[15] != 0,
		least: binary.BigEndian.Uint32(b[16:]),
		most:  binary.BigEndian.Uint32(b[20:]),
	}
}

// AllReduce sums the reference gradients of all ranks, and checks the sums. What goes
// wrong closes the connections, so that all other ranks learn of it.
func (r *Ring) AllReduce(op Op) (Reduced, error) {
	r.mu.Lock()
	in, out := r.in, r.out
	r.mu.Unlock()
	if in == nil || out == nil {
		return Reduced{}, fmt.Errorf("ring: %w", net.ErrClosed)
	}
	send := newSender(out, r.cfg.Timeout)
	defer send.close()
	got, err := r.reduce(op, in, send)
	if err != nil {
		r.HangUp()
		return Reduced{}, r.explain(op, err)
	}
	return got, nil
}

// explain says what an error means for a job.
func (r *Ring) explain(op Op, err error) error {
	what := fmt.Sprintf("ring: operation %d of %d bytes", op.Index, op.Bytes)
	var of rankError
	switch {
	case !errors.As(err, &of):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: rank %d: %w: it has died, or is at another operation", what, of.rank, ErrSilent)
	case broken(err):
		return fmt.Errorf("%s: %w: rank %d", what, ErrGone, of.rank)
	}
	return fmt.Errorf("%s: rank %d: %w", what, of.rank, err)
}

// broken reports whether an error says that the other end has hung up.
func broken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// rankError is an error about a rank.
type rankError struct {
	rank int
	error
}

func (e rankError) Unwrap() error { return e.error }

func (r *Ring) reduce(op Op, in *net.TCPConn, send *sender) (Reduced, error) {
	n, pieces := len(r.cfg.Peers), Pieces(op.Bytes)
	size := (op.Bytes + 3) &^ 3
	if int64(cap(r.vec)) < size {
		r.vec = make([]byte, size)
	}
	vec := r.vec[:size]
	// edge is where a chunk begins, in bytes.
	edge := func(i int) int64 { return min(pieces*int64(i)/int64(n)*pieceLen, size) }
	block := min(max(pieces/int64(n)/blocksPerChunk*pieceLen, minBlock), maxBlock)
	// blocks calls do with the parts of chunk i and the PSN of their first piece.
	blocks := func(i int, do func(b []byte, psn uint32) error) error {
		i = ((i % n) + n) % n
		for at, end := edge(i), edge(i+1); at < end; at += block {
			if err := do(vec[at:min(at+block, end)], op.PSN+uint32(at/pieceLen)); err != nil {
				return err
			}
		}
		return nil
	}
	read := func(b []byte) error {
		if r.cfg.Timeout > 0 {
			in.SetReadDeadline(time.Now().Add(r.cfg.Timeout))
		}
		if err := readFull(in, &r.low, b); err != nil {
			return rankError{r.before(), err}
		}
		return nil
	}

	r.mu.Lock()
	r.part, r.size = 0, size
	r.mu.Unlock()
	received := func(b []byte) {
		r.mu.Lock()
		r.part += int64(len(b))
		r.mu.Unlock()
	}
	got := Reduced{Least: op.Vote, Most: op.Vote, Stop: op.Stop}
	// The header of a step says what this rank knows of the votes of those before it.
	header := func(step int) {
		b := r.heads[headLen*step:][:headLen]
		h := head{op.Index, op.Bytes, uint8(step), op.Asked, got.Stop, got.Least, got.Most}
		h.put(b)
		send.put(b)
	}
	check := func(b []byte, psn uint32) {
		each(b, psn, func(b []byte, psn uint32) {
			got.Checked += int64(len(b) / 4)
			got.Wrong += int64(r.ref.Check(b, psn))
		})
	}
	header(0)
	if err := blocks(r.cfg.Rank, func(b []byte, psn uint32) error {
		r.fill(b, psn)
		send.put(b)
		return nil
	}); err != nil {
		return got, err
	}
	marks := make([]int, 0, 2*n-2) // what was put until the end of each step
	last := 2*n - 3
	for step := range 2*n - 2 {
		marks = append(marks, send.put(nil))
		var b [headLen]byte
		if err := read(b[:]); err != nil {
			return got, err
		}
		h := parseHead(b[:])
		if h.index != op.Index || h.bytes != op.Bytes || h.step != uint8(step) || h.asked != op.Asked {
			mine := head{index: op.Index, bytes: op.Bytes, step: uint8(step), asked: op.Asked}
			return got, rankError{r.before(), fmt.Errorf("%w: it is at %v; this rank at %v", ErrMismatch, h, mine)}
		}
		got.Least, got.Most, got.Stop = min(got.Least, h.least), max(got.Most, h.most), got.Stop || h.stop
		if step < last {
			header(step + 1)
		}
		if step >= n-1 { // what is overwritten now has been sent
			if err := send.wait(marks[step-n+1]); err != nil {
				return got, rankError{r.after(), err}
			}
		}
		if err := blocks(r.cfg.Rank-step-1, func(b []byte, psn uint32) error {
			if step >= n-1 {
				if err := read(b); err != nil {
					return err
				}
			} else {
				r.fill(b, psn)
				part := r.scratch[:len(b)]
				if err := read(part); err != nil {
					return err
				}
				add(b, part)
			}
			received(b)
			if step < last {
				send.put(b)
			}
			if step >= n-2 {
				check(b, psn)
			}
			return nil
		}); err != nil {
			return got, err
		}
	}
	// The heads and the vector are the next all-reduce's.
	if err := send.wait(send.put(nil)); err != nil {
		return got, rankError{r.after(), err}
	}
	r.mu.Lock()
	r.reduced, r.part, r.size = r.reduced+size, 0, 0
	r.mu.Unlock()
	return got, nil
}

// Reduced is how many bytes of gradient have been reduced: all of the operations that are
// done, and of the one under way as large a part as this rank has received of what it will.
// Any goroutine may call it.
func (r *Ring) Reduced() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int64(len(r.cfg.Peers))
	return r.reduced + min(r.size, r.part*n/(2*(n-1)))
}

// lowWater is how much has to come before a rank looks at it: waking up for every frame
// costs more than adding it up.
const lowWater = 16 << 10

// readFull fills b, waking up as rarely as it can. The SO_RCVLOWAT of the connection is low.
func readFull(in *net.TCPConn, low *int, b []byte) error {
	for len(b) > 0 {
		if want := min(len(b), lowWater); want != *low {
			var err error
			if e := onSocket(in, func(fd int) { err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, want) }); e != nil || err != nil {
				return errors.Join(e, err)
			}
			*low = want
		}
		n, err := in.Read(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (h head) String() string {
	s := fmt.Sprintf("operation %d of %d bytes, step %d", h.index, h.bytes, h.step)
	if h.asked {
		return s + ", which was refused the tree"
	}
	return s + ", which did not ask for the tree"
}

func (r *Ring) fill(b []byte, psn uint32) { fill(r.ref, r.cfg.Rank, r.cfg.Spoil, b, psn) }

// fill makes a rank's gradients, and spoils them if it is to.
func fill(ref ina.Reference, rank int, spoil func(values []byte), b []byte, psn uint32) {
	each(b, psn, func(b []byte, psn uint32) {
		ref.Fill(b, rank, psn)
		if spoil != nil {
			spoil(b)
		}
	})
}

// each calls do with the pieces of b.
func each(b []byte, psn uint32, do func(b []byte, psn uint32)) {
	for ; len(b) > 0; psn++ {
		n := min(len(b), pieceLen)
		do(b[:n], psn)
		b = b[n:]
	}
}

// add adds the lanes of b to those of a, two at a time: one addition of 64 bits, with the
// carry out of the lower lane taken back from the upper.
func add(a, b []byte) {
	for ; len(a) >= 8 && len(b) >= 8; a, b = a[8:], b[8:] {
		x, y := binary.BigEndian.Uint64(a), binary.BigEndian.Uint64(b)
		t := x + y
		binary.BigEndian.PutUint64(a, t-(x^y^t)&(1<<32))
	}
	if len(a) >= 4 {
		binary.BigEndian.PutUint32(a, binary.BigEndian.Uint32(a)+binary.BigEndian.Uint32(b))
	}
}

// Alive is an error if a neighbour has hung up, or if the one before has come to the
// operation of that index and has not asked for the tree, as this rank has. It waits for
// nothing, and any goroutine may call it while no all-reduce is under way.
func (r *Ring) Alive(index int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range [2]*net.TCPConn{r.in, r.out} {
		if c == nil {
			return fmt.Errorf("ring: %w", net.ErrClosed)
		}
		rank := [2]int{r.before(), r.after()}[i]
		info, err := tcpInfo(c)
		if err != nil || info.State != unix.BPF_TCP_ESTABLISHED {
			return fmt.Errorf("ring: %w: rank %d", ErrGone, rank)
		}
	}
	var b [headLen]byte
	n := 0
	if err := onSocket(r.in, func(fd int) { n, _, _ = unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) }); err != nil || n < headLen {
		return nil // it is not there yet
	}
	if h := parseHead(b[:]); h.index == index && !h.asked {
		return fmt.Errorf("ring: %w: rank %d is at %v; this rank asked for it", ErrMismatch, r.before(), h)
	}
	return nil
}

// Traffic is what has passed so far. Any goroutine may call it.
func (r *Ring) Traffic() Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traffic()
}

// traffic adds what the kernel counts for the open connections.
func (r *Ring) traffic() Traffic {
	t := r.total
	for _, c := range []*net.TCPConn{r.out, r.in} {
		if c != nil {
			t.Add(traffic(c))
		}
	}
	return t
}

// traffic is what the kernel counts for a connection; none if it is closed.
func traffic(c *net.TCPConn) Traffic {
	i, err := tcpInfo(c)
	if err != nil {
		return Traffic{}
	}
	return Traffic{
		PacketsSent:     int64(i.Segs_out),
		BytesSent:       int64(i.Bytes_sent) + TCPOverhead*int64(i.Segs_out),
		PacketsReceived: int64(i.Segs_in),
		BytesReceived:   int64(i.Bytes_received) + TCPOverhead*int64(i.Segs_in),
		Resends:         int64(i.Total_retrans),
	}
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
	payload := rate / 8 * mss / (mss + TCPOverhead)
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

// sender writes what it is given to a connection, in the order given, from a goroutine of
// its own: a rank that only wrote would wait for the next to read, which does the same.
type sender struct {
	conn    *net.TCPConn
	timeout time.Duration

	mu      sync.Mutex
	changed sync.Cond
	queue   net.Buffers
	given   int // slices, in all
	written int // of these
	err     error
	closed  bool
	ended   chan struct{}
}

func newSender(conn *net.TCPConn, timeout time.Duration) *sender {
	s := &sender{conn: conn, timeout: timeout, ended: make(chan struct{})}
	s.changed.L = &s.mu
	go s.run()
	return s
}

func (s *sender) run() {
	defer close(s.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == 0 {
			if s.closed {
				return
			}
			s.changed.Wait()
		}
		b := s.next()
		n := len(b)
		s.mu.Unlock()
		if s.timeout > 0 {
			s.conn.SetWriteDeadline(time.Now().Add(s.timeout))
		}
		_, err := b.WriteTo(s.conn)
		s.mu.Lock()
		s.written += n
		s.changed.Broadcast()
		if err != nil {
			s.err = err
			return
		}
	}
}

// next takes from the queue what is written at once, with a deadline of its own: about a block, for of a whole
// chunk that would be one of the rate. The caller has the lock.
func (s *sender) next() (b net.Buffers) {
	n, size := 0, 0
	for n < len(s.queue) && (n == 0 || size+len(s.queue[n]) <= maxBlock+headLen) {
		size += len(s.queue[n])
		n++
	}
	b, s.queue = s.queue[:n:n], s.queue[n:]
	return b
}

// put has b sent, which must stay as it is until then, and returns how many it was given.
func (s *sender) put(b []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b) > 0 {
		s.queue = append(s.queue, b)
		s.given++
		s.changed.Broadcast()
	}
	return s.given
}

// wait returns when the first n have been sent.
func (s *sender) wait(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.written < n && s.err == nil {
		s.changed.Wait()
	}
	return s.err
}

// close returns when nothing is sent any more.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.mu.Unlock()
	<-s.ended
}

package collective

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed/ina"
)

// MeshConfig is what a rank of a mesh has to know.
type MeshConfig struct {
	Job   uint16
	Epoch uint16 // of the run: a rank of another one is not listened to
	Rank  int
	// Schedule is what the ranks do; all have the same. In the end a rank has of each chunk
	// the sum of those ranks' gradients that the schedule says.
	Schedule collectives.Schedule
	Seed     uint64 // of the reference gradients
	// Listen is the address at which others reach this rank. The kernel gives the port, unless
	// it is there.
	Listen string
	// Rate is of frames, bit/s, that a connection to another host gets at most: that of the
	// NIC, of which TCP knows nothing where the cable is emulated. 0: as fast as TCP goes.
	Rate float64
	// LocalRate is what this rank sends to others of its host, all together, bit/s of
	// gradients; 0: as fast as TCP goes there.
	LocalRate float64
	// Timeout is how long a rank waits for others while nothing comes or goes; 0:
	// DefaultTimeout.
	Timeout time.Duration
	// Spoil makes gradients of this rank wrong on purpose, some at a time; nil: they are right.
	Spoil func(values []byte)
}

// Mesh reduces over TCP as a schedule says, with a connection from each rank to each that it
// sends something to. Two that exchange something have two: where queues are by connection,
// acknowledgements of what comes do not wait behind what goes.
//
// A rank is in one phase of the schedule at a time. When it begins one it tells those that
// send to it, and they begin when they are in that phase too and have heard so, so nothing
// comes before there is room for it. The phase ends when the rank has what it was sent, and has
// heard that what it sent has come: that the kernel has taken it means nothing, which may keep
// all of it for long. Schedule.Seconds of package collectives is how long that takes.
//
// One goroutine calls Connect and what reduces; any may call the other methods.
type Mesh struct {
	cfg   MeshConfig
	ref   ina.Reference
	ln    *net.TCPListener
	hello []byte     // this rank's, but for whom it is to
	steps []meshStep // the phases in which this rank has something to do
	held  []uint64   // by chunk: the ranks in the sum, in the end
	peers []*peer    // by rank; nil: nothing to do with it
	vec   []byte
	timer *time.Timer

	adding sync.Mutex // vec
	local  pacer
	work   sync.WaitGroup
	ctx    context.Context // until the connections are closed
	cancel context.CancelFunc

	mu      sync.Mutex // below
	wake    chan struct{}
	op      Op
	stop    bool      // that any rank wants, as far as this one knows
	step    int       // of op; -1: no operation is under way
	left    int       // transfers of step
	sending int       // of these, own
	moved   time.Time // when something last came or went, or step began
	sent    sync.Cond // sending is 0, or the mesh has failed
	err     error     // what ended it
	closed  bool
	total   Traffic
}

// meshStep is what a rank does in a phase.
type meshStep struct {
	phase           int
	sends, receives []exchange // at most one for each peer
	staged          bool       // what comes would change what is sent
}

// exchange is what goes one way between this rank and another in a phase.
type exchange struct {
	peer  *peer
	parts []collectives.Transfer
}

// peer is another rank.
type peer struct {
	rank         int
	gives, takes bool         // it sends this rank something; this one sends it something
	in, out      *net.TCPConn // on which it does; set once, before their goroutines begin
	near         bool         // it is on the same host

	// Of the reader of in.
	low   int // SO_RCVLOWAT
	ack   [messageLen]byte
	part  []byte
	stage []byte
	// Of the writer of out.
	send   chan int     // a step
	ready  chan message // the peer is there
	begin  [messageLen]byte
	parts  [][]byte
	blocks net.Buffers
	// Of who calls Exchange.
	tell [messageLen]byte

	// Under the mesh's lock.
	receiving, sending bool  // in this step
	begun              bool  // to send it something
	writing            bool  // bytes of a transfer
	came               bool  // all of it, as it has told
	inGone, outGone    error // the connection is no more
	reached            bool  // it has taken a connection, and may not have said yet who it is
}

// What a mesh's ranks say to each other begins with a message.
//
//	 0  kind   u8
//	 1  stop   u8
//	 2  phase  u16  of an abort: the rank that is the reason
//	 4  code   u32  of an abort: which of abortCodes
//	 8  index  u64
//	16  bytes  u64
//
// The parts of the vector follow a transfer, in the order of the schedule.
const messageLen = 24

type messageKind uint8

const (
	readyMessage messageKind = 1 + iota
	transferMessage
	cameMessage
	abortMessage
)

type message struct {
	kind  messageKind
	stop  bool
	phase uint16
	code  uint32
	index int64
	bytes int64
}

func (h message) put(b []byte) {
	b[0], b[1] = byte(h.kind), flag(h.stop)
	binary.BigEndian.PutUint16(b[2:], h.phase)
	binary.BigEndian.PutUint32(b[4:], h.code)
	binary.BigEndian.PutUint64(b[8:], uint64(h.index))
	binary.BigEndian.PutUint64(b[16:], uint64(h.bytes))
}

// parseMessage reports whether it is one.
func parseMessage(b []byte) (message, bool) {
	h := message{
		kind: messageKind(b[0]), stop: b[1] == 1,
		phase: binary.BigEndian.Uint16(b[2:]), code: binary.BigEndian.Uint32(b[4:]),
		index: int64(binary.BigEndian.Uint64(b[8:])), bytes: int64(binary.BigEndian.Uint64(b[16:])),
	}
	ok := h.kind >= readyMessage && h.kind <= abortMessage && b[1] <= 1 && h.index >= 0 && h.bytes >= 0
	if !ok {
		return message{}, false
	}
	return h, true
}

func (h message) String() string {
	return fmt.Sprintf("operation %d of %d bytes, phase %d", h.index, h.bytes, h.phase)
}

// abortCodes are the reasons that ranks tell others.
var abortCodes = []error{ErrGone, ErrSilent, ErrMismatch}

// NewMesh listens for the other ranks.
func NewMesh(cfg MeshConfig) (*Mesh, error) {
	n := cfg.Schedule.Workers
	if err := checkRank(cfg.Job, cfg.Rank, n); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	m := &Mesh{
		cfg: cfg, ref: ina.NewReference(cfg.Seed, cfg.Job, n), peers: make([]*peer, n), step: -1,
		wake: make(chan struct{}, 1), timer: time.NewTimer(0),
	}
	if err := m.plan(); err != nil {
		return nil, err
	}
	m.sent.L = &m.mu
	m.local.rate = cfg.LocalRate
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.hello = m.greeting()
	where := cfg.Listen
	if a, err := netip.ParseAddr(where); err == nil {
		where = netip.AddrPortFrom(a, 0).String()
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), "tcp4", where)
	if err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	m.ln = ln.(*net.TCPListener)
	m.work.Go(m.accept)
	return m, nil
}

// plan finds out what this rank does, and what it has in the end.
func (m *Mesh) plan() error {
	s := m.cfg.Schedule
	held := make([][]uint64, s.Workers) // ranks in a sum, by rank and chunk
	for rank := range held {
		held[rank] = slices.Repeat([]uint64{1 << rank}, s.Chunks)
	}
	before := make([][]uint64, s.Workers)
	for t := range s.Phases {
		for rank := range held {
			before[rank] = append(before[rank][:0], held[rank]...)
		}
		step := meshStep{phase: t}
		for x := range s.Phase(t) {
			for c := x.Lo; c < x.Hi; c++ {
				switch had, comes := held[x.To][c], before[x.From][c]; {
				case !x.Add:
					held[x.To][c] = comes
				case had&comes != 0:
					return fmt.Errorf("%w: in phase %d of %s rank %d gets gradients that it has", ErrConfig, t, s.Name, x.To)
				default:
					held[x.To][c] |= comes
				}
			}
			switch m.cfg.Rank {
			case x.From:
				step.sends = m.add(step.sends, x.To, x)
				m.peers[x.To].takes = true
			case x.To:
				step.receives = m.add(step.receives, x.From, x)
				m.peers[x.From].gives = true
			}
		}
		for _, in := range step.receives {
			for _, out := range step.sends {
				for _, x := range in.parts {
					for _, y := range out.parts {
						step.staged = step.staged || x.Lo < y.Hi && y.Lo < x.Hi
					}
				}
			}
		}
		if len(step.sends)+len(step.receives) > 0 {
			m.steps = append(m.steps, step)
		}
	}
	m.held = held[m.cfg.Rank]
	return nil
}

// add adds a transfer to those with a rank.
func (m *Mesh) add(all []exchange, rank int, x collectives.Transfer) []exchange {
	if m.peers[rank] == nil {
		m.peers[rank] = &peer{rank: rank, part: make([]byte, maxBlock), send: make(chan int, 1), ready: make(chan message, 1)}
	}
	for i := range all {
		if all[i].peer.rank == rank {
			all[i].parts = append(all[i].parts, x)
			return all
		}
	}
	return append(all, exchange{m.peers[rank], []collectives.Transfer{x}})
}

// Addr is where others reach this rank.
func (m *Mesh) Addr() string { return m.ln.Addr().String() }

// Ranks greet each other:
//
//	 0  "inaMesh1"
//	 8  job u16, epoch u16, ranks u16, from u16, to u16
//	18  hash of the schedule and the seed, u64
const helloLen = 26

func (m *Mesh) greeting() []byte {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %d %d", m.cfg.Schedule.Name, m.cfg.Schedule.Phases, m.cfg.Schedule.Chunks, m.cfg.Seed)
	b := []byte("inaMesh1")
	for _, v := range []int{int(m.cfg.Job), int(m.cfg.Epoch), m.cfg.Schedule.Workers, m.cfg.Rank, 0} {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return binary.BigEndian.AppendUint64(b, h.Sum64())
}

// helloTo is what this rank says to another.
func (m *Mesh) helloTo(rank int) []byte {
	b := slices.Clone(m.hello)
	binary.BigEndian.PutUint16(b[16:], uint16(rank))
	return b
}

// listen reads what another rank says to this one, and who it is. Whoever is of another job
// or run, or no rank at all, is -1.
func (m *Mesh) listen(conn net.Conn) (rank int, err error) {
	b := make([]byte, helloLen)
	if _, err := io.ReadFull(conn, b); err != nil {
		return -1, err
	}
	if !bytes.Equal(b[:12], m.hello[:12]) {
		return -1, errors.New("not of this job and run")
	}
	rank = int(binary.BigEndian.Uint16(b[14:]))
	want := slices.Clone(m.hello)
	binary.BigEndian.PutUint16(want[14:], uint16(rank))
	binary.BigEndian.PutUint16(want[16:], uint16(m.cfg.Rank))
	if rank >= len(m.peers) || !bytes.Equal(b, want) {
		return rank, fmt.Errorf("%w: rank %d has other ranks, another schedule or seed, or believes this is not rank %d", ErrMismatch, rank, m.cfg.Rank)
	}
	return rank, nil
}

// helloTimeout is how long whoever connects may take to say who it is.
const helloTimeout = 5 * time.Second

// accept takes connections until the listener is closed.
func (m *Mesh) accept() {
	for {
		conn, err := m.ln.AcceptTCP()
		if err != nil {
			return
		}
		m.work.Go(func() { m.greet(conn) })
	}
}

// greet listens to somebody that has connected, and answers a rank that sends this one
// something.
func (m *Mesh) greet(conn *net.TCPConn) {
	stop := context.AfterFunc(m.ctx, func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(helloTimeout))
	rank, err := m.listen(conn)
	if err == nil {
		_, err = conn.Write(m.helloTo(rank))
	}
	if err == nil && stop() {
		err = m.meet(rank, conn, true)
	}
	if err != nil {
		conn.Close()
	}
	if errors.Is(err, ErrMismatch) {
		m.fail(err)
	}
}

// dial connects to a rank to which this one sends something, until ctx ends.
func (m *Mesh) dial(ctx context.Context, rank int, addr string) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: m.ln.Addr().(*net.TCPAddr).IP}}
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp4", addr)
	if errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: rank %d does not listen at %s", ErrGone, rank, addr)
	}
	if err != nil {
		return fmt.Errorf("rank %d: %w", rank, err)
	}
	conn := c.(*net.TCPConn)
	m.mu.Lock()
	m.peers[rank].reached = true
	m.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	_, err = conn.Write(m.helloTo(rank))
	if err == nil {
		var who int
		if who, err = m.listen(conn); err == nil && who != rank {
			err = fmt.Errorf("it is rank %d", who)
		}
	}
	if broken(err) {
		err = fmt.Errorf("%w: it is not of this run of the job", ErrMismatch)
	}
	if err == nil && stop() {
		err = m.meet(rank, conn, false)
	}
	if err != nil {
		conn.Close()
		return fmt.Errorf("rank %d at %s: %w", rank, addr, err)
	}
	return nil
}

// meet begins to work with a rank, which sends on the connection or is sent something.
func (m *Mesh) meet(rank int, conn *net.TCPConn, in bool) error {
	conn.SetDeadline(time.Time{})
	near := conn.LocalAddr().(*net.TCPAddr).IP.Equal(conn.RemoteAddr().(*net.TCPAddr).IP)
	if !near {
		if err := limitRate(conn, m.cfg.Rate); err != nil {
			return fmt.Errorf("limit rate: %w", err)
		}
	}
	p := m.peers[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return net.ErrClosed
	case p == nil || in && (!p.gives || p.in != nil):
		return fmt.Errorf("%w: rank %d sends what the schedule does not know, or is there twice", ErrMismatch, rank)
	}
	p.near = near
	if in {
		p.in = conn
	} else {
		p.out = conn
		m.work.Go(func() { m.write(p) })
	}
	m.work.Go(func() { m.read(p, conn, in) })
	m.awake()
	return nil
}

// missing are the ranks with which there is a connection to come.
func (m *Mesh) missing() (ranks []int) {
	for rank, p := range m.peers {
		if p != nil && (p.gives && p.in == nil || p.takes && p.out == nil) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Connect finds the other ranks, by their addresses in order, until ctx is done or the timeout
// is over.
func (m *Mesh) Connect(ctx context.Context, addrs []string) error {
	if len(addrs) != len(m.peers) {
		return fmt.Errorf("%w: addresses of %d ranks, want %d", ErrConfig, len(addrs), len(m.peers))
	}
	defer context.AfterFunc(ctx, m.awake)()
	dialing, stop := context.WithCancel(ctx)
	var dials sync.WaitGroup
	defer dials.Wait()
	defer stop()
	for rank, p := range m.peers {
		if p != nil && p.takes {
			dials.Go(func() {
				if err := m.dial(dialing, rank, addrs[rank]); err != nil {
					m.fail(err)
				}
			})
		}
	}
	m.timer.Reset(m.cfg.Timeout)
	for {
		m.mu.Lock()
		missing, err := m.missing(), m.err
		if err == nil && len(missing) > 0 { // one that has gone has said why to who may hear it
			err = m.gone()
		}
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("mesh: connect: %w", err)
		case len(missing) == 0:
			m.ln.Close()
			return nil
		}
		select {
		case <-m.wake:
		case <-m.timer.C:
			return fmt.Errorf("mesh: connect: %w: %s", ErrSilent, m.lacking(missing, addrs))
		}
	}
}

// gone is why a rank that had connected is no more, if one is.
func (m *Mesh) gone() error {
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		if err := cmp.Or(p.inGone, p.outGone); err != nil {
			return rankError{p.rank, err}
		}
	}
	return nil
}

// lacking says which connections with ranks there are not.
func (m *Mesh) lacking(ranks []int, addrs []string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, rank := range ranks {
		p := m.peers[rank]
		if p.gives && p.in == nil {
			all = append(all, fmt.Sprintf("rank %d has not connected to this one at %s", rank, m.Addr()))
		}
		switch {
		case !p.takes || p.out != nil:
		case p.reached:
			all = append(all, fmt.Sprintf("rank %d at %s has taken a connection and not said who it is", rank, addrs[rank]))
		default:
			all = append(all, fmt.Sprintf("rank %d at %s takes no connection", rank, addrs[rank]))
		}
	}
	return strings.Join(all, "; ")
}

func rankList(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := make([]string, len(ranks))
	for i, r := range ranks {
		s[i] = fmt.Sprint(r)
	}
	return "ranks " + strings.Join(s, ", ")
}

// awake has whoever waits look again.
func (m *Mesh) awake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// fail ends the mesh, if nothing has yet.
func (m *Mesh) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed(err)
}

func (m *Mesh) failed(err error) {
	if m.err == nil {
		m.err = err
		m.awake()
		m.sent.Broadcast()
	}
}

// Close hangs up, which ends what is under way with an error here, and elsewhere if anybody
// still needs this rank. It may be called again.
func (m *Mesh) Close() {
	m.hangUp(net.ErrClosed)
	m.work.Wait()
}

// hangUp tells the others why, as far as there is room, and closes all connections.
func (m *Mesh) hangUp(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed(why)
	if m.closed {
		return
	}
	m.closed = true
	last := m.abort(m.err)
	m.total = m.traffic()
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		for _, c := range [2]*net.TCPConn{p.in, p.out} {
			if c == nil {
				continue
			}
			if last != nil && (c == p.in || !p.writing) {
				c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				c.Write(last) // who does not hear it finds out
			}
			c.Close()
		}
	}
	m.ln.Close()
	m.cancel()
}

// abort is what the others are told; nil: that this rank hangs up says all, as it has done all
// that was asked of it.
func (m *Mesh) abort(why error) []byte {
	h := message{kind: abortMessage, phase: uint16(m.cfg.Rank), index: m.op.Index, bytes: m.op.Bytes}
	var of rankError
	for i, code := range abortCodes {
		if errors.Is(why, code) {
			h.code = uint32(i)
		}
	}
	switch {
	case errors.As(why, &of):
		h.phase = uint16(of.rank)
	case m.step < 0:
		return nil
	}
	b := make([]byte, messageLen)
	h.put(b)
	return b
}

// aborted is what another rank has told. Who is said to be silent, and hears that, is not: it
// names whom it waits for itself, so that of a chain of ranks that wait the last one is blamed,
// whoever lost patience first.
func (m *Mesh) aborted(by int, h message) error {
	if int(h.phase) >= len(m.peers) || int(h.code) >= len(abortCodes) {
		return m.nonsense(by)
	}
	of := rankError{int(h.phase), fmt.Errorf("%w: rank %d", abortCodes[h.code], h.phase)}
	if of.rank != by {
		of.error = fmt.Errorf("%w, says rank %d", of.error, by)
	}
	if of.rank != m.cfg.Rank || abortCodes[h.code] != ErrSilent {
		return of
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	missing := slices.DeleteFunc(m.awaited(), func(rank int) bool { return rank == by })
	if len(missing) == 0 {
		return of
	}
	return rankError{missing[0], fmt.Errorf("%w: %s, when rank %d gave up on this one", ErrSilent, rankList(missing), by)}
}

// awaited are the ranks that a step waits for: those it receives from, then those it sends to.
func (m *Mesh) awaited() (ranks []int) {
	if m.step < 0 {
		return nil
	}
	s := &m.steps[m.step]
	for _, x := range s.receives {
		if x.peer.receiving {
			ranks = append(ranks, x.peer.rank)
		}
	}
	for _, x := range s.sends {
		if x.peer.sending && !slices.Contains(ranks, x.peer.rank) {
			ranks = append(ranks, x.peer.rank)
		}
	}
	return ranks
}

// nonsense is the error about a rank that says what no rank does.
func (m *Mesh) nonsense(rank int) error {
	return rankError{rank, fmt.Errorf("%w: rank %d says what makes no sense", ErrMismatch, rank)}
}

// Traffic is what has passed so far.
func (m *Mesh) Traffic() Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.total
	}
	return m.traffic()
}

func (m *Mesh) traffic() (t Traffic) {
	for _, p := range m.peers {
		if p != nil && p.in != nil {
			t.Add(traffic(p.in))
		}
		if p != nil && p.out != nil {
			t.Add(traffic(p.out))
		}
	}
	return t
}

// Fill makes this rank's gradients.
func (m *Mesh) Fill(op Op) {
	size := (op.Bytes + 3) &^ 3
	if int64(cap(m.vec)) < size {
		m.vec = make([]byte, size)
	}
	m.vec = m.vec[:size]
	fill(m.ref, m.cfg.Rank, m.cfg.Spoil, m.vec, op.PSN)
}

// edge is where a chunk begins: all are equally long, to a value.
func (m *Mesh) edge(chunk int) int {
	return len(m.vec) / 4 * chunk / m.cfg.Schedule.Chunks * 4
}

// Check compares what this rank has with the reference, and returns how many values that were,
// and how many differed.
func (m *Mesh) Check(op Op) (checked, wrong int64) {
	all := uint64(1)<<(len(m.peers)-1)<<1 - 1
	if !slices.ContainsFunc(m.held, func(ranks uint64) bool { return ranks != all }) {
		each(m.vec, op.PSN, func(b []byte, psn uint32) {
			checked += int64(len(b) / 4)
			wrong += int64(m.ref.Check(b, psn))
		})
		return checked, wrong
	}
	var sum, one [pieceLen]byte
	for c, ranks := range m.held {
		lo, hi := m.edge(c), m.edge(c+1)
		for at := lo / pieceLen * pieceLen; at < hi; at += pieceLen {
			clear(sum[:])
			for rank := range m.peers {
				if ranks>>rank&1 == 1 {
					m.ref.Fill(one[:], rank, op.PSN+uint32(at/pieceLen))
					add(sum[:], one[:])
				}
			}
			for i := max(lo, at); i < min(hi, at+pieceLen); i += 4 {
				checked++
				if !bytes.Equal(m.vec[i:i+4], sum[i-at:i-at+4]) {
					wrong++
				}
			}
		}
	}
	return checked, wrong
}

// Exchange does what the schedule says with what Fill made for the same op. It reports whether
// any rank wanted the job to end. Any error is final, and the other ranks get one too.
func (m *Mesh) Exchange(op Op) (stop bool, err error) {
	m.mu.Lock()
	m.op, m.stop = op, op.Stop
	m.mu.Unlock()
	for i := range m.steps {
		if err = m.do(i); err != nil {
			err = fmt.Errorf("mesh: operation %d of %d bytes, phase %d: %w", op.Index, op.Bytes, m.steps[i].phase, err)
			m.hangUp(err)
			m.work.Wait() // the vector is the caller's again
			return false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step = -1
	return m.stop, nil
}

// do does a step.
func (m *Mesh) do(i int) error {
	s := &m.steps[i]
	m.mu.Lock()
	m.step, m.left, m.sending, m.moved = i, len(s.sends)+len(s.receives), len(s.sends), time.Now()
	for _, x := range s.receives {
		x.peer.receiving = true
	}
	for _, x := range s.sends {
		x.peer.sending = true
	}
	op := m.op
	m.mu.Unlock()
	h := message{kind: readyMessage, phase: uint16(s.phase), index: op.Index, bytes: op.Bytes}
	for _, x := range s.receives {
		h.put(x.peer.tell[:])
		if _, err := x.peer.in.Write(x.peer.tell[:]); err != nil {
			m.lost(x.peer, true, err)
		}
	}
	for _, x := range s.sends {
		select {
		case x.peer.send <- i:
		case <-m.ctx.Done(): // and the writer with it
		}
	}
	m.timer.Reset(m.cfg.Timeout)
	for {
		over, err := m.check(s)
		if over || err != nil {
			return err
		}
		select {
		case <-m.wake:
		case <-m.timer.C:
			left, err := m.silent(s)
			if err != nil {
				return err
			}
			m.timer.Reset(left)
		}
	}
}

// check reports whether a step is over.
func (m *Mesh) check(s *meshStep) (over bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil || m.left == 0 {
		return m.err == nil, m.err
	}
	for _, all := range [2][]exchange{s.receives, s.sends} {
		for _, x := range all {
			p := x.peer
			var gone error
			if p.receiving {
				gone = p.inGone
			}
			if p.sending && !p.writing { // of that the writer knows more
				gone = cmp.Or(gone, p.outGone)
			}
			if gone != nil {
				m.failed(rankError{p.rank, gone})
				return false, m.err
			}
		}
	}
	return false, nil
}

// silent is an error when nothing has moved for too long, or how much longer it may be. Who
// only waits for others to come to this phase waits longer: those wait for somebody, too, and
// know better who that is.
func (m *Mesh) silent(s *meshStep) (left time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	patience := m.cfg.Timeout + m.cfg.Timeout/4
	for _, all := range [2][]exchange{s.receives, s.sends} {
		for _, x := range all {
			if x.peer.receiving || x.peer.begun {
				patience = m.cfg.Timeout
			}
		}
	}
	missing := m.awaited()
	if left = time.Until(m.moved.Add(patience)); left > 0 || len(missing) == 0 {
		return max(left, time.Millisecond), nil
	}
	err = fmt.Errorf("%w: %s: dead, stopped, or at another operation", ErrSilent, rankList(missing))
	m.failed(rankError{missing[0], err})
	return 0, err
}

// read takes what a rank says until it hangs up: transfers, or that it is there for one.
func (m *Mesh) read(p *peer, conn *net.TCPConn, in bool) {
	var b [messageLen]byte
	low := &p.low
	if !in {
		low = new(int)
	}
	for {
		if err := readFull(conn, low, b[:]); err != nil {
			m.lost(p, in, err)
			return
		}
		h, ok := parseMessage(b[:])
		var err error
		switch {
		case !ok || h.kind != abortMessage && in != (h.kind == transferMessage):
			err = m.nonsense(p.rank)
		case h.kind == abortMessage:
			err = m.aborted(p.rank, h)
		case h.kind == transferMessage:
			err = m.receive(p, h)
		case h.kind == cameMessage:
			err = m.arrived(p, h)
		default:
			select {
			case p.ready <- h:
			default: // it has not had what it said that it is there for
				err = m.nonsense(p.rank)
			}
		}
		if err != nil {
			m.fail(err)
			return
		}
	}
}

// agrees is an error if a rank is not where this one is, in a step.
func (m *Mesh) agrees(p *peer, h message, step int) error {
	mine := message{index: m.op.Index, bytes: m.op.Bytes}
	if step >= 0 {
		mine.phase = uint16(m.steps[step].phase)
		if h.index == mine.index && h.bytes == mine.bytes && h.phase == mine.phase {
			return nil
		}
	}
	return rankError{p.rank, fmt.Errorf("%w: rank %d is at %v; this rank at %v", ErrMismatch, p.rank, h, mine)}
}

// receive takes a transfer to where this rank said that it waits for it.
func (m *Mesh) receive(p *peer, h message) error {
	m.mu.Lock()
	err := m.agrees(p, h, m.step)
	if err == nil && !p.receiving {
		err = m.nonsense(p.rank)
	}
	m.stop = m.stop || h.stop
	i := m.step
	m.mu.Unlock()
	if err != nil {
		return err
	}
	s := &m.steps[i]
	x := s.receives[slices.IndexFunc(s.receives, func(x exchange) bool { return x.peer == p })]
	if s.staged {
		err = m.receiveStaged(x, h)
	} else if err = m.receiveParts(x); err == nil {
		err = m.got(p, h)
	}
	if err != nil {
		m.lost(p, true, err)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.receiving = false
	m.finished()
	return nil
}

// got tells a rank that all of a transfer has come.
func (m *Mesh) got(p *peer, h message) error {
	h.kind, h.stop = cameMessage, false
	h.put(p.ack[:])
	_, err := p.in.Write(p.ack[:])
	return err
}

// arrived is that a rank has what this one sent it.
func (m *Mesh) arrived(p *peer, h message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.agrees(p, h, m.step)
	switch {
	case err != nil:
	case !p.sending || p.came:
		err = m.nonsense(p.rank)
	case p.writing: // the writer does not know yet that it is done
		p.came = true
	default:
		m.delivered(p)
	}
	return err
}

// delivered counts a transfer of this rank.
func (m *Mesh) delivered(p *peer) {
	p.sending, p.begun, p.came = false, false, false
	if m.sending--; m.sending == 0 {
		m.sent.Broadcast()
	}
	m.finished()
}

func (m *Mesh) receiveParts(x exchange) error {
	p := x.peer
	for _, t := range x.parts {
		for vec := m.vec[m.edge(t.Lo):m.edge(t.Hi)]; len(vec) > 0; {
			to := vec[:min(len(vec), len(p.part))]
			vec = vec[len(to):]
			if !t.Add {
				if err := readFull(p.in, &p.low, to); err != nil {
					return err
				}
			} else {
				part := p.part[:len(to)]
				if err := readFull(p.in, &p.low, part); err != nil {
					return err
				}
				m.sum(to, part)
			}
			m.progress()
		}
	}
	return nil
}

// receiveStaged leaves the vector as it is until this rank has sent of it what it has to.
func (m *Mesh) receiveStaged(x exchange, h message) error {
	p, size := x.peer, 0
	for _, t := range x.parts {
		size += m.edge(t.Hi) - m.edge(t.Lo)
	}
	if cap(p.stage) < size {
		p.stage = make([]byte, size)
	}
	for at := 0; at < size; at += maxBlock {
		if err := readFull(p.in, &p.low, p.stage[at:min(at+maxBlock, size)]); err != nil {
			return err
		}
		m.progress()
	}
	if err := m.got(p, h); err != nil {
		return err
	}
	m.mu.Lock()
	for m.sending > 0 && m.err == nil {
		m.sent.Wait()
	}
	m.mu.Unlock()
	from := p.stage
	for _, t := range x.parts {
		to := m.vec[m.edge(t.Lo):m.edge(t.Hi)]
		if t.Add {
			m.sum(to, from[:len(to)])
		} else {
			copy(to, from)
		}
		from = from[len(to):]
	}
	return nil
}

// sum adds to the vector, as others may do.
func (m *Mesh) sum(to, from []byte) {
	m.adding.Lock()
	defer m.adding.Unlock()
	add(to, from)
}

func (m *Mesh) progress() {
	m.mu.Lock()
	m.moved = time.Now()
	m.mu.Unlock()
}

// finished counts a transfer.
func (m *Mesh) finished() {
	m.moved = time.Now()
	if m.left--; m.left == 0 {
		m.awake()
	}
}

// write sends a rank what it is there for.
func (m *Mesh) write(p *peer) {
	for {
		var i int
		var h message
		select {
		case i = <-p.send:
		case <-m.ctx.Done():
			return
		}
		select {
		case h = <-p.ready:
		case <-m.ctx.Done():
			return
		}
		m.mu.Lock()
		if err := m.agrees(p, h, i); err != nil {
			m.failed(err)
			m.mu.Unlock()
			return
		}
		h.kind, h.stop = transferMessage, m.stop
		p.writing, p.begun = true, true
		m.mu.Unlock()
		h.put(p.begin[:])
		s := &m.steps[i]
		err := m.transfer(s.sends[slices.IndexFunc(s.sends, func(x exchange) bool { return x.peer == p })])
		m.mu.Lock()
		p.writing = false
		if p.came {
			m.delivered(p)
		}
		m.awake() // whether the rank has hung up counts again
		m.mu.Unlock()
		if err != nil {
			m.lost(p, false, err)
			return
		}
	}
}

// transfer hands on what a rank waits for.
func (m *Mesh) transfer(x exchange) error {
	p := x.peer
	p.parts = append(p.parts[:0], p.begin[:])
	most := maxBlock
	paced := p.near && m.local.rate > 0
	if paced {
		most = m.local.begin(most)
	}
	for _, t := range x.parts {
		for b := m.vec[m.edge(t.Lo):m.edge(t.Hi)]; len(b) > 0; {
			n := min(len(b), most)
			if paced {
				m.local.wait(m.ctx, n)
			}
			p.parts = append(p.parts, b[:n])
			b = b[n:]
			p.blocks = p.parts
			if _, err := p.blocks.WriteTo(p.out); err != nil {
				return err
			}
			p.parts = p.parts[:0]
			m.progress()
		}
	}
	if len(p.parts) > 0 { // there was nothing but the header
		_, err := p.out.Write(p.begin[:])
		return err
	}
	return nil
}

// pacer says when what goes at a rate may go: all of a block when its last byte would.
type pacer struct {
	rate float64 // bit/s

	mu   sync.Mutex
	free time.Time // when what has begun is over
}

// pacedBlock is how long a block takes.
const pacedBlock = 4 * time.Millisecond

// begin begins a transfer, and returns the largest block of it.
func (p *pacer) begin(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.free.Before(now) {
		p.free = now
	}
	return max(4, min(most, int(p.rate/8*pacedBlock.Seconds())/4*4))
}

// wait returns when a block of so many bytes may go, or ctx ends. Who is late once need not
// be so at the next block.
func (p *pacer) wait(ctx context.Context, bytes int) {
	p.mu.Lock()
	p.free = p.free.Add(time.Duration(8 * float64(bytes) / p.rate * float64(time.Second)))
	left := time.Until(p.free)
	p.mu.Unlock()
	if left <= 0 {
		return
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// lost is that a connection is no more.
func (m *Mesh) lost(p *peer, in bool, err error) {
	if !broken(err) {
		err = fmt.Errorf("rank %d: %w", p.rank, err)
	} else {
		err = fmt.Errorf("%w: rank %d", ErrGone, p.rank)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if in {
		p.inGone = cmp.Or(p.inGone, err)
	} else {
		p.outGone = cmp.Or(p.outGone, err)
	}
	m.awake()
}

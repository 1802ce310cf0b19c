package softswitch

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/inabench/inabench/testbed/ina"
)

// headLen is how much of a frame each port has a copy of its own of: the headers
// down to INA's. The rest is shared between the ports of a multicast.
const headLen = ina.Overhead

const quantum = 1514 // bytes a DRR queue may send in its turn

const never = time.Duration(math.MaxInt64)

// buffer holds a frame as it was received or made.
type buffer struct {
	b    []byte // of the pool's frame size
	refs int
}

// packet is a frame on its way through one link.
type packet struct {
	next *packet
	buf  *buffer
	at   time.Duration // when it leaves the link it is in
	size int           // bytes of the frame
	job  uint16        // 0: not INA
	head [headLen]byte // beyond the switch: the frame's first bytes, as they leave this port
}

// list is a queue of packets.
type list struct{ first, last *packet }

func (l *list) push(p *packet) {
	p.next = nil
	if l.first == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

func (l *list) pop() *packet {
	p := l.first
	l.first = p.next
	p.next = nil
	return p
}

// due is when the first packet leaves.
func (l *list) due() time.Duration {
	if l.first == nil {
		return never
	}
	return l.first.at
}

// pool owns all packets and buffers, so that forwarding allocates only while it
// grows, and no further than its limit.
type pool struct {
	size    int // of a buffer
	left    int // buffers that may still be made
	packets *packet
	buffers []*buffer
}

const poolChunk = 256

// get returns a packet with a buffer of its own, or nil when the pool is empty.
func (o *pool) get() *packet {
	if len(o.buffers) == 0 {
		n := min(poolChunk, o.left)
		if n == 0 {
			return nil
		}
		o.left -= n
		slab, bufs := make([]byte, n*o.size), make([]buffer, n)
		for i := range bufs {
			bufs[i].b = slab[i*o.size : (i+1)*o.size : (i+1)*o.size]
			o.buffers = append(o.buffers, &bufs[i])
		}
	}
	p := o.packet()
	p.buf = o.buffers[len(o.buffers)-1]
	o.buffers = o.buffers[:len(o.buffers)-1]
	p.buf.refs = 1
	return p
}

// share returns another packet with p's buffer.
func (o *pool) share(p *packet) *packet {
	q := o.packet()
	q.buf, q.size, q.job = p.buf, p.size, p.job
	q.buf.refs++
	return q
}

func (o *pool) packet() *packet {
	if o.packets == nil {
		chunk := make([]packet, poolChunk)
		for i := range chunk {
			chunk[i].next = o.packets
			o.packets = &chunk[i]
		}
	}
	p := o.packets
	o.packets = p.next
	p.next, p.job = nil, 0
	return p
}

func (o *pool) put(p *packet) {
	if p.buf.refs--; p.buf.refs == 0 {
		o.buffers = append(o.buffers, p.buf)
	}
	p.buf = nil
	p.next = o.packets
	o.packets = p
}

// link is one direction of a cable in virtual time: a queue, a transmitter that
// takes size/rate per frame, and the wire. It never looks at a clock, so however
// late it is run, frames leave it at the times they should.
type link struct {
	cfg     LinkConfig
	port    *port
	ingress bool
	pool    *pool
	rng     *rand.Rand

	perByte float64 // ns; 0: unlimited
	busy    time.Duration
	frac    float64       // of a ns, carried to the next frame
	serving int           // bytes of the frame the transmitter has until busy
	work    Cable         // what it had to carry, until it was last without a frame
	told    Cable         // what worked was when it was last asked
	began   time.Duration // when it last got a frame while it was without one

	queued  int      // bytes in all queues
	classes []*class // fifo: one
	active  *class   // drr: last of the ring of queues that have packets
	fair    bool
	sab     *saboteur         // nil: nothing is wrong with it on purpose
	byJob   []uint16          // drr: job -> index of its queue in classes, which is 0 for what is of none
	byFlow  map[uint32]uint16 // drr-flow: the same by flow

	line list // on the wire, in the order they leave it
	held list // held back by the reorder impairment

	next time.Duration // of the next event
	pos  int           // in the engine's heap
}

// class is a queue of a link.
type class struct {
	list
	bytes   int
	deficit int
	after   *class // next in the ring of active queues; nil when not in it
}

func newLink(cfg LinkConfig, p *port, ingress bool, o *pool, seed uint64) *link {
	cfg.Buffer = cmp.Or(cfg.Buffer, 1<<20)
	stream := uint64(p.number)<<1 | 1
	if ingress {
		stream--
	}
	l := &link{cfg: cfg, port: p, ingress: ingress, pool: o, rng: rand.New(rand.NewPCG(seed, stream)), next: never, pos: -1}
	if cfg.Rate > 0 {
		l.perByte = 8e9 / cfg.Rate
	}
	l.classes = []*class{{}}
	switch cfg.Discipline {
	case "drr":
		l.fair, l.byJob = true, make([]uint16, ina.MaxJob+1)
	case "drr-flow":
		l.fair, l.byFlow = true, map[uint32]uint16{}
	}
	return l
}

// class is the queue that a packet belongs into.
func (l *link) class(p *packet) *class {
	if !l.fair {
		return l.classes[0]
	}
	if l.byJob != nil {
		job := p.job
		if job == 0 {
			job = ownerOf(p.buf.b[:p.size])
		}
		if job == 0 {
			return l.classes[0]
		}
		i := &l.byJob[job]
		if *i == 0 {
			*i = l.open()
		}
		return l.classes[*i]
	}
	f := flowOf(p)
	if f == 0 {
		return l.classes[0]
	}
	i := l.byFlow[f]
	if i == 0 {
		i = l.open()
		l.byFlow[f] = i
	}
	return l.classes[i]
}

// open makes another queue; whoever comes when there are as many as can be shares the
// one of what is of no job or flow.
func (l *link) open() uint16 {
	if len(l.classes) > math.MaxUint16 {
		return 0
	}
	l.classes = append(l.classes, &class{})
	return uint16(len(l.classes) - 1)
}

// flowOf is whose a packet is. Of INA: a job's sender's, which is a worker or, for sums, all switches together, or the
// job's results. 0: nobody's.
func flowOf(p *packet) uint32 {
	if p.job == 0 {
		return hostFlow(p.buf.b[:p.size])
	}
	b := p.buf.b[payloadAt:]
	f := uint32(p.job) | uint32(b[12])<<16
	if ina.Flags(b[1])&ina.FlagResult != 0 {
		f = uint32(p.job) | resultsFlow
	}
	return f
}

// resultsFlow is of a job's results.
const resultsFlow = 1 << 24

// tcpFlows is how many connections have a queue of their own; more share those, by chance.
const tcpFlows = 1 << 12

// hostFlow is the flow of a frame that the switch has nothing to do with but to forward it: a job's results for one
// worker, where a PS sends to one after the other, or a connection of TCP, one way, of which there are tcpFlows. 0: it is
// neither.
func hostFlow(frame []byte) uint32 {
	protocol, addresses, ports := ends(frame)
	switch protocol {
	case protocolUDP:
		if job := resultsOf(ports); job != 0 {
			h := hash(addresses[4:])
			return uint32(job) | resultsFlow | h&0xff<<16 | h>>8&0x3f<<25
		}
	case protocolTCP:
		return 1<<31 | hash(addresses, ports)%tcpFlows
	}
	return 0
}

// hash is FNV-1a's, folded.
func hash(parts ...[]byte) uint32 {
	h := uint32(2166136261)
	for _, part := range parts {
		for _, b := range part {
			h = (h ^ uint32(b)) * 16777619
		}
	}
	return h ^ h>>12
}

// ownerOf is the job of a frame that the switch has nothing to do with but to forward it, by its
// ports; 0: it is of none.
func ownerOf(frame []byte) uint16 {
	protocol, _, ports := ends(frame)
	switch protocol {
	case protocolUDP:
		return resultsOf(ports)
	case protocolTCP:
		return ringOf(ports)
	}
	return 0
}

// resultsOf is the job whose result goes from one UDP port to the other, from a PS to one worker, as the ps
// collective has it; 0: none does.
func resultsOf(ports []byte) uint16 {
	from, to := binary.BigEndian.Uint16(ports), binary.BigEndian.Uint16(ports[2:])
	if job := to & ina.MaxJob; from == ina.UpPortBase|job && to == ina.DownPortBase|job {
		return job
	}
	return 0
}

// ringOf is the job of the ring whose connection two TCP ports are of, gradients or acknowledgements;
// 0: they are of none.
func ringOf(ports []byte) uint16 {
	for _, b := range [2][]byte{ports[2:], ports[:2]} { // gradients go to it
		if port := binary.BigEndian.Uint16(b); port&^ina.MaxJob == ina.RingPortBase {
			return port & ina.MaxJob
		}
	}
	return 0
}

// Protocols of IPv4.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// ends are the protocol, the two addresses and the two ports of a frame of TCP or UDP; 0 if it is of neither,
// or a fragment.
func ends(frame []byte) (protocol byte, addresses, ports []byte) {
	const ip, from = 14, 14 + 12
	if len(frame) < ip+20 || frame[12] != 0x08 || frame[13] != 0 || frame[ip+6]&0x3f != 0 || frame[ip+7] != 0 {
		return 0, nil, nil
	}
	protocol = frame[ip+9]
	at := ip + 4*int(frame[ip]&0xf)
	if protocol != protocolTCP && protocol != protocolUDP || at < ip+20 || len(frame) < at+4 {
		return 0, nil, nil
	}
	return protocol, frame[from : from+8], frame[at : at+4]
}

// enqueue takes a frame that reached the queue at t.
func (l *link) enqueue(p *packet, t time.Duration) {
	if l.perByte == 0 {
		l.carry(p, t)
		return
	}
	for l.queued > 0 && l.busy <= t { // what the transmitter did before t
		l.serve()
	}
	c := l.class(p)
	backlog := l.queued
	if t < l.busy {
		backlog += l.serving
	}
	met := backlog
	if l.fair {
		met = c.bytes
	}
	if l.cfg.ECN > 0 && met > l.cfg.ECN && l.mark(p) {
		l.port.count(PortMarked, p.size)
	}
	for backlog+p.size > l.cfg.Buffer {
		v := l.longest(c, p.size)
		if v == nil {
			l.port.overflows++
			l.drop(p)
			return
		}
		backlog -= l.dropHead(v)
	}
	c.push(p)
	c.bytes += p.size
	l.queued += p.size
	if !l.ingress {
		l.port.peak = max(l.port.peak, int64(backlog+p.size))
	}
	if l.fair && c.after == nil {
		c.deficit = 0
		if l.active == nil {
			c.after = c
		} else {
			c.after = l.active.after
			l.active.after = c
		}
		l.active = c
	}
	if t >= l.busy {
		l.work.Waited += l.busy - l.began
		l.began = t
		l.busy, l.frac = t, 0
		l.serve()
	}
}

// worked is what the link has carried by now, the frame that is being sent among it, and how long it had, or has, one to carry.
func (l *link) worked(now time.Duration) Cable {
	w, until := l.work, l.busy
	if l.queued > 0 {
		until = max(until, now)
	}
	w.Waited += until - l.began
	return w
}

// longest is the queue that must give way to size more bytes in c: the longest of
// the fair queues, or nil for the arriving frame itself.
func (l *link) longest(c *class, size int) *class {
	var v *class
	most := c.bytes + size
	for _, o := range l.classes {
		if o != c && o.bytes > most {
			v, most = o, o.bytes
		}
	}
	return v
}

func (l *link) dropHead(c *class) int {
	p := c.pop()
	size := p.size
	c.bytes -= size
	l.queued -= size
	if c.first == nil {
		l.deactivate(c)
	}
	l.port.overflows++
	l.drop(p)
	return size
}

func (l *link) deactivate(c *class) {
	before := c
	for before.after != c {
		before = before.after
	}
	if before == c {
		l.active = nil
	} else {
		before.after = c.after
		if l.active == c {
			l.active = before
		}
	}
	c.after = nil
}

// serve starts sending the next frame at l.busy.
func (l *link) serve() {
	c := l.classes[0]
	if l.fair {
		// Deficit round robin (Shreedhar, Varghese, SIGCOMM 1995). A queue whose turn
		// comes is first in the ring; it gets its quantum when its turn begins.
		for c = l.active.after; c.deficit < c.first.size; c = l.active.after {
			c.deficit += quantum
			if c.deficit >= c.first.size {
				break
			}
			l.active = c
		}
	}
	p := c.pop()
	c.bytes -= p.size
	l.queued -= p.size
	if l.fair {
		c.deficit -= p.size
		switch {
		case c.first == nil:
			l.deactivate(c)
		case c.deficit < c.first.size:
			l.active = c // its turn ends
		}
	}
	l.serving = p.size
	l.work.Carried += int64(p.size)
	l.work.Largest = max(l.work.Largest, p.size)
	ns := float64(p.size)*l.perByte + l.frac
	whole := math.Floor(ns)
	l.busy += time.Duration(whole)
	l.frac = ns - whole
	l.carry(p, l.busy)
}

// carry puts a frame on the wire that was sent completely at t.
func (l *link) carry(p *packet, t time.Duration) {
	p.at = t + l.cfg.Delay
	if l.sab != nil && !l.sab.carry(l, p) {
		return
	}
	if im := &l.cfg.Impair; im.Loss > 0 || im.Duplicate > 0 || im.Reorder > 0 {
		lost, twice, late := l.rng.Float64() < im.Loss, l.rng.Float64() < im.Duplicate, l.rng.Float64() < im.Reorder
		if lost {
			l.drop(p)
			return
		}
		if twice {
			q := l.pool.share(p)
			q.head, q.at = p.head, p.at
			c := PortTxDup
			if l.ingress {
				c = PortRxDup
				// What the switch does to one must not show in the other.
				q = l.pool.clone(q)
			}
			if q != nil {
				l.port.count(c, p.size)
				l.line.insert(q)
			}
		}
		if late {
			p.at += im.ReorderBy
			l.held.insert(p)
			return
		}
	}
	l.line.insert(p)
}

// insert keeps the list in order of time; at its end, unless a delay has changed.
func (l *list) insert(p *packet) {
	if l.first == nil || l.last.at <= p.at {
		l.push(p)
		return
	}
	at := &l.first
	for (*at).at <= p.at {
		at = &(*at).next
	}
	p.next = *at
	*at = p
}

// clone gives p a buffer of its own; nil, and p is gone, when the pool is empty.
func (o *pool) clone(p *packet) *packet {
	q := o.get()
	if q != nil {
		copy(q.buf.b, p.buf.b[:p.size])
		q.size, q.job, q.at, q.head = p.size, p.job, p.at, p.head
	}
	o.put(p)
	return q
}

func (l *link) drop(p *packet) {
	c := PortTxDrop
	if l.ingress {
		c = PortRxDrop
	}
	l.port.count(c, p.size)
	l.pool.put(p)
}

// step does what is next on the link, at l.next, and returns the frame that left
// it, if one did.
func (l *link) step() *packet {
	wire := min(l.line.due(), l.held.due())
	switch {
	case l.queued > 0 && l.busy <= wire:
		l.serve()
		return nil
	case l.held.due() < l.line.due():
		return l.held.pop()
	default:
		return l.line.pop()
	}
}

// before orders links by their next event; at the same time by port, so that a run
// is the same however often the engine was woken in it.
func (l *link) before(o *link) bool {
	switch {
	case l.next != o.next:
		return l.next < o.next
	case l.port != o.port:
		return l.port.number < o.port.number
	}
	return l.ingress && !o.ingress
}

// schedule recomputes l.next.
func (l *link) schedule() {
	l.next = min(l.line.due(), l.held.due())
	if l.queued > 0 {
		l.next = min(l.next, l.busy)
	}
}

// mark sets Congestion Experienced (RFC 3168) in a frame, and the INA header's own
// flag, and reports whether it did: it leaves alone what did not offer ECN, except
// INA, which always understands its flag.
func (l *link) mark(p *packet) bool {
	b := p.head[:]
	if l.ingress {
		b = p.buf.b[:headLen]
	}
	if p.size < 34 || binary.BigEndian.Uint16(b[12:]) != etherIPv4 {
		return false
	}
	if p.job != 0 {
		b[42+1] |= byte(ina.FlagECN)
	} else if b[15]&3 == 0 {
		return false
	}
	// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
	old := binary.BigEndian.Uint16(b[14:])
	b[15] |= 3
	s := uint32(^binary.BigEndian.Uint16(b[24:])) + uint32(^old) + uint32(binary.BigEndian.Uint16(b[14:]))
	s = s&0xFFFF + s>>16
	s = s&0xFFFF + s>>16
	binary.BigEndian.PutUint16(b[24:], ^uint16(s))
	return true
}

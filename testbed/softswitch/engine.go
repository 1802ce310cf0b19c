package softswitch

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
)

// count is a number of frames and their bytes.
type count struct{ packets, bytes int64 }

// port is a port's place in the engine; its sockets are in package-private ring.
type port struct {
	number   uint32
	other    *port // where all frames go: a port's cable ends in another switch, or that switch's in here
	ingress  *link
	egress   *link
	counters [JobIn]count
	peak     int64 // bytes in the egress queue at its longest

	overflows int64 // frames dropped for a full queue, of either direction

	tx []*packet // due, not yet written to the device
}

func (p *port) count(c Counter, size int) {
	p.counters[c].packets++
	p.counters[c].bytes += int64(size)
}

// engine is the whole switch and its cables without their sockets: frames go in
// with the time they arrived and come out with the time they are due. It runs in
// virtual time, does not allocate once its pool has grown, and is not safe for
// concurrent use.
type engine struct {
	ina    *ina.Switch
	pool   *pool
	ports  []*port // ascending
	inner  []*port // towards another switch, whose cables this is
	every  []*port // both
	byPort map[uint32]*port
	routes map[[4]byte]route
	groups map[uint16][]*port
	heap   []*link // by next event
	now    time.Duration
	starve int64 // frames dropped because the pool was empty
	unseen int64 // of these, what the switch itself was to send: no port counts it

	sab     *saboteur // nil: the switch does nothing wrong on purpose
	sabLink *link     // that has a saboteur

	// emit takes a frame that is due at p.at; it owns p until it puts it back.
	emit func(*port, *packet)
}

type route struct {
	port *port
	mac  [6]byte
}

const maxBuffers = 1 << 16

func newEngine(cfg Config) (*engine, error) {
	cfg.MTU = cmp.Or(cfg.MTU, 1514)
	if cfg.MTU < ina.Overhead+4*ina.MaxLanes || cfg.MTU > 16<<10 {
		return nil, blame.Switch(cfg.Name, fmt.Errorf("mtu %d outside %d..%d", cfg.MTU, ina.Overhead+4*ina.MaxLanes, 16<<10))
	}
	if cfg.Aggregators < 0 || cfg.Aggregators > 1<<20 {
		return nil, blame.Switch(cfg.Name, fmt.Errorf("%d aggregators outside 0..%d", cfg.Aggregators, 1<<20))
	}
	e := &engine{
		ina:    ina.NewSwitch(cfg.Aggregators),
		pool:   &pool{size: (cfg.MTU + 63) &^ 63, left: maxBuffers},
		byPort: make(map[uint32]*port),
		routes: make(map[[4]byte]route),
		groups: make(map[uint16][]*port),
	}
	limits, err := cfg.Exclusive.limits()
	if err == nil {
		err = e.ina.Limit(limits)
	}
	if err != nil {
		return nil, blame.Switch(cfg.Name, fmt.Errorf("exclusive trees: %w", err))
	}
	if err := e.ina.Load(cfg.Program); err != nil {
		return nil, blame.Switch(cfg.Name, err)
	}
	for _, pc := range cfg.Ports {
		if e.byPort[pc.Number] != nil || pc.Number == 0 {
			return nil, blame.Switch(cfg.Name, fmt.Errorf("port number %d is used twice or zero", pc.Number))
		}
		for dir, l := range map[string]LinkConfig{"egress": pc.Egress, "ingress": pc.Ingress} {
			if err := l.check(); err != nil {
				return nil, blame.Switch(cfg.Name, fmt.Errorf("port %d: %s: %w", pc.Number, dir, err))
			}
		}
		p := &port{number: pc.Number}
		p.ingress = newLink(pc.Ingress, p, true, e.pool, cfg.Seed)
		p.egress = newLink(pc.Egress, p, false, e.pool, cfg.Seed)
		e.byPort[pc.Number] = p
		e.ports = append(e.ports, p)
		if (pc.Inner != "") != (cfg.Ports[0].Inner != "") {
			return nil, blame.Switch(cfg.Name, fmt.Errorf("port %d: all ports lead to another switch, or none", pc.Number))
		}
		if pc.Inner != "" {
			p.other = &port{number: pc.Number, other: p}
			p.other.ingress = newLink(LinkConfig{}, p.other, true, e.pool, cfg.Seed)
			p.other.egress = newLink(LinkConfig{}, p.other, false, e.pool, cfg.Seed)
			e.inner = append(e.inner, p.other)
		}
	}
	slices.SortFunc(e.ports, func(a, b *port) int { return int(int64(a.number) - int64(b.number)) })
	e.every = slices.Concat(e.ports, e.inner)
	return e, nil
}

// direction is one of the two of the cable at a port: "ingress" or "egress".
func (e *engine) direction(port uint32, dir string) (*link, error) {
	p := e.byPort[port]
	switch {
	case p == nil:
		return nil, fmt.Errorf("no port %d", port)
	case dir == "ingress":
		return p.ingress, nil
	case dir == "egress":
		return p.egress, nil
	}
	return nil, fmt.Errorf("direction %q is neither ingress nor egress", dir)
}

// cables are what links with a rate had to carry since the last call, of those that had anything.
func (e *engine) cables() (out []Cable) {
	for _, p := range e.ports {
		for _, l := range []*link{p.ingress, p.egress} {
			if l.cfg.Rate == 0 {
				continue
			}
			now := l.worked(e.now)
			c := Cable{Port: p.number, Ingress: l.ingress, Carried: now.Carried - l.told.Carried, Waited: now.Waited - l.told.Waited, Largest: now.Largest}
			l.told = now
			if c.Waited > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}

func (c LinkConfig) check() error {
	switch {
	case !(c.Rate >= 0) || c.Delay < 0 || c.Buffer < 0 || c.ECN < 0:
		return fmt.Errorf("negative rate, delay, buffer or ecn threshold")
	case c.Discipline != "" && c.Discipline != "fifo" && c.Discipline != "drr" && c.Discipline != "drr-flow":
		return fmt.Errorf("discipline %q is not fifo, drr or drr-flow", c.Discipline)
	}
	return c.Impair.check()
}

func (i Impair) check() error {
	for name, p := range map[string]float64{"loss": i.Loss, "duplicate": i.Duplicate, "reorder": i.Reorder} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("%s %v outside 0..1", name, p)
		}
	}
	if i.ReorderBy < 0 {
		return fmt.Errorf("reorder_by %v is negative", i.ReorderBy)
	}
	return nil
}

// setJob installs an entry. The ports of an exclusive tree are those of its multicast
// group now, and the one towards its root.
func (e *engine) setJob(j ina.JobEntry) error {
	if j.Mode != ina.Exclusive {
		return e.ina.SetJob(j)
	}
	var ports []uint32
	for _, p := range e.groups[j.DownGroup] {
		ports = append(ports, p.number)
	}
	if len(ports) == 0 {
		return fmt.Errorf("%w: job %d: multicast group %d is not there or empty: first write the ports of the exclusive tree towards workers", ina.ErrEntry, j.Job, j.DownGroup)
	}
	if !j.Root {
		if e.byPort[j.UpPort] == nil {
			return fmt.Errorf("%w: job %d: the exclusive tree goes up through port %d, which the switch lacks", ina.ErrEntry, j.Job, j.UpPort)
		}
		ports = append(ports, j.UpPort)
	}
	return e.ina.SetJob(j, ports...)
}

// receive copies a frame that arrived at t into the far end's side of the cable.
func (e *engine) receive(in *port, frame []byte, t time.Duration) {
	in.count(PortRx, len(frame))
	p := (*packet)(nil)
	if len(frame) <= e.pool.size {
		p = e.pool.get()
	}
	if p == nil {
		e.starve++
		in.count(PortRxDrop, len(frame))
		return
	}
	p.size = copy(p.buf.b, frame)
	p.job = jobOf(p.buf.b[:p.size])
	l := in.ingress
	l.enqueue(p, t)
	e.reschedule(l)
}

// run does everything that happens until horizon, in order of time.
func (e *engine) run(horizon time.Duration) {
	for len(e.heap) > 0 && e.heap[0].next <= horizon {
		l := e.heap[0]
		e.now = max(e.now, l.next)
		p := l.step()
		if p != nil && !l.ingress {
			e.emit(l.port, p)
		}
		e.reschedule(l)
		if p != nil && l.ingress {
			e.forward(l.port, p, p.at)
		}
	}
}

// next is when something happens again.
func (e *engine) next() time.Duration {
	if len(e.heap) == 0 {
		return never
	}
	return e.heap[0].next
}

// jobOf is the job whose INA packet a frame is, or 0. INA is IPv4 without options,
// UDP, to the group and port of the job, in either direction.
func jobOf(b []byte) uint16 {
	if len(b) < headLen || binary.BigEndian.Uint16(b[12:]) != etherIPv4 || b[14] != 0x45 || b[23] != 17 ||
		binary.BigEndian.Uint16(b[20:])&0x3FFF != 0 || b[30] != 239 {
		return 0
	}
	dst := binary.BigEndian.Uint16(b[36:])
	job := dst & ina.MaxJob
	group := [4]byte(b[30:34])
	if group == ina.UpGroup(job) && dst == ina.UpPortBase|job || group == ina.DownGroup(job) && dst == ina.DownPortBase|job {
		return job
	}
	return 0
}

// forward is the switch proper: a frame that has come out of port in's cable at t.
func (e *engine) forward(in *port, p *packet, t time.Duration) {
	if in.other != nil {
		e.send(in.other, p, t)
		return
	}
	if p.job != 0 {
		e.aggregate(in, p, t)
		return
	}
	b := p.buf.b[:p.size]
	if len(b) >= 34 && binary.BigEndian.Uint16(b[12:]) == etherIPv4 {
		if r, ok := e.routes[[4]byte(b[30:34])]; ok {
			copy(b, r.mac[:])
			e.send(r.port, p, t)
			return
		}
	}
	if len(b) >= 14 && binary.BigEndian.Uint16(b[12:]) == etherARP {
		if to := e.groups[p4.FloodGroup(in.number)]; len(to) > 0 {
			e.multicast(to, p, t)
			return
		}
	}
	in.count(PortNoRoute, p.size)
	e.pool.put(p)
}

const payloadAt = headLen - ina.HeaderLen // Ethernet, IPv4, UDP

func (e *engine) aggregate(in *port, p *packet, t time.Duration) {
	b := p.buf.b[:p.size]
	end := 14 + int(binary.BigEndian.Uint16(b[16:]))
	down := binary.BigEndian.Uint16(b[36:])&0x1000 == 0
	if end > p.size || end < headLen ||
		binary.BigEndian.Uint16(b[payloadAt+2:]) != p.job ||
		ina.Flags(b[payloadAt+1])&ina.FlagResult != 0 != down {
		in.count(PortNoRoute, p.size)
		e.pool.put(p)
		return
	}
	binary.BigEndian.PutUint16(b[40:], 0) // UDP checksum: the switch changes what it covers
	payload := b[payloadAt:end]
	if e.sab != nil && !e.sab.arrive(e, p.job, payload) {
		e.pool.put(p)
		return
	}
	v := e.ina.Process(in.number, payload, e.now)
	if v.Reason == ina.NoJob {
		in.count(PortNoRoute, p.size)
	}
	kept := false
	for i := range v.Out[:v.N] {
		o := &v.Out[i]
		q := p
		if &o.Data[0] == &payload[0] {
			kept = true
		} else if q = e.frame(p, o); q == nil {
			e.starve, e.unseen = e.starve+1, e.unseen+1
			continue
		}
		to := e.groups[o.Group]
		if e.sab != nil {
			send, twice := e.sab.leave(e, q.buf.b[payloadAt:q.size], &v, o)
			if !send {
				e.pool.put(q)
				continue
			}
			if o.Dir == ina.Down {
				to = e.sab.downTo(e, to)
			}
			if twice {
				e.output(in, o, to, e.pool.clone(e.pool.share(q)), t)
			}
		}
		e.output(in, o, to, q, t)
	}
	if !kept {
		e.pool.put(p)
	}
}

// output sends what the switch makes of a packet that came in at a port.
func (e *engine) output(in *port, o *ina.Output, group []*port, q *packet, t time.Duration) {
	switch to := e.byPort[o.Port]; {
	case q == nil: // no memory for it
		e.starve, e.unseen = e.starve+1, e.unseen+1
	case o.Dir == ina.Down:
		e.multicast(group, q, t)
	case to != nil:
		e.send(to, q, t)
	default:
		in.count(PortNoRoute, q.size)
		e.pool.put(q)
	}
}

// frame wraps what the switch itself sends in headers like those of the packet
// that caused it.
func (e *engine) frame(cause *packet, o *ina.Output) *packet {
	q := e.pool.get()
	if q == nil {
		return nil
	}
	q.job = cause.job
	q.size = payloadAt + len(o.Data)
	b := q.buf.b
	copy(b, cause.buf.b[:payloadAt])
	copy(b[payloadAt:], o.Data)
	if o.Dir != ina.Up {
		g := ina.DownGroup(q.job)
		copy(b, []byte{0x01, 0x00, 0x5E, g[1] & 0x7F, g[2], g[3]}) // RFC 1112, section 6.4
		copy(b[26:], resultSource[:])
		copy(b[30:], g[:])
		binary.BigEndian.PutUint16(b[34:], ina.UpPortBase|q.job)
		binary.BigEndian.PutUint16(b[36:], ina.DownPortBase|q.job)
	}
	b[15] &^= 3
	binary.BigEndian.PutUint16(b[16:], uint16(q.size-14))
	binary.BigEndian.PutUint16(b[38:], uint16(q.size-34))
	binary.BigEndian.PutUint16(b[40:], 0)
	setIPChecksum(b[14:34])
	return q
}

// resultSource is the source address of results that a synchronous root makes: the
// IPv4 dummy address (RFC 7600), since a host drops what claims to come from itself.
var resultSource = [4]byte{192, 0, 0, 8}

func setIPChecksum(h []byte) {
	binary.BigEndian.PutUint16(h[10:], 0)
	var s uint32
	for i := 0; i < len(h); i += 2 {
		s += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	s = s&0xFFFF + s>>16
	s = s&0xFFFF + s>>16
	binary.BigEndian.PutUint16(h[10:], ^uint16(s))
}

func (e *engine) multicast(to []*port, p *packet, t time.Duration) {
	if len(to) == 0 {
		e.pool.put(p)
		return
	}
	for _, o := range to[1:] {
		e.send(o, e.pool.share(p), t)
	}
	e.send(to[0], p, t)
}

func (e *engine) send(to *port, p *packet, t time.Duration) {
	copy(p.head[:], p.buf.b[:min(p.size, headLen)])
	l := to.egress
	l.enqueue(p, t)
	// A cable without rate and delay needs no event.
	for l.queued == 0 && l.line.due() <= e.now && l.held.first == nil {
		e.emit(to, l.line.pop())
	}
	e.reschedule(l)
}

// reschedule puts l in its place in the heap after it changed.
func (e *engine) reschedule(l *link) {
	l.schedule()
	if l.next == never {
		if l.pos >= 0 {
			last := len(e.heap) - 1
			o := e.heap[last]
			i := l.pos
			e.heap = e.heap[:last]
			l.pos = -1
			if o != l {
				e.place(o, i)
				e.fix(i)
			}
		}
		return
	}
	if l.pos < 0 {
		e.heap = append(e.heap, l)
		l.pos = len(e.heap) - 1
	}
	e.fix(l.pos)
}

func (e *engine) place(l *link, i int) { e.heap[i], l.pos = l, i }

func (e *engine) fix(i int) {
	l := e.heap[i]
	for i > 0 && l.before(e.heap[(i-1)/2]) {
		e.place(e.heap[(i-1)/2], i)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(e.heap) {
			break
		}
		if c+1 < len(e.heap) && e.heap[c+1].before(e.heap[c]) {
			c++
		}
		if !e.heap[c].before(l) {
			break
		}
		e.place(e.heap[c], i)
		i = c
	}
	e.place(l, i)
}

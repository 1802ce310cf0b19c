package softswitch

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sabotage"
)

// saboteur makes a switch, or one of its links, do one thing wrong; see testbed/sabotage. The
// engine and the link have nil where they do all things right, and that is all that they ask.
type saboteur struct {
	act    sabotage.Act
	from   time.Duration // when it begins; never until the first traffic
	count  sabotage.Counter
	acted  int64
	rng    *rand.Rand
	newest [ina.MaxJob + 1]newest // of each job
	first  uint16                 // job that it saw
	lost   map[psnOf]bool         // that it dropped

	slowed bool // of a link
	told   map[reading]count
	woke   time.Time // of a switch that is late
}

// newest is how far a job has come.
type newest struct {
	epoch uint16
	any   bool
	psn   uint32
}

// psnOf is a PSN of a job.
type psnOf struct {
	job, epoch uint16
	psn        uint32
}

// reading is a counter that was read.
type reading struct {
	c     Counter
	index int
}

func newSaboteur(act sabotage.Act, seed uint64) *saboteur {
	return &saboteur{
		act: act, from: never, rng: rand.New(rand.NewPCG(seed, 0x5ab07a6e)),
		lost: map[psnOf]bool{}, told: map[reading]count{},
	}
}

// sabotage gives the switch, or the link at a port, a fault in place of any earlier; an act
// without a name takes it away. It says how often the earlier one has acted.
func (e *engine) sabotage(act sabotage.Act, seed uint64) (acted int64, err error) {
	acted = e.sabotaged()
	f, _ := sabotage.Find(act.Fault)
	l := (*link)(nil)
	switch {
	case act.Fault == "":
	case f.At == sabotage.Switch:
		if len(e.inner) > 0 {
			return acted, fmt.Errorf("fault %s: another switch is behind these cables", act.Fault)
		}
	case f.At == sabotage.Link || f.At == sabotage.Queue:
		if l, err = e.direction(act.Port, act.Dir); err != nil {
			return acted, fmt.Errorf("fault %s: %w", act.Fault, err)
		}
	default:
		return acted, fmt.Errorf("fault %q: not of a switch or its cables", act.Fault)
	}
	e.sab = nil
	if e.sabLink != nil {
		e.sabLink.mend()
		e.sabLink = nil
	}
	switch {
	case l != nil:
		l.sab, e.sabLink = newSaboteur(act, seed), l
	case act.Fault != "":
		e.sab = newSaboteur(act, seed)
	}
	return acted, nil
}

// sabotaged is how often the fault has acted.
func (e *engine) sabotaged() int64 {
	switch {
	case e.sab != nil:
		return e.sab.acted
	case e.sabLink != nil:
		return e.sabLink.sab.acted
	}
	return 0
}

// begun reports whether the fault is on at now, when there is traffic.
func (s *saboteur) begun(now time.Duration) bool {
	if s.from == never {
		s.from = now + s.act.After
	}
	return now >= s.from
}

// next reports whether the fault acts on the next of the things that it is about.
func (s *saboteur) next() bool {
	if !s.count.Next(s.act.Every) {
		return false
	}
	s.acted++
	return true
}

// arrive is what happens to an INA packet of a job before it is processed. False: the packet
// is gone.
func (s *saboteur) arrive(e *engine, job uint16, b []byte) bool {
	if !s.begun(e.now) {
		s.note(job, b)
		return true
	}
	h, err := ina.ParseHeader(b)
	if err != nil {
		return true
	}
	up, lanes := h.Flags&ina.FlagResult == 0, b[ina.HeaderLen:ina.HeaderLen+4*int(h.Lanes)]
	fresh := up && s.note(job, b)
	switch s.act.Fault {
	case "flip-lanes":
		if up && len(lanes) > 0 && s.next() {
			s.flip(lanes)
		}
	case "flip-headers":
		if s.next() {
			s.flip(b[:ina.HeaderLen])
		}
	case "double-count":
		if up && len(lanes) > 0 && s.next() {
			for i := 0; i < len(lanes); i += 4 {
				binary.BigEndian.PutUint32(lanes[i:], 2*binary.BigEndian.Uint32(lanes[i:]))
			}
		}
	case "release-early":
		if entry, ok := e.ina.Job(job); ok && fresh && h.Bitmap != entry.Expect && s.next() {
			h.Bitmap = entry.Expect
			h.Put(b)
		}
	case "release-never":
		if !up && s.count.Next(s.act.Every) && e.ina.Seize(job) {
			s.acted++
		}
	case "forget-job":
		if s.acted == 0 {
			e.ina.DeleteJob(job)
			s.acted++
		}
	case "ignore-resends":
		switch {
		case up && h.Flags&ina.FlagResend != 0 && s.lost[psnOf{job, h.Epoch, h.PSN}]:
			s.acted++
			return false
		case fresh && s.next():
			s.lost[psnOf{job, h.Epoch, h.PSN}] = true
			return false
		}
	case "favour-job":
		if fresh && job != s.first && s.count.Next(s.act.Every) && e.ina.Deny(job, h.PSN) {
			s.acted++
		}
	case "mark-all":
		if up {
			b[1] |= byte(ina.FlagECN)
			s.acted++
		}
	}
	return true
}

// note remembers a gradient's job and PSN, and reports whether it is the PSN's first.
func (s *saboteur) note(job uint16, b []byte) bool {
	h, err := ina.ParseHeader(b)
	if err != nil || h.Flags&(ina.FlagResult|ina.FlagResend) != 0 {
		return false
	}
	if s.first == 0 {
		s.first = job
	}
	n := &s.newest[job]
	if n.any && n.epoch == h.Epoch && int32(h.PSN-n.psn) <= 0 {
		return false
	}
	*n = newest{h.Epoch, true, h.PSN}
	return true
}

func (s *saboteur) flip(b []byte) {
	i := s.rng.IntN(8 * len(b))
	b[i/8] ^= 1 << (i % 8)
}

// leave is what happens to a packet that the switch is about to send, an INA payload. False:
// it is not sent.
func (s *saboteur) leave(e *engine, b []byte, v *ina.Verdict, o *ina.Output) (send, twice bool) {
	if !s.begun(e.now) {
		return true, false
	}
	sum := v.Reason == ina.Completed && len(b) > ina.HeaderLen
	down := o.Dir != ina.Up
	switch s.act.Fault {
	case "flip-sums":
		if sum && s.next() {
			s.flip(b[ina.HeaderLen:])
		}
	case "bump-sums":
		if sum && s.next() {
			lane := b[ina.HeaderLen:]
			binary.BigEndian.PutUint32(lane, binary.BigEndian.Uint32(lane)+1<<24)
		}
	case "drop-results":
		if down && s.next() {
			return false, false
		}
	case "duplicate":
		return true, s.next()
	}
	return true, false
}

// downTo are the ports of a multicast group that a result is sent to.
func (s *saboteur) downTo(e *engine, to []*port) []*port {
	if s.act.Fault == "multicast-less" && len(to) > 1 && s.begun(e.now) {
		s.acted++
		return to[:len(to)-1]
	}
	return to
}

// tell is what the switch says of a counter.
func (s *saboteur) tell(e *engine, c Counter, index int, packets, bytes int64) (int64, int64) {
	grow := 0.0
	switch s.act.Fault {
	case "freeze-counters":
	case "count-less":
		grow = 1 - sabotage.Lie
	case "count-more":
		grow = 1 + sabotage.Lie
	case "exaggerate":
		return s.exaggerate(e, c, index, packets, bytes)
	default:
		return packets, bytes
	}
	if s.act.Fault != "freeze-counters" && c != JobOut && c != PortTx || s.from == never || e.now < s.from {
		return packets, bytes
	}
	was := s.before(c, index, packets, bytes)
	if packets != was.packets || bytes != was.bytes {
		s.acted++
	}
	return was.packets + int64(grow*float64(packets-was.packets)), was.bytes + int64(grow*float64(bytes-was.bytes))
}

// before is what a counter was when the fault was first asked for it, which is now at the latest.
func (s *saboteur) before(c Counter, index int, packets, bytes int64) count {
	at := reading{c, index}
	if _, ok := s.told[at]; !ok {
		s.told[at] = count{packets, bytes}
	}
	return s.told[at]
}

// exaggerate says of a job that all of its packets were aggregated.
func (s *saboteur) exaggerate(e *engine, c Counter, index int, packets, bytes int64) (int64, int64) {
	if !c.PerJob() || s.from == never || e.now < s.from {
		return packets, bytes
	}
	more := Counter(0)
	switch c {
	case JobGranted:
		more = JobDenied
	case JobAggregated:
		more = JobFallback
	case JobDenied, JobFallback:
		// As many as before the fault began, so that counters go on.
		was := s.before(c, index, packets, bytes)
		if was.packets != packets {
			s.acted++
		}
		return was.packets, was.bytes
	default:
		return packets, bytes
	}
	p, b := e.counter(more, index)
	was := s.before(more, index, p, b)
	return packets + p - was.packets, bytes + b - was.bytes
}

// dawdle has a switch that is late do nothing for a while; now is when it was about to forward.
func (s *saboteur) dawdle(e *engine, now time.Time) {
	if s.act.Fault != "late-switch" || s.from == never || e.now < s.from || now.Sub(s.woke) < sabotage.DawdleEvery {
		return
	}
	s.acted++
	time.Sleep(sabotage.Dawdle)
	s.woke = time.Now()
}

// carry is what happens to a frame that a link was about to put on its wire. False: it is gone,
// or held back.
func (s *saboteur) carry(l *link, p *packet) bool {
	if !s.begun(p.at) {
		return true
	}
	switch s.act.Fault {
	case "slow-up", "slow-down":
		if l.perByte > 0 {
			if !s.slowed {
				l.perByte /= 1 - sabotage.Slow
				s.slowed = true
			}
			s.acted++
		}
	case "deaf-link":
		if s.rng.Float64() < sabotage.Loss {
			s.acted++
			// Who sent it has counted it, and who did not hear it has not.
			c := &l.port.counters[PortTx]
			sign := int64(1)
			if l.ingress {
				c, sign = &l.port.counters[PortRx], -1
			}
			c.packets += sign
			c.bytes += sign * int64(p.size)
			l.pool.put(p)
			return false
		}
	case "reorder-queue":
		if s.rng.Float64() < sabotage.Reorder {
			s.acted++
			p.at += sabotage.Behind
			l.held.insert(p)
			return false
		}
	}
	return true
}

// mend takes a link's fault away.
func (l *link) mend() {
	if l.sab.slowed {
		l.perByte *= 1 - sabotage.Slow
	}
	l.sab = nil
}

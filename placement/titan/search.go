package titan

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/inabench/inabench/placement/collectives"
)

// search places workers in slots, each of which stands for a machine, and improves that.
type search struct {
	pattern *collectives.Pattern
	slots   []int // machines
	cap     []int // by slot: workers that it holds
	size    []int // by slot: workers that it has
	at      []int // slot by worker; none: it is not placed yet
	cross   int   // parts between slots
	limits  *limits
	moves   *int // that are left

	problem *Problem
	flows   [][]hop // by worker; nil: any amount passes
	phases  int     // of flows

	attached []int  // by worker: parts exchanged with the slot that is being filled
	refused  []bool // by worker: it does not fit there
	near     []bool // by slot: the worker at hand exchanges something with it
	closed   []bool // by slot: Algorithm 1 finds nobody more for it
}

const none = -1

// limits are the bandwidth constraint on the slots of a search. With none it is nil.
type limits struct {
	sent   []int // parts, by phase, slot that sends and slot that receives
	room   []int // parts, by slot that sends and slot that receives
	excess int   // parts over room, summed over all phases and pairs
}

// hop is what a worker sends another or gets from it in a phase.
type hop struct {
	phase, other, volume int
	out                  bool
}

func newSearch(p *Problem, slots []int) *search {
	n := p.Pattern.Workers
	s := &search{
		problem: p, pattern: p.Pattern, slots: slots, cap: make([]int, len(slots)), size: make([]int, len(slots)),
		at: make([]int, n), attached: make([]int, n), refused: make([]bool, n), near: make([]bool, len(slots)),
		closed: make([]bool, len(slots)),
	}
	for i, m := range slots {
		s.cap[i] = min(n, p.Machines[m].Free)
	}
	for w := range s.at {
		s.at[w] = none
	}
	return s
}

// limit puts a search under the bandwidth constraint, before anything is placed.
func (s *search) limit(flows [][]hop, phases int) {
	m := len(s.slots)
	s.flows, s.phases = flows, phases
	s.limits = &limits{sent: make([]int, phases*m*m), room: make([]int, m*m)}
	for a := range m {
		s.rooms(a)
	}
}

// rooms sets what passes between a slot and the others.
func (s *search) rooms(a int) {
	l, m := s.limits, len(s.slots)
	for b := range s.slots {
		if b == a {
			l.room[a*m+a] = math.MaxInt
			continue
		}
		l.room[a*m+b] = s.problem.room(s.slots[a], s.slots[b])
		l.room[b*m+a] = s.problem.room(s.slots[b], s.slots[a])
	}
}

// hops are the flows of a pattern by worker, of phases that differ: others are no
// constraint of their own.
func hops(p *collectives.Pattern) (flows [][]hop, phases int) {
	flows = make([][]hop, p.Workers)
next:
	for i, ph := range p.Phases {
		for _, o := range p.Phases[:i] {
			if slices.Equal(ph.Flows, o.Flows) {
				continue next
			}
		}
		for _, f := range ph.Flows {
			flows[f.From] = append(flows[f.From], hop{phases, f.To, f.Volume, true})
			flows[f.To] = append(flows[f.To], hop{phases, f.From, f.Volume, false})
		}
		phases++
	}
	return flows, phases
}

// excess is by how many parts the bandwidth constraint is broken.
func (s *search) excess() int {
	if s.limits == nil {
		return 0
	}
	return s.limits.excess
}

// move takes a worker to a slot, or with none away.
func (s *search) move(w, to int) {
	from := s.at[w]
	if from != none {
		s.size[from]--
	}
	if to != none {
		s.size[to]++
	}
	for _, x := range s.pattern.Peers(w) {
		at := s.at[x.Worker]
		if at == none {
			continue
		}
		if from != none && at != from {
			s.cross -= x.Volume
		}
		if to != none && at != to {
			s.cross += x.Volume
		}
	}
	if l := s.limits; l != nil {
		m := len(s.slots)
		for _, h := range s.flows[w] {
			at := s.at[h.other]
			if at == none {
				continue
			}
			if from != none {
				l.add(h, m, from, at, -h.volume)
			}
			if to != none {
				l.add(h, m, to, at, h.volume)
			}
		}
	}
	s.at[w] = to
}

// add changes what a slot of m exchanges with another one in a phase.
func (l *limits) add(h hop, m, own, other, volume int) {
	if own == other {
		return
	}
	pair := own*m + other
	if !h.out {
		pair = other*m + own
	}
	sent := &l.sent[h.phase*m*m+pair]
	l.excess -= max(0, *sent-l.room[pair])
	*sent += volume
	l.excess += max(0, *sent-l.room[pair])
}

// gain is by how much the set function H grows when a set of workers that are in none of
// the sets before is merged on one machine: so many machines fewer are taken.
func gain(workers int) int { return workers - 1 }

// feasible is Algorithm 1: it fills an empty slot with workers that are not placed yet, as
// far as it holds them and as what they exchange with those that are placed passes. The
// first is the first in the order, each next one that which exchanges most with the slot.
func (s *search) feasible(slot int, order []int) (inner int) {
	if s.problem.Reading.Sets == Printed {
		return s.take(slot, order)
	}
	clear(s.attached)
	clear(s.refused)
	for s.size[slot] < s.cap[slot] {
		best := none
		for _, w := range order {
			if s.at[w] == none && !s.refused[w] && (best == none || s.attached[w] > s.attached[best]) {
				best = w
			}
		}
		if best == none {
			break
		}
		before := s.excess()
		s.move(best, slot)
		if s.excess() > before {
			s.move(best, none)
			s.refused[best] = true
			continue
		}
		inner += s.attached[best]
		for _, x := range s.pattern.Peers(best) {
			s.attached[x.Worker] += x.Volume
		}
	}
	return inner
}

// merge is Algorithm 2: every worker begins on a machine of its own, and the set of
// workers for which H grows most is merged on one, until none are left; of equals the set
// that exchanges most within. Workers that fit nowhere within the bandwidth go where
// there is room.
func (s *search) merge(order []int) {
	left := len(order)
	for left > 0 {
		best, most, within := none, none, none
		known := 0 // a capacity that was filled to the last place: unlimited, it is again
		for slot := range s.slots {
			if s.size[slot] > 0 || gain(min(s.cap[slot], left)) < most || s.limits == nil && s.cap[slot] == known {
				continue
			}
			inner := s.feasible(slot, order)
			if g := gain(s.size[slot]); g >= 0 && (g > most || g == most && inner > within) {
				best, most, within = slot, g, inner
			}
			known = s.cap[slot]
			s.clear(slot, order)
		}
		if best == none {
			break
		}
		s.feasible(best, order)
		left -= s.size[best]
	}
	for _, w := range order {
		for slot := range s.slots {
			if s.at[w] == none && s.size[slot] < s.cap[slot] {
				s.move(w, slot)
			}
		}
	}
}

// clear takes all workers out of a slot.
func (s *search) clear(slot int, order []int) {
	for _, w := range order {
		if s.at[w] == slot {
			s.move(w, none)
		}
	}
}

// improve moves and swaps workers while that lowers the excess or, at the same excess, the
// traffic between slots.
func (s *search) improve(order []int) {
	for better := true; better; {
		better = false
		for _, w := range order {
			clear(s.near)
			for _, x := range s.pattern.Peers(w) {
				s.near[s.at[x.Worker]] = true
			}
			// Without limits, only where a peer is something can be gained; a swap that the
			// other worker gains by comes when it is that one's turn.
			may := func(slot int) bool {
				return slot != s.at[w] && (s.near[slot] || s.limits != nil && s.limits.excess > 0)
			}
			for slot := range s.slots {
				if s.size[slot] < s.cap[slot] && may(slot) && s.try(w, slot, none) {
					better = true
				}
			}
			for _, x := range order {
				if x != w && s.at[x] != s.at[w] && may(s.at[x]) && s.try(w, s.at[x], x) {
					better = true
				}
			}
			if *s.moves <= 0 {
				return
			}
		}
	}
}

// try moves a worker to a slot, and another one from there to where it was, unless that
// is no better.
func (s *search) try(w, slot, other int) bool {
	*s.moves--
	from := s.at[w]
	excess, cross := s.excess(), s.cross
	s.move(w, slot)
	if other != none {
		s.move(other, from)
	}
	if e := s.excess(); e < excess || e == excess && s.cross < cross {
		return true
	}
	if other != none {
		s.move(other, slot)
	}
	s.move(w, from)
	return false
}

// walk moves and swaps workers at random where the excess does not grow, and now and then
// where it does a little, until there is none; not ok after so many steps.
func (s *search) walk(rnd *rand.Rand, steps int) (ok bool) {
	for range steps {
		w, other, slot := rnd.IntN(len(s.at)), none, rnd.IntN(len(s.slots))
		from := s.at[w]
		if s.size[slot] == s.cap[slot] || rnd.IntN(2) == 0 {
			other = rnd.IntN(len(s.at))
			slot = s.at[other]
		}
		if *s.moves--; slot == from {
			continue
		}
		worse := 0 // allowed
		for rnd.IntN(4) == 0 {
			worse++
		}
		before := s.excess()
		s.move(w, slot)
		if other != none {
			s.move(other, from)
		}
		switch {
		case s.excess() == 0:
			return true
		case s.excess() > before+worse:
			if other != none {
				s.move(other, slot)
			}
			s.move(w, from)
		}
	}
	return false
}

// substitute has another machine of a list stand for a slot where that lowers the excess.
// A machine may stand for a slot if it holds the workers there.
func (s *search) substitute(list func(slot int) []int) (better bool) {
	l, m := s.limits, len(s.slots)
	taken := map[int]bool{}
	for _, machine := range s.slots {
		taken[machine] = true
	}
	for a := range s.slots {
		if s.size[a] == 0 {
			continue
		}
		rest := l.excess - s.excessOf(a)
		for _, machine := range list(a) {
			if l.excess == rest || *s.moves <= 0 {
				break
			}
			if taken[machine] || s.problem.Machines[machine].Free < s.size[a] {
				continue
			}
			*s.moves -= m // about as much work
			was := s.slots[a]
			s.slots[a] = machine
			s.rooms(a)
			if now := rest + s.excessOf(a); now < l.excess {
				l.excess = now
				s.cap[a] = min(len(s.at), s.problem.Machines[machine].Free)
				delete(taken, was)
				taken[machine] = true
				better = true
				continue
			}
			s.slots[a] = was
			s.rooms(a)
		}
	}
	return better
}

// excessOf is the excess between a slot and all others.
func (s *search) excessOf(a int) int {
	l, m, sum := s.limits, len(s.slots), 0
	for phase := range s.phases {
		sent := l.sent[phase*m*m:]
		for b := range m {
			if b != a {
				sum += max(0, sent[a*m+b]-l.room[a*m+b]) + max(0, sent[b*m+a]-l.room[b*m+a])
			}
		}
	}
	return sum
}

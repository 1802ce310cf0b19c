package collectives

import (
	"container/heap"
	"math"
	"slices"
)

// Network connects machines: each has a link, full duplex, to something that carries
// whatever the links do.
type Network struct {
	// Rate of a machine's link in each direction, bit/s. Nothing gets through where it is not
	// above 0.
	Rate func(machine int) float64
	// Local is what all workers of a machine together exchange with each other, bit/s, and
	// Worker what one of them sends to others of its machine; 0: no limit. Without either that
	// takes no time.
	Local, Worker float64
	// Acks is what goes back to the sender for each bit that goes to another machine, by the
	// other directions of both links: nothing waits for it, but it takes its part of them.
	Acks float64
	// Latency is how long a bit is on its way to another machine, s, and LocalLatency to
	// another worker of the same.
	Latency, LocalLatency float64
}

// Seconds is how long the operation takes for a vector of so many bits, if worker w is on
// machine at[w] and all begin together: until the last one has ended. It is +Inf if that
// never happens.
//
// There is no barrier, unlike in Pattern.Seconds. A worker is in one phase at a time, and
// goes on to the next one when its own transfers are done: what it is sent has come, and so
// has what it sends, as far as it knows. A transfer begins when both ends are in its phase and
// the sender has heard so of the receiver, a latency later, as in libraries that receive a
// vector where it is to stay. The transfers that are under way have max-min fair shares of the
// links that they cross. The last bit comes a latency after it has left, and its sender hears
// of it another latency later.
//
// Without latencies it is what Pattern.Seconds says if all workers are in the same phase all
// the time. Otherwise it may be less, as phases overlap, or more, as a transfer of a later
// phase may slow one down that somebody waits for.
func (s Schedule) Seconds(at []int, bits float64, n Network) float64 {
	return slices.Max(s.Pattern().Times(at, bits, n, nil))
}

// Times is when each worker has ended its part of the operation, if worker w begins at
// begin[w]; nil: all at 0. See Schedule.Seconds.
func (p *Pattern) Times(at []int, bits float64, n Network, begin []float64) []float64 {
	s := newSimulation(p, at, bits, n)
	for w := range p.Workers {
		e := event{kind: begins, worker: w}
		if begin != nil {
			e.at = begin[w]
		}
		s.later(e)
	}
	s.run()
	return s.ended
}

// same is how far apart times and volumes may be, relatively, that differ by rounding.
const same = 1e-9

// phase is a Phase with what each worker has to do with it.
type phase struct {
	flows []Flow
	out   []int   // worker w sends flows[out[w]:out[w+1]]
	in    [][]int // the flows that worker w is sent
	links [][2]int
}

// moving is a transfer that is under way.
type moving struct {
	step, flow int
	all, left  float64 // bits
	rate       float64
	links      [2]int
}

type kind uint8

const (
	begins kind = iota // a worker
	told               // a worker, that the receiver of a flow is there
	came               // all of a flow, to a worker
	heard              // a worker, that all of a flow that it sent has come
)

// event is what happens to a worker.
type event struct {
	at     float64
	kind   kind
	worker int
	step   int
	flow   int
}

// simulation is of one operation. A step is a phase that happens once.
type simulation struct {
	latency [2]float64 // between machines, within one
	acks    float64
	bits    float64 // of a part
	phases  []phase
	steps   []int     // the phase of each
	first   []int     // the number of its first flow
	there   []bool    // by number of a flow: its sender has heard that its receiver is there
	links   []float64 // capacities
	local   int       // the first link that is within a machine

	now    float64
	events events
	step   []int // where workers are
	left   []int // the transfers that they have to do there; -1: ended
	active []moving
	stale  bool // rates
	free   []float64
	users  []float64 // what each takes for each bit, in all
	ended  []float64
}

func newSimulation(p *Pattern, at []int, bits float64, n Network) *simulation {
	s := &simulation{
		latency: [2]float64{n.Latency, n.LocalLatency}, acks: n.Acks, bits: bits / float64(p.Parts),
		step: slices.Repeat([]int{-1}, p.Workers), left: make([]int, p.Workers),
		ended: slices.Repeat([]float64{math.Inf(1)}, p.Workers),
	}
	machines := slices.Compact(slices.Sorted(slices.Values(at)))
	s.local = 2 * len(machines)
	for _, m := range machines {
		rate := n.Rate(m)
		if !(rate > 0) {
			rate = 0
		}
		s.links = append(s.links, rate, rate) // out, in
	}
	s.links = append(s.links, slices.Repeat([]float64{unlimited(n.Local)}, len(machines))...)
	s.links = append(s.links, slices.Repeat([]float64{unlimited(n.Worker)}, p.Workers)...)
	s.free, s.users = make([]float64, len(s.links)), make([]float64, len(s.links))

	flows := 0
	for i, ph := range p.Phases {
		o := phase{flows: ph.Flows, out: make([]int, p.Workers+1), in: make([][]int, p.Workers)}
		for f, x := range ph.Flows {
			o.out[x.From+1]++
			o.in[x.To] = append(o.in[x.To], f)
			a, _ := slices.BinarySearch(machines, at[x.From])
			b, _ := slices.BinarySearch(machines, at[x.To])
			links := [2]int{2 * a, 2*b + 1}
			if a == b {
				links = [2]int{s.local + a, s.local + len(machines) + x.From}
			}
			o.links = append(o.links, links)
		}
		for w := range p.Workers {
			o.out[w+1] += o.out[w]
		}
		s.phases = append(s.phases, o)
		for range ph.Times {
			s.steps = append(s.steps, i)
			s.first = append(s.first, flows)
			flows += len(ph.Flows)
		}
	}
	s.there = make([]bool, flows)
	return s
}

// unlimited is a rate, of which 0 is none.
func unlimited(rate float64) float64 {
	if rate > 0 {
		return rate
	}
	return math.Inf(1)
}

// latencyOf is that of what crosses such links.
func (s *simulation) latencyOf(links [2]int) float64 {
	if links[0] >= s.local {
		return s.latency[1]
	}
	return s.latency[0]
}

func (s *simulation) later(e event) { heap.Push(&s.events, e) }

func (s *simulation) run() {
	var over []moving
	for {
		for len(s.events) > 0 && s.events[0].at <= s.now*(1+same) {
			s.happen(heap.Pop(&s.events).(event))
		}
		next := math.Inf(1)
		if len(s.events) > 0 {
			next = s.events[0].at - s.now
		}
		if s.stale {
			s.share()
		}
		for i := range s.active {
			next = min(next, s.active[i].left/s.active[i].rate)
		}
		if math.IsInf(next, 1) {
			return // all have ended, or what is left never will
		}
		s.now += next
		over = over[:0]
		still := s.active[:0]
		for _, m := range s.active {
			if m.left -= next * m.rate; m.left <= same*m.all {
				over = append(over, m)
			} else {
				still = append(still, m)
			}
		}
		s.active = still
		for _, m := range over {
			s.stale = true
			s.sent(m.step, m.flow)
		}
	}
}

func (s *simulation) happen(e event) {
	switch e.kind {
	case told:
		if s.step[e.worker] != e.step {
			s.there[s.first[e.step]+e.flow] = true
			return
		}
		s.start(e.step, e.flow)
	case came:
		s.left[e.worker]--
		ph := &s.phases[s.steps[e.step]]
		s.later(event{at: s.now + s.latencyOf(ph.links[e.flow]), kind: heard, worker: ph.flows[e.flow].From, step: e.step, flow: e.flow})
	case heard:
		s.left[e.worker]--
	}
	s.advance(e.worker)
}

// advance has a worker go on for as long as it has nothing to do where it is.
func (s *simulation) advance(w int) {
	for s.left[w] == 0 {
		s.step[w]++
		step := s.step[w]
		if step == len(s.steps) {
			s.left[w], s.ended[w] = -1, s.now
			return
		}
		ph := &s.phases[s.steps[step]]
		s.left[w] = ph.out[w+1] - ph.out[w] + len(ph.in[w])
		for _, f := range ph.in[w] {
			s.later(event{at: s.now + s.latencyOf(ph.links[f]), kind: told, worker: ph.flows[f].From, step: step, flow: f})
		}
		for f := ph.out[w]; f < ph.out[w+1]; f++ {
			if s.there[s.first[step]+f] {
				s.start(step, f)
			}
		}
	}
}

// start begins a flow, both ends of which are there. One that takes no time ends.
func (s *simulation) start(step, flow int) {
	ph := &s.phases[s.steps[step]]
	m := moving{step: step, flow: flow, all: float64(ph.flows[flow].Volume) * s.bits, links: ph.links[flow]}
	m.left = m.all
	if m.all == 0 || math.IsInf(s.links[m.links[0]], 1) && math.IsInf(s.links[m.links[1]], 1) {
		s.sent(step, flow)
		return
	}
	s.active = append(s.active, m)
	s.stale = true
}

// sent is that the last bit of a flow has left.
func (s *simulation) sent(step, flow int) {
	ph := &s.phases[s.steps[step]]
	s.later(event{at: s.now + s.latencyOf(ph.links[flow]), kind: came, worker: ph.flows[flow].To, step: step, flow: flow})
}

// share gives all that move their max-min fair rates: the link that has least for each of its
// users is theirs, then the next one of what is left.
func (s *simulation) share() {
	s.stale = false
	copy(s.free, s.links)
	clear(s.users)
	each := func(m *moving, do func(link int, takes float64)) {
		do(m.links[0], 1)
		if m.links[1] != m.links[0] {
			do(m.links[1], 1)
		}
		if s.acks > 0 && m.links[0] < s.local { // from where it arrives to where it left
			do(m.links[0]^1, s.acks)
			do(m.links[1]^1, s.acks)
		}
	}
	for i := range s.active {
		s.active[i].rate = -1
		each(&s.active[i], func(l int, takes float64) { s.users[l] += takes })
	}
	for left := len(s.active); left > 0; {
		least := math.Inf(1)
		for l, users := range s.users {
			if users > same {
				least = min(least, s.free[l]/users)
			}
		}
		for i := range s.active { // all of a round, before what they take is missed
			if m := &s.active[i]; m.rate < 0 {
				each(m, func(l int, _ float64) {
					if s.free[l] <= least*(1+same)*s.users[l] {
						m.rate = -2
					}
				})
			}
		}
		for i := range s.active {
			if m := &s.active[i]; m.rate == -2 {
				m.rate = least
				left--
				each(m, func(l int, takes float64) {
					s.users[l] -= takes
					s.free[l] = max(0, s.free[l]-takes*least)
				})
			}
		}
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h events) Len() int           { return len(h) }
func (h events) Less(i, j int) bool { return h[i].at < h[j].at }
func (h events) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)        { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

// events is a heap.
type events []event

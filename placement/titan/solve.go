package titan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// solver is Algorithm 3 on a problem.
type solver struct {
	*Problem
	n       int
	rnd     *rand.Rand
	classes [2][]int  // machines with free GPUs, the most first: non-idle ones, idle ones
	links   []float64 // by machine: how much passes between it and some others; nil: not known
}

const (
	nonIdle = 0
	idle    = 1
)

// Solve places the workers of a job; it is Algorithm 3. The seed begins the random
// distributions of workers. An error wraps ErrRoom, or is a *CongestedError.
func (p *Problem) Solve(seed uint64) (Solution, error) {
	s := &solver{Problem: p, n: p.Pattern.Workers, rnd: rand.New(rand.NewPCG(seed, 0))}
	free := 0
	for i, m := range p.Machines {
		if m.Free < 1 {
			continue
		}
		free += m.Free
		class := nonIdle
		if m.Idle() {
			class = idle
		}
		s.classes[class] = append(s.classes[class], i)
	}
	if s.n > free {
		return Solution{}, fmt.Errorf("%w: %d workers, %d GPUs are free", ErrRoom, s.n, free)
	}
	for _, list := range s.classes {
		slices.SortFunc(list, func(a, b int) int {
			return cmp.Or(p.Machines[b].Free-p.Machines[a].Free, b-a) // so that of equals the last to be reached is the first
		})
	}
	if p.Reading.Merge == Printed {
		return s.printed()
	}
	if p.Reading.Scheme == Printed {
		s.asPrinted()
	}
	least := s.leastIdle()
	best := s.unlimited(least)
	err := p.Check(best.At)
	if err == nil {
		return best, nil
	}
	return s.limited(least, err.(*CongestedError))
}

// asPrinted takes the idle machines that hold the job by themselves (step 1 of Algorithm
// 3) for non-idle ones, and leaves the others out (step 2).
func (s *solver) asPrinted() {
	chosen := s.classes[idle]
	left := s.n
	for i, m := range chosen {
		if left <= 0 {
			chosen = chosen[:i]
			break
		}
		left -= s.Machines[m].Free
	}
	all := append(s.classes[nonIdle], chosen...)
	slices.SortStableFunc(all, func(a, b int) int { return s.Machines[b].Free - s.Machines[a].Free })
	s.classes = [2][]int{all, nil}
}

// leastIdle is how many idle machines a job needs at least, because of the others' GPUs.
func (s *solver) leastIdle() int {
	return s.count(idle, s.n-s.capacity(nonIdle, len(s.classes[nonIdle])))
}

// capacity is how many free GPUs the largest machines of a class have.
func (s *solver) capacity(class, machines int) int {
	sum := 0
	for _, m := range s.classes[class][:machines] {
		sum += s.Machines[m].Free
	}
	return sum
}

// count is how many of the largest machines of a class hold so many workers.
func (s *solver) count(class, workers int) int {
	for i, m := range s.classes[class] {
		if workers <= 0 {
			return i
		}
		workers -= s.Machines[m].Free
	}
	return len(s.classes[class])
}

// fewest is how many machines a job needs at least if k of them may be idle ones.
func (s *solver) fewest(k int) int { return k + s.count(nonIdle, s.n-s.capacity(idle, k)) }

// tightest is the fewest machines that hold a job if k of them may be idle ones.
func (s *solver) tightest(k int) []int {
	m := s.fewest(k)
	return append(slices.Clone(s.classes[idle][:k]), s.classes[nonIdle][:m-k]...)
}

// unlimited places workers as if all traffic passes. The first two objectives are then
// decided by the numbers of free GPUs, and the largest machines are as good as any.
func (s *solver) unlimited(k int) Solution {
	slots := s.tightest(k)
	var best *search
	consider := func(x *search) {
		if best == nil || x.cross < best.cross {
			best = x
		}
	}
	for start := range s.starts() {
		x := newSearch(s.Problem, slots)
		moves := effort
		s.run(x, start, &moves)
		consider(x)
		if best.cross == 0 {
			break
		}
	}
	// What fills the first machine to the last place is no even split, which moves of one worker do not come to.
	if level := s.level(slots); best.cross > 0 && level < s.n {
		x := newSearch(s.Problem, slots)
		for i := range x.cap {
			x.cap[i] = min(x.cap[i], level)
		}
		moves := effort
		s.run(x, 0, &moves)
		consider(x)
	}
	return s.solution(s.fit(best))
}

// level is the fewest workers that the fullest of these machines must have.
func (s *solver) level(machines []int) int {
	for level := 1; ; level++ {
		room := 0
		for _, m := range machines {
			room += min(level, s.Machines[m].Free)
		}
		if room >= s.n {
			return level
		}
	}
}

// starts is how often a search begins anew: less often where it takes longer.
func (s *solver) starts() int { return min(max(1, 1024/s.n/s.n*4), 16) }

// effort is how many moves of workers searches make at most: those without limits each,
// those within limits all together for a number of idle machines. It is far more than
// small jobs need, and keeps large ones to some milliseconds; where nothing passes, which
// only shows when all is tried, to some tenths of a second.
const effort = 100_000

// run is one search, from a random distribution of the workers but for the first. It takes
// what it does from the moves.
func (s *solver) run(x *search, start int, moves *int) {
	order := inOrder(s.n)
	if start > 0 {
		s.rnd.Shuffle(s.n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	x.moves = moves
	x.merge(order)
	if len(x.slots) < 2 {
		return
	}
	x.improve(order)
	if x.limits == nil {
		return
	}
	list := func(slot int) []int { return s.classes[s.class(x.slots[slot])] }
	for x.excess() > 0 && x.substitute(list) {
		x.improve(order)
	}
	if x.excess() > 0 && x.walk(s.rnd, 100*s.n) {
		x.improve(order)
	}
}

func (s *solver) class(machine int) int {
	if s.Reading.Scheme != Printed && s.Machines[machine].Idle() {
		return idle
	}
	return nonIdle
}

// fit is a search's placement on the machines that fit best: the more workers a machine
// gets the earlier it chooses, and always the one with the fewest free GPUs that holds
// them. Large holes stay for later jobs. Of machines with equally many workers, the first
// has the first worker.
func (s *solver) fit(x *search) []int {
	type part struct{ slot, class, size, machine int }
	var parts []part // in the order of their first worker
	in := make([]int, len(x.slots))
	for _, slot := range x.at {
		if in[slot] == 0 {
			in[slot] = len(parts) + 1
			parts = append(parts, part{slot, s.class(x.slots[slot]), x.size[slot], 0})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Or(b.size-a.size, a.class-b.class) })
	taken := map[int]bool{}
	for first, i := 0, 0; i < len(parts); i++ {
		if parts[i].size != parts[first].size || parts[i].class != parts[first].class {
			first = i
		}
		list := s.classes[parts[i].class]
		for k := len(list) - 1; k >= 0; k-- {
			m := list[k]
			if taken[m] || s.Machines[m].Free < parts[i].size {
				continue
			}
			taken[m] = true
			// Into those of parts alike, which are ascending.
			at := i
			for ; at > first && parts[at-1].machine > m; at-- {
				parts[at].machine = parts[at-1].machine
			}
			parts[at].machine = m
			break
		}
	}
	machine := in // by slot, from here on
	for _, p := range parts {
		machine[p.slot] = p.machine
	}
	at := make([]int, len(x.at))
	for w, slot := range x.at {
		at[w] = machine[slot]
	}
	return at
}

// limited places workers within the bandwidth: with the fewest idle machines with which
// that is found, then with the fewest machines.
func (s *solver) limited(least int, congested *CongestedError) (Solution, error) {
	flows, phases := hops(s.Pattern)
	var best *Solution
	var moves int
	attempt := func(k, m int) bool {
		found := false
		for start := range max(2, s.starts()/2) {
			slots := s.pick(k, m, start)
			if slots == nil || moves <= 0 {
				continue
			}
			x := newSearch(s.Problem, slots)
			x.limit(flows, phases)
			s.run(x, start, &moves)
			at := make([]int, s.n)
			for w, slot := range x.at {
				at[w] = x.slots[slot]
			}
			if x.excess() > 0 {
				if err := s.Check(at).(*CongestedError); err.Bits-err.Passing < congested.Bits-congested.Passing {
					congested = err
				}
				continue
			}
			found = true
			if tight := s.fit(x); s.Check(tight) == nil {
				at = tight
			}
			if got := s.solution(at); best == nil || got.Less(*best) {
				best = &got
			}
		}
		return found
	}
	first(least, min(s.n, len(s.classes[idle])), func(k int) bool {
		moves = effort
		return s.machines(k, attempt)
	})
	if best == nil {
		best = s.tryAll(flows, phases)
	}
	if best == nil {
		return Solution{}, congested
	}
	return *best, nil
}

// tryAll places the workers one by one on every machine in turn, and goes back where the
// bandwidth does not allow it or what was found before is better: what searches have missed.
// Within its effort a small job that fits anywhere is placed. It is nil where nothing is found.
func (s *solver) tryAll(flows [][]hop, phases int) *Solution {
	slots := slices.Concat(s.classes[nonIdle], s.classes[idle])
	if len(slots) > allTried {
		return nil
	}
	x := newSearch(s.Problem, slots)
	x.limit(flows, phases)
	var best *Solution
	moves := effort
	var place func(w int, so Solution)
	place = func(w int, so Solution) {
		if w == s.n {
			at := make([]int, s.n)
			for w, slot := range x.at {
				at[w] = slots[slot]
			}
			found := s.solution(at)
			best = &found
			return
		}
		for slot, m := range slots {
			if x.size[slot] == x.cap[slot] {
				continue
			}
			if moves--; moves < 0 {
				return
			}
			next := so
			if x.size[slot] == 0 {
				next.Used++
				if s.Machines[m].Idle() {
					next.Idle++
				}
			}
			x.move(w, slot)
			next.Cross = x.cross
			if x.excess() == 0 && (best == nil || next.Less(*best)) {
				place(w+1, next)
			}
			x.move(w, none)
		}
	}
	place(0, Solution{})
	return best
}

// allTried is the most machines of which tryAll tries all.
const allTried = 32

// machines tries numbers of machines of which k may be idle.
func (s *solver) machines(k int, attempt func(k, m int) bool) bool {
	most := min(s.n, k+len(s.classes[nonIdle]))
	return first(s.fewest(k), most, func(m int) bool { return attempt(k, m) }) <= most
}

// pick chooses k idle machines and m-k others, in turn those with the most free GPUs and
// those with the best connections; after the first start chance has a part in that. It is
// nil if they do not hold the job.
func (s *solver) pick(k, m, start int) []int {
	if s.links == nil {
		s.connections()
	}
	var slots []int
	free := 0
	key := make(map[int]float64)
	for class, n := range [2]int{nonIdle: m - k, idle: k} {
		list := s.classes[class]
		n = min(n, len(list))
		if start > 0 && n < len(list) {
			list = slices.Clone(list)
			for _, x := range list {
				key[x] = 0.1 + s.rnd.Float64()
				if start%2 == 0 {
					key[x] *= float64(s.Machines[x].Free)
				} else {
					key[x] *= s.links[x]
				}
			}
			slices.SortFunc(list, func(a, b int) int { return cmp.Compare(key[b], key[a]) })
		}
		slots = append(slots, list[:n]...)
	}
	for _, x := range slots {
		free += s.Machines[x].Free
	}
	if free < s.n {
		return nil
	}
	return slots
}

// connections finds how much passes between each machine and some of the others.
func (s *solver) connections() {
	s.links = make([]float64, len(s.Machines))
	all := slices.Concat(s.classes[nonIdle], s.classes[idle])
	others := all
	if len(all) > 16 {
		others = nil
		for range 16 {
			others = append(others, all[s.rnd.IntN(len(all))])
		}
	}
	for _, x := range all {
		for _, y := range others {
			if x != y {
				s.links[x] += float64(min(s.room(x, y), s.room(y, x), s.Pattern.Parts))
			}
		}
	}
}

// first is the first number from lo to hi that is ok, or hi+1; what comes after one that is
// ok is taken to be so too. It asks for a few one by one, then in growing steps.
func first(lo, hi int, ok func(int) bool) int {
	bad, step := lo-1, 1
	for i := lo; i <= hi; i = min(i+step, max(hi, i+1)) {
		if !ok(i) {
			bad = i
			if i-lo >= 4 {
				step *= 2
			}
			continue
		}
		for hi = i; hi-bad > 1; {
			if mid := (bad + hi) / 2; ok(mid) {
				hi = mid
			} else {
				bad = mid
			}
		}
		return hi
	}
	return hi + 1
}

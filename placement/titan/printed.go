package titan

import (
	"math/rand/v2"
	"slices"
)

// This file has the paper's pseudocode, line by line. What it leaves open is read so that
// a placement comes of it, and otherwise as little is added as can be.
//
// Algorithm 1, "Search for Feasible Worker Set" (somePasses):
//
//   - Line 5: the existing overhead between two machines has no phase, and indices f and f'
//     that are nowhere else. It is what the job's own workers on s send those on s' in
//     phase t, as in Equation 5. What other jobs send is in P, the available bandwidth.
//     It is not brought up to date while A(s) grows.
//   - Line 7: n' runs over all workers that are placed, also those that n sends nothing. If
//     none is placed, the lines 8 to 12 are never reached and A(s) stays empty, for ever.
//     Here every worker is feasible then.
//   - Line 9: P between a machine and itself is not defined. It is unlimited, as section
//     III-B has it. Amounts are from n to n', the way that C is written; the other way is
//     not looked at. An amount is compared with a rate: see Problem.Phase.
//   - Line 10: a worker is taken as soon as one pair passes in one phase, and so nearly
//     always: the pair need not exchange anything in it. The text says the opposite,
//     "if all communication pairs of worker n satisfy" it; that is nearer to Ours.
//   - Nothing looks at R_s, which Equation 3 has as a constraint: a machine that is full may
//     take no one.
//
// Algorithm 2, "Submodular-based Algorithm" (mergePrinted):
//
//   - K is the number of machines that it is called on (section IV-A), not that of GPUs in
//     one (section III-A); S_n in line 7 are those machines, not the idle ones. They are
//     taken in the order of their numbers.
//   - Line 2: every worker goes to a random machine with a free GPU. The text begins with
//     feasible sets instead, which without placed workers do not tell workers apart.
//   - Line 5: the loop runs K times, as printed and as in Theorem 7's proof; the text has
//     K-1. It also ends where an iteration finds no worker: as printed it never would.
//   - Lines 6 to 14: H counts its sets (printedH), so that all workers come to the same, and
//     the first one of the first machine that has any is taken. The text chooses among sets,
//     not workers; H then prefers any that leaves a worker over.
//   - Line 11: N* is nowhere set back, and Φ would get the same workers again and again. It is
//     empty at the beginning of an iteration, as tmp and opt are.
//   - Line 15: a set in Φ has no machine. It is the one in whose set the worker was found.
//     That machine stays in the loop and may get more of them.
//   - Line 16: from then on the set of every machine is that of Algorithm 1. Where that is
//     Ours, its first worker is the one that exchanges most with the machine.
//   - Line 18: "one machine" for the rest is the one with the most free GPUs, of equals the
//     first, be it in Φ or not. The text has an idle one, of which there may be none. What
//     it does not hold goes to the next one.
//
// Together they fill machines in the order of their numbers, whatever the job sends, and
// put what is left after K workers where the most GPUs are free.
//
// Algorithm 3, "The Overall Algorithm" (printedMachines; asPrinted where Algorithm 2 is Ours):
//
//   - "Racks" in lines 1 and 5 are machines; the text names the objectives of its two steps
//     in the wrong order.
//   - Line 4: where the idle machines do not hold the job, as many of its workers as they do.
//     Φ_n, which is a set of worker sets, stands for their machines.
//   - Line 6: the workers are distributed anew; of the first step only the machines remain.
//   - Line 8 minimizes all machines, and idle ones count as much as others: nothing after
//     step 1 looks at objective O1.
//   - Bandwidth is looked at by Algorithm 1 alone. What comes out may break the constraint, and
//     is then a *CongestedError with that placement as its best.

// somePasses reports whether line 9 of Algorithm 1 holds for a worker and a slot, for any
// worker that is placed and any phase.
func (s *search) somePasses(w, slot int) bool {
	if s.flows == nil {
		return true
	}
	alone := true
	for other, at := range s.at {
		if at == none {
			continue
		}
		if at == slot {
			return true
		}
		alone = false
		room := s.problem.room(s.slots[slot], s.slots[at])
		for phase := range s.phases {
			if s.sends(w, other, phase)+s.sent(slot, at, phase) <= room {
				return true
			}
		}
	}
	return alone
}

// allPass reports whether all that a worker exchanges with those that are placed passes in
// all phases, together with what these exchange: Algorithm 1 as corrected, of one worker.
func (s *search) allPass(w, slot int) bool {
	if s.flows == nil {
		return true
	}
	for _, h := range s.flows[w] {
		at := s.at[h.other]
		if at == none || at == slot {
			continue
		}
		from, to := slot, at
		if !h.out {
			from, to = at, slot
		}
		volume := s.sent(from, to, h.phase)
		for _, same := range s.flows[w] {
			if same.phase == h.phase && same.out == h.out && s.at[same.other] == at {
				volume += same.volume
			}
		}
		if volume > s.problem.room(s.slots[from], s.slots[to]) {
			return false
		}
	}
	return true
}

// take fills an empty slot with the workers of Algorithm 1 as printed, as far as it holds them.
func (s *search) take(slot int, order []int) (inner int) {
	var set []int
	for _, w := range order {
		if s.at[w] == none && s.somePasses(w, slot) {
			set = append(set, w)
		}
	}
	for _, w := range set[:min(len(set), s.cap[slot])] {
		inner += s.exchanged(w, slot)
		s.move(w, slot)
	}
	return inner
}

// sends is what one worker sends another in a phase, in parts.
func (s *search) sends(from, to, phase int) int {
	sum := 0
	for _, h := range s.flows[from] {
		if h.out && h.phase == phase && h.other == to {
			sum += h.volume
		}
	}
	return sum
}

// sent is what the workers in one slot send those in another in a phase, in parts.
func (s *search) sent(from, to, phase int) int {
	sum := 0
	for w, at := range s.at {
		if at != from {
			continue
		}
		for _, h := range s.flows[w] {
			if h.out && h.phase == phase && s.at[h.other] == to {
				sum += h.volume
			}
		}
	}
	return sum
}

// printedH is the set function H of Equation 4 with C of Equation 2, of disjoint sets that
// are not empty and leave so many workers in none of them.
func printedH(sets, left int) int {
	h := sets - 1
	if left > 0 {
		h++
	}
	return h
}

// scatter distributes workers over the slots at random, within what these hold.
func (s *search) scatter(order []int, rnd *rand.Rand) (sets [][]int) {
	sets = make([][]int, len(s.slots))
	for _, w := range order {
		slot := rnd.IntN(len(s.slots))
		for len(sets[slot]) == s.cap[slot] {
			slot = (slot + 1) % len(s.slots)
		}
		sets[slot] = append(sets[slot], w)
	}
	return sets
}

// mergePrinted is Algorithm 2 as printed, for the workers that scatter has distributed.
func (s *search) mergePrinted(order []int, sets [][]int) {
	placed := 0
	for placed < len(s.slots) && printedH(placed+1, len(order)-placed-1) > 0 { // line 5, and 10 for whichever worker
		w, slot := s.firstOf(order, sets)
		if w == none {
			break
		}
		s.move(w, slot)
		placed++
		sets = nil // line 16
	}
	slot := none
	for _, w := range order { // line 18
		if s.at[w] != none {
			continue
		}
		if slot == none || s.size[slot] == s.cap[slot] {
			slot = s.roomiest()
		}
		s.move(w, slot)
	}
}

// firstOf is the first worker in the set of the first slot that has one: of the sets given,
// or where they are nil of those of Algorithm 1.
func (s *search) firstOf(order []int, sets [][]int) (w, slot int) {
	for slot := range s.slots {
		w := none
		switch {
		case sets == nil:
			w = s.head(slot, order)
		case len(sets[slot]) > 0:
			w = sets[slot][0]
		}
		if w != none {
			return w, slot
		}
	}
	return none, none
}

// head is the first worker of the set that Algorithm 1 finds for a slot.
func (s *search) head(slot int, order []int) int {
	if s.size[slot] == s.cap[slot] || s.closed[slot] {
		return none
	}
	best, most := none, none
	for _, w := range order {
		if s.at[w] != none {
			continue
		}
		if s.problem.Reading.Sets == Printed {
			if s.somePasses(w, slot) {
				return w
			}
			continue
		}
		if a := s.exchanged(w, slot); a > most && s.allPass(w, slot) {
			best, most = w, a
		}
	}
	// What our Algorithm 1 refuses once it refuses for good: nobody moves, and amounts only grow.
	s.closed[slot] = s.problem.Reading.Sets == Ours && best == none
	return best
}

// exchanged is what a worker exchanges with those in a slot, in parts.
func (s *search) exchanged(w, slot int) int {
	sum := 0
	for _, x := range s.pattern.Peers(w) {
		if s.at[x.Worker] == slot {
			sum += x.Volume
		}
	}
	return sum
}

// roomiest is the slot with the most free GPUs left, of equals the first.
func (s *search) roomiest() int {
	best := 0
	left := func(slot int) int { return s.problem.Machines[s.slots[slot]].Free - s.size[slot] }
	for slot := range s.slots {
		if left(slot) > left(best) {
			best = slot
		}
	}
	return best
}

// printed places the workers with Algorithm 2 as printed: on the machines of Algorithm 3 as
// printed or, where that is Ours, on the fewest idle machines and then the fewest others.
func (s *solver) printed() (Solution, error) {
	var machines []int
	if s.Reading.Scheme == Printed {
		machines = s.printedMachines()
	} else {
		machines = s.tightest(s.leastIdle())
	}
	at := s.mergeOn(machines, s.n)
	if err := s.Check(at); err != nil {
		return Solution{}, err
	}
	return s.solution(at), nil
}

// printedMachines is lines 1 to 6 of Algorithm 3: all non-idle machines, and the idle ones
// that Algorithm 2 uses for as many workers as they hold.
func (s *solver) printedMachines() []int {
	machines := slices.Clone(s.classes[nonIdle])
	free := s.classes[idle]
	if len(free) == 0 {
		return machines
	}
	workers := min(s.n, s.capacity(idle, len(free)))
	for _, m := range s.mergeOn(free, workers) {
		if m != none && !slices.Contains(machines, m) {
			machines = append(machines, m)
		}
	}
	return machines
}

// mergeOn runs Algorithm 2 as printed on machines, for the first workers of the job. The
// others have none.
func (s *solver) mergeOn(machines []int, workers int) (at []int) {
	machines = slices.Sorted(slices.Values(machines))
	x := newSearch(s.Problem, machines)
	if s.Problem.limited() {
		x.flows, x.phases = hops(s.Pattern)
	}
	order := inOrder(workers)
	x.mergePrinted(order, x.scatter(order, s.rnd))
	at = make([]int, s.n)
	for w, slot := range x.at {
		if at[w] = none; slot != none {
			at[w] = machines[slot]
		}
	}
	return at
}

// inOrder are so many workers, as they are numbered.
func inOrder(workers int) []int {
	order := make([]int, workers)
	for w := range order {
		order[w] = w
	}
	return order
}

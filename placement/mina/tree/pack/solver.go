package pack

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Solver solves one problem after another, in the same memory. The zero value is ready.
type Solver struct {
	p     *Problem
	order []int32 // all items, the heaviest first
	first []int32 // of a resource's items
	items []int32 // that use a resource, the heaviest first

	in   []bool
	left []int32 // capacity that chosen items leave

	kernel []int32

	// Of peeling.
	alive     []bool
	excess    []int32 // living items beyond what is left of a resource
	contested []int32 // resources of an item with an excess
	top       []int32 // the heaviest living item of a resource, as an index into items
	ready     []int32
	heap      []weighed
	peeled    []int32

	// Of kernels that are conflict graphs.
	sets  independentSets
	place []int32 // of an item in the kernel, from 1; 0: it is not there

	// Of the local search in others.
	held, holders []int32 // chosen items of the kernel by resource
	log           []int32 // what a move did: items in, ^items out
	best, other   []bool
}

type weighed struct {
	item int32
	key  float64
}

// resized is a slice of n zeroes.
func resized[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// Solve is the solution by reducing-peeling and a local search of so many moves, and
// whether it is known to be optimal. The search starts with the preferred items, as far as
// they fit, or with what peeling finds without them, if that weighs more. With capacities
// above 1 it does both, one after the other. Moves are those of a local search: with
// capacities of 1 a move is a climb to a local optimum, or two where that takes little time
// and less than one where it takes much; with others it is the choice of an item.
func (s *Solver) Solve(p *Problem, preferred []int, moves int, seed uint64) (chosen []int, optimal bool) {
	optimal = s.solve(p, preferred, effort{moves: moves, seed: seed})
	return s.chosen(), optimal
}

func (s *Solver) solve(p *Problem, preferred []int, e effort) (optimal bool) {
	if s.peel(p) {
		return true
	}
	if s.exclusive() {
		return s.independent(preferred, e)
	}
	if len(preferred) > 0 {
		s.prefer(preferred)
		if s.improve(e.moves/2, e.seed) {
			return true
		}
		e.moves -= e.moves / 2
		if s.value(s.other) > s.value(s.in) {
			s.in, s.other = s.other, s.in
		}
	}
	return s.improve(e.moves, e.seed+1)
}

// prefer begins anew with the preferred items; what was chosen is kept aside, and comes
// next where it fits, and then the rest.
func (s *Solver) prefer(preferred []int) {
	s.other = append(s.other[:0], s.in...)
	for _, v := range s.kernel {
		s.in[v] = false
	}
	s.refill()
	for _, v := range preferred {
		s.fill(int32(v))
	}
	for _, v := range s.kernel {
		if s.other[v] {
			s.fill(v)
		}
	}
	for _, v := range s.kernel {
		s.fill(v)
	}
}

// fill chooses an item if it fits.
func (s *Solver) fill(v int32) {
	if !s.in[v] && s.fits(v) {
		s.choose(v)
	}
}

func (s *Solver) value(in []bool) int64 {
	sum := int64(0)
	for v, in := range in {
		if in {
			sum += s.p.weight[v]
		}
	}
	return sum
}

func (s *Solver) chosen() []int {
	var out []int
	for v, in := range s.in {
		if in {
			out = append(out, v)
		}
	}
	return out
}

// on are the items that use a resource.
func (s *Solver) on(r int32) []int32 { return s.items[s.first[r]:s.first[r+1]] }

// start reads a problem.
func (s *Solver) start(p *Problem) {
	n, m := p.Len(), len(p.capacity)
	s.p = p
	s.order = resized(s.order, n)
	for v := range s.order {
		s.order[v] = int32(v)
	}
	slices.SortFunc(s.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.weight[b], p.weight[a]), cmp.Compare(a, b))
	})
	s.first, s.items = resized(s.first, m+2), resized(s.items, len(p.uses))
	for _, r := range p.uses {
		s.first[r+2]++
	}
	for r := range m {
		s.first[r+2] += s.first[r+1]
	}
	for _, v := range s.order {
		for _, r := range p.Uses(int(v)) {
			s.items[s.first[r+1]] = v
			s.first[r+1]++
		}
	}
	s.in, s.left = resized(s.in, n), append(s.left[:0], p.capacity...)
}

// fits is whether an item can be chosen beside those that are.
func (s *Solver) fits(v int32) bool {
	for _, r := range s.p.Uses(int(v)) {
		if s.left[r] == 0 {
			return false
		}
	}
	return true
}

// choose chooses an item that fits.
func (s *Solver) choose(v int32) {
	s.in[v] = true
	for _, r := range s.p.Uses(int(v)) {
		s.left[r]--
	}
}

// peel solves by reducing-peeling and says whether nothing was peeled.
func (s *Solver) peel(p *Problem) bool {
	s.start(p)
	n, m := p.Len(), len(p.capacity)
	s.alive, s.excess = resized(s.alive, n), resized(s.excess, m)
	s.contested, s.top = resized(s.contested, n), append(s.top[:0], s.first[:m]...)
	s.ready, s.peeled, s.kernel, s.heap = s.ready[:0], s.peeled[:0], s.kernel[:0], s.heap[:0]
	for v := range int32(n) {
		if s.alive[v] = s.fits(v); s.alive[v] {
			for _, r := range p.Uses(int(v)) {
				s.excess[r]++
			}
		}
	}
	for r := range int32(m) {
		if s.excess[r] -= s.left[r]; s.excess[r] <= 0 {
			continue
		}
		for !s.alive[s.items[s.top[r]]] {
			s.top[r]++
		}
		for _, v := range s.on(r) {
			s.contested[v]++
		}
	}
	for _, v := range s.order {
		if s.alive[v] && s.contested[v] <= 1 {
			s.ready = append(s.ready, v)
		}
	}
	s.reduce()
	for _, v := range s.order {
		if s.alive[v] {
			s.kernel = append(s.kernel, v)
			s.push(v)
		}
	}
	for len(s.heap) > 0 {
		if v := s.pop(); s.alive[v] {
			s.peeled = append(s.peeled, v)
			s.drop(v)
			s.reduce()
		}
	}
	for i := len(s.peeled) - 1; i >= 0; i-- {
		if v := s.peeled[i]; s.fits(v) {
			s.choose(v)
		}
	}
	return len(s.kernel) == 0
}

// reduce chooses what can be chosen without loss.
func (s *Solver) reduce() {
	for len(s.ready) > 0 {
		v := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		if !s.alive[v] || s.contested[v] > 1 || s.contested[v] == 1 && !s.heaviest(v) {
			continue
		}
		s.alive[v] = false
		s.choose(v)
		for _, r := range s.p.Uses(int(v)) { // the excess stays: one wants less, one is left less
			s.lower(r)
			if s.left[r] == 0 {
				s.dropAll(r)
			}
		}
	}
}

// heaviest is whether no item weighs more on the one contested resource of an item.
func (s *Solver) heaviest(v int32) bool {
	for _, r := range s.p.Uses(int(v)) {
		if s.excess[r] > 0 {
			return s.p.weight[v] >= s.p.weight[s.items[s.top[r]]]
		}
	}
	return true
}

func (s *Solver) dropAll(r int32) {
	for _, v := range s.on(r) {
		if s.alive[v] {
			s.drop(v)
		}
	}
}

// drop gives an item up.
func (s *Solver) drop(v int32) {
	s.alive[v] = false
	for _, r := range s.p.Uses(int(v)) {
		s.excess[r]--
		if s.excess[r] == 0 {
			for _, u := range s.on(r) {
				if s.alive[u] {
					if s.contested[u]--; s.contested[u] <= 1 {
						s.ready = append(s.ready, u)
					}
				}
			}
		}
		s.lower(r)
	}
}

// lower finds the heaviest living item of a contested resource after one died. Where it
// is lighter than before, items of its weight may be ready.
func (s *Solver) lower(r int32) {
	if s.excess[r] <= 0 || s.alive[s.items[s.top[r]]] {
		return
	}
	end, was := s.first[r+1], s.p.weight[s.items[s.top[r]]]
	for s.top[r] < end && !s.alive[s.items[s.top[r]]] {
		s.top[r]++
	}
	if s.top[r] == end {
		s.top[r]-- // none is left
		return
	}
	now := s.p.weight[s.items[s.top[r]]]
	for i := s.top[r]; now < was && i < end && s.p.weight[s.items[i]] == now; i++ {
		if u := s.items[i]; s.alive[u] && s.contested[u] <= 1 {
			s.ready = append(s.ready, u)
		}
	}
}

// key is how many stand against an item, by its weight.
func (s *Solver) key(v int32) float64 {
	sum := int32(0)
	for _, r := range s.p.Uses(int(v)) {
		sum += max(0, s.excess[r])
	}
	return float64(sum) / float64(s.p.weight[v])
}

// push and pop are those of a heap, the largest key first. Keys only fall, so one is
// brought up to date when it comes up.
func (s *Solver) push(v int32) { s.sift(weighed{v, s.key(v)}) }

func (s *Solver) sift(e weighed) {
	s.heap = append(s.heap, e)
	i := len(s.heap) - 1
	for i > 0 && s.heap[(i-1)/2].key < e.key {
		s.heap[i] = s.heap[(i-1)/2]
		i = (i - 1) / 2
	}
	s.heap[i] = e
}

func (s *Solver) pop() int32 {
	for {
		e := s.heap[0]
		last := s.heap[len(s.heap)-1]
		s.heap = s.heap[:len(s.heap)-1]
		if n := len(s.heap); n > 0 {
			i := 0
			for {
				c := 2*i + 1
				if c+1 < n && s.heap[c+1].key > s.heap[c].key {
					c++
				}
				if c >= n || s.heap[c].key <= last.key {
					break
				}
				s.heap[i] = s.heap[c]
				i = c
			}
			s.heap[i] = last
		}
		if !s.alive[e.item] {
			return e.item
		}
		if k := s.key(e.item); k < e.key && len(s.heap) > 0 && k < s.heap[0].key {
			s.sift(weighed{e.item, k})
			continue
		}
		return e.item
	}
}

// improve searches a kernel with capacities above 1: a move chooses an item, drops what
// is in its way, and fills what became free. It stays where it loses nothing, or less than
// half of what the lightest item weighs, which is how ties are broken; one in 32 may lose
// as much as the heaviest. The best solution seen is the result, and whether it reaches the bound.
func (s *Solver) improve(moves int, seed uint64) bool {
	p := s.p
	s.held, s.holders = resized(s.held, len(p.capacity)), resized(s.holders, len(s.items))
	lightest, heaviest, value := p.weight[s.kernel[0]], int64(0), int64(0)
	member := s.alive // all false after peeling
	for _, v := range s.kernel {
		member[v] = true
		lightest, heaviest = min(lightest, p.weight[v]), max(heaviest, p.weight[v])
	}
	for v, in := range s.in {
		if in && member[v] {
			value += p.weight[v]
			s.hold(int32(v))
		}
	}
	s.refill()
	bound := s.bound()
	s.best = append(s.best[:0], s.in...)
	best := value
	random := rand.New(rand.NewPCG(seed, uint64(len(s.kernel))))
	for range moves {
		if best == bound {
			break
		}
		v := s.kernel[random.IntN(len(s.kernel))]
		if s.in[v] {
			continue
		}
		gain := s.move(v, member, random)
		slack := lightest / 2
		if random.IntN(32) == 0 {
			slack = heaviest
		}
		if value+gain < best-slack {
			s.undo()
			continue
		}
		if value += gain; value > best {
			best = value
			copy(s.best, s.in)
		}
	}
	for _, v := range s.kernel {
		member[v] = false
	}
	copy(s.in, s.best)
	s.refill()
	return best == bound
}

// refill finds what chosen items leave.
func (s *Solver) refill() {
	copy(s.left, s.p.capacity)
	for v, in := range s.in {
		if in {
			for _, r := range s.p.Uses(v) {
				s.left[r]--
			}
		}
	}
}

// hold notes a chosen item of the kernel with its resources.
func (s *Solver) hold(v int32) {
	for _, r := range s.p.Uses(int(v)) {
		s.holders[s.first[r]+s.held[r]] = v
		s.held[r]++
	}
}

func (s *Solver) insert(v int32) {
	s.choose(v)
	s.hold(v)
	s.log = append(s.log, v)
}

func (s *Solver) remove(v int32) {
	s.in[v] = false
	for _, r := range s.p.Uses(int(v)) {
		s.left[r]++
		s.held[r]--
		h := s.holders[s.first[r] : s.first[r]+s.held[r]+1]
		h[slices.Index(h, v)] = h[len(h)-1]
	}
	s.log = append(s.log, ^v)
}

// move chooses an item at the cost of others and returns what the solution gained.
func (s *Solver) move(v int32, member []bool, random *rand.Rand) int64 {
	p := s.p
	s.log = s.log[:0]
	gain := p.weight[v]
	for _, r := range p.Uses(int(v)) {
		if s.left[r] > 0 {
			continue
		}
		h := s.holders[s.first[r] : s.first[r]+s.held[r]]
		out := h[random.IntN(len(h))]
		for _, u := range h {
			if p.weight[u] < p.weight[out] {
				out = u
			}
		}
		gain -= p.weight[out]
		s.remove(out)
	}
	removed := len(s.log)
	s.insert(v)
	for i := range removed {
		for _, r := range p.Uses(int(^s.log[i])) {
			on := s.on(r)
			from := random.IntN(len(on))
			for k := range on {
				if s.left[r] == 0 {
					break
				}
				if k += from; k >= len(on) {
					k -= len(on)
				}
				if u := on[k]; member[u] && !s.in[u] && s.fits(u) {
					s.insert(u)
					gain += p.weight[u]
				}
			}
		}
	}
	return gain
}

// undo takes the last move back.
func (s *Solver) undo() {
	for i := len(s.log) - 1; i >= 0; i-- {
		if e := s.log[i]; e >= 0 {
			s.remove(e)
		} else {
			s.choose(^e)
			s.hold(^e)
		}
	}
}

// demand is how many items of the kernel want a resource, and for how many there is room
// beside what is chosen outside of it; until the next call.
func (s *Solver) demand() (wanted, room []int32) {
	s.excess = resized(s.excess, len(s.p.capacity))
	s.top = append(s.top[:0], s.p.capacity...)
	for v, in := range s.in {
		if in {
			for _, r := range s.p.Uses(v) {
				s.top[r]--
			}
		}
	}
	for _, v := range s.kernel {
		for _, r := range s.p.Uses(int(v)) {
			s.excess[r]++
			if s.in[v] {
				s.top[r]++
			}
		}
	}
	return s.excess, s.top
}

// bound is one on the weight of a solution of the kernel: every item is counted with its
// most wanted resource, and of each no more than fit in.
func (s *Solver) bound() int64 {
	wanted, room := s.demand()
	// Two ways to count: with the resource that most want, and with the first one, which
	// for trees is their job.
	most, own := int64(0), int64(0)
	roomOwn := slices.Clone(room)
	for _, v := range s.kernel { // the heaviest first
		uses := s.p.Uses(int(v))
		r := uses[0]
		if roomOwn[r] > 0 {
			roomOwn[r]--
			own += s.p.weight[v]
		}
		for _, o := range uses {
			if wanted[o] > wanted[r] {
				r = o
			}
		}
		if room[r] > 0 {
			room[r]--
			most += s.p.weight[v]
		}
	}
	return min(most, own)
}

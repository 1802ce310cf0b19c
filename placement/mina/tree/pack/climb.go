package pack

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// climber is the iterated local search of Andrade, Resende and Werneck ("Fast local search
// for the maximum independent set problem", Journal of Heuristics 18, 2012), with weights
// as in ILS-VND (Nogueira, Pinheiro and Subramanian, Optimization Letters 12, 2018).
// Solutions are maximal. In a local optimum no vertex outside is worth more than the only
// one that keeps it out, and no two of these, not next to each other, than theirs. From
// there a vertex is forced in, of four random ones the one that was outside for longest,
// and what is climbed to then is left again the more likely the more it lost.
//
// How many of a vertex's neighbours are chosen, its tightness, is counted in binary, with
// a word for each digit of 64 vertices: a change takes a few operations on words instead
// of one for each neighbour.
type climber struct {
	g      *graph
	digits int // of a tightness, which is a degree at most

	now, kept solution // kept: the last local optimum that was accepted
	best      set
	value     int64 // of best

	free, fresh set
	left        []int // round in which a vertex left the solution
	round       int
	random      rand.PCG
}

// solution is an independent set with what it says of other vertices.
type solution struct {
	in    set
	one   set      // vertices with a tightness of 1; out of date after a change
	tight []uint64 // digits of tightnesses: those of 64 vertices, the lowest first, then of the next 64
	size  int
	value int64
}

func (s *solution) reset(words, digits int) {
	s.in, s.one, s.tight = resized(s.in, words), resized(s.one, words), resized(s.tight, words*digits)
	s.size, s.value = 0, 0
}

// copy makes it the same as another of the same graph.
func (s *solution) copy(o *solution) {
	copy(s.in, o.in)
	copy(s.one, o.one)
	copy(s.tight, o.tight)
	s.size, s.value = o.size, o.value
}

// start climbs from an independent set of a graph of which no vertex was removed.
func (c *climber) start(g *graph, in set, seed uint64) {
	n := len(g.weight)
	c.g, c.digits, c.round = g, bits.Len(uint(max(1, slices.Max(g.degree)))), 0
	c.now.reset(g.words, c.digits)
	c.kept.reset(g.words, c.digits)
	c.free, c.fresh = resized(c.free, g.words), resized(c.fresh, g.words)
	c.left = resized(c.left, n)
	c.random.Seed(seed, uint64(n))
	for v := range in.all {
		c.insert(v)
	}
	c.climb()
	c.kept.copy(&c.now)
	c.best, c.value = append(c.best[:0], c.now.in...), c.now.value
}

// run searches for so many rounds, or until best is worth a bound.
func (c *climber) run(rounds int, bound int64) {
	total := int64(0)
	for _, w := range c.g.weight {
		total += w
	}
	mean := float64(total) / float64(len(c.g.weight))
	for c.round = 1; c.round <= rounds && c.value < bound; c.round++ {
		c.kick()
		c.climb()
		if c.now.value > c.value {
			c.value = c.now.value
			copy(c.best, c.now.in)
		}
		if c.accepts(mean) {
			c.kept.copy(&c.now)
		} else {
			c.now.copy(&c.kept)
		}
	}
}

// accepts is whether the search goes on from where it is. A loss against the last local
// optimum is accepted with a chance of 1/(1+ab), where a is the loss against that one and b
// against the best, both in vertices of mean weight.
func (c *climber) accepts(mean float64) bool {
	a := float64(c.kept.value-c.now.value) / mean
	b := float64(c.value-c.now.value) / mean
	if a <= 0 {
		return true
	}
	chance := 1 / (1 + float64(a*b))
	return float64(c.random.Uint64()>>11)/(1<<53) < chance
}

// kick forces a vertex into the solution, now and then more.
func (c *climber) kick() {
	n := 1
	if c.below(2*c.now.size) == 0 {
		n = 2 + bits.TrailingZeros64(c.random.Uint64())
	}
	for range n {
		v := c.outside()
		for i, word := range c.g.row(v) {
			for word &= c.now.in[i]; word != 0; word &= word - 1 {
				c.remove(int32(i<<6 + bits.TrailingZeros64(word)))
			}
		}
		c.insert(v)
	}
}

// outside draws a vertex that is not in the solution; there is one where vertices are
// next to each other.
func (c *climber) outside() int32 {
	longest := int32(-1)
	for range 4 {
		v := c.below(len(c.g.weight))
		for c.now.in.has(v) {
			v = c.below(len(c.g.weight))
		}
		if longest < 0 || c.left[v] < c.left[longest] {
			longest = v
		}
	}
	return longest
}

// below draws a number from 0 to n-1.
func (c *climber) below(n int) int32 {
	high, _ := bits.Mul64(c.random.Uint64(), uint64(n))
	return int32(high)
}

func (c *climber) insert(v int32) {
	s := &c.now
	s.in.add(v)
	s.size++
	s.value += c.g.weight[v]
	for i, carry := range c.g.row(v) {
		for d := i * c.digits; carry != 0; d++ {
			s.tight[d], carry = s.tight[d]^carry, s.tight[d]&carry
		}
	}
}

func (c *climber) remove(v int32) {
	s := &c.now
	s.in.drop(v)
	s.size--
	s.value -= c.g.weight[v]
	c.left[v] = c.round
	for i, borrow := range c.g.row(v) {
		for d := i * c.digits; borrow != 0; d++ {
			s.tight[d], borrow = s.tight[d]^borrow, borrow&^s.tight[d]
		}
	}
}

// count finds the vertices that are free, and those with a tightness of 1.
func (c *climber) count() {
	for i := range c.free {
		tight := c.now.tight[i*c.digits : (i+1)*c.digits]
		more := uint64(0)
		for _, digit := range tight[1:] {
			more |= digit
		}
		c.now.one[i] = tight[0] &^ more
		c.free[i] = c.g.alive[i] &^ (c.now.in[i] | tight[0] | more)
	}
}

// climb goes to a local optimum.
func (c *climber) climb() {
	for c.fill(); c.swap(); c.fill() {
	}
}

// fill inserts free vertices until none is left, beginning anywhere.
func (c *climber) fill() {
	c.count()
	v := c.free.first()
	if v < 0 {
		return
	}
	for v = c.free.from(c.below(len(c.g.weight))); v >= 0; v = c.free.from(v) {
		c.insert(v)
		c.free.drop(v)
		for i, word := range c.g.row(v) {
			c.free[i] &^= word
		}
	}
	c.count()
}

// swap makes the solution better by one vertex, or two, instead of one, and is whether
// there was a way. In kept there was none, so one of those that come in is only now kept
// out by one vertex, or by another one.
func (c *climber) swap() bool {
	one, weight := c.now.one, c.g.weight
	for i := range c.fresh {
		c.fresh[i] = one[i] &^ c.kept.one[i]
	}
	for i, come := range c.now.in { // few, of many: by words
		for come &^= c.kept.in[i]; come != 0; come &= come - 1 {
			for k, word := range c.g.row(int32(i<<6 + bits.TrailingZeros64(come))) {
				c.fresh[k] |= word & one[k]
			}
		}
	}
	for u := range c.fresh.all {
		x := c.holder(u)
		y := int32(-1)
		if weight[u] <= weight[x] {
			if y = c.partner(u, x); y < 0 {
				continue
			}
		}
		c.remove(x)
		c.insert(u)
		if y >= 0 {
			c.insert(y)
		}
		return true
	}
	return false
}

// holder is the chosen vertex next to one with a tightness of 1.
func (c *climber) holder(u int32) int32 {
	for i, word := range c.g.row(u) {
		if word &= c.now.in[i]; word != 0 {
			return int32(i<<6 + bits.TrailingZeros64(word))
		}
	}
	return -1
}

// partner is a vertex that only x keeps out, as it does u, is not next to u, and with it
// weighs more than x; -1: there is none.
func (c *climber) partner(u, x int32) int32 {
	beside, weight := c.g.row(u), c.g.weight
	for i, word := range c.g.row(x) {
		for word &= c.now.one[i] &^ beside[i]; word != 0; word &= word - 1 {
			if y := int32(i<<6 + bits.TrailingZeros64(word)); y != u && weight[u]+weight[y] > weight[x] {
				return y
			}
		}
	}
	return -1
}

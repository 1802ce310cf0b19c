package pack

import (
	"cmp"
	"slices"
)

// Exact is the best solution by branch and bound of the kernel, and whether it is proven
// to be: more than so many nodes are not looked at. It is for small instances. It begins
// with Solve's solution with the same preferred items and 20 moves for each item. With
// capacities of 1 the nodes are those of branch and reduce, for each component of the
// conflict graph, beside a hundred that Solve looks at; one of more than 512 items is not
// proven.
func (s *Solver) Exact(p *Problem, preferred []int, nodes int) (chosen []int, proven bool) {
	proven = s.solve(p, preferred, effort{moves: 20 * p.Len(), seed: 1, nodes: nodes})
	if proven || s.exclusive() {
		return s.chosen(), proven
	}
	b := branching{Solver: s, nodes: nodes,
		want: make([]int32, len(p.capacity)), heavy: make([]int64, len(p.capacity))}
	for _, v := range s.kernel {
		if s.in[v] {
			b.best += p.weight[v]
			b.found = append(b.found, v)
			s.release(v)
		}
	}
	b.search(s.kernel, 0)
	for _, v := range b.found {
		s.choose(v)
	}
	return s.chosen(), b.nodes > 0
}

// release is the opposite of choose.
func (s *Solver) release(v int32) {
	s.in[v] = false
	for _, r := range s.p.Uses(int(v)) {
		s.left[r]++
	}
}

type branching struct {
	*Solver
	nodes       int // left to look at
	best        int64
	found, path []int32
	want        []int32 // items that are left, by resource
	heavy       []int64 // weight of the heaviest of them
	busy        []int32
	cover       []int32
}

// count counts what items want.
func (b *branching) count(items []int32) {
	for _, r := range b.busy {
		b.want[r] = 0
	}
	b.busy = b.busy[:0]
	for _, v := range items {
		for _, r := range b.p.Uses(int(v)) {
			if b.want[r] == 0 {
				b.busy = append(b.busy, r)
				b.heavy[r] = b.p.weight[v]
			}
			b.want[r]++
		}
	}
}

// search looks for a better solution among items that are left, the heaviest first, beside
// those on the path.
func (b *branching) search(items []int32, value int64) {
	if b.nodes--; b.nodes <= 0 {
		return
	}
	depth := len(b.path)
	defer func() {
		for _, v := range b.path[depth:] {
			b.release(v)
		}
		b.path = b.path[:depth]
	}()
	for again := true; again; {
		again = false
		items = slices.DeleteFunc(slices.Clone(items), func(v int32) bool { return b.in[v] || !b.fits(v) })
		b.count(items)
		for _, v := range items {
			contested, heaviest := 0, true
			for _, r := range b.p.Uses(int(v)) {
				if b.want[r] > b.left[r] {
					contested++
					heaviest = heaviest && b.p.weight[v] >= b.heavy[r]
				}
			}
			if (contested == 0 || contested == 1 && heaviest) && b.fits(v) {
				b.choose(v)
				for _, r := range b.p.Uses(int(v)) {
					b.want[r]--
				}
				b.path = append(b.path, v)
				value += b.p.weight[v]
				again = true
			}
		}
	}
	if value > b.best {
		b.best = value
		b.found = append(b.found[:0], b.path...)
	}
	if len(items) == 0 || value+b.limit(items) <= b.best {
		return
	}
	at, most := 0, int32(-1)
	for i, v := range items {
		sum := int32(0)
		for _, r := range b.p.Uses(int(v)) {
			sum += max(0, b.want[r]-b.left[r])
		}
		if sum > most {
			at, most = i, sum
		}
	}
	v := items[at]
	b.choose(v)
	b.path = append(b.path, v)
	b.search(items, value+b.p.weight[v])
	b.path = b.path[:len(b.path)-1]
	b.release(v)
	b.search(slices.Delete(items, at, at+1), value)
}

// limit is a bound on what items can weigh: resources cover them, the most wanted first,
// and of each counts what fits in of the heaviest that were not covered before.
func (b *branching) limit(items []int32) int64 {
	slices.SortFunc(b.busy, func(x, y int32) int {
		return cmp.Or(cmp.Compare(b.want[y]-b.left[y], b.want[x]-b.left[x]), cmp.Compare(x, y))
	})
	b.cover = resized(b.cover, b.p.Len())
	for _, v := range items {
		b.cover[v] = 1
	}
	sum := int64(0)
	for _, r := range b.busy {
		room := b.left[r]
		for _, v := range b.on(r) {
			if b.cover[v] == 1 {
				b.cover[v] = 0
				if room > 0 {
					room--
					sum += b.p.weight[v]
				}
			}
		}
	}
	return sum
}

package pack

import (
	"math/bits"
	"slices"
)

// set is a set of vertices, a bit for each. Sets of a graph have the same length.
type set []uint64

func (s set) add(v int32)      { s[v>>6] |= 1 << (v & 63) }
func (s set) drop(v int32)     { s[v>>6] &^= 1 << (v & 63) }
func (s set) has(v int32) bool { return s[v>>6]>>(v&63)&1 != 0 }

// all yields the members in order. Those that the loop drops may still come.
func (s set) all(yield func(int32) bool) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(int32(i<<6 + bits.TrailingZeros64(word))) {
				return
			}
		}
	}
}

// first is the first member; -1: there is none.
func (s set) first() int32 {
	for i, word := range s {
		if word != 0 {
			return int32(i<<6 + bits.TrailingZeros64(word))
		}
	}
	return -1
}

// from is the first member at or after v, or else before it; -1: there is none.
func (s set) from(v int32) int32 {
	at := int(v >> 6)
	if word := s[at] >> (v & 63); word != 0 {
		return v + int32(bits.TrailingZeros64(word))
	}
	for i := at + 1; i < len(s); i++ {
		if s[i] != 0 {
			return int32(i<<6 + bits.TrailingZeros64(s[i]))
		}
	}
	return s.first()
}

// graph is a conflict graph as a matrix of bits: vertices that are next to each other do
// not fit together. Vertices that were removed have no edges.
type graph struct {
	words  int // of a row
	weight []int64
	degree []int32
	alive  set // not removed
	dirty  set // living ones that reduce has not looked at since they became others
	rows   []uint64
	base   int64 // weight of what reductions have chosen

	spare, clique set // for use within a method
}

// reset makes it a graph of n vertices without edges, all of them dirty.
func (g *graph) reset(n int) {
	g.words, g.base = (n+63)/64, 0
	g.weight, g.degree = resized(g.weight, n), resized(g.degree, n)
	g.alive, g.dirty = resized(g.alive, g.words), resized(g.dirty, g.words)
	g.spare, g.clique = resized(g.spare, g.words), resized(g.clique, g.words)
	g.rows = resized(g.rows, n*g.words)
	for v := range int32(n) {
		g.alive.add(v)
		g.dirty.add(v)
	}
}

// copy makes it the same as another.
func (g *graph) copy(o *graph) {
	g.words, g.base = o.words, o.base
	g.weight, g.degree = append(g.weight[:0], o.weight...), append(g.degree[:0], o.degree...)
	g.alive, g.dirty = append(g.alive[:0], o.alive...), append(g.dirty[:0], o.dirty...)
	g.spare, g.clique = resized(g.spare, g.words), resized(g.clique, g.words)
	g.rows = append(g.rows[:0], o.rows...)
}

// row is the vertices next to v.
func (g *graph) row(v int32) set {
	return g.rows[int(v)*g.words : (int(v)+1)*g.words]
}

// join puts vertices next to each other. After the last one, measure is called.
func (g *graph) join(vertices set) {
	for v := range vertices.all {
		row := g.row(v)
		for i, word := range vertices {
			row[i] |= word
		}
	}
}

// measure counts neighbours. A vertex is none of its own.
func (g *graph) measure() {
	for v := range g.alive.all {
		g.row(v).drop(v)
		g.degree[v] = 0
		for _, word := range g.row(v) {
			g.degree[v] += int32(bits.OnesCount64(word))
		}
	}
}

// part makes it the graph of some vertices of another, which has been reduced: none is
// dirty. They are numbered in their order. Index is memory for as many vertices as that
// one has.
func (g *graph) part(o *graph, vertices, index []int32) {
	g.reset(len(vertices))
	clear(g.dirty)
	for i, v := range vertices {
		index[v] = int32(i)
		g.weight[i], g.degree[i] = o.weight[v], o.degree[v]
	}
	for i, v := range vertices {
		row := g.row(int32(i))
		for u := range o.row(v).all {
			row.add(index[u])
		}
	}
}

// component moves a vertex and all that are connected with it from rest to a slice, in order.
func (g *graph) component(vertices []int32, rest set) []int32 {
	v := rest.first()
	rest.drop(v)
	vertices = append(vertices[:0], v)
	for at := 0; at < len(vertices); at++ {
		for i, word := range g.row(vertices[at]) {
			word &= rest[i]
			rest[i] &^= word
			for ; word != 0; word &= word - 1 {
				vertices = append(vertices, int32(i<<6+bits.TrailingZeros64(word)))
			}
		}
	}
	slices.Sort(vertices)
	return vertices
}

// widest is the vertex with most neighbours, of those the last; -1: none has any. Removed
// ones have none, nor do living ones once heavy has taken those.
func (g *graph) widest() int32 {
	widest, most := int32(-1), int32(1)
	for v, degree := range g.degree {
		if degree >= most {
			widest, most = int32(v), degree
		}
	}
	return widest
}

// cover is a bound on the weight of an independent set of living vertices: cliques cover
// them, and of each the heaviest counts.
func (g *graph) cover() int64 {
	rest, clique, sum := g.spare, g.clique, int64(0)
	copy(rest, g.alive)
	for v := rest.first(); v >= 0; v = rest.first() {
		rest.drop(v)
		heaviest := g.weight[v]
		for i, word := range g.row(v) {
			clique[i] = word & rest[i]
		}
		for u := clique.first(); u >= 0; u = clique.first() {
			rest.drop(u)
			heaviest = max(heaviest, g.weight[u])
			for i, word := range g.row(u) {
				clique[i] &= word
			}
		}
		sum += heaviest
	}
	return sum
}

package pack

import "slices"

// rules are reductions of a conflict graph that keep the weight of its best independent
// set (Lamm, Schulz, Strash, Williger and Zhang, "Exactly solving the maximum weight
// independent set problem on large real-world graphs", ALENEX '19).
type rules uint8

const (
	// heavy: a vertex that weighs as much as all its neighbours together is chosen. Without
	// weights: one with no neighbour or one.
	heavy rules = 1 << iota
	// folding: a vertex with two neighbours that are not next to each other, and no heavier
	// than it, becomes one with them. It is chosen, or both are.
	folding
	// dominance: of two vertices next to each other, the one that is no heavier and has all
	// neighbours of the other is removed. It leaves a vertex whose neighbours are a clique
	// without them, if none is heavier.
	dominance
	// twins: vertices with the same neighbours become one, as heavy as both.
	twins

	everyRule = heavy | folding | dominance | twins
)

// reach is the largest degree of vertices that rules are tried on. What has more
// neighbours seldom meets their conditions, and finding out takes long.
const reach = 8

// step is a reduction that says what a solution has when it is known of the rest.
type step struct {
	rule rules
	v    int32 // heavy: is chosen; folding, twins: stands for the others
	u, x int32 // folding: the neighbours; twins: u is the other one
}

// unwind makes a solution of what was left after steps one of what was there before.
func unwind(steps []step, in set) {
	for _, s := range slices.Backward(steps) {
		switch {
		case s.rule == heavy:
			in.add(s.v)
		case s.rule == twins && in.has(s.v):
			in.add(s.u)
		case s.rule == folding && in.has(s.v):
			in.drop(s.v)
			in.add(s.u)
			in.add(s.x)
		case s.rule == folding:
			in.add(s.v)
		}
	}
}

// wind makes a solution of what was there before steps one of the vertices left by them.
// It is not always as good: what took the place of removed ones is missing.
func wind(steps []step, in, alive set) {
	for _, s := range steps {
		switch {
		case s.rule == twins && in.has(s.u):
			in.add(s.v)
		case s.rule == folding && in.has(s.u) && in.has(s.x):
			in.add(s.v)
		case s.rule == folding:
			in.drop(s.v)
		}
	}
	for i := range in {
		in[i] &= alive[i]
	}
}

// reduce uses rules on dirty vertices until none is dirty, and appends what was done.
func (g *graph) reduce(use rules, steps []step) []step {
	for v := g.dirty.first(); v >= 0; v = g.dirty.first() {
		g.dirty.drop(v)
		switch {
		case g.degree[v] > reach:
		case use&heavy != 0 && g.outweighs(v):
			steps = g.take(v, steps)
		case use&folding != 0 && g.degree[v] == 2 && g.folds(v):
			steps = g.fold(v, steps)
		default:
			if use&dominance != 0 {
				g.dominate(v)
			}
			if use&twins != 0 && g.degree[v] > 0 {
				steps = g.merge(v, steps)
			}
		}
	}
	return steps
}

// remove takes a vertex away. Its neighbours are dirty then.
func (g *graph) remove(v int32) {
	row := g.row(v)
	for u := range row.all {
		g.row(u).drop(v)
		g.degree[u]--
		g.dirty.add(u)
	}
	clear(row)
	g.degree[v] = 0
	g.alive.drop(v)
	g.dirty.drop(v)
}

// take chooses a vertex, for which its neighbours go.
func (g *graph) take(v int32, steps []step) []step {
	for u := range g.row(v).all {
		g.remove(u)
	}
	g.remove(v)
	g.base += g.weight[v]
	return append(steps, step{rule: heavy, v: v})
}

// outweighs is whether a vertex weighs as much as its neighbours together.
func (g *graph) outweighs(v int32) bool {
	left := g.weight[v]
	for u := range g.row(v).all {
		if left -= g.weight[u]; left < 0 {
			return false
		}
	}
	return true
}

// ends are the neighbours of a vertex that has two.
func (g *graph) ends(v int32) (u, x int32) {
	for y := range g.row(v).all {
		u, x = x, y
	}
	return u, x
}

// folds is whether a vertex with two neighbours can be folded with them.
func (g *graph) folds(v int32) bool {
	u, x := g.ends(v)
	w := g.weight
	return !g.row(u).has(x) && w[v] >= max(w[u], w[x]) && w[v] < w[u]+w[x]
}

// fold makes a vertex stand for both its neighbours, next to all that these are next to.
func (g *graph) fold(v int32, steps []step) []step {
	u, x := g.ends(v)
	around := g.spare
	for i, word := range g.row(u) {
		around[i] = word | g.row(x)[i]
	}
	around.drop(v)
	g.base += g.weight[v]
	g.weight[v] = g.weight[u] + g.weight[x] - g.weight[v]
	g.remove(u)
	g.remove(x)
	row := g.row(v)
	copy(row, around)
	for y := range around.all {
		g.row(y).add(v)
		g.degree[y]++
		g.degree[v]++
		g.dirty.add(y)
	}
	g.dirty.add(v)
	return append(steps, step{folding, v, u, x})
}

// dominate removes the neighbours that are no heavier than a vertex and have all its
// other neighbours.
func (g *graph) dominate(v int32) {
	for u := range g.row(v).all {
		if g.weight[v] >= g.weight[u] && g.within(v, u) {
			g.remove(u)
		}
	}
}

// within is whether all neighbours of a vertex but u itself are neighbours of u.
func (g *graph) within(v, u int32) bool {
	other := g.row(u)
	for i, word := range g.row(v) {
		if word &^= other[i]; i == int(u>>6) {
			word &^= 1 << (u & 63)
		}
		if word != 0 {
			return false
		}
	}
	return true
}

// merge makes a vertex stand for another one with the same neighbours, if there is one.
func (g *graph) merge(v int32, steps []step) []step {
	row := g.row(v)
	for x := range g.row(row.first()).all {
		if x != v && g.degree[x] == g.degree[v] && slices.Equal(g.row(x), row) {
			g.weight[v] += g.weight[x]
			g.remove(x)
			g.dirty.add(v)
			return append(steps, step{rule: twins, v: v, u: x})
		}
	}
	return steps
}

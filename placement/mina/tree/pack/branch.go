package pack

// brancher finds best independent sets by branch and reduce (Akiba and Iwata, "Branch-and-
// reduce exponential/FPT algorithms in practice", 2016; Lamm et al., ALENEX '19): after
// reductions a bound tells whether the rest can be better, and if so, that is looked for
// without the vertex that has most neighbours, and then with it. The first way down is
// reducing-peeling with all the rules.
type brancher struct {
	levels []*graph // by how many vertices the branch does without
	steps  []step
	nodes  int // left to look at
	deep   int

	found bool // something better than what was known before: in
	in    set
	best  int64 // weight of the best solution known
}

// run looks for an independent set that weighs more than best, and returns whether none
// weighs more than what is known then. It gives up after so many nodes, and when it had to
// do without more vertices than deep: that way is followed to one solution, and is the last.
func (b *brancher) run(g *graph, best int64, nodes, deep int) (proven bool) {
	b.best, b.nodes, b.deep, b.found, b.steps = best, nodes, deep, false, b.steps[:0]
	b.level(0).copy(g)
	b.in = resized(b.in, g.words)
	b.search(0)
	return b.nodes > 0
}

func (b *brancher) level(depth int) *graph {
	if depth == len(b.levels) {
		b.levels = append(b.levels, &graph{})
	}
	return b.levels[depth]
}

// search looks at the graph of a level, which it uses up.
func (b *brancher) search(depth int) {
	if depth > b.deep {
		b.descend(b.level(depth))
		return
	}
	g := b.level(depth)
	for b.nodes > 0 {
		b.nodes--
		b.steps = g.reduce(everyRule, b.steps)
		v := g.widest()
		if v < 0 {
			b.leaf(g)
			return
		}
		if g.base+g.cover() <= b.best {
			return
		}
		known := len(b.steps)
		without := b.level(depth + 1)
		without.copy(g)
		without.remove(v)
		b.search(depth + 1)
		b.steps = g.take(v, b.steps[:known])
	}
}

// descend goes to one solution, always without the widest vertex, if there are nodes left,
// and leaves none.
func (b *brancher) descend(g *graph) {
	if b.nodes <= 0 {
		return
	}
	b.steps = g.reduce(everyRule, b.steps)
	for v := g.widest(); v >= 0; v = g.widest() {
		g.remove(v)
		b.steps = g.reduce(everyRule, b.steps)
	}
	b.leaf(g)
	b.nodes = 0
}

// leaf keeps a solution that is better.
func (b *brancher) leaf(g *graph) {
	if g.base <= b.best {
		return
	}
	b.best, b.found = g.base, true
	clear(b.in)
	unwind(b.steps, b.in)
}

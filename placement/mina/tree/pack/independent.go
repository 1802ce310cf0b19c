package pack

// What is tried on a component before the local search, and by Exact at most.
const (
	quickNodes = 100
	quickDepth = 12
	branchable = 512 // vertices; every level of the search has a matrix of them
)

// A move is two climbs in a component of few vertices, and one in a larger one. A climb takes
// the longer the more vertices there are, which a move by resources does not: beyond many
// vertices climbs are so much fewer that all together take as long. BenchmarkMIS has what
// they find and how long they take, beside moves by resources.
const (
	few  = 192
	many = 1024
)

// matrix is how many vertices a conflict graph may have: 8 MiB of bits.
const matrix = 1 << 13

// effort is how long a solution is looked for.
type effort struct {
	moves int // of local searches, in all
	seed  uint64
	nodes int // of branch and reduce after it, for each component; 0: none
}

// independentSets finds independent sets of conflict graphs, of one after the other in the
// same memory.
type independentSets struct {
	graph, part     graph
	start, solution set // of the graph
	local           set // of the part: its start
	rest            set
	steps           []step
	vertices, index []int32 // of the part, in the graph
	climber         climber
	brancher        brancher
}

// solve makes solution as good as it can and returns what it weighs, and whether nothing
// weighs more. No solution weighs more than bound. The graph and start are used up.
func (d *independentSets) solve(e effort, bound int64) (value int64, optimal bool) {
	g := &d.graph
	d.steps = g.reduce(everyRule, d.steps[:0])
	wind(d.steps, d.start, g.alive)
	d.solution, d.index = resized(d.solution, g.words), resized(d.index, len(g.weight))
	d.rest = append(d.rest[:0], g.alive...)
	value, optimal = g.base, true
	for v := range d.start.all {
		value += g.weight[v]
	}
	for d.rest.first() >= 0 {
		d.vertices = g.component(d.vertices, d.rest)
		gain, proven := d.component(e, bound-value)
		value += gain
		optimal = optimal && proven
	}
	unwind(d.steps, d.solution)
	return value, optimal || value == bound
}

// component solves what is connected and returns how much better that is than its start,
// and whether it is optimal. It cannot be better by more than room.
func (d *independentSets) component(e effort, room int64) (gain int64, proven bool) {
	g, c := &d.part, &d.climber
	g.part(&d.graph, d.vertices, d.index)
	d.local = resized(d.local, g.words)
	started := int64(0)
	for i, v := range d.vertices {
		if d.start.has(v) {
			d.local.add(int32(i))
			started += g.weight[i]
		}
	}
	c.start(g, d.local, e.seed)
	bound := min(g.cover(), started+room)
	proven = c.value >= bound || d.branch(quickNodes, quickDepth, e.seed)
	if !proven {
		c.run(climbs(e.moves, len(d.vertices), len(d.graph.weight)), bound)
		proven = c.value >= bound || e.nodes > 0 && d.branch(e.nodes, len(d.vertices), e.seed)
	}
	for v := range c.best.all {
		d.solution.add(d.vertices[v])
	}
	return c.value - started, proven
}

// climbs are those in a component for its part of so many moves, n of all vertices.
func climbs(moves, n, all int) int {
	out := 2 * moves * n / all
	if n > few {
		out /= 2
	}
	if n > many {
		out = out * many / n
	}
	return out
}

// branch looks for something better than what was climbed to, climbs on from there, and
// returns whether that is optimal.
func (d *independentSets) branch(nodes, deep int, seed uint64) (proven bool) {
	if len(d.vertices) > branchable {
		return false
	}
	proven = d.brancher.run(&d.part, d.climber.value, nodes, deep)
	if d.brancher.found {
		d.climber.start(&d.part, d.brancher.in, seed)
	}
	return proven
}

// exclusive is whether the kernel is a conflict graph's: of items that want more than
// there is of a resource, one gets it.
func (s *Solver) exclusive() bool {
	wanted, room := s.demand()
	for _, v := range s.kernel {
		for _, r := range s.p.Uses(int(v)) {
			if room[r] > 1 && wanted[r] > room[r] {
				return false
			}
		}
	}
	return len(s.kernel) <= matrix
}

// conflicts makes the conflict graph of an exclusive kernel, with what is chosen as start.
func (s *Solver) conflicts() {
	g := &s.sets.graph
	g.reset(len(s.kernel))
	s.sets.start = resized(s.sets.start, g.words)
	s.place = resized(s.place, s.p.Len())
	for i, v := range s.kernel {
		s.place[v] = int32(i) + 1
		g.weight[i] = s.p.weight[v]
		if s.in[v] {
			s.sets.start.add(int32(i))
		}
	}
	wanted, room := s.demand()
	for r := range int32(len(wanted)) {
		if wanted[r] <= room[r] {
			continue
		}
		clear(g.clique)
		for _, v := range s.on(r) {
			if i := s.place[v]; i > 0 {
				g.clique.add(i - 1)
			}
		}
		g.join(g.clique)
	}
	g.measure()
}

// independent looks for what is better than the best of peeling's solution and what is
// preferred, on the conflict graph, and is whether it is known to be optimal.
func (s *Solver) independent(preferred []int, e effort) (optimal bool) {
	if len(preferred) > 0 {
		s.prefer(preferred)
		if s.value(s.other) > s.value(s.in) {
			s.in, s.other = s.other, s.in
		}
	}
	value, bound := int64(0), s.bound()
	for _, v := range s.kernel {
		if s.in[v] {
			value += s.p.weight[v]
		}
	}
	if value == bound {
		return true
	}
	s.conflicts()
	better, optimal := s.sets.solve(e, bound)
	if better > value {
		for i, v := range s.kernel {
			s.in[v] = s.sets.solution.has(int32(i))
		}
	}
	return optimal
}

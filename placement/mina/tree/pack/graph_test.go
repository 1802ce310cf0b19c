package pack

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// randomGraph is one of n vertices, each two of them next to each other with some chance.
func randomGraph(r *rand.Rand, n int, chance float64, weighted bool) *graph {
	g := &graph{}
	g.reset(n)
	for v := range int32(n) {
		g.weight[v] = 1
		if weighted {
			g.weight[v] += int64(r.IntN(9))
		}
		for u := range v {
			if r.Float64() < chance {
				g.row(u).add(v)
				g.row(v).add(u)
			}
		}
	}
	g.measure()
	return g
}

// heaviest is the best independent set among some of at most 64 vertices, by trying all:
// a vertex is in it, or is not.
func heaviest(g *graph, left uint64) (weight int64, in uint64) {
	if left == 0 {
		return 0, 0
	}
	v := bits.TrailingZeros64(left)
	left &^= 1 << v
	without, other := heaviest(g, left)
	weight, in = heaviest(g, left&^g.row(int32(v))[0])
	if weight += g.weight[v]; weight < without {
		return without, other
	}
	return weight, in | 1<<v
}

// weigh is the weight of a set of living vertices, and an error if two of them are next to
// each other.
func weigh(g *graph, in set) (int64, error) {
	sum := int64(0)
	for v := range in.all {
		sum += g.weight[v]
		if !g.alive.has(v) {
			return 0, fmt.Errorf("%d was removed", v)
		}
		for u := range g.row(v).all {
			if in.has(u) {
				return 0, fmt.Errorf("%d and %d are next to each other", u, v)
			}
		}
	}
	return sum, nil
}

func clone(g *graph) *graph {
	o := &graph{}
	o.copy(g)
	return o
}

// small calls a function with random graphs that heaviest is fast for.
func small(t *testing.T, f func(t *testing.T, r *rand.Rand, g *graph)) {
	r := rand.New(rand.NewPCG(*seed, 4))
	for i := range 300 {
		g := randomGraph(r, 1+r.IntN(16), []float64{0.08, 0.15, 0.3, 0.5}[i%4], i%3 == 0)
		if f(t, r, g); t.Failed() {
			t.Fatalf("seed %d, graph %d: weights %v, rows %b", *seed, i, g.weight, g.rows)
		}
	}
}

// Each rule, and all of them together, keep what the best solution weighs, and what they
// noted makes one of that of the rest. The other way round, a solution of the whole is one
// of the rest. A second time they find nothing.
func TestRules(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  rules
	}{{"heavy", heavy}, {"folding", folding}, {"dominance", dominance}, {"twins", twins}, {"all", everyRule}} {
		t.Run(tt.name, func(t *testing.T) {
			removed := 0
			small(t, func(t *testing.T, _ *rand.Rand, g *graph) {
				want, best := heaviest(g, g.alive[0])
				rest := clone(g)
				steps := rest.reduce(tt.use, nil)
				removed += bits.OnesCount64(g.alive[0] &^ rest.alive[0])
				got, in := heaviest(rest, rest.alive[0])
				if got+rest.base != want {
					t.Errorf("%d and %d of the rest, want %d", rest.base, got, want)
				}
				whole := set{in}
				unwind(steps, whole)
				if got, err := weigh(g, whole); err != nil || got != want {
					t.Errorf("%b of the rest becomes %b, which weighs %d: want %d (%v)", in, whole, got, want, err)
				}
				part := set{best}
				wind(steps, part, rest.alive)
				if _, err := weigh(rest, part); err != nil {
					t.Errorf("%b becomes %b: %v", best, part, err)
				}
				for v := range rest.alive.all {
					if rest.degree[v] != int32(bits.OnesCount64(rest.row(v)[0])) {
						t.Errorf("%d has %d neighbours, is said to have %d", v, bits.OnesCount64(rest.row(v)[0]), rest.degree[v])
					}
					rest.dirty.add(v)
				}
				left := bits.OnesCount64(rest.alive[0])
				if again := rest.reduce(tt.use, nil); len(again) > 0 || bits.OnesCount64(rest.alive[0]) != left {
					t.Errorf("%d were left, and then %b by %v", left, rest.alive, again)
				}
			})
			if removed == 0 {
				t.Error("the rule was never used")
			}
		})
	}
}

// What rules are for: each one leaves to heavy what it could not solve before.
func TestRulesSolve(t *testing.T) {
	for _, tt := range []struct {
		name     string
		use      rules
		vertices int
		edges    [][2]int32
		want     int64
	}{
		{"a path of three", heavy, 3, [][2]int32{{0, 1}, {1, 2}}, 2},
		{"a cycle of six", heavy | folding, 6, [][2]int32{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 0}}, 3},
		{"a triangle", heavy | dominance, 3, [][2]int32{{0, 1}, {1, 2}, {2, 0}}, 1},
		{"three beside three", heavy | twins, 6, [][2]int32{{0, 3}, {0, 4}, {0, 5}, {1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 4}, {2, 5}}, 3},
	} {
		g := &graph{}
		g.reset(tt.vertices)
		for v := range g.weight {
			g.weight[v] = 1
		}
		for _, e := range tt.edges {
			g.row(e[0]).add(e[1])
			g.row(e[1]).add(e[0])
		}
		g.measure()
		steps := g.reduce(tt.use, nil)
		in := set{0}
		unwind(steps, in)
		if g.base != tt.want || g.alive.first() >= 0 || int64(bits.OnesCount64(in[0])) != tt.want {
			t.Errorf("%s: %d by %b, want %d; left are %b", tt.name, g.base, in, tt.want, g.alive)
		}
	}
}

// Branch and reduce finds the best, and the cover by cliques is never below it. With few
// nodes it does not say that what it has is the best when it is not.
func TestBranch(t *testing.T) {
	var b brancher
	small(t, func(t *testing.T, r *rand.Rand, g *graph) {
		n := len(g.weight)
		want, _ := heaviest(g, g.alive[0])
		if cover := g.cover(); cover < want {
			t.Errorf("cliques cover %d, the best is %d", cover, want)
		}
		if proven := b.run(g, -1, 1<<20, n); !proven || b.best != want {
			t.Errorf("%d (proven: %v), want %d", b.best, proven, want)
		}
		if got, err := weigh(g, b.in); err != nil || got != want {
			t.Errorf("%b weighs %d, want %d (%v)", b.in, got, want, err)
		}
		if proven := b.run(g, want, 1<<20, n); !proven || b.found {
			t.Errorf("better than the best: %d (proven: %v)", b.best, proven)
		}
		if proven := b.run(g, -1, 1+r.IntN(5), r.IntN(3)); proven && b.best != want {
			t.Errorf("in few nodes: %d is proven, the best is %d", b.best, want)
		}
		if proven := b.run(g, -1, 1<<20, 0); !b.found || proven && b.best != want {
			t.Errorf("one way down: %d (found: %v, proven: %v), the best is %d", b.best, b.found, proven, want)
		}
		if got, err := weigh(g, b.in); err != nil || got != b.best {
			t.Errorf("one way down: %b weighs %d, is said to weigh %d (%v)", b.in, got, b.best, err)
		}
	})
}

// All of it together, component by component, finds the best of small graphs.
func TestIndependentSets(t *testing.T) {
	var d independentSets
	small(t, func(t *testing.T, _ *rand.Rand, g *graph) {
		want, _ := heaviest(g, g.alive[0])
		total := int64(0)
		for _, w := range g.weight {
			total += w
		}
		d.graph.copy(g)
		d.start = resized(d.start, g.words)
		value, optimal := d.solve(effort{moves: 10 * len(g.weight), seed: 1}, total)
		if value != want {
			t.Errorf("%d (optimal: %v), want %d", value, optimal, want)
		}
		if got, err := weigh(g, d.solution); err != nil || got != value {
			t.Errorf("%b weighs %d, is said to weigh %d (%v)", d.solution, got, value, err)
		}
	})
}

// Wherever the search is, its solution is independent and maximal, no swap makes it better,
// tightnesses are what counting says, and the best one is as good as it says. The same seed
// finds the same.
func TestClimb(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 5))
	for i := range 60 {
		n := 2 + r.IntN(150)
		g := randomGraph(r, n, 0.02+r.Float64()/4, i%2 == 0)
		if g.widest() < 0 {
			continue // nothing is outside
		}
		var c, again climber
		for _, c := range []*climber{&c, &again} {
			c.start(g, make(set, g.words), uint64(i))
			c.run(n, int64(10*n))
		}
		if !slices.Equal(c.best, again.best) || !reflect.DeepEqual(c.now, again.now) {
			t.Errorf("seed %d, graph %d: the same seed finds %b and %b", *seed, i, c.best, again.best)
		}
		if got, err := weigh(g, c.best); err != nil || got != c.value || c.now.value > got {
			t.Errorf("seed %d, graph %d: the best weighs %d, is said to weigh %d (%v)", *seed, i, got, c.value, err)
		}
		if got, err := weigh(g, c.now.in); err != nil || got != c.now.value {
			t.Errorf("seed %d, graph %d: a solution weighs %d, is said to weigh %d (%v)", *seed, i, got, c.now.value, err)
		}
		var loose []int32 // kept out by one
		for v := range int32(n) {
			holders := 0
			for u := range g.row(v).all {
				if c.now.in.has(u) {
					holders++
				}
			}
			tight := tightness(&c, v)
			if tight != holders || c.now.one.has(v) != (holders == 1) || c.now.in.has(v) != (holders == 0) {
				t.Fatalf("seed %d, graph %d: vertex %d has a tightness of %d, want %d; it is in: %v",
					*seed, i, v, tight, holders, c.now.in.has(v))
			}
			if holders == 1 {
				loose = append(loose, v)
			}
		}
		for _, u := range loose {
			x := c.holder(u)
			if g.weight[u] > g.weight[x] {
				t.Errorf("seed %d, graph %d: %d is better than %d", *seed, i, u, x)
			}
			for _, y := range loose {
				if y != u && !g.row(u).has(y) && c.holder(y) == x && g.weight[u]+g.weight[y] > g.weight[x] {
					t.Errorf("seed %d, graph %d: %d and %d are better than %d", *seed, i, u, y, x)
				}
			}
		}
	}
}

// tightness is what a search has counted of a vertex.
func tightness(c *climber, v int32) int {
	tight := 0
	for d := range c.digits {
		tight |= int(c.now.tight[int(v>>6)*c.digits+d]>>(v&63)&1) << d
	}
	return tight
}

// A vertex that all others keep out has the largest tightness that there can be.
func TestTightest(t *testing.T) {
	for n := int32(2); n < 20; n++ {
		g := &graph{}
		g.reset(int(n))
		in := make(set, g.words)
		for v := range n {
			g.weight[v] = 1
			if v > 0 {
				g.row(0).add(v)
				g.row(v).add(0)
				in.add(v)
			}
		}
		g.measure()
		var c climber
		c.start(g, in, 1)
		if got := tightness(&c, 0); got != int(n-1) || c.value != int64(n-1) {
			t.Errorf("%d of %d are chosen, which keep the last one out %d times", c.value, n, got)
		}
	}
}

// A component is all that edges lead to, one by one, in order.
func TestComponent(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 7))
	for i := range 20 {
		g := randomGraph(r, 1+r.IntN(200), 0.01, false)
		lowest := make([]int32, len(g.weight)) // vertex that edges lead to, by vertex
		for v := range lowest {
			lowest[v] = int32(v)
		}
		for again := true; again; {
			again = false
			for v := range lowest {
				for u := range g.row(int32(v)).all {
					if lowest[u] < lowest[v] {
						lowest[v], again = lowest[u], true
					}
				}
			}
		}
		for rest := slices.Clone(g.alive); rest.first() >= 0; {
			var want []int32
			for v, to := range lowest {
				if to == rest.first() {
					want = append(want, int32(v))
				}
			}
			if got := g.component(nil, rest); !slices.Equal(got, want) {
				t.Fatalf("seed %d, graph %d: %v are connected, want %v", *seed, i, got, want)
			}
		}
	}
}

// Small components have two climbs for a move, larger ones one, and the largest as many as
// those of 1,024 vertices. A component has its part of all.
func TestClimbs(t *testing.T) {
	for _, tt := range []struct{ moves, n, all, want int }{
		{200, 100, 100, 400},
		{200, 50, 100, 200},
		{384, 192, 192, 768},
		{400, 200, 200, 400},
		{2048, 1024, 1024, 2048},
		{16384, 8192, 8192, 2048},
		{0, 100, 100, 0},
	} {
		if got := climbs(tt.moves, tt.n, tt.all); got != tt.want {
			t.Errorf("%d moves, %d of %d vertices: %d climbs, want %d", tt.moves, tt.n, tt.all, got, tt.want)
		}
	}
}

// A search allocates nothing once it has begun.
func TestClimbAllocatesNothing(t *testing.T) {
	g := randomGraph(rand.New(rand.NewPCG(*seed, 6)), 120, 0.1, false)
	var c climber
	c.start(g, make(set, g.words), 1)
	if n := testing.AllocsPerRun(5, func() { c.run(100, int64(len(g.weight))) }); n != 0 {
		t.Errorf("%v allocations in 100 rounds", n)
	}
}

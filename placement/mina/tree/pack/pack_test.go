package pack

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var seed = flag.Uint64("seed", 1, "of random problems")

// random is a problem with so many items, each on up to 4 of the resources.
func random(r *rand.Rand, items, resources, capacity int, weighted bool) *Problem {
	p := &Problem{}
	p.Reset(nil)
	for range resources {
		p.Resource(int32(r.IntN(capacity + 1)))
	}
	for range items {
		var uses []int32
		for _, i := range r.Perm(resources)[:r.IntN(5)] {
			uses = append(uses, int32(i))
		}
		w := int64(1)
		if weighted {
			w += int64(r.IntN(9))
		}
		p.Add(w, uses...)
	}
	return p
}

// Value is the weight of a solution.
func (p *Problem) Value(items []int) int64 {
	sum := int64(0)
	for _, v := range items {
		sum += p.weight[v]
	}
	return sum
}

// Check is an error where items do not fit together, or one is there twice.
func (p *Problem) Check(items []int) error {
	load, seen := make([]int32, len(p.capacity)), map[int]bool{}
	for _, v := range items {
		if v < 0 || v >= p.Len() || seen[v] {
			return fmt.Errorf("item %d is not there, or twice", v)
		}
		seen[v] = true
		for _, r := range p.Uses(v) {
			if load[r]++; load[r] > p.capacity[r] {
				return fmt.Errorf("resource %d is used %d times, its capacity is %d", r, load[r], p.capacity[r])
			}
		}
	}
	return nil
}

// Peel is the solution by reducing-peeling, and whether it is known to be optimal.
func (s *Solver) Peel(p *Problem) (chosen []int, optimal bool) {
	optimal = s.peel(p)
	return s.chosen(), optimal
}

// brute tries all subsets.
func brute(p *Problem) int64 {
	best := int64(0)
	for set := range 1 << p.Len() {
		var items []int
		for v := range p.Len() {
			if set>>v&1 == 1 {
				items = append(items, v)
			}
		}
		if p.Check(items) == nil {
			best = max(best, p.Value(items))
		}
	}
	return best
}

// All solutions fit, Exact's is the best of all subsets, and what is said to be optimal is.
func TestAgainstAllSubsets(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 0))
	var s Solver
	equal, total := 0, 0
	for i := range 200 {
		p := random(r, 1+r.IntN(11), 4+r.IntN(6), 1+i%3, i%2 == 0)
		want := brute(p)
		exact, proven := s.Exact(p, Greedy(p), 10000)
		peeled, sure := s.Peel(p)
		solved, optimal := s.Solve(p, nil, 200, 1)
		for name, items := range map[string][]int{"exact": exact, "peel": peeled, "solve": solved, "greedy": Greedy(p)} {
			if err := p.Check(items); err != nil {
				t.Fatalf("seed %d, problem %d, %s: %v", *seed, i, name, err)
			}
		}
		if got := p.Value(exact); got != want || !proven {
			t.Errorf("seed %d, problem %d: exact finds %d (proven: %v), the best is %d", *seed, i, got, proven, want)
		}
		if got := p.Value(peeled); sure && got != want {
			t.Errorf("seed %d, problem %d: peeling nothing finds %d, the best is %d", *seed, i, got, want)
		}
		if got := p.Value(solved); optimal && got != want || got < p.Value(Greedy(p)) || got < p.Value(peeled) {
			t.Errorf("seed %d, problem %d: the search finds %d (optimal: %v), the best is %d", *seed, i, got, optimal, want)
		} else if got == want {
			equal++
		}
		total++
	}
	t.Logf("the search finds the optimum in %d of %d", equal, total)
	if equal < total*9/10 {
		t.Errorf("the search finds the optimum in %d of %d", equal, total)
	}
}

// A path of four, a triangle with a tail, and two places for three: solved without peeling.
func TestReductions(t *testing.T) {
	pair := &Problem{}
	pair.Reset([]int32{2})
	for _, w := range []int64{3, 5, 4} {
		pair.Add(w, 0)
	}
	nowhere := &Problem{}
	nowhere.Reset([]int32{0, 1})
	nowhere.Add(1, 0, 1)
	nowhere.Add(1, 1)
	for _, tt := range []struct {
		name string
		p    *Problem
		want int64
	}{
		{"none", &Problem{}, 0},
		{"path", independent(4, [][2]int{{0, 1}, {1, 2}, {2, 3}}, nil), 2},
		{"triangle", independent(4, [][2]int{{0, 1}, {1, 2}, {2, 0}, {2, 3}}, nil), 2},
		{"two places", pair, 9},
		{"no place", nowhere, 1},
	} {
		var s Solver
		items, optimal := s.Peel(tt.p)
		if err := tt.p.Check(items); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := tt.p.Value(items); got != tt.want || !optimal {
			t.Errorf("%s: %d (optimal: %v), want %d", tt.name, got, optimal, tt.want)
		}
	}
}

type golden struct {
	vertices, size int
	edges          [][2]int
}

func goldens(t testing.TB) []golden {
	f, err := os.Open("testdata/linearsolver.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []golden
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Fields(lines.Text())
		g := golden{vertices: number(fields[0]), size: number(fields[1])}
		for _, f := range fields[2:] {
			v, others, _ := strings.Cut(f, ":")
			for u := range strings.SplitSeq(others, ",") {
				g.edges = append(g.edges, [2]int{number(u), number(v)})
			}
		}
		out = append(out, g)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// The independent sets are at least as large as the LinearSolver's, whatever the seed, with
// as many moves as the builder of trees has if nobody says how many.
func TestAgainstLinearSolver(t *testing.T) {
	const moves, seeds = 2, 10
	var s Solver
	below, equal, above, peeling, proven, optimal := 0, 0, 0, 0, 0, 0
	for i, g := range goldens(t) {
		p := independent(g.vertices, g.edges, nil)
		largest := 0
		first, _ := s.Solve(p, nil, moves*p.Len(), 0)
		for seed := range uint64(seeds) {
			items, _ := s.Solve(p, nil, moves*p.Len(), seed)
			if err := maximal(p, items); err != nil {
				t.Fatalf("graph %d, seed %d: %v", i, seed, err)
			}
			for _, e := range g.edges {
				if slices.Contains(items, e[0]) && slices.Contains(items, e[1]) {
					t.Fatalf("graph %d, seed %d: both ends of %v", i, seed, e)
				}
			}
			switch size := len(items); {
			case size < g.size:
				below++
				t.Errorf("graph %d, seed %d: %d of %d, the LinearSolver finds %d", i, seed, size, g.vertices, g.size)
			case size == g.size:
				equal++
			default:
				above++
			}
			largest = max(largest, len(items))
			if seed == 0 && !slices.Equal(items, first) {
				t.Errorf("graph %d: the same seed finds %v and %v", i, first, items)
			}
		}
		if peeled, _ := s.Peel(p); len(peeled) >= g.size {
			peeling++
		}
		exact, sure := s.Exact(p, nil, 300)
		if len(exact) < g.size {
			t.Errorf("graph %d: exact finds %d, the LinearSolver %d", i, len(exact), g.size)
		}
		if sure {
			proven++
			if len(exact) == largest {
				optimal++
			}
			if len(exact) < largest {
				t.Errorf("graph %d: %d is proven the largest, the search finds %d", i, len(exact), largest)
			}
		}
	}
	t.Logf("%d solutions smaller than the LinearSolver's, %d equal, %d larger; of 100 graphs peeling alone is as large in %d; proven: %d, of these found by the search: %d",
		below, equal, above, peeling, proven, optimal)
}

// maximal is an error where a solution does not fit, or another item does beside it.
func maximal(p *Problem, items []int) error {
	if err := p.Check(items); err != nil {
		return err
	}
	load := make([]int32, p.Resources())
	for _, v := range items {
		for _, r := range p.Uses(v) {
			load[r]++
		}
	}
	full := func(r int32) bool { return load[r] == p.Capacity(r) }
	for v := range p.Len() {
		if !slices.Contains(items, v) && !slices.ContainsFunc(p.Uses(v), full) {
			return fmt.Errorf("item %d fits beside %v", v, items)
		}
	}
	return nil
}

// Whatever the bytes say, solutions fit and are no worse than peeling's.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{1, 2, 3, 0, 9, 200, 17, 5, 5, 64})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			return
		}
		p := &Problem{}
		p.Reset(nil)
		for r := range 8 {
			p.Resource(int32(r % 3))
		}
		for i := 0; i+1 < len(data); i += 2 {
			var uses []int32
			for r := range int32(8) {
				if data[i]>>r&1 == 1 {
					uses = append(uses, r)
				}
			}
			p.Add(1+int64(data[i+1]), uses...)
		}
		var s Solver
		peeled, _ := s.Peel(p)
		solved, _ := s.Solve(p, nil, 100, 1)
		exact, _ := s.Exact(p, nil, 100)
		for _, items := range [][]int{peeled, solved, exact} {
			if err := p.Check(items); err != nil {
				t.Fatal(err)
			}
		}
		if p.Value(solved) < p.Value(peeled) || p.Value(exact) < p.Value(peeled) {
			t.Fatalf("peeling %d, search %d, exact %d", p.Value(peeled), p.Value(solved), p.Value(exact))
		}
	})
}

// BenchmarkMIS is the search with conflict graphs against the one by resources, which is
// what there is above capacities of 1, on random graphs in which a vertex has ten
// neighbours on average, and on the LinearSolver's; below is how many of 1,000 solutions
// are smaller than its own.
func BenchmarkMIS(b *testing.B) {
	var s Solver
	type method struct {
		name  string
		solve func(p *Problem, seed uint64) int
	}
	methods := []method{{"resources/moves=2", func(p *Problem, seed uint64) int {
		if !s.peel(p) {
			s.improve(2*p.Len(), seed)
		}
		return len(s.chosen())
	}}}
	for _, moves := range []int{0, 1, 2, 5, 10} {
		methods = append(methods, method{fmt.Sprintf("graph/moves=%d", moves), func(p *Problem, seed uint64) int {
			items, _ := s.Solve(p, nil, moves*p.Len(), seed)
			return len(items)
		}})
	}
	run := func(name string, problems []*Problem, sizes []int) {
		for _, m := range methods {
			b.Run(name+"/"+m.name, func(b *testing.B) {
				size, below, runs := 0, 0, 0
				for b.Loop() {
					for i, p := range problems {
						got := m.solve(p, uint64(runs))
						size += got
						if sizes != nil && got < sizes[i] {
							below++
						}
					}
					runs++
				}
				b.ReportMetric(float64(size)/float64(runs*len(problems)), "size/graph")
				if sizes != nil {
					b.ReportMetric(1000*float64(below)/float64(runs*len(problems)), "below/1000")
				}
			})
		}
	}
	var problems []*Problem
	var sizes []int
	for _, g := range goldens(b) {
		problems = append(problems, independent(g.vertices, g.edges, nil))
		sizes = append(sizes, g.size)
	}
	run("LinearSolver", problems, sizes)
	for _, n := range []int{50, 100, 200, 400, 800} {
		r := rand.New(rand.NewPCG(uint64(n), 6))
		var problems []*Problem
		for range 5 {
			var edges [][2]int
			for range 5 * n {
				if u, v := r.IntN(n), r.IntN(n); u != v {
					edges = append(edges, [2]int{u, v})
				}
			}
			problems = append(problems, independent(n, edges, nil))
		}
		run(fmt.Sprintf("n=%d", n), problems, nil)
	}
}

// independent is the problem of the maximum independent set of a graph: item v is vertex
// v, and cliques that cover all edges are resources. No weights: all are 1.
func independent(vertices int, edges [][2]int, weights []int64) *Problem {
	adjacent := make([]map[int]bool, vertices)
	for v := range adjacent {
		adjacent[v] = map[int]bool{}
	}
	for _, e := range edges {
		adjacent[e[0]][e[1]], adjacent[e[1]][e[0]] = true, true
	}
	covered := map[[2]int]bool{}
	uses := make([][]int32, vertices)
	p := &Problem{}
	p.Reset(nil)
	for _, e := range edges {
		if covered[[2]int{min(e[0], e[1]), max(e[0], e[1])}] || e[0] == e[1] {
			continue
		}
		clique := []int{e[0], e[1]}
		for v := range vertices {
			if !slices.ContainsFunc(clique, func(u int) bool { return !adjacent[u][v] }) {
				clique = append(clique, v)
			}
		}
		r := p.Resource(1)
		for _, u := range clique {
			uses[u] = append(uses[u], r)
			for _, v := range clique {
				covered[[2]int{min(u, v), max(u, v)}] = true
			}
		}
	}
	for v := range vertices {
		w := int64(1)
		if weights != nil {
			w = weights[v]
		}
		p.Add(w, uses[v]...)
	}
	return p
}

package fragment

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var seed = flag.Uint64("fragment.seed", 1, "seed of random trees")

// read makes a tree and what is free of it out of a drawing: pods are in parentheses,
// o is a free host, x a taken one. J, for hosts of a new job, are free; they are returned.
func read(t testing.TB, drawing string) (o *Occupancy, job []int) {
	t.Helper()
	hosts := strings.Count(drawing, "o") + strings.Count(drawing, "x") + strings.Count(drawing, "J")
	pods := strings.Count(drawing, "(")
	parent := make([]int, hosts+pods)
	at, host, pod := -1, 0, hosts
	var taken []int
	for _, c := range drawing {
		switch c {
		case '(':
			parent[pod] = at
			at = pod
			pod++
		case ')':
			at = parent[at]
		case 'o', 'x', 'J':
			parent[host] = at
			if c == 'x' {
				taken = append(taken, host)
			} else if c == 'J' {
				job = append(job, host)
			}
			host++
		}
	}
	topology, err := New(hosts, parent)
	if err != nil {
		t.Fatalf("%s: %v", drawing, err)
	}
	o = NewOccupancy(topology)
	if err := o.Take(taken); err != nil {
		t.Fatal(err)
	}
	return o, job
}

func minimal(t testing.TB, alpha float64) *Minimal {
	t.Helper()
	m, err := NewMinimal(alpha)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func regular(t testing.TB, degrees ...int) *Topology {
	t.Helper()
	topology, err := Regular(degrees...)
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

func outcome(t testing.TB, o *Occupancy, hosts []int) Outcome {
	t.Helper()
	out, err := o.Outcome(hosts)
	if err != nil {
		t.Fatalf("hosts %v: %v", hosts, err)
	}
	return out
}

// What section III-B says of fragments: neighbours in different pods, and two hosts of
// a larger pod, are two; whole pods are one whatever is in them.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		drawing string
		want    Outcome
	}{
		{"((JJ)(oo))", Outcome{1, 1}},
		{"((oJ)(Jo))", Outcome{2, 2}}, // adjacent
		{"((JJoo)(oooo))", Outcome{2, 3}},
		{"((JoJo)(oooo))", Outcome{2, 3}}, // the order in a pod does not matter
		{"((JJ)(JJ))", Outcome{1, 0}},
		{"((JJ)(Jx))", Outcome{2, 0}},
		{"((ooo)(oo)(oJ))", Outcome{1, 3}},
		{"(((oo)(oo))((oo)(xx))((JJ)(JJ))((JJ)(xo))((xJ)(oJ)))", Outcome{4, 4}},
		{"((((J)))o)", Outcome{1, 1}}, // pods with one child
		{"J", Outcome{1, 0}},
	} {
		o, job := read(t, tt.drawing)
		if got := outcome(t, o, job); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.drawing, got, tt.want)
		}
	}
}

// Where Minimal places jobs.
func TestMinimal(t *testing.T) {
	for _, tt := range []struct {
		why, want string
		alpha     float64
	}{
		{"a whole pod", "((oxo)(JJJ)(ooo)(oox))", .5},
		{"the small pod", "((oooo)(JJ)(ooo))", .5},
		{"what is broken already", "((oooo)(oooo)(xJJx))", .5},
		{"a pod is not worth breaking", "((oooo)(Jxxx)(Jxxx))", .5},
		{"nor is it where nothing is gained", "((JJJJ)(oooo)(Joxx))", 0},
		{"a pod of pods", "(((oo)(oo)(ox))((oo)(xo))((JJ)(JJ)))", .5},
		{"a pod of it, and the rest near it", "(((JJ)(Jx))((oo)(oo))((oo)(oo)))", .5},
		{"all in one pod, the fuller one", "((oxox)(Jxxxx)(ooxx))", .5},
		{"all in one pod, not the first", "((oxxx)(JJxx)(oxxx))", .5},
		{"everything", "((JJ)((JJJ)JJ))", .5},
		{"all that is left", "((xJ)((xxJ)Jx))", .5},
		{"unequal children", "((J(oo)(ooo))x)", .5},
	} {
		o, want := read(t, tt.want)
		got, err := minimal(t, tt.alpha).Place(o, len(want))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %s: hosts %v, want %v", tt.why, tt.want, got, want)
		}
	}
}

// randomTree is a tree of some hosts, some of them taken: single ones and whole pods.
func randomTree(t testing.TB, rng *rand.Rand, hosts int) *Occupancy {
	parent := make([]int, hosts)
	level := make([]int, hosts) // nodes that have no parent yet
	for i := range level {
		level[i] = i
	}
	equal := rng.IntN(2) == 0
	for len(level) > 1 || len(parent) == hosts && rng.IntN(4) == 0 {
		degree := 1 + rng.IntN(4)
		if equal {
			degree = max(2, degree)
		}
		var above []int
		for len(level) > 0 {
			if !equal {
				degree = 1 + rng.IntN(4)
			}
			k := min(degree, len(level))
			for _, v := range level[:k] {
				parent[v] = len(parent)
			}
			above = append(above, len(parent))
			parent = append(parent, -1)
			level = level[k:]
		}
		level = above
	}
	if len(parent) == 1 {
		parent[0] = -1
	}
	topology, err := New(hosts, parent)
	if err != nil {
		t.Fatal(err)
	}
	o := NewOccupancy(topology)
	for range rng.IntN(1 + len(parent)/5) {
		pod := topology.below(rng.IntN(len(parent)))
		for _, h := range pod {
			if o.IsFree(h) && 2*len(pod) <= hosts {
				take(t, o, []int{h})
			}
		}
	}
	if o.Free() == 0 {
		return NewOccupancy(topology)
	}
	return o
}

// below are the hosts of a pod, by its place in the tree.
func (t *Topology) below(v int) []int {
	n := t.nodes[v]
	return t.hosts[n.first : n.first+n.size]
}

func take(t testing.TB, o *Occupancy, hosts []int) {
	t.Helper()
	if err := o.Take(hosts); err != nil {
		t.Fatal(err)
	}
}

// valid says whether a policy may return hosts for n of them.
func valid(o *Occupancy, hosts []int, n int) error {
	switch {
	case len(hosts) != n:
		return fmt.Errorf("%d hosts for %d", len(hosts), n)
	case !slices.IsSorted(hosts):
		return fmt.Errorf("not in order: %v", hosts)
	}
	_, err := o.Outcome(hosts)
	return err
}

// Minimal reaches the score of the best set of hosts, and of the best sets the fewest
// fragments of the job, and of those of free hosts, on trees of all forms.
func TestMinimalIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 1))
	alphas := []float64{0, .125, .5, 1, 1.5, 4}
	policies := map[float64]*Minimal{}
	for _, a := range alphas {
		policies[a] = minimal(t, a)
	}
	for i := range 6000 {
		o := randomTree(t, rng, 3+rng.IntN(14))
		n := 1 + rng.IntN(o.Free())
		alpha := alphas[rng.IntN(len(alphas))]
		want, score, err := exhaustive(o, n, alpha)
		if err != nil {
			t.Fatal(err)
		}
		got, err := policies[alpha].Place(o, n)
		if err == nil {
			err = valid(o, got, n)
		}
		if err != nil {
			t.Fatalf("seed %d, tree %d, %d hosts: %v", *seed, i, n, err)
		}
		if a, b := outcome(t, o, got), outcome(t, o, want); a != b || a.Score(alpha) != score {
			t.Fatalf("seed %d, tree %d, %d hosts, alpha %v: %v %+v, best %v %+v", *seed, i, n, alpha, got, a, want, b)
		}
	}
}

// listing is Algorithm 1 with lines 16 to 19 as the recurrence has them: the least score
// of taking j hosts out of a pod, for all j up to n that it has. +Inf: not so many are free.
func listing(o *Occupancy, v int32, n int, alpha float64) []float64 {
	inf := math.Inf(1)
	node := o.t.nodes[v]
	if node.span == 1 {
		if o.free[v] == 0 {
			return []float64{0, inf}
		}
		return []float64{alpha, 1}
	}
	score := []float64{0}
	for u := range o.t.children(v) {
		sub := listing(o, u, n, alpha)
		sum := make([]float64, min(n, len(score)+len(sub)-2)+1)
		for j := range sum {
			sum[j] = inf
			for k := max(0, j-len(score)+1); k <= min(j, len(sub)-1); k++ {
				sum[j] = min(sum[j], score[j-k]+sub[k]) // printed: S[i-1, j] + Allocate(subpod_i, j)
			}
		}
		score = sum
	}
	if o.free[v] == node.size { // lines 2 to 5: one fragment
		score[0] = alpha
		if len(score) > int(node.size) {
			score[node.size] = 1
		}
	}
	return score
}

// Minimal and the listing agree on larger trees, also with an alpha that is rounded.
func TestMinimalIsTheListing(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 2))
	for i := range 300 {
		o := randomTree(t, rng, 1+rng.IntN(150))
		if i%3 == 0 {
			o = NewOccupancy(regular(t, 1+rng.IntN(5), 1+rng.IntN(5), 1+rng.IntN(5)))
			for range rng.IntN(4) {
				hosts, _ := NewRandom(rng.Uint64()).Place(o, 1+rng.IntN(o.Free()/3+1))
				if len(hosts) < o.Free() {
					take(t, o, hosts)
				}
			}
		}
		for _, alpha := range []float64{.5, .3, rng.Float64()} {
			m := minimal(t, alpha)
			score := listing(o, 0, o.Free(), alpha)
			for _, n := range []int{1, 1 + rng.IntN(o.Free()), o.Free(), 1} { // growing tables, and kept ones
				hosts, err := m.Place(o, n)
				if err == nil {
					err = valid(o, hosts, n)
				}
				if err != nil {
					t.Fatalf("seed %d, tree %d, %d hosts: %v", *seed, i, n, err)
				}
				if got := outcome(t, o, hosts).Score(alpha); math.Abs(got-score[n]) > 1e-4 {
					t.Fatalf("seed %d, tree %d, %d hosts, alpha %v: score %v, listing %v", *seed, i, n, alpha, got, score[n])
				}
			}
		}
	}
}

// The authors' simulator on the same hosts: no score is above its, and the pods that jobs
// are spread over are fewer in sum.
func TestReference(t *testing.T) {
	f, err := os.Open("testdata/reference.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, tree := minimal(t, DefaultAlpha), regular(t, 8, 8, 16)
	cases, refused, equal, sumPods, sumReference, sumConsolidate := 0, 0, 0, 0, 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var n, fragments, pods int
		var score float64
		var used string
		if _, err := fmt.Sscan(lines.Text(), &n, &score, &fragments, &pods, &used); err != nil {
			t.Fatal(err)
		}
		o := NewOccupancy(tree)
		for i, c := range used {
			digit := strings.IndexRune("0123456789abcdef", c)
			for b := range 4 {
				if digit>>b&1 == 1 {
					take(t, o, []int{4*i + b})
				}
			}
		}
		hosts, err := m.Place(o, n)
		if math.IsInf(score, 1) && errors.Is(err, ErrNoRoom) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := outcome(t, o, hosts)
		if got.Score(DefaultAlpha) > score {
			t.Errorf("case %d: %d hosts: %+v scores %v, reference %v", cases, n, got, got.Score(DefaultAlpha), score)
		}
		if got.Score(DefaultAlpha) == score {
			equal++
		}
		p, _ := tree.Pods(hosts)
		hosts, _ = Consolidate{}.Place(o, n)
		c, _ := tree.Pods(hosts)
		cases, sumPods, sumReference, sumConsolidate = cases+1, sumPods+p, sumReference+pods, sumConsolidate+c
	}
	t.Logf("%d cases, %d with the reference's score; pods: %d, reference %d, consolidate %d",
		cases, equal, sumPods, sumReference, sumConsolidate)
	if cases != 149 || refused != 1 || sumPods > sumReference {
		t.Errorf("%d cases, %d pods, reference %d", cases, sumPods, sumReference)
	}
}

func policies(t testing.TB) []Policy {
	return []Policy{minimal(t, DefaultAlpha), minimal(t, 0), minimal(t, 2), FirstFit{}, NewRandom(*seed), Consolidate{}}
}

// Jobs come and go: no policy takes what is not free, the fragments that an Occupancy
// counts on the way are those of its free hosts, and a policy that has placed many jobs
// places as a new one does.
func TestChurn(t *testing.T) {
	for i, p := range policies(t) {
		t.Run(p.Name(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed, uint64(i)))
			for range 10 {
				o := randomTree(t, rng, 20+rng.IntN(100))
				var jobs [][]int
				for range 100 {
					if o.Free() == 0 || len(jobs) > 0 && rng.IntN(2) == 0 {
						k := rng.IntN(len(jobs))
						if err := o.Release(jobs[k]); err != nil {
							t.Fatal(err)
						}
						jobs = slices.Delete(jobs, k, k+1)
					} else {
						n := 1 + rng.IntN(min(16, o.Free()))
						hosts, err := p.Place(o, n)
						if err == nil {
							err = valid(o, hosts, n)
						}
						if err != nil {
							t.Fatalf("seed %d: %v", *seed, err)
						}
						if m, ok := p.(*Minimal); ok {
							again, err := minimal(t, m.alpha).Place(o, n)
							if err != nil || !slices.Equal(hosts, again) {
								t.Fatalf("seed %d: %v, a new one %v, %v", *seed, hosts, again, err)
							}
						}
						jobs = append(jobs, hosts)
						take(t, o, hosts)
					}
					var free []int
					for h := range o.t.Hosts() {
						if o.IsFree(h) {
							free = append(free, h)
						}
					}
					want, err := o.t.Fragments(free)
					if err != nil || len(free) != o.Free() || want != o.Fragments() {
						t.Fatalf("seed %d: %d free in %d fragments, want %d in %d", *seed, o.Free(), o.Fragments(), len(free), want)
					}
				}
			}
		})
	}
}

// Baselines do what they are named for.
func TestBaselines(t *testing.T) {
	for _, tt := range []struct {
		policy Policy
		want   string
	}{
		{FirstFit{}, "((xJ)(Jx)(JJ)(oo))"},
		{FirstFit{}, "((JJ)(JJ)(oo))"},
		{Consolidate{}, "((xooo)(JJ)(ooo))"},
		{Consolidate{}, "((ooo)(oox)(Jxx))"},
		{Consolidate{}, "((oxx)(JJJ)(JJx))"},
		{Consolidate{}, "(((JJ)(Jo))((oo)(oo)))"},
		{Consolidate{}, "J"},
	} {
		o, want := read(t, tt.want)
		got, err := tt.policy.Place(o, len(want))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %s: %v, %v, want %v", tt.policy.Name(), tt.want, got, err, want)
		}
	}
	o := NewOccupancy(regular(t, 4, 4))
	count := make([]int, 16)
	for r, i := NewRandom(*seed), 0; i < 4000; i++ {
		hosts, err := r.Place(o, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hosts {
			count[h]++
		}
	}
	for h, c := range count {
		if c < 850 || c > 1150 { // 1000 with a deviation of 27
			t.Errorf("seed %d: host %d is in %d of 4000 sets of a quarter", *seed, h, c)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		hosts  int
		parent []int
		want   error
	}{
		{0, nil, ErrTree},
		{1, nil, ErrTree},
		{2, []int{-1, -1}, ErrTree},         // two roots
		{2, []int{-1, 0}, ErrTree},          // a child of a host
		{2, []int{2, 3, 3, 2}, ErrTree},     // a circle
		{2, []int{2, 2, -1, 4, 3}, ErrTree}, // a circle beside it
		{1, []int{1, -1, 1}, ErrTree},       // an empty pod
		{1, []int{7, -1}, ErrTree},          // no such pod
		{MaxHosts + 1, make([]int, 1), ErrTooLarge},
		{1, []int{-1}, nil},
		{2, []int{2, 2, -1}, nil},
	} {
		if tree, err := New(tt.hosts, tt.parent); !errors.Is(err, tt.want) || (tree == nil) != (err != nil) {
			t.Errorf("New(%d, %v): %v, want %v", tt.hosts, tt.parent, err, tt.want)
		}
	}
	for degrees, want := range map[[2]int]error{{0, 3}: ErrTree, {2, -1}: ErrTree, {1 << 11, 1 << 10}: ErrTooLarge, {1, 1}: nil} {
		if _, err := Regular(degrees[:]...); !errors.Is(err, want) {
			t.Errorf("Regular(%v): %v, want %v", degrees, err, want)
		}
	}
	for _, alpha := range []float64{-1, 4.5, math.NaN(), math.Inf(1)} {
		if _, err := NewMinimal(alpha); !errors.Is(err, ErrAlpha) {
			t.Errorf("alpha %v: %v", alpha, err)
		}
	}
	o, _ := read(t, "((oxo)(xxo))")
	for n, want := range map[int]error{-1: ErrRequest, 0: ErrRequest, 3: nil, 4: ErrNoRoom, 6: ErrNoRoom, 7: ErrTooLarge} {
		for _, p := range policies(t) {
			if hosts, err := p.Place(o, n); !errors.Is(err, want) || len(hosts) != max(n, 0) && err == nil {
				t.Errorf("%s: %d hosts: %v, %v, want %v", p.Name(), n, hosts, err, want)
			}
		}
		if _, _, err := exhaustive(o, n, 0); !errors.Is(err, want) {
			t.Errorf("exhaustive: %d hosts: %v, want %v", n, err, want)
		}
	}
	if _, _, err := exhaustive(NewOccupancy(regular(t, 64)), 32, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("all halves of 64 hosts: %v", err)
	}
	for _, hosts := range [][]int{{0, 1}, {0, 0}, {0, -1}, {0, 6}} {
		if err := o.Take(hosts); !errors.Is(err, ErrHost) {
			t.Errorf("take %v: %v", hosts, err)
		}
		if _, err := o.Outcome(hosts); !errors.Is(err, ErrHost) {
			t.Errorf("outcome of %v: %v", hosts, err)
		}
	}
	for _, hosts := range [][]int{{1, 0}, {1, 1}, {1, -1}, {1, 6}} {
		if err := o.Release(hosts); !errors.Is(err, ErrHost) {
			t.Errorf("release %v: %v", hosts, err)
		}
	}
	if o.Free() != 3 || o.Fragments() != 3 || !o.IsFree(0) || o.IsFree(1) {
		t.Errorf("refused calls changed something: %d free in %d fragments", o.Free(), o.Fragments())
	}
}

// churned is a tree half of which is taken, by jobs of the sizes that the Microsoft trace
// has most, of which every other one left.
func churned(b *testing.B, tree *Topology) *Occupancy {
	rng := rand.New(rand.NewPCG(7, 7))
	o, m := NewOccupancy(tree), minimal(b, DefaultAlpha)
	var jobs [][]int
	for range 10 * tree.Hosts() / 8 {
		n := 1 << rng.IntN(6)
		for o.Free() < tree.Hosts()/2+n {
			k := rng.IntN(len(jobs))
			if err := o.Release(jobs[k]); err != nil {
				b.Fatal(err)
			}
			jobs = slices.Delete(jobs, k, k+1)
		}
		hosts, err := m.Place(o, n)
		if err != nil {
			b.Fatal(err)
		}
		take(b, o, hosts)
		jobs = append(jobs, hosts)
	}
	return o
}

// BenchmarkPlace is one decision. "new" makes its tables too.
func BenchmarkPlace(b *testing.B) {
	for _, degrees := range [][]int{{8, 8, 16}, {32, 32, 64}} {
		tree := regular(b, degrees...)
		empty := NewOccupancy(tree)
		half := empty.Clone()
		hosts, err := NewRandom(3).Place(half, tree.Hosts()/2)
		if err != nil {
			b.Fatal(err)
		}
		take(b, half, hosts)
		for _, state := range []struct {
			name string
			o    *Occupancy
		}{{"empty", empty}, {"half", half}, {"churned", churned(b, tree)}} {
			for _, n := range []int{1, 16, 64, 128, 512, 4096, 32000} {
				if n > state.o.Free() {
					continue
				}
				m := minimal(b, DefaultAlpha)
				b.Run(fmt.Sprintf("hosts=%d/%s/n=%d", tree.Hosts(), state.name, n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						if _, err := m.Place(state.o, n); err != nil {
							b.Fatal(err)
						}
					}
				})
				b.Run(fmt.Sprintf("hosts=%d/%s/n=%d/new", tree.Hosts(), state.name, n), func(b *testing.B) {
					for b.Loop() {
						if _, err := minimal(b, DefaultAlpha).Place(state.o, n); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkListing is the listing on the hosts of BenchmarkPlace, without choosing any.
func BenchmarkListing(b *testing.B) {
	tree := regular(b, 8, 8, 16)
	o := NewOccupancy(tree)
	hosts, err := NewRandom(3).Place(o, 512)
	if err != nil {
		b.Fatal(err)
	}
	take(b, o, hosts)
	for b.Loop() {
		listing(o, 0, 64, DefaultAlpha)
	}
}

// BenchmarkTake takes and releases 64 hosts.
func BenchmarkTake(b *testing.B) {
	o := NewOccupancy(regular(b, 8, 8, 16))
	hosts, err := NewRandom(3).Place(o, 64)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if o.Take(hosts) != nil || o.Release(hosts) != nil {
			b.Fatal("not taken, or not released")
		}
	}
}

// BenchmarkJobs sends 20,000 jobs through 1,024 hosts, which are kept as full as the queue
// allows, in order of arrival, and says how the jobs lie: fragments, and pods below the
// root of a job's tree, of the mean job that is not alone on a host; and fragments of the
// free hosts in the mean.
func BenchmarkJobs(b *testing.B) {
	// Jobs of the trace 1 of the reference by hosts (MinaSimulator, as above).
	sizes := []struct{ hosts, weight int }{
		{1, 10910}, {2, 9719}, {4, 16374}, {8, 23311}, {16, 23936}, {32, 13268}, {48, 2089}, {64, 329}, {128, 61},
	}
	total := 0
	for _, s := range sizes {
		total += s.weight
	}
	tree := regular(b, 8, 8, 16)
	for _, p := range policies(b) {
		b.Run(p.Name(), func(b *testing.B) {
			type running struct {
				end   int
				hosts []int
			}
			var fragments, pods, free, counted, placed int
			for b.Loop() {
				rng := rand.New(rand.NewPCG(*seed, 9))
				o := NewOccupancy(tree)
				var jobs []running
				now := 0
				for range 20000 {
					n, at := 0, rng.IntN(total)
					for _, s := range sizes {
						if at -= s.weight; at < 0 {
							n = s.hosts
							break
						}
					}
					for o.Free() < n {
						next := slices.MinFunc(jobs, func(a, b running) int { return a.end - b.end })
						now = next.end
						jobs = slices.DeleteFunc(jobs, func(j running) bool {
							if j.end > now {
								return false
							}
							if err := o.Release(j.hosts); err != nil {
								b.Fatal(err)
							}
							return true
						})
					}
					hosts, err := p.Place(o, n)
					if err != nil {
						b.Fatal(err)
					}
					take(b, o, hosts)
					jobs = append(jobs, running{now + 1 + rng.IntN(1_000_000), hosts})
					placed++
					free += o.Fragments()
					if n > 1 {
						f, _ := tree.Fragments(hosts)
						q, _ := tree.Pods(hosts)
						fragments, pods, counted = fragments+f, pods+q, counted+1
					}
				}
			}
			b.ReportMetric(float64(fragments)/float64(counted), "fragments/job")
			b.ReportMetric(float64(pods)/float64(counted), "pods/job")
			b.ReportMetric(float64(free)/float64(placed), "free-fragments")
		})
	}
}

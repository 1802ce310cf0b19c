package titan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/policytest"
)

func TestPolicy(t *testing.T) {
	for _, r := range Readings()[1:] { // the first is one of them
		p := New(Options{Reading: r})
		t.Run(p.Name(), func(t *testing.T) { policytest.RunCluster(t, p) })
	}
}

// Figure 1 of the paper: machines of four GPUs with 4, 3, 2 and 1 free ones, four workers
// that halve and double. Placements and volumes are its; as printed, Algorithm 3 takes
// the idle machine.
func TestFigure1(t *testing.T) {
	pattern := collectives.HalvingDoubling(4).Pattern()
	for _, tt := range []struct {
		policy cluster.Policy
		at     []int
		cross  float64 // K
		used   int     // machines afterwards
	}{
		{baseline.ElasticFlow(), []int{0, 0, 0, 0}, 0, 4},
		{baseline.HiveD(), []int{1, 1, 1, 3}, 1.5, 3},
		{New(Options{}), []int{1, 2, 1, 2}, 1, 3},
		{New(Options{Reading: Published}), []int{0, 0, 0, 0}, 0, 4},
	} {
		c := machines(t, 4, 4, 3, 2, 1)
		p := tt.policy.Place(c, []cluster.Job{{ID: 1, GPUs: 4, Traffic: cluster.Ring}}, 1)[0]
		used := 0
		for s := range c.Servers {
			if c.Free(s) < 4 {
				used++
			}
		}
		cross := float64(pattern.Cross(p.ServerOf())) / float64(pattern.Parts)
		if !slices.Equal(p.ServerOf(), tt.at) || cross != tt.cross || used != tt.used {
			t.Errorf("%s: workers on %v, %v K between machines, %d machines used, want %v, %v K and %d",
				tt.policy.Name(), p.ServerOf(), cross, used, tt.at, tt.cross, tt.used)
		}
	}
}

// A policy that tells why does the same.
func TestExplained(t *testing.T) {
	for _, r := range Readings() {
		var told []Explanation
		p, ok := Explained(New(Options{Reading: r, Phase: 3}), func(e Explanation) { told = append(told, e) })
		if !ok || p.Name() != New(Options{Reading: r}).Name() || p.(*policy).Phase != 3 {
			t.Fatalf("%v, %v", p, ok)
		}
		batch := []cluster.Job{{ID: 1, GPUs: 4, Traffic: cluster.Ring}, {ID: 2, GPUs: 40, Traffic: cluster.Ring}}
		placed := p.Place(machines(t, 4, 4, 3, 2, 1), batch, 1)
		if len(told) != 2 || !slices.Equal(told[0].Solution.At, placed[0].ServerOf()) || !errors.Is(told[1].Err, ErrRoom) {
			t.Errorf("placed %v, told %+v", placed, told)
		}
	}
	if p, ok := Explained(baseline.HiveD(), nil); ok || p != nil {
		t.Error("hived explains nothing")
	}
}

// machines is a cluster of machines with so many GPUs, of which so many are free.
func machines(t testing.TB, gpus int, free ...int) *cluster.Cluster {
	t.Helper()
	c := cluster.New(cluster.FatTree(1, len(free), gpus, 100e9, 0, 1))
	for s, n := range free {
		if n == gpus {
			continue
		}
		j := cluster.Job{ID: -1 - s, GPUs: gpus - n}
		if err := c.Enter(j, cluster.Placement{Parts: []cluster.Part{{Server: s, GPUs: j.GPUs}}}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// of8 are machines of eight GPUs.
func of8(free ...int) []Machine {
	var out []Machine
	for _, n := range free {
		out = append(out, Machine{8, n})
	}
	return out
}

func TestSolve(t *testing.T) {
	hd := collectives.HalvingDoubling
	for name, tt := range map[string]struct {
		p    Problem
		want []int   // machines in the order of workers; nil: only the figures count
		k    float64 // vectors between machines
		idle int
		used int
	}{
		"one machine is enough, the tightest":   {Problem{Machines: of8(8, 6, 5, 7), Pattern: hd(5).Pattern()}, []int{2, 2, 2, 2, 2}, 0, 0, 1},
		"no idle one though that is one alone":  {Problem{Machines: of8(8, 2, 3), Pattern: hd(4).Pattern()}, nil, 1, 0, 2},
		"as few machines as can be":             {Problem{Machines: of8(8, 2, 6, 2, 2), Pattern: hd(8).Pattern()}, nil, 1.5, 0, 2},
		"half on each of two":                   {Problem{Machines: of8(6, 5), Pattern: hd(8).Pattern()}, nil, 1, 0, 2},
		"one idle one where it must be":         {Problem{Machines: of8(8, 8, 2, 2), Pattern: hd(8).Pattern()}, []int{0, 0, 0, 0, 0, 0, 0, 0}, 0, 1, 1},
		"an idle one, and others with the rest": {Problem{Machines: of8(8, 8, 2, 1), Pattern: hd(10).Pattern()}, nil, 2, 1, 2},
		"sixteen on two":                        {Problem{Machines: of8(8, 8), Pattern: hd(16).Pattern()}, nil, 1, 2, 2},
		"sixteen on four":                       {Problem{Machines: of8(4, 4, 4, 4), Pattern: hd(16).Pattern()}, nil, 3, 0, 4},
		"sixty-four on eight":                   {Problem{Machines: of8(8, 8, 8, 8, 8, 8, 8, 8), Pattern: hd(64).Pattern()}, nil, 7, 8, 8},
		"a ring is cut twice":                   {Problem{Machines: of8(4, 4), Pattern: collectives.Ring(8).Pattern()}, nil, 2 * 2 * 7 / 8.0, 0, 2},
		"a job of one worker":                   {Problem{Machines: of8(8, 3, 1, 2), Pattern: hd(1).Pattern()}, []int{2}, 0, 0, 1},
		"a machine without GPUs is not idle":    {Problem{Machines: []Machine{{0, 0}, {2, 2}}, Pattern: hd(2).Pattern()}, []int{1, 1}, 0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.p.Solve(1)
			if err != nil {
				t.Fatal(err)
			}
			check(t, &tt.p, got)
			if k := float64(got.Cross) / float64(tt.p.Pattern.Parts); tt.want != nil && !slices.Equal(got.At, tt.want) ||
				math.Abs(k-tt.k) > 1e-9 || got.Idle != tt.idle || got.Used != tt.used {
				t.Errorf("%+v, %v K; want %v, %v K, %d idle of %d machines", got, k, tt.want, tt.k, tt.idle, tt.used)
			}
		})
	}
}

// What is printed minimizes machines, not idle ones: where the two differ it takes more.
func TestPublished(t *testing.T) {
	p := Problem{Machines: of8(8, 8, 5, 4, 3), Pattern: collectives.HalvingDoubling(10).Pattern()}
	corrected, err := p.Solve(1)
	if err != nil || corrected.Idle != 0 || corrected.Used != 3 {
		t.Errorf("corrected: %+v, %v", corrected, err)
	}
	p.Reading = Published
	printed, err := p.Solve(1)
	if err != nil || printed.Idle == 0 || printed.Used != 2 {
		t.Errorf("as printed: %+v, %v", printed, err)
	}
}

// The bandwidth constraint: C in a phase against what passes in its seconds.
func TestBandwidth(t *testing.T) {
	// Figure 1, K = 8 Gbit. Titan's placement has two pairs of K/4 between machines 1 and 2
	// in the second and third phase: 4 Gbit each way.
	p := Problem{
		Machines: []Machine{{4, 4}, {4, 3}, {4, 2}, {4, 1}}, Pattern: collectives.HalvingDoubling(4).Pattern(),
		Vector: 8e9,
	}
	for name, tt := range map[string]struct {
		rate, phase float64
		want        Solution
	}{
		"it just passes":                {4e9, 1, Solution{Idle: 0, Used: 2, Cross: 4}},
		"in half the time twice the":    {8e9, 0.5, Solution{Idle: 0, Used: 2, Cross: 4}},
		"1 s where nothing is said":     {4e9, 0, Solution{Idle: 0, Used: 2, Cross: 4}},
		"a little less: three machines": {3.9e9, 1, Solution{Idle: 1, Used: 1}},
		"nothing passes: the idle one":  {0, 1, Solution{Idle: 1, Used: 1}},
	} {
		p.Rate = func(int, int) float64 { return tt.rate }
		p.Phase = tt.phase
		got, err := p.Solve(1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Less(tt.want) || tt.want.Less(got) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// What cannot be says why.
func TestInfeasible(t *testing.T) {
	p := Problem{Machines: of8(2, 1), Pattern: collectives.HalvingDoubling(4).Pattern()}
	if s, err := p.Solve(1); !errors.Is(err, ErrRoom) || !strings.Contains(err.Error(), "4 workers, 3 GPUs are free") || s.At != nil {
		t.Errorf("%+v, %v", s, err)
	}
	p = Problem{
		Machines: of8(2, 2), Pattern: collectives.HalvingDoubling(4).Pattern(), Vector: 8e9, Phase: 0.1,
		Rate: func(from, to int) float64 { return 10e9 },
	}
	s, err := p.Solve(1)
	var congested *CongestedError
	if !errors.As(err, &congested) || s.At != nil {
		t.Fatalf("%+v, %v", s, err)
	}
	// The least is 2 Gbit from each of two workers, in the second phase.
	if got, want := err.Error(), "phase 1 sends 4 Gbit from machine 0 to machine 1, 1 Gbit pass in 0.1 s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if b := congested.Best; b.Used != 2 || b.Cross != 4 {
		t.Errorf("the best is %+v", b)
	}
}

// A job whose traffic passes nowhere is placed all the same, or waits; who wants to know
// is told.
func TestStrict(t *testing.T) {
	for _, strict := range []bool{false, true} {
		var told []Explanation
		p := New(Options{Phase: 1e-3, Strict: strict, Explain: func(e Explanation) { told = append(told, e) }})
		jobs := []cluster.Job{{ID: 1, GPUs: 8, Bytes: 1e9, Traffic: cluster.Ring}, {ID: 2, GPUs: 4, Bytes: 1e9}, {ID: 3, GPUs: 99}}
		got := p.Place(machines(t, 4, 4, 4, 4), jobs, 1)
		if waits := len(got[0].Parts) == 0; waits != strict || len(got[1].Parts) != 1 || len(got[2].Parts) != 0 {
			t.Errorf("strict %v: %v", strict, got)
		}
		var congested *CongestedError
		if len(told) != 3 || !errors.As(told[0].Err, &congested) || told[1].Err != nil || !errors.Is(told[2].Err, ErrRoom) ||
			(told[0].Solution.At == nil) != strict {
			t.Errorf("strict %v: told %+v", strict, told)
		}
	}
}

// The flows of running jobs take their share of a link: the policy keeps away from them.
func TestSharesBandwidth(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 5, 4, 8e9, 0, 1))
	// Job 1 rings between servers 0 and 1 and leaves one GPU on each; job 2 leaves two on
	// server 2, job 3 one on each of 3 and 4.
	for id, p := range []cluster.Placement{
		{Parts: []cluster.Part{{Server: 0, GPUs: 3}, {Server: 1, GPUs: 3}}},
		{Parts: []cluster.Part{{Server: 3, GPUs: 3}}}, {Parts: []cluster.Part{{Server: 4, GPUs: 3}}},
		{Parts: []cluster.Part{{Server: 2, GPUs: 4}}},
	} {
		j := cluster.Job{ID: id, Traffic: cluster.Ring}
		for _, w := range p.Parts {
			j.GPUs += w.GPUs
		}
		if err := c.Enter(j, p); err != nil {
			t.Fatal(err)
		}
	}
	// Two workers exchange halves of 16 Gbit: the whole link for a second.
	got := New(Options{}).Place(c, []cluster.Job{{ID: 9, GPUs: 2, Bytes: 2e9, Traffic: cluster.Ring}}, 1)[0]
	if at := slices.Sorted(slices.Values(got.ServerOf())); !slices.Equal(at, []int{3, 4}) {
		t.Errorf("%v", got)
	}
}

// h is the set function H: by how many machines fewer the workers take, of which each has
// one to begin with, once each of the sets is merged on one.
func h(sets ...[]int) int {
	in := map[int]bool{}
	merged := 0
	for _, s := range sets {
		if len(s) > 0 {
			merged++
		}
		for _, w := range s {
			in[w] = true
		}
	}
	return len(in) - merged
}

// H is submodular, and monotone for sets of workers that are in no other; gain is by how
// much it grows.
func TestH(t *testing.T) {
	rnd := random(t)
	for range 2000 {
		var sets [][]int
		left := rnd.Perm(12)
		for len(left) > 0 {
			n := 1 + rnd.IntN(len(left))
			sets = append(sets, left[:n])
			left = left[n:]
		}
		last := sets[len(sets)-1]
		all := sets[:len(sets)-1]
		some := all[:rnd.IntN(len(all)+1)]
		grows := func(f [][]int, s []int) int { return h(append(slices.Clone(f), s)...) - h(f...) }
		if got := grows(all, last); got != gain(len(last)) || got < 0 {
			t.Fatalf("H grows by %d with %v, gain says %d", got, last, gain(len(last)))
		}
		// Any set, also of workers that others have.
		any := rnd.Perm(12)[:1+rnd.IntN(12)]
		if grows(all, any) > grows(some, any) {
			t.Fatalf("H grows more with %v beyond %v than beyond %v", any, all, some)
		}
	}
}

// What a search counts while workers come and go is what counting from scratch gives.
func TestSearchCounts(t *testing.T) {
	rnd := random(t)
	for range 200 {
		p, _ := problem(rnd, 9, 5)
		if !p.limited() {
			continue
		}
		slots := seq(len(p.Machines))
		x := newSearch(p, slots)
		flows, phases := hops(p.Pattern)
		x.limit(flows, phases)
		for range 60 {
			x.move(rnd.IntN(p.Pattern.Workers), rnd.IntN(len(slots)))
		}
		for w, at := range x.at {
			if at == none {
				x.move(w, rnd.IntN(len(slots)))
			}
		}
		if want := p.Pattern.Cross(x.at); x.cross != want {
			t.Fatalf("traffic %d, counted anew %d", x.cross, want)
		}
		excess := 0
		seen := map[string]bool{}
		for _, ph := range p.Pattern.Phases {
			if seen[fmt.Sprint(ph.Flows)] {
				continue
			}
			seen[fmt.Sprint(ph.Flows)] = true
			sent := map[[2]int]int{}
			for _, f := range ph.Flows {
				sent[[2]int{x.at[f.From], x.at[f.To]}] += f.Volume
			}
			for pair, v := range sent {
				if pair[0] != pair[1] {
					excess += max(0, v-p.room(pair[0], pair[1]))
				}
			}
		}
		if x.excess() != excess {
			t.Fatalf("excess %d, counted anew %d", x.excess(), excess)
		}
	}
}

// The same seed gives the same placement, whatever the order of calls.
func TestSeed(t *testing.T) {
	rnd := random(t)
	for range 50 {
		p, _ := problem(rnd, 9, 7)
		a, errA := p.Solve(7)
		if b, errB := p.Solve(7); !reflect.DeepEqual(a, b) || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("%+v, %v, then %+v, %v", a, errA, b, errB)
		}
	}
}

func TestFirst(t *testing.T) {
	for lo := range 3 {
		for hi := lo - 1; hi < 60; hi++ {
			for want := lo; want <= hi+1; want++ {
				if got := first(lo, hi, func(i int) bool { return i >= want }); got != want {
					t.Fatalf("first of %d to %d is %d, want %d", lo, hi, got, want)
				}
			}
		}
	}
}

// busy is 512 machines of 8 GPUs with a random number free, a fifth of them idle.
func busy(rnd *rand.Rand) *cluster.Cluster {
	c := cluster.New(cluster.FatTree(64, 8, 8, 100e9, math.Inf(1), 1))
	for s := range c.Servers {
		if n := rnd.IntN(9); n > 0 && rnd.IntN(5) > 0 {
			if err := c.Enter(cluster.Job{ID: -1 - s, GPUs: n}, cluster.Placement{Parts: []cluster.Part{{Server: s, GPUs: n}}}); err != nil {
				panic(err)
			}
		}
	}
	return c
}

// BenchmarkPlace is one job placed on 512 machines of 8 GPUs. Congested: the bandwidth
// constraint rules out what would be best.
func BenchmarkPlace(b *testing.B) {
	for _, bm := range []struct {
		name  string
		gpus  int
		phase float64
	}{
		{"workers=1", 1, 1}, {"workers=4", 4, 1}, {"workers=8", 8, 1}, {"workers=12", 12, 1}, {"workers=16", 16, 1},
		{"workers=32", 32, 1}, {"workers=64", 64, 1}, {"workers=1024", 1024, 1}, {"congested/workers=16", 16, 10e-3}, {"congested/workers=64", 64, 20e-3},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := busy(rand.New(rand.NewPCG(1, 1)))
			congested := 0
			p := New(Options{Phase: bm.phase, Explain: func(e Explanation) {
				if e.Err != nil {
					congested++
				}
			}})
			job := []cluster.Job{{ID: 1, GPUs: bm.gpus, Bytes: 553e6, Traffic: cluster.Ring}}
			for b.Loop() {
				if len(p.Place(c, job, 1)[0].Parts) == 0 {
					b.Fatal("not placed")
				}
				if err := c.Leave(1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(congested)/float64(b.N), "over/op")
		})
	}
}

package netpack

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/cluster"
)

// Line 4: Corrected takes a server that has exactly as many GPUs as the job wants. As
// printed, the job goes where more are free.
func TestLine4(t *testing.T) {
	for v, want := range map[Variant]int{Corrected: 1, Published: 0} {
		c := cluster.New(cluster.FatTree(1, 3, 4, 100, 0, 1))
		enter(t, c, 1, nil, 1, 2)
		if got, _ := place(t, c, v, cluster.Job{ID: 2, GPUs: 2}); !slices.Equal(servers(got), []int{want}) {
			t.Errorf("%v: on %v, want %d", v, got, want)
		}
	}
}

// A job that fits a server goes where least is left over, then where the network is
// busiest.
func TestSingleServer(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 7, 4, 100, 1000, 1))
	enter(t, c, 1, nil, 0, 1)
	enter(t, c, 2, []int{6}, 1, 1, 2, 1) // two flows more
	enter(t, c, 3, []int{6}, 2, 1, 3, 2)
	for id, want := range map[int]int{1: 1, 2: 2, 3: 0} { // GPUs -> server
		p, _ := place(t, c, Corrected, cluster.Job{ID: 100 + id, GPUs: id})
		if !slices.Equal(servers(p), []int{map[int]int{1: 2, 2: 2, 3: 0}[id]}) {
			t.Errorf("%d GPUs on %v, want server %d", id, p, want)
		}
		if err := c.Leave(100 + id); err != nil {
			t.Fatal(err)
		}
	}
}

// bench is a planner for servers that are given as free GPUs, flows and bandwidth.
func bench(v Variant, servers ...[3]float64) *planner {
	var cfg cluster.Config
	cfg.Racks = []cluster.Rack{{PAT: math.Inf(1), Uplink: math.Inf(1)}}
	for range servers {
		cfg.Servers = append(cfg.Servers, cluster.Server{GPUs: 4, Link: 100})
	}
	p := newPlanner(cluster.New(cfg))
	p.start(Options{Variant: v})
	p.workers.reset()
	for i, s := range servers {
		lost := 100 - s[2]
		p.servers[i] = server{linked: true, free: int(s[0]), flows: int(s[1]), bandwidth: s[2], worker: s[2] - lost/(s[1]+1)}
		if s[0] > 0 {
			p.workers.put(i)
		}
	}
	return p
}

// Line 19: two busy servers with bandwidth to spare hide two calm ones without.
func TestLine19(t *testing.T) {
	for v, want := range map[Variant]bool{Corrected: true, Published: false} {
		p := bench(v, [3]float64{4, 2, 80}, [3]float64{4, 2, 80}, [3]float64{4, 1, 10}, [3]float64{4, 1, 10})
		p.candidates(&p.workers, 8)
		calm := slices.ContainsFunc(p.plans, func(pl plan) bool {
			return pl.gpus == 8 && !slices.ContainsFunc(p.unfold(pl), func(w cluster.Part) bool { return w.Server < 2 })
		})
		if calm != want {
			t.Errorf("%v finds the calm plan: %v", v, calm)
		}
	}
}

// plain is V[f][g] of section 5.2 over all servers, recursively as it is defined, for
// every f of some server and every g up to widest.
func plain(servers []server, widest int) map[int][]float64 {
	v := map[int][]float64{0: make([]float64, widest+1)}
	for _, s := range servers {
		if v[s.flows] == nil {
			v[s.flows] = make([]float64, widest+1)
		}
	}
	for f := range v {
		for g := range v[f] {
			v[f][g] = math.Inf(-1)
		}
	}
	v[0][0] = 0
	for _, s := range servers {
		if s.free == 0 {
			continue
		}
		next := map[int][]float64{}
		for f := range v {
			next[f] = slices.Clone(v[f])
		}
		for i := range v {
			for g := s.free; g <= widest; g++ {
				f := max(i, s.flows)
				next[f][g] = max(next[f][g], v[i][g-s.free]+s.worker-100)
			}
		}
		v = next
	}
	return v
}

// The best of each class are enough, and servers in the order of their flows give what
// the two-dimensional program over all of them gives, for every f and g.
func TestCandidates(t *testing.T) {
	rnd := random(t)
	for range 300 {
		var in [][3]float64
		for range 1 + rnd.IntN(40) {
			in = append(in, [3]float64{float64(rnd.IntN(5)), float64(rnd.IntN(5)), float64(10 * rnd.IntN(11))})
		}
		p := bench(Corrected, in...)
		gpus := 1 + rnd.IntN(20)
		want := plain(p.servers, gpus+p.most)
		for g := gpus; g <= gpus+p.most; g++ { // one by one, as exact plans hide the others
			p.candidates(&p.workers, g)
			for f := range 6 {
				best, value := math.Inf(-1), math.Inf(-1)
				for i := range want {
					if i <= f {
						best = max(best, want[i][g])
					}
				}
				for _, pl := range p.plans {
					if pl.gpus == g && pl.flows <= f {
						value = max(value, pl.value)
					}
				}
				if value != best && !(math.Abs(value-best) < 1e-9) {
					t.Fatalf("%v: %d GPUs, at most %d flows: %v, want %v", in, g, f, value, best)
				}
			}
		}
		for _, pl := range p.plans {
			sum, most, value := 0, 0, 0.0
			for _, w := range p.unfold(pl) {
				sum += w.GPUs
				most = max(most, p.servers[w.Server].flows)
				value += p.servers[w.Server].worker - 100
			}
			if sum != pl.gpus || most > pl.flows || math.Abs(value-pl.value) > 1e-9 {
				t.Fatalf("plan %+v of %v has %d GPUs, %d flows, value %v", pl, p.unfold(pl), sum, most, value)
			}
		}
	}
}

// equation1 is the value of a plan as section 5.2 defines it, and its largest value over
// all plans that cannot do without a server, and all servers.
func equation1(c *cluster.Cluster, gpus int) (best float64) {
	n := len(c.Servers)
	value := func(s, more int) float64 {
		return c.Bandwidth(s) - (100-c.Bandwidth(s))/float64(c.Flows(s)+more+1)
	}
	best = math.Inf(-1)
	for set := range 1 << n {
		sum, flows, v, least := 0, 0, 0.0, math.MaxInt
		for s := range n {
			if set>>s&1 == 1 {
				sum += c.Free(s)
				flows, least = max(flows, c.Flows(s)), min(least, c.Free(s))
				v += value(s, 0) - 100
				if c.Free(s) == 0 {
					sum = -1
					break
				}
			}
		}
		if sum < gpus || sum-gpus >= least {
			continue
		}
		for s := range n {
			epsilon := set >> s & 1
			best = max(best, v+value(s, epsilon)+100/float64(max(flows, c.Flows(s)+epsilon)+1))
		}
	}
	return best
}

// What is chosen has the largest value of Equation 1 over all plans and all servers as
// PS; classes and bounds lose nothing.
func TestEquation1(t *testing.T) {
	t.Run("random", func(t *testing.T) { equations(t, random(t)) })
	// In these the best PS is one with a worker, or would be in the plan of the largest value.
	for _, seed := range []uint64{71, 103, 142, 386} {
		t.Run(fmt.Sprint("paired ", seed), func(t *testing.T) { equations(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func equations(t *testing.T, rnd *rand.Rand) {
	compared := 0
	for range 300 {
		cfg := cluster.FatTree(1, 3+rnd.IntN(8), 3, 100, []float64{0, 100, math.Inf(1)}[rnd.IntN(3)], 1)
		cfg.Racks[0].Uplink = math.Inf(1)
		c := cluster.New(cfg)
		scatter(rnd, c, rnd.IntN(8), 1_000_000)
		if c.TotalFree() < 4 {
			continue
		}
		gpus := 4 + rnd.IntN(c.TotalFree()-3)
		want := equation1(c, gpus)
		_, why := place(t, c, Corrected, cluster.Job{ID: 1, GPUs: gpus})
		if got := why.Chosen; math.Abs(got.Total-want) > 1e-9 {
			t.Fatalf("%d GPUs: chosen %+v, the best is worth %v", gpus, got, want)
		}
		compared++
	}
	if compared < 100 {
		t.Errorf("only %d of 300 random clusters had room", compared)
	}
}

// Two servers are worth the same, 25: one has a flow that leaves 50, the other three that
// leave 40 together. The calm one wins. The published sign prefers the hot spot.
func TestHotSpot(t *testing.T) {
	for v, want := range map[Variant]int{Corrected: 1, Published: 4} { // f_max
		cfg := cluster.Config{Racks: []cluster.Rack{{PAT: math.Inf(1), Uplink: math.Inf(1)}}}
		for _, link := range []float64{100, 100, 100, 100, 50, 20, 20, 20, 50, 20, 20, 20} {
			cfg.Servers = append(cfg.Servers, cluster.Server{GPUs: 2, Link: link})
		}
		c := cluster.New(cfg)
		enter(t, c, 1, []int{8}, 0, 1, 4, 2)
		enter(t, c, 2, []int{9}, 1, 1, 5, 2)
		enter(t, c, 3, []int{10}, 1, 0, 6, 2)
		enter(t, c, 4, []int{11}, 1, 0, 7, 2)
		enter(t, c, 5, nil, 2, 1)
		enter(t, c, 6, nil, 3, 2)
		for i := 8; i < 12; i++ {
			enter(t, c, 10+i, nil, i, 2)
		}
		got, why := place(t, c, v, cluster.Job{ID: 7, GPUs: 2})
		if why.Chosen.Flows != want || v == Corrected && slices.Contains(servers(got), 1) {
			t.Errorf("%v: %v, %d flows, want %d: %+v", v, got, why.Chosen.Flows, want, why)
		}
	}
}

// At equal other terms the choice with more flows on its busiest link is never the better
// one, in any cluster.
func TestHotSpotNeverWins(t *testing.T) {
	rnd := random(t)
	compared := 0
	for range 300 {
		c := randomCluster(rnd)
		if c.TotalFree() < 10 {
			continue
		}
		_, why := place(t, c, Corrected, cluster.Job{ID: 1, GPUs: 10})
		for _, a := range why.Alternatives {
			b := why.Chosen
			if a.Total > b.Total {
				t.Fatalf("%+v is better than the chosen %+v", a, b)
			}
			if a.Workers+a.PSBandwidth-a.PSDecrement >= b.Workers+b.PSBandwidth-b.PSDecrement && a.Racks >= b.Racks {
				compared++
				if a.Flows < b.Flows && a.HotSpot < a.Racks {
					t.Fatalf("%+v lost against the hotter %+v", a, b)
				}
			}
		}
	}
	t.Logf("%d pairs compared", compared)
}

// Extra GPUs go back on the server with the fewest flows, then the most bandwidth, and
// the worker there stays.
func TestRelease(t *testing.T) {
	p := bench(Corrected, [3]float64{4, 2, 50}, [3]float64{4, 1, 40}, [3]float64{4, 1, 60}, [3]float64{4, 1, 60})
	parts := []cluster.Part{{Server: 0, GPUs: 4}, {Server: 1, GPUs: 4}, {Server: 3, GPUs: 4}, {Server: 2, GPUs: 4}}
	release(parts, 3, p.servers)
	if want := []cluster.Part{{Server: 0, GPUs: 4}, {Server: 1, GPUs: 4}, {Server: 3, GPUs: 4}, {Server: 2, GPUs: 1}}; !slices.Equal(parts, want) {
		t.Errorf("%v, want %v", parts, want)
	}

	c := cluster.New(cluster.FatTree(1, 4, 4, 100, 0, 1))
	got, why := place(t, c, Corrected, cluster.Job{ID: 1, GPUs: 9})
	if why.Chosen.GPUs != 12 || !slices.Equal(got.Parts, []cluster.Part{{Server: 0, GPUs: 1}, {Server: 1, GPUs: 4}, {Server: 2, GPUs: 4}}) {
		t.Errorf("9 GPUs of servers with 4: %v", got)
	}
}

// A rack with room for the job keeps it, where the uplinks are narrow. Where they are
// not, all idle servers are alike, and the first ones are taken.
func TestOversubscription(t *testing.T) {
	for _, tt := range []struct {
		variant          Variant
		oversubscription float64
		want             []int
		ps               []int // racks that it may be in
	}{
		{Corrected, 1, []int{0, 4}, []int{0, 1}},
		{Corrected, 20, []int{4, 5}, []int{1}},
		{Published, 20, []int{0, 4}, []int{0, 1}},
	} {
		c := cluster.New(cluster.FatTree(2, 4, 4, 100, 1000, tt.oversubscription))
		for i := 1; i < 4; i++ {
			enter(t, c, i, nil, i, 4)
		}
		got, why := place(t, c, tt.variant, cluster.Job{ID: 9, GPUs: 8})
		if !slices.Equal(servers(got), tt.want) || !slices.Contains(tt.ps, c.Servers[got.PS[0]].Rack) {
			t.Errorf("%v, 1:%v: %v, want %v: %+v", tt.variant, tt.oversubscription, got, tt.want, why)
		}
	}
}

// n_r is one flow where a rack aggregates, and one per worker where it does not.
func TestCrossRackFlows(t *testing.T) {
	for _, tt := range []struct {
		traffic cluster.Traffic
		pat     float64
		want    float64 // of an uplink of 20
	}{
		{cluster.INA, 1000, 20}, {cluster.INA, 0, 10}, {cluster.PS, 1000, 10}, {cluster.Tree, 0, 20}, {cluster.Ring, 0, 20},
	} {
		c := cluster.New(cluster.FatTree(2, 4, 1, 100, tt.pat, 20))
		p := newPlanner(c)
		p.survey([]cluster.Part{{Server: 0, GPUs: 1}, {Server: 1, GPUs: 1}, {Server: 4, GPUs: 1}})
		ps := 4
		if tt.traffic == cluster.Tree || tt.traffic == cluster.Ring {
			ps = -1
		}
		if _, least := p.across(tt.traffic, ps); least != tt.want {
			t.Errorf("%+v: %v", tt, least)
		}
	}
}

// Without a PS the rack with most workers has the root, whichever was found first: two others
// send it a flow each.
func TestRootOfPlan(t *testing.T) {
	cfg := cluster.FatTree(3, 4, 1, 100, 1000, 20)
	cfg.Racks[1].Uplink = 40
	p := newPlanner(cluster.New(cfg))
	for _, servers := range [][]int{{0, 4, 5, 6, 8}, {8, 6, 5, 4, 0}, {4, 0, 8, 5, 6}} {
		var parts []cluster.Part
		for _, s := range servers {
			parts = append(parts, cluster.Part{Server: s, GPUs: 1})
		}
		p.survey(parts)
		if most, least := p.across(cluster.Tree, -1); most != 20 || least != 20 {
			t.Errorf("%v: shares of uplinks from %v to %v", servers, least, most)
		}
	}
}

// Without memory in the switches there is no aggregation, and jobs are placed.
func TestNoPAT(t *testing.T) {
	for _, v := range variants {
		c := cluster.New(cluster.FatTree(3, 2, 2, 100, 0, 4))
		got, _ := place(t, c, v, cluster.Job{ID: 1, GPUs: 12})
		if len(got.Parts) != 6 || !slices.Equal(got.Plain, []int{0, 1, 2}) {
			t.Errorf("%v: %+v", v, got)
		}
	}
}

// The job with the larger fan-in gets the memory that is not enough for both, whichever
// comes first; jobs that run keep theirs.
func TestSelectiveINA(t *testing.T) {
	for _, first := range []int{3, 8} {
		cfg := cluster.FatTree(1, 16, 1, 100, 140, 1)
		c := cluster.New(cfg)
		enter(t, c, 1, []int{12}, 10, 1, 11, 1) // runs and takes 100 of 140
		batch := []cluster.Job{{ID: 2, GPUs: first}, {ID: 3, GPUs: 11 - first}}
		out := New(Options{}).Place(c, batch, 0)
		for i, j := range batch {
			_, p, _ := c.Placement(j.ID)
			if want := j.GPUs < 5; len(p.Plain) > 0 != want || !slices.Equal(p.Plain, out[i].Plain) {
				t.Errorf("%d GPUs: placed %+v, runs %+v", j.GPUs, out[i], p)
			}
		}
		if _, p, _ := c.Placement(1); len(p.Plain) > 0 {
			t.Errorf("the job that ran lost its aggregation: %+v", p)
		}
	}
}

// Several PSes are on servers of their own, each the best that is left: the bounds lose
// nothing.
func TestSeveralPS(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 8, 1, 100, 1000, 1))
	got, _ := place(t, c, Corrected, cluster.Job{ID: 1, GPUs: 4, PSes: 3})
	slices.Sort(got.PS)
	if len(slices.Compact(got.PS)) != 3 {
		t.Errorf("%+v", got)
	}

	rnd := random(t)
	for range 300 {
		c := randomCluster(rnd)
		p := newPlanner(c)
		p.start(Options{Variant: variants[rnd.IntN(2)]})
		var parts []cluster.Part
		for _, i := range rnd.Perm(len(c.Servers))[:2] {
			parts = append(parts, cluster.Part{Server: i})
		}
		_, flows := p.survey(parts)
		s := newSearch(cluster.Job{PSes: 3})
		s.best.Flows = flows
		taken := []int{rnd.IntN(len(c.Servers))}
		worth := func(i int) float64 {
			choice := p.withPS(Choice{Flows: flows}, i, slices.Contains(p.members, i))
			p.equation1(cluster.INA, &choice)
			return choice.Total
		}
		got := p.another(&s, taken)
		if slices.Contains(taken, got) {
			t.Fatalf("%d has a PS", got)
		}
		for i := range c.Servers {
			if !slices.Contains(taken, i) && worth(i) > worth(got) {
				t.Fatalf("server %d, worth %v, where %d is worth %v", got, worth(got), i, worth(i))
			}
		}
	}
}

func TestKnapsack(t *testing.T) {
	rnd := random(t)
	for range 500 {
		var batch []cluster.Job
		var aged []float64
		var jobs []int
		asked := 0
		for i := range 1 + rnd.IntN(10) {
			batch = append(batch, cluster.Job{GPUs: 1 + rnd.IntN(8)})
			aged = append(aged, float64(1+rnd.IntN(6)))
			jobs = append(jobs, i)
			asked += batch[i].GPUs
		}
		free := 8 + rnd.IntN(16)
		worth := func(set []int) (gpus int, value float64) {
			for _, i := range set {
				gpus += batch[i].GPUs
				value += aged[i]
			}
			return gpus, value
		}
		var best float64
		for set := range 1 << len(batch) {
			var s []int
			for i := range batch {
				if set>>i&1 == 1 {
					s = append(s, i)
				}
			}
			if g, v := worth(s); g <= free {
				best = max(best, v)
			}
		}
		g, v := worth(knapsack(batch, aged, jobs, free, maxSteps))
		if g > free || v != best {
			t.Fatalf("%v worth %v, %d free: %d taken, worth %v, want %v", batch, aged, free, g, v, best)
		}
		// With few steps it is near.
		if g, v := worth(knapsack(batch, aged, jobs, free, 8)); g > free || v > best || v < best/2 {
			t.Fatalf("%v worth %v, %d free: the core takes %d, worth %v of %v", batch, aged, free, g, v, best)
		}
	}
}

// A job that has waited for thousands of batches and does not fit takes no value from those that do: the oldest of them starts.
func TestAgeingBesideOneThatNeverFits(t *testing.T) {
	batch := []cluster.Job{{ID: 0, GPUs: 100, Waited: 9000}, {ID: 1, GPUs: 4, Waited: 50}, {ID: 2, GPUs: 2}, {ID: 3, GPUs: 2}}
	if got := subset(batch, 4, 100, Options{Ageing: DefaultAgeing}); !slices.Equal(got, []int{1}) {
		t.Errorf("chosen %v", got)
	}
	if got := subset(batch, 4, 100, Options{Ageing: DefaultAgeing, Reserve: true}); len(got) > 0 {
		t.Errorf("chosen %v, and what is free is reserved", got)
	}
}

// Small jobs keep coming, more than the cluster can hold, and a big one asks for all of it.
// Ageing and the reservation that follows let it start; without either it waits for ever.
func TestNoStarvation(t *testing.T) {
	const gpus, batches = 32, 200
	started := func(o Options) int {
		rnd := rand.New(rand.NewPCG(1, 0))
		c := cluster.New(cluster.FatTree(1, gpus/4, 4, 100, 1000, 1))
		p := New(o)
		waiting := []cluster.Job{{ID: 0, GPUs: gpus}}
		ends := map[int][]int{}
		id := 1
		for now := range batches {
			for _, j := range ends[now] {
				if err := c.Leave(j); err != nil {
					t.Fatal(err)
				}
			}
			for range 6 {
				waiting = append(waiting, cluster.Job{ID: id, GPUs: 1 + rnd.IntN(4)})
				id++
			}
			out := p.Place(c, waiting, 0)
			var still []cluster.Job
			for i, where := range out {
				j := waiting[i]
				if len(where.Parts) == 0 {
					j.Waited++
					still = append(still, j)
					continue
				}
				if j.ID == 0 {
					return now
				}
				at := now + 1 + rnd.IntN(5)
				ends[at] = append(ends[at], j.ID)
			}
			waiting = still
		}
		return batches
	}
	if n := started(Options{Ageing: 1, Reserve: true}); n != batches {
		t.Errorf("without ageing the big job started after %d batches: the test shows nothing", n)
	}
	if n := started(Options{}); n != batches {
		t.Errorf("without a reservation the big job started after %d batches: ageing alone was enough", n)
	}
	if n := started(Options{Reserve: true}); n == batches {
		t.Errorf("the big job did not start in %d batches", n)
	} else {
		t.Logf("started after %d batches", n)
	}
}

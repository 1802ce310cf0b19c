package replay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
)

var seed = flag.Uint64("seed", 1, "of random jobs and clusters")

// fixed enters jobs where it is told, as soon as there is room.
type fixed map[int]cluster.Placement

func (fixed) Name() string { return "fixed" }

func (f fixed) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	for i, j := range batch {
		if c.Enter(j, f[j.ID]) == nil {
			out[i] = f[j.ID]
		}
	}
	return out
}

// on is a placement with one GPU on each of some servers.
func on(ps int, servers ...int) cluster.Placement {
	p := cluster.Placement{PS: []int{ps}}
	for _, s := range servers {
		p.Parts = append(p.Parts, cluster.Part{Server: s, GPUs: 1})
	}
	return p
}

// Links of 80 bit/s carry ten bytes of gradient a second, so that one can follow every
// case with pencil and paper.
func TestByHand(t *testing.T) {
	rack := func(pat float64) cluster.Config { return cluster.FatTree(1, 5, 2, 80, pat, 1) }
	twoOnOnePS := fixed{1: on(4, 0, 1), 2: on(4, 2, 3)}
	inf := math.Inf(1)
	type times struct{ Start, End float64 }
	for _, tt := range []struct {
		name    string
		cluster cluster.Config
		policy  cluster.Policy
		period  float64
		jobs    []Job
		fluid   []times
		phases  []times
	}{
		{
			"on one server a job only computes", rack(inf), baseline.FirstFit(), 10,
			[]Job{{ID: 1, Submit: 3, GPUs: 2, Iterations: 10, Compute: 0.5, Bytes: 1000}},
			[]times{{10, 15}}, []times{{10, 15}},
		},
		{
			"computing 1 s, exchanging 1 s", rack(inf), fixed{1: on(2, 0, 1)}, 0,
			[]Job{{ID: 1, Submit: 3, GPUs: 2, Iterations: 4, Compute: 1, Bytes: 10}},
			[]times{{3, 11}}, []times{{3, 11}},
		},
		{
			"of a PAT of 40, half of the exchange is aggregated: 40 + (60-40)·2 on the PS's link", rack(40), fixed{1: on(2, 0, 1)}, 0,
			[]Job{{ID: 1, GPUs: 2, Iterations: 3, Compute: 1, Bytes: 10}},
			[]times{{0, 7}}, []times{{0, 7}},
		},
		{
			"without PAT both workers' gradients meet on the PS's link", rack(0), fixed{1: on(2, 0, 1)}, 0,
			[]Job{{ID: 1, GPUs: 2, Iterations: 3, Compute: 1, Bytes: 10}},
			[]times{{0, 9}}, []times{{0, 9}},
		},
		{
			"a ring of two moves all bytes once, out by one direction of a link and in by the other", rack(0), fixed{1: {Parts: on(0, 0, 1).Parts}}, 0,
			[]Job{{ID: 1, GPUs: 2, Iterations: 3, Compute: 1, Bytes: 10, Traffic: cluster.Ring}},
			[]times{{0, 6}}, []times{{0, 6}},
		},
		{
			// 3 s an iteration together, 2 s alone. In step, phases give the same.
			"two jobs share a PS's link", rack(inf), twoOnOnePS, 0,
			[]Job{
				{ID: 1, GPUs: 2, Iterations: 4, Compute: 1, Bytes: 10},
				{ID: 2, GPUs: 2, Iterations: 2, Compute: 1, Bytes: 10},
			},
			[]times{{0, 10}, {0, 6}}, []times{{0, 10}, {0, 6}},
		},
		{
			// Fluid: job 1 makes half an iteration before 2 comes, two beside it until
			// 7, and 1.5 alone. Phases: they never meet.
			"two jobs share a PS's link in turn", rack(inf), twoOnOnePS, 0,
			[]Job{
				{ID: 1, GPUs: 2, Iterations: 4, Compute: 1, Bytes: 10},
				{ID: 2, Submit: 1, GPUs: 2, Iterations: 2, Compute: 1, Bytes: 10},
			},
			[]times{{0, 10}, {1, 7}}, []times{{0, 8}, {1, 5}},
		},
		{
			// Phases: job 1 exchanges alone 1..1.5, together until 2.5, when it has
			// its 80 bits; job 2 has the link alone until 3. Again from 3.5.
			"two jobs that overlap by half", rack(inf), twoOnOnePS, 0,
			[]Job{
				{ID: 1, GPUs: 2, Iterations: 2, Compute: 1, Bytes: 10},
				{ID: 2, Submit: 0.5, GPUs: 2, Iterations: 2, Compute: 1, Bytes: 10},
			},
			[]times{{0, 5.75}, {0.5, 6.25}}, []times{{0, 5}, {0.5, 5.5}},
		},
		{
			"a job waits for GPUs, and for the next period", cluster.FatTree(1, 1, 2, 80, 0, 1), baseline.FirstFit(), 4,
			[]Job{
				{ID: 1, GPUs: 2, Iterations: 10, Compute: 1},
				{ID: 2, Submit: 1, GPUs: 2, Iterations: 5, Compute: 1},
			},
			[]times{{0, 10}, {12, 17}}, []times{{0, 10}, {12, 17}},
		},
		{
			// 3·0.1 is 0.30000000000000004, and that over 0.1 more than 3.
			"a period that is rounded up has its batch", cluster.FatTree(1, 1, 2, 80, 0, 1), baseline.FirstFit(), 0.1,
			[]Job{
				{ID: 1, Submit: 0.25, GPUs: 2, Iterations: 1, Compute: 0.85},
				{ID: 2, Submit: 0.6000000000000001, GPUs: 2, Iterations: 1, Compute: 1},
			},
			[]times{{0.3, 1.15}, {1.2, 2.2}}, []times{{0.3, 1.15}, {1.2, 2.2}},
		},
		{
			"a job that takes no time makes room at once", cluster.FatTree(1, 1, 2, 80, 0, 1), baseline.FirstFit(), 0,
			[]Job{
				{ID: 1, Submit: 5, GPUs: 2, Iterations: 10},
				{ID: 2, Submit: 5, GPUs: 2, Iterations: 5, Compute: 1},
			},
			[]times{{5, 5}, {5, 10}}, []times{{5, 5}, {5, 10}},
		},
	} {
		for f, want := range [][]times{tt.fluid, tt.phases} {
			t.Run(fmt.Sprintf("%s/%s", tt.name, Fidelity(f)), func(t *testing.T) {
				r, err := Run(t.Context(), Config{Cluster: tt.cluster, Policy: tt.policy, Period: tt.period, Fidelity: Fidelity(f), Overhead: 1}, tt.jobs)
				if err != nil {
					t.Fatal(err)
				}
				for i, j := range r.Jobs {
					if math.Abs(j.Start-want[i].Start) > 1e-9 || math.Abs(j.End-want[i].End) > 1e-9 {
						t.Errorf("job %d ran from %v to %v, want %v", j.ID, j.Start, j.End, want[i])
					}
				}
			})
		}
	}
}

// What is reported of the cases above.
func TestFigures(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	// One job, 3 × (1 s + 4/3 s) on two of five servers' links and all of the PS's.
	c := Config{Cluster: cluster.FatTree(1, 5, 2, 80, 40, 1), Policy: fixed{1: on(2, 0, 1)}, Overhead: 1}
	jobs := []Job{{ID: 1, GPUs: 2, Iterations: 3, Compute: 1, Bytes: 10}}
	for f, share := range []float64{1, 4.0 / 7} { // of the time that it sends
		c.Fidelity = Fidelity(f)
		r, err := Run(t.Context(), c, jobs)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Summary
		near("JCT", s.JCT, 7)
		near("makespan", s.Makespan, 7)
		near("DE", s.DE, 3.0/7)
		near("network", s.Network, 4)
		near("GPUs", s.GPUs, 0.2)
		near("links", s.Links, share*(60+60+80)/(5*80))
		near("aggregators", s.Aggregators, share)
		if j := r.Jobs[0]; j.Servers != 2 || j.Racks != 1 || j.Waited != 0 {
			t.Errorf("%d servers, %d racks, waited %d", j.Servers, j.Racks, j.Waited)
		}
	}
	// Two jobs in a row; the second is passed over at 4 and at 8.
	r, err := Run(t.Context(), Config{Cluster: cluster.FatTree(1, 1, 2, 80, 0, 1), Policy: baseline.FirstFit(), Period: 4}, []Job{
		{ID: 1, GPUs: 2, Iterations: 10, Compute: 1},
		{ID: 2, Submit: 1, GPUs: 2, Iterations: 5, Compute: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary
	near("JCT", s.JCT, 7.5)
	near("JCT with queueing", s.JCTQueued, 13)
	near("makespan", s.Makespan, 17)
	near("DE", s.DE, 1)
	near("DE with queueing", s.DEQueued, (1+5.0/16)/2)
	near("queued", s.QueueMean, 5.5)
	near("queued, p95", s.QueueP95, 11)
	near("GPUs", s.GPUs, 15.0/17)
	near("aggregators where there are none", s.Aggregators, 0)
	if w := r.Jobs[1].Waited; w != 2 {
		t.Errorf("waited %d periods, want 2", w)
	}
	if r.Batches != 2 {
		t.Errorf("the policy was asked %d times, want 2: not when nothing can be placed", r.Batches)
	}
}

// counting remembers what it was asked, and places only those that waited enough.
type counting struct {
	patience int
	waited   map[int][]int
}

func (*counting) Name() string { return "counting" }

func (p *counting) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	for i, j := range batch {
		p.waited[j.ID] = append(p.waited[j.ID], j.Waited)
		if j.Waited >= p.patience {
			out[i] = cluster.Placement{Parts: []cluster.Part{{Server: 0, GPUs: j.GPUs}}}
			if c.Enter(j, out[i]) != nil {
				out[i] = cluster.Placement{}
			}
		}
	}
	return out
}

// Periods that need no batch count as passed over all the same.
func TestWaited(t *testing.T) {
	p := &counting{waited: map[int][]int{}}
	_, err := Run(t.Context(), Config{Cluster: cluster.FatTree(1, 1, 4, 80, 0, 1), Policy: p, Period: 1}, []Job{
		{ID: 1, GPUs: 3, Iterations: 10, Compute: 1},
		{ID: 2, Submit: 0.5, GPUs: 4, Iterations: 1, Compute: 1},
		{ID: 3, Submit: 5.5, GPUs: 1, Iterations: 1, Compute: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	// At 1 the smallest asks 4 of 1 free GPU; at 6 job 3 is placed; at 10 job 2.
	want := map[int][]int{1: {0}, 2: {5, 9}, 3: {0}}
	if diff := cmp.Diff(want, p.waited); diff != "" {
		t.Errorf("Waited that the policy saw (-want +got):\n%s", diff)
	}
}

// random makes jobs whose iterations take about as long to compute as to exchange.
func random(r *rand.Rand, n, gpus int, compute bool) []Job {
	var jobs []Job
	var at float64
	for i := range n {
		at += r.ExpFloat64() * 2
		j := Job{
			ID: 100 + i, Submit: at, GPUs: 1 + r.IntN(gpus), Iterations: 1 + r.IntN(20),
			Bytes: 1e9 * r.Float64(), Traffic: cluster.Traffic(r.IntN(4)), PSes: r.IntN(3),
		}
		if compute {
			j.Compute = 0.2 * r.Float64()
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// small is a cluster that 16-GPU jobs fill.
func small(r *rand.Rand) cluster.Config {
	return cluster.FatTree(1+r.IntN(3), 4, 4, 100e9, []float64{0, 50e9, 1e12, math.Inf(1)}[r.IntN(4)], float64(1+r.IntN(4)))
}

func rng(t testing.TB) *rand.Rand {
	t.Helper()
	t.Logf("-seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// Whatever is replayed: GPUs are busy as long as jobs have them, jobs wait as long as
// they are queued, the series have the same integrals, no GPU is had twice, and the
// network only ever costs.
func TestConservation(t *testing.T) {
	r := rng(t)
	for n := range 40 {
		f := Fidelity(n % 2)
		c := small(r)
		policies := baseline.All()
		p := policies[n/2%len(policies)]
		jobs := random(r, 60, 16, true)
		got, err := Run(t.Context(), Config{Cluster: c, Policy: p, Period: float64(r.IntN(4)), Fidelity: f, Seed: uint64(n)}, jobs)
		if err != nil {
			t.Fatalf("%s, %s: %v", f, p.Name(), err)
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
				t.Errorf("%s, %s: %s: %v, want %v", f, p.Name(), what, got, want)
			}
		}
		var busy, queued float64
		for i, j := range got.Jobs {
			busy += float64(j.GPUs) * j.JCT()
			queued += j.Queued()
			ideal := float64(j.Iterations) * j.Compute
			if j.ID != jobs[i].ID || j.Queued() < 0 || j.JCT() < ideal*(1-1e-9)-1e-9 || j.Placement.Local() && j.JCT() > ideal*(1+1e-9)+1e-9 {
				t.Errorf("%s, %s: %+v, without a network %v s", f, p.Name(), j, ideal)
			}
		}
		gpus := float64(4 * len(c.Servers))
		span := got.Summary.Makespan
		near("GPU-seconds", got.Summary.GPUs*span*gpus, busy)
		s := got.Series
		integral := func(v []float64) float64 {
			var sum float64
			for i, x := range v {
				sum += x * min(s.Step, s.To-s.From-float64(i)*s.Step)
			}
			return sum
		}
		near("series of GPUs", integral(s.GPUs), busy)
		near("series of waiting jobs", integral(s.Waiting), queued)
		near("series of links", integral(s.Links), got.Summary.Links*span)
		for i := range s.GPUs {
			if s.GPUs[i] > gpus*(1+1e-9) || s.Links[i] < -1e-9 || s.Links[i] > 1+1e-9 || s.Aggregated[i] < 0 {
				t.Errorf("%s, %s: at %v: %v of %v GPUs, links %v, aggregated %v", f, p.Name(), s.From+float64(i)*s.Step, s.GPUs[i], gpus, s.Links[i], s.Aggregated[i])
			}
		}
	}
}

// Jobs that never compute send all the time: what fluid assumes is true then.
func TestFluidIsPhasesWithoutComputing(t *testing.T) {
	r := rng(t)
	for n := range 10 {
		c, jobs := small(r), random(r, 40, 12, false)
		run := func(f Fidelity) []JobResult {
			got, err := Run(t.Context(), Config{Cluster: c, Policy: baseline.GPUBalance(), Period: 1, Fidelity: f}, jobs)
			if err != nil {
				t.Fatal(err)
			}
			return got.Jobs
		}
		fluid, phases := run(Fluid), run(Phases)
		for i := range fluid {
			if math.Abs(fluid[i].End-phases[i].End) > 1e-6*fluid[i].End {
				t.Errorf("case %d: job %d ends at %v with fluid, at %v with phases", n, fluid[i].ID, fluid[i].End, phases[i].End)
			}
		}
	}
}

// A job alone is never slower on faster links.
func TestMoreBandwidthIsNeverWorse(t *testing.T) {
	r := rng(t)
	for n := range 50 {
		c := small(r)
		jobs := random(r, 1, 16, true)
		policies := baseline.All()
		p, f := policies[r.IntN(len(policies))], Fidelity(n%2)
		last := math.Inf(1)
		for range 5 {
			got, err := Run(t.Context(), Config{Cluster: c, Policy: p, Fidelity: f, Seed: uint64(n)}, jobs)
			if err != nil {
				t.Fatal(err)
			}
			if got.Summary.JCT > last*(1+1e-9) {
				t.Errorf("%s, %s: %v s with links of %v bit/s, %v s with slower ones", f, p.Name(), got.Summary.JCT, c.Servers[0].Link, last)
			}
			last = got.Summary.JCT
			k := 1 + r.Float64()
			for i := range c.Servers {
				c.Servers[i].Link *= k
			}
			for i := range c.Racks {
				c.Racks[i].Uplink *= k
			}
		}
	}
}

// The same twice is the same; another seed of a random policy is not.
func TestDeterminism(t *testing.T) {
	r := rng(t)
	jobs := random(r, 60, 16, true)
	run := func(seed uint64, f Fidelity) *Result {
		got, err := Run(t.Context(), Config{Cluster: cluster.FatTree(2, 4, 4, 100e9, 50e9, 2), Policy: baseline.Random(), Period: 1, Seed: seed, Fidelity: f}, jobs)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, f := range []Fidelity{Fluid, Phases} {
		if diff := cmp.Diff(run(1, f), run(1, f)); diff != "" {
			t.Errorf("%s: the same again (-first +second):\n%s", f, diff)
		}
		if cmp.Equal(run(1, f).Jobs, run(2, f).Jobs) {
			t.Errorf("%s: two seeds of a random policy gave the same", f)
		}
	}
}

func TestBadJobs(t *testing.T) {
	good := Job{ID: 1, GPUs: 1, Iterations: 1, Compute: 1}
	with := func(f func(*Job)) Job { j := good; j.ID = 2; f(&j); return j }
	for _, tt := range []struct {
		name string
		job  Job
		is   error
		says string
	}{
		{"too large", with(func(j *Job) { j.GPUs = 9 }), ErrGPUs, "job 2 asks 9 GPUs of 8"},
		{"the same id", good, ErrJob, "job 1"},
		{"no GPU", with(func(j *Job) { j.GPUs = 0 }), ErrJob, "job 2"},
		{"no iteration", with(func(j *Job) { j.Iterations = 0 }), ErrJob, "0 iterations"},
		{"before time began", with(func(j *Job) { j.Submit = -1 }), ErrJob, "-1 s"},
		{"never submitted", with(func(j *Job) { j.Submit = math.Inf(1) }), ErrJob, "+Inf s"},
		{"not a time", with(func(j *Job) { j.Compute = math.NaN() }), ErrJob, "NaN s"},
		{"negative bytes", with(func(j *Job) { j.Bytes = -4 }), ErrJob, "-4 bytes"},
		{"unknown traffic", with(func(j *Job) { j.Traffic = 9 }), ErrJob, "traffic 9"},
	} {
		cfg := Config{Cluster: cluster.FatTree(1, 2, 4, 80, 0, 1), Policy: baseline.FirstFit()}
		r, err := Run(t.Context(), cfg, []Job{good, tt.job})
		if r != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := Run(t.Context(), Config{Period: math.NaN(), Policy: baseline.FirstFit()}, nil); err == nil {
		t.Error("a period of NaN is accepted")
	}
	if r, err := Run(t.Context(), Config{Policy: baseline.FirstFit()}, nil); err != nil || r.Summary != (Summary{}) {
		t.Errorf("no jobs: %+v, %v", r, err)
	}
}

// policyFunc is a policy that is one function.
type policyFunc func(c *cluster.Cluster, batch []cluster.Job) []cluster.Placement

func (policyFunc) Name() string { return "func" }

func (f policyFunc) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	return f(c, batch)
}

// Policies that break their contract are found out.
func TestBadPolicies(t *testing.T) {
	place := baseline.FirstFit().Place
	for name, p := range map[string]policyFunc{
		"never places": func(_ *cluster.Cluster, b []cluster.Job) []cluster.Placement {
			return make([]cluster.Placement, len(b))
		},
		"forgets a job": func(c *cluster.Cluster, b []cluster.Job) []cluster.Placement { return place(c, b, 0)[1:] },
		"says what is not so": func(c *cluster.Cluster, b []cluster.Job) []cluster.Placement {
			return []cluster.Placement{on(0, 0), on(0, 1)}
		},
		"does not say": func(c *cluster.Cluster, b []cluster.Job) []cluster.Placement {
			place(c, b, 0)
			return make([]cluster.Placement, len(b))
		},
		"enters others": func(c *cluster.Cluster, b []cluster.Job) []cluster.Placement {
			one := cluster.Placement{Parts: []cluster.Part{{Server: 3, GPUs: 1}}}
			if err := c.Enter(cluster.Job{ID: 99, GPUs: 1}, one); err != nil {
				t.Error(err)
			}
			return place(c, b, 0)
		},
	} {
		_, err := Run(t.Context(), Config{Cluster: cluster.FatTree(1, 4, 4, 80, 0, 1), Policy: p}, []Job{
			{ID: 1, GPUs: 1, Iterations: 1}, {ID: 2, GPUs: 1, Iterations: 1},
		})
		if !errors.Is(err, ErrPolicy) {
			t.Errorf("a policy that %s: %v", name, err)
		}
	}
}

// A replay ends with its context: at once, half way, and not at all when it is done.
func TestCancellation(t *testing.T) {
	r := rng(t)
	jobs := random(r, 50, 16, true)
	for _, at := range []int{0, 25, 50} {
		ctx, cancel := context.WithCancel(t.Context())
		if at == 0 {
			cancel()
		}
		last := 0
		cfg := Config{Cluster: cluster.FatTree(2, 4, 4, 100e9, 50e9, 2), Policy: baseline.FirstFit(), Progress: func(p Progress) {
			if p.Done <= last || p.Jobs != len(jobs) || p.Waiting+p.Running+p.Done > p.Jobs {
				t.Errorf("progress after %d jobs: %+v", last, p)
			}
			if last = p.Done; p.Done >= at {
				cancel()
			}
		}}
		_, err := Run(ctx, cfg, jobs)
		if at < 50 && (!errors.Is(err, context.Canceled) || last > at+1) {
			t.Errorf("cancelled after %d jobs: %v after %d", at, err, last)
		}
		if at == 50 && err != nil {
			t.Errorf("cancelled after the last job: %v", err)
		}
		cancel()
	}
}

func TestIterations(t *testing.T) {
	for _, tt := range []struct {
		duration, compute float64
		want              int
	}{{100, 0.25, 400}, {1, 0.3, 3}, {1, 0.4, 3}, {0, 1, 1}, {1, 0, math.MaxInt32}, {0, 0, 1}, {math.NaN(), 1, 1}} {
		if got := Iterations(tt.duration, tt.compute); got != tt.want {
			t.Errorf("%v s of %v s: %d iterations, want %d", tt.duration, tt.compute, got, tt.want)
		}
	}
}

// The last results of an exchange take a round trip, which nothing else waits for.
func TestLatency(t *testing.T) {
	c := cluster.FatTree(3, 2, 4, 1e9, 0, 1)
	for i := range c.Servers {
		c.Servers[i].Delay = 1e-3
	}
	for i := range c.Racks {
		c.Racks[i].PAT, c.Racks[i].Delay = math.Inf(1), 2e-3
	}
	c.Servers[4].Delay, c.Servers[5].Delay = 4e-3, 4e-3
	const sent = 8192 / 1e9
	parts := func(servers ...int) (out []cluster.Part) {
		for _, s := range servers {
			out = append(out, cluster.Part{Server: s, GPUs: 1})
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		traffic cluster.Traffic
		at      cluster.Placement
		want    float64
	}{
		{"one rack", cluster.INA, cluster.Placement{Parts: parts(0, 1), PS: []int{0}}, 4e-3 - sent},
		{"two racks", cluster.INA, cluster.Placement{Parts: parts(0, 1), PS: []int{2}}, 12e-3 - sent},
		{"two PSes, one of them far", cluster.PS, cluster.Placement{Parts: parts(0, 1), PS: []int{0, 2}}, 12e-3 - sent},
		{"no PS", cluster.Tree, cluster.Placement{Parts: parts(0, 1)}, 2e-3 - sent},
		{"no PS, two racks", cluster.Tree, cluster.Placement{Parts: parts(0, 2)}, 10e-3 - sent},
		{"no PS, most are in the slow rack", cluster.Tree, cluster.Placement{Parts: parts(0, 4, 5)}, 10e-3 - sent},
		{"ring", cluster.Ring, cluster.Placement{Parts: parts(0, 1)}, 2e-3 - sent},
		{"ring, two racks", cluster.Ring, cluster.Placement{Parts: parts(0, 1, 2)}, 6e-3 - sent},
	} {
		if got := Latency(c, tt.traffic, tt.at); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%s: %v s, want %v", tt.name, got, tt.want)
		}
	}
	place := policyFunc(func(c *cluster.Cluster, b []cluster.Job) []cluster.Placement {
		at := cluster.Placement{Parts: parts(0, 1), PS: []int{2}}
		if err := c.Enter(b[0], at); err != nil {
			t.Error(err)
		}
		return []cluster.Placement{at}
	})
	for _, f := range []Fidelity{Fluid, Phases} {
		r, err := Run(t.Context(), Config{Cluster: c, Policy: place, Fidelity: f, Overhead: 1}, []Job{
			{ID: 1, GPUs: 2, Iterations: 3, Compute: 0.5, Bytes: 1e9 / 8},
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := 3 * (0.5 + 1 + 12e-3 - sent); math.Abs(r.Jobs[0].JCT()-want) > 1e-9 {
			t.Errorf("%v: %v s, want %v", f, r.Jobs[0].JCT(), want)
		}
	}
}

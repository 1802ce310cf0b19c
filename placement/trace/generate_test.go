package trace

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/testbed/testbedtest"
)

func generate(t *testing.T, g Generator) *Trace {
	t.Helper()
	tr, err := Generate(g)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// Generators against all that is published: sizes, durations and GPU time by size.
// Shares of 200,000 jobs have a standard error of at most 0.12 %. GPU time hangs on few
// long jobs, Seren's on 0.7 % of the jobs, so it is integrated.
func TestMarginals(t *testing.T) {
	t.Run("philly", func(t *testing.T) { testMarginals(t, Philly, &philly, 22, Quantiles{1, 4, 16, 32}) })
	t.Run("seren", func(t *testing.T) { testMarginals(t, Seren, &seren, 21, Quantiles{1, 8, 64, 1024}) })
}

func testMarginals(t *testing.T, demand Demand, m *marginals, points int, quantiles Quantiles) {
	tr := generate(t, Generator{Demand: demand, Jobs: 200_000, Seed: 1, Rate: 0.01})
	var durations []float64
	bySize := map[int]float64{}
	for _, j := range tr.Jobs {
		durations = append(durations, j.Duration)
		bySize[j.GPUs]++
	}
	byTime, total, below := make([]float64, len(m.sizes)), 0.0, 0.0
	for i, s := range m.sizes {
		const n = 10_000
		for k := range n {
			z := math.Sqrt2 * math.Erfinv(2*(float64(k)+0.5)/n-1)
			byTime[i] += (s.jobs - below) * float64(s.gpus) * m.lasts(m.rank(s.gpus, z))
		}
		total += byTime[i]
		below = s.jobs
	}
	jobs, time := 0.0, 0.0
	for i, s := range m.sizes {
		jobs += bySize[s.gpus] / float64(len(tr.Jobs))
		time += byTime[i] / total
		if math.Abs(100*jobs-s.jobs) > 0.5 {
			t.Errorf("%.2f %% of the jobs have at most %d GPUs, published are %.2f %%", 100*jobs, s.gpus, s.jobs)
		}
		if math.Abs(100*time-s.time) > 0.3 {
			t.Errorf("%.1f %% of the GPU time is of jobs with at most %d GPUs, published are %.1f %%", 100*time, s.gpus, s.time)
		}
	}
	slices.Sort(durations)
	for i, want := range m.durations[:points] {
		// Whole seconds blur the shortest by half of one.
		limit := math.Exp2(float64(i)) + 0.5
		n, _ := slices.BinarySearch(durations, limit)
		if got := 100 * float64(n) / float64(len(durations)); i >= 5 && math.Abs(got-want) > 0.6 {
			t.Errorf("%.2f %% of the jobs run for at most 2^%d s, published are %.2f %%", got, i, want)
		}
	}
	// The quantiles that go with them, as the project's sources state them.
	if s := Inspect(tr); s.GPUs != quantiles {
		t.Errorf("GPUs %+v, want %+v", s.GPUs, quantiles)
	}
}

// ElasticFlow's sizes, and the quantiles of each size's durations.
func TestElasticFlow(t *testing.T) {
	tr := generate(t, Generator{Demand: ElasticFlow, Jobs: 400_000, Seed: 1, Rate: 0.01})
	durations := map[int][]float64{}
	for _, j := range tr.Jobs {
		durations[j.GPUs] = append(durations[j.GPUs], j.Duration)
	}
	jobs := 0.0
	for _, s := range elasticflowSizes {
		d := durations[s.gpus]
		jobs += 100 * float64(len(d)) / float64(len(tr.Jobs))
		if math.Abs(jobs-s.jobs) > 0.3 {
			t.Errorf("%.2f %% of the jobs have at most %d GPUs, want %.2f %%", jobs, s.gpus, s.jobs)
		}
		for i, limit := range s.durations {
			if i > 0 && limit == s.durations[i-1] {
				continue
			}
			want := elasticflowParts[i]
			n := 0
			for _, x := range d {
				if x <= limit+0.5 {
					n++
				}
			}
			got := float64(n) / float64(len(d))
			if sd := math.Sqrt(want * (1 - want) / float64(len(d))); math.Abs(got-want) > 5*sd+0.03 {
				t.Errorf("%.3f of the jobs with %d GPUs run for at most %v s, want %v", got, s.gpus, limit, want)
			}
		}
	}
	if len(durations) != len(elasticflowSizes) {
		t.Errorf("%d sizes", len(durations))
	}
}

// The generated jobs are like those they were made from: GPUs of a job, and GPU time by
// size, which hangs on the long ones and on what lies between quantiles.
func TestElasticFlowRecorded(t *testing.T) {
	recorded, _, err := Load(filepath.Join(traces(t), "msr_elasticflow_ef03_ef04.csv"), Options{})
	testbedtest.Require(t, "traces", err)
	shares := func(tr *Trace) (jobs, time map[int]float64, mean float64) {
		jobs, time = map[int]float64{}, map[int]float64{}
		total := 0.0
		for _, j := range tr.Jobs {
			jobs[j.GPUs] += 1 / float64(len(tr.Jobs))
			time[j.GPUs] += float64(j.GPUs) * j.Duration
			total += float64(j.GPUs) * j.Duration
		}
		for g := range time {
			time[g] /= total
		}
		return jobs, time, total / float64(len(tr.Jobs))
	}
	jobs, time, mean := shares(recorded)
	gotJobs, gotTime, gotMean := shares(generate(t, Generator{Demand: ElasticFlow, Jobs: 100_000, Seed: 1, Rate: 0.01}))
	if math.Abs(gotMean/mean-1) > 0.05 {
		t.Errorf("%v GPU seconds a job, recorded are %v", gotMean, mean)
	}
	for g := range jobs {
		if math.Abs(gotJobs[g]-jobs[g]) > 0.01 || math.Abs(gotTime[g]-time[g]) > 0.04 {
			t.Errorf("%d GPUs: %.3f of the jobs and %.3f of the GPU time, recorded are %.3f and %.3f", g, gotJobs[g], gotTime[g], jobs[g], time[g])
		}
	}
}

// Demands below 1 are drawn again, so what is wanted are the truncated distributions'
// moments.
func TestDemand(t *testing.T) {
	const n = 100_000
	for _, tt := range []struct {
		g        Generator
		mean, sd float64
	}{
		{Generator{Demand: Poisson, Mean: 4}, 4 / (1 - math.Exp(-4)), math.Sqrt(4/(1-math.Exp(-4))*5 - math.Pow(4/(1-math.Exp(-4)), 2))},
		{Generator{Demand: Poisson, Mean: 100}, 100, 10},
		{Generator{Demand: Normal, Mean: 16, StdDev: 3}, 16, math.Sqrt(9 + 1.0/12)}, // rounding adds 1/12
	} {
		tt.g.Jobs, tt.g.Seed, tt.g.Rate, tt.g.MeanDuration = n, 7, 1, 1000
		tr := generate(t, tt.g)
		var sum, squares, busy float64
		for _, j := range tr.Jobs {
			if j.GPUs < 1 || j.Duration < 1 {
				t.Fatalf("%+v", j)
			}
			sum += float64(j.GPUs)
			squares += float64(j.GPUs * j.GPUs)
			busy += j.Duration
		}
		mean := sum / n
		sd := math.Sqrt(squares/n - mean*mean)
		if math.Abs(mean-tt.mean) > 5*tt.sd/math.Sqrt(n) || math.Abs(sd/tt.sd-1) > 0.02 {
			t.Errorf("%s: mean %.3f, standard deviation %.3f, want %.3f and %.3f", tt.g.Demand, mean, sd, tt.mean, tt.sd)
		}
		if math.Abs(busy/n-1000) > 20 {
			t.Errorf("%s: mean duration %.1f s, want 1000", tt.g.Demand, busy/n)
		}
		if span := tr.Jobs[n-1].Submit; math.Abs(span/n-1) > 0.02 {
			t.Errorf("%s: %d jobs in %.0f s at 1 a second", tt.g.Demand, n, span)
		}
	}
}

func TestMaxGPUs(t *testing.T) {
	for _, g := range []Generator{
		{Demand: Poisson, Mean: 4, MaxGPUs: 4}, {Demand: Normal, Mean: 4, StdDev: 4, MaxGPUs: 4}, {Demand: Philly, MaxGPUs: 4},
	} {
		g.Jobs, g.Rate = 1000, 1
		s := Inspect(generate(t, g))
		if s.GPUs.Max != 4 {
			t.Errorf("%s: %+v", g.Demand, s.GPUs)
		}
	}
}

// The offered load is what was asked for: GPU time over that of the capacity in the
// arrivals' span, to what the randomness of 20,000 gaps leaves.
func TestLoad(t *testing.T) {
	for _, demand := range []Demand{Philly, Poisson} {
		s := Inspect(generate(t, Generator{Demand: demand, Mean: 8, Jobs: 20_000, Seed: 3, Load: 0.75, Capacity: 512}))
		if got := s.Load / 512; math.Abs(got-0.75) > 0.03 {
			t.Errorf("%s: load %.3f, want 0.75", demand, got)
		}
	}
}

// The seed decides all of it; other models or arrivals leave the jobs as they are; the
// models are drawn evenly.
func TestStreams(t *testing.T) {
	g := Generator{Demand: Philly, Jobs: 6000, Seed: 42, Rate: 0.01}
	a := generate(t, g)
	if !cmp.Equal(a, generate(t, g)) {
		t.Error("the seed does not decide")
	}
	other := g
	other.Models, other.Rate, other.Load, other.Capacity = NetPackModels(), 0, 0.5, 64
	b := generate(t, other)
	drawn := map[string]int{}
	for i := range a.Jobs {
		if a.Jobs[i].GPUs != b.Jobs[i].GPUs || a.Jobs[i].Duration != b.Jobs[i].Duration || a.Jobs[i].ID != b.Jobs[i].ID {
			t.Fatalf("job %d: %+v and %+v", i, a.Jobs[i], b.Jobs[i])
		}
		drawn[b.Jobs[i].Model]++
	}
	for _, m := range NetPackModels() { // 1000 expected, standard deviation 29
		if drawn[m] < 850 || drawn[m] > 1150 {
			t.Errorf("%s was drawn %d times of %d", m, drawn[m], g.Jobs)
		}
	}
	g.Seed++
	if cmp.Equal(a.Jobs, generate(t, g).Jobs) {
		t.Error("another seed, the same trace")
	}
	// A trace that anyone can make again.
	want := Job{ID: "1", Submit: 35, Duration: 82300, GPUs: 1, Source: "generated/philly"}
	if diff := cmp.Diff(want, a.Jobs[1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGeneratorCheck(t *testing.T) {
	good := Generator{Demand: Normal, Jobs: 1, Mean: 4, StdDev: 1, Rate: 1}
	generate(t, good)
	for _, tt := range []struct {
		change func(*Generator)
		want   string
	}{
		{func(g *Generator) { g.Demand = "phily" }, `generate trace: unknown demand "phily"`},
		{func(g *Generator) { g.Jobs = 0 }, "generate trace: 0 jobs: 1 to 5000000"},
		{func(g *Generator) { g.Mean = math.NaN() }, "generate trace: a mean of NaN GPUs: 1 to 512"},
		{func(g *Generator) { g.StdDev = 0 }, "generate trace: a standard deviation of 0 GPUs: above 0, at most 512"},
		{func(g *Generator) { g.MaxGPUs = 3 }, "generate trace: at most 3 GPUs: below the mean of 4"},
		{func(g *Generator) { g.MeanDuration = -1 }, "generate trace: a mean duration of -1 s: above 0"},
		{func(g *Generator) { g.Load = 1 }, "generate trace: both a rate and a load: one gives the other"},
		{func(g *Generator) { g.Rate = 0 }, "generate trace: neither a rate nor a load"},
		{func(g *Generator) { g.Rate = math.Inf(1) }, "generate trace: +Inf jobs a second: above 0"},
		{func(g *Generator) { g.Rate, g.Load = 0, 1 }, "generate trace: a load of 1 on 0 GPUs: both above 0"},
		{func(g *Generator) { g.Jobs, g.Rate = 2, 1e-300 }, "generate trace: 1e-300 jobs a second are so few that the last one comes after 5.88e+299 s"},
	} {
		g := good
		tt.change(&g)
		if tr, err := Generate(g); err == nil || tr != nil || err.Error()[:min(len(tt.want), len(err.Error()))] != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

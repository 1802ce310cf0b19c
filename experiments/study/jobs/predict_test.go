package jobs

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/spec/spectest"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim"
)

// counting is a testbed whose samples a test makes up.
type counting struct{ testbed.Testbed }

func (c counting) Capabilities() testbed.Capabilities {
	caps := c.Testbed.Capabilities()
	caps.Kind = results.Measured
	return caps
}

// pairOn is an experiment about jobs on two servers, and one for a parameter server, on a switch.
func pairOn(t *testing.T, text string) *spec.Spec {
	t.Helper()
	return spectest.Pair(t, nil, "50us", text)
}

// planned is the experiment's only point, placed.
func planned(t *testing.T, s *spec.Spec) study.Planned {
	t.Helper()
	plan, err := s.Place(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return study.Planned{Point: spec.Point{Spec: s}, Plan: plan}
}

// alone is what a study has of a run that has nothing but a testbed.
type alone struct {
	study.Runner
	tb testbed.Testbed
}

func (a alone) Testbed() testbed.Testbed             { return a.tb }
func (a alone) Repeats() int                         { return 1 }
func (a alone) Keep(samples ...results.Sample) error { return nil }

// judging is a run of one point, and what its testbed is to do, for a test that says what was seen.
func judging(t *testing.T, text string) (*run, testbed.Setup) {
	t.Helper()
	s := pairOn(t, text)
	p := planned(t, s)
	tb, err := sim.Open(s.Inventory(), sim.Options{Seed: s.Measure.Seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tb.Close(context.Background()) })
	setup, err := setupOf(s, p.Plan, tb.Inventory(), Baseline{}, spec.EmulationScale(s, "sim"))
	if err != nil {
		t.Fatal(err)
	}
	return &run{Bench: &study.Bench{Runner: alone{tb: counting{tb}}, Planned: p}}, setup
}

// predicted is what is predicted of jobs that send together, by all predictors.
func (r *run) predicted(t *testing.T, setup testbed.Setup, jobs ...string) []*placement.Prediction {
	t.Helper()
	out, err := predict(t.Context(), r.Testbed().Inventory(), setup, Baseline{}, jobs, spec.Predictors)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// judged is the verdict on what was seen in one phase of all jobs, from start to end.
func (r *run) judged(t *testing.T, setup testbed.Setup, obs observation, start, end time.Duration) (results.Phase, []results.Check, results.Outcome) {
	t.Helper()
	var jobs []string
	for _, j := range setup.Plan.Jobs {
		jobs = append(jobs, j.Name)
	}
	predictions := r.predicted(t, setup, jobs...)
	ph, err := r.phase(setup, Baseline{}, obs, span{start: start, end: end, jobs: jobs}, predictions)
	if err != nil {
		t.Fatal(err)
	}
	checks, outcome, _ := results.Judge(r.Spec.Expectations(), []results.Point{{Phases: []results.Phase{ph}}})
	return ph, checks, outcome
}

// TestFairnessOfJobs: jobs are held against each other by what each of their workers gets, as goodput is, however many they are.
func TestFairnessOfJobs(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
[[job]]
name = "B"
hosts = ["h1"]
ps = "h3"
[[expect]]
metric = "jain"
value = 1
tolerance = "0.01"
reason = "both get as much"
`)
	obs := seen(nil, nil).obs
	resultstest.Edit(obs.readings, func(s *results.Sample) bool {
		if s.Of == "A/0" {
			s.Of = "B/0"
			obs.readings.Add(*s)
		}
		return true
	})
	if ph, checks, got := r.judged(t, setup, obs, time.Second, 7*time.Second); got != results.Pass {
		t.Errorf("%s: %+v of %+v", got, checks, ph.Figures)
	}
}

// TestShareOfLoss: what a switch granted is not what it added up, where resends push sums out
// before they are complete. Of 8 % loss, 1.54 packets of each PSN of two workers go on.
func TestShareOfLoss(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "10Gbit/s"
[[expect]]
metric = "share"
tolerance = "0.03"
reason = "there is memory for all of it"
`)
	for arrived, want := range map[float64]results.Outcome{1: results.Pass, 1.54: results.Fail} {
		obs := seen(map[string]func(float64) float64{
			"worker_arrived A/ps": func(float64) float64 { return arrived }, "job_out_packets A@tor1": func(float64) float64 { return arrived },
		}, nil).obs
		ph, checks, got := r.judged(t, setup, obs, time.Second, 7*time.Second)
		if got != want {
			t.Errorf("%v packets of a PSN: %s %+v, want %s", arrived, got, checks, want)
		}
		figures := map[string]float64{}
		for _, f := range ph.Figures {
			if f.Kind == results.Measured {
				figures[f.Metric] = f.Value
			}
		}
		if share := 2 - arrived; math.Abs(figures["share"]-share) > .005 || figures["granted"] != 1 {
			t.Errorf("%v packets of a PSN: share %v, granted %v, want %v and 1", arrived, figures["share"], figures["granted"], share)
		}
	}
}

// TestLongMessage: a ring counts a message when it is done. Of one that takes longer than a phase
// it is not known how much was carried, and what is not known is not 0.
func TestLongMessage(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
collective = "ring"
[[expect]]
metric = "goodput"
tolerance = "5%"
reason = "nothing else is on the way"
`)
	predicted := r.predicted(t, setup, "A")
	goodput := predicted[0].Jobs[0].Goodput / 8 // bytes a second
	for _, c := range []struct {
		name  string
		every float64 // seconds that a message takes; 0: no time
		want  results.Outcome
	}{
		{"four messages between readings", 0.025, results.Pass},
		{"one in more than the phase", 6, results.Inconclusive},
		{"one in more than half of it", 2.9, results.Inconclusive},
		{"three in it, of 1.5 s each", 1.5, results.Inconclusive}, // and not an eighth too much
		{"half of the rate", 0, results.Fail},
	} {
		obs := observation{readings: &results.Readings{}}
		for i := range 60 {
			at := float64(i) / 10
			carried := goodput * at / 2
			if c.every > 0 {
				carried = goodput * c.every * math.Floor(at/c.every+1e-9)
			}
			for rank := range 2 {
				of := fmt.Sprintf("A/%d", rank)
				obs.readings.Add(results.Sample{T: at, Source: "worker " + of, Metric: "worker_goodput_bytes", Of: of, Value: carried, Unit: "B"})
			}
		}
		_, checks, got := r.judged(t, setup, obs, time.Second, 5*time.Second)
		if got != c.want {
			t.Errorf("%s: %s %+v, want %s", c.name, got, checks, c.want)
		}
		if c.every > 2 && !strings.Contains(checks[0].Why, "one message takes more than half of the phase") {
			t.Errorf("%s: %q", c.name, checks[0].Why)
		}
	}
}

// TestPredictLoss: what a plan says of cables that lose packets, and of what it has no model.
func TestPredictLoss(t *testing.T) {
	const head = `
inventory = "pair.toml"
[switch]
queue = "fair"
ecn = "64KiB"
[measure]
warmup = "100ms"
duration = "1s"
[[link_state]]
of = "*"
loss = 0.08
[[link_state]]
of = "h3->tor1"
loss = 0.04
[[job]]
name = "A"
hosts = ["h1", "h2"]
`
	predicted := func(job string) *placement.Prediction {
		t.Helper()
		p, err := Study{}.Plan(t.Context(), planned(t, pairOn(t, head+job)))
		if err != nil {
			t.Fatal(err)
		}
		return p.Phases[0].Predictions[0]
	}
	p := predicted(`ps = "h3"
rate = "1Gbit/s"
window = 4096
`)
	a := &p.Jobs[0]
	if p.Beyond != "" || a.Shares[0].Granted < .999 {
		t.Errorf("granted %v of what there is memory for; beyond the model: %q", a.Shares[0].Granted, p.Beyond)
	}
	// Sums that are pushed out, and what is sent again, go to the PS beside them.
	if s := a.Shares[0].Share; s > .2 || a.WireRate < 1.3*a.Goodput*1024/960 {
		t.Errorf("share %.3f, %.4g bit/s of %.4g bit/s", s, a.Goodput, a.WireRate)
	}
	// Hosts count what they send, and switches what their cables let through.
	loads := map[string]placement.LinkPrediction{}
	for _, l := range p.Links {
		loads[l.Link] = l
		if l.Lost/l.Load < .03 || l.Lost/l.Load > .09 {
			t.Errorf("%s loses %.3f of what it carries", l.Link, l.Lost/l.Load)
		}
	}
	if l := loads["h3->tor1"]; math.Abs(l.Lost/l.Load-.04) > .005 {
		t.Errorf("of two states of a link the last holds: %.3f is lost", l.Lost/l.Load)
	}
	topo := pairOn(t, head+`ps = "h3"
`).Inventory().Topology()
	for _, f := range figures(p, topo, Baseline{}) {
		switch l := loads[f.Of]; {
		case f.Metric == "link_rate" && f.Of == "h1->tor1" && f.Value != l.Load,
			f.Metric == "link_rate" && f.Of == "tor1->h1" && f.Value != l.Load-l.Lost:
			t.Errorf("%s counts %.4g of %+v", f.Of, f.Value, l)
		}
	}
	for why, job := range map[string]string{
		"ring":     "collective = \"ring\"\n",
		"messages": "ps = \"h3\"\nmessage = \"1MiB\"\n",
		"changes":  "ps = \"h3\"\ncontrol = \"aimd\"\n",
	} {
		if p := predicted(job); !strings.Contains(p.Beyond, why) {
			t.Errorf("%s: beyond the model is %q", why, p.Beyond)
		}
	}
}

// TestApproximate: a plan says where shares are only near to what they will be.
func TestApproximate(t *testing.T) {
	for _, c := range []struct {
		job  string
		want bool
	}{{"window = 8192\n", false}, {"control = \"aimd\"\n", true}} {
		spec := pairOn(t, "\ninventory = \"pair.toml\"\n[switch]\naggregators = 64\necn = \"64KiB\"\nqueue = \"fair\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\nps = \"h3\"\n"+c.job)
		plan, err := Study{}.Plan(t.Context(), planned(t, spec))
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Phases[0].Predictions[0]
		if (p.Approximate != "") != c.want || c.want && !strings.Contains(p.Approximate, "within some 0.1") {
			t.Errorf("%s: %q, shares %+v", c.job, p.Approximate, p.Jobs[0].Shares)
		}
	}
}

// TestWithin: an interval has its value in it. A share is less than 0 where more leaves a switch than comes, as packets are
// sent again.
func TestWithin(t *testing.T) {
	topo := pairOn(t, "inventory = \"pair.toml\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\n").Inventory().Topology()
	for _, s := range []placement.SharePrediction{
		{Share: .01, Granted: .01, Spread: .1},
		{Share: -.1, Granted: 0},
		{Share: -.1, Granted: 0, Spread: .1},
		{Share: 1, Granted: .99, Spread: .1},
		{Share: 1 + 1e-9, Granted: 1},
	} {
		s.Switch, s.In = "tor1", 2
		p := &placement.Prediction{Predictor: placement.Occupancy, Jobs: []placement.JobPrediction{{Name: "A", Goodput: 1e9, WireRate: 1e9, Shares: []placement.SharePrediction{s}}}}
		for _, f := range figures(p, topo, Baseline{}) {
			if !(f.Lo <= f.Value && f.Value <= f.Hi) || f.Value >= 0 && f.Lo < 0 || f.Metric == "share" && f.Hi > max(1, f.Value) {
				t.Errorf("%s of %+v: %v, %v to %v", f.Metric, s, f.Value, f.Lo, f.Hi)
			}
		}
	}
}

// TestJainWithin: the index of values that are not certain lies between those of all values that they may be, of which
// random ones are tried.
func TestJainWithin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 300 {
		of := make([]interval, 1+rng.IntN(5))
		for i := range of {
			of[i].v = rng.Float64()
			if rng.IntN(3) > 0 {
				of[i].off = rng.Float64() * rng.Float64()
			}
		}
		f := jain(results.Figure{}, of)
		lo, hi := f.Value, f.Value
		x := make([]float64, len(of))
		for range 4000 {
			for i, k := range of {
				x[i] = max(0, k.v+k.off*[]float64{-1, 1, 2*rng.Float64() - 1}[rng.IntN(3)])
			}
			if j := results.JainIndex(x); !math.IsNaN(j) {
				lo, hi = min(lo, j), max(hi, j)
			}
		}
		if lo < f.Lo-1e-12 || hi > f.Hi+1e-12 || lo > f.Lo+.05 {
			t.Errorf("%d: %+v: from %v to %v, and some are from %v to %v", trial, of, f.Lo, f.Hi, lo, hi)
		}
	}
	// Two jobs of which either may get all that there is: they are equal in the mean only.
	if f := jain(results.Figure{}, []interval{{5, 5}, {5, 5}}); f.Value != 1 || f.Lo > .5 || f.Hi != 1 {
		t.Errorf("%+v", f)
	}
	if f := jain(results.Figure{}, []interval{{5, 0}, {10, 0}}); f.Lo != .9 || f.Hi != .9 {
		t.Errorf("%+v", f)
	}
}

// TestShrunkMessage: a message of which less than a value is left when all is shrunk is one value, and no stream.
func TestShrunkMessage(t *testing.T) {
	s := pairOn(t, "\ninventory = \"pair.toml\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\nps = \"h3\"\nmessage = \"4kB\"\n")
	plan, err := s.Place(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for factor, want := range map[float64]int64{1: 4000, 100: 40, 5000: 4} {
		w, err := workloadAt(s, 0, plan, s.Inventory().Topology(), results.Scale{Mode: "shrunk", Factor: factor})
		if err != nil || w.Message != want {
			t.Errorf("shrunk by %v: %d bytes, %v; want %d", factor, w.Message, err, want)
		}
	}
}

// comparing is a testbed whose workers compare sums.
type comparing struct{ counting }

func (c comparing) Capabilities() testbed.Capabilities {
	caps := c.counting.Capabilities()
	caps.Sums = true
	return caps
}

// TestWrongSumOfPoint: whoever looks at a point that was measured looks at its sums.
func TestWrongSumOfPoint(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
`)
	r.Runner = alone{tb: comparing{r.Testbed().(counting)}}
	for wrong, want := range []bool{false, true} {
		obs := observation{readings: &results.Readings{}, summaries: []results.JobSummary{{Job: "A", Workers: 2, SumsChecked: 1000, SumErrors: int64(wrong)}}}
		found := r.integrity(t.Context(), setup, Baseline{}, obs, &results.Point{})
		if got := slices.ContainsFunc(found, func(f results.Finding) bool { return f.Code == results.CodeSums && f.Outcome == results.Fail }); got != want {
			t.Errorf("%d wrong: %+v", wrong, found)
		}
	}
}

// TestRoundLongerThanPhase: a share of which one round of slots takes longer than the phase is not known, and no
// repeat would tell it.
func TestRoundLongerThanPhase(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "10Gbit/s"
[[expect]]
metric = "share"
tolerance = "0.03"
reason = "there is memory for all of it"
`)
	predictions := r.predicted(t, setup, "A")
	base := Baseline{Holds: map[string]float64{"A@tor1": .05}}
	setup.Settings.Addressing = "atp"
	setup.Workloads[0].Slots = int(9 * setup.Workloads[0].Rate / study.FrameBits(setup.Settings.Lanes)) // a round of 9 s
	ph, err := r.phase(setup, base, seen(nil, nil).obs, span{start: time.Second, end: 7 * time.Second, jobs: []string{"A"}}, predictions)
	if err != nil {
		t.Fatal(err)
	}
	checks, got, _ := results.Judge(r.Spec.Expectations(), []results.Point{{Phases: []results.Phase{ph}}})
	if got != results.Inconclusive || len(checks) != 1 || checks[0].More != 0 || !strings.Contains(checks[0].Why, results.ErrShort.Error()) {
		t.Errorf("%s: %+v, missing %+v", got, checks, ph.Missing)
	}
}

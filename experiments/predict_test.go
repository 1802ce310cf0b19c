package experiments

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// counting is a testbed whose samples a test makes up.
type counting struct{ testbed.Testbed }

func (c counting) Capabilities() testbed.Capabilities {
	caps := c.Testbed.Capabilities()
	caps.Kind = results.Measured
	return caps
}

// judging is a run of one point, and what its testbed is to do, for a test that says what was seen.
func judging(t *testing.T, text string) (*run, testbed.Setup) {
	t.Helper()
	s := pairOn(t, "50us", text)
	points, err := plans(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := openTestbed(t.Context(), "sim", s, fabricOf(s, "sim"), "", holding{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tb.Close(context.Background()) })
	setup, err := setupOf(s, points[0].Plan, tb.Inventory(), Baseline{}, spec.EmulationScale(s, "sim"))
	if err != nil {
		t.Fatal(err)
	}
	return &run{spec: s, tb: counting{tb}}, setup
}

// judged is the verdict on what was seen in one phase of all jobs, from start to end.
func (r *run) judged(t *testing.T, setup testbed.Setup, obs observation, start, end time.Duration) (results.Phase, []results.Check, results.Outcome) {
	t.Helper()
	var jobs []string
	for _, j := range setup.Plan.Jobs {
		jobs = append(jobs, j.Name)
	}
	predictions, err := predict(r.tb.Inventory(), setup, Baseline{}, jobs, spec.Predictors)
	if err != nil {
		t.Fatal(err)
	}
	ph, err := r.phase(r.spec.Measure, setup, Baseline{}, obs, span{start: start, end: end, jobs: jobs}, predictions)
	if err != nil {
		t.Fatal(err)
	}
	checks, outcome, _ := results.Judge(r.spec.Expectations(), []results.Point{{Phases: []results.Phase{ph}}})
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
	for _, s := range obs.samples {
		if s.Of == "A/0" {
			s.Of = "B/0"
			obs.samples = append(obs.samples, s)
		}
	}
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
tolerance = "5%%"
reason = "nothing else is on the way"
`)
	predicted, err := predict(r.tb.Inventory(), setup, Baseline{}, []string{"A"}, spec.Predictors)
	if err != nil {
		t.Fatal(err)
	}
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
		var obs observation
		for i := range 60 {
			at := float64(i) / 10
			carried := goodput * at / 2
			if c.every > 0 {
				carried = goodput * c.every * math.Floor(at/c.every+1e-9)
			}
			for rank := range 2 {
				of := fmt.Sprintf("A/%d", rank)
				obs.samples = append(obs.samples, results.Sample{T: at, Source: "worker " + of, Metric: "worker_goodput_bytes", Of: of, Value: carried, Unit: "B"})
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
	planned := func(job string) *placement.Prediction {
		t.Helper()
		p, err := NewPlan(pairOn(t, "50us", head+job), "test")
		if err != nil {
			t.Fatal(err)
		}
		return p.Points[0].Phases[0].Predictions[0]
	}
	p := planned(`ps = "h3"
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
	topo := pairOn(t, "50us", head+`ps = "h3"
`).Inventory().Topology()
	for _, f := range figures(p, topo) {
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
		if p := planned(job); !strings.Contains(p.Beyond, why) {
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
		spec := pairOn(t, "50us", "\ninventory = \"pair.toml\"\n[switch]\naggregators = 64\necn = \"64KiB\"\nqueue = \"fair\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\nps = \"h3\"\n"+c.job)
		plan, err := NewPlan(spec, "test")
		if err != nil {
			t.Fatal(err)
		}
		p := plan.Points[0].Phases[0].Predictions[0]
		if (p.Approximate != "") != c.want || c.want && !strings.Contains(p.Approximate, "within some 0.1") {
			t.Errorf("%s: %q, shares %+v", c.job, p.Approximate, p.Jobs[0].Shares)
		}
	}
}

// TestEarly: what is measured long before queues are full, or before a job has had a result, need not be what is
// predicted.
func TestEarly(t *testing.T) {
	for _, c := range []struct {
		warmup, settled float64
		replayed, early bool
	}{{2, 0, false, false}, {2, 3, false, false}, {2, 4, false, false}, {2, 5, false, true}, {0, .1, false, true}, {.1, 0, false, false}, {.1, 0, true, true}, {.3, 0, true, false}} {
		p := &placement.Prediction{Settled: c.settled, Replayed: c.replayed, Jobs: []placement.JobPrediction{{Name: "A", Trip: .2}}}
		if why := early(c.warmup, p); (why != "") != c.early {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestCoarse: a phase that was followed has ten readings, or fails by none of what they say.
func TestCoarse(t *testing.T) {
	for _, c := range []struct {
		length, interval float64
		replayed, coarse bool
	}{
		{.9, .1, true, true}, {1.1, .1, true, false}, {.9, .1, false, false}, {.9, .05, true, false},
	} {
		if why := coarse(c.length, c.interval, &placement.Prediction{Replayed: c.replayed}); (why != "") != c.coarse {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestBrief: what is counted in a few round trips need not be what is predicted of many.
func TestBrief(t *testing.T) {
	for _, c := range []struct {
		length, rtt float64
		job         placement.JobPrediction
		brief       bool
	}{
		{2, .05, placement.JobPrediction{}, false},
		{.5, .05, placement.JobPrediction{}, true},
		{2, .05, placement.JobPrediction{WireRate: 8e6, Queue: 1e5}, true}, // .1 s before the bottleneck
		{4, .05, placement.JobPrediction{WireRate: 8e6, Queue: 1e5}, false},
		{1e-9, 0, placement.JobPrediction{}, false}, // nothing is known of it
	} {
		c.job.Name, c.job.Trip = "A", c.rtt
		why := brief(c.length, &placement.Prediction{Jobs: []placement.JobPrediction{c.job}})
		if (why != "") != c.brief {
			t.Errorf("%v s of trips of %v s, %+v: %q", c.length, c.rtt, c.job, why)
		}
	}
}

// short excuses what lies between what was predicted and what the shaken run comes to, and nothing else.
func TestShort(t *testing.T) {
	figure := func(kind results.Kind, metric string, v, lo, hi float64) results.Figure {
		f := results.Figure{Kind: kind, Metric: metric, Of: "A", Value: v, Lo: lo, Hi: hi}
		if kind == results.Predicted {
			f.Predictor = placement.Occupancy
		}
		return f
	}
	predicted := []results.Figure{figure(results.Predicted, "goodput", 100, 100, 100), figure(results.Predicted, "share", 1, 1, 1)}
	shaken := []results.Figure{figure(results.Predicted, "goodput", 80, 40, 120), figure(results.Predicted, "share", .9, .6, 1)}
	for _, c := range []struct {
		name           string
		goodput, share float64
		off, beyond    bool
	}{
		{"as predicted", 97, .98, false, false},
		{"the other state", 45, .65, true, false},
		{"a job that stopped", 0, .65, true, true},
		{"less than any state", 30, .9, true, true},
		{"a share of none", 60, .5, true, true},
		{"more than predicted", 110, 1, true, true},
	} {
		got := append([]results.Figure{figure(results.Measured, "goodput", c.goodput, 0, 0), figure(results.Measured, "share", c.share, 0, 0)}, predicted...)
		if short(got, nil) != c.off || short(got, shaken) != c.beyond {
			t.Errorf("%s: off %v, beyond %v", c.name, short(got, nil), short(got, shaken))
		}
	}
}

package experiments

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// seen is what a testbed tells of job A: two workers on h1 and h2 through tor1 to a PS on h3,
// 1,000 PSNs a second, read ten times a second for 8 s; a phase from 1 s to 7 s. Rates say how
// many times 1,000 a second a counter grows at a time.
func seen(rates map[string]func(t float64) float64, until map[string]float64) *inspection {
	full := func(float64) float64 { return 1 }
	counters := []struct{ source, metric, of string }{
		{"ps A", "worker_arrived", "A/ps"}, {"ps A", "worker_completed", "A/ps"},
		{"switch tor1", "job_granted_packets", "A@tor1"}, {"switch tor1", "job_denied_packets", "A@tor1"},
		{"switch tor1", "job_resends_packets", "A@tor1"}, {"switch tor1", "job_out_packets", "A@tor1"},
	}
	for w := range 2 {
		of := fmt.Sprintf("A/%d", w)
		for _, m := range []string{"worker_psns", "worker_goodput_bytes", "worker_iterations", "worker_tx_bytes", "worker_sum_errors", "worker_resends", "worker_duplicates"} {
			counters = append(counters, struct{ source, metric, of string }{"worker " + of, m, of})
		}
	}
	zero := []string{"job_denied_packets", "job_resends_packets", "worker_sum_errors", "worker_resends", "worker_duplicates"}
	in := &inspection{
		spec: &spec.Spec{Jobs: []spec.Job{{Name: "A"}}, Switch: spec.Switch{Lanes: 240}},
		setup: testbed.Setup{
			Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A", Collective: placement.INA, PS: "h3",
				Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}},
				Tree:    []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3}}}}},
			Workloads: []testbed.Workload{{Window: 100, RTO: 400 * time.Millisecond}},
		},
		base: Baseline{RTTs: map[string]float64{"A": 0.05}},
		caps: testbed.Capabilities{Sums: true, Kind: results.Measured},
	}
	for _, c := range counters {
		v := 0.0
		rate, end := rates[c.metric+" "+c.of], 8.0
		if rate == nil {
			if rate = full; slices.Contains(zero, c.metric) {
				rate = func(float64) float64 { return 0 }
			}
		}
		if u, ok := until[c.of]; ok {
			end = u
		}
		for t := 0.0; t <= end+1e-9; t += 0.1 {
			in.obs.samples = append(in.obs.samples, results.Sample{T: t, Source: c.source, Metric: c.metric, Of: c.of, Value: math.Floor(v)})
			v += 100 * rate(t)
		}
	}
	in.obs.timeline = timeline{warmup: time.Second, jobs: []string{"A"}, events: []event{{at: 0, job: "A"}, {at: 7 * time.Second, job: "A", stop: true}}}
	in.obs.summaries = []results.JobSummary{{Job: "A", Workers: 2, SumsChecked: 1000}}
	return in
}

func (in *inspection) all() []results.Finding {
	return slices.Concat(in.progress(), in.work(), in.sums(), in.received(), in.claims())
}

// between is a rate that is 1 but for the time from a to b.
func between(a, b float64) func(float64) float64 {
	return func(t float64) float64 {
		if a <= t && t < b {
			return 0
		}
		return 1
	}
}

func TestIntegrity(t *testing.T) {
	type rates = map[string]func(float64) float64
	hang := func(a, b float64, who ...string) rates {
		r := rates{"worker_arrived A/ps": between(a, b), "worker_completed A/ps": between(a, b), "job_granted_packets A@tor1": between(a, b), "job_out_packets A@tor1": between(a, b)}
		for _, of := range []string{"A/0", "A/1"} {
			for _, m := range []string{"worker_psns ", "worker_goodput_bytes ", "worker_iterations "} {
				r[m+of] = between(a, b)
			}
		}
		for _, of := range who {
			r["worker_tx_bytes "+of] = between(a, b)
		}
		return r
	}
	constant := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	// A job of a switch alone, which is suspended and so says nothing either.
	suspended := func(in *inspection) {
		in.setup.Plan.Jobs[0].PS = ""
		in.obs.samples = slices.DeleteFunc(in.obs.samples, func(s results.Sample) bool {
			return s.Source == "ps A" || strings.HasPrefix(s.Source, "worker") && 1.5 < s.T && s.T < 6.1
		})
	}
	for _, c := range []struct {
		name    string
		rates   rates
		until   map[string]float64
		change  func(in *inspection)
		outcome results.Outcome // pass: no finding
		code    string
		says    []string
	}{
		{name: "a sound run", outcome: results.Pass},
		{name: "a job that stops", rates: hang(3, 9, "A/0", "A/1"), outcome: results.Fail, code: results.CodeJobStopped, says: []string{"job A", "host h1", "sent nothing from 3.00 s to 7.00 s"}},
		{name: "a worker that hangs, while the other resends", rates: hang(3, 9, "A/1"), outcome: results.Fail, code: results.CodeJobStopped, says: []string{"worker A/1 on host h2", "sent nothing"}},
		{name: "a worker that is suspended for 4.6 s", rates: hang(1.5, 6.1), until: map[string]float64{"A/0": 1.5}, outcome: results.Fail, code: results.CodeJobStopped, says: []string{"worker A/0 on host h1", "did not report"}},
		{name: "a synchronous job whose workers are suspended for 4.6 s of 6", rates: hang(1.5, 6.1, "A/0", "A/1"), change: suspended,
			outcome: results.Fail, code: results.CodeJobStopped, says: []string{"worker A/0 on host h1", "did not report from 1.4"}},
		{name: "a PS that hangs", rates: rates{
			"worker_completed A/ps": between(3, 9), "worker_psns A/0": between(3, 9), "worker_psns A/1": between(3, 9), "worker_goodput_bytes A/0": between(3, 9),
			"worker_goodput_bytes A/1": between(3, 9), "worker_iterations A/0": between(3, 9), "worker_iterations A/1": between(3, 9)},
			outcome: results.Fail, code: results.CodeJobStopped, says: []string{"got no result", "its PS on host h3 completed nothing of what arrived"}},
		{name: "a switch that stood still, which is known", rates: hang(3, 5, "A/0", "A/1"),
			change: func(in *inspection) {
				in.obs.stalls = []study.Standstill{{Span: results.Span{Start: 2.95, End: 5.02}, Where: "switch tor1", What: "frames left up to 2 s late", Late: 2}}
			},
			outcome: results.Inconclusive, code: results.CodeJobStopped, says: []string{"switch tor1"}},
		{name: "a worker that says itself that it was late", rates: hang(3, 5, "A/0", "A/1"),
			change: func(in *inspection) {
				in.obs.stalls = []study.Standstill{{Span: results.Span{Start: 2.95, End: 5.02}, Where: "worker A/0 on host h1", What: "paced sends up to 2 s late", Late: 2}}
			},
			outcome: results.Fail, code: results.CodeJobStopped},
		{name: "half a round trip without results", rates: hang(3, 3.2, "A/0", "A/1"), outcome: results.Pass},
		{name: "a loss that was asked for", rates: hang(3, 5, "A/0", "A/1"), change: func(in *inspection) { in.damaged = true }, outcome: results.Pass},
		{name: "a stream that ends by itself", change: func(in *inspection) { in.obs.early = map[string]float64{"A": 6} }, outcome: results.Fail, code: results.CodeJobEnded, says: []string{"job A ended by itself at 6.00 s", "h1, h2"}},
		{name: "half the iterations", rates: rates{"worker_iterations A/1": constant(0.001)},
			change:  func(in *inspection) { in.obs.summaries[0].Asked, in.obs.summaries[0].Iterations = 8000, 8 },
			outcome: results.Fail, code: results.CodeIterations, says: []string{"8 iterations of 8000", "worker A/1 on host h2 did"}},
		{name: "wrong sums", rates: rates{"worker_sum_errors A/1": constant(0.01)}, change: func(in *inspection) { in.obs.summaries[0].SumErrors = 40 },
			outcome: results.Fail, code: results.CodeSums, says: []string{"40 of 1000", "only worker A/1 on host h2 got wrong ones: what carries results to it alone, or, since they are few, switch tor1"}},
		{name: "sums that nobody compared", change: func(in *inspection) { in.obs.summaries[0].SumsChecked = 0 }, outcome: results.Inconclusive, code: results.CodeUnchecked},
		{name: "a worker that claims results", rates: rates{"worker_psns A/0": constant(1.2)}, outcome: results.Fail, code: results.CodeCounters, says: []string{"worker A/0 on host h1", "host h3"}},
		{name: "every tenth result comes twice", rates: rates{"worker_duplicates A/1": constant(0.1)},
			outcome: results.Fail, code: results.CodeCounters, says: []string{"worker A/1 on host h2", "switch tor1 or the PS on host h3"}},
		{name: "the same with a synchronous job", rates: rates{"worker_duplicates A/0": constant(0.1)},
			change: func(in *inspection) { in.setup.Plan.Jobs[0].PS = "" }, outcome: results.Fail, code: results.CodeCounters, says: []string{"worker A/0 on host h1", ": switch tor1 sends"}},
		{name: "results that were asked for again", rates: rates{"worker_duplicates A/1": constant(0.1), "worker_resends A/0": constant(0.1)}, outcome: results.Pass},
		{name: "a switch whose counts begin again", rates: rates{"job_granted_packets A@tor1": func(t float64) float64 {
			if 3.95 < t && t < 4.05 {
				return -20
			}
			return 1
		}}, outcome: results.Inconclusive, code: results.CodeCounters, says: []string{"switch tor1", "began again"}},
		{name: "a switch that claims to have added up", rates: rates{"worker_arrived A/ps": constant(1.9)}, outcome: results.Fail, code: results.CodeCounters, says: []string{"switch tor1", "1.000", "0.100"}},
		{name: "the same with resends, which count", rates: rates{"worker_arrived A/ps": constant(1.5), "job_resends_packets A@tor1": constant(0.5)}, outcome: results.Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := seen(c.rates, c.until)
			if c.change != nil {
				c.change(in)
			}
			got := in.all()
			if c.outcome == results.Pass {
				if len(got) > 0 {
					t.Fatalf("%+v", got)
				}
				return
			}
			i := slices.IndexFunc(got, func(f results.Finding) bool { return f.Code == c.code })
			if i < 0 || got[i].Outcome != c.outcome {
				t.Fatalf("want %s, %s: %+v", c.outcome, c.code, got)
			}
			for _, s := range c.says {
				if !strings.Contains(got[i].What, s) {
					t.Errorf("%q does not say %q", got[i].What, s)
				}
			}
		})
	}
}

// A synchronous job waits for its turn as long as that takes, and for ever where it is given no memory.
func TestPatienceForTurns(t *testing.T) {
	in := seen(nil, nil)
	plan, running := in.setup.Plan, []string{"A", "B", "C", "D"}
	plan.Jobs[0].PS = ""
	for _, name := range running[1:] {
		j := plan.Jobs[0]
		j.Name = name
		plan.Jobs, in.setup.Workloads = append(plan.Jobs, j), append(in.setup.Workloads, in.setup.Workloads[0])
	}
	in.spec.Switch.Mode, in.spec.Switch.Reallocate = "synchronous", inventory.Duration(time.Second)
	for _, c := range []struct {
		memory int // of the switch
		want   float64
	}{
		{800, 1}, // two windows of 100 for each
		{32, 1},  // of 4, the least
		{16, 3},  // for two of four
		{8, 4},   // for one
		{4, math.Inf(1)},
	} {
		in.inv = &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: c.memory}}}
		if got := in.patience(plan.Jobs[0], running, 6); got != c.want {
			t.Errorf("%d aggregators: %v s, want %v", c.memory, got, c.want)
		}
	}
	in.spec.Switch.Reallocate = 0
	if got := in.patience(plan.Jobs[0], running, 6); got > 1 {
		t.Errorf("memory that stays: %v s", got)
	}
}

// Shares are told from what came, what left, and what arrived.
func TestSeenShare(t *testing.T) {
	constant := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
	in := seen(map[string]func(float64) float64{"worker_arrived A/ps": constant(1.54)}, nil)
	w := results.Window{Start: 1, End: 7}
	s, ok := seenShare(in.counter, in.setup.Plan.Jobs[0], 0)
	if f, err := s.of(w); !ok || err != nil || math.Abs(f.Value-.46) > .005 {
		t.Errorf("1.54 packets a PSN of two workers: %+v, %v; want .46", f, err)
	}
	// Two leaves of two workers each, of which one adds up half: 1 and 1.5 packets go to the root,
	// which adds up all.
	j := placement.JobPlan{Name: "A", PS: "h3", Workers: make([]placement.Worker, 4), Tree: []placement.TreeNode{
		{Switch: "l1", Parent: "root", Aggregate: true, Expect: 3}, {Switch: "l2", Parent: "root", Aggregate: true, Expect: 12},
		{Switch: "root", Aggregate: true, Expect: 15}}}
	counter := func(metric, of string) results.Series {
		rate := map[string]float64{"worker_completed A/ps": 1, "worker_arrived A/ps": 1, "job_out_packets A@l1": 1, "job_out_packets A@l2": 1.5, "job_out_packets A@root": 9}[metric+" "+of]
		var s results.Series
		for t := 0.0; t < 8; t += .1 {
			s.T, s.V = append(s.T, t), append(s.V, 1000*rate*t)
		}
		return s
	}
	for i, want := range []float64{1, .5, 1} {
		s, ok := seenShare(counter, j, i)
		if f, err := s.of(w); !ok || err != nil || math.Abs(f.Value-want) > 1e-6 {
			t.Errorf("%s: %+v, %v; want %g", j.Tree[i].Switch, f, err, want)
		}
	}
}

func TestPatience(t *testing.T) {
	s := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
	stalls := func(each, every float64, n int) (out []study.Standstill) {
		for i := range n {
			at := 100 + float64(i+1)*every
			out = append(out, study.Standstill{Span: results.Span{Start: at, End: at + each}, Where: "switch tor1", What: "late", Late: each})
		}
		return out
	}
	for _, c := range []struct {
		name   string
		stalls []study.Standstill
		want   float64 // how long the phase of 3 s becomes
		spoilt bool
	}{
		{"none", nil, 3, false},
		{"one of 0.1 s", stalls(.1, 2, 1), 3.2, false},
		{"0.1 s every 2 s", stalls(.1, 2, 10), 3.2, false},
		{"0.1 s every 0.5 s", stalls(.1, .5, 100), 5, false},
		{"all the time", stalls(.5, .5, 100), 9, true},
		{"a tenth of a round trip now and then", stalls(.005, 1, 100), 3, false},
		{"a sixth of a round trip, often", stalls(.008, .5, 100), 3.8, false},
	} {
		base := Baseline{RTTs: map[string]float64{"A": .05}}
		p := patience{base: base, stretch: 3}
		tl := timeline{warmup: s(1), events: []event{{at: s(4)}}}
		p.begin(tl, 0)
		for range 1000 {
			now := tl.events[0].at
			var known []study.Standstill
			for _, st := range c.stalls {
				if st.End <= 100+now.Seconds() {
					known = append(known, st)
				}
			}
			more := p.wait(now, 100, known)
			if more == 0 {
				break
			}
			tl.delay(more)
		}
		end := tl.events[0].at.Seconds()
		ph := results.Phase{Start: 101, End: 100 + end}
		w := leaveOut(&ph, c.stalls, base, .1, 3)
		if math.Abs(end-1-c.want) > .25 || (ph.Spoilt != "") != c.spoilt {
			t.Errorf("%s: %.2f s, want %.2f; %q, %.2f s are left", c.name, end-1, c.want, ph.Spoilt, w.Length())
		}
		if !c.spoilt && w.Length() < 2.9 {
			t.Errorf("%s: only %.2f s are clean", c.name, w.Length())
		}
	}
}

// TestDoubt: a phase becomes twice as long where its figures ask for repeats of it, but not longer than it may,
// which is shared with what stalls cost, and not by nearly nothing.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		stretch float64
		moved   time.Duration
		asked   []int
		want    []time.Duration // by how much longer
	}{
		{3, 0, []int{0}, []time.Duration{0}},
		{3, 0, []int{1, 0}, []time.Duration{4, 0}},
		{8, 0, []int{1, 1, 1}, []time.Duration{4, 8, 16}},
		{3, 0, []int{1, 1, 1}, []time.Duration{4, 4, 0}},
		{3, 0, []int{1000, 1000, 1}, []time.Duration{4, 4, 0}},
		{3, 6, []int{5}, []time.Duration{2}},
		{3, 7, []int{5}, []time.Duration{1}},
		{2.9, 7, []int{5}, []time.Duration{0}},
		{1, 0, []int{5}, []time.Duration{0}},
	} {
		p := patience{stretch: c.stretch}
		p.begin(timeline{warmup: time.Second, events: []event{{at: 5 * time.Second}}}, 0)
		p.moved = c.moved * time.Second
		for i, n := range c.asked {
			if got := p.doubt(n > 0); got != c.want[i]*time.Second {
				t.Errorf("stretch %g, %d s for stalls, repeats %v: the phase of 4 s goes on for %v, want %d s", c.stretch, c.moved, c.asked[:i+1], got, c.want[i])
			}
		}
	}
}

// TestCoverageOfDoubt: a phase that ends when its figure is certain is likelier to end when an interval is
// narrow by chance. Intervals hold the mean nearly as often as those of a phase of planned length for
// all that, and few means pass that are off by half as much again as the tolerance.
func TestCoverageOfDoubt(t *testing.T) {
	const runs, tolerance, low, most = 600, 0.05, 0.93, 0.10
	for _, c := range []struct {
		n       int     // readings as planned
		rho     float64 // of neighbours
		scatter float64 // of the planned phase's mean, by the tolerance: half an interval is twice that
	}{{20, 0, 0.25}, {20, 0, 0.5}, {20, 0, 0.8}, {20, 0.5, 0.5}, {60, 0.5, 0.8}, {60, 0.8, 0.5}} {
		r := rand.New(rand.NewPCG(1, 2))
		sigma := 100 * tolerance * c.scatter * math.Sqrt(float64(c.n)*(1-c.rho)/(1+c.rho))
		held, wrong, longer := 0, 0, 0
		for range runs {
			var s results.Series
			v, e := 0.0, r.NormFloat64()
			for i := range 3*c.n + 1 {
				s.T, s.V = append(s.T, float64(i)), append(s.V, v)
				v += 100 + sigma*e
				e = c.rho*e + math.Sqrt(1-c.rho*c.rho)*r.NormFloat64()
			}
			judge := func(n int, value, tolerance float64) (results.Figure, results.Check) {
				f, err := results.Rate(results.Window{End: float64(n)}, s)
				if err != nil {
					t.Fatal(err)
				}
				f.Kind, f.Metric, f.Of = results.Measured, "goodput", "A"
				checks, _, _ := results.Judge([]results.Expect{{Metric: "goodput", Predictor: "value", Value: value, Statistic: "each", Tolerance: tolerance, Relative: true, Bound: "within", Gate: true}},
					[]results.Point{{Phases: []results.Phase{{End: float64(n), Figures: []results.Figure{f}}}}})
				return f, checks[0]
			}
			// until it ends as phases do
			end := func(value float64) (results.Figure, results.Check) {
				p := patience{stretch: 3}
				p.begin(timeline{events: []event{{at: time.Duration(c.n) * time.Second}}}, 0)
				for n := c.n; ; {
					f, check := judge(n, value, 0.9*tolerance)
					more := p.doubt(check.Outcome == results.Inconclusive && check.More > 0)
					if more == 0 {
						_, check = judge(n, value, tolerance)
						return f, check
					}
					n += int(more / time.Second)
					longer++
				}
			}
			if f, _ := end(100); f.N < 2 || f.Lo <= 100 && 100 <= f.Hi {
				held++
			}
			if _, check := end(100 / (1 + 1.5*tolerance)); check.Outcome == results.Pass {
				wrong++
			}
		}
		coverage, passed := float64(held)/runs, float64(wrong)/runs
		t.Logf("%d readings, correlated by %g, scatter %g: coverage %.3f, false passes %.3f, longer %.2f times", c.n, c.rho, c.scatter, coverage, passed, float64(longer)/runs/2)
		if coverage < low || passed > most {
			t.Errorf("%d readings, correlated by %g, scatter %g: %.3f of the intervals hold the mean, want %g; %.3f pass that are off by 1.5 tolerances, want at most %g", c.n, c.rho, c.scatter, coverage, low, passed, most)
		}
	}
}

// Studies have no plan: who was wrong is not known then, and that somebody was is.
func TestIntegrityWithoutPlan(t *testing.T) {
	in := &inspection{spec: &spec.Spec{}, caps: testbed.Capabilities{Sums: true}, obs: observation{summaries: []results.JobSummary{
		{Job: "A", Workers: 2, SumsChecked: 100, SumErrors: 3, Asked: 5, Iterations: 4}, {Job: "B", Workers: 2},
	}}}
	codes := map[string]int{}
	for _, f := range append(in.work(), in.sums()...) {
		codes[f.Code]++
	}
	if codes[results.CodeSums] != 1 || codes[results.CodeIterations] != 1 || codes[results.CodeUnchecked] != 1 {
		t.Errorf("%v", codes)
	}
}

// TestWrongSumFails: one value that is not the sum of what was sent fails a run whose figures are
// all right, and of which nobody expects anything about sums.
func TestWrongSumFails(t *testing.T) {
	for file, sets := range map[string][]string{
		"two-racks.toml": nil, "waterfill.toml": nil, "cables.toml": nil,
		"addressing-shared.toml": {"switch.addressing=hash"}, "addressing-atp.toml": {"sweep.0.values=[0.25, 0.5]", "sweep.1.values=[8.0, 4.0]"},
	} {
		s := loadCell(t, file, sets)
		if slices.ContainsFunc(s.Expects, func(e spec.Expect) bool { return e.Metric == "sum_errors" }) {
			t.Errorf("%s expects something about sums", file)
		}
		rec := simulated(t, s)
		for wrong, want := range []results.Outcome{results.Pass, results.Fail} {
			in := inspection{spec: s, caps: testbed.Capabilities{Sums: true}}
			for _, j := range rec.Points[0].Jobs {
				j.SumsChecked = 1000
				in.obs.summaries = append(in.obs.summaries, j)
			}
			in.obs.summaries[0].SumErrors = int64(wrong)
			rec.Points[0].Findings = in.sums()
			if _, got, reasons := results.Judge(rec.Expect, rec.Points); got != want {
				t.Errorf("%s with %d of 1000 values wrong: %s %q, want %s", file, wrong, got, reasons, want)
			}
		}
	}
}

// unruly is an error of a job, as testbeds have them.
type unruly struct{ error }

func (unruly) Broken() (code, job string) { return results.CodeIterations, "A" }

// An error that says which job did wrong is a finding as well, by its code; others are not.
func TestBroken(t *testing.T) {
	r := run{rec: &results.Record{}, points: []study.Planned{{}}}
	r.add(0, 0, &results.Point{}, fmt.Errorf("jobs: %w", errors.Join(errors.New("noise"), unruly{errors.New("worker A/0 on host h1 ended")})))
	r.add(0, 1, &results.Point{}, errors.New("no network"))
	r.add(0, 2, &results.Point{}, nil)
	want := results.Finding{Name: study.AllDone, Code: results.CodeIterations, Of: "A", Outcome: results.Fail, What: "worker A/0 on host h1 ended"}
	if got := r.rec.Points[0].Findings; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if a, b := r.rec.Points[1].Findings, r.rec.Points[2].Findings; a != nil || b != nil {
		t.Errorf("%+v, %+v", a, b)
	}
	checks, outcome, reasons := results.Judge(nil, r.rec.Points[:1])
	if outcome != results.ErrorOutcome || len(checks) != 1 || checks[0].Code != results.CodeIterations {
		t.Errorf("%s: %+v, %v", outcome, checks, reasons)
	}
}

// Reports from the future are of a clock that jumped, whose agent is named with its host.
func TestClocks(t *testing.T) {
	c := study.Clocks{}
	sample := func(source, of string, at float64) results.Sample {
		return results.Sample{Source: source, Of: of, T: at}
	}
	c.Hear([]results.Sample{sample("worker A/0", "A/0", 9.9), sample("worker A/1", "A/1", 12), sample("host h1", "h1->tor1", 99)}, 10*time.Second)
	c.Hear([]results.Sample{sample("worker A/0", "A/0", 20.5), sample("worker A/1", "A/1", 20), sample("ps A", "A/ps", 25)}, 20*time.Second)
	found := c.Wrong(&placement.JobPlan{Name: "A", PS: "h3", Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}}})
	var who []string
	for _, f := range found {
		if f.Outcome != results.Fail || f.Code != results.CodeCounters {
			t.Errorf("%+v", f)
		}
		before, _, _ := strings.Cut(f.What, " reports from the future")
		who = append(who, before)
	}
	if want := []string{"worker A/1 on host h2", "ps A on host h3"}; !slices.Equal(who, want) {
		t.Errorf("%q, want %q", who, want)
	}
}

// TestCrossed: what one burst between two readings makes of few frames is no loss, and neither is
// a small part of many.
func TestCrossed(t *testing.T) {
	for _, tt := range []struct {
		differ, limit, of float64
		lost              bool
	}{
		{21, 17, 1713, false},
		{82, 17, 1713, true},
		{85, 17, 40, true},
		{209, 10, 100_000, false},
		{211, 10, 100_000, true},
		{5_000, 10, 100_000, true},
	} {
		got := crossed([]results.Trouble{{Where: "link h1->tor1", Code: results.CodeLost, Value: tt.differ, Limit: tt.limit, Of: tt.of}}, &inventory.Topology{}, nil)
		if lost := len(got) == 1 && got[0].Outcome == results.Fail; lost != tt.lost {
			t.Errorf("%v of %v differ, %v may: %+v", tt.differ, tt.of, tt.limit, got)
		}
	}
}

// TestClaimsBesideStalls: of what little a stall has left of a phase, packets that were on their way at its ends are a
// large part, and no lie of a switch.
func TestClaimsBesideStalls(t *testing.T) {
	burst := func(t float64) float64 { // what waited goes out at first
		if 1 <= t && t < 1.7 {
			return 1.4
		}
		return 1
	}
	lies := func(float64) float64 { return 1.4 }
	for _, tt := range []struct {
		name  string
		out   func(float64) float64
		stall []study.Standstill
		want  int
	}{
		{"a stall, and an honest switch", burst, []study.Standstill{{Span: results.Span{Start: 1.7, End: 6.9}, Where: "switch tor1", What: "frames left up to 15 ms late", Late: 1}}, 0},
		{"no stall, and a switch that lies", lies, nil, 1},
		{"a short stall, and a switch that lies", lies, []study.Standstill{{Span: results.Span{Start: 3, End: 3.1}, Where: "switch tor1", What: "frames left up to 15 ms late", Late: 1}}, 1},
	} {
		in := seen(map[string]func(float64) float64{"job_out_packets A@tor1": tt.out, "worker_arrived A/ps": tt.out}, nil)
		in.obs.stalls = tt.stall
		if got := in.claims(); len(got) != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestClaimsBesideCopies: what a cable doubles on the way to the PS is not what a switch sent.
func TestClaimsBesideCopies(t *testing.T) {
	doubled := func(part float64) func(float64) float64 { return func(float64) float64 { return 1 + part } }
	for _, tt := range []struct {
		name    string
		arrived float64 // more than what the switch says
		copies  float64 // of that, by the cable's counters
		on      string
		want    int
	}{
		{"copies", .08, .08, "tor1->h3", 0},
		{"none", .08, 0, "tor1->h3", 1},
		{"of another cable", .08, .08, "tor1->h1", 1},
		{"copies, and a switch that lies", .3, .08, "tor1->h3", 1},
	} {
		in := seen(map[string]func(float64) float64{"worker_arrived A/ps": doubled(tt.arrived)}, nil)
		var err error
		if in.inv, err = inventory.Load("racks/three-hosts.toml"); err != nil {
			t.Fatal(err)
		}
		for i := range 81 {
			in.obs.samples = append(in.obs.samples, results.Sample{T: float64(i) / 10, Source: "switch tor1", Metric: "port_tx_dup_packets", Of: tt.on, Value: math.Floor(100 * tt.copies * float64(i))})
		}
		if got := in.claims(); len(got) != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestClaimsWhileQueuesDrain: while a bulge of packets drains, the PS completes more PSNs than pass the switch
// of the workers. By what the PS completes an honest switch would have added up more than it says.
func TestClaimsWhileQueuesDrain(t *testing.T) {
	build := func(granted float64) *inspection {
		in := seen(nil, nil)
		j := &in.setup.Plan.Jobs[0]
		j.Workers = append(j.Workers, placement.Worker{Rank: 2, Host: "h3"})
		j.Tree = []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3, Parent: "spine1"}, {Switch: "spine1", Aggregate: true, Expect: 7}}
		// The PS completes 100 PSNs a second. Of 90, tor1 adds up an eighth.
		for metric, rate := range map[string]float64{
			"job_in_packets": 180, "job_out_packets": 180 - 90./8, "job_granted_packets": 90 * granted, "job_denied_packets": 90 * (1 - granted),
			"job_resends_packets": 0, "job_duplicates_packets": 0,
		} {
			in.obs.samples = slices.DeleteFunc(in.obs.samples, func(s results.Sample) bool { return s.Metric == metric })
			for i := range 81 {
				in.obs.samples = append(in.obs.samples, results.Sample{T: float64(i) / 10, Source: "switch tor1", Metric: metric, Of: "A@tor1", Value: math.Floor(rate * float64(i) / 10)})
			}
		}
		return in
	}
	if got := build(1. / 8).claims(); len(got) > 0 {
		t.Errorf("an honest switch: %+v", got)
	}
	for _, granted := range []float64{0, 1. / 16, .4} {
		if got := build(granted).claims(); len(got) != 1 || got[0].Of != "A@tor1" {
			t.Errorf("a switch that says %v: %+v", granted, got)
		}
	}
}

// TestClaimsAboveSums: a switch above another one that adds up grants PSNs of which other many
// packets come than of those that it denies. That is no lie; to tell of more than it sent is.
func TestClaimsAboveSums(t *testing.T) {
	// Five workers below tor1, which adds up half of their PSNs, and one at spine1, which adds up
	// just those: 2 packets of each are made 1, and 6 of each of the others pass.
	build := func(arrived, fallback float64) *inspection {
		in := seen(map[string]func(float64) float64{"worker_arrived A/ps": func(float64) float64 { return arrived }}, nil)
		j := &in.setup.Plan.Jobs[0]
		j.Workers = nil
		for w := range 6 {
			j.Workers = append(j.Workers, placement.Worker{Rank: w, Host: fmt.Sprint("h", w+1)})
		}
		j.Tree = []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 31, Parent: "spine1"}, {Switch: "spine1", Aggregate: true, Expect: 63}}
		for metric, rate := range map[string]float64{
			"job_out_packets A@tor1": .5 + .5*5, "job_granted_packets A@tor1": .5, "job_denied_packets A@tor1": .5,
			"job_out_packets A@spine1": arrived, "job_granted_packets A@spine1": .5, "job_denied_packets A@spine1": .5,
			"job_fallback_packets A@spine1": fallback, "job_resends_packets A@spine1": 0,
		} {
			m, of, _ := strings.Cut(metric, " ")
			in.obs.samples = slices.DeleteFunc(in.obs.samples, func(s results.Sample) bool { return s.Metric == m && s.Of == of })
			_, sw, _ := strings.Cut(of, "@")
			for i := range 81 {
				in.obs.samples = append(in.obs.samples, results.Sample{T: float64(i) / 10, Source: "switch " + sw, Metric: m, Of: of, Value: math.Floor(100 * rate * float64(i))})
			}
		}
		return in
	}
	if got := build(.5+.5*6, .5*6).claims(); len(got) > 0 {
		t.Errorf("an honest switch: %+v", got)
	}
	// Without a worker of its own, what is complete passes, and is neither granted nor denied.
	alone := func(fallback float64) *inspection {
		in := build(.5+.1+.4*5, fallback)
		j := &in.setup.Plan.Jobs[0]
		j.Workers, j.Tree[1].Expect = j.Workers[:5], 31
		for i := range in.obs.samples {
			switch s := &in.obs.samples[i]; s.Metric + " " + s.Of {
			case "job_granted_packets A@spine1":
				s.Value /= 5
			case "job_denied_packets A@spine1":
				s.Value *= .8
			}
		}
		return in
	}
	if got := alone(.4 * 5).claims(); len(got) > 0 {
		t.Errorf("an honest switch that passes complete sums: %+v", got)
	}
	if got := alone(.4).claims(); len(got) != 1 || got[0].Of != "A@spine1" {
		t.Errorf("one that passes complete sums and hides what it did not add up: %+v", got)
	}
	got := build(.5+.5*6, 0).claims()
	if len(got) != 1 || got[0].Of != "A@spine1" || got[0].Code != results.CodeCounters {
		t.Errorf("one that hides what it did not add up: %+v", got)
	}
	// A fifth of all PSNs was granted before the phase began, and came to the PS in it: a queue has emptied.
	for window, honest := range map[int]bool{200: true, 4: false} {
		in := build(.5+.5*6, .5*6-.2)
		w := &in.setup.Workloads[0]
		w.Control, w.Window = "aimd", window
		if got := in.claims(); (len(got) == 0) != honest {
			t.Errorf("the queue of a window of %d PSNs: %+v", window, got)
		}
	}
}

// TestStoppedAlone: a process that stands still while all else goes on was stopped, whatever its
// lateness says; one that stands still with the testbed was not.
func TestStoppedAlone(t *testing.T) {
	stopped := func(where string, start, end float64) study.Standstill {
		return study.Standstill{Span: results.Span{Start: start, End: end}, Where: where, What: "paced sends were late by", Late: end - start}
	}
	for _, c := range []struct {
		name   string
		stalls []study.Standstill
		want   string
	}{
		{"nothing", nil, ""},
		{"a worker", []study.Standstill{stopped("worker A/1 on host h2", 3, 4)}, "worker A/1 on host h2 from 3.00 s to 4.00 s"},
		{"a PS", []study.Standstill{stopped("ps A on host h3", 3, 4)}, "ps A on host h3"},
		{"for as long as a busy machine may", []study.Standstill{stopped("worker A/1 on host h2", 3, 3.4)}, ""},
		{"all workers of a job", []study.Standstill{stopped("worker A/0 on host h1", 3, 4), stopped("worker A/1 on host h2", 3, 4)}, "worker A/0"},
		{"the machine", []study.Standstill{stopped("worker A/1 on host h2", 3, 4), stopped("this machine", 3.1, 4)}, ""},
		{"a switch for most of it", []study.Standstill{stopped("worker A/1 on host h2", 3, 4), stopped("switch tor1", 3.2, 3.9)}, ""},
		{"a switch for some of it", []study.Standstill{stopped("worker A/1 on host h2", 3, 4), stopped("switch tor1", 3.2, 3.3)}, "worker A/1"},
		{"another job's worker as well", []study.Standstill{stopped("worker A/1 on host h2", 3, 4), stopped("worker B/1 on host h2", 3, 4)}, "worker A/1"},
		{"into the phase", []study.Standstill{stopped("worker A/1 on host h2", .2, 1.2)}, "worker A/1 on host h2 from 0.20 s to 1.20 s"},
		{"before the phase", []study.Standstill{stopped("worker A/1 on host h2", 0, .9)}, ""},
		{"now and then", slices.Repeat([]study.Standstill{stopped("worker A/1 on host h2", 3, 3.1)}, 4), ""},
		{"again and again", slices.Repeat([]study.Standstill{stopped("worker A/1 on host h2", 3, 3.1)}, 12), "? worker A/1 on host h2 did so 12 times, for 1.20 s in all"},
		{"again and again, with a switch", append(slices.Repeat([]study.Standstill{stopped("worker A/1 on host h2", 3, 3.1)}, 12), stopped("switch tor1", 3, 3.1)), ""},
		{"many short ones that count as one", []study.Standstill{{Span: results.Span{Start: 3, End: 5}, Where: "worker A/1 on host h2", What: "late", Late: .1}}, ""},
	} {
		in := seen(nil, nil)
		in.obs.stalls = c.stalls
		got := in.stopped()
		switch {
		case c.want == "" && len(got) > 0, c.want != "" && len(got) != 1:
			t.Errorf("%s: %+v", c.name, got)
		case strings.HasPrefix(c.want, "? ") && got[0].Outcome == results.Inconclusive && strings.Contains(got[0].What, c.want[2:]):
		case c.want != "" && (got[0].Outcome != results.Fail || got[0].Code != results.CodeJobStopped || !strings.Contains(got[0].What, c.want)):
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
}

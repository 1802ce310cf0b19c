package jobs

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

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
		{"0.1 s every 2 s", stalls(.1, 2, 10), 3.6, false}, // the last one leaves too little before the end for two readings
		{"0.1 s every 0.5 s", stalls(.1, .5, 100), 5, false},
		{"all the time", stalls(.5, .5, 100), 9, true},
		{"a tenth of a round trip now and then", stalls(.005, 1, 100), 3, false},
		{"a sixth of a round trip, often", stalls(.008, .5, 100), 3.8, false},
	} {
		base := Baseline{RTTs: map[string]float64{"A": .05}}
		p := patience{base: base, stretch: 3, interval: .1}
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
		w := leaveOut(&ph, c.stalls, base, .1, p.planned().Seconds())
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

// TestLeaveOut: what is left of a phase is held to what was planned, whatever it might have become, or has become for other
// reasons; of one that nobody had planned, to what it was.
func TestLeaveOut(t *testing.T) {
	for _, c := range []struct {
		name          string
		planned, long float64
		lost          float64 // and a tenth of a second more, until traffic is what it was
		spoilt        bool
	}{
		{"told when it was over", 3, 3, .6, true},
		{"a little, told when it was over", 3, 3, .4, false},
		{"put off by as much", 3, 4.5, 1.4, false},
		{"made longer until figures were certain, and then lost", 3, 9, 1.8, false},
		{"made longer, and lost nearly all", 3, 9, 6.6, true},
		{"ended by a job", 0, 3, .6, true},
		{"cut short by a job that ended", 9, 1, .5, true},
	} {
		stalls := []study.Standstill{{Span: results.Span{Start: 100.3, End: 100.3 + c.lost}, Where: "switch tor1", What: "frames left late", Late: c.lost}}
		ph := results.Phase{Start: 100, End: 100 + c.long}
		leaveOut(&ph, stalls, Baseline{RTTs: map[string]float64{"A": .05}}, .1, c.planned)
		if (ph.Spoilt != "") != c.spoilt {
			t.Errorf("%s: %q", c.name, ph.Spoilt)
		}
	}
}

// TestWaitsForWhatIsLost: a phase goes on for what figures do not have, which is more than stalls take where no two readings lie
// between them.
func TestWaitsForWhatIsLost(t *testing.T) {
	base := Baseline{RTTs: map[string]float64{"A": .1}}
	var stalls []study.Standstill
	for at := 100.0; at < 120; at += 1.2 {
		for _, s := range []float64{at, at + .4} {
			stalls = append(stalls, study.Standstill{Span: results.Span{Start: s, End: s + .05}, Where: "switch tor1", What: "frames left late", Late: .05})
		}
	}
	p := patience{base: base, stretch: 3, interval: .1}
	tl := timeline{events: []event{{at: 3 * time.Second}}}
	p.begin(tl, 0)
	for more := time.Duration(1); more > 0; tl.delay(more) {
		more = p.wait(tl.events[0].at, 100, stalls)
	}
	ph := results.Phase{Start: 100, End: 100 + tl.events[0].at.Seconds()}
	if leaveOut(&ph, stalls, base, .1, 3); ph.Spoilt != "" {
		t.Errorf("after %.2f s: %s", ph.End-ph.Start, ph.Spoilt)
	}
}

// TestLaps: a stop that is short against the round trip of every job, in the queues that are predicted, is not noticed, as long as
// such stops are little of the time; where one job has no queue, its round trip without one counts.
func TestLaps(t *testing.T) {
	setup := testbed.Setup{
		Plan:      &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}, {Name: "B"}, {Name: "C"}}},
		Settings:  testbed.Settings{Lanes: 240},
		Workloads: []testbed.Workload{{Window: 200, Control: "fixed"}, {Window: 400, Control: "fixed"}, {Window: 400, Control: "aimd"}},
	}
	rate := 100 * study.FrameBits(240) // packets of a second
	of := func(queues ...float64) *placement.Prediction {
		p := &placement.Prediction{}
		for i, q := range queues {
			p.Jobs = append(p.Jobs, placement.JobPrediction{Name: string(rune('A' + i)), WireRate: rate, Queue: q, Trip: .1})
		}
		return p
	}
	stalls := []study.Standstill{{Span: results.Span{Start: 101, End: 101.06}, Where: "switch tor1", What: "frames left late", Late: .06}}
	for _, c := range []struct {
		name   string
		phases []*placement.Prediction
		want   map[string]float64
		left   int
	}{
		{"nothing is predicted", nil, nil, 1},
		{"queues", []*placement.Prediction{of(1e6, 2e6)}, map[string]float64{"A": 2, "B": 4}, 0},
		{"one without", []*placement.Prediction{of(1e6, 0)}, map[string]float64{"A": 2, "B": 0}, 1},
		{"one without in one phase", []*placement.Prediction{of(1e6, 2e6), of(0, 2e6)}, map[string]float64{"A": 0, "B": 4}, 1},
		{"a window that is not fixed", []*placement.Prediction{of(1e6, 2e6, 2e6)}, map[string]float64{"A": 2, "B": 4, "C": 0}, 1},
	} {
		var planned [][]*placement.Prediction
		base := Baseline{RTTs: map[string]float64{}}
		for _, p := range c.phases {
			planned = append(planned, []*placement.Prediction{p})
			for _, j := range p.Jobs {
				base.RTTs[j.Name] = .1
			}
		}
		if len(planned) == 0 {
			base.RTTs["A"] = .1
		} else if base.Laps = lapsOf(setup, planned); !maps.Equal(base.Laps, c.want) {
			t.Errorf("%s: %v, want %v", c.name, base.Laps, c.want)
		}
		if got := lostTimes(stalls, 100, 110, base); len(got) != c.left {
			t.Errorf("%s: %v are left out", c.name, got)
		}
	}
}

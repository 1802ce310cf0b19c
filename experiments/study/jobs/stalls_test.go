package jobs

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
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
		w := leaveOut(&ph, c.stalls, base, .1, p.moved.Seconds())
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

// TestLeaveOut: what a phase has lost is held to what it was put off by, whatever it might have been put off by: one whose
// stalls were told when it was over has less than was planned.
func TestLeaveOut(t *testing.T) {
	stalls := []study.Standstill{{Span: results.Span{Start: 101, End: 102.5}, Where: "switch tor1", What: "frames left late", Late: 1.5}}
	for moved, spoilt := range map[float64]bool{0: true, 1.5: false} {
		ph := results.Phase{Start: 100, End: 103 + moved}
		leaveOut(&ph, stalls, Baseline{RTTs: map[string]float64{"A": .05}}, .1, moved)
		if (ph.Spoilt != "") != spoilt {
			t.Errorf("3 s, put off by %v s, without 1.6 s: %q", moved, ph.Spoilt)
		}
	}
}

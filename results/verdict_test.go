package results_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func TestVerdictRule(t *testing.T) {
	for _, c := range []struct {
		name      string
		v, half   float64
		predicted float64
		bound     string
		tol       float64
		relative  bool
		want      results.Outcome
		more      int
	}{
		{"interval inside", 0.51, 0.01, 0.5, "within", 0.03, false, results.Pass, 0},
		{"on the edge, exact", 0.53, 0, 0.5, "within", 0.03, false, results.Pass, 0},
		{"inside, interval across the edge", 0.52, 0.02, 0.5, "within", 0.03, false, results.Pass, 0},
		{"inside, interval too wide", 0.51, 0.06, 0.5, "within", 0.03, false, results.Inconclusive, 3},
		{"outside, interval touches", 0.55, 0.03, 0.5, "within", 0.03, false, results.Inconclusive, 2},
		{"outside", 0.56, 0.02, 0.5, "within", 0.03, false, results.Fail, 0},
		{"below", 0.44, 0.02, 0.5, "within", 0.03, false, results.Fail, 0},
		{"relative inside", 102, 1, 100, "within", 0.03, true, results.Pass, 0},
		{"relative outside", 105, 1, 100, "within", 0.03, true, results.Fail, 0},
		{"at least, far above", 0.999, 0.0005, 0.99, "at-least", 0, false, results.Pass, 0},
		{"at least, below", 0.98, 0.001, 0.99, "at-least", 0, false, results.Fail, 0},
		{"at least, straddling with no tolerance", 0.992, 0.004, 0.99, "at-least", 0, false, results.Inconclusive, 3},
		{"at least, and that but for rounding", 10*.081*2 - 2e-15, 0, 1.62, "at-least", 0, false, results.Pass, 0},
		{"at least, and less by more than that", 1.62 - 2e-9, 0, 1.62, "at-least", 0, false, results.Fail, 0},
		{"at most", 0, 0, 0, "at-most", 0, false, results.Pass, 0},
		{"at most, above", 3, 0, 0, "at-most", 0, false, results.Fail, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: c.tol, Relative: c.relative, Bound: c.bound, Gate: true}
			checks, outcome, reasons := results.Judge([]results.Expect{e}, []results.Point{resultstest.One(c.v, c.half, c.predicted, 20)})
			if len(checks) != 1 || checks[0].Outcome != c.want || checks[0].More != c.more || outcome != c.want {
				t.Fatalf("%+v, run %s, %q", checks, outcome, reasons)
			}
			if (c.want == results.Pass) != (len(reasons) == 0) {
				t.Errorf("reasons %q", reasons)
			}
		})
	}
}

// TestStatisticsOfOne: of one figure each, the mean and the largest error are the same, and so is what is decided.
func TestStatisticsOfOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[results.Outcome]int{}
	for range 2000 {
		v, half, tolerance := .5+.2*rng.NormFloat64(), .1*rng.ExpFloat64(), .3*rng.Float64()
		relative := rng.IntN(2) == 0
		judge := func(statistic string) results.Check {
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: statistic, Tolerance: tolerance, Relative: relative, Bound: "within", Gate: true}
			checks, _, _ := results.Judge([]results.Expect{e}, []results.Point{resultstest.One(v, half, .5, 20)})
			return checks[0]
		}
		each := judge("each")
		seen[each.Outcome]++
		for _, statistic := range []string{"mean", "max"} {
			if c := judge(statistic); c.Outcome != each.Outcome {
				t.Fatalf("%.3f +- %.3f of .5, %.3f: %s is %s, each %s: %q, %q", v, half, tolerance, statistic, c.Outcome, each.Outcome, c.Why, each.Why)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

// TestHollow: an expectation that a job which gets nothing would meet decides nothing; one that it would not meet in some phase
// decides.
func TestHollow(t *testing.T) {
	point := func(metric string, predicted ...float64) []results.Point {
		p := results.Point{}
		for _, v := range predicted {
			f := resultstest.MeasuredFig(metric, "A", v, 0, "bit/s")
			g := f
			f.N, g.Kind, g.Predictor = 9, results.Predicted, "occupancy"
			p.Phases = append(p.Phases, results.Phase{Jobs: []string{"A", "B"}, Figures: []results.Figure{f, g}})
		}
		return []results.Point{p}
	}
	for _, c := range []struct {
		name      string
		points    []results.Point
		bound     string
		statistic string
		tolerance float64
		relative  bool
		hollow    bool
	}{
		{"more than is predicted", point("goodput", 18e9), "within", "each", 50e9, false, true},
		{"as much", point("goodput", 18e9), "within", "each", 18e9, false, true},
		{"less", point("goodput", 18e9), "within", "each", 17e9, false, false},
		{"more in one phase of two", point("goodput", 18e9, 60e9), "within", "each", 50e9, false, false},
		{"more in both", point("wire_rate", 18e9, 20e9), "within", "each", 50e9, false, true},
		{"in the mean", point("goodput", 18e9), "within", "mean", 50e9, false, true},
		{"at most", point("goodput", 18e9), "within", "max", 50e9, false, true},
		{"a part", point("goodput", 18e9), "within", "each", .5, true, false},
		{"no more than", point("goodput", 18e9), "at-most", "each", 50e9, false, false},
		{"no less than", point("goodput", 18e9), "at-least", "each", 50e9, false, true},
		{"nothing is predicted", point("goodput", 0), "within", "each", 50e9, false, false},
		{"of two jobs one gets nothing", point("jain", 1), "within", "each", .5, false, true},
		{"of two jobs neither", point("jain", 1), "within", "each", .45, false, false},
		{"any share", point("share", .329), "within", "each", .68, false, true},
		{"any share, in the mean", point("share", .329, .4), "within", "mean", .68, false, true},
		{"no share or some", point("share", .329), "within", "each", .4, false, false},
		{"any share in one phase of two", point("share", .5, .1), "within", "each", .5, false, false},
		{"a link that is almost idle", point("link_rate", 1e6), "within", "each", 1e9, false, false},
	} {
		e := results.Expect{Name: "e", Metric: c.points[0].Phases[0].Figures[0].Metric, Predictor: "occupancy", Statistic: c.statistic, Tolerance: c.tolerance, Relative: c.relative, Bound: c.bound, Gate: true}
		checks, outcome, _ := results.Judge([]results.Expect{e}, c.points)
		last := checks[len(checks)-1]
		if hollow := last.Code == results.CodeNotJudged; hollow != c.hollow || hollow != (outcome == results.Inconclusive) {
			t.Errorf("%s: %s, %s %q", c.name, outcome, last.Code, last.Why)
		}
		e.Gate = false
		if checks, _, _ := results.Judge([]results.Expect{e}, c.points); checks[len(checks)-1].Code == results.CodeNotJudged {
			t.Errorf("%s: is not gated, and %q", c.name, checks[len(checks)-1].Why)
		}
	}
}

// Points are held against those that differ in one swept key only; these are held
// against nothing, and both ends' intervals count.
func TestAgainstOtherPoints(t *testing.T) {
	point := func(index int, memory, mode string, v, half float64, fatal bool) results.Point {
		p := results.Point{Index: index, Labels: []string{"m=" + memory, "mode=" + mode}}
		p.Phases = []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("step_rate", "A", v, half, "1/s")}}}
		if fatal {
			p.Health = []results.Trouble{{What: "late", Fatal: true}}
		}
		return p
	}
	points := []results.Point{
		point(0, "8", "old", 10, 0.1, false), point(1, "8", "new", 10.5, 0.1, false),
		point(2, "4", "old", 10, 0.1, false), point(3, "4", "new", 12, 0.1, false),
		point(4, "2", "old", 10, 1.5, false), point(5, "2", "new", 10.5, 1.5, false),
		point(6, "1", "old", 10, 0.1, true), point(7, "1", "new", 5, 0.1, false),
		point(8, "0", "new", 5, 0.1, false), // alone
		point(9, "16", "old", 10, 0.1, false), point(10, "16", "new", 0, 0, false),
	}
	e := results.Expect{Name: "e", Metric: "step_rate", Predictor: "mode=old", Against: "mode=old", Tolerance: 0.1, Relative: true, Bound: "at-most", Gate: true}
	checks, outcome, _ := results.Judge([]results.Expect{e}, points)
	want := []struct {
		point     string
		predicted float64
		outcome   results.Outcome
	}{
		{"m=8 mode=new", 10, results.Pass}, {"m=4 mode=new", 10, results.Fail}, {"m=2 mode=new", 10, results.Inconclusive},
		{"m=1 mode=new", 0, results.Inconclusive}, {"m=16 mode=new", 10, results.Pass},
	}
	if len(checks) != len(want) || outcome != results.Fail {
		t.Fatalf("%s: %+v", outcome, checks)
	}
	for i, w := range want {
		if c := checks[i]; c.Point != w.point || c.Predicted != w.predicted || c.Outcome != w.outcome {
			t.Errorf("%s against %v: %s (%s); want %+v", c.Point, c.Predicted, c.Outcome, c.Why, w)
		}
	}
}

// TestAgainstWithoutInterval: a difference of two figures is known to no more than the one that is known less.
func TestAgainstWithoutInterval(t *testing.T) {
	point := func(index, repeat int, v, half float64, n int) results.Point {
		f := resultstest.MeasuredFig("step_rate", "A", v, half, "1/s")
		f.N = n
		return results.Point{Index: index, Repeat: repeat, Labels: []string{"mode=" + []string{"old", "new"}[index]}, Phases: []results.Phase{{Figures: []results.Figure{f}}}}
	}
	count := func(p results.Point, grain float64) results.Point {
		p.Phases[0].Figures[0].Counted, p.Phases[0].Figures[0].Grain = true, grain
		return p
	}
	for _, tt := range []struct {
		name   string
		points []results.Point
		want   results.Outcome
	}{
		{"both have two that agree", []results.Point{point(0, 0, 20, 0, 1), point(0, 1, 20.01, 0, 1), point(1, 0, 21.5, 0, 1), point(1, 1, 21.51, 0, 1)}, results.Fail},
		{"more, of one reference", []results.Point{point(0, 0, 20, 0, 1), point(1, 0, 21.5, 0, 1), point(1, 1, 21.51, 0, 1)}, results.Inconclusive},
		{"less, of one reference", []results.Point{point(0, 0, 20, 0, 1), point(1, 0, 19, 0, 1), point(1, 1, 19.01, 0, 1)}, results.Inconclusive},
		{"one, of two references", []results.Point{point(0, 0, 20, 0, 1), point(0, 1, 20.01, 0, 1), point(1, 0, 21.5, 0, 1)}, results.Inconclusive},
		{"one of each", []results.Point{point(0, 0, 20, 0, 1), point(1, 0, 19, 0, 1)}, results.Inconclusive},
		{"a count of a count, far off", []results.Point{count(point(0, 0, 20, 0, 1), .1), count(point(1, 0, 25, 0, 1), .1)}, results.Fail},
		{"a count of one that comes in bursts", []results.Point{count(point(0, 0, 20, 0, 1), 4), count(point(1, 0, 25, 0, 1), .1)}, results.Inconclusive},
		{"a count of what is none", []results.Point{point(0, 0, 20, 0, 1), count(point(1, 0, 25, 0, 1), .1)}, results.Inconclusive},
	} {
		e := results.Expect{Name: "e", Metric: "step_rate", Predictor: "mode=old", Against: "mode=old", Tolerance: .05, Relative: true, Statistic: "each", Bound: "at-most", Gate: true}
		if checks, got, _ := results.Judge([]results.Expect{e}, tt.points); got != tt.want || len(checks) != 1 {
			t.Errorf("%s: %s, want %s: %+v", tt.name, got, tt.want, checks)
		}
	}
}

// TestAgainstPairs: repeats that two points share are pairs, of which the draw cancels out; of those that they do not share
// nothing does.
func TestAgainstPairs(t *testing.T) {
	draws := []float64{1, 9, 2, 30, 4, 0.5, 16, 3, 7, 12} // what repeats have in common
	times := func(factors ...float64) (out []float64) {
		for i, d := range draws[:len(factors)] {
			out = append(out, d*factors[i])
		}
		return out
	}
	old := times(100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	sixth := times(105, 107, 106, 104, 108, 106, 105, 107, 106, 106)
	plus := func(by ...float64) (out []float64) {
		for i := range by {
			out = append(out, old[i]+by[i])
		}
		return out
	}
	rng := rand.New(rand.NewPCG(1, 2))
	atLeast := results.Expect{Bound: "at-least"}
	within := func(tolerance float64, relative bool) results.Expect {
		return results.Expect{Tolerance: tolerance, Relative: relative}
	}
	for _, tt := range []struct {
		name  string
		e     results.Expect
		old   []float64
		new   []float64
		shift int // of the repeats' numbers of the latter
		want  results.Outcome
	}{
		{"at least as much in each pair", atLeast, old, sixth, 0, results.Pass},
		{"less in each pair", atLeast, sixth, old, 0, results.Fail},
		{"at least as much, as a part", results.Expect{Bound: "at-least", Relative: true}, old, sixth, 0, results.Pass},
		{"other repeats are no pairs", atLeast, old, sixth, 20, results.Inconclusive},
		{"some are others", atLeast, old, sixth, 1, results.Inconclusive},
		{"fewer repeats", atLeast, old, sixth[:9], 0, results.Inconclusive},
		{"6 %, of 8", within(.08, true), old, sixth, 0, results.Pass},
		{"6 %, of 4", within(.04, true), old, sixth, 0, results.Fail},
		{"more by 5 to 7", within(8, false), old, plus(5, 7, 6, 5, 7, 6, 6, 5, 7, 6), 0, results.Pass},
		{"more by 5 to 7, of 4", within(4, false), old, plus(5, 7, 6, 5, 7, 6, 6, 5, 7, 6), 0, results.Fail},
		{"more by 5 to 7, and at least as much", atLeast, old, plus(5, 7, 6, 5, 7, 6, 6, 5, 7, 6), 0, results.Pass},
		{"zeros have no ratios", atLeast, []float64{0, 0, 0, 0}, []float64{1, 1.1, .9, 1}, 0, results.Pass},
		{"pairs of both kinds", atLeast, old, times(110, 90, 120, 85, 105, 95, 130, 80, 100, 101), 0, results.Inconclusive},
		{"the largest draw is less, and the others more", atLeast, old, times(106, 106, 106, 60, 106, 106, 106, 106, 106, 106), 0, results.Inconclusive},
		{"one pair of a simulation is exact", atLeast, old[:1], sixth[:1], 0, results.Pass},
	} {
		var points []results.Point
		for index, values := range [][]float64{tt.old, tt.new} {
			for i, v := range values {
				p := results.Point{Index: index, Repeat: i + index*tt.shift, Labels: []string{"policy=" + []string{"old", "new"}[index]}}
				p.Phases = []results.Phase{{Figures: []results.Figure{{Metric: "avg_jct", Of: results.Cluster, Kind: results.Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: "s"}}}}
				points = append(points, p)
			}
		}
		rng.Shuffle(len(points), func(i, k int) { points[i], points[k] = points[k], points[i] })
		e := tt.e
		e.Name, e.Metric, e.Predictor, e.Against, e.Statistic, e.Gate = "e", "avg_jct", "policy=old", "policy=old", "each", true
		checks, got, _ := results.Judge([]results.Expect{e}, points)
		if got != tt.want || len(checks) != 1 {
			t.Errorf("%s: %s, want %s: %+v", tt.name, got, tt.want, checks)
			continue
		}
		// The error stays that of what is shown.
		unit := 1.0
		if e.Relative {
			unit = checks[0].Predicted
		}
		if c := checks[0]; math.Abs(c.Error-(c.Measured-c.Predicted)/unit) > 1e-9*math.Abs(c.Measured) {
			t.Errorf("%s: %g of %g and %g", tt.name, c.Error, c.Measured, c.Predicted)
		}
	}
}

// TestAgainstPairsCovers: of measured pairs that are the same on average few are said to differ, however much draws do.
func TestAgainstPairsCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, relative := range []bool{false, true} {
		wrong, n := 0, 2000
		for range n {
			var points []results.Point
			for repeat := range 5 {
				draw := math.Exp(rng.NormFloat64())
				for index, policy := range []string{"old", "new"} {
					noise := 1 + .02*rng.NormFloat64()
					v := 100 * draw * noise
					if !relative {
						v = 100*draw + noise
					}
					p := results.Point{Index: index, Repeat: repeat, Labels: []string{"policy=" + policy}}
					p.Phases = []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("goodput", "A", v, 0, "bit/s")}}}
					points = append(points, p)
				}
			}
			e := results.Expect{Name: "e", Metric: "goodput", Predictor: "policy=old", Against: "policy=old", Statistic: "each", Tolerance: 1e-9, Relative: relative, Gate: true}
			if _, got, _ := results.Judge([]results.Expect{e}, points); got == results.Fail {
				wrong++
			}
		}
		if part := float64(wrong) / float64(n); part > .065 || part < .02 { // it is .05, or less where the error is outside
			t.Errorf("relative %t: %.3f of all are said to differ", relative, part)
		}
	}
}

// An expectation about some points holds the others to nothing.
func TestSomePoints(t *testing.T) {
	var points []results.Point
	for i, mode := range []string{"old", "new"} {
		points = append(points, results.Point{Index: i, Labels: []string{"m=8", "mode=" + mode}, Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("share", "A", float64(i), 0, "1")}}}})
	}
	e := results.Expect{Name: "e", Metric: "share", Predictor: "value", Value: 1, Tolerance: 0.1, Gate: true}
	for _, c := range []struct {
		points  []string
		checks  int
		outcome results.Outcome
	}{
		{nil, 2, results.Fail},
		{[]string{"mode=new"}, 1, results.Pass},
		{[]string{"mode=new", "m=8"}, 1, results.Pass},
		{[]string{"mode=old"}, 1, results.Fail},
		{[]string{"mode=old", "m=4"}, 1, results.Inconclusive}, // there is none, and nothing else was decided
	} {
		e.Points = c.points
		checks, outcome, reasons := results.Judge([]results.Expect{e}, points)
		if len(checks) != c.checks || outcome != c.outcome {
			t.Errorf("%v: %s %v %+v", c.points, outcome, reasons, checks)
		}
	}
}

// TestSkip: what a testbed cannot produce decides nothing, and never everything.
func TestSkip(t *testing.T) {
	share := results.Expect{Name: "share", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}
	sums := results.Expect{Name: "sums", Metric: "sum_errors", Predictor: "value", Gate: true, Skip: "a model carries no sums"}
	checks, outcome, reasons := results.Judge([]results.Expect{share, sums}, []results.Point{resultstest.One(0.51, 0.01, 0.5, 20)})
	if outcome != results.Pass || len(reasons) != 0 || checks[1].Outcome != results.Skipped || checks[1].Message() != sums.Skip {
		t.Errorf("%s, %q, %+v", outcome, reasons, checks[1])
	}
	if _, outcome, reasons := results.Judge([]results.Expect{sums}, []results.Point{resultstest.One(0.51, 0.01, 0.5, 20)}); outcome != results.Inconclusive || len(reasons) != 1 {
		t.Errorf("all skipped: %s, %q", outcome, reasons)
	}
}

// TestMoreIsEnough simulates what a verdict promises: after the further repeats that
// it asked for, the interval decides.
func TestMoreIsEnough(t *testing.T) {
	r := resultstest.Random(t)
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}
	draw := func(mean float64) results.Point {
		growth := make([]float64, 20)
		for i := range growth {
			growth[i] = mean + 0.15*r.NormFloat64()
		}
		f, _ := results.Rate(results.Window{End: 20}, counter(growth))
		f.Kind, f.Metric, f.Of = results.Measured, "share", "A@tor1"
		return results.Point{Phases: []results.Phase{{Figures: []results.Figure{f, resultstest.PredictedFig("share", "A@tor1", 0.5, "1", "occupancy", "")}}}}
	}
	asked, decided := 0, 0
	for range 200 {
		points := []results.Point{draw(0.6)} // off by 0.1: it must fail once that can be seen
		c, _, _ := results.Judge([]results.Expect{e}, points)
		if c[0].Outcome != results.Inconclusive {
			continue
		}
		asked++
		for i := range c[0].More {
			p := draw(0.6)
			p.Repeat = i + 1
			points = append(points, p)
		}
		if c, _, _ := results.Judge([]results.Expect{e}, points); c[0].Outcome == results.Fail {
			decided++
		}
	}
	if asked < 20 || float64(decided) < 0.6*float64(asked) {
		t.Errorf("%d of %d undecided verdicts were decided by the repeats they asked for", decided, asked)
	}
}

func TestJudgeNothingToHold(t *testing.T) {
	e := results.Expect{Name: "e", Metric: "goodput", Of: "X*", Predictor: "occupancy", Gate: true}
	for name, c := range map[string]struct {
		points []results.Point
		why    string
	}{
		"no points":      {nil, "nothing to hold it against"},
		"no such figure": {[]results.Point{resultstest.One(1, 0, 1, 9)}, `no goodput figure of "X*"`},
		"not predicted":  {[]results.Point{{Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("goodput", "X1", 1, 0, "bit/s")}}}}}, "occupancy predicts no goodput"},
		"not measured":   {[]results.Point{{Phases: []results.Phase{{Figures: []results.Figure{resultstest.PredictedFig("goodput", "X1", 1, "bit/s", "occupancy", "")}}}}}, "predicted, but not measured"},
		"one interval": {[]results.Point{{Phases: []results.Phase{{Figures: []results.Figure{{Metric: "goodput", Of: "X1", Kind: results.Measured, Value: 1, Lo: 1, Hi: 1, N: 1},
			resultstest.PredictedFig("goodput", "X1", 1, "bit/s", "occupancy", "")}}}}}, "no confidence interval"},
		"not a number": {[]results.Point{{Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("goodput", "X1", math.NaN(), 0, "bit/s"),
			resultstest.PredictedFig("goodput", "X1", 1, "bit/s", "occupancy", "")}}}}}, "not a finite number"},
	} {
		for _, statistic := range []string{"each", "mean", "max"} {
			e.Statistic = statistic
			checks, outcome, _ := results.Judge([]results.Expect{e}, c.points)
			if len(checks) != 1 || checks[0].Outcome != results.Inconclusive || outcome != results.Inconclusive || !strings.Contains(checks[0].Why, c.why) {
				t.Errorf("%s, %s: %+v, run %s", name, statistic, checks, outcome)
			}
		}
	}
}

func TestJudgeHealth(t *testing.T) {
	e := []results.Expect{{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}}
	sick := resultstest.One(0.1, 0.001, 0.5, 20) // a fail, were it not for the machine
	sick.Health = []results.Trouble{{Where: "switch tor1", What: "timer lateness p99 14 ms", Fatal: true}}
	c, o, reasons := results.Judge(e, []results.Point{sick})
	if o != results.Inconclusive || c[0].Outcome != results.Inconclusive || !strings.Contains(reasons[0], "timer lateness p99 14 ms") {
		t.Errorf("%+v %s %q", c, o, reasons)
	}
	// A sound repeat decides, and says what was left out.
	well := resultstest.One(0.5, 0.001, 0.5, 20)
	well.Repeat = 1
	c, o, _ = results.Judge(e, []results.Point{sick, well})
	if o != results.Pass || !strings.Contains(c[0].Why, "1 of 2 repeats left out: switch tor1") {
		t.Errorf("%+v %s", c, o)
	}
	// Trouble that is not fatal changes nothing.
	sick.Health[0].Fatal = false
	if _, o, _ = results.Judge(e, []results.Point{sick}); o != results.Fail {
		t.Errorf("not fatal: %s", o)
	}
	// A testbed that failed is an error, whatever the rest says.
	well.Error, well.Index = "host h2: connection lost", 1
	if _, o, reasons = results.Judge(e, []results.Point{sick, well}); o != results.ErrorOutcome || reasons[0] != "host h2: connection lost" {
		t.Errorf("error: %s %q", o, reasons)
	}
}

func TestJudgeGate(t *testing.T) {
	e := []results.Expect{{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03}}
	c, o, _ := results.Judge(e, []results.Point{resultstest.One(0.1, 0.001, 0.5, 20)})
	if c[0].Outcome != results.Fail || o != results.NotJudged {
		t.Errorf("a check that is not gated decided: %+v %s", c, o)
	}
	for o, want := range map[results.Outcome]int{results.Pass: 0, results.Fail: 1, results.ErrorOutcome: 6, results.Inconclusive: 7, results.NotJudged: 7, "": 7} {
		if got := results.ExitCode(o); got != want {
			t.Errorf("ExitCode(%q) = %d, want %d", o, got, want)
		}
	}
}

func TestJudgeAggregate(t *testing.T) {
	var figs []results.Figure
	for i, err := range []float64{0.01, -0.02, 0.06} {
		of := string(rune('a' + i))
		figs = append(figs, resultstest.MeasuredFig("link_rate", of, 100*(1+err), 0.1, "bit/s"), resultstest.PredictedFig("link_rate", of, 100, "bit/s", "occupancy", "b->c"))
	}
	figs = append(figs, resultstest.MeasuredFig("link_rate", "idle", 0, 0, "bit/s"), resultstest.PredictedFig("link_rate", "idle", 0, "bit/s", "occupancy", ""))
	p := []results.Point{{Phases: []results.Phase{{Figures: figs}}}}
	judge := func(stat string, tol float64) results.Check {
		c, _, _ := results.Judge([]results.Expect{{Name: "e", Metric: "link_rate", Predictor: "occupancy", Statistic: stat, Tolerance: tol, Relative: true, Gate: true}}, p)
		if len(c) != 1 {
			t.Fatalf("%+v", c)
		}
		return c[0]
	}
	if c := judge("mean", 0.031); c.Outcome != results.Pass || math.Abs(c.Measured-0.03) > 1e-9 || c.Of != "mean of 3" {
		t.Errorf("mean: %+v", c)
	}
	if c := judge("mean", 0.02); c.Outcome != results.Fail || c.Worst != "c" {
		t.Errorf("mean beyond: %+v", c)
	}
	if c := judge("max", 0.08); c.Outcome != results.Pass || c.Worst != "c" || math.Abs(c.Error-0.06) > 1e-9 {
		t.Errorf("max: %+v", c)
	}
	if c := judge("max", 0.05); c.Outcome != results.Fail || c.Bottleneck != "b->c" {
		t.Errorf("max beyond: %+v", c)
	}
	// Of an absolute tolerance idle links are in no mean either, but where nothing else is predicted.
	bits := results.Expect{Name: "e", Metric: "link_rate", Predictor: "occupancy", Statistic: "mean", Tolerance: 2.5, Gate: true}
	if c, _, _ := results.Judge([]results.Expect{bits}, p); c[0].Outcome != results.Fail || math.Abs(c[0].Measured-3) > 1e-9 || c[0].Of != "mean of 3" {
		t.Errorf("mean of bit/s: %+v", c[0])
	}
	idle := []results.Point{{Phases: []results.Phase{{Figures: figs[6:]}}}}
	if c, _, _ := results.Judge([]results.Expect{bits}, idle); c[0].Outcome != results.Pass {
		t.Errorf("mean of what is all idle: %+v", c[0])
	}
	// Traffic where none was predicted counts against the busiest figure.
	p[0].Phases[0].Figures[6] = resultstest.MeasuredFig("link_rate", "idle", 20, 0.1, "bit/s")
	if c := judge("max", 0.08); c.Outcome != results.Fail || c.Worst != "idle" || math.Abs(c.Error-0.2) > 1e-9 {
		t.Errorf("idle link with traffic: %+v", c)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "anything", true}, {"*", "A/0", true}, {"A@*", "A@tor1", true}, {"A@*", "B@tor1", false}, {"*->tor1", "h1->tor1", true},
		{"*a*b", "xaxbxab", true}, {"*a*b", "xaxbxa", false}, {"h?->*", "h1->tor1", true}, {"h?->*", "h12->tor1", false}, {"[a]", "a", false}, {"A", "", false},
	} {
		if got := results.Glob(c.pattern, c.name); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

func TestModelErrors(t *testing.T) {
	rec, _ := resultstest.Waterfill()
	for _, m := range results.ModelErrors(rec.Points) {
		if m.Predictor == "waterfill" && m.Metric == "goodput" && (m.N != 9 || m.Mean < 0.1 || m.Mean > 0.16 || m.Max < m.Mean) {
			t.Errorf("%+v", m)
		}
		if m.Predictor == "occupancy" && m.Metric == "link_rate" && m.Worst != "phase 3 tor1->spine1" {
			t.Errorf("%+v", m)
		}
	}
}

// Two series that go together to the second digit, of 20 figures.
func TestCorrelation(t *testing.T) {
	for name, tt := range map[string]struct {
		noise, tolerance float64
		figures          int
		want             results.Outcome
	}{
		"close":    {0.01, 0.01, 20, results.Pass},
		"apart":    {1, 0.01, 20, results.Fail},
		"too few":  {0.01, 0.01, 3, results.Inconclusive},
		"constant": {0, 0.01, 0, results.Inconclusive},
	} {
		var p results.Point
		p.Phases = []results.Phase{{}}
		for i := range max(tt.figures, 5) {
			v := float64(i)
			if tt.figures == 0 {
				v = 1
			}
			if tt.figures > 0 && i >= tt.figures {
				break
			}
			of := fmt.Sprint(i)
			noise := tt.noise * float64(tt.figures) * float64(i%3-1)
			p.Phases[0].Figures = append(p.Phases[0].Figures,
				results.Figure{Metric: "jct", Of: of, Kind: results.Measured, Value: v + noise, Lo: v + noise, Hi: v + noise, N: 9, Unit: "s"},
				results.Figure{Metric: "jct", Of: of, Kind: results.Predicted, Predictor: "replay", Value: v, Lo: v, Hi: v, Unit: "s"})
		}
		checks, got, _ := results.Judge([]results.Expect{{Metric: "jct", Predictor: "replay", Statistic: results.Correlation, Tolerance: tt.tolerance, Gate: true}}, []results.Point{p})
		if got != tt.want || len(checks) != 1 {
			t.Errorf("%s: %s, want %s: %v", name, got, tt.want, checks)
		}
		t.Log(name, checks[0].Message())
	}
}

// TestStatisticsOfUnjudged: a statistic over points of which one is not judged is known by why that one is not.
func TestStatisticsOfUnjudged(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*results.Point)
		want  string
	}{
		{"limited", func(p *results.Point) {
			p.Health = []results.Trouble{{Where: "switch tor1", What: "timer lateness p99 14 ms", Fatal: true}}
		}, results.CodeLimited},
		{"cut off", func(p *results.Point) { p.Error = "interrupted" }, results.CodeCutOff},
		{"not measured", func(p *results.Point) { p.Phases[0].Figures = p.Phases[0].Figures[1:] }, results.CodeNoFigure},
	} {
		for _, statistic := range []string{"mean", "max", results.Correlation} {
			var points []results.Point
			for i := range 5 {
				v := .1 * float64(i+1)
				p := resultstest.One(v, .001, v, 20)
				p.Index = i
				points = append(points, p)
			}
			c.spoil(&points[2])
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: statistic, Tolerance: .03, Gate: true}
			checks, _, _ := results.Judge([]results.Expect{e}, points)
			if len(checks) != 1 || checks[0].Outcome != results.Inconclusive || checks[0].Code != c.want {
				t.Errorf("%s, %s: %+v", c.name, statistic, checks)
			}
		}
	}
}

// TestUnitOfMean: a mean that fails, whatever a figure that nobody measured is, has the unit of those that were measured.
func TestUnitOfMean(t *testing.T) {
	var points []results.Point
	for i := range 3 {
		p := results.Point{Index: i, Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("goodput", "A", 7e9, 1e6, "bit/s")}}}}
		if i == 0 {
			p.Phases[0] = results.Phase{Missing: []results.Missing{{Metric: "goodput", Of: "A", Why: "no readings"}}}
		}
		points = append(points, p)
	}
	e := results.Expect{Name: "e", Metric: "goodput", Predictor: "value", Value: 5e9, Statistic: "mean", Tolerance: 1e8, Gate: true}
	checks, outcome, _ := results.Judge([]results.Expect{e}, points)
	if len(checks) != 1 || outcome != results.Fail || checks[0].Unit != "bit/s" {
		t.Errorf("%s: %+v", outcome, checks)
	}
}

// What is certain decides, whatever an interval or another figure leaves open.
func TestCertainFailures(t *testing.T) {
	count := func(of string, v, half float64, n int) results.Figure {
		f := resultstest.MeasuredFig("link_rate", of, v, half, "bit/s")
		f.N, f.Counted = n, true
		return f
	}
	want := func(of string, v float64) results.Figure {
		return resultstest.PredictedFig("link_rate", of, v, "bit/s", "occupancy", "")
	}
	stalled := []results.Figure{count("l1", 6, 125, 20), want("l1", 23.4)}
	slow := []results.Figure{count("l1", 34, 226, 20), want("l1", 46.9)}
	fine := []results.Figure{count("l1", 23.5, .2, 20), want("l1", 23.4)}
	unsure := []results.Figure{count("l2", 23.6, 4, 20), want("l2", 23.4)}
	none := []results.Figure{count("l2", 23.4, 0, 1), want("l2", 23.4)}
	idle := []results.Figure{count("l3", 21, .1, 20), want("l3", 0)}
	quiet := []results.Figure{count("l3", .01, .1, 20), want("l3", 0)}
	wide := []results.Figure{count("l1", 24, 3, 20), want("l1", 23.4)}
	bursts := []results.Figure{count("l1", 20.4, 4.3, 20), want("l1", 23.4)} // 8 packets of 55 may come at once
	bursts[0].Grain = 2.6
	half := []results.Figure{count("l1", 11.7, 15, 20), want("l1", 23.4)} // as many, and it stopped halfway
	half[0].Grain = 2.6
	for _, c := range []struct {
		name            string
		figures         [][]results.Figure
		each, mean, max results.Outcome
	}{
		{"a stall, 6 +- 125 of 23.4", [][]results.Figure{stalled}, results.Fail, results.Fail, results.Fail},
		{"34 +- 226 of 46.9", [][]results.Figure{slow}, results.Fail, results.Fail, results.Fail},
		{"one surely off, one not known", [][]results.Figure{stalled, none}, results.Fail, results.Fail, results.Fail},
		{"one surely off, one unsure", [][]results.Figure{stalled, unsure}, results.Fail, results.Fail, results.Fail},
		{"an idle link that is busy", [][]results.Figure{fine, idle}, results.Fail, results.Fail, results.Fail},
		{"an idle link", [][]results.Figure{fine, quiet}, results.Pass, results.Pass, results.Pass},
		{"12.8 % off, 11 % of it in one burst", [][]results.Figure{bursts}, results.Inconclusive, results.Inconclusive, results.Inconclusive},
		{"half, in bursts", [][]results.Figure{half}, results.Fail, results.Fail, results.Fail},
		{"near, and unsure", [][]results.Figure{wide}, results.Inconclusive, results.Inconclusive, results.Inconclusive},
		{"right, and not known", [][]results.Figure{fine, none}, results.Inconclusive, results.Inconclusive, results.Inconclusive},
	} {
		for statistic, outcome := range map[string]results.Outcome{"each": c.each, "mean": c.mean, "max": c.max} {
			e := results.Expect{Name: "e", Metric: "link_rate", Predictor: "occupancy", Statistic: statistic, Tolerance: .05, Relative: true, Gate: true}
			p := results.Point{Phases: []results.Phase{{}}}
			for _, f := range c.figures {
				p.Phases[0].Figures = append(p.Phases[0].Figures, f...)
			}
			checks, got, reasons := results.Judge([]results.Expect{e}, []results.Point{p})
			if got != outcome {
				t.Errorf("%s, %s: %s, want %s: %q %+v", c.name, statistic, got, outcome, reasons, checks)
			}
		}
	}
}

// A count is certain of its phase, and no phase is just like the next: by up to 1 % in either direction a
// count does not say that something is wrong, however tight the tolerance.
func TestCountsOfTightTolerances(t *testing.T) {
	for off, want := range map[float64]results.Outcome{0.0003: results.Inconclusive, 0.005: results.Inconclusive, 0.009: results.Inconclusive, 0.011: results.Fail, -0.009: results.Inconclusive, -0.05: results.Fail} {
		f := resultstest.MeasuredFig("link_rate", "l1", 23.4*(1+off), 1, "bit/s")
		f.N, f.Counted = 20, true
		p := results.Point{Phases: []results.Phase{{Figures: []results.Figure{f, resultstest.PredictedFig("link_rate", "l1", 23.4, "bit/s", "occupancy", "")}}}}
		e := results.Expect{Name: "a part", Metric: "link_rate", Predictor: "occupancy", Statistic: "each", Tolerance: .0005, Relative: true, Gate: true}
		absolute := e
		absolute.Name, absolute.Tolerance, absolute.Relative = "absolute", .0005*23.4, false
		for _, e := range []results.Expect{e, absolute} {
			if checks, got, _ := results.Judge([]results.Expect{e}, []results.Point{p}); got != want {
				t.Errorf("off by %g, %s: %s, want %s: %+v", off, e.Name, got, want, checks)
			}
		}
	}
}

// TestCountOfOneBatch: two readings say how much came between them, and nothing of how much comes at once; nothing at all is
// nothing.
func TestCountOfOneBatch(t *testing.T) {
	for came, want := range map[float64]results.Outcome{3: results.Inconclusive, 4: results.Inconclusive, 0: results.Fail} {
		f, err := results.Rate(results.Window{Start: 0, End: 3}, results.Series{T: []float64{.5, 2}, V: []float64{0, came}})
		if err != nil || f.N != 1 || f.Grain != f.Value {
			t.Errorf("%g: %+v, %v", came, f, err)
		}
		f.Metric, f.Of, f.Kind, f.Unit = "goodput", "A", results.Measured, "bit/s"
		e := results.Expect{Name: "e", Metric: "goodput", Predictor: "value", Value: 2.5, Statistic: "each", Tolerance: .03, Relative: true, Gate: true}
		if checks, got, _ := results.Judge([]results.Expect{e}, []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{f}}}}}); got != want {
			t.Errorf("%g: %s, want %s: %+v", came, got, want, checks)
		}
	}
}

// A point that was interrupted, or that failed, is not one that the testbed limited: what to do about it is something else.
func TestCutOff(t *testing.T) {
	cut := resultstest.One(0.5, 0.01, 0.5, 20)
	cut.Error = "interrupted by SIGINT"
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}
	for name, points := range map[string][]results.Point{"in its phase": {cut}, "before any": {{Error: "deploy: no space left on device"}}} {
		checks, outcome, _ := results.Judge([]results.Expect{e}, points)
		if len(checks) != 1 || outcome != results.ErrorOutcome || checks[0].Code != results.CodeCutOff || !strings.Contains(checks[0].Why, points[0].Error) {
			t.Errorf("%s: %s: %+v", name, outcome, checks)
		}
	}
}

// Figures of a phase that the testbed spoilt are shown and not judged, and no repeat is asked for.
func TestSpoiltPhase(t *testing.T) {
	spoilt, clean := resultstest.One(0.1, 0.01, 0.5, 20), resultstest.One(0.5, 0.01, 0.5, 20)
	spoilt.Phases[0].Spoilt = "switch tor1 stood still"
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}
	checks, outcome, reasons := results.Judge([]results.Expect{e}, []results.Point{spoilt})
	if c := checks[0]; outcome != results.Inconclusive || c.Measured != 0.1 || c.Repeats != 1 || c.More != 0 || c.Code != results.CodeLimited {
		t.Errorf("%s, %q: %+v", outcome, reasons, c)
	}
	clean.Repeat = 1
	if checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{spoilt, clean}); outcome != results.Pass || !strings.Contains(checks[0].Why, "1 of 2 repeats left out: switch tor1 stood still") {
		t.Errorf("beside a clean repeat: %s, %+v", outcome, checks)
	}
	// Each repeat is predicted as it ran: what is left out is no part of what the others are held against,
	// and excuses none of them.
	spoilt.Phases[0].Figures[1].Value, spoilt.Phases[0].Stood = 0.1, "job A stood still"
	if checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{spoilt, clean}); outcome != results.Pass || checks[0].Predicted != 0.5 {
		t.Errorf("a repeat that is left out was predicted otherwise: %s, %+v", outcome, checks)
	}
	clean.Phases[0].Figures[0] = resultstest.One(0.1, 0.01, 0.5, 20).Phases[0].Figures[0]
	if checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{spoilt, clean}); outcome != results.Fail {
		t.Errorf("a repeat that is left out stood still: %s, %+v", outcome, checks)
	}
	clean = resultstest.One(0.5, 0.01, 0.5, 20)
	// A figure that could not be drawn says why.
	missing := results.Point{Phases: []results.Phase{{Figures: clean.Phases[0].Figures[1:], Missing: []results.Missing{{"share", "A@tor1", "readings do not cover the phase"}}}}}
	if checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{missing}); outcome != results.Inconclusive || checks[0].Why != "readings do not cover the phase" || checks[0].More != 0 {
		t.Errorf("missing: %s, %+v", outcome, checks)
	}
}

// A testbed that stood still excuses what fails, but no count, and nothing else changes.
func TestStoodStill(t *testing.T) {
	const why = "job A: it stood still for 6 % of its time"
	share := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: 0.03, Gate: true}
	mean, sums := share, results.Expect{Name: "e", Metric: "sum_errors", Predictor: "value", Gate: true}
	floor := results.Expect{Name: "e", Metric: "share", Predictor: "value", Value: 0.4, Bound: "at-least", Gate: true}
	mean.Statistic = "mean"
	bad := results.Point{Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig("sum_errors", "A", 3, 0, "1")}}}}
	for _, c := range []struct {
		name  string
		e     results.Expect
		point results.Point
		stood string // "stood": the testbed did; "unlike": the phase need not be what is predicted, "by 20 %" of that
		want  results.Outcome
	}{
		{"off", share, resultstest.One(0.1, 0.001, 0.5, 20), "", results.Fail},
		{"off", share, resultstest.One(0.1, 0.001, 0.5, 20), "stood", results.Inconclusive},
		{"holds", share, resultstest.One(0.5, 0.001, 0.5, 20), "stood", results.Pass},
		{"off in the mean", mean, resultstest.One(0.1, 0.001, 0.5, 20), "stood", results.Inconclusive},
		{"wrong sums", sums, bad, "stood", results.Fail},
		{"less than a value", floor, resultstest.One(0.1, 0.001, 0.5, 20), "stood", results.Inconclusive},
		{"off", share, resultstest.One(0.1, 0.001, 0.5, 20), "unlike", results.Inconclusive},
		{"less than a value", floor, resultstest.One(0.1, 0.001, 0.5, 20), "unlike", results.Fail},
		{"off by more than it may", share, resultstest.One(0.1, 0.001, 0.5, 20), "by 20 %", results.Fail},
		{"off by less", share, resultstest.One(0.38, 0.001, 0.5, 20), "by 20 %", results.Inconclusive},
		{"off by more in the mean", mean, resultstest.One(0.1, 0.001, 0.5, 20), "by 20 %", results.Fail},
		{"off by less in the mean", mean, resultstest.One(0.38, 0.001, 0.5, 20), "by 20 %", results.Inconclusive},
		{"holds", share, resultstest.One(0.5, 0.001, 0.5, 20), "by 20 %", results.Pass},
		{"less than a value", floor, resultstest.One(0.38, 0.001, 0.5, 20), "by 20 %", results.Fail},
	} {
		switch c.stood {
		case "stood":
			c.point.Phases[0].Stood = why
		case "unlike":
			c.point.Phases[0].Unlike = why
		case "by 20 %":
			c.point.Phases[0].Unlike, c.point.Phases[0].UnlikeBy = why, .2
		}
		checks, outcome, _ := results.Judge([]results.Expect{c.e}, []results.Point{c.point})
		if outcome != c.want || len(checks) != 1 || outcome == results.Inconclusive && (checks[0].Why != why || checks[0].Code != results.CodeLimited) {
			t.Errorf("%s, %s: %s, want %s: %+v", c.name, c.stood, outcome, c.want, checks)
		}
	}
}

// TestStoodStillOnce: a repeat in which the testbed stood still excuses none that fails by the other repeats, and these decide
// alone.
func TestStoodStillOnce(t *testing.T) {
	for _, tt := range []struct {
		name         string
		sound, stood []float64 // measured where .5 is predicted, in repeats
		want         results.Outcome
		repeats      int // that decide
	}{
		{"all off", []float64{.1, .1}, []float64{.1}, results.Fail, 2},
		{"one is enough", []float64{.1}, []float64{.1}, results.Fail, 1},
		{"off where it stood still", []float64{.5, .5}, []float64{.1}, results.Inconclusive, 3},
		{"off where it did not", []float64{.1}, []float64{.5}, results.Inconclusive, 2}, // both together do not say
		{"it stood still in all", nil, []float64{.1, .1}, results.Inconclusive, 2},
	} {
		for _, unlike := range []bool{false, true} {
			var points []results.Point
			add := func(v float64) *results.Point {
				p := resultstest.One(v, .001, .5, 20)
				p.Repeat = len(points)
				points = append(points, p)
				return &points[len(points)-1]
			}
			for _, v := range tt.sound {
				add(v)
			}
			for _, v := range tt.stood {
				if p := add(v); unlike {
					p.Phases[0].Unlike = "it lost much"
				} else {
					p.Phases[0].Stood = "it stood still"
				}
			}
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: .03, Gate: true}
			checks, got, _ := results.Judge([]results.Expect{e}, points)
			if got != tt.want || checks[0].Repeats != tt.repeats || got == results.Fail && !strings.Contains(checks[0].Why, "left out: it ") {
				t.Errorf("%s: %s, want %s: %+v", tt.name, got, tt.want, checks)
			}
		}
	}
	// So it is where it is the reference that stood still once.
	var points []results.Point
	for index, mode := range []string{"old", "new"} {
		for repeat := range 3 {
			p := resultstest.One(.5-.4*float64(index), .001, .5, 20)
			p.Index, p.Repeat, p.Labels = index, repeat, []string{"mode=" + mode}
			points = append(points, p)
		}
	}
	points[1].Phases[0].Stood = "it stood still"
	e := results.Expect{Name: "e", Metric: "share", Predictor: "mode=old", Against: "mode=old", Statistic: "each", Tolerance: .03, Gate: true}
	if checks, got, _ := results.Judge([]results.Expect{e}, points); got != results.Fail {
		t.Errorf("against others: %s: %+v", got, checks)
	}
}

// TestStoodStillElsewhere: a phase in which the testbed stood still excuses no other phase in a mean or maximum of both.
func TestStoodStillElsewhere(t *testing.T) {
	for _, c := range []struct {
		name         string
		sound, stood float64 // measured where .5 is predicted
		want         results.Outcome
	}{
		{"all is well", .5, .5, results.Pass},
		{"off where it stood still", .5, .1, results.Inconclusive},
		{"off where it did not", .1, .5, results.Fail},
		{"off in both", .1, .1, results.Fail},
		{"not by enough without the other", .46, .1, results.Inconclusive},
	} {
		for _, statistic := range []string{"mean", "max"} {
			if statistic == "max" && c.sound == .46 {
				continue // it is enough
			}
			p := resultstest.One(c.sound, .001, .5, 20)
			still := resultstest.One(c.stood, .001, .5, 20).Phases[0]
			still.Stood = "switch tor1 stood still"
			p.Phases = append(p.Phases, still)
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: statistic, Tolerance: .03, Gate: true}
			if checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{p}); outcome != c.want {
				t.Errorf("%s, %s: %s, want %s: %+v", c.name, statistic, outcome, c.want, checks)
			}
		}
	}
}

// TestRepeatsWithoutFigure: what only some repeats have measured is not known of the others, whether these say why or not.
func TestRepeatsWithoutFigure(t *testing.T) {
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}
	for _, c := range []struct {
		name   string
		change func(ph *results.Phase)
		want   results.Outcome
	}{
		{"all have it", func(*results.Phase) {}, results.Pass},
		{"one was predicted, and not measured", func(ph *results.Phase) { ph.Figures = ph.Figures[1:] }, results.Inconclusive},
		{"one was not, and says why", func(ph *results.Phase) {
			ph.Figures, ph.Missing = nil, []results.Missing{{Metric: "share", Of: "A@tor1", Why: "no readings"}}
		}, results.Inconclusive},
		{"one has nothing of the kind", func(ph *results.Phase) { ph.Figures = nil }, results.Pass},
	} {
		var points []results.Point
		for repeat := range 3 {
			p := resultstest.One(.5, .001, .5, 20)
			if p.Repeat = repeat; repeat == 1 {
				c.change(&p.Phases[0])
			}
			points = append(points, p)
		}
		if checks, outcome, _ := results.Judge([]results.Expect{e}, points); outcome != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, c.want, checks)
		}
	}
}

// fiveOfHundred are expectations that allow the same error where 100 is predicted: as a part of it, and in its unit.
func fiveOfHundred(metric string) []results.Expect {
	part := results.Expect{Name: "a part", Metric: metric, Predictor: "occupancy", Statistic: "each", Tolerance: .05, Relative: true, Gate: true}
	absolute := part
	absolute.Name, absolute.Tolerance, absolute.Relative = "absolute", 5, false
	return []results.Expect{part, absolute}
}

// A rate that is off by no more than frames were late is the machine's, perhaps; one that is further
// off is not, and neither is a share.
func TestLateFrames(t *testing.T) {
	for _, tt := range []struct {
		name, metric string
		error, late  float64
		outcome      results.Outcome
	}{
		{"nothing was late", "goodput", -.06, 0, results.Fail},
		{"a little more than the tolerance, of a round trip 9 % late", "goodput", -.06, .09, results.Inconclusive},
		{"others have more", "link_rate", .06, .09, results.Inconclusive},
		{"more than that", "goodput", -.16, .09, results.Fail},
		{"within the tolerance", "goodput", -.04, .09, results.Pass},
		{"a share", "share", -.06, .09, results.Fail},
	} {
		got := resultstest.MeasuredFig(tt.metric, "A", 100*(1+tt.error), .2, "bit/s")
		got.N = 20
		p := results.Point{Phases: []results.Phase{{Figures: []results.Figure{got, resultstest.PredictedFig(tt.metric, "A", 100, "bit/s", "occupancy", "")}}}}
		if tt.late > 0 {
			p.Health = []results.Trouble{{Where: "switch tor1", What: "frames leave 9 ms late (p99)", Value: tt.late, Code: results.CodeLimited}, {Where: "worker A/0", What: "stood still", Value: .2}}
		}
		for _, e := range fiveOfHundred(tt.metric) {
			checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{p})
			if outcome != tt.outcome || outcome == results.Inconclusive && (checks[0].Code != results.CodeLimited || !strings.Contains(checks[0].Why, "switch tor1")) {
				t.Errorf("%s, %s: %s, %+v", tt.name, e.Name, outcome, checks)
			}
		}
	}
}

// TestCaughtUp: a rate that is more by no more than what waited in times that are left out may be the machine's; one that
// is less, or more than that, is not, and neither is a share.
func TestCaughtUp(t *testing.T) {
	for _, tt := range []struct {
		name, metric  string
		error, stalls float64 // seconds of ten
		outcome       results.Outcome
	}{
		{"nothing is left out", "goodput", .15, 0, results.Fail},
		{"more, by what waited", "goodput", .15, 1, results.Inconclusive},
		{"steps, by what waited", "step_rate", .15, 1, results.Inconclusive},
		{"more than that", "goodput", .17, 1, results.Fail},
		{"less", "goodput", -.15, 1, results.Fail},
		{"a share", "share", .15, 1, results.Fail},
	} {
		got := resultstest.MeasuredFig(tt.metric, "A", 100*(1+tt.error), .2, "bit/s")
		got.N = 20
		ph := results.Phase{End: 10, Figures: []results.Figure{got, resultstest.PredictedFig(tt.metric, "A", 100, "bit/s", "occupancy", "")}}
		if tt.stalls > 0 {
			ph.LeftOut = []results.Stall{{Span: results.Span{Start: 1, End: 1 + tt.stalls}, Why: "switch tor1: frames left late"}}
		}
		for _, e := range fiveOfHundred(tt.metric) {
			checks, outcome, _ := results.Judge([]results.Expect{e}, []results.Point{{Phases: []results.Phase{ph}}})
			if outcome != tt.outcome || outcome == results.Inconclusive && (checks[0].Code != results.CodeLimited || !strings.Contains(checks[0].Why, "left out")) {
				t.Errorf("%s, %s: %s, %+v", tt.name, e.Name, outcome, checks)
			}
		}
	}
}

// A prediction that says by how much one run may be off does not fail one that is.
func TestSpreadOfPredictions(t *testing.T) {
	for _, c := range []struct {
		measured float64
		want     results.Outcome
	}{{.5, results.Pass}, {.52, results.Pass}, {.58, results.Inconclusive}, {.7, results.Fail}} {
		p := resultstest.One(c.measured, .005, .5, 20)
		f := &p.Phases[0].Figures[1]
		f.Lo, f.Hi = .4, .6
		checks, outcome, _ := results.Judge([]results.Expect{{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}}, []results.Point{p})
		if outcome != c.want {
			t.Errorf("%g: %s, want %s: %+v", c.measured, outcome, c.want, checks)
		}
	}
}

// Repeats that differ as a prediction of a steady state says are as many draws of it, and decide more than one does.
// Those that are alike, where one run may be in either of two states, are one: they fail only where no single run may be.
// So are all where each run was followed: the machine chooses between states, and it is the same in all of them.
func TestRepeatsInOneState(t *testing.T) {
	for _, c := range []struct {
		name     string
		measured []float64
		want     results.Outcome
		followed results.Outcome
	}{
		{"one in the rarer state", []float64{.2}, results.Inconclusive, results.Inconclusive},
		{"all in it", []float64{.2, .21, .19}, results.Inconclusive, results.Inconclusive},
		{"ten in it", []float64{.2, .21, .19, .2, .2, .21, .19, .2, .2, .2}, results.Inconclusive, results.Inconclusive},
		{"some of each, fewer than predicted", []float64{.2, .21, 1, .19, .2, .2, .2, .19, .2}, results.Fail, results.Inconclusive},
		{"all outside of both", []float64{.02, .03, .02}, results.Fail, results.Fail},
		{"all as predicted", []float64{.86, .87, .86}, results.Pass, results.Pass},
	} {
		for _, followed := range []bool{false, true} {
			var points []results.Point
			for i, m := range c.measured {
				p := resultstest.One(m, .005, .867, 20)
				p.Repeat = i + 1
				f := &p.Phases[0].Figures[1]
				f.Lo, f.Hi, f.OfRun = .12, 1, followed
				points = append(points, p)
			}
			want := c.want
			if followed {
				want = c.followed
			}
			checks, outcome, _ := results.Judge([]results.Expect{{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .04, Gate: true}}, points)
			if outcome != want {
				t.Errorf("%s, followed %t: %s, want %s: %+v", c.name, followed, outcome, want, checks)
			}
			if alike := c.want == results.Inconclusive && len(c.measured) > 1; alike && (checks[0].More != 0 || checks[0].Code != results.CodeVaries || !strings.Contains(checks[0].Why, "alike")) {
				t.Errorf("%s, followed %t: %+v", c.name, followed, checks[0])
			}
		}
	}
}

// Repeats of which each is predicted as it ran pass if each is as predicted: errors do not cancel.
func TestRepeatsThatCancel(t *testing.T) {
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}
	for _, c := range []struct {
		name                string
		measured, predicted []float64
		want                results.Outcome
	}{
		{"off to both sides", []float64{.3, .7}, []float64{.5, .5}, results.Inconclusive},
		{"one of three off", []float64{.5, .56, .5}, []float64{.5, .5, .5}, results.Inconclusive},
		{"each as it was predicted", []float64{.3, .7}, []float64{.31, .69}, results.Pass},
		{"predicted to both sides", []float64{.5, .5}, []float64{.3, .7}, results.Inconclusive},
		{"measured in one of them, which is off", []float64{.5, 0, 0}, []float64{.3, .7, .5}, results.Fail},
		{"each far off to one side", []float64{.7, .7}, []float64{.5, .5}, results.Fail},
		{"one without a prediction", []float64{.5, .53}, []float64{.5}, results.Inconclusive},
	} {
		var points []results.Point
		for i, v := range c.measured {
			p := resultstest.One(v, .005, .5, 20)
			p.Repeat = i
			f := p.Phases[0].Figures
			f[0].Counted, f[0].Grain, f[1].OfRun = true, .001, true
			if i < len(c.predicted) {
				f[1].Value, f[1].Lo, f[1].Hi = c.predicted[i], c.predicted[i], c.predicted[i]
			} else {
				p.Phases[0].Figures = f[:1]
			}
			if v == 0 {
				p.Phases[0].Figures = f[1:] // it measured nothing
			}
			points = append(points, p)
		}
		if checks, outcome, _ := results.Judge([]results.Expect{e}, points); outcome != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, c.want, checks)
		}
	}
}

// Predictions that differ from repeat to repeat are each of its own: one that is wrong to both sides is no pass, and does not
// count as right where errors are summed up; one that is right is not held to how much repeats differ.
func TestOwnPredictions(t *testing.T) {
	for _, c := range []struct {
		name                string
		simulated, foretold []float64
		want                results.Outcome
		mean                float64
	}{
		{"wrong to both sides", []float64{100, 100, 100, 100, 100, 100}, []float64{50, 150, 100, 50, 150, 100}, results.Inconclusive, 100. / 3 / 100},
		{"right of repeats that differ", []float64{100, 50, 200}, []float64{100, 50, 200}, results.Pass, 0},
		{"too high in each", []float64{100, 50, 200}, []float64{200, 100, 400}, results.Fail, .5},
		{"too high in some", []float64{100, 50, 200}, []float64{100, 50, 400}, results.Inconclusive, 200. / 550},
	} {
		var points []results.Point
		for i, v := range c.simulated {
			p := resultstest.Trial("", "netpack", i, v)
			f := p.Phases[0].Figures[2]
			g := f
			g.Kind, g.Predictor, g.Value, g.Lo, g.Hi = results.Predicted, "mine", c.foretold[i], c.foretold[i], c.foretold[i]
			p.Phases[0].Figures = []results.Figure{f, g}
			points = append(points, p)
		}
		for _, statistic := range []string{"each", "mean", "max"} {
			e := results.Expect{Name: "e", Metric: "avg_jct", Predictor: "mine", Tolerance: .05, Relative: true, Gate: true, Statistic: statistic}
			if checks, outcome, _ := results.Judge([]results.Expect{e}, points); outcome != c.want {
				t.Errorf("%s, %s: %s, want %s: %+v", c.name, statistic, outcome, c.want, checks)
			}
		}
		if m := results.ModelErrors(points); len(m) != 1 || math.Abs(m[0].Mean-c.mean) > .002 {
			t.Errorf("%s: errors %+v, want %g", c.name, m, c.mean)
		}
	}
}

// TestFailedPredictor: where a predictor said nothing in a repeat, what was measured in that repeat is held against nothing,
// and that the others are as predicted is no pass.
func TestFailedPredictor(t *testing.T) {
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}
	for _, c := range []struct {
		name                string
		measured, predicted []float64 // of each repeat; 0: it failed
		want                results.Outcome
		off                 float64
	}{
		{"the other repeat is as predicted", []float64{.5, .9}, []float64{.5, 0}, results.Inconclusive, 0},
		{"it is the second one", []float64{.9, .5}, []float64{0, .5}, results.Inconclusive, 0},
		{"the other repeat is far off", []float64{.9, .5}, []float64{.5, 0}, results.Fail, .4},
	} {
		var points []results.Point
		for i, v := range c.measured {
			p := resultstest.One(v, .001, c.predicted[i], 20)
			if p.Repeat = i; c.predicted[i] == 0 {
				p.Phases[0].Figures = p.Phases[0].Figures[:1]
			}
			points = append(points, p)
		}
		checks, outcome, _ := results.Judge([]results.Expect{e}, points)
		if len(checks) != 1 || outcome != c.want || math.Abs(checks[0].Error-c.off) > 1e-9 {
			t.Errorf("%s: %s, want %s and off by %g: %+v", c.name, outcome, c.want, c.off, checks)
		}
		if m := results.ModelErrors(points); len(m) != 1 || math.Abs(m[0].Max-c.off) > 1e-9 {
			t.Errorf("%s: errors %+v, want %g", c.name, m, c.off)
		}
	}
}

// TestSilentPredictor: a repeat in which a predictor speaks of other subjects, and not of one, leaves that one to the others.
func TestSilentPredictor(t *testing.T) {
	var points []results.Point
	for i := range 2 {
		p := resultstest.One(.5, .001, .5, 20)
		p.Repeat = i
		f := p.Phases[0].Figures
		f = append(f, resultstest.MeasuredFig("share", "B@tor1", .5, .001, "1"), resultstest.PredictedFig("share", "B@tor1", .5, "1", "occupancy", "tor1"))
		if i == 1 {
			f = slices.Delete(f, 1, 2)
		}
		p.Phases[0].Figures = f
		points = append(points, p)
	}
	e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}
	checks, outcome, _ := results.Judge([]results.Expect{e}, points)
	if outcome != results.Pass || len(checks) != 2 || checks[0].Repeats != 1 || checks[1].Repeats != 2 {
		t.Errorf("%s: %+v", outcome, checks)
	}
}

// TestMissingFigures: what could not be measured is undecided, whatever it is held against; what others were is no answer.
func TestMissingFigures(t *testing.T) {
	figure := func(of string, v float64) results.Figure {
		return resultstest.MeasuredFig("goodput", of, v, .01*v, "bit/s")
	}
	gone := []results.Missing{{"goodput", "R", "one message takes more than half of the phase"}}
	point := func(i int, mode string, missing []results.Missing, figures ...results.Figure) results.Point {
		return results.Point{Index: i, Labels: []string{"mode=" + mode}, Phases: []results.Phase{{Figures: figures, Missing: missing}}}
	}
	against := results.Expect{Name: "e", Metric: "goodput", Predictor: "mode=old", Against: "mode=old", Tolerance: .1, Relative: true, Gate: true}
	value := results.Expect{Name: "e", Metric: "goodput", Predictor: "value", Value: 5, Bound: "at-least", Gate: true}
	repeat := func(i int, missing []results.Missing, figures ...results.Figure) results.Point {
		p := point(0, "old", missing, figures...)
		p.Repeat = i
		return p
	}
	spoilt := point(0, "old", nil, figure("A", 10), figure("R", 10))
	spoilt.Phases[0].Spoilt = "switch tor1 stood still"
	for _, c := range []struct {
		name   string
		e      results.Expect
		points []results.Point
		why    map[string]string // by subject, of what is undecided
	}{
		{"against a value", value, []results.Point{point(0, "old", gone, figure("A", 10))}, map[string]string{"R": "one message"}},
		{"against a value, of others", results.Expect{Name: "e", Metric: "goodput", Of: "A", Predictor: "value", Value: 5, Bound: "at-least", Gate: true}, []results.Point{point(0, "old", gone, figure("A", 10))}, nil},
		{"here, against another point", against, []results.Point{point(0, "old", nil, figure("A", 10), figure("R", 10)), point(1, "new", gone, figure("A", 10))}, map[string]string{"R": "one message"}},
		{"there", against, []results.Point{point(0, "old", gone, figure("A", 10)), point(1, "new", nil, figure("A", 10), figure("R", 10))}, map[string]string{"R": "mode=old: one message"}},
		{"in one of two repeats", value, []results.Point{repeat(0, nil, figure("A", 10), figure("R", 10)), repeat(1, gone, figure("A", 10))}, map[string]string{"R": "1 of 2 repeats have no figure: one message"}},
		{"there, for it is not there", against, []results.Point{point(0, "old", nil, figure("A", 10)), point(1, "new", nil, figure("A", 10), figure("R", 10))}, nil},
		{"there, for the phase was spoilt", against, []results.Point{spoilt, point(1, "new", nil, figure("A", 10), figure("R", 5))}, map[string]string{"A": "mode=old: switch tor1", "R": "mode=old: switch tor1"}},
	} {
		checks, outcome, _ := results.Judge([]results.Expect{c.e}, c.points)
		if want := map[bool]results.Outcome{true: results.Pass, false: results.Inconclusive}[len(c.why) == 0]; outcome != want {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, want, checks)
		}
		for _, k := range checks {
			if why, open := c.why[k.Of]; open && (k.Outcome != results.Inconclusive || !strings.HasPrefix(k.Why, why)) || !open && k.Outcome != results.Pass {
				t.Errorf("%s: %s is %s (%s), want %q", c.name, k.Of, k.Outcome, k.Why, why)
			}
		}
	}
}

// TestLacking: a point that has no figure of the cluster, where others do, is undecided. Of jobs each point has its own.
func TestLacking(t *testing.T) {
	point := func(i int, of string, metrics ...string) results.Point {
		p := results.Point{Index: i, Labels: []string{fmt.Sprint("a=", i)}, Phases: []results.Phase{{}}}
		for _, m := range metrics {
			p.Phases[0].Figures = append(p.Phases[0].Figures, resultstest.MeasuredFig(m, of, 1, 0, "1"))
		}
		return p
	}
	e := results.Expect{Name: "e", Metric: "ina_score", Predictor: "value", Value: .9, Bound: "at-least", Gate: true}
	for _, c := range []struct {
		name   string
		points []results.Point
		want   results.Outcome
	}{
		{"all have it", []results.Point{point(0, results.Cluster, "ina_score"), point(1, results.Cluster, "ina_score")}, results.Pass},
		{"one has another", []results.Point{point(0, results.Cluster, "ina_score"), point(1, results.Cluster, "avg_jct")}, results.Inconclusive},
		{"of jobs", []results.Point{point(0, "A", "ina_score"), point(1, "B", "avg_jct")}, results.Pass},
	} {
		if checks, outcome, _ := results.Judge([]results.Expect{e}, c.points); outcome != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, c.want, checks)
		}
	}
}

// TestLackingAgainst: a point that is held against another and has no figure is undecided.
func TestLackingAgainst(t *testing.T) {
	point := func(i int, mode, memory, metric string) results.Point {
		return results.Point{Index: i, Labels: []string{"mode=" + mode, "memory=" + memory}, Phases: []results.Phase{{Figures: []results.Figure{resultstest.MeasuredFig(metric, "A", 1, 0, "1/s")}}}}
	}
	e := results.Expect{Name: "e", Metric: "step_rate", Against: "mode=a", Predictor: "against", Bound: "at-most", Tolerance: .1, Relative: true, Gate: true}
	for _, c := range []struct {
		name, metric string
		want         results.Outcome
	}{
		{"all have it", "step_rate", results.Pass},
		{"one has not", "goodput", results.Inconclusive},
	} {
		points := []results.Point{point(0, "a", "1", "step_rate"), point(1, "b", "1", "step_rate"), point(2, "a", "2", "step_rate"), point(3, "b", "2", c.metric)}
		if checks, outcome, _ := results.Judge([]results.Expect{e}, points); outcome != c.want || len(checks) != 2 {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, c.want, checks)
		}
	}
}

// A prediction of this very run is held against what was counted: that passes whatever the interval is, and fails by
// it. Of a steady state the interval decides.
func TestPredictionOfTheRun(t *testing.T) {
	for _, c := range []struct {
		name           string
		ofRun          bool
		measured, half float64
		grain, loose   float64
		want           results.Outcome
	}{
		{"counted within the tolerance, in a phase that varies", true, .52, .1, .001, 0, results.Pass},
		{"the same of a steady state", false, .52, .1, .001, 0, results.Inconclusive},
		{"without an interval", true, .52, 0, .001, 0, results.Pass},
		{"what a batch of readings may move across the tolerance", true, .52, .1, .05, 0, results.Inconclusive},
		{"outside, by less than phases vary", true, .55, .1, .001, 0, results.Inconclusive},
		{"outside, by more", true, .55, .01, .001, 0, results.Fail},
		{"far outside", true, .8, .4, .001, 0, results.Fail},
		{"far outside, of counts that are not all of one place", true, .8, .4, .001, .5, results.Inconclusive},
		{"the same, within the tolerance", true, .52, .1, .001, .5, results.Pass},
	} {
		p := resultstest.One(c.measured, c.half, .5, 20)
		f := p.Phases[0].Figures
		f[0].Counted, f[0].Grain, f[0].Loose, f[1].OfRun = true, c.grain, c.loose, c.ofRun
		if c.half == 0 {
			f[0].N = 1
		}
		checks, outcome, _ := results.Judge([]results.Expect{{Name: "e", Metric: "share", Predictor: "occupancy", Tolerance: .03, Gate: true}}, []results.Point{p})
		if outcome != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, outcome, c.want, checks)
		}
	}
}

// TestStallOfReadings: a job that stalls after a fifth of its phase fails by its count, also where its readings
// depend so much on each other that there is no interval.
func TestStallOfReadings(t *testing.T) {
	growth := make([]float64, 20)
	for i := range 4 {
		growth[i] = 117
	}
	f, err := results.Rate(results.Window{End: 20}, counter(growth))
	if err != nil || !f.Counted {
		t.Fatalf("%+v, %v", f, err)
	}
	f.Kind, f.Metric, f.Of, f.Unit = results.Measured, "link_rate", "l1", "bit/s"
	p := results.Point{Phases: []results.Phase{{Figures: []results.Figure{f, resultstest.PredictedFig("link_rate", "l1", 117, "bit/s", "occupancy", "")}}}}
	e := results.Expect{Name: "e", Metric: "link_rate", Predictor: "occupancy", Statistic: "each", Tolerance: .05, Relative: true, Gate: true}
	if checks, got, _ := results.Judge([]results.Expect{e}, []results.Point{p}); got != results.Fail || checks[0].More != 0 {
		t.Errorf("%s: %+v", got, checks)
	}
}

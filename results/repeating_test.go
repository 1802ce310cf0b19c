package results

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// repeated is a record's points: a point for each list of values, a repeat for each value; NaN: it has no figure.
func repeated(values ...[]float64) (points []Point) {
	for i, list := range values {
		for repeat, v := range list {
			p := Point{Index: i, Repeat: repeat, Labels: []string{"k=" + string(rune('a'+i))}, Phases: []Phase{{}}}
			if !math.IsNaN(v) {
				p.Phases[0].Figures = []Figure{{Metric: "avg_jct", Of: Cluster, Kind: Simulated, Value: v, Lo: v, Hi: v, Unit: "s"}}
			}
			points = append(points, p)
		}
	}
	return points
}

// around is n values whose mean is 10 and that are spread to both sides of it by so much.
func around(n int, by float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 10 + by*float64(1-2*(i%2))
	}
	return out
}

func constant(n int, v float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// TestRepeating: repeats end when the widest interval of all points is narrow, or when there are as many as may be.
func TestRepeating(t *testing.T) {
	none := math.NaN()
	for _, c := range []struct {
		name   string
		points []Point
		more   int
		says   string
	}{
		{"all alike", repeated(constant(10, 3), constant(10, 0)), 0, "10 repeats: average JCT of each point is the same in all of them"},
		{"narrow", repeated(around(10, .6)), 0, "10 repeats: average JCT of each point is known to 5 %"},
		{"one is wide", repeated(around(10, .1), around(10, 1)), 2, "average JCT of k=b is known to 7.5 %, not to 5 %"},
		{"later by more", repeated(around(20, 2)), 5, "not to 5 %"},
		{"the most is near", repeated(around(28, 5)), 2, "not to 5 %"},
		{"the most", repeated(around(30, 5)), 0, "30 repeats, the most: average JCT of k=a is known to 19.0 %, not to 5 %"},
		{"about nothing", repeated([]float64{-1, 1, -1, 1, -1, 1, -1, 1, -1, 1}), 2, "no better than 100 %"},
		{"too few figures", repeated(append(constant(9, 3), none)), 2, "some of them have no average JCT at 1 point"},
		{"a point without any", repeated(constant(10, 3), constant(10, none)), 0, "10 repeats: average JCT of each point that has it is the same in all of them"},
		{"no figure at all", repeated(constant(10, none)), 0, "10 repeats: no point has average JCT"},
	} {
		r := &Repeating{Metric: "avg_jct", Precision: .05, Least: LeastRepeats, Most: 30}
		if more := r.More(c.points); more != c.more || !strings.Contains(r.String(), c.says) {
			t.Errorf("%s: %d more, want %d; it says %q, want %q", c.name, more, c.more, r, c.says)
		}
	}
	if (*Repeating)(nil).More(repeated(around(10, 1))) != 0 {
		t.Error("a number that is fixed: more repeats")
	}
}

// TestRepeatingCutOff: a run that is cut off says nothing of the points that it had when somebody looked last.
func TestRepeatingCutOff(t *testing.T) {
	r := &Repeating{Metric: "avg_jct", Precision: .05, Least: LeastRepeats, Most: 30}
	began := *r
	r.More(repeated(around(10, 1), constant(10, math.NaN())))
	if r.Repeats != 10 || r.Without != 1 || r.Where == "" {
		t.Errorf("%+v: nobody looked", r)
	}
	r.CutOff()
	if *r != began || r.Holds() != "" || !strings.Contains(r.String(), "10 to 30 repeats, until average JCT of each point is known to 5 %: it was cut off") {
		t.Errorf("%+v: %s; %s", r, r, r.Holds())
	}
	(*Repeating)(nil).CutOff()
}

// TestRepeatingHolds: what is said of intervals is of those whose width ended the repeats.
func TestRepeatingHolds(t *testing.T) {
	for _, c := range []struct {
		name   string
		points []Point
		want   bool
	}{
		{"narrow", repeated(around(10, .6)), true},
		{"alike", repeated(constant(10, 3)), false},
		{"the most", repeated(around(30, 5)), false},
	} {
		r := &Repeating{Metric: "avg_jct", Precision: .05, Least: LeastRepeats, Most: 30}
		if r.More(c.points); (r.Holds() != "") != c.want {
			t.Errorf("%s: %q", c.name, r.Holds())
		}
	}
}

// TestRepeatingCoverage: how often the interval holds with which repeats end. What they are drawn of has a mean of 1, and
// would need 5, 12, 20 and 35 repeats for an interval of 5 %, were that known beforehand: of each, it is 90 % where it is
// normal. Who may stop at two finds narrow ones by chance, and of an exponential the narrow ones are too low.
func TestRepeatingCoverage(t *testing.T) {
	t.Parallel()
	const trials, precision = 300, .05
	normal := func(r *rand.Rand) float64 { return r.NormFloat64() }
	skewed := func(r *rand.Rand) float64 { return r.ExpFloat64() - 1 }
	needs := []float64{5, 12, 20, 35}
	held := func(least int, needed float64, draw func(*rand.Rand) float64) float64 {
		r := rand.New(rand.NewPCG(uint64(needed), uint64(least)))
		held := 0
		for range trials {
			rule := &Repeating{Metric: "avg_jct", Precision: precision, Least: least, Most: 200}
			var values []float64
			for more := least; more > 0; more = rule.More(repeated(values)) {
				for range more {
					values = append(values, 1+precision/1.96*math.Sqrt(needed)*draw(r))
				}
			}
			if f := Mean(values); f.Lo <= 1 && 1 <= f.Hi {
				held++
			}
		}
		return float64(held) / trials
	}
	var ten, two, low float64 // means
	for _, needed := range needs {
		of := held(LeastRepeats, needed, normal)
		if of < .90 {
			t.Errorf("%.3f of intervals hold where %v repeats are needed, want at least 0.90", of, needed)
		}
		n := float64(len(needs))
		ten, two, low = ten+of/n, two+held(2, needed, normal)/n, low+held(LeastRepeats, needed, skewed)/n
	}
	t.Logf("%.3f of intervals hold from %d repeats on, %.3f from 2 on, %.3f of an exponential", ten, LeastRepeats, two, low)
	if two >= ten || low >= ten {
		t.Errorf("%.3f of intervals hold from two repeats on, %.3f of an exponential, and %.3f otherwise: this test cannot tell them apart", two, low, ten)
	}
}

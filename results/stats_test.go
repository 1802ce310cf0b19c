package results_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestStudentT holds the quantiles against printed tables (Abramowitz and Stegun,
// table 26.10).
func TestStudentT(t *testing.T) {
	for df, want := range map[float64]float64{1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 19: 2.093, 60: 2.000, 1e6: 1.960} {
		if got := results.StudentT(df); math.Abs(got-want) > 0.0006 {
			t.Errorf("StudentT(%g) = %.4f, want %.3f", df, got, want)
		}
	}
	// The same table, and the least and the most that it says.
	for _, tt := range [][3]float64{{3, 0.25, 0.765}, {10, 0.005, 3.169}, {20, 0.0005, 3.850}, {7, 0.5, 0}, {0.1, 1e-9, 1 << 20}} {
		if got := results.StudentTail(tt[0], tt[1]); math.Abs(got-tt[2]) > 0.0006 {
			t.Errorf("StudentTail(%g, %g) = %.4f, want %.3f", tt[0], tt[1], got, tt[2])
		}
	}
	// F(1, n) is the square of t(n).
	for _, df := range []float64{1, 4, 30} {
		if got := results.FTail(results.StudentT(df)*results.StudentT(df), 1, df); math.Abs(got-0.05) > 1e-6 {
			t.Errorf("P(F > t²) with %g degrees of freedom = %g, want 0.05", df, got)
		}
	}
}

func TestMean(t *testing.T) {
	if f := results.Mean([]float64{3}); f != (results.Figure{Value: 3, Lo: 3, Hi: 3, N: 1}) {
		t.Errorf("of one: %+v", f)
	}
	// The variance is 8/3, and t with 3 degrees of freedom 3.182.
	if f := results.Mean([]float64{1, 3, 3, 5}); f.Value != 3 || f.N != 4 || math.Abs(f.Hi-3-3.182*math.Sqrt(8.0/3)/2) > 0.001 || math.Abs(f.Hi+f.Lo-6) > 1e-12 {
		t.Errorf("%+v", f)
	}
	if a, b := results.Median([]float64{5, 1, 3}), results.Median([]float64{9, 1, 5, 3}); a != 3 || b != 4 {
		t.Errorf("medians %v and %v", a, b)
	}
	if m := results.Median([]float64{math.MaxFloat64}); m != math.MaxFloat64 {
		t.Errorf("median of the largest number is %v", m)
	}
}

// counter sums interval values up, read every second from t = 0.
func counter(growth []float64) results.Series {
	s := results.Series{T: []float64{0}, V: []float64{0}}
	for i, g := range growth {
		s.T = append(s.T, float64(i+1))
		s.V = append(s.V, s.V[i]+g)
	}
	return s
}

// Readings that do not cover a window give no figure, however sure they are of what they saw.
func TestWindow(t *testing.T) {
	steady := func(from, to float64) (s results.Series) {
		for t := from; t <= to+1e-9; t += 0.1 {
			s.T, s.V = append(s.T, t), append(s.V, 100*t)
		}
		return s
	}
	hole := steady(0, 2)
	for i, tt := range steady(4, 6).T {
		hole.T, hole.V = append(hole.T, tt), append(hole.V, steady(4, 6).V[i])
	}
	for _, c := range []struct {
		name string
		w    results.Window
		s    results.Series
		err  error
		rate float64
	}{
		{"all of it", results.Window{Start: 0, End: 5}, steady(0, 6), nil, 100},
		{"they end at 1.2 of 5 s", results.Window{Start: 0, End: 5}, steady(0, 1.2), results.ErrUncovered, 0},
		{"they begin at 1.2 of 5 s", results.Window{Start: 0, End: 5}, steady(1.2, 5), results.ErrUncovered, 0},
		{"none for 2 of 6 s", results.Window{Start: 0, End: 6}, hole, results.ErrUncovered, 0},
		{"which is left out", results.Window{Start: 0, End: 6, Out: []results.Span{{1.95, 4.05}}}, hole, nil, 100},
		{"three of ten missed", results.Window{Start: 0, End: 1}, results.Series{T: []float64{0, .1, .2, .3, .4, .6, .7, .8, .9, 1}, V: []float64{0, 10, 20, 30, 40, 60, 70, 80, 90, 100}}, nil, 100},
		{"read twice", results.Window{Start: 0, End: 1}, results.Series{T: []float64{0, 1}, V: []float64{0, 100}}, nil, 100},
		{"whole periods", results.Window{Start: 0, End: 5, Apart: 1.5}, steady(0, 6), nil, 100},
		{"not one period", results.Window{Start: 0, End: 5, Apart: 7}, steady(0, 6), results.ErrShort, 0},
	} {
		f, err := results.Rate(c.w, c.s)
		if !errors.Is(err, c.err) || math.Abs(f.Value-c.rate) > 1e-6 {
			t.Errorf("%s: %+v, %v", c.name, f, err)
		}
	}
	// What is left out does not count, neither its time nor what was carried in it.
	s := counter([]float64{10, 10, 0, 0, 10, 10, 10, 10})
	if f, err := results.Rate(results.Window{End: 8, Out: []results.Span{{2, 4}}}, s); err != nil || math.Abs(f.Value-10) > 1e-9 || f.Hi-f.Lo > 1e-9 {
		t.Errorf("without a stall: %+v, %v", f, err)
	}
	if l := (results.Window{Start: 1, End: 8, Out: []results.Span{{0, 2}, {3, 4}, {7, 9}}}).Length(); l != 4 {
		t.Errorf("length %g, want 4", l)
	}
	// A sum has the gaps of its parts.
	if _, err := results.Rate(results.Window{End: 6}, results.Sum(steady(0, 6), hole)); !errors.Is(err, results.ErrUncovered) {
		t.Errorf("a sum over a gap: %v", err)
	}
}

// What is counted in whole pieces is counted from step to step.
func TestWhole(t *testing.T) {
	for _, c := range []struct {
		name   string
		growth []float64
		want   results.Span
	}{
		{"a step in three readings", []float64{0, 3, 0, 0, 3, 0, 0, 3, 0}, results.Span{2, 8}},
		{"all the time", []float64{1, 1, 1, 1, 1}, results.Span{1, 5}},
		{"it stops", []float64{0, 3, 0, 3, 0, 0, 0, 0, 0}, results.Span{0, 9}},
		{"it begins late", []float64{0, 0, 0, 0, 0, 1, 1, 1, 1}, results.Span{0, 9}},
		{"one step", []float64{0, 0, 1, 0}, results.Span{0, 4}},
		{"none", []float64{0, 0, 0, 0}, results.Span{0, 4}},
	} {
		if w := (results.Window{End: float64(len(c.growth))}).Whole(counter(c.growth)); w.Start != c.want.Start || w.End != c.want.End {
			t.Errorf("%s: from %g to %g, want %v", c.name, w.Start, w.End, c.want)
		}
	}
}

func TestStood(t *testing.T) {
	s := counter([]float64{5, 5, 0, 0, 0, 5, 1, 1})
	for _, c := range []struct {
		start, end, least float64
		want              results.Span
	}{
		{0, 8, 0, results.Span{2, 5}},
		{3, 8, 0, results.Span{3, 5}},
		{5, 8, 1, results.Span{6, 7}},
		{0, 2, 0, results.Span{}},
	} {
		if got := s.Stood(c.start, c.end, c.least); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestCoverage draws windows whose true mean is known and counts how often an interval
// does not hold it: 5 % is what it promises, more is a lie.
func TestCoverage(t *testing.T) {
	const windows = 3000
	white := func(r *rand.Rand, n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = 100 + 20*r.NormFloat64()
		}
		return x
	}
	ar := func(rho float64) func(*rand.Rand, int) []float64 {
		return func(r *rand.Rand, n int) []float64 {
			x := make([]float64, n)
			e := r.NormFloat64()
			for i := range x {
				e = rho*e + math.Sqrt(1-rho*rho)*r.NormFloat64()
				x[i] = 100 + 20*e
			}
			return x
		}
	}
	skewed := func(r *rand.Rand, n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = 100 * r.ExpFloat64()
		}
		return x
	}
	for _, c := range []struct {
		name     string
		n        int
		draw     func(*rand.Rand, int) []float64
		low      float64
		maxWidth float64 // mean width over that of the known sigma; honest is not the same as useless
	}{
		{"white, 3 intervals", 3, white, 0.94, 4},
		{"white, 10 intervals", 10, white, 0.94, 2},
		{"white, 20 intervals", 20, white, 0.94, 1.4},
		{"white, 137 intervals", 137, white, 0.94, 1.4},
		{"rho 0.5, 60 intervals", 60, ar(0.5), 0.93, 3},
		{"rho 0.5, 20 intervals", 20, ar(0.5), 0.92, 6},
		{"rho 0.8, 200 intervals", 200, ar(0.8), 0.93, 6},
		{"rho 0.9, 30 intervals", 30, ar(0.9), 0.92, 30},
		{"rho 0.9, 60 intervals", 60, ar(0.9), 0.93, 40},
		{"exponential, 100 intervals", 100, skewed, 0.93, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resultstest.Random(t)
			held, width := 0, 0.0
			for range windows {
				f, err := results.Rate(results.Window{End: float64(c.n)}, counter(c.draw(r, c.n)))
				if err != nil {
					t.Fatal(err)
				}
				if f.N < 2 { // it does not say that it knows
					held++
					continue
				}
				if f.Lo <= 100 && 100 <= f.Hi {
					held++
				}
				width += (f.Hi - f.Lo) / windows
			}
			ideal := 2 * 1.96 * 20 / math.Sqrt(float64(c.n))
			if got := float64(held) / windows; got < c.low {
				t.Errorf("%.3f of the intervals hold the mean, want at least %.2f", got, c.low)
			}
			if width > c.maxWidth*ideal {
				t.Errorf("intervals are %.1f times as wide as with a known sigma, want at most %.1f", width/ideal, c.maxWidth)
			}
			t.Logf("coverage %.3f, width %.2f of the ideal", float64(held)/windows, width/ideal)
		})
	}
}

func TestRatioCoverage(t *testing.T) {
	r := resultstest.Random(t)
	const windows, n = 3000, 40
	held := 0
	for range windows {
		var num, den []float64
		for range n {
			d := 1000 + 100*r.NormFloat64()
			den = append(den, d)
			num = append(num, 0.4*d+12*r.NormFloat64())
		}
		f, err := results.Ratio(results.Window{End: n}, counter(num), counter(den))
		if err != nil {
			t.Fatal(err)
		}
		if f.Lo <= 0.4 && 0.4 <= f.Hi {
			held++
		}
	}
	if got := float64(held) / windows; got < 0.94 {
		t.Errorf("%.3f of the intervals hold the ratio, want at least 0.94", got)
	}
}

// TestCombineCoverage does the same for repeats that differ by nothing, a little or
// a lot from each other.
func TestCombineCoverage(t *testing.T) {
	for _, k := range []int{2, 3, 5} {
		for _, between := range []float64{0, 1, 10} {
			r := resultstest.Random(t)
			const runs = 1000
			held := 0
			for range runs {
				var figs []results.Figure
				for range k {
					mean := 100 + between*r.NormFloat64()
					growth := make([]float64, 20)
					for i := range growth {
						growth[i] = mean + 4.5*r.NormFloat64()
					}
					f, _ := results.Rate(results.Window{End: 20}, counter(growth))
					f.Kind = results.Measured
					figs = append(figs, f)
				}
				if f := results.Combine(figs); f.Lo <= 100 && 100 <= f.Hi {
					held++
				}
			}
			// Pooling after a test costs a little when the spread is as large as the
			// intervals, or when two repeats agree by chance; that is the price of not
			// being useless at two repeats.
			want := 0.93
			if between == 1 || k == 2 {
				want = 0.88
			}
			if got := float64(held) / runs; got < want {
				t.Errorf("%d repeats, spread %g: %.3f of the intervals hold the mean, want at least %.2f", k, between, got, want)
			} else {
				t.Logf("%d repeats, spread %g: coverage %.3f", k, between, got)
			}
		}
	}
}

func TestEstimateEdges(t *testing.T) {
	s := counter([]float64{10, 10, 10, 10})
	if f, err := results.Rate(results.Window{Start: 0, End: 4}, s); err != nil || f.Value != 10 || f.Lo != 10 || f.Hi != 10 || f.N != 4 {
		t.Errorf("constant rate: %+v, %v", f, err)
	}
	// Only readings inside the window count.
	s = counter([]float64{1000, 10, 10, 1000})
	if f, err := results.Rate(results.Window{Start: 0.5, End: 3.5}, s); err != nil || f.Value != 10 || f.N != 2 {
		t.Errorf("window: %+v, %v", f, err)
	}
	if f, err := results.Rate(results.Window{Start: 0.5, End: 2.5}, s); err != nil || f.N != 1 || f.Lo != f.Value {
		t.Errorf("one interval: %+v, %v", f, err)
	}
	if f, err := results.Rate(results.Window{Start: 0.5, End: 1.5}, s); !errors.Is(err, results.ErrFewSamples) || f != (results.Figure{}) {
		t.Errorf("one reading: %+v, %v", f, err)
	}
	fell := results.Series{T: []float64{0, 1, 2}, V: []float64{5, 9, 3}}
	if _, err := results.Rate(results.Window{Start: 0, End: 2}, fell); !errors.Is(err, results.ErrCounterFell) {
		t.Errorf("a counter that fell: %v", err)
	}
	still := counter([]float64{0, 0, 0})
	if f, err := results.Ratio(results.Window{Start: 0, End: 3}, s, still); err == nil {
		t.Errorf("ratio over nothing: %+v", f)
	}
	// A share that never changes is exact, whatever rounding leaves of its spread.
	if f, err := results.Share(results.Window{End: 5}, counter([]float64{20.2, 20.6, 22.2, 23.4, 25.8}), counter([]float64{10.1, 10.3, 11.1, 11.7, 12.9}), counter([]float64{10.1, 10.3, 11.1, 11.7, 12.9})); err != nil || math.Abs(f.Value-1) > 1e-9 || f.N != 5 {
		t.Errorf("a share of 1: %+v, %v", f, err)
	}
	// All growth in one batch leaves nothing to estimate a spread from.
	if f, err := results.Ratio(results.Window{Start: 0, End: 3}, counter([]float64{0, 4, 0}), counter([]float64{0, 8, 0})); err != nil || f.Value != 0.5 || f.N != 1 {
		t.Errorf("all in one batch: %+v, %v", f, err)
	}
	// What comes in bursts is counted to no more than one of them; of what goes at one rate nothing
	// is left out by a batch.
	if f, err := results.Rate(results.Window{Start: 0, End: 4}, counter([]float64{8, 8, 8, 24})); err != nil || f.Value != 12 || math.Abs(f.Grain-4) > 1e-9 {
		t.Errorf("a burst: %+v, %v", f, err)
	}
	if f, err := results.Rate(results.Window{Start: 0, End: 4}, counter([]float64{10, 10, 10, 10})); err != nil || f.Grain != 0 {
		t.Errorf("no burst: %+v, %v", f, err)
	}
	// Counters read at different times.
	other := results.Series{T: []float64{0.25, 1.25, 2.25, 3.25}, V: []float64{0, 20, 40, 60}}
	if f, err := results.Ratio(results.Window{Start: 0, End: 4}, counter([]float64{10, 10, 10, 10}), other); err != nil || math.Abs(f.Value-0.5) > 1e-9 {
		t.Errorf("ratio of counters read apart: %+v, %v", f, err)
	}
	if sum := results.Sum(counter([]float64{1, 1, 1, 1}), other); len(sum.T) != 3 || math.Abs(sum.V[0]-16) > 1e-9 {
		t.Errorf("sum of counters read apart: %+v", sum)
	}
}

func TestCounter(t *testing.T) {
	samples := []results.Sample{
		{T: 1, Source: "host h1", Metric: "tx", Of: "l", Value: 10},
		{T: 0, Source: "host h1", Metric: "tx", Of: "l", Value: 0},
		{T: 0, Source: "host h1", Metric: "tx", Of: "m", Value: 99},
		{T: 0, Source: "host h1", Metric: "queue", Of: "l", Value: 99, Gauge: true},
	}
	var r results.Readings
	r.Add(samples...)
	s, err := r.Counter("", "tx", "l")
	if err != nil || len(s.T) != 2 || s.V[0] != 0 || s.V[1] != 10 {
		t.Errorf("%+v, %v", s, err)
	}
	r.Add(results.Sample{T: 2, Source: "switch s", Metric: "tx", Of: "l", Value: 3})
	if s, err := r.Counter("", "tx", "l"); err == nil {
		t.Errorf("two sources were mixed: %+v", s)
	}
	if s, err := r.Counter("switch s", "tx", "l"); err != nil || len(s.T) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{1, 1, 1}, 1}, {[]float64{1, 0, 0, 0}, 0.25}, {[]float64{3, 1}, 0.8}, {[]float64{0, 0}, 1}} {
		if got := results.JainIndex(c.x); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("JainIndex(%v) = %g, want %g", c.x, got, c.want)
		}
	}
	r := resultstest.Random(t)
	var a, b []float64
	for range 40 {
		a = append(a, 30+3*r.NormFloat64())
		b = append(b, 10+r.NormFloat64())
	}
	f, err := results.Jain(results.Window{Start: 0, End: 40}, counter(a), counter(b))
	if err != nil || f.Lo > 0.8 || f.Hi < 0.8 || f.Hi-f.Lo > 0.04 {
		t.Errorf("3:1 with noise: %+v, %v", f, err)
	}
}

func TestCombine(t *testing.T) {
	sim := func(v float64) results.Figure {
		return results.Exact(results.Figure{Kind: results.Simulated, Value: v, N: 5})
	}
	if f := results.Combine([]results.Figure{sim(3), sim(3)}); f.Value != 3 || f.Lo != 3 || f.Hi != 3 {
		t.Errorf("equal simulated repeats have no spread: %+v", f)
	}
	// 1, 2, 3: mean 2, s = 1, t(2) = 4.303.
	if f := results.Combine([]results.Figure{sim(1), sim(2), sim(3)}); math.Abs(f.Hi-2-4.303/math.Sqrt(3)) > 1e-3 {
		t.Errorf("simulated repeats: %+v", f)
	}
	m := results.Figure{Kind: results.Measured, Value: 10, Lo: 9, Hi: 11, N: 20}
	if f := results.Combine([]results.Figure{m, sim(99), m}); f.Value != 10 || f.Kind != results.Measured || f.Hi >= 11 {
		t.Errorf("kinds are pooled, or two repeats are no better than one: %+v", f)
	}
}

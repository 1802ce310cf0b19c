package results

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// ErrFewSamples is wrapped when a window holds fewer than two readings of a
// counter, so that no figure can be drawn from it.
var ErrFewSamples = errors.New("fewer than two samples")

// ErrCounterFell is wrapped when a counter became smaller within a window: what
// counts was restarted, and no rate over it means anything.
var ErrCounterFell = errors.New("counter fell")

// Confidence is the level of every interval in this package.
const Confidence = 0.95

// MaxBatches is the largest number of batches that a window is cut into. Few,
// long batches are nearly independent of each other where single intervals are
// not (Schmeiser, "Batch size effects in the analysis of simulation output",
// Operations Research 30, 1982, recommends 10 to 30).
const MaxBatches = 20

// Series are the readings of one cumulative counter, in order of time.
type Series struct {
	T []float64 // seconds
	V []float64
}

// Sum adds counters up at the readings of the first, the others interpolated,
// over the time that all of them cover. Where one of them has a gap that is long for
// its readings (see Window), the sum has it too.
func Sum(series ...Series) Series {
	if len(series) == 0 {
		return Series{}
	}
	gaps := make([]float64, len(series))
	for i, s := range series {
		gaps[i] = usualGaps * s.Spacing()
	}
	var out Series
	for i, t := range series[0].T {
		v, ok := series[0].V[i], true
		for k, s := range series[1:] {
			var w float64
			if w, ok = s.at(t); !ok || s.gapAt(t) > gaps[k+1] {
				ok = false
				break
			}
			v += w
		}
		if ok {
			out.T = append(out.T, t)
			out.V = append(out.V, v)
		}
	}
	return out
}

// Times is the counter times k, at least 0.
func (s Series) Times(k float64) Series {
	out := Series{T: s.T, V: make([]float64, len(s.V))}
	for i, v := range s.V {
		out.V[i] = k * v
	}
	return out
}

// Spacing is the time between readings, in seconds: the median; 0 for fewer than two.
func (s Series) Spacing() float64 {
	if len(s.T) < 2 {
		return 0
	}
	apart := make([]float64, 0, len(s.T)-1)
	for i := 1; i < len(s.T); i++ {
		apart = append(apart, s.T[i]-s.T[i-1])
	}
	return Median(apart)
}

// gapAt is the time between the readings before and after t; 0 at a reading.
func (s Series) gapAt(t float64) float64 {
	i := sort.SearchFloat64s(s.T, t)
	if i == 0 || i == len(s.T) || s.T[i] == t {
		return 0
	}
	return s.T[i] - s.T[i-1]
}

// at is the counter at time t by linear interpolation; false outside its readings.
func (s Series) at(t float64) (float64, bool) {
	i := sort.SearchFloat64s(s.T, t)
	switch {
	case i < len(s.T) && s.T[i] == t:
		return s.V[i], true
	case i == 0 || i == len(s.T):
		return 0, false
	}
	f := (t - s.T[i-1]) / (s.T[i] - s.T[i-1])
	return s.V[i-1] + f*(s.V[i]-s.V[i-1]), true
}

// within is the part of s read in [start, end].
func (s Series) within(start, end float64) Series {
	i := sort.SearchFloat64s(s.T, start)
	j := sort.Search(len(s.T), func(k int) bool { return s.T[k] > end })
	if i >= j {
		return Series{}
	}
	return Series{s.T[i:j], s.V[i:j]}
}

// Rates are the rates between neighbouring readings: the value at T[i] is the
// mean rate over (T[i-1], T[i]]. Intervals over which the counter fell are left
// out. It is what a plot over time shows; for a figure use Rate.
func (s Series) Rates() Series {
	var out Series
	for i := 1; i < len(s.T); i++ {
		dt, dv := s.T[i]-s.T[i-1], s.V[i]-s.V[i-1]
		if dt > 0 && dv >= 0 {
			out.T = append(out.T, s.T[i])
			out.V = append(out.V, dv/dt)
		}
	}
	return out
}

// Rate is the mean rate of a counter over the window, in the counter's unit per second.
// See estimate for its interval.
func Rate(w Window, s Series) (Figure, error) {
	return estimate(w, func(d []float64, t float64) float64 { return d[0] / t }, s)
}

// Ratio is the growth of num over the growth of den in the window: a share, a
// mean size, a mean delay. A denominator that did not grow is an error.
func Ratio(w Window, num, den Series) (Figure, error) {
	f, err := estimate(w, func(d []float64, t float64) float64 { return d[0] / d[1] }, num, den)
	if err == nil && (math.IsNaN(f.Value) || math.IsInf(f.Value, 0)) {
		return Figure{}, errors.New("ratio over a counter that did not grow")
	}
	return f, err
}

// Share is the part (in-out)/(in-least) of a flow that was taken out of it, by how three
// counters grew in the window: what came, what left, and what would have left if all had been
// taken that can be. Least must not grow as much as in.
func Share(w Window, in, out, least Series) (Figure, error) {
	f, err := estimate(w, func(d []float64, t float64) float64 { return (d[0] - d[1]) / (d[0] - d[2]) }, in, out, least)
	if err == nil && (math.IsNaN(f.Value) || math.IsInf(f.Value, 0)) {
		return Figure{}, errors.New("share of a flow that did not grow")
	}
	return f, err
}

// Jain is the fairness index of the counters' rates over the window.
func Jain(w Window, s ...Series) (Figure, error) {
	f, err := estimate(w, func(d []float64, t float64) float64 { return JainIndex(d) }, s...)
	f.Hi = min(f.Hi, 1)
	return f, err
}

// JainIndex is (sum x)² / (n · sum x²): 1 where all are equal, 1/n where one has
// everything, and 1 where nobody has anything (Jain, Chiu, Hawe, DEC-TR-301, 1984).
func JainIndex(x []float64) float64 {
	var s, q float64
	for _, v := range x {
		s += v
		q += v * v
	}
	if q == 0 {
		return 1
	}
	return s * s / (float64(len(x)) * q)
}

// estimate draws a figure f(growth of each counter, time) from the readings in
// the window, which must cover it.
//
// The value is f over the whole window: a count of what the window carried. Its 95 %
// interval comes from batch means: the window is cut at readings into at most MaxBatches
// batches, f is taken again with each batch left out (delete-one jackknife with unequal
// batches: Busing, Meijer, van der Leeden, Statistics and Computing 9, 1999; for a rate
// it reduces to Student's t over the batches' rates), and the variance of these
// pseudo-values is inflated for the correlation between neighbouring batches, see
// halfWidth. The assumption is that batches are stationary and roughly normal, which
// sums over many packets are. Where there is one batch, or batches depend on each other
// so much that they are worth fewer than MinEffective independent ones, there is no
// interval: N is 1 and Lo and Hi are Value, which a verdict does not take for exactness.
func estimate(w Window, f func(growth []float64, t float64) float64, series ...Series) (Figure, error) {
	var parts []part
	for i, s := range series {
		if err := w.covers(s); err != nil {
			if len(series) > 1 {
				err = fmt.Errorf("counter %d of %d: %w", i+1, len(series), err)
			}
			return Figure{}, err
		}
	}
	var length float64
	for _, k := range w.kept() {
		if p, ok := cut(k, w.Apart, series); ok {
			parts = append(parts, p)
			length += p.hi - p.lo
		}
	}
	if len(parts) == 0 && w.Apart > 0 {
		return Figure{}, fmt.Errorf("one period of what it is about is %.3g s, of %.3g s: %w", w.Apart, w.Length(), ErrShort)
	}
	if len(parts) == 0 {
		return Figure{}, fmt.Errorf("between %.3f s and %.3f s: %w", w.Start, w.End, ErrFewSamples)
	}

	// growth[i][j] is what counter i grew by in batch j.
	growth := make([][]float64, len(series))
	total := make([]float64, len(series))
	var took []float64
	for _, p := range parts {
		most := p.readings
		if len(parts) > 1 {
			most = min(most, max(1, int(math.Round(MaxBatches*(p.hi-p.lo)/length))))
		}
		bounds := boundaries(p.series[0], p.lo, p.hi, min(most, MaxBatches))
		for j := range len(bounds) - 1 {
			took = append(took, bounds[j+1]-bounds[j])
			for i, s := range p.series {
				from, _ := s.at(bounds[j])
				to, _ := s.at(bounds[j+1])
				growth[i] = append(growth[i], to-from)
				total[i] += to - from
			}
		}
	}
	b := len(took)
	if b < 1 {
		return Figure{}, fmt.Errorf("between %.3f s and %.3f s: %w", w.Start, w.End, ErrFewSamples)
	}
	var span float64
	for _, t := range took {
		span += t
	}
	value := f(total, span)
	fig := Figure{Value: value, Lo: value, Hi: value, N: b, Counted: true}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return fig, nil
	}
	if b == 1 { // of what comes at once nothing is known
		fig.Grain = math.Abs(value)
		return fig, nil
	}
	var grain float64
	pseudo := make([]float64, b)
	weight := make([]float64, b)
	left := make([]float64, len(series))
	for j := range b {
		for i := range series {
			left[i] = total[i] - growth[i][j]
		}
		h := span / took[j]
		without := f(left, span-took[j])
		if math.IsNaN(without) || math.IsInf(without, 0) {
			fig.N, fig.Grain = 1, math.Abs(value) // all growth in one batch
			return fig, nil
		}
		pseudo[j] = h*value - (h-1)*without
		grain = max(grain, math.Abs(value-without))
		weight[j] = 1 / h
	}
	fig.Grain = grain
	half, ok := halfWidth(pseudo, weight)
	if !ok {
		fig.N = 1
		return fig, nil
	}
	fig.Lo, fig.Hi = value-half, value+half
	return fig, nil
}

// MinEffective is how many independent batches correlated ones must be worth for an
// interval to be drawn from them. Below, the spread that is left says nothing of what the
// mean may be: the figure is what was counted, and no more.
const MinEffective = 1

// fewBatches are too few to tell how much they correlate.
const fewBatches = 12

// halfWidth is half the 95 % interval of the weighted mean of batch values, and false where
// they are worth fewer than MinEffective independent ones.
//
// The variance is inflated by (1+r)/(1-r), r being the correlation between neighbouring
// batches, corrected for the bias of short series. Where it shows, it is raised by half its
// standard error: too small an r makes an interval that does not hold, too large a one only
// makes it wider. Negative correlation is not credited: it would narrow the interval on
// little evidence. At least 93 % of intervals hold for correlations of neighbouring readings
// up to 0.5 from 20 readings on, and up to 0.9 from 30 on; see TestCoverage.
func halfWidth(x, w []float64) (half float64, ok bool) {
	b := float64(len(x))
	var mean float64
	for j, v := range x {
		mean += w[j] * v
	}
	var variance, c0, c1 float64
	for j, v := range x {
		d := v - mean
		variance += w[j] / (1 - w[j]) * d * d / b // 1/(h-1) = w/(1-w)
		c0 += d * d
		if j > 0 {
			c1 += d * (x[j-1] - mean)
		}
	}
	if rounding := 1e-9 * mean; variance <= rounding*rounding {
		return 0, true
	}
	r := c1 / c0
	r += (1 + 4*r) / b // Kendall 1954, Marriott and Pope 1954: bias of a short series
	if r > 0 && b >= fewBatches {
		r += math.Sqrt(max(0, 1-r*r)/b) / 2
	}
	inflate := 1.0
	if r = min(r, 0.95); r > 0 {
		inflate = (1 + r) / (1 - r)
	}
	if b >= fewBatches && b/inflate < MinEffective {
		return 0, false
	}
	df := max((b-1)/inflate, 1)
	return StudentT(df) * math.Sqrt(variance*inflate), true
}

// Affine returns the figure of a·x + b: bytes to bits, packets per PSN to an
// aggregated share ((n-p)/(n-1) is Affine(-1/(n-1), n/(n-1)) of p).
func (f Figure) Affine(a, b float64) Figure {
	f.Value, f.Lo, f.Hi = a*f.Value+b, a*f.Lo+b, a*f.Hi+b
	if f.Lo > f.Hi {
		f.Lo, f.Hi = f.Hi, f.Lo
	}
	f.Grain *= math.Abs(a)
	f.Loose *= math.Abs(a)
	return f
}

// Exact returns the figure without uncertainty, as a simulator's figures are.
func Exact(f Figure) Figure {
	f.Lo, f.Hi, f.Grain, f.Loose = f.Value, f.Value, 0, 0
	return f
}

// Combine draws one figure from repeats of the same measurement: the mean of
// their values. Repeats are independent; batches of one repeat share its placement
// of processes and its mood of the machine. So the interval is Student's t over the
// repeats when they differ more than their own intervals explain (F test at 25 %,
// the level Bancroft 1964 recommends before pooling), and pools both variances when
// they do not, which keeps two repeats from being worse than one. Figures of
// different kinds are never pooled: the first one's kind decides, others are left
// out. Simulated repeats carry no interval of their own, only their spread counts.
func Combine(repeats []Figure) Figure {
	if len(repeats) == 0 {
		return Figure{}
	}
	out := repeats[0]
	var x []float64
	var within, dfw float64 // sum of variances of the repeats' means; their degrees of freedom
	n := 0
	for _, f := range repeats {
		if f.Kind != out.Kind {
			continue
		}
		x = append(x, f.Value)
		n += f.N
		out.Counted, out.Grain, out.Loose = out.Counted && f.Counted, max(out.Grain, f.Grain), max(out.Loose, f.Loose)
		if f.N >= 2 && f.Hi > f.Lo {
			df := float64(f.N - 1)
			se := (f.Hi - f.Lo) / 2 / StudentT(df)
			within += df * se * se
			dfw += df
		}
	}
	k := float64(len(x))
	if len(x) == 1 {
		return out
	}
	var mean, between float64
	for _, v := range x {
		mean += v / k
	}
	for _, v := range x {
		between += (v - mean) * (v - mean) / (k - 1)
	}
	variance, df := between, k-1
	if dfw > 0 {
		w := within / dfw
		if between <= w || fTail(between/w, k-1, dfw) > 0.25 {
			variance = (within + (k-1)*between) / (dfw + k - 1)
			df = dfw + k - 1
		}
	}
	half := StudentT(df) * math.Sqrt(variance/k)
	out.Value, out.Lo, out.Hi, out.N = mean, mean-half, mean+half, n
	return out
}

// Mean is the mean of independent values, at least one, with its interval; of a single one there
// is none.
func Mean(x []float64) Figure {
	f := Figure{N: len(x)}
	mean, sd := meanSD(x)
	f.Value, f.Lo, f.Hi = mean, mean, mean
	if n := float64(len(x)); n > 1 {
		half := StudentT(n-1) * sd / math.Sqrt(n)
		f.Lo, f.Hi = mean-half, mean+half
	}
	return f
}

// Median of values, at least one.
func Median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return s[(n-1)/2]/2 + s[n/2]/2 // their sum may be beyond all numbers
}

// StudentT is the two-sided 95 % quantile of Student's t with df degrees of
// freedom, at least 1 and not necessarily whole: 12.7 at 1, 2.09 at 19, 1.96 for
// many.
func StudentT(df float64) float64 { return StudentTail(max(df, 1), (1-Confidence)/2) }

// StudentTail is what Student's t with df degrees of freedom, above 0, exceeds with probability
// p, above 0 and at most 0.5; at most 2^20.
func StudentTail(df, p float64) float64 {
	more := func(t float64) bool { return incompleteBeta(df/2, 0.5, df/(df+t*t)) > 2*p } // both tails
	lo, hi := 0.0, 1.0
	for more(hi) && hi < 1<<20 {
		hi *= 2
	}
	for range 60 {
		if t := (lo + hi) / 2; more(t) {
			lo = t
		} else {
			hi = t
		}
	}
	return hi
}

// fTail is P(F > x) of the F distribution.
func fTail(x, df1, df2 float64) float64 {
	if x <= 0 {
		return 1
	}
	return incompleteBeta(df2/2, df1/2, df2/(df2+df1*x))
}

// incompleteBeta is the regularised incomplete beta function I_x(a, b), by the
// continued fraction of DLMF 8.17.22 (Lentz's method).
func incompleteBeta(a, b, x float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2):
		return 1 - incompleteBeta(b, a, 1-x)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	const tiny = 1e-300
	safe := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/safe(1-(a+b)*x/(a+1))
	h := d
	for i := 1; i < 500; i++ {
		m := float64(i)
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / safe(1+even*d)
		c = safe(1 + even/c)
		h *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / safe(1+odd*d)
		c = safe(1 + odd/c)
		step := d * c
		h *= step
		if math.Abs(step-1) < 1e-14 {
			break
		}
	}
	return front * h
}

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

// Counter picks one counter's readings out of samples. An empty source takes
// whichever source reports it; two sources that do are an error, as their
// readings must not be mixed. A counter without readings is an empty Series.
func Counter(samples []Sample, source, metric, of string) (Series, error) {
	var s Series
	from := source
	for _, x := range samples {
		if x.Metric != metric || x.Of != of || x.Gauge || source != "" && x.Source != source {
			continue
		}
		if from == "" {
			from = x.Source
		}
		if x.Source != from {
			return Series{}, fmt.Errorf("%s of %s is reported by %s and by %s", metric, of, from, x.Source)
		}
		s.T = append(s.T, x.T)
		s.V = append(s.V, x.Value)
	}
	if !sort.Float64sAreSorted(s.T) {
		sort.Stable(byTime(s))
	}
	return s, nil
}

type byTime Series

func (s byTime) Len() int           { return len(s.T) }
func (s byTime) Less(i, j int) bool { return s.T[i] < s.T[j] }
func (s byTime) Swap(i, j int) {
	s.T[i], s.T[j] = s.T[j], s.T[i]
	s.V[i], s.V[j] = s.V[j], s.V[i]
}

// Sum adds counters up at the readings of the first, the others interpolated,
// over the time that all of them cover.
func Sum(series ...Series) Series {
	if len(series) == 0 {
		return Series{}
	}
	var out Series
	for i, t := range series[0].T {
		v, ok := series[0].V[i], true
		for _, s := range series[1:] {
			var w float64
			if w, ok = s.at(t); !ok {
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

// Rate is the mean rate of a counter over [start, end], from the readings inside
// it only, in the counter's unit per second. See estimate for its interval.
func Rate(start, end float64, s Series) (Figure, error) {
	return estimate(start, end, func(d []float64, t float64) float64 { return d[0] / t }, s)
}

// Ratio is the growth of num over the growth of den in [start, end]: a share, a
// mean size, a mean delay. A denominator that did not grow is an error.
func Ratio(start, end float64, num, den Series) (Figure, error) {
	f, err := estimate(start, end, func(d []float64, t float64) float64 { return d[0] / d[1] }, num, den)
	if err == nil && (math.IsNaN(f.Value) || math.IsInf(f.Value, 0)) {
		return Figure{}, errors.New("ratio over a counter that did not grow")
	}
	return f, err
}

// Jain is the fairness index of the counters' rates over [start, end].
func Jain(start, end float64, s ...Series) (Figure, error) {
	f, err := estimate(start, end, func(d []float64, t float64) float64 { return JainIndex(d) }, s...)
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
// [start, end].
//
// The value is f over the whole window. Its 95 % interval comes from batch means:
// the window is cut at readings into at most MaxBatches batches, f is taken again
// with each batch left out (delete-one jackknife with unequal batches: Busing,
// Meijer, van der Leeden, Statistics and Computing 9, 1999; for a rate it reduces
// to Student's t over the batches' rates), and the variance of these pseudo-values
// is inflated by (1+r)/(1-r), r being what is left of the correlation between
// neighbouring batches, corrected for the bias of short series. Negative
// correlation is not credited: it would narrow the interval on little evidence.
// The assumption is that batches are stationary and roughly normal, which sums
// over many packets are. With one batch there is no interval: N is 1 and Lo and
// Hi are Value, which a verdict does not take for exactness.
func estimate(start, end float64, f func(growth []float64, t float64) float64, series ...Series) (Figure, error) {
	cut := make([]Series, len(series))
	lo, hi, n := math.Inf(-1), math.Inf(1), math.MaxInt
	for i, s := range series {
		s = s.within(start, end)
		if len(s.T) < 2 {
			return Figure{}, fmt.Errorf("counter %d of %d between %.3f s and %.3f s: %w", i+1, len(series), start, end, ErrFewSamples)
		}
		for k := 1; k < len(s.V); k++ {
			if s.V[k] < s.V[k-1] {
				return Figure{}, fmt.Errorf("from %g to %g at %.3f s: %w", s.V[k-1], s.V[k], s.T[k], ErrCounterFell)
			}
		}
		cut[i] = s
		lo, hi = max(lo, s.T[0]), min(hi, s.T[len(s.T)-1])
		n = min(n, len(s.T)-1)
	}
	bounds := boundaries(cut[0], lo, hi, min(n, MaxBatches))
	b := len(bounds) - 1
	if b < 1 {
		return Figure{}, fmt.Errorf("between %.3f s and %.3f s: %w", start, end, ErrFewSamples)
	}

	// growth[i][j] is what counter i grew by in batch j.
	growth := make([][]float64, len(cut))
	total := make([]float64, len(cut))
	for i, s := range cut {
		growth[i] = make([]float64, b)
		last, _ := s.at(bounds[0])
		for j := range b {
			v, _ := s.at(bounds[j+1])
			growth[i][j] = v - last
			total[i] += v - last
			last = v
		}
	}
	span := bounds[b] - bounds[0]
	value := f(total, span)
	fig := Figure{Value: value, Lo: value, Hi: value, N: b}
	if b == 1 || math.IsNaN(value) || math.IsInf(value, 0) {
		return fig, nil
	}
	pseudo := make([]float64, b)
	weight := make([]float64, b)
	left := make([]float64, len(cut))
	for j := range b {
		w := bounds[j+1] - bounds[j]
		for i := range cut {
			left[i] = total[i] - growth[i][j]
		}
		h := span / w
		without := f(left, span-w)
		if math.IsNaN(without) || math.IsInf(without, 0) {
			return Figure{Value: value, Lo: value, Hi: value, N: 1}, nil // all growth in one batch
		}
		pseudo[j] = h*value - (h-1)*without
		weight[j] = 1 / h
	}
	half := halfWidth(pseudo, weight)
	fig.Lo, fig.Hi = value-half, value+half
	return fig, nil
}

// boundaries cuts [lo, hi] into at most b batches at readings of s.
func boundaries(s Series, lo, hi float64, b int) []float64 {
	in := s.within(lo, hi).T
	if len(in) < 2 { // s is read more seldom than the others: cut it in between
		if hi > lo {
			return []float64{lo, hi}
		}
		return nil
	}
	n := len(in) - 1
	b = min(b, n)
	out := make([]float64, 0, b+1)
	for j := range b + 1 {
		t := in[j*n/b]
		if len(out) == 0 || t > out[len(out)-1] {
			out = append(out, t)
		}
	}
	return out
}

// halfWidth is half the 95 % interval of the weighted mean of batch values.
func halfWidth(x, w []float64) float64 {
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
	if c0 == 0 || variance <= 0 {
		return 0
	}
	inflate := 1.0
	r := c1 / c0
	r += (1 + 4*r) / b // Kendall 1954, Marriott and Pope 1954: bias of a short series
	if r = min(r, 0.9); r > 0 {
		inflate = (1 + r) / (1 - r)
	}
	df := max((b-1)/inflate, 1)
	return StudentT(df) * math.Sqrt(variance*inflate)
}

// Affine returns the figure of a·x + b: bytes to bits, packets per PSN to an
// aggregated share ((n-p)/(n-1) is Affine(-1/(n-1), n/(n-1)) of p).
func (f Figure) Affine(a, b float64) Figure {
	f.Value, f.Lo, f.Hi = a*f.Value+b, a*f.Lo+b, a*f.Hi+b
	if f.Lo > f.Hi {
		f.Lo, f.Hi = f.Hi, f.Lo
	}
	return f
}

// Exact returns the figure without uncertainty, as a simulator's figures are.
func Exact(f Figure) Figure {
	f.Lo, f.Hi = f.Value, f.Value
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
	return (s[(n-1)/2] + s[n/2]) / 2
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

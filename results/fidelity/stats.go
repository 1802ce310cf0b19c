package fidelity

import (
	"math"
	"slices"

	"github.com/inabench/inabench/results"
)

// orderStatistics is the number of figures from which on a median's interval can be had from
// them: of five, the range covers the median with 94 %.
const orderStatistics = 6

// medianOf is the median of the magnitudes of errors.
func medianOf(all []*Error) Median {
	size, near, far := make([]float64, len(all)), make([]float64, len(all)), make([]float64, len(all))
	for i, e := range all {
		v := e.Error
		size[i], far[i] = math.Abs(v.Value), max(math.Abs(v.Lo), math.Abs(v.Hi))
		if v.Lo*v.Hi > 0 { // else 0 is within
			near[i] = min(math.Abs(v.Lo), math.Abs(v.Hi))
		}
	}
	slices.Sort(size)
	m := Median{Interval{results.Median(size), results.Median(near), results.Median(far)}, len(all), "intervals of the errors"}
	if n := len(size); n >= orderStatistics {
		k := rankBelow(n)
		m.Lo, m.Hi, m.Basis = size[k-1], size[n-k], "order statistics"
	}
	return m
}

// rankBelow is the largest k for which the median of a distribution lies between the k-th
// smallest and the k-th largest of n draws with 95 % or more: the number of draws below it is
// binomial (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
func rankBelow(n int) int {
	logp := -float64(n) * math.Ln2 // of no draw below
	sum := 0.0
	for k := 0; ; k++ {
		sum += math.Exp(logp)
		if 2*sum > 1-results.Confidence {
			return k
		}
		logp += math.Log(float64(n-k)) - math.Log(float64(k+1))
	}
}

// bias is the mean of errors. With one there is what its own interval is.
func bias(all []*Error) Interval {
	if len(all) == 1 {
		return all[0].Error
	}
	n := float64(len(all))
	var mean, square float64
	for _, e := range all {
		mean += e.Error.Value / n
	}
	for _, e := range all {
		square += (e.Error.Value - mean) * (e.Error.Value - mean)
	}
	return around(mean, results.StudentT(n-1)*math.Sqrt(square/(n-1)/n))
}

// pearson is the correlation with its interval by Fisher's transformation; nil below four
// figures, or where one side does not vary.
func pearson(x, y []float64) *Interval {
	r, lo, hi := results.PearsonInterval(x, y)
	if math.IsNaN(r) || constant(x) || constant(y) {
		return nil
	}
	return &Interval{r, lo, hi}
}

// constant says whether figures differ by no more than rounding.
func constant(x []float64) bool {
	lo, hi := slices.Min(x), slices.Max(x)
	return hi-lo <= 1e-9*max(math.Abs(lo), math.Abs(hi))
}

// regress is y over x by least squares; nil below three figures, or where x does not vary.
func regress(x, y []float64) *Line {
	n := float64(len(x))
	if n < 3 || constant(x) {
		return nil
	}
	var mx, my float64
	for i := range x {
		mx += x[i] / n
		my += y[i] / n
	}
	var sxx, sxy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	b := sxy / sxx
	a := my - b*mx
	var rss float64
	for i := range x {
		d := y[i] - a - b*x[i]
		rss += d * d
	}
	s2, t := rss/(n-2), results.StudentT(n-2)
	return &Line{Slope: around(b, t*math.Sqrt(s2/sxx)), Intercept: around(a, t*math.Sqrt(s2*(1/n+mx*mx/sxx)))}
}

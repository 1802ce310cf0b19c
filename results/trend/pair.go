package trend

import (
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"

	"github.com/inabench/inabench/results"
)

// Open is the state of a pair that cannot be decided: its interval is too wide.
const Open State = "open"

// Pair is what is held against each other: two nights, and what is known besides.
type Pair struct {
	Before, After Night
	// Earlier are other nights in which nothing had changed, of the same setting. From
	// Options.Learn of these on, what nights differ by is learnt from them; without, only what
	// repeats differ by is known.
	Earlier []Night
	// Exact figures have no noise at all, as those of a simulator: any difference is one.
	Exact bool
	// Within is the largest change that "the same" may hide, relative: 0.05 by default. Where only
	// repeats are known it is the smallest change that counts, too, since nights differ by more; and
	// wherever it is less than Options.Relevant.
	Within float64
}

// Judge says what After is, held against Before: Lower or Higher if the interval of the change
// has no 0 in it and the change is one that matters (Options.Relevant, or Within where that is less or
// there are no earlier nights); Same if the interval is within Within to both sides, or the change does not matter; else
// Open. Options.FalseAlarms is for this pair: divide it by how many are looked at together.
//
// With earlier nights the interval is that of the difference of two nights of their noise, or of what nights differ by that
// come in several states; nights before a change that lasted tell nothing of it. Without earlier nights
// it is distribution-free, from the differences of all repeats (Hodges and Lehmann 1963), which
// needs four of each; with fewer it is unbounded, and Lo and Hi are those of all differences.
func (p Pair) Judge(o Options) (Verdict, error) {
	o = o.defaults()
	if p.Within <= 0 {
		p.Within = 0.05
	}
	h, err := read(slices.Concat(p.Earlier, []Night{p.Before, p.After}), o)
	if err != nil {
		return Verdict{}, err
	}
	n := len(p.Earlier)
	v := Verdict{State: Open, Baseline: h.raw[n], Tonight: h.raw[n+1], Nights: n, Since: n + 1}
	v.P = benchmath.AssumeNothing.Compare(h.sample(n, n+1), h.sample(n+1, n+2)).P
	was := h.median[n]
	d := h.median[n+1] - was
	lo, hi, known := d, d, true
	relevant := min(o.Relevant, p.Within) // whoever lets "the same" hide less wants to be told of less
	switch {
	case p.Exact:
	case n >= o.Learn:
		from, to := h.level(n)
		v.Nights = to - from
		_, noise := h.noise(from, to)
		v.Noise = h.relative(noise, was)
		half := h.apart(from, to, noise.Nights)
		lo, hi = d-half, d+half
	default:
		relevant = max(relevant, p.Within)
		var apart float64
		for _, one := range [][]float64{h.each[n], h.each[n+1]} {
			m := middle(one)
			for _, x := range one {
				apart = max(apart, math.Abs(x-m))
			}
		}
		v.Noise = h.relative(Noise{Repeats: apart}, was)
		lo, hi, known = differences(h.each[n], h.each[n+1])
		lo, hi = min(lo, d), max(hi, d)
	}
	v.Shift, v.Lo, v.Hi = h.signed(d, was), h.signed(lo, was), h.signed(hi, was)
	v.Visible = max(relevant, (v.Hi-v.Lo)/2)
	switch {
	case d == 0 && lo == hi && (p.Exact || len(p.Before) > 1 && len(p.After) > 1):
		v.State = Same // all that was measured is one number
	case !known:
	case math.Abs(v.Shift) >= relevant && lo > 0:
		v.State = Higher
	case math.Abs(v.Shift) >= relevant && hi < 0:
		v.State = Lower
	case v.Lo >= -p.Within && v.Hi <= p.Within:
		v.State = Same
	}
	return v, nil
}

// level is which of the first n nights the newest ones are like: those since the last change that lasted, without those
// since one that has not lasted yet.
func (h *history) level(n int) (from, to int) {
	for i := range n {
		h.next(i)
	}
	from, to = h.from, n
	if h.since > 0 {
		to = h.since
	}
	if to-from < h.Learn {
		return 0, n
	}
	return from, to
}

// Normal nights, as a standard deviation is: a quarter of all pairs differ by less than that over typical, 5 % by more than
// usual times it.
const (
	typical = 2.2219 // Rousseeuw and Croux, "Alternatives to the median absolute deviation", 1993: Qn
	usual   = 1.96 * math.Sqrt2
)

// apart is by how much two nights like those from a to b-1, of such noise, differ at most, but for the false alarms.
func (h *history) apart(a, b int, noise float64) float64 {
	n := float64(b - a)
	// Both nights have that noise; its own uncertainty is Student's.
	tail := results.StudentTail(max(0.37*n, 2), h.FalseAlarms/2) * math.Sqrt2
	half := tail * noise
	// Nights that come in two states are near to each other or far apart, which no scale says: what pairs of them
	// differ by does.
	var pairs []float64
	a = max(a, b-2*h.window())
	for i := a; i < b; i++ {
		for j := a; j < i; j++ {
			pairs = append(pairs, math.Abs(h.median[i]-h.median[j]))
		}
	}
	slices.Sort(pairs)
	at := func(q float64) float64 { return pairs[min(int(q*float64(len(pairs))), len(pairs)-1)] }
	within, far := max(typical*at(0.25), tiny), at(0.95)
	if far > 1.5*usual*within { // each state has noise of its own
		far += tail * within
	}
	return max(half, far)
}

// differences is the 95 % interval of by how much b is more than a, from the differences of all
// their figures, both sorted; known is false where so few say nothing at that level, and it is the
// range of all.
func differences(a, b []float64) (lo, hi float64, known bool) {
	d := make([]float64, 0, len(a)*len(b))
	for _, x := range a {
		for _, y := range b {
			d = append(d, y-x)
		}
	}
	slices.Sort(d)
	k := cut(len(a), len(b))
	if k < 0 {
		return d[0], d[len(d)-1], false
	}
	return d[k], d[len(d)-1-k], true
}

// cut is the largest k for which Mann and Whitney's U of n and m figures is at most k with a
// probability of 2.5 % at most; -1 if there is none.
func cut(n, m int) int {
	if n*m > 2500 { // where U is as good as normal
		mean, sd := float64(n*m)/2, math.Sqrt(float64(n*m*(n+m+1))/12)
		return max(-1, int(math.Floor(mean-1.96*sd-0.5)))
	}
	u := stats.UDist{N1: n, N2: m}
	most := 0.025 + 1e-12 // one order in 40 has it exactly, but for rounding
	return sort.Search(n*m, func(k int) bool { return u.CDF(float64(k)) > most }) - 1
}

// Needs is how many repeats of each night a pair without earlier nights needs to be decided: at
// least the four that a distribution-free interval takes.
func (p Pair) Needs(v Verdict) int {
	n := min(len(p.Before), len(p.After))
	half := (v.Hi - v.Lo) / 2
	within := p.Within
	if within <= 0 {
		within = 0.05
	}
	// An interval shrinks as the root of the repeats.
	return max(4, n+1, int(math.Ceil(min(float64(n)*(half/within)*(half/within), 1000))))
}

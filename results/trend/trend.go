// Package trend tells noise from change in a metric that is measured night after night.
//
// What a machine measures differs between repeats of a night, and more between nights:
// other neighbours, another kernel, a warmer room. Both are learnt from the metric's own
// history (Noise), without assuming a distribution: medians, median absolute deviations,
// ranks. Judge holds the newest nights against those before, and Follow finds all the
// nights in a history from which on the metric was another one.
//
// Everything is relative: of metrics that are above 0 in all nights logarithms are
// compared, so that a rate that halves and a duration that doubles count alike; of others
// differences, as parts of what they are held against.
//
// # When there is an alarm
//
// A shift is found in the first night if it stands out by far, in the second or third if
// that many nights in a row stand out on the same side by less. The limits, in units of the
// noise, leave Options.FalseAlarms of the nights in which nothing has changed, of all rules
// and both sides together, if nights were normal. They are wider where the history itself
// has larger outliers or runs; a single night has to stand out by more than any of them, as
// there is always a largest one to come. The repeats of these nights must differ from those
// before by ranks as well (Mann and Whitney's U), and the shift must be one that matters
// (Options.Relevant).
//
// A shift that was found is held against the nights before it, night by night, until it has
// lasted for Options.Learn nights: then these are what others are held against. Nights
// that were found and did not last are outliers, from which the limits learn.
package trend

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// ErrInput is wrapped when a history makes no sense.
var ErrInput = errors.New("history")

// Night is what one night measured of a metric: at least one repeat.
type Night []float64

// Options are what is asked of a history. The zero value has the defaults.
type Options struct {
	// Relevant is the smallest change that matters, relative: 0.01 by default.
	Relevant float64
	// Learn is how many nights are looked at before anything is said, at least 5: 10 by default.
	Learn int
	// FalseAlarms is the part of nights without a change in which one may be seen: 0.005 by
	// default.
	FalseAlarms float64
}

func (o Options) defaults() Options {
	if o.Relevant <= 0 {
		o.Relevant = 0.01
	}
	if o.Learn == 0 {
		o.Learn = 10
	}
	o.Learn = max(o.Learn, 5)
	if o.FalseAlarms <= 0 {
		o.FalseAlarms = 0.005
	}
	return o
}

// State is what the newest night is.
type State string

// States. Whether lower is better is for the caller to say.
const (
	Learning State = "learning" // too few nights before
	Same     State = "same"
	Lower    State = "lower"
	Higher   State = "higher"
)

// Verdict is what can be said of the newest night of a history.
type Verdict struct {
	State State `json:"state"`
	// Baseline is the median of the nights before, of which there are Nights; Tonight that of
	// the newest night.
	Baseline float64 `json:"baseline"`
	Tonight  float64 `json:"tonight"`
	Nights   int     `json:"nights"`
	// Shift is the change from the baseline, as a part of it, over the nights since Since, and
	// [Lo, Hi] its interval at 95 %. Of a baseline of 0 they are parts of the largest night, as are Noise
	// and Visible.
	Shift float64 `json:"shift"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	// Since is the index of the first of the nights that differ; the newest one where none do.
	Since int `json:"since"`
	// P is that of Mann and Whitney's U between the repeats since and before.
	P     float64 `json:"p"`
	Noise Noise   `json:"noise"`
	// Visible is the smallest change that would be found in its first night.
	Visible float64 `json:"visible"`
}

// Noise is what a metric differs by when nothing has changed, as a part of the baseline, as standard
// deviations would be of normal figures.
type Noise struct {
	Repeats float64 `json:"repeats"` // of one night
	Nights  float64 `json:"nights"`  // medians of nights; what repeats cannot average out is in it
}

// Judge says what the last one of the nights is, held against those before it. The error
// wraps ErrInput if there are no nights, or one has no finite figures.
func Judge(nights []Night, o Options) (Verdict, error) {
	v, _, err := Follow(nights, o)
	return v, err
}

// Change is a night from which on a metric was another one.
type Change struct {
	Night int `json:"night"` // its index
	Found int `json:"found"` // the night in which it was seen
	// Until is the index of the first night that was not so any more, where that came before it had lasted; 0: it has lasted, or
	// may still.
	Until int     `json:"until,omitempty"`
	Shift float64 `json:"shift"` // relative to the nights before, back to the change before
}

// Lasted says for how many nights a change was there that did not last; 0: it is no such one.
func (c Change) Lasted() int { return max(0, c.Until-c.Night) }

// Long says in words how long a change was there: "on" for one that has lasted, or may still.
func (c Change) Long() string {
	if n := c.Lasted(); n > 0 {
		return fmt.Sprintf("for %s, which did not last", human.Plural(n, "run"))
	}
	return "on"
}

// Follow is Judge, with all changes in the history, outliers included, in the order in which a caller of Judge would have
// heard of them night by night.
func Follow(nights []Night, o Options) (v Verdict, changes []Change, err error) {
	h, err := read(nights, o)
	if err != nil {
		return Verdict{}, nil, err
	}
	for n := range nights {
		from, since := h.from, h.since
		v = h.next(n)
		if last := len(changes) - 1; last >= 0 && changes[last].Night == since && h.from == from && h.since != since {
			changes[last].Until = n
		}
		if v.Since < n || v.State == Lower || v.State == Higher {
			c := Change{Night: v.Since, Found: n, Shift: v.Shift}
			if last := len(changes) - 1; last >= 0 && changes[last].Night == c.Night {
				c.Found = changes[last].Found
				changes[last] = c
				continue
			}
			changes = append(changes, c)
		}
	}
	return v, changes, nil
}

// history is nights in a form in which differences are relative.
type history struct {
	Options
	log    bool
	unit   float64 // without logarithms: what differences are a part of
	each   []Night // sorted
	median []float64
	raw    []float64 // medians as measured

	from  int // the first night of those that the newest are held against
	since int // the first night of a shift that has not lasted yet; 0: there is none
}

// window is how many nights the newest ones are held against, at most.
func (h *history) window() int { return max(60, h.Learn) }

func read(nights []Night, o Options) (*history, error) {
	h := &history{Options: o.defaults(), log: true}
	if len(nights) == 0 {
		return nil, fmt.Errorf("%w: no nights", ErrInput)
	}
	for i, n := range nights {
		if len(n) == 0 {
			return nil, fmt.Errorf("%w: night %d has no figures", ErrInput, i)
		}
		for _, v := range n {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("%w: night %d has a figure of %v", ErrInput, i, v)
			}
			h.log = h.log && v > 0
		}
		sorted := slices.Sorted(slices.Values(n))
		h.each = append(h.each, sorted)
		h.raw = append(h.raw, middle(sorted))
	}
	if !h.log {
		for _, m := range h.raw {
			h.unit = max(h.unit, math.Abs(m))
		}
		if h.unit == 0 {
			h.unit = 1
		}
	}
	for i, n := range h.each {
		for k := range n {
			if h.log {
				n[k] = math.Log(n[k])
			} else {
				n[k] /= h.unit
			}
		}
		h.median = append(h.median, middle(h.each[i]))
	}
	return h, nil
}

// next says what night n is; it is called for all nights in their order.
func (h *history) next(n int) Verdict {
	if h.since > 0 {
		v, still := h.lasts(n)
		switch {
		case !still:
			h.since = 0 // and those nights are outliers
		case n+1-h.since < h.Learn:
			return v
		default:
			h.from, h.since = h.since, 0
			return v
		}
	}
	v := h.judge(n)
	if v.State == Lower || v.State == Higher {
		h.since = v.Since
	}
	return v
}

// lasts holds a shift that was found against the nights before it once more. It is over when
// the nights since then are, as a whole, what those before were.
func (h *history) lasts(n int) (v Verdict, still bool) {
	from := max(h.from, h.since-h.window())
	v, noise := h.verdict(from, h.since, n)
	h.shift(&v, noise, from, h.since, n)
	v.State = Higher
	if v.Shift < 0 {
		v.State = Lower
	}
	// With the newest night on the other half of the way it is not the same shift.
	was := results.Median(h.median[from:h.since])
	newest := h.signed(h.median[n]-was, was)
	return v, math.Abs(v.Shift) >= h.Relevant && newest/v.Shift > 0.5
}

// rules are how many nights in a row must stand out.
const rules = 3

// judge says what night n is, held against those from h.from on.
func (h *history) judge(n int) Verdict {
	from := max(h.from, n+1-h.window()-rules)
	v, noise := h.verdict(from, n, n)
	if v.Nights < h.Learn {
		v.State = Learning
		return v
	}
	v.State = Same
	h.shift(&v, noise, from, n, n)
	for k := 1; k <= rules; k++ {
		b := n + 1 - k // the nights before
		if b-from < h.Learn {
			break
		}
		centre, noise := h.noise(from, b)
		limit := h.limit(k, from, b, centre, noise.Nights)
		if k == 1 {
			v.Visible = max(h.Relevant, math.Abs(h.signed(-limit*noise.Nights, centre)))
		}
		if h.least(b, n+1, math.Copysign(1, h.median[n]-centre), centre) <= limit*noise.Nights {
			continue
		}
		w := v
		w.Since = b
		h.shift(&w, noise, from, b, n)
		if math.Abs(w.Shift) < h.Relevant || w.P > alpha(h.count(from, b), h.count(b, n+1)) {
			continue
		}
		w.State = Higher
		if w.Shift < 0 {
			w.State = Lower
		}
		return w
	}
	return v
}

// verdict is one of night n that says nothing yet, held against those from a to b-1, and their noise in the history's form.
func (h *history) verdict(a, b, n int) (v Verdict, noise Noise) {
	v = Verdict{Tonight: h.raw[n], Baseline: h.raw[n], Nights: b - a, Since: b, P: 1}
	if a < b {
		var centre float64
		v.Baseline = results.Median(h.raw[a:b])
		centre, noise = h.noise(a, b)
		v.Noise = h.relative(noise, centre)
	}
	return v, noise
}

// least is by how much the nights from a to b-1 stand out on a side, all of them.
func (h *history) least(a, b int, side, centre float64) float64 {
	least := math.Inf(1)
	for _, m := range h.median[a:b] {
		least = min(least, side*(m-centre))
	}
	return least
}

// tiny is noise of figures that do not differ: what rounding does to them.
const tiny = 1e-9

// noise is that of nights from a to b-1, and their centre.
func (h *history) noise(a, b int) (centre float64, n Noise) {
	nights := slices.Sorted(slices.Values(h.median[a:b]))
	centre = middle(nights)
	var apart []float64 // repeats from their night's median
	for _, one := range h.each[a:b] {
		if len(one) > 1 {
			m := middle(one)
			for _, x := range one {
				// A median of few is nearer to its repeats than that of all would be.
				apart = append(apart, math.Abs(x-m)*math.Sqrt(float64(len(one))/float64(len(one)-1)))
			}
		}
	}
	if len(apart) > 0 {
		slices.Sort(apart)
		n.Repeats = 1.4826 * middle(apart)
	}
	var sum float64
	for i, m := range nights {
		nights[i] = math.Abs(m - centre)
		sum += nights[i]
	}
	slices.Sort(nights)
	// Of few nights the deviation is too small on average (Croux and Rousseeuw, "Time-efficient
	// algorithms for two highly robust estimators of scale", 1992: n/(n-0.8)).
	few := float64(b - a)
	n.Nights = 1.4826 * middle(nights) * few / (few - 0.8)
	// Where most nights are the same that says nothing of the others; half of what the mean
	// deviation says (1.25 times that is the standard deviation of normal figures) does.
	n.Nights = max(n.Nights, 0.5*1.2533*sum/few, tiny)
	return centre, n
}

// limit is how far k nights in a row may stand out on one side, in units of the noise.
func (h *history) limit(k, a, b int, centre, noise float64) float64 {
	// Each of the rules has an equal part of the false alarms, and each side half of that; k
	// nights that are independent of each other stand out together with the product.
	p := math.Pow(h.FalseAlarms/rules/2, 1/float64(k))
	// The noise is known from b-a nights, by an estimate that is worth 0.37 of as many would
	// be to a standard deviation (the efficiency of the median absolute deviation).
	df := max(0.37*float64(b-a), 2)
	most := results.StudentTail(df, p)
	for i := a; i+k <= b; i++ {
		for _, side := range []float64{-1, 1} {
			most = max(most, beyond[k-1]*h.least(i, i+k, side, centre)/noise)
		}
	}
	// All of k nights are beyond the j-th of n with probability (j/n)^k.
	for _, side := range []float64{-1, 1} {
		far := make([]float64, 0, b-a)
		for _, m := range h.median[a:b] {
			far = append(far, side*(m-centre)/noise)
		}
		slices.Sort(far)
		most = max(most, far[max(0, len(far)-rank[k-1])])
	}
	return most
}

// By the number of nights in a row: how many times as far as any such nights of the history
// they must stand out, without which one of n+1 nights would be the largest so far; and
// which of the history's nights they must be beyond, one by one, counted from the farthest.
var (
	beyond = [rules]float64{1.6, 1.2, 1}
	rank   = [rules]int{1, 2, 4}
)

// alpha is what P must not exceed: 0.05, but what that many repeats cannot reach is not
// asked of them.
func alpha(before, since int) float64 {
	// The smallest P is that of one order of all: 2 in before+since over since.
	least := 2.0
	for i := 1; i <= since; i++ {
		least *= float64(i) / float64(before+i)
	}
	return max(0.05, 1.5*least)
}

func (h *history) count(a, b int) (n int) {
	for _, one := range h.each[a:b] {
		n += len(one)
	}
	return n
}

// shift fills in by how much the nights from b to n differ from those from a to b-1, of such
// noise.
func (h *history) shift(v *Verdict, noise Noise, a, b, n int) {
	before := slices.Sorted(slices.Values(h.median[a:b]))
	since := slices.Sorted(slices.Values(h.median[b : n+1]))
	was := middle(before)
	d := middle(since) - was
	// Medians of so many nights, of the noise that the history has (the variance of a median
	// of normal figures is pi/2 times that of a mean).
	half := 1.96 * noise.Nights * math.Sqrt(variance(len(before))+variance(len(since)))
	v.Shift, v.Lo, v.Hi = h.signed(d, was), h.signed(d-half, was), h.signed(d+half, was)
	v.P = benchmath.AssumeNothing.Compare(h.sample(a, b), h.sample(b, n+1)).P
}

// variance is that of the median of n normal figures of variance 1, nearly.
func variance(n int) float64 {
	if n <= 2 {
		return 1 / float64(n)
	}
	return math.Pi / 2 / float64(n)
}

func (h *history) sample(a, b int) *benchmath.Sample {
	return benchmath.NewSample(slices.Concat(h.each[a:b]...), &benchmath.DefaultThresholds)
}

// signed is a difference of the history's form from a median of that form, as a part of it.
func (h *history) signed(d, from float64) float64 {
	if h.log {
		return math.Expm1(d)
	}
	return d / h.size(from)
}

// relative is noise of the history's form about a median of that form, as a part of it.
func (h *history) relative(n Noise, about float64) Noise {
	size := h.size(about)
	return Noise{n.Repeats / size, n.Nights / size}
}

// size is what differences of the history's form from a median are parts of: without logarithms the median, or the
// largest of all where it is 0.
func (h *history) size(median float64) float64 {
	if h.log || math.Abs(median) < tiny {
		return 1
	}
	return math.Abs(median)
}

// middle is the median of what is sorted.
func middle[S ~[]float64](sorted S) float64 {
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2 // their sum may be beyond all numbers
}

// ForChange is how many repeats a night needs, of a metric with such noise, so that the
// median's interval at 95 % is no wider than the change to either side; 0: no number of
// them, as nights differ by more.
func (n Noise) ForChange(change float64) int {
	// What nights differ by besides their repeats is not known apart from it; it is no more
	// than Nights.
	if !(change > 0) {
		return 0
	}
	for repeats := 1; repeats <= 10_000; repeats++ {
		if 1.96*n.Repeats*math.Sqrt(variance(repeats)) <= change {
			return repeats
		}
	}
	return 0
}

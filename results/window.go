package results

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// ErrUncovered is wrapped when a counter's readings do not cover a window, so that what
// happened in the rest of it is not known.
var ErrUncovered = errors.New("readings do not cover the phase")

// ErrShort is wrapped when a window is too short for what it is to show.
var ErrShort = errors.New("the phase is too short")

// Span is a time, in seconds on a run's clock.
type Span struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

// Window is the time that a figure is about: from Start to End but for what is left Out.
//
// Readings must cover it: before the first one, after the last one and between two there
// may be no more than 5 % of the window, or two and a half times what lies between two
// readings of that counter as a rule, where that is more, and never more than a quarter of
// the window unless readings are rarer than that as a rule.
type Window struct {
	Start, End float64 // seconds
	Out        []Span  // what the testbed spoilt, in order, apart from each other
	// Apart is how far apart readings must be, in seconds, at least: the period of what is
	// counted, where readings in between would see more or less of it by chance. They are
	// taken at whole periods from the beginning. 0: as they are.
	Apart float64
}

const (
	usualGaps = 2.5  // a gap that is no gap, in the median distance of readings
	partOpen  = 0.05 // the same, as a part of the window
	mostOpen  = 0.25 // a gap that always is one
	oneMissed = 2.2  // but for this, in the median distance: a reading that was missed
)

// Length is how long the window is without what is left out, in seconds.
func (w Window) Length() float64 {
	var l float64
	for _, k := range w.kept() {
		l += k.End - k.Start
	}
	return l
}

// Whole is the window from the first step of a counter in it to the last, for what is counted in
// whole pieces, where a piece more or less would be chance. It is the window itself where more is
// cut off than lies between two steps: the counter began late then, or has stopped.
func (w Window) Whole(s Series) Window {
	in := s.within(w.Start, w.End)
	var steps []float64
	longest := 0.0
	for i := 1; i < len(in.T); i++ {
		if in.V[i] == in.V[i-1] {
			continue
		}
		if n := len(steps); n > 0 {
			longest = max(longest, in.T[i]-steps[n-1])
		}
		steps = append(steps, in.T[i])
	}
	longest += s.Spacing() // a step is before the reading that shows it
	if n := len(steps); n > 1 && steps[0]-w.Start <= longest && w.End-steps[n-1] <= longest {
		w.Start, w.End = steps[0], steps[n-1]
	}
	return w
}

// kept are the parts of the window that are not left out.
func (w Window) kept() []Span {
	var out []Span
	at := w.Start
	for _, o := range w.Out {
		if o.End <= w.Start || o.Start >= w.End {
			continue
		}
		if o.Start > at {
			out = append(out, Span{at, o.Start})
		}
		at = max(at, o.End)
	}
	if at < w.End {
		out = append(out, Span{at, w.End})
	}
	return out
}

// covers says whether the readings of s tell what happened in all of the window; of what is
// left out nobody asks.
func (w Window) covers(s Series) error {
	usual := s.Spacing()
	open := max(usualGaps*usual, partOpen*(w.End-w.Start))
	open = min(open, max(mostOpen*(w.End-w.Start), oneMissed*usual))
	for _, k := range w.kept() {
		if k.End-k.Start <= open && len(w.Out) > 0 {
			continue // between two stalls: too short to show anything
		}
		in := s.within(k.Start, k.End)
		if len(in.T) < 2 {
			if len(s.T) >= 2 && k.End-k.Start > open {
				return fmt.Errorf("no two readings between %.3f s and %.3f s: %w", k.Start, k.End, errors.Join(ErrUncovered, ErrFewSamples))
			}
			return fmt.Errorf("between %.3f s and %.3f s: %w", k.Start, k.End, ErrFewSamples)
		}
		for i := 1; i < len(in.V); i++ {
			if in.V[i] < in.V[i-1] {
				return fmt.Errorf("from %g to %g at %.3f s: %w", in.V[i-1], in.V[i], in.T[i], ErrCounterFell)
			}
		}
		last := k.Start
		for i := range len(in.T) + 1 {
			t := k.End
			if i < len(in.T) {
				t = in.T[i]
			}
			if t-last > open*(1+1e-9) {
				return fmt.Errorf("none from %.3f s to %.3f s, of a phase from %.3f s to %.3f s: %w", last, t, w.Start, w.End, ErrUncovered)
			}
			last = t
		}
	}
	return nil
}

// part is what is used of a window without interruption: counters and the time that all of
// them cover.
type part struct {
	series   []Series
	lo, hi   float64
	readings int // intervals between them, of the counter that is read most seldom
}

// cut is the part of counters in k, at readings that are apart; false where there is nothing
// to see.
func cut(k Span, apart float64, series []Series) (part, bool) {
	p := part{lo: math.Inf(-1), hi: math.Inf(1), readings: math.MaxInt}
	for _, s := range series {
		s = s.within(k.Start, k.End)
		if len(s.T) < 2 {
			return part{}, false
		}
		p.lo, p.hi = max(p.lo, s.T[0]), min(p.hi, s.T[len(s.T)-1])
		p.series = append(p.series, s)
		p.readings = min(p.readings, len(s.T)-1)
	}
	if p.hi <= p.lo {
		return part{}, false
	}
	if apart <= 0 || p.series[0].Spacing() >= apart {
		return p, true
	}
	n := int((p.hi - p.lo) / apart * (1 + 1e-9))
	if n < 1 {
		return part{}, false
	}
	for i, s := range p.series {
		var grid Series
		for j := range n + 1 {
			t := min(p.lo+float64(j)*apart, p.hi)
			v, _ := s.at(t)
			grid.T, grid.V = append(grid.T, t), append(grid.V, v)
		}
		p.series[i] = grid
	}
	p.hi, p.readings = p.series[0].T[n], n
	return p, true
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

// Stood is the longest time within [start, end] in which the counter did not grow by more than
// least, by its readings: until it grows again, the window ends, or readings do. It begins
// with the last reading that was still growing. Zero for a counter of fewer than two readings.
func (s Series) Stood(start, end, least float64) Span {
	var longest Span
	i := sort.SearchFloat64s(s.T, start)
	if i > 0 {
		i--
	}
	if i >= len(s.T) {
		return longest
	}
	from, v := max(s.T[i], start), s.V[i]
	for ; i < len(s.T) && s.T[i] <= end; i++ {
		if s.V[i]-v > least {
			from, v = s.T[i], s.V[i]
			continue
		}
		if s.T[i]-from > longest.End-longest.Start {
			longest = Span{from, s.T[i]}
		}
	}
	return longest
}

// Silent is the longest time within [start, end] without a reading.
func (s Series) Silent(start, end float64) Span {
	longest, last := Span{}, start
	for _, t := range append(slices.Clone(s.within(start, end).T), end) {
		if t-last > longest.End-longest.Start {
			longest = Span{last, t}
		}
		last = t
	}
	return longest
}

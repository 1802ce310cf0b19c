package paramservice

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Interference is told by Page's cumulative sum (1954): every report of transfers that are slow
// speaks for it, every other one against it, and what speaks against it when there is nothing
// to speak against is forgotten. So all reports count, one that is off costs a report more,
// and it does not matter when in a job's observation the interference began.
//
// A report of an undisturbed Aggregator is slow with probability at most 1/4: only then is it above three
// quarters of those before it. Then 3 to the power of the sum is a supermartingale, and the probability that the
// reports from some one on ever sum up to h is at most 3^-h (Ville). So h is the least with
// 3^-h <= FalseAlarm over the number of Aggregators of the job.
//
// What is compared is how slow an Aggregator is beside the job's others. What the machines or the network in
// between have to do besides makes all of them three times as slow in one second, and fast in
// the next; interference with one of them is lost in that, but not in their ratio.

// DefaultFalseAlarm is the probability of that for all Aggregators of a job together, for each report:
// eight slow ones more than others, with four Aggregators.
const DefaultFalseAlarm = 0.001

// DefaultRetry is how long an Aggregator that was interfered with and is empty gets nothing at first.
const DefaultRetry = time.Minute

// mostRetries doublings are the longest that it gets nothing: an hour by default.
const mostRetries = 6

// remembered is how many undisturbed reports are known, enough how many tell more than the profile.
const (
	remembered = 63
	enough     = 10
)

// unknown is how many times as long as in the profile transfers are to take at least as long as the profile is all
// that is known: it was of other tensors together.
const unknown = 2

// watch is what a job's transfers were like since its tensors were assigned.
type watch struct {
	level      float64         // of undisturbed ones where its tensors were before; 1: as in the profile
	iteration  time.Duration   // the same; 0: not known
	iterations []time.Duration // of the latest undisturbed reports
	links      map[int]*link
}

// link is the way to an Aggregator.
type link struct {
	past      []transfers // undisturbed, the latest
	since     []transfers // since the sum of what speaks for interference was 0
	slow      bool        // the latest report
	bad, good int         // sums of what speaks for interference, and against it

	interfered bool // the sum was enough since it was 0
}

// transfers are what a report says of an Aggregator.
type transfers struct {
	slow   float64 // as it says
	beside float64 // over the median of the job's others, in the same report
}

func newWatch() watch { return watch{level: 1, links: map[int]*link{}} }

// known is whether enough was seen to tell more than the profile does.
func (l *link) known() bool { return len(l.past) >= enough }

// usual is how slow undisturbed transfers are.
func (w *watch) usual(l *link) float64 {
	if !l.known() {
		return w.level
	}
	return quantile(l.past, 0.5, transfers.alone)
}

func (t transfers) alone() float64 { return t.slow }
func (t transfers) ratio() float64 { return t.beside }

// undisturbed is how long iterations take; 0: not known.
func (w *watch) undisturbed() time.Duration {
	if len(w.iterations) < enough {
		return w.iteration
	}
	return median(w.iterations)
}

// keep adds the latest value to those that are remembered.
func keep[T any](values []T, v T) []T {
	if len(values) == remembered {
		values = values[1:]
	}
	return append(values, v)
}

// median is that of values, the lower one of two.
func median[T cmp.Ordered](values []T) T {
	values = slices.Sorted(slices.Values(values))
	return values[(len(values)-1)/2]
}

// quantile is a value that one more from the same distribution is above with probability 1-p at most, if there
// are enough.
func quantile(past []transfers, p float64, of func(transfers) float64) float64 {
	values := make([]float64, len(past))
	for i, t := range past {
		values[i] = of(t)
	}
	slices.Sort(values)
	return values[min(int(math.Ceil(p*float64(len(values)+1))), len(values))-1]
}

// see takes a report: how slow transfers were with each Aggregator that the job is at. One is slow if it
// takes, beside the others, limit times as long as usual, and longer than most times before; so what
// slows down half of them is not their links. Nor is one slow that is shared and of which nothing but the profile is
// known: that was without those whose traffic goes there now, too, and a job that they make too slow is
// assigned anew. Sums go up to twice what decides, so that one report does not undo it.
func (w *watch) see(slow map[int]float64, shared map[int]bool, iteration time.Duration, limit float64, need int) {
	undisturbed := len(slow) > 0
	for id := range slow {
		if w.links[id] == nil {
			w.links[id] = &link{}
		}
	}
	for id, s := range slow {
		l, limit := w.links[id], limit
		if !l.known() {
			limit = max(limit, unknown)
		}
		undisturbed = undisturbed && s < limit*w.usual(l)
		others, any := beside(slow, id)
		if !any && len(w.links) > 1 {
			continue // nothing was seen of them
		}
		t := transfers{s, s / others}
		if l.known() {
			l.slow = t.beside >= limit*quantile(l.past, 0.5, transfers.ratio) && t.beside > quantile(l.past, 0.75, transfers.ratio)
		} else {
			l.slow = s >= limit*max(w.level, others) && !shared[id]
		}
		l.count(t, need)
	}
	if undisturbed && iteration > 0 {
		w.iterations = keep(w.iterations, iteration)
	}
}

// beside is the median of all but one, the upper one of two; 1 if there are no others.
func beside(slow map[int]float64, but int) (_ float64, any bool) {
	var others []float64
	for id, x := range slow {
		if id != but {
			others = append(others, x)
		}
	}
	if len(others) == 0 {
		return 1, false
	}
	slices.Sort(others)
	return others[len(others)/2], true
}

// count adds the latest report to the sums. It is known to have been undisturbed, slow or not, when nothing speaks for
// interference any more, if what did was not enough.
func (l *link) count(t transfers, need int) {
	up := -1
	if l.slow {
		up = 1
	}
	l.bad = min(max(0, l.bad+up), 2*need)
	l.good = min(max(0, l.good-up), 2*need)
	if l.bad >= need {
		l.interfered = true
	}
	l.since = keep(l.since, t)
	if l.bad > 0 {
		return
	}
	if !l.interfered {
		for _, t := range l.since {
			l.past = keep(l.past, t)
		}
	}
	l.since, l.interfered = nil, false
}

// forget begins anew, as tensors have moved. What undisturbed transfers were like stays known.
func (w *watch) forget() {
	var levels []float64
	for _, l := range w.links {
		if l.known() {
			levels = append(levels, w.usual(l))
		}
	}
	if len(levels) > 0 {
		w.level = min(1, median(levels))
	}
	w.iteration, w.iterations = w.undisturbed(), nil
	clear(w.links)
}

// decisive is the sum that tells of interference, for a job on so many Aggregators.
func decisive(aggregators int, falseAlarm float64) (sum int) {
	for p := float64(aggregators); p > falseAlarm; p /= 3 {
		sum++
	}
	return max(1, sum)
}

// retry lets Aggregators take tensors again that are empty and have got nothing for long enough.
func (c *Cluster) retry(now time.Duration) {
	for _, a := range c.aggs {
		if a.avoid && len(a.loads) == 0 && now >= a.until {
			a.avoid = false
		}
	}
}

// spare is how many idle Aggregators a job may have to be spread over as many as its servers again.
func (c *Cluster) spare(p *placed) (n int) {
	used := 0
	for _, a := range c.aggs {
		switch {
		case a.find(p) >= 0:
			used++
		case len(a.loads) == 0 && !a.avoid:
			n++
		}
	}
	return max(0, min(n, p.Servers-used))
}

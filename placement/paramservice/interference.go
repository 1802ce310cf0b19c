package paramservice

import (
	"cmp"
	"slices"
	"time"
)

// Interference is told by Page's cumulative sum (1954): every report of transfers that are slow
// speaks for it, every other one against it, and what speaks against it when there is nothing
// to speak against is forgotten. So all reports count, one that is off costs a report more,
// and it does not matter when in a job's observation the interference began.
//
// Let a report of an undisturbed Aggregator be slow with probability at most 1/4, whatever the reports
// before it were. Then 3 to the power of the sum is a supermartingale, and the probability that the
// reports from some one on ever sum up to h is at most 3^-h (Ville). So h is the least with
// 3^-h <= FalseAlarm over the number of Aggregators of the job.

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
	enough     = 5
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
	quiet     []float64 // the latest undisturbed reports
	slow      bool      // the latest report
	bad, good int       // sums of what speaks for interference, and against it
}

func newWatch() watch { return watch{level: 1, links: map[int]*link{}} }

// reference is how slow undisturbed transfers are.
func (w *watch) reference(l *link) float64 {
	if len(l.quiet) < enough {
		return w.level
	}
	return median(l.quiet)
}

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

// see takes a report: how slow transfers were with each Aggregator that the job is at. One is slow if it
// takes limit times as long as undisturbed, and as the others do that of what is usual for them: what slows
// down half of them is not their links. Nor is it one that is shared and of which nothing but the profile is
// known: that was without those whose traffic goes there now, too, and a job that they make too slow is
// assigned anew. Sums go up to twice what decides, so that one report does not undo it.
func (w *watch) see(slow map[int]float64, shared map[int]bool, iteration time.Duration, limit float64, need int) {
	times := map[int]float64{}
	for id, s := range slow {
		if w.links[id] == nil {
			w.links[id] = &link{}
		}
		times[id] = s / w.reference(w.links[id])
	}
	undisturbed := len(slow) > 0
	for id, x := range times {
		var others []float64
		for o, y := range times {
			if o != id {
				others = append(others, y)
			}
		}
		usual := 1.0
		if len(others) > 0 {
			usual = max(1, median(others))
		}
		l := w.links[id]
		limit := limit
		if len(l.quiet) < enough {
			limit = max(limit, unknown)
		}
		l.slow = x >= limit*usual && (len(l.quiet) >= enough || !shared[id])
		up := -1
		if l.slow {
			up = 1
		}
		l.bad = min(max(0, l.bad+up), 2*need)
		l.good = min(max(0, l.good-up), 2*need)
		if x < limit {
			l.quiet = keep(l.quiet, slow[id])
		} else {
			undisturbed = false
		}
	}
	if undisturbed && iteration > 0 {
		w.iterations = keep(w.iterations, iteration)
	}
}

// forget begins anew, as tensors have moved. What undisturbed transfers were like stays known.
func (w *watch) forget() {
	var levels []float64
	for _, l := range w.links {
		if len(l.quiet) >= enough {
			levels = append(levels, median(l.quiet))
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

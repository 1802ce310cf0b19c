package jobs

import (
	"fmt"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// A stall of the testbed costs seconds and not the run: a phase goes on until it has as many
// seconds without one as were planned, and figures are of these. So does chance: it goes on until
// figures are certain enough for expectations to hold or not. Measure.Stretch bounds both.

// recovery is how long after a stall traffic is not what it was: what waited is sent, and what
// was lost or thought to be lost is sent again. Two round trips of the slowest job.
func recovery(base Baseline) float64 {
	longest := 0.0
	for _, rtt := range base.RTTs {
		longest = max(longest, rtt)
	}
	return 2 * longest
}

// unnoticed is the part of a phase that stalls may take together of which no job notices any.
const unnoticed = 0.01

// noticed are the stalls between start and end that figures may show. One that is shorter than testbed.LateLimit of every
// job's round trip, in queues as they are predicted, holds up a small part of a window, and costs a figure no more than its
// own length. Where such stalls take less than unnoticed of the time together, they are left out.
func noticed(stalls []study.Standstill, start, end float64, base Baseline) []study.Standstill {
	shortest := 0.0
	for job, rtt := range base.RTTs {
		if lap := max(rtt, base.Laps[job]); shortest == 0 || lap < shortest {
			shortest = lap
		}
	}
	var short, long []study.Standstill
	for _, s := range stalls {
		if s.Late <= testbed.LateLimit*shortest {
			short = append(short, s)
		} else {
			long = append(long, s)
		}
	}
	if results.Total(study.SpoiltTimes(short, start, end, 0)) > unnoticed*(end-start) {
		return stalls
	}
	return long
}

// lostTimes are the times between start and end that figures leave out.
func lostTimes(stalls []study.Standstill, start, end float64, base Baseline) []results.Stall {
	return study.SpoiltTimes(noticed(stalls, start, end, base), start, end, recovery(base))
}

// without is the window from start to end but for the times.
func without(start, end float64, times []results.Stall) results.Window {
	w := results.Window{Start: start, End: end}
	for _, t := range times {
		w.Out = append(w.Out, t.Span)
	}
	return w
}

// patience makes a phase longer for the stalls in it, and until its figures are certain.
type patience struct {
	base       Baseline
	stretch    float64       // Measure.Stretch
	interval   float64       // s, between readings
	start, end time.Duration // of the phase without its warm-up, as planned, since the point began
	moved      time.Duration // by how much its end was put off for stalls
	longer     time.Duration // and for its figures
}

// begin is told that a phase begins at now, since the point began. The timeline has what is
// still to come.
func (p *patience) begin(t timeline, now time.Duration) {
	p.start, p.end, p.moved, p.longer = now+t.warmup, 0, 0, 0
	if len(t.events) > 0 {
		p.end = t.events[0].at
	}
}

// wait is for how long a phase that was to end at now has to go on. Stalls are on the run's
// clock, on which the point began at origin.
func (p *patience) wait(now time.Duration, origin float64, stalls []study.Standstill) time.Duration {
	if p.end <= p.start {
		return 0
	}
	start, end := origin+p.start.Seconds(), origin+now.Seconds()
	lost := lostOf(lostTimes(stalls, start, end, p.base), start, end, p.interval)
	more := min(time.Duration(lost*float64(time.Second))-p.moved, p.left())
	if more < time.Millisecond {
		return 0
	}
	p.moved += more
	return more
}

// left is by how much the phase may still become longer.
func (p *patience) left() time.Duration {
	planned := p.end - p.start
	return time.Duration((p.stretch-1)*float64(planned)) - p.moved - p.longer
}

// doubt is for how long a phase that was to end goes on, whose figures are unsure or not: once more as long
// as it is, or as it may become. How much would do is a poor guess from little.
func (p *patience) doubt(unsure bool) time.Duration {
	planned := p.end - p.start
	more := min(planned+p.longer, p.left())
	if !unsure || more < planned/4 { // hardly anything would change
		return 0
	}
	p.longer += more
	return more
}

// delay puts off all that is still to come.
func (t *timeline) delay(by time.Duration) {
	for i := range t.events {
		t.events[i].at += by
	}
}

// planned is how long the phase was to be; 0: nobody knows.
func (p *patience) planned() time.Duration { return max(0, p.end-p.start) }

// lostOf is how much of the time from start to end figures do not have: what they leave out, and what lies between where no
// two readings, so many seconds apart, lie for sure.
func lostOf(leftOut []results.Stall, start, end, interval float64) float64 {
	lost, at := results.Total(leftOut), start
	for i := range len(leftOut) + 1 {
		next := results.Span{Start: end, End: end}
		if i < len(leftOut) {
			next = leftOut[i].Span
		}
		if between := next.Start - at; between < 2*interval {
			lost += between
		}
		at = next.End
	}
	return lost
}

// leaveOut notes in a phase what figures leave out, and whether what is left is too little of the seconds that were planned,
// or that there were, where readings are so many seconds apart. It returns the window of figures.
func leaveOut(ph *results.Phase, stalls []study.Standstill, base Baseline, interval, planned float64) results.Window {
	ph.LeftOut = lostTimes(stalls, ph.Start, ph.End, base)
	w := without(ph.Start, ph.End, ph.LeftOut)
	lost, long := lostOf(ph.LeftOut, ph.Start, ph.End, interval), ph.End-ph.Start
	if planned <= 0 || planned > long {
		planned = long
	}
	if len(w.Out) > 0 && long-lost < study.Enough*planned {
		ph.Spoilt = fmt.Sprintf("the testbed stood still, %d times, so that %s of %s are lost, first %s", len(w.Out), human.Quantity(lost, "s"), human.Quantity(long, "s"), ph.LeftOut[0].Why)
	}
	return w
}

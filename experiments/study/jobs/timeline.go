package jobs

import (
	"cmp"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
)

// event is a job that starts or stops sending.
type event struct {
	at    time.Duration
	job   string
	stop  bool
	begun time.Duration // of a start that was seen: when it was begun, at being when every worker had started
	// opened is when the job's own workers had; others' may take longer.
	opened time.Duration
	delay  time.Duration // of one that was seen: by how much it was put off until figures were certain
	// planned is of one that was seen: how long the phase before it was to be; 0: nobody knows.
	planned time.Duration
}

// from is when the event begins to disturb others.
func (e event) from() time.Duration { return cmp.Or(e.begun, e.at) }

// span is a time in which the set of jobs that send does not change.
type span struct {
	start, end time.Duration
	jobs       []string      // in the order of the spec
	longer     time.Duration // than planned, until its figures were certain
	planned    time.Duration // how long it was to be; 0: nobody knows
}

// timeline is what happens in one point: planned, in wall-clock time since the
// point began, or seen, on the run's clock.
type timeline struct {
	events []event
	warmup time.Duration
	jobs   []string // all, in the order of the spec
	late   float64  // how late frames left, s, of a run that is over, where that is worth telling
}

// timelineOf lays out the spec's jobs. A job that has neither a duration nor a
// number of iterations sends until the end, which is the latest stop of another
// job, or a warm-up and the measurement's duration after the latest such start.
// Stops come before starts at the same instant.
func timelineOf(s *spec.Spec) timeline {
	t := timeline{warmup: time.Duration(s.Measure.Warmup)}
	var end time.Duration
	for _, j := range s.Jobs {
		t.jobs = append(t.jobs, j.Name)
		switch {
		case j.Iterations > 0:
		case j.Duration > 0:
			end = max(end, time.Duration(j.Start+j.Duration))
		default:
			end = max(end, time.Duration(j.Start+s.Measure.Warmup+s.Measure.Duration))
		}
	}
	for _, j := range s.Jobs {
		t.events = append(t.events, event{at: time.Duration(j.Start), job: j.Name})
		switch {
		case j.Iterations > 0: // ends by itself
		case j.Duration > 0:
			t.events = append(t.events, event{at: time.Duration(j.Start + j.Duration), job: j.Name, stop: true})
		default:
			t.events = append(t.events, event{at: end, job: j.Name, stop: true})
		}
	}
	slices.SortStableFunc(t.events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.stop == b.stop {
			return c
		}
		if a.stop {
			return -1
		}
		return 1
	})
	return t
}

// due are the events whose time has come.
func (t timeline) due(now time.Duration) []event {
	n := 0
	for n < len(t.events) && t.events[n].at <= now {
		n++
	}
	return t.events[:n]
}

// end is when the last event happens.
func (t timeline) end() time.Duration {
	var end time.Duration
	for _, e := range t.events {
		end = max(end, e.at)
	}
	return end
}

// active are the jobs that run after the last event.
func (t timeline) active() map[string]bool {
	active := map[string]bool{}
	for _, e := range t.events {
		active[e.job] = !e.stop
	}
	return active
}

// current is which span it is that has begun with the last event, or was the last before it; -1: none.
func (t timeline) current() int {
	if len(t.events) == 0 {
		return 0
	}
	t.events = append(slices.Clip(t.events), event{at: t.events[len(t.events)-1].at + t.warmup + 1, stop: true})
	return len(t.spans()) - 1
}

// spans are the times to measure: from a warm-up after each event to the next one
// that comes later. Where less than the warm-up lies between two events nothing
// was steady, and there is no span.
func (t timeline) spans() []span {
	active := map[string]bool{}
	var out []span
	for i, e := range t.events {
		active[e.job] = !e.stop
		if i+1 == len(t.events) || t.events[i+1].from() <= e.at {
			continue
		}
		sp := span{start: e.at + t.warmup, end: t.events[i+1].from(), longer: t.events[i+1].delay, planned: t.events[i+1].planned}
		for _, j := range t.jobs {
			if active[j] {
				sp.jobs = append(sp.jobs, j)
			}
		}
		if sp.end > sp.start && len(sp.jobs) > 0 {
			out = append(out, sp)
		}
	}
	return out
}

// schedule is when jobs send at a pace, and the spans. What is only planned is a start, to which jobs add round trips
// of their own, one for each PSN of ina.Startup, until their windows open.
func (t timeline) schedule(base Baseline, pace testbed.Pace) placement.Schedule {
	within := pace.Within.Seconds()
	s := placement.Schedule{Jobs: map[string]flow.Times{}, Lag: flow.Lag{Rest: pace.Rest.Seconds(), Wake: pace.Wake.Seconds(), Trip: pace.Trip}}
	if len(t.events) == 0 {
		return s
	}
	origin := t.events[0].from()
	since := func(at time.Duration) float64 { return max(0, at-origin).Seconds() }
	for _, e := range t.events {
		j := s.Jobs[e.job]
		switch {
		case e.stop:
			j.End = max(j.Begin, since(e.at))
		case e.opened > 0:
			j = flow.Times{Begin: since(min(e.opened, e.at)), Within: within, End: since(t.end())}
		default:
			j = flow.Times{Begin: since(e.at) + ina.Startup*base.RTTs[e.job], Within: within, End: since(t.end())}
		}
		s.Jobs[e.job] = j
	}
	for _, sp := range t.spans() {
		s.Phases = append(s.Phases, placement.Phase{Count: flow.Count{From: since(sp.start), To: since(sp.end)}, Jobs: sp.jobs})
	}
	return s
}

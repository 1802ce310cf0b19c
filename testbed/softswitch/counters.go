package softswitch

import "github.com/inabench/inabench/testbed/ina"

// counter reads one counter of the switch.
func (e *engine) counter(c Counter, index int) (packets, bytes int64) {
	if !c.PerJob() {
		p := e.byPort[uint32(index)]
		switch {
		case index < 0 || p == nil:
			return 0, 0
		case c == PortQueuePeak:
			return 0, p.peak
		}
		return p.counters[c].packets, p.counters[c].bytes
	}
	j := e.jobCounters(index)
	if j == nil {
		return 0, 0
	}
	if c == JobHold {
		return j.Releases, j.Hold.Microseconds()
	}
	if f := jobField(j, c); f != nil {
		return f.Packets, f.Bytes
	}
	return 0, 0
}

func (e *engine) resetCounter(c Counter, index int) {
	if !c.PerJob() {
		if p := e.byPort[uint32(index)]; index >= 0 && p != nil {
			if c == PortQueuePeak {
				p.peak = 0
			}
			p.counters[c] = count{}
		}
		return
	}
	j := e.jobCounters(index)
	if j == nil {
		return
	}
	if c == JobHold {
		j.Releases, j.Hold = 0, 0
	} else if f := jobField(j, c); f != nil {
		*f = ina.Count{}
	}
}

func (e *engine) jobCounters(index int) *ina.Counters {
	if index < 0 || index > ina.MaxJob {
		return nil
	}
	return e.ina.Counters(uint16(index))
}

// jobField is the count behind a counter of a job; nil of JobHold, which has none.
func jobField(j *ina.Counters, c Counter) *ina.Count {
	return [NumCounters]*ina.Count{
		JobIn:         &j.In,
		JobAggregated: &j.Aggregated,
		JobFallback:   &j.Fallback,
		JobGranted:    &j.Granted,
		JobDenied:     &j.Denied,
		JobOut:        &j.Out,
		JobResults:    &j.Results,
		JobResends:    &j.Resends,
		JobDuplicates: &j.Duplicates,
		JobDropped:    &j.Dropped,
		JobMarked:     &j.Marked,
		JobLocks:      &j.Locks,
		JobRefused:    &j.Refused,
		JobConflicts:  &j.Conflicts,
		JobInactive:   &j.Inactive,
		JobAnswers:    &j.Answers,
	}[c]
}

// reset empties tables and counters; frames in the cables stay there, since those
// are not the switch.
func (e *engine) reset() {
	e.ina.Reset()
	clear(e.routes)
	clear(e.groups)
	for _, p := range e.ports {
		p.counters = [JobIn]count{}
		p.peak = 0
	}
}

package collective

import (
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/placement/workload"
)

// Collector finds the communication pattern of a job from what its queue sees: when each
// all-reduce is requested, and when the job begins to wait for results and goes on. It
// needs no word from the job about steps (MINA, section IV-B): the time in which the job
// does not wait is its computing, and the shortest sequence of sizes and waits that keeps
// coming again is a step.
//
// Of several waits in a step, the one after which the job computes longest without a
// request ends it: what follows is the next forward pass. Starts are in the job's time of
// computing, so they do not depend on how fast the network is.
type Collector struct {
	warmup, steps int

	mu      sync.Mutex
	events  []event
	blocked time.Duration // in all waits that have ended
	wait    time.Duration // when the one under way began
	found   *workload.Pattern
}

// event is a request, or waits without a request in between. The time is the job's, that
// is, without what it has waited.
type event struct {
	bytes int64 // or waits
	at    time.Duration
}

// waits is in the place of bytes.
const waits = -1

// maxEvents bounds what is remembered of a job whose steps are not found.
const maxEvents = 1 << 14

// NewCollector listens to so many steps, after a warm-up of others, at least 1 of each. A
// nil collector listens to nothing.
func NewCollector(warmup, steps int) *Collector {
	return &Collector{warmup: max(warmup, 1), steps: max(steps, 1)}
}

func (c *Collector) requested(t time.Duration, bytes int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found != nil {
		return
	}
	if n := len(c.events); n > 0 && c.events[n-1].bytes == waits {
		c.find()
	}
	if len(c.events) == maxEvents {
		c.events = append(c.events[:0], c.events[maxEvents/2:]...)
	}
	c.events = append(c.events, event{bytes, t - c.blocked})
}

func (c *Collector) waiting(t time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = t
}

func (c *Collector) waited(t time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found != nil {
		return
	}
	c.blocked += t - c.wait
	e := event{waits, t - c.blocked}
	if n := len(c.events); n > 0 && c.events[n-1].bytes == waits {
		c.events[n-1] = e
		return
	}
	c.events = append(c.events, e)
}

// Pattern is a step of the job. It is not ok before the warm-up and the steps after it
// have been seen, the first all-reduce behind them included.
func (c *Collector) Pattern() (p workload.Pattern, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		return workload.Pattern{}, false
	}
	p = *c.found
	p.Ops = slices.Clone(p.Ops)
	return p, true
}

// find looks for the shortest period of events of which the last is a wait. What came
// before the warm-up was over may have been anything.
func (c *Collector) find() {
	n := len(c.events)
	for period := 2; period*(c.warmup+c.steps) <= n; period++ {
		if c.repeats(period) {
			c.found = c.median(period)
			return
		}
	}
}

func (c *Collector) repeats(period int) bool {
	for i := len(c.events) - 1; i >= period*c.warmup; i-- {
		if c.events[i].bytes != c.events[i-period].bytes {
			return false
		}
	}
	return true
}

// median is the step whose times are the medians of the last steps.
func (c *Collector) median(period int) *workload.Pattern {
	// span is the median of what lies between two events of a step, in the last steps that
	// end with the event at end.
	span := func(end, from, to int) time.Duration {
		var spans []time.Duration
		for step := 0; step < c.steps && end-period*step+from >= 0; step++ {
			spans = append(spans, c.events[end-period*step+to].at-c.events[end-period*step+from].at)
		}
		slices.Sort(spans)
		return (spans[(len(spans)-1)/2] + spans[len(spans)/2]) / 2
	}
	// Steps may end at any wait, but they compute longest at their beginning.
	n := len(c.events)
	end, longest := 0, time.Duration(-1)
	for e := n - period; e < n; e++ {
		if c.events[e].bytes != waits {
			continue
		}
		if gap := span(e, -period, -period+1); gap > longest {
			end, longest = e, gap
		}
	}
	p := &workload.Pattern{Step: span(end, -period, 0).Seconds(), Source: "collected from a running job"}
	for i := -period + 1; i < 0; i++ {
		if b := c.events[end+i].bytes; b != waits {
			p.Ops = append(p.Ops, workload.Op{Start: span(end, -period, i).Seconds(), Bytes: b})
		}
	}
	return p
}

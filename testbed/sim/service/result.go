package service

import (
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// Result is what became of jobs and Aggregators.
type Result struct {
	End      time.Duration // of the simulation
	Jobs     []Outcome     // as given
	Machines []Machine     // Aggregators, or static servers, in the order in which they were allocated
	Counts   []Count       // whenever one of them changed
	Changes  []Change      // of assignments, in order
}

// Outcome is what became of a job.
type Outcome struct {
	Started    bool
	Start, End time.Duration // it was there
	Iterations []Iteration
	CPU        time.Duration // of Aggregators, for it
	Work       time.Duration // that it would have taken alone, in Replay
	Moved      int           // tensors that changed their Aggregator
	Loss       float64       // the largest part of its speed that it lost by the planner's model
	Turns      [3]int        // of its requests in cyclic slots, by paramservice.Turn
}

// Iteration is one of a job.
type Iteration struct {
	End, Took time.Duration
}

// Mean is how long iterations from (the first is 0) up to and without to took on average; 0 if there are none.
func (o *Outcome) Mean(from, to int) time.Duration {
	from, to = max(from, 0), min(to, len(o.Iterations))
	if from >= to {
		return 0
	}
	var sum time.Duration
	for _, it := range o.Iterations[from:to] {
		sum += it.Took
	}
	return sum / time.Duration(to-from)
}

// Between is how long iterations took on average that lie within [from, to]; 0 if none does.
func (o *Outcome) Between(from, to time.Duration) time.Duration {
	var sum, n time.Duration
	for _, it := range o.Iterations {
		if it.End-it.Took >= from && it.End <= to {
			sum += it.Took
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / n
}

// Machine is an Aggregator or static server.
type Machine struct {
	From, To time.Duration // it was allocated
	Busy     time.Duration // it spent adding and updating
	// Disturbed is that background flows were on its NIC, from when Changes say on until To.
	Disturbed bool
	// Usage is the part of each interval of Config.Usage, the first of which begins with the simulation, in which it did so:
	// at most MaxUsage of them, and none after the last in which it did.
	Usage []float64
}

// MaxUsage bounds a Machine's Usage.
const MaxUsage = 1 << 20

// worked adds to Usage what the machine did from a time to another one.
func (m *Machine) worked(from, to, interval time.Duration) {
	for interval > 0 && from < to {
		i := int(from / interval)
		if i >= MaxUsage {
			return
		}
		for len(m.Usage) <= i {
			m.Usage = append(m.Usage, 0)
		}
		end := min(to, time.Duration(i+1)*interval)
		m.Usage[i] += float64(end-from) / float64(interval)
		from = end
	}
}

// Count is how many Aggregators there are from a time on.
type Count struct {
	At          time.Duration
	Aggregators int
	Required    int // servers that the jobs that are there asked for
}

// Change is a verdict of pMaster that had consequences, or an arrival or exit.
type Change struct {
	At   time.Duration
	What What
	Job  string
}

// What is what a Change is of.
type What uint8

// Changes.
const (
	Arrived   What = iota // a job, on temporary Aggregators
	Settled               // a job, on shared ones
	Reverted              // a job was slow, this one was assigned anew
	Respread              // a job was slow, and is on as many Aggregators again as before one was interfered with
	Evacuated             // tensors left an Aggregator that is interfered with
	Helpless              // a job is slow and nothing was to be done
	Left                  // a job
	Period                // a period ended, and tensors moved
	Migrated              // all tensors of a job, as Config.Migrate says
	Disturbed             // background flows began
)

func (w What) String() string {
	return [...]string{"arrived", "settled", "reverted", "respread", "evacuated", "helpless", "left", "period", "migrated", "disturbed"}[w]
}

// verdicts are the changes that pMaster's verdicts make.
var verdicts = map[paramservice.Verdict]What{
	paramservice.Reverted: Reverted, paramservice.Respread: Respread, paramservice.Evacuated: Evacuated, paramservice.Helpless: Helpless,
}

// OfVerdict is the change that a verdict of pMaster's makes, by the verdict's name; not ok: it makes none.
func OfVerdict(name string) (_ What, ok bool) {
	for v, what := range verdicts {
		if v.String() == name {
			return what, true
		}
	}
	return 0, false
}

// Steady is the longest time in which nothing changed: when it began, and when it ended.
func (r *Result) Steady() (from, to time.Duration) {
	last := time.Duration(0)
	for i := range r.Changes {
		if c := &r.Changes[i]; c.What == Helpless {
			continue
		} else if c.At-last > to-from {
			from, to = last, c.At
		}
		last = r.Changes[i].At
	}
	if r.End-last > to-from {
		from, to = last, r.End
	}
	return from, to
}

// At is what there was at a time.
func (r *Result) At(t time.Duration) (c Count) {
	for i := range r.Counts {
		if r.Counts[i].At > t {
			break
		}
		c = r.Counts[i]
	}
	return c
}

// Usage sums up Counts over the time from the first job to the end.
type Usage struct {
	Aggregators float64 // s that they were allocated, all together
	Required    float64 // s of what the jobs asked for
	Most        int     // Aggregators at once
	Above       float64 // part of the time in which more were allocated than required
	Worst       float64 // largest ratio of allocated to required, where something was
}

// Saved is the part of the CPU servers' time that was not needed.
func (u *Usage) Saved() float64 {
	if u.Required == 0 {
		return 0
	}
	return 1 - u.Aggregators/u.Required
}

// Usage is that until a time, which is not after the end.
func (r *Result) Usage(until time.Duration) (u Usage) {
	var above, all time.Duration
	for i := range r.Counts {
		c, next := &r.Counts[i], until
		if c.At > until {
			break
		}
		if i+1 < len(r.Counts) {
			next = min(until, r.Counts[i+1].At)
		}
		span := next - c.At
		u.Aggregators += float64(c.Aggregators) * span.Seconds()
		u.Required += float64(c.Required) * span.Seconds()
		u.Most = max(u.Most, c.Aggregators)
		if span > 0 && (c.Aggregators > 0 || c.Required > 0) {
			all += span
			if c.Aggregators > c.Required {
				above += span
			}
			if c.Required > 0 {
				u.Worst = max(u.Worst, float64(c.Aggregators)/float64(c.Required))
			}
		}
	}
	if all > 0 {
		u.Above = float64(above) / float64(all)
	}
	return u
}

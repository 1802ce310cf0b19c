package paramservice

import (
	"slices"
	"time"
)

// Aggregator is what one has to do, as a copy.
type Aggregator struct {
	ID    int
	Cycle time.Duration // 0 if it has no tensors
	Work  time.Duration // slots in a cycle, all together
	Avoid bool          // interfered with: it gets nothing new
	Loads []Load        // by job, in the order of names
}

// Load is a job's part of an Aggregator.
type Load struct {
	Job       string
	Iteration time.Duration
	Runs      int64         // in a cycle
	Exec      time.Duration // of its tensors here, each once
	Tasks     int           // how many
}

// aggregator is one of a cluster.
type aggregator struct {
	id    int
	cycle time.Duration
	work  time.Duration
	avoid bool
	until time.Duration // if it is empty, on the clock of Observation.Now
	tries int           // how often it has been interfered with since it was last seen to be well
	loads []load
}

type load struct {
	job   *placed
	exec  time.Duration
	tasks int
}

func (a *aggregator) find(p *placed) int {
	return slices.IndexFunc(a.loads, func(l load) bool { return l.job == p })
}

// at is the work in a cycle of some length, and whether all jobs are within the limit.
func (a *aggregator) at(cycle time.Duration, limit float64) (work time.Duration, ok bool) {
	for i := range a.loads {
		l := &a.loads[i]
		d := l.job.Iteration
		if Loss(cycle, d) > limit {
			return 0, false
		}
		work += time.Duration(Runs(cycle, d)) * l.exec
	}
	return work, true
}

// add gives it a tensor, in a cycle that is known to be fit for it.
func (a *aggregator) add(p *placed, task int, cycle time.Duration) {
	if cycle != a.cycle {
		a.cycle = cycle
		a.work, _ = a.at(cycle, 1)
	}
	i := a.find(p)
	if i < 0 {
		i = len(a.loads)
		a.loads = append(a.loads, load{job: p})
	}
	a.loads[i].exec += p.Tasks[task]
	a.loads[i].tasks++
	a.work += time.Duration(Runs(cycle, p.Iteration)) * p.Tasks[task]
	p.at[task] = a.id
}

// remove takes a tensor away. The cycle stays; see shorten.
func (a *aggregator) remove(p *placed, task int) {
	i := a.find(p)
	a.loads[i].exec -= p.Tasks[task]
	a.loads[i].tasks--
	a.work -= time.Duration(Runs(a.cycle, p.Iteration)) * p.Tasks[task]
	if a.loads[i].tasks == 0 {
		a.loads = slices.Delete(a.loads, i, i+1)
	}
}

// shorten makes the cycle the longest iteration again, if that fits everybody.
func (a *aggregator) shorten(limit float64) {
	var cycle time.Duration
	for i := range a.loads {
		cycle = max(cycle, a.loads[i].job.Iteration)
	}
	if cycle == a.cycle {
		return
	}
	if work, ok := a.at(cycle, limit); ok && work <= cycle {
		a.cycle, a.work = cycle, work
	}
}

// busy is the part of its time that is reserved, in billionths: an integer, so that
// sums do not depend on their order.
func (a *aggregator) busy() int64 {
	if a.cycle == 0 {
		return 0
	}
	return int64(float64(a.work) / float64(a.cycle) * 1e9)
}

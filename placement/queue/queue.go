// Package queue says who of the jobs that wait may start, whatever the policy that then says where.
//
// The policies of package cluster get all that wait as one batch, and each has a discipline of its own
// in it: the baselines start whoever fits, in the order of submission, so a large job waits until enough
// GPUs happen to be free at once; NetPack starts the most valuable set, and its ageing and, on request, a reservation
// keep GPUs for who has waited (package netpack). So completion times of two policies differ by whom they start as
// well as by where. The other disciplines are the same for all policies:
//
//   - FCFS, first come, first served: jobs start in the order of submission. The first that does not fit,
//     the head of the line, blocks all behind it.
//   - Backfill is EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", 1995): jobs start as by
//     FCFS. The head of the line gets a reservation, at the first instant at which enough GPUs will be
//     free, and a later job may start if it does not delay that: it ends before, or asks for no more
//     GPUs than will be left beside the head. Nobody but the head has a reservation.
//
// Both give the policy one job at a time, the only way to keep the order whatever the policy prefers. So
// what policies do with several jobs of a batch, NetPack's knapsack for one, plays no part.
//
// # Estimates
//
// A reservation is as good as cluster.Job.Seconds: whoever asks estimates how long a job runs. A running job
// that has outlived its estimate may end at any moment, and a job without an estimate never. GPUs are
// counted, wherever they are: a policy that wants more than that, as Titan wants bandwidth, may start the
// head later.
package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/placement/cluster"
)

// Discipline is who of the jobs that wait may start. The zero value is Policy.
type Discipline string

// The disciplines there are.
const (
	Policy   Discipline = "policy"   // as the policy has it, of all that wait
	FCFS     Discipline = "fcfs"     // first come, first served
	Backfill Discipline = "backfill" // EASY backfilling
)

// Disciplines are all there are, the default first.
func Disciplines() []string { return []string{string(Policy), string(FCFS), string(Backfill)} }

// Check returns an error for what is no discipline.
func (d Discipline) Check() error {
	if d != "" && !slices.Contains(Disciplines(), string(d)) {
		return fmt.Errorf("unknown queue discipline %q: one of %s", string(d), strings.Join(Disciplines(), ", "))
	}
	return nil
}

// Queue gives the jobs that wait to a policy, by a discipline, in one cluster. It remembers when the jobs that
// it started should end, so it is for one run, and not safe for concurrent use.
type Queue struct {
	discipline Discipline
	policy     cluster.Policy
	ends       map[int]float64 // estimated, of the jobs that run, by ID
	broken     error           // what the policy did instead of its contract
}

// New is the queue of a discipline that Check accepts.
func New(d Discipline, p cluster.Policy) *Queue {
	return &Queue{discipline: d, policy: p, ends: map[int]float64{}}
}

// Name is the policy's.
func (q *Queue) Name() string { return q.policy.Name() }

// Err is why the last batch was not placed: what cluster.Err says of the policy, or how it broke its contract. nil: it was.
func (q *Queue) Err() error { return cmp.Or(cluster.Err(q.policy), q.broken) }

// Place has the policy place those of a batch that may start now, in seconds on any clock that does not go
// back. The batch is in the order of submission. The result is as of cluster.Policy; it is nil after what Err says of a
// policy that was given one job at a time.
func (q *Queue) Place(c *cluster.Cluster, now float64, batch []cluster.Job, seed uint64) []cluster.Placement {
	if q.discipline != FCFS && q.discipline != Backfill {
		return q.policy.Place(c, batch, seed)
	}
	maps.DeleteFunc(q.ends, func(id int, _ float64) bool { return held(c, id) == 0 })
	t := turn{q, c, now, seed}
	out := make([]cluster.Placement, len(batch))
	for i, head := range batch {
		p, ok := t.start(head)
		if !ok {
			return nil
		}
		if out[i] = p; len(p.Parts) > 0 {
			continue
		}
		if q.discipline == Backfill && !t.backfill(head, batch[i+1:], out[i+1:]) {
			return nil
		}
		break
	}
	return out
}

// turn is a batch on its way.
type turn struct {
	*Queue
	c    *cluster.Cluster
	now  float64
	seed uint64
}

// start has the policy place one job, whose placement has no parts where it waits. Not ok: the policy broke its contract.
func (t turn) start(j cluster.Job) (p cluster.Placement, ok bool) {
	if j.GPUs > t.c.TotalFree() {
		return p, true
	}
	placed := t.policy.Place(t.c, []cluster.Job{j}, t.seed)
	if len(placed) != 1 {
		t.broken = fmt.Errorf("%s returned %d placements for one job", t.policy.Name(), len(placed))
		return p, false
	}
	if len(placed[0].Parts) > 0 {
		t.ends[j.ID] = t.end(j)
	}
	return placed[0], true
}

// backfill starts jobs behind the head of the line that do not delay it; their placements go into out. Not ok: the policy
// broke its contract.
func (t turn) backfill(head cluster.Job, behind []cluster.Job, out []cluster.Placement) (ok bool) {
	at, beside := t.reservation(head.GPUs)
	for i, j := range behind {
		before := !math.IsInf(at, 1) && t.end(j) <= at
		if !before && j.GPUs > beside {
			continue
		}
		p, ok := t.start(j)
		if !ok {
			return false
		}
		if len(p.Parts) > 0 && !before {
			gpus := held(t.c, j.ID)
			if gpus > beside { // it took spare ones
				if t.broken = t.c.Leave(j.ID); t.broken != nil {
					return false
				}
				delete(t.ends, j.ID)
				continue
			}
			beside -= gpus
		}
		out[i] = p
	}
	return true
}

// reservation is the first instant at which so many GPUs should be free, and how many there are then beside
// them. It is +Inf where nobody knows.
func (t turn) reservation(gpus int) (at float64, beside int) {
	type release struct {
		at   float64
		gpus int
	}
	var releases []release
	for id, at := range t.ends {
		releases = append(releases, release{max(t.now, at), held(t.c, id)})
	}
	slices.SortFunc(releases, func(a, b release) int { return cmp.Compare(a.at, b.at) })
	at, free := t.now, t.c.TotalFree()
	for _, r := range releases {
		if free >= gpus && r.at > at {
			break
		}
		at, free = r.at, free+r.gpus
	}
	if free < gpus {
		return math.Inf(1), 0
	}
	return at, free - gpus
}

// end is when a job should end that starts now; +Inf: nobody knows.
func (t turn) end(j cluster.Job) float64 {
	if !(j.Seconds > 0) {
		return math.Inf(1)
	}
	return t.now + j.Seconds
}

// held is how many GPUs a job that runs has taken, spare ones as well; 0 of one that does not run.
func held(c *cluster.Cluster, id int) int {
	_, p, _ := c.Placement(id)
	n := 0
	for _, parts := range [][]cluster.Part{p.Parts, p.Spare} {
		for _, w := range parts {
			n += w.GPUs
		}
	}
	return n
}

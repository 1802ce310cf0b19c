package placement

import (
	"fmt"
	"math/rand/v2"

	"github.com/inabench/inabench/inventory"
)

// Aggregators is how many aggregators of a switch are used when an experiment says
// how many each switch is to use; 0: all it has.
func Aggregators(sw *inventory.Switch, use int) int {
	if use > 0 && use < sw.Aggregators {
		return use
	}
	return sw.Aggregators
}

// WithMemory is an inventory whose switches have as many aggregators as an experiment uses of them; 0: all.
func WithMemory(inv *inventory.Inventory, use int) *inventory.Inventory {
	if use > 0 {
		inv = inv.Clone()
		for i := range inv.Switches {
			inv.Switches[i].Aggregators = Aggregators(&inv.Switches[i], use)
		}
	}
	return inv
}

// Offset is where in a switch's memory the first PSN of a job looks under linear addressing, as a part of its
// size, 0 to 1: jobs are spread as a controller would that knows nothing of their phases.
func Offset(seed uint64, job uint16) float64 {
	return rand.New(rand.NewPCG(seed, uint64(job))).Float64()
}

// Regions hands out the memory of switches to synchronous jobs, which own a region
// each in every switch that aggregates for them, one after the other.
type Regions struct {
	use  int
	next map[string]int // first aggregator of a switch that no job owns
}

// NewRegions is for switches of which nothing is taken. use is as for Aggregators.
func NewRegions(use int) *Regions { return &Regions{use, map[string]int{}} }

// Take gives a job its region of a switch: two windows, because a packet's aggregator
// keeps the result until it is sure that every worker has it (SwitchML's shadow copy).
// The error wraps ErrMemory.
func (r *Regions) Take(sw *inventory.Switch, job string, window int) (base, size int, err error) {
	base, size = r.next[sw.Name], 2*window
	if have := Aggregators(sw, r.use); base+size > have {
		return 0, 0, fmt.Errorf("switch %s: jobs up to %s need %d aggregators (two windows each in synchronous mode), it has %d: %w",
			sw.Name, job, base+size, have, ErrMemory)
	}
	r.next[sw.Name] += size
	return base, size, nil
}

// Grant is the memory of one synchronous job: a region of two windows in each switch
// that aggregates for it. Without a window it has no memory, and is at a halt.
type Grant struct {
	Window int            // packets each worker may have outstanding; 0: the job is at a halt
	Base   map[string]int // by switch: the first of the 2·Window aggregators
}

// Claim is a job that wants memory.
type Claim struct {
	Job    *JobPlan
	Window int // at most; more than 0
}

// NewClaims are the jobs of a plan that want memory in synchronous mode. windows are
// those of its jobs, in the same order; jobs that are not among the active ones, that
// are on one host, or that no switch aggregates for, want none.
func NewClaims(plan *Plan, windows []int, active func(job string) bool) []Claim {
	var out []Claim
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		if j.Collective == INA && !j.Local() && active(j.Name) {
			out = append(out, Claim{j, windows[i]})
		}
	}
	return out
}

// Divide gives the memory of switches to the synchronous jobs that are there in one
// period of reallocation, as a central controller does (INAlloc; its period is 10 s or
// more: NetPack, section 2.2). use is as for Aggregators, round counts the periods. Each
// claim gets a grant, if only one of no window.
//
// The controller is told nothing of what jobs do at the moment, whether they compute or
// send: a period is many iterations long. So:
//
//  1. Every job gets the same window, give or take a packet, as far as it wants that
//     much: max-min fair over all switches, a job's window being the same in all of its
//     own.
//  2. Below least packets a window is of no use. Where not all jobs can have that
//     (or what they want, if it is less), they take turns: jobs are admitted in their
//     order, from the round-th on, if least still fits in all of their switches. The
//     others are at a halt for the period.
//
// Of n jobs, each is the first in one of n consecutive rounds, so none starves whose
// switches have 2·least aggregators. Jobs for whom these are too few never run.
func Divide(inv *inventory.Inventory, use int, claims []Claim, least, round int) map[string]Grant {
	grants := map[string]Grant{}
	left := map[string]int{} // windows' worth of aggregators, of switches
	for _, c := range claims {
		grants[c.Job.Name] = Grant{}
		for _, n := range c.Job.Tree {
			if sw, ok := inv.Switch(n.Switch); ok && n.Aggregate {
				left[n.Switch] = Aggregators(sw, use) / 2
			}
		}
	}
	// Who has a turn, with the least that is of use.
	window := make([]int, len(claims))
	grows := make([]bool, len(claims))
	for k := range claims {
		i := (round + k) % len(claims)
		c := &claims[i]
		w := max(min(least, c.Window), 1)
		if !c.grow(left, w) {
			continue
		}
		window[i], grows[i] = w, true
	}
	// All together grow by as much as fits, until each has what it wants or meets a
	// switch that has nothing left.
	for {
		lowest := 0
		for i := range claims {
			if grows[i] && (lowest == 0 || window[i] < lowest) {
				lowest = window[i]
			}
		}
		if lowest == 0 {
			break
		}
		for i := range claims {
			switch {
			case !grows[i] || window[i] != lowest:
			case lowest < claims[i].Window && claims[i].grow(left, 1):
				window[i]++
			default:
				grows[i] = false
			}
		}
	}
	// Regions follow each other in the order of the jobs.
	next := map[string]int{}
	for i, c := range claims {
		if window[i] == 0 {
			continue
		}
		g := Grant{Window: window[i], Base: map[string]int{}}
		for _, n := range c.Job.Tree {
			if n.Aggregate {
				g.Base[n.Switch] = next[n.Switch]
				next[n.Switch] += 2 * g.Window
			}
		}
		grants[c.Job.Name] = g
	}
	return grants
}

// grow takes by windows' worth from what is left of all of the job's switches, or
// nothing if one of them lacks it.
func (c *Claim) grow(left map[string]int, by int) bool {
	for _, n := range c.Job.Tree {
		if n.Aggregate && left[n.Switch] < by {
			return false
		}
	}
	for _, n := range c.Job.Tree {
		if n.Aggregate {
			left[n.Switch] -= by
		}
	}
	return true
}

// CheckGrants reports grants that switches cannot hold, with an error wrapping
// ErrMemory: regions that overlap, that end beyond what a switch has or uses, or that a
// job lacks in one of its switches. Jobs without a grant have no memory.
func CheckGrants(inv *inventory.Inventory, use int, jobs []JobPlan, grants map[string]Grant) error {
	type region struct {
		job       string
		base, end int
	}
	taken := map[string][]region{}
	for i := range jobs {
		j := &jobs[i]
		g := grants[j.Name]
		if g.Window == 0 {
			continue
		}
		for _, n := range j.Tree {
			if !n.Aggregate {
				continue
			}
			sw, known := inv.Switch(n.Switch)
			base, ok := g.Base[n.Switch]
			r := region{j.Name, base, base + 2*g.Window}
			switch {
			case !known || !ok || g.Window < 0 || base < 0:
				return fmt.Errorf("job %s: window %d without its region of switch %s: %w", j.Name, g.Window, n.Switch, ErrMemory)
			case r.end > Aggregators(sw, use):
				return fmt.Errorf("switch %s: job %s is granted aggregators %d to %d of %d: %w", sw.Name, j.Name, base, r.end-1, Aggregators(sw, use), ErrMemory)
			}
			for _, o := range taken[sw.Name] {
				if r.base < o.end && o.base < r.end {
					return fmt.Errorf("switch %s: jobs %s and %s are granted the same aggregators: %w", sw.Name, o.job, j.Name, ErrMemory)
				}
			}
			taken[sw.Name] = append(taken[sw.Name], r)
		}
	}
	return nil
}

// Package titan is the placement algorithm of Titan ("Non-Idle Machine-Aware Worker
// Placement for Efficient Distributed Training in GPU Clusters"): a job's workers go to
// machines on which others run already, and among each other as their collective
// operation wants it. Problem.Solve is the algorithm on machines and workers by number;
// New makes a placement policy of it.
//
// # Objectives
//
// In this order: the fewest idle machines used (O1), the fewest machines used (O2), and
// then the least traffic between machines, which the paper has as what O2 is for, but not
// as an objective. Without that third one its own Figure 1 is a tie: HiveD's placement
// there (three workers and one) and Titan's (two and two) use no idle machine and two
// others. Of placements with equal traffic it takes the machines that fit best, so that
// large holes stay for later jobs; the paper says nothing of that.
//
// # The bandwidth constraint
//
// In every phase, what the workers of one machine send those of another must pass there:
// C <= P in the paper, which compares an amount with a rate. Here a phase may last
// Problem.Phase seconds, and the amount is held against rate times that; with 1 s the
// comparison is that of the numbers printed. Each direction counts for itself: links are
// full duplex.
//
// # The algorithms
//
// What the pseudocode leaves open or gets wrong, and what is done here:
//
//   - C in the set function H (Equations 2 and 4) is 1 for every set that is not empty. As
//     printed, H then counts the sets: it grows by one with any set, and says nothing of
//     which to choose. The text has it as "the reduction of deployed machine number
//     achieved by merging". So C is how many machines a set of workers takes before, of
//     which each has one at the start, and H by how many fewer it is after: a set of n
//     workers that are in none of the others adds n-1. That H is monotone and submodular,
//     and its greedy choice is the machine with the largest feasible set.
//   - "Randomly distributing workers" to begin with: where the start is a machine for each,
//     only the order in which workers are looked at is random. The first search takes them
//     as they are numbered, further ones in orders drawn from the seed; the best counts.
//   - Algorithm 1 takes a worker as soon as one of its flows passes in one phase, and looks
//     at flows one by one. Here all must pass in all phases, together with all that is
//     placed. Of the workers that do, it takes the one that exchanges most with those on
//     the machine. It takes as many as the machine has free GPUs; as printed nothing stops
//     it there.
//   - Algorithm 2 adds workers n to N* while it compares single ones, over idle machines
//     only, |S|-1 times, and puts all that are left on one machine whether that holds them
//     or not. Here it chooses one set for one machine at a time, until none are left.
//   - Greedy merging leaves traffic that moving or swapping two workers saves (in Figure 1:
//     three and one, as HiveD). That is done while it helps. It does not come to even splits
//     of a machine that merging has filled (six and two), so one search begins with these.
//   - Algorithm 3 takes idle machines that hold the job, and then the fewest machines of
//     these and all non-idle ones. As printed it takes idle machine 1 alone in Figure 1,
//     O1 = 1, where Titan's placement there has 0: the idle one is the largest. Here it
//     takes as many idle machines as the job cannot do without, and then the fewest others.
//   - Greedy choice may end where nothing passes though some placement does. More machines
//     are tried then, other machines with the same number of them, and random steps that
//     do not send more than passes by more than a little; last, on at most 32 machines,
//     worker by worker all machines in turn, within a bounded number of steps.
//   - C_max is max(|S|, |N|); it should be the smaller, and only shifts the objectives.
//
// Without a bandwidth constraint O1 and O2 are decided by the numbers of free GPUs, so
// they are optimal; Theorem 1's reduction to knapsacks has items of weight 1. The traffic
// is that of a graph partition, and the constraint is what makes O1 and O2 hard.
// TestGap holds all three against branch and bound.
//
// # Readings
//
// Each of the three algorithms is there as above and as its pseudocode is printed, in every
// combination: Readings has them by the names of their policies, and Default says which is
// "titan". What printed pseudocode leaves open is listed in printed.go, by line. Published does
// steps 1 and 2 of Algorithm 3 as printed, on the Algorithms 1 and 2 above.
package titan

import (
	"errors"
	"fmt"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
)

// Options of a policy. The zero value is the policy "titan", for halving and doubling.
type Options struct {
	Reading Reading // one of Readings; the zero value: Default

	// Collective is the operation by which a job of so many workers reduces; nil:
	// collectives.HalvingDoubling.
	Collective func(workers int) collectives.Schedule

	// Phase is how many seconds a phase of it may last; 0: 1.
	Phase float64

	// Strict lets a job wait whose traffic passes nowhere. Otherwise it is placed where
	// the least is over what passes.
	Strict bool

	// Explain, where it is set, is called for every job of a batch that is placed or
	// waits, in their order.
	Explain func(Explanation)
}

// Explanation is what a policy decided on one job.
type Explanation struct {
	Job      cluster.Job
	Solution Solution // At is nil if the job waits
	// Err is nil, or wraps ErrRoom, or is a *CongestedError: of a job that waits why, of
	// one that does not what its bandwidth lacks.
	Err error
}

// New is a policy with the name of its reading, "titan" for Default. Every GPU of a job is a
// worker, so its placements have Ranks. What is available between two servers is the smaller
// fair share of their links, and of their racks' uplinks: the capacity over the flows there
// with one more. A job of unknown size (Bytes) has no bandwidth constraint.
func New(o Options) cluster.Policy {
	if o.Reading == (Reading{}) {
		o.Reading = Readings()[0]
	}
	if o.Collective == nil {
		o.Collective = collectives.HalvingDoubling
	}
	return &policy{o}
}

// Explained is a policy of this package that tells why, and does the same otherwise; not
// ok for other policies.
func Explained(p cluster.Policy, why func(Explanation)) (_ cluster.Policy, ok bool) {
	t, ok := p.(*policy)
	if !ok {
		return nil, false
	}
	o := t.Options
	o.Explain = why
	return New(o), true
}

type policy struct{ Options }

// Name implements cluster.Policy.
func (p *policy) Name() string { return p.Reading.Name }

// Rule is by what the policy chooses servers, in a line.
func (p *policy) Rule() string { return p.Reading.Rule }

// key is under which the policy keeps its patterns with a cluster.
type key struct{ *policy }

// Place implements cluster.Policy. Jobs are taken in the order of the batch; one that has
// no room does not keep the others waiting.
func (p *policy) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	patterns := c.Keep(key{p}, func() any { return map[int]*collectives.Pattern{} }).(map[int]*collectives.Pattern)
	machines := make([]Machine, len(c.Servers))
	for i, j := range batch {
		if j.GPUs < 1 {
			continue
		}
		if _, _, runs := c.Placement(j.ID); runs {
			continue
		}
		if j.GPUs > c.TotalFree() {
			p.explain(Explanation{Job: j, Err: fmt.Errorf("%w: %d workers, %d GPUs are free", ErrRoom, j.GPUs, c.TotalFree())})
			continue
		}
		if patterns[j.GPUs] == nil {
			patterns[j.GPUs] = p.Collective(j.GPUs).Pattern()
		}
		for s := range machines {
			machines[s] = Machine{c.Servers[s].GPUs, c.Free(s)}
		}
		problem := Problem{
			Machines: machines, Pattern: patterns[j.GPUs], Reading: p.Reading,
			Vector: 8 * j.Bytes, Phase: p.Phase, Rate: func(from, to int) float64 { return rate(c, from, to) },
		}
		solution, err := problem.Solve(seed ^ uint64(j.ID)<<32)
		var congested *CongestedError
		if errors.As(err, &congested) && !p.Strict {
			solution = congested.Best
		}
		if len(solution.At) > 0 {
			place := placement(solution.At)
			if j.NeedsPS(len(place.Parts)) {
				place.PS = baseline.ParameterServers(c, j, place.Parts)
			}
			if c.Enter(j, place) == nil {
				out[i] = place
			}
		}
		p.explain(Explanation{j, solution, err})
	}
	return out
}

func (p *policy) explain(e Explanation) {
	if p.Explain != nil {
		p.Explain(e)
	}
}

// rate is what is available from one server to another.
func rate(c *cluster.Cluster, from, to int) float64 {
	share := func(capacity float64, flows int) float64 { return capacity / float64(flows+1) }
	least := min(share(c.Servers[from].Link, c.Flows(from)), share(c.Servers[to].Link, c.Flows(to)))
	if a, b := c.Servers[from].Rack, c.Servers[to].Rack; a != b {
		for _, r := range []int{a, b} {
			least = min(least, share(c.Racks[r].Uplink, c.UplinkFlows(r)))
		}
	}
	return least
}

// placement is where workers are as a cluster has it.
func placement(at []int) cluster.Placement {
	var p cluster.Placement
	part := map[int]int{}
	for _, s := range at {
		i, ok := part[s]
		if !ok {
			i = len(p.Parts)
			part[s] = i
			p.Parts = append(p.Parts, cluster.Part{Server: s})
		}
		p.Parts[i].GPUs++
	}
	if len(p.Parts) > 1 {
		p.Ranks = at
	}
	return p
}

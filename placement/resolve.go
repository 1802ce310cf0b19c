package placement

import (
	"math/bits"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/flow"
)

// Resolved is what Predict works out of a job before it asks a model.
type Resolved struct {
	Job string
	RTT float64 // round trip of a gradient and its result without queueing, seconds; 0 of a ring
	// Crowd is by how much longer a round trip may take though nothing else is on its way: packets of one
	// PSN leave all workers at once, and those that share a link wait for one another, seconds.
	Crowd float64
	// Up has the directed link towards the PS of each worker, then of each node of the tree, by
	// name; "" at a root that has no PS above it. Of a ring it has a link for every time that
	// one is crossed in a turn.
	Up []string
	// Holds has T of each node of the tree, seconds; of one that does not aggregate it says nothing.
	Holds []float64
	// Lossy says that a link which its packets cross, either way, loses some of them.
	Lossy bool
}

// Resolve is what Predict would take as given for the plan's active jobs, without local ones, in
// the plan's order.
func Resolve(inv *inventory.Inventory, plan *Plan, c Conditions) ([]Resolved, error) {
	b, err := newProblem(inv, plan, &c)
	if err != nil {
		return nil, err
	}
	var out []Resolved
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		if !c.active(j.Name) || j.Local() {
			continue
		}
		f := &b.Jobs[len(out)]
		r := Resolved{Job: j.Name, RTT: f.RTT, Crowd: b.crowd(f, j)}
		for k, n := range f.Nodes {
			r.Lossy = r.Lossy || n.Up != flow.None && b.Links[n.Up].Damage.Loss > 0 || n.Down != flow.None && b.Links[n.Down].Damage.Loss > 0
			if j.PS != "" && j.Collective != Ring && k == len(f.Nodes)-1 {
				break // the PS itself
			}
			up := ""
			if n.Up != flow.None {
				up = b.topo.Links[n.Up].Name
			}
			r.Up = append(r.Up, up)
			if j.Collective != Ring && k >= len(j.Workers) {
				r.Holds = append(r.Holds, n.Hold)
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// Packets is how many packets of a PSN each switch of a job's tree sends on towards the root, where there is all the
// memory that is asked for: also how many results come back to it of a job whose switches add up nothing.
func (j *JobPlan) Packets() (all []int) {
	come, below := map[string]int{}, map[string]uint64{}
	for _, n := range j.Tree { // leaves first
		up := come[n.Switch] + bits.OnesCount64(n.Expect&^below[n.Switch])
		if n.Aggregate && j.Collective == INA {
			up = min(up, 1)
		}
		all = append(all, up)
		come[n.Parent] += up
		below[n.Parent] |= n.Expect
	}
	return all
}

// crowd is Resolved's, of a job: at the fullest link of gradients, and at that of results, the last of a PSN waits
// for all others. Results of INA are one packet on each link, and those of workers beside their PS are on none.
//
// At least one of the two waits is always there where workers are equally far away: who waits for nobody with its
// gradient is answered when the last has arrived. Both are, in the worst case: results come one after the other, but
// gradients of a rate limit that leave at random places meet those of PSNs before.
func (b *problem) crowd(f *flow.Job, j *JobPlan) float64 {
	if j.Collective == Ring {
		return 0
	}
	var beside uint64
	for _, w := range j.Workers {
		if j.Beside(w) {
			beside |= 1 << w.Rank
		}
	}
	var up, down float64
	for k, packets := range j.Packets() {
		wait := func(link, packets int) float64 {
			if link == flow.None || b.topo.Links[link].Rate <= 0 {
				return 0
			}
			return float64(packets-1) * f.Packet / float64(b.topo.Links[link].Rate)
		}
		n := &f.Nodes[len(j.Workers)+k]
		up = max(up, wait(n.Up, packets))
		if j.Collective == PS {
			down = max(down, wait(n.Down, packets-bits.OnesCount64(j.Tree[k].Expect&beside)))
		}
	}
	return up + down
}

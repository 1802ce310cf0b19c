package online

import (
	"cmp"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// Recorded is a policy that puts jobs where they ran before, on each server in the order in
// which they began: what differs between a run and a simulation with it is how long jobs
// take. It remembers how far it has come, so it is for one run.
func Recorded(jobs []replay.JobResult) cluster.Policy {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b replay.JobResult) int { return cmp.Compare(a.Start, b.Start) })
	return &recorded{jobs}
}

type recorded struct{ left []replay.JobResult }

// Name implements cluster.Policy.
func (*recorded) Name() string { return "recorded" }

// Place implements cluster.Policy.
func (r *recorded) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	wanted := map[int]bool{} // servers of jobs whose GPUs are taken
	for n := 0; n < len(r.left); {
		j := &r.left[n]
		i := slices.IndexFunc(batch, func(b cluster.Job) bool { return b.ID == j.ID })
		if i < 0 { // it is still to come
			break
		}
		on := slices.Concat(j.Placement.Parts, j.Placement.Spare)
		if slices.ContainsFunc(on, func(p cluster.Part) bool { return wanted[p.Server] }) || c.Enter(batch[i], j.Placement) != nil {
			for _, p := range on {
				wanted[p.Server] = true
			}
			n++
			continue
		}
		out[i] = j.Placement
		r.left = slices.Delete(r.left, n, n+1)
	}
	return out
}

// Restarted are jobs as if each had been submitted when it began to run: with Recorded,
// and without a period, a simulation then begins them at the same times, but for those
// whose GPUs are taken for longer there. Jobs that never ran are left out.
func Restarted(jobs []replay.Job, ran []replay.JobResult) []replay.Job {
	var out []replay.Job
	for _, j := range jobs {
		if i := slices.IndexFunc(ran, func(r replay.JobResult) bool { return r.ID == j.ID }); i >= 0 {
			j.Submit = ran[i].Start
			out = append(out, j)
		}
	}
	return out
}

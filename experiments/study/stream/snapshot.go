package stream

import (
	"slices"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/results"
)

// snapshot is a policy that shows what each GPU did when a job had been placed, or had
// first been passed over, and when that was.
type snapshot struct {
	cluster.Policy
	inv  *inventory.Inventory // its hosts are the cluster's servers
	last int                  // the job
	jobs []string             // names of all jobs, by ID

	now      float64 // of the batch at hand, s
	machines []results.Machine
	at       float64 // s
}

// withSnapshot is a policy with a snapshot for the job that is submitted last: by then all
// policies have had the same jobs.
func withSnapshot(p cluster.Policy, inv *inventory.Inventory, jobs []traced) (cluster.Policy, *snapshot) {
	shot := &snapshot{Policy: p, inv: inv, jobs: make([]string, len(jobs))}
	for i := range jobs {
		shot.jobs[i] = jobs[i].Name
		if jobs[i].Submit > jobs[shot.last].Submit {
			shot.last = i
		}
	}
	return shot, shot
}

// Unwrap is for cluster.Err.
func (p *snapshot) Unwrap() cluster.Policy { return p.Policy }

// Place implements cluster.Policy.
func (p *snapshot) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := p.Policy.Place(c, batch, seed)
	if p.machines != nil || !slices.ContainsFunc(batch, func(j cluster.Job) bool { return j.ID == p.last }) {
		return out
	}
	plan := &placement.Plan{}
	for id, name := range p.jobs {
		_, at, runs := c.Placement(id)
		if !runs {
			continue
		}
		j := placement.JobPlan{Name: name}
		for _, s := range at.ServerOf() {
			j.Ranks = append(j.Ranks, p.inv.Hosts[s].Name)
		}
		for _, s := range at.Spare {
			j.Spare = append(j.Spare, placement.HostGPUs{Host: p.inv.Hosts[s.Server].Name, GPUs: s.GPUs})
		}
		plan.Jobs = append(plan.Jobs, j)
	}
	p.at = p.now
	p.machines = study.Machines(p.inv, plan, func(string) bool { return false })
	return out
}

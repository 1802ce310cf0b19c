// Package baseline has the placement policies that others are compared with.
package baseline

import (
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

// FirstFit takes GPUs from the hosts in file order until a job has enough. The PS
// goes to the least loaded host without a worker of the job.
type FirstFit struct{}

// Name implements placement.Policy.
func (FirstFit) Name() string { return "first-fit" }

// Place implements placement.Policy; nothing in it depends on the seed.
func (FirstFit) Place(inv *inventory.Inventory, jobs []placement.Job, _ uint64) (*placement.Plan, error) {
	l := placement.NewLedger(inv)
	plan := &placement.Plan{Policy: FirstFit{}.Name()}
	for i := range jobs {
		job := &jobs[i]
		workers, err := firstFit(l, inv, job)
		if err != nil {
			return nil, err
		}
		ps := job.PS
		if ps == "" && placement.NeedsPS(job, len(workers)) {
			ps = l.LeastLoaded(workers)
		}
		p, err := l.Place(job, workers, ps)
		if err != nil {
			return nil, err
		}
		plan.Jobs = append(plan.Jobs, p)
	}
	return plan, nil
}

func firstFit(l *placement.Ledger, inv *inventory.Inventory, job *placement.Job) ([]placement.Worker, error) {
	if len(job.Hosts) > 0 {
		return l.Hosts(job)
	}
	var out []placement.Worker
	left := job.GPUs
	for i := range inv.Hosts {
		name := inv.Hosts[i].Name
		if g := min(left, l.Free(name)); g > 0 {
			out = append(out, placement.Worker{Rank: len(out), Host: name, GPUs: g})
			left -= g
		}
	}
	if left > 0 || len(out) == 0 {
		return nil, l.Infeasible(job)
	}
	return out, nil
}

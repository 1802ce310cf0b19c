package stream

import (
	"context"
	"fmt"

	"github.com/inabench/inabench/experiments/online"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// ran is a job that came and went: where, and what was asked of it.
type ran struct {
	*replay.JobResult
	plan  placement.JobPlan // by the name that the trace has for it
	asked online.Job
}

// ask puts what external predictors say of jobs that came and went beside what they took: the jobs, of
// these names, on the hosts and from the times on that they had. What they cannot be told is a warning, as what was measured
// counts without them.
func ask(ctx context.Context, b *study.Bench, set testbed.Settings, res *online.Result, names []string, list []online.Job, ph *results.Phase) {
	if !b.Asks() {
		return
	}
	all := make([]ran, len(res.Jobs))
	for i := range res.Jobs {
		j := &res.Jobs[i]
		all[i] = ran{JobResult: &j.JobResult, plan: j.Plan, asked: list[j.ID]}
		all[i].plan.Name = names[j.ID]
	}
	req, err := request(b.Planned, b.Testbed().Inventory(), set, b.Repeat, res.Summary.Makespan, all)
	if err != nil {
		b.Warn(study.Unasked(b.Labels, err.Error()))
		return
	}
	b.Ask(ctx, b.Planned, req, nil, ph)
}

// request is what predictors are told of such jobs, on an inventory in the units of their times.
func request(p study.Planned, inv *inventory.Inventory, set testbed.Settings, repeat int, duration float64, all []ran) (*predictor.Request, error) {
	req := study.Asked(p, inv, set, repeat, duration)
	plan := &placement.Plan{}
	c := placement.Conditions{Mode: set.Mode, Addressing: set.Addressing, Aggregators: set.Aggregators, Lanes: set.Lanes, Senders: map[string]placement.Sender{}}
	for i := range all {
		plan.Jobs = append(plan.Jobs, all[i].plan)
		c.Senders[all[i].plan.Name] = placement.Sender{Window: all[i].asked.Window, Control: all[i].asked.Control}
	}
	known, err := placement.Resolve(inv, plan, c)
	if err != nil {
		return nil, err
	}
	for i := range all {
		r := &all[i]
		j := study.AskedOf(&r.plan, known)
		j.Window, j.Control, j.Submit, j.Start, j.Iterations = r.asked.Window, r.asked.Control, r.Submit, r.Start, int64(r.Iterations)
		j.Layers = []predictor.Layer{{Bytes: int64(r.asked.Bytes), Compute: r.asked.Compute}}
		req.Jobs = append(req.Jobs, j)
	}
	return req, nil
}

// simulatedRequest is what predictors are told of a repeat that was simulated, and what each of its jobs took.
func (t *Trace) simulatedRequest(p study.Planned, repeat int, jobs []traced, done []replay.JobResult) (*predictor.Request, []results.Figure, error) {
	switch {
	case len(done) > predictor.MostJobs:
		return nil, nil, fmt.Errorf("the trace has %d jobs, and they are told of at most %d: set trace.jobs", len(done), predictor.MostJobs)
	case t.PSes > 1 && reductions[t.Collective] == nil:
		return nil, nil, fmt.Errorf("they are told of one parameter server for each job, and trace.parameter_servers is %d", t.PSes)
	}
	inv := p.Spec.Inventory()
	all, end, err := t.simulated(inv, jobs, done)
	if err != nil {
		return nil, nil, err
	}
	req, err := request(p, inv, study.SettingsOf(p.Spec, p.Spec.Switch.Aggregators), repeat, end, all)
	if err != nil {
		return nil, nil, err
	}
	own := make([]results.Figure, len(all))
	for i := range all {
		own[i] = study.Exactly("jct", all[i].plan.Name, results.Simulated, all[i].JCT())
		if reductions[t.Collective] != nil {
			byRanks(&req.Jobs[i], &all[i].plan, t.Collective)
		}
	}
	if reductions[t.Collective] != nil {
		req.Schema = predictor.Newest
	}
	return req, own, nil
}

// simulated are the jobs of a simulation, and when the last one ended. Nothing but links and memories holds them back there,
// so that their windows are the largest there are.
func (t *Trace) simulated(inv *inventory.Inventory, jobs []traced, done []replay.JobResult) (all []ran, end float64, err error) {
	topo := inv.Topology()
	by := placement.Collective(t.Collective)
	if reductions[t.Collective] != nil {
		by = placement.Ring // which has no tree either
	}
	for i := range done {
		j := &jobs[done[i].ID]
		plan, err := placement.JobPlanOf(topo, inv, &placement.Job{Name: j.Name, GPUs: j.GPUs, Collective: by}, done[i].Placement)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, ran{JobResult: &done[i], plan: plan, asked: online.Job{Job: j.Job, Window: spec.MaxWindow, Control: "fixed"}})
		end = max(end, done[i].End)
	}
	return all, end, nil
}

// byRanks makes a worker of each of a job's GPUs, in the order of their ranks, which reduce by a collective of their own.
func byRanks(j *predictor.Job, plan *placement.JobPlan, collective string) {
	j.Collective, j.RTT, j.Hops, j.Workers = collective, 0, []string{}, nil
	for rank, host := range plan.Hosts() {
		j.Workers = append(j.Workers, predictor.Worker{Rank: rank, Host: host, GPUs: 1})
	}
}

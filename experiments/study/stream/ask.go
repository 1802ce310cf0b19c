package stream

import (
	"context"

	"github.com/inabench/inabench/experiments/online"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// ask puts what external predictors say of jobs that came and went beside what they took: the jobs, of
// these names, on the hosts and from the times on that they had.
func ask(ctx context.Context, b *study.Bench, set testbed.Settings, res *online.Result, names []string, list []online.Job, ph *results.Phase) error {
	if !b.Asks() {
		return nil
	}
	inv := b.Testbed().Inventory()
	req := study.Asked(b.Planned, inv, set, b.Repeat, res.Summary.Makespan)
	plan := &placement.Plan{}
	c := placement.Conditions{Mode: set.Mode, Addressing: set.Addressing, Aggregators: set.Aggregators, Lanes: set.Lanes, Senders: map[string]placement.Sender{}}
	for i := range res.Jobs {
		j := res.Jobs[i].Plan
		j.Name = names[res.Jobs[i].ID]
		plan.Jobs = append(plan.Jobs, j)
		c.Senders[j.Name] = placement.Sender{Window: list[res.Jobs[i].ID].Window, Control: list[res.Jobs[i].ID].Control}
	}
	known, err := placement.Resolve(inv, plan, c)
	if err != nil {
		return err
	}
	for i := range res.Jobs {
		done, asked := &res.Jobs[i], &list[res.Jobs[i].ID]
		j := study.AskedOf(&plan.Jobs[i], known)
		j.Window, j.Control, j.Start, j.Iterations = asked.Window, asked.Control, done.Start, int64(done.Iterations)
		j.Layers = []predictor.Layer{{Bytes: int64(asked.Bytes), Compute: asked.Compute}}
		req.Jobs = append(req.Jobs, j)
	}
	b.Ask(ctx, b.Planned, req, nil, ph)
	return nil
}

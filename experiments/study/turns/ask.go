package turns

import (
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// request is what predictors of others are told of a repeat that was simulated, and what each of its jobs took: on which hosts
// and from when on it ran, and what they all want of trees. Who had one when is theirs to say.
func (o *Operations) request(p study.Planned, cfg *ops.Config, repeat int, jobs []named, res *ops.Result) (*predictor.Request, []results.Figure, error) {
	switch {
	case len(jobs) > predictor.MostJobs:
		return nil, nil, fmt.Errorf("there are %d jobs, and they are told of at most %d: set operations.jobs", len(jobs), predictor.MostJobs)
	case o.Score == "hosts":
		return nil, nil, errors.New("each job counts once in the means of what they say, and operations.score is \"hosts\"")
	}
	inv := p.Spec.Inventory()
	fabric, err := clos.Of(inv)
	if err != nil {
		return nil, nil, err
	}
	gpus := map[string]int{}
	for i := range inv.Hosts {
		gpus[inv.Hosts[i].Name] = inv.Hosts[i].GPUs
	}
	req := study.Asked(p, inv, study.SettingsOf(p.Spec, p.Spec.Switch.Aggregators), repeat, res.Makespan)
	req.Schema, req.Operations = predictor.Newest, o.asked(cfg, jobs)
	var own []results.Figure
	for i := range jobs {
		j, done := &jobs[i], &res.Jobs[i]
		asked := predictor.Job{
			Name: j.Name, Collective: predictor.Turns, Local: j.Hosts == 1, Workers: []predictor.Worker{}, Tree: []predictor.Node{},
			Hops: []string{}, Layers: []predictor.Layer{}, Control: "fixed",
			Model: j.Pattern.Model, Iterations: int64(j.Steps), Submit: j.Submit, Start: done.Start,
		}
		for rank, host := range fabric.Names(res.On[i]) {
			asked.Workers = append(asked.Workers, predictor.Worker{Rank: rank, Host: host, GPUs: gpus[host]})
		}
		req.Jobs = append(req.Jobs, asked)
		own = append(own, study.Exactly("jct", j.Name, results.Simulated, done.JCT()))
	}
	return req, own, nil
}

// asked is what the jobs have in common.
func (o *Operations) asked(cfg *ops.Config, jobs []named) *predictor.Operations {
	limit := func(n int) int {
		if n == tree.Unlimited {
			return 0
		}
		return n
	}
	out := &predictor.Operations{
		Latency: cfg.Cost.Latency, Bandwidth: 8 * cfg.Cost.Bandwidth, Ratio: cfg.Cost.Ratio, Migration: cfg.Migration,
		PerSwitch: limit(cfg.Cluster.PerSwitch), PerLink: limit(cfg.Cluster.PerLink),
		Trees: o.Trees, Sharing: o.Sharing, Patterns: []predictor.Pattern{},
	}
	for i := range jobs {
		p := jobs[i].Pattern
		if slices.ContainsFunc(out.Patterns, func(known predictor.Pattern) bool { return known.Model == p.Model }) {
			continue
		}
		said := predictor.Pattern{Model: p.Model, Step: p.Step / o.GPUSpeed, Ops: []predictor.Op{}}
		for _, op := range p.Ops {
			said.Ops = append(said.Ops, predictor.Op{Start: op.Start / o.GPUSpeed, Bytes: op.Bytes})
		}
		out.Patterns = append(out.Patterns, said)
	}
	return out
}

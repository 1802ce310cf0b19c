package experiments

import (
	"context"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// namedJobs are [[job]] tables as a study.
type namedJobs struct{ spec.Jobs }

// Supports implements study.Study: every driver can.
func (js namedJobs) Supports(string) error { return nil }

// Columns implements study.Study: what became of them is in the record.
func (js namedJobs) Columns() []string { return nil }

// Place implements study.Placer.
func (js namedJobs) Place(s *spec.Spec) (*placement.Plan, error) { return s.Place() }

// Uses implements study.Settled.
func (js namedJobs) Uses(p study.Planned, _ *inventory.Inventory) (hosts, switches []string) {
	for _, j := range p.Plan.Jobs {
		for _, w := range j.Workers {
			hosts = append(hosts, w.Host)
		}
		if j.PS != "" {
			hosts = append(hosts, j.PS)
		}
		for _, n := range j.Tree {
			switches = append(switches, n.Switch)
		}
	}
	return hosts, switches
}

// Plan implements study.Planner: what every phase should bring, by the inventory alone.
func (js namedJobs) Plan(p study.Planned) (study.PlanPoint, error) {
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.Plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return study.PlanPoint{}, err
	}
	out := study.PlanPoint{Labels: p.Labels, Plan: p.Plan, Aggregators: setup.Settings.Aggregators}
	for _, sp := range timelineOf(p.Spec).spans() {
		predictions, err := predict(inv, setup, Baseline{}, sp.jobs, spec.Predictors)
		if err != nil {
			return study.PlanPoint{}, err
		}
		out.Phases = append(out.Phases, study.PlanPhase{
			Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs, Predictions: predictions,
			Conditions: provisos(p.Spec, setup, predictions[0], inv),
		})
	}
	return out, js.Ready(p)
}

// Ready implements study.Study: synchronous jobs must fit into every switch, but where they wait for their turn.
func (js namedJobs) Ready(p study.Planned) error {
	if p.Spec.Switch.Mode != "synchronous" || p.Spec.Reallocates() {
		return nil
	}
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.Plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return err
	}
	regions := placement.NewRegions(setup.Settings.Aggregators)
	for i, j := range setup.Plan.Jobs {
		for _, n := range j.Tree {
			if !n.Aggregate {
				continue
			}
			sw, _ := inv.Switch(n.Switch)
			if _, _, err := regions.Take(sw, j.Name, setup.Workloads[i].Window); err != nil {
				return err
			}
		}
	}
	return nil
}

// Run implements study.Study.
func (js namedJobs) Run(ctx context.Context, b *study.Bench) (*results.Point, [][]string, error) {
	point, err := b.Runner.(*run).point(ctx, b.Planned)
	return point, nil, err
}

package experiments

import (
	"context"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// namedJobs are [[job]] tables as a study.
type namedJobs struct{ spec.Jobs }

// supports implements study: every driver can.
func (js namedJobs) supports(string) error { return nil }

// columns implements study: what became of them is in the record.
func (js namedJobs) columns() []string { return nil }

// place implements placer.
func (js namedJobs) place(s *spec.Spec) (*placement.Plan, error) { return s.Place() }

// uses implements settled.
func (js namedJobs) uses(p planned, _ *inventory.Inventory) (hosts, switches []string) {
	for _, j := range p.plan.Jobs {
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

// plan implements planner: what every phase should bring, by the inventory alone.
func (js namedJobs) plan(p planned) (PlanPoint, error) {
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return PlanPoint{}, err
	}
	out := PlanPoint{Labels: p.Labels, Plan: p.plan, Aggregators: setup.Settings.Aggregators}
	for _, sp := range timelineOf(p.Spec).spans() {
		predictions, err := predict(inv, setup, Baseline{}, sp.jobs, spec.Predictors)
		if err != nil {
			return PlanPoint{}, err
		}
		out.Phases = append(out.Phases, PlanPhase{
			Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs, Predictions: predictions,
			Conditions: provisos(p.Spec, setup, predictions[0], inv),
		})
	}
	return out, js.ready(p)
}

// ready implements study: synchronous jobs must fit into every switch, but where they wait for their turn.
func (js namedJobs) ready(p planned) error {
	if p.Spec.Switch.Mode != "synchronous" || p.Spec.Reallocates() {
		return nil
	}
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
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

// run implements study.
func (js namedJobs) run(ctx context.Context, b *bench) (*results.Point, [][]string, error) {
	point, err := b.run.point(ctx, b.planned)
	return point, nil, err
}

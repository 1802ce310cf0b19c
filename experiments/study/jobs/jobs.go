package jobs

import (
	"context"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// Study are the jobs of an experiment as a study.
type Study struct{ spec.Jobs }

// Supports implements study.Study: every driver can.
func (js Study) Supports(string) error { return nil }

// Columns implements study.Study: what became of them is in the record.
func (js Study) Columns() []string { return nil }

// Place implements study.Placer.
func (js Study) Place(ctx context.Context, s *spec.Spec) (*placement.Plan, error) {
	return s.Place(ctx)
}

// Uses implements study.Settled.
func (js Study) Uses(p study.Planned, _ *inventory.Inventory) (hosts, switches []string) {
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
func (js Study) Plan(ctx context.Context, p study.Planned) (study.PlanPoint, error) {
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.Plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return study.PlanPoint{}, err
	}
	out := study.PlanPoint{Labels: p.Labels, Plan: p.Plan, Aggregators: setup.Settings.Aggregators}
	for _, sp := range timelineOf(p.Spec).spans() {
		predictions, err := predict(ctx, inv, setup, Baseline{}, sp.jobs, spec.Predictors)
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
func (js Study) Ready(p study.Planned) error {
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

// Lasts implements study.Scheduled.
func (js Study) Lasts(s *spec.Spec) time.Duration { return timelineOf(s).end() }

// Run implements study.Study.
func (js Study) Run(ctx context.Context, b *study.Bench) (*results.Point, [][]string, error) {
	if why := unscaled(b.Spec); why != "" && b.Driver() == "netns" {
		b.Warn(why)
	}
	r := &run{Bench: b}
	point, err := r.point(ctx)
	return point, nil, err
}

// run is a repeat of a point that goes on.
type run struct {
	*study.Bench
	clock float64 // seconds from the run's origin to the deployment's
}

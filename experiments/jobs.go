package experiments

import (
	"context"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// Jobs are jobs that begin and end when the experiment says, where it says or where a policy puts them:
// 1 to 4095 of them, with names of their own.
type Jobs []Job

// check implements study.
func (js Jobs) check(c *checker) {
	switch n := len(js); {
	case n == 0 && !c.reported("job"):
		c.Problemf("job", "add a [[job]] table", "no jobs")
	case n > maxJobs:
		c.Problemf(js[maxJobs].At, "", "more than %d jobs", maxJobs)
	}
	names := map[string]string{}
	for i := range js {
		j := &js[i]
		c.named(names, j.At, j.Name, "job", "a job name")
		c.job(j)
	}
}

// count implements study.
func (js Jobs) count() int { return len(js) }

// metrics implements study.
func (js Jobs) metrics() measurables { return jobMetrics }

// headline implements study: nothing is compared.
func (js Jobs) headline() []string { return nil }

// predictors implements study.
func (js Jobs) predictors() []string { return predictors }

// supports implements study: every driver can.
func (js Jobs) supports(string) error { return nil }

// columns implements study: what became of them is in the record.
func (js Jobs) columns() []string { return nil }

// place implements placer.
func (js Jobs) place(s *Spec) (*placement.Plan, error) { return s.Place() }

// uses implements settled.
func (js Jobs) uses(p planned, _ *inventory.Inventory) (hosts, switches []string) {
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
func (js Jobs) plan(p planned) (PlanPoint, error) {
	inv := p.Spec.inv
	setup, err := p.Spec.setup(p.plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return PlanPoint{}, err
	}
	out := PlanPoint{Labels: p.Labels, Plan: p.plan, Aggregators: setup.Settings.Aggregators}
	for _, sp := range p.Spec.timeline().spans() {
		predictions, err := predict(inv, setup, Baseline{}, sp.jobs, predictors)
		if err != nil {
			return PlanPoint{}, err
		}
		out.Phases = append(out.Phases, PlanPhase{
			Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs, Predictions: predictions,
			Conditions: p.Spec.conditions(setup, predictions[0], inv),
		})
	}
	return out, js.ready(p)
}

// ready implements study: synchronous jobs must fit into every switch, but where they wait for their turn.
func (js Jobs) ready(p planned) error {
	if p.Spec.Switch.Mode != "synchronous" || p.Spec.reallocates() {
		return nil
	}
	inv := p.Spec.inv
	setup, err := p.Spec.setup(p.plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
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
func (js Jobs) run(ctx context.Context, b *bench) (*results.Point, [][]string, error) {
	point, err := b.run.point(ctx, b.planned)
	return point, nil, err
}

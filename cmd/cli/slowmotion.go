package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
)

// occupied is what Occupancy predicts of a point's phases.
func occupied(pt study.PlanPoint) (out []*placement.Prediction) {
	for _, ph := range pt.Phases {
		for _, p := range ph.Predictions {
			if p.Predictor == placement.Occupancy {
				out = append(out, p)
			}
		}
	}
	return out
}

// slowMotion is the factor of slow motion at which a machine carries all of a plan that is predicted; 0: nothing is.
func slowMotion(m carry.Machine, s *spec.Spec, plan *experiments.SavedPlan) (factor float64, err error) {
	for _, pt := range plan.Points {
		phases := occupied(pt)
		if len(phases) == 0 {
			continue
		}
		load, err := carry.Demand(s.Inventory(), pt.Plan, phases, s.Switch.Lanes)
		if err != nil {
			return 0, err
		}
		factor = max(factor, carry.Factor(m, load))
	}
	return factor, nil
}

// tooFast says at which factor of slow motion this machine would carry a run that it was the limit of; nothing where that
// cannot be known.
func tooFast(ctx context.Context, s *spec.Spec, rec *results.Record) string {
	limited := func(c results.Check) bool { return c.Outcome == results.Inconclusive && c.Code == results.CodeLimited }
	if rec.Outcome != results.Inconclusive || !slices.ContainsFunc(rec.Checks, limited) {
		return ""
	}
	plan, err := experiments.NewPlan(s, version())
	if err != nil {
		return ""
	}
	m, err := carry.Measure(ctx, version())
	if err != nil {
		return ""
	}
	ran := s.Emulation.Factor
	switch factor, err := slowMotion(m, s, plan); {
	case err != nil || factor == 0:
		return ""
	case factor <= ran:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g: run it again while nothing else uses the machine", m, ran)
	default:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g instead of %g: inabench run --set emulation.factor=%g, with times of [measure] and of jobs that are as much longer",
			m, factor, ran, factor)
	}
}

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
)

// slowMotion is the factor of slow motion at which a machine carries all that is planned, and the phases that are predicted.
func slowMotion(m carry.Machine, s *spec.Spec, plan *experiments.SavedPlan) (factor float64, phases []*placement.Prediction, err error) {
	for _, pt := range plan.Points {
		var some []*placement.Prediction
		for _, ph := range pt.Phases {
			for _, p := range ph.Predictions {
				if p.Predictor == placement.Occupancy {
					some = append(some, p)
				}
			}
		}
		if len(some) == 0 {
			continue
		}
		load, err := carry.Demand(s.Inventory(), pt.Plan, some, s.Switch.Lanes)
		if err != nil {
			return 0, nil, err
		}
		factor, phases = max(factor, carry.Factor(m, load)), append(phases, some...)
	}
	return factor, phases, nil
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
	switch factor, _, err := slowMotion(m, s, plan); {
	case err != nil || factor == 0:
		return ""
	case factor <= ran:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g: run it again while nothing else uses the machine", m, ran)
	default:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g instead of %g: inabench run --set emulation.factor=%g, with times of [measure] and of jobs that are as much longer",
			m, factor, ran, factor)
	}
}

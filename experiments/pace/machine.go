package pace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/carry"
)

// here is how fast this machine carries an experiment, as it is planned; the pace's Factor is 0 where that cannot be
// known.
func here(ctx context.Context, s *spec.Spec, tool string) (m carry.Machine, plan *experiments.SavedPlan, p Pace) {
	plan, err := experiments.NewPlan(ctx, s, tool)
	if err != nil {
		return m, nil, p
	}
	if m, err = carry.Measure(ctx, tool); err != nil {
		return m, plan, p
	}
	if p, err = Of(m, plan); err != nil {
		p.Factor = 0
	}
	return m, plan, p
}

// Choice is the pace that was chosen for an experiment.
type Choice struct {
	Machine carry.Machine
	Sets    []string // assignments of --set
}

func (c Choice) String() string { return fmt.Sprintf("%v: %s", c.Machine, strings.Join(c.Sets, ", ")) }

// StandingError is an emulation that is up and goes faster than this machine carries an experiment.
type StandingError struct {
	Machine         carry.Machine
	Factor, Carries float64 // of slow motion: of the emulation, and that with which the machine would carry it
}

func (e *StandingError) Error() string {
	return fmt.Sprintf("%v: it carries this experiment at emulation.factor = %g, and that one goes at %g", e.Machine, e.Carries, e.Factor)
}

// Choose chooses a pace that is so many times as slow as this machine carries an experiment that is open. Standing is the factor
// of an emulation that is up already, 0: of none. There is no choice where the machine does not say, or where it would be no use
// to go slower still: what keeps the experiment from being judged is known from its plan.
func Choose(ctx context.Context, s *spec.Spec, standing, slower float64, tool string) (c Choice, ok bool, err error) {
	if standing > 0 && slower > 1 {
		return c, false, nil
	}
	m, plan, p := here(ctx, s, tool)
	if p.Factor > standing && standing > 0 {
		return c, false, &StandingError{m, standing, Ladder(p.Factor)}
	}
	p.Factor = max(p.Factor, standing)
	if p.Factor == 0 || slower > 1 && conditional(plan) {
		return c, false, nil
	}
	c = Choice{m, p.Sets(s, slower)}
	if standing > 0 {
		c.Sets[0] = fmt.Sprintf("emulation.factor=%g", standing) // of the ladder or not
	}
	return c, true, nil
}

// conditional says whether figures of a plan may be left undecided whatever the machine does.
func conditional(plan *experiments.SavedPlan) bool {
	return slices.ContainsFunc(plan.Points, func(pt study.PlanPoint) bool {
		return slices.ContainsFunc(pt.Phases, func(ph study.PlanPhase) bool { return len(ph.Conditions) > 0 })
	})
}

// Limited says whether a run says nothing because the machine was its limit.
func Limited(rec *results.Record) bool {
	return rec.Outcome == results.Inconclusive && slices.ContainsFunc(rec.Checks, func(c results.Check) bool {
		return c.Outcome == results.Inconclusive && c.Code == results.CodeLimited
	})
}

// TooFast says at which factor of slow motion this machine would carry a run that it was the limit of; empty where that
// cannot be known.
func TooFast(ctx context.Context, s *spec.Spec, rec *results.Record, tool string) string {
	if !Limited(rec) {
		return ""
	}
	m, _, p := here(ctx, s, tool)
	ran := s.Emulation.Factor
	switch {
	case p.Factor == 0:
		return ""
	case p.Factor <= ran:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g: run it again while nothing else uses the machine", m, ran)
	default:
		return fmt.Sprintf("%v, and this experiment at emulation.factor = %g instead of %g: inabench run --set emulation.factor=%g, with times of [measure] and of jobs that are as much longer",
			m, p.Factor, ran, p.Factor)
	}
}

// Unmeasured is said in the place of whether this machine carries an emulation, where it is not known what it carries.
const Unmeasured = "how much this machine carries is not measured yet: inabench doctor measures it in four seconds; check and plan then say whether an emulation keeps up"

// Fits says how a plan would go on netns, as far as that is known without measuring this machine: empty where nothing is
// predicted that says it.
func Fits(plan *experiments.SavedPlan, tool string) string {
	s := plan.Spec()
	if !Slowed(s) || !slices.ContainsFunc(plan.Points, func(pt study.PlanPoint) bool { return len(pt.Phases) > 0 }) {
		return ""
	}
	m, ok := carry.Known(tool)
	p, err := Of(m, plan) // its blocks are those of the plan, whatever the machine
	if err == nil && s.Says("emulation.factor") {
		if why := p.Sparse(s); why != "" {
			return why
		}
	}
	if !ok {
		return Unmeasured
	}
	switch {
	case err != nil || p.Factor == 0:
		return ""
	case p.Factor > s.Emulation.Factor:
		return fmt.Sprintf("this machine carries it from emulation.factor = %g on, and it says %g", p.Factor, s.Emulation.Factor)
	}
	return fmt.Sprintf("this machine carries it, in about %s", human.Elapsed(About(plan).Round(time.Second)))
}

// MostChecked is how many jobs, in all points, are planned to check an experiment: that takes no time.
const MostChecked = 200

// KeepsUp says whether this machine carries an experiment on netns at the factor that its file sets: as Fits does, and empty
// where the machine chooses the factor.
func KeepsUp(ctx context.Context, s *spec.Spec, tool string) string {
	n := len(s.Points()) * len(s.Jobs)
	switch {
	case s.On != "" && s.On != "netns", n == 0, n > MostChecked, !Slowed(s), !s.Says("emulation.factor"), s.Unplanned() != nil:
		return ""
	}
	plan, err := experiments.NewPlan(ctx, s, tool)
	if err != nil {
		return "" // inabench plan says it
	}
	return Fits(plan, tool)
}

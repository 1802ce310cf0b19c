package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/carry"
)

// paceOf is how fast this machine carries an experiment, as it is planned; the pace's Factor is 0 where that cannot be
// known.
func paceOf(ctx context.Context, s *spec.Spec) (m carry.Machine, plan *experiments.SavedPlan, p pace.Pace) {
	plan, err := experiments.NewPlan(ctx, s, version())
	if err != nil {
		return m, nil, p
	}
	if m, err = carry.Measure(ctx, version()); err != nil {
		return m, plan, p
	}
	if p, err = pace.Of(m, plan); err != nil {
		p.Factor = 0
	}
	return m, plan, p
}

// limited says whether a run says nothing because the machine was its limit.
func limited(rec *results.Record) bool {
	return rec.Outcome == results.Inconclusive && slices.ContainsFunc(rec.Checks, func(c results.Check) bool {
		return c.Outcome == results.Inconclusive && c.Code == results.CodeLimited
	})
}

// tooFast says at which factor of slow motion this machine would carry a run that it was the limit of; nothing where that
// cannot be known.
func tooFast(ctx context.Context, s *spec.Spec, rec *results.Record) string {
	if !limited(rec) {
		return ""
	}
	m, _, p := paceOf(ctx, s)
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

// again is how many times as slow a run goes that is tried once more.
const again = 2

// slowly is an experiment that goes as fast as this machine carries it, where it leaves that open.
type slowly struct {
	asked *spec.Spec // as its file and the command line say it
	spec  *spec.Spec // with what was chosen
	src   source
	sets  []string
	open  bool
	say   func(string)
	// factor is that of an emulation that is up already; 0: of one that is made for it.
	factor float64
}

// choose chooses a pace that is so many times as slow as this machine carries the experiment; not ok where the
// experiment says it itself, or the machine does not, or where it would be no use to go slower still: what keeps the
// experiment from being judged is known from its plan.
func (e *slowly) choose(ctx context.Context, slower float64) (ok bool, err error) {
	if !e.open || e.factor > 0 && slower > 1 {
		return false, nil
	}
	m, plan, p := paceOf(ctx, e.asked)
	if p.Factor > e.factor && e.factor > 0 {
		return false, hinted{&experiments.BeginError{Err: fmt.Errorf("%w: %v: it carries this experiment at emulation.factor = %g, and that one goes at %g", experiments.ErrStanding, m, pace.Ladder(p.Factor), e.factor)},
			fmt.Sprintf("run it without --reuse, or take that one down: inabench up --set emulation.factor=%g %s", pace.Ladder(p.Factor), human.ShellLine(e.src.name))}
	}
	p.Factor = max(p.Factor, e.factor)
	if p.Factor == 0 || slower > 1 && conditional(plan) {
		return false, nil
	}
	more := p.Sets(e.asked, slower)
	if e.factor > 0 {
		more[0] = fmt.Sprintf("emulation.factor=%g", e.factor) // of the ladder or not
	}
	s, err := e.src.spec(append(slices.Clone(e.sets), more...))
	if err != nil {
		return false, err
	}
	if slower > 1 && s.Emulation.Factor <= e.spec.Emulation.Factor { // measured anew, the machine seems faster
		return false, nil
	}
	e.say(fmt.Sprintf("%v: %s", m, strings.Join(more, ", ")))
	e.spec = s
	return true, nil
}

// conditional says whether figures of a plan may be left undecided whatever the machine does.
func conditional(plan *experiments.SavedPlan) bool {
	return slices.ContainsFunc(plan.Points, func(pt study.PlanPoint) bool {
		return slices.ContainsFunc(pt.Phases, func(ph study.PlanPhase) bool { return len(ph.Conditions) > 0 })
	})
}

// unmeasured is said in the place of whether this machine carries an emulation, where it is not known what it carries.
const unmeasured = "how much this machine carries is not measured yet: inabench doctor measures it in four seconds; check and plan then say whether an emulation keeps up"

// fits says how a plan would go on netns, as far as that is known without measuring this machine: "" where nothing is
// predicted that says it.
func fits(plan *experiments.SavedPlan) string {
	s := plan.Spec()
	if !pace.Slowed(s) || !slices.ContainsFunc(plan.Points, func(pt study.PlanPoint) bool { return len(pt.Phases) > 0 }) {
		return ""
	}
	m, ok := carry.Known(version())
	p, err := pace.Of(m, plan) // its blocks are those of the plan, whatever the machine
	if err == nil && s.Says("emulation.factor") {
		if why := p.Sparse(s); why != "" {
			return why
		}
	}
	if !ok {
		return unmeasured
	}
	switch {
	case err != nil || p.Factor == 0:
		return ""
	case p.Factor > s.Emulation.Factor:
		return fmt.Sprintf("this machine carries it from emulation.factor = %g on, and it says %g", p.Factor, s.Emulation.Factor)
	}
	return fmt.Sprintf("this machine carries it, in about %s", human.Elapsed(pace.About(plan).Round(time.Second)))
}

// mostChecked is how many jobs, in all points, are planned to check an experiment: that takes no time.
const mostChecked = 200

// keepsUp says whether this machine carries an experiment on netns at the factor that its file sets: as fits does, and ""
// where the machine chooses the factor.
func keepsUp(ctx context.Context, s *spec.Spec) string {
	n := len(s.Points()) * len(s.Jobs)
	switch {
	case s.On != "" && s.On != "netns", n == 0, n > mostChecked, !pace.Slowed(s), !s.Says("emulation.factor"), s.Unplanned() != nil:
		return ""
	}
	plan, err := experiments.NewPlan(ctx, s, version())
	if err != nil {
		return "" // inabench plan says it
	}
	return fits(plan)
}

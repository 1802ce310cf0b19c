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
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/netns"
)

// paceOf is how fast this machine carries an experiment; its Factor is 0 where that cannot be known.
func paceOf(ctx context.Context, s *spec.Spec) (m carry.Machine, p pace.Pace) {
	plan, err := experiments.NewPlan(s, version())
	if err != nil {
		return m, p
	}
	if m, err = carry.Measure(ctx, version()); err != nil {
		return m, p
	}
	if p, err = pace.Of(m, plan); err != nil {
		p.Factor = 0
	}
	return m, p
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
	m, p := paceOf(ctx, s)
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

// slowly is an experiment that is run, as fast as this machine carries it where it leaves that open.
type slowly struct {
	spec *spec.Spec
	src  source
	sets []string
	open bool
	say  func(string)
}

// choose goes on with an experiment that is so many times as slow as this machine carries it; not ok where it says
// itself how fast it goes, or the machine does not.
func (e *slowly) choose(ctx context.Context, slower float64) (ok bool, err error) {
	if !e.open {
		return false, nil
	}
	m, p := paceOf(ctx, e.spec)
	if p.Factor == 0 {
		e.open = false
		return false, nil
	}
	more := p.Sets(e.spec, slower)
	s, err := e.src.spec(append(slices.Clone(e.sets), more...))
	if err != nil {
		return false, err
	}
	e.say(fmt.Sprintf("%v: %s", m, strings.Join(more, ", ")))
	e.spec = s
	return true, nil
}

// fits says how an experiment would go on netns, as far as that is known without measuring this machine: "" if it is not.
func fits(s *spec.Spec) string {
	m, ok := carry.Known(version())
	if !ok || s.On != "" && s.On != "netns" || s.Emulation.Switch != netns.Soft || s.Emulation.Scale != "slow-motion" {
		return ""
	}
	plan, err := experiments.NewPlan(s, version())
	if err != nil {
		return ""
	}
	p, err := pace.Of(m, plan)
	switch {
	case err != nil || p.Factor == 0:
		return ""
	case pace.Open(s):
		return "this machine carries it: " + strings.Join(p.Sets(s, 1), ", ")
	case p.Factor > s.Emulation.Factor:
		return fmt.Sprintf("this machine carries it from emulation.factor = %g on, and it says %g", p.Factor, s.Emulation.Factor)
	}
	return fmt.Sprintf("this machine carries it, in about %s", human.Elapsed(pace.About(plan).Round(time.Second)))
}

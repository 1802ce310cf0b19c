package drivers

import (
	"context"
	"errors"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/preflight"
)

// looking looks at hosts before a testbed is used, as remote.Options.Preflight.
type looking func(ctx context.Context, hosts []preflight.Host) ([]results.Preflight, []results.HostFacts, error)

// omitted is why a check is not made that a spec or a flag names.
const omitted = "left out on request"

// preflightOf looks at hosts; wanted are the checks that mean something there, none: all.
func preflightOf(s *spec.Spec, wanted []string) looking {
	var skip []preflight.Skip
	for _, name := range s.Preflight.Skip {
		skip = append(skip, preflight.Skip{Name: name, Why: omitted})
	}
	return func(ctx context.Context, hosts []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
		all, facts := preflight.Run(ctx, hosts, wanted, skip, 0)
		return all, facts, preflight.Err(all)
	}
}

// ceilingOf looks at hosts as look does, and whether those that are fit are able to do what is asked of them.
func (a Asked) ceilingOf(s *spec.Spec, look looking) looking {
	return func(ctx context.Context, hosts []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
		all, facts, err := look(ctx, hosts)
		switch {
		case err != nil || len(a.asks) == 0:
			return all, facts, err
		case slices.Contains(s.Preflight.Skip, preflight.Ceiling):
			all = append(all, results.Preflight{Name: preflight.Ceiling, Outcome: results.Skipped, Why: omitted})
		default:
			all = append(all, carry.Look(ctx, hosts, a.asks, a.tool, 0)...)
		}
		return all, facts, preflight.Err(all)
	}
}

// Asked is what a run asks of the software of a lab's hosts, as far as that is planned; the zero value is nothing.
type Asked struct {
	asks []carry.Ask
	tool string // version of this program
}

// Asking is what is asked by a run of points as they are planned, by this version of the program.
func Asking(tool string, points []spec.Point, planned []study.PlanPoint) (Asked, error) {
	asks, err := Asks(points, planned)
	return Asked{asks, tool}, err
}

// Asks is what planned points ask of hosts; points are those of their experiment, in the same order.
func Asks(points []spec.Point, planned []study.PlanPoint) (out []carry.Ask, err error) {
	for i, pt := range planned {
		if pt.Plan == nil {
			continue
		}
		s := points[i].Spec
		asks, err := carry.Asks(s.Inventory(), pt.Plan, pt.Occupied(), s.Switch.Lanes)
		if err != nil {
			return nil, err
		}
		out = append(out, asks...)
	}
	return out, nil
}

// Looked is what was found of hosts when a testbed was opened, also of one that was not fit.
func Looked(tb testbed.Testbed, err error) []results.Preflight {
	var unfit *preflight.Error
	if looked, ok := tb.(interface{ Preflight() []results.Preflight }); err == nil && ok {
		return looked.Preflight()
	} else if errors.As(err, &unfit) {
		return unfit.All
	}
	return nil
}

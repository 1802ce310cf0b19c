package drivers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
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
		if err != nil || a.planned == nil {
			return all, facts, err
		}
		if slices.Contains(s.Preflight.Skip, preflight.Ceiling) { // what is asked may take long to predict
			return append(all, results.Preflight{Name: preflight.Ceiling, Outcome: results.Skipped, Why: omitted}), facts, nil
		}
		asks, err := a.of(s.Inventory())
		switch {
		case err != nil:
			all = append(all, Unforeseen(err))
		case len(asks) > 0:
			all = append(all, carry.Look(ctx, hosts, asks, a.tool, 0)...)
		}
		return all, facts, preflight.Err(all)
	}
}

// Asked is what a run asks of the software of a lab's hosts, as far as that is planned; the zero value is nothing.
type Asked struct {
	points  []spec.Point
	planned func() ([]study.PlanPoint, error) // nil: nothing is
	tool    string                            // version of this program
}

// Asking is what is asked by a run of points as they are planned, by this version of the program. They are planned once
// it is needed.
func Asking(tool string, points []spec.Point, planned func() ([]study.PlanPoint, error)) Asked {
	return Asked{points, sync.OnceValues(planned), tool}
}

// of is what is asked of an inventory's hosts.
func (a Asked) of(inv *inventory.Inventory) ([]carry.Ask, error) {
	planned, err := a.planned()
	if err != nil {
		return nil, err
	}
	return Asks(inv, a.points, planned)
}

// Unforeseen is preflight.Ceiling where nothing is planned, for that reason.
func Unforeseen(err error) results.Preflight {
	why := "nothing says what is asked of hosts: " + strings.Join(strings.Fields(err.Error()), " ")
	return results.Preflight{Name: preflight.Ceiling, Outcome: results.Skipped, Why: why}
}

// Asks is what planned points ask of an inventory's hosts; points are those of their experiment, in the same order. Hosts
// of another inventory's points are others, though their names may be the same.
func Asks(inv *inventory.Inventory, points []spec.Point, planned []study.PlanPoint) (out []carry.Ask, err error) {
	for i, pt := range planned {
		s := points[i].Spec
		if pt.Plan == nil || s.Inventory().SHA256 != inv.SHA256 {
			continue
		}
		asks, err := carry.Asks(inv, pt.Plan, pt.Occupied(), s.Switch.Lanes, s.Calibrate.Enabled)
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

package experiments

import (
	"context"
	"errors"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/preflight"
)

// preflightOf looks at hosts; wanted are the checks that mean something there, none: all.
func preflightOf(s *spec.Spec, wanted []string) func(context.Context, []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
	var skip []preflight.Skip
	for _, name := range s.Preflight.Skip {
		skip = append(skip, preflight.Skip{Name: name, Why: "left out on request"})
	}
	return func(ctx context.Context, hosts []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
		all, facts := preflight.Run(ctx, hosts, wanted, skip, 0)
		return all, facts, preflight.Err(all)
	}
}

// lookedAt keeps what was found when a testbed was opened, also of one that was not fit.
func (r *run) lookedAt(tb testbed.Testbed, err error) {
	var all []results.Preflight
	var unfit *preflight.Error
	if looked, ok := tb.(interface{ Preflight() []results.Preflight }); err == nil && ok {
		all = looked.Preflight()
	} else if errors.As(err, &unfit) {
		all = unfit.All
	}
	if len(all) == 0 {
		return
	}
	r.rec.Preflight = all // the last testbed's, where points need several
	for _, w := range results.PreflightWarnings(all) {
		if !slices.Contains(r.rec.Warnings, w) {
			r.rec.Warnings = append(r.rec.Warnings, w)
		}
	}
}

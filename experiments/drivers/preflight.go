package drivers

import (
	"context"
	"errors"

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

package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/preflight"
)

// Preflight is how a testbed's hosts are looked at before it is used.
type Preflight struct {
	// Skip are checks that are not to be made, by their names.
	Skip []string `toml:"skip"`
}

func (c *checker) preflight() {
	for i, name := range c.s.Preflight.Skip {
		if !slices.Contains(preflight.Names(), name) {
			c.Problemf(fmt.Sprintf("preflight.skip[%d]", i), tomlfile.OneOf(name, preflight.Names()), "unknown check %q", name)
		}
	}
}

// SkipPreflight leaves further checks out; their names are some of preflight.Names.
func (s *Spec) SkipPreflight(names ...string) {
	s.Preflight.Skip = append(slices.Clone(s.Preflight.Skip), names...)
	for _, p := range s.points {
		if p.Spec != s {
			p.Spec.SkipPreflight(names...)
		}
	}
}

// preflight looks at hosts; wanted are the checks that mean something there, none: all.
func (s *Spec) preflight(wanted []string) func(context.Context, []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
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

package spec

import (
	"fmt"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/testbed/preflight"
)

// Preflight is how a testbed's hosts are looked at before it is used.
type Preflight struct {
	// Skip are checks that are not to be made, by their names.
	Skip []string `toml:"skip"`
}

func (c *Checker) preflight() {
	for i, name := range c.Spec.Preflight.Skip {
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

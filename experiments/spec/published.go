package spec

import (
	"maps"
	"slices"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
)

// PublishedValue is a figure that a paper prints, to stand beside the study's own.
type PublishedValue struct {
	At     string   `toml:",path"`
	Figure string   `toml:"figure,required"` // such as "Table I"
	Metric string   `toml:"metric,required"` // of the study
	Of     string   `toml:"of"`              // glob over subjects; empty: the cluster
	Where  []string `toml:"at"`              // labels of sweeps, all of which a point must have; empty: all points
	Value  any      `toml:"value,required"`  // a number; a rate or duration where the metric is one
	Text   string   `toml:"text"`            // where it says so

	value float64
}

// published checks the figures that papers print.
func (c *Checker) published() {
	if len(c.Spec.Published) == 0 {
		return
	}
	known := c.Spec.Study().Metrics()
	if len(known.compared()) == 0 {
		c.KeyProblemf("published", "write it as the value of an [[expect]]", "figures of %v tables are not held against what papers print", c.Spec.Kind())
		return
	}
	for i := range c.Spec.Published {
		p := &c.Spec.Published[i]
		m, ok := known[p.Metric]
		switch {
		case !ok && p.Metric != "":
			c.Problemf(p.At+".metric", tomlfile.OneOf(p.Metric, slices.Sorted(maps.Keys(known))), "unknown metric %q", p.Metric)
		case c.Has(p.At + ".value"):
			p.value = c.quantity(p.At+".value", m, p.Value)
		}
	}
}

// PublishedValues are the same as a record keeps them.
func (s *Spec) PublishedValues() (out []results.PublishedValue) {
	for _, p := range s.Published {
		out = append(out, results.PublishedValue{Figure: p.Figure, Metric: p.Metric, Of: p.Of, At: p.Where, Value: p.value, Text: p.Text})
	}
	return out
}

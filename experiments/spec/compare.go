package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
)

// Compare puts points side by side that differ only in one swept key.
type Compare struct {
	Key       string      `toml:"key" default:"placement.policy"` // whose values are compared
	Reference string      `toml:"reference" default:"netpack"`    // the value that others are divided by
	Metrics   []string    `toml:"metrics"`                        // default: the study's headline
	Published []Published `toml:"published"`
}

// Published is what a paper says of the comparison.
type Published struct {
	At     string `toml:",path"`
	Metric string `toml:"metric,required"` // one of those compared
	Where  string `toml:"at"`              // a point's label: "fat_tree.oversubscription=20"; empty: everywhere
	// Against is one value of the compared key; empty: all others.
	Against string `toml:"against"`
	// Change of the reference against those: "-13%", or the ends of a range,
	// ["-45%", "-13%"].
	Change []string `toml:"change,required"`
	Text   string   `toml:"text,required"` // where it says so
	Figure string   `toml:"figure"`        // "Figure 9"; default: the first that text names
	// Bound is "up-to" where the paper gives the largest change of several, "at-least" where the
	// smallest; empty: their mean, or both ends of a range. A range from 0 is up to its other end.
	Bound string `toml:"bound" words:"up-to,at-least"`
	// Among are the values of the compared key that the paper had, where the sweep has more.
	Among []string `toml:"among"`
}

func (c *Checker) compare() {
	cmp := c.Spec.Compare
	if cmp == nil {
		return
	}
	known := c.Spec.Study().Metrics().compared()
	if len(known) == 0 {
		c.KeyProblemf("compare", "", "%v tables have no figures of the whole cluster, which are what [compare] is about", c.Spec.Kind())
		return
	}
	if len(cmp.Metrics) == 0 {
		cmp.Metrics = c.Spec.Study().Headline()
	}
	metric := func(at, name string) {
		if !slices.Contains(known, name) && !c.Reported(at) {
			c.Problemf(at, tomlfile.OneOf(name, known), "unknown metric %q", name)
		}
	}
	for i, m := range cmp.Metrics {
		metric("compare.metrics["+Format(int64(i))+"]", m)
	}
	for i := range cmp.Published {
		p := &cmp.Published[i]
		metric(p.At+".metric", p.Metric)
		if _, _, ok := p.change(); !ok && !c.Reported(p.At+".change") {
			c.Problemf(p.At+".change", `write change = ["-45%", "-13%"]`, "change is one part, or a smaller and a larger one")
		}
	}
}

// change is the range of p's changes.
func (p *Published) change() (lo, hi float64, ok bool) {
	var parts []float64
	for _, s := range p.Change {
		number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
		v, err := InUnit("1", strings.TrimPrefix(number, "+"))
		if err != nil || !percent {
			return 0, 0, false
		}
		parts = append(parts, v/100)
	}
	if len(parts) == 0 || len(parts) > 2 || !slices.IsSorted(parts) {
		return 0, 0, false
	}
	return parts[0], parts[len(parts)-1], true
}

// Swept says whether the compared key is swept, without which there is nothing to compare.
func (s *Spec) Swept() bool {
	return s.Compare != nil && len(s.points) > 0 && s.points[0].Params[s.Compare.Key] != nil
}

// Narrowed are the swept keys of which --set, or a small version, gives other values than the file.
func (s *Spec) Narrowed() []string { return s.narrowed }

// Comparison is what a record keeps of it, also where the key is not swept: the verdict says so.
func (s *Spec) Comparison() *results.Comparison {
	c := s.Compare
	if c == nil {
		return nil
	}
	out := &results.Comparison{Key: c.Key, Reference: c.Reference, Metrics: c.Metrics}
	for i := range c.Published {
		p := &c.Published[i]
		lo, hi, _ := p.change()
		out.Published = append(out.Published, results.Published{Metric: p.Metric, At: p.Where, Against: p.Against, Lo: lo, Hi: hi, Text: p.Text, Figure: p.Figure, Bound: p.Bound, Among: p.Among})
	}
	return out
}

// checkReference reports a comparison, or a published one, with a value that the sweep does not have.
func (s *Spec) checkReference(f *tomlfile.File) {
	c := s.Compare
	if c == nil || len(s.points) == 0 {
		return
	}
	var values []string
	for _, p := range s.points {
		if v, ok := p.Params[c.Key]; ok && !slices.Contains(values, Format(v)) {
			values = append(values, Format(v))
		}
	}
	known := func(at, value string) {
		if len(values) > 0 && !slices.Contains(values, value) {
			f.Problemf(at, tomlfile.OneOf(value, values), "%s is never %q", c.Key, value)
		}
	}
	known("compare.reference", c.Reference)
	if i := slices.IndexFunc(s.Sweeps, func(sw Sweep) bool { return sw.Key == c.Key }); i >= 0 && f.Pos(s.Sweeps[i].At+".values").Line == 0 {
		return // a flag's: what is published of others is then not run
	}
	for i := range c.Published {
		p := &c.Published[i]
		if p.Against != "" {
			known(p.At+".against", p.Against)
		}
		for k, value := range p.Among {
			known(fmt.Sprintf("%s.among[%d]", p.At, k), value)
		}
	}
}

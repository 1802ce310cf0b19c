package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// comparisonCheck is what checks of a comparison's completeness are called, and their metric.
const (
	comparisonCheck = "the comparison is complete"
	ComparisonOf    = "comparison"
)

// Incomplete are the checks of a comparison that came out empty, or in which a value of the compared
// key has no ratio to the reference: each is undecided, and says which point is missing and why. A
// value that has lost repeats is missing where fewer than two pairs are left of several, which give no
// interval. There are none where nothing is missing, or the experiment compares nothing.
func (rec *Record) Incomplete() (out []Check) {
	if rec.Comparison == nil {
		return nil
	}
	missing := func(point, value, why string) {
		if !slices.ContainsFunc(out, func(c Check) bool { return c.Point == point && c.Of == value }) {
			out = append(out, Check{Expect: comparisonCheck, Code: CodeComparison, Point: point, Metric: ComparisonOf, Predictor: Evidence,
				Bound: "within", Of: value, Outcome: Inconclusive, Why: why, Gate: true})
		}
	}
	key, ref := rec.Comparison.Key, rec.Comparison.Reference
	groups := rec.Compare()
	if len(groups) == 0 {
		missing("", key, fmt.Sprintf("nothing to compare: no point has a value of %s, which must be swept, with %s among its values", key, ref))
		return out
	}
	for _, g := range groups {
		place := strings.Join(g.Labels, " ")
		for _, metric := range rec.Comparison.Metrics {
			c, ok := g.Contrast(metric)
			if !ok {
				missing(place, metric, "nothing to compare: no point has a figure of "+metric+rec.why(g.Labels))
				continue
			}
			if r, ok := c.Of(ref); !ok {
				missing(place, ref, "the reference has no point")
			} else if r.N == 0 {
				missing(place, ref, "the reference has no "+metric+": "+r.Why)
			}
			if len(c.Values) == 1 {
				missing(place, c.Values[0].Value, "it is the only value of "+key+": nothing to compare it with")
			}
			for _, x := range c.Values {
				if x.Value != ref && x.Pairs < min(2, g.Repeats) {
					missing(place, x.Value, fmt.Sprintf("%s has %s with %s of %s: %s", metric, human.Plural(x.Pairs, "pair"), ref, human.Plural(g.Repeats, "repeat"), x.Why))
				}
			}
		}
	}
	return out
}

// why is the first reason for which a point with these labels must not be judged: ": host h1: busy".
func (rec *Record) why(labels []string) string {
	for _, p := range rec.Points {
		if why := p.Unsound(); why != "" && Labelled(p.Labels, labels) {
			return ": " + why
		}
	}
	return ""
}

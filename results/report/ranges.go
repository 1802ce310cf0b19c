package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/metric"
)

// rangeIn is how large the range is that a metric is a part of, as a score is of what INA can gain, over all points that are
// wanted: "7.4 %". Of several settings it has the least and the most. It is empty of other metrics.
func rangeIn(rec *results.Record, name string, wanted func(*results.Point) bool) string {
	within, ok := metric.Within(name)
	if !ok {
		return ""
	}
	var points []results.Point
	for i := range rec.Points {
		if p := &rec.Points[i]; wanted(p) {
			points = append(points, *p)
		}
	}
	n, widest := 0, 0.0
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, d := range data(results.Settings(points), within.Name, func(of string) bool { return of == results.Cluster }) {
		if f := d.observed; d.seen {
			lo, hi = min(lo, f.Value), max(hi, f.Value)
			widest = max(widest, (f.Hi-f.Lo)/2)
			n++
		}
	}
	switch {
	case n == 0:
		return "unknown"
	case human.Percent(lo) != human.Percent(hi):
		return human.Percent(lo) + " to " + human.Percent(hi)
	case widest > 0:
		return human.PercentDigits(lo) + " ± " + human.Percent(widest)
	}
	return human.Percent(lo)
}

// rangeOf is that as it follows a figure: " (JCT range 7.4 %)".
func rangeOf(rec *results.Record, name string, wanted func(*results.Point) bool) string {
	size := rangeIn(rec, name, wanted)
	if size == "" {
		return ""
	}
	within, _ := metric.Within(name)
	return fmt.Sprintf(" (%s %s)", within.Short, size)
}

// at wants the points with an index.
func at(index int) func(*results.Point) bool {
	return func(p *results.Point) bool { return p.Index == index }
}

// rangesOf is that of all points.
func rangesOf(rec *results.Record, name string) string {
	return rangeOf(rec, name, func(*results.Point) bool { return true })
}

// single says whether what was measured in a check is a figure of its point: no error of several points or correlation, and
// not nothing.
func single(c results.Check) bool {
	return c.Repeats > 0 && !c.IsError() && c.Statistic != results.Correlation
}

// rangeBeside is the range of what was measured in a check, as it follows that.
func rangeBeside(rec *results.Record, c results.Check) string {
	if !single(c) {
		return ""
	}
	return rangeOf(rec, c.Metric, at(c.Index))
}

// hereOf is what was found of a published statement, with the range of the points that it is about.
func hereOf(rec *results.Record, r results.Reproduction) string {
	here := r.Words()
	if here == "" {
		return ""
	}
	i := slices.IndexFunc(rec.Published, func(p results.PublishedValue) bool {
		return p.Figure == r.Figure && p.Metric == r.Metric && p.Where() == r.At
	})
	if i < 0 {
		return here + rangesOf(rec, r.Metric)
	}
	return here + rangeOf(rec, r.Metric, func(p *results.Point) bool { return results.Labelled(p.Labels, rec.Published[i].At) })
}

// besides adds the range of each metric that is a part of one, where it is not among them.
func besides(metrics []string) (out []string) {
	for _, m := range metrics {
		out = append(out, m)
		if within, ok := metric.Within(m); ok && !slices.Contains(metrics, within.Name) {
			out = append(out, within.Name)
		}
	}
	return out
}

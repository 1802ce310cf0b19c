package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
)

// drawCurves draws what changed within the points: one drawing for each metric, or several
// where there are more points than one can tell apart. Where the policy is swept, or what
// is compared, its values are drawn over each other, each in one colour throughout, and
// each combination of the other keys has drawings of its own. Repeats with the same X are
// averaged; of others only the first is drawn.
func (s *sheet) drawCurves(rec *results.Record, observed string) []panel {
	type key struct{ metric, over, others string }
	var order []key
	of := map[key]*plot.Chart{}
	column := columnKey(rec)
	for _, c := range results.Settings(rec.Points) {
		if len(c.Repeats) == 0 {
			continue
		}
		value, others := splitLabels(c, column)
		if value == "" {
			value, others = valuesOf(c), ""
		}
		for i, first := range c.Repeats[0].Curves {
			k := key{first.Metric, first.Over, others}
			all := of[k]
			if all == nil {
				order = append(order, k)
				all = &plot.Chart{
					Measure: human.Measure(k.metric), Unit: first.Unit, XLabel: k.over,
					Title:    human.UpperFirst(human.Measure(k.metric)) + " over " + wordsOf(k.over),
					Observed: observed, Lines: true, Width: s.width,
				}
				if others != "" {
					all.Title += ", " + others
				}
				of[k] = all
			}
			same := sameX(c.Repeats, i)
			if n := len(c.Repeats); len(same) < n {
				all.Part = "the first repeat of " + strconv.Itoa(n)
				if len(same) > 1 {
					all.Part = fmt.Sprintf("the mean of %d repeats of %d", len(same), n)
				}
			}
			one := plot.Series{
				Name: strings.TrimSpace(first.Of + " " + value), Colour: s.colour(value),
				Points: thinned(first.X, meanCurve(same, i), maxVertices),
			}
			if wordsOf(k.over) == "time" && !cumulative(one.Points) {
				one.Mean, all.Means = meanOf(same, first, one.Points)
			}
			all.Series = append(all.Series, one)
		}
	}
	var out []panel
	for n, k := range order {
		all := of[k]
		lo, hi := all.Span()
		for i, rest := 0, all.Series; len(rest) > 0; i, rest = i+1, rest[min(len(rest), maxSeries):] {
			c := *all
			c.ID, c.Series = fmt.Sprintf("curve-%d-%d", n, i), slices.Clone(rest[:min(len(rest), maxSeries)])
			c.Lo, c.Hi = lo, hi
			if n := len(all.Series); n > maxSeries {
				c.Title += fmt.Sprintf(" (%d of %d)", i+1, (n+maxSeries-1)/maxSeries)
			}
			var colours []int
			for _, s := range c.Series {
				colours = append(colours, s.Colour)
			}
			p := panel{ID: c.ID, Title: c.Title, Metric: k.metric, Unit: c.Unit}
			for j, colour := range apart(colours) {
				s := &c.Series[j]
				s.Colour = colour
				if p := s.Points; len(p) > 0 {
					c.Desc += fmt.Sprintf("%s: from %s to %s", s.Name, human.Quantity(p[0].Y, c.Unit), human.Quantity(p[len(p)-1].Y, c.Unit))
					if s.Mean != nil {
						c.Desc += ", mean " + human.Quantity(*s.Mean, c.Unit)
					}
					c.Desc += ". "
				}
				p.Table = append(p.Table, curveRows(&c, *s)...)
			}
			p.SVG = template.HTML(c.SVG())
			out = append(out, p)
		}
	}
	return out
}

// columnKey is the key whose values stand beside or over each other: the compared one, or
// the placement policy.
func columnKey(rec *results.Record) string {
	if rec.Comparison != nil {
		return rec.Comparison.Key
	}
	return "placement.policy"
}

// splitLabels is a cell's value of a swept key, empty where it is not swept, and its other
// labels.
func splitLabels(c results.Setting, key string) (value, others string) {
	var rest []string
	for _, l := range c.Label {
		if k, v, _ := strings.Cut(l, "="); k == key {
			value = v
		} else {
			rest = append(rest, human.ShortLabel(l))
		}
	}
	return value, strings.Join(rest, " ")
}

// cumulative reports whether a curve only grows, but for rounding: its mean says nothing.
func cumulative(p []plot.Point) bool {
	return slices.IsSortedFunc(p, func(a, b plot.Point) int {
		if math.Abs(a.Y-b.Y) <= 1e-9*math.Abs(b.Y) {
			return 0
		}
		return cmp.Compare(a.Y, b.Y)
	})
}

// meanOf is the mean of a curve, and what mean it is: the figure of the metric that the
// points have, if they do, as tables show it, else that of the drawn points.
func meanOf(points []results.Point, c results.Curve, drawn []plot.Point) (mean *float64, what string) {
	sum, n := 0.0, 0.0
	what = "average, as in the tables"
	for _, p := range points {
		for _, ph := range p.Phases {
			for _, f := range ph.Figures {
				if f.Metric == c.Metric && (f.Of == c.Of || c.Of == "" && f.Of == results.Cluster) && f.Kind != results.Predicted && human.Finite(f.Value) {
					sum, n = sum+f.Value, n+1
				}
			}
		}
	}
	if n == 0 {
		what = "mean over time"
		for i := 1; i < len(drawn); i++ { // by trapezia
			dx := drawn[i].X - drawn[i-1].X
			sum, n = sum+dx*(drawn[i].Y+drawn[i-1].Y)/2, n+dx
		}
	}
	if m := sum / n; human.Finite(m) {
		return &m, what
	}
	return nil, ""
}

// valuesOf are those of the swept keys: a key that alone is swept needs no name.
func valuesOf(c results.Setting) string {
	if _, v, ok := strings.Cut(c.Labels, "="); ok && len(c.Label) == 1 {
		return v
	}
	return human.ShortLabel(c.Labels)
}

// wordsOf is what a quantity is called without its unit.
func wordsOf(over string) string {
	name, _, _ := strings.Cut(over, ",")
	return name
}

// curveRows are ten values of a series.
func curveRows(c *plot.Chart, s plot.Series) (rows []panelRow) {
	step := max(1, (len(s.Points)-1+9)/10)
	for i := 0; i < len(s.Points); i += step {
		p := s.Points[i]
		rows = append(rows, panelRow{Where: wordsOf(c.XLabel) + " " + strconv.FormatFloat(p.X, 'g', 6, 64), Of: s.Name, Observed: human.Quantity(p.Y, c.Unit), Key: human.Exact(p.Y)})
	}
	return rows
}

// sameX are the repeats whose i-th curve has the X of the first one's.
func sameX(repeats []results.Point, i int) []results.Point {
	first := repeats[0].Curves[i]
	return slices.DeleteFunc(slices.Clone(repeats), func(p results.Point) bool {
		return i >= len(p.Curves) || !slices.Equal(p.Curves[i].X, first.X) || len(p.Curves[i].Y) != len(first.Y)
	})
}

// SameX says whether any curve of a repeat has the X of the first repeat's: only these are
// averaged.
func SameX(repeat, first []results.Curve) bool {
	for i := range min(len(repeat), len(first)) {
		if slices.Equal(repeat[i].X, first[i].X) {
			return true
		}
	}
	return false
}

// meanCurve is the i-th curve's Y, averaged over repeats with the same X.
func meanCurve(repeats []results.Point, i int) []float64 {
	y := make([]float64, len(repeats[0].Curves[i].Y))
	for n, p := range repeats {
		for j, v := range p.Curves[i].Y {
			y[j] += (v - y[j]) / float64(n+1)
		}
	}
	return y
}

// thinned is a curve as at most n points: means of neighbours, with the least and the most
// of these, so that no peak is lost.
func thinned(x, y []float64, n int) []plot.Point {
	x, y = x[:min(len(x), len(y))], y[:min(len(x), len(y))] // a record of others may have more of one
	n = min(n, len(x))
	out := make([]plot.Point, n)
	for i := range out {
		from, to := i*len(x)/n, (i+1)*len(x)/n
		p := plot.Point{Lo: math.Inf(1), Hi: math.Inf(-1)}
		for j := from; j < to; j++ {
			p.X += (x[j] - p.X) / float64(j-from+1)
			p.Y += (y[j] - p.Y) / float64(j-from+1)
			p.Lo, p.Hi = min(p.Lo, y[j]), max(p.Hi, y[j])
		}
		out[i] = p
	}
	return out
}

package results

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// curves draws what changed within the points: one drawing for each metric, or several
// where there are more points than one can tell apart. Repeats with the same X are
// averaged; of others only the first is drawn.
func (rec *Record) curves(observed string) []plot {
	type key struct{ metric, over string }
	var order []key
	of := map[key][]chartSeries{}
	unit := map[key]string{}
	for _, c := range cellsOf(rec.Points) {
		if len(c.repeats) == 0 {
			continue
		}
		for i, first := range c.repeats[0].Curves {
			k := key{first.Metric, first.Over}
			if of[k] == nil {
				order = append(order, k)
			}
			unit[k] = first.Unit
			x, y := thinned(first.X, meanCurve(c.repeats, i), maxVertices)
			s := chartSeries{Name: strings.TrimSpace(first.Of + " " + c.values())}
			for j := range x {
				s.Points = append(s.Points, chartPoint{X: x[j], Y: y[j], Lo: y[j], Hi: y[j]})
			}
			of[k] = append(of[k], s)
		}
	}
	var out []plot
	for n, k := range order {
		lo, hi := math.Inf(1), math.Inf(-1)
		var charts []*chart
		for rest := of[k]; len(rest) > 0; rest = rest[min(len(rest), maxSeries):] {
			c := &chart{
				ID: fmt.Sprintf("curve-%d-%d", n, len(charts)), Measure: measureName(k.metric), Unit: unit[k], XLabel: k.over,
				Title:    upperFirst(measureName(k.metric)) + " over " + wordsOf(k.over),
				Observed: observed, Lines: true, Series: rest[:min(len(rest), maxSeries)],
			}
			for i := range c.Series {
				s := &c.Series[i]
				s.Colour = i
				if p := s.Points; len(p) > 0 {
					c.Desc += fmt.Sprintf("%s: from %s to %s. ", s.Name, Quantity(p[0].Y, c.Unit), Quantity(p[len(p)-1].Y, c.Unit))
				}
			}
			a, b := c.span()
			lo, hi = min(lo, a), max(hi, b)
			charts = append(charts, c)
		}
		for _, c := range charts {
			c.Lo, c.Hi = lo, hi
			p := plot{Title: c.Title, SVG: template.HTML(c.SVG())}
			for _, s := range c.Series {
				p.Table = append(p.Table, curveRows(c, s)...)
			}
			out = append(out, p)
		}
	}
	return out
}

// values are those of the swept keys: a key that alone is swept needs no name.
func (c *cell) values() string {
	if _, v, ok := strings.Cut(c.labels, "="); ok && len(c.label) == 1 {
		return v
	}
	return shortLabel(c.labels)
}

// wordsOf is what a quantity is called without its unit.
func wordsOf(over string) string {
	name, _, _ := strings.Cut(over, ",")
	return name
}

// curveRows are ten values of a series.
func curveRows(c *chart, s chartSeries) (rows []plotRow) {
	step := max(1, (len(s.Points)-1+9)/10)
	for i := 0; i < len(s.Points); i += step {
		p := s.Points[i]
		rows = append(rows, plotRow{Where: wordsOf(c.XLabel) + " " + strconv.FormatFloat(p.X, 'g', 6, 64), Of: s.Name, Observed: Quantity(p.Y, c.Unit)})
	}
	return rows
}

// meanCurve is the i-th curve's Y, averaged over the repeats with the same X.
func meanCurve(repeats []Point, i int) []float64 {
	first := repeats[0].Curves[i]
	y := make([]float64, len(first.Y))
	n := 0.0
	for _, p := range repeats {
		if i >= len(p.Curves) || !slices.Equal(p.Curves[i].X, first.X) {
			continue
		}
		n++
		for j, v := range p.Curves[i].Y {
			y[j] += (v - y[j]) / n
		}
	}
	return y
}

// thinned is at most n points, means of neighbours.
func thinned(x, y []float64, n int) (tx, ty []float64) {
	if len(x) <= n {
		return x, y
	}
	for i := range n {
		from, to := i*len(x)/n, (i+1)*len(x)/n
		var sx, sy float64
		for j := from; j < to; j++ {
			sx, sy = sx+x[j], sy+y[j]
		}
		tx, ty = append(tx, sx/float64(to-from)), append(ty, sy/float64(to-from))
	}
	return tx, ty
}

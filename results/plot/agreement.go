package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/results/human"
)

// Agreement is what was seen of many subjects over what a model says of them, for a drawing: on
// the diagonal they are equal.
type Agreement struct {
	ID      string // of a drawing in a page that has Style, unique there; empty: a document of its own
	Title   string
	Measure string // what both are: "goodput of jobs"
	Unit    string
	Model   string   // who says X: "sim, simulated"
	Seen    string   // who says Y: "netns, measured"
	Groups  []string // names of the points' groups, six at most, each with a colour and a shape
	Points  []AgreementPoint
	// Slope and Intercept are a regression of Y on X, which is drawn over the points' range of X;
	// both NaN: there is none.
	Slope, Intercept float64
	Notes            []string // beside the plot, a line each
}

// AgreementPoint is one subject; intervals are empty where there are none.
type AgreementPoint struct {
	X, XLo, XHi float64
	Y, YLo, YHi float64
	Group       int
	Title       string // shown where a pointer rests
}

// AgreementSVG draws an agreement. Points that are not finite are left
// out.
func AgreementSVG(a Agreement) string {
	const w, h = 680.0, 430.0
	left, right, top, bottom := 58.0, 408.0, 66.0, h-56
	points := slices.DeleteFunc(slices.Clone(a.Points), func(p AgreementPoint) bool { return !human.Finite(p.X, p.Y) })
	lo, hi := math.Inf(1), 0.0
	for _, p := range points {
		lo, hi = min(lo, p.X, p.Y), max(hi, p.X, p.XHi, p.Y, p.YHi)
	}
	if !(hi > 0) {
		hi = 1
	}
	if !(lo > 0.6*hi) { // else little would be seen
		lo = min(lo, 0)
	}
	if math.IsInf(lo, 0) {
		lo = 0
	}
	v := newAxis(lo, hi, 5, a.Unit)
	lo, hi = v.ends()
	px := func(v float64) float64 { return left + (min(max(v, lo), hi)-lo)/(hi-lo)*(right-left) }
	py := func(v float64) float64 { return bottom - (min(max(v, lo), hi)-lo)/(hi-lo)*(bottom-top) }
	var s Canvas
	s.Begin(cmp.Or(a.ID, "agreement"), a.Title, fmt.Sprintf("%d figures: %s on the vertical axis, %s on the horizontal one.", len(points), a.Seen, a.Model), w, h)
	s.Text("strong", "start", 12, 18, Clip(a.Title, 13, w-24))
	for i, t := range v.ticks {
		s.Line("grid", left, py(t), right, py(t))
		s.Text("muted small", "end", left-7, py(t)+4, v.labels[i])
		s.Line("grid", px(t), top, px(t), bottom)
		s.Text("muted small", "middle", px(t), bottom+17, v.labels[i])
	}
	s.Text("muted small", "start", 12, top-13, Clip(a.Seen+": "+v.measured(a.Measure), 11, right))
	s.Text("muted small", "middle", (left+right)/2, h-16, Clip(a.Model+": "+v.measured(a.Measure), 11, right))
	s.Line("pred key", px(lo), py(lo), px(hi), py(hi))
	if human.Finite(a.Slope, a.Intercept) && len(points) > 0 {
		x0, x1 := points[0].X, points[0].X
		for _, p := range points {
			x0, x1 = min(x0, p.X), max(x1, p.X)
		}
		y0, y1 := a.Slope*x0+a.Intercept, a.Slope*x1+a.Intercept
		s.Leaf("regression", "line", "class", "err", "x1", Num(px(x0)), "y1", Num(py(y0)), "x2", Num(px(x1)), "y2", Num(py(y1)))
	}
	for _, p := range points {
		class := "whisk " + colourClass(p.Group)
		if p.YHi > p.YLo {
			s.Line(class, px(p.X), py(p.YLo), px(p.X), py(p.YHi))
		}
		if p.XHi > p.XLo {
			s.Line(class, px(p.XLo), py(p.Y), px(p.XHi), py(p.Y))
		}
	}
	for _, p := range points {
		s.marker(p.Title, p.Group, px(p.X), py(p.Y), 1)
	}
	x, y := right+28, top+4
	for i, g := range a.Groups {
		if slices.ContainsFunc(points, func(p AgreementPoint) bool { return p.Group == i }) {
			s.marker("", i, x+6, y-4, 1)
			s.Text("small", "start", x+20, y, Clip(g, 11, w-x-30))
			y += 20
		}
	}
	s.Line("pred key", x-4, y-4, x+14, y-4)
	s.Text("small", "start", x+20, y, "both are equal")
	y += 20
	if human.Finite(a.Slope, a.Intercept) {
		s.Line("err", x-4, y-4, x+14, y-4)
		s.Text("small", "start", x+20, y, "regression")
		y += 20
	}
	y += 8
	for _, n := range a.Notes {
		s.Text("muted small", "start", x-4, y, Clip(n, 11, w-x-4))
		y += 17
	}
	s.Close("svg")
	return s.b.String()
}

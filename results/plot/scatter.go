package plot

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Scatter is observed against predicted for many subjects at once: on the diagonal
// they are equal.
type Scatter struct {
	ID, Title, Desc string
	Measure, Unit   string
	Observed        string
	Predictor       string
	Tolerance       float64
	Relative        bool
	Points          []ScatterPoint
	Width           float64 // of the drawing in pixels; 0: 640
}

// ScatterPoint is a figure by what was predicted (X) and observed (Y).
type ScatterPoint struct {
	X, Y, Lo, Hi float64
	Name         string
	Title        string
	Outcome      results.Outcome
}

// SVG renders the scatter.
func (c *Scatter) SVG() string {
	w := cmp.Or(c.Width, 640)
	legend := []piece{words("on the dashed line both are equal")}
	if c.Tolerance > 0 {
		legend = append(legend, words("band: tolerance"))
	}
	head := newHeading(c.Title, legend, w)
	left, top := 58.0, head.height()+36
	side := min(350, w-left-20)
	beside := w-left-side > 200 // room for the list
	right, bottom := left+side, top+min(side, 308)
	h := bottom + 48
	if !beside {
		h += 20*float64(min(len(c.Points), mostWorst)) + 24
	}
	hi := 0.0
	for _, p := range c.Points {
		hi = max(hi, p.X, p.Y, p.Hi)
	}
	if hi == 0 {
		hi = 1
	}
	a := newAxis(0, hi, 5, c.Unit)
	_, hi = a.ends()
	px := func(v float64) float64 { return left + v/hi*(right-left) }
	py := func(v float64) float64 { return bottom - v/hi*(bottom-top) }
	s := head.begin(c.ID, c.Desc, h)
	for i, t := range a.ticks {
		s.Line("grid", left, py(t), right, py(t))
		s.Text("muted small", "end", left-7, py(t)+4, a.labels[i])
		s.Line("grid", px(t), top, px(t), bottom)
		s.Text("muted small", "middle", px(t), bottom+17, a.labels[i])
	}
	name := a.measured(c.Measure)
	s.Text("muted small", "start", 12, top-13, c.Observed+" "+name)
	s.Text("muted small", "middle", (left+right)/2, bottom+38, "predicted by "+c.Predictor+": "+name)
	if c.Tolerance > 0 {
		up, down := hi*(1+c.Tolerance), hi*(1-c.Tolerance)
		u0, d0 := 0.0, 0.0
		if !c.Relative {
			u0, d0 = c.Tolerance, -c.Tolerance
			up, down = hi+c.Tolerance, hi-c.Tolerance
		}
		s.Open("clipPath", "id", c.ID+"-c")
		s.Leaf("", "rect", "x", Num(left), "y", Num(top), "width", Num(right-left), "height", Num(bottom-top))
		s.Close("clipPath")
		s.Leaf("", "path", "class", "band c0", "clip-path", "url(#"+c.ID+"-c)",
			"d", Path([]float64{px(0), py(u0), px(hi), py(up), px(hi), py(down), px(0), py(d0)})+"Z")
	}
	s.Line("pred key", px(0), py(0), px(hi), py(hi))
	for _, p := range c.Points {
		if p.Hi > p.Lo {
			s.Line("whisk c0", px(p.X), py(p.Lo), px(p.X), py(p.Hi))
		}
	}
	for _, p := range c.Points {
		s.marker(p.Title, 0, px(p.X), py(p.Y), 1)
		if p.Outcome == results.Fail {
			s.Leaf("", "circle", "class", "bad", "cx", Num(px(p.X)), "cy", Num(py(p.Y)), "r", "8.5")
		}
	}
	// The figures furthest off, by name, beside the plot or below it.
	worst := slices.Clone(c.Points)
	off := func(p ScatterPoint) float64 {
		if c.Relative && p.X != 0 {
			return (p.Y - p.X) / p.X
		}
		return p.Y - p.X
	}
	worst = slices.DeleteFunc(worst, func(p ScatterPoint) bool { return c.Relative && p.X == 0 })
	slices.SortStableFunc(worst, func(a, b ScatterPoint) int { return cmp.Compare(math.Abs(off(b)), math.Abs(off(a))) })
	x, y := right+24, top+4
	if !beside {
		x, y = 12, bottom+64
	}
	if len(worst) > 0 {
		s.Text("muted small", "start", x, y, "furthest off")
	}
	for _, p := range worst[:min(len(worst), mostWorst)] {
		y += 20
		s.Text("small", "start", x, y, Clip(p.Name, 11, w-x-80))
		class := "small"
		if p.Outcome == results.Fail {
			class += " strong"
		}
		s.Text(class, "end", w-10, y, human.SignedError(off(p), c.Relative, c.Unit))
	}
	s.Close("svg")
	return s.b.String()
}

// mostWorst is how many figures a scatter names.
const mostWorst = 8

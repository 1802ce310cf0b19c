package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Chart is one plot of observed figures against predictions. With Rows it is a dot
// plot, rows downwards and values to the right; otherwise X is numeric.
type Chart struct {
	ID, Title, Desc string
	XLabel          string // of a numeric X
	XUnit           string // of it; empty: 1
	Measure         string // what Y is: "share", "goodput"
	Unit            string
	Rows            []string // categories; X is an index into it
	Series          []Series
	Predictors      []Predictor
	Tolerance       bool // some curve has a band
	Lo, Hi          float64
	Observed        string // "measured" or "simulated"
	Lines           bool   // series have too many points for markers
	Part            string // what of the repeats Lines are, where it is not their mean
	Means           string // what the means of Lines are
}

// Predictor is one whose curve is drawn: a line where it decides, dashes where it is only shown.
type Predictor struct {
	Name string
	Gate bool
}

// Series are figures of one colour.
type Series struct {
	Name   string
	Colour int
	Points []Point
	Curves map[string][]CurvePoint // by predictor
	Mean   *float64                // of Lines, to be drawn
}

// Point is an observed figure with its interval.
type Point struct {
	X, Y, Lo, Hi float64
	Title        string
	Outcome      results.Outcome
	Hollow       bool // not sound: health trouble
}

// CurvePoint is where a predicted curve goes through.
type CurvePoint struct{ X, Y, Lo, Hi float64 } // Lo..Hi: tolerance, empty if equal

// Span is the range of values that the chart must show.
func (c *Chart) Span() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	add := func(v ...float64) {
		for _, x := range v {
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	for _, s := range c.Series {
		for _, p := range s.Points {
			add(p.Y, p.Lo, p.Hi)
		}
		for _, curve := range s.Curves {
			for _, p := range curve {
				add(p.Y, p.Lo, p.Hi)
			}
		}
		if s.Mean != nil {
			add(*s.Mean)
		}
	}
	if lo > hi {
		return 0, 1
	}
	if lo > 0 && lo < 0.6*hi || lo >= 0 && lo == hi {
		lo = 0
	}
	if lo == hi {
		hi = lo + 1
	}
	return lo, hi
}

// Ticks are about n round numbers (1, 2, 2.5, 5 times a power of ten) that
// cover [lo, hi]; the first and last reach just outside it.
func Ticks(lo, hi float64, n int) []float64 {
	if !(hi > lo) || !human.Finite(lo, hi) {
		return []float64{lo}
	}
	// Figures of a model may differ by less than a float64 can step through.
	if size := max(math.Abs(lo), math.Abs(hi)); hi-lo < 1e-9*size {
		lo, hi = lo-0.01*size, hi+0.01*size
	}
	raw := (hi - lo) / float64(max(n, 1))
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * mag
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*mag >= raw*0.999 {
			step = m * mag
			break
		}
	}
	var out []float64
	for i := math.Floor(lo/step + 1e-9); i <= math.Ceil(hi/step-1e-9); i++ {
		out = append(out, i*step)
	}
	return out
}

// TickText writes ticks with the decimals that their step needs.
func TickText(v, step float64) string {
	d := 0
	for s := step; d < 9 && math.Abs(s-math.Round(s)) > 1e-6*s; d++ {
		s *= 10
	}
	if v == 0 {
		return "0"
	}
	return human.Grouped(strconv.FormatFloat(v, 'f', d, 64))
}

// AxisUnit is the unit that an axis up to hi is labelled in, and its divisor.
func AxisUnit(hi float64, unit string) (div float64, name string) {
	if human.Plain(unit) {
		return 1, ""
	}
	div, prefix := human.Prefix(hi, unit)
	return div, prefix + unit
}

func (c *Chart) measureLabel(div string) string {
	if div == "" {
		return c.Measure
	}
	return c.Measure + ", " + div
}

// legend writes what marks mean, in neutral ink, in one line from (x, y).
func (c *Chart) legend(s *Canvas, x, y float64) {
	if c.Lines {
		text := c.Observed
		if c.Part != "" {
			text += ", " + c.Part
		}
		if c.whiskers() {
			text += "; line, band: mean, range of neighbouring values"
		}
		s.Text("muted small", "start", x-3, y, text)
		x += TextWidth(text, 11) + 24
		if c.Means != "" {
			s.Line("other key", x, y-4, x+24, y-4)
			s.Text("muted small", "start", x+30, y, c.Means)
		}
		return
	}
	s.Marker("", 0, x+5, y-4, false)
	if c.whiskers() {
		s.Line("whisk c0", x-3, y-4, x+13, y-4)
	}
	x += 18
	put := func(text string) {
		s.Text("muted small", "start", x, y, text)
		x += TextWidth(text, 11) + 18
	}
	note := ""
	if c.whiskers() {
		note = ", 95 % interval"
	}
	put(c.Observed + note)
	for _, p := range c.Predictors {
		class, note := "pred key", ""
		if !p.Gate {
			class, note = "other key", ", not gated"
		}
		s.Line(class, x, y-4, x+24, y-4)
		x += 30
		put(p.Name + note)
	}
	if c.Tolerance {
		s.Leaf("", "rect", "class", "band key", "x", Num(x), "y", Num(y-10), "width", "18", "height", "12")
		x += 24
		put("tolerance")
	}
	if c.failing() {
		s.Leaf("", "circle", "class", "bad", "cx", Num(x+6), "cy", Num(y-4), "r", "7")
		x += 19
		put("failed")
	}
}

func (c *Chart) whiskers() bool {
	return slices.ContainsFunc(c.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return p.Hi > p.Lo })
	})
}

func (c *Chart) failing() bool {
	return slices.ContainsFunc(c.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Points, func(p Point) bool { return p.Outcome == results.Fail })
	})
}

func (c *Chart) curveClass(p Predictor, colour int) string {
	if p.Gate {
		return "pred c" + strconv.Itoa(colour%Colours)
	}
	return "other c" + strconv.Itoa(colour%Colours)
}

// SVG renders the chart.
func (c *Chart) SVG() string {
	if c.Rows != nil {
		return c.dotPlot()
	}
	return c.curves()
}

// axis is the axis of the measured values.
type axis struct {
	ticks  []float64 // from end to end
	labels []string  // of the ticks, in the unit
	unit   string
}

// values is the axis that takes in all of the chart's values.
func (c *Chart) values() axis {
	lo, hi := c.Lo, c.Hi
	if lo == hi {
		lo, hi = c.Span()
	}
	a := axis{ticks: Ticks(lo, hi, 6)}
	last := len(a.ticks) - 1
	div, unit := AxisUnit(a.ticks[last], c.Unit)
	a.unit = unit
	step := (a.ticks[last] - a.ticks[0]) / float64(max(last, 1))
	for _, t := range a.ticks {
		a.labels = append(a.labels, TickText(t/div, step/div))
	}
	return a
}

// part is how far along the axis a value is, 0 to 1.
func (a axis) part(x float64) float64 {
	lo, hi := a.ticks[0], a.ticks[len(a.ticks)-1]
	return (x - lo) / (hi - lo)
}

// begin starts the drawing with what is above the plot.
func (c *Chart) begin(w, h float64) *Canvas {
	s := new(Canvas)
	s.Begin(c.ID, c.Title, c.Desc, w, h)
	s.Text("strong", "start", 12, 18, Clip(c.Title, 13, w-24))
	c.legend(s, 14, 38)
	return s
}

// curves renders a chart over a numeric X.
func (c *Chart) curves() string {
	const w, h = 640.0, 380.0
	v := c.values()

	var xs []float64
	names := 40.0
	for _, s := range c.Series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
		}
		for _, curve := range s.Curves {
			for _, p := range curve {
				xs = append(xs, p.X)
			}
		}
		names = max(names, TextWidth(s.Name, 12)+22)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	if len(xs) == 0 {
		xs = []float64{0}
	}
	names = min(names, 150)
	left, right, top, bottom := 52.0, w-names, 70.0, h-46
	x0, x1 := xs[0], xs[len(xs)-1]
	pad := (x1 - x0) * 0.04
	if x0 == x1 {
		pad = max(math.Abs(x0)*0.1, 0.5)
	}
	logX := x0 > 0 && x1 > 30*x0 && !c.Lines // doublings and decades would crowd at the left
	at := func(x float64) float64 { return x }
	if logX {
		at, pad = math.Log, (math.Log(x1)-math.Log(x0))*0.04
	}
	x0, x1 = at(x0)-pad, at(x1)+pad
	px := func(x float64) float64 { return left + (at(x)-x0)/(x1-x0)*(right-left) }
	py := func(y float64) float64 { return bottom - v.part(y)*(bottom-top) }

	s := c.begin(w, h)
	for i, y := range v.ticks {
		s.Line("grid", left, py(y), right, py(y))
		s.Text("muted small", "end", left-7, py(y)+4, v.labels[i])
	}
	s.Text("muted small", "start", 12, top-13, c.measureLabel(v.unit))
	s.Line("axis", left, bottom, right, bottom)
	xt := xs
	switch {
	case c.Lines && !logX:
		for xt = nil; len(xt) == 0; {
			for _, t := range Ticks(x0, x1, 7) {
				if t >= x0 && t <= x1 {
					xt = append(xt, t)
				}
			}
		}
	case logX:
		xt = xs[:1:1]
		for _, x := range xs[1:] {
			if !tight([]float64{xt[len(xt)-1], x}, px) {
				xt = append(xt, x)
			}
		}
	case tight(xs, px):
		xt = nil
		for _, t := range Ticks(x0, x1, 7) {
			if t >= x0 && t <= x1 {
				xt = append(xt, t)
			}
		}
	}
	label, div := c.XLabel, 1.0
	if c.XUnit != "" {
		var name string
		div, name = AxisUnit(xs[len(xs)-1], c.XUnit)
		label += ", " + name
	}
	for _, x := range xt {
		s.Line("axis", px(x), bottom, px(x), bottom+4)
		s.Text("muted small", "middle", px(x), bottom+17, human.Typed(x/div))
	}
	if logX {
		label += " (logarithmic)"
	}
	s.Text("muted small", "middle", (left+right)/2, h-8, label)

	for _, se := range c.Series {
		for _, p := range c.Predictors {
			curve := se.Curves[p.Name]
			var line, up, down []float64
			for _, q := range curve {
				line = append(line, px(q.X), py(q.Y))
				if q.Hi > q.Lo {
					up = append(up, px(q.X), py(q.Hi))
					down = append([]float64{px(q.X), py(q.Lo)}, down...)
				}
			}
			if len(up) > 2 {
				s.Leaf("", "path", "class", "band c"+strconv.Itoa(se.Colour%Colours), "d", Path(append(up, down...))+"Z")
			}
			if len(line) == 2 {
				line = []float64{line[0] - 10, line[1], line[0] + 10, line[1]}
			}
			if len(line) > 0 {
				s.Leaf(se.Name+", "+p.Name, "path", "class", c.curveClass(p, se.Colour), "d", Path(line))
			}
		}
	}
	// Series that share an X are set apart by a few pixels, so that none hides another.
	n := float64(len(c.Series))
	for i, se := range c.Series {
		off := (float64(i) - (n-1)/2) * min(5, 24/n)
		if c.Lines {
			off = 0
		}
		cl := "c" + strconv.Itoa(se.Colour%Colours)
		var join []float64
		for _, p := range se.Points {
			join = append(join, px(p.X)+off, py(p.Y))
		}
		if c.Lines {
			var up, down []float64 // of neighbours, on both sides of their mean
			for _, p := range se.Points {
				up = append(up, px(p.X), py(p.Hi))
				down = append(down, px(p.X), py(p.Lo))
			}
			if c.whiskers() {
				for i := len(down) - 2; i >= 0; i -= 2 {
					up = append(up, down[i], down[i+1])
				}
				s.Leaf("", "path", "class", "band "+cl, "d", Path(up)+"Z")
			}
			if se.Mean != nil {
				s.Leaf(se.Name+", mean "+human.Quantity(*se.Mean, c.Unit), "path", "class", "other "+cl,
					"d", Path([]float64{left, py(*se.Mean), right, py(*se.Mean)}))
			}
			s.Leaf(se.Name, "path", "class", "rate "+cl, "d", Path(join))
			continue
		}
		if len(join) > 2 {
			s.Leaf("", "path", "class", "join "+cl, "d", Path(join))
		}
		for _, p := range se.Points {
			x := px(p.X) + off
			if p.Hi > p.Lo {
				s.Line("whisk "+cl, x, py(p.Lo), x, py(p.Hi))
				if py(p.Lo)-py(p.Hi) > 9 {
					s.Line("whisk "+cl, x-3, py(p.Lo), x+3, py(p.Lo))
					s.Line("whisk "+cl, x-3, py(p.Hi), x+3, py(p.Hi))
				}
			}
			s.Marker(p.Title, se.Colour, x, py(p.Y), p.Hollow)
			if p.Outcome == results.Fail {
				s.Leaf("", "circle", "class", "bad", "cx", Num(x), "cy", Num(py(p.Y)), "r", "8.5")
			}
		}
	}
	c.directLabels(s, right, top, bottom, px, py)
	s.Close("svg")
	return s.b.String()
}

// tight says whether labels at these values would touch.
func tight(xs []float64, px func(float64) float64) bool {
	for i := 1; i < len(xs); i++ {
		if px(xs[i])-px(xs[i-1]) < (TextWidth(human.Typed(xs[i]), 11)+TextWidth(human.Typed(xs[i-1]), 11))/2+5 {
			return true
		}
	}
	return false
}

// directLabels names each series at its right end, moved apart where they would
// touch.
func (c *Chart) directLabels(s *Canvas, right, top, bottom float64, px, py func(float64) float64) {
	type end struct {
		name       string
		colour     int
		x, y, want float64
	}
	var ends []end
	for _, se := range c.Series {
		if len(se.Points) == 0 {
			continue
		}
		p := se.Points[len(se.Points)-1]
		ends = append(ends, end{se.Name, se.Colour, px(p.X), py(p.Y), py(p.Y)})
	}
	slices.SortStableFunc(ends, func(a, b end) int {
		switch {
		case a.want < b.want:
			return -1
		case a.want > b.want:
			return 1
		}
		return 0
	})
	const gap = 15
	for i := 1; i < len(ends); i++ {
		ends[i].y = max(ends[i].y, ends[i-1].y+gap)
	}
	if n := len(ends); n > 0 && ends[n-1].y > bottom {
		ends[n-1].y = bottom
		for i := n - 2; i >= 0; i-- {
			ends[i].y = min(ends[i].y, ends[i+1].y-gap)
		}
	}
	for _, e := range ends {
		if math.Abs(e.y-e.want) > 3 {
			s.Line("lead", e.x+12, e.want, right+6, e.y)
		}
		s.Text("name c"+strconv.Itoa(e.colour%Colours), "start", right+9, e.y+4, Clip(e.name, 12, 130))
	}
}

// dotPlot renders categories downwards.
func (c *Chart) dotPlot() string {
	const w = 640.0
	v := c.values()
	named := len(c.Series) > 1
	n := float64(len(c.Series))
	row := max(26, 15*n+8)
	left := 60.0
	for _, r := range c.Rows {
		left = max(left, TextWidth(r, 12)+24)
	}
	left = min(left, 230)
	top := 56.0
	names := 0.0
	if named {
		for _, se := range c.Series {
			names = max(names, TextWidth(se.Name, 11)+14)
		}
		names = min(names, 130)
	}
	right, bottom := w-20-names, top+row*float64(len(c.Rows))
	h := bottom + 46
	px := func(x float64) float64 { return left + v.part(x)*(right-left) }

	s := c.begin(w, h)
	for i, x := range v.ticks {
		s.Line("grid", px(x), top, px(x), bottom)
		s.Text("muted small", "middle", px(x), bottom+16, v.labels[i])
	}
	s.Text("muted small", "middle", (left+right)/2, bottom+36, c.measureLabel(v.unit))
	for i, r := range c.Rows {
		y := top + row*float64(i)
		s.Line("grid", 12, y, w-12, y)
		s.Text("small", "start", 12, y+row/2+4, Clip(r, 12, left-20))
	}
	s.Line("grid", 12, bottom, w-12, bottom)
	for k, se := range c.Series {
		cl := "c" + strconv.Itoa(se.Colour%Colours)
		yAt := func(x float64) float64 {
			return top + row*x + row/2 + (float64(k)-(n-1)/2)*15
		}
		for _, p := range c.Predictors {
			for _, q := range se.Curves[p.Name] {
				y := yAt(q.X)
				if q.Hi > q.Lo {
					s.Leaf("", "rect", "class", "band "+cl, "x", Num(px(q.Lo)), "y", Num(y-7), "width", Num(px(q.Hi)-px(q.Lo)), "height", "14")
				}
				s.Leaf(se.Name+", "+p.Name+": "+human.Quantity(q.Y, c.Unit), "path", "class", c.curveClass(p, se.Colour),
					"d", Path([]float64{px(q.Y), y - 8, px(q.Y), y + 8}), "style", dashFor(p.Gate))
			}
		}
		for _, p := range se.Points {
			y := yAt(p.X)
			if p.Hi > p.Lo {
				s.Line("whisk "+cl, px(p.Lo), y, px(p.Hi), y)
			}
			s.Marker(p.Title, se.Colour, px(p.Y), y, p.Hollow)
			if p.Outcome == results.Fail {
				s.Leaf("", "circle", "class", "bad", "cx", Num(px(p.Y)), "cy", Num(y), "r", "8.5")
			}
			if named {
				s.Text("name small "+cl, "start", right+16, y+4, Clip(se.Name, 11, names))
			}
		}
	}
	s.Close("svg")
	return s.b.String()
}

// dashFor keeps the two dash patterns apart on a tick of 16 pixels.
func dashFor(gate bool) string {
	if gate {
		return "stroke-dasharray:4 2;stroke-width:2"
	}
	return "stroke-dasharray:.5 3;stroke-width:2"
}

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
	const w, h = 640.0, 430.0
	left, right, top, bottom := 58.0, 408.0, 74.0, h-48
	hi := 0.0
	for _, p := range c.Points {
		hi = max(hi, p.X, p.Y, p.Hi)
	}
	if hi == 0 {
		hi = 1
	}
	ticks := Ticks(0, hi, 5)
	hi = ticks[len(ticks)-1]
	div, unit := AxisUnit(hi, c.Unit)
	px := func(v float64) float64 { return left + v/hi*(right-left) }
	py := func(v float64) float64 { return bottom - v/hi*(bottom-top) }
	var s Canvas
	s.Begin(c.ID, c.Title, c.Desc, w, h)
	s.Text("strong", "start", 12, 18, Clip(c.Title, 13, w-24))
	s.Text("muted small", "start", 12, 38, "on the dashed line both are equal; the band is the tolerance")
	step := hi
	if len(ticks) > 1 {
		step = ticks[1]
	}
	for _, t := range ticks {
		s.Line("grid", left, py(t), right, py(t))
		s.Text("muted small", "end", left-7, py(t)+4, TickText(t/div, step/div))
		s.Line("grid", px(t), top, px(t), bottom)
		s.Text("muted small", "middle", px(t), bottom+17, TickText(t/div, step/div))
	}
	name := c.Measure
	if unit != "" {
		name += ", " + unit
	}
	s.Text("muted small", "start", 12, top-13, c.Observed+" "+name)
	s.Text("muted small", "middle", (left+right)/2, h-10, "predicted by "+c.Predictor+": "+name)
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
		s.Marker(p.Title, 0, px(p.X), py(p.Y), false)
		if p.Outcome == results.Fail {
			s.Leaf("", "circle", "class", "bad", "cx", Num(px(p.X)), "cy", Num(py(p.Y)), "r", "8.5")
		}
	}
	// The figures furthest off, by name, beside the plot.
	worst := slices.Clone(c.Points)
	off := func(p ScatterPoint) float64 {
		if c.Relative && p.X != 0 {
			return (p.Y - p.X) / p.X
		}
		return p.Y - p.X
	}
	worst = slices.DeleteFunc(worst, func(p ScatterPoint) bool { return c.Relative && p.X == 0 })
	slices.SortStableFunc(worst, func(a, b ScatterPoint) int {
		switch x, y := math.Abs(off(a)), math.Abs(off(b)); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	y := top + 4
	if len(worst) > 0 {
		s.Text("muted small", "start", right+24, y, "furthest off")
	}
	for i, p := range worst {
		if i == 8 {
			break
		}
		y += 20
		s.Text("small", "start", right+24, y, Clip(p.Name, 11, 150))
		class := "small"
		if p.Outcome == results.Fail {
			class += " strong"
		}
		s.Text(class, "end", w-10, y, human.SignedError(off(p), c.Relative, c.Unit))
	}
	s.Close("svg")
	return s.b.String()
}

// Timeline is a link's rate over time with its prediction as a step a phase.
type Timeline struct {
	ID       string
	Name     string
	Rates    []RateSpan // mean rates between readings
	Phases   []TimePhase
	Capacity float64
	End, Top float64 // shared axes
	Div      float64 // of the axis' labels
}

// RateSpan is a rate from one time to another, in bit/s and s.
type RateSpan struct{ From, To, Rate float64 }

// TimePhase is a phase on a timeline.
type TimePhase struct {
	Start, End float64
	Predicted  float64
	Known      bool
}

// SVG renders the timeline.
func (c *Timeline) SVG() string {
	const w, h = 320.0, 132.0
	left, right, top, bottom := 34.0, w-10, 26.0, h-22
	px := func(t float64) float64 { return left + t/c.End*(right-left) }
	py := func(v float64) float64 { return bottom - v/c.Top*(bottom-top) }
	var s Canvas
	s.Begin(c.ID, "Rate of link "+c.Name+" over time", c.desc(), w, h)
	s.Text("small strong", "start", 6, 13, Clip(c.Name, 11, 190))
	ticks := Ticks(0, c.Top, 3)
	for _, v := range ticks {
		if v > c.Top*1.001 {
			continue
		}
		s.Line("grid", left, py(v), right, py(v))
		s.Text("muted tiny", "end", left-4, py(v)+3, TickText(v/c.Div, ticks[1]/c.Div))
	}
	// Where nothing is judged: settling and the gaps between phases.
	at := 0.0
	for _, p := range c.Phases {
		if p.Start > at {
			s.Leaf("", "rect", "class", "rest", "x", Num(px(at)), "y", Num(top), "width", Num(px(p.Start)-px(at)), "height", Num(bottom-top))
		}
		at = max(at, p.End)
	}
	if c.Capacity > 0 && c.Capacity <= c.Top {
		s.Line("cap", left, py(c.Capacity), right, py(c.Capacity))
		s.Text("muted tiny halo", "end", right, py(c.Capacity)-3, "capacity")
	}
	var line []float64
	flush := func() {
		if len(line) > 0 {
			s.Leaf("", "path", "class", "rate c0", "d", Path(line))
		}
		line = nil
	}
	for i, r := range c.Rates {
		if i > 0 && r.From > c.Rates[i-1].To {
			flush() // nothing is known in between
		}
		y := py(min(r.Rate, c.Top))
		line = append(line, px(r.From), y, px(r.To), y)
	}
	flush()
	for _, p := range c.Phases {
		if p.Known {
			s.Leaf(fmt.Sprintf("predicted %s, %s to %s", human.Quantity(p.Predicted, "bit/s"), human.Quantity(p.Start, "s"), human.Quantity(p.End, "s")),
				"path", "class", "step", "d", Path([]float64{px(p.Start), py(min(p.Predicted, c.Top)), px(p.End), py(min(p.Predicted, c.Top))}))
		}
	}
	s.Line("axis", left, bottom, right, bottom)
	xt := Ticks(0, c.End, 4)
	for _, t := range xt {
		if t > c.End*1.001 {
			continue
		}
		anchor := "middle"
		if px(t) > right-8 {
			anchor = "end"
		}
		s.Text("muted tiny", anchor, px(t), bottom+12, TickText(t, xt[1])+unitAt(t, " s"))
	}
	s.Close("svg")
	return s.b.String()
}

func unitAt(t float64, unit string) string {
	if t == 0 {
		return ""
	}
	return unit
}

func (c *Timeline) desc() string {
	var b strings.Builder
	for i, p := range c.Phases {
		if i == 12 {
			fmt.Fprintf(&b, "and %d more phases", len(c.Phases)-i)
			break
		}
		mean, n := 0.0, 0
		for _, r := range c.Rates {
			if r.From >= p.Start && r.To <= p.End {
				mean += r.Rate
				n++
			}
		}
		if n > 0 {
			mean /= float64(n)
		}
		fmt.Fprintf(&b, "Phase %d: about %s", i+1, human.Quantity(mean, "bit/s"))
		if p.Known {
			fmt.Fprintf(&b, ", predicted %s", human.Quantity(p.Predicted, "bit/s"))
		}
		b.WriteString(". ")
	}
	return strings.TrimSpace(b.String())
}

// Widened is the range of a history's axis: 2 % at least, since what differs by less should not look
// like much.
func Widened(lo, hi float64) (float64, float64) {
	if pad := 0.01*max(math.Abs(lo), math.Abs(hi)) - (hi-lo)/2; pad > 0 {
		return lo - pad, hi + pad
	}
	if lo == hi { // 0
		return lo - 1, hi + 1
	}
	return lo, hi
}

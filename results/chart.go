package results

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// chart is one plot of observed figures against predictions. With Rows it is a dot
// plot, rows downwards and values to the right; otherwise X is numeric.
type chart struct {
	ID, Title, Desc string
	XLabel          string // of a numeric X
	XUnit           string // of it; empty: 1
	Measure         string // what Y is: "share", "goodput"
	Unit            string
	Rows            []string // categories; X is an index into it
	Series          []chartSeries
	Predictors      []predictorStyle
	Tolerance       bool // some curve has a band
	Lo, Hi          float64
	Observed        string // "measured" or "simulated"
	Lines           bool   // series have too many points for markers
	Part            string // what of the repeats Lines are, where it is not their mean
	Means           string // what the means of Lines are
}

type predictorStyle struct {
	Name string
	Gate bool
}

type chartSeries struct {
	Name   string
	Colour int
	Points []chartPoint
	Curves map[string][]curvePoint // by predictor
	Mean   *float64                // of Lines, to be drawn
}

type chartPoint struct {
	X, Y, Lo, Hi float64
	Title        string
	Outcome      Outcome
	Hollow       bool // not sound: health trouble
}

type curvePoint struct{ X, Y, Lo, Hi float64 } // Lo..Hi: tolerance, empty if equal

// span is the range of values that the chart must show.
func (c *chart) span() (lo, hi float64) {
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

// niceTicks are about n round numbers (1, 2, 2.5, 5 times a power of ten) that
// cover [lo, hi]; the first and last reach just outside it.
func niceTicks(lo, hi float64, n int) []float64 {
	if !(hi > lo) || !finite(lo, hi) {
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

// tickText writes ticks with the decimals that their step needs.
func tickText(v, step float64) string {
	d := 0
	for s := step; d < 9 && math.Abs(s-math.Round(s)) > 1e-6*s; d++ {
		s *= 10
	}
	if v == 0 {
		return "0"
	}
	return human.Grouped(strconv.FormatFloat(v, 'f', d, 64))
}

// axisUnit is the unit that an axis up to hi is labelled in, and its divisor.
func axisUnit(hi float64, unit string) (div float64, name string) {
	if human.Plain(unit) {
		return 1, ""
	}
	div, prefix := human.Prefix(hi, unit)
	return div, prefix + unit
}

func (c *chart) measureLabel(div string) string {
	if div == "" {
		return c.Measure
	}
	return c.Measure + ", " + div
}

// legend writes what marks mean, in neutral ink, in one line from (x, y).
func (c *chart) legend(s *svg, x, y float64) {
	if c.Lines {
		text := c.Observed
		if c.Part != "" {
			text += ", " + c.Part
		}
		if c.whiskers() {
			text += "; line, band: mean, range of neighbouring values"
		}
		s.text("muted small", "start", x-3, y, text)
		x += textWidth(text, 11) + 24
		if c.Means != "" {
			s.line("other key", x, y-4, x+24, y-4)
			s.text("muted small", "start", x+30, y, c.Means)
		}
		return
	}
	s.marker("", 0, x+5, y-4, false)
	if c.whiskers() {
		s.line("whisk c0", x-3, y-4, x+13, y-4)
	}
	x += 18
	put := func(text string) {
		s.text("muted small", "start", x, y, text)
		x += textWidth(text, 11) + 18
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
		s.line(class, x, y-4, x+24, y-4)
		x += 30
		put(p.Name + note)
	}
	if c.Tolerance {
		s.leaf("", "rect", "class", "band key", "x", num(x), "y", num(y-10), "width", "18", "height", "12")
		x += 24
		put("tolerance")
	}
	if c.failing() {
		s.leaf("", "circle", "class", "bad", "cx", num(x+6), "cy", num(y-4), "r", "7")
		x += 19
		put("failed")
	}
}

func (c *chart) whiskers() bool {
	return slices.ContainsFunc(c.Series, func(s chartSeries) bool {
		return slices.ContainsFunc(s.Points, func(p chartPoint) bool { return p.Hi > p.Lo })
	})
}

func (c *chart) failing() bool {
	return slices.ContainsFunc(c.Series, func(s chartSeries) bool {
		return slices.ContainsFunc(s.Points, func(p chartPoint) bool { return p.Outcome == Fail })
	})
}

func (c *chart) curveClass(p predictorStyle, colour int) string {
	if p.Gate {
		return "pred c" + strconv.Itoa(colour%seriesColours)
	}
	return "other c" + strconv.Itoa(colour%seriesColours)
}

// SVG renders the chart.
func (c *chart) SVG() string {
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
func (c *chart) values() axis {
	lo, hi := c.Lo, c.Hi
	if lo == hi {
		lo, hi = c.span()
	}
	a := axis{ticks: niceTicks(lo, hi, 6)}
	last := len(a.ticks) - 1
	div, unit := axisUnit(a.ticks[last], c.Unit)
	a.unit = unit
	step := (a.ticks[last] - a.ticks[0]) / float64(max(last, 1))
	for _, t := range a.ticks {
		a.labels = append(a.labels, tickText(t/div, step/div))
	}
	return a
}

// part is how far along the axis a value is, 0 to 1.
func (a axis) part(x float64) float64 {
	lo, hi := a.ticks[0], a.ticks[len(a.ticks)-1]
	return (x - lo) / (hi - lo)
}

// begin starts the drawing with what is above the plot.
func (c *chart) begin(w, h float64) *svg {
	s := new(svg)
	s.begin(c.ID, c.Title, c.Desc, w, h, false)
	s.text("strong", "start", 12, 18, clip(c.Title, 13, w-24))
	c.legend(s, 14, 38)
	return s
}

// curves renders a chart over a numeric X.
func (c *chart) curves() string {
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
		names = max(names, textWidth(s.Name, 12)+22)
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
		s.line("grid", left, py(y), right, py(y))
		s.text("muted small", "end", left-7, py(y)+4, v.labels[i])
	}
	s.text("muted small", "start", 12, top-13, c.measureLabel(v.unit))
	s.line("axis", left, bottom, right, bottom)
	xt := xs
	switch {
	case c.Lines && !logX:
		for xt = nil; len(xt) == 0; {
			for _, t := range niceTicks(x0, x1, 7) {
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
		for _, t := range niceTicks(x0, x1, 7) {
			if t >= x0 && t <= x1 {
				xt = append(xt, t)
			}
		}
	}
	label, div := c.XLabel, 1.0
	if c.XUnit != "" {
		var name string
		div, name = axisUnit(xs[len(xs)-1], c.XUnit)
		label += ", " + name
	}
	for _, x := range xt {
		s.line("axis", px(x), bottom, px(x), bottom+4)
		s.text("muted small", "middle", px(x), bottom+17, human.Typed(x/div))
	}
	if logX {
		label += " (logarithmic)"
	}
	s.text("muted small", "middle", (left+right)/2, h-8, label)

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
				s.leaf("", "path", "class", "band c"+strconv.Itoa(se.Colour%seriesColours), "d", pathOf(append(up, down...))+"Z")
			}
			if len(line) == 2 {
				line = []float64{line[0] - 10, line[1], line[0] + 10, line[1]}
			}
			if len(line) > 0 {
				s.leaf(se.Name+", "+p.Name, "path", "class", c.curveClass(p, se.Colour), "d", pathOf(line))
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
		cl := "c" + strconv.Itoa(se.Colour%seriesColours)
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
				s.leaf("", "path", "class", "band "+cl, "d", pathOf(up)+"Z")
			}
			if se.Mean != nil {
				s.leaf(se.Name+", mean "+human.Quantity(*se.Mean, c.Unit), "path", "class", "other "+cl,
					"d", pathOf([]float64{left, py(*se.Mean), right, py(*se.Mean)}))
			}
			s.leaf(se.Name, "path", "class", "rate "+cl, "d", pathOf(join))
			continue
		}
		if len(join) > 2 {
			s.leaf("", "path", "class", "join "+cl, "d", pathOf(join))
		}
		for _, p := range se.Points {
			x := px(p.X) + off
			if p.Hi > p.Lo {
				s.line("whisk "+cl, x, py(p.Lo), x, py(p.Hi))
				if py(p.Lo)-py(p.Hi) > 9 {
					s.line("whisk "+cl, x-3, py(p.Lo), x+3, py(p.Lo))
					s.line("whisk "+cl, x-3, py(p.Hi), x+3, py(p.Hi))
				}
			}
			s.marker(p.Title, se.Colour, x, py(p.Y), p.Hollow)
			if p.Outcome == Fail {
				s.leaf("", "circle", "class", "bad", "cx", num(x), "cy", num(py(p.Y)), "r", "8.5")
			}
		}
	}
	c.directLabels(s, right, top, bottom, px, py)
	s.close("svg")
	return s.b.String()
}

// tight says whether labels at these values would touch.
func tight(xs []float64, px func(float64) float64) bool {
	for i := 1; i < len(xs); i++ {
		if px(xs[i])-px(xs[i-1]) < (textWidth(human.Typed(xs[i]), 11)+textWidth(human.Typed(xs[i-1]), 11))/2+5 {
			return true
		}
	}
	return false
}

// directLabels names each series at its right end, moved apart where they would
// touch.
func (c *chart) directLabels(s *svg, right, top, bottom float64, px, py func(float64) float64) {
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
			s.line("lead", e.x+12, e.want, right+6, e.y)
		}
		s.text("name c"+strconv.Itoa(e.colour%seriesColours), "start", right+9, e.y+4, clip(e.name, 12, 130))
	}
}

// dotPlot renders categories downwards.
func (c *chart) dotPlot() string {
	const w = 640.0
	v := c.values()
	named := len(c.Series) > 1
	n := float64(len(c.Series))
	row := max(26, 15*n+8)
	left := 60.0
	for _, r := range c.Rows {
		left = max(left, textWidth(r, 12)+24)
	}
	left = min(left, 230)
	top := 56.0
	names := 0.0
	if named {
		for _, se := range c.Series {
			names = max(names, textWidth(se.Name, 11)+14)
		}
		names = min(names, 130)
	}
	right, bottom := w-20-names, top+row*float64(len(c.Rows))
	h := bottom + 46
	px := func(x float64) float64 { return left + v.part(x)*(right-left) }

	s := c.begin(w, h)
	for i, x := range v.ticks {
		s.line("grid", px(x), top, px(x), bottom)
		s.text("muted small", "middle", px(x), bottom+16, v.labels[i])
	}
	s.text("muted small", "middle", (left+right)/2, bottom+36, c.measureLabel(v.unit))
	for i, r := range c.Rows {
		y := top + row*float64(i)
		s.line("grid", 12, y, w-12, y)
		s.text("small", "start", 12, y+row/2+4, clip(r, 12, left-20))
	}
	s.line("grid", 12, bottom, w-12, bottom)
	for k, se := range c.Series {
		cl := "c" + strconv.Itoa(se.Colour%seriesColours)
		yAt := func(x float64) float64 {
			return top + row*x + row/2 + (float64(k)-(n-1)/2)*15
		}
		for _, p := range c.Predictors {
			for _, q := range se.Curves[p.Name] {
				y := yAt(q.X)
				if q.Hi > q.Lo {
					s.leaf("", "rect", "class", "band "+cl, "x", num(px(q.Lo)), "y", num(y-7), "width", num(px(q.Hi)-px(q.Lo)), "height", "14")
				}
				s.leaf(se.Name+", "+p.Name+": "+human.Quantity(q.Y, c.Unit), "path", "class", c.curveClass(p, se.Colour),
					"d", pathOf([]float64{px(q.Y), y - 8, px(q.Y), y + 8}), "style", dashFor(p.Gate))
			}
		}
		for _, p := range se.Points {
			y := yAt(p.X)
			if p.Hi > p.Lo {
				s.line("whisk "+cl, px(p.Lo), y, px(p.Hi), y)
			}
			s.marker(p.Title, se.Colour, px(p.Y), y, p.Hollow)
			if p.Outcome == Fail {
				s.leaf("", "circle", "class", "bad", "cx", num(px(p.Y)), "cy", num(y), "r", "8.5")
			}
			if named {
				s.text("name small "+cl, "start", right+16, y+4, clip(se.Name, 11, names))
			}
		}
	}
	s.close("svg")
	return s.b.String()
}

// dashFor keeps the two dash patterns apart on a tick of 16 pixels.
func dashFor(gate bool) string {
	if gate {
		return "stroke-dasharray:4 2;stroke-width:2"
	}
	return "stroke-dasharray:.5 3;stroke-width:2"
}

// scatter is observed against predicted for many subjects at once: on the diagonal
// they are equal.
type scatter struct {
	ID, Title, Desc string
	Measure, Unit   string
	Observed        string
	Predictor       string
	Tolerance       float64
	Relative        bool
	Points          []scatterPoint
}

type scatterPoint struct {
	X, Y, Lo, Hi float64
	Name         string
	Title        string
	Outcome      Outcome
}

// SVG renders the scatter.
func (c *scatter) SVG() string {
	const w, h = 640.0, 430.0
	left, right, top, bottom := 58.0, 408.0, 74.0, h-48
	hi := 0.0
	for _, p := range c.Points {
		hi = max(hi, p.X, p.Y, p.Hi)
	}
	if hi == 0 {
		hi = 1
	}
	ticks := niceTicks(0, hi, 5)
	hi = ticks[len(ticks)-1]
	div, unit := axisUnit(hi, c.Unit)
	px := func(v float64) float64 { return left + v/hi*(right-left) }
	py := func(v float64) float64 { return bottom - v/hi*(bottom-top) }
	var s svg
	s.begin(c.ID, c.Title, c.Desc, w, h, false)
	s.text("strong", "start", 12, 18, clip(c.Title, 13, w-24))
	s.text("muted small", "start", 12, 38, "on the dashed line both are equal; the band is the tolerance")
	step := hi
	if len(ticks) > 1 {
		step = ticks[1]
	}
	for _, t := range ticks {
		s.line("grid", left, py(t), right, py(t))
		s.text("muted small", "end", left-7, py(t)+4, tickText(t/div, step/div))
		s.line("grid", px(t), top, px(t), bottom)
		s.text("muted small", "middle", px(t), bottom+17, tickText(t/div, step/div))
	}
	name := c.Measure
	if unit != "" {
		name += ", " + unit
	}
	s.text("muted small", "start", 12, top-13, c.Observed+" "+name)
	s.text("muted small", "middle", (left+right)/2, h-10, "predicted by "+c.Predictor+": "+name)
	if c.Tolerance > 0 {
		up, down := hi*(1+c.Tolerance), hi*(1-c.Tolerance)
		u0, d0 := 0.0, 0.0
		if !c.Relative {
			u0, d0 = c.Tolerance, -c.Tolerance
			up, down = hi+c.Tolerance, hi-c.Tolerance
		}
		s.open("clipPath", "id", c.ID+"-c")
		s.leaf("", "rect", "x", num(left), "y", num(top), "width", num(right-left), "height", num(bottom-top))
		s.close("clipPath")
		s.leaf("", "path", "class", "band c0", "clip-path", "url(#"+c.ID+"-c)",
			"d", pathOf([]float64{px(0), py(u0), px(hi), py(up), px(hi), py(down), px(0), py(d0)})+"Z")
	}
	s.line("pred key", px(0), py(0), px(hi), py(hi))
	for _, p := range c.Points {
		if p.Hi > p.Lo {
			s.line("whisk c0", px(p.X), py(p.Lo), px(p.X), py(p.Hi))
		}
	}
	for _, p := range c.Points {
		s.marker(p.Title, 0, px(p.X), py(p.Y), false)
		if p.Outcome == Fail {
			s.leaf("", "circle", "class", "bad", "cx", num(px(p.X)), "cy", num(py(p.Y)), "r", "8.5")
		}
	}
	// The figures furthest off, by name, beside the plot.
	worst := slices.Clone(c.Points)
	off := func(p scatterPoint) float64 {
		if c.Relative && p.X != 0 {
			return (p.Y - p.X) / p.X
		}
		return p.Y - p.X
	}
	worst = slices.DeleteFunc(worst, func(p scatterPoint) bool { return c.Relative && p.X == 0 })
	slices.SortStableFunc(worst, func(a, b scatterPoint) int {
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
		s.text("muted small", "start", right+24, y, "furthest off")
	}
	for i, p := range worst {
		if i == 8 {
			break
		}
		y += 20
		s.text("small", "start", right+24, y, clip(p.Name, 11, 150))
		class := "small"
		if p.Outcome == Fail {
			class += " strong"
		}
		s.text(class, "end", w-10, y, human.SignedError(off(p), c.Relative, c.Unit))
	}
	s.close("svg")
	return s.b.String()
}

// timeline is a link's rate over time with its prediction as a step a phase.
type timeline struct {
	ID       string
	Name     string
	Rates    []rateSpan // mean rates between readings
	Phases   []timePhase
	Capacity float64
	End, Top float64 // shared axes
	Div      float64 // of the axis' labels
}

type rateSpan struct{ From, To, Rate float64 }

type timePhase struct {
	Start, End float64
	Predicted  float64
	Known      bool
}

// SVG renders the timeline.
func (c *timeline) SVG() string {
	const w, h = 320.0, 132.0
	left, right, top, bottom := 34.0, w-10, 26.0, h-22
	px := func(t float64) float64 { return left + t/c.End*(right-left) }
	py := func(v float64) float64 { return bottom - v/c.Top*(bottom-top) }
	var s svg
	s.begin(c.ID, "Rate of link "+c.Name+" over time", c.desc(), w, h, false)
	s.text("small strong", "start", 6, 13, clip(c.Name, 11, 190))
	ticks := niceTicks(0, c.Top, 3)
	for _, v := range ticks {
		if v > c.Top*1.001 {
			continue
		}
		s.line("grid", left, py(v), right, py(v))
		s.text("muted tiny", "end", left-4, py(v)+3, tickText(v/c.Div, ticks[1]/c.Div))
	}
	// Where nothing is judged: settling and the gaps between phases.
	at := 0.0
	for _, p := range c.Phases {
		if p.Start > at {
			s.leaf("", "rect", "class", "rest", "x", num(px(at)), "y", num(top), "width", num(px(p.Start)-px(at)), "height", num(bottom-top))
		}
		at = max(at, p.End)
	}
	if c.Capacity > 0 && c.Capacity <= c.Top {
		s.line("cap", left, py(c.Capacity), right, py(c.Capacity))
		s.text("muted tiny halo", "end", right, py(c.Capacity)-3, "capacity")
	}
	var line []float64
	flush := func() {
		if len(line) > 0 {
			s.leaf("", "path", "class", "rate c0", "d", pathOf(line))
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
			s.leaf(fmt.Sprintf("predicted %s, %s to %s", human.Quantity(p.Predicted, "bit/s"), human.Quantity(p.Start, "s"), human.Quantity(p.End, "s")),
				"path", "class", "step", "d", pathOf([]float64{px(p.Start), py(min(p.Predicted, c.Top)), px(p.End), py(min(p.Predicted, c.Top))}))
		}
	}
	s.line("axis", left, bottom, right, bottom)
	xt := niceTicks(0, c.End, 4)
	for _, t := range xt {
		if t > c.End*1.001 {
			continue
		}
		anchor := "middle"
		if px(t) > right-8 {
			anchor = "end"
		}
		s.text("muted tiny", anchor, px(t), bottom+12, tickText(t, xt[1])+unitAt(t, " s"))
	}
	s.close("svg")
	return s.b.String()
}

func unitAt(t float64, unit string) string {
	if t == 0 {
		return ""
	}
	return unit
}

func (c *timeline) desc() string {
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

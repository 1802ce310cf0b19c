package plot

import (
	"cmp"
	"math"
	"slices"
	"strconv"

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
	Observed        string  // "measured" or "simulated"
	Lines           bool    // series have too many points for markers
	Part            string  // what of the repeats Lines are, where it is not their mean
	Means           string  // what the means of Lines are
	Width           float64 // of the drawing in pixels; 0: 640
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
// cover [lo, hi]; the first and last reach just outside it. There are at least two; a range
// whose ends or width are not finite is not covered.
func Ticks(lo, hi float64, n int) []float64 {
	if !human.Finite(lo, hi, hi-lo) {
		return []float64{0, 1}
	}
	if !(hi > lo) {
		return beside(lo)
	}
	if max(math.Abs(lo), math.Abs(hi)) > math.MaxFloat64/4 { // round numbers beyond them may be too large
		return []float64{lo, hi}
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
	if !(step > 0) || !human.Finite(step, lo/step, hi/step) { // smaller than numbers can be
		return beside(lo)
	}
	var out []float64
	for i := math.Floor(lo/step + 1e-9); i <= math.Ceil(hi/step-1e-9); i++ {
		out = append(out, i*step)
	}
	return out
}

// beside is a value and another one above it, or below where there is none.
func beside(v float64) []float64 {
	if up := v + max(math.Abs(v), 1); human.Finite(up) {
		return []float64{v, up}
	}
	return []float64{0, v}
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

// legend is what marks mean, in neutral ink.
func (c *Chart) legend() []piece {
	if c.Lines {
		text := c.Observed
		if c.Part != "" {
			text += ", " + c.Part
		}
		out := []piece{words(text)}
		if c.whiskers() {
			out = append(out, words("line, band: mean, range of neighbouring values"))
		}
		if c.Means != "" {
			out = append(out, words(c.Means).after(30, func(s *Canvas, x, y float64) { s.Line("other key", x, y-4, x+24, y-4) }))
		}
		return append(out, c.predictors()...)
	}
	note := ""
	if c.whiskers() {
		note = ", 95 % interval"
	}
	out := []piece{words(c.Observed+note).after(18, func(s *Canvas, x, y float64) {
		s.Leaf("", "circle", "class", "mark key", "cx", Num(x+5), "cy", Num(y-4), "r", "4")
		if c.whiskers() {
			s.Line("whisk key", x-3, y-4, x+13, y-4)
		}
	})}
	out = append(out, c.predictors()...)
	if c.Tolerance {
		out = append(out, words("tolerance").after(24, func(s *Canvas, x, y float64) {
			s.Leaf("", "rect", "class", "band key", "x", Num(x), "y", Num(y-10), "width", "18", "height", "12")
		}))
	}
	if c.failing() {
		out = append(out, words("failed").after(19, func(s *Canvas, x, y float64) {
			s.Leaf("", "circle", "class", "bad", "cx", Num(x+6), "cy", Num(y-4), "r", "7")
		}))
	}
	return out
}

// predictors is who predicts by which line.
func (c *Chart) predictors() (out []piece) {
	for _, p := range c.Predictors {
		class, note := "pred key", ""
		if !p.Gate {
			class, note = "other key", ", not gated"
		}
		out = append(out, words(p.Name+note).after(30, func(s *Canvas, x, y float64) { s.Line(class, x, y-4, x+24, y-4) }))
	}
	return out
}

// key is the legend of the series, for charts that do not name them at their right ends.
func (c *Chart) key(width float64) (out []piece) {
	for _, se := range c.Series {
		cl := colourClass(se.Colour)
		name := Clip(se.Name, 12, width-22)
		out = append(out, piece{width: TextWidth(name, 12) + 20, draw: func(s *Canvas, x, y float64) {
			if c.Lines {
				s.Line("rate "+cl, x-3, y-4, x+13, y-4)
			}
			s.marker("", se.Colour, x+5, y-4, 1)
			s.Text("name "+cl, "start", x+20, y, name)
		}})
	}
	return out
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
		return "pred " + colourClass(colour)
	}
	return "other " + colourClass(colour)
}

// colourClass is the class of a colour of the palette.
func colourClass(i int) string { return "c" + strconv.Itoa(i%Colours) }

// SVG renders the chart.
func (c *Chart) SVG() string {
	if c.Rows != nil {
		return c.dotPlot()
	}
	return c.curves()
}

// axis is an axis of measured values.
type axis struct {
	ticks  []float64 // from end to end
	labels []string  // of the ticks, in the unit
	unit   string
}

// newAxis is the axis from lo to hi with about n ticks.
func newAxis(lo, hi float64, n int, unit string) axis {
	a := axis{ticks: Ticks(lo, hi, n)}
	lo, hi = a.ends()
	var div float64
	div, a.unit = AxisUnit(max(math.Abs(lo), math.Abs(hi)), unit)
	step := (hi - lo) / float64(len(a.ticks)-1)
	for _, t := range a.ticks {
		a.labels = append(a.labels, TickText(t/div, step/div))
	}
	return a
}

// ends are the least value and the largest.
func (a axis) ends() (lo, hi float64) { return a.ticks[0], a.ticks[len(a.ticks)-1] }

// part is how far along the axis a value is, 0 to 1.
func (a axis) part(x float64) float64 {
	lo, hi := a.ends()
	return (x - lo) / (hi - lo)
}

// measured is what stands at the axis: what it measures, and the unit.
func (a axis) measured(what string) string {
	if a.unit == "" {
		return what
	}
	return what + ", " + a.unit
}

// levels draws the ticks of an upright axis as lines across a plot.
func (a axis) levels(s *Canvas, left, right float64, py func(float64) float64) {
	for i, t := range a.ticks {
		s.Line("grid", left, py(t), right, py(t))
		s.Text("muted small", "end", left-7, py(t)+4, a.labels[i])
	}
}

// values is the axis that takes in all of the chart's values.
func (c *Chart) values() axis {
	lo, hi := c.Lo, c.Hi
	if lo == hi {
		lo, hi = c.Span()
	}
	return newAxis(lo, hi, 6, c.Unit)
}

// longestName is the width in pixels of the longest name that stands beside where its series ends.
const longestName = 128

// farAway is how many pixels a name may stand from where its series ends.
const farAway = 40

// curves renders a chart over a numeric X.
func (c *Chart) curves() string {
	w := cmp.Or(c.Width, 640)
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
	left := 40.0
	for _, l := range v.labels {
		left = max(left, TextWidth(l, 11)+16)
	}
	tall := min(264, max(170, 0.42*w))
	keyed := w < 480 || names > longestName+22
	ends, far := c.ends(v, tall)
	keyed = keyed || far > farAway
	h := newHeading(c.Title, c.legend(), w)
	right := w - names
	if keyed {
		right = w - 16
		if len(ends) > 0 {
			h.add(c.key(w - 28))
		}
	}
	top := h.height() + 32
	bottom := top + tall
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

	s := h.begin(c.ID, c.Desc, bottom+46)
	v.levels(s, left, right, py)
	s.Text("muted small", "start", 12, top-13, v.measured(c.Measure))
	s.Line("axis", left, bottom, right, bottom)
	xt := xs
	round := func() (out []float64) {
		for n := max(3, int(7*w/640)); len(out) == 0 && n < 64; n++ {
			for _, t := range Ticks(x0, x1, n) {
				if t >= x0 && t <= x1 {
					out = append(out, t)
				}
			}
		}
		if len(out) == 0 { // the values differ by less than round numbers do
			return xs[:1]
		}
		return out
	}
	switch {
	case c.Lines && !logX:
		xt = round()
	case logX:
		xt = xs[:1:1]
		for _, x := range xs[1:] {
			if !tight([]float64{xt[len(xt)-1], x}, px) {
				xt = append(xt, x)
			}
		}
	case tight(xs, px):
		xt = round()
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
	s.Text("muted small", "middle", (left+right)/2, bottom+38, label)

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
				s.Leaf("", "path", "class", "band "+colourClass(se.Colour), "d", Path(append(up, down...))+"Z")
			}
			if len(line) == 2 {
				line = []float64{line[0] - 10, line[1], line[0] + 10, line[1]}
			}
			if len(line) > 0 {
				s.Leaf(se.Name+", "+p.Name, "path", "class", c.curveClass(p, se.Colour), "d", Path(line))
			}
		}
	}
	// Where points of series coincide, the later one is smaller, so that none hides another.
	type place struct{ x, y float64 }
	var taken []place
	size := func(x, y float64) float64 {
		n := 0
		for _, t := range taken {
			if math.Hypot(t.x-x, t.y-y) < 3 {
				n++
			}
		}
		taken = append(taken, place{x, y})
		return max(1.25-0.35*float64(n), 0.5)
	}
	points := 0
	for _, se := range c.Series {
		points += len(se.Points)
	}
	if len(c.Series) == 1 || points > 2000 { // of which nobody tells one from another
		size = func(float64, float64) float64 { return 1 }
	}
	for i, se := range c.Series {
		cl := colourClass(se.Colour)
		var join []float64
		for _, p := range se.Points {
			join = append(join, px(p.X), py(p.Y))
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
			if n := len(c.Series); n > 1 { // its shape here and there, for who sees no colours
				for k := range shapes {
					at := int((float64(k) + (float64(i)+0.5)/float64(n)) / shapes * float64(len(se.Points)))
					if at < len(se.Points) {
						s.marker(se.Name, se.Colour, join[2*at], join[2*at+1], 0.85)
					}
				}
			}
			continue
		}
		if len(join) > 2 {
			s.Leaf("", "path", "class", "join "+cl, "d", Path(join))
		}
		for _, p := range se.Points {
			x := px(p.X)
			if p.Hi > p.Lo {
				s.Line("whisk "+cl, x, py(p.Lo), x, py(p.Hi))
				if py(p.Lo)-py(p.Hi) > 9 {
					s.Line("whisk "+cl, x-3, py(p.Lo), x+3, py(p.Lo))
					s.Line("whisk "+cl, x-3, py(p.Hi), x+3, py(p.Hi))
				}
			}
			s.marker(p.Title, se.Colour, x, py(p.Y), size(x, py(p.Y)))
			if p.Outcome == results.Fail {
				s.Leaf("", "circle", "class", "bad", "cx", Num(x), "cy", Num(py(p.Y)), "r", "8.5")
			}
		}
	}
	if !keyed {
		for _, e := range ends {
			if math.Abs(e.y-e.want) > 3 {
				s.Line("lead", px(e.x)+12, top+e.want, right+6, top+e.y)
			}
			s.Text("name "+colourClass(e.colour), "start", right+9, top+e.y+4, e.name)
		}
	}
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

// shapes is how often a line shows the shape of its series.
const shapes = 6

// end is where a series ends, and its name stands.
type end struct {
	name    string
	colour  int
	x       float64 // a value
	y, want float64 // pixels from the top of the plot: of the name, and of the end
}

// ends places the names of series at their right ends, moved apart where they would touch, in a plot tall
// pixels high; far is the largest shift, in pixels.
func (c *Chart) ends(v axis, tall float64) (ends []end, far float64) {
	for _, se := range c.Series {
		if len(se.Points) == 0 || se.Name == "" {
			continue
		}
		p := se.Points[len(se.Points)-1]
		y := tall * (1 - v.part(p.Y))
		ends = append(ends, end{se.Name, se.Colour, p.X, y, y})
	}
	slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.want, b.want) })
	const gap = 15
	for i := 1; i < len(ends); i++ {
		ends[i].y = max(ends[i].y, ends[i-1].y+gap)
	}
	if n := len(ends); n > 0 && ends[n-1].y > tall {
		ends[n-1].y = tall
		for i := n - 2; i >= 0; i-- {
			ends[i].y = min(ends[i].y, ends[i+1].y-gap)
		}
	}
	for _, e := range ends {
		far = max(far, math.Abs(e.y-e.want))
	}
	return ends, far
}

// dotPlot renders categories downwards.
func (c *Chart) dotPlot() string {
	w := cmp.Or(c.Width, 640)
	v := c.values()
	named := len(c.Series) > 1
	n := float64(len(c.Series))
	left := 60.0
	for _, r := range c.Rows {
		left = max(left, TextWidth(r, 12)+24)
	}
	left = min(left, 0.36*w)
	row := max(26, 15*n+8)
	rows := make([][]string, len(c.Rows))
	for i, r := range c.Rows {
		rows[i] = Wrap(r, 12, left-20)
		row = max(row, 14*float64(len(rows[i]))+10)
	}
	names := 0.0
	for _, se := range c.Series {
		names = max(names, TextWidth(se.Name, 11)+14)
	}
	h := newHeading(c.Title, c.legend(), w)
	switch {
	case !named:
		names = 0
	case w < 480 || names > longestName:
		named, names = false, 0
		h.add(c.key(w - 28))
	}
	top := h.height() + 18
	right, bottom := w-20-names, top+row*float64(len(c.Rows))
	px := func(x float64) float64 { return left + v.part(x)*(right-left) }

	s := h.begin(c.ID, c.Desc, bottom+46)
	for i, x := range v.ticks {
		s.Line("grid", px(x), top, px(x), bottom)
		if i%2 == 0 || w >= 480 {
			s.Text("muted small", "middle", px(x), bottom+16, v.labels[i])
		}
	}
	s.Text("muted small", "middle", (left+right)/2, bottom+36, v.measured(c.Measure))
	for i := range c.Rows {
		y := top + row*float64(i)
		s.Line("grid", 12, y, w-12, y)
		s.lines("small", "start", 12, y+row/2+4-7*float64(len(rows[i])-1), 14, rows[i])
	}
	s.Line("grid", 12, bottom, w-12, bottom)
	for k, se := range c.Series {
		cl := colourClass(se.Colour)
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
			s.marker(p.Title, se.Colour, px(p.Y), y, 1)
			if p.Outcome == results.Fail {
				s.Leaf("", "circle", "class", "bad", "cx", Num(px(p.Y)), "cy", Num(y), "r", "8.5")
			}
			if named {
				s.Text("name small "+cl, "start", right+16, y+4, se.Name)
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

// widened is the range of a history's axis: 2 % at least, since what differs by less should not look
// like much.
func widened(lo, hi float64) (float64, float64) {
	if pad := 0.01*max(math.Abs(lo), math.Abs(hi)) - (hi-lo)/2; pad > 0 {
		return lo - pad, hi + pad
	}
	if lo == hi { // 0
		return lo - 1, hi + 1
	}
	return lo, hi
}

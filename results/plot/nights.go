package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Style is the CSS of drawings, light and dark, for pages of others that have them in their text.
const Style = PaletteCSS + CSS

// Nights is the history of a metric, run after run.
type Nights struct {
	ID    string // of the drawing, unique in its page
	Title string
	Unit  string // base unit
	Marks []NightMark
	Steps []NightStep // in order
}

// NightMark is one run of Nights.
type NightMark struct {
	Name    string    // of the run, for its tooltip
	When    string    // it began, as the axis says
	Figures []float64 // of its repeats, at least one
	Outcome results.Outcome
	This    bool // it is the run whose report this is: where there is one, it alone is filled
}

// NightStep is a run from which on a metric was another one.
type NightStep struct {
	At   int    // its index
	Text string // "5.0 % lower"
}

// SVG draws the history: a mark at the median of each run over the span of its repeats, a line at the
// median of all runs between steps, and a vertical line at each step. It is text of a page that has
// Style.
func (n Nights) SVG() string {
	const w, h, left, right, top, bottom = 760.0, 250.0, 62.0, 744.0, 52.0, 216.0
	lo, hi := math.Inf(1), math.Inf(-1)
	medians := make([]float64, len(n.Marks))
	for i, m := range n.Marks {
		medians[i] = results.Median(m.Figures)
		lo, hi = min(lo, slices.Min(m.Figures)), max(hi, slices.Max(m.Figures))
	}
	s := new(Canvas)
	if len(n.Marks) == 0 {
		s.Begin(n.ID, n.Title, "No runs.", w, h)
		s.Close("svg")
		return s.b.String()
	}
	if lo > 0 && lo < 0.5*hi {
		lo = 0
	}
	lo, hi = widened(lo, hi)
	v := newAxis(lo, hi, 5, n.Unit)
	px := func(i float64) float64 { return left + (i+0.5)/float64(len(n.Marks))*(right-left) }
	py := func(y float64) float64 { return bottom - v.part(y)*(bottom-top) }

	s.Begin(n.ID, n.Title, n.describe(medians), w, h)
	s.Text("strong", "start", 12, 18, Clip(n.Title, 13, w-24))
	s.Text("muted small", "start", 12, 34, v.measured("median of each run and span of its repeats"))
	v.levels(s, left, right, py)
	s.Line("axis", left, bottom, right, bottom)
	edges := []int{0}
	for _, step := range n.Steps {
		if step.At > edges[len(edges)-1] && step.At < len(n.Marks) {
			edges = append(edges, step.At)
		}
	}
	for i, from := range edges {
		to := len(n.Marks)
		if i+1 < len(edges) {
			to = edges[i+1]
		}
		level := py(results.Median(medians[from:to]))
		s.Line("pred c1", px(float64(from)-0.4), level, px(float64(to-1)+0.4), level)
	}
	free := left // where the next step's text may begin
	for _, step := range n.Steps {
		x := px(float64(step.At) - 0.5)
		s.Line("one step-line", x, top-8, x, bottom)
		at := min(x+4, right-TextWidth(step.Text, 11))
		if at >= free {
			s.Text("small halo", "start", at, top-2, step.Text)
			free = at + TextWidth(step.Text, 11) + 6
		}
	}
	this := slices.ContainsFunc(n.Marks, func(m NightMark) bool { return m.This })
	if this {
		s.Text("muted small", "end", right, 34, "filled: this run")
	}
	for i, m := range n.Marks {
		x := px(float64(i))
		if a, b := slices.Min(m.Figures), slices.Max(m.Figures); a < b {
			s.Line("whisk c0", x, py(a), x, py(b))
		}
		title := m.Name + ": " + human.Quantity(medians[i], n.Unit)
		if len(m.Figures) > 1 {
			title += ", median of " + strconv.Itoa(len(m.Figures)) + " repeats"
		}
		if m.Outcome != "" {
			title += ", " + m.Outcome.Word()
		}
		class := "mark c0"
		if this && !m.This {
			class += " hollow"
		}
		s.Leaf(title, "circle", "class", class, "cx", Num(x), "cy", Num(py(medians[i])), "r", Num(min(4, max(2, 0.4*(right-left)/float64(len(n.Marks))))))
	}
	n.dates(s, left, right, bottom, px)
	s.Close("svg")
	return s.b.String()
}

// dates says below the axis when the first run and the last one began, and those between them that there is room for.
func (n Nights) dates(s *Canvas, left, right, bottom float64, px func(float64) float64) {
	const gap = 16
	first, last := n.Marks[0].When, n.Marks[len(n.Marks)-1].When
	s.Text("muted small", "start", left, bottom+18, first)
	if len(n.Marks) == 1 {
		return
	}
	s.Text("muted small", "end", right, bottom+18, last)
	free, end := left+TextWidth(first, 11)+gap, right-TextWidth(last, 11)-gap
	for i := 1; i < len(n.Marks)-1; i++ {
		when := n.Marks[i].When
		x, half := px(float64(i)), TextWidth(when, 11)/2
		if x-half >= free && x+half <= end {
			s.Line("axis", x, bottom, x, bottom+4)
			s.Text("muted small", "middle", x, bottom+18, when)
			free = x + half + gap
		}
	}
}

// describe says what the drawing shows to who does not see it.
func (n Nights) describe(medians []float64) string {
	text := fmt.Sprintf("%d runs, the newest %s.", len(medians), human.Quantity(medians[len(medians)-1], n.Unit))
	for _, step := range n.Steps {
		if step.At < len(n.Marks) {
			text += " " + step.Text + " from " + n.Marks[step.At].When + "."
		}
	}
	return text
}

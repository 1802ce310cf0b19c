package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// written is a text of a drawing and the box that it takes, by what TextWidth says.
type written struct {
	text           string
	x0, y0, x1, y1 float64
}

// textsOf are the texts of a drawing that stand upright, and its size.
func textsOf(t *testing.T, svg string) (out []written, w, h float64) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out, w, h
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attrs := map[string]string{}
		for _, a := range e.Attr {
			attrs[a.Name.Local] = a.Value
		}
		number := func(key string) float64 { v, _ := strconv.ParseFloat(attrs[key], 64); return v }
		if e.Name.Local == "svg" {
			w, h = number("width"), number("height")
		}
		if e.Name.Local != "text" || attrs["transform"] != "" {
			continue
		}
		next, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		text, _ := next.(xml.CharData)
		size := 12.0
		classes := strings.Fields(attrs["class"])
		if slices.Contains(classes, "small") {
			size = 11
		}
		if slices.Contains(classes, "tiny") {
			size = 9.5
		}
		width := TextWidth(string(text), size)
		x := number("x")
		switch attrs["text-anchor"] {
		case "middle":
			x -= width / 2
		case "end":
			x -= width
		}
		out = append(out, written{string(text), x, number("y") - 0.72*size, x + width, number("y")})
	}
}

// legible reports texts that leave the drawing, overlap or are cut.
func legible(t *testing.T, name, svg string) {
	t.Helper()
	texts, w, h := textsOf(t, svg)
	for i, a := range texts {
		if a.x0 < 0 || a.x1 > w || a.y0 < 0 || a.y1 > h {
			t.Errorf("%s: %q leaves the drawing: %+v in %g x %g", name, a.text, a, w, h)
		}
		if strings.HasSuffix(a.text, "…") {
			t.Errorf("%s: cut: %q", name, a.text)
		}
		for _, b := range texts[:i] {
			if a.x0 < b.x1-1 && b.x0 < a.x1-1 && a.y0 < b.y1-1 && b.y0 < a.y1-1 {
				t.Errorf("%s: %q over %q", name, a.text, b.text)
			}
		}
	}
}

// widths are those of a column, a page and a wide screen, in pixels.
var widths = []float64{300, 335, 480, 640, 1240}

// TestLegible: in drawings of any width, with long names and short ones, few series and many, no text is cut, leaves the
// drawing or lies over another one.
func TestLegible(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 6))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	name := func(i int) string {
		return fmt.Sprintf("%s%d", pick("A", "job ", "model alexnet, service time ", "policy a-policy-with-a-name, memory "), i)
	}
	for n := range 400 {
		w := widths[n%len(widths)]
		c := Chart{ID: "x", Title: pick("Goodput", "Ratio of the job completion time against placement.switch_memory, model alexnet, repeats 5"), Width: w,
			Measure: "goodput", Unit: "bit/s", XLabel: pick("time", "switch.aggregators"), Observed: "measured", Tolerance: true,
			Predictors: []Predictor{{"occupancy", true}, {"waterfill", false}}, Lines: n%3 == 0}
		scale := []float64{1, 1e3, 1e9}[r.IntN(3)]
		dots := n%3 == 1
		points := 1 + r.IntN(7)
		for i := range 1 + r.IntN(6) {
			s := Series{Name: name(i), Colour: i, Curves: map[string][]CurvePoint{}}
			for k := range points {
				x, y := float64(k), scale*r.Float64()
				if !dots {
					x = []float64{1, 512, 1e5}[n%3] * float64(k+1)
				}
				s.Points = append(s.Points, Point{X: x, Y: y, Lo: y * 0.9, Hi: y * 1.1, Outcome: results.Fail})
				s.Curves["occupancy"] = append(s.Curves["occupancy"], CurvePoint{x, y, y * 0.95, y * 1.05})
			}
			c.Series = append(c.Series, s)
		}
		if dots {
			for k := range points {
				c.Rows = append(c.Rows, name(k))
			}
		}
		if c.Lines {
			c.Means = "average, as in the tables"
		}
		legible(t, fmt.Sprintf("chart %d, %g px", n, w), c.SVG())
	}
	for n := range 100 {
		w := widths[n%len(widths)]
		s := Scatter{ID: "x", Title: "Goodput of 12 subjects, every phase", Measure: "goodput", Unit: "bit/s", Observed: "measured", Predictor: "occupancy", Width: w}
		for i := range r.IntN(20) {
			s.Points = append(s.Points, ScatterPoint{X: 1e9 * r.Float64(), Y: 1e9 * r.Float64(), Name: fmt.Sprintf("A@tor%d", i)})
		}
		legible(t, fmt.Sprintf("scatter %d, %g px", n, w), s.SVG())
		b := Bars{ID: "x", Title: "JCT, normalised to netpack", Note: "lower is better; whiskers: 95 % interval of 5 paired repeats; below: the mean of netpack ± SD", Width: w, Top: 2,
			XLabel: "placement.memory"}
		names := 1 + r.IntN(7)
		for i := range names {
			b.Names, b.Colours = append(b.Names, pick("netpack", "random", "flow-balance")+strconv.Itoa(i)), append(b.Colours, i)
		}
		for g := range 1 + r.IntN(8) {
			group := BarGroup{Lines: []string{fmt.Sprintf("%d aggregators", 512*g)}, Foot: "netpack 12.3 s ± 1.2 s", Bars: make([]Bar, names)}
			for i := range group.Bars {
				y := 0.5 + r.Float64()
				group.Bars[i] = Bar{Y: y, Lo: y * 0.9, Hi: y * 1.1}
			}
			b.Groups = append(b.Groups, group)
		}
		legible(t, fmt.Sprintf("bars %d, %g px", n, w), b.SVG())
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		text  string
		width float64
		want  string
	}{
		{"", 100, ""},
		{"one two", 1000, "one two"},
		{"one two three", TextWidth("one two", 12), "one two|three"},
		{"a-long name", TextWidth("a-lon", 12), "a-|long|name"},
		{"abcd", TextWidth("ab", 12) + 1, "ab|cd"},
		{"ab", 1, "a|b"},
	} {
		if got := strings.Join(Wrap(tt.text, 12, tt.width), "|"); got != tt.want {
			t.Errorf("Wrap(%q, %g) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// TestHostileValues: whatever numbers and names a run has, drawings come to an end, quickly, and are well-formed.
func TestHostileValues(t *testing.T) {
	values := []float64{0, 5e-324, -5e-324, 1, 1764380001.5, 1764380001.5000002, 1764380003, 1e308, -1e308, 1.7e308, math.MaxFloat64}
	for _, lo := range values {
		for _, hi := range values {
			ticks := Ticks(lo, hi, 5)
			if len(ticks) < 2 || !slices.IsSorted(ticks) || !human.Finite(ticks...) || ticks[0] == ticks[len(ticks)-1] {
				t.Errorf("ticks of %g to %g: %v", lo, hi, ticks)
			}
		}
	}
	long := strings.Repeat("a", 1e4)
	r := rand.New(rand.NewPCG(1, 9))
	for n := range 200 {
		pick := func() float64 { return values[r.IntN(len(values))] }
		c := Chart{ID: "x", Title: []string{"t", long}[r.IntN(2)], Unit: []string{"1", "bit/s", "s"}[r.IntN(3)], XUnit: "s", Lines: n%2 == 0, Width: widths[n%len(widths)],
			Predictors: []Predictor{{"p", true}}}
		for i := range 1 + r.IntN(3) {
			s := Series{Name: []string{"", "A", long}[r.IntN(3)], Colour: i, Curves: map[string][]CurvePoint{}}
			for range r.IntN(4) {
				y := pick()
				s.Points = append(s.Points, Point{X: pick(), Y: y, Lo: min(y, pick()), Hi: max(y, pick())})
				s.Curves["p"] = append(s.Curves["p"], CurvePoint{X: pick(), Y: y, Lo: y, Hi: y})
			}
			c.Series = append(c.Series, s)
		}
		if n%3 == 0 {
			c.Rows = []string{"row", long}
			for _, s := range c.Series {
				for i := range s.Points {
					s.Points[i].X = float64(i % 2)
				}
			}
		}
		line := Timeline{ID: "x", Name: long, Rates: []RateSpan{{0, 1, pick()}}, End: max(pick(), 1e-9), Top: max(pick(), 1e-9), Div: 1}
		scatter := Scatter{ID: "x", Title: "t", Points: []ScatterPoint{{X: pick(), Y: pick(), Name: long}}}
		bars := Bars{ID: "x", Title: "t", Names: []string{long, "b"}, Groups: []BarGroup{{Lines: []string{long}, Bars: []Bar{{Y: pick()}, {Y: 1}}}}, Top: pick()}
		for _, svg := range []string{c.SVG(), line.SVG(), scatter.SVG(), bars.SVG()} {
			textsOf(t, svg)
		}
	}
}

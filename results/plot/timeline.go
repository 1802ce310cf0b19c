package plot

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/inabench/inabench/results/human"
)

// Timeline is a link's rate over time with its prediction as a step a phase.
type Timeline struct {
	ID       string
	Name     string
	Rates    []RateSpan // mean rates between readings
	Phases   []TimePhase
	Capacity float64
	End, Top float64 // shared axes
	Div      float64 // of the axis' labels
	Width    float64 // of the drawing in pixels; 0: 320
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
	w := cmp.Or(c.Width, 320)
	h := 132 * min(max(w/320, 1), 1.6)
	left, right, top, bottom := 34.0, w-10, 26.0, h-22
	px := func(t float64) float64 { return left + t/c.End*(right-left) }
	py := func(v float64) float64 { return bottom - v/c.Top*(bottom-top) }
	var s Canvas
	s.Begin(c.ID, "Rate of link "+c.Name+" over time", c.desc(), w, h)
	s.Text("small strong", "start", 6, 13, Clip(c.Name, 11, w-130))
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
		text := TickText(t, xt[1])
		if t != 0 {
			text += " s"
		}
		s.Text("muted tiny", anchor, px(t), bottom+12, text)
	}
	s.Close("svg")
	return s.b.String()
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

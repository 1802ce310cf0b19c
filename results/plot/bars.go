package plot

import (
	"strconv"

	"github.com/inabench/inabench/results/human"
)

// Bars are grouped bars of ratios to a reference, which is 1.
type Bars struct {
	ID, Title, Desc string
	Note            string // what whiskers are, which way is better
	Names           []string
	Reference       int // which of Names is 1
	Groups          []BarGroup
	XLabel          string  // keys of the groups' lines
	Top             float64 // largest value to show: whiskers leave the scale there, bars break
}

// BarGroup has a bar for each name.
type BarGroup struct {
	Lines []string // what it is of, a line a key
	Foot  string   // the reference's own figure
	Bars  []Bar
	Paper *Bar // what a paper says that the bars should span
}

// Bar is a ratio with its interval; Y is 0 where there is none.
type Bar struct {
	Y, Lo, Hi float64
	Title     string
}

func (b Bar) known() bool { return b.Y > 0 && human.Finite(b.Y, b.Lo, b.Hi) }

// BarColours is how many bars of a group the palette tells apart.
const BarColours = 9

// SVG renders the bars. Names stand in the bars, or in a legend where they have no
// room there.
func (c *Bars) SVG() string {
	w, size := 1240.0, 12.0
	if len(c.Groups) == 1 {
		w = 640
	}
	ticks := Ticks(0, max(c.Top, 1)*1.06, 6)
	top, plot := 62.0, 290.0
	left, right := 44.0, w-14
	n, groups := float64(len(c.Names)), float64(len(c.Groups))
	span := (right - left) / groups
	inner := span * 0.9
	if groups == 1 {
		inner = span * 0.96
	}
	for _, g := range c.Groups {
		if g.Paper != nil { // room for it at the right
			inner = min(inner, span-36)
		}
	}
	pitch := min(inner/n, 58)
	inner = pitch * n
	width := pitch - min(3, pitch*0.15)
	hi := ticks[len(ticks)-1]
	tall := func(v float64) float64 { return min(v/hi, 1) * plot }

	// Names fit if every bar has room for its own below the lower whisker.
	inside := width >= size+2
	for _, g := range c.Groups {
		for i, b := range g.Bars {
			if b.known() && TextWidth(c.Names[i], size)+14 > tall(b.Lo) {
				inside = false
			}
		}
	}
	var rows [][]int // of the legend
	if !inside {
		at := w
		for i, name := range c.Names {
			need := TextWidth(name, 12) + 36
			if at+need > right {
				rows, at = append(rows, nil), left
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], i)
			at += need
		}
		top += 20*float64(len(rows)) + 2
	}
	lines := 0
	for _, g := range c.Groups {
		lines = max(lines, len(g.Lines))
	}
	bottom := top + plot
	h := bottom + 16*float64(lines) + 26
	if c.XLabel != "" {
		h += 18
	}
	py := func(v float64) float64 { return bottom - tall(v) }
	class := func(i int) string {
		s := "bar b" + strconv.Itoa(i%BarColours)
		if i == c.Reference {
			s += " ref"
		}
		if i >= BarColours {
			s += " again"
		}
		return s
	}

	s := new(Canvas)
	s.Begin(c.ID, c.Title, c.Desc, w, h)
	s.Text("strong", "start", 12, 18, Clip(c.Title, 13, w-24))
	s.Text("muted small", "start", 12, 36, Clip(c.Note, 11, w-24))
	for r, row := range rows {
		x, y := left, 60+20*float64(r)
		for _, i := range row {
			s.Leaf("", "rect", "class", class(i), "x", Num(x), "y", Num(y-10), "width", "12", "height", "12", "rx", "1.5")
			s.Text("small", "start", x+17, y, c.Names[i])
			x += TextWidth(c.Names[i], 12) + 36
		}
	}
	step := ticks[1] - ticks[0]
	for _, t := range ticks {
		s.Line("grid", left, py(t), right, py(t))
		s.Text("muted small", "end", left-7, py(t)+4, TickText(t, step))
	}
	middle := func(group int) float64 { return left + span*(float64(group)+0.5) }
	centre := func(group, i int) float64 { return middle(group) - inner/2 + pitch*(float64(i)+0.5) }
	for k, g := range c.Groups {
		if k > 0 {
			s.Line("grid", left+span*float64(k), top, left+span*float64(k), bottom)
		}
		for i, b := range g.Bars {
			x, at := Num(centre(k, i)-width/2), []string{}
			if !b.known() {
				s.Text("muted small", "middle", centre(k, i), bottom-5, "–")
				continue
			}
			at = append(at, "x", x, "y", Num(py(b.Y)), "width", Num(width), "height", Num(tall(b.Y)))
			s.Leaf("", "rect", append([]string{"class", "plate"}, at...)...) // no grid behind a bar
			s.Leaf(b.Title, "rect", append([]string{"class", class(i)}, at...)...)
			if b.Y > hi {
				l, r, y := centre(k, i)-width/2-1.5, centre(k, i)+width/2+1.5, top+12
				s.Leaf("", "path", "class", "plate", "d", Path([]float64{l, y + 8, r, y, r, y + 6, l, y + 14})+"Z")
			}
		}
	}
	s.Line("axis", left, bottom, right, bottom)
	s.Line("one", left, py(1), right, py(1))
	for k, g := range c.Groups {
		for i, b := range g.Bars {
			if !b.known() {
				continue
			}
			centre := centre(k, i)
			if b.Hi > b.Lo && b.Y <= hi {
				foot := min(4, width/4)
				s.Line("err", centre, py(b.Lo), centre, py(b.Hi))
				s.Line("err", centre-foot, py(b.Lo), centre+foot, py(b.Lo))
				if b.Hi <= hi { // else it goes on
					s.Line("err", centre-foot, py(b.Hi), centre+foot, py(b.Hi))
				}
			}
			if text := ratioLabel(b.Y); i != c.Reference && TextWidth(text, 10) <= pitch+1 || b.Y > hi {
				s.Text("tiny halo", "middle", centre, py(b.Hi)-5, text)
			}
			if inside {
				on := "inbar"
				if i == c.Reference {
					on = "onbar"
				}
				s.upright(on, "start", centre+4, bottom-7, c.Names[i])
			}
		}
		if p := g.Paper; p != nil {
			x := left + span*float64(k+1) - 11
			y, to := py(p.Lo), py(p.Hi)
			if p.Hi > hi { // beyond the axis
				s.Leaf("", "path", "class", "mark key", "d", Path([]float64{x, to - 7, x + 3.5, to, x - 3.5, to})+"Z")
				y = max(y, to+12)
			} else {
				s.Line("paper", x-3, to, x+3, to)
			}
			if p.Lo <= hi {
				s.Line("paper", x-3, y, x+3, y)
			}
			s.Leaf(p.Title, "path", "class", "paper", "d", Path([]float64{x, y, x, to}))
			s.upright("muted tiny halo", "end", x+3, y+6, "paper")
		}
		y := bottom + 18
		for _, l := range g.Lines {
			s.Text("strong", "middle", middle(k), y, Clip(l, 12, span-6))
			y += 16
		}
		s.Text("muted small", "middle", middle(k), bottom+18+16*float64(lines), Clip(g.Foot, 11, span-6))
	}
	if c.XLabel != "" {
		s.Text("muted small", "middle", (left+right)/2, h-8, Clip(c.XLabel, 11, w-24))
	}
	s.Close("svg")
	return s.b.String()
}

// ratioLabel writes a ratio in at most four characters or so.
func ratioLabel(v float64) string {
	d := 2
	if v >= 9.995 {
		d = 1
	}
	if v >= 99.95 {
		d = 0
	}
	return strconv.FormatFloat(v, 'f', d, 64)
}

package plot

import (
	"slices"
	"strconv"

	"github.com/inabench/inabench/results/human"
)

// Bars are grouped bars of ratios to a reference, which is 1.
type Bars struct {
	ID, Title, Desc string
	Note            string // what whiskers are, which way is better
	Names           []string
	Colours         []int // palette index of each of Names; missing: its position
	Reference       int   // which of Names is 1
	Groups          []BarGroup
	XLabel          string  // keys of the groups' lines
	Top             float64 // largest value to show: whiskers leave the scale there, bars break
	Width           float64 // of the drawing in pixels; 0: 640, or 1240 for more than one group
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

// SVG renders the bars. Names stand in the bars, or in a legend where they have no room there. Groups
// stand beside each other, in several rows where they have no room in one.
func (c *Bars) SVG() string {
	w := c.Width
	if w == 0 {
		if w = 1240; len(c.Groups) == 1 {
			w = 640
		}
	}
	l := c.layout(w)
	h := newHeading(c.Title, nil, w)
	for _, line := range Wrap(c.Note, 11, w-28) {
		h.add([]piece{words(line)})
	}
	if !l.inside {
		h.add(c.key(w - 28))
	}
	top := h.height() + 24
	bottom := top
	for _, r := range l.rows {
		bottom += l.tall + r.below + 14
	}
	if c.XLabel != "" {
		bottom += 18
	}
	s := h.begin(c.ID, c.Desc, bottom)
	for _, r := range l.rows {
		c.row(s, l, r, top)
		top += l.tall + r.below + 14
	}
	if c.XLabel != "" {
		s.Text("muted small", "middle", (l.left+l.right)/2, bottom-8, Clip(c.XLabel, 11, w-24))
	}
	s.Close("svg")
	return s.b.String()
}

// barLayout is how bars stand in a drawing.
type barLayout struct {
	left, right  float64
	tall         float64 // of the plot of a row
	axis         axis
	span         float64 // of a group
	pitch, width float64 // of a bar: with the gap beside it, and without
	inside       bool    // names stand in the bars
	rows         []barRow
}

// barRow is a row of groups.
type barRow struct {
	groups []BarGroup
	lines  [][]string // of each group, below it
	feet   [][]string // of each group, below its lines
	most   int        // lines of a group
	below  float64    // pixels that lines and feet take
}

// leastPitch is the least room for a bar, in pixels.
const leastPitch = 11

// layout sets the bars into a drawing so wide.
func (c *Bars) layout(w float64) barLayout {
	l := barLayout{left: 44, right: w - 14, tall: 290, axis: newAxis(0, max(c.Top, 1)*1.06, 6, "1")}
	if w < 640 {
		l.tall = max(190, 0.45*w)
	}
	n, groups := float64(len(c.Names)), len(c.Groups)
	room := l.right - l.left
	paper := slices.ContainsFunc(c.Groups, func(g BarGroup) bool { return g.Paper != nil })
	need := max(n*leastPitch/0.9, 56)
	if paper {
		need = max(need, n*leastPitch+36)
	}
	rows := (groups + max(int(room/need), 1) - 1) / max(int(room/need), 1)
	each := (groups + rows - 1) / rows
	l.span = room / float64(each)
	inner := l.span * 0.9
	if groups == 1 {
		inner = l.span * 0.96
	}
	if paper { // room for it at the right
		inner = min(inner, l.span-36)
	}
	l.pitch = min(inner/n, 58)
	l.width = l.pitch - min(3, l.pitch*0.15)
	if rows > 1 {
		l.tall *= 0.66
	}

	// Names fit if every bar has room for its own below the lower whisker.
	l.inside = l.width >= barText+2
	for _, g := range c.Groups {
		for i, b := range g.Bars {
			if b.known() && TextWidth(c.Names[i], barText)+14 > l.height(b.Lo) {
				l.inside = false
			}
		}
	}
	for groups := range slices.Chunk(c.Groups, each) {
		r := barRow{groups: groups}
		feet := 0
		for _, g := range groups {
			var lines []string
			for _, line := range g.Lines {
				lines = append(lines, Wrap(line, 12, l.span-6)...)
			}
			foot := Wrap(g.Foot, 11, l.span-6)
			r.lines, r.feet = append(r.lines, lines), append(r.feet, foot)
			r.most, feet = max(r.most, len(lines)), max(feet, len(foot))
		}
		r.below = 16*float64(r.most) + 14*float64(feet) + 6
		l.rows = append(l.rows, r)
	}
	return l
}

// barText is the size of names in bars.
const barText = 12.0

// height is how tall a bar of a value is.
func (l barLayout) height(v float64) float64 { return min(l.axis.part(v), 1) * l.tall }

// class is that of a name's bars.
func (c *Bars) class(i int) string {
	colour := i
	if i < len(c.Colours) {
		colour = c.Colours[i]
	}
	s := "bar " + colourClass(colour)
	if i == c.Reference {
		s += " ref"
	}
	if colour >= Colours {
		s += " again"
	}
	return s
}

// key is which bar is which.
func (c *Bars) key(width float64) (out []piece) {
	for i, name := range c.Names {
		name := Clip(name, 12, width-18)
		out = append(out, piece{TextWidth(name, 12) + 18, func(s *Canvas, x, y float64) {
			s.Leaf("", "rect", "class", c.class(i), "x", Num(x), "y", Num(y-10), "width", "12", "height", "12", "rx", "1.5")
			s.Text("small", "start", x+17, y, name)
		}})
	}
	return out
}

// row draws a row of groups whose plot begins at top.
func (c *Bars) row(s *Canvas, l barLayout, r barRow, top float64) {
	_, hi := l.axis.ends()
	left, right, bottom, width := l.left, l.left+l.span*float64(len(r.groups)), top+l.tall, l.width
	inner := l.pitch * float64(len(c.Names))
	py := func(v float64) float64 { return bottom - l.height(v) }
	l.axis.levels(s, left, right, py)
	middle := func(group int) float64 { return left + l.span*(float64(group)+0.5) }
	centre := func(group, i int) float64 { return middle(group) - inner/2 + l.pitch*(float64(i)+0.5) }
	for k, g := range r.groups {
		if k > 0 {
			s.Line("grid", left+l.span*float64(k), top, left+l.span*float64(k), bottom)
		}
		for i, b := range g.Bars {
			x, at := Num(centre(k, i)-width/2), []string{}
			if !b.known() {
				s.Text("muted small", "middle", centre(k, i), bottom-5, "–")
				continue
			}
			at = append(at, "x", x, "y", Num(py(b.Y)), "width", Num(width), "height", Num(l.height(b.Y)))
			s.Leaf("", "rect", append([]string{"class", "plate"}, at...)...) // no grid behind a bar
			s.Leaf(b.Title, "rect", append([]string{"class", c.class(i)}, at...)...)
			if b.Y > hi {
				from, to, y := centre(k, i)-width/2-1.5, centre(k, i)+width/2+1.5, top+12
				s.Leaf("", "path", "class", "plate", "d", Path([]float64{from, y + 8, to, y, to, y + 6, from, y + 14})+"Z")
			}
		}
	}
	s.Line("axis", left, bottom, right, bottom)
	s.Line("one", left, py(1), right, py(1))
	for k, g := range r.groups {
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
			if text := ratioLabel(b.Y); i != c.Reference && TextWidth(text, 10) <= l.pitch+1 || b.Y > hi {
				s.Text("tiny halo", "middle", centre, py(b.Hi)-5, text)
			}
			if l.inside {
				on := "inbar"
				if i == c.Reference {
					on = "onbar"
				}
				s.upright(on, "start", centre+4, bottom-7, c.Names[i])
			}
		}
		if p := g.Paper; p != nil {
			x := left + l.span*float64(k+1) - 11
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
		s.lines("strong", "middle", middle(k), bottom+18, 16, r.lines[k])
		s.lines("muted small", "middle", middle(k), bottom+18+16*float64(r.most), 14, r.feet[k])
	}
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

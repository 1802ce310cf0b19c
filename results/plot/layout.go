package plot

import (
	"strings"

	"github.com/inabench/inabench/results/human"
)

// SmallText is the font size of texts of class "small", in pixels: most labels of charts have it.
const SmallText = 11.0

// Wrap breaks a text at blanks into lines at most width pixels wide, for a font size in pixels. It also breaks a word
// wider than that, after a hyphen or the like if there is one.
func Wrap(text string, size, width float64) []string {
	var words []string // that fit
	for _, word := range strings.Fields(text) {
		for {
			n := fit(word, size, width)
			if n == len(word) {
				break
			}
			if at := strings.LastIndexAny(word[:n], "-._/@,"); at > 0 {
				n = at + 1
			}
			words, word = append(words, word[:n]), word[n:]
		}
		words = append(words, word)
	}
	return human.Fill(words, func(line string) bool { return TextWidth(line, size) <= width })
}

// fit is how many bytes of a text fit into a width, one letter at least.
func fit(s string, size, width float64) int {
	w := 0.0
	for i, r := range s {
		if w += runeWidth(r) * size; w > width && i > 0 {
			return i
		}
	}
	return len(s)
}

// piece is a part of a legend: how wide it is, and how it is drawn from a point on.
type piece struct {
	width float64
	draw  func(s *Canvas, x, y float64)
}

// words is a piece of text in muted ink.
func words(text string) piece {
	return piece{TextWidth(text, 11), func(s *Canvas, x, y float64) { s.Text("muted small", "start", x, y, text) }}
}

// after is a piece with a mark before it that takes so many pixels.
func (p piece) after(room float64, mark func(s *Canvas, x, y float64)) piece {
	return piece{room + p.width, func(s *Canvas, x, y float64) {
		mark(s, x, y)
		p.draw(s, x+room, y)
	}}
}

// flow sets pieces in rows of at most a width.
func flow(pieces []piece, width float64) (rows [][]piece) {
	at := width + 1
	for _, p := range pieces {
		if at+p.width > width {
			rows, at = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], p)
		at += p.width + 18
	}
	return rows
}

// heading is what stands above a plot: its title, and rows that say what its marks mean.
type heading struct {
	title string
	lines []string // of the title
	width float64  // of the drawing
	rows  [][]piece
}

// newHeading lays a title and a legend out for a drawing so wide.
func newHeading(title string, legend []piece, width float64) heading {
	h := heading{title: title, lines: Wrap(title, 13, width-24), width: width}
	h.add(legend)
	return h
}

// add puts pieces below what there is.
func (h *heading) add(pieces []piece) { h.rows = append(h.rows, flow(pieces, h.width-28)...) }

// height is where the last row of a heading stands.
func (h heading) height() float64 { return h.titled() + 20*float64(len(h.rows)) }

// titled is where the last line of the title ends.
func (h heading) titled() float64 { return 2 + 16*float64(len(h.lines)) }

// begin starts a drawing with its heading.
func (h heading) begin(id, desc string, height float64) *Canvas {
	s := new(Canvas)
	s.Begin(id, h.title, desc, h.width, height)
	s.lines("strong", "start", 12, 18, 16, h.lines)
	y := h.titled()
	for _, row := range h.rows {
		x := 14.0
		y += 20
		for _, p := range row {
			p.draw(s, x, y)
			x += p.width + 18
		}
	}
	return s
}

// lines writes lines of text, so many pixels below each other.
func (s *Canvas) lines(class, anchor string, x, y, pitch float64, lines []string) {
	for i, l := range lines {
		s.Text(class, anchor, x, y+pitch*float64(i), l)
	}
}

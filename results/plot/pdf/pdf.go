// Package pdf writes drawings of package plot as PDF (ISO 32000-1): one page of vectors and text, whose fonts are in the
// file, as publishers want it.
//
// It reads what package plot draws, not all that SVG has: groups, rectangles, circles, lines, paths of straight lines,
// and texts, styled by classes. Colours are those of paper.
package pdf

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxDeep is how deep elements may be within each other.
const maxDeep = 64

// element is one of SVG's.
type element struct {
	name     string
	attrs    map[string]string
	text     string
	children []*element
}

// read reads a drawing.
func read(svg string) (*element, error) {
	d := xml.NewDecoder(strings.NewReader(svg))
	root := &element{}
	open := []*element{root}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		top := open[len(open)-1]
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, attrs: map[string]string{}}
			for _, a := range t.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			top.children = append(top.children, e)
			if open = append(open, e); len(open) > maxDeep {
				return nil, errors.New("elements too deep within each other")
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			top.text += string(t)
		}
	}
	if len(root.children) != 1 || root.children[0].name != "svg" {
		return nil, errors.New("it is no drawing")
	}
	return root.children[0], nil
}

// Write writes a drawing as a page, at scale points (1/72 inch) a pixel, or less so that the page is at most most points
// wide. A scale of 0 stands for 96 pixels an inch; a most of 0 sets no limit.
func Write(w io.Writer, svg string, scale, most float64) error {
	root, err := read(svg)
	if err != nil {
		return fmt.Errorf("drawing as PDF: %w", err)
	}
	box := numbers(root.attrs["viewBox"])
	if len(box) != 4 || !(box[2] > 0 && box[3] > 0) {
		return errors.New("drawing as PDF: it has no size")
	}
	if scale <= 0 {
		scale = 72.0 / 96
	}
	if most > 0 {
		scale = min(scale, most/box[2])
	}
	p := &page{states: map[string]string{}, clips: map[string]*element{}}
	p.op("%s 0 0 %s %s %s cm", num(scale), num(-scale), num(-box[0]*scale), num((box[1]+box[3])*scale))
	p.draw(root, style{sheet: theSheet(), props: map[string]string{"fill": "#000", "stroke": "none", "stroke-width": "1", "font-size": "12px", "opacity": "1"}})
	title := ""
	for _, c := range root.children {
		if c.name == "title" {
			title = c.text
		}
	}
	return p.write(w, title, box[2]*scale, box[3]*scale)
}

// num is a number as PDF has it, to a thousandth.
func num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	s := strconv.FormatFloat(v, 'f', 3, 64)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" || s == "" {
		return "0"
	}
	return s
}

// numbers are those in a text with blanks or commas between them.
func numbers(s string) (out []float64) {
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' }) {
		v, err := strconv.ParseFloat(strings.TrimSuffix(f, "px"), 64)
		if err != nil {
			return nil
		}
		out = append(out, v)
	}
	return out
}

func number(s string) float64 {
	if v := numbers(s); len(v) == 1 {
		return v[0]
	}
	return 0
}

// page is the content of a page.
type page struct {
	b      bytes.Buffer
	states map[string]string // names of graphics states by what they set
	clips  map[string]*element
	fonts  [2]*font // regular and bold, where used
}

func (p *page) op(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

func (p *page) draw(e *element, in style) {
	st := in.of(e)
	switch e.name {
	case "title", "desc", "style":
		return
	case "clipPath":
		p.clips[e.attrs["id"]] = e
		return
	}
	p.op("q")
	defer p.op("Q")
	p.transform(e.attrs["transform"])
	if id, ok := strings.CutPrefix(e.attrs["clip-path"], "url(#"); ok {
		if to := p.clips[strings.TrimSuffix(id, ")")]; to != nil {
			for _, r := range to.children {
				p.rectangle(number(r.attrs["x"]), number(r.attrs["y"]), number(r.attrs["width"]), number(r.attrs["height"]), 0)
			}
			p.op("W n")
		}
	}
	switch e.name {
	case "rect":
		x, y, w, h := number(e.attrs["x"]), number(e.attrs["y"]), number(e.attrs["width"]), number(e.attrs["height"])
		p.paint(st, func() { p.rectangle(x, y, w, h, min(number(e.attrs["rx"]), w/2, h/2)) })
	case "circle":
		p.paint(st, func() { p.circle(number(e.attrs["cx"]), number(e.attrs["cy"]), number(e.attrs["r"])) })
	case "line":
		p.paint(st.with("fill", "none"), func() {
			p.op("%s %s m %s %s l", num(number(e.attrs["x1"])), num(number(e.attrs["y1"])), num(number(e.attrs["x2"])), num(number(e.attrs["y2"])))
		})
	case "path":
		p.paint(st, func() { p.path(e.attrs["d"]) })
	case "text":
		p.words(e, st)
	default:
		for _, c := range e.children {
			p.draw(c, st)
		}
	}
}

// transform applies translations and rotations.
func (p *page) transform(s string) {
	for s != "" {
		name, rest, ok := strings.Cut(s, "(")
		args, after, closed := strings.Cut(rest, ")")
		if !ok || !closed {
			return
		}
		s = after
		v := numbers(args)
		switch name = strings.TrimSpace(name); {
		case name == "translate" && len(v) > 0:
			v = append(v, 0)
			p.op("1 0 0 1 %s %s cm", num(v[0]), num(v[1]))
		case name == "rotate" && len(v) == 1:
			sin, cos := math.Sincos(v[0] * math.Pi / 180)
			p.op("%s %s %s %s 0 0 cm", num(cos), num(sin), num(-sin), num(cos))
		}
	}
}

// paint fills and strokes a path in a style.
func (p *page) paint(st style, path func()) {
	fill, stroke := st.colour("fill"), st.colour("stroke")
	width := st.length("stroke-width")
	if width <= 0 {
		stroke = ""
	}
	if fill == "" && stroke == "" {
		return
	}
	opacity := st.opacity
	p.state(opacity*st.part("fill-opacity"), opacity)
	if fill != "" {
		p.op("%s rg", fill)
	}
	if stroke != "" {
		p.op("%s RG %s w", stroke, num(width))
		p.op("%d J %d j", map[string]int{"round": 1, "square": 2}[st.get("stroke-linecap")], map[string]int{"round": 1}[st.get("stroke-linejoin")])
		if dashes := numbers(st.get("stroke-dasharray")); len(dashes) > 0 {
			texts := make([]string, len(dashes))
			for i, d := range dashes {
				texts[i] = num(d)
			}
			p.op("[%s] 0 d", strings.Join(texts, " "))
		}
	}
	path()
	switch {
	case stroke == "":
		p.op("f")
	case fill == "":
		p.op("S")
	default:
		p.op("B")
	}
}

// state sets how opaque fills and strokes are.
func (p *page) state(fill, stroke float64) {
	if fill >= 1 && stroke >= 1 {
		return
	}
	key := fmt.Sprintf("/ca %s /CA %s", num(fill), num(stroke))
	if p.states[key] == "" {
		p.states[key] = fmt.Sprintf("G%d", len(p.states)+1)
	}
	p.op("/%s gs", p.states[key])
}

func (p *page) rectangle(x, y, w, h, r float64) {
	if r <= 0 {
		p.op("%s %s %s %s re", num(x), num(y), num(w), num(h))
		return
	}
	k := r * (1 - kappa)
	at := func(format string, v ...float64) {
		args := make([]any, len(v))
		for i := range v {
			args[i] = num(v[i])
		}
		p.op(format, args...)
	}
	const curve = "%s %s %s %s %s %s c"
	at("%s %s m", x+r, y)
	at("%s %s l", x+w-r, y)
	at(curve, x+w-k, y, x+w, y+k, x+w, y+r)
	at("%s %s l", x+w, y+h-r)
	at(curve, x+w, y+h-k, x+w-k, y+h, x+w-r, y+h)
	at("%s %s l", x+r, y+h)
	at(curve, x+k, y+h, x, y+h-k, x, y+h-r)
	at("%s %s l", x, y+r)
	at(curve, x, y+k, x+k, y, x+r, y)
	p.op("h")
}

// kappa makes of four cubic Bézier curves a circle, to a part in 3,700.
const kappa = 0.5522848

func (p *page) circle(x, y, r float64) { p.rectangle(x-r, y-r, 2*r, 2*r, r) }

// path is one of straight lines, as package plot draws them: M and L, h and v, and z.
func (p *page) path(d string) {
	var x, y, x0, y0 float64
	line := func(nx, ny float64, how string) {
		x, y = nx, ny
		p.op("%s %s %s", num(x), num(y), how)
	}
	for d = strings.TrimSpace(d); d != ""; {
		op := d[0]
		d = d[1:]
		end := strings.IndexAny(d, "MLhvZz")
		if end < 0 {
			end = len(d)
		}
		v := numbers(strings.NewReplacer("\n", " ", "-", " -").Replace(d[:end]))
		d = d[end:]
		switch op {
		case 'Z', 'z':
			p.op("h")
			x, y = x0, y0
		case 'h':
			for _, by := range v {
				line(x+by, y, "l")
			}
		case 'v':
			for _, by := range v {
				line(x, y+by, "l")
			}
		default:
			for i := 0; i+1 < len(v); i += 2 {
				if op == 'M' && i == 0 {
					line(v[0], v[1], "m")
					x0, y0 = x, y
				} else {
					line(v[i], v[i+1], "l")
				}
			}
		}
	}
}

// words draws a text.
func (p *page) words(e *element, st style) {
	bold := 0
	if w := st.get("font-weight"); w == "bold" || number(w) >= 600 {
		bold = 1
	}
	if p.fonts[bold] == nil {
		p.fonts[bold] = newFont(bold == 1)
	}
	f := p.fonts[bold]
	text := strings.Join(strings.Fields(e.text), " ")
	size := st.length("font-size")
	x, y := number(e.attrs["x"]), number(e.attrs["y"])
	switch width := f.width(text) * size; cmp.Or(e.attrs["text-anchor"], st.get("text-anchor")) {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	fill, stroke := st.colour("fill"), st.colour("stroke")
	if fill == "" || text == "" {
		return
	}
	p.state(st.opacity*st.part("fill-opacity"), st.opacity)
	show := func(mode int) {
		p.op("BT %d Tr /F%d %s Tf 1 0 0 -1 %s %s Tm <%s> Tj ET", mode, bold, num(size), num(x), num(y), f.encode(text))
	}
	if stroke != "" && st.get("paint-order") == "stroke" { // a halo
		p.op("%s RG %s w 1 j", stroke, num(st.length("stroke-width")))
		show(1)
	}
	p.op("%s rg", fill)
	show(0)
}

// write writes the file: a page with its content, fonts and graphics states.
func (p *page) write(w io.Writer, title string, width, height float64) error {
	var out bytes.Buffer
	var at []int
	object := func(body string) int {
		at = append(at, out.Len())
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", len(at), body)
		return len(at)
	}
	stream := func(dict string, data []byte) int {
		var z bytes.Buffer
		c := zlib.NewWriter(&z)
		_, _ = c.Write(data) // into memory
		_ = c.Close()
		return object(fmt.Sprintf("<< %s /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream", dict, z.Len(), z.String()))
	}
	out.WriteString("%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
	content := stream("", p.b.Bytes())
	fonts := ""
	for i, f := range p.fonts {
		if f != nil {
			fonts += fmt.Sprintf("/F%d %d 0 R ", i, f.write(object, stream))
		}
	}
	states := ""
	for _, key := range slices.Sorted(maps.Keys(p.states)) {
		states += fmt.Sprintf("/%s << %s >> ", p.states[key], key)
	}
	pages := len(at) + 2
	sheet := object(fmt.Sprintf("<< /Type /Page /Parent %d 0 R /MediaBox [0 0 %s %s] /Contents %d 0 R /Resources << /Font << %s>> /ExtGState << %s>> >> >>",
		pages, num(width), num(height), content, fonts, states))
	object(fmt.Sprintf("<< /Type /Pages /Count 1 /Kids [%d 0 R] >>", sheet))
	catalog := object(fmt.Sprintf("<< /Type /Catalog /Pages %d 0 R >>", pages))
	info := object("<< /Title " + text16(title) + " /Producer (inabench) >>")
	start := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, offset := range at {
		fmt.Fprintf(&out, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&out, "trailer\n<< /Size %d /Root %d 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, catalog, info, start)
	_, err := w.Write(out.Bytes())
	return err
}

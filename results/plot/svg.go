// Package plot draws what runs measured as SVG: charts, bars, timelines, topologies and trees, alone or as parts of a page.
// Drawings say in words what they show, and repeat by shape what colours say.
package plot

import (
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Canvas writes SVG elements. Everything that comes from outside goes through
// attributes and text, which it escapes; tag and attribute names are constants.
type Canvas struct{ b strings.Builder }

// String is what was drawn.
func (s *Canvas) String() string { return s.b.String() }

// Num writes a coordinate to a tenth of a pixel.
func Num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	s := strconv.FormatFloat(v, 'f', 1, 64)
	s = strings.TrimSuffix(s, ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

// escape makes s safe in XML text and in quoted attributes, and drops what XML
// has no way to write.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

func (s *Canvas) tag(name string, end string, attrs []string) {
	s.b.WriteString("<" + name)
	for i := 0; i+1 < len(attrs); i += 2 {
		s.b.WriteString(" " + attrs[i] + `="` + escape(attrs[i+1]) + `"`)
	}
	s.b.WriteString(end)
}

// Open begins an element; attrs are names and values in turn.
func (s *Canvas) Open(name string, attrs ...string) { s.tag(name, ">", attrs) }

// Close ends an element.
func (s *Canvas) Close(name string) { s.b.WriteString("</" + name + ">\n") }

// Leaf writes an element; a non-empty title is its tooltip.
func (s *Canvas) Leaf(title, name string, attrs ...string) {
	if title == "" {
		s.tag(name, "/>\n", attrs)
		return
	}
	s.tag(name, ">", attrs)
	s.b.WriteString("<title>" + escape(title) + "</title></" + name + ">\n")
}

// Line draws a line of a class.
func (s *Canvas) Line(class string, x1, y1, x2, y2 float64) {
	s.Leaf("", "line", "class", class, "x1", Num(x1), "y1", Num(y1), "x2", Num(x2), "y2", Num(y2))
}

// Text writes a text of a class; anchor is "start", "middle" or "end".
func (s *Canvas) Text(class, anchor string, x, y float64, text string) {
	s.tag("text", ">", []string{"class", class, "text-anchor", anchor, "x", Num(x), "y", Num(y)})
	s.b.WriteString(escape(text) + "</text>\n")
}

// upright writes a text that reads upwards.
func (s *Canvas) upright(class, anchor string, x, y float64, text string) {
	s.tag("text", ">", []string{"class", class, "text-anchor", anchor, "transform", "translate(" + Num(x) + " " + Num(y) + ") rotate(-90)"})
	s.b.WriteString(escape(text) + "</text>\n")
}

// Begin opens a drawing of w by h with its title and description for readers
// that do not see it. id must be unique in the page, whose style it has; see Alone.
func (s *Canvas) Begin(id, title, desc string, w, h float64) {
	s.Open("svg", "xmlns", "http://www.w3.org/2000/svg", "class", "ina", "role", "img", "id", id,
		"viewBox", "0 0 "+Num(w)+" "+Num(h), "width", Num(w), "height", Num(h), "aria-labelledby", id+"-t "+id+"-d")
	s.b.WriteString("\n")
	s.Open("title", "id", id+"-t")
	s.b.WriteString(escape(title))
	s.Close("title")
	s.Open("desc", "id", id+"-d")
	s.b.WriteString(escape(desc))
	s.Close("desc")
}

// Alone is a drawing of a page as a file of its own: with its style, and by itself readable.
func Alone(svg string) string {
	const after = "</desc>\n"
	at := strings.Index(svg, after)
	if at < 0 {
		return svg
	}
	at += len(after)
	return svg[:at] + "<style>" + PaletteCSS + CSS + "</style>\n" + svg[at:]
}

// drawn is the size of a drawing as Begin writes it.
var drawn = regexp.MustCompile(`viewBox="0 0 ([0-9.]+) ([0-9.]+)" width="[0-9.]+" height="[0-9.]+"`)

// InPoints gives a drawing a size on paper: so many points (1/72 inch) a pixel, or less where it would be wider than most.
func InPoints(svg string, perPixel, most float64) string {
	m := drawn.FindStringSubmatchIndex(svg)
	if m == nil {
		return svg
	}
	w, _ := strconv.ParseFloat(svg[m[2]:m[3]], 64)
	h, _ := strconv.ParseFloat(svg[m[4]:m[5]], 64)
	if scale := min(perPixel, most/w); w > 0 && scale > 0 {
		return svg[:m[5]] + `" width="` + Num(w*scale) + `pt" height="` + Num(h*scale) + `pt"` + svg[m[1]:]
	}
	return svg
}

// marker draws a point of series i, larger by a factor; the shape repeats what the colour says.
func (s *Canvas) marker(title string, i int, x, y, size float64) {
	class := "mark " + colourClass(i)
	path := func(points ...float64) {
		for k := 0; k < len(points); k += 2 {
			points[k], points[k+1] = x+size*points[k], y+size*points[k+1]
		}
		s.Leaf(title, "path", "class", class, "d", Path(points)+"Z")
	}
	switch i % 4 {
	case 0:
		s.Leaf(title, "circle", "class", class, "cx", Num(x), "cy", Num(y), "r", Num(4*size))
	case 1:
		path(-3.6, -3.6, 3.6, -3.6, 3.6, 3.6, -3.6, 3.6)
	case 2:
		path(0, -4.8, 4.4, 3.2, -4.4, 3.2)
	default:
		path(0, -5, 5, 0, 0, 5, -5, 0)
	}
}

// Path joins points with straight lines.
func Path(xy []float64) string {
	var b strings.Builder
	for i := 0; i+1 < len(xy); i += 2 {
		if i == 0 {
			b.WriteString("M")
		} else {
			b.WriteString("L")
		}
		b.WriteString(Num(xy[i]) + " " + Num(xy[i+1]))
	}
	return b.String()
}

// TextWidth estimates the width of a text of the given size in the report's
// sans-serif face.
func TextWidth(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		w += runeWidth(r) * size
	}
	return w
}

// runeWidth estimates the width of a letter, as a part of the size.
func runeWidth(r rune) float64 {
	switch {
	case strings.ContainsRune("ijl.,:;|'!()[]ftI ", r):
		return 0.34
	case strings.ContainsRune("mwMW@%", r):
		return 0.88
	case r >= 'A' && r <= 'Z':
		return 0.68
	}
	return 0.57
}

// Clip shortens s to fit a width, with an ellipsis.
func Clip(s string, size, width float64) string {
	if TextWidth(s, size) <= width {
		return s
	}
	return s[:fit(s, size, width-TextWidth("…", size))] + "…"
}

// Colours is how many names the palette tells apart.
const Colours = 9

// The palette is Okabe and Ito's (jfly.uni-koeln.de/color, 2008), which stays apart
// for colour-blind readers, darkened on white and lightened on black for contrast.
const (
	lightCSS = `--paper:#fff;--raised:#f6f7f9;--ink:#1a1e23;--muted:#59626d;--line:#c5cbd3;--grid:#e7eaee;
--c0:#0067a3;--c1:#c04a00;--c2:#00795a;--c3:#9a4a83;--c4:#946400;--c5:#5a6470;
--c6:#5b4fb8;--c7:#97303c;--c8:#5c7000;
--pass:#00704f;--fail:#b83a00;--open:#845a00`
	darkCSS = `--paper:#121519;--raised:#1b1f25;--ink:#e7eaee;--muted:#9fa9b5;--line:#444c57;--grid:#272c34;
--c0:#5eb8ec;--c1:#ff9455;--c2:#3ccfa2;--c3:#e3a0cb;--c4:#efc552;--c5:#aab3be;
--c6:#a9a0ff;--c7:#f58b93;--c8:#b3cc4e;
--pass:#3ccfa2;--fail:#ff9455;--open:#efc552`
	// PaperCSS are the colours on paper.
	PaperCSS = `--paper:#fff;--raised:#fff;--ink:#000;--muted:#444;--line:#999;--grid:#ddd;
--c0:#0067a3;--c1:#c04a00;--c2:#00795a;--c3:#9a4a83;--c4:#946400;--c5:#5a6470;--c6:#5b4fb8;--c7:#97303c;--c8:#5c7000;--pass:#00704f;--fail:#b83a00;--open:#845a00`
)

// PaletteCSS follows the system, unless data-theme of the document says "light" or "dark".
const PaletteCSS = "\n:root{" + lightCSS + "}\n@media (prefers-color-scheme:dark){:root:not([data-theme=light]){" + darkCSS + "}}\n:root[data-theme=dark]{" + darkCSS +
	"}\n@media print{:root:root,:root[data-theme]{" + PaperCSS + "}}\n"

// CSS is the style of drawings, with PaletteCSS.
const CSS = `
svg.ina{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;font-size:12px;font-variant-numeric:tabular-nums;max-width:100%;height:auto;background:var(--paper);color:var(--ink)}
@media (max-width:600px){svg.ina{max-width:none}}
svg.ina text{fill:var(--ink)}
svg.ina .muted{fill:var(--muted)}
svg.ina .small{font-size:11px}
svg.ina .tiny{font-size:9.5px}
svg.ina .strong{font-weight:600}
svg.ina .halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
svg.ina .grid{stroke:var(--grid);stroke-width:1}
svg.ina .axis{stroke:var(--line);stroke-width:1}
svg.ina .lead{stroke:var(--line);stroke-width:1}
svg.ina .c0{--c:var(--c0)}svg.ina .c1{--c:var(--c1)}svg.ina .c2{--c:var(--c2)}svg.ina .c3{--c:var(--c3)}svg.ina .c4{--c:var(--c4)}svg.ina .c5{--c:var(--c5)}svg.ina .c6{--c:var(--c6)}svg.ina .c7{--c:var(--c7)}svg.ina .c8{--c:var(--c8)}
svg.ina .key{--c:var(--muted)}
svg.ina text.name{fill:var(--c);font-weight:600}
svg.ina .mark{fill:var(--c);stroke:var(--paper);stroke-width:1}
svg.ina .hollow{fill:var(--paper);stroke:var(--c);stroke-width:1.5}
svg.ina .whisk{stroke:var(--c);stroke-width:1.5}
svg.ina .join{stroke:var(--c);stroke-width:1.25;fill:none;opacity:.4}
svg.ina .pred{stroke:var(--c);stroke-width:1.6;fill:none;stroke-dasharray:6 4}
svg.ina .other{stroke:var(--c);stroke-width:1.6;fill:none;stroke-dasharray:1.5 3.5;stroke-linecap:round;opacity:.9}
svg.ina .band{fill:var(--c);stroke:none;opacity:.11}
svg.ina .bad{fill:none;stroke:var(--fail);stroke-width:2}
svg.ina .rate{stroke:var(--c);stroke-width:1.4;fill:none;stroke-linejoin:round}
svg.ina .step{stroke:var(--c1);stroke-width:1.8;fill:none;stroke-dasharray:6 4}
svg.ina .cap{stroke:var(--muted);stroke-width:1;fill:none}
svg.ina .rest{fill:var(--muted);opacity:.09}
svg.ina .bar{fill:var(--c);fill-opacity:.34;stroke:var(--c);stroke-width:1}svg.ina .again{stroke-dasharray:2 2}svg.ina .bar.ref{fill-opacity:1}
svg.ina .err{stroke:var(--ink);stroke-width:1.3}
svg.ina .paper{stroke:var(--muted);stroke-width:2;fill:none}
svg.ina .one{stroke:var(--ink);stroke-width:1.3;stroke-dasharray:5 3}
svg.ina text.onbar{fill:var(--paper);font-weight:600}svg.ina text.inbar{fill:var(--ink)}
svg.ina .machine{fill:var(--raised);stroke:var(--line);stroke-width:1}svg.ina .machine.idle{fill:none;stroke:var(--grid)}
svg.ina .gpu{fill:var(--c);stroke:none}svg.ina .gpu.free{fill:var(--paper);stroke:var(--line)}svg.ina .gpu.busy{fill:var(--muted);opacity:.42}svg.ina .gpu.spare{fill:var(--paper);stroke:var(--c);stroke-width:1.4;stroke-dasharray:2.5 2}
svg.ina text.rank{fill:var(--paper);font-size:10.5px;font-weight:600}
svg.ina .node{fill:var(--raised);stroke:var(--line);stroke-width:1}
svg.ina .switch{fill:var(--paper);stroke:var(--ink);stroke-width:1.4}
svg.ina .track{stroke:var(--grid);stroke-linecap:round}
svg.ina .cable{stroke:var(--line)}
svg.ina .plate{fill:var(--paper)}
svg.ina .load{stroke:var(--c0);stroke-linecap:round}
svg.ina .full{stroke:var(--c1);stroke-linecap:round}
svg.ina .tree{stroke:var(--c);stroke-width:2;fill:none;stroke-linecap:round}svg.ina .adds{fill:var(--c);stroke:var(--paper);stroke-width:1}
svg.ina .head{fill:var(--c0)}svg.ina .head.hot{fill:var(--c1)}
`

package pdf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// font is one of Go's own (go.dev/blog/go-fonts), which may be put into documents, and the glyphs of it that are used.
type font struct {
	name   string
	data   []byte
	parsed *sfnt.Font
	buf    sfnt.Buffer
	used   map[sfnt.GlyphIndex]rune
}

func newFont(bold bool) *font {
	f := &font{name: "GoRegular", data: goregular.TTF, used: map[sfnt.GlyphIndex]rune{}}
	if bold {
		f.name, f.data = "GoBold", gobold.TTF
	}
	parsed, err := sfnt.Parse(f.data)
	if err != nil {
		panic(err) // a mistake in what comes with the module
	}
	f.parsed = parsed
	return f
}

// glyph is that of a character; of one that the font lacks it is a question mark's.
func (f *font) glyph(r rune) sfnt.GlyphIndex {
	g, err := f.parsed.GlyphIndex(&f.buf, r)
	if err != nil || g == 0 {
		g, _ = f.parsed.GlyphIndex(&f.buf, '?')
	}
	return g
}

// thousandths is how wide a glyph is, in thousandths of the font's size.
func (f *font) thousandths(g sfnt.GlyphIndex) float64 {
	a, err := f.parsed.GlyphAdvance(&f.buf, g, fixed.I(1000), xfont.HintingNone)
	if err != nil {
		return 0
	}
	return float64(a) / 64
}

// width is that of a text of size 1.
func (f *font) width(text string) (w float64) {
	for _, r := range text {
		w += f.thousandths(f.glyph(r)) / 1000
	}
	return w
}

// encode is a text as the numbers of its glyphs, in hexadecimal.
func (f *font) encode(text string) string {
	var b strings.Builder
	for _, r := range text {
		g := f.glyph(r)
		if _, ok := f.used[g]; !ok {
			f.used[g] = r
		}
		fmt.Fprintf(&b, "%04x", g)
	}
	return b.String()
}

// write writes the font: whole, with widths of the glyphs that are used and what characters they are.
func (f *font) write(object func(string) int, stream func(string, []byte) int) int {
	file := stream(fmt.Sprintf("/Length1 %d", len(f.data)), f.data)
	at := func(v fixed.Int26_6) string { return num(float64(v) / 64) }
	m, err := f.parsed.Metrics(&f.buf, fixed.I(1000), xfont.HintingNone)
	if err != nil {
		panic(err) // as above
	}
	bounds, err := f.parsed.Bounds(&f.buf, fixed.I(1000), xfont.HintingNone)
	if err != nil {
		panic(err)
	}
	descriptor := object(fmt.Sprintf("<< /Type /FontDescriptor /FontName /%s /Flags 4 /FontBBox [%s %s %s %s] /ItalicAngle 0 /Ascent %s /Descent %s /CapHeight %s /StemV 80 /FontFile2 %d 0 R >>",
		f.name, at(bounds.Min.X), at(-bounds.Max.Y), at(bounds.Max.X), at(-bounds.Min.Y), at(m.Ascent), at(-m.Descent), at(m.CapHeight), file))
	var widths, chars strings.Builder
	glyphs := slices.Sorted(maps.Keys(f.used))
	for _, g := range glyphs {
		fmt.Fprintf(&widths, "%d [%s] ", g, num(f.thousandths(g)))
	}
	for part := range slices.Chunk(glyphs, 100) { // as many as one block may have
		fmt.Fprintf(&chars, "%d beginbfchar\n", len(part))
		for _, g := range part {
			fmt.Fprintf(&chars, "<%04x> <%s>\n", g, hex16(string(f.used[g])))
		}
		chars.WriteString("endbfchar\n")
	}
	unicode := stream("", []byte("/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"+
		"/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n"+chars.String()+"endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"))
	descendant := object(fmt.Sprintf("<< /Type /Font /Subtype /CIDFontType2 /BaseFont /%s /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /FontDescriptor %d 0 R /CIDToGIDMap /Identity /W [%s] >>",
		f.name, descriptor, widths.String()))
	return object(fmt.Sprintf("<< /Type /Font /Subtype /Type0 /BaseFont /%s /Encoding /Identity-H /DescendantFonts [%d 0 R] /ToUnicode %d 0 R >>", f.name, descendant, unicode))
}

// hex16 is a text in UTF-16, in hexadecimal.
func hex16(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, "%04x", u)
	}
	return b.String()
}

// text16 is a text as PDF has it outside of pages.
func text16(s string) string { return "<feff" + hex16(s) + ">" }

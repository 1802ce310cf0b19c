package pdf

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results/plot"
)

const drawing = `<svg xmlns="http://www.w3.org/2000/svg" class="ina" viewBox="0 0 200 100">
<title>A drawing (π)</title><desc>What it shows.</desc>
<rect class="bar c2" x="10" y="20" width="30" height="60"/>
<g class="c1"><circle class="mark" cx="100" cy="50" r="4"/><path class="band" d="M0 0L10 5L-3-4Z"/></g>
<line class="load" x1="0" y1="90" x2="200" y2="90" stroke-width="2.5"/>
<text class="strong" text-anchor="middle" x="100" y="12">95 % ± 2 → µs</text>
<text class="muted small halo" transform="translate(5 50) rotate(-90)">upright</text>
</svg>`

// content is what a page draws, unpacked.
func content(t *testing.T, pdf []byte) string {
	t.Helper()
	_, rest, _ := bytes.Cut(pdf, []byte("stream\n"))
	z, err := zlib.NewReader(bytes.NewReader(rest))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWrite: the operators that a drawing becomes.
func TestWrite(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, drawing, 0, 150); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "drawing.txt", content(t, b.Bytes()))
	for _, want := range []string{"/MediaBox [0 0 150 75]", "/BaseFont /GoBold", "/BaseFont /GoRegular", "/CA 0.11"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestClip: what is clipped is, and what clips is not drawn.
func TestClip(t *testing.T) {
	c := &plot.Scatter{ID: "x", Title: "t", Tolerance: 0.05, Relative: true, Points: []plot.ScatterPoint{{X: 1, Y: 2, Lo: 1, Hi: 3}, {X: 2, Y: 2, Lo: 1, Hi: 3}}}
	if !strings.Contains(c.SVG(), "<clipPath") {
		t.Skip("nothing is clipped")
	}
	var b bytes.Buffer
	if err := Write(&b, c.SVG(), 0, 0); err != nil {
		t.Fatal(err)
	}
	text := content(t, b.Bytes())
	if strings.Count(text, " re\nW n\n") != 1 || strings.Contains(text, "0 0 0 rg\n0 0 0 RG") || strings.Contains(text, " re\nf\n") {
		t.Errorf("%s", text)
	}
}

// TestOffsets: the table of objects says where they are.
func TestOffsets(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, drawing, 0, 0); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	entries := regexp.MustCompile(`(?m)^(\d{10}) 00000 n $`).FindAllStringSubmatch(text, -1)
	if len(entries) < 8 {
		t.Fatalf("%d objects", len(entries))
	}
	for i, e := range entries {
		at := 0
		for _, d := range e[1] {
			at = 10*at + int(d-'0')
		}
		head := regexp.MustCompile(`^\d+ 0 obj\n`).FindString(text[at:])
		if head != fmt.Sprintf("%d 0 obj\n", i+1) {
			t.Errorf("object %d: %q", i+1, head)
		}
	}
}

func TestBad(t *testing.T) {
	for _, svg := range []string{"", "<svg", "<html/>", "<svg/>", `<svg viewBox="0 0 0 1"/>`, strings.Repeat("<svg>", 100)} {
		if err := Write(io.Discard, svg, 0, 0); err == nil {
			t.Errorf("no error of %q", svg)
		}
	}
}

// TestReaders: what others make of it.
func TestReaders(t *testing.T) {
	if _, err := exec.LookPath("pdftotext"); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "x.pdf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(f, drawing, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("pdftotext", "-q", path, "-").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "95 % ± 2 → µs") {
		t.Errorf("pdftotext: %q, %v", out, err)
	}
}

// FuzzWrite: whatever a drawing says, there is a page or an error.
func FuzzWrite(f *testing.F) {
	f.Add(drawing)
	c := &plot.Chart{ID: "x", Title: "t", Series: []plot.Series{{Name: "a", Points: []plot.Point{{X: 1, Y: 2, Lo: 1, Hi: 3}}}}}
	f.Add(c.SVG())
	f.Fuzz(func(t *testing.T, svg string) {
		if err := Write(io.Discard, svg, 0, 0); err != nil {
			return
		}
	})
}

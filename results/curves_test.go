package results

import (
	"slices"
	"strings"
	"testing"
)

// A curve a point, averaged over the repeats that have the same X.
func TestCurves(t *testing.T) {
	curve := func(y ...float64) []Curve {
		return []Curve{{Metric: "fragments", Unit: "1", Over: "requests", X: []float64{1, 2, 3}[:len(y)], Y: y}}
	}
	rec := &Record{Kind: Simulated, Points: []Point{
		{Index: 0, Labels: []string{"p=a"}, Curves: curve(1, 2, 3)},
		{Index: 1, Labels: []string{"p=b"}, Curves: curve(9, 9, 9)},
		{Index: 0, Repeat: 1, Labels: []string{"p=a"}, Curves: curve(3, 4, 5)},
		{Index: 0, Repeat: 2, Labels: []string{"p=a"}, Curves: curve(100)}, // with other X
	}}
	got := rec.curves("simulated")
	if len(got) != 1 {
		t.Fatalf("%d drawings", len(got))
	}
	var rows []string
	for _, r := range got[0].Table {
		rows = append(rows, r.Of+" "+r.Where+" "+r.Observed)
	}
	want := []string{"a requests 1 2", "a requests 2 3", "a requests 3 4", "b requests 1 9", "b requests 2 9", "b requests 3 9"}
	if !slices.Equal(rows, want) {
		t.Errorf("%q", rows)
	}
	if svg := string(got[0].SVG); !strings.Contains(svg, ">a<") || !strings.Contains(svg, ">b<") || !strings.Contains(svg, "requests") {
		t.Error(svg)
	}
	for i := range 30 {
		rec.Points = append(rec.Points, Point{Index: i + 2, Labels: []string{"p=" + string(rune('c'+i))}, Curves: curve(1, 2)})
	}
	n := 0
	for _, p := range rec.curves("simulated") {
		n += strings.Count(string(p.SVG), `class="rate`)
	}
	if n != 32 {
		t.Errorf("%d of 32 curves are drawn", n)
	}
}

func TestThinned(t *testing.T) {
	x, y := thinned([]float64{0, 1, 2, 3, 4, 5}, []float64{0, 2, 4, 6, 8, 10}, 3)
	if !slices.Equal(x, []float64{0.5, 2.5, 4.5}) || !slices.Equal(y, []float64{1, 5, 9}) {
		t.Error(x, y)
	}
}

package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/resultstest"
)

// A curve a point, averaged over the repeats that have the same X.
func TestCurves(t *testing.T) {
	curve := func(y ...float64) []results.Curve {
		return []results.Curve{{Metric: "fragments", Unit: "1", Over: "requests", X: []float64{1, 2, 3}[:len(y)], Y: y}}
	}
	rec := &results.Record{Kind: results.Simulated, Points: []results.Point{
		{Index: 0, Labels: []string{"p=a"}, Curves: curve(1, 2, 3)},
		{Index: 1, Labels: []string{"p=b"}, Curves: curve(9, 9, 9)},
		{Index: 0, Repeat: 1, Labels: []string{"p=a"}, Curves: curve(3, 4, 5)},
		{Index: 0, Repeat: 2, Labels: []string{"p=a"}, Curves: curve(100)}, // with other X
	}}
	got := new(sheet).drawCurves(rec, "simulated")
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
		rec.Points = append(rec.Points, results.Point{Index: i + 2, Labels: []string{"p=" + string(rune('c'+i))}, Curves: curve(1, 2)})
	}
	n := 0
	for _, p := range new(sheet).drawCurves(rec, "simulated") {
		n += strings.Count(string(p.SVG), `<path class="rate`)
	}
	if n != 32 {
		t.Errorf("%d of 32 curves are drawn", n)
	}
}

// Where policies are swept they share drawings, and the other keys have one each.
func TestCurvesOfPolicies(t *testing.T) {
	point := func(index int, load, policy string, y ...float64) results.Point {
		return results.Point{
			Index: index, Labels: []string{"trace.load=" + load, "placement.policy=" + policy},
			Curves: []results.Curve{
				{Metric: "used_machines", Unit: "1", Over: "time, h", X: []float64{1, 2, 3}, Y: y},
				{Metric: "machine_hours", Unit: "h", Over: "time, h", X: []float64{1, 2, 3}, Y: []float64{y[0], y[0] + y[1], y[0] + y[1] + y[2]}},
			},
		}
	}
	rec := &results.Record{Kind: results.Simulated, Points: []results.Point{
		point(0, "1", "titan", 1, 3, 1), point(1, "1", "hived", 2, 2, 1),
		point(2, "2", "titan", 1, 1, 0), point(3, "2", "hived", 2, 9, 2),
	}}
	rec.Points[1].Phases = []results.Phase{{Figures: []results.Figure{results.Exact(results.Figure{Metric: "used_machines", Of: results.Cluster, Kind: results.Simulated, Value: 1.7, Unit: "1"})}}}
	var titles []string
	for _, p := range new(sheet).drawCurves(rec, "simulated") {
		titles = append(titles, p.Title)
		resultstest.WellFormed(t, p.Title, string(p.SVG))
	}
	want := []string{"Used machines over time, load=1", "Machine hours over time, load=1", "Used machines over time, load=2", "Machine hours over time, load=2"}
	if !slices.Equal(titles, want) {
		t.Errorf("%q", titles)
	}
	svg := string(new(sheet).drawCurves(rec, "simulated")[0].SVG)
	for _, text := range []string{"titan: from 1.000 to 1.000, mean 2. ", "hived: from 2 to 1.000, mean 1.700. ", ">titan<", "titan, mean 2<"} {
		if !strings.Contains(svg, text) {
			t.Errorf("no %q in %s", text, svg)
		}
	}
	for i, what := range []string{">average, as in the tables<", "", ">mean over time<", ""} {
		if svg := string(new(sheet).drawCurves(rec, "simulated")[i].SVG); what != "" && !strings.Contains(svg, what) {
			t.Errorf("no %q in %s", what, svg)
		}
	}
	if svg := string(new(sheet).drawCurves(rec, "simulated")[1].SVG); strings.Contains(svg, "mean") {
		t.Errorf("the mean of what adds up: %s", svg)
	}
}

// Of repeats that cannot be averaged, it is said which were drawn.
func TestCurvesOfRepeats(t *testing.T) {
	for want, xs := range map[string][][]float64{
		"simulated": {{1, 2}, {1, 2}}, "simulated, the first repeat of 2": {{1, 2}, {1, 3}}, "simulated, the mean of 2 repeats of 3": {{1, 2}, {1, 3}, {1, 2}},
	} {
		rec := &results.Record{}
		for i, x := range xs {
			rec.Points = append(rec.Points, results.Point{Repeat: i, Curves: []results.Curve{{Metric: "m", Unit: "1", Over: "requests", X: x, Y: []float64{1, float64(i)}}}})
		}
		svg := string(new(sheet).drawCurves(rec, "simulated")[0].SVG)
		if !strings.Contains(svg, ">"+want+"<") {
			t.Errorf("no %q in %s", want, svg)
		}
		dropped := 0
		for i := range rec.Points {
			if p := &rec.Points[i]; !SameX(p.Curves, rec.Points[0].Curves) {
				p.Curves = nil
				dropped++
			}
		}
		if got := string(new(sheet).drawCurves(rec, "simulated")[0].SVG); got != svg || (dropped > 0) != strings.Contains(want, "repeat") {
			t.Errorf("without the %d curves that are not averaged: %s, want %s", dropped, got, svg)
		}
	}
}

// A drawing of many values keeps their mean and their range.
func TestThinned(t *testing.T) {
	rng := resultstest.Random(t)
	for range 200 {
		x, y := make([]float64, 1+rng.IntN(3000)), []float64{}
		for i := range x {
			x[i] = float64(i)
			y = append(y, math.Exp(rng.NormFloat64()))
		}
		n := 1 + rng.IntN(500)
		got := thinned(x, y, n)
		if len(got) != min(n, len(x)) {
			t.Fatalf("%d points of %d, want %d", len(got), len(x), n)
		}
		lo, hi := math.Inf(1), math.Inf(-1)
		for i, p := range got {
			lo, hi = min(lo, p.Lo), max(hi, p.Hi)
			if p.Lo > p.Y*(1+1e-9) || p.Hi < p.Y*(1-1e-9) || i > 0 && p.X <= got[i-1].X {
				t.Fatalf("%+v", p)
			}
		}
		if lo != slices.Min(y) || hi != slices.Max(y) {
			t.Fatalf("the range of %d values became %g to %g", len(y), lo, hi)
		}
	}
	got := thinned([]float64{0, 1, 2, 3, 4, 5}, []float64{0, 2, 4, 6, 8, 10}, 3)
	want := []plot.Point{{X: 0.5, Y: 1, Lo: 0, Hi: 2}, {X: 2.5, Y: 5, Lo: 4, Hi: 6}, {X: 4.5, Y: 9, Lo: 8, Hi: 10}}
	if !slices.Equal(got, want) {
		t.Error(got)
	}
}

package plot

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func TestNightsSVG(t *testing.T) {
	rng := resultstest.Random(t)
	n := Nights{ID: "goodput-A", Title: "goodput of A & <B>", Unit: "bit/s"}
	for i := range 40 {
		rate := 20e6
		if i >= 25 {
			rate *= 0.95
		}
		n.Marks = append(n.Marks, NightMark{
			Name: fmt.Sprintf("run %d", i), When: fmt.Sprintf("2026-10-%02d", i%30+1), Outcome: results.Pass,
			Figures: []float64{rate * (1 + 0.002*rng.Float64()), rate * (1 - 0.002*rng.Float64())},
		})
	}
	n.Steps = []NightStep{{At: 25, Text: "5.0 % lower"}}
	out := n.SVG()
	resultstest.WellFormed(t, n.Title, out)
	for want, times := range map[string]int{
		"<circle":                        40,
		`class="whisk c0"`:               40,
		`class="pred c1"`:                2, // a level before the step, and one after
		`class="one step-line"`:          1,
		">5.0 % lower<":                  1,
		">goodput of A &amp; &lt;B&gt;<": 2,
		"run 3: ":                        1,
		"median of 2 repeats":            40,
	} {
		if got := strings.Count(out, want); got != times {
			t.Errorf("%q: %d times, want %d", want, got, times)
		}
	}
	for name, n := range map[string]Nights{
		"nothing":           {ID: "a"},
		"one":               {ID: "b", Unit: "1", Marks: []NightMark{{Figures: []float64{0}}}},
		"constant":          {ID: "c", Unit: "s", Marks: []NightMark{{Figures: []float64{-2}}, {Figures: []float64{-2}}}},
		"steps off the end": {ID: "d", Marks: []NightMark{{Figures: []float64{1}}}, Steps: []NightStep{{At: 0}, {At: 1}, {At: 9}}},
	} {
		out := n.SVG()
		resultstest.WellFormed(t, n.Title, out)
		if strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
			t.Errorf("%s: a coordinate that is no number", name)
		}
	}
}

func TestWidened(t *testing.T) {
	for _, c := range [][4]float64{{90, 110, 90, 110}, {99.9, 100, 98.95, 100.95}, {100, 100, 99, 101}, {-100, -100, -101, -99}, {0, 0, -1, 1}, {-1, 1, -1, 1}} {
		if lo, hi := widened(c[0], c[1]); math.Abs(lo-c[2]) > 1e-9 || math.Abs(hi-c[3]) > 1e-9 {
			t.Errorf("%g to %g: %g to %g, want %g to %g", c[0], c[1], lo, hi, c[2], c[3])
		}
	}
}

// TestNightDates: each run's date stands once, however few there are.
func TestNightDates(t *testing.T) {
	for _, runs := range []int{1, 2, 3, 5, 40} {
		n := Nights{Title: "goodput", Unit: "bit/s"}
		for i := range runs {
			n.Marks = append(n.Marks, NightMark{When: fmt.Sprintf("2026-01-%02d 02:00", i+1), Figures: []float64{1e9}})
		}
		seen := map[string]int{}
		for _, m := range n.Marks {
			if got := strings.Count(n.SVG(), ">"+m.When+"</text>"); got > 1 {
				t.Errorf("%d runs: %s stands %d times", runs, m.When, got)
			} else if got == 1 {
				seen[m.When]++
			}
		}
		if first, last := n.Marks[0].When, n.Marks[runs-1].When; seen[first] != 1 || seen[last] != 1 {
			t.Errorf("%d runs: of the first and the last one it is not said when they began", runs)
		}
	}
}

package report

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestScaleOf: an axis reaches to the largest ratio, unless few are far off.
func TestScaleOf(t *testing.T) {
	for _, c := range []struct {
		ratios []float64
		top    float64
		cut    bool
	}{
		{nil, 1, false},
		{[]float64{1, 0.5}, 1, false},
		{[]float64{1, 1.2, 1.5, 1.9, 2.2}, 2.2, false},
		{[]float64{1, 1.2, 8, 9, 10}, 10, false}, // many are far off
		{[]float64{1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 20}, 1.4 * 1.6, true},
	} {
		if top, cut := scaleOf(c.ratios); math.Abs(top-c.top) > 1e-12 || cut != c.cut {
			t.Errorf("scaleOf(%v) = %v, %v; want %v, %v", c.ratios, top, cut, c.top, c.cut)
		}
	}
}

func TestPublishedBeside(t *testing.T) {
	jct, de, mean, upto := results.Published{Lo: -0.45, Hi: -0.13, Text: "section 6.2"}, results.Published{Lo: 0.13, Hi: 0.46}, results.Published{Lo: -0.52, Hi: -0.52}, results.Published{Lo: -0.78}
	for _, c := range []struct {
		p    results.Published
		all  []float64
		want string
	}{
		{jct, []float64{-0.31, -0.2}, "13 to 45 % less (section 6.2); here 20.0 to 31.0 % less, mean 25.5 % less: within the paper's range"},
		{jct, []float64{-0.6, -0.4, -0.09, 0.02}, "13 to 45 % less (section 6.2); here 60.0 % less to 2.0 % more, mean 26.8 % less: 1 of 4 within the paper's range, 1 beyond it, 2 short of it"},
		{jct, []float64{-0.01}, "13 to 45 % less (section 6.2); here 1.0 % less: 0 of 1 within the paper's range, 1 short of it"},
		{de, []float64{0.5, 0.3}, "13 to 46 % more; here 30.0 to 50.0 % more, mean 40.0 % more: 1 of 2 within the paper's range, 1 beyond it"},
		{de, []float64{-0.2}, "13 to 46 % more; here 20.0 % less: 0 of 1 within the paper's range, 1 short of it"},
		{mean, []float64{-0.6, -0.2}, "52 % less; here 20.0 to 60.0 % less, mean 40.0 % less: the mean is 12.0 points short of the paper's"},
		{mean, []float64{-0.62}, "52 % less; here 62.0 % less: that is 10.0 points beyond the paper's"},
		{mean, []float64{-0.621, -0.421}, "52 % less; here 42.1 to 62.1 % less, mean 52.1 % less: the mean is the paper's"},
		{upto, []float64{-0.1, -0.7}, "up to 78 % less; here 10.0 to 70.0 % less, mean 40.0 % less: the largest is 0.90 of the paper's"},
		{upto, []float64{-0.19, -0.01}, "up to 78 % less; here 1.0 to 19.0 % less, mean 10.0 % less: differs, the largest is 0.24 of the paper's"},
		{upto, nil, "up to 78 % less; here nothing to compare"},
		{results.Published{Lo: -0.63, Hi: -0.63, Bound: results.UpTo}, []float64{-0.62, -0.4}, "up to 63 % less; here 40.0 to 62.0 % less, mean 51.0 % less: the largest is 0.98 of the paper's"},
		{results.Published{Lo: 0.2, Hi: 0.2, Bound: results.AtLeast}, []float64{0.3, 0.21}, "at least 20 % more; here 21.0 to 30.0 % more, mean 25.5 % more: the smallest is as much, or more"},
		{results.Published{Lo: -0.45, Hi: -0.2, Bound: results.AtLeast}, []float64{-0.6, -0.3}, "at least 20 % less; here 30.0 to 60.0 % less, mean 45.0 % less: the smallest is as much, or more"},
		{results.Published{Lo: -0.2, Hi: -0.2, Bound: results.AtLeast}, []float64{-0.3, -0.08}, "at least 20 % less; here 8.0 to 30.0 % less, mean 19.0 % less: the smallest is 12.0 points short of the paper's"},
	} {
		var here results.Change
		for _, d := range c.all {
			here = here.Join(results.Change{Mean: d, Min: d, Max: d, Of: 1})
		}
		if got := wordsOfPublished(c.p) + "; here " + wordsOfChange(here) + besidePublished(c.p, here, c.all); got != c.want {
			t.Errorf("%v beside %v:\n got %s\nwant %s", c.p, c.all, got, c.want)
		}
	}
}

// TestPublishedAgainst: what is published of one value is held against that one alone.
func TestPublishedAgainst(t *testing.T) {
	rec := resultstest.Comparison(resultstest.Trial("", "netpack", 0, 100), resultstest.Trial("", "tetris", 0, 200), resultstest.Trial("", "comb", 0, 80))
	rec.Comparison.Published = []results.Published{
		{Metric: "avg_jct", Against: "tetris", Lo: -0.4, Hi: -0.4, Text: "Figure 1"},
		{Metric: "avg_jct", Against: "comb", Lo: 0.25, Hi: 0.25},
	}
	got := strings.Join(newComparing(rec).published("avg_jct"), "\n")
	want := "paper against tetris: 40 % less (Figure 1); here 50.0 % less: that is 10.0 points beyond the paper's\n" +
		"paper against comb: 25 % more; here 25.0 % more: that is the paper's"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if found := newComparing(rec).found("avg_jct"); found == "" {
		t.Error("what the reference makes of all others is not said")
	}
	for _, g := range rec.Compare() {
		if c, _ := g.Contrast("avg_jct"); paperBar(c) != nil {
			t.Error("a bracket for all others, of what is published of one")
		}
	}
}

// TestCompareGolden holds the reports of comparisons to their files: groups, a
// terminal without room for them, one group with pairs missing, and one repeat.
func TestCompareGolden(t *testing.T) {
	narrow := resultstest.Policies([]float64{1, 2, 4, 10, 20}, 10)
	narrow.Comparison.Metrics = narrow.Comparison.Metrics[:1]
	lacking := resultstest.Policies([]float64{4}, 3)
	lacking.Points[0].Phases = nil
	lacking.Points[4].Error = "out of memory"
	for _, c := range []struct {
		name  string
		rec   *results.Record
		width int
	}{
		{"policies.txt", resultstest.Policies([]float64{1, 2, 4, 10, 20}, 10), 100},
		{"policies-narrow.txt", narrow, 72},
		{"policies-lacking.txt", lacking, 80},
		{"policies-once.txt", resultstest.Policies([]float64{4}, 1), 80},
	} {
		text := textOf(t, c.rec, TextOptions{Width: c.width})
		golden.Compare(t, c.name, text)
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > c.width && i > 0 {
				t.Errorf("%s:%d is %d columns wide, want at most %d: %s", c.name, i+1, n, c.width, line)
			}
		}
	}
	small := resultstest.Policies([]float64{1, 20}, 3)
	small.Comparison.Metrics = small.Comparison.Metrics[:1]
	small.Points = slices.DeleteFunc(small.Points, func(p results.Point) bool {
		v, _, _ := p.Split("placement.policy")
		return v != "netpack" && v != "comb" && v != "random"
	})
	page := htmlOf(t, small, nil)
	_, section, _ := strings.Cut(page, `<section aria-labelledby="compare">`)
	section, _, _ = strings.Cut(section, "</section>")
	golden.Compare(t, "policies.html", section+"\n")
	// The legend replaces names that have no room in their bars.
	lone := resultstest.Policies([]float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10}, 2)
	v := newComparing(lone)
	if drawings := v.bars("avg_jct"); len(drawings) != 2 || drawings[0].Top != drawings[1].Top {
		t.Errorf("nine groups are %d drawings, want two on one scale", len(drawings))
	} else if svg := drawings[0].SVG(); strings.Count(svg, ">random</text>") != 1 {
		t.Errorf("the legend names random %d times", strings.Count(svg, ">random</text>"))
	}
}

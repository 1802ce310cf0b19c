package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/inabench/inabench/internal/golden"
)

// trial is a point of a policy with one figure of the cluster, in a group.
func trial(group, policy string, repeat int, jct float64) Point {
	p := Point{Repeat: repeat, Labels: []string{"placement.policy=" + policy}, Params: map[string]any{"placement.policy": policy},
		Phases: []Phase{{Figures: []Figure{
			{Metric: "avg_jct", Of: "job 7", Kind: Simulated, Value: 1e9, N: 1, Unit: "s"},
			{Metric: "avg_jct", Of: Cluster, Kind: Predicted, Value: 1e9, N: 1, Unit: "s"},
			{Metric: "avg_jct", Of: Cluster, Kind: Simulated, Value: jct, Lo: jct, Hi: jct, N: 1, Unit: "s"},
		}}}}
	if group != "" {
		p.Labels = append([]string{group}, p.Labels...)
	}
	return p
}

func comparison(points ...Point) *Record {
	return &Record{Name: "compare", Outcome: Pass, Kind: Simulated, Points: points, Comparison: &Comparison{
		Key: "placement.policy", Reference: "netpack", Metrics: []string{"avg_jct", "de"}}}
}

// show writes what a comparison found in one line a value.
func showGroups(groups []Group) string {
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "%s of %d\n", strings.Join(g.Labels, " "), g.Repeats)
		for _, c := range g.Contrasts {
			for _, v := range c.Values {
				fmt.Fprintf(&b, "  %s %s %d: %.4g ± %.4g %s, pairs %d: %.4g [%.4g, %.4g], change %.4g, left %d %s\n",
					c.Metric, v.Value, v.N, v.Mean, v.SD, c.Unit, v.Pairs, v.Ratio, v.Lo, v.Hi, v.Change(), v.Left, v.Why)
			}
			fmt.Fprintf(&b, "  %s: %.4g in [%.4g, %.4g] of %d, %d published\n", c.Metric, c.Change.Mean, c.Change.Min, c.Change.Max, c.Change.Of, len(c.Published))
		}
	}
	return b.String()
}

func TestCompare(t *testing.T) {
	ended := trial("", "tetris", 1, 90)
	ended.Error = "out of memory"
	sick := trial("", "netpack", 0, 90)
	sick.Health = []Trouble{{Where: "host h1", What: "busy", Fatal: true}}
	bare := trial("", "tetris", 0, 0)
	bare.Phases = nil
	for _, c := range []struct {
		name string
		rec  *Record
		want string
	}{
		{"no comparison", &Record{Points: []Point{trial("", "netpack", 0, 1)}}, ""},
		{"no points", comparison(), ""},
		{"key not swept", comparison(Point{Labels: []string{"pat=1"}}), ""},
		// The load of the repeats, 10 and 100, cancels out: the ratios are 2 and 8, their
		// geometric mean 4, the logarithms' SD log 2 · sqrt 2, its standard error log 2,
		// and Student's t with one degree of freedom 12.706: 4 · 2^±12.706.
		{"pairs", comparison(trial("", "tetris", 0, 20), trial("", "netpack", 0, 10), trial("", "netpack", 1, 100), trial("", "tetris", 1, 800)), ` of 2
  avg_jct netpack 2: 55 ± 63.64 s, pairs 2: 1 [1, 1], change 0, left 0 
  avg_jct tetris 2: 410 ± 551.5 s, pairs 2: 4 [0.0005986, 2.673e+04], change -0.75, left 0 
  avg_jct: -0.75 in [-0.75, -0.75] of 1, 0 published
`},
		{"one repeat has no interval", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 20), trial("", "comb", 0, 8)), ` of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 20 ± 0 s, pairs 1: 2 [2, 2], change -0.5, left 0 
  avg_jct comb 1: 8 ± 0 s, pairs 1: 0.8 [0.8, 0.8], change 0.25, left 0 
  avg_jct: -0.125 in [-0.5, 0.25] of 2, 0 published
`},
		{"groups", comparison(trial("pat=1", "netpack", 0, 10), trial("pat=1", "tetris", 0, 20), trial("pat=0", "netpack", 0, 10), trial("pat=0", "tetris", 0, 30)), `pat=1 of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 20 ± 0 s, pairs 1: 2 [2, 2], change -0.5, left 0 
  avg_jct: -0.5 in [-0.5, -0.5] of 1, 0 published
pat=0 of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 30 ± 0 s, pairs 1: 3 [3, 3], change -0.6667, left 0 
  avg_jct: -0.6667 in [-0.6667, -0.6667] of 1, 0 published
`},
		{"missing pairs", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 20), trial("", "netpack", 1, 10), ended, trial("", "tetris", 2, 70)), ` of 3
  avg_jct netpack 2: 10 ± 0 s, pairs 2: 1 [1, 1], change 0, left 1 repeat 3 is missing
  avg_jct tetris 2: 45 ± 35.36 s, pairs 1: 2 [2, 2], change -0.5, left 2 repeat 2 ended early: out of memory
  avg_jct: -0.5 in [-0.5, -0.5] of 1, 0 published
`},
		{"spoilt reference", comparison(sick, trial("", "tetris", 0, 20)), ` of 1
  avg_jct netpack 0: 0 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 host h1: busy
  avg_jct tetris 1: 20 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no pair: the reference's host h1: busy
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"no figures", comparison(trial("", "netpack", 0, 10), bare), ` of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 0: 0 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no avg_jct
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"no reference", comparison(trial("", "tetris", 0, 10)), ` of 1
  avg_jct tetris 1: 10 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no pair: the reference's is missing
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"a zero has no logarithm", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 0), trial("", "netpack", 1, 10), trial("", "tetris", 1, 20)), ` of 2
  avg_jct netpack 2: 10 ± 0 s, pairs 2: 1 [1, 1], change 0, left 0 
  avg_jct tetris 2: 10 ± 14.14 s, pairs 2: NaN [NaN, NaN], change NaN, left 0 
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := showGroups(c.rec.Compare()); got != c.want {
				t.Errorf("got:\n%swant:\n%s", got, c.want)
			}
			// Whatever is missing, the reports are written.
			textOf(t, c.rec, TextOptions{Width: 60})
			page := htmlOf(t, c.rec, nil)
			for i, s := range svgs(page) {
				wellFormed(t, fmt.Sprintf("drawing %d", i), s)
			}
			if strings.Contains(page, "NaN") {
				t.Error("the page contains NaN")
			}
		})
	}
}

// TestComparePublished: an entry belongs to the groups that it names, or to all.
func TestComparePublished(t *testing.T) {
	rec := comparison(trial("pat=1", "netpack", 0, 10), trial("pat=1", "tetris", 0, 20), trial("pat=0", "netpack", 0, 10), trial("pat=0", "tetris", 0, 30))
	rec.Comparison.Published = []Published{{Metric: "avg_jct", Text: "all"}, {Metric: "avg_jct", At: "pat=0", Text: "without memory"}, {Metric: "de", Text: "of another metric"}}
	var got []string
	for _, g := range rec.Compare() {
		for _, c := range g.Contrasts {
			for _, p := range c.Published {
				got = append(got, g.place()+": "+p.Text)
			}
		}
	}
	if want := []string{"pat=1: all", "pat=0: all", "pat=0: without memory"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCompareProperties: whatever the figures, the reference's ratio is exactly 1, a
// factor on all of a repeat's figures changes nothing, and dividing the other way
// round gives the inverse.
func TestCompareProperties(t *testing.T) {
	rng := random(t)
	close := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) }
	for range 50 {
		var points, scaled []Point
		for r := range 1 + rng.IntN(6) {
			load := math.Exp(3 * rng.NormFloat64())
			for _, policy := range []string{"netpack", "tetris", "comb"} {
				jct := math.Exp(5 * rng.NormFloat64())
				points = append(points, trial("", policy, r, jct))
				scaled = append(scaled, trial("", policy, r, jct*load))
			}
		}
		back := comparison(points...)
		back.Comparison.Reference = "tetris"
		c, s, b := comparison(points...).Compare()[0].Contrasts[0], comparison(scaled...).Compare()[0].Contrasts[0], back.Compare()[0].Contrasts[0]
		if x := c.Values[0]; x.Value != "netpack" || x.Ratio != 1 || x.Lo != 1 || x.Hi != 1 || x.Change() != 0 {
			t.Fatalf("the reference is %+v", x)
		}
		for i, x := range c.Values {
			y := s.Values[i]
			if !close(x.Ratio, y.Ratio) || !close(x.Lo, y.Lo) || !close(x.Hi, y.Hi) {
				t.Fatalf("%s is %v [%v, %v], with other loads %v [%v, %v]", x.Value, x.Ratio, x.Lo, x.Hi, y.Ratio, y.Lo, y.Hi)
			}
			if !(x.Lo <= x.Ratio && x.Ratio <= x.Hi) {
				t.Fatalf("%s: %v is not in [%v, %v]", x.Value, x.Ratio, x.Lo, x.Hi)
			}
		}
		x, _ := c.of("tetris")
		y, _ := b.of("netpack")
		if !close(x.Ratio, 1/y.Ratio) || !close(x.Lo, 1/y.Hi) {
			t.Fatalf("tetris is %v of netpack, netpack %v of tetris", x.Ratio, y.Ratio)
		}
	}
}

// TestComparedJudged: a run that compares can have expectations too. Its verdict is
// theirs, and what is compared is drawn once.
func TestComparedJudged(t *testing.T) {
	rec := policies([]float64{1, 20}, 3)
	rec.Expect = []Expect{{Name: "in time", Metric: "avg_jct", Of: Cluster, Predictor: "value", Value: 3 * 3600, Bound: "at-most", Gate: true}}
	rec.Checks, rec.Outcome, rec.Reasons = Judge(rec.Expect, rec.Points)
	text := textOf(t, rec, TextOptions{})
	for _, want := range []string{"PASS  oversubscription", "18 of 18 checks held", "avg_jct of cluster: at most 10,800 s", "average JCT normalised to netpack"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if n := len(svgs(htmlOf(t, rec, nil))); n != 3 {
		t.Errorf("%d drawings, want one a metric compared", n)
	}
}

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
	jct, de, mean, upto := Published{Lo: -0.45, Hi: -0.13, Text: "section 6.2"}, Published{Lo: 0.13, Hi: 0.46}, Published{Lo: -0.52, Hi: -0.52}, Published{Lo: -0.78}
	for _, c := range []struct {
		p    Published
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
	} {
		var here Change
		for _, d := range c.all {
			here = here.join(Change{d, d, d, 1})
		}
		if got := c.p.words() + "; here " + here.words() + c.p.beside(here, c.all); got != c.want {
			t.Errorf("%v beside %v:\n got %s\nwant %s", c.p, c.all, got, c.want)
		}
	}
}

// TestPublishedAgainst: what is published of one value is held against that one alone.
func TestPublishedAgainst(t *testing.T) {
	rec := comparison(trial("", "netpack", 0, 100), trial("", "tetris", 0, 200), trial("", "comb", 0, 80))
	rec.Comparison.Published = []Published{
		{Metric: "avg_jct", Against: "tetris", Lo: -0.4, Hi: -0.4, Text: "Figure 1"},
		{Metric: "avg_jct", Against: "comb", Lo: 0.25, Hi: 0.25},
	}
	got := strings.Join(rec.comparing().published("avg_jct"), "\n")
	want := "paper against tetris: 40 % less (Figure 1); here 50.0 % less: that is 10.0 points beyond the paper's\n" +
		"paper against comb: 25 % more; here 25.0 % more: that is the paper's"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if found := rec.comparing().found("avg_jct"); found == "" {
		t.Error("what the reference makes of all others is not said")
	}
	for _, g := range rec.Compare() {
		if c, _ := g.Contrast("avg_jct"); c.paper() != nil {
			t.Error("a bracket for all others, of what is published of one")
		}
	}
}

// TestCompareGolden holds the reports of comparisons to their files: groups, a
// terminal without room for them, one group with pairs missing, and one repeat.
func TestCompareGolden(t *testing.T) {
	narrow := policies([]float64{1, 2, 4, 10, 20}, 10)
	narrow.Comparison.Metrics = narrow.Comparison.Metrics[:1]
	lacking := policies([]float64{4}, 3)
	lacking.Points[0].Phases = nil
	lacking.Points[4].Error = "out of memory"
	for _, c := range []struct {
		name  string
		rec   *Record
		width int
	}{
		{"policies.txt", policies([]float64{1, 2, 4, 10, 20}, 10), 100},
		{"policies-narrow.txt", narrow, 72},
		{"policies-lacking.txt", lacking, 80},
		{"policies-once.txt", policies([]float64{4}, 1), 80},
	} {
		text := textOf(t, c.rec, TextOptions{Width: c.width})
		golden.Compare(t, c.name, text)
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > c.width && i > 0 {
				t.Errorf("%s:%d is %d columns wide, want at most %d: %s", c.name, i+1, n, c.width, line)
			}
		}
	}
	small := policies([]float64{1, 20}, 3)
	small.Comparison.Metrics = small.Comparison.Metrics[:1]
	small.Points = slices.DeleteFunc(small.Points, func(p Point) bool {
		v, _, _ := p.split("placement.policy")
		return v != "netpack" && v != "comb" && v != "random"
	})
	page := htmlOf(t, small, nil)
	_, section, _ := strings.Cut(page, `<section aria-labelledby="compare">`)
	section, _, _ = strings.Cut(section, "</section>")
	golden.Compare(t, "policies.html", section+"\n")
	// The legend replaces names that have no room in their bars.
	lone := policies([]float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10}, 2)
	v := lone.comparing()
	if drawings := v.bars("avg_jct"); len(drawings) != 2 || drawings[0].Top != drawings[1].Top {
		t.Errorf("nine groups are %d drawings, want two on one scale", len(drawings))
	} else if svg := drawings[0].SVG(); strings.Count(svg, ">random</text>") != 1 {
		t.Errorf("the legend names random %d times", strings.Count(svg, ">random</text>"))
	}
}

package results_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// show writes what a comparison found in one line a value.
func showGroups(groups []results.Group) string {
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
	ended := resultstest.Trial("", "tetris", 1, 90)
	ended.Error = "out of memory"
	sick := resultstest.Trial("", "netpack", 0, 90)
	sick.Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
	bare := resultstest.Trial("", "tetris", 0, 0)
	bare.Phases = nil
	for _, c := range []struct {
		name string
		rec  *results.Record
		want string
	}{
		{"no comparison", &results.Record{Points: []results.Point{resultstest.Trial("", "netpack", 0, 1)}}, ""},
		{"no points", resultstest.Comparison(), ""},
		{"key not swept", resultstest.Comparison(results.Point{Labels: []string{"pat=1"}}), ""},
		// The load of the repeats, 10 and 100, cancels out: the ratios are 2 and 8, their
		// geometric mean 4, the logarithms' SD log 2 · sqrt 2, its standard error log 2,
		// and Student's t with one degree of freedom 12.706: 4 · 2^±12.706.
		{"pairs", resultstest.Comparison(resultstest.Trial("", "tetris", 0, 20), resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "netpack", 1, 100), resultstest.Trial("", "tetris", 1, 800)), ` of 2
  avg_jct netpack 2: 55 ± 63.64 s, pairs 2: 1 [1, 1], change 0, left 0 
  avg_jct tetris 2: 410 ± 551.5 s, pairs 2: 4 [0.0005986, 2.673e+04], change -0.75, left 0 
  avg_jct: -0.75 in [-0.75, -0.75] of 1, 0 published
`},
		{"one repeat has no interval", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 20), resultstest.Trial("", "comb", 0, 8)), ` of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 20 ± 0 s, pairs 1: 2 [2, 2], change -0.5, left 0 
  avg_jct comb 1: 8 ± 0 s, pairs 1: 0.8 [0.8, 0.8], change 0.25, left 0 
  avg_jct: -0.125 in [-0.5, 0.25] of 2, 0 published
`},
		{"groups", resultstest.Comparison(resultstest.Trial("pat=1", "netpack", 0, 10), resultstest.Trial("pat=1", "tetris", 0, 20), resultstest.Trial("pat=0", "netpack", 0, 10), resultstest.Trial("pat=0", "tetris", 0, 30)), `pat=1 of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 20 ± 0 s, pairs 1: 2 [2, 2], change -0.5, left 0 
  avg_jct: -0.5 in [-0.5, -0.5] of 1, 0 published
pat=0 of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 1: 30 ± 0 s, pairs 1: 3 [3, 3], change -0.6667, left 0 
  avg_jct: -0.6667 in [-0.6667, -0.6667] of 1, 0 published
`},
		{"missing pairs", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 20), resultstest.Trial("", "netpack", 1, 10), ended, resultstest.Trial("", "tetris", 2, 70)), ` of 3
  avg_jct netpack 2: 10 ± 0 s, pairs 2: 1 [1, 1], change 0, left 1 repeat 3 is missing
  avg_jct tetris 2: 45 ± 35.36 s, pairs 1: 2 [2, 2], change -0.5, left 2 repeat 2 ended early: out of memory
  avg_jct: -0.5 in [-0.5, -0.5] of 1, 0 published
`},
		{"spoilt reference", resultstest.Comparison(sick, resultstest.Trial("", "tetris", 0, 20)), ` of 1
  avg_jct netpack 0: 0 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 host h1: busy
  avg_jct tetris 1: 20 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no pair: the reference's host h1: busy
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"no figures", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), bare), ` of 1
  avg_jct netpack 1: 10 ± 0 s, pairs 1: 1 [1, 1], change 0, left 0 
  avg_jct tetris 0: 0 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no avg_jct
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"no reference", resultstest.Comparison(resultstest.Trial("", "tetris", 0, 10)), ` of 1
  avg_jct tetris 1: 10 ± 0 s, pairs 0: NaN [NaN, NaN], change NaN, left 1 repeat 1 has no pair: the reference's is missing
  avg_jct: 0 in [0, 0] of 0, 0 published
`},
		{"a zero has no logarithm", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 0), resultstest.Trial("", "netpack", 1, 10), resultstest.Trial("", "tetris", 1, 20)), ` of 2
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
			page := formsOf(t, c.rec)["HTML"]
			for i, s := range resultstest.Svgs(page) {
				resultstest.WellFormed(t, fmt.Sprintf("drawing %d", i), s)
			}
			if strings.Contains(page, "NaN") {
				t.Error("the page contains NaN")
			}
		})
	}
}

// TestComparePublished: an entry belongs to the groups that it names, or to all.
func TestComparePublished(t *testing.T) {
	rec := resultstest.Comparison(resultstest.Trial("pat=1", "netpack", 0, 10), resultstest.Trial("pat=1", "tetris", 0, 20), resultstest.Trial("pat=0", "netpack", 0, 10), resultstest.Trial("pat=0", "tetris", 0, 30))
	rec.Comparison.Published = []results.Published{{Metric: "avg_jct", Text: "all"}, {Metric: "avg_jct", At: "pat=0", Text: "without memory"}, {Metric: "de", Text: "of another metric"}}
	var got []string
	for _, g := range rec.Compare() {
		for _, c := range g.Contrasts {
			for _, p := range c.Published {
				got = append(got, g.Place()+": "+p.Text)
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
	rng := resultstest.Random(t)
	close := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) }
	for range 50 {
		var points, scaled []results.Point
		for r := range 1 + rng.IntN(6) {
			load := math.Exp(3 * rng.NormFloat64())
			for _, policy := range []string{"netpack", "tetris", "comb"} {
				jct := math.Exp(5 * rng.NormFloat64())
				points = append(points, resultstest.Trial("", policy, r, jct))
				scaled = append(scaled, resultstest.Trial("", policy, r, jct*load))
			}
		}
		back := resultstest.Comparison(points...)
		back.Comparison.Reference = "tetris"
		c, s, b := resultstest.Comparison(points...).Compare()[0].Contrasts[0], resultstest.Comparison(scaled...).Compare()[0].Contrasts[0], back.Compare()[0].Contrasts[0]
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
		x, _ := c.Of("tetris")
		y, _ := b.Of("netpack")
		if !close(x.Ratio, 1/y.Ratio) || !close(x.Lo, 1/y.Hi) {
			t.Fatalf("tetris is %v of netpack, netpack %v of tetris", x.Ratio, y.Ratio)
		}
	}
}

// TestComparedJudged: a run that compares can have expectations too. Its verdict is
// theirs, and what is compared is drawn once.
func TestComparedJudged(t *testing.T) {
	rec := resultstest.Policies([]float64{1, 20}, 3)
	rec.Expect = []results.Expect{{Name: "in time", Metric: "avg_jct", Of: results.Cluster, Predictor: "value", Value: 3 * 3600, Bound: "at-most", Gate: true}}
	rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
	text := formsOf(t, rec)["text"]
	for _, want := range []string{"PASS  oversubscription", "18 of 18 checks held", "avg_jct of cluster: at most 10,800 s", "average JCT normalised to netpack"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if n := len(resultstest.Svgs(formsOf(t, rec)["HTML"])); n != 3 {
		t.Errorf("%d drawings, want one a metric compared", n)
	}
}

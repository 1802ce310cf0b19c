package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/resultstest"
)

func htmlOf(t *testing.T, rec *results.Record, samples []results.Sample) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteReport(&b, rec, samples, Beside{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHTMLHostile: nothing that a file names becomes markup.
func TestHTMLHostile(t *testing.T) {
	page := htmlOf(t, resultstest.Hostile(), resultstest.HostileSamples())
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("%d script elements, want the one of the page", n)
	}
	if strings.Contains(page, "alert(1)</script>") || strings.Contains(page, "<svg onload") || strings.Count(page, "</style>") != 1 {
		t.Error("a name became markup")
	}
	for _, svg := range resultstest.Svgs(page) {
		resultstest.WellFormed(t, "drawing", svg)
	}
	if !strings.Contains(page, "x&#34;&#39;&gt;&lt;script&gt;") {
		t.Error("names are not shown at all")
	}
}

// TestHTML holds every fixture's page to what a page must be: self-contained, with
// well-formed drawings that say what they show, and ids that are unique.
func TestHTML(t *testing.T) {
	wf, samples := resultstest.Waterfill()
	broken := resultstest.Quickstart()
	broken.Points[0].Error, broken.Points[0].Phases = "host h2: connection lost", nil
	broken.Checks, broken.Outcome, broken.Reasons = results.Judge(broken.Expect, broken.Points)
	for _, c := range []struct {
		rec     *results.Record
		samples []results.Sample
		svgs    int
	}{{resultstest.FairShare(), nil, 4}, {wf, samples, 2 + 1 + 18}, {resultstest.Addressing(), nil, 4}, {resultstest.Quickstart(), nil, 4}, {broken, nil, 1}, {resultstest.Policies([]float64{1, 4}, 3), nil, 3}, {resultstest.Figure8(), nil, 3}, {&results.Record{Name: "empty"}, nil, 0}} {
		t.Run(c.rec.Name, func(t *testing.T) {
			page := htmlOf(t, c.rec, c.samples)
			drawings := resultstest.Svgs(page)
			if len(drawings) != c.svgs {
				t.Errorf("%d drawings, want %d", len(drawings), c.svgs)
			}
			for i, s := range drawings {
				resultstest.WellFormed(t, fmt.Sprintf("drawing %d", i), s)
				if !strings.Contains(s, "<title") || !strings.Contains(s, "<desc") {
					t.Errorf("drawing %d has no title or description", i)
				}
			}
			ids := map[string]bool{}
			for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
				if ids[m[1]] {
					t.Errorf("id %q occurs twice", m[1])
				}
				ids[m[1]] = true
			}
			rest := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")
			for _, bad := range []string{"http:", "https:", "src=", "@import", "<link", "ZgotmplZ", "NaN"} {
				if strings.Contains(rest, bad) {
					t.Errorf("the page contains %q", bad)
				}
			}
			if !strings.Contains(page, human.UpperFirst(wordOf(c.rec))) {
				t.Error("the page does not say the outcome")
			}
		})
	}
}

// TestNearest: the check that is nearest to its limit is so on the side that its bound is about.
func TestNearest(t *testing.T) {
	check := func(bound, statistic string, err float64) results.Check {
		return results.Check{Expect: "e", Metric: "share", Of: bound, Unit: "1", Gate: true, Outcome: results.Pass, Repeats: 1, Tolerance: .02, Bound: bound, Statistic: statistic, Error: err}
	}
	for _, c := range []struct {
		name   string
		checks []results.Check
		want   string
	}{
		{"far above a least", []results.Check{check("at-least", "each", .3), check("within", "each", .01)}, "0.01"},
		{"far below a most", []results.Check{check("within", "each", -.01), check("at-most", "each", -.3)}, "-0.01"},
		{"below a least", []results.Check{check("at-least", "each", -.015), check("within", "each", .01)}, "-0.015"},
		{"above a most", []results.Check{check("within", "each", -.01), check("at-most", "each", .015)}, "0.015"},
		{"two on the good side", []results.Check{check("at-least", "each", .3), check("at-least", "each", .1)}, "0.1"},
		{"a mean of what is below a least", []results.Check{check("within", "each", .01), check("at-least", "mean", .015)}, "0.015"},
	} {
		got := ""
		for _, shown := range tilesOf(&results.Record{Checks: c.checks}) {
			if shown.Metric == "nearest_error" {
				got = shown.Key
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
}

// TestRerun: what repeats the run names the inventory, unless the experiment has it.
func TestRerun(t *testing.T) {
	for path, want := range map[string]string{
		"inventory.toml": "inabench run --on netns --repeat 1 --set name=quickstart --set inventory=inventory.toml experiment.toml",
		"fat_tree":       "inabench run --on netns --repeat 1 --set name=quickstart experiment.toml",
		"clos":           "inabench run --on netns --repeat 1 --set name=quickstart experiment.toml",
	} {
		rec := resultstest.Quickstart()
		rec.Inventory.Path = path
		if got := rerunOf(rec); got != want {
			t.Errorf("with %s: %s, want %s", path, got, want)
		}
	}
	rec := resultstest.Quickstart()
	rec.Sabotage = &results.Sabotage{Fault: "lose", Part: "tor1"}
	if got, want := rerunOf(rec), "--sabotage lose=tor1"; !strings.Contains(got, want) {
		t.Errorf("of a sabotaged run: %s, lacks %s", got, want)
	}
}

// TestBeside: where an experiment names files, it is said where they were.
func TestBeside(t *testing.T) {
	for _, c := range []struct{ experiment, file, want string }{
		{experiment: "experiments/a.toml"},
		{"experiments/a.toml", "experiments/models/autops.toml", "experiments"},
		{"a.toml", "philly.csv", "."},
		{"/lab/a.toml", "/lab/philly.csv", "/lab"},
		{"experiments/a.toml", "/data/patterns.toml", ""},
		{"/lab/a.toml", "/data/patterns.toml", ""},
	} {
		rec := resultstest.Quickstart()
		rec.Experiment.Path = c.experiment
		if c.file != "" {
			rec.Files = map[string]string{c.file: "1f"}
		}
		if got := besideOf(rec); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		if page := htmlOf(t, rec, nil); strings.Contains(page, "copy them here first") != (c.want != "") {
			t.Errorf("%+v: the page is wrong", c)
		}
	}
}

// TestValuesOfPoints: a point is drawn with the value that is expected of it, and with no other point's or subject's.
func TestValuesOfPoints(t *testing.T) {
	rec := &results.Record{Kind: results.Simulated, Expect: []results.Expect{
		{Metric: "comm_gaps", Predictor: "value", Points: []string{"n=1"}, Value: .005, Bound: "at-most"},
		{Metric: "comm_gaps", Predictor: "value", Points: []string{"n=2"}, Of: "a*", Value: .015, Bound: "at-least", Gate: true},
		{Metric: "comm_gaps", Predictor: "value", Points: []string{"n=2"}, Of: "b", Value: .02, Bound: "at-most"},
		{Metric: "comm_gaps", Predictor: "model", Points: []string{"n=1"}, Tolerance: .001, Bound: "within", Gate: true},
		{Metric: "comm_gaps", Predictor: "model", Points: []string{"n=3"}, Tolerance: .1, Relative: true, Bound: "within", Gate: true},
	}}
	for i := range 3 {
		p := results.Point{Index: i, Labels: []string{fmt.Sprintf("n=%d", i+1)}, Params: map[string]any{"n": i + 1}, Phases: []results.Phase{{}}}
		for _, of := range []string{"a", "b"} {
			f := results.Exact(results.Figure{Metric: "comm_gaps", Of: of, Kind: results.Simulated, Value: .01, Unit: "s"})
			guess := f
			guess.Kind, guess.Predictor = results.Predicted, "model"
			p.Phases[0].Figures = append(p.Phases[0].Figures, f, guess)
		}
		rec.Points = append(rec.Points, p)
	}
	plots := new(sheet).drawPlots(rec)
	if len(plots) != 1 {
		t.Fatalf("%d drawings", len(plots))
	}
	var got []string
	for _, r := range plots[0].Table {
		line := r.Where + " " + r.Of + ":"
		for i, p := range r.Predictors {
			if r.Keys[i] != "" && p != "model" {
				line += " " + p + " " + r.Keys[i]
			}
		}
		got = append(got, line)
	}
	want := []string{"n=1 a: at most 0.005", "n=1 b: at most 0.005", "n=2 a: at least 0.015", "n=2 b: at most 0.02", "n=3 a:", "n=3 b:"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	m := metricPlot{rec: rec, metric: "comm_gaps", cells: results.Settings(rec.Points)}
	for cell, want := range []float64{.001, 0, .001} {
		if lo, hi := m.tolerance(plot.Predictor{Name: "model", Gate: true}, datum{cell: cell, of: "a"}, .01); math.Abs(hi-.01-want) > 1e-12 || math.Abs(.01-lo-want) > 1e-12 {
			t.Errorf("point %d: %v to %v, want ± %v", cell, lo, hi, want)
		}
	}
}

// TestLinkPredictor: the model over links is one that predicts them.
func TestLinkPredictor(t *testing.T) {
	for _, c := range []struct {
		gated, predict []string
		want           string
	}{
		{[]string{"schedule"}, []string{"waterfill", "occupancy"}, "occupancy"},
		{[]string{"value", "mysim", "waterfill"}, []string{"waterfill", "occupancy"}, "waterfill"},
		{[]string{"occupancy"}, nil, ""},
		{nil, []string{"waterfill"}, "waterfill"},
	} {
		rec := &results.Record{Points: []results.Point{{Phases: []results.Phase{{}}}}}
		for _, p := range c.gated {
			rec.Expect = append(rec.Expect, results.Expect{Metric: "goodput", Predictor: p, Gate: true})
		}
		for _, p := range c.predict {
			f := &rec.Points[0].Phases[0].Figures
			*f = append(*f, results.Figure{Metric: "link_rate", Kind: results.Predicted, Predictor: p}, results.Figure{Metric: "goodput", Kind: results.Predicted, Predictor: "mysim"})
		}
		if got := linkPredictor(rec); got != c.want {
			t.Errorf("gated %q, predict links %q: %q, want %q", c.gated, c.predict, got, c.want)
		}
	}
}

// TestChartsOfPolicies: more combinations than colours are drawn by policy, a chart for each
// value of the rest.
func TestChartsOfPolicies(t *testing.T) {
	for models, want := range map[int][]string{
		1: {"Throughput against training.workers"},
		3: {"Throughput against training.workers, model m0", "Throughput against training.workers, model m1", "Throughput against training.workers, model m2"},
	} {
		rec := &results.Record{Kind: results.Simulated, Summary: []string{"throughput"}}
		for model := range models {
			for _, workers := range []int{4, 8, 12} {
				for _, policy := range []string{"titan", "elasticflow", "hived"} {
					rec.Points = append(rec.Points, results.Point{
						Index: len(rec.Points), Labels: []string{fmt.Sprintf("training.model=m%d", model), fmt.Sprintf("training.workers=%d", workers), "placement.policy=" + policy},
						Params: map[string]any{"training.model": fmt.Sprintf("m%d", model), "training.workers": workers, "placement.policy": policy},
						Phases: []results.Phase{{Figures: []results.Figure{results.Exact(results.Figure{Metric: "throughput", Of: results.Cluster, Kind: results.Simulated, Value: float64(100*workers + len(policy)), Unit: "1/s"})}}},
					})
				}
			}
		}
		var titles []string
		for _, p := range new(sheet).drawPlots(rec) {
			titles = append(titles, p.Title)
			for _, name := range []string{"titan", "elasticflow", "hived"} {
				if n := strings.Count(string(p.SVG), name+"</text>"); n != 1 {
					t.Errorf("%s: %d lines of %s", p.Title, n, name)
				}
			}
			if len(p.Table) != 9 {
				t.Errorf("%s: a table of %d rows", p.Title, len(p.Table))
			}
		}
		if !slices.Equal(titles, want) {
			t.Errorf("%q, want %q", titles, want)
		}
	}
}

func TestChartGolden(t *testing.T) {
	plots := new(sheet).drawPlots(resultstest.Quickstart())
	golden.Compare(t, "goodput.svg", string(plots[0].SVG))
	plots = new(sheet).drawPlots(resultstest.FairShare())
	golden.Compare(t, "share.svg", string(plots[0].SVG))
}

func TestNiceTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{{0, 1, "[0 0.2 0.4 0.6 0.8 1]"}, {0, 97e6, "[0 2e+07 4e+07 6e+07 8e+07 1e+08]"}, {0.99, 1, "[0.99 0.992 0.994 0.996 0.998 1]"}, {-3, 2, "[-3 -2 -1 0 1 2]"}, {5, 5, "[5 10]"}, {0, 0, "[0 1]"}, {math.Inf(-1), 1, "[0 1]"}, {0, 5e-324, "[0 1]"}, {-1.7e308, 1.7e308, "[0 1]"},
		{100, math.Nextafter(100, 101), "[99 99.5 100 100.5 101]"}} {
		var got []float64
		for _, v := range plot.Ticks(c.lo, c.hi, 5) {
			got = append(got, float64(int64(v*1e6+0.5*sign(v)))/1e6)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("niceTicks(%g, %g) = %v, want %s", c.lo, c.hi, got, c.want)
		}
	}
}

func sign(v float64) float64 {
	if v < 0 {
		return -1
	}
	return 1
}

func TestAsNumber(t *testing.T) {
	for _, c := range []struct {
		v    any
		want float64
		ok   bool
	}{{0.5, 0.5, true}, {int64(3), 3, true}, {"25Gbit/s", 25e9, true}, {"50us", 50e-6, true}, {"4KiB", 4096, true}, {"1e3", 1000, true}, {"pool", 0, false}, {"", 0, false}, {true, 0, false}, {"5 apples", 0, false}} {
		if got, _, ok := asNumber(c.v); ok != c.ok || got-c.want > 1e-9*c.want || c.want-got > 1e-9*c.want {
			t.Errorf("asNumber(%v) = %g, %v; want %g, %v", c.v, got, ok, c.want, c.ok)
		}
	}
}

// TestLogAxis: a sweep over decades is spread evenly.
func TestLogAxis(t *testing.T) {
	var c plot.Chart
	c.Series = []plot.Series{{Name: "A"}}
	for _, x := range []float64{1, 10, 100, 1000} {
		c.Series[0].Points = append(c.Series[0].Points, plot.Point{X: x, Y: 1, Lo: 1, Hi: 1})
	}
	svg := c.SVG()
	resultstest.WellFormed(t, "chart", svg)
	var at []float64
	for _, m := range regexp.MustCompile(`<circle class="mark c0" cx="([0-9.]+)"`).FindAllStringSubmatch(svg, -1) {
		var x float64
		fmt.Sscan(m[1], &x)
		at = append(at, x)
	}
	for i := 2; i < len(at); i++ {
		if d := (at[i] - at[i-1]) - (at[1] - at[0]); d > 0.3 || d < -0.3 {
			t.Errorf("marks at %v are not evenly spread", at)
		}
	}
	if len(at) != 4 || !strings.Contains(svg, "(logarithmic)") {
		t.Errorf("marks at %v", at)
	}
}

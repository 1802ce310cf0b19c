package results_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestUndecided: what was measured is shown also where it is not judged. Further repeats are asked
// for where an interval is too wide, and nowhere else: a machine that is late, a run that was cut
// off and a phase that is too short are so again.
func TestUndecided(t *testing.T) {
	wide := func() results.Point { return resultstest.One(0.51, 0.06, 0.5, 20) }
	with := func(change func(*results.Point)) []results.Point {
		p := wide()
		change(&p)
		return []results.Point{p}
	}
	for _, c := range []struct {
		name   string
		points []results.Point
		asks   bool
		shown  string // what was measured, also where it is not judged
	}{
		{"an interval that is too wide", []results.Point{wide()}, true, "0.51"},
		{"a machine that is late", with(func(p *results.Point) {
			p.Health = []results.Trouble{{Where: "switch tor1", What: "timer lateness p99 14 ms", Fatal: true}}
		}), false, "0.51"},
		{"an interruption", with(func(p *results.Point) { p.Error = "interrupt" }), false, "0.51"},
		{"an interruption before any phase", []results.Point{{Error: "interrupt"}}, false, ""},
		{"a full disk", with(func(p *results.Point) { p.Error = "samples.jsonl: no space left on device" }), false, "0.51"},
		{"a testbed that stood still", with(func(p *results.Point) { p.Phases[0].Spoilt = "switch tor1 stood still" }), false, "0.51"},
		{"a round of slots that is longer than the phase", with(func(p *results.Point) {
			ph := &p.Phases[0]
			ph.Figures = ph.Figures[1:]
			ph.Missing = []results.Missing{{Metric: "share", Of: "A@tor1", Why: "one period of what it is about is 9 s, of 2.5 s: " + results.ErrShort.Error()}}
		}), false, ""},
	} {
		for _, statistic := range []string{"each", "mean", "max"} {
			e := results.Expect{Name: "e", Metric: "share", Predictor: "occupancy", Statistic: statistic, Tolerance: 0.03, Gate: true}
			rec := &results.Record{Name: "e", Kind: results.Measured, Expect: []results.Expect{e}, Points: c.points}
			rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
			if rec.Outcome == results.Pass || rec.Outcome == results.Fail || rec.Checks[0].Outcome != results.Inconclusive {
				t.Errorf("%s, %s: %s %+v", c.name, statistic, rec.Outcome, rec.Checks)
			}
			for form, text := range formsOf(t, rec) {
				if asks := strings.Contains(text, "further repeat") || strings.Contains(text, "further_repeat"); asks != c.asks {
					t.Errorf("%s, %s: %s asks for repeats: %v, want %v\n%.2000s", c.name, statistic, form, asks, c.asks, text)
				}
				if statistic == "each" && !strings.Contains(text, c.shown) {
					t.Errorf("%s: %s hides what was measured:\n%.2000s", c.name, form, text)
				}
			}
		}
	}
}

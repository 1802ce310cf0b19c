package results_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestNotJudged: a run of which no expectation decides is not PASS, whatever it found, and every
// form of its report says so.
func TestNotJudged(t *testing.T) {
	open := results.Expect{Name: "shown", Metric: "share", Predictor: "occupancy", Tolerance: 0.03}
	gated := open
	gated.Name, gated.Gate = "decides", true
	good := []results.Point{resultstest.One(0.5, 0.001, 0.5, 20)}
	for _, c := range []struct {
		name    string
		expects []results.Expect
		points  []results.Point
		want    results.Outcome
	}{
		{"no expectation", nil, good, results.NotJudged},
		{"none decides", []results.Expect{open}, good, results.NotJudged},
		{"one does", []results.Expect{open, gated}, good, results.Pass},
		{"evidence does", nil, []results.Point{{Findings: []results.Finding{{Name: "switches add up", Outcome: results.Pass}}}}, results.Pass},
		{"only what must hold of every run", []results.Expect{open}, []results.Point{{Phases: good[0].Phases, Findings: []results.Finding{{Name: "the run is whole", Outcome: results.Pass, Implied: true}}}}, results.NotJudged},
		{"what must hold of every run does not", nil, []results.Point{{Findings: []results.Finding{{Name: "the run is whole", Outcome: results.Fail, Implied: true}}}}, results.Fail},
		{"the testbed failed", nil, []results.Point{{Error: "host h1: gone"}}, results.ErrorOutcome},
	} {
		if _, o, reasons := results.Judge(c.expects, c.points); o != c.want || o != results.Pass && len(reasons) == 0 {
			t.Errorf("%s: %s %q, want %s", c.name, o, reasons, c.want)
		}
	}

	rec := &results.Record{Name: "idle", Expect: []results.Expect{open}, Points: good, Kind: results.Measured}
	rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
	for form, text := range formsOf(t, rec) {
		if !strings.Contains(strings.ToLower(text), "not judged") || !strings.Contains(text, results.CodeNotJudged) {
			t.Errorf("%s does not say that nothing was judged:\n%.2000s", form, text)
		}
	}
	if junit := formsOf(t, rec)["JUnit"]; !strings.Contains(junit, `failures="0" errors="0" skipped="1"`) {
		t.Errorf("JUnit's counts:\n%s", junit)
	}
}

package results_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestIncomplete: a comparison that came out empty, or that lacks points, is undecided, and says which.
func TestIncomplete(t *testing.T) {
	sick := func(p results.Point) results.Point {
		p.Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
		return p
	}
	late := resultstest.Trial("", "tetris", 1, 20)
	late.Error = "out of memory"
	for _, c := range []struct {
		name string
		rec  *results.Record
		want string // "of: why" of each check
	}{
		{"nothing is compared", &results.Record{Points: []results.Point{resultstest.Trial("", "netpack", 0, 1)}}, ""},
		{"complete", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 20)), ""},
		{"no points", resultstest.Comparison(), "placement.policy: nothing to compare: no point has a value of placement.policy"},
		{"the key has one value", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10)), "netpack: it is the only value of placement.policy"},
		{"not swept", resultstest.Comparison(results.Point{Labels: []string{"pat=1"}}), "placement.policy: nothing to compare"},
		{"a spoilt value", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), sick(resultstest.Trial("", "tetris", 0, 20)), resultstest.Trial("", "comb", 0, 9)),
			"tetris: avg_jct has 0 pairs with netpack of 1 repeat: repeat 1 host h1: busy"},
		{"a spoilt reference", resultstest.Comparison(sick(resultstest.Trial("", "netpack", 0, 10)), resultstest.Trial("", "tetris", 0, 20)),
			"netpack: the reference has no avg_jct: repeat 1 host h1: busy; tetris: avg_jct has 0 pairs with netpack of 1 repeat: repeat 1 has no pair: the reference's host h1: busy"},
		{"everything spoilt", resultstest.Comparison(sick(resultstest.Trial("", "netpack", 0, 10)), sick(resultstest.Trial("", "tetris", 0, 20))),
			"avg_jct: nothing to compare: no point has a figure of avg_jct: host h1: busy"},
		{"one pair left of two gives no interval", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 20), resultstest.Trial("", "netpack", 1, 10), late),
			"tetris: avg_jct has 1 pair with netpack of 2 repeats: repeat 2 ended early"},
		{"two left of three do", resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), resultstest.Trial("", "tetris", 0, 20), resultstest.Trial("", "netpack", 1, 10), late,
			resultstest.Trial("", "netpack", 2, 10), resultstest.Trial("", "tetris", 2, 20)), ""},
		{"in one group of two", resultstest.Comparison(resultstest.Trial("pat=1", "netpack", 0, 10), resultstest.Trial("pat=1", "tetris", 0, 20), resultstest.Trial("pat=0", "netpack", 0, 10), sick(resultstest.Trial("pat=0", "tetris", 0, 20))),
			"tetris: avg_jct has 0 pairs"},
	} {
		if c.rec.Comparison != nil {
			c.rec.Comparison.Metrics = []string{"avg_jct"}
		}
		checks := c.rec.Incomplete()
		var got []string
		for _, k := range checks {
			got = append(got, k.Of+": "+k.Why)
			if k.FailureCode() != results.CodeComparison || !k.Gate || k.Outcome != results.Inconclusive {
				t.Errorf("%s: %+v", c.name, k)
			}
		}
		all := strings.Join(got, "; ")
		if c.want == "" != (all == "") || !strings.HasPrefix(all, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, all, c.want)
		}
		// The verdict: what is gated and holds makes no PASS of it.
		expects := []results.Expect{{Name: "e", Metric: "avg_jct", Of: results.Cluster, Predictor: "value", Value: 1e9, Bound: "at-most", Gate: true}}
		_, o, reasons := results.Judge(expects, c.rec.Points, checks...)
		if c.want != "" && (o == results.Pass || o != results.ErrorOutcome && !strings.Contains(strings.Join(reasons, "; "), results.ComparisonCheck)) {
			t.Errorf("%s: %s %q", c.name, o, reasons)
		}
	}
	rec := resultstest.Comparison(resultstest.Trial("", "netpack", 0, 10), sick(resultstest.Trial("", "tetris", 0, 20)))
	rec.Checks, rec.Outcome, rec.Reasons = results.Judge(nil, rec.Points, rec.Incomplete()...)
	for form, text := range formsOf(t, rec) {
		if !strings.Contains(text, "tetris") || form != "JUnit" && !strings.Contains(text, results.CodeComparison) {
			t.Errorf("%s does not say what is missing:\n%.1500s", form, text)
		}
	}
}

// TestEvents: a run in which what it is about did not happen is not PASS: it fails where that is
// gated, else it is undecided.
func TestEvents(t *testing.T) {
	reverts := func(n float64) []results.Point {
		return []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{{Metric: "reverts", Of: results.Cluster, Kind: results.Measured, Value: n, Lo: n, Hi: n, N: 2, Unit: "1"}}}}}}
	}
	event := results.Expect{Name: "it is reversed", Metric: "reverts", Predictor: "value", Value: 1, Bound: "at-least", Event: true}
	other := results.Expect{Name: "not below 0", Metric: "reverts", Predictor: "value", Value: 0, Bound: "at-least", Gate: true}
	for _, c := range []struct {
		name   string
		gate   bool
		skip   string
		points []results.Point
		want   results.Outcome
		code   string
	}{
		{"it happened", true, "", reverts(1), results.Pass, ""},
		{"it happened, not gated", false, "", reverts(2), results.Pass, ""},
		{"it did not", true, "", reverts(0), results.Fail, results.CodeNoEvent},
		{"it did not, not gated", false, "", reverts(0), results.Inconclusive, results.CodeNoEvent},
		{"it cannot be seen", true, "the model knows none", reverts(1), results.Inconclusive, results.CodeNoEvent},
		{"nobody looked", false, "", []results.Point{{Phases: []results.Phase{{Figures: []results.Figure{{Metric: "speed", Of: results.Cluster, N: 2}}}}}}, results.Inconclusive, results.CodeNoEvent},
	} {
		e := event
		e.Gate, e.Skip = c.gate, c.skip
		checks, o, reasons := results.Judge([]results.Expect{e, other}, c.points)
		if gate := c.gate || c.want != results.Pass; o != c.want || checks[0].FailureCode() != c.code || checks[0].Gate != gate {
			t.Errorf("%s: %s %q, %+v; want %s %s", c.name, o, reasons, checks[0], c.want, c.code)
		}
		if c.code != "" && !strings.Contains(checks[0].Why, "what the study is about") {
			t.Errorf("%s: %q", c.name, checks[0].Why)
		}
	}
	if _, o, _ := results.Judge([]results.Expect{event}, reverts(1)); o != results.NotJudged {
		t.Errorf("nothing but an event that decides nothing: %s", o)
	}
}

// TestUncompared: that no sum is wrong says nothing of a job of which none was compared.
func TestUncompared(t *testing.T) {
	e := []results.Expect{{Name: "sums are exact", Metric: "sum_errors", Predictor: "value", Statistic: "each", Gate: true}}
	point := func(repeat int, jobs ...results.JobSummary) results.Point {
		p := results.Point{Repeat: repeat, Jobs: jobs, Phases: []results.Phase{{}}}
		for _, j := range jobs {
			v := float64(j.SumErrors)
			p.Phases[0].Figures = append(p.Phases[0].Figures, results.Figure{Metric: "sum_errors", Of: j.Job, Kind: results.Measured, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"})
		}
		p.DropUncompared()
		return p
	}
	a := results.JobSummary{Job: "A", SumsChecked: 1000}
	idle := results.JobSummary{Job: "B"}
	local := results.JobSummary{Job: "C", Local: true}
	wrong := results.JobSummary{Job: "B", SumsChecked: 5, SumErrors: 2}
	others := results.JobSummary{Job: "D", Program: true}
	for _, c := range []struct {
		name   string
		points []results.Point
		want   results.Outcome
	}{
		{"compared", []results.Point{point(0, a)}, results.Pass},
		{"nothing compared", []results.Point{point(0, idle)}, results.Inconclusive},
		{"of one job of two", []results.Point{point(0, a, idle)}, results.Inconclusive},
		{"in one repeat of two", []results.Point{point(0, a, results.JobSummary{Job: "B", SumsChecked: 1}), point(1, a, idle)}, results.Inconclusive},
		{"a job on one host has none", []results.Point{point(0, a, local)}, results.Pass},
		{"a program of others has compared its own", []results.Point{point(0, others)}, results.Pass},
		{"a wrong sum is certain", []results.Point{point(0, a, wrong), point(1, a, idle)}, results.Fail},
	} {
		checks, o, reasons := results.Judge(e, c.points)
		if o != c.want {
			t.Errorf("%s: %s %q %+v, want %s", c.name, o, reasons, checks, c.want)
		}
		if c.want == results.Inconclusive && !strings.Contains(strings.Join(reasons, " "), "sums are exact B: no sum of this job was compared") {
			t.Errorf("%s: %q", c.name, reasons)
		}
	}
	for _, f := range point(0, idle).Phases[0].Figures {
		t.Errorf("a figure of what nobody compared: %+v", f)
	}
}

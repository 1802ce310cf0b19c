package results

import (
	"strings"
	"testing"
)

// TestIncomplete: a comparison that came out empty, or that lacks points, is undecided, and says which.
func TestIncomplete(t *testing.T) {
	sick := func(p Point) Point {
		p.Health = []Trouble{{Where: "host h1", What: "busy", Fatal: true}}
		return p
	}
	late := trial("", "tetris", 1, 20)
	late.Error = "out of memory"
	for _, c := range []struct {
		name string
		rec  *Record
		want string // "of: why" of each check
	}{
		{"nothing is compared", &Record{Points: []Point{trial("", "netpack", 0, 1)}}, ""},
		{"complete", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 20)), ""},
		{"no points", comparison(), "placement.policy: nothing to compare: no point has a value of placement.policy"},
		{"the key has one value", comparison(trial("", "netpack", 0, 10)), "netpack: it is the only value of placement.policy"},
		{"not swept", comparison(Point{Labels: []string{"pat=1"}}), "placement.policy: nothing to compare"},
		{"a spoilt value", comparison(trial("", "netpack", 0, 10), sick(trial("", "tetris", 0, 20)), trial("", "comb", 0, 9)),
			"tetris: avg_jct has 0 pairs with netpack of 1 repeat: repeat 1 host h1: busy"},
		{"a spoilt reference", comparison(sick(trial("", "netpack", 0, 10)), trial("", "tetris", 0, 20)),
			"netpack: the reference has no avg_jct: repeat 1 host h1: busy; tetris: avg_jct has 0 pairs with netpack of 1 repeat: repeat 1 has no pair: the reference's host h1: busy"},
		{"everything spoilt", comparison(sick(trial("", "netpack", 0, 10)), sick(trial("", "tetris", 0, 20))),
			"avg_jct: nothing to compare: no point has a figure of avg_jct: host h1: busy"},
		{"one pair left of two gives no interval", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 20), trial("", "netpack", 1, 10), late),
			"tetris: avg_jct has 1 pair with netpack of 2 repeats: repeat 2 ended early"},
		{"two left of three do", comparison(trial("", "netpack", 0, 10), trial("", "tetris", 0, 20), trial("", "netpack", 1, 10), late,
			trial("", "netpack", 2, 10), trial("", "tetris", 2, 20)), ""},
		{"in one group of two", comparison(trial("pat=1", "netpack", 0, 10), trial("pat=1", "tetris", 0, 20), trial("pat=0", "netpack", 0, 10), sick(trial("pat=0", "tetris", 0, 20))),
			"tetris: avg_jct has 0 pairs"},
	} {
		if c.rec.Comparison != nil {
			c.rec.Comparison.Metrics = []string{"avg_jct"}
		}
		checks := c.rec.Incomplete()
		var got []string
		for _, k := range checks {
			got = append(got, k.Of+": "+k.Why)
			if k.FailureCode() != CodeComparison || !k.Gate || k.Outcome != Inconclusive {
				t.Errorf("%s: %+v", c.name, k)
			}
		}
		all := strings.Join(got, "; ")
		if c.want == "" != (all == "") || !strings.HasPrefix(all, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, all, c.want)
		}
		// The verdict: what is gated and holds makes no PASS of it.
		expects := []Expect{{Name: "e", Metric: "avg_jct", Of: Cluster, Predictor: "value", Value: 1e9, Bound: "at-most", Gate: true}}
		_, o, reasons := Judge(expects, c.rec.Points, checks...)
		if c.want != "" && (o == Pass || o != ErrorOutcome && !strings.Contains(strings.Join(reasons, "; "), comparisonCheck)) {
			t.Errorf("%s: %s %q", c.name, o, reasons)
		}
	}
	rec := comparison(trial("", "netpack", 0, 10), sick(trial("", "tetris", 0, 20)))
	rec.Checks, rec.Outcome, rec.Reasons = Judge(nil, rec.Points, rec.Incomplete()...)
	for form, text := range map[string]string{"text": textOf(t, rec, TextOptions{}), "Markdown": markdownOf(t, rec), "HTML": htmlOf(t, rec, nil), "JUnit": junitOf(t, rec)} {
		if !strings.Contains(text, "tetris") || form != "JUnit" && !strings.Contains(text, CodeComparison) {
			t.Errorf("%s does not say what is missing:\n%.1500s", form, text)
		}
	}
}

// TestEvents: a run in which what it is about did not happen is not PASS: it fails where that is
// gated, else it is undecided.
func TestEvents(t *testing.T) {
	reverts := func(n float64) []Point {
		return []Point{{Phases: []Phase{{Figures: []Figure{{Metric: "reverts", Of: Cluster, Kind: Measured, Value: n, Lo: n, Hi: n, N: 2, Unit: "1"}}}}}}
	}
	event := Expect{Name: "it is reversed", Metric: "reverts", Predictor: "value", Value: 1, Bound: "at-least", Event: true}
	other := Expect{Name: "not below 0", Metric: "reverts", Predictor: "value", Value: 0, Bound: "at-least", Gate: true}
	for _, c := range []struct {
		name   string
		gate   bool
		skip   string
		points []Point
		want   Outcome
		code   string
	}{
		{"it happened", true, "", reverts(1), Pass, ""},
		{"it happened, not gated", false, "", reverts(2), Pass, ""},
		{"it did not", true, "", reverts(0), Fail, CodeNoEvent},
		{"it did not, not gated", false, "", reverts(0), Inconclusive, CodeNoEvent},
		{"it cannot be seen", true, "the model knows none", reverts(1), Inconclusive, CodeNoEvent},
		{"nobody looked", false, "", []Point{{Phases: []Phase{{Figures: []Figure{{Metric: "speed", Of: Cluster, N: 2}}}}}}, Inconclusive, CodeNoEvent},
	} {
		e := event
		e.Gate, e.Skip = c.gate, c.skip
		checks, o, reasons := Judge([]Expect{e, other}, c.points)
		if o != c.want || checks[0].FailureCode() != c.code || !checks[0].Gate {
			t.Errorf("%s: %s %q, %+v; want %s %s", c.name, o, reasons, checks[0], c.want, c.code)
		}
		if c.code != "" && !strings.Contains(checks[0].Why, "what the study is about") {
			t.Errorf("%s: %q", c.name, checks[0].Why)
		}
	}
}

// TestUncompared: that no sum is wrong says nothing of a job of which none was compared.
func TestUncompared(t *testing.T) {
	e := []Expect{{Name: "sums are exact", Metric: "sum_errors", Predictor: "value", Statistic: "each", Gate: true}}
	point := func(repeat int, jobs ...JobSummary) Point {
		p := Point{Repeat: repeat, Jobs: jobs, Phases: []Phase{{}}}
		for _, j := range jobs {
			v := float64(j.SumErrors)
			p.Phases[0].Figures = append(p.Phases[0].Figures, Figure{Metric: "sum_errors", Of: j.Job, Kind: Measured, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"})
		}
		p.DropUncompared()
		return p
	}
	a := JobSummary{Job: "A", SumsChecked: 1000}
	idle := JobSummary{Job: "B"}
	local := JobSummary{Job: "C", Local: true}
	wrong := JobSummary{Job: "B", SumsChecked: 5, SumErrors: 2}
	others := JobSummary{Job: "D", Program: true}
	for _, c := range []struct {
		name   string
		points []Point
		want   Outcome
	}{
		{"compared", []Point{point(0, a)}, Pass},
		{"nothing compared", []Point{point(0, idle)}, Inconclusive},
		{"of one job of two", []Point{point(0, a, idle)}, Inconclusive},
		{"in one repeat of two", []Point{point(0, a, JobSummary{Job: "B", SumsChecked: 1}), point(1, a, idle)}, Inconclusive},
		{"a job on one host has none", []Point{point(0, a, local)}, Pass},
		{"a program of others has compared its own", []Point{point(0, others)}, Pass},
		{"a wrong sum is certain", []Point{point(0, a, wrong), point(1, a, idle)}, Fail},
	} {
		checks, o, reasons := Judge(e, c.points)
		if o != c.want {
			t.Errorf("%s: %s %q %+v, want %s", c.name, o, reasons, checks, c.want)
		}
		if c.want == Inconclusive && !strings.Contains(strings.Join(reasons, " "), "sums are exact B: no sum of this job was compared") {
			t.Errorf("%s: %q", c.name, reasons)
		}
	}
	for _, f := range point(0, idle).Phases[0].Figures {
		t.Errorf("a figure of what nobody compared: %+v", f)
	}
}

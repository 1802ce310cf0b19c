package results

import (
	"strings"
	"testing"
)

// TestNotJudged: a run of which no expectation decides is not PASS, whatever it found, and every
// form of its report says so.
func TestNotJudged(t *testing.T) {
	open := Expect{Name: "shown", Metric: "share", Predictor: "occupancy", Tolerance: 0.03}
	gated := open
	gated.Name, gated.Gate = "decides", true
	good := []Point{one(0.5, 0.001, 0.5, 20)}
	for _, c := range []struct {
		name    string
		expects []Expect
		points  []Point
		want    Outcome
	}{
		{"no expectation", nil, good, NotJudged},
		{"none decides", []Expect{open}, good, NotJudged},
		{"one does", []Expect{open, gated}, good, Pass},
		{"evidence does", nil, []Point{{Findings: []Finding{{Name: "switches add up", Outcome: Pass}}}}, Pass},
		{"only what must hold of every run", []Expect{open}, []Point{{Phases: good[0].Phases, Findings: []Finding{{Name: "the run is whole", Outcome: Pass, Implied: true}}}}, NotJudged},
		{"what must hold of every run does not", nil, []Point{{Findings: []Finding{{Name: "the run is whole", Outcome: Fail, Implied: true}}}}, Fail},
		{"the testbed failed", nil, []Point{{Error: "host h1: gone"}}, ErrorOutcome},
	} {
		if _, o, reasons := Judge(c.expects, c.points); o != c.want || o != Pass && len(reasons) == 0 {
			t.Errorf("%s: %s %q, want %s", c.name, o, reasons, c.want)
		}
	}

	rec := &Record{Name: "idle", Expect: []Expect{open}, Points: good, Kind: Measured}
	rec.Checks, rec.Outcome, rec.Reasons = Judge(rec.Expect, rec.Points)
	for form, text := range map[string]string{
		"text": textOf(t, rec, TextOptions{}), "Markdown": markdownOf(t, rec), "HTML": htmlOf(t, rec, nil), "JUnit": junitOf(t, rec),
	} {
		if !strings.Contains(strings.ToLower(text), "not judged") || !strings.Contains(text, CodeNotJudged) {
			t.Errorf("%s does not say that nothing was judged:\n%.2000s", form, text)
		}
	}
	if junit := junitOf(t, rec); !strings.Contains(junit, `failures="0" errors="0" skipped="1"`) {
		t.Errorf("JUnit's counts:\n%s", junit)
	}
}

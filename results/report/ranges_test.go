package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// scored is a run of two settings, each with so many repeats of a score and the range of JCT that it normalises.
func scored(ranges ...[]float64) *results.Record {
	rec := &results.Record{
		Name: "scored", Kind: results.Simulated, Summary: []string{"ina_score"},
		Expect: []results.Expect{{Name: "high", Metric: "ina_score", Predictor: "value", Value: .99, Bound: "at-least", Statistic: "each", Gate: true, Reason: "it is"}},
		Published: []results.PublishedValue{{
			Figure: "Table I", Metric: "ina_score", At: []string{"k=a"}, Value: .98,
		}},
	}
	for i, list := range ranges {
		for repeat, r := range list {
			label := "k=" + string(rune('a'+i))
			figure := func(metric string, v float64) results.Figure {
				return results.Figure{Metric: metric, Of: results.Cluster, Kind: results.Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"}
			}
			rec.Points = append(rec.Points, results.Point{Index: i, Repeat: repeat, Params: map[string]any{"k": label[2:]}, Labels: []string{label},
				Phases: []results.Phase{{Figures: []results.Figure{figure("ina_score", .95), figure("jct_range", r)}}}})
		}
	}
	rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
	rec.Reproduced = rec.Reproduce()
	return rec
}

// TestRangeOf: a score has the range beside it that it is a part of, and other figures have none.
func TestRangeOf(t *testing.T) {
	rec := scored([]float64{.0022}, []float64{.07, .08, .075})
	for _, c := range []struct{ got, want string }{
		{rangeAt(rec, "ina_score", 0), " (JCT range 0.2 %)"},
		{rangeAt(rec, "ina_score", 1), " (JCT range 7.5 ± 1.2 %)"},
		{rangeAt(rec, "ina_score", 2), " (JCT range unknown)"},
		{rangesOf(rec, "ina_score"), " (JCT range 0.2 % to 7.5 %)"},
		{rangesOf(rec, "avg_jct"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestRangesShown: in each form of a report, what is said of a score that is too low, and of what a paper has, says the range.
func TestRangesShown(t *testing.T) {
	rec := scored([]float64{.0022}, []float64{.4})
	var text, markdown, html, junit bytes.Buffer
	if err := WriteText(&text, rec, TextOptions{Width: 120}); err != nil {
		t.Fatal(err)
	}
	if err := WriteMarkdown(&markdown, rec); err != nil {
		t.Fatal(err)
	}
	if err := WriteHTML(&html, rec, nil); err != nil {
		t.Fatal(err)
	}
	if err := WriteJUnit(&junit, rec); err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]string{"text": text.String(), "Markdown": markdown.String(), "HTML": html.String(), "JUnit": junit.String()} {
		if name != "JUnit" && !strings.Contains(form, "0.950 (JCT range 0.2 %)") {
			t.Errorf("%s: no range beside a score", name)
		}
		if n := strings.Count(form, "(JCT range "); n < 2 {
			t.Errorf("%s: %d ranges:\n%s", name, n, form)
		}
	}
}

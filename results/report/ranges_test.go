package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

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
				Phases: []results.Phase{{Figures: []results.Figure{figure("ina_score", .95+.01*float64(repeat%2)), figure("jct_range", r)}}}})
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
		{rangeOf(rec, "ina_score", at(0)), " (JCT range 0.2 %)"},
		{rangeOf(rec, "ina_score", at(1)), " (JCT range 7.5 ± 1.2 %)"},
		{rangeOf(rec, "ina_score", at(2)), " (JCT range unknown)"},
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
	if err := WriteReport(&html, rec, nil, Beside{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteJUnit(&junit, rec); err != nil {
		t.Fatal(err)
	}
	if row := regexp.MustCompile(`k=a .* 0\.950 +0\.2 % `); !row.MatchString(text.String()) || !strings.Contains(text.String(), " JCT range ") {
		t.Errorf("text: no column of ranges:\n%s", text.String())
	}
	for name, form := range map[string]string{"text": text.String(), "Markdown": markdown.String(), "HTML": html.String()} {
		if !strings.Contains(form, "0.950 (JCT range 0.2 %)") {
			t.Errorf("%s: no range beside a score", name)
		}
	}
	if n := strings.Count(junit.String(), "(JCT range "); n < 2 {
		t.Errorf("JUnit: %d ranges:\n%s", n, junit.String())
	}
}

// TestRangeBeside: what is no figure of one point has the range of none, not that of the first.
func TestRangeBeside(t *testing.T) {
	rec := scored([]float64{.0022}, []float64{.4})
	for _, c := range []struct {
		name  string
		check results.Check
		want  string
	}{
		{"a figure", results.Check{Metric: "ina_score", Statistic: "each", Repeats: 1, Index: 1}, " (JCT range 40.0 %)"},
		{"another metric", results.Check{Metric: "avg_jct", Statistic: "each", Repeats: 1}, ""},
		{"a mean of errors", results.Check{Metric: "ina_score", Statistic: "mean", Repeats: 1}, ""},
		{"the largest error", results.Check{Metric: "ina_score", Statistic: "max", Repeats: 1}, ""},
		{"a correlation", results.Check{Metric: "ina_score", Statistic: results.Correlation, Repeats: 1}, ""},
		{"nothing", results.Check{Metric: "ina_score", Statistic: "each"}, ""},
	} {
		if got := rangeBeside(rec, c.check); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		c.check.Outcome = results.Pass
		if out := fmt.Sprintf("%+v", caseOf(c.check, rec).Out); strings.Contains(out, "JCT range") != (c.want != "") {
			t.Errorf("%s: JUnit has %s", c.name, out)
		}
	}
}

// TestRangesFit: with intervals of scores and of ranges, a report is as wide as its terminal.
func TestRangesFit(t *testing.T) {
	for _, width := range []int{80, 120} {
		var text bytes.Buffer
		if err := WriteText(&text, scored([]float64{.07, .08, .075}, []float64{.4, .41, .4}), TextOptions{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns, of %d: %s", n, width, line)
			}
		}
	}
}

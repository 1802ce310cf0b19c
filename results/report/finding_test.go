package report

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// A finding decides the run, whatever figures say, and its code is in what people and CI
// read.
func TestFindings(t *testing.T) {
	figure := results.Figure{Metric: "algbw", Of: "A", Kind: results.Measured, Value: 1, Lo: 1, Hi: 1, N: 2, Unit: "bit/s"}
	expect := results.Expect{Name: "fast", Metric: "algbw", Predictor: "value", Value: 1, Statistic: "each", Gate: true}
	fallback := results.Finding{Name: "switches add up", Code: results.CodeFallback, Of: "A", Outcome: results.Fail, What: "NCCL chose RING", Evidence: []string{"line 7: Algo RING"}}
	proven := results.Finding{Name: "switches add up", Code: results.CodeFallback, Of: "A", Outcome: results.Pass, What: "a tree was granted"}
	unproven := results.Finding{Name: "switches add up", Code: results.CodeUnproven, Of: "A", Outcome: results.Inconclusive, What: "NCCL 2.19.4 does not log it", Evidence: []string{"line 7: a tree was granted"}}
	point := func(repeat int, f ...results.Finding) results.Point {
		return results.Point{Repeat: repeat, Phases: []results.Phase{{Figures: []results.Figure{figure}}}, Findings: f}
	}
	for _, test := range []struct {
		name   string
		points []results.Point
		want   results.Outcome
		checks int
	}{
		{"proven", []results.Point{point(0, proven)}, results.Pass, 2},
		{"fallback", []results.Point{point(0, fallback)}, results.Fail, 2},
		{"one repeat of two", []results.Point{point(0, proven), point(1, fallback)}, results.Fail, 2},
		{"one repeat of two, the other way round", []results.Point{point(0, fallback), point(1, proven)}, results.Fail, 2},
		{"unproven", []results.Point{point(0, unproven)}, results.Inconclusive, 2},
		{"one repeat of two unproven", []results.Point{point(0, proven), point(1, unproven)}, results.Inconclusive, 2},
		{"one repeat unproven, one a fallback", []results.Point{point(0, unproven), point(1, fallback)}, results.Fail, 2},
		{"none", []results.Point{point(0)}, results.Pass, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			rec := &results.Record{Name: "sharp", Expect: []results.Expect{expect}, Points: test.points}
			rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
			if rec.Outcome != test.want || len(rec.Checks) != test.checks {
				t.Errorf("%s with %d checks, want %s with %d: %q", rec.Outcome, len(rec.Checks), test.want, test.checks, rec.Reasons)
			}
			says := []string{results.CodeFallback, "NCCL chose RING", "line 7"}
			switch test.want {
			case results.Pass:
				return
			case results.Inconclusive:
				says = []string{results.CodeUnproven, "NCCL 2.19.4 does not log it", "line 7"}
			}
			for name, write := range map[string]func(*strings.Builder) error{
				"text":  func(b *strings.Builder) error { return WriteText(b, rec, TextOptions{Width: 100}) },
				"junit": func(b *strings.Builder) error { return WriteJUnit(b, rec) },
				"html":  func(b *strings.Builder) error { return WriteReport(b, rec, nil, Beside{}) },
			} {
				var b strings.Builder
				if err := write(&b); err != nil {
					t.Fatal(err)
				}
				flat := strings.Join(strings.Fields(b.String()), " ")
				for _, want := range says {
					if !strings.Contains(flat, want) {
						t.Errorf("%s lacks %q:\n%s", name, want, b.String())
					}
				}
			}
		})
	}
}

package results

import (
	"strings"
	"testing"
)

// A finding decides the run, whatever figures say, and its code is in what people and CI
// read.
func TestFindings(t *testing.T) {
	figure := Figure{Metric: "algbw", Of: "A", Kind: Measured, Value: 1, Lo: 1, Hi: 1, N: 2, Unit: "bit/s"}
	expect := Expect{Name: "fast", Metric: "algbw", Predictor: "value", Value: 1, Statistic: "each", Gate: true}
	fallback := Finding{Name: "switches add up", Code: CodeFallback, Of: "A", Outcome: Fail, What: "NCCL chose RING", Evidence: []string{"line 7: Algo RING"}}
	proven := Finding{Name: "switches add up", Code: CodeFallback, Of: "A", Outcome: Pass, What: "a tree was granted"}
	unproven := Finding{Name: "switches add up", Code: CodeUnproven, Of: "A", Outcome: Inconclusive, What: "NCCL 2.19.4 does not log it", Evidence: []string{"line 7: a tree was granted"}}
	point := func(repeat int, f ...Finding) Point {
		return Point{Repeat: repeat, Phases: []Phase{{Figures: []Figure{figure}}}, Findings: f}
	}
	for _, test := range []struct {
		name   string
		points []Point
		want   Outcome
		checks int
	}{
		{"proven", []Point{point(0, proven)}, Pass, 2},
		{"fallback", []Point{point(0, fallback)}, Fail, 2},
		{"one repeat of two", []Point{point(0, proven), point(1, fallback)}, Fail, 2},
		{"one repeat of two, the other way round", []Point{point(0, fallback), point(1, proven)}, Fail, 2},
		{"unproven", []Point{point(0, unproven)}, Inconclusive, 2},
		{"one repeat of two unproven", []Point{point(0, proven), point(1, unproven)}, Inconclusive, 2},
		{"one repeat unproven, one a fallback", []Point{point(0, unproven), point(1, fallback)}, Fail, 2},
		{"none", []Point{point(0)}, Pass, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			rec := &Record{Name: "sharp", Expect: []Expect{expect}, Points: test.points}
			rec.Checks, rec.Outcome, rec.Reasons = Judge(rec.Expect, rec.Points)
			if rec.Outcome != test.want || len(rec.Checks) != test.checks {
				t.Errorf("%s with %d checks, want %s with %d: %q", rec.Outcome, len(rec.Checks), test.want, test.checks, rec.Reasons)
			}
			says := []string{CodeFallback, "NCCL chose RING", "line 7"}
			switch test.want {
			case Pass:
				return
			case Inconclusive:
				says = []string{CodeUnproven, "NCCL 2.19.4 does not log it", "line 7"}
			}
			for name, write := range map[string]func(*strings.Builder) error{
				"text":  func(b *strings.Builder) error { return WriteText(b, rec, TextOptions{Width: 100}) },
				"junit": func(b *strings.Builder) error { return WriteJUnit(b, rec) },
				"html":  func(b *strings.Builder) error { return WriteHTML(b, rec, nil) },
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

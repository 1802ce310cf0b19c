package history

import (
	"testing"

	"github.com/inabench/inabench/results"
)

// TestPairOutcome: two runs of which nothing was compared did not stay the same.
func TestPairOutcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		judged  bool
		counts  map[PairChange]int
		outcome results.Outcome
		code    string
	}{
		{"all the same", true, map[PairChange]int{Unchanged: 2}, results.Pass, ""},
		{"some are new", true, map[PairChange]int{Unchanged: 1, New: 3}, results.Pass, ""},
		{"all are new", true, map[PairChange]int{New: 3}, results.Inconclusive, results.CodeNoFigure},
		{"all are gone", true, map[PairChange]int{Gone: 3}, results.Inconclusive, results.CodeNoFigure},
		{"none is decided", true, map[PairChange]int{Undecided: 1, New: 3}, results.Inconclusive, results.CodeNoise},
		{"one got worse", true, map[PairChange]int{Worse: 1, Undecided: 4}, results.Fail, results.CodeRegression},
		{"other settings", false, map[PairChange]int{Unchanged: 2}, results.Inconclusive, results.CodeSettings},
	} {
		p := &Pair{Judged: c.judged, Metrics: []PairMetric{{Metric: "goodput", Counts: c.counts}}}
		if p.Outcome() != c.outcome || p.Code() != c.code {
			t.Errorf("%s: %s %s, want %s %s", c.name, p.Outcome(), p.Code(), c.outcome, c.code)
		}
	}
}

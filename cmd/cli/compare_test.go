package cli

import (
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
)

// TestPairOutcome: two runs of which nothing was compared did not stay the same.
func TestPairOutcome(t *testing.T) {
	for _, c := range []struct {
		name    string
		judged  bool
		counts  map[history.PairChange]int
		outcome results.Outcome
		code    string
	}{
		{"all the same", true, map[history.PairChange]int{history.Unchanged: 2}, results.Pass, ""},
		{"some are new", true, map[history.PairChange]int{history.Unchanged: 1, history.New: 3}, results.Pass, ""},
		{"all are new", true, map[history.PairChange]int{history.New: 3}, results.Inconclusive, results.CodeNoFigure},
		{"all are gone", true, map[history.PairChange]int{history.Gone: 3}, results.Inconclusive, results.CodeNoFigure},
		{"none is decided", true, map[history.PairChange]int{history.Undecided: 1, history.New: 3}, results.Inconclusive, results.CodeNoise},
		{"one got worse", true, map[history.PairChange]int{history.Worse: 1, history.Undecided: 4}, results.Fail, results.CodeRegression},
		{"other settings", false, map[history.PairChange]int{history.Unchanged: 2}, results.Inconclusive, results.CodeSettings},
	} {
		v := pairView{Pair: &history.Pair{Judged: c.judged, Metrics: []history.PairMetric{{Metric: "goodput", Counts: c.counts}}}}
		if v.outcome() != c.outcome || v.code() != c.code {
			t.Errorf("%s: %s %s, want %s %s", c.name, v.outcome(), v.code(), c.outcome, c.code)
		}
	}
}

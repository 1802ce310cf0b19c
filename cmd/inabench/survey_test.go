package main

import (
	"testing"

	"github.com/inabench/inabench/results"
)

// TestNextAttempt: what was not decided is measured for as long as the checks say that it takes, within
// bounds, and then in repeats.
func TestNextAttempt(t *testing.T) {
	undecided := func(more ...int) *results.Record {
		rec := &results.Record{Checks: []results.Check{{Outcome: results.Pass, More: 50}}}
		for _, m := range more {
			rec.Checks = append(rec.Checks, results.Check{Outcome: results.Inconclusive, More: m})
		}
		return rec
	}
	for _, c := range []struct {
		name string
		rec  *results.Record
		was  attempt
		want attempt
	}{
		{"one repeat would do", undecided(1), attempt{1, 1}, attempt{1, 3}},
		{"the one that needs most", undecided(1, 3, 2), attempt{1, 1}, attempt{1, 6}},
		{"too much", undecided(1, 40), attempt{1, 1}, attempt{1, 8}},
		{"nobody knows", undecided(1, 0), attempt{1, 1}, attempt{1, 4}},
		{"again", undecided(1), attempt{1, 6}, attempt{3, 3}},
	} {
		if got := c.was.next(c.rec); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

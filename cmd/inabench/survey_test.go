package main

import (
	"testing"

	"github.com/inabench/inabench/results"
)

// TestNextAttempt: what was not decided is measured for as long as the checks say that it takes, within
// bounds, and then in repeats; slower where the machine was in the way.
func TestNextAttempt(t *testing.T) {
	undecided := func(more ...int) *results.Record {
		rec := &results.Record{Checks: []results.Check{{Outcome: results.Pass, More: 50}}}
		for _, m := range more {
			rec.Checks = append(rec.Checks, results.Check{Outcome: results.Inconclusive, More: m})
		}
		return rec
	}
	varies := undecided(2, 1)
	varies.Checks[1].Code, varies.Checks[2].Code = results.CodeVaries, results.CodeVaries
	partly := undecided(2, 1)
	partly.Checks[1].Code = results.CodeVaries
	spoilt := undecided(1)
	spoilt.Points = []results.Point{{Phases: []results.Phase{{}, {Spoilt: "the testbed stood still"}}}}
	for _, c := range []struct {
		name string
		rec  *results.Record
		was  attempt
		want attempt
		ok   bool
	}{
		{"one repeat would do", undecided(1), attempt{1, 1, 1}, attempt{1, 3, 1}, true},
		{"the one that needs most", undecided(1, 3, 2), attempt{1, 1, 1}, attempt{1, 6, 1}, true},
		{"too much", undecided(1, 40), attempt{1, 1, 1}, attempt{1, 8, 1}, true},
		{"nobody knows", undecided(1, 0), attempt{1, 1, 1}, attempt{1, 4, 1}, true},
		{"again", undecided(1), attempt{1, 6, 1}, attempt{3, 3, 1}, true},
		{"and again", undecided(1), attempt{3, 3, 1}, attempt{3, 3, 1}, false},
		{"runs differ", varies, attempt{1, 1, 1}, attempt{3, 1, 1}, true},
		{"and something else", partly, attempt{1, 1, 1}, attempt{1, 3, 1}, true},
		{"the machine was in the way", spoilt, attempt{1, 6, 1}, attempt{1, 6, 1.5}, true},
	} {
		if got, ok := c.was.next(c.rec); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

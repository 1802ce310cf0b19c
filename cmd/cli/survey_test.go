package cli

import (
	"testing"

	"github.com/inabench/inabench/results"
)

// TestNextAttempt: what was not decided is measured for longer, and then in repeats, or slower where the
// machine was in the way.
func TestNextAttempt(t *testing.T) {
	undecided := &results.Record{Checks: []results.Check{{Outcome: results.Inconclusive, More: 1}}}
	differ := &results.Record{Checks: []results.Check{{Outcome: results.Pass}, {Outcome: results.Inconclusive, Code: results.CodeVaries}}}
	spoilt := &results.Record{Points: []results.Point{{Phases: []results.Phase{{}, {Spoilt: "the testbed stood still"}}}}}
	for _, c := range []struct {
		name string
		rec  *results.Record
		was  attempt
		want attempt
		ok   bool
	}{
		{"undecided", undecided, attempt{1, 1, 1}, attempt{1, 3, 1}, true},
		{"again", undecided, attempt{1, 3, 1}, attempt{3, 1.5, 1}, true},
		{"and again", undecided, attempt{3, 1.5, 1}, attempt{3, 1.5, 1}, false},
		{"runs differ", differ, attempt{1, 1, 1}, attempt{3, 1.5, 1}, true},
		{"the machine was in the way", spoilt, attempt{1, 1, 1}, attempt{1, 1, 2}, true},
		{"of repeats too", spoilt, attempt{3, 1.5, 1}, attempt{3, 1.5, 2}, true},
	} {
		if got, ok := c.was.next(c.rec); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestChildError: a run that came to nothing ends this program with its exit code; one that a signal ended is no expectation
// that failed, but a testbed that did.
func TestChildError(t *testing.T) {
	for code, want := range map[int]int{-1: exitTestbed, exitInvalid: exitInvalid, exitBusy: exitBusy} {
		if got := codeOf(t.Context(), childError{"netns", code, "signal: killed"}); got != want {
			t.Errorf("a run that exited with %d: exit code %d, want %d", code, got, want)
		}
	}
}

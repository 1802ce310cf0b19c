package experiments

import (
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
)

// TestNames: a part is named by what failed, not by what was undecided.
func TestNames(t *testing.T) {
	inv, err := inventory.Load("racks/three-hosts.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		part, says string
		outcome    results.Outcome
		want       bool
	}{
		{"tor1", "in common is switch tor1", results.Fail, true},
		{"tor1", "switch tor1 was late", results.Inconclusive, false},
		{"A/0", "worker A/0 on host h1 stood still", results.Fail, true},
		{"A/0", "rank 0 of job A left", results.Fail, true},
		{"A/0", "worker B/0 on host h1 stood still", results.Fail, false},
		{"*/0", "worker 12/0 on host h1 stood still", results.Fail, true},
		{"A/*", "worker A/1 on host h2 stood still", results.Fail, true},
		{"h1->tor1", "who counts host h1 loses", results.Fail, true},
		{"tor1->h3", "host h30 loses", results.Fail, false},
		{"A/ps", "its PS A/ps on host h3", results.Fail, true},
	} {
		rec := &results.Record{Sabotage: &results.Sabotage{Part: c.part}, Checks: []results.Check{{Outcome: c.outcome, Why: c.says}}}
		if got := names(rec, inv); got != c.want {
			t.Errorf("%s by %q (%s): %t", c.part, c.says, c.outcome, got)
		}
	}
}

package experiments

import (
	"slices"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

func TestTrees(t *testing.T) {
	plan := &placement.Plan{Jobs: []placement.JobPlan{
		{Name: "A", PS: "h8", Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}, {Rank: 2, Host: "h5"}}, Tree: []placement.TreeNode{
			{Switch: "tor1", Parent: "spine1", Aggregate: true, Expect: 0b011},
			{Switch: "spine1", Parent: "tor2", Expect: 0b011},
			{Switch: "tor2", Aggregate: true, Expect: 0b111},
		}},
		{Name: "ring", Collective: placement.Ring, Workers: []placement.Worker{{Host: "h1"}, {Rank: 1, Host: "h2"}}},
	}}
	got := trees(plan)
	if len(got) != 1 || got[0].Job != "A" || !slices.Equal(got[0].Adds, []string{"tor1", "tor2"}) {
		t.Fatalf("%+v", got)
	}
	want := []results.TreeHop{{From: "h1", To: "tor1"}, {From: "h2", To: "tor1"}, {From: "h5", To: "tor2"}, {From: "tor1", To: "spine1"}, {From: "spine1", To: "tor2"}, {From: "tor2", To: "h8"}}
	if !slices.Equal(got[0].Hops, want) {
		t.Errorf("%v, want %v", got[0].Hops, want)
	}
	if got := trees(nil); got != nil {
		t.Errorf("trees of no plan: %v", got)
	}
	var many placement.Plan
	for range 400 {
		many.Jobs = append(many.Jobs, plan.Jobs[0])
	}
	n := 0
	for _, tree := range trees(&many) {
		n += len(tree.Hops)
	}
	if n == 0 || n > maxHops {
		t.Errorf("%d edges", n)
	}
}

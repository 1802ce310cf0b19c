package experiments

import (
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// maxHops is how many edges of trees a record keeps of a point: more than anybody looks at.
const maxHops = 500

// trees are those of a plan's jobs, for the record: from the workers' hosts to the PS, or to the
// switch that has all. Jobs of one host have none, nor have rings; nor has what has no plan.
func trees(plan *placement.Plan) []results.Tree {
	if plan == nil {
		return nil
	}
	var out []results.Tree
	hops := 0
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		if j.Local() || len(j.Tree) == 0 {
			continue
		}
		t := results.Tree{Job: j.Name}
		leaf := map[int]string{} // of each worker's rank: the first switch that has it, as leaves come first
		for _, n := range j.Tree {
			for _, w := range j.Workers {
				if n.Expect&(1<<w.Rank) != 0 && leaf[w.Rank] == "" {
					leaf[w.Rank] = n.Switch
				}
			}
		}
		for _, w := range j.Workers {
			t.Hops = append(t.Hops, results.TreeHop{From: w.Host, To: leaf[w.Rank]})
		}
		for _, n := range j.Tree {
			switch {
			case n.Parent != "":
				t.Hops = append(t.Hops, results.TreeHop{From: n.Switch, To: n.Parent})
			case j.PS != "":
				t.Hops = append(t.Hops, results.TreeHop{From: n.Switch, To: j.PS})
			}
			if n.Aggregate {
				t.Adds = append(t.Adds, n.Switch)
			}
		}
		if hops += len(t.Hops); hops > maxHops {
			break
		}
		out = append(out, t)
	}
	return out
}

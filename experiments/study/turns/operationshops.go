package turns

import (
	"slices"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed/mina/controller"
)

// ofTrees are the counters of what ranks hand over to switches, by the names that those of other
// workers have; a rank's own of these names have none: its sockets carry its ring too, which no switch
// counts.
var ofTrees = map[string]string{
	"worker_tree_tx_packets": "worker_tx_packets", "worker_tree_rx_packets": "worker_rx_packets",
	"worker_tx_packets": "", "worker_rx_packets": "",
}

// settle adds the jobs that had one tree all the time, which began at start on the run's clock. Of
// others nobody knows which of their trees a packet was for. What ranks send each other without trees
// passes the same ports.
func settle(p *study.Placed, start float64, jobs []training.Outcome, events []controller.Event, inv *inventory.Inventory) {
	trees, several := map[uint16]*controller.TreeSet{}, map[uint16]bool{}
	for _, e := range events {
		if e.Tree == nil {
			continue
		}
		if had := trees[e.Job]; had != nil && !slices.Equal(had.Switches, e.Tree.Switches) {
			several[e.Job] = true
		}
		trees[e.Job] = e.Tree
	}
	p.Begun, p.Beside = map[string]float64{}, true
	for i := range jobs {
		j := &jobs[i]
		if t := trees[j.ID]; t != nil && !several[j.ID] && len(j.On) > 1 {
			p.Plan.Jobs = append(p.Plan.Jobs, treePlan(j, t, inv.Topology()))
			p.Begun[j.Name] = start + j.Start.Seconds()
		}
	}
}

// treePlan is a job's tree as plans have it.
func treePlan(j *training.Outcome, t *controller.TreeSet, topo *inventory.Topology) placement.JobPlan {
	plan := placement.JobPlan{ID: j.ID, Name: j.Name, Collective: placement.INA}
	parents := map[string]string{t.Root: ""}
	for queue := []string{t.Root}; len(queue) > 0; queue = queue[1:] {
		for _, l := range topo.Out(queue[0]) {
			to := topo.Links[l].To
			if _, known := parents[to]; !known && slices.Contains(t.Switches, to) {
				parents[to] = queue[0]
				queue = append(queue, to)
			}
		}
	}
	expect := map[string]uint64{}
	for rank, h := range j.On {
		plan.Workers = append(plan.Workers, placement.Worker{Rank: rank, Host: h})
		for _, l := range topo.Out(h) {
			at := topo.Links[l].To
			if _, in := parents[at]; !in {
				continue
			}
			for ; at != ""; at = parents[at] {
				expect[at] |= 1 << rank
			}
			break
		}
	}
	for _, s := range t.Switches {
		plan.Tree = append(plan.Tree, placement.TreeNode{Switch: s, Parent: parents[s], Aggregate: true, Expect: expect[s]})
	}
	return plan
}

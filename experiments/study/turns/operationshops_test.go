package turns

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/mina/controller"
)

// TestPlansOfOperations: jobs are held hop by hop over the one tree that they had, and what ranks
// count of trees stands for what other workers count of all.
func TestPlansOfOperations(t *testing.T) {
	racks, err := spec.Kinds{}.Load("../../two-racks.toml")
	if err != nil {
		t.Fatal(err)
	}
	inv := racks.Inventory()
	hosts := func(sw string, n int) (out []string) {
		for _, h := range inv.Hosts {
			if h.NICs[0].Switch == sw && len(out) < n {
				out = append(out, h.Name)
			}
		}
		return out
	}
	job := func(id uint16, name string, on ...string) training.Outcome {
		return training.Outcome{Job: training.Job{ID: id, Name: name}, On: on, Start: time.Second}
	}
	a, b := hosts("tor1", 2), hosts("tor2", 1)
	set := func(root string, all ...string) *controller.TreeSet {
		return &controller.TreeSet{Root: root, Switches: all}
	}
	jobs := []training.Outcome{job(1, "wide", a[0], b[0], a[1]), job(2, "moved", a...), job(3, "local", a[0]), job(4, "none", a...)}
	events := []controller.Event{
		{Event: "tree", Job: 1, Tree: set("spine1", "tor1", "tor2", "spine1")}, {Event: "tree", Job: 2, Tree: set("tor1", "tor1")},
		{Event: "tree", Job: 1, Tree: set("spine1", "tor1", "tor2", "spine1")}, {Event: "none", Job: 2}, {Event: "tree", Job: 2, Tree: set("spine1", "tor1", "spine1")},
		{Event: "tree", Job: 3, Tree: set("tor1", "tor1")},
	}
	var p study.Placed
	p.Keep(ofTrees, []results.Sample{
		{T: 3, Metric: "worker_tree_tx_packets", Of: "wide/0", Value: 7}, {T: 3, Metric: "worker_tx_packets", Of: "wide/0", Value: 50},
		{T: 3, Metric: "worker_tree_rx_packets", Of: "wide/0", Value: 8}, {T: 3, Metric: "worker_rx_packets", Of: "wide/0", Value: 50},
		{T: 2, Metric: "job_in_packets", Of: "wide@tor1", Value: 9}, {T: 2, Metric: "nic_tx_bytes", Of: "h1->tor1", Value: 1},
	})
	settle(&p, 10, jobs, events, inv)
	var names []string
	for _, j := range p.Plan.Jobs {
		names = append(names, j.Name)
	}
	if got := strings.Join(names, " "); got != "wide" || p.Begun["wide"] != 11 || !p.Beside {
		t.Fatalf("held are %q, from %v on, beside others %t", got, p.Begun, p.Beside)
	}
	want := []placement.TreeNode{
		{Switch: "tor1", Parent: "spine1", Aggregate: true, Expect: 0b101}, {Switch: "tor2", Parent: "spine1", Aggregate: true, Expect: 0b010},
		{Switch: "spine1", Aggregate: true, Expect: 0b111},
	}
	if got := p.Plan.Jobs[0].Tree; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	seen := map[string]float64{}
	for of, s := range p.Readings.All() {
		seen[of.Metric] = s.V[len(s.V)-1]
	}
	if len(seen) != 3 || seen["worker_tx_packets"] != 7 || seen["worker_rx_packets"] != 8 {
		t.Errorf("%+v", seen)
	}
}

package placement_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/policytest"
	"github.com/inabench/inabench/placement/titan"
)

// Jobs that do not fit wait, and the others are placed without them: those that name
// hosts first, then the rest in their order.
func TestBatch(t *testing.T) {
	inv := policytest.Racks(1, 3, 2) // three hosts of two GPUs
	h := inv.Hosts
	jobs := []placement.Job{
		{ID: 1, Name: "large", GPUs: 900, Collective: placement.INA},
		{ID: 2, Name: "A", GPUs: 3, Collective: placement.INA},
		{ID: 3, Name: "twice", GPUs: 4, Hosts: []string{h[0].Name}, Collective: placement.INA},
		{ID: 4, Name: "B", GPUs: 2, Hosts: []string{h[2].Name}, Collective: placement.INA},
		{ID: 5, Name: "none", Collective: placement.INA},
		{ID: 6, Name: "C", GPUs: 2, Collective: placement.INA},
	}
	plan, waiting, err := placement.Batch(baseline.FirstFit(), inv, jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range plan.Jobs {
		got = append(got, j.Name)
	}
	for _, e := range waiting {
		free := 0
		for _, f := range e.Free {
			free += f.Free
		}
		if free != 1 { // of six, A and B have five
			t.Errorf("%v: %d GPUs are free in the end", e, free)
		}
		got = append(got, "-"+e.Job)
	}
	if got, want := strings.Join(got, " "), "A B -large -twice -none -C"; got != want {
		t.Errorf("placed %s, want %s", got, want)
	}
	if _, err := placement.On(baseline.FirstFit()).Place(inv, jobs, 0); err == nil || !strings.Contains(err.Error(), "job large asks for 900 GPUs, 1 are free") {
		t.Errorf("all of them: %v", err)
	}
}

// GPUs of a job that has too many workers are free for others.
func TestBatchRefused(t *testing.T) {
	inv := policytest.Racks(1, 70, 1)
	jobs := []placement.Job{
		{ID: 1, Name: "big", GPUs: 65, Collective: placement.INA},
		{ID: 2, Name: "small", GPUs: 6, Collective: placement.INA},
	}
	plan, waiting, err := placement.Batch(baseline.FirstFit(), inv, jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Jobs) != 1 || plan.Jobs[0].Name != "small" || len(waiting) != 1 || waiting[0].Job != "big" || waiting[0].Reason == "" {
		t.Errorf("placed %+v, waiting %v", plan.Jobs, waiting)
	}
}

// A policy may number ranks across hosts, and keep GPUs: the plan says so, and what is kept
// is not free.
func TestBatchRanks(t *testing.T) {
	inv := policytest.Racks(1, 4, 4)
	name := func(i int) string { return inv.Hosts[i].Name }
	jobs := []placement.Job{
		{ID: 1, Name: "there", GPUs: 1, Hosts: []string{name(1)}, Collective: placement.Ring},
		{ID: 2, Name: "too", GPUs: 2, Hosts: []string{name(2)}, Collective: placement.Ring},
		{ID: 3, Name: "also", GPUs: 3, Hosts: []string{name(3)}, Collective: placement.Ring},
		{ID: 4, Name: "A", GPUs: 4, Collective: placement.Ring},
	}
	plan, _, err := placement.Batch(titan.New(titan.Options{}), inv, jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{name(1), name(2), name(1), name(2)}
	if a := plan.Jobs[3]; !slices.Equal(a.Ranks, want) || !slices.Equal(a.Hosts(), want) {
		t.Errorf("ranks on %v, want %v", a.Hosts(), want)
	}
	if there := plan.Jobs[1]; !slices.Equal(there.Hosts(), []string{name(2), name(2)}) || there.Ranks != nil {
		t.Errorf("%+v", there)
	}
	jobs[3].GPUs = 3
	jobs = append(jobs, placement.Job{ID: 5, Name: "B", GPUs: 7, Collective: placement.Ring})
	plan, waiting, err := placement.Batch(baseline.ElasticFlow().PowerOfTwo(), inv, jobs[3:], 0)
	if err != nil || len(waiting) > 0 {
		t.Fatal(waiting, err)
	}
	if a := plan.Jobs[0]; len(a.Spare) != 1 || a.Spare[0].GPUs != 1 {
		t.Errorf("of four GPUs for three workers it keeps %v", a.Spare)
	}
	if err := placement.Validate(plan, inv); err != nil {
		t.Error(err)
	}
	jobs = append(jobs, placement.Job{ID: 6, Name: "C", GPUs: 9, Collective: placement.Ring})
	plan, waiting, err = placement.Batch(baseline.ElasticFlow().PowerOfTwo(), inv, jobs[3:], 0)
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	left := 16
	for _, f := range waiting[0].Free {
		left -= f.Free
	}
	for _, j := range plan.Jobs {
		left -= len(j.Hosts())
		for _, s := range j.Spare {
			left -= s.GPUs
		}
	}
	if left != 0 {
		t.Errorf("%d GPUs are neither free nor a job's", left)
	}
}

// A job that names its PS aggregates at the ToR switch of that one, though its policy thinks
// of another PS and says that nothing is to be added up there.
func TestPlainOfNamedPS(t *testing.T) {
	inv, err := inventory.Load("../experiments/racks/two-racks.toml")
	if err != nil {
		t.Fatal(err)
	}
	// plain are the racks without aggregation of a job with one worker on each of some servers.
	plain := func(tree []placement.TreeNode) (racks []int) {
		for _, n := range tree {
			if r := slices.Index([]string{"tor1", "tor2"}, n.Switch); r >= 0 && !n.Aggregate {
				racks = append(racks, r)
			}
		}
		slices.Sort(racks)
		return racks
	}
	for _, tt := range []struct {
		name    string
		job     string // its PS
		workers []int
		ps      int // the policy's
		plain   []int
		want    []int
	}{
		{"the PS is in another rack", "h8", []int{0, 1, 4}, 2, []int{1}, nil},
		{"and the others stay as they are", "h8", []int{0, 1, 4}, 2, []int{0, 1}, []int{0}},
		{"it is in the same rack", "h8", []int{0, 1, 4}, 6, []int{1}, []int{1}},
		{"two workers are there, too", "h8", []int{0, 4, 5}, 2, []int{1}, []int{0, 1}},
		{"it is the policy's own", "", []int{0, 1, 4}, 2, []int{1}, []int{1}},
	} {
		at := cluster.Placement{PS: []int{tt.ps}, Plain: tt.plain}
		for _, s := range tt.workers {
			at.Parts = append(at.Parts, cluster.Part{Server: s, GPUs: 2})
		}
		plan, err := placement.JobPlanOf(inv.Topology(), inv, &placement.Job{Name: "A", GPUs: 6, Collective: placement.INA, PS: tt.job}, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := plain(plan.Tree); !slices.Equal(got, tt.want) {
			t.Errorf("%s: racks %v do not aggregate, want %v", tt.name, got, tt.want)
		}
	}
	var jobs []placement.Job
	for i, h := range []string{"h3", "h4", "h6", "h7", "h8"} {
		jobs = append(jobs, placement.Job{ID: uint16(i + 1), Name: h, GPUs: 2, Hosts: []string{h}, Collective: placement.INA})
	}
	jobs = append(jobs, placement.Job{ID: 6, Name: "A", GPUs: 6, PS: "h8", Collective: placement.INA})
	plan, _, err := placement.Batch(netpack.New(netpack.Options{}), inv, jobs, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := plain(plan.Jobs[5].Tree); len(got) > 0 {
		t.Errorf("by netpack racks %v do not aggregate", got)
	}
}

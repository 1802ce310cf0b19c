package placement_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/policytest"
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

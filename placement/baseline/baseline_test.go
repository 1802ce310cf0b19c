package baseline

import (
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/policytest"
)

func TestPolicies(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name(), func(t *testing.T) { policytest.Run(t, placement.On(p)) })
	}
}

func TestFirstFitOrder(t *testing.T) {
	inv := policytest.Racks(2, 2, 4)
	plan, err := placement.On(FirstFit()).Place(inv, []placement.Job{
		{ID: 1, Name: "A", GPUs: 6, Collective: placement.INA},
		{ID: 2, Name: "B", GPUs: 4, Collective: placement.INA},
		{ID: 3, Name: "C", GPUs: 2, Collective: placement.INA},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		hosts []string
		gpus  []int
		ps    string
	}
	for i, w := range []want{
		{[]string{"h1-1", "h1-2"}, []int{4, 2}, "h2-1"}, // the first without a worker of A
		{[]string{"h1-2", "h2-1"}, []int{2, 2}, "h2-2"}, // idle, while h1-1 has a worker
		{[]string{"h2-1"}, []int{2}, ""},                // one host needs no network
	} {
		j := plan.Jobs[i]
		if len(j.Workers) != len(w.hosts) || j.PS != w.ps {
			t.Errorf("job %s: workers %v PS %q, want %v", j.Name, j.Workers, j.PS, w)
			continue
		}
		for k, wk := range j.Workers {
			if wk.Host != w.hosts[k] || wk.GPUs != w.gpus[k] {
				t.Errorf("job %s worker %d: %v, want %s with %d", j.Name, k, wk, w.hosts[k], w.gpus[k])
			}
		}
	}
}

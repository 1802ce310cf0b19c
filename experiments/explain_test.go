package experiments

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/policytest"
)

// Whoever asks why gets the placement that a run gets, and every job has its reason,
// with hosts that are there.
func TestPlaceJobs(t *testing.T) {
	inv := policytest.Racks(2, 3, 2)
	names := []string{}
	for i := range inv.Hosts {
		names = append(names, inv.Hosts[i].Name)
	}
	jobs := []placement.Job{
		{ID: 1, Name: "A", GPUs: 5, Collective: placement.INA},
		{ID: 2, Name: "B", GPUs: 2, Collective: placement.INA},
		{ID: 3, Name: "C", Hosts: names[:1], Collective: placement.INA},
		{ID: 4, Name: "D", GPUs: 3, Collective: placement.INA},
	}
	for _, p := range Policies() {
		want, err := p.Place(inv, jobs, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := PlaceJobs(p.Name(), inv, jobs, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := text(t, want), text(t, got.Plan); a != b {
			t.Errorf("%s: explained it places\n%s\notherwise\n%s", p.Name(), b, a)
		}
		if got.Why.Policy != p.Name() || got.Why.Rule == "" || got.Why.Rule != Rule(p.Name()) || len(got.Waiting) > 0 {
			t.Errorf("%s: %+v, %v", p.Name(), got.Why, got.Waiting)
		}
		if !strings.HasPrefix(p.Name(), "netpack") {
			if got.Why.Jobs != nil {
				t.Errorf("%s weighs nothing, yet says %+v", p.Name(), got.Why.Jobs)
			}
			continue
		}
		seen := map[string]bool{}
		for _, r := range got.Why.Jobs {
			seen[r.Job] = true
			several := r.Job == "A" || r.Job == "D" || r.Job == "B" && p.Name() == "netpack-published" // which takes no exact fit
			if r.Text == "" || several != (r.Chosen != nil) {
				t.Errorf("%s: %+v", p.Name(), r)
			}
			if r.Chosen == nil {
				continue
			}
			for _, c := range append(r.Others, *r.Chosen) {
				for _, h := range append(c.Hosts, c.PS...) {
					if !slices.Contains(names, h) {
						t.Errorf("%s: job %s: host %q", p.Name(), r.Job, h)
					}
				}
			}
		}
		if len(seen) != len(jobs) {
			t.Errorf("%s: reasons for %v", p.Name(), seen)
		}
	}
	if _, err := PlaceJobs("none", inv, jobs, 1); err == nil {
		t.Error("no error for an unknown policy")
	}
}

func TestRateJSON(t *testing.T) {
	got := text(t, []Rate{1e9, 0, Rate(math.Inf(1)), Rate(math.Inf(-1)), Rate(math.NaN())})
	if want := "[1000000000,0,null,null,null]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

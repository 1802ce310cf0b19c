package why

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/policytest"
	"github.com/inabench/inabench/results"
)

// Whoever asks why gets the placement that a run gets, and every job has its reason,
// with hosts that are there.
func TestPlace(t *testing.T) {
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
	for _, p := range spec.Policies() {
		want, err := p.Place(inv, jobs, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Place(t.Context(), &spec.Spec{}, p.Name(), inv, jobs, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := text(t, want), text(t, got.Plan); a != b {
			t.Errorf("%s: explained it places\n%s\notherwise\n%s", p.Name(), b, a)
		}
		if got.Why.Policy != p.Name() || got.Why.Rule == "" || got.Why.Rule != Rule(&spec.Spec{}, p.Name()) || len(got.Waiting) > 0 {
			t.Errorf("%s: %+v, %v", p.Name(), got.Why, got.Waiting)
		}
		if strings.HasPrefix(p.Name(), "titan") {
			for _, r := range got.Why.Jobs {
				if (r.Spread == nil) != (r.Job == "C") || r.Text == "" {
					t.Errorf("%s: %+v", p.Name(), r)
				}
			}
			if len(got.Why.Jobs) != len(jobs) {
				t.Errorf("%s: reasons for %+v", p.Name(), got.Why.Jobs)
			}
			continue
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
	little := &spec.Spec{Switch: spec.Switch{Aggregators: 5}} // enough for one of two jobs
	rack := policytest.Racks(1, 8, 2)
	two := []placement.Job{{ID: 1, Name: "A", GPUs: 6, Collective: placement.INA}, {ID: 2, Name: "B", GPUs: 6, Collective: placement.INA}}
	for use, want := range map[*spec.Spec]int{{}: 2, little: 1} {
		got, err := Place(t.Context(), use, "netpack", rack, two, 1)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, j := range got.Plan.Jobs {
			if j.Tree[0].Aggregate {
				n++
			}
		}
		if n != want {
			t.Errorf("with %d aggregators in use %d of two jobs aggregate, want %d", use.Switch.Aggregators, n, want)
		}
	}
	own := &spec.Spec{Policies: []spec.OwnPolicy{{Name: "mine", Command: []string{"./mine", "-x"}}}}
	if got := Rule(own, "mine"); got != "what ./mine -x says" {
		t.Errorf("the rule of a policy of one's own is %q", got)
	}
	if _, err := Place(t.Context(), &spec.Spec{}, "none", inv, jobs, 1); err == nil {
		t.Error("no error for an unknown policy")
	}
}

// What Titan says of jobs: how idle and how many machines it took, where traffic exceeds
// the bandwidth, and who waits.
func TestPlaceTitan(t *testing.T) {
	inv := policytest.Racks(1, 4, 4)
	name := func(i int) string { return inv.Hosts[i].Name }
	jobs := []placement.Job{
		{ID: 1, Name: "busy", GPUs: 1, Hosts: []string{name(1)}, Collective: placement.Ring},
		{ID: 2, Name: "busier", GPUs: 2, Hosts: []string{name(2)}, Collective: placement.Ring},
		{ID: 3, Name: "busiest", GPUs: 3, Hosts: []string{name(3)}, Collective: placement.Ring},
		{ID: 4, Name: "A", GPUs: 4, Collective: placement.Ring},
		{ID: 5, Name: "B", GPUs: 5, Collective: placement.Ring, Bytes: 1e12},
		{ID: 6, Name: "C", GPUs: 7, Collective: placement.Ring},
	}
	got, err := Place(t.Context(), &spec.Spec{}, "titan", inv, jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]study.Reason{}
	for _, r := range got.Why.Jobs {
		why[r.Job] = r
	}
	if a := why["A"]; *a.Spread != (study.Spread{Machines: 2, Cross: 1}) || a.Text != "0 idle machines, 2 others; K between machines" {
		t.Errorf("A: %+v %+v", a, a.Spread)
	}
	if b := why["B"]; b.Spread.Idle != 1 || b.Spread.Congested == nil || b.Spread.Congested.From == b.Spread.Congested.To || b.Spread.Congested.Phase < 1 ||
		!strings.Contains(b.Text, "; more than passes: in phase ") {
		t.Errorf("B: %+v", b)
	}
	if c := why["C"]; c.Spread != nil || c.Text != "it waits: more workers than free GPUs: 7 workers, 1 GPUs are free" {
		t.Errorf("C: %+v", c)
	}
	if !reflect.DeepEqual(got.Machines[3].GPUs[:3], slices.Repeat([]results.Cell{{Use: results.Background, Job: "busiest"}}, 3)) {
		t.Errorf("%+v", got.Machines)
	}
}

// The batch that ships is Figure 1 of Titan, with the volumes of the paper.
func TestFigure1(t *testing.T) {
	s, err := spec.Kinds(nil).Load("../batches/titan-figure1.toml")
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]string{"elasticflow": "0", "hived": "3/2 K", "titan": "K"} {
		placed, err := Place(t.Context(), s, policy, s.Inventory(), s.PlacementJobs(), s.Measure.Seed)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := study.Crossing(&placed.Plan.Jobs[3]); got != want {
			t.Errorf("%s: %s between machines, want %s", policy, got, want)
		}
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

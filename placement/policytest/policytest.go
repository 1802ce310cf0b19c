// Package policytest is the suite that every placement policy passes.
//
// A policy's test file is one call:
//
//	func TestFirstFit(t *testing.T) { policytest.RunCluster(t, baseline.FirstFit()) }
package policytest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

var seed = flag.Uint64("policytest.seed", 0, "seed of the random inventories and jobs; 0: from the clock")

// Run checks a policy: that its plans are valid and give every job what it asked,
// that explicit hosts and parameter servers are honoured, that hosts are never
// over-committed, that the same seed gives the same plan, that the inventory and
// the jobs are left alone, and that what does not fit is reported.
func Run(t *testing.T, p placement.Policy) {
	if p.Name() == "" {
		t.Error("the policy has no name")
	}
	t.Run("random", func(t *testing.T) { random(t, p) })
	t.Run("explicit", func(t *testing.T) { explicit(t, p) })
	t.Run("infeasible", func(t *testing.T) { infeasible(t, p) })
	t.Run("invalid", func(t *testing.T) { invalid(t, p) })
	t.Run("unlinked", func(t *testing.T) { unlinked(t, p) })
	t.Run("nothing", func(t *testing.T) {
		plan, err := p.Place(Racks(2, 2, 2), nil, 1)
		if err != nil || len(plan.Jobs) != 0 {
			t.Errorf("no jobs: plan %v, error %v", plan, err)
		}
	})
}

// Racks is a lab of ToRs under one spine: host h<r>-<i> in rack r, switches tor<r>
// and spine1, everything counted from 1.
func Racks(racks, hosts, gpus int) *inventory.Inventory {
	inv := &inventory.Inventory{Name: "racks"}
	for r := 1; r <= racks; r++ {
		tor := fmt.Sprintf("tor%d", r)
		for h := 1; h <= hosts; h++ {
			inv.Hosts = append(inv.Hosts, inventory.Host{
				Name: fmt.Sprintf("h%d-%d", r, h), Rack: fmt.Sprint("rack", r), GPUs: gpus,
				NICs: []inventory.NIC{{Device: "eth0", Switch: tor, Port: uint32(h), Rate: 100e9, Delay: time.Microsecond}},
			})
		}
		inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Rack: fmt.Sprint("rack", r), Aggregators: 1024})
		inv.Links = append(inv.Links, inventory.Link{
			A: inventory.Port{Switch: tor, Port: 100}, B: inventory.Port{Switch: "spine1", Port: uint32(r)},
			Rate: 100e9, Delay: time.Microsecond,
		})
	}
	inv.Switches = append(inv.Switches, inventory.Switch{Name: "spine1", Kind: inventory.Soft})
	return inv
}

// source is a source of random problems, of which the log says how to get them again.
func source(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -policytest.seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

func random(t *testing.T, p placement.Policy) {
	rnd := source(t)
	placed := 0
	for range 200 {
		inv := Racks(1+rnd.IntN(4), 1+rnd.IntN(5), 1+rnd.IntN(8))
		var jobs []placement.Job
		for i := range 1 + rnd.IntN(6) {
			jobs = append(jobs, placement.Job{
				ID: uint16(i + 1), Name: string(rune('A' + i)), GPUs: 1 + rnd.IntN(16), Model: "vgg16",
				Collective: []placement.Collective{placement.INA, placement.INA, placement.PS, placement.Ring}[rnd.IntN(4)],
			})
		}
		seed := rnd.Uint64()
		before := fmt.Sprintf("%+v %+v", inv, jobs)
		plan, err := p.Place(inv, jobs, seed)
		if got := fmt.Sprintf("%+v %+v", inv, jobs); got != before {
			t.Fatalf("inventory or jobs changed from\n%s\nto\n%s", before, got)
		}
		again, err2 := p.Place(inv, jobs, seed)
		if !reflect.DeepEqual(plan, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("not deterministic:\n%+v %v\n%+v %v", plan, err, again, err2)
		}
		total, asked := 0, 0
		for _, h := range inv.Hosts {
			total += h.GPUs
		}
		for _, j := range jobs {
			asked += j.GPUs
		}
		if err != nil {
			var e *placement.InfeasibleError
			if !errors.As(err, &e) {
				t.Fatalf("error %v is not an InfeasibleError", err)
			}
			if asked <= total {
				t.Fatalf("%d of %d GPUs asked, and yet: %v", asked, total, err)
			}
			continue
		}
		placed++
		check(t, inv, jobs, plan)
	}
	if placed < 20 {
		t.Errorf("only %d of 200 random problems were feasible", placed)
	}
}

// check holds a plan against what was asked.
func check(t *testing.T, inv *inventory.Inventory, jobs []placement.Job, plan *placement.Plan) {
	t.Helper()
	if err := placement.Validate(plan, inv); err != nil {
		t.Fatalf("plan is not valid: %v", err)
	}
	if plan.Policy == "" || len(plan.Jobs) != len(jobs) {
		t.Fatalf("plan of policy %q has %d jobs for %d", plan.Policy, len(plan.Jobs), len(jobs))
	}
	for i, j := range jobs {
		got := plan.Jobs[i]
		if got.ID != j.ID || got.Name != j.Name || got.Collective != j.Collective {
			t.Fatalf("job %d is %+v, asked was %+v", i, got, j)
		}
		gpus := 0
		for _, w := range got.Workers {
			gpus += w.GPUs
		}
		if j.GPUs > 0 && gpus != j.GPUs {
			t.Fatalf("job %s got %d GPUs, asked for %d", j.Name, gpus, j.GPUs)
		}
		want := placement.NeedsPS(&j, len(got.Workers))
		if (got.PS != "") != want {
			t.Fatalf("job %s has PS %q, needs one: %v", j.Name, got.PS, want)
		}
	}
}

func explicit(t *testing.T, p placement.Policy) {
	inv := Racks(2, 3, 2)
	jobs := []placement.Job{
		{ID: 1, Name: "A", Hosts: []string{"h2-1", "h1-2"}, PS: "h1-1", Collective: placement.INA},
		{ID: 2, Name: "B", GPUs: 3, Hosts: []string{"h1-2", "h1-3"}, Collective: placement.INA},
		{ID: 3, Name: "C", GPUs: 2, Collective: placement.PS, PS: "h2-3"},
		{ID: 4, Name: "D", Hosts: []string{"h1-1", "h1-2", "h2-1"}, Collective: placement.INA, NoPS: true},
	}
	plan, err := p.Place(inv, jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	check(t, inv, jobs, plan)
	for i, j := range jobs {
		got := plan.Jobs[i]
		for k, h := range j.Hosts {
			if got.Workers[k].Host != h {
				t.Errorf("job %s: worker %d on %s, asked was %s", j.Name, k, got.Workers[k].Host, h)
			}
		}
		if j.PS != "" && got.PS != j.PS {
			t.Errorf("job %s: PS on %s, asked was %s", j.Name, got.PS, j.PS)
		}
	}
}

func infeasible(t *testing.T, p placement.Policy) {
	inv := Racks(1, 3, 2)
	for _, job := range []placement.Job{
		{ID: 2, Name: "big", GPUs: 5, Collective: placement.INA},
		{ID: 2, Name: "big", GPUs: 4, Hosts: []string{"h1-1", "h1-2"}, Collective: placement.INA},
	} {
		plan, err := p.Place(inv, []placement.Job{{ID: 1, Name: "A", GPUs: 2, Hosts: []string{"h1-1"}, Collective: placement.INA}, job}, 1)
		var e *placement.InfeasibleError
		if !errors.As(err, &e) {
			t.Fatalf("plan %v, error %v, want an InfeasibleError", plan, err)
		}
		if plan != nil {
			t.Error("a plan beside the error")
		}
		report := e.Report()
		for _, want := range []string{"big", fmt.Sprint(job.GPUs), "h1-1", "h1-2", "h1-3", "0 of 2", "2 of 2"} {
			if !strings.Contains(report, want) {
				t.Errorf("the report lacks %q:\n%s", want, report)
			}
		}
	}
}

// unlinked has a host without a NIC, which looks idle to who does not look twice.
func unlinked(t *testing.T, p placement.Policy) {
	inv := Racks(1, 3, 2)
	inv.Hosts[0].NICs = nil
	jobs := []placement.Job{{ID: 1, Name: "A", GPUs: 4, Collective: placement.INA}}
	plan, err := p.Place(inv, jobs, 1)
	if err != nil {
		t.Fatal(err)
	}
	check(t, inv, jobs, plan)
}

func invalid(t *testing.T, p placement.Policy) {
	for name, job := range map[string]placement.Job{
		"unknown host": {ID: 1, Name: "A", Hosts: []string{"h9"}},
		"host twice":   {ID: 1, Name: "A", Hosts: []string{"h1-1", "h1-1"}},
		"unknown PS":   {ID: 1, Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h9"},
	} {
		if plan, err := p.Place(Racks(1, 2, 2), []placement.Job{job}, 1); err == nil || plan != nil {
			t.Errorf("%s: plan %v, error %v", name, plan, err)
		}
	}
}

// Package policycheck is what every placement policy is held to: a list of checks that tests (policytest) and the command
// `inabench policy check` run alike. What is random in them is drawn from a seed.
package policycheck

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

// Check is one thing that a policy is held to.
type Check struct {
	Name string
	Text string // what is so of a policy that passes
	run  func(*rand.Rand) error
}

// Run does the check. The error says what the policy did; the same seed brings it again.
func (c Check) Run(seed uint64) error { return c.run(rand.New(rand.NewPCG(seed, 0))) }

// Inventory are the checks of a policy that decides on inventories, which placement.On makes of one that decides on
// clusters. Its twin is as in Cluster.
func Inventory(p, twin placement.Policy) []Check {
	return []Check{
		{"name", "it has one",
			func(*rand.Rand) error { return named(p) }},
		{"random", "plans are valid, deterministic, and give every job what it asked",
			func(rnd *rand.Rand) error { return random(rnd, p, twin) }},
		{"explicit", "hosts and parameter servers that jobs name are theirs",
			func(*rand.Rand) error { return explicit(p) }},
		{"infeasible", "what does not fit is reported, with what is free",
			func(*rand.Rand) error { return infeasible(p) }},
		{"invalid", "hosts that are not there are an error",
			func(*rand.Rand) error { return invalid(p) }},
		{"unlinked", "nothing goes to a host without a link",
			func(*rand.Rand) error { return unlinked(p) }},
		{"nothing", "a plan of no jobs is empty",
			func(*rand.Rand) error { return nothing(p) }},
	}
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

func named(p placement.Policy) error {
	if p.Name() == "" {
		return errors.New("the policy has no name")
	}
	return nil
}

func nothing(p placement.Policy) error {
	plan, err := p.Place(Racks(2, 2, 2), nil, 1)
	if err == nil && len(plan.Jobs) != 0 {
		err = fmt.Errorf("a plan of no jobs has %d", len(plan.Jobs))
	}
	return err
}

func random(rnd *rand.Rand, p, twin placement.Policy) error {
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
		fits, err := drawn(p, twin, inv, jobs, rnd.Uint64())
		if err != nil {
			return err
		}
		if fits {
			placed++
		}
	}
	if placed < 20 {
		return fmt.Errorf("only %d of 200 random problems were feasible", placed)
	}
	return nil
}

// drawn is a random problem; not fits where there are too few GPUs.
func drawn(p, twin placement.Policy, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (fits bool, err error) {
	before := fmt.Sprintf("%+v %+v", inv, jobs)
	plan, err := p.Place(inv, jobs, seed)
	if got := fmt.Sprintf("%+v %+v", inv, jobs); got != before {
		return false, fmt.Errorf("inventory or jobs changed from\n%s\nto\n%s", before, got)
	}
	var e *placement.InfeasibleError
	if err != nil && !errors.As(err, &e) {
		return false, fmt.Errorf("an error that is no InfeasibleError: %w", err)
	}
	again, err2 := twin.Place(inv, jobs, seed)
	if !reflect.DeepEqual(plan, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
		return false, fmt.Errorf("not deterministic:\n%+v %v\n%+v %v", plan, err, again, err2)
	}
	if err == nil {
		return true, check(inv, jobs, plan)
	}
	total, asked := 0, 0
	for _, h := range inv.Hosts {
		total += h.GPUs
	}
	for _, j := range jobs {
		asked += j.GPUs
	}
	if asked <= total {
		return false, fmt.Errorf("%d of %d GPUs asked, and yet: %w", asked, total, err)
	}
	return false, nil
}

// check holds a plan against what was asked.
func check(inv *inventory.Inventory, jobs []placement.Job, plan *placement.Plan) error {
	if err := placement.Validate(plan, inv); err != nil {
		return fmt.Errorf("plan is not valid: %w", err)
	}
	if plan.Policy == "" || len(plan.Jobs) != len(jobs) {
		return fmt.Errorf("plan of policy %q has %d jobs for %d", plan.Policy, len(plan.Jobs), len(jobs))
	}
	for i, j := range jobs {
		got := plan.Jobs[i]
		if got.ID != j.ID || got.Name != j.Name || got.Collective != j.Collective {
			return fmt.Errorf("job %d is %+v, asked was %+v", i, got, j)
		}
		gpus := 0
		for _, w := range got.Workers {
			gpus += w.GPUs
		}
		if j.GPUs > 0 && gpus != j.GPUs {
			return fmt.Errorf("job %s got %d GPUs, asked for %d", j.Name, gpus, j.GPUs)
		}
		want := placement.NeedsPS(&j, len(got.Workers))
		if (got.PS != "") != want {
			return fmt.Errorf("job %s has PS %q, needs one: %v", j.Name, got.PS, want)
		}
	}
	return nil
}

func explicit(p placement.Policy) error {
	inv := Racks(2, 3, 2)
	jobs := []placement.Job{
		{ID: 1, Name: "A", Hosts: []string{"h2-1", "h1-2"}, PS: "h1-1", Collective: placement.INA},
		{ID: 2, Name: "B", GPUs: 3, Hosts: []string{"h1-2", "h1-3"}, Collective: placement.INA},
		{ID: 3, Name: "C", GPUs: 2, Collective: placement.PS, PS: "h2-3"},
		{ID: 4, Name: "D", Hosts: []string{"h1-1", "h1-2", "h2-1"}, Collective: placement.INA, NoPS: true},
	}
	plan, err := p.Place(inv, jobs, 1)
	if err != nil {
		return err
	}
	if err := check(inv, jobs, plan); err != nil {
		return err
	}
	var errs []error
	for i, j := range jobs {
		got := plan.Jobs[i]
		for k, h := range j.Hosts {
			if got.Workers[k].Host != h {
				errs = append(errs, fmt.Errorf("job %s: worker %d on %s, asked was %s", j.Name, k, got.Workers[k].Host, h))
			}
		}
		if j.PS != "" && got.PS != j.PS {
			errs = append(errs, fmt.Errorf("job %s: PS on %s, asked was %s", j.Name, got.PS, j.PS))
		}
	}
	return errors.Join(errs...)
}

func infeasible(p placement.Policy) error {
	inv := Racks(1, 3, 2)
	for _, job := range []placement.Job{
		{ID: 2, Name: "big", GPUs: 5, Collective: placement.INA},
		{ID: 2, Name: "big", GPUs: 4, Hosts: []string{"h1-1", "h1-2"}, Collective: placement.INA},
	} {
		plan, err := p.Place(inv, []placement.Job{{ID: 1, Name: "A", GPUs: 2, Hosts: []string{"h1-1"}, Collective: placement.INA}, job}, 1)
		var e *placement.InfeasibleError
		if !errors.As(err, &e) {
			return fmt.Errorf("plan %v, error %v, want an InfeasibleError", plan, err)
		}
		if plan != nil {
			return errors.New("a plan beside the error")
		}
		report := e.Report()
		for _, want := range []string{"big", fmt.Sprint(job.GPUs), "h1-1", "h1-2", "h1-3", "0 of 2", "2 of 2"} {
			if !strings.Contains(report, want) {
				return fmt.Errorf("the report lacks %q:\n%s", want, report)
			}
		}
	}
	return nil
}

// unlinked has a host without a NIC, which looks idle to who does not look twice.
func unlinked(p placement.Policy) error {
	inv := Racks(1, 3, 2)
	inv.Hosts[0].NICs = nil
	jobs := []placement.Job{{ID: 1, Name: "A", GPUs: 4, Collective: placement.INA}}
	plan, err := p.Place(inv, jobs, 1)
	if err != nil {
		return err
	}
	return check(inv, jobs, plan)
}

func invalid(p placement.Policy) error {
	var errs []error
	for _, tt := range []struct {
		name string
		job  placement.Job
	}{
		{"unknown host", placement.Job{ID: 1, Name: "A", Hosts: []string{"h9"}}},
		{"host twice", placement.Job{ID: 1, Name: "A", Hosts: []string{"h1-1", "h1-1"}}},
		{"unknown PS", placement.Job{ID: 1, Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h9"}},
	} {
		if plan, err := p.Place(Racks(1, 2, 2), []placement.Job{tt.job}, 1); err == nil || plan != nil {
			errs = append(errs, fmt.Errorf("%s: plan %v, error %v", tt.name, plan, err))
		}
	}
	return errors.Join(errs...)
}

package placement_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

var seed = flag.Uint64("seed", 1, "seed of randomised tests")

// claim is a job at some switches.
func claim(name string, window int, switches ...string) placement.Claim {
	j := &placement.JobPlan{Name: name, Collective: placement.INA}
	for _, sw := range switches {
		j.Tree = append(j.Tree, placement.TreeNode{Switch: sw, Aggregate: true})
	}
	return placement.Claim{Job: j, Window: window}
}

// What two switches of 100 and 40 aggregators give, in windows.
func TestDivide(t *testing.T) {
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 100}, {Name: "tor2", Aggregators: 40}}}
	three := []placement.Claim{claim("A", 50, "tor1"), claim("B", 50, "tor1"), claim("C", 50, "tor1")}
	for _, c := range []struct {
		name              string
		claims            []placement.Claim
		use, least, round int
		want              []int
	}{
		{"nobody", nil, 0, 1, 0, nil},
		{"one takes what it wants", three[:1], 0, 1, 0, []int{50}},
		{"equal parts", three, 0, 1, 0, []int{17, 17, 16}},
		{"less is used", three, 20, 1, 0, []int{4, 3, 3}},
		{"what one does not want goes to others", []placement.Claim{claim("A", 5, "tor1"), three[1], three[2]}, 0, 1, 0, []int{5, 23, 22}},
		{"the scarcer switch decides", []placement.Claim{claim("A", 50, "tor1", "tor2"), three[1]}, 0, 1, 0, []int{20, 30}},
		{"turns", three, 8, 2, 0, []int{2, 2, 0}},
		{"the next turn", three, 8, 2, 1, []int{0, 2, 2}},
		{"the third turn", three, 8, 2, 2, []int{2, 0, 2}},
		{"too little for anybody", three, 8, 5, 0, []int{0, 0, 0}},
		{"too little for two", []placement.Claim{three[0], claim("B", 50, "tor2", "tor1")}, 50, 20, 0, []int{25, 0}},
		{"one aggregator", three[:1], 1, 1, 0, []int{0}},
		{"a window smaller than the least", []placement.Claim{claim("A", 3, "tor1"), three[1]}, 0, 10, 0, []int{3, 47}},
	} {
		t.Run(c.name, func(t *testing.T) {
			grants := placement.Divide(inv, c.use, c.claims, c.least, c.round)
			var got []int
			for _, cl := range c.claims {
				got = append(got, grants[cl.Job.Name].Window)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("windows %v, want %v", got, c.want)
			}
		})
	}
}

// Of any switches and jobs: regions lie within the memory and apart from each other,
// nobody has less than is of use or more than it wants, nothing is left that somebody
// could use, more goes to nobody who could give it to one with less, and everybody has
// a turn.
func TestDivideNeverOvercommitsAndStarvesNobody(t *testing.T) {
	for n := range uint64(300) {
		rng := rand.New(rand.NewPCG(*seed, n))
		inv := &inventory.Inventory{}
		for i := range 1 + rng.IntN(4) {
			inv.Switches = append(inv.Switches, inventory.Switch{Name: fmt.Sprintf("tor%d", i), Aggregators: rng.IntN(300)})
		}
		var claims []placement.Claim
		for i := range 1 + rng.IntN(6) {
			var at []string
			for _, k := range rng.Perm(len(inv.Switches))[:1+rng.IntN(len(inv.Switches))] {
				at = append(at, inv.Switches[k].Name)
			}
			claims = append(claims, claim(fmt.Sprintf("job%d", i), 1+rng.IntN(80), at...))
		}
		use, least := rng.IntN(300), 1+rng.IntN(30)
		turns := map[string]int{}
		for round := range claims {
			failf := func(format string, args ...any) {
				t.Helper()
				t.Errorf("seed %d, case %d, round %d: %s", *seed, n, round, fmt.Sprintf(format, args...))
			}
			grants := placement.Divide(inv, use, claims, least, round)
			if d := cmp.Diff(grants, placement.Divide(inv, use, claims, least, round)); d != "" {
				failf("not the same again:\n%s", d)
			}
			left := map[string]int{}
			for i := range inv.Switches {
				sw := &inv.Switches[i]
				owner := make([]string, placement.Aggregators(sw, use))
				left[sw.Name] = len(owner)
				for job, g := range grants {
					base, ok := g.Base[sw.Name]
					if !ok {
						continue
					}
					if base < 0 || base+2*g.Window > len(owner) {
						failf("job %s has %d+%d of %d at %s", job, base, 2*g.Window, len(owner), sw.Name)
						continue
					}
					for k := range 2 * g.Window {
						if owner[base+k] != "" {
							failf("%d of %s belongs to %s and %s", base+k, sw.Name, owner[base+k], job)
						}
						owner[base+k] = job
						left[sw.Name]--
					}
				}
			}
			for _, c := range claims {
				g, ok := grants[c.Job.Name]
				switch {
				case !ok:
					failf("job %s has no grant", c.Job.Name)
				case g.Window > 0:
					turns[c.Job.Name]++
					if g.Window > c.Window || g.Window < min(least, c.Window) || len(g.Base) != len(c.Job.Tree) {
						failf("job %s, which wants %d: %+v", c.Job.Name, c.Window, g)
					}
				}
				// A job that could grow, or come in, must meet a switch that is full, of
				// jobs that have as little as it or could not do with less.
				by := max(min(least, c.Window), 1)
				if g.Window > 0 {
					by = 1
				}
				if g.Window == c.Window || slices.ContainsFunc(c.Job.Tree, func(n placement.TreeNode) bool { return left[n.Switch] < 2*by }) {
					continue
				}
				failf("job %s has %d of %d, and %v are left", c.Job.Name, g.Window, c.Window, left)
			}
			for _, poor := range claims {
				p := grants[poor.Job.Name]
				if p.Window == 0 || p.Window == poor.Window {
					continue
				}
				fair := slices.ContainsFunc(poor.Job.Tree, func(n placement.TreeNode) bool { // its bottleneck
					return left[n.Switch] < 2 && !slices.ContainsFunc(claims, func(o placement.Claim) bool {
						_, here := grants[o.Job.Name].Base[n.Switch]
						return here && grants[o.Job.Name].Window > p.Window+1
					})
				})
				if !fair {
					failf("job %s has %d of %d while others have more: %v", poor.Job.Name, p.Window, poor.Window, grants)
				}
			}
		}
		for _, c := range claims {
			fits := !slices.ContainsFunc(c.Job.Tree, func(n placement.TreeNode) bool {
				sw, _ := inv.Switch(n.Switch)
				return placement.Aggregators(sw, use) < 2*max(min(least, c.Window), 1)
			})
			if fits != (turns[c.Job.Name] > 0) {
				t.Errorf("seed %d, case %d: job %s had %d turns in %d rounds; its switches have enough for it: %t",
					*seed, n, c.Job.Name, turns[c.Job.Name], len(claims), fits)
			}
		}
	}
}

func TestCheckGrants(t *testing.T) {
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 100}, {Name: "tor2", Aggregators: 40}}}
	jobs := []placement.JobPlan{*claim("A", 0, "tor1", "tor2").Job, *claim("B", 0, "tor1").Job}
	for _, c := range []struct {
		grants map[string]placement.Grant
		want   string
	}{
		{nil, ""},
		{map[string]placement.Grant{"A": {Window: 15, Base: map[string]int{"tor1": 10, "tor2": 0}}, "B": {Window: 5, Base: map[string]int{"tor1": 0}}}, ""},
		{map[string]placement.Grant{"A": {Window: 15, Base: map[string]int{"tor1": 9, "tor2": 0}}, "B": {Window: 5, Base: map[string]int{"tor1": 0}}},
			"switch tor1: jobs A and B are granted the same aggregators: not enough switch memory"},
		{map[string]placement.Grant{"A": {Window: 15, Base: map[string]int{"tor1": 0, "tor2": 11}}},
			"switch tor2: job A is granted aggregators 11 to 40 of 40: not enough switch memory"},
		{map[string]placement.Grant{"A": {Window: 15, Base: map[string]int{"tor1": 0}}},
			"job A: window 15 without its region of switch tor2: not enough switch memory"},
	} {
		got := ""
		if err := placement.CheckGrants(inv, 0, jobs, c.grants); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v: %s, want %s", c.grants, got, c.want)
		}
	}
	if err := placement.CheckGrants(inv, 30, jobs, map[string]placement.Grant{"B": {Window: 16, Base: map[string]int{"tor1": 0}}}); !errors.Is(err, placement.ErrMemory) {
		t.Errorf("32 aggregators where 30 are used: %v", err)
	}
}

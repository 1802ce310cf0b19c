package policycheck

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
)

// broken is a policy that passes but for one thing.
type broken struct {
	cluster.Policy
	place func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement
}

func (b broken) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	return b.place(b.Policy, c, batch, seed)
}

// TestCluster: every rule that a policy can break is found to be broken, in words that say what it did.
func TestCluster(t *testing.T) {
	calls := uint64(0)
	for name, c := range map[string]struct {
		place func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement
		want  string // "": it passes
	}{
		"nothing": {func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
			return p.Place(c, batch, seed)
		}, ""},
		"lazy": {func(_ cluster.Policy, _ *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
			return make([]cluster.Placement, len(batch))
		}, "and yet"},
		"short": {func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
			return p.Place(c, batch, seed)[:max(0, len(batch)-1)]
		}, "placements for"},
		"moody": {func(_ cluster.Policy, c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
			calls++
			return baseline.Random().Place(c, batch, calls)
		}, "not deterministic"},
		"lying": {func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
			out := p.Place(c, batch, seed)
			for i := range out {
				out[i].Parts = nil
			}
			return out
		}, "waits, and runs at"},
		"greedy": {func(p cluster.Policy, c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
			out := p.Place(c, batch, seed)
			for _, id := range c.Running() {
				if len(batch) > 0 && id < batch[0].ID {
					_ = c.Leave(id)
				}
			}
			return out
		}, "now it is at"},
	} {
		p := broken{baseline.FirstFit(), c.place}
		var said []string
		for _, check := range Cluster(p, p) {
			if err := check.Run(1); err != nil {
				said = append(said, err.Error())
			}
		}
		text := strings.Join(said, "\n")
		if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// mistaken is a policy for inventories that passes but for one thing.
type mistaken struct {
	placement.Policy
	place func(p placement.Policy, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*placement.Plan, error)
}

func (m mistaken) Place(inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*placement.Plan, error) {
	return m.place(m.Policy, inv, jobs, seed)
}

// nameless is a policy without a name.
type nameless struct{ placement.Policy }

func (nameless) Name() string { return "" }

// TestInventory: the same for policies that decide on inventories.
func TestInventory(t *testing.T) {
	firstFit := placement.On(baseline.FirstFit())
	// but is first-fit, whose plans are changed before they are returned.
	but := func(change func(plan *placement.Plan, jobs []placement.Job)) placement.Policy {
		return mistaken{firstFit, func(p placement.Policy, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*placement.Plan, error) {
			plan, err := p.Place(inv, jobs, seed)
			if err == nil && len(plan.Jobs) > 0 {
				change(plan, jobs)
			}
			return plan, err
		}}
	}
	calls := uint64(0)
	for name, c := range map[string]struct {
		policy placement.Policy
		want   string // "": it passes
	}{
		"nothing":  {firstFit, ""},
		"nameless": {nameless{firstFit}, "the policy has no name"},
		"generous": {but(func(plan *placement.Plan, _ []placement.Job) { plan.Jobs[0].Workers[0].GPUs++ }), "GPUs"},
		"short":    {but(func(plan *placement.Plan, _ []placement.Job) { plan.Jobs = plan.Jobs[1:] }), "jobs for"},
		"meddling": {but(func(_ *placement.Plan, jobs []placement.Job) { jobs[0].GPUs++ }), "changed from"},
		"moody": {mistaken{firstFit, func(_ placement.Policy, inv *inventory.Inventory, jobs []placement.Job, _ uint64) (*placement.Plan, error) {
			calls++
			return placement.On(baseline.Random()).Place(inv, jobs, calls)
		}}, "not deterministic"},
		"lazy": {mistaken{firstFit, func(p placement.Policy, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*placement.Plan, error) {
			return p.Place(inv, append(slices.Clone(jobs), placement.Job{ID: 99, Name: "Z", GPUs: 1000, Collective: placement.INA}), seed)
		}}, "and yet"},
		"careless": {mistaken{firstFit, func(p placement.Policy, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*placement.Plan, error) {
			plan, err := p.Place(inv, jobs, seed)
			var infeasible *placement.InfeasibleError
			if err != nil && !errors.As(err, &infeasible) {
				return &placement.Plan{}, nil
			}
			return plan, err
		}}, "unknown host: plan"},
	} {
		var said []string
		for _, check := range Inventory(c.policy, c.policy) {
			if err := check.Run(1); err != nil {
				said = append(said, err.Error())
			}
		}
		text := strings.Join(said, "\n")
		if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

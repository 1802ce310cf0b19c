package policycheck

import (
	"strings"
	"testing"

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

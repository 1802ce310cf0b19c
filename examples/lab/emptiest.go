package main

import (
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// emptiest is a placement policy: a job goes to the servers with most free GPUs, one GPU after the other.
type emptiest struct{}

func (emptiest) Name() string { return "emptiest" }

// Rule is what `inabench place --list` and `plan --explain` say of it.
func (emptiest) Rule() string { return "the servers with most free GPUs" }

// Place implements cluster.Policy.
func (emptiest) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	for i, j := range batch {
		gpus := make([]int, len(c.Servers)) // of the job
		left := j.GPUs
		for ; left > 0; left-- {
			best := 0
			for s := range c.Servers {
				if c.Free(s)-gpus[s] > c.Free(best)-gpus[best] {
					best = s
				}
			}
			if c.Free(best) == gpus[best] {
				break
			}
			gpus[best]++
		}
		if left > 0 {
			continue // it waits
		}
		var p cluster.Placement
		for s, n := range gpus {
			if n > 0 {
				p.Parts = append(p.Parts, cluster.Part{Server: s, GPUs: n})
			}
		}
		if j.NeedsPS(len(p.Parts)) { // beside the workers with fewest GPUs
			few := slices.SortedStableFunc(slices.Values(p.Parts), func(a, b cluster.Part) int { return a.GPUs - b.GPUs })
			for k := range max(1, j.PSes) {
				p.PS = append(p.PS, few[k%len(few)].Server)
			}
		}
		if c.Enter(j, p) == nil {
			out[i] = p
		}
	}
	return out
}

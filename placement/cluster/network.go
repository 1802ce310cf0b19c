package cluster

import (
	"math"
	"slices"

	"github.com/inabench/inabench/placement/flow"
)

// network is the steady state of the jobs' trees.
type network struct {
	p     flow.Problem
	slots []int // tree -> index in p.Jobs, -1: removed
	of    []int // index in p.Jobs -> tree
	fresh bool
	r     *flow.Result
}

func newNetwork(cfg Config) *network {
	n := &network{}
	for _, s := range cfg.Servers {
		n.p.Links = append(n.p.Links, flow.Link{Capacity: s.Link})
	}
	for _, r := range cfg.Racks {
		capacity := r.Uplink
		if math.IsInf(capacity, 1) {
			capacity = 0 // no tree uses it
		}
		n.p.Links = append(n.p.Links, flow.Link{Capacity: capacity})
		n.p.Switches = append(n.p.Switches, flow.Switch{PAT: r.PAT})
	}
	return n
}

// add enters a placement's trees and returns what remove takes.
func (n *network) add(cfg Config, j Job, p Placement) []int {
	var out []int
	for _, t := range trees(cfg, j, p) {
		out = append(out, len(n.slots))
		n.of = append(n.of, len(n.slots))
		n.slots = append(n.slots, len(n.p.Jobs))
		n.p.Jobs = append(n.p.Jobs, t)
		n.fresh = false
	}
	return out
}

func (n *network) remove(tree int) {
	i := n.slots[tree]
	n.slots[tree] = -1
	n.p.Jobs = slices.Delete(n.p.Jobs, i, i+1)
	n.of = slices.Delete(n.of, i, i+1)
	for k, t := range n.of[i:] {
		n.slots[t] = i + k
	}
	n.fresh = false
}

func (n *network) steady() *flow.Result {
	if !n.fresh {
		r, err := flow.WaterFill(&n.p)
		if err != nil {
			panic(err) // trees are made here
		}
		n.r, n.fresh = r, true
	}
	return n.r
}

func (n *network) rate(tree int) float64 { return n.steady().Jobs[n.slots[tree]].Rate }

func (n *network) left(link int) float64 {
	r := n.steady()
	if n.p.Links[link].Capacity == 0 {
		return math.Inf(1)
	}
	return max(0, n.p.Links[link].Capacity-r.Links[link].Load)
}

func (n *network) flows(link int) int { return int(math.Round(n.steady().Links[link].Flows)) }

func (n *network) pat(rack int) float64 {
	left := n.p.Switches[rack].PAT
	r := n.steady()
	for i := range n.p.Jobs {
		for k, nd := range n.p.Jobs[i].Nodes {
			if nd.Switch == rack && nd.Aggregate && n.p.Jobs[i].Kind == flow.Statistical {
				left -= r.Jobs[i].Share[k] * r.Jobs[i].Rate
			}
		}
	}
	return max(0, left)
}

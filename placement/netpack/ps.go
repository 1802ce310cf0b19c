package netpack

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// search is the best placement found so far for a job.
type search struct {
	j     cluster.Job
	best  Choice
	parts []cluster.Part // of best, with all of their GPUs
	bound float64        // Total of the best choice if uplinks had no limit
	plans int
}

func newSearch(j cluster.Job) search {
	return search{j: j, best: Choice{Total: math.Inf(-1)}, bound: math.Inf(-1)}
}

// rackUse is how many workers of a plan are in a rack.
type rackUse struct{ rack, workers int }

// judge is step 3: Equation 1 for every plan in plans and every server that could be the
// best PS for it. Among the servers without a worker of the plan with equal flows
// only the one with the most bandwidth can be; those with one are all
// looked at.
func (p *planner) judge(s *search, hosts *deck) {
	for _, pl := range p.plans {
		parts := p.unfold(pl)
		least, flows := p.survey(parts)
		if pl.gpus-s.j.GPUs >= least {
			continue // it could do without one of its servers
		}
		s.plans++
		base := Choice{GPUs: pl.gpus, Workers: pl.value, Flows: flows, ps: -1}
		var mine Choice // the best with this plan
		mine.Total = math.Inf(-1)
		if !s.j.NeedsPS(len(parts)) {
			p.weigh(s, base, parts, &mine)
		} else {
			for flows := range hosts.rows() {
				for _, i := range hosts.class(flows, 0) {
					if !slices.Contains(p.members, int(i)) {
						p.weigh(s, p.withPS(base, int(i), false), parts, &mine)
						break
					}
				}
			}
			for _, m := range p.members {
				p.weigh(s, p.withPS(base, m, true), parts, &mine)
			}
			if p.Variant == Corrected && len(p.racks) > 1 && mine.bound > s.best.Total {
				// Uplinks matter: a PS in one of the plan's own racks spares one.
				for _, u := range p.racks {
					p.psIn(s, base, u.rack, parts, &mine)
				}
			}
		}
		if p.Explain != nil {
			mine.Placement.Parts = slices.Clone(parts)
			p.tries = append(p.tries, mine)
		}
	}
}

// survey fills members and racks for a plan. It returns the fewest GPUs of one of its
// servers, and the most flows.
func (p *planner) survey(parts []cluster.Part) (least, flows int) {
	p.members, p.racks = p.members[:0], p.racks[:0]
	least = math.MaxInt
	for _, w := range parts {
		v := &p.servers[w.Server]
		p.members = append(p.members, w.Server)
		least, flows = min(least, v.free), max(flows, v.flows)
		if i := slices.IndexFunc(p.racks, func(u rackUse) bool { return u.rack == v.rack }); i >= 0 {
			p.racks[i].workers++
		} else {
			p.racks = append(p.racks, rackUse{v.rack, 1})
		}
	}
	return least, flows
}

// psIn weighs the servers of one rack as PS of a plan.
func (p *planner) psIn(s *search, base Choice, rack int, parts []cluster.Part, mine *Choice) {
	for _, i := range p.c.InRack(rack) {
		if p.servers[i].linked && !slices.Contains(p.members, i) {
			p.weigh(s, p.withPS(base, i, false), parts, mine)
		}
	}
}

// withPS adds the terms of a PS to a choice, on a server with or without a worker of it.
func (p *planner) withPS(c Choice, ps int, worker bool) Choice {
	s := &p.servers[ps]
	epsilon := 0
	if worker == (p.Variant == Corrected) {
		epsilon = 1
	}
	c.ps = ps
	c.PSBandwidth = s.bandwidth
	c.PSDecrement = (p.link - s.bandwidth) / float64(s.flows+epsilon+1)
	c.Flows = max(c.Flows, s.flows+epsilon)
	return c
}

// weigh completes a choice's value and keeps it if it is the best of its plan, or of all.
func (p *planner) weigh(s *search, c Choice, parts []cluster.Part, mine *Choice) {
	c.bound = p.bound(&c)
	s.bound = max(s.bound, c.bound)
	mine.bound = max(mine.bound, c.bound)
	if c.bound <= s.best.Total && (c.bound <= mine.Total || p.Explain == nil) {
		return
	}
	p.equation1(s.j.Traffic, &c)
	if c.Total > mine.Total {
		c.bound = mine.bound
		*mine = c
	}
	if c.Total > s.best.Total || s.parts == nil { // as printed, a plan on idle links has -C/0
		s.best, s.parts = c, append(s.parts[:0], parts...)
	}
}

// bound is the largest Total that a choice could have, whatever the uplinks.
func (p *planner) bound(c *Choice) float64 {
	if p.Variant == Published {
		return math.Inf(1)
	}
	return c.Workers + c.PSBandwidth - c.PSDecrement + p.link/float64(c.Flows+1)
}

// equation1 fills in the last terms of Equation 1 for a choice of the surveyed plan, and
// the sum.
func (p *planner) equation1(t cluster.Traffic, c *Choice) {
	value := c.Workers + c.PSBandwidth - c.PSDecrement
	c.HotSpot = p.link / float64(c.Flows+1)
	switch {
	case p.Variant == Corrected:
		c.Racks = math.Inf(1)
		if p.uplinks {
			_, c.Racks = p.across(t, c.ps)
		}
		c.Total = value + min(c.HotSpot, c.Racks)
	case p.narrow:
		c.Racks, _ = p.across(t, c.ps)
		c.Total = value - max(c.HotSpot, c.Racks)
	default:
		c.HotSpot = p.link / float64(c.Flows)
		c.Total = value - c.HotSpot
	}
}

// across is the largest and the smallest share C_rack/(FC_r+n_r) of the uplinks that the
// plan in racks uses with a PS on a server (-1: none); 0 and +Inf if it uses none. n_r is
// what the flow model counts: a rack that aggregates sends one flow up, another one all
// of its workers', and the PS's rack receives what all others send. A ring leaves each of
// its racks once, and enters it once by the other direction.
func (p *planner) across(t cluster.Traffic, ps int) (most, least float64) {
	least = math.Inf(1)
	if len(p.racks) == 1 && (ps < 0 || p.servers[ps].rack == p.racks[0].rack) {
		return 0, least
	}
	share := func(rack, flows int) {
		s := p.c.Racks[rack].Uplink / float64(p.c.UplinkFlows(rack)+flows)
		most, least = max(most, s), min(least, s)
	}
	if t == cluster.Ring {
		for _, u := range p.racks {
			share(u.rack, 1)
		}
		return most, least
	}
	root := 0
	if ps >= 0 {
		root = p.servers[ps].rack
	} else { // as cluster.Config.Root has it
		most := slices.MaxFunc(p.racks, func(a, b rackUse) int {
			return cmp.Or(cmp.Compare(a.workers, b.workers), cmp.Compare(b.rack, a.rack))
		})
		root = most.rack
	}
	down := 0
	for _, u := range p.racks {
		if u.rack == root {
			continue
		}
		n := u.workers
		if t == cluster.Tree || t == cluster.INA && p.left(u.rack) > 0 {
			n = 1
		}
		down += n
		share(u.rack, n)
	}
	share(root, down)
	return most, least
}

// another is one more PS for the surveyed plan, on a server without one, or -1. The terms
// of Equation 1 that a PS changes choose it.
func (p *planner) another(s *search, taken []int) int {
	best, most := -1, math.Inf(-1)
	try := func(i int, worker bool) (hope bool) {
		c := p.withPS(Choice{Flows: s.best.Flows}, i, worker)
		if p.bound(&c) <= most {
			return false
		}
		p.equation1(s.j.Traffic, &c)
		if best < 0 || c.Total > most {
			best, most = i, c.Total
		}
		return true
	}
	for _, i := range p.members {
		if !slices.Contains(taken, i) {
			try(i, true)
		}
	}
	for flows := range p.hosts.rows() {
		for _, i := range p.hosts.class(flows, 0) {
			if slices.Contains(taken, int(i)) || slices.Contains(p.members, int(i)) {
				continue
			}
			if !try(int(i), false) {
				break // less bandwidth is worth less
			}
		}
	}
	return best
}

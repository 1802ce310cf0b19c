package netpack

import (
	"cmp"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Explanation is why a job of a batch went where it did.
type Explanation struct {
	Job      cluster.Job
	Selected bool // by the knapsack; else it waits
	// Servers had free GPUs; Plans were made of them and weighed. Both are 0 where one
	// server was enough.
	Servers, Plans int
	Chosen         Choice
	Alternatives   []Choice // the best of the other plans, at most 4, the best first
}

// Choice is a plan with its value by Equation 1, rates in bit/s:
//
//	Workers + PSBandwidth - PSDecrement + min(HotSpot, Racks)
//
// Published: - max(HotSpot, Racks).
type Choice struct {
	Placement   cluster.Placement
	GPUs        int     // of its servers; more than asked for: the rest was released
	Flows       int     // f_max: on the busiest of its links
	Workers     float64 // sum of the servers' values
	PSBandwidth float64 // left on the PS's link
	PSDecrement float64 // what the PS costs the jobs there
	HotSpot     float64 // C/(f_max+1), the rate to expect at the busiest server; published: C/f_max
	Racks       float64 // C_rack/(FC_r+n_r), the rate to expect at an uplink; +Inf, published 0: it uses none
	Total       float64

	ps    int     // -1: none
	bound float64 // largest Total without uplinks among those compared
}

// report explains a job on several servers.
func (p *planner) report(s *search, where cluster.Placement) {
	e := Explanation{Job: s.j, Selected: true, Plans: s.plans, Chosen: s.best}
	for i := range p.servers {
		if p.servers[i].free > 0 {
			e.Servers++
		}
	}
	e.Chosen.Placement = where.Clone()
	slices.SortStableFunc(p.tries, func(a, b Choice) int { return cmp.Compare(b.Total, a.Total) })
	for _, t := range p.tries {
		if len(e.Alternatives) == 4 {
			break
		}
		if t.Total == s.best.Total && t.ps == s.best.ps && sameServers(t.Placement.Parts, s.parts) {
			continue
		}
		t.Placement = t.Placement.Clone()
		if t.ps >= 0 {
			t.Placement.PS = []int{t.ps}
		}
		e.Alternatives = append(e.Alternatives, t)
	}
	p.Explain(e)
}

func sameServers(a, b []cluster.Part) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(w cluster.Part) bool {
		return !slices.ContainsFunc(b, func(o cluster.Part) bool { return o.Server == w.Server })
	})
}

package flow

import (
	"math"
	"math/rand/v2"
)

// algorithm1 is Algorithm 1 of NetPack as printed, line by line: the slow
// reference that WaterFill has to agree with. It returns the rate of each job and
// the residue of each undirected link. Where a residue is below 1e-12 of the
// capacity it is set to zero, so that lines 15, 23 and 25 do not depend on
// rounding. Limits are links of the job's own.
func algorithm1(p *Problem) (rate []float64, bw []float64) {
	jobs := len(p.Jobs)
	cable := cables(p.Links)
	bw = make([]float64, len(p.Links), len(p.Links)+jobs)
	for i := range bw {
		bw[i] = math.Inf(1)
	}
	for i, l := range p.Links {
		bw[cable[i]] = min(bw[cable[i]], l.Capacity)
	}
	full := append([]float64(nil), bw...)
	pat := make([]float64, len(p.Switches))
	for i, s := range p.Switches {
		pat[i] = s.PAT
	}
	limit := make([]float64, jobs)
	rate = make([]float64, jobs)
	frozen := make([]bool, jobs)
	nfrozen := 0
	flows := make([][]int, jobs) // of job's nodes
	for j := range p.Jobs {
		limit[j] = math.Inf(1)
		if l := p.Jobs[j].Limit; l > 0 {
			limit[j] = l
		}
		flows[j] = make([]int, len(p.Jobs[j].Nodes))
	}

	// UpdateFlows, lines 10-16.
	update := func(j int) {
		nodes := p.Jobs[j].Nodes
		for n := range nodes {
			sum, leaf := 0, true
			for c := range nodes[:n] {
				if nodes[c].Parent == n {
					sum += flows[j][c]
					leaf = false
				}
			}
			switch s := nodes[n].Switch; {
			case leaf:
				flows[j][n] = 1
			case s != None && nodes[n].Aggregate && pat[s] > 0:
				flows[j][n] = 1
			default:
				flows[j][n] = sum
			}
		}
	}

	for nfrozen < jobs { // line 2
		linkFlows := make([]int, len(p.Links))
		switchJobs := make([]int, len(p.Switches))
		for j := range p.Jobs { // lines 3-5
			if frozen[j] {
				continue
			}
			update(j)
			for n, nd := range p.Jobs[j].Nodes {
				if nd.Up != None {
					linkFlows[cable[nd.Up]] += flows[j][n]
				}
				if nd.Switch != None && nd.Aggregate {
					switchJobs[nd.Switch]++
				}
			}
		}
		step := math.Inf(1)
		for l, f := range linkFlows { // line 6
			if f > 0 {
				step = min(step, bw[l]/float64(f))
			}
		}
		for s, n := range switchJobs { // line 7
			if n > 0 && pat[s] != 0 {
				step = min(step, pat[s]/float64(n))
			}
		}
		for j := range p.Jobs {
			if !frozen[j] {
				step = min(step, limit[j])
			}
		}
		// Augment, lines 17-27.
		had := append([]float64(nil), pat...)
		for j := range p.Jobs {
			if frozen[j] {
				continue
			}
			rate[j] += step
			limit[j] -= step
			for n, nd := range p.Jobs[j].Nodes {
				if nd.Up != None {
					bw[cable[nd.Up]] -= step * float64(flows[j][n])
				}
				if s := nd.Switch; s != None && nd.Aggregate && had[s] > 0 {
					pat[s] -= step
				}
			}
		}
		for l := range bw {
			if bw[l] < snap*full[l] {
				bw[l] = 0
			}
		}
		for s := range pat {
			if pat[s] < snap*p.Switches[s].PAT {
				pat[s] = 0
			}
		}
		for j := range p.Jobs {
			if frozen[j] {
				continue
			}
			stop := limit[j] < snap*p.Jobs[j].Limit
			for _, nd := range p.Jobs[j].Nodes {
				stop = stop || nd.Up != None && bw[cable[nd.Up]] == 0
			}
			if stop {
				frozen[j] = true
				nfrozen++
			}
		}
	}
	return rate, bw
}

// clos is a network of racks whose ToRs hang on one core that only forwards.
type clos struct {
	racks, hosts int // hosts per rack
	Problem
}

// newClos builds it: two links per cable, up first. Host h of rack r has number
// r*hosts+h, and the switch of rack r number r.
func newClos(racks, hosts int, hostRate, coreRate func(i int) float64, sw func(r int) Switch) *clos {
	c := &clos{racks: racks, hosts: hosts}
	cable := 0
	add := func(rate float64) {
		cable++
		c.Links = append(c.Links, Link{Capacity: rate, Cable: cable}, Link{Capacity: rate, Cable: cable})
	}
	for h := range racks * hosts {
		add(hostRate(h))
	}
	for r := range racks {
		add(coreRate(r))
		c.Switches = append(c.Switches, sw(r))
	}
	return c
}

// job makes the tree of workers towards ps: hosts, their ToRs, the core where
// more than one rack is involved, the ToR of the PS, the PS.
func (c *clos) job(workers []int, ps int) Job {
	root := ps / c.hosts
	core := 2 * c.racks * c.hosts // first core link
	order, in := []int{}, map[int]bool{root: true}
	for _, w := range workers {
		if r := w / c.hosts; !in[r] {
			in[r] = true
			order = append(order, r)
		}
	}
	nw, leaves := len(workers), len(order)
	coreNode := nw + leaves
	rootNode := coreNode
	if leaves > 0 {
		rootNode++
	}
	var j Job
	for _, w := range workers {
		n := Node{Parent: rootNode, Up: 2 * w, Down: 2*w + 1, Switch: None}
		for i, r := range order {
			if r == w/c.hosts {
				n.Parent = nw + i
			}
		}
		j.Nodes = append(j.Nodes, n)
	}
	for _, r := range order {
		j.Nodes = append(j.Nodes, Node{Parent: coreNode, Up: core + 2*r, Down: core + 2*r + 1, Switch: r, Aggregate: true, Hold: 1})
	}
	if leaves > 0 {
		j.Nodes = append(j.Nodes, Node{Parent: rootNode, Up: core + 2*root + 1, Down: core + 2*root, Switch: None})
	}
	j.Nodes = append(j.Nodes,
		Node{Parent: rootNode + 1, Up: 2*ps + 1, Down: 2 * ps, Switch: root, Aggregate: true, Hold: 1},
		Node{Parent: None, Up: None, Down: None, Switch: None})
	return j
}

// random is a random Clos with random jobs; some switches have no memory, some
// jobs a limit, some do without aggregation somewhere.
func random(r *rand.Rand) *clos {
	rate := func(most float64) func(int) float64 {
		if r.IntN(2) == 0 {
			return func(int) float64 { return most }
		}
		return func(int) float64 { return most * float64(1+r.IntN(8)) / 8 }
	}
	c := newClos(1+r.IntN(4), 1+r.IntN(4), rate(10), rate(20), func(int) Switch {
		pat := []float64{0, 1, 2.5, 7, 10, 100}[r.IntN(6)]
		return Switch{PAT: pat, Aggregators: pat * 10, Addressing: Addressing(r.IntN(4)), Jitter: 0.02}
	})
	hosts := c.racks * c.hosts
	for range 1 + r.IntN(6) {
		perm := r.Perm(hosts)
		j := c.job(perm[:1+r.IntN(min(hosts, 6))], r.IntN(hosts))
		if r.IntN(3) == 0 {
			j.Limit = float64(1 + r.IntN(12))
		}
		for n := range j.Nodes {
			if j.Nodes[n].Aggregate && r.IntN(5) == 0 {
				j.Nodes[n].Aggregate = false
			}
		}
		c.Jobs = append(c.Jobs, j)
	}
	return c
}

package flow

import (
	"math"
	"math/rand/v2"
	"testing"
)

// undirected is c as Steady wants it: a link is a cable.
func undirected(c *clos) *Problem {
	p := &Problem{Switches: c.Switches}
	for l := 0; l < len(c.Links); l += 2 {
		p.Links = append(p.Links, Link{Capacity: c.Links[l].Capacity})
	}
	for _, j := range c.Jobs {
		p.Jobs = append(p.Jobs, onCables(j))
	}
	return p
}

// onCables is j with the numbers of cables for those of their directions.
func onCables(j Job) Job {
	nodes := make([]Node, len(j.Nodes))
	for k, n := range j.Nodes {
		if n.Up != None {
			n.Up /= 2
		}
		n.Down = None
		nodes[k] = n
	}
	j.Nodes = nodes
	return j
}

// randomJob is a job of any kind anywhere in c.
func randomJob(r *rand.Rand, c *clos) Job {
	hosts := c.racks * c.hosts
	n := 1 + r.IntN(min(hosts, 8))
	var j Job
	if r.IntN(8) == 0 { // a ring
		perm := r.Perm(hosts)[:n]
		j.Kind = Unicast
		for _, h := range perm {
			for range 1 + r.IntN(2) { // a link may be crossed again
				j.Nodes = append(j.Nodes, Node{Parent: None, Up: 2 * h, Down: None, Switch: None})
			}
		}
		return onCables(j)
	}
	j = onCables(c.job(r.Perm(hosts)[:n], r.IntN(hosts)))
	switch r.IntN(6) {
	case 0:
		j.Kind = Unicast
	case 1:
		j.Kind = Synchronous
		j.Slots, j.Window = 10, float64(r.IntN(7))
	}
	if r.IntN(3) == 0 {
		j.Limit = float64(1+r.IntN(24)) / 2
	}
	for k := range j.Nodes {
		if j.Nodes[k].Aggregate && r.IntN(5) == 0 {
			j.Nodes[k].Aggregate = false
		}
	}
	return j
}

// Share is the share of a node's PSNs that it aggregates, as in JobResult.
func (s *Steady) Share(handle, node int) float64 {
	s.settle()
	t := &s.trees[handle]
	n := &t.nodes[node]
	switch {
	case n.always && !t.stuck:
		return 1
	case n.sw < 0:
		return 0
	}
	level, rate := s.res[n.sw].level, s.Rate(handle)
	if level >= rate && level > 0 {
		return 1
	}
	return level / max(rate, math.SmallestNonzeroFloat64)
}

// TestSteadyReference: whatever comes and goes, the state is what WaterFill says, and
// what changed is said.
func TestSteadyReference(t *testing.T) {
	rnd := rng(t)
	for i := range 3000 {
		steadySequence(t, rnd, i)
	}
}

func steadySequence(t *testing.T, rnd *rand.Rand, number int) {
	rate := func(most float64) func(int) float64 {
		if rnd.IntN(2) == 0 {
			return func(int) float64 { return most }
		}
		return func(int) float64 { return most * float64(1+rnd.IntN(8)) / 8 }
	}
	scarce := rnd.IntN(2) == 0
	c := newClos(1+rnd.IntN(5), 1+rnd.IntN(6), rate(10), rate(20), func(int) Switch {
		pats := []float64{0, 1, 2.5, 7, 10, 100}
		if scarce {
			pats = pats[:4]
		}
		return Switch{PAT: pats[rnd.IntN(len(pats))]}
	})
	p := undirected(c)
	s, err := NewSteady(p.Links, p.Switches)
	if err != nil {
		t.Fatal(err)
	}
	var handles []int
	most := 1 + rnd.IntN(4*c.racks*c.hosts)
	jobs := map[int]float64{} // rates as Changed told of them
	left, flows := make([]float64, len(p.Links)), make([]int, len(p.Links))
	for l := range p.Links {
		left[l] = p.Links[l].Capacity
	}
	for step := range 30 {
		for range 1 + rnd.IntN(3)*rnd.IntN(3) {
			if n := len(handles); n > 0 && rnd.IntN(most) < n {
				k := rnd.IntN(n)
				s.Remove(handles[k])
				delete(jobs, handles[k])
				handles[k], p.Jobs[k] = handles[n-1], p.Jobs[n-1]
				handles, p.Jobs = handles[:n-1], p.Jobs[:n-1]
			} else {
				j := randomJob(rnd, c)
				h, err := s.Add(&j)
				if err != nil {
					t.Fatal(err)
				}
				handles, p.Jobs = append(handles, h), append(p.Jobs, j)
			}
		}
		r := waterFill(t, p)
		fail := func(what string, index int, got, want float64) {
			if !near(got, want, 1e-9) {
				t.Fatalf("sequence %d step %d: %s %d: %v, WaterFill says %v\n%+v", number, step, what, index, got, want, p)
			}
		}
		changedJobs, changedLinks := s.Changed()
		for _, h := range changedJobs {
			jobs[h] = s.Rate(h)
		}
		for _, l := range changedLinks {
			left[l], flows[l] = s.Left(l), s.Flows(l)
		}
		pat := make([]float64, len(p.Switches))
		for k, sw := range p.Switches {
			pat[k] = sw.PAT
		}
		for k, h := range handles {
			fail("rate of job", k, s.Rate(h), r.Jobs[k].Rate)
			if known, ok := jobs[h]; !ok {
				t.Fatalf("sequence %d step %d: nobody told of job %d", number, step, k)
			} else {
				fail("told rate of job", k, known, r.Jobs[k].Rate)
			}
			for n := range p.Jobs[k].Nodes {
				fail("share in job", k, s.Share(h, n), r.Jobs[k].Share[n])
				if nd := &p.Jobs[k].Nodes[n]; p.Jobs[k].aggregates(nd) && p.Jobs[k].Kind == Statistical {
					pat[nd.Switch] -= r.Jobs[k].Share[n] * r.Jobs[k].Rate
				}
			}
		}
		for l := range p.Links {
			fail("left of link", l, s.Left(l), p.Links[l].Capacity-r.Links[l].Load)
			fail("flows on link", l, float64(s.Flows(l)), r.Links[l].Flows)
			fail("told left of link", l, left[l], p.Links[l].Capacity-r.Links[l].Load)
			fail("told flows on link", l, float64(flows[l]), r.Links[l].Flows)
		}
		for k := range pat {
			fail("PAT left of switch", k, s.PATLeft(k), pat[k])
		}
	}
}

// Package netpack is the placement algorithm of NetPack ("Training Job Placement in
// Clusters with Statistical In-Network Aggregation", ASPLOS '24, section 5): a knapsack
// chooses the jobs of a batch, a job that fits a server goes there, another one gets the
// servers that a dynamic program over the steady state of the network finds for every
// number of flows, and its parameter server where Equation 1 is largest; at the end
// aggregation is given to the jobs that gain most from it.
//
// # Published and corrected
//
// The paper's listing and its text differ in places. Published does what is printed,
// Corrected what the text says it is for:
//
//   - Line 4 asks for a server with more GPUs than the job wants. Corrected takes an
//     exact fit too.
//   - Line 19 compares with V[s-1][f_max][j], the best plan of any number of flows, and
//     stores at f: plans of cooler servers are lost wherever hotter ones are worth more.
//     Corrected compares with what it replaces.
//   - Equation 1 ends with "- C/f_max", and over oversubscribed uplinks with minus
//     max_r(C_rack/(FC_r+n_r), C/(f_max+1)). Both are the rate that the job may expect,
//     and the minus rewards hot spots, which the text wants to punish. Corrected adds
//     C/(f_max+1), or the smallest of the rates where an uplink is tighter.
//   - The listing looks for plans in all of the cluster, where none may lie within a
//     rack. Where uplinks matter, Corrected looks in single racks too.
//
// In both, V starts at 0 for no GPUs and is unknown elsewhere: with the printed 0
// everywhere, a plan could have fewer GPUs than it says.
package netpack

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/inabench/inabench/placement/cluster"
)

// Variant is a reading of the paper.
type Variant uint8

const (
	Corrected Variant = iota // what the text describes
	Published                // what Algorithm 2 and Equation 1 print
)

// Options of a policy. The zero value is the corrected NetPack.
type Options struct {
	Variant Variant

	// Ageing is by how much a job's value is multiplied for every batch that passed
	// it over; 0: 1.1.
	Ageing float64

	// Explain, where it is set, is called for every job of a batch, in the order in
	// which they are placed, then for those that wait.
	Explain func(Explanation)
}

// New is the policy "netpack", or "netpack-published".
func New(o Options) cluster.Policy {
	if !(o.Ageing > 0) {
		o.Ageing = 1.1
	}
	return &policy{Options: o}
}

type policy struct {
	Options
	planners sync.Pool // of *planner: its memory, not what is in it
}

// Name implements cluster.Policy.
func (p *policy) Name() string {
	if p.Variant == Published {
		return "netpack-published"
	}
	return "netpack"
}

// Place implements cluster.Policy. Nothing in it depends on the seed.
func (p *policy) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	chosen := subset(batch, c.TotalFree(), total(c), p.Ageing)
	if len(chosen) > 0 {
		pl, _ := p.planners.Get().(*planner)
		if pl == nil {
			pl = &planner{}
		}
		pl.start(c, p.Options)
		for _, i := range chosen {
			where := pl.place(batch[i])
			if len(where.Parts) == 0 || c.Enter(batch[i], where) != nil {
				continue // an ID that is taken: it waits
			}
			out[i] = where
			pl.entered(batch[i], where)
		}
		pl.selectINA(batch, out)
		pl.c, pl.explain = nil, nil
		p.planners.Put(pl)
	}
	if p.Explain != nil {
		for i := range batch {
			if !slices.Contains(chosen, i) {
				p.Explain(Explanation{Job: batch[i]})
			}
		}
	}
	return out
}

// total is how many GPUs a cluster has.
func total(c *cluster.Cluster) (n int) {
	for i := range c.Servers {
		n += c.Servers[i].GPUs
	}
	return n
}

// planner places the jobs of one batch. Its slices are kept from batch to batch.
type planner struct {
	Options
	c       *cluster.Cluster
	explain func(Explanation)

	link     float64 // C: capacity of the fastest server's link
	most     int     // G: GPUs of the largest server
	uplinks  bool    // some uplink can fill up
	narrow   bool    // some uplink is slower than its servers together
	budget   []float64
	rivals   []int // jobs of the batch, by rack; budget is known where there are any
	servers  []server
	workers  deck
	hosts    deck // for PSes
	inRack   deck
	rackHost deck
	cells    []cell
	seen     []int32
	steps    []step
	plans    []plan
	members  []int
	racks    []rackUse
	tries    []Choice
}

// server is what the steady state leaves of one.
type server struct {
	rack, free, flows int
	bandwidth         float64
	worker            float64 // value of a worker there; less a PS's decrement it is the value of a PS beside one
	ps                float64 // value of a PS where there is no worker of the job
}

func (p *planner) start(c *cluster.Cluster, o Options) {
	p.Options, p.c, p.explain = o, c, o.Explain
	p.link, p.most, p.uplinks, p.narrow = 0, 0, false, false
	p.servers = slices.Grow(p.servers[:0], len(c.Servers))[:len(c.Servers)]
	for i := range c.Servers {
		s := &c.Servers[i]
		p.link, p.most = max(p.link, s.Link), max(p.most, s.GPUs)
		p.servers[i].rack = s.Rack
	}
	for r := range c.Racks {
		var sum float64
		if up := c.Racks[r].Uplink; !math.IsInf(up, 1) {
			p.uplinks = true
			for _, s := range c.InRack(r) {
				sum += c.Servers[s].Link
			}
			p.narrow = p.narrow || up < sum
		}
	}
	p.rivals = slices.Grow(p.rivals[:0], len(c.Racks))[:len(c.Racks)]
	clear(p.rivals)
	p.budget = slices.Grow(p.budget[:0], len(c.Racks))[:len(c.Racks)]
}

// refresh reads the steady state.
func (p *planner) refresh() {
	for i := range p.servers {
		s := &p.servers[i]
		s.free, s.flows, s.bandwidth = p.c.Free(i), p.c.Flows(i), p.c.Bandwidth(i)
		lost := p.link - s.bandwidth
		s.worker = s.bandwidth - lost/float64(s.flows+1)
		s.ps = s.bandwidth - lost/float64(s.flows+2)
	}
}

// place is where a job goes that fits the cluster.
func (p *planner) place(j cluster.Job) cluster.Placement {
	if s := p.single(j.GPUs); s >= 0 {
		where := cluster.Placement{Parts: []cluster.Part{{Server: s, GPUs: j.GPUs}}}
		if p.explain != nil {
			p.explain(Explanation{Job: j, Selected: true, Chosen: Choice{Placement: where.Clone(), GPUs: p.c.Free(s)}})
		}
		return where
	}
	p.refresh()
	return p.spread(j)
}

// single is the server for a job that fits one, or -1: an exact fit with the lowest
// index; else the one with the least left over, then the most flows, then the most
// bandwidth, then the lowest index. A job that needs no network goes where the network
// is least worth.
func (p *planner) single(gpus int) int {
	best, least := -1, gpus
	if p.Variant == Published {
		least++
	}
	for i := range p.servers {
		free := p.c.Free(i)
		if free < least {
			continue
		}
		if free == gpus {
			return i
		}
		if best < 0 || cmp.Or(
			cmp.Compare(free, p.c.Free(best)),
			cmp.Compare(p.c.Flows(best), p.c.Flows(i)),
			cmp.Compare(p.c.Bandwidth(best), p.c.Bandwidth(i))) < 0 {
			best = i
		}
	}
	return best
}

// spread is the best plan over several servers.
func (p *planner) spread(j cluster.Job) cluster.Placement {
	p.tries = p.tries[:0]
	widest := j.GPUs + p.most
	p.workers.reset(p.most + 1)
	p.hosts.reset(1)
	for i := range p.servers {
		s := &p.servers[i]
		if s.free > 0 {
			limit := widest / s.free
			if p.Variant == Published {
				limit = len(p.servers) // line 19 does not always keep the best
			}
			p.workers.offer(i, s.free, s.flows, s.worker, limit)
		}
		p.hosts.offer(i, 0, s.flows, s.ps, widest+1)
	}
	p.hosts.sort()
	s := search{j: j, best: Choice{Total: math.Inf(-1)}, bound: math.Inf(-1)}
	p.candidates(&p.workers, j.GPUs)
	p.judge(&s, &p.hosts)
	if p.Variant == Corrected && s.best.Total < s.bound {
		// An uplink kept the plan down that is best without them, so plans that
		// spare it may be better. Elsewhere none can be: of every other plan all terms
		// but the uplinks' are part of the bound.
		for r := range p.c.Racks {
			p.within(&s, r)
		}
	}
	return p.finish(&s)
}

// within looks for plans in a single rack.
func (p *planner) within(s *search, rack int) {
	free := 0
	for _, i := range p.c.InRack(rack) {
		free += p.servers[i].free
	}
	if free < s.j.GPUs {
		return
	}
	widest := s.j.GPUs + p.most
	p.inRack.reset(p.most + 1)
	p.rackHost.reset(1)
	for _, i := range p.c.InRack(rack) {
		v := &p.servers[i]
		if v.free > 0 {
			p.inRack.offer(i, v.free, v.flows, v.worker, widest/v.free)
		}
		p.rackHost.offer(i, 0, v.flows, v.ps, widest+1)
	}
	p.rackHost.sort()
	p.candidates(&p.inRack, s.j.GPUs)
	p.judge(s, &p.rackHost)
}

// finish turns the best choice into a placement, with the other parameter servers.
func (p *planner) finish(s *search) cluster.Placement {
	if len(s.parts) == 0 {
		return cluster.Placement{}
	}
	where := cluster.Placement{Parts: s.parts}
	if s.best.ps >= 0 {
		where.PS = append(where.PS, s.best.ps)
		p.survey(s.parts)
		for len(where.PS) < min(s.j.PSes, len(p.servers)) {
			where.PS = append(where.PS, p.another(s, where.PS))
		}
	}
	release(where.Parts, s.best.GPUs-s.j.GPUs, p.servers)
	slices.SortFunc(where.Parts, func(a, b cluster.Part) int {
		return cmp.Or(cmp.Compare(p.servers[a.Server].rack, p.servers[b.Server].rack), cmp.Compare(a.Server, b.Server))
	})
	if s.j.Traffic == cluster.INA {
		where.Plain = p.plain(where)
	}
	if p.explain != nil {
		p.report(s, where)
	}
	return where
}

// release takes extra GPUs, fewer than any server of the plan has, from the least loaded
// one: with the fewest flows, then the most bandwidth, then the lowest index.
func release(parts []cluster.Part, extra int, servers []server) {
	least := slices.MinFunc(parts, func(a, b cluster.Part) int {
		v, w := &servers[a.Server], &servers[b.Server]
		return cmp.Or(cmp.Compare(v.flows, w.flows), cmp.Compare(w.bandwidth, v.bandwidth), cmp.Compare(a.Server, b.Server))
	})
	parts[slices.Index(parts, least)].GPUs -= extra
}

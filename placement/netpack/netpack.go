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
//   - Equation 1 counts one more flow (epsilon) for a PS on a server without a worker of
//     the plan, and none beside one. In the paper's own flow model it is the other way
//     round: what shares a link with flows is one flow of a worker or of a PS alone, and
//     two of both. With the printed epsilon, PSes go to workers' servers, where both
//     get half of the link. Corrected counts one more beside a worker, and none elsewhere.
//   - A plan's value is the sum of its servers', and the printed one of an idle server is
//     C: every server more makes a plan better, however many links it takes. Corrected
//     counts from an idle server, which is worth 0, as it is in the authors' prototype
//     (github.com/ZeBraHack0/ATP-Controller): bw - C - (C-bw)/(flows+1).
//   - The text has plans with more GPUs than a job wants compete only where none has
//     exactly as many; the listing hands all of them on. By the text, a busy server with
//     the right number of GPUs left wins against idle ones. Corrected judges them all.
//   - The listing looks for plans in all of the cluster, where none may lie within a
//     rack. Where uplinks matter, Corrected looks in single racks too.
//   - The listing chooses workers first, and then a PS for each plan. The two depend on each
//     other (see pair): in about one problem in 30,000 of TestEquation1's another plan is
//     worth more with its PS. Corrected finds it.
//
// In both, V starts at 0 for no GPUs and is unknown elsewhere: with the printed 0
// everywhere, a plan could have fewer GPUs than it says.
// And a plan is not judged that could do without one of its servers: as printed it might release all GPUs
// of the least loaded one, and keep a worker there without any.
package netpack

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Variant is a reading of the paper.
type Variant uint8

const (
	Corrected Variant = iota // what the text describes
	Published                // what Algorithm 2 and Equation 1 print
)

// DefaultAgeing is how much more a job is worth with every batch that passes it over. The paper says that jobs
// age (section 5.2), and not by how much. With 1.1 a job is worth about twice as much after 7 batches, and as much as
// any ten others after 25: with a batch a minute nobody who fits starves for long.
const DefaultAgeing = 1.1

// Options of a policy. The zero value is the corrected NetPack.
type Options struct {
	Variant Variant

	// Ageing is by how much a job's value is multiplied for every batch that passed
	// it over, at least 1, where nobody ages; 0: DefaultAgeing.
	Ageing float64
	// Reserve has GPUs kept for a job that does not fit, once it has aged: see subset. The paper does not say that. It ends
	// such a job's wait, and makes all others wait longer: where many wait, a large job soon outweighs all that could start,
	// and GPUs stand idle for it (experiments/netpack-queue.toml).
	Reserve bool

	// Explain, where it is set, is called for every job of a batch, in the order in
	// which they are placed, then for those that wait.
	Explain func(Explanation)
}

// New is the policy "netpack", or "netpack-published".
func New(o Options) cluster.Policy {
	if !(o.Ageing > 0) {
		o.Ageing = DefaultAgeing
	}
	return &policy{Options: o}
}

type policy struct{ Options }

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
	pl := plannerOf(c)
	chosen := subset(batch, c.TotalFree(), pl.total, p.Options)
	if len(chosen) > 0 {
		pl.start(p.Options)
		for _, i := range chosen {
			where := pl.place(batch[i])
			if len(where.Parts) == 0 || c.Enter(batch[i], where) != nil {
				continue // an ID that is taken: it waits
			}
			out[i] = where
			pl.entered(batch[i], where)
		}
		pl.selectINA(batch, out)
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

// planner places jobs in one cluster, for whichever policy asks. What it knows of the
// steady state it keeps from batch to batch, and reads anew where that changed.
type planner struct {
	Options
	c       *cluster.Cluster
	changes *cluster.Changes

	total   int     // GPUs
	most    int     // G: GPUs of the largest server
	rack    int     // GPUs of the largest rack
	link    float64 // C: capacity of the fastest server's link
	uplinks bool    // some uplink can fill up
	narrow  bool    // some uplink is slower than its servers together

	servers []server
	fitting [][]uint64 // free GPUs -> servers, as a set of bits
	workers deck       // the servers with free GPUs
	hosts   deck       // all servers, for PSes
	version []int      // of what is known of a rack's servers
	single  map[inRack][]known

	budget []float64
	rivals []int // jobs of the batch, by rack; budget is known where there are any

	// Memory of a search.
	rackWorkers, rackHosts deck
	cells                  []cell
	seen                   []int32
	steps                  []step
	plans                  []plan
	parts                  []cluster.Part
	members                []int
	racks                  []rackUse
	inflows                []inflow
	tries                  []Choice
}

// server is what the steady state leaves of one.
type server struct {
	linked            bool
	rack, free, flows int
	bandwidth         float64
	worker            float64 // value of a worker there, and of a PS beside none
}

// plannerKey is the key of a cluster's planner.
type plannerKey struct{}

// plannerOf is the planner of a cluster.
func plannerOf(c *cluster.Cluster) *planner {
	return c.Keep(plannerKey{}, func() any { return newPlanner(c) }).(*planner)
}

func newPlanner(c *cluster.Cluster) *planner {
	p := &planner{
		c: c, changes: c.Subscribe(),
		servers: make([]server, len(c.Servers)),
		version: make([]int, len(c.Racks)), single: map[inRack][]known{},
		budget: make([]float64, len(c.Racks)), rivals: make([]int, len(c.Racks)),
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		p.total, p.link, p.most = p.total+s.GPUs, max(p.link, s.Link), max(p.most, s.GPUs)
	}
	for r := range c.Racks {
		gpus, links := 0, 0.0
		for _, s := range c.InRack(r) {
			gpus += c.Servers[s].GPUs
			links += c.Servers[s].Link
		}
		p.version[r], p.rack = 1, max(p.rack, gpus)
		p.uplinks = p.uplinks || !math.IsInf(c.Racks[r].Uplink, 1)
		p.narrow = p.narrow || c.Racks[r].Uplink < links
	}
	p.fitting = make([][]uint64, p.most+1)
	for free := range p.fitting {
		p.fitting[free] = make([]uint64, (len(p.servers)+63)/64)
	}
	for _, d := range []*deck{&p.workers, &p.hosts, &p.rackWorkers, &p.rackHosts} {
		d.servers = p.servers
	}
	p.workers.gpus, p.rackWorkers.gpus = p.most, p.most
	for i := range p.servers {
		p.servers[i] = server{linked: c.Servers[i].Linked(), rack: c.Servers[i].Rack}
		p.read(i)
		p.put(i)
	}
	return p
}

// start begins a batch.
func (p *planner) start(o Options) {
	p.Options = o
	clear(p.rivals)
}

// refresh reads the steady state where it changed.
func (p *planner) refresh() {
	for _, i := range p.changes.Servers() {
		p.take(i)
		p.read(i)
		p.put(i)
	}
}

// read reads the steady state of a server.
func (p *planner) read(i int) {
	s := &p.servers[i]
	s.free, s.flows, s.bandwidth = p.c.Free(i), p.c.Flows(i), p.c.Bandwidth(i)
	s.worker = s.bandwidth - (p.link-s.bandwidth)/float64(s.flows+1)
}

// put enters a server where it is looked for.
func (p *planner) put(i int) {
	s := &p.servers[i]
	p.fitting[s.free][i/64] |= 1 << (i % 64)
	p.version[s.rack]++
	p.offer(i, &p.workers, &p.hosts)
}

// offer puts a server into decks, if it can be part of a job on several servers.
func (p *planner) offer(i int, workers, hosts *deck) {
	if !p.servers[i].linked {
		return
	}
	if p.servers[i].free > 0 {
		workers.put(i)
	}
	hosts.put(i)
}

// take is the opposite of put.
func (p *planner) take(i int) {
	s := &p.servers[i]
	p.fitting[s.free][i/64] &^= 1 << (i % 64)
	if !s.linked {
		return
	}
	if s.free > 0 {
		p.workers.take(i)
	}
	p.hosts.take(i)
}

// place is where a job goes that fits the cluster.
func (p *planner) place(j cluster.Job) cluster.Placement {
	p.refresh()
	if s := p.alone(j.GPUs); s >= 0 {
		where := cluster.Placement{Parts: []cluster.Part{{Server: s, GPUs: j.GPUs}}}
		if p.Explain != nil {
			p.Explain(Explanation{Job: j, Selected: true, Chosen: Choice{Placement: where.Clone(), GPUs: p.c.Free(s)}})
		}
		return where
	}
	return p.spread(j)
}

// alone is the server for a job that fits one, or -1: an exact fit with the lowest
// index; else the one with the least left over, then the most flows, then the most
// bandwidth, then the lowest index. A job that needs no network goes where the network
// is least worth.
func (p *planner) alone(gpus int) int {
	if p.Variant == Corrected {
		if i := p.first(gpus); i >= 0 {
			return i
		}
	}
	for free := gpus + 1; free <= p.most; free++ {
		for flows := p.workers.rows() - 1; flows >= 0; flows-- {
			if best := p.workers.class(flows, free); len(best) > 0 {
				return int(best[0])
			}
		}
		if i := p.first(free); i >= 0 {
			return i // it has no link
		}
	}
	return -1
}

// first is the first server with so many free GPUs, or -1.
func (p *planner) first(free int) int {
	if free <= p.most {
		for w, set := range p.fitting[free] {
			if set != 0 {
				return 64*w + bits.TrailingZeros64(set)
			}
		}
	}
	return -1
}

// spread is the best plan over several servers.
func (p *planner) spread(j cluster.Job) cluster.Placement {
	p.tries = p.tries[:0]
	s := newSearch(j)
	p.candidates(&p.workers, j.GPUs)
	p.judge(&s, &p.hosts)
	p.pair(&s, &p.workers, &p.hosts)
	if p.Variant == Corrected && s.best.Total < s.bound {
		// An uplink kept the plan down that is best without them, so plans that
		// spare it may be better. Elsewhere none can be: of every other plan all terms
		// but the uplinks' are part of the bound.
		if p.Explain != nil {
			for r := range p.c.Racks {
				p.within(&s, r)
			}
		} else if r := p.bestRack(&s); r >= 0 {
			p.within(&s, r)
		}
	}
	return p.finish(&s)
}

// inRack is what the value of the best plan in a single rack depends on besides the
// rack's servers.
type inRack struct {
	gpus int
	ps   bool
}

// known is the value of the best plan in a rack when it was of a version.
type known struct {
	version int
	total   float64
}

// bestRack is the first of the racks in which there is the best plan that is better than
// the one found, or -1. A rack is searched again when something changed there.
func (p *planner) bestRack(s *search) int {
	if s.j.GPUs > p.rack {
		return -1
	}
	k := inRack{s.j.GPUs, s.j.NeedsPS(2)}
	if p.single[k] == nil {
		p.single[k] = make([]known, len(p.c.Racks))
	}
	at, best := -1, s.best.Total
	for r := range p.single[k] {
		known := &p.single[k][r]
		if known.version != p.version[r] {
			only := newSearch(s.j)
			p.within(&only, r)
			known.version, known.total = p.version[r], only.best.Total
		}
		if known.total > best {
			at, best = r, known.total
		}
	}
	return at
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
	p.rackWorkers.reset()
	p.rackHosts.reset()
	for _, i := range p.c.InRack(rack) {
		p.offer(i, &p.rackWorkers, &p.rackHosts)
	}
	p.candidates(&p.rackWorkers, s.j.GPUs)
	p.judge(s, &p.rackHosts)
	p.pair(s, &p.rackWorkers, &p.rackHosts)
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
		for len(where.PS) < s.j.PSes {
			ps := p.another(s, where.PS)
			if ps < 0 {
				break
			}
			where.PS = append(where.PS, ps)
		}
	}
	release(where.Parts, s.best.GPUs-s.j.GPUs, p.servers)
	slices.SortFunc(where.Parts, func(a, b cluster.Part) int {
		return cmp.Or(cmp.Compare(p.servers[a.Server].rack, p.servers[b.Server].rack), cmp.Compare(a.Server, b.Server))
	})
	if s.j.Traffic == cluster.INA {
		where.Plain = p.plain(where)
	}
	if p.Explain != nil {
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

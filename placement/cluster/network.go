package cluster

import (
	"math"
	"slices"

	"github.com/inabench/inabench/placement/flow"
)

// network is the steady state of the jobs' trees: link i is that of server i, link
// len(Servers)+r that of rack r.
type network struct {
	*flow.Steady
	owner []*running // tree -> its job
	plant planter
}

func newNetwork(cfg Config) *network {
	var links []flow.Link
	var switches []flow.Switch
	for _, s := range cfg.Servers {
		links = append(links, flow.Link{Capacity: s.Link})
	}
	for _, r := range cfg.Racks {
		capacity := r.Uplink
		if math.IsInf(capacity, 1) {
			capacity = 0 // no tree uses it
		}
		links = append(links, flow.Link{Capacity: capacity})
		switches = append(switches, flow.Switch{PAT: r.PAT})
	}
	s, err := flow.NewSteady(links, switches)
	if err != nil {
		panic(err) // Check has seen it
	}
	return &network{Steady: s, plant: newPlanter(cfg)}
}

// add enters the trees of r's placement.
func (n *network) add(r *running) {
	r.trees = r.trees[:0]
	n.plant.each(r.job, r.place, func(t *flow.Job) {
		h, err := n.Add(t)
		if err != nil {
			panic(err) // trees are made here
		}
		r.trees = append(r.trees, h)
		n.owner = append(n.owner, make([]*running, max(0, h+1-len(n.owner)))...)
		n.owner[h] = r
	})
}

// remove ends what add entered.
func (n *network) remove(r *running) {
	for _, h := range r.trees {
		n.Remove(h)
		n.owner[h] = nil
	}
	r.trees = r.trees[:0]
}

// planter makes trees of placements in memory of its own.
type planter struct {
	cfg   Config
	job   flow.Job
	tors  []int // racks of the tree at hand but for the root's
	torOf []int // rack -> its node
}

func newPlanter(cfg Config) planter { return planter{cfg: cfg, torOf: make([]int, len(cfg.Racks))} }

// up is the link of a rack to the core.
func (p *planter) up(rack int) int {
	if math.IsInf(p.cfg.Racks[rack].Uplink, 1) {
		return flow.None
	}
	return len(p.cfg.Servers) + rack
}

func (p *planter) node(parent, up, sw int, aggregate bool) {
	p.job.Nodes = append(p.job.Nodes, flow.Node{Parent: parent, Up: up, Down: flow.None, Switch: sw, Aggregate: aggregate})
}

// each calls f with the aggregation trees of a placement, one per parameter server,
// which are f's only during the call. A worker on its PS's server uses that link twice,
// as on a testbed where both meet in the switch. A ring is a stream per server.
func (p *planter) each(j Job, at Placement, f func(*flow.Job)) {
	switch {
	case at.Local() || len(at.Parts) == 0:
	case j.Traffic == Ring:
		p.ring(at)
		f(&p.job)
	case j.Traffic == Tree:
		p.tree(at, flow.Synchronous, p.cfg.Root(at.Parts), flow.None)
		f(&p.job)
	default:
		kind := flow.Statistical
		if j.Traffic == PS {
			kind = flow.Unicast
		}
		for _, ps := range at.PS {
			p.tree(at, kind, p.cfg.Servers[ps].Rack, ps)
			f(&p.job)
		}
	}
}

// ring: every server sends once around, to the next one, through its own link, and through
// its rack's where that is elsewhere. What it sends leaves by one direction of a cable, and
// as much comes in by the other at the same time, so that a ring takes of a full-duplex
// link what one direction carries, and that once. As many streams leave a rack as enter it.
func (p *planter) ring(at Placement) {
	p.job = flow.Job{Kind: flow.Unicast, Nodes: p.job.Nodes[:0]}
	for i, w := range at.Parts {
		p.node(flow.None, w.Server, flow.None, false)
		next := at.Parts[(i+1)%len(at.Parts)].Server
		if a, b := p.cfg.Servers[w.Server].Rack, p.cfg.Servers[next].Rack; a != b {
			p.node(flow.None, p.up(a), flow.None, false)
		}
	}
}

// tree: workers, ToRs of the other racks, the core, the root ToR, the PS; children
// before parents.
func (p *planter) tree(at Placement, kind flow.Kind, root, ps int) {
	p.job = flow.Job{Kind: kind, Slots: math.Inf(1), Nodes: p.job.Nodes[:0]}
	p.tors = p.tors[:0]
	n := len(at.Parts)
	p.torOf[root] = -1
	for _, w := range at.Parts {
		if r := p.cfg.Servers[w.Server].Rack; r != root {
			p.torOf[r] = 0
		}
	}
	for _, w := range at.Parts {
		if r := p.cfg.Servers[w.Server].Rack; p.torOf[r] == 0 {
			p.torOf[r] = n + len(p.tors)
			p.tors = append(p.tors, r)
		}
	}
	core := n + len(p.tors)
	rootAt := core
	if len(p.tors) > 0 {
		rootAt++
	}
	p.torOf[root] = rootAt
	for _, w := range at.Parts {
		p.node(p.torOf[p.cfg.Servers[w.Server].Rack], w.Server, flow.None, false)
	}
	for _, r := range p.tors {
		p.node(core, p.up(r), r, !slices.Contains(at.Plain, r))
	}
	if len(p.tors) > 0 {
		p.node(rootAt, p.up(root), flow.None, false)
	}
	if ps == flow.None {
		p.node(flow.None, flow.None, root, !slices.Contains(at.Plain, root))
		return
	}
	p.node(rootAt+1, ps, root, !slices.Contains(at.Plain, root))
	p.node(flow.None, flow.None, flow.None, false)
}

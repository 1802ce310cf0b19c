package netpack

import (
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// deck keeps servers in classes of equal free GPUs and flows, each from the one with the
// most bandwidth on, ties by index. In a class more bandwidth is more value, both for a
// worker and for a PS.
//
// For a plan of at most so many GPUs the best of each class are enough: to it, the servers
// of a class differ in nothing but their value. Let limit be how many of them fit a plan.
// If an optimal plan has a server that is not among the limit best of its class, one of
// those is not in the plan, as no more fit; taking it instead changes neither GPUs nor
// flows, and does not lower the value. So some optimal plan consists of the best alone.
type deck struct {
	servers []server
	gpus    int       // that a server may have; 0: classes are of equal flows only
	classes [][]int32 // flows*(gpus+1) + free; the last row is not empty
}

// rows is one more than the most flows.
func (d *deck) rows() int { return len(d.classes) / (d.gpus + 1) }

// class is a class of servers; free is 0 where classes are of equal flows only.
func (d *deck) class(flows, free int) []int32 { return d.classes[flows*(d.gpus+1)+free] }

func (d *deck) key(server int) int {
	s := &d.servers[server]
	return s.flows*(d.gpus+1) + min(s.free, d.gpus)
}

// before reports whether server a is better than b of the same class.
func (d *deck) before(a, b int32) bool {
	v, w := d.servers[a].bandwidth, d.servers[b].bandwidth
	return v > w || v == w && a < b
}

// find is where a server is in a class, or belongs.
func (d *deck) find(class []int32, server int32) int {
	from, to := 0, len(class)
	if to > 0 && d.before(class[to-1], server) {
		return to // as it is whenever servers with equal bandwidth come in their order
	}
	for from < to {
		if mid := (from + to) / 2; d.before(class[mid], server) {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from
}

// put enters a server as it is.
func (d *deck) put(server int) {
	key := d.key(server)
	for d.rows() <= d.servers[server].flows {
		n := len(d.classes)
		d.classes = slices.Grow(d.classes, d.gpus+1)[:n+d.gpus+1]
	}
	c := &d.classes[key]
	*c = slices.Insert(*c, d.find(*c, int32(server)), int32(server))
}

// take removes a server that is as it was when it was put.
func (d *deck) take(server int) {
	c := &d.classes[d.key(server)]
	at := d.find(*c, int32(server))
	*c = slices.Delete(*c, at, at+1)
	for d.rows() > 0 && d.emptyRow(d.rows()-1) {
		d.classes = d.classes[:len(d.classes)-d.gpus-1]
	}
}

func (d *deck) emptyRow(flows int) bool {
	for free := 0; free <= d.gpus; free++ {
		if len(d.class(flows, free)) > 0 {
			return false
		}
	}
	return true
}

// reset empties the deck.
func (d *deck) reset() {
	for i := range d.classes {
		d.classes[i] = d.classes[i][:0]
	}
	d.classes = d.classes[:0]
}

// plan is a set of servers, all of whose free GPUs it takes.
type plan struct {
	flows int     // at most, on the link of each
	gpus  int     // in all
	value float64 // sum of the servers' values
	last  int32   // index in steps
}

// cell is V: the best value known, and how it came about.
type cell struct {
	value float64
	last  int32
}

// step adds a server to the plan that ends in step before, or starts one where that
// is -1.
type step struct{ server, before int32 }

// candidates fills plans with the best ones for a job from the servers of a deck: for
// every number of flows f, and each number of GPUs from gpus to gpus+G, the most valuable
// set of servers with at most f flows each. As published, plans with more GPUs than the
// job wants do not compete where some set has exactly as many.
//
// Instead of V[s][f][g] for all f side by side, servers come in the order of their flows
// and V[g] is read whenever all with f flows are in. The order of servers is free, so
// this is the same program at 1/f of the work: V[f][g] of the paper, the best with some
// server of exactly f flows, is what V[g] gains while these come in.
func (p *planner) candidates(d *deck, gpus int) {
	p.steps, p.plans = p.steps[:0], p.plans[:0]
	if p.Variant == Published {
		p.published(d, gpus)
		return
	}
	widest := gpus + p.most
	v := p.table(widest + 1)
	seen := append(p.seen[:0], make([]int32, p.most+1)...)
	p.seen = seen
	reach := 0
	for flows := range d.rows() {
		for free := p.most; free > 0; free-- {
			best := d.class(flows, free)
			for _, i := range best[:min(len(best), widest/free)] {
				reach = min(reach+free, widest)
				p.join(v[:reach+1], v, i, free, p.servers[i].worker-p.link) // 0 for an idle one
			}
		}
		for g := gpus; g <= widest; g++ {
			if v[g].last >= 0 && v[g].last+1 != seen[g-gpus] {
				seen[g-gpus] = v[g].last + 1
				p.plans = append(p.plans, plan{flows, g, v[g].value, v[g].last})
			}
		}
	}
}

// table is V without any server: only no GPUs can be had.
func (p *planner) table(n int) []cell {
	p.cells = slices.Grow(p.cells[:0], n)[:n]
	blank(p.cells)
	p.cells[0].value = 0
	return p.cells
}

// blank makes cells of which nothing is known.
func blank(v []cell) {
	for i := range v {
		v[i] = cell{math.Inf(-1), -1}
	}
}

// published is the program as it is printed, over all servers of the deck in their
// order. Row f is for at most f flows; a server with more leaves it alone.
func (p *planner) published(d *deck, gpus int) {
	widest := gpus + p.most
	var all []int32
	var rows []int // distinct numbers of flows, ascending
	for flows := range d.rows() {
		n := len(all)
		for free := 1; free <= p.most; free++ {
			all = append(all, d.class(flows, free)...)
		}
		if len(all) > n {
			rows = append(rows, flows)
		}
	}
	slices.Sort(all)
	v := make([][]cell, len(rows))
	for f := range rows {
		v[f] = slices.Clone(p.table(widest + 1))
	}
	for _, i := range all {
		s := &p.servers[i]
		for g := widest; g >= s.free; g-- {
			most := v[len(rows)-1][g].value // V[s-1][f_max][g], before this server
			for f := range rows {
				if from := v[f][g-s.free]; rows[f] >= s.flows && most < from.value+s.worker {
					p.steps = append(p.steps, step{i, from.last})
					v[f][g] = cell{from.value + s.worker, int32(len(p.steps) - 1)}
				}
			}
		}
	}
	for f := range rows {
		for g := gpus; g <= widest; g++ {
			if v[f][g].last >= 0 {
				p.plans = append(p.plans, plan{rows[f], g, v[f][g].value, v[f][g].last})
			}
		}
	}
	if slices.ContainsFunc(p.plans, func(pl plan) bool { return pl.gpus == gpus }) {
		p.plans = slices.DeleteFunc(p.plans, func(pl plan) bool { return pl.gpus != gpus })
	}
}

// unfold lists a plan's servers, the last added first, until the next call.
func (p *planner) unfold(pl plan) []cluster.Part {
	p.parts = p.parts[:0]
	for s := pl.last; s >= 0; s = p.steps[s].before {
		i := int(p.steps[s].server)
		p.parts = append(p.parts, cluster.Part{Server: i, GPUs: p.servers[i].free})
	}
	return p.parts
}

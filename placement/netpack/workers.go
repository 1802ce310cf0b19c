package netpack

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// deck sorts servers into classes of equal free GPUs and flows, and keeps of each only
// the most valuable, ties by index.
//
// That is enough for a plan of at most so many GPUs: to it, the servers of a class
// differ in nothing but their value. Let limit be how many of them fit a plan. If an
// optimal plan has a server that is not among the limit best of its class, one of those
// is not in the plan, as no more fit; taking it instead changes neither GPUs nor flows,
// and does not lower the value. So some optimal plan consists of the best alone.
type deck struct {
	classes []class
	stride  int     // of flows in at
	at      []int32 // flows*stride + GPUs -> 1 + index in classes
}

type class struct {
	gpus, flows int
	best        []ranked // while servers are offered a heap, the worst first
}

type ranked struct {
	server int
	value  float64
}

func (a ranked) compare(b ranked) int {
	return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.server, b.server))
}

// reset empties the deck, for servers with fewer than stride GPUs.
func (d *deck) reset(stride int) {
	for i := range d.classes {
		d.at[d.classes[i].flows*d.stride+d.classes[i].gpus] = 0
	}
	d.classes, d.stride = d.classes[:0], stride
}

// offer enters a server, of whose class limit are kept.
func (d *deck) offer(server, gpus, flows int, value float64, limit int) {
	key := flows*d.stride + gpus
	if key >= len(d.at) {
		d.at = append(d.at, make([]int32, key+1-len(d.at))...)
	}
	if d.at[key] == 0 {
		n := len(d.classes)
		if n < cap(d.classes) {
			d.classes = d.classes[:n+1]
		} else {
			d.classes = append(d.classes, class{})
		}
		d.classes[n] = class{gpus, flows, d.classes[n].best[:0]}
		d.at[key] = int32(n + 1)
	}
	c := &d.classes[d.at[key]-1]
	r := ranked{server, value}
	switch h := c.best; {
	case len(h) < limit:
		h = append(h, r)
		for i := len(h) - 1; i > 0 && h[i].compare(h[(i-1)/2]) > 0; i = (i - 1) / 2 {
			h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		}
		c.best = h
	case value > h[0].value || value == h[0].value && server < h[0].server:
		h[0] = r
		for i := 0; ; {
			k := 2*i + 1
			if k >= len(h) {
				break
			}
			if k+1 < len(h) && h[k+1].compare(h[k]) > 0 {
				k++
			}
			if h[k].compare(h[i]) < 0 {
				break
			}
			h[i], h[k] = h[k], h[i]
			i = k
		}
	}
}

// sort orders the classes by flows, then GPUs from many to few, and each from the best
// server on. The deck takes no more offers until it is reset.
func (d *deck) sort() {
	for i := range d.classes {
		slices.SortFunc(d.classes[i].best, ranked.compare)
	}
	slices.SortFunc(d.classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.flows, b.flows), cmp.Compare(b.gpus, a.gpus))
	})
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
type step struct {
	server int
	before int32
}

// candidates fills plans with the best ones for a job from the servers of a deck: for
// every number of flows f, and each number of GPUs from gpus to gpus+G, the most valuable
// set of servers with at most f flows each. Where some set has exactly as many GPUs as
// the job wants, plans with more do not compete (section 5.2, step 2: "in this case").
//
// Instead of V[s][f][g] for all f side by side, servers come in the order of their flows
// and V[g] is read whenever all with f flows are in. The order of servers is free, so
// this is the same program at 1/f of the work: V[f][g] of the paper, the best with some
// server of exactly f flows, is what V[g] gains while these come in.
func (p *planner) candidates(d *deck, gpus int) {
	d.sort()
	widest := gpus + p.most
	p.steps, p.plans = p.steps[:0], p.plans[:0]
	if p.Variant == Published {
		p.published(d, gpus)
	} else {
		v := p.table(widest + 1)
		seen := append(p.seen[:0], make([]int32, p.most+1)...)
		p.seen = seen
		reach := 0
		for i := range d.classes {
			k := &d.classes[i]
			for _, r := range k.best {
				reach = min(reach+k.gpus, widest)
				for g := reach; g >= k.gpus; g-- {
					if t := v[g-k.gpus].value + r.value; t > v[g].value {
						p.steps = append(p.steps, step{r.server, v[g-k.gpus].last})
						v[g] = cell{t, int32(len(p.steps) - 1)}
					}
				}
			}
			if i+1 < len(d.classes) && d.classes[i+1].flows == k.flows {
				continue
			}
			for g := gpus; g <= widest; g++ {
				if v[g].last >= 0 && v[g].last+1 != seen[g-gpus] {
					seen[g-gpus] = v[g].last + 1
					p.plans = append(p.plans, plan{k.flows, g, v[g].value, v[g].last})
				}
			}
		}
	}
	if slices.ContainsFunc(p.plans, func(pl plan) bool { return pl.gpus == gpus }) {
		p.plans = slices.DeleteFunc(p.plans, func(pl plan) bool { return pl.gpus != gpus })
	}
}

// table is V without any server: only no GPUs can be had.
func (p *planner) table(n int) []cell {
	p.cells = slices.Grow(p.cells[:0], n)[:n]
	for i := range p.cells {
		p.cells[i] = cell{math.Inf(-1), -1}
	}
	p.cells[0].value = 0
	return p.cells
}

// published is the program as it is printed, over all servers in their order. Row f is
// for at most f flows; a server with more leaves it alone.
func (p *planner) published(d *deck, gpus int) {
	widest := gpus + p.most
	var all []ranked
	var rows []int // distinct numbers of flows, ascending
	for i := range d.classes {
		all = append(all, d.classes[i].best...)
		if f := d.classes[i].flows; len(rows) == 0 || rows[len(rows)-1] != f {
			rows = append(rows, f)
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.server, b.server) })
	v := make([][]cell, len(rows))
	for f := range rows {
		v[f] = slices.Clone(p.table(widest + 1))
	}
	for _, r := range all {
		s := &p.servers[r.server]
		for g := widest; g >= s.free; g-- {
			most := v[len(rows)-1][g].value // V[s-1][f_max][g], before this server
			for f := range rows {
				if from := v[f][g-s.free]; rows[f] >= s.flows && most < from.value+r.value {
					p.steps = append(p.steps, step{r.server, from.last})
					v[f][g] = cell{from.value + r.value, int32(len(p.steps) - 1)}
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
}

// unfold lists a plan's servers, the last added first.
func (p *planner) unfold(pl plan) []cluster.Part {
	var parts []cluster.Part
	for s := pl.last; s >= 0; s = p.steps[s].before {
		i := p.steps[s].server
		parts = append(parts, cluster.Part{Server: i, GPUs: p.servers[i].free})
	}
	return parts
}

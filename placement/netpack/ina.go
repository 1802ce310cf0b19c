package netpack

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// left is what running jobs leave of a rack's PAT: what was left when the first job of
// the batch came to it.
func (p *planner) left(rack int) float64 {
	if p.rivals[rack] == 0 {
		p.budget[rack] = p.c.PAT(rack)
	}
	return p.budget[rack]
}

// inflow is what comes in at a ToR switch that can aggregate for a placement.
type inflow struct {
	rack, workers int // in the rack
	trees         int // that pass the switch, one per PS
	flows         int // of all trees
	most          int // of one tree
}

// fanIn is what comes in at each ToR switch that can aggregate for a placement, until
// the next call.
func (p *planner) fanIn(where cluster.Placement) []inflow {
	p.inflows = p.inflows[:0]
	at := func(server int) *inflow {
		rack := p.servers[server].rack
		i := slices.IndexFunc(p.inflows, func(k inflow) bool { return k.rack == rack })
		if i < 0 {
			i = len(p.inflows)
			p.inflows = append(p.inflows, inflow{rack: rack})
		}
		return &p.inflows[i]
	}
	for _, w := range where.Parts {
		at(w.Server).workers++
	}
	racks := len(p.inflows) // with workers
	for _, ps := range where.PS {
		at(ps)
	}
	for i := range p.inflows {
		k := &p.inflows[i]
		for _, ps := range where.PS {
			flows := k.workers
			if p.servers[ps].rack == k.rack {
				flows += racks
				if k.workers > 0 {
					flows--
				}
			}
			if flows > 0 {
				k.trees++
				k.flows += flows
				k.most = max(k.most, flows)
			}
		}
	}
	return p.inflows
}

// plain are the racks where a placement goes without aggregation from the start: there
// is nothing to add up, or running jobs leave no memory.
func (p *planner) plain(where cluster.Placement) []int {
	var out []int
	for _, k := range p.fanIn(where) {
		if k.most < 2 || p.left(k.rack) <= 0 {
			out = append(out, k.rack)
		}
	}
	slices.Sort(out)
	return out
}

// entered counts a job among those that share the memory of the racks where there is
// something to add up: there plain has seen what is left.
func (p *planner) entered(j cluster.Job, where cluster.Placement) {
	if j.Traffic == cluster.INA && !where.Local() {
		for _, k := range p.fanIn(where) {
			if k.most > 1 {
				p.rivals[k.rack]++
			}
		}
	}
}

// selectINA is step 4: the jobs of the batch get the memory that running jobs leave, in
// descending order of their aggregation efficiency (throughput times the flows that come
// in at the switches that aggregate for them). At each ToR switch they aggregate until
// its PAT is used up; the others go without there.
//
// All throughputs are those of the state in which every job aggregates wherever it can:
// switching aggregation off changes the rates, but not the order nor what counts as used.
// A job with several PSes is as many jobs with equal shares of its throughput.
func (p *planner) selectINA(batch []cluster.Job, placed []cluster.Placement) {
	type entry struct {
		i    int
		rate float64 // of one tree
		ae   float64
	}
	var order []entry
	for i := range placed {
		if batch[i].Traffic != cluster.INA || len(placed[i].PS) == 0 {
			continue
		}
		flows, scarce := 0, false // others of the batch want the same memory
		for _, k := range p.fanIn(placed[i]) {
			if k.most > 1 && p.left(k.rack) > 0 {
				flows += k.flows
				scarce = scarce || p.rivals[k.rack] > 1 && !math.IsInf(p.budget[k.rack], 1)
			}
		}
		if scarce {
			rate := p.c.Rate(batch[i].ID) / float64(len(placed[i].PS))
			order = append(order, entry{i, rate, rate * float64(flows)})
		}
	}
	slices.SortStableFunc(order, func(a, b entry) int { return cmp.Compare(b.ae, a.ae) })
	for _, e := range order {
		where := &placed[e.i]
		var plain []int
		for _, k := range p.fanIn(*where) {
			if k.most < 2 || p.budget[k.rack] <= 1e-9*e.rate {
				plain = append(plain, k.rack)
			} else {
				p.budget[k.rack] -= e.rate * float64(k.trees)
			}
		}
		slices.Sort(plain)
		if !slices.Equal(plain, where.Plain) {
			where.Plain = plain
			p.c.SetPlain(batch[e.i].ID, plain)
		}
	}
}

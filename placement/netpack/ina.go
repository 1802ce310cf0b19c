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

// fanIn calls f for each rack whose ToR switch can aggregate for a placement, with the
// flows that come in there, summed over its trees.
func (p *planner) fanIn(where cluster.Placement, f func(rack, flows int)) {
	type rack struct{ rack, workers int }
	var racks []rack
	for _, w := range where.Parts {
		r := p.servers[w.Server].rack
		if i := slices.IndexFunc(racks, func(k rack) bool { return k.rack == r }); i >= 0 {
			racks[i].workers++
		} else {
			racks = append(racks, rack{r, 1})
		}
	}
	for _, ps := range where.PS {
		if r := p.servers[ps].rack; !slices.ContainsFunc(racks, func(k rack) bool { return k.rack == r }) {
			racks = append(racks, rack{rack: r})
		}
	}
	for _, k := range racks {
		flows := 0
		for _, ps := range where.PS {
			switch {
			case p.servers[ps].rack != k.rack:
				flows = max(flows, k.workers)
			case k.workers > 0:
				flows = max(flows, k.workers+len(racks)-1)
			default:
				flows = max(flows, len(racks)-1)
			}
		}
		f(k.rack, flows)
	}
}

// plain are the racks where a placement goes without aggregation from the start: there
// is nothing to add up, or running jobs leave no memory.
func (p *planner) plain(where cluster.Placement) []int {
	var out []int
	p.fanIn(where, func(rack, flows int) {
		if flows < 2 || p.left(rack) <= 0 {
			out = append(out, rack)
		}
	})
	slices.Sort(out)
	return out
}

// entered counts a job among those that share its racks' memory, which plain has seen.
func (p *planner) entered(j cluster.Job, where cluster.Placement) {
	if j.Traffic == cluster.INA && !where.Local() {
		p.fanIn(where, func(rack, _ int) { p.rivals[rack]++ })
	}
}

// selectINA is step 4: the jobs of the batch get the memory that running jobs leave, in
// descending order of their aggregation efficiency (throughput times the flows that come
// in at the switches that aggregate for them). At each ToR switch they aggregate until
// its PAT is used up; the others go without there.
func (p *planner) selectINA(batch []cluster.Job, placed []cluster.Placement) {
	scarce := func(where *cluster.Placement) bool {
		for i := range where.Parts {
			r := p.servers[where.Parts[i].Server].rack
			if p.rivals[r] > 1 && !math.IsInf(p.budget[r], 1) {
				return true
			}
		}
		return false
	}
	type entry struct {
		i    int
		rate float64
		ae   float64
	}
	var order []entry
	for i := range placed {
		if batch[i].Traffic != cluster.INA || len(placed[i].PS) == 0 || !scarce(&placed[i]) {
			continue
		}
		e := entry{i: i, rate: p.c.Rate(batch[i].ID)}
		p.fanIn(placed[i], func(_, flows int) {
			if flows > 1 {
				e.ae += e.rate * float64(flows)
			}
		})
		order = append(order, e)
	}
	slices.SortStableFunc(order, func(a, b entry) int { return cmp.Compare(b.ae, a.ae) })
	for _, e := range order {
		where := &placed[e.i]
		var plain []int
		p.fanIn(*where, func(rack, flows int) {
			if flows < 2 || p.budget[rack] <= 0 {
				plain = append(plain, rack)
				return
			}
			p.budget[rack] -= e.rate
		})
		slices.Sort(plain)
		if !slices.Equal(plain, where.Plain) {
			where.Plain = plain
			p.c.SetPlain(batch[e.i].ID, plain)
		}
	}
}

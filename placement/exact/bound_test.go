package exact

import (
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// need is what a job at a place takes of the network per unit of its rate.
type need struct {
	alone float64 // its rate in an empty cluster; no company makes it faster
	// least and most are flows by link, servers' first: with switches that are never
	// short of memory, and with switches that have none.
	least, most []float64
}

// meter measures needs, in clusters that are otherwise empty.
type meter struct {
	empty, full, none *cluster.Cluster // as it is; with unlimited PAT; without
	room              room
}

// room is what links have.
type room struct {
	links []float64 // bit/s
	pat   float64   // of all switches together
}

func newMeter(cfg cluster.Config) *meter {
	with := func(pat func(float64) float64) *cluster.Cluster {
		out := cluster.Config{Servers: slices.Clone(cfg.Servers), Racks: slices.Clone(cfg.Racks)}
		for i := range out.Servers {
			out.Servers[i].GPUs = math.MaxInt32
		}
		for i := range out.Racks {
			out.Racks[i].PAT = pat(out.Racks[i].PAT)
		}
		return cluster.New(out)
	}
	m := &meter{
		empty: with(func(pat float64) float64 { return pat }),
		full: with(func(pat float64) float64 {
			if pat > 0 {
				return math.Inf(1)
			}
			return 0
		}),
		none: with(func(float64) float64 { return 0 }),
	}
	for _, s := range cfg.Servers {
		m.room.links = append(m.room.links, s.Link)
	}
	for _, r := range cfg.Racks {
		m.room.links = append(m.room.links, r.Uplink)
		m.room.pat += r.PAT
	}
	return m
}

func (m *meter) need(j cluster.Job, p cluster.Placement) need {
	n := need{alone: math.Inf(1)}
	if p.Local() {
		return n
	}
	j.GPUs = 0
	for _, w := range p.Parts {
		j.GPUs += w.GPUs
	}
	measure := func(c *cluster.Cluster) []float64 {
		if err := c.Enter(j, p); err != nil {
			panic(err) // places are made here, or were entered before
		}
		defer c.Leave(j.ID)
		if c == m.empty {
			n.alone = c.Rate(j.ID)
		}
		var flows []float64
		for s := range c.Servers {
			flows = append(flows, float64(c.Flows(s)))
		}
		for r := range c.Racks {
			flows = append(flows, float64(c.UplinkFlows(r)))
		}
		return flows
	}
	measure(m.empty)
	n.least, n.most = measure(m.full), measure(m.none)
	return n
}

// bound is what jobs of these needs and sizes cost at least together, however the
// rates are shared (which is what Table 3 would choose): it takes the link on which they
// are in each other's way most, as if they met nowhere else, then the worst link for the
// jobs that do not use that one, and so on. Jobs on no such link cost what they do alone.
//
// A link of capacity C carries at least the sum of least flows times rate, and at least
// that of most flows times rate less what aggregation saves: at most A times the largest
// difference of the two of a job there, with A the PAT of all switches together.
func (r *room) bound(needs []need, sizes []float64) float64 {
	sum := 0.0
	left := make([]int, 0, len(needs)) // jobs not yet on a link that was taken
	for i, n := range needs {
		if math.IsInf(n.alone, 1) {
			continue
		}
		sum += sizes[i] / n.alone
		left = append(left, i)
	}
	for len(left) > 1 {
		gain, at := 0.0, 0
		for l, capacity := range r.links {
			if math.IsInf(capacity, 1) {
				continue
			}
			g := shared(capacity, needs, sizes, left, func(n *need) float64 { return n.least[l] })
			differ := 0.0
			for _, i := range left {
				differ = max(differ, needs[i].most[l]-needs[i].least[l])
			}
			if save := differ * r.pat; save > 0 && !math.IsInf(save, 1) {
				g = max(g, shared(capacity+save, needs, sizes, left, func(n *need) float64 { return n.most[l] }))
			}
			if g > gain {
				gain, at = g, l
			}
		}
		if gain <= 0 {
			break
		}
		sum += gain
		others := left[:0]
		for _, i := range left {
			if needs[i].most[at] == 0 {
				others = append(others, i)
			}
		}
		left = others
	}
	return sum
}

// shared is by how much jobs on one link cost more at least than each alone: it
// minimises the sum of d/v where the sum of f·v is at most the capacity and no v above
// that of the job alone. The optimum has v proportional to sqrt(d/f) but for the jobs
// that reach their limit.
func shared(capacity float64, needs []need, sizes []float64, jobs []int, flows func(*need) float64) float64 {
	var limited uint64 // by position in jobs
	for {
		weight := 0.0
		for k, i := range jobs {
			if f := flows(&needs[i]); f > 0 && limited>>k&1 == 0 {
				weight += math.Sqrt(sizes[i] * f)
			}
		}
		if weight == 0 {
			return 0
		}
		gain, again := 0.0, false
		for k, i := range jobs {
			n := &needs[i]
			f := flows(n)
			if f == 0 || limited>>k&1 != 0 {
				continue
			}
			v := capacity * math.Sqrt(sizes[i]/f) / weight
			if v >= n.alone {
				limited |= 1 << k
				capacity -= f * n.alone
				again = true
				break
			}
			gain += sizes[i]/v - sizes[i]/n.alone
		}
		if !again {
			return gain
		}
	}
}

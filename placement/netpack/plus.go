package netpack

import (
	"cmp"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Plus is the policy "netpack+": NetPack's placement of a batch, then a local search with
// what Equation 1 only estimates, the steady state of all jobs that a placement affects.
// It lowers the objective of Table 3, the sum over jobs of their bytes over their rate
// (a job of unknown size counts as one byte), and by that measure never places a batch
// worse than NetPack does. Explanations are of NetPack's placement.
//
// The jobs of the batch, the ones that communicate for longest first, are tried on the
// servers with the most free GPUs, on those with the fewest flows, with one server
// exchanged, and with their parameter servers elsewhere; in small batches pairs of jobs
// are placed anew. At last ToR switches stop to aggregate for a job, or start, where that
// helps. Jobs that ran before stay where they are.
func Plus(o Options) cluster.Policy { return &plus{New(o)} }

type plus struct{ netpack cluster.Policy }

// The work is bounded: so many placements are weighed for each job of a batch, and so many
// more where pairs of jobs are looked at.
const (
	movesPerJob = 16
	pairsPerJob = 400
	pairsUpTo   = 8 // jobs on several servers
)

// Name implements cluster.Policy.
func (p *plus) Name() string { return p.netpack.Name() + "+" }

// Place implements cluster.Policy. Nothing in it depends on the seed.
func (p *plus) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	out := p.netpack.Place(c, batch, seed)
	l := &local{planner: plannerOf(c), batch: batch, out: out}
	for i := range out {
		if len(out[i].Parts) > 0 {
			l.placed = append(l.placed, i)
			if !out[i].Local() {
				l.spread = append(l.spread, i)
			}
		}
	}
	if len(l.spread) > 0 {
		l.rates = c.Subscribe()
		defer l.rates.Close()
		l.search()
	}
	return out
}

// local is a local search. Between its steps all jobs of the batch that have a place are
// in the cluster.
type local struct {
	*planner
	rates          *cluster.Changes
	batch          []cluster.Job
	out            []cluster.Placement
	placed, spread []int // of the batch: those that have a place, and those on several servers
	budget         int   // placements to be weighed yet
	others         []cost
}

// cost is the seconds that a job communicates for.
type cost struct {
	id      int
	seconds float64
}

func (l *local) search() {
	slices.SortStableFunc(l.spread, func(a, b int) int {
		return cmp.Compare(l.seconds(l.batch[b].ID), l.seconds(l.batch[a].ID))
	})
	l.budget = movesPerJob * len(l.spread)
	for l.move() {
	}
	if len(l.spread) <= pairsUpTo && len(l.placed) > 1 {
		l.budget = pairsPerJob * len(l.spread)
		for l.exchange() && l.move() {
		}
	}
	l.selectINA()
}

// seconds are what a running job communicates for.
func (l *local) seconds(id int) float64 {
	j, _, _ := l.c.Placement(id)
	return max(1, j.Bytes) / l.c.Rate(id)
}

// leave takes a job of the batch out of the cluster.
func (l *local) leave(i int) {
	if err := l.c.Leave(l.batch[i].ID); err != nil {
		panic(err) // it is in
	}
}

// enter puts a job of the batch where it is to be.
func (l *local) enter(i int) {
	if err := l.c.Enter(l.batch[i], l.out[i]); err != nil {
		panic(err) // it was there before, or was weighed there
	}
}

// weigh is by how much the cost of all jobs rises with a job at a place; +Inf where it
// cannot be.
func (l *local) weigh(i int, p cluster.Placement) (sum float64) {
	l.budget--
	l.rates.Jobs()
	if l.c.Enter(l.batch[i], p) != nil {
		return math.Inf(1)
	}
	l.others = l.others[:0]
	for _, id := range l.rates.Jobs() {
		s := l.seconds(id)
		sum += s
		if id != l.batch[i].ID {
			l.others = append(l.others, cost{id, s})
		}
	}
	l.leave(i)
	for _, o := range l.others {
		sum -= l.seconds(o.id)
	}
	return sum
}

// better reports whether a cost is lower than another, by more than rounding.
func better(a, b float64) bool {
	if math.IsInf(b, 1) { // of which a part is no number
		return a < b
	}
	return a < b-1e-9*math.Abs(b)
}

// best is the best place for a job that is not in the cluster: the one given, or one
// near it that is better.
func (l *local) best(i int, was cluster.Placement) (cluster.Placement, float64) {
	best, least := was, l.weigh(i, was)
	for _, p := range l.near(i, was) {
		if l.budget <= 0 {
			break
		}
		if c := l.weigh(i, p); better(c, least) {
			best, least = p, c
		}
	}
	return best, least
}

// move moves every job on several servers once, where that is better.
func (l *local) move() (moved bool) {
	for _, i := range l.spread {
		if l.budget <= 0 {
			return false
		}
		if len(l.out[i].Parts) == 1 {
			continue
		}
		l.leave(i)
		to, _ := l.best(i, l.out[i])
		moved = moved || !same(to, l.out[i])
		l.out[i] = to
		l.enter(i)
	}
	return moved
}

// exchange places every pair of jobs anew, one after the other, where that is better.
func (l *local) exchange() (moved bool) {
	for _, a := range l.spread {
		for _, b := range l.placed {
			if a == b {
				continue
			}
			if l.budget <= 0 {
				return false
			}
			l.leave(b)
			least := l.weigh(b, l.out[b])
			l.leave(a)
			least += l.weigh(a, l.out[a])
			toA, toB := l.out[a], l.out[b]
			for _, p := range l.near(a, l.out[a]) {
				c := l.weigh(a, p)
				if l.c.Enter(l.batch[a], p) != nil {
					continue
				}
				q, more := l.best(b, l.out[b])
				if better(c+more, least) {
					toA, toB, least, moved = p, q, c+more, true
				}
				l.leave(a)
			}
			l.out[a], l.out[b] = toA, toB
			l.enter(a)
			l.enter(b)
		}
	}
	return moved
}

// selectINA switches aggregation for a job off at a rack, or on, where that is better.
func (l *local) selectINA() {
	for _, i := range l.spread {
		if l.batch[i].Traffic != cluster.INA || len(l.out[i].PS) == 0 {
			continue
		}
		for _, k := range slices.Clone(l.fanIn(l.out[i])) {
			if pat := l.c.Racks[k.rack].PAT; pat == 0 || math.IsInf(pat, 1) {
				continue
			}
			other := l.out[i].Clone()
			if at, off := slices.BinarySearch(other.Plain, k.rack); off {
				other.Plain = slices.Delete(other.Plain, at, at+1)
			} else {
				other.Plain = slices.Insert(other.Plain, at, k.rack)
			}
			l.leave(i)
			if better(l.weigh(i, other), l.weigh(i, l.out[i])) {
				l.out[i] = other
			}
			l.enter(i)
		}
	}
}

func same(a, b cluster.Placement) bool {
	return slices.Equal(a.Parts, b.Parts) && slices.Equal(a.PS, b.PS) && slices.Equal(a.Plain, b.Plain)
}

// near are other places for a job that is not in the cluster and was at one.
func (l *local) near(i int, was cluster.Placement) []cluster.Placement {
	l.refresh()
	j := &l.batch[i]
	places := []cluster.Placement{was}
	add := func(p cluster.Placement) {
		if j.Traffic == cluster.INA && len(p.PS) > 0 {
			for _, f := range l.fanIn(p) {
				if f.most < 2 {
					p.Plain = append(p.Plain, f.rack)
				}
			}
			slices.Sort(p.Plain)
		}
		if !slices.ContainsFunc(places, func(o cluster.Placement) bool { return same(o, p) }) {
			places = append(places, p)
		}
	}
	// The workers, with so many choices of parameter servers apart from them, and one of a
	// single one beside the calmest.
	workers := func(parts []cluster.Part, choices int) {
		if len(parts) == 0 {
			return
		}
		slices.SortFunc(parts, func(a, b cluster.Part) int {
			return cmp.Or(cmp.Compare(l.servers[a.Server].rack, l.servers[b.Server].rack), cmp.Compare(a.Server, b.Server))
		})
		if !j.NeedsPS(len(parts)) {
			add(cluster.Placement{Parts: parts})
			return
		}
		for k := range choices {
			if ps := l.calm(parts, max(1, j.PSes), k); ps != nil {
				add(cluster.Placement{Parts: parts, PS: ps})
			}
		}
		if j.PSes < 2 {
			add(cluster.Placement{Parts: parts, PS: []int{slices.MinFunc(parts, func(a, b cluster.Part) int {
				v, w := &l.servers[a.Server], &l.servers[b.Server]
				return cmp.Or(cmp.Compare(v.flows, w.flows), cmp.Compare(w.bandwidth, v.bandwidth))
			}).Server}})
		}
	}
	if one := l.alone(j.GPUs); one >= 0 {
		workers([]cluster.Part{{Server: one, GPUs: j.GPUs}}, 0)
	}
	if len(was.Parts) > 1 {
		workers(slices.Clone(was.Parts), 2)
		workers(l.calmest(j.GPUs), 1)
	}
	workers(l.roomy(j.GPUs), 1)
	return places[1:]
}

// roomy are GPUs on the servers that have the most free, of equals on those with the
// fewest flows.
func (l *local) roomy(gpus int) []cluster.Part {
	var parts []cluster.Part
	for free := l.most; free > 0; free-- {
		for flows := range l.workers.rows() {
			if parts = take(parts, gpus, free, l.workers.class(flows, free)); sum(parts) == gpus {
				return parts
			}
		}
	}
	return nil
}

// calmest are GPUs on the servers with the fewest flows, of equals on those that have the
// most free.
func (l *local) calmest(gpus int) []cluster.Part {
	var parts []cluster.Part
	for flows := range l.workers.rows() {
		for free := l.most; free > 0; free-- {
			if parts = take(parts, gpus, free, l.workers.class(flows, free)); sum(parts) == gpus {
				return parts
			}
		}
	}
	return nil
}

func sum(parts []cluster.Part) (gpus int) {
	for _, w := range parts {
		gpus += w.GPUs
	}
	return gpus
}

// take adds servers with so many free GPUs until parts have as many as wanted.
func take(parts []cluster.Part, gpus, free int, servers []int32) []cluster.Part {
	left := gpus - sum(parts)
	for _, i := range servers {
		if left == 0 {
			break
		}
		n := min(left, free)
		parts = append(parts, cluster.Part{Server: int(i), GPUs: n})
		left -= n
	}
	return parts
}

// calm are n parameter servers for workers, apart from them: the ones with the fewest
// flows after so many others; nil where there are not as many.
func (l *local) calm(parts []cluster.Part, n, skip int) []int {
	var out []int
	for flows := range l.hosts.rows() {
		for _, i := range l.hosts.class(flows, 0) {
			switch {
			case slices.ContainsFunc(parts, func(w cluster.Part) bool { return w.Server == int(i) }):
			case skip > 0:
				skip--
			default:
				if out = append(out, int(i)); len(out) == n {
					return out
				}
			}
		}
	}
	return nil
}

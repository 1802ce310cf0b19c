package exact

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact/lp"
)

// MaxProgram bounds Table 3's program, whose text then has some tens of MB at most: jobs, running ones
// included, times servers times racks.
const MaxProgram = 20_000

// table3 is Table 3's program of an instance. Numbers in brackets are those of the paper's constraints.
//
// A rate of 1 is that of the fastest link of a server, so that rates, and what a job sends to its PS, are
// at most 1 in whatever can be: products with 0 or 1 need no other bound.
type table3 struct {
	lp.Program
	in      *Instance
	sel     bool    // z is chosen
	unit    float64 // bit/s of a rate of 1
	seconds float64 // that a cost of 1 is
	slowest float64 // no job that sends has less
	jobs    []job   // running ones first
	inRack  [][]int // servers
}

// job is what the program has of one.
type job struct {
	cluster.Job
	runs    *cluster.Placement // nil: of the batch
	weight  float64
	x, w, y []lp.Var  // by server; no w of a job that runs
	z       []lp.Expr // by rack: whether its switch aggregates; empty where none can
	v, c    lp.Var    // its rate, and at least 1/v
	sends   lp.Expr   // 1 where it has a PS, otherwise 0
	psIn    []lp.Expr // by rack: 1 where its PS is there, otherwise 0
	a       []lp.Expr // by rack: what its switch aggregates, per worker
	f       []lp.Expr // by server: what its worker there sends
	load    []lp.Expr // by link: servers', then racks'
}

// newTable3 writes the program. The cluster is that of the instance.
func newTable3(in *Instance, c *cluster.Cluster, sel bool) (*table3, error) {
	all := len(in.Running) + len(in.Batch)
	if n := all * len(in.Config.Servers) * len(in.Config.Racks); n > MaxProgram {
		return nil, fmt.Errorf("%d jobs on %d servers in %d racks: %w", all, len(in.Config.Servers), len(in.Config.Racks), ErrTooLarge)
	}
	p := &table3{in: in, sel: sel, inRack: make([][]int, len(in.Config.Racks)), slowest: math.Inf(1)}
	for i, s := range in.Config.Servers {
		p.inRack[s.Rack] = append(p.inRack[s.Rack], i)
		if s.Linked() {
			p.unit, p.slowest = max(p.unit, s.Link), min(p.slowest, s.Link)
		}
	}
	if p.unit == 0 {
		p.unit = 1 // nothing is sent
	}
	for _, r := range in.Config.Racks {
		p.slowest = min(p.slowest, r.Uplink)
	}
	p.slowest = min(1, p.slowest/p.unit/float64(all*(len(in.Config.Servers)+1))) // as if all its flows were on it
	if err := p.addJobs(c); err != nil {
		return nil, err
	}
	p.servers(c)
	for r := range in.Config.Racks {
		p.memory(r)
	}
	for j := range p.jobs {
		p.network(j)
		p.tangents(j)
	}
	p.fair()
	return p, nil
}

// addJobs adds the jobs with their places (x, w, y, z) and rates.
func (p *table3) addJobs(c *cluster.Cluster) error {
	total := 0.0
	for i := range p.in.Running {
		r := &p.in.Running[i]
		if len(r.Place.PS) > 1 || r.Job.Traffic != cluster.INA && r.Job.Traffic != cluster.PS {
			return fmt.Errorf("job %d, which runs, has %d parameter servers, traffic %d: %w", r.Job.ID, len(r.Place.PS), r.Job.Traffic, errors.ErrUnsupported)
		}
		p.jobs = append(p.jobs, job{Job: r.Job, runs: &r.Place})
		total += size(r.Job)
	}
	for _, j := range p.in.Batch {
		if j.Traffic != cluster.INA && j.Traffic != cluster.PS {
			return fmt.Errorf("job %d: traffic %d: %w", j.ID, j.Traffic, errors.ErrUnsupported)
		}
		p.jobs = append(p.jobs, job{Job: j})
		total += size(j)
	}
	const whole = 1000 // what all jobs weigh together: solvers print bounds with three digits
	p.seconds = total / whole / p.unit
	for j := range p.jobs {
		p.jobs[j].weight = whole * size(p.jobs[j].Job) / total
		p.place(j, c)
	}
	return nil
}

// place adds where a job is and at what rate it sends. Constraints 2, 5, 6 and 7; a job that runs is
// where it is.
func (p *table3) place(j int, c *cluster.Cluster) {
	b := &p.jobs[j]
	for i, s := range p.in.Config.Servers {
		low, high, ps, most := 0, min(1, c.Free(i)), 0, 1
		if b.runs != nil {
			low, ps = placed(b.runs, i)
			high, most = low, ps
		} else if !s.Linked() {
			most = 0
		}
		b.x = append(b.x, p.Whole(fmt.Sprintf("x_%d_%d", j, i), low, high))
		b.y = append(b.y, p.Whole(fmt.Sprintf("y_%d_%d", j, i), ps, most))
	}
	b.v = p.Add(fmt.Sprintf("v_%d", j), 0, 1)
	b.c = p.Add(fmt.Sprintf("c_%d", j), 0, 2/p.slowest)
	p.Cost(b.c, b.weight)
	sends := p.named(fmt.Sprintf("sends_%d", j), sum(b.y, 1)) // at most one PS
	b.sends = sends
	p.AtMost(fmt.Sprintf("rate_%d", j), 0, b.v.Times(1), sends.Times(-1)) // [7]
	p.AtLeast(fmt.Sprintf("slowest_%d", j), 0, b.v.Times(1), sends.Times(-p.slowest))
	for i, s := range p.in.Config.Servers {
		if !s.Linked() {
			p.AtMost(fmt.Sprintf("unlinked_%d_%d", j, i), 1, b.x[i].Times(1), sends)
		}
	}
	for r := range p.inRack {
		b.psIn = append(b.psIn, p.named(fmt.Sprintf("ps_in_%d_%d", r, j), sum(pick(b.y, p.inRack[r]), 1)))
	}
	p.aggregates(j)
	if b.runs != nil {
		return
	}
	for i := range p.in.Config.Servers {
		most := min(b.GPUs, c.Free(i))
		b.w = append(b.w, p.Whole(fmt.Sprintf("w_%d_%d", j, i), 0, most))
		p.AtMost(fmt.Sprintf("worker_%d_%d", j, i), 0, b.x[i].Times(1), b.w[i].Times(-1)) // [5]
		p.AtMost(fmt.Sprintf("gpus_%d_%d", j, i), 0, b.w[i].Times(1), b.x[i].Times(-float64(most)))
	}
	p.Exactly(fmt.Sprintf("demand_%d", j), float64(b.GPUs), sum(b.w, 1)) // [2]
	workers := float64(min(b.GPUs, len(b.x)))
	p.AtMost(fmt.Sprintf("needs_ps_%d", j), 1, sum(b.x, 1), sends.Times(1-workers)) // [6]
	p.AtMost(fmt.Sprintf("no_ps_%d", j), -1, sends, sum(b.x, -1))
}

// aggregates adds z: at which racks of its tree a job is aggregated.
func (p *table3) aggregates(j int) {
	b := &p.jobs[j]
	b.z = make([]lp.Expr, len(p.in.Config.Racks))
	for r, rack := range p.in.Config.Racks {
		if rack.PAT == 0 || b.Traffic != cluster.INA || b.runs != nil && slices.Contains(b.runs.Plain, r) {
			continue
		}
		z := p.Whole(fmt.Sprintf("z_%d_%d", r, j), 0, 1)
		b.z[r] = z.Times(1)
		var in lp.Expr
		for _, i := range p.inRack[r] {
			in = lp.Sum(in, b.x[i].Times(1), b.y[i].Times(1))
			if b.runs == nil && p.sel {
				continue
			}
			p.AtLeast(fmt.Sprintf("z_x_%d_%d", j, i), 0, b.z[r], b.x[i].Times(-1))
			p.AtLeast(fmt.Sprintf("z_y_%d_%d", j, i), 0, b.z[r], b.y[i].Times(-1))
		}
		p.AtMost(fmt.Sprintf("z_in_%d_%d", r, j), 0, b.z[r], in.Times(-1))
	}
}

// servers has no server give more GPUs than it has. Constraint 1.
func (p *table3) servers(c *cluster.Cluster) {
	for i := range p.in.Config.Servers {
		var used lp.Expr
		for _, b := range p.jobs {
			if b.runs == nil {
				used = lp.Sum(used, b.w[i].Times(1))
			}
		}
		p.AtMost(fmt.Sprintf("server_%d", i), float64(c.Free(i)), used)
	}
}

// memory adds what a rack's switch aggregates of each job: its rate up to theta, the rate at which the
// switch's PAT runs out (1: it does not). Constraint 4, and that a PAT which ran out is used up.
func (p *table3) memory(r int) {
	pat := p.in.Config.Racks[r].PAT / p.unit
	short := pat > 0 && pat < float64(len(p.jobs)) // otherwise no rates use it up
	var theta lp.Expr
	if short {
		theta = p.Add(fmt.Sprintf("theta_%d", r), 0, 1).Times(1)
	}
	var used lp.Expr
	for j := range p.jobs {
		b := &p.jobs[j]
		var a lp.Expr
		if len(b.z[r]) > 0 {
			a = b.v.Times(1)
			if short {
				a = p.lesser(fmt.Sprintf("l_%d_%d", r, j), a, theta)
			}
			a = p.product(fmt.Sprintf("a_%d_%d", r, j), b.z[r], a, 1)
		}
		b.a = append(b.a, a)
		used = lp.Sum(used, a)
	}
	if !short {
		return
	}
	out := p.Whole(fmt.Sprintf("out_%d", r), 0, 1).Times(1)
	p.AtMost(fmt.Sprintf("pat_%d", r), pat, used) // [4]
	p.AtLeast(fmt.Sprintf("pat_out_%d", r), 0, used, out.Times(-pat))
	p.AtLeast(fmt.Sprintf("pat_left_%d", r), 1, theta, out)
}

// network adds what a job loads links with: the terms of constraint 3, and those of the racks' links.
func (p *table3) network(j int) {
	b := &p.jobs[j]
	v := b.v.Times(1)
	b.load = make([]lp.Expr, len(p.in.Config.Servers)+len(p.in.Config.Racks))
	for i := range p.in.Config.Servers {
		b.f = append(b.f, p.product(fmt.Sprintf("f_%d_%d", j, i), b.x[i].Times(1), v, 1))
	}
	toPS := p.toPS(j)
	if len(p.in.Config.Racks) > 1 {
		p.uplinks(j)
	}
	for i := range p.in.Config.Servers {
		b.load[i] = lp.Sum(b.f[i], p.product(fmt.Sprintf("g_%d_%d", j, i), b.y[i].Times(1), toPS, 1))
	}
}

// toPS is what a job's PS gets: one stream of sums up to the rate at which its own rack's switch aggregates,
// and above that from each rack one up to where that one's does, and beyond it a stream of each worker.
func (p *table3) toPS(j int) lp.Expr {
	b := &p.jobs[j]
	root := b.a[0] // what is aggregated in the PS's rack
	if len(b.a) > 1 {
		root = nil
		for r, a := range b.a {
			root = lp.Sum(root, p.product(fmt.Sprintf("q_%d_%d", r, j), b.psIn[r], a, 1))
		}
	}
	out := root
	for r, a := range b.a {
		level := a // up to which the rack sends one stream: the larger of its own and the root's
		if len(b.a) > 1 {
			level = lp.Sum(a, root, p.lesser(fmt.Sprintf("m_%d_%d", r, j), a, root).Times(-1))
			out = lp.Sum(out, level, root.Times(-1))
		}
		for _, i := range p.inRack[r] {
			alone := lp.Sum(b.v.Times(1), level.Times(-1))
			out = lp.Sum(out, p.product(fmt.Sprintf("p_%d_%d", j, i), b.x[i].Times(1), alone, 1))
		}
	}
	return p.named(fmt.Sprintf("to_ps_%d", j), out)
}

// uplinks adds what a job loads the racks' links to the core with: that of a rack without the PS with what
// leaves it, that of the PS's with all of these.
func (p *table3) uplinks(j int) {
	b := &p.jobs[j]
	leaves := make([]lp.Expr, len(b.a))
	for r, a := range b.a {
		up := a
		for _, i := range p.inRack[r] {
			alone := lp.Sum(b.v.Times(1), a.Times(-1))
			up = lp.Sum(up, p.product(fmt.Sprintf("s_%d_%d", j, i), b.x[i].Times(1), alone, 1))
		}
		stays := p.product(fmt.Sprintf("h_%d_%d", r, j), b.psIn[r], up, float64(len(p.inRack[r])))
		leaves[r] = lp.Sum(up, stays.Times(-1))
	}
	all := lp.Sum(leaves...)
	for r := range b.a {
		enters := p.product(fmt.Sprintf("d_%d_%d", r, j), b.psIn[r], all, float64(len(p.in.Config.Servers)))
		b.load[len(p.in.Config.Servers)+r] = lp.Sum(leaves[r], enters)
	}
}

// fair has no link carry more than it can (constraint 3), and makes rates max-min fair: every job that
// sends has a link that is full, on which no other job is faster. That is what Algorithm 1 comes to, and
// nothing else is.
func (p *table3) fair() {
	servers := len(p.in.Config.Servers)
	held := make([]lp.Expr, len(p.jobs)) // by job: links by which it is held back
	for l := range servers + len(p.in.Config.Racks) {
		capacity := 0.0
		switch {
		case l >= servers && len(p.in.Config.Racks) > 1:
			capacity = p.in.Config.Racks[l-servers].Uplink / p.unit
		case l < servers && p.in.Config.Servers[l].Linked():
			capacity = p.in.Config.Servers[l].Link / p.unit
		}
		if capacity == 0 || math.IsInf(capacity, 1) {
			continue // nobody sends over it, or it is never full
		}
		fastest := p.Add(fmt.Sprintf("fastest_%d", l), 0, 1).Times(1)
		var all lp.Expr
		for j := range p.jobs {
			all = lp.Sum(all, p.jobs[j].load[l])
			p.notFaster(j, l, fastest)
		}
		p.AtMost(fmt.Sprintf("link_%d", l), capacity, all) // [3]
		for j := range p.jobs {
			b := &p.jobs[j]
			name := fmt.Sprintf("_%d_%d", j, l)
			by := p.Whole("by"+name, 0, 1).Times(1)
			held[j] = lp.Sum(held[j], by)
			p.AtLeast("full"+name, 0, all, by.Times(-capacity))
			p.AtMost("as_fast"+name, 1, fastest, b.v.Times(-1), by)
			p.AtMost("on"+name, 1, b.v.Times(1), b.load[l].Times(-1), by)
		}
	}
	for j := range p.jobs {
		p.AtLeast(fmt.Sprintf("held_%d", j), 0, held[j], p.jobs[j].sends.Times(-1))
	}
}

// notFaster has a job be no faster than fastest if it is on a link.
func (p *table3) notFaster(j, l int, fastest lp.Expr) {
	b := &p.jobs[j]
	servers := len(p.in.Config.Servers)
	if l < servers {
		p.AtMost(fmt.Sprintf("worker_on_%d_%d", j, l), 0, b.f[l], fastest.Times(-1))
		p.AtMost(fmt.Sprintf("ps_on_%d_%d", j, l), 1, b.v.Times(1), b.y[l].Times(1), fastest.Times(-1))
		return
	}
	r := l - servers
	for i, s := range p.in.Config.Servers {
		name := fmt.Sprintf("up_on_%d_%d_%d", j, r, i)
		if s.Rack == r { // it leaves, unless the PS is here
			p.AtMost(name, 0, b.f[i], b.psIn[r].Times(-1), fastest.Times(-1))
		} else { // it enters, if the PS is here
			p.AtMost(name, 1, b.f[i], b.psIn[r], fastest.Times(-1))
		}
	}
}

// tangents has a job's c be at least 1/v, as far as some tangents of that say: at 2/2,
// 2/3, 2/4 and so on, since equal parts of a link are common rates.
func (p *table3) tangents(j int) {
	const most = 100
	for k := 2; k < most+2; k++ {
		p.tangent(j, fmt.Sprint(k), float64(k)/2)
		if 2/float64(k) < p.slowest {
			break
		}
	}
}

// tangent has c be at least the tangent of 1/v where that is inverse; of a job that sends nothing, 0.
func (p *table3) tangent(j int, name string, inverse float64) {
	b := &p.jobs[j]
	p.AtLeast(fmt.Sprintf("tangent_%d_%s", j, name), 0, b.c.Times(1), b.v.Times(inverse*inverse), b.sends.Times(-2*inverse))
}

// refine adds the tangents at the rates of a solution, where those that there are say less than 1/v there by
// more than a solver's rounding. It reports whether there was any.
func (p *table3) refine(values map[string]float64, round int) bool {
	added := false
	for j := range p.jobs {
		b := &p.jobs[j]
		if v := values[p.Name(b.v)]; v >= p.slowest/2 && values[p.Name(b.c)] < (1-1e-6)/v {
			p.tangent(j, fmt.Sprintf("again_%d", round), 1/v)
			added = true
		}
	}
	return added
}

// places are the batch's in a solution.
func (p *table3) places(values map[string]float64) []cluster.Placement {
	out := make([]cluster.Placement, 0, len(p.in.Batch))
	for _, b := range p.jobs[len(p.in.Running):] {
		var place cluster.Placement
		in := map[int]bool{} // racks of its tree
		for i, s := range p.in.Config.Servers {
			if g := int(math.Round(values[p.Name(b.w[i])])); g > 0 {
				place.Parts = append(place.Parts, cluster.Part{Server: i, GPUs: g})
				in[s.Rack] = true
			}
			if values[p.Name(b.y[i])] > 0.5 {
				place.PS = append(place.PS, i)
				in[s.Rack] = true
			}
		}
		for r, z := range b.z {
			if p.sel && len(place.PS) > 0 && in[r] && len(z) > 0 && values[p.Name(z[0].Var)] < 0.5 {
				place.Plain = append(place.Plain, r)
			}
		}
		out = append(out, place)
	}
	return out
}

// placed says whether a placement has a worker on a server, and its PS.
func placed(p *cluster.Placement, server int) (worker, ps int) {
	for _, w := range p.Parts {
		if w.Server == server {
			worker = 1
		}
	}
	if slices.Contains(p.PS, server) {
		ps = 1
	}
	return worker, ps
}

// named adds a variable for a sum from 0 to 1 that many rows have.
func (p *table3) named(name string, e lp.Expr) lp.Expr {
	out := p.Add(name, 0, 1).Times(1)
	p.Exactly(name, 0, e, out.Times(-1))
	return out
}

// product adds a variable that is e where b is 1, and 0 where it is 0; e is from 0 to most wherever rows are
// kept (McCormick's envelope, which is exact for a b of 0 or 1). A product with nothing is nothing.
func (p *table3) product(name string, b, e lp.Expr, most float64) lp.Expr {
	if len(e) == 0 || len(b) == 0 {
		return nil
	}
	out := p.Add(name, 0, most).Times(1)
	p.AtMost(name+"_0", 0, out, b.Times(-most))
	p.AtMost(name+"_1", 0, out, e.Times(-1))
	p.AtMost(name+"_2", most, e, b.Times(most), out.Times(-1))
	return out
}

// lesser adds a variable that is the lesser of two expressions from 0 to 1. The lesser of something and nothing
// is nothing.
func (p *table3) lesser(name string, a, b lp.Expr) lp.Expr {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	out, first := p.Add(name, 0, 1).Times(1), p.Whole(name+"_first", 0, 1).Times(1)
	p.AtMost(name+"_0", 0, out, a.Times(-1))
	p.AtMost(name+"_1", 0, out, b.Times(-1))
	p.AtMost(name+"_2", 1, a, first, out.Times(-1))
	p.AtMost(name+"_3", 0, b, first.Times(-1), out.Times(-1))
	return out
}

// pick are the variables of some servers.
func pick(variables []lp.Var, servers []int) []lp.Var {
	var out []lp.Var
	for _, i := range servers {
		out = append(out, variables[i])
	}
	return out
}

// sum adds up variables, each times a factor.
func sum(variables []lp.Var, factor float64) lp.Expr {
	var out lp.Expr
	for _, v := range variables {
		out = append(out, lp.Term{Var: v, Factor: factor})
	}
	return out
}

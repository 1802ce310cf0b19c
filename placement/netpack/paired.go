package netpack

import "math"

// A parameter server and the workers of its job are not independent. On a server with a worker
// it costs the jobs there less, as they share with the worker anyway, and f_max grows by one only
// if no other link has as many flows. And a server that would be the best PS beside the workers
// may be in the plan of the largest value, where one that is worth as little less has none of it.
// So where the best plan with its best PS falls short of what the two could be worth apart, the
// program runs once more, over both.

// pair judges what is better with its PS than the plans that were judged, if there is any.
func (p *planner) pair(s *search, workers, hosts *deck) {
	if p.Variant != Corrected || !s.j.NeedsPS(2) || p.apart(workers, hosts) <= s.bound+rounding*p.link {
		return
	}
	p.paired(workers, hosts, s.j.GPUs, s.bound+rounding*p.link)
	p.judge(s, hosts)
}

// rounding is by how much sums of the same terms may differ, of a link's capacity.
const rounding = 1e-9

// inside is what a PS is worth on a server where the job has a worker; without one it is worth what a
// worker is.
func (p *planner) inside(s *server) float64 {
	return s.bandwidth - (p.link-s.bandwidth)/float64(s.flows+2)
}

// apart is the most that a plan and a PS could be worth, if each were the best for itself.
func (p *planner) apart(workers, hosts *deck) float64 {
	best, plan, ps, next := math.Inf(-1), math.Inf(-1), math.Inf(-1), math.Inf(-1)
	at := 0 // in plans
	for flows := range hosts.rows() + 1 {
		ps = max(ps, next) // of servers with a worker, which have one flow more then
		next = math.Inf(-1)
		if flows < hosts.rows() {
			if c := hosts.class(flows, 0); len(c) > 0 {
				ps = max(ps, p.servers[c[0]].worker)
			}
		}
		if flows < workers.rows() {
			for free := 1; free <= p.most; free++ {
				if c := workers.class(flows, free); len(c) > 0 {
					next = max(next, p.inside(&p.servers[c[0]]))
				}
			}
		}
		for ; at < len(p.plans) && p.plans[at].flows == flows; at++ { // they come in this order
			plan = max(plan, p.plans[at].value)
		}
		best = max(best, plan+ps+p.link/float64(flows+1))
	}
	return best
}

// paired fills plans with those that are worth more than most with their best PS. Beside V
// it has V with a PS somewhere, in two tables: of settled ones f_max is that of the workers, and
// of rising ones the PS makes it one more, as it is on a worker's server with as many flows.
// Servers come in the order of their flows, as in candidates; the servers of a class are alike
// here too, but for one more of each, which may be the PS.
func (p *planner) paired(workers, hosts *deck, gpus int, most float64) {
	widest := gpus + p.most
	v, settled, rising := p.table(widest+1), make([]cell, widest+1), make([]cell, widest+1)
	blank(settled)
	blank(rising)
	p.steps, p.plans = p.steps[:0], p.plans[:0]
	for flows := range hosts.rows() {
		if i := p.idle(hosts.class(flows, 0)); i >= 0 {
			raise(settled, v, p.servers[i].worker)
		}
		if flows < workers.rows() {
			for free := p.most; free > 0; free-- {
				class := workers.class(flows, free)
				for n, i := range class[:min(len(class), widest/free+1)] {
					s := &p.servers[i]
					value := s.worker - p.link
					worker := n < widest/free
					if worker {
						p.join(settled, settled, i, free, value)
						p.join(rising, rising, i, free, value)
						p.join(rising, v, i, free, value+p.inside(s))
					}
					raise(settled, v, s.worker)
					if worker {
						p.join(v, v, i, free, value)
					}
				}
			}
		}
		for g := gpus; g <= widest; g++ {
			p.emit(settled[g], flows, g, most-p.link/float64(flows+1))
			p.emit(rising[g], flows, g, most-p.link/float64(flows+2))
		}
		raise(settled, rising, 0)
		blank(rising)
	}
}

// idle is the first of some servers that has no free GPU, or -1.
func (p *planner) idle(class []int32) int32 {
	for _, i := range class {
		if p.servers[i].free == 0 {
			return i
		}
	}
	return -1
}

// raise puts what a table has, and more, where that is worth more than what is there.
func raise(into, from []cell, more float64) {
	for g := range into {
		if t := from[g].value + more; t > into[g].value {
			into[g] = cell{t, from[g].last}
		}
	}
}

// join adds a server with workers on free GPUs to what a table has, where that is worth more than
// what is there. Both may be one table.
func (p *planner) join(into, from []cell, server int32, free int, value float64) {
	for g := len(into) - 1; g >= free; g-- {
		if t := from[g-free].value + value; t > into[g].value {
			p.steps = append(p.steps, step{server, from[g-free].last})
			into[g] = cell{t, int32(len(p.steps) - 1)}
		}
	}
}

// emit adds the plan of a cell that is worth more than most.
func (p *planner) emit(c cell, flows, gpus int, most float64) {
	if c.last < 0 || c.value <= most {
		return
	}
	pl := plan{flows: flows, gpus: gpus, last: c.last}
	for s := c.last; s >= 0; s = p.steps[s].before {
		pl.value += p.servers[p.steps[s].server].worker - p.link
	}
	p.plans = append(p.plans, pl)
}

package sim

import (
	"math"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/ina"
)

const defaultBuffer = 1 << 20 // bytes, softswitch.LinkConfig's

// aimdIncrease is the packets per round trip by which a window grows, as the
// agent's (ATP's 1500 bytes of 300-byte packets, four to one as ina.Worker has it).
const aimdIncrease = 4

// directed is one direction of a cable.
type directed struct {
	capacity float64 // bit/s; +Inf: unlimited
	mark     float64 // bytes of queue above which senders are told
	users    []user
	level    float64 // the most that fair queueing gives a job, or a flow, bit/s; +Inf: not overloaded

	load           float64 // bit/s now
	packets, bytes float64 // carried so far
}

// user is a use of the link by a job.
type user struct {
	job *job
	use int
}

func newLink(inv *inventory.Inventory, l inventory.DirectedLink) directed {
	d := directed{capacity: float64(l.Rate), level: math.Inf(1), mark: defaultBuffer}
	if l.Rate == 0 {
		d.capacity = math.Inf(1)
	}
	sw, ok := inv.Switch(l.From)
	if !ok {
		sw, ok = inv.Switch(l.To) // a NIC's queue is as long as its port's
	}
	if ok && sw.ECN > 0 {
		d.mark = float64(sw.ECN)
	} else if ok && sw.Buffer > 0 {
		d.mark = float64(sw.Buffer)
	}
	return d
}

// carry counts what links carry in h seconds of jobs over damaged ones, as their ends count it: what a
// host sends before its cable damages it, and what a switch sends after that.
func (d *deployment) carry(h float64) {
	for i := range d.topo.Links {
		dl, l := &d.topo.Links[i], &d.links[i]
		for _, p := range d.lossy.Links {
			if p.Link != dl.Name {
				continue
			}
			rate := p.Load
			if !d.topo.IsHost(dl.From) {
				rate -= p.Lost
			}
			l.bytes += rate * h / 8
			l.packets += rate * h / 8 / float64(ina.Overhead+4*d.setup.Settings.Lanes)
		}
	}
}

// load is what u would put on the link at the given PSN/s, bit/s.
func (u user) load(rate float64) float64 {
	return rate * 8 * u.job.uses[u.use].bytes(u.job.frame)
}

// allocate sets every job's rate.
func (d *deployment) allocate() {
	for _, j := range d.jobs {
		j.want, j.rate = 0, 0
		if !j.sends() {
			continue
		}
		j.want = math.Inf(1)
		if j.limit > 0 {
			j.want = j.limit + j.backlog/round.Seconds() // what waits comes first
		}
		if j.window > 0 && j.rtt > 0 {
			j.want = min(j.want, j.cwnd/j.rtt)
		}
		for u := range j.uses {
			if j.limit == 0 && j.window == 0 { // as much as would go through alone
				j.want = min(j.want, d.links[j.uses[u].link].capacity/user{j, u}.load(1))
			}
		}
		j.free = j.want
		if j.steady > 0 {
			j.want = min(j.want, j.steady)
		}
		j.rate = j.want
	}
	if d.fair {
		// Levels go on from the last step's: where jobs hold each other back at
		// several links, a few steps settle them.
		for range 3 {
			for l := range d.links {
				d.links[l].divide(d)
			}
		}
		for _, j := range d.jobs {
			for u := range j.uses {
				j.rate = min(j.rate, d.allowed(j, u))
			}
		}
	}
	d.clip(func(l int) bool { return d.topo.IsHost(d.topo.Links[l].From) })
	d.clip(func(int) bool { return true })
	for _, j := range d.jobs {
		d.hold(j)
	}
}

// allowed is the PSN/s that the link of a use allows its job under fair queueing.
func (d *deployment) allowed(j *job, u int) float64 {
	return d.links[j.uses[u].link].level / d.unit(user{j, u})
}

// unit is what fair queueing divides: how many bits of a PSN are one queue's. A flow has
// a packet of each, but for those that a switch has added up.
func (d *deployment) unit(u user) float64 {
	if d.flows {
		return 8 * u.job.frame
	}
	return u.load(1)
}

// divide sets the link's level from what its jobs would send if only the other
// links held them back.
func (l *directed) divide(d *deployment) {
	d.demand = d.demand[:0]
	var sum, n float64 // load, queues
	for _, u := range l.users {
		r := u.job.want
		for o := range u.job.uses {
			if o != u.use {
				r = min(r, d.allowed(u.job, o))
			}
		}
		d.demand = append(d.demand, r*d.unit(u))
		sum += u.load(r)
		n += u.load(1) / d.unit(u)
	}
	l.level = math.Inf(1)
	if sum <= l.capacity {
		return
	}
	// Whoever asks for less than an equal part gets it, and leaves more to others.
	left := l.capacity
	for again := true; again; {
		again = false
		l.level = left / n
		for i, x := range d.demand {
			if x >= 0 && x < l.level {
				queues := l.users[i].load(1) / d.unit(l.users[i])
				left, n, d.demand[i], again = left-x*queues, n-queues, -1, true
				l.level = left / n
			}
		}
	}
}

// clip scales the jobs on overloaded links down in proportion, the most overloaded
// link first: what fifo queues do, and what keeps levels that have not settled from
// exceeding a capacity. NICs come before what they feed.
func (d *deployment) clip(of func(link int) bool) {
	for range d.links {
		worst, factor := none, 1-1e-9
		for i := range d.links {
			l := &d.links[i]
			l.sum()
			if f := l.capacity / l.load; f < factor && of(i) {
				worst, factor = i, f
			}
		}
		if worst == none {
			return
		}
		for _, u := range d.links[worst].users {
			u.job.rate *= factor
		}
	}
}

func (l *directed) sum() {
	l.load = 0
	for _, u := range l.users {
		l.load += u.load(u.job.rate)
	}
}

// hold marks the nodes at whose links the job is held back.
func (d *deployment) hold(j *job) {
	j.at = none
	full := func(u int) bool {
		if u == none || j.rate >= j.free*(1-1e-9) {
			return false
		}
		l := &d.links[j.uses[u].link]
		return l.load >= 0.995*l.capacity && (!d.fair || j.rate*d.unit(user{j, u}) >= 0.99*l.level)
	}
	for i := len(j.nodes) - 1; i >= 0; i-- {
		n := &j.nodes[i]
		up, down := full(n.up), full(n.down)
		n.held = up || down
		switch {
		case j.at != none:
		case up:
			j.at = n.up
		case down:
			j.at = n.down
		}
	}
}

// queue moves a step of h seconds' worth of PSNs into the job's queue or out of it,
// and its window with it.
func (d *deployment) queue(j *job, h float64) {
	if j.window == 0 || !j.running {
		return
	}
	room := max(0, j.cwnd-j.rate*j.rtt)
	if !j.sends() {
		room = 0
	} else if len(j.msg.layers) > 0 {
		room = min(room, j.msg.left)
	}
	if j.limit > 0 {
		room = min(room, max(0, j.backlog+(j.limit-j.rate)*h))
	}
	j.backlog = room
	if !j.aimd || j.rate == 0 {
		return
	}
	rtt := j.rtt + j.backlog/j.rate
	if now := d.now.Seconds(); j.at != none && d.queued(j) > d.links[j.uses[j.at].link].mark {
		if now >= j.cutUntil {
			j.cwnd = max(1, j.cwnd/2)
			j.cutUntil = now + rtt
			j.total.marks++
		}
	} else if rtt > 0 {
		j.cwnd = min(j.window, j.cwnd+aimdIncrease*h/rtt)
	}
}

// queued is the bytes in the queue that j's packets meet where it is held back: its
// own under fair queueing, everybody's in a fifo.
func (d *deployment) queued(j *job) float64 {
	link := j.uses[j.at].link
	var sum float64
	for _, u := range d.links[link].users {
		if u.job == j || !d.fair && u.job.at != none && u.job.uses[u.job.at].link == link {
			sum += u.job.backlog * u.job.uses[u.use].bytes(u.job.frame)
		}
	}
	return sum
}

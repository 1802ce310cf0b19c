package service

import (
	"math"
	"slices"
	"time"
)

// link is one direction of a NIC.
type link struct {
	rate float64 // bit/s
	// Scratch of share.
	left, weight float64
}

// use is how often a flow crosses a link.
type use struct {
	link   *link
	weight float64
}

// message is bits that cross a flow, each of its copies alike.
type message struct {
	bits float64
	done func()
}

// flow is a set of equal connections, each with the same messages: those of a job's workers
// with one Aggregator. It shares links max-min fairly.
type flow struct {
	uses    []use
	queue   []message
	endless bool // background
	foreign *foreign
	weight  float64
	rate    float64 // bit/s of each connection
}

func (f *flow) active() bool { return f.endless || len(f.queue) > 0 }

// foreign counts what left a NIC: bits of the service, and of others in the meantime.
type foreign struct{ own, others float64 }

// network is all flows.
type network struct {
	flows []*flow
	now   time.Duration
	stale bool // rates are to be computed anew
}

func (n *network) add(f *flow) *flow {
	n.flows = append(n.flows, f)
	n.stale = n.stale || f.active()
	return f
}

// send puts a message at the end of a flow's queue.
func (n *network) send(f *flow, bits float64, done func()) {
	n.stale = n.stale || len(f.queue) == 0
	f.queue = append(f.queue, message{bits, done})
}

// soon is the time within which a message counts as gone: half of the clock's resolution.
const soon = 0.5e-9

// advance moves bits until now, and returns what the messages that have left wanted done.
func (n *network) advance(now time.Duration) (done []func()) {
	dt := (now - n.now).Seconds()
	n.now = now
	for _, f := range n.flows {
		if f.foreign != nil && f.active() {
			bits := f.weight * f.rate * dt
			if f.endless {
				f.foreign.others += bits
			} else {
				f.foreign.own += bits
			}
		}
		if len(f.queue) == 0 {
			continue
		}
		m := &f.queue[0]
		m.bits -= f.rate * dt
		for len(f.queue) > 0 && f.queue[0].bits <= f.rate*soon {
			done = append(done, f.queue[0].done)
			f.queue[0] = message{}
			f.queue = f.queue[1:]
			n.stale = n.stale || len(f.queue) == 0
		}
	}
	return done
}

// next is when the next message has left; false if none is on its way.
func (n *network) next() (at time.Duration, ok bool) {
	if n.stale {
		n.share()
	}
	least := math.Inf(1)
	for _, f := range n.flows {
		if len(f.queue) > 0 {
			least = min(least, f.queue[0].bits/f.rate)
		}
	}
	if math.IsInf(least, 1) {
		return 0, false
	}
	return n.now + time.Duration(math.Ceil(max(0, least-soon)*1e9)), true
}

// share gives every active flow its max-min fair rate, by filling: all rates grow alike until a
// link is full, which settles those that cross it.
func (n *network) share() {
	n.stale = false
	var open []*flow
	for _, f := range n.flows {
		if f.active() {
			open = append(open, f)
			for _, u := range f.uses {
				u.link.left, u.link.weight = u.link.rate, 0
			}
		}
	}
	for _, f := range open {
		for _, u := range f.uses {
			u.link.weight += u.weight
		}
	}
	for len(open) > 0 {
		rate, full := math.Inf(1), (*link)(nil)
		for _, f := range open {
			for _, u := range f.uses {
				// What is left of a link may be off by rounding, and must not be nothing.
				if r := max(u.link.left, 1e-9*u.link.rate) / u.link.weight; r < rate {
					rate, full = r, u.link
				}
			}
		}
		open = slices.DeleteFunc(open, func(f *flow) bool {
			if !slices.ContainsFunc(f.uses, func(u use) bool { return u.link == full }) {
				return false
			}
			f.rate = rate
			for _, u := range f.uses {
				u.link.left -= rate * u.weight
				u.link.weight -= u.weight
			}
			return true
		})
	}
}

// remove takes flows away that nobody uses any more.
func (n *network) remove(gone func(f *flow) bool) {
	n.flows = slices.DeleteFunc(n.flows, gone)
	n.stale = true
}

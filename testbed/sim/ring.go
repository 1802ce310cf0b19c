package sim

import (
	"errors"

	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed"
)

// circle is what a ring has besides: its PSN is a full TCP segment.
type circle struct {
	workers int
	hops    []float64 // s, the way from each worker to the next one
	mean    bool      // its rate is that in the mean over its operations

	reducing bool    // an operation is under way
	begun    float64 // when it began
	bytes    float64 // of it
}

// ring makes j one. Every hop carries the same, and acknowledgements go back on its way. Of
// the bytes sent, 2(n-1)/n move per byte reduced.
func (j *job) ring(d *deployment, w testbed.Workload) error {
	n := len(j.plan.Workers)
	c := &circle{workers: n}
	j.circle = c
	j.frame, j.window, j.aimd = collectives.Segment, 0, false
	j.good = collectives.Payload * float64(n) / float64(2*(n-1))
	for i := range j.plan.Workers {
		path, err := d.topo.PathBy(j.plan.Workers[i].End(), j.plan.Goal(i))
		if err != nil {
			return err
		}
		var hop float64
		for k, l := range path {
			j.uses[j.use(l)].weight++
			j.uses[j.use(d.topo.Links[l].Reverse)].acks += collectives.AcksPerSegment
			if k == 0 { // its transmission on the first link is the rate's
				hop += d.topo.Links[l].Delay.Seconds()
			} else {
				hop += d.cross(l, j.frame)
			}
		}
		c.hops = append(c.hops, hop)
	}
	if len(j.uses) == 0 {
		return errors.New("all workers are on one host")
	}
	if len(w.Layers) == 0 && w.Message == 0 {
		w.Message = collectives.RingMessage
	}
	j.msg = cut(w, j.good)
	return nil
}

// advanceRing is advance for a ring: each layer is an operation of its own, which begins when
// the one before has ended.
func (j *job) advanceRing(now float64) {
	m, c := &j.msg, j.circle
	for j.running {
		switch {
		case m.left > 0 || m.last > now:
			return
		case c.reducing && m.last == 0: // all is sent
			m.last = now
			if !c.mean {
				m.last += collectives.RingTail(c.workers, c.bytes, now-c.begun, c.hops...)
			}
		case c.reducing:
			c.reducing = false
			if m.next == len(m.layers) {
				j.iterated(m.last)
			} else {
				m.last = 0
			}
		case m.start+m.layers[m.next].ready > now:
			return
		default:
			m.left = m.layers[m.next].packets
			c.reducing, c.begun, c.bytes = true, now, m.left*j.good
			m.next++
		}
	}
}

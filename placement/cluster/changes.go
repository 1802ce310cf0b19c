package cluster

import "slices"

// Changes tells one subscriber what changed in a cluster since it asked last.
type Changes struct {
	c       *Cluster
	servers marks
	jobs    marks // running.slot
	out     struct{ servers, jobs []int }
}

// marks is a set of small numbers in the order in which they came.
type marks struct {
	in   []bool
	list []int
}

func (m *marks) add(i int) {
	if i >= len(m.in) {
		m.in = append(m.in, make([]bool, i+1-len(m.in))...)
	}
	if !m.in[i] {
		m.in[i] = true
		m.list = append(m.list, i)
	}
}

func (m *marks) clear() {
	for _, i := range m.list {
		m.in[i] = false
	}
	m.list = m.list[:0]
}

// Subscribe returns what tells of changes from now on. Whoever needs it no longer
// closes it.
func (c *Cluster) Subscribe() *Changes {
	c.spread()
	s := &Changes{c: c}
	c.subscribers = append(c.subscribers, s)
	return s
}

// Close ends the subscription.
func (s *Changes) Close() {
	if i := slices.Index(s.c.subscribers, s); i >= 0 {
		s.c.subscribers = slices.Delete(s.c.subscribers, i, i+1)
	}
}

// Servers are those whose free GPUs, bandwidth or flows changed since the last call, in
// no order; they may have changed back. The slice is the caller's until the next call.
func (s *Changes) Servers() []int {
	s.c.spread()
	s.out.servers = append(s.out.servers[:0], s.servers.list...)
	s.servers.clear()
	return s.out.servers
}

// Jobs are the running jobs whose rate changed since the last call and those that
// started since, in no order. The slice is the caller's until the next call.
func (s *Changes) Jobs() []int {
	s.c.spread()
	s.out.jobs = s.out.jobs[:0]
	for _, slot := range s.jobs.list {
		if r := s.c.slots[slot]; r.runs {
			s.out.jobs = append(s.out.jobs, r.job.ID)
		}
	}
	s.jobs.clear()
	return s.out.jobs
}

// spread tells the subscribers what changed in the steady state.
func (c *Cluster) spread() {
	trees, links := c.net.Changed()
	for _, s := range c.subscribers {
		for _, h := range trees {
			s.jobs.add(c.net.owner[h].slot)
		}
		for _, l := range links {
			if l < len(c.Servers) {
				s.servers.add(l)
			}
		}
	}
}

// occupied tells the subscribers that a job came or went.
func (c *Cluster) occupied(r *running) {
	for _, s := range c.subscribers {
		for _, parts := range [][]Part{r.place.Parts, r.place.Spare} {
			for _, w := range parts {
				s.servers.add(w.Server)
			}
		}
		if r.runs {
			s.jobs.add(r.slot)
		}
	}
}

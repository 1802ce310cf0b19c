package ina

// What package softswitch needs of a Switch to do wrong on purpose; see testbed/sabotage.

// Deny decides that a PSN of a statistical job gets no aggregator, as if it had found one
// taken. It reports whether that changed anything: not where its decision was made already.
func (s *Switch) Deny(id uint16, psn uint32) bool {
	if id > MaxJob || s.jobs[id] == nil || s.jobs[id].Mode != Statistical {
		return false
	}
	j := s.jobs[id]
	d := &j.ring[psn&uint32(len(j.ring)-1)]
	if d.fate != unknown && int32(psn-d.psn) <= 0 {
		return false
	}
	s.evict(j, d)
	*d = decision{psn: psn, fate: denied}
	j.counters.Denied.Packets++
	return true
}

// nobody holds aggregators that are never released. No job has this id.
const nobody = MaxJob + 1

// Seize takes one free aggregator of a statistical job's region for ever. It reports whether
// there was one.
func (s *Switch) Seize(id uint16) bool {
	if id > MaxJob || s.jobs[id] == nil || s.jobs[id].Mode != Statistical {
		return false
	}
	j := s.jobs[id]
	if j.pool != nil {
		n := len(j.pool.free)
		if n == 0 {
			return false
		}
		s.aggs[j.pool.free[n-1]].job = nobody
		j.pool.free = j.pool.free[:n-1]
		return true
	}
	for i := j.Base; i < j.Base+j.Size; i++ {
		if s.aggs[i].job == 0 {
			s.aggs[i].job = nobody
			return true
		}
	}
	return false
}

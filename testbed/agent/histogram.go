package agent

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets an eighth of a power of two wide.
type histogram struct {
	buckets [64 * 8]int64
	n       int64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.max = max(h.max, d)
	h.n++
	h.buckets[bucket(uint64(max(d, 0)))]++
}

func bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 4 // v>>e is 8..15
	return e<<3 + int(v>>e)
}

// quantile is the upper edge of the bucket with the given fraction below it, and at
// most the largest value; 0 when empty.
func (h *histogram) quantile(q float64) time.Duration {
	left := int64(q * float64(h.n))
	for i, c := range h.buckets {
		if left -= c; left < 0 {
			edge := uint64(i)
			if i >= 16 {
				e := i>>3 - 1
				edge = (uint64(i-e<<3)+1)<<e - 1
			}
			return min(time.Duration(edge), h.max)
		}
	}
	return h.max
}

// lateness is how late what an agent does was, and that of it which was due outside of stalls.
type lateness struct{ all, clear histogram }

// add counts what was due and is done now, and tells the agent's record of stalls.
func (l *lateness) add(c *control, due, now time.Duration) {
	l.all.add(now - due)
	if !c.stalls.Add(max(due, c.paused), now) {
		l.clear.add(now - due)
	}
}

// tell puts it into a report.
func (l *lateness) tell(s *Stats) {
	s.LateP99, s.LateMax, s.ClearP99 = l.all.quantile(.99).Seconds(), l.all.max.Seconds(), l.clear.quantile(.99).Seconds()
}

package softswitch

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets an eighth of a power of two wide, so a
// quantile read from it is at most 13 % too long.
type histogram struct {
	n       int64
	max     time.Duration
	buckets [64 * 8]int64
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.n++
	h.max = max(h.max, d)
	h.buckets[bucket(d)]++
}

// plus is what both counted.
func (h *histogram) plus(o *histogram) histogram {
	sum := histogram{n: h.n + o.n, max: max(h.max, o.max), buckets: h.buckets}
	for i, n := range o.buckets {
		sum.buckets[i] += n
	}
	return sum
}

func bucket(d time.Duration) int {
	if d < 8 {
		return int(d)
	}
	e := bits.Len64(uint64(d)) - 4 // of the last of four leading bits
	return e*8 + int(d>>e)
}

// quantile is the upper end of the bucket that holds quantile q of what was added.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.n))
	for i, n := range h.buckets {
		if rank -= n; rank < 0 {
			if i < 8 {
				return time.Duration(i)
			}
			e := i/8 - 1
			return min(h.max, time.Duration(i%8+8+1)<<e-1)
		}
	}
	return h.max
}

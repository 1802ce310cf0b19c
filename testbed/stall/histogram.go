package stall

import (
	"math/bits"
	"time"
)

// Histogram counts how late things were, in buckets an eighth of a power of two wide, so that a quantile read from it is
// at most 13 % too long. The zero Histogram is empty. It is not safe for concurrent use.
type Histogram struct {
	N   int64         // things
	Max time.Duration // the latest of them

	buckets [64 * 8]int64
}

// Add counts one. What was early was not late.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.N++
	h.Max = max(h.Max, d)
	h.buckets[bucket(d)]++
}

// Plus is what both counted.
func (h *Histogram) Plus(o *Histogram) Histogram {
	sum := Histogram{N: h.N + o.N, Max: max(h.Max, o.Max), buckets: h.buckets}
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

// Quantile is the upper end of the bucket that holds quantile q, 0 to 1, of what was counted, and at most Max; 0 of nothing.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := int64(q * float64(h.N))
	for i, n := range h.buckets {
		if rank -= n; rank < 0 {
			if i < 8 {
				return time.Duration(i)
			}
			e := i/8 - 1
			return min(h.Max, time.Duration(i%8+8+1)<<e-1)
		}
	}
	return h.Max
}

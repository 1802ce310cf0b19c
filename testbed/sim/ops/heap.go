package ops

import "math"

// heap has the running jobs by when they are due, then by their place in the list.
type heap []*running

// next is when the first is due; +Inf: none is.
func (h heap) next() float64 {
	if len(h) == 0 {
		return math.Inf(1)
	}
	return h[0].due
}

func (h *heap) push(r *running) {
	r.heap = len(*h)
	*h = append(*h, r)
	h.fix(r.heap)
}

func (h *heap) remove(k int) {
	last := len(*h) - 1
	h.swap(k, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if k < last {
		h.fix(k)
	}
}

// fix puts a job where it belongs after it became due at another time.
func (h heap) fix(k int) {
	for k > 0 && h.less(k, (k-1)/2) {
		h.swap(k, (k-1)/2)
		k = (k - 1) / 2
	}
	for {
		c := 2*k + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, k) {
			return
		}
		h.swap(k, c)
		k = c
	}
}

func (h heap) less(a, b int) bool {
	x, y := h[a], h[b]
	return x.due < y.due || x.due == y.due && x.job < y.job
}

func (h heap) swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].heap, h[b].heap = a, b
}

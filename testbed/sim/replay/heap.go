package replay

import "math"

// heap has the jobs that run by when their segments end, then by number. Jobs know
// their places in it.
type heap struct {
	jobs []state
	at   []int32
}

// next is when the first segment ends; +Inf: none does.
func (h *heap) next() float64 {
	if len(h.at) == 0 {
		return math.Inf(1)
	}
	return h.jobs[h.at[0]].due
}

func (h *heap) push(i int32) {
	h.jobs[i].heap = int32(len(h.at))
	h.at = append(h.at, i)
	h.fix(i)
}

func (h *heap) remove(i int32) {
	k := h.jobs[i].heap
	last := h.at[len(h.at)-1]
	h.at[k], h.jobs[last].heap = last, k
	h.at = h.at[:len(h.at)-1]
	h.jobs[i].heap = -1
	if last != i {
		h.fix(last)
	}
}

// fix puts a job where it belongs after its end has changed.
func (h *heap) fix(i int32) {
	k := int(h.jobs[i].heap)
	for k > 0 && h.less(k, (k-1)/2) {
		h.swap(k, (k-1)/2)
		k = (k - 1) / 2
	}
	for {
		c := 2*k + 1
		if c >= len(h.at) {
			return
		}
		if c+1 < len(h.at) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, k) {
			return
		}
		h.swap(k, c)
		k = c
	}
}

func (h *heap) less(a, b int) bool {
	i, j := h.at[a], h.at[b]
	x, y := h.jobs[i].due, h.jobs[j].due
	return x < y || x == y && i < j
}

func (h *heap) swap(a, b int) {
	h.at[a], h.at[b] = h.at[b], h.at[a]
	h.jobs[h.at[a]].heap, h.jobs[h.at[b]].heap = int32(a), int32(b)
}

package ops

import "math"

// byDue has the running jobs by when they are due, then by their place in the list, for container/heap. Jobs know their
// places in it.
type byDue []*running

// next is when the first is due; +Inf: none is.
func (q byDue) next() float64 {
	if len(q) == 0 {
		return math.Inf(1)
	}
	return q[0].due
}

func (q byDue) Len() int { return len(q) }

func (q byDue) Less(a, b int) bool {
	x, y := q[a], q[b]
	return x.due < y.due || x.due == y.due && x.job < y.job
}

func (q byDue) Swap(a, b int) {
	q[a], q[b] = q[b], q[a]
	q[a].heap, q[b].heap = a, b
}

func (q *byDue) Push(x any) {
	r := x.(*running)
	r.heap = len(*q)
	*q = append(*q, r)
}

func (q *byDue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}

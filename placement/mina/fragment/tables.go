package fragment

import (
	"math"
	"math/bits"
)

// Costs are whole numbers: a fragment of the job weighs 2^40, one of free hosts a multiple
// of 2^20. One more for every fragment of the job decides between equal scores; without
// alpha, one for every fragment of free hosts does.
const (
	jobWeight = 1<<40 + 1
	freeGrid  = 1 << 20
	maxAlpha  = 4 // with MaxHosts, sums stay below 2^63
)

func freeWeight(alpha float64) int64 { return max(1, int64(math.Round(alpha*freeGrid))*freeGrid) }

// tables know what it costs to take hosts out of free pods, up to a number of hosts.
// Costs are differences to taking none.
type tables struct {
	t      *Topology
	weight int64 // of a fragment of free hosts
	limit  int   // hosts
	shapes []table
	level  []int64 // what many returns
}

// table is about one shape.
type table struct {
	one   []int64   // hosts taken out of one pod -> cost; nil: not known yet
	split [][]int32 // hosts taken out of the children of the first i parts -> of them, of part i

	// rows[q-1] is where q pods are cheaper than q-1, or give more hosts. After the last
	// one more pods change nothing, if complete.
	rows     []row
	complete bool
	all      []int64 // costs with all rows
}

// row is what one pod more changes: costs of start hosts and more, and how many of them
// come out of that pod.
type row struct {
	start int
	cost  []int64
	pick  []int32
}

// prepare makes tables fit for a tree and a number of hosts.
func (m *tables) prepare(t *Topology, hosts int) {
	if m.t == t && hosts <= m.limit {
		return
	}
	m.t = t
	m.limit = min(max(64, 1<<bits.Len(uint(hosts-1))), t.Hosts())
	m.shapes = make([]table, len(t.shapes))
}

// table returns the table of a shape with what one pod costs.
func (m *tables) table(s int) *table {
	t := &m.shapes[s]
	if t.one != nil {
		return t
	}
	sh := &m.t.shapes[s]
	top := min(sh.size, m.limit)
	one := []int64{0}
	more := int64(-1) // fragments that are free once the pod is no longer
	for _, p := range sh.parts {
		var pick []int32
		one, pick = convolve(nil, nil, one, m.many(p.shape, p.count), 0, top)
		t.split = append(t.split, pick)
		more += int64(p.count)
	}
	if s == 0 {
		one = make([]int64, 2)
	}
	for j := 1; j <= top; j++ {
		one[j] += more * m.weight
	}
	if sh.size == top {
		one[top] = jobWeight - m.weight
	}
	t.one = one
	return t
}

// many is what hosts taken out of so many pods of a shape cost, valid until the next call.
func (m *tables) many(s, count int) []int64 {
	t := m.table(s)
	for len(t.rows) < count && !t.complete {
		t.extend(m.limit)
	}
	if count >= len(t.rows) {
		return t.all
	}
	m.level = append(m.level[:0], 0)
	for _, r := range t.rows[:count] {
		if end := r.start + len(r.cost); end > len(m.level) {
			m.level = append(m.level, make([]int64, end-len(m.level))...)
		}
		copy(m.level[r.start:], r.cost)
	}
	return m.level
}

// extend allows one pod more. It can only make a difference after where the last one
// did, up to a pod's hosts after it.
func (t *table) extend(limit int) {
	size := len(t.one) - 1
	if t.all == nil {
		t.all = []int64{0}
	}
	start, end := 1, 1
	if q := len(t.rows); q > 0 {
		start = t.rows[q-1].start + 1
		end = t.rows[q-1].start + len(t.rows[q-1].cost)
	}
	end = min(end+size, limit+1)
	r := row{start: start, cost: make([]int64, max(0, end-start)), pick: make([]int32, max(0, end-start))}
	first, last := -1, -1
	for j := start; j < end; j++ {
		best, pick := int64(math.MaxInt64), 0
		if j < len(t.all) {
			best = t.all[j]
		}
		for k := max(1, j-len(t.all)+1); k <= min(j, size); k++ {
			if cost := t.all[j-k] + t.one[k]; cost < best {
				best, pick = cost, k
			}
		}
		r.cost[j-start], r.pick[j-start] = best, int32(pick)
		if pick > 0 {
			last = j
			if first < 0 {
				first = j
			}
		}
	}
	if first < 0 {
		t.complete = true
		return
	}
	r.cost, r.pick = r.cost[first-start:last+1-start], r.pick[first-start:last+1-start]
	r.start = first
	if last >= len(t.all) {
		t.all = append(t.all, make([]int64, last+1-len(t.all))...)
	}
	copy(t.all[first:], r.cost)
	t.rows = append(t.rows, r)
}

// amounts appends how many hosts each of so many pods of a shape gives where together
// they give so many; pods that give none are left out.
func (m *tables) amounts(to []int32, s, count int, hosts int32) []int32 {
	t := &m.shapes[s]
	for q := min(count, len(t.rows)) - 1; hosts > 0; q-- {
		r := &t.rows[q]
		if i := int(hosts) - r.start; i >= 0 && i < len(r.pick) && r.pick[i] > 0 {
			to = append(to, r.pick[i])
			hosts -= r.pick[i]
		}
	}
	return to
}

// convolve makes sum[j] the least a[j-k]+b[k], and pick[j] that k, for j from low to high
// or as far as a and b go together. It uses the memory of sum and pick.
func convolve(sum []int64, pick []int32, a, b []int64, low, high int) ([]int64, []int32) {
	high = min(high, len(a)+len(b)-2)
	if cap(sum) <= high {
		sum = make([]int64, high+1)
	}
	if cap(pick) <= high {
		pick = make([]int32, high+1)
	}
	sum, pick = sum[:high+1], pick[:high+1]
	for j := low; j <= high; j++ {
		from, to := max(0, j-len(a)+1), min(j, len(b)-1)
		best, at := int64(math.MaxInt64), from
		rest := a[j-to : j-from+1]
		for i, cost := range b[from : to+1] {
			if cost += rest[len(rest)-1-i]; cost < best {
				best, at = cost, from+i
			}
		}
		sum[j], pick[j] = best, int32(at)
	}
	return sum, pick
}

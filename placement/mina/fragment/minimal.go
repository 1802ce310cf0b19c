package fragment

import (
	"fmt"
	"slices"
)

// Minimal places jobs at the least score. It keeps tables and memory between calls,
// which do not change what it returns; it is for one goroutine at a time.
type Minimal struct {
	alpha float64
	tables

	// Memory of a call.
	kinds    []kind
	sum, buf []int64
	pick     [][]int32
	slot     []int32   // shape -> 1 + index in kinds, of those that the job uses
	have     []int32   // node, kind -> fragments that may be used
	want     [][]int32 // kind -> fragments, twice per depth
	parts    []int32
	out      []int
}

// kind is a shape of free fragments.
type kind struct {
	shape, size int
	count       int     // fragments
	amounts     []int32 // hosts that each of those used gives
	next        int     // of amounts
}

// NewMinimal returns a policy for an alpha of 0 to 4, else ErrAlpha.
func NewMinimal(alpha float64) (*Minimal, error) {
	if !(alpha >= 0 && alpha <= maxAlpha) {
		return nil, fmt.Errorf("alpha %v, not 0 to %d: %w", alpha, maxAlpha, ErrAlpha)
	}
	return &Minimal{alpha: alpha, tables: tables{weight: freeWeight(alpha)}}, nil
}

// Name implements Policy.
func (m *Minimal) Name() string {
	if m.alpha == DefaultAlpha {
		return "mina"
	}
	return fmt.Sprintf("mina-%v", m.alpha)
}

// Place implements Policy.
func (m *Minimal) Place(o *Occupancy, n int) ([]int, error) {
	if err := check(o, n); err != nil {
		return nil, err
	}
	m.prepare(o.t, n)
	m.share(o, n)
	m.out = make([]int, 0, n)
	m.choose(o)
	slices.Sort(m.out)
	return m.out, nil
}

// share leaves in kinds what fragments of which shapes the job uses.
func (m *Minimal) share(o *Occupancy, n int) {
	m.kinds = m.kinds[:0]
	for s, count := range o.pieces {
		if count > 0 {
			m.kinds = slices.Grow(m.kinds, 1)[:len(m.kinds)+1]
			k := &m.kinds[len(m.kinds)-1]
			*k = kind{shape: s, size: m.t.shapes[s].size, count: int(count), amounts: k.amounts[:0]}
		}
	}
	for len(m.pick) < len(m.kinds) {
		m.pick = append(m.pick, nil)
	}
	m.sum = append(m.sum[:0], 0)
	later := o.Free()
	for i, k := range m.kinds {
		later -= k.size * k.count // hosts that the others can still give
		m.buf, m.pick[i] = convolve(m.buf, m.pick[i], m.sum, m.many(k.shape, k.count), max(0, n-later), n)
		m.sum, m.buf = m.buf, m.sum
	}
	used := len(m.kinds)
	for i := used - 1; i >= 0; i-- {
		k := &m.kinds[i]
		hosts := m.pick[i][n]
		n -= int(hosts)
		if k.amounts = m.amounts(k.amounts, k.shape, k.count, hosts); len(k.amounts) == 0 {
			used--
			m.kinds[i], m.kinds[used] = m.kinds[used], m.kinds[i]
		}
	}
	m.kinds = m.kinds[:used]
}

// choose takes the hosts out of fragments near each other.
func (m *Minimal) choose(o *Occupancy) {
	m.slot = resize(m.slot, len(m.t.shapes))
	m.have = resize(m.have, len(m.t.nodes)*len(m.kinds))
	want := m.wanted(0)
	for i, k := range m.kinds {
		m.slot[k.shape] = int32(i + 1)
		want[i] = int32(len(k.amounts))
	}
	m.count(o, 0)
	m.descend(o, 0, want, 1)
	for _, k := range m.kinds {
		m.slot[k.shape] = 0
	}
}

func resize(s []int32, n int) []int32 { return slices.Grow(s[:0], n)[:n] }

// wanted is a vector over kinds for each i.
func (m *Minimal) wanted(i int) []int32 {
	for len(m.want) <= i {
		m.want = append(m.want, nil)
	}
	m.want[i] = resize(m.want[i], len(m.kinds))
	return m.want[i]
}

// at is what a node has.
func (m *Minimal) at(v int32) []int32 {
	return m.have[int(v)*len(m.kinds):][:len(m.kinds)]
}

// ofHosts says whether the children of a pod are hosts.
func (m *Minimal) ofHosts(v int32) bool {
	p := m.t.shapes[m.t.nodes[v].shape].parts
	return len(p) == 1 && p[0].shape == 0
}

// count finds what nodes with free hosts have, but for pods of hosts, where free says it.
func (m *Minimal) count(o *Occupancy, v int32) {
	have, n := m.at(v), &m.t.nodes[v]
	clear(have)
	switch {
	case o.free[v] == n.size:
		if s := m.slot[n.shape]; s > 0 {
			have[s-1] = 1
		}
	case m.ofHosts(v):
		if s := m.slot[0]; s > 0 {
			have[s-1] = o.free[v]
		}
	default:
		for u := range m.t.children(v) {
			if o.free[u] > 0 {
				m.count(o, u)
				for i, c := range m.at(u) {
					have[i] += c
				}
			}
		}
	}
}

// descend takes what is wanted of each kind out of a node that has it: out of the child
// with the fewest free hosts that has all of it, or else out of the one that has most.
func (m *Minimal) descend(o *Occupancy, v int32, want []int32, depth int) {
	if o.free[v] == m.t.nodes[v].size {
		m.use(v)
		return
	}
	if m.ofHosts(v) {
		left := want[m.slot[0]-1]
		for u := v + 1; left > 0; u++ {
			if o.free[u] > 0 {
				m.out = append(m.out, m.t.hosts[m.t.nodes[u].first])
				left--
			}
		}
		return
	}
	take, left := m.wanted(2*depth), m.wanted(2*depth+1)
	copy(left, want)
	for {
		best, bestAll, bestHosts := int32(-1), false, 0
		for u := range m.t.children(v) {
			if o.free[u] == 0 {
				continue
			}
			all, hosts := true, 0
			for i, c := range m.at(u) {
				all = all && c >= left[i]
				hosts += int(min(c, left[i])) * m.kinds[i].size
			}
			if hosts == 0 {
				continue
			}
			if best < 0 || all && !bestAll || all == bestAll &&
				(hosts > bestHosts || hosts == bestHosts && o.free[u] < o.free[best]) {
				best, bestAll, bestHosts = u, all, hosts
			}
		}
		for i, c := range m.at(best) {
			take[i] = min(c, left[i])
			left[i] -= take[i]
		}
		clear(m.at(best))
		m.descend(o, best, take, depth+1)
		if bestAll {
			return
		}
	}
}

// use takes hosts out of a free fragment.
func (m *Minimal) use(v int32) {
	k := &m.kinds[m.slot[m.t.nodes[v].shape]-1]
	k.next++
	m.part(v, k.amounts[k.next-1])
}

// part takes so many hosts out of a free pod.
func (m *Minimal) part(v, hosts int32) {
	n := &m.t.nodes[v]
	if hosts == n.size {
		m.out = append(m.out, m.t.hosts[n.first:n.first+n.size]...)
		return
	}
	parts, split := m.t.shapes[n.shape].parts, m.shapes[n.shape].split
	for i := len(parts) - 1; i >= 0; i-- {
		p, from := parts[i], split[i][hosts]
		hosts -= from
		start := len(m.parts)
		m.parts = m.amounts(m.parts, p.shape, p.count, from)
		end := len(m.parts)
		next := start
		for u := range m.t.children(v) {
			if next == end {
				break
			}
			if int(m.t.nodes[u].shape) == p.shape {
				m.part(u, m.parts[next])
				next++
			}
		}
		m.parts = m.parts[:start]
	}
}

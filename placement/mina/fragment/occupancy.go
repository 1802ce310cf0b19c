package fragment

import "fmt"

// Occupancy is which hosts of a tree are free. Taking or releasing a host costs one step
// per level. It is for one goroutine at a time.
type Occupancy struct {
	t      *Topology
	free   []int32 // hosts, by node
	pieces []int32 // fragments of free hosts, by shape
}

// NewOccupancy has all hosts free.
func NewOccupancy(t *Topology) *Occupancy {
	o := &Occupancy{t: t, free: make([]int32, len(t.nodes)), pieces: make([]int32, len(t.shapes))}
	for v := range t.nodes {
		o.free[v] = t.nodes[v].size
	}
	o.pieces[t.nodes[0].shape] = 1
	return o
}

// Topology is the tree.
func (o *Occupancy) Topology() *Topology { return o.t }

// Free is how many hosts are free.
func (o *Occupancy) Free() int { return int(o.free[0]) }

// IsFree says whether a host is free; one that does not exist is not.
func (o *Occupancy) IsFree(host int) bool {
	return host >= 0 && host < len(o.t.leaf) && o.free[o.t.leaf[host]] > 0
}

// Fragments is how many fragments the free hosts have.
func (o *Occupancy) Fragments() int {
	sum := 0
	for _, n := range o.pieces {
		sum += int(n)
	}
	return sum
}

// Take takes hosts, all of them or, with ErrHost where one is not free, none.
func (o *Occupancy) Take(hosts []int) error {
	for i, h := range hosts {
		if !o.IsFree(h) {
			o.undo(hosts[:i], o.release)
			return fmt.Errorf("take host %d: not free: %w", h, ErrHost)
		}
		o.take(o.t.leaf[h])
	}
	return nil
}

// Release frees hosts, all of them or, with ErrHost where one is not taken, none.
func (o *Occupancy) Release(hosts []int) error {
	for i, h := range hosts {
		if h < 0 || h >= len(o.t.leaf) || o.IsFree(h) {
			o.undo(hosts[:i], o.take)
			return fmt.Errorf("release host %d: not taken: %w", h, ErrHost)
		}
		o.release(o.t.leaf[h])
	}
	return nil
}

func (o *Occupancy) undo(hosts []int, inverse func(leaf int32)) {
	for _, h := range hosts {
		inverse(o.t.leaf[h])
	}
}

func (o *Occupancy) take(leaf int32) {
	o.split(leaf, 1)
	for v := leaf; v >= 0; v = o.t.nodes[v].parent {
		o.free[v]--
	}
}

func (o *Occupancy) release(leaf int32) {
	for v := leaf; v >= 0; v = o.t.nodes[v].parent {
		o.free[v]++
	}
	o.split(leaf, -1)
}

// split counts what becomes of the fragment around a free host when that is taken: the
// other children of every pod up to it are fragments of their own. With -1 it counts the
// reverse.
func (o *Occupancy) split(leaf, sign int32) {
	nodes := o.t.nodes
	v := leaf
	for {
		p := nodes[v].parent
		if p < 0 || o.free[p] != nodes[p].size {
			break
		}
		for _, part := range o.t.shapes[nodes[p].shape].parts {
			o.pieces[part.shape] += sign * int32(part.count)
		}
		o.pieces[nodes[v].shape] -= sign
		v = p
	}
	o.pieces[nodes[v].shape] -= sign
}

package fragment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// MaxHosts is how many hosts a tree may have.
const MaxHosts = 1 << 20

// Topology is a tree of pods with hosts as its leaves. It does not change, and may be
// used by several goroutines.
type Topology struct {
	// Nodes are numbered so that those below a node follow it: node v has those from v+1
	// to v+span-1 below it, and its first child is v+1.
	nodes  []node
	shapes []shape
	hosts  []int   // position -> the caller's number of the host
	leaf   []int32 // host -> its node
}

// node is a pod or a host.
type node struct {
	parent int32 // -1: the root
	span   int32 // nodes of the subtree, itself among them
	first  int32 // position of its first host
	size   int32 // hosts
	shape  int32
}

// shape is what pods of equal structure share. Shape 0 is a host.
type shape struct {
	size  int
	parts []part // of its children, ascending
}

// part is how many children have a shape.
type part struct{ shape, count int }

// Regular is a tree in which all pods of a level have equally many children: degrees[0]
// hosts in the lowest pods, degrees[1] of those in the pods above, and so on. The hosts
// of a pod are consecutive. The paper's fat tree of 1,024 hosts is Regular(8, 8, 16).
func Regular(degrees ...int) (*Topology, error) {
	hosts := 1
	for _, d := range degrees {
		if d < 1 {
			return nil, fmt.Errorf("pods with %d children: %w", d, ErrTree)
		}
		if hosts > MaxHosts/d {
			return nil, fmt.Errorf("more than %d hosts: %w", MaxHosts, ErrTooLarge)
		}
		hosts *= d
	}
	parent := make([]int, 0, 2*hosts)
	for level, nodes := 0, hosts; level < len(degrees); level++ {
		start := len(parent)
		for i := range nodes {
			parent = append(parent, start+nodes+i/degrees[level])
		}
		nodes /= degrees[level]
	}
	return New(hosts, append(parent, -1))
}

// New is the tree where node v is a child of parent[v], or the root if that is -1. Nodes
// below hosts are hosts, the others pods, none of which is empty. Children of a pod are
// ordered by their numbers. Errors are ErrTree and ErrTooLarge.
func New(hosts int, parent []int) (*Topology, error) {
	if hosts > MaxHosts || len(parent) > 4*MaxHosts {
		return nil, fmt.Errorf("%d hosts and %d pods: %w", hosts, len(parent)-hosts, ErrTooLarge)
	}
	if hosts < 1 || hosts > len(parent) {
		return nil, fmt.Errorf("%d hosts among %d nodes: %w", hosts, len(parent), ErrTree)
	}
	root := -1
	children := make([][]int, len(parent))
	for v, p := range parent {
		switch {
		case p == -1 && root < 0:
			root = v
		case p < hosts || p >= len(parent):
			return nil, fmt.Errorf("node %d is a child of %d, with root %d: %w", v, p, root, ErrTree)
		default:
			children[p] = append(children[p], v)
		}
	}
	if root < 0 {
		return nil, fmt.Errorf("no root: %w", ErrTree)
	}
	t := &Topology{leaf: make([]int32, hosts)}
	type visit struct{ node, parent int }
	for stack := []visit{{root, -1}}; len(stack) > 0; {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		v := len(t.nodes)
		n := node{parent: int32(at.parent), span: 1, first: int32(len(t.hosts))}
		if at.node < hosts {
			n.size = 1
			t.leaf[at.node] = int32(v)
			t.hosts = append(t.hosts, at.node)
		}
		t.nodes = append(t.nodes, n)
		for _, u := range slices.Backward(children[at.node]) {
			stack = append(stack, visit{u, v})
		}
	}
	if len(t.nodes) != len(parent) {
		return nil, fmt.Errorf("%d of %d nodes are below the root: %w", len(t.nodes), len(parent), ErrTree)
	}
	for v := len(t.nodes) - 1; v > 0; v-- {
		n, p := &t.nodes[v], &t.nodes[t.nodes[v].parent]
		if n.size == 0 {
			return nil, fmt.Errorf("a pod without hosts: %w", ErrTree)
		}
		p.span += n.span
		p.size += n.size
	}
	t.findShapes()
	return t, nil
}

// findShapes gives nodes of equal structure the same shape.
func (t *Topology) findShapes() {
	t.shapes = []shape{{size: 1}}
	known := map[string]int32{}
	var below []int32
	var key []byte
	for v := len(t.nodes) - 1; v >= 0; v-- {
		n := &t.nodes[v]
		below, key = below[:0], key[:0]
		for u := range t.children(int32(v)) {
			below = append(below, t.nodes[u].shape)
		}
		if len(below) == 0 {
			continue // a host
		}
		slices.SortFunc(below, cmp.Compare[int32])
		var parts []part
		for _, s := range below {
			if len(parts) == 0 || parts[len(parts)-1].shape != int(s) {
				parts = append(parts, part{shape: int(s)})
			}
			parts[len(parts)-1].count++
		}
		for _, p := range parts {
			key = binary.AppendUvarint(key, uint64(p.shape))
			key = binary.AppendUvarint(key, uint64(p.count))
		}
		s, ok := known[string(key)]
		if !ok {
			s = int32(len(t.shapes))
			known[string(key)] = s
			t.shapes = append(t.shapes, shape{size: int(n.size), parts: parts})
		}
		n.shape = s
	}
}

// children ranges over the children of a node.
func (t *Topology) children(v int32) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for u, end := v+1, v+t.nodes[v].span; u < end; u += t.nodes[u].span {
			if !yield(u) {
				return
			}
		}
	}
}

// Hosts is how many hosts there are.
func (t *Topology) Hosts() int { return len(t.hosts) }

// Fragments is how many fragments a set of hosts has: the pods all of whose hosts are in
// it, not counting those within others. Hosts that do not exist or are named twice make
// it ErrHost.
func (t *Topology) Fragments(hosts []int) (int, error) {
	in := make([]int32, len(t.nodes))
	if err := t.mark(in, hosts); err != nil {
		return 0, err
	}
	return t.whole(in), nil
}

// whole counts the largest pods whose hosts are all in a set, of which in says how many
// each node has.
func (t *Topology) whole(in []int32) int {
	count := 0
	for v := 0; v < len(t.nodes); {
		switch n := &t.nodes[v]; in[v] {
		case n.size:
			count++
			v += int(n.span)
		case 0:
			v += int(n.span)
		default:
			v++
		}
	}
	return count
}

// mark counts the hosts of a set below every node.
func (t *Topology) mark(in []int32, hosts []int) error {
	for _, h := range hosts {
		if h < 0 || h >= len(t.leaf) || in[t.leaf[h]] > 0 {
			return fmt.Errorf("host %d of %d, or named twice: %w", h, len(t.leaf), ErrHost)
		}
		for v := t.leaf[h]; v >= 0; v = t.nodes[v].parent {
			in[v]++
		}
	}
	return nil
}

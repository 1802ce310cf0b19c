package inventory

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// topologyIndex is what lookups in a Topology need. Nodes and links are numbers in
// it: those of Topology.Nodes and Topology.Links.
type topologyIndex struct {
	node  map[string]int
	hosts int   // nodes below this number are hosts
	to    []int // node at the end of each link
	out   [][]int
	tier  []int
	trees []atomic.Pointer[tree] // by switch, made when first asked for
}

// tree is what a search from one switch found.
type tree struct {
	hops []int32 // to each switch; -1: no path
	via  []int32 // last link of the path to each switch
}

// Topology is the graph of the inventory's cables, each as two directed links: host
// cables first, in file order, then those between switches. Cables that end at an
// unknown switch are left out.
//
// It is computed at every call (hosts may have been changed in between) in time
// proportional to the inventory's size: keep it rather than ask again. What it
// computes later, paths, it remembers. It is safe for concurrent use.
func (inv *Inventory) Topology() *Topology {
	t := &Topology{index: topologyIndex{node: map[string]int{}}}
	x := &t.index
	add := func(name string) {
		if _, dup := x.node[name]; !dup {
			x.node[name] = len(t.Nodes)
			t.Nodes = append(t.Nodes, name)
		}
	}
	for i := range inv.Hosts {
		add(inv.Hosts[i].Name)
	}
	x.hosts = len(t.Nodes)
	for i := range inv.Switches {
		add(inv.Switches[i].Name)
	}

	// How many cables join the same two nodes decides how their links are named.
	type pair struct{ a, b int }
	key := func(a, b string) (pair, bool) {
		i, okA := x.node[a]
		j, okB := x.node[b]
		return pair{min(i, j), max(i, j)}, okA && okB && j >= x.hosts
	}
	cables := map[pair]int{}
	for i := range inv.Hosts {
		for k := range inv.Hosts[i].NICs {
			if p, ok := key(inv.Hosts[i].Name, inv.Hosts[i].NICs[k].Switch); ok {
				cables[p]++
			}
		}
	}
	for _, l := range inv.Links {
		if p, ok := key(l.A.Switch, l.B.Switch); ok {
			cables[p]++
		}
	}

	x.out = make([][]int, len(t.Nodes))
	cable := func(there DirectedLink) {
		p, ok := key(there.From, there.To)
		if !ok {
			return
		}
		from, to := there.From, there.To
		if cables[p] > 1 {
			to = fmt.Sprintf("%s:%d", to, there.ToPort)
			if there.NIC == "" && x.node[there.From] >= x.hosts {
				from = fmt.Sprintf("%s:%d", from, there.FromPort)
			}
		}
		there.Index = len(t.Links)
		there.Reverse = there.Index + 1
		there.Name = from + "->" + to
		back := there
		back.Index, back.Reverse, back.Name = there.Reverse, there.Index, to+"->"+from
		back.From, back.To, back.FromPort, back.ToPort = there.To, there.From, there.ToPort, there.FromPort
		for _, l := range []DirectedLink{there, back} {
			t.Links = append(t.Links, l)
			x.to = append(x.to, x.node[l.To])
			x.out[x.node[l.From]] = append(x.out[x.node[l.From]], l.Index)
		}
	}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		for k := range h.NICs {
			n := &h.NICs[k]
			cable(DirectedLink{From: h.Name, To: n.Switch, ToPort: n.Port, NIC: n.Device, Rate: n.Rate, Delay: n.Delay})
		}
	}
	for _, l := range inv.Links {
		cable(DirectedLink{From: l.A.Switch, To: l.B.Switch, FromPort: l.A.Port, ToPort: l.B.Port, Rate: l.Rate, Delay: l.Delay})
	}
	x.trees = make([]atomic.Pointer[tree], len(t.Nodes)-x.hosts)
	x.tiers()
	return t
}

// tiers is a breadth first search from all switches that hosts are cabled to.
func (x *topologyIndex) tiers() {
	x.tier = make([]int, len(x.out))
	var queue []int
	for n := range x.hosts {
		for _, l := range x.out[n] {
			if s := x.to[l]; x.tier[s] == 0 {
				x.tier[s] = 1
				queue = append(queue, s)
			}
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, l := range x.out[n] {
			if s := x.to[l]; s >= x.hosts && x.tier[s] == 0 {
				x.tier[s] = x.tier[n] + 1
				queue = append(queue, s)
			}
		}
	}
	for n := x.hosts; n < len(x.tier); n++ {
		if x.tier[n] == 0 {
			x.tier[n] = 2 // no host in reach
		}
	}
}

// Out is the directed links that leave a node, as indices into Links in file order,
// or nil for an unknown node. The slice must not be changed.
func (t *Topology) Out(node string) []int {
	n, ok := t.index.node[node]
	if !ok {
		return nil
	}
	return t.index.out[n]
}

// IsHost reports whether a node is a host.
func (t *Topology) IsHost(node string) bool {
	n, ok := t.index.node[node]
	return ok && n < t.index.hosts
}

// Tier is a node's height: 0 for a host, 1 for a switch that hosts are cabled to
// (a ToR), one more than the nearest below for others, 2 for a switch that reaches
// no host, and -1 for an unknown node.
func (t *Topology) Tier(node string) int {
	n, ok := t.index.node[node]
	if !ok {
		return -1
	}
	return t.index.tier[n]
}

// Path is the directed links from one node to another, as indices into Links. It
// has the fewest hops; of several such paths it is always the same one, through
// links that come early in the file. Hosts are never transit. A path from a node to
// itself is empty; an unknown node or one out of reach is an error.
func (t *Topology) Path(from, to string) ([]int, error) {
	return t.PathBy(End{Node: from}, End{Node: to})
}

// End is where a path begins or ends: a switch, or a host by one of its NICs, or by the one that makes the path shortest
// where NIC is empty.
type End struct{ Node, NIC string }

// PathBy is Path from one end to another.
func (t *Topology) PathBy(from, to End) ([]int, error) {
	x := &t.index
	a, ok := x.node[from.Node]
	if !ok {
		return nil, fmt.Errorf("path from %s to %s: no node %q", from.Node, to.Node, from.Node)
	}
	b, ok := x.node[to.Node]
	if !ok {
		return nil, fmt.Errorf("path from %s to %s: no node %q", from.Node, to.Node, to.Node)
	}
	if a == b {
		return nil, nil
	}
	other := func(link int, nic string) bool { return link >= 0 && nic != "" && t.Links[link].NIC != nic }
	// A host's path goes by one of its cables; a switch has itself to start from.
	best, hops := [3]int{}, math.MaxInt
	for _, up := range x.ends(a) {
		if other(up, from.NIC) {
			continue
		}
		tr := x.tree(x.at(a, up))
		for _, down := range x.ends(b) {
			if other(down, to.NIC) {
				continue
			}
			e := x.at(b, down)
			if h := tr.hops[e-x.hosts]; h >= 0 && int(h) < hops {
				hops = int(h)
				best = [3]int{up, e, down}
			}
		}
	}
	if hops == math.MaxInt {
		return nil, fmt.Errorf("path from %s to %s: no links join them", from.Node, to.Node)
	}
	up, e, down := best[0], best[1], best[2]
	path := make([]int, 0, hops+2)
	if up >= 0 {
		path = append(path, up)
	}
	tr := x.tree(x.at(a, up))
	n := len(path)
	path = path[:n+hops]
	for i := len(path) - 1; i >= n; i-- {
		l := int(tr.via[e-x.hosts])
		path[i] = l
		e = x.to[t.Links[l].Reverse]
	}
	if down >= 0 {
		path = append(path, t.Links[down].Reverse)
	}
	return path, nil
}

// Between is the directed links that packets from one node to another may take, whatever cable of a host they use and
// whichever way of the fewest hops from there: as indices into Links, in that order. Path's are among them. It is empty
// from a node to itself; an unknown node or one out of reach is an error.
func (t *Topology) Between(from, to string) ([]int, error) {
	if _, err := t.Path(from, to); err != nil || from == to {
		return nil, err
	}
	x := &t.index
	a, b := x.node[from], x.node[to]
	on := make([]bool, len(t.Links))
	for _, up := range x.ends(a) {
		there := x.tree(x.at(a, up))
		for _, down := range x.ends(b) {
			e := x.at(b, down)
			hops := there.hops[e-x.hosts]
			if hops < 0 {
				continue
			}
			if up >= 0 {
				on[up] = true
			}
			if down >= 0 {
				on[t.Links[down].Reverse] = true
			}
			back := x.tree(e)
			for l := range t.Links {
				u, v := x.to[t.Links[l].Reverse], x.to[l]
				if u >= x.hosts && v >= x.hosts && there.hops[u-x.hosts] >= 0 && there.hops[u-x.hosts]+1+back.hops[v-x.hosts] == hops {
					on[l] = true
				}
			}
		}
	}
	var out []int
	for l, is := range on {
		if is {
			out = append(out, l)
		}
	}
	return out, nil
}

// ends are a host's links, or the one pseudo link -1 for a switch.
func (x *topologyIndex) ends(n int) []int {
	if n < x.hosts {
		return x.out[n]
	}
	return []int{-1}
}

// at is the switch that one of a node's ends leads to.
func (x *topologyIndex) at(n, end int) int {
	if end < 0 {
		return n
	}
	return x.to[end]
}

// tree is the breadth first search from a switch over switches. Two callers at once
// may both make it; they make the same.
func (x *topologyIndex) tree(root int) *tree {
	cell := &x.trees[root-x.hosts]
	if tr := cell.Load(); tr != nil {
		return tr
	}
	n := len(x.trees)
	tr := &tree{hops: make([]int32, n), via: make([]int32, n)}
	for i := range tr.hops {
		tr.hops[i] = -1
	}
	tr.hops[root-x.hosts] = 0
	queue := make([]int, 1, n)
	queue[0] = root
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for _, l := range x.out[at] {
			s := x.to[l]
			if s < x.hosts || tr.hops[s-x.hosts] >= 0 {
				continue
			}
			tr.hops[s-x.hosts] = tr.hops[at-x.hosts] + 1
			tr.via[s-x.hosts] = int32(l)
			queue = append(queue, s)
		}
	}
	cell.Store(tr)
	return tr
}

// PathDelay is the sum of the cables' one-way delays along a path, without
// transmission and queueing.
func (t *Topology) PathDelay(path []int) time.Duration {
	var d time.Duration
	for _, l := range path {
		d += t.Links[l].Delay
	}
	return d
}

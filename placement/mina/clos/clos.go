// Package clos recognises the fat-tree in an inventory: which host is which of a
// tree.Fabric's, which switch and which cable are which resource. What package tree plans
// on indices can then be built on switches and ports that have names.
//
// A fat-tree here is the one of tree.NewFabric: switches in layers, each with as many
// switches or hosts below as the others of its layer, and as many above. A host may have
// several NICs, in as many switches of layer 1.
package clos

import (
	"errors"
	"fmt"
	"slices"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
)

// ErrIrregular is wrapped where an inventory is no fat-tree; the text says where.
var ErrIrregular = errors.New("not a fat-tree")

// Clos is an inventory's fat-tree.
type Clos struct {
	Fabric   *tree.Fabric
	Down, Up []int    // as of tree.NewFabric
	Hosts    []string // by index in the fabric

	topo     *inventory.Topology
	index    map[string]int // of Hosts
	resource []string       // names of switches, by resource
	up       []int          // of a link resource, less Fabric.Switches(): the directed link that leads up
}

// Of is the fat-tree of an inventory, or an error wrapping ErrIrregular.
func Of(inv *inventory.Inventory) (*Clos, error) {
	b := builder{topo: inv.Topology(), layer: map[string]int{}, pos: map[string]int{}}
	c, err := b.build(inv)
	if err != nil {
		return nil, fmt.Errorf("inventory %s: %w", inv.File, err)
	}
	return c, nil
}

// Host is a host's index.
func (c *Clos) Host(name string) (int, bool) {
	i, ok := c.index[name]
	return i, ok
}

// Names are the names of hosts.
func (c *Clos) Names(hosts []int) []string {
	out := make([]string, len(hosts))
	for i, h := range hosts {
		out[i] = c.Hosts[h]
	}
	return out
}

// Resource names a switch, or a cable by its direction upwards: "leaf1", "leaf1->spine2".
func (c *Clos) Resource(r int) string {
	if r < c.Fabric.Switches() {
		return c.resource[r]
	}
	return c.topo.Links[c.up[r-c.Fabric.Switches()]].Name
}

// Node is a switch of an aggregation tree.
type Node struct {
	Switch string
	Layer  int
	Down   []inventory.DirectedLink // from each child to it: a host's in layer 1, a switch's above
	Up     *inventory.DirectedLink  // to its parent; nil: it is the root
}

// Tree is a tree of the fabric as switches, lower layers first: what is to be set up for a
// job. Hosts are in ascending order below each switch.
func (c *Clos) Tree(t tree.Tree) []Node {
	nodes := make([]Node, len(t.Switches))
	at := map[string]int{}
	for i, s := range t.Switches {
		nodes[i] = Node{Switch: c.resource[s], Layer: c.topo.Tier(c.resource[s])}
		at[nodes[i].Switch] = i
	}
	for _, r := range t.Links {
		l := c.topo.Links[c.up[r-c.Fabric.Switches()]]
		n := &nodes[at[l.To]]
		n.Down = append(n.Down, l)
		if i, ok := at[l.From]; ok {
			nodes[i].Up = &c.topo.Links[l.Index]
		}
	}
	return nodes
}

// builder finds out which node is which.
type builder struct {
	topo  *inventory.Topology
	layer map[string]int
	pods  [][]pod        // by layer
	pos   map[string]int // of a switch among those with the same hosts below
}

// pod is the nodes of a layer that have the same hosts below.
type pod struct {
	top  []string
	subs []int // in the layer below; of layer 1: nothing
	from int   // first host
}

func irregular(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrIrregular, fmt.Errorf(format, args...))
}

// above are the cables that lead up from a node.
func (b *builder) above(node string) (links []inventory.DirectedLink) {
	for _, i := range b.topo.Out(node) {
		if l := b.topo.Links[i]; b.layer[l.To] == b.layer[node]+1 {
			links = append(links, l)
		}
	}
	return links
}

func (b *builder) build(inv *inventory.Inventory) (*Clos, error) {
	layers := 0
	for _, n := range b.topo.Nodes {
		b.layer[n] = b.topo.Tier(n)
		layers = max(layers, b.layer[n])
	}
	if layers == 0 || len(inv.Hosts) == 0 {
		return nil, irregular("no switches above hosts")
	}
	for _, l := range b.topo.Links {
		if d := b.layer[l.To] - b.layer[l.From]; d != 1 && d != -1 {
			return nil, irregular("link %s joins layers %d and %d", l.Name, b.layer[l.From], b.layer[l.To])
		}
	}
	b.pods = make([][]pod, layers+1)
	of := map[string]int{} // pod of its layer that a node is in
	for i, h := range inv.Hosts {
		b.pods[0] = append(b.pods[0], pod{top: []string{h.Name}, from: i})
		of[h.Name] = i
	}
	for l := 1; l <= layers; l++ {
		if err := b.join(l, of); err != nil {
			return nil, err
		}
	}
	if n := len(b.pods[layers]); n > 1 {
		return nil, irregular("%s and %s are not connected", b.pods[layers][0].top[0], b.pods[layers][1].top[0])
	}
	down, up, err := b.degrees(layers)
	if err != nil {
		return nil, err
	}
	f, err := tree.NewFabric(down, up)
	if err != nil {
		return nil, irregular("%v", err)
	}
	c := &Clos{
		Fabric: f, Down: down, Up: up, topo: b.topo, index: map[string]int{},
		resource: make([]string, f.Switches()), up: make([]int, f.Resources()-f.Switches()),
	}
	b.order(layers, 0, c)
	for i, h := range c.Hosts {
		c.index[h] = i
	}
	if err := b.positions(layers, up); err != nil {
		return nil, err
	}
	b.number(c)
	return c, nil
}

// join finds the pods of a layer: pods below that share a switch are one.
func (b *builder) join(l int, of map[string]int) error {
	below := b.pods[l-1]
	group := make([]int, len(below)) // union-find
	for i := range group {
		group[i] = i
	}
	find := func(i int) int {
		for group[i] != i {
			group[i] = group[group[i]]
			i = group[i]
		}
		return i
	}
	first := map[string]int{} // a switch's first pod below
	for i := range below {
		for _, n := range below[i].top {
			for _, up := range b.above(n) {
				if j, ok := first[up.To]; ok {
					x, y := find(i), find(j)
					group[max(x, y)] = min(x, y)
				} else {
					first[up.To] = i
				}
			}
		}
	}
	at := map[int]int{}
	for i := range below {
		g := find(i)
		if _, ok := at[g]; !ok {
			at[g] = len(b.pods[l])
			b.pods[l] = append(b.pods[l], pod{from: below[i].from})
		}
		p := &b.pods[l][at[g]]
		p.subs = append(p.subs, i)
	}
	for _, n := range b.topo.Nodes {
		if b.layer[n] != l {
			continue
		}
		i, ok := first[n]
		if !ok {
			return irregular("nothing is below switch %s", n)
		}
		of[n] = at[find(i)]
		b.pods[l][of[n]].top = append(b.pods[l][of[n]].top, n)
	}
	for i := range b.pods[l] {
		if len(b.pods[l][i].top) == 0 {
			return irregular("nothing is above %s", below[b.pods[l][i].subs[0]].top[0])
		}
	}
	return nil
}

// degrees are how many a switch of each layer has below, and how many are above each.
func (b *builder) degrees(layers int) (down, up []int, err error) {
	for l := 1; l <= layers; l++ {
		first := b.pods[l][0]
		width := len(b.pods[l-1][0].top)
		if len(first.top)%width != 0 {
			return nil, nil, irregular("%d switches like %s above each of %d like %s", len(first.top), first.top[0], width, b.pods[l-1][0].top[0])
		}
		down, up = append(down, len(first.subs)), append(up, len(first.top)/width)
		for _, p := range b.pods[l] {
			switch {
			case len(p.top) != len(first.top):
				return nil, nil, irregular("%d switches beside each other like %s, %d like %s", len(first.top), first.top[0], len(p.top), p.top[0])
			case len(p.subs) != len(first.subs):
				return nil, nil, irregular("%d below %s, %d below %s", len(first.subs), first.top[0], len(p.subs), p.top[0])
			}
		}
		for _, p := range b.pods[l-1] {
			for _, n := range p.top {
				links := b.above(n)
				if len(links) != up[l-1] {
					return nil, nil, irregular("%s has %d cables up, others of its layer %d", n, len(links), up[l-1])
				}
				for i, x := range links {
					for _, y := range links[:i] {
						if x.To == y.To {
							return nil, nil, irregular("two cables from %s to %s", n, x.To)
						}
					}
				}
			}
		}
	}
	return down, up, nil
}

// order puts hosts into the order of the fabric: those of a pod beside each other.
func (b *builder) order(l, p int, c *Clos) {
	if l == 0 {
		c.Hosts = append(c.Hosts, b.pods[0][p].top[0])
		return
	}
	for _, s := range b.pods[l][p].subs {
		b.order(l-1, s, c)
	}
}

// positions numbers the switches that have the same hosts below: switch w of a pod has
// below, of each pod there, the one that is w modulo their number. The first pod of each
// layer is numbered from below, in the order of the inventory, all others by what is above.
func (b *builder) positions(layers int, up []int) error {
	b.pos[b.pods[0][0].top[0]] = 0
	chain := make([]int, layers+1) // the pods that the first host is in
	for l := 1; l <= layers; l++ {
		sub := b.pods[l-1][chain[l-1]]
		chain[l] = slices.IndexFunc(b.pods[l], func(p pod) bool { return slices.Contains(p.subs, chain[l-1]) })
		for _, n := range sub.top {
			for k, x := range b.above(n) {
				if _, ok := b.pos[x.To]; ok {
					return irregular("%s has two switches of one pod below", x.To)
				}
				b.pos[x.To] = b.pos[n] + k*len(sub.top)
			}
		}
		for _, n := range b.pods[l][chain[l]].top {
			if _, ok := b.pos[n]; !ok {
				return irregular("%s is not above %s", n, sub.top[0])
			}
		}
	}
	for l := layers; l > 0; l-- {
		for _, p := range b.pods[l] {
			for _, s := range p.subs {
				sub := b.pods[l-1][s]
				taken := make([]string, len(sub.top))
				for _, n := range sub.top {
					links := b.above(n)
					w := b.pos[links[0].To] % len(sub.top)
					for _, x := range links {
						if b.pos[x.To]%len(sub.top) != w {
							return irregular("%s leads to %s and %s, which no other switch beside %s does", n, links[0].To, x.To, n)
						}
					}
					if taken[w] != "" {
						return irregular("%s and %s lead to the same switches", taken[w], n)
					}
					taken[w], b.pos[n] = n, w
				}
			}
		}
	}
	return nil
}

// number says which node and cable is which resource.
func (b *builder) number(c *Clos) {
	for h, name := range c.Hosts {
		level := []string{name}
		for l := 1; l <= c.Fabric.Layers(); l++ {
			var next []string
			for _, n := range level {
				for _, x := range b.above(n) {
					w := b.pos[x.To]
					c.resource[c.Fabric.Switch(l, h, w)] = x.To
					c.up[c.Fabric.Link(l, h, w)-c.Fabric.Switches()] = x.Index
					if !slices.Contains(next, x.To) {
						next = append(next, x.To)
					}
				}
			}
			level = next
		}
	}
}

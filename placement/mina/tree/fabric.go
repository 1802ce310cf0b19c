package tree

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Fabric is a fat-tree of switches in layers above hosts, each layer as wide as wanted (an
// extended generalized fat-tree: Öhring et al., IPPS '95). Its resources, switches and
// links, are numbered from 0: the switches of layer 1 and up, then the links to layer 1
// and up.
//
// A pod of layer l is the hosts below a switch of that layer. Such a switch is one of
// Width(l) with the same hosts below. Switch u of a pod leads to those switches of the pod
// above that are u modulo Width(l), so a root and a host have one way between them.
type Fabric struct {
	pod      []int // hosts in one of a layer; layer 0 are hosts
	width    []int
	switches []int // resource of the first one of a layer; [0] is not used
	links    []int // the same, of links to a layer
	total    int
}

// Unlimited is the capacity of a resource that every job may use.
const Unlimited = math.MaxInt32

var errFabric = errors.New("no such fat-tree")

// NewFabric is the fat-tree whose switches of layer l have down[l-1] switches or hosts
// below, and in which each of those has up[l-1] above. The paper's has down 8, 8, 16 and
// up 1, 8, 8: 1,024 hosts, 320 switches, 3,072 links.
func NewFabric(down, up []int) (*Fabric, error) {
	if len(down) == 0 || len(down) != len(up) {
		return nil, fmt.Errorf("%w: %d layers of downlinks, %d of uplinks", errFabric, len(down), len(up))
	}
	f := &Fabric{pod: []int{1}, width: []int{1}, switches: []int{0}, links: []int{0}}
	for l := range down {
		if down[l] < 1 || up[l] < 1 {
			return nil, fmt.Errorf("%w: layer %d with %d downlinks and %d uplinks", errFabric, l+1, down[l], up[l])
		}
		if down[l] > 1<<24/f.pod[l] || up[l] > 1<<16/f.width[l] {
			return nil, fmt.Errorf("%w: more than %d hosts, or %d switches beside each other", errFabric, 1<<24, 1<<16)
		}
		f.pod = append(f.pod, f.pod[l]*down[l])
		f.width = append(f.width, f.width[l]*up[l])
	}
	for l := 1; l < len(f.pod); l++ {
		f.switches = append(f.switches, f.total)
		f.total += f.Hosts() / f.pod[l] * f.width[l]
	}
	for l := 1; l < len(f.pod); l++ {
		f.links = append(f.links, f.total)
		f.total += f.Hosts() / f.pod[l-1] * f.width[l]
	}
	if f.total > 1<<30 {
		return nil, fmt.Errorf("%w: %d switches and links", errFabric, f.total)
	}
	return f, nil
}

// Hosts is how many there are.
func (f *Fabric) Hosts() int { return f.pod[len(f.pod)-1] }

// Layers is how many layers of switches there are.
func (f *Fabric) Layers() int { return len(f.pod) - 1 }

// Width is how many switches of a layer have the same hosts below.
func (f *Fabric) Width(layer int) int { return f.width[layer] }

// Switches is how many there are; they are the first resources.
func (f *Fabric) Switches() int { return f.links[1] }

// Resources is how many switches and links there are.
func (f *Fabric) Resources() int { return f.total }

// Switch is the resource that is switch u of a layer above a host.
func (f *Fabric) Switch(layer, host, u int) int {
	return f.switches[layer] + host/f.pod[layer]*f.width[layer] + u%f.width[layer]
}

// Link is the resource that is the link to switch u of a layer above a host from what is
// below on the way to the host.
func (f *Fabric) Link(layer, host, u int) int {
	return f.links[layer] + host/f.pod[layer-1]*f.width[layer] + u%f.width[layer]
}

// Describe is what a resource is called in messages.
func (f *Fabric) Describe(resource int) string {
	kind, first, pod := "switch", f.switches, f.pod[1:]
	if resource >= f.Switches() {
		kind, first, pod = "link", f.links, f.pod
	}
	l := len(first) - 1
	for resource < first[l] {
		l--
	}
	i := resource - first[l]
	from := i / f.width[l] * pod[l-1]
	return fmt.Sprintf("%s %d of layer %d above hosts %d to %d", kind, i%f.width[l], l, from, from+pod[l-1]-1)
}

// Capacity is one for NewBuilder: each switch and each link serves so many jobs at once,
// or Unlimited: 1 and Unlimited with Quantum HDR switches and SHARP, Unlimited and 1 with Quantum-2 NDR
// switches. A resource whose entry is set to 0 is down: no tree uses it.
func (f *Fabric) Capacity(perSwitch, perLink int) []int32 {
	c := make([]int32, f.total)
	for r := range c {
		n := perSwitch
		if r >= f.Switches() {
			n = perLink
		}
		c[r] = int32(min(max(n, 0), Unlimited))
	}
	return c
}

// Roots is the lowest layer with switches above all the hosts, and how many those are: the
// roots of the trees that hosts can have. Layer 0: there is but one host, which needs none.
func (f *Fabric) Roots(hosts []int) (layer, roots int) {
	for _, h := range hosts {
		for h/f.pod[layer] != hosts[0]/f.pod[layer] {
			layer++
		}
	}
	return layer, f.width[layer]
}

// Tree is an aggregation tree, in resources, each in ascending order.
type Tree struct {
	Layer    int // of the root
	Switches []int
	Links    []int
}

// Tree is the one of hosts with a root, of those that Roots counts.
func (f *Fabric) Tree(hosts []int, root int) Tree {
	layer, _ := f.Roots(hosts)
	t := Tree{Layer: layer}
	for l := 1; l <= layer; l++ {
		for _, h := range hosts {
			t.Switches = append(t.Switches, f.Switch(l, h, root))
			t.Links = append(t.Links, f.Link(l, h, root))
		}
	}
	slices.Sort(t.Switches)
	slices.Sort(t.Links)
	t.Switches, t.Links = slices.Compact(t.Switches), slices.Compact(t.Links)
	return t
}

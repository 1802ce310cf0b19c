// Package ibfabric reads what InfiniBand's tools say about a fabric: ibnetdiscover,
// with and without -p, iblinkinfo -l, and opensm's opensm-subnet.lst, opensm-lfts.dump
// and log. Several outputs of one fabric make a Fabric, which is checked for what is
// missing and becomes an inventory.
//
// The checks are not pedantry: ibnetdiscover that loses packets leaves out whatever is
// behind them, and exits with 0.
//
// Formats are those of infiniband-diags 44 and OpenSM 3.3, seen on simulated fabrics,
// and of what is published of real ones. Nodes are known by their node GUIDs and ports
// by node GUID and number: port GUIDs differ from both, and every tool prints another.
package ibfabric

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory"
)

// GUID is a node's or a port's.
type GUID = inventory.GUID

// Kind is what a node is.
type Kind string

const (
	Switch  Kind = "switch"
	Adapter Kind = "adapter" // a channel adapter (CA): of a host, or an aggregation node
	Router  Kind = "router"
)

// AggregationNode is the PCI device id of the adapter that a switch shows for its
// SHARP engine.
const AggregationNode = 0xcf09

// Fabric is all nodes and cables that were seen.
type Fabric struct {
	Nodes map[GUID]*Node
	Files []string

	starts     []GUID      // of the nodes where discoveries began
	complaints []complaint // what tools wrote to stderr
	conflicts  []string    // where two outputs disagree
}

// Node is a switch, an adapter or a router.
type Node struct {
	GUID   GUID
	System GUID // of the box: adapters of one card, or a switch and its aggregation node, share it
	Kind   Kind
	Desc   string // node description: "leaf1", "host4 HCA-1"; may be empty, or that of many nodes
	Device int    // PCI device id; 0: not known
	Size   int    // number of ports; 0: not known
	Ports  map[int]*Port

	described bool // has spoken for itself; otherwise it is only known from its neighbours
	byPort    bool // GUID is that of its port, which is all that is known
}

// Port is one end of a cable, or a port without one.
type Port struct {
	Number int
	LID    int
	State  string // "Active", "Init", "Down" ...; empty: the tool does not say
	Speed  Speed
	Could  Speed  // a faster one that both ends support; only the parts that are better
	Peer   PortID // zero: nothing there
}

// PortID is a port of the fabric.
type PortID struct {
	Node GUID
	Port int
}

// Speed is a link's width and what its lanes are: "4xHDR".
type Speed struct {
	Width int    // lanes; 0: not known
	Lane  string // "SDR" to "XDR"; empty: not known
}

// lanes are the speeds of a lane: its signalling rate as iblinkinfo prints it, in
// Gbit/s, as opensm-subnet.lst does, and what of it is data, after 8b/10b or 64b/66b
// coding (InfiniBand Architecture Specification, volume 2). From HDR on names are data
// rates, and the coding is in what is signalled above them.
var lanes = []struct {
	name           string
	signal, subnet string
	data           float64
}{
	{"SDR", "2.5", "2.5", 2},
	{"DDR", "5.0", "5", 4},
	{"QDR", "10.0", "10", 8},
	{"FDR10", "10.3125", "FDR10", 10},
	{"FDR", "14.0625", "14", 14.0625 * 64 / 66},
	{"EDR", "25.78125", "25", 25},
	{"HDR", "53.125", "50", 50},
	{"NDR", "106.25", "100", 100},
	{"XDR", "212.5", "200", 200},
}

// lane is the name of a lane's speed, by any of its spellings.
func lane(s string) (name string, ok bool) {
	f, err := strconv.ParseFloat(s, 64)
	for _, l := range lanes {
		signal, _ := strconv.ParseFloat(l.signal, 64)
		subnet, _ := strconv.ParseFloat(l.subnet, 64)
		if strings.EqualFold(s, l.name) || s == l.subnet || err == nil && (f == signal || f == subnet) {
			return l.name, true
		}
	}
	return "", false
}

func laneIndex(name string) int {
	for i, l := range lanes {
		if l.name == name {
			return i
		}
	}
	return -1
}

// Known reports whether both parts are known.
func (s Speed) Known() bool { return s.Width > 0 && laneIndex(s.Lane) >= 0 }

// Rate is what the link carries: lanes times the data rate of each, 200 Gbit/s of
// 4xHDR; 0 when it is not known.
func (s Speed) Rate() inventory.BitRate {
	if !s.Known() {
		return 0
	}
	return inventory.BitRate(float64(s.Width) * lanes[laneIndex(s.Lane)].data * 1e9)
}

// String is "4xHDR", with question marks for what is not known.
func (s Speed) String() string {
	width, name := "?", s.Lane
	if s.Width > 0 {
		width = strconv.Itoa(s.Width)
	}
	return width + "x" + cmp.Or(name, "?")
}

var speedPattern = regexp.MustCompile(`^(\d+)[xX] ?(\w+)$`)

// parseSpeed reads "4xHDR" or "4x HDR".
func parseSpeed(s string) (Speed, bool) {
	m := speedPattern.FindStringSubmatch(s)
	if m == nil {
		return Speed{}, false
	}
	width, err := strconv.Atoi(m[1])
	name, ok := lane(m[2])
	if err != nil || width < 1 || width > 12 || !ok {
		return Speed{}, false
	}
	return Speed{width, name}, true
}

// IsAN reports whether a node is an aggregation node: an adapter by its kind, but no
// host's. It has one port, at the last port of its switch.
func (n *Node) IsAN() bool {
	return n.Kind == Adapter && (n.Device == AggregationNode || strings.HasSuffix(n.Desc, " Aggregation Node") && n.Size <= 1)
}

// String is the node's description and GUID.
func (n *Node) String() string {
	if strings.TrimSpace(n.Desc) == "" {
		return fmt.Sprintf("%s %v without a name", n.Kind, n.GUID)
	}
	return fmt.Sprintf("%s (%v)", n.Desc, n.GUID)
}

// name is for messages about a node that may not be there.
func (f *Fabric) name(g GUID) string {
	if n := f.Nodes[g]; n != nil {
		return n.String()
	}
	return g.String()
}

// Sorted is the nodes of a kind, or of all with "", by GUID.
func (f *Fabric) Sorted(kind Kind) []*Node {
	var out []*Node
	for _, g := range slices.Sorted(maps.Keys(f.Nodes)) {
		if n := f.Nodes[g]; kind == "" || n.Kind == kind {
			out = append(out, n)
		}
	}
	return out
}

// Numbers is a node's ports in order.
func (n *Node) numbers() []int { return slices.Sorted(maps.Keys(n.Ports)) }

// Port finds a port, or returns nil.
func (f *Fabric) Port(id PortID) *Port {
	n := f.Nodes[id.Node]
	if n == nil {
		return nil
	}
	return n.Ports[id.Port]
}

// Link is a cable; A is the end with the smaller GUID, or port.
type Link struct {
	A, B  PortID
	Speed Speed
}

// Links is every cable once, in the order of its ends.
func (f *Fabric) Links() []Link {
	var out []Link
	for _, n := range f.Sorted("") {
		for _, i := range n.numbers() {
			p, here := n.Ports[i], PortID{n.GUID, i}
			if p.Peer == (PortID{}) {
				continue
			}
			if back := f.Port(p.Peer); back != nil && back.Peer == here && comparePorts(p.Peer, here) < 0 {
				continue // seen from there
			}
			l := Link{A: here, B: p.Peer, Speed: p.Speed}
			if back := f.Port(p.Peer); !l.Speed.Known() && back != nil {
				l.Speed = back.Speed
			}
			out = append(out, l)
		}
	}
	return out
}

func comparePorts(a, b PortID) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Port, b.Port))
}

// AN is the aggregation node of a switch, or nil: such a switch cannot aggregate.
func (f *Fabric) AN(sw GUID) *Node {
	n := f.Nodes[sw]
	if n == nil || n.Kind != Switch {
		return nil
	}
	for _, i := range slices.Backward(n.numbers()) {
		if peer := f.Nodes[n.Ports[i].Peer.Node]; peer != nil && peer.IsAN() {
			return peer
		}
	}
	return nil
}

// Tiers is the height of every switch: 1 where adapters of hosts are cabled to, one
// more than the lowest neighbour above. Switches that reach no host are left out.
func (f *Fabric) Tiers() map[GUID]int {
	tiers := map[GUID]int{}
	var level []*Node
	for _, n := range f.Sorted(Switch) {
		for _, p := range n.Ports {
			if peer := f.Nodes[p.Peer.Node]; peer != nil && peer.Kind == Adapter && !peer.IsAN() {
				tiers[n.GUID] = 1
				level = append(level, n)
				break
			}
		}
	}
	for height := 2; len(level) > 0; height++ {
		var next []*Node
		for _, n := range level {
			for _, i := range n.numbers() {
				peer := f.Nodes[n.Ports[i].Peer.Node]
				if peer == nil || peer.Kind != Switch || tiers[peer.GUID] > 0 {
					continue
				}
				tiers[peer.GUID] = height
				next = append(next, peer)
			}
		}
		level = next
	}
	return tiers
}

// FatTree is how many tiers of switches the fabric has, and, where it is no fat-tree
// or a damaged one, an error that says where: a cable that does not join neighbouring
// tiers, or with two tiers a leaf that a spine lacks.
func (f *Fabric) FatTree() (tiers int, err error) {
	height := f.Tiers()
	for _, h := range height {
		tiers = max(tiers, h)
	}
	for _, l := range f.Links() {
		a, b := f.Nodes[l.A.Node], f.Nodes[l.B.Node]
		if a == nil || b == nil || a.Kind != Switch || b.Kind != Switch {
			continue
		}
		if d := height[a.GUID] - height[b.GUID]; d != 1 && d != -1 {
			return tiers, fmt.Errorf("no fat-tree: %v port %d and %v port %d are cabled, of tiers %d and %d",
				a, l.A.Port, b, l.B.Port, height[a.GUID], height[b.GUID])
		}
	}
	if tiers != 2 {
		return tiers, nil
	}
	for _, leaf := range f.Sorted(Switch) {
		if height[leaf.GUID] != 1 {
			continue
		}
		up := map[GUID]bool{}
		for _, p := range leaf.Ports {
			up[p.Peer.Node] = true
		}
		for _, spine := range f.Sorted(Switch) {
			if height[spine.GUID] == 2 && !up[spine.GUID] {
				return tiers, fmt.Errorf("a fat-tree that is damaged: no cable from %v to %v", leaf, spine)
			}
		}
	}
	return tiers, nil
}

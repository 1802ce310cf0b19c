package aggmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory"
)

// Fabric is the network that a manager manages.
type Fabric struct {
	Hosts    []Host
	Switches []Switch
	Links    []Link
}

// Host is a host port.
type Host struct {
	Name   string
	Switch string
	Port   uint32 // of the switch
}

// Switch is a switch and what it has for trees.
type Switch struct {
	Name  string
	Trees int // that it holds at once; 0: it has no SHARP
	OSTs  int // that all its trees have together; 0: it has no SHARP
	// Where its P4Runtime server is, for P4Switches.
	Address  string
	DeviceID uint64
}

// Link is a cable between two switches.
type Link struct {
	A     string
	APort uint32
	B     string
	BPort uint32
	Down  bool
}

func (l Link) String() string { return fmt.Sprintf("%s:%d - %s:%d", l.A, l.APort, l.B, l.BPort) }

// FabricOf is the fabric of an inventory whose switches are emulated. A switch with SHARP
// limits has these; one with aggregators alone has room for 126 trees, sharp_am's default.
// Both have one OST for two aggregators. The second NIC of h1 and further ones are hosts of
// their own, "h1/" and the device.
func FabricOf(inv *inventory.Inventory) Fabric {
	var f Fabric
	for _, h := range inv.Hosts {
		for i, n := range h.NICs {
			name := h.Name
			if i > 0 {
				name += "/" + n.Device
			}
			f.Hosts = append(f.Hosts, Host{Name: name, Switch: n.Switch, Port: n.Port})
		}
	}
	for _, s := range inv.Switches {
		out := Switch{Name: s.Name, Trees: s.SHARP.Trees, OSTs: s.Aggregators / 2, Address: s.Control, DeviceID: s.DeviceID}
		if s.Aggregators > 0 && out.Trees == 0 {
			out.Trees = maxTrees
		}
		f.Switches = append(f.Switches, out)
	}
	for _, l := range inv.Links {
		f.Links = append(f.Links, Link{A: l.A.Switch, APort: l.A.Port, B: l.B.Switch, BPort: l.B.Port})
	}
	return f
}

// graph is a fabric by index, with what of it is up. The manager's lock guards it.
type graph struct {
	Fabric
	host   map[string]int
	sw     map[string]int
	at     []int    // switch of each host
	out    [][]edge // of each switch
	height []int    // least way to a host, in switches; from 0
}

// edge is a link as one of its switches sees it.
type edge struct {
	link     int
	to       int
	from, by uint32 // port here, port there
}

func newGraph(f Fabric) (*graph, error) {
	g := &graph{
		Fabric: Fabric{Hosts: slices.Clone(f.Hosts), Switches: slices.Clone(f.Switches), Links: slices.Clone(f.Links)},
		host:   map[string]int{}, sw: map[string]int{},
	}
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf("fabric: "+format, args...)) }
	type port struct {
		sw     string
		number uint32
	}
	taken := map[port]string{}
	plug := func(p port, what string) {
		if other, ok := taken[p]; ok {
			problem("port %s:%d has %s and %s", p.sw, p.number, other, what)
		}
		taken[p] = what
	}
	for i, s := range g.Switches {
		if _, dup := g.sw[s.Name]; dup || s.Name == "" {
			problem("switch %q is there twice, or has no name", s.Name)
		}
		if s.Trees < 0 || s.OSTs < 0 {
			problem("switch %s: %d trees, %d OSTs: neither may be negative", s.Name, s.Trees, s.OSTs)
		}
		g.sw[s.Name] = i
	}
	for i, h := range g.Hosts {
		s, ok := g.sw[h.Switch]
		if !ok {
			problem("host %s is cabled to %q, which is no switch", h.Name, h.Switch)
		}
		if _, dup := g.host[h.Name]; dup || h.Name == "" {
			problem("host %q is there twice, or has no name", h.Name)
		}
		plug(port{h.Switch, h.Port}, "host "+h.Name)
		g.host[h.Name], g.at = i, append(g.at, s)
	}
	g.out = make([][]edge, len(g.Switches))
	for i, l := range g.Links {
		a, okA := g.sw[l.A]
		b, okB := g.sw[l.B]
		if !okA || !okB || a == b {
			problem("link %s is not between two switches", l)
			continue
		}
		plug(port{l.A, l.APort}, "link "+l.String())
		plug(port{l.B, l.BPort}, "link "+l.String())
		g.out[a] = append(g.out[a], edge{i, b, l.APort, l.BPort})
		g.out[b] = append(g.out[b], edge{i, a, l.BPort, l.APort})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	g.height = make([]int, len(g.Switches))
	for i := range g.height {
		g.height[i] = len(g.Switches) // no host in reach
	}
	var queue []int
	for _, s := range g.at {
		if g.height[s] != 0 {
			g.height[s] = 0
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, e := range g.out[s] {
			if g.height[e.to] > g.height[s]+1 {
				g.height[e.to] = g.height[s] + 1
				queue = append(queue, e.to)
			}
		}
	}
	return g, nil
}

// Node is a switch of a tree.
type Node struct {
	Switch string
	Parent string   // empty: this is the root
	Up     uint32   // port towards the parent
	Down   []uint32 // ports towards switches and hosts below, ascending
	Expect uint64   // bitmap of the ranks below
}

// tree is the one over hosts from a root, leaves first, and the links that it uses. usable
// says which switches may take part. Without one, why says what is out of reach.
func (g *graph) tree(hosts []int, root int, usable func(sw int) bool) (nodes []Node, links []int, why string) {
	via := make([]edge, len(g.Switches)) // how a switch is reached: the edge of its parent
	parent := make([]int, len(g.Switches))
	for i := range parent {
		parent[i] = -1
	}
	if !usable(root) {
		return nil, nil, g.Switches[root].Name + " cannot take part"
	}
	order, seen := []int{root}, map[int]bool{root: true}
	for i := 0; i < len(order); i++ {
		s := order[i]
		for _, e := range g.out[s] {
			if g.Links[e.link].Down || seen[e.to] || g.height[e.to] > g.height[s] || !usable(e.to) {
				continue
			}
			seen[e.to] = true
			parent[e.to], via[e.to] = s, e
			order = append(order, e.to)
		}
	}
	expect := make([]uint64, len(g.Switches))
	down := make([][]uint32, len(g.Switches))
	var missing []string
	for rank, h := range hosts {
		s := g.at[h]
		if !seen[s] {
			missing = append(missing, g.Hosts[h].Name)
			continue
		}
		down[s] = append(down[s], g.Hosts[h].Port)
		expect[s] |= 1 << rank
	}
	if missing != nil {
		return nil, nil, fmt.Sprintf("from %s there is no way down to %s", g.Switches[root].Name, strings.Join(missing, ", "))
	}
	// A breadth first order, from its end: children before their parents.
	for _, s := range slices.Backward(order) {
		if expect[s] == 0 {
			continue
		}
		n := Node{Switch: g.Switches[s].Name, Down: down[s], Expect: expect[s]}
		slices.Sort(n.Down)
		if p := parent[s]; p >= 0 {
			n.Parent, n.Up = g.Switches[p].Name, via[s].by
			down[p] = append(down[p], via[s].from)
			expect[p] |= expect[s]
			links = append(links, via[s].link)
		}
		nodes = append(nodes, n)
	}
	return nodes, links, ""
}

// obstacles are what keeps trees from being built, for messages: the first few links that
// are down and switches without SHARP.
func (g *graph) obstacles() string {
	var all []string
	for _, l := range g.Links {
		if l.Down {
			all = append(all, l.String()+" is down")
		}
	}
	for _, s := range g.Switches {
		if s.Trees == 0 || s.OSTs == 0 {
			all = append(all, s.Name+" has no SHARP")
		}
	}
	if len(all) > 4 {
		all = append(all[:4], fmt.Sprintf("and %d more", len(all)-4))
	}
	return strings.Join(all, ", ")
}

// findLink finds a link by its ends, "leaf1" or "leaf1:3", in either order.
func (g *graph) findLink(a, b string) (int, error) {
	is := func(name, end string, port uint32) bool {
		return name == end || name == fmt.Sprintf("%s:%d", end, port)
	}
	var found []int
	for i, l := range g.Links {
		if is(a, l.A, l.APort) && is(b, l.B, l.BPort) || is(a, l.B, l.BPort) && is(b, l.A, l.APort) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%w: no link between %s and %s", ErrUnknown, a, b)
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("%w: %d links between %s and %s: name the port, as in leaf1:3", ErrInvalid, len(found), a, b)
}

// regions are the parts of a switch's OSTs that are taken.
type regions []region

type region struct{ base, size int }

// take finds the first gap of at most so many OSTs: all of them, or as many as there are
// in the largest gap.
func (r *regions) take(total, want int) region {
	var best region
	at := 0
	fit := func(end int) bool {
		if size := min(end-at, want); size > best.size {
			best = region{at, size}
		}
		return best.size == want
	}
	for _, used := range *r {
		if fit(used.base) {
			break
		}
		at = max(at, used.base+used.size)
	}
	fit(total)
	if best.size == 0 {
		return best
	}
	*r = append(*r, best)
	slices.SortFunc(*r, func(a, b region) int { return cmp.Compare(a.base, b.base) })
	return best
}

// room is the largest gap.
func (r regions) room(total int) int {
	c := slices.Clone(r)
	return c.take(total, total).size
}

func (r *regions) free(x region) {
	*r = slices.DeleteFunc(*r, func(y region) bool { return x == y })
}

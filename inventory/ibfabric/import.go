package ibfabric

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory"
)

// host is the adapters that are of one machine.
type host struct {
	name  string
	guid  GUID // of one of its adapters
	ports []hostPort
}

type hostPort struct {
	adapter *Node
	label   string // "HCA-1", "mlx5_0", or empty
	port    *Port
}

// An adapter's description is its host's name and which adapter of that it is:
// "host4 HCA-1" of older software, "host4 mlx5_0" of rdma-ndd. What the factory wrote
// names no host.
var (
	labelPattern   = regexp.MustCompile(`^(HCA-\d+|[a-z]+\d*_\d+)$`)
	factoryPattern = regexp.MustCompile(`(?i)mellanox|nvidia|infiniband|infinihost|connectx|^MT\d+`)
	managedPattern = regexp.MustCompile(`^MF0;([^:;]+):`) // "MF0;sw95:MQM8700/U1" of a switch with management
	badInName      = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// split takes an adapter's description apart; no name: it names no host.
func split(desc string) (name, label string) {
	if factoryPattern.MatchString(desc) {
		return "", ""
	}
	fields := strings.Fields(desc)
	if n := len(fields); n > 1 && labelPattern.MatchString(fields[n-1]) {
		label, fields = fields[n-1], fields[:n-1]
	}
	return clean(strings.Join(fields, " ")), label
}

// clean makes a name of a text, or nothing.
func clean(s string) string {
	return strings.TrimLeft(strings.TrimRight(badInName.ReplaceAllString(s, "-"), "-"), "-._")
}

// hosts groups the adapters that are no aggregation nodes by machine, in the order of
// names, and says in notes what had to be guessed.
func (f *Fabric) hosts() (hosts []host, notes []string) {
	byName := map[string][]*Node{}
	label := map[GUID]string{}
	var names []string
	for _, n := range f.Sorted(Adapter) {
		if n.IsAN() {
			continue
		}
		name, l := split(n.Desc)
		if name == "" {
			name = fmt.Sprintf("host-%016x", uint64(cmp.Or(n.System, n.GUID)))
		}
		label[n.GUID] = l
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], n)
	}
	slices.SortFunc(names, inventory.Natural)
	for _, name := range names {
		nodes := byName[name]
		seen, clash := map[string]bool{}, false
		for _, n := range nodes {
			clash = clash || seen[label[n.GUID]]
			seen[label[n.GUID]] = true
		}
		if !clash {
			hosts = append(hosts, newHost(name, nodes, label))
			continue
		}
		// Several machines with one name, unless it is one card.
		var systems []GUID
		bySystem := map[GUID][]*Node{}
		for _, n := range nodes {
			s := cmp.Or(n.System, n.GUID)
			if bySystem[s] == nil {
				systems = append(systems, s)
			}
			bySystem[s] = append(bySystem[s], n)
		}
		if len(systems) == 1 {
			hosts = append(hosts, newHost(name, nodes, label))
			continue
		}
		notes = append(notes, fmt.Sprintf("%d adapters are all called %q: each is taken for a host of its own", len(nodes), nodes[0].Desc))
		for _, s := range systems {
			hosts = append(hosts, newHost(fmt.Sprintf("%s-%016x", name, uint64(s)), bySystem[s], label))
		}
	}
	return hosts, notes
}

func newHost(name string, nodes []*Node, label map[GUID]string) host {
	h := host{name: name, guid: nodes[0].GUID}
	for _, n := range nodes {
		for _, i := range n.numbers() {
			h.ports = append(h.ports, hostPort{n, label[n.GUID], n.Ports[i]})
		}
	}
	slices.SortStableFunc(h.ports, func(a, b hostPort) int {
		return cmp.Or(inventory.Natural(a.label, b.label), cmp.Compare(a.adapter.GUID, b.adapter.GUID), cmp.Compare(a.port.Number, b.port.Number))
	})
	if len(h.ports) > 0 {
		h.guid = h.ports[0].adapter.GUID
	}
	return h
}

// rdma is what the operating system calls a port, as far as its description tells;
// index is the adapter's place among those of the host.
func (p hostPort) rdma(index int) string {
	device := fmt.Sprintf("mlx5_%d", index)
	switch {
	case strings.HasPrefix(p.label, "HCA-"):
		if n, err := strconv.Atoi(p.label[len("HCA-"):]); err == nil && n > 0 {
			device = fmt.Sprintf("mlx5_%d", n-1)
		}
	case p.label != "":
		device = p.label
	}
	return fmt.Sprintf("%s:%d", device, p.port.Number)
}

// generation is a line of switches that can aggregate, and what it can.
type generation struct {
	name string // with the name of its links in brackets
	// trees are how many there can be in a subnet, of which streaming take long vectors, where
	// that is published; 0: it is not.
	trees, streaming int
	resource         string // of which one streaming job at a time has all: a "switch" or a "port"; empty: not published
}

// generations by PCI device id.
//
// Sources: NVIDIA SHARP Rev 3.13.0, General Information, "Capabilities and Limitations"
// (docs.nvidia.com/networking/display/sharpv3130/general-information): Quantum has 126 trees, 63 of
// them streaming, one active at a switch; Quantum-2 has 1023, 511 of them streaming, one active at a
// port. It lists firmware of Quantum-3 (sold as Quantum-X800) and no numbers. Switch-IB 2 has no
// streaming trees (its Rev 2.1.4: Streaming Aggregation came with Quantum), and no source was found
// for how many others. Device ids: pci-ids.ucw.cz, vendor 15b3.
var generations = map[int]generation{
	0xcf08: {name: "Switch-IB 2 (EDR)"},
	0xd2f0: {name: "Quantum (HDR)", trees: 126, streaming: 63, resource: "switch"},
	0xd2f2: {name: "Quantum-2 (NDR)", trees: 1023, streaming: 511, resource: "port"},
	0xd2f4: {name: "Quantum-3 (XDR)"},
}

// generation is that of a switch: by its device id, or by its fastest links where no tool
// has told that. Of a device that is none of these nothing is known, whatever its links.
func (n *Node) generation() (g generation, known bool) {
	g, ok := generations[n.Device]
	if n.Device != 0 || ok {
		return g, ok
	}
	fastest := -1
	for _, p := range n.Ports {
		fastest = max(fastest, laneIndex(p.Speed.Lane))
	}
	for _, g := range generations {
		if fastest >= 0 && strings.Contains(g.name, "("+lanes[fastest].name+")") {
			g.name += ", by its links"
			return g, true
		}
	}
	return generation{}, false
}

// sharp is what a switch of the generation can hold, as an inventory has it, and what to say of
// it. Zero: nobody has published it, and another generation's numbers would be wrong.
func (g generation) sharp() (s inventory.SHARP, note string) {
	if g.trees == 0 {
		return s, g.name + ". How many trees it has is not published: write sharp = {trees = ..., jobs = 1} with what `ibdiagnet --sharp` shows."
	}
	return inventory.SHARP{Trees: g.trees, Jobs: 1, Resource: g.resource},
		fmt.Sprintf("%s. SHARP is assumed: %d trees, %d of them streaming, and one such job at a time on a %s.", g.name, g.trees, g.streaming, g.resource)
}

// Options say what a fabric does not tell.
type Options struct {
	Name string
	SSH  func(host string) string // address of a host; nil: none is written
	GPUs int                      // of every host
}

// Inventory is the fabric as an inventory and notes on what was assumed. Aggregation
// nodes belong to their switches; what is not cabled to a switch is left out. Check
// the fabric first: an inventory of half of it looks like one of a smaller lab.
func (f *Fabric) Inventory(opt Options) (*inventory.Inventory, inventory.Notes) {
	inv := &inventory.Inventory{Name: opt.Name}
	notes := inventory.Notes{Of: map[string]string{}}
	hosts, guessed := f.hosts()
	notes.Head = append(notes.Head, guessed...)

	taken := map[string]bool{}
	unique := func(name string, g GUID) string {
		if taken[name] {
			name = fmt.Sprintf("%s-%016x", name, uint64(g))
		}
		taken[name] = true
		return name
	}
	tiers := f.Tiers()
	name := map[GUID]string{}
	switches := f.Sorted(Switch)
	for _, n := range switches {
		desc := n.Desc
		if m := managedPattern.FindStringSubmatch(desc); m != nil {
			desc = m[1]
		} else if factoryPattern.MatchString(desc) {
			desc = ""
		}
		name[n.GUID] = unique(cmp.Or(clean(desc), fmt.Sprintf("switch-%016x", uint64(n.GUID))), n.GUID)
	}
	slices.SortFunc(switches, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(tierOrder(tiers, a), tierOrder(tiers, b)), inventory.Natural(name[a.GUID], name[b.GUID]))
	})
	for _, n := range switches {
		s := inventory.Switch{Name: name[n.GUID], Kind: inventory.Quantum, GUID: n.GUID, DeviceID: uint64(len(inv.Switches) + 1)}
		gen, known := n.generation()
		switch an := f.AN(n.GUID); {
		case an == nil && known:
			notes.Of[s.Name] = gen.name + " without an aggregation node: it cannot aggregate."
		case an == nil:
		case !known:
			s.AN = an.GUID
			notes.Of[s.Name] = fmt.Sprintf("Device %#x with an aggregation node, of a generation that is not known: write what SHARP it has.", n.Device)
		default:
			s.AN = an.GUID
			s.SHARP, notes.Of[s.Name] = gen.sharp()
		}
		inv.Switches = append(inv.Switches, s)
	}
	assumed, ports := false, false
	for _, h := range hosts {
		out := inventory.Host{Name: unique(h.name, h.guid), GPUs: opt.GPUs}
		index, last := -1, GUID(0)
		for _, p := range h.ports {
			if p.adapter.GUID != last {
				index, last = index+1, p.adapter.GUID
			}
			sw := f.Nodes[p.port.Peer.Node]
			if sw == nil || sw.Kind != Switch {
				continue
			}
			assumed = assumed || !strings.Contains(p.label, "_")
			guid := p.adapter.GUID
			if p.adapter.byPort {
				guid, ports = 0, true
			}
			out.NICs = append(out.NICs, inventory.NIC{
				RDMA: p.rdma(index), GUID: guid, Switch: name[sw.GUID], Port: uint32(p.port.Peer.Port),
				Rate: p.port.speedHere(f).Rate(),
			})
		}
		if len(out.NICs) == 0 {
			notes.Head = append(notes.Head, out.Name+" is not cabled to a switch and left out")
			continue
		}
		if opt.SSH != nil {
			out.SSH.Address = opt.SSH(out.Name)
		}
		inv.Hosts = append(inv.Hosts, out)
	}
	slices.SortStableFunc(inv.Hosts, func(a, b inventory.Host) int { return inventory.Natural(a.Name, b.Name) })
	if assumed {
		notes.Head = append(notes.Head, "rdma is assumed from the order of a host's adapters; `ibstat` there tells which GUID is which device")
	}
	if ports {
		notes.Head = append(notes.Head, "adapters have no guid here: iblinkinfo and ibnetdiscover -p tell those of ports; add what ibnetdiscover prints")
	}
	if opt.GPUs == 0 {
		notes.Head = append(notes.Head, "a fabric does not tell what GPUs hosts have: write gpus = 8 under [defaults], or whatever it is")
	}
	for _, l := range f.Links() {
		a, b := f.Nodes[l.A.Node], f.Nodes[l.B.Node]
		if a == nil || b == nil || a.Kind != Switch || b.Kind != Switch {
			continue
		}
		if tierOrder(tiers, a) > tierOrder(tiers, b) || tierOrder(tiers, a) == tierOrder(tiers, b) && inventory.Natural(name[a.GUID], name[b.GUID]) > 0 {
			l.A, l.B = l.B, l.A
		}
		inv.Links = append(inv.Links, inventory.Link{
			A:    inventory.Port{Switch: name[l.A.Node], Port: uint32(l.A.Port)},
			B:    inventory.Port{Switch: name[l.B.Node], Port: uint32(l.B.Port)},
			Rate: l.Speed.Rate(),
		})
	}
	slices.SortFunc(inv.Links, func(a, b inventory.Link) int {
		return cmp.Or(inventory.Natural(a.A.Switch, b.A.Switch), cmp.Compare(a.A.Port, b.A.Port))
	})
	for _, n := range f.Sorted(Router) {
		notes.Head = append(notes.Head, fmt.Sprintf("router %v is left out", n))
	}
	if n, err := f.FatTree(); err != nil {
		notes.Head = append(notes.Head, err.Error())
	} else if n > 1 {
		notes.Head = append(notes.Head, fmt.Sprintf("a fat-tree of %d tiers", n))
	}
	notes.Head = append(notes.Head, f.Remarks()...)
	return inv, notes
}

// Part is the InfiniBand part of an inventory, which may have Ethernet beside it: what a
// fabric can be compared with.
func Part(inv *inventory.Inventory) *inventory.Inventory {
	part := inv.Clone()
	ib := map[string]bool{}
	for _, sw := range inv.Switches {
		ib[sw.Name] = sw.Kind == inventory.Quantum
	}
	part.Switches = slices.DeleteFunc(part.Switches, func(s inventory.Switch) bool { return !ib[s.Name] })
	part.Links = slices.DeleteFunc(part.Links, func(l inventory.Link) bool { return !ib[l.A.Switch] || !ib[l.B.Switch] })
	for i := range part.Hosts {
		h := &part.Hosts[i]
		h.NICs = slices.DeleteFunc(h.NICs, func(n inventory.NIC) bool { return !ib[n.Switch] })
	}
	part.Hosts = slices.DeleteFunc(part.Hosts, func(h inventory.Host) bool { return len(h.NICs) == 0 })
	return part
}

// speedHere is the speed of a port, as it or the other end tells.
func (p *Port) speedHere(f *Fabric) Speed {
	if q := f.Port(p.Peer); !p.Speed.Known() && q != nil {
		return q.Speed
	}
	return p.Speed
}

// Remarks are what is not as it should be, of a fabric that was seen whole: cables that
// run slower than both ends can, ports that no subnet manager has made active, and
// switches without an aggregation node where others have one.
func (f *Fabric) Remarks() (out []string) {
	idle := 0
	state := ""
	for _, l := range f.Links() {
		p := f.Port(l.A)
		if laneIndex(p.Could.Lane) > laneIndex(l.Speed.Lane) {
			out = append(out, fmt.Sprintf("%s to %s runs at %v; both ends could %s", f.portName(l.A), f.portName(l.B), l.Speed, p.Could.Lane))
		}
		if w := l.Speed.Width; w > 0 && w < 4 && p.Could.Width > w { // no cable has 12 lanes, whatever both ends could
			out = append(out, fmt.Sprintf("%s to %s runs at %v; both ends could %dx", f.portName(l.A), f.portName(l.B), l.Speed, p.Could.Width))
		}
		if p.State != "" && p.State != "Active" {
			idle++
			state = p.State
		}
	}
	if idle > 0 {
		out = append(out, fmt.Sprintf("%d of %d cables in state %s: no subnet manager has made them active", idle, len(f.Links()), state))
	}
	if len(f.ans()) > 0 {
		for _, sw := range f.Sorted(Switch) {
			if f.AN(sw.GUID) == nil {
				out = append(out, fmt.Sprintf("%v has no aggregation node, as others have", sw))
			}
		}
	}
	return out
}

// tierOrder is a switch's tier, with those that reach no host last.
func tierOrder(tiers map[GUID]int, n *Node) int { return cmp.Or(tiers[n.GUID], 1<<20) }

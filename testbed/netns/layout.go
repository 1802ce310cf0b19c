package netns

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
	"github.com/inabench/inabench/testbed/softswitch"
)

const (
	mgmtDevice    = "mgmt0"   // of every host and switch
	mgmtBridge    = "inamgmt" // in the controller's namespace
	mgmtGroup     = 0x1abe    // interface group of what belongs to the management network
	sshPort       = 22
	p4rtPort      = 9559 // IANA: p4runtime
	defaultBuffer = inventory.DefaultBuffer
	minBuffer     = 32 << 10
	minECN        = 8 << 10
	maxIfname     = 15
	firstMgmt     = 2 // host part; 1 is the controller
	maxMgmtNodes  = 1000
)

// gateway stands for "the switch" in every host's routes. It is reached by a
// static neighbour entry and never asked for.
var gateway = netip.AddrFrom4([4]byte{169, 254, 0, 1})

// layout is everything about an emulated testbed that can be decided without
// touching the machine.
type layout struct {
	inv    *inventory.Inventory // addresses, rates and delays as they are here
	mgmt   netip.Prefix         // the controller's address and the management network
	nodes  []nodeConfig         // hosts, then switches, in the inventory's order
	cables []cable
	ports  map[string]linkEnd // directed link -> where it is emulated
	beat   beat
}

// cable joins devices of two nodes, given as indices into layout.nodes.
type cable struct {
	a, b       int
	aDev, bDev string
	aMAC, bMAC net.HardwareAddr
}

// linkEnd is one direction of a cable as its switch process knows it.
type linkEnd struct {
	node    int
	port    uint32
	ingress bool
}

// dir is how softswitch.Command has it.
func (e linkEnd) dir() string {
	if e.ingress {
		return "ingress"
	}
	return "egress"
}

// newLayout checks what it needs of the inventory; it does not repeat Load's checks.
func newLayout(inv *inventory.Inventory, opts Options) (*layout, error) {
	l := &layout{inv: inv.Clone(), ports: map[string]linkEnd{}}
	l.scale(opts)
	if err := l.addresses(); err != nil {
		return nil, err
	}
	if n := len(inv.Hosts) + len(inv.Switches); n > maxMgmtNodes {
		return nil, fmt.Errorf("%d hosts and switches: %w: an emulation has at most %d", n, errors.ErrUnsupported, maxMgmtNodes)
	}

	index := map[string]int{}
	addNode := func(n nodeConfig) error {
		if !plainName(n.Name) {
			return fmt.Errorf("%s %q cannot be emulated: its name must also do for a directory", n.Kind, n.Name)
		}
		if _, dup := index[n.Name]; dup {
			return fmt.Errorf("node %s is there twice", n.Name)
		}
		index[n.Name] = len(l.nodes)
		n.Offload, n.Paced = opts.Offload, opts.Paced
		n.Mgmt = netip.PrefixFrom(add(l.mgmt.Masked().Addr(), firstMgmt+len(l.nodes)), l.mgmt.Bits())
		l.nodes = append(l.nodes, n)
		return nil
	}
	for i := range l.inv.Hosts {
		h := &l.inv.Hosts[i]
		if err := addNode(nodeConfig{Kind: "host", Name: h.Name}); err != nil {
			return nil, err
		}
		// A way through hosts of the inventory is a way through emulated hosts. Nothing of
		// what this machine's user has set up for other hosts concerns them.
		jumps := h.SSH.Jumps()
		h.Launcher = "" // whoever reaches the lab's
		h.SSH = inventory.SSH{
			Address: netip.AddrPortFrom(l.nodes[index[h.Name]].Mgmt.Addr(), sshPort).String(),
			User:    opts.user(), Config: "none", Jump: "none",
		}
		if len(jumps) > 0 && !slices.ContainsFunc(jumps, func(j string) bool { _, ok := l.inv.Host(j); return !ok }) {
			h.SSH.Jump = strings.Join(jumps, ",")
		}
	}
	for i := range l.inv.Switches {
		s := &l.inv.Switches[i]
		if err := addNode(nodeConfig{Kind: "switch", Name: s.Name}); err != nil {
			return nil, err
		}
		n := &l.nodes[index[s.Name]]
		s.DeviceID = cmp.Or(s.DeviceID, uint64(i+1))
		program, err := programOf(s)
		if err != nil {
			return nil, err
		}
		s.Kind, s.Server, n.BMv2 = inventory.Soft, inventory.Server{}, opts.bmv2
		if opts.Switch == BMv2 {
			s.Kind = inventory.BMv2
		}
		s.Control = netip.AddrPortFrom(n.Mgmt.Addr(), p4rtPort).String()
		n.Switch = &softswitch.Config{
			Name: s.Name, DeviceID: s.DeviceID, Listen: s.Control, Aggregators: s.Aggregators,
			Seed:      opts.Seed + uint64(i+1)*0x9e3779b97f4a7c15, // distinct streams from one seed
			Exclusive: exclusive(s), Program: program, Pcap: opts.PcapDir, Offload: opts.Offload,
		}
	}

	if err := l.cableHosts(index, opts); err != nil {
		return nil, err
	}
	if err := l.cableSwitches(index, opts); err != nil {
		return nil, err
	}
	for _, n := range l.nodes {
		if n.Switch != nil {
			slices.SortFunc(n.Switch.Ports, func(a, b softswitch.PortConfig) int { return int(a.Number) - int(b.Number) })
		}
	}
	// A cable between switches is emulated by the end that sends; a host's, in both
	// directions, by the switch.
	for _, d := range l.inv.Topology().Links {
		if from := index[d.From]; l.nodes[from].Switch != nil {
			l.ports[d.Name] = linkEnd{node: from, port: d.FromPort}
		} else {
			l.ports[d.Name] = linkEnd{node: index[d.To], port: d.ToPort, ingress: true}
		}
	}
	l.beat = beat{opts.Beat, "an operation"}
	if opts.Beat == 0 {
		frame := float64(cmp.Or(opts.Frame, 1024))
		l.beat = beat{testbed.Closest(l.inv, func(n *inventory.NIC) time.Duration {
			d := n.Delay
			if n.Rate > 0 {
				d += time.Duration(8 * frame / float64(n.Rate) * float64(time.Second))
			}
			return d
		}), "the RTT"}
	}
	for i := range l.nodes {
		if s := l.nodes[i].Switch; s != nil {
			s.Beat, s.Rest = l.beat.Duration, testbed.Rest(l.beat.Duration, opts.Offload)
		}
	}
	return l, nil
}

func (l *layout) cableHosts(index map[string]int, opts Options) error {
	for hi := range l.inv.Hosts {
		h := &l.inv.Hosts[hi]
		host := &l.nodes[index[h.Name]]
		for ni := range h.NICs {
			nic := &h.NICs[ni]
			if !plainName(nic.Device) || nic.Device == mgmtDevice || nic.Device == "lo" || len(nic.Device) > maxIfname {
				return blame.Host(h.Name, fmt.Errorf("device %q cannot be emulated: choose a plain name of at most %d letters, not lo or %s", nic.Device, maxIfname, mgmtDevice))
			}
			si, sw, err := l.findSwitch(index, nic.Switch)
			if err != nil {
				return blame.Host(h.Name, fmt.Errorf("device %s: %w", nic.Device, err))
			}
			port, err := l.addPort(si, nic.Port, link(sw.Name, h.Name, nic.Rate, nic.Delay, sw, opts))
			if err != nil {
				return blame.Host(h.Name, fmt.Errorf("device %s: %w", nic.Device, err))
			}
			port.Ingress = link(h.Name, sw.Name, nic.Rate, nic.Delay, &inventory.Switch{Buffer: hostQueue}, opts)
			c := cable{
				a: index[h.Name], aDev: nic.Device, aMAC: hostMAC(hi, ni),
				b: si, bDev: port.Device, bMAC: portMAC(si-len(l.inv.Hosts), nic.Port),
			}
			l.cables = append(l.cables, c)
			own := nicConfig{Device: nic.Device, Address: nic.Address, Gateway: c.bMAC}
			if opts.Serial {
				own.Rate = float64(nic.Rate)
			}
			host.NICs = append(host.NICs, own)
		}
	}
	return nil
}

func (l *layout) cableSwitches(index map[string]int, opts Options) error {
	for _, cb := range l.inv.Links {
		name := fmt.Sprintf("link %s/%d - %s/%d", cb.A.Switch, cb.A.Port, cb.B.Switch, cb.B.Port)
		ai, a, err := l.findSwitch(index, cb.A.Switch)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		bi, b, err := l.findSwitch(index, cb.B.Switch)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if ai == bi {
			return fmt.Errorf("%s: both ends are in one switch", name)
		}
		if _, err := l.addPort(ai, cb.A.Port, link(a.Name, b.Name, cb.Rate, cb.Delay, a, opts)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := l.addPort(bi, cb.B.Port, link(b.Name, a.Name, cb.Rate, cb.Delay, b, opts)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.cables = append(l.cables, cable{
			a: ai, aDev: portDevice(cb.A.Port), aMAC: portMAC(ai-len(l.inv.Hosts), cb.A.Port),
			b: bi, bDev: portDevice(cb.B.Port), bMAC: portMAC(bi-len(l.inv.Hosts), cb.B.Port),
		})
	}
	return nil
}

func (l *layout) findSwitch(index map[string]int, name string) (int, *inventory.Switch, error) {
	i, ok := index[name]
	if !ok || l.nodes[i].Switch == nil {
		return 0, nil, fmt.Errorf("no switch %q", name)
	}
	return i, &l.inv.Switches[i-len(l.inv.Hosts)], nil
}

// addPort gives a switch a port; the pointer is good until the next one.
func (l *layout) addPort(node int, number uint32, egress softswitch.LinkConfig) (*softswitch.PortConfig, error) {
	s := l.nodes[node].Switch
	for _, p := range s.Ports {
		if p.Number == number {
			return nil, fmt.Errorf("port %s/%d is cabled twice", s.Name, number)
		}
	}
	s.Ports = append(s.Ports, softswitch.PortConfig{Number: number, Device: portDevice(number), Egress: egress})
	return &s.Ports[len(s.Ports)-1], nil
}

// plainName reports whether a name can be part of a path.
func plainName(s string) bool {
	return s != "" && s[0] != '.' && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
}

// hostQueue is what a host holds back for its own NIC. A real one pushes back on its
// senders instead of dropping; here windows bound what can pile up, so it is more
// than they add up to.
const hostQueue = 64 << 20

func portDevice(number uint32) string { return fmt.Sprintf("p%d", number) }

// link is one direction of a cable that a switch's queue feeds.
func link(from, to string, rate inventory.BitRate, delay time.Duration, sw *inventory.Switch, opts Options) softswitch.LinkConfig {
	return softswitch.LinkConfig{
		Rate: float64(rate) * (1 - opts.Slow[from+"->"+to]), Delay: delay, Buffer: int(sw.Buffer), ECN: int(sw.ECN), Discipline: opts.Queue,
	}
}

// scale turns the lab's figures into the emulation's.
func (l *layout) scale(opts Options) {
	k := opts.Scale.Factor
	slow, shrunk := opts.Scale.Mode == results.SlowMotion, opts.Scale.Mode == results.Shrunk
	rate := func(r *inventory.BitRate) {
		if slow || shrunk {
			*r /= inventory.BitRate(k)
		}
	}
	delay := func(d *time.Duration) {
		if slow {
			*d = time.Duration(float64(*d) * k)
		}
	}
	bytes := func(b *inventory.Bytes, least inventory.Bytes) {
		if shrunk && *b > 0 {
			*b = max(least, inventory.Bytes(float64(*b)/k)) // some frames must fit
		}
	}
	for i := range l.inv.Hosts {
		for j := range l.inv.Hosts[i].NICs {
			nic := &l.inv.Hosts[i].NICs[j]
			rate(&nic.Rate)
			delay(&nic.Delay)
			nic.Device = cmp.Or(nic.Device, fmt.Sprintf("eth%d", j))
		}
	}
	for i := range l.inv.Links {
		rate(&l.inv.Links[i].Rate)
		delay(&l.inv.Links[i].Delay)
	}
	for i := range l.inv.Switches {
		s := &l.inv.Switches[i]
		s.Buffer = cmp.Or(s.Buffer, defaultBuffer)
		bytes(&s.Buffer, minBuffer)
		bytes(&s.ECN, minECN)
		if s.Kind == inventory.Quantum && s.SHARP.Trees > 0 {
			s.Aggregators = quantumAggregators
		}
	}
}

// Trees that a switch has for whom SHARP was not spoken of: sharp_am's default.
const defaultTrees = 126

// quantumAggregators is the memory of an emulated Quantum switch; what a real one has is
// not published.
const quantumAggregators = 16384

// exclusive is what s offers jobs with exclusive trees. One with aggregators alone stands
// for a Quantum switch of the first generation, whose trees exclude each other.
func exclusive(s *inventory.Switch) *softswitch.Exclusive {
	x := &softswitch.Exclusive{Resource: s.SHARP.Resource, Capacity: max(s.SHARP.Jobs, 1), Trees: s.SHARP.Trees}
	if x.Trees == 0 && s.Aggregators > 0 {
		x.Trees = defaultTrees
	}
	if x.Trees == 0 {
		return nil
	}
	return x
}

// programOf is what the program of s does otherwise than the embedded switch, as its p4info says, so that an emulation does as
// the switch would. Without a p4info it is nothing.
func programOf(s *inventory.Switch) (ina.Program, error) {
	l, err := p4.ReadLimits(s.Program.P4Info)
	if l == nil || err != nil {
		return ina.Program{}, blame.Switch(s.Name, err)
	}
	return l.Program, nil
}

// addresses chooses the management network and the data addresses that the
// inventory leaves open.
func (l *layout) addresses() error {
	var used []netip.Prefix
	taken := map[netip.Addr]string{}
	for _, h := range l.inv.Hosts {
		for _, nic := range h.NICs {
			if !nic.Address.IsValid() {
				continue
			}
			if !nic.Address.Addr().Is4() {
				return blame.Host(h.Name, fmt.Errorf("device %s: address %s: %w: the emulation's data network is IPv4", nic.Device, nic.Address, errors.ErrUnsupported))
			}
			if who, dup := taken[nic.Address.Addr()]; dup {
				return blame.Host(h.Name, fmt.Errorf("device %s: address %s is %s's", nic.Device, nic.Address.Addr(), who))
			}
			taken[nic.Address.Addr()] = h.Name
			used = append(used, nic.Address)
		}
	}
	data, err := freeNetwork(used, 0, 1)
	if err != nil {
		return err
	}
	l.mgmt, err = freeNetwork(append(used, data), 254, -1)
	if err != nil {
		return err
	}
	l.mgmt = netip.PrefixFrom(add(l.mgmt.Addr(), 1), l.mgmt.Bits())
	for i := range l.inv.Hosts {
		for j := range l.inv.Hosts[i].NICs {
			nic := &l.inv.Hosts[i].NICs[j]
			if !nic.Address.IsValid() {
				// NIC j of host i, so that an address tells where it is.
				if j >= 16 || i >= 4094 {
					return blame.Host(l.inv.Hosts[i].Name, fmt.Errorf("device %s: no address left", nic.Device))
				}
				nic.Address = netip.PrefixFrom(add(data.Addr(), j<<12+i+1), data.Bits())
			}
		}
	}
	return nil
}

// freeNetwork is the first of the networks 10.n.0.0/16, from a first n on in steps of 1 or -1, that overlaps none of used.
func freeNetwork(used []netip.Prefix, first, step int) (netip.Prefix, error) {
	for n := first; n >= 0 && n <= 255; n += step {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n)}), 16)
		if !slices.ContainsFunc(used, p.Overlaps) {
			return p, nil
		}
	}
	return netip.Prefix{}, errors.New("the inventory's addresses leave no network for the emulation: narrow their prefixes")
}

// add is the n-th address after a.
func add(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// MAC addresses are locally administered and say what they belong to.
func hostMAC(host, nic int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x1a, 0, byte(host >> 8), byte(host), byte(nic)}
}

func portMAC(sw int, port uint32) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x1b, byte(sw >> 8), byte(sw), byte(port >> 8), byte(port)}
}

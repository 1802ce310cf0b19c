package ibsimtest

import (
	"fmt"
	"strings"
)

// FatTree is a fabric of two tiers: every leaf is cabled to every spine.
type FatTree struct {
	Leaves, Spines int
	Hosts          int    // per leaf
	Up             int    // cables between a leaf and a spine; 0: 1
	Ports          int    // external ports of a switch; 0: 40, as Quantum has
	Link           string // of every cable; "": "4xHDR". ibsim knows none faster
	Rails          int    // adapters of a host, each at the next leaf; 0: 1
	NoAN           bool   // switches without aggregation nodes
}

// Small is a fat-tree of five switches and four hosts, all with aggregation nodes.
var Small = FatTree{Leaves: 2, Spines: 3, Hosts: 2}

// Big is one of 1,024 hosts: 32 leaves with 32 hosts each, and 16 spines that each has
// two cables to, of switches with 64 ports.
var Big = FatTree{Leaves: 32, Spines: 16, Hosts: 32, Up: 2, Ports: 64}

// All GUIDs are made up: the first digits are those of adapters, leaves and spines.
const (
	hostGUID  = 0x0c42a10000000000
	leafGUID  = 0x08c0eb0000000000
	spineGUID = 0x08c0eb0000800000
	anOffset  = 8
)

// HostGUID is the node GUID of an adapter; hosts and rails count from 0.
func (f FatTree) HostGUID(host, rail int) uint64 {
	return hostGUID + uint64(host)*0x100 + uint64(rail)*0x10
}

// LeafGUID is the node GUID of a leaf, from 0.
func (f FatTree) LeafGUID(i int) uint64 { return leafGUID + uint64(i)*0x100 }

// SpineGUID is that of a spine.
func (f FatTree) SpineGUID(i int) uint64 { return spineGUID + uint64(i)*0x100 }

// First is where tools run: the name that ibsim knows the first host's adapter by.
func (f FatTree) First() string { return fmt.Sprintf("H-%016x", f.HostGUID(0, 0)) }

// Uplink is the port of a leaf where its k-th cable to a spine is, and that of the
// spine, both from 1; leaf, spine and k count from 0.
func (f FatTree) Uplink(leaf, spine, k int) (atLeaf, atSpine int) {
	f = f.whole()
	return f.Hosts*f.Rails + spine*f.Up + k + 1, leaf*f.Up + k + 1
}

func (f FatTree) whole() FatTree {
	f.Up, f.Rails = max(f.Up, 1), max(f.Rails, 1)
	if f.Ports == 0 {
		f.Ports = 40
	}
	if f.Link == "" {
		f.Link = "4xHDR"
	}
	return f
}

// Net is the fabric as a net file of ibsim, which has the syntax of ibnetdiscover.
// Hosts are "host1 HCA-1" and so on, switches "leaf1", "spine1".
func (f FatTree) Net() string {
	f = f.whole()
	var b strings.Builder
	ports := f.Ports
	if !f.NoAN {
		ports++
	}
	begin := func(guid uint64, name string) {
		fmt.Fprintf(&b, "\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid=%#x\nswitchguid=%#x(%x)\nSwitch\t%d \"S-%016x\"\t\t# %q base port 0\n",
			guid, guid, guid, ports, guid, name)
	}
	to := func(port int, kind string, guid uint64, there int) {
		fmt.Fprintf(&b, "[%d]\t\"%s-%016x\"[%d]\t\t# \"\" lid 0 %s\n", port, kind, guid, there, f.Link)
	}
	adapter := func(device int, system, guid uint64, name string, sw uint64, port int) {
		fmt.Fprintf(&b, "\nvendid=0x2c9\ndevid=%#x\nsysimgguid=%#x\ncaguid=%#x\nCa\t1 \"H-%016x\"\t\t# %q\n", device, system, guid, guid, name)
		to(1, "S", sw, port)
	}
	fmt.Fprintf(&b, "# %+v\n", f)
	var switches []uint64
	for i := range f.Leaves {
		guid := f.LeafGUID(i)
		switches = append(switches, guid)
		begin(guid, fmt.Sprintf("leaf%d", i+1))
		for r := range f.Rails {
			from := ((i-r)%f.Leaves + f.Leaves) % f.Leaves
			for h := range f.Hosts {
				to(r*f.Hosts+h+1, "H", f.HostGUID(from*f.Hosts+h, r), 1)
			}
		}
		for s := range f.Spines {
			for k := range f.Up {
				here, there := f.Uplink(i, s, k)
				to(here, "S", f.SpineGUID(s), there)
			}
		}
		if !f.NoAN {
			to(ports, "H", guid+anOffset, 1)
		}
	}
	for s := range f.Spines {
		guid := f.SpineGUID(s)
		switches = append(switches, guid)
		begin(guid, fmt.Sprintf("spine%d", s+1))
		for i := range f.Leaves {
			for k := range f.Up {
				there, here := f.Uplink(i, s, k)
				to(here, "S", f.LeafGUID(i), there)
			}
		}
		if !f.NoAN {
			to(ports, "H", guid+anOffset, 1)
		}
	}
	for h := range f.Leaves * f.Hosts {
		for r := range f.Rails {
			leaf := (h/f.Hosts + r) % f.Leaves
			adapter(0x101b, f.HostGUID(h, r), f.HostGUID(h, r), fmt.Sprintf("host%d HCA-%d", h+1, r+1), f.LeafGUID(leaf), r*f.Hosts+h%f.Hosts+1)
		}
	}
	if !f.NoAN {
		for _, guid := range switches {
			adapter(0xcf09, guid, guid+anOffset, "Mellanox Technologies Aggregation Node", guid, ports)
		}
	}
	return b.String()
}

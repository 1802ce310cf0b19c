// Package discover drafts an inventory of what hosts say of themselves and of what is
// at the other end of their cables: host names, network devices and their speed, RDMA
// devices, addresses, GPUs, and neighbours by LLDP (IEEE 802.1AB), as lldpd knows them.
//
// It asks over SSH and changes nothing. A switch that runs lldpd and can be logged in to,
// such as one with SONiC, is asked like a host; its neighbours are then the cables between
// switches, of which hosts know nothing.
package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/preflight"
)

// Machine is what one machine says.
type Machine struct {
	Address    string // by which it was reached
	Switch     bool   // it was asked as a switch
	Name       string // its own, without domain
	Devices    []Device
	RDMA       []RDMA
	GPUs       int
	GPUModel   string
	GPUFault   string                         // what nvidia-smi says that does not work; empty: it does, or is not there
	VLANs      []string                       // on these devices, with their addresses: "eth0.100 has 10.1.0.1/24"
	Neighbours map[string]preflight.Neighbour // by device; nil: it has no lldpd, or does not let us ask
}

// Device is a network device with hardware behind it.
type Device struct {
	Name    string
	Up      bool
	Rate    inventory.BitRate // 0: it does not say, as without a cable
	Address netip.Prefix      // the first of IPv4, or of global IPv6
	RDMA    string            // "mlx5_0:1"
	NUMA    int               // node; -1: none
	IB      bool              // InfiniBand, not Ethernet
}

// RDMA is a port of an RDMA device.
type RDMA struct {
	Port       string // "mlx5_0:1"
	GUID       inventory.GUID
	InfiniBand bool
	Active     bool
	Rate       inventory.BitRate
}

// script prints sections that begin with "@@ name". Nothing in it comes from outside.
const script = `LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; export PATH
exec 2>/dev/null
at() { echo; echo "@@ $*"; }
at name; uname -n
at lldp; lldpctl -f json
if g=$(nvidia-smi --query-gpu=name --format=csv,noheader); then at gpu; echo "$g"
elif command -v nvidia-smi >/dev/null; then at gpufault; echo "$g"; fi
at addr; ip -o addr show
at net
for d in /sys/class/net/*; do
  [ -e "$d/device" ] || case "${d##*/}" in *.*) continue ;; Ethernet*|swp*|eth*|en*) ;; *) continue ;; esac
  n=${d##*/}
  for f in type operstate speed device/numa_node; do echo "$n $f $(cat "$d/$f")"; done
  for r in "$d"/device/infiniband/*; do
    [ -e "$r" ] && echo "$n rdma ${r##*/} $(cat "$d/dev_port")"
  done
done
at rdma
for p in /sys/class/infiniband/*/ports/*; do
  [ -e "$p" ] || continue
  r=${p%/ports/*}
  echo "${r##*/}:${p##*/} guid $(cat "$r/node_guid")"
  for f in link_layer state rate; do echo "${r##*/}:${p##*/} $f $(cat "$p/$f")"; done
done
at end
`

// noGPU is what nvidia-smi says where it works and finds none.
const noGPU = "No devices"

// Timeout is how long one machine may take to answer.
const timeout = 20 * time.Second

// Ask asks one machine.
func Ask(ctx context.Context, client hosts.Host) (*Machine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	out, err := client.Run(ctx, []string{"sh", "-s"}, strings.NewReader(script))
	m, perr := Parse(string(out.Stdout))
	if perr != nil {
		return nil, blame.Host(client.String(), cmp.Or(err, perr))
	}
	return m, nil
}

// Parse reads what the script prints. What a machine lacks is left out; a script that
// did not come to its end is an error.
func Parse(text string) (*Machine, error) {
	parts := map[string][]string{}
	at := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(line, "@@ "); ok {
			at = name
			parts[at] = []string{}
			continue
		}
		if strings.TrimSpace(line) != "" {
			parts[at] = append(parts[at], line)
		}
	}
	if parts["end"] == nil {
		return nil, errors.New("its shell did not come to the end of the script")
	}
	m := &Machine{}
	if len(parts["name"]) > 0 {
		m.Name, _, _ = strings.Cut(strings.TrimSpace(parts["name"][0]), ".")
	}
	if text := strings.Join(parts["lldp"], "\n"); text != "" {
		// Who may not ask lldpd gets a warning in place of an answer.
		if n, err := preflight.ParseLLDP(text); err == nil {
			m.Neighbours = n
		}
	}
	for _, l := range parts["gpu"] {
		if strings.HasPrefix(l, noGPU) {
			continue
		}
		m.GPUs++
		m.GPUModel = strings.TrimPrefix(strings.TrimSpace(l), "NVIDIA ")
	}
	if said := parts["gpufault"]; said != nil {
		// GPUs that answer may come before what is wrong with another.
		said = slices.DeleteFunc(append(said, "it says nothing"), func(l string) bool { return strings.HasPrefix(l, "NVIDIA ") })
		if m.GPUFault = strings.TrimSpace(said[0]); strings.HasPrefix(m.GPUFault, noGPU) { // it works
			m.GPUFault = ""
		}
	}
	m.devices(parts["net"])
	m.rdma(parts["rdma"])
	m.addresses(parts["addr"])
	return m, nil
}

// devices reads lines of "eth0 speed 25000".
func (m *Machine) devices(lines []string) {
	index := map[string]int{}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) < 3 {
			continue // a file that cannot be read, such as the speed of a device that is down
		}
		i, ok := index[f[0]]
		if !ok {
			i = len(m.Devices)
			index[f[0]] = i
			m.Devices = append(m.Devices, Device{Name: f[0], NUMA: -1})
		}
		d := &m.Devices[i]
		switch n, err := strconv.Atoi(f[2]); f[1] {
		case "type": // ARPHRD_INFINIBAND of linux/if_arp.h
			d.IB = f[2] == "32"
		case "operstate":
			d.Up = f[2] == "up" || f[2] == "unknown"
		case "speed": // Mbit/s; -1 and 2^32-1: unknown
			if err == nil && n > 0 && n < 1<<31 {
				d.Rate = inventory.BitRate(n) * 1e6
			}
		case "device/numa_node":
			if err == nil {
				d.NUMA = n
			}
		case "rdma":
			port := 1
			if len(f) > 3 {
				if k, err := strconv.Atoi(f[3]); err == nil && k >= 0 && k < 255 {
					port = k + 1 // dev_port counts from 0
				}
			}
			d.RDMA = fmt.Sprintf("%s:%d", f[2], port)
		}
	}
}

// rdma reads lines of "mlx5_0:1 rate 200 Gb/sec (4X HDR)".
func (m *Machine) rdma(lines []string) {
	index := map[string]int{}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) < 3 {
			continue
		}
		i, ok := index[f[0]]
		if !ok {
			i = len(m.RDMA)
			index[f[0]] = i
			m.RDMA = append(m.RDMA, RDMA{Port: f[0]})
		}
		r := &m.RDMA[i]
		switch f[1] {
		case "guid":
			r.GUID, _ = inventory.ParseGUID(f[2])
		case "link_layer":
			r.InfiniBand = f[2] == "InfiniBand"
		case "state": // "4: ACTIVE"
			r.Active = f[2] == "4:"
		case "rate":
			if v, err := strconv.ParseFloat(f[2], 64); err == nil && v > 0 && v < 1e6 {
				r.Rate = inventory.BitRate(v * 1e9)
			}
		}
	}
}

// addresses reads `ip -o addr`: "2: eth0    inet 10.1.0.1/24 brd 10.1.0.255 scope global eth0 ...".
func (m *Machine) addresses(lines []string) {
	devices := map[string]*Device{}
	for i := range m.Devices {
		devices[m.Devices[i].Name] = &m.Devices[i]
	}
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) < 4 || f[2] != "inet" && f[2] != "inet6" {
			continue
		}
		p, err := netip.ParsePrefix(f[3])
		if err != nil || p.Addr().IsLinkLocalUnicast() || p.Addr().IsLoopback() {
			continue
		}
		d := devices[f[1]]
		if d != nil && (!d.Address.IsValid() || d.Address.Addr().Is6() && p.Addr().Is4()) {
			d.Address = p
		}
		if on, _, _ := strings.Cut(f[1], "."); d == nil && devices[on] != nil {
			m.VLANs = append(m.VLANs, f[1]+" has "+f[3])
		}
	}
}

// Options say what machines do not tell.
type Options struct {
	Name string
	Kind inventory.Kind // of switches; empty: Tofino
}

// Draft makes an inventory of machines. Hosts have the devices that have a neighbour by
// LLDP which is no host; such neighbours are switches. A host without any has its fastest devices, with
// cables left blank (its NICs have no switch), or is left out if it has InfiniBand. The notes say what is a guess, what is
// blank and what is left out.
func Draft(machines []*Machine, opt Options) (*inventory.Inventory, inventory.Notes) {
	d := drafter{
		inv: &inventory.Inventory{Name: opt.Name}, notes: inventory.Notes{Of: map[string]string{}},
		kind: cmp.Or(opt.Kind, inventory.Tofino), switches: map[string]*portNames{}, machines: map[string]*Machine{},
	}
	machines = slices.Clone(machines)
	slices.SortStableFunc(machines, func(a, b *Machine) int { return inventory.Natural(a.Name, b.Name) })
	hosts := map[string]bool{}
	for _, m := range machines {
		if m.Switch {
			d.machines[clean(m.Name)] = m
			d.sw(clean(m.Name))
		} else {
			hosts[clean(m.Name)] = true
		}
	}
	for _, m := range machines {
		for _, n := range m.Neighbours {
			if s := clean(n.System); s != "" && !hosts[s] {
				d.sw(s)
			}
		}
	}
	d.ports(machines)
	for _, name := range sortedKeys(d.switches) {
		d.inv.Switches = append(d.inv.Switches, inventory.Switch{Name: name, Kind: d.kind, DeviceID: uint64(len(d.inv.Switches) + 1)})
	}
	if len(d.inv.Switches) > 0 {
		d.head("LLDP does not tell what a switch is: kind = %q is a guess, and control addresses are missing", d.kind)
	}
	for _, m := range machines {
		if !m.Switch {
			d.host(m)
		}
	}
	d.links()
	d.blanks()
	return d.inv, d.notes
}

// blanks notes how to fill in blank cables, and adds a switch if there is none.
func (d *drafter) blanks() {
	if !slices.ContainsFunc(d.inv.Hosts, blank) {
		return
	}
	example := "tor1"
	if len(d.inv.Switches) > 0 {
		example = d.inv.Switches[0].Name
	} else {
		if slices.ContainsFunc(d.inv.Hosts, func(h inventory.Host) bool { return h.Name == example }) {
			example = "switch1"
		}
		d.inv.Switches = []inventory.Switch{{Name: example, Kind: d.kind, DeviceID: 1}}
		d.head("no host tells of a switch: that there is one, %s, of kind = %q, is a guess", example, d.kind)
	}
	d.head("port = \"?\": write which port of which switch the cable is in, %q or, of several hosts, %q", example+"/3", example+"/[1-16]")
}

// blank says whether a host has a cable that nobody knows.
func blank(h inventory.Host) bool {
	return slices.ContainsFunc(h.NICs, func(n inventory.NIC) bool { return n.Switch == "" })
}

// fastest are the Ethernet devices of a machine that data is likely to take: those that are up and as fast as the fastest.
func fastest(m *Machine) (out []Device) {
	var most inventory.BitRate
	for _, dev := range m.Devices {
		if dev.Up && !dev.IB {
			most = max(most, dev.Rate)
		}
	}
	for _, dev := range m.Devices {
		if dev.Up && !dev.IB && dev.Rate == most {
			out = append(out, dev)
		}
	}
	return out
}

type drafter struct {
	inv      *inventory.Inventory
	notes    inventory.Notes
	kind     inventory.Kind
	switches map[string]*portNames
	machines map[string]*Machine // switches that were asked
}

// portNames are a switch's ports as it calls them, and the numbers that they get.
type portNames struct{ number map[string]uint32 }

func (d *drafter) head(format string, args ...any) {
	if l := fmt.Sprintf(format, args...); !slices.Contains(d.notes.Head, l) {
		d.notes.Head = append(d.notes.Head, l)
	}
}

func (d *drafter) sw(name string) *portNames {
	if d.switches[name] == nil {
		d.switches[name] = &portNames{number: map[string]uint32{}}
	}
	return d.switches[name]
}

var (
	badInName  = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
	lastNumber = regexp.MustCompile(`([0-9]+)[^0-9]*$`)
)

// clean makes a name of a system's: without its domain.
func clean(s string) string {
	s, _, _ = strings.Cut(s, ".")
	return strings.Trim(badInName.ReplaceAllString(s, "-"), "-._")
}

// portName is what a neighbour calls its port; a MAC address is no name.
func portName(n preflight.Neighbour) string {
	if strings.Count(n.Port, ":") == 5 && n.Descr != "" {
		return n.Descr
	}
	return cmp.Or(n.Port, n.Descr)
}

// ports gives all ports that were seen a number: the last one in the name where that
// tells them apart. Otherwise those with one number have that, and the others the numbers that are left, in the order of
// their names: preflight.Cabling takes no other name for a number.
func (d *drafter) ports(machines []*Machine) {
	for _, m := range machines {
		for device, n := range m.Neighbours {
			if s := d.switches[clean(n.System)]; s != nil {
				s.number[portName(n)] = 0
			}
			if m.Switch {
				d.sw(clean(m.Name)).number[device] = 0
			}
		}
	}
	for _, name := range sortedKeys(d.switches) {
		s := d.switches[name]
		taken := map[uint64]bool{}
		plain := true
		for port := range s.number {
			n, err := uint64(0), error(nil)
			if x := lastNumber.FindStringSubmatch(port); x != nil {
				n, err = strconv.ParseUint(x[1], 10, 32)
			}
			plain = plain && lastNumber.MatchString(port) && err == nil && !taken[n] && strings.Count(port, ":") != 5
			taken[n] = true
			s.number[port] = uint32(n)
		}
		if plain {
			continue
		}
		var list []string
		names, used, own := sortedKeys(s.number), map[uint32]bool{}, map[string]bool{}
		for _, port := range names {
			if n, ok := preflight.PortNumber(port); ok && !used[n] {
				s.number[port], used[n], own[port] = n, true, true
			}
		}
		next := uint32(1)
		for _, port := range names {
			for !own[port] && used[next] {
				next++
			}
			if !own[port] {
				s.number[port], used[next] = next, true
			}
			list = append(list, fmt.Sprintf("%d is %s", s.number[port], port))
		}
		d.notes.Of[name] = "Ports have no numbers of their own: " + printable(strings.Join(list, ", ")) + "."
	}
}

func (d *drafter) host(m *Machine) {
	h := inventory.Host{Name: clean(m.Name), GPUs: m.GPUs, GPUModel: m.GPUModel, SSH: inventory.SSH{Address: m.Address}}
	if h.Name == "" {
		d.head("%s does not tell its name and is left out", printable(m.Address))
		return
	}
	if slices.ContainsFunc(d.inv.Hosts, func(x inventory.Host) bool { return x.Name == h.Name }) || d.switches[h.Name] != nil {
		d.head("a second machine is called %s, at %s: it is left out", h.Name, printable(m.Address))
		return
	}
	if m.Neighbours == nil {
		d.head("%s has no lldpd, or does not let %s ask it: its cables are not known", h.Name, "this user")
	}
	if m.GPUFault != "" {
		d.head("%s: GPUs are not counted, as nvidia-smi does not work there: %s", h.Name, printable(m.GPUFault))
	}
	for _, v := range m.VLANs {
		d.head("%s: %s: of a VLAN, which is left out", h.Name, printable(v))
	}
	var rest, numa []string
	add := func(dev Device, nic inventory.NIC) {
		if dev.Rate == 0 {
			d.head("%s does not tell the speed of %s: 1Gbit/s is a guess", h.Name, cmp.Or(printable(dev.Name), "its devices"))
			dev.Rate = 1e9
		}
		nic.Device, nic.Address, nic.RDMA, nic.Rate = dev.Name, dev.Address, dev.RDMA, dev.Rate
		h.NICs = append(h.NICs, nic)
		if dev.NUMA >= 0 {
			numa = append(numa, fmt.Sprintf("%s is at NUMA node %d", dev.Name, dev.NUMA))
		}
	}
	for _, dev := range m.Devices {
		n, ok := m.Neighbours[dev.Name]
		s := d.switches[clean(n.System)]
		if !ok || s == nil {
			if dev.Up {
				rest = append(rest, dev.Name)
			}
			continue
		}
		add(dev, inventory.NIC{Switch: clean(n.System), Port: s.number[portName(n)]})
	}
	infiniband := false
	for _, r := range m.RDMA {
		if r.InfiniBand && r.Active {
			infiniband = true
			guid := ""
			if r.GUID != 0 {
				guid = fmt.Sprintf(" with GUID %v", r.GUID)
			}
			d.head("%s has InfiniBand, %s%s: `inabench inventory import` reads its fabric", h.Name, printable(r.Port), guid)
		}
	}
	if len(h.NICs) == 0 && infiniband {
		d.head("%s is left out: no device of it has a neighbour by LLDP", h.Name)
		return
	}
	if len(h.NICs) == 0 {
		for _, dev := range fastest(m) {
			add(dev, inventory.NIC{})
		}
		if len(h.NICs) == 0 {
			add(Device{NUMA: -1}, inventory.NIC{})
		}
		rest = nil
	}
	if len(h.NICs) > 1 && len(numa) > 0 {
		d.notes.Of[h.Name] = printable(strings.Join(numa, ", ")) + "."
	}
	if len(rest) > 0 && m.Neighbours != nil {
		d.head("%s: no neighbour by LLDP at %s", h.Name, printable(strings.Join(rest, ", ")))
	}
	d.inv.Hosts = append(d.inv.Hosts, h)
}

// links are the cables between switches, as those of them say that were asked.
func (d *drafter) links() {
	taken := map[inventory.Port]bool{}
	for _, name := range sortedKeys(d.machines) {
		m := d.machines[name]
		for _, device := range sortedKeys(m.Neighbours) {
			n := m.Neighbours[device]
			other := clean(n.System)
			s := d.switches[other]
			if s == nil || other == name {
				continue
			}
			a := inventory.Port{Switch: name, Port: d.switches[name].number[device]}
			b := inventory.Port{Switch: other, Port: s.number[portName(n)]}
			if taken[a] || taken[b] {
				continue // the other end has said it
			}
			taken[a], taken[b] = true, true
			rate := inventory.BitRate(0)
			for _, dev := range m.Devices {
				if dev.Name == device {
					rate = dev.Rate
				}
			}
			if rate == 0 {
				d.head("%s does not tell the speed of %s: 1Gbit/s is a guess", name, printable(device))
				rate = 1e9
			}
			d.inv.Links = append(d.inv.Links, inventory.Link{A: a, B: b, Rate: rate})
		}
	}
	if len(d.switches) > 1 && len(d.inv.Links) == 0 {
		d.head("hosts know nothing of cables between switches: add [[link]] tables, or ask switches that run lldpd, too")
	}
}

// printable is a text that others wrote, for a comment: one line, nothing hidden.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, inventory.Natural)
	return keys
}

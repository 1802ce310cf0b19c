package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Host finds a host by name, by a linear search. The pointer is into Hosts.
func (inv *Inventory) Host(name string) (*Host, bool) {
	i := slices.IndexFunc(inv.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return nil, false
	}
	return &inv.Hosts[i], true
}

// Switch finds a switch by name, by a linear search. The pointer is into Switches.
func (inv *Inventory) Switch(name string) (*Switch, bool) {
	i := slices.IndexFunc(inv.Switches, func(s Switch) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	return &inv.Switches[i], true
}

// HostNames are the names of all hosts, in the order of the file.
func (inv *Inventory) HostNames() []string {
	return namesOf(inv.Hosts, func(h *Host) string { return h.Name })
}

// SwitchNames are the names of all switches, in the order of the file.
func (inv *Inventory) SwitchNames() []string {
	return namesOf(inv.Switches, func(s *Switch) string { return s.Name })
}

func namesOf[T any](items []T, name func(*T) string) []string {
	out := make([]string, len(items))
	for i := range items {
		out[i] = name(&items[i])
	}
	return out
}

// GPUs is how many all hosts have together.
func (inv *Inventory) GPUs() (n int) {
	for i := range inv.Hosts {
		n += inv.Hosts[i].GPUs
	}
	return n
}

// Reachable reports whether the inventory says how the host is reached: where one logs in to it, or
// by a launcher that needs no address.
func (h *Host) Reachable() bool {
	return h.SSH.Address != "" || h.Launcher != "" && h.Launcher != "ssh"
}

// Jumps are the hosts to go through, the one nearest to this machine first; none
// where Jump is empty or "none".
func (s SSH) Jumps() []string {
	if s.Jump == "" || s.Jump == "none" {
		return nil
	}
	jumps := strings.Split(s.Jump, ",")
	for i := range jumps {
		jumps[i] = strings.TrimSpace(jumps[i])
	}
	return jumps
}

// Pos is where the file names a host or switch; without a Line when the inventory
// was not read from a file.
func (inv *Inventory) Pos(name string) tomlfile.Pos {
	if at, ok := inv.where[name]; ok {
		return at
	}
	return tomlfile.Pos{File: inv.File}
}

// Clone is a deep copy: changing one leaves the other as it was.
func (inv *Inventory) Clone() *Inventory {
	c := *inv
	c.Hosts = slices.Clone(inv.Hosts)
	for i := range c.Hosts {
		c.Hosts[i].NICs = slices.Clone(c.Hosts[i].NICs)
	}
	c.Switches = slices.Clone(inv.Switches)
	for i := range c.Switches {
		c.Switches[i].Server = c.Switches[i].Server.clone()
	}
	c.Links = slices.Clone(inv.Links)
	if inv.Manager != nil {
		m := *inv.Manager
		m.Restart = slices.Clone(m.Restart)
		c.Manager = &m
	}
	c.where = maps.Clone(inv.where)
	return &c
}

// CheckLab reports, as tomlfile.Problems, everything that a lab needs and that an
// emulation makes up for itself: ssh and control addresses, NIC devices and data
// addresses.
func (inv *Inventory) CheckLab() error {
	type missing struct {
		at         tomlfile.Pos
		what, hint string
	}
	var order []missing
	who := map[missing][]string{}
	add := func(name string, at tomlfile.Pos, what, hint string) {
		m := missing{at, what, hint}
		if len(who[m]) == 0 {
			order = append(order, m)
		}
		who[m] = append(who[m], name)
	}
	for _, h := range inv.Hosts {
		if !h.Reachable() {
			add("host "+h.Name, inv.Pos(h.Name), "no ssh address", `write ssh = {address = "10.0.0.1:22"}`)
		}
		for k, nic := range h.NICs {
			at, ok := inv.where[nicKey(h.Name, k)]
			if !ok {
				at = inv.Pos(h.Name)
			}
			// Programs use InfiniBand by the RDMA device; there need not be IP on it.
			if sw, ok := inv.Switch(nic.Switch); ok && sw.Kind == Quantum && nic.RDMA != "" {
				continue
			}
			if nic.Device == "" {
				add("host "+h.Name, at, "nic without device", `write device = "ens1f0"`)
			}
			switch {
			case !nic.Address.IsValid():
				add("host "+h.Name, at, "nic without data address", `write address = "10.1.0.1/24"`)
			case !nic.Address.Addr().Is4(): // neither agents nor switch programs know IPv6
				add("host "+h.Name, at, "data address "+nic.Address.String()+" is not IPv4", `write address = "10.1.0.1/24"`)
			}
		}
	}
	topo := inv.Topology()
	for _, s := range inv.Switches {
		var cables []DirectedLink
		for _, l := range topo.Out(s.Name) {
			cables = append(cables, topo.Links[l])
		}
		s.checkServer(cables, func(what, hint string) { add("switch "+s.Name, inv.Pos(s.Name), what, hint) })
	}
	var ps tomlfile.Problems
	for _, m := range order {
		names := who[m][0]
		if n := len(who[m]); n > 1 {
			names += fmt.Sprintf(" (and %d more)", n-1)
		}
		ps = append(ps, tomlfile.Problem{Pos: m.at, Msg: names + ": " + m.what, Hint: m.hint})
	}
	return ps.Err()
}

// Describe is a short summary for people, a line for the whole and one for each
// rack or switch.
func (inv *Inventory) Describe() string {
	below := map[string]int{} // hosts by switch
	rates := map[string]map[BitRate]bool{}
	note := func(sw string, r BitRate) {
		if rates[sw] == nil {
			rates[sw] = map[BitRate]bool{}
		}
		rates[sw][r] = true
	}
	for _, h := range inv.Hosts {
		seen := map[string]bool{}
		for _, n := range h.NICs {
			if !seen[n.Switch] {
				below[n.Switch]++
			}
			seen[n.Switch] = true
			note(n.Switch, n.Rate)
		}
	}
	links := map[string]int{}
	for _, l := range inv.Links {
		for _, s := range []string{l.A.Switch, l.B.Switch} {
			links[s]++
			note(s, l.Rate)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s, %s, %s between switches\n", inv.Name,
		count(len(inv.Hosts), "host"), count(inv.GPUs(), "GPU"), countPlural(len(inv.Switches), "switch", "switches"), count(len(inv.Links), "link"))
	for _, s := range inv.Switches {
		var parts []string
		if n := below[s.Name]; n > 0 {
			parts = append(parts, count(n, "host"))
		}
		if n := links[s.Name]; n > 0 {
			parts = append(parts, count(n, "link"))
		}
		var rs []string
		for _, r := range slices.Sorted(maps.Keys(rates[s.Name])) {
			rs = append(rs, r.String())
		}
		if len(rs) > 0 {
			parts = append(parts, strings.Join(rs, " and "))
		}
		switch {
		case s.Kind == Quantum:
			parts = append(parts, count(s.SHARP.Trees, "SHARP tree"))
		case s.Kind == Scripted:
			parts = append(parts, "driven by a script")
		case s.Aggregators == 0:
			parts = append(parts, "no aggregation")
		default:
			parts = append(parts, count(s.Aggregators, "aggregator"))
			if s.SHARP.Trees > 0 {
				parts = append(parts, count(s.SHARP.Trees, "SHARP tree"))
			}
		}
		fmt.Fprintf(&b, "  %s (%s): %s\n", s.Name, s.Kind, strings.Join(parts, ", "))
	}
	return b.String()
}

func count(n int, noun string) string { return countPlural(n, noun, noun+"s") }

func countPlural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

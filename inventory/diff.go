package inventory

import (
	"cmp"
	"fmt"
	"slices"
)

// Difference is one thing in which what was found differs from what a file says.
type Difference struct {
	What   string // "link", "host", "switch", "nic", "rate", "an", "kind", "gpus", "name"
	Where  string // name of a host or switch, or both ends of a cable
	Detail string
}

// String is the difference as a sentence.
func (d Difference) String() string { return d.Where + ": " + d.Detail }

// Diff says how a lab that was found differs from the inventory that describes it:
// hosts and switches that are missing or new, cables that are missing, new or lead
// elsewhere, slower and faster ones, and aggregation nodes that are gone. Switches and
// hosts are known by their GUIDs, and by their names where there are none. What found
// does not know, such as addresses, is not compared.
func Diff(want, found *Inventory) []Difference {
	d := differ{names: map[string]string{}}
	d.switches(want, found)
	d.hosts(want, found)
	d.links(want, found)
	slices.SortStableFunc(d.out, func(a, b Difference) int {
		return cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What))
	})
	return d.out
}

var order = []string{"switch", "host", "name", "kind", "an", "gpus", "nic", "link", "rate"}

type differ struct {
	out   []Difference
	names map[string]string // those of found in those of want
}

func (d *differ) add(what, where, format string, args ...any) {
	d.out = append(d.out, Difference{what, where, fmt.Sprintf(format, args...)})
}

// match finds the items of want that are those of found: by GUIDs, then by name.
func match[T any](d *differ, what string, want, found []T, name func(T) string, guids func(T) []GUID) (pairs [][2]*T) {
	byGUID := map[GUID]int{}
	for i := range want {
		for _, g := range guids(want[i]) {
			byGUID[g] = i + 1
		}
	}
	taken := make([]bool, len(want))
	pair := func(i, k int) {
		taken[i] = true
		d.names[name(found[k])] = name(want[i])
		pairs = append(pairs, [2]*T{&want[i], &found[k]})
	}
	var left []int
	for k := range found {
		i := 0
		for _, g := range guids(found[k]) {
			i = cmp.Or(i, byGUID[g])
		}
		if i > 0 && !taken[i-1] {
			pair(i-1, k)
			if a, b := name(want[i-1]), name(found[k]); a != b {
				d.add("name", a, "is called %s", b)
			}
		} else {
			left = append(left, k)
		}
	}
	for _, k := range left {
		i := slices.IndexFunc(want, func(w T) bool { return name(w) == name(found[k]) })
		switch {
		case i < 0 || taken[i]:
			d.add(what, name(found[k]), "is not in the inventory")
			continue
		case len(guids(want[i])) > 0 && len(guids(found[k])) > 0:
			d.add(what, name(found[k]), "has another GUID, %v instead of %v: it was replaced", guids(found[k])[0], guids(want[i])[0])
		}
		pair(i, k)
	}
	for i := range want {
		if !taken[i] {
			d.add(what, name(want[i]), "is missing")
		}
	}
	return pairs
}

func (d *differ) switches(want, found *Inventory) {
	for _, p := range match(d, "switch", want.Switches, found.Switches, func(s Switch) string { return s.Name },
		func(s Switch) []GUID {
			if s.GUID == 0 {
				return nil
			}
			return []GUID{s.GUID}
		}) {
		w, f := p[0], p[1]
		switch {
		case w.AN != 0 && f.AN == 0:
			d.add("an", w.Name, "its aggregation node %v is missing: it cannot aggregate", w.AN)
		case w.AN != 0 && w.AN != f.AN:
			d.add("an", w.Name, "aggregation node %v instead of %v", f.AN, w.AN)
		case w.AN == 0 && f.AN != 0 && w.GUID != 0:
			d.add("an", w.Name, "has an aggregation node, %v", f.AN)
		}
	}
}

func (d *differ) hosts(want, found *Inventory) {
	for _, p := range match(d, "host", want.Hosts, found.Hosts, func(h Host) string { return h.Name },
		func(h Host) (all []GUID) {
			for _, n := range h.NICs {
				if n.GUID != 0 {
					all = append(all, n.GUID)
				}
			}
			return all
		}) {
		w, f := p[0], p[1]
		if f.GPUs > 0 && w.GPUs != f.GPUs {
			d.add("gpus", w.Name, "%s instead of %d", count(f.GPUs, "GPU"), w.GPUs)
		}
		taken := make([]bool, len(f.NICs))
		for i, n := range w.NICs {
			k := slices.IndexFunc(f.NICs, func(x NIC) bool { return sameNIC(n, x) })
			if k < 0 && len(w.NICs) == 1 && len(f.NICs) == 1 {
				k = 0
			}
			label := nicName(w, i)
			if k < 0 && n.RDMA != "" {
				if k = slices.IndexFunc(f.NICs, func(x NIC) bool { return x.RDMA == n.RDMA }); k >= 0 && !taken[k] {
					d.add("nic", w.Name, "%s has another GUID, %v instead of %v: it was replaced", label, f.NICs[k].GUID, n.GUID)
				} else {
					k = -1
				}
			}
			if k < 0 {
				d.add("nic", w.Name, "%s is missing, which should lead to %v", label, Port{n.Switch, n.Port})
				continue
			}
			taken[k] = true
			x := f.NICs[k]
			if at := d.port(x.Switch, x.Port); at != (Port{n.Switch, n.Port}) {
				d.add("nic", w.Name, "%s leads to %v instead of %v", label, at, Port{n.Switch, n.Port})
			}
			d.rate(w.Name+" "+label, n.Rate, x.Rate)
		}
		for k, n := range f.NICs {
			if !taken[k] {
				d.add("nic", w.Name, "%s, at %v, is not in the inventory", nicName(f, k), d.port(n.Switch, n.Port))
			}
		}
	}
}

// sameNIC reports whether two entries speak of one interface.
func sameNIC(a, b NIC) bool {
	port := func(n NIC) string { // of an adapter with several
		if len(n.RDMA) > 2 && n.RDMA[len(n.RDMA)-2] == ':' {
			return n.RDMA[len(n.RDMA)-1:]
		}
		return "1"
	}
	switch {
	case a.GUID != 0 && b.GUID != 0:
		return a.GUID == b.GUID && port(a) == port(b)
	case a.RDMA != "" && b.RDMA != "":
		return a.RDMA == b.RDMA
	}
	return a.Device != "" && a.Device == b.Device
}

func nicName(h *Host, i int) string {
	n := h.NICs[i]
	if n.RDMA == "" && n.Device == "" {
		return "its nic"
	}
	return "nic " + cmp.Or(n.RDMA, n.Device)
}

// port is a port of found in the names of want.
func (d *differ) port(sw string, port uint32) Port { return Port{cmp.Or(d.names[sw], sw), port} }

func (d *differ) links(want, found *Inventory) {
	type cable = [2]Port
	key := func(a, b Port) cable {
		if a.Switch > b.Switch || a.Switch == b.Switch && a.Port > b.Port {
			a, b = b, a
		}
		return cable{a, b}
	}
	have, leads := map[cable]BitRate{}, map[Port]Port{}
	for _, l := range found.Links {
		a, b := d.port(l.A.Switch, l.A.Port), d.port(l.B.Switch, l.B.Port)
		have[key(a, b)] = l.Rate
		leads[a], leads[b] = b, a
	}
	known := map[cable]bool{}
	for _, l := range want.Links {
		known[key(l.A, l.B)] = true
		where := fmt.Sprintf("%v - %v", l.A, l.B)
		rate, ok := have[key(l.A, l.B)]
		if ok {
			d.rate(where, l.Rate, rate)
			continue
		}
		atA, movedA := leads[l.A]
		atB, movedB := leads[l.B]
		switch {
		case movedA && movedB:
			d.add("link", where, "%v leads to %v, and %v to %v", l.A, atA, l.B, atB)
		case movedA:
			d.add("link", where, "%v leads to %v", l.A, atA)
		case movedB:
			d.add("link", where, "%v leads to %v", l.B, atB)
		default:
			d.add("link", where, "is missing")
		}
	}
	for _, l := range found.Links {
		a, b := d.port(l.A.Switch, l.A.Port), d.port(l.B.Switch, l.B.Port)
		if !known[key(a, b)] {
			d.add("link", fmt.Sprintf("%v - %v", a, b), "is not in the inventory")
		}
	}
}

func (d *differ) rate(where string, want, found BitRate) {
	switch {
	case found == 0 || want == 0 || found == want:
	case found < want:
		d.add("rate", where, "%v, slower than the inventory's %v", found, want)
	default:
		d.add("rate", where, "%v, faster than the inventory's %v", found, want)
	}
}

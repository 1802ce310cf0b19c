package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// leafSpine is racks of hosts under ToRs that all join all spines.
func leafSpine(racks, perRack, spines int) *Inventory {
	inv := &Inventory{Name: "leaf-spine"}
	for r := range racks {
		tor := fmt.Sprintf("tor%d", r)
		inv.Switches = append(inv.Switches, Switch{Name: tor, Kind: Soft})
		for h := range perRack {
			inv.Hosts = append(inv.Hosts, Host{Name: fmt.Sprintf("h%d-%d", r, h), NICs: []NIC{
				{Switch: tor, Port: uint32(h), Rate: 100e9, Delay: time.Microsecond},
			}})
		}
		for s := range spines {
			inv.Links = append(inv.Links, Link{A: Port{tor, uint32(perRack + s)}, B: Port{fmt.Sprintf("spine%d", s), uint32(r)},
				Rate: 400e9, Delay: 2 * time.Microsecond})
		}
	}
	for s := range spines {
		inv.Switches = append(inv.Switches, Switch{Name: fmt.Sprintf("spine%d", s), Kind: Soft})
	}
	return inv
}

func linkNames(t *Topology, path []int) string {
	var names []string
	for _, l := range path {
		names = append(names, t.Links[l].Name)
	}
	return strings.Join(names, " ")
}

func TestTopology(t *testing.T) {
	topo := leafSpine(2, 2, 2).Topology()
	for _, tt := range []struct{ from, to, path string }{
		{"h0-0", "h0-1", "h0-0->tor0 tor0->h0-1"},
		{"h0-1", "h1-0", "h0-1->tor0 tor0->spine0 spine0->tor1 tor1->h1-0"}, // not spine1: it comes later
		{"h0-0", "spine1", "h0-0->tor0 tor0->spine1"},
		{"spine1", "h0-0", "spine1->tor0 tor0->h0-0"},
		{"tor0", "tor1", "tor0->spine0 spine0->tor1"},
		{"tor0", "tor0", ""},
	} {
		path, err := topo.Path(tt.from, tt.to)
		if got := linkNames(topo, path); err != nil || got != tt.path {
			t.Errorf("%s to %s: %q, %v; want %q", tt.from, tt.to, got, err, tt.path)
		}
	}
	path, _ := topo.Path("h0-0", "h1-0")
	if d := topo.PathDelay(path); d != 6*time.Microsecond {
		t.Errorf("delay %v", d)
	}
	for node, want := range map[string]int{"h0-0": 0, "tor1": 1, "spine0": 2, "nobody": -1} {
		if got := topo.Tier(node); got != want {
			t.Errorf("tier of %s: %d, want %d", node, got, want)
		}
	}
	if !topo.IsHost("h0-0") || topo.IsHost("tor0") || topo.IsHost("nobody") {
		t.Error("hosts and switches mixed up")
	}
	if _, err := topo.Path("h0-0", "h9"); err == nil || err.Error() != `path from h0-0 to h9: no node "h9"` {
		t.Errorf("unknown node: %v", err)
	}
}

// Cables between the same two nodes are told apart by ports.
func TestParallelCables(t *testing.T) {
	inv := &Inventory{
		Hosts: []Host{
			{Name: "h1", NICs: []NIC{{Device: "a", Switch: "s1", Port: 1}, {Device: "b", Switch: "s1", Port: 2}}},
			{Name: "h2", NICs: []NIC{{Switch: "s2", Port: 1}}},
		},
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}, {Name: "s3"}},
		Links: []Link{
			{A: Port{"s1", 10}, B: Port{"s2", 20}},
			{A: Port{"s2", 21}, B: Port{"s1", 11}},
			{A: Port{"s2", 22}, B: Port{"s3", 1}},
			{A: Port{"s2", 23}, B: Port{"nowhere", 1}},
		},
	}
	topo := inv.Topology()
	want := []string{
		"h1->s1:1", "s1:1->h1", "h1->s1:2", "s1:2->h1", "h2->s2", "s2->h2",
		"s1:10->s2:20", "s2:20->s1:10", "s2:21->s1:11", "s1:11->s2:21", "s2->s3", "s3->s2",
	}
	var got []string
	for _, l := range topo.Links {
		got = append(got, l.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("links\n%v, want\n%v", got, want)
	}
	path, err := topo.Path("h1", "h2")
	if got := linkNames(topo, path); err != nil || got != "h1->s1:1 s1:10->s2:20 s2->h2" {
		t.Errorf("%q, %v", got, err)
	}
	if l := topo.Links[slices.Index(got, "s1:2->h1")]; l.FromPort != 2 || l.ToPort != 0 || l.NIC != "b" {
		t.Errorf("%+v", l)
	}
}

// On random graphs: links pair up, paths are connected, as short as a slow search
// finds, and never lead through a host.
func TestPathProperties(t *testing.T) {
	rng := random(t)
	for range 200 {
		inv := randomInventory(rng)
		topo := inv.Topology()
		named := map[string]bool{}
		for _, l := range topo.Links {
			if named[l.Name] {
				t.Fatalf("two links are called %s", l.Name)
			}
			named[l.Name] = true
			r := topo.Links[l.Reverse]
			if r.Reverse != l.Index || r.From != l.To || r.FromPort != l.ToPort || r.Name == l.Name {
				t.Fatalf("%+v and %+v do not pair", l, r)
			}
		}
		dist := slowDistances(topo)
		for _, a := range topo.Nodes {
			for _, b := range topo.Nodes {
				path, err := topo.Path(a, b)
				d, reachable := dist[[2]string{a, b}]
				if (err == nil) != reachable {
					t.Fatalf("%s to %s: %v, but reachable is %v", a, b, err, reachable)
				}
				if err != nil {
					continue
				}
				at := a
				for i, l := range path {
					if topo.Links[l].From != at || i > 0 && topo.IsHost(at) {
						t.Fatalf("%s to %s: %s", a, b, linkNames(topo, path))
					}
					at = topo.Links[l].To
				}
				if at != b || len(path) != d {
					t.Fatalf("%s to %s in %d hops: %s", a, b, d, linkNames(topo, path))
				}
			}
		}
	}
}

// TestBetween: a link is one that packets may take if it shortens the way between two switches that the ends are cabled
// to, by distances of a slow search.
func TestBetween(t *testing.T) {
	rng := random(t)
	for range 200 {
		topo := randomInventory(rng).Topology()
		dist := slowDistances(topo)
		at := func(node string) (switches []string) {
			if !topo.IsHost(node) {
				return []string{node}
			}
			for _, l := range topo.Out(node) {
				switches = append(switches, topo.Links[l].To)
			}
			return switches
		}
		for _, a := range topo.Nodes {
			for _, b := range topo.Nodes {
				got, err := topo.Between(a, b)
				if _, reachable := dist[[2]string{a, b}]; (err == nil) != reachable {
					t.Fatalf("%s to %s: %v, but reachable is %v", a, b, err, reachable)
				}
				var want []int
				for _, l := range topo.Links {
					may := false
					for _, s := range at(a) {
						for _, e := range at(b) {
							d, ok := dist[[2]string{s, e}]
							first, ok1 := dist[[2]string{s, l.From}]
							rest, ok2 := dist[[2]string{l.To, e}]
							between := !topo.IsHost(l.From) && !topo.IsHost(l.To) && ok1 && ok2 && first+1+rest == d
							may = may || ok && (between || l.From == a && l.To == s && topo.IsHost(a) || l.To == b && l.From == e && topo.IsHost(b))
						}
					}
					if may && a != b {
						want = append(want, l.Index)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s to %s: %s, want %s", a, b, linkNames(topo, got), linkNames(topo, want))
				}
			}
		}
	}
}

func randomInventory(rng *rand.Rand) *Inventory {
	inv := &Inventory{}
	ports := map[string]uint32{}
	port := func(s string) uint32 { ports[s]++; return ports[s] }
	switches := 1 + rng.IntN(6)
	for i := range switches {
		inv.Switches = append(inv.Switches, Switch{Name: fmt.Sprintf("s%d", i)})
	}
	pick := func() string { return inv.Switches[rng.IntN(switches)].Name }
	for i := range rng.IntN(6) {
		h := Host{Name: fmt.Sprintf("h%d", i)}
		for range 1 + rng.IntN(2) {
			s := pick()
			h.NICs = append(h.NICs, NIC{Switch: s, Port: port(s)})
		}
		inv.Hosts = append(inv.Hosts, h)
	}
	for range rng.IntN(8) {
		if a, b := pick(), pick(); a != b {
			inv.Links = append(inv.Links, Link{A: Port{a, port(a)}, B: Port{b, port(b)}})
		}
	}
	return inv
}

// slowDistances is Floyd and Warshall's, with only switches in the middle.
func slowDistances(t *Topology) map[[2]string]int {
	d := map[[2]string]int{}
	for _, n := range t.Nodes {
		d[[2]string{n, n}] = 0
	}
	for _, l := range t.Links {
		d[[2]string{l.From, l.To}] = 1
	}
	for _, k := range t.Nodes {
		if t.IsHost(k) {
			continue
		}
		for _, a := range t.Nodes {
			for _, b := range t.Nodes {
				ak, ok1 := d[[2]string{a, k}]
				kb, ok2 := d[[2]string{k, b}]
				ab, ok := d[[2]string{a, b}]
				if ok1 && ok2 && (!ok || ak+kb < ab) {
					d[[2]string{a, b}] = ak + kb
				}
			}
		}
	}
	return d
}

func TestPathsConcurrently(t *testing.T) {
	topo := leafSpine(4, 4, 2).Topology()
	want, _ := topo.Path("h0-0", "h3-3")
	topo = leafSpine(4, 4, 2).Topology()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := topo.Path("h0-0", "h3-3"); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
	wg.Wait()
}

// 10,000 servers in 625 racks, as the largest placements need.
func BenchmarkTopology(b *testing.B) {
	inv := leafSpine(625, 16, 16)
	for b.Loop() {
		inv.Topology()
	}
}

func BenchmarkPath(b *testing.B) {
	inv := leafSpine(625, 16, 16)
	topo := inv.Topology()
	i := 0
	for b.Loop() {
		from, to := inv.Hosts[i%10000].Name, inv.Hosts[(i*7919+13)%10000].Name
		if _, err := topo.Path(from, to); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte("version = 1\ndefaults.rate = \"100Gbit/s\"\n")
	for r := range 625 {
		text = fmt.Appendf(text, "[[switch]]\nname = \"tor%d\"\nkind = \"soft\"\naggregators = 4096\n", r)
		for h := range 16 {
			text = fmt.Appendf(text, "[[host]]\nname = \"h%d-%d\"\ngpus = 8\nnic = {port = \"tor%d/%d\"}\n", r, h, r, h)
		}
		text = fmt.Appendf(text, "[[link]]\na = \"tor%d/100\"\nb = \"spine/%d\"\n", r, r)
	}
	text = append(text, "[[switch]]\nname = \"spine\"\nkind = \"soft\"\n"...)
	for b.Loop() {
		if _, err := Parse("bench", text); err != nil {
			b.Fatal(err)
		}
	}
}

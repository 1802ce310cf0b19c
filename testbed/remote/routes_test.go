package remote

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/p4"
)

// A host whose InfiniBand NIC has an IPv6 address beside its Ethernet NIC has a route to the
// Ethernet NIC alone.
func TestRoutesOfIPv4Only(t *testing.T) {
	inv, err := inventory.Parse("lab.toml", []byte(`version = 1
[defaults]
rate = "100Gbit/s"
[[switch]]
name = "tor1"
kind = "tofino"
[[switch]]
name = "leaf1"
kind = "quantum"
[[host]]
name = "h1"
nic = [{port = "tor1/3", device = "eth1", address = "10.0.0.1/24"}, {port = "leaf1/1", device = "ib0", rdma = "mlx5_0:1", address = "fd00::1/64"}]
[[link]]
a = "tor1/60"
b = "leaf1/40"
`))
	if err != nil {
		t.Fatal(err)
	}
	mac := func(string, string) (net.HardwareAddr, error) { return net.HardwareAddr{2, 0, 0, 0, 0, 1}, nil }
	routes, err := routesOf(inv.Topology(), "tor1", inv.Hosts, mac)
	if err != nil || len(routes) != 1 || routes[0].Dst != [4]byte{10, 0, 0, 1} || routes[0].Port != 3 {
		t.Errorf("%+v, %v", routes, err)
	}
	infiniband := func(string, string) (net.HardwareAddr, error) { return make(net.HardwareAddr, 20), nil }
	if _, err := routesOf(inv.Topology(), "tor1", inv.Hosts, infiniband); err == nil {
		t.Error("20 bytes were taken for an Ethernet address")
	}
}

// TestFloods: an ARP request reaches every host once, however many ways there are between switches, and comes back to no one.
func TestFloods(t *testing.T) {
	var b strings.Builder
	b.WriteString("version = 1\n[defaults]\nrate = \"100Gbit/s\"\n")
	for _, sw := range []string{"leaf1", "leaf2", "spine1", "spine2"} {
		fmt.Fprintf(&b, "[[switch]]\nname = %q\nkind = \"soft\"\n", sw)
	}
	for i, port := range []string{"leaf1/1", "leaf1/2", "leaf2/1", "leaf2/2"} {
		fmt.Fprintf(&b, "[[host]]\nname = \"h%d\"\nnic = [{port = %q, device = \"eth1\", address = \"10.0.0.%d/24\"}]\n", i+1, port, i+1)
	}
	for i, leaf := range []string{"leaf1", "leaf2"} {
		for j, spine := range []string{"spine1", "spine2"} {
			fmt.Fprintf(&b, "[[link]]\na = \"%s/%d\"\nb = \"%s/%d\"\n", leaf, 11+j, spine, 1+i)
		}
	}
	inv, err := inventory.Parse("lab.toml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	topo := inv.Topology()
	groups := floodsOf(topo, []string{"leaf1", "leaf2", "spine1", "spine2"}, inv.Hosts)
	for _, from := range inv.Hosts {
		heard := map[string]int{}
		type at struct {
			sw   string
			port uint32
		}
		queue := []at{{from.NICs[0].Switch, from.NICs[0].Port}}
		for len(queue) > 0 && len(queue) < 100 {
			in := queue[0]
			queue = queue[1:]
			i := slices.IndexFunc(groups[in.sw], func(g p4.Group) bool {
				port, floods := g.Floods()
				return floods && port == in.port
			})
			if i < 0 {
				continue
			}
			for _, out := range groups[in.sw][i].Ports {
				l := slices.IndexFunc(topo.Links, func(l inventory.DirectedLink) bool { return l.From == in.sw && l.FromPort == out })
				if to := topo.Links[l]; topo.IsHost(to.To) {
					heard[to.To]++
				} else {
					queue = append(queue, at{to.To, to.ToPort})
				}
			}
		}
		want := map[string]int{"h1": 1, "h2": 1, "h3": 1, "h4": 1}
		delete(want, from.Name)
		if !maps.Equal(heard, want) {
			t.Errorf("%s is heard by %v, want %v", from.Name, heard, want)
		}
	}
}

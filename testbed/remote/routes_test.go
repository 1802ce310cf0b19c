package remote

import (
	"net"
	"testing"

	"github.com/inabench/inabench/inventory"
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

package remote

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/switches"
)

// Which counters are read from where, of a lab with two rails of InfiniBand beside
// Ethernet.
func TestInfiniband(t *testing.T) {
	inv, err := inventory.Parse("lab.toml", []byte(`version = 1
[defaults]
rate = "200Gbit/s"
[[switch]]
name = "tor"
kind = "soft"
[[switch]]
name = "rail[1-2]"
kind = "quantum"
guid = ["0x11", "0x12"]
[[switch]]
name = "spine"
kind = "quantum"
guid = "0x13"
[[switch]]
name = "unknown"
kind = "quantum"
[[host]]
name = "plain"
nic = {port = "tor/1", device = "eth0"}
[[host]]
name = "h"
nic = [
  {port = "rail1/1", rdma = "mlx5_0:1", guid = "0x21"},
  {port = "tor/2", device = "eth0"},
  {port = "rail2/1", rdma = "mlx5_3:2"},
  {port = "tor/3", device = "roce0", rdma = "mlx5_4:1"},
]
[[link]]
a = "rail1/40"
b = "spine/1"
[[link]]
a = "tor/4"
b = "unknown/1"
`))
	if err != nil {
		t.Fatal(err)
	}
	tb := &Testbed{inv: inv, topo: inv.Topology(), hosts: map[string]hosts.Host{"h": &ssh.Client{}}}
	h, _ := inv.Host("h")
	var ports []collectors.NICPort
	for _, li := range tb.topo.Out("h") {
		l := tb.topo.Links[li]
		ports = append(ports, collectors.NICPort{Device: l.NIC, Out: l.Name, In: tb.topo.Links[l.Reverse].Name})
	}
	ib, rest := tb.infiniband(*h, ports)
	if diff := cmp.Diff([]collectors.IBPort{
		{RDMA: "mlx5_0:1", GUID: 0x21, Out: "h->rail1", In: "rail1->h"},
		{RDMA: "mlx5_3:2", Out: "h->rail2", In: "rail2->h"},
	}, ib); diff != "" {
		t.Error(diff)
	}
	if len(rest) != 2 || rest[0].Device != "eth0" || rest[1].Device != "roce0" {
		t.Errorf("%+v", rest)
	}
	site := &switches.Site{Inventory: inv, Topology: tb.topo, Hosts: inv.Hosts, Host: func(name string) hosts.Host {
		if h, ok := tb.hosts[name]; ok {
			return h
		}
		return nil
	}}
	counters := func(sw inventory.Switch) []collectors.Collector {
		x, err := switches.Open(t.Context(), site, sw)
		if err != nil {
			t.Fatal(err)
		}
		all, err := x.Collectors(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, x := range []struct {
		sw, from string
		ports    []int
	}{
		{"rail1", "mlx5_0:1", []int{1, 40}},
		{"spine", "mlx5_0:1", []int{1}},
		{"rail2", "mlx5_3:2", []int{1}}, // not through Ethernet
	} {
		sw, _ := inv.Switch(x.sw)
		all := counters(*sw)
		if len(all) != 1 {
			t.Errorf("%s: nobody to ask", x.sw)
			continue
		}
		c := all[0].(*collectors.IBSwitch)
		var numbers []int
		for n := range c.Ports {
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		if c.From != x.from || c.GUID != uint64(sw.GUID) || !slices.Equal(numbers, x.ports) {
			t.Errorf("%s: from %s, ports %v", x.sw, c.From, numbers)
		}
	}
	sw, _ := inv.Switch("unknown")
	if all := counters(*sw); len(all) > 0 {
		t.Errorf("a switch without GUID: %v", all[0].Name())
	}
}

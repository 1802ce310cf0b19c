package preflight

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
)

// InfiniBand ports are looked at by their RDMA names, which inventories only assume when
// they were made of a fabric.
func TestInfiniBandPorts(t *testing.T) {
	const port = "mlx5_0:1 9803:9b03:0020:0010 4: ACTIVE 200 Gb/sec (4X HDR)\n"
	for _, x := range []struct{ name, text, found, wanted string }{
		{"sound", port, "mlx5_0:1 200 Gbit/s", ""},
		{"FDR is called 56", strings.Replace(port, "200", "190.5", 1), "mlx5_0:1 190 Gbit/s", ""},
		{"another adapter", strings.Replace(port, "0010", "0020", 1), "mlx5_0:1 has GUID 0x98039b0300200020", "mlx5_0:1 with 0x98039b0300200010"},
		{"no subnet manager", strings.Replace(port, "4: ACTIVE", "2: INIT", 1), "mlx5_0:1 is INIT", "mlx5_0:1 ACTIVE"},
		{"half the lanes", strings.Replace(port, "200 Gb/sec (4X", "100 Gb/sec (2X", 1), "mlx5_0:1 100 Gbit/s", "mlx5_0:1 200 Gbit/s"},
		{"no such device", strings.Replace(port, "mlx5_0", "mlx5_1", 1), "no mlx5_0:1", "mlx5_0:1"},
		{"nothing", "", "no mlx5_0:1", "mlx5_0:1"},
	} {
		a := &answer{
			host: inventory.Host{Name: "h1"}, parts: map[section]string{{name: "ib"}: x.text},
			ib: []inventory.NIC{{RDMA: "mlx5_0:1", GUID: 0x98039b0300200010, Rate: 200e9, Switch: "leaf1", Port: 1}},
		}
		p := link(a)
		if p.Found != x.found || p.Wanted != x.wanted || (p.Outcome == results.Fail) != (x.wanted != "") {
			t.Errorf("%s: %+v", x.name, p)
		}
		if p := cabling(a); p.Outcome != results.Skipped || !strings.Contains(p.Why, "inventory diff") {
			t.Errorf("%+v", p)
		}
	}
}

// A host whose only NIC is InfiniBand: what is about network devices says nothing of it,
// and what is not is looked at as ever.
func TestInfiniBandHost(t *testing.T) {
	h := host(t, "h1", nil)
	h.NICs = []inventory.NIC{{RDMA: "mlx5_99:1", Rate: 200e9, Switch: "leaf1", Port: 1}}
	all, _ := Run(t.Context(), []Host{h}, nil, nil, 0)
	if p := find(t, all, Link, "h1"); p.Outcome != results.Fail || p.Found != "no mlx5_99:1" {
		t.Errorf("%+v", p)
	}
	for _, p := range all {
		if p.Outcome == results.Fail && p.Name != Link && p.Name != Governor && p.Name != Disk {
			t.Errorf("%+v", p)
		}
	}
	if p := find(t, all, Clock, "h1"); p.Outcome != results.Pass {
		t.Errorf("%+v", p)
	}
}

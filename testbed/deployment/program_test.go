package deployment

import (
	"testing"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
)

// TestProgramsAboveSums: under atp the switch that sums come to is told to find aggregators itself.
func TestProgramsAboveSums(t *testing.T) {
	inv := &inventory.Inventory{}
	for s, tor := range []string{"tor1", "tor2"} {
		inv.Switches = append(inv.Switches, inventory.Switch{Name: tor, Kind: inventory.Soft, Aggregators: 256})
		for h, host := range [][]string{{"h1", "h2"}, {"h3", "h4"}}[s] {
			inv.Hosts = append(inv.Hosts, inventory.Host{Name: host, GPUs: 1, NICs: []inventory.NIC{{Device: "eth0", Switch: tor, Port: uint32(h + 1), Rate: 8e6}}})
		}
	}
	inv.Links = []inventory.Link{{A: inventory.Port{Switch: "tor1", Port: 9}, B: inventory.Port{Switch: "tor2", Port: 9}, Rate: 8e6}}
	j := placement.JobPlan{ID: 1, Name: "A", Collective: placement.INA, PS: "h4"}
	for rank, h := range []string{"h1", "h2", "h3"} {
		j.Workers = append(j.Workers, placement.Worker{Host: h, Rank: rank})
	}
	if err := placement.BuildTree(inv.Topology(), inv, &j); err != nil {
		t.Fatal(err)
	}
	got, err := programs(inv, testbed.Setup{
		Plan: &placement.Plan{Jobs: []placement.JobPlan{j}}, Settings: testbed.Settings{Addressing: "atp", Lanes: 64},
		Workloads: []testbed.Workload{{Job: j, Window: 32, Slots: 32}},
	}, 1, placement.NewRegions(0))
	if err != nil {
		t.Fatal(err)
	}
	for sw, want := range map[string]ina.Addressing{"tor1": ina.ATP, "tor2": ina.Hash} {
		if b := got[sw]; b == nil || len(b.Jobs) != 1 || b.Jobs[0].Mode != ina.Statistical || b.Jobs[0].Addressing != want {
			t.Errorf("%s: %+v, want addressing %v", sw, b, want)
		}
	}
}

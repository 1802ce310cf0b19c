package testbed

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
)

// Every job has a round trip that lateness is judged against, with a PS or without: of cables of 1 and 5 ms, each of which
// takes 1 ms more for a frame of 1,000 bytes.
func TestBeat(t *testing.T) {
	const ms = time.Millisecond
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 8}, {Name: "tor2", Aggregators: 8}, {Name: "spine", Aggregators: 8}}}
	for i, name := range []string{"h1", "h2", "h3", "h4"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, GPUs: 1, NICs: []inventory.NIC{{
			Device: "eth0", Switch: []string{"tor1", "tor2"}[i/2], Port: uint32(i%2 + 1), Rate: 8e6, Delay: ms,
		}}})
	}
	both := inventory.Host{Name: "h5", GPUs: 1}
	for i, tor := range []string{"tor1", "tor2"} {
		inv.Links = append(inv.Links, inventory.Link{
			A: inventory.Port{Switch: tor, Port: 9}, B: inventory.Port{Switch: "spine", Port: uint32(i + 1)}, Rate: 8e6, Delay: 5 * ms,
		})
		both.NICs = append(both.NICs, inventory.NIC{Device: []string{"eth0", "eth1"}[i], Switch: tor, Port: 3, Rate: 8e6, Delay: ms})
	}
	inv.Hosts = append(inv.Hosts, both)
	for name, tt := range map[string]struct {
		ps    string
		ring  bool
		hosts string
		want  time.Duration
	}{
		"to the PS in another rack":              {ps: "h3", hosts: "h1 h2", want: 32 * ms},
		"to the PS in the same rack":             {ps: "h3", hosts: "h1 h4", want: 8 * ms},
		"a worker beside the PS is on no cable":  {ps: "h3", hosts: "h3 h1", want: 32 * ms},
		"without a PS, to the switch of a rack":  {hosts: "h1 h2", want: 4 * ms},
		"without a PS, to the switch above both": {hosts: "h1 h3", want: 16 * ms},
		"a ring in one rack":                     {ring: true, hosts: "h1 h2", want: 8 * ms},
		"a ring in two":                          {ring: true, hosts: "h1 h3", want: 32 * ms},
		"a ring of two racks and two of one":     {ring: true, hosts: "h1 h2 h3", want: 8 * ms},
		"one host":                               {hosts: "h1", want: 0},
		"a ring by the NIC that is near":         {ring: true, hosts: "h1 h5", want: 8 * ms},
		"a ring by the NIC that is asked for":    {ring: true, hosts: "h1 h5:eth1", want: 32 * ms},
		"to the PS by the NIC that is asked for": {ps: "h2", hosts: "h1:eth0 h5:eth1", want: 8 * ms},
		"and no other":                           {ps: "h2", hosts: "h5:eth1", want: 32 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			j := placement.JobPlan{Name: "A", Collective: placement.INA, PS: tt.ps}
			if tt.ring {
				j.Collective = placement.Ring
			}
			for rank, h := range strings.Fields(tt.hosts) {
				host, nic, _ := strings.Cut(h, ":")
				j.Workers = append(j.Workers, placement.Worker{Host: host, NIC: nic, Rank: rank})
			}
			if len(j.Workers) > 1 || tt.ps != "" {
				if err := placement.BuildTree(inv.Topology(), inv, &j); err != nil {
					t.Fatal(err)
				}
			}
			if got := ShortestBeat([]placement.JobPlan{{Name: "nowhere"}, j}, inv.Topology(), 1000); got != tt.want {
				t.Errorf("got %v, want %v (tree %+v)", got, tt.want, j.Tree)
			}
		})
	}
}

// TestStep: how long a job may go without a result follows from its cables of 1 ms and 8 Mbit/s, its rate, what it computes
// and whom it shares links with.
func TestStep(t *testing.T) {
	const ms = time.Millisecond
	inv := &inventory.Inventory{Switches: []inventory.Switch{{Name: "tor1", Aggregators: 8}}}
	for i, name := range []string{"h1", "h2", "h3"} {
		inv.Hosts = append(inv.Hosts, inventory.Host{Name: name, NICs: []inventory.NIC{{Device: "eth0", Switch: "tor1", Port: uint32(i + 1), Rate: 8e6, Delay: ms}}})
	}
	workers := []placement.Worker{{Host: "h1"}, {Host: "h2", Rank: 1}, {Host: "h3", Rank: 2}}
	ring := placement.JobPlan{Collective: placement.Ring, Workers: workers}
	ps := placement.JobPlan{Collective: placement.PS, PS: "h3", Workers: workers[:2]}
	const duplex = 1514.0 / 1448 * (1 + 33.0/1514) // of a ring, for each byte
	for _, tt := range []struct {
		name            string
		job             placement.JobPlan
		work            Workload
		jobs            int
		step, operation float64 // ms
	}{
		{"a window", ps, Workload{}, 3, 4, 0},
		{"two blocks of 16 packets of 1 ms", ps, Workload{Rate: 8e6}, 3, 4 + 32, 0},
		{"and computing", ps, Workload{Rate: 8e6, Layers: []Layer{{Compute: 7 * ms}, {Compute: 2 * ms}}}, 3, 4 + 32 + 9, 0},
		{"a ring of 4 MiB", ring, Workload{}, 1, 4 + 61.44*duplex, 3*4 + 4.0/3*4194.304*duplex},
		{"of 3 MB at a quarter of the links", ring, Workload{Rate: 2e6, Message: 3e6}, 1, 4 + 4*61.44*duplex, 3*4 + 4.0/3*4*3000*duplex},
		{"which two jobs share", ring, Workload{Rate: 6e6, Message: 3e6}, 2, 4 + 2*61.44*duplex, 3*4 + 4.0/3*2*3000*duplex},
		{"on one host", placement.JobPlan{Collective: placement.Ring, Workers: []placement.Worker{{Host: "h1"}}}, Workload{}, 1, 0, 0},
	} {
		off := func(got time.Duration, want float64) bool {
			return math.Abs(float64(got)/float64(ms)-want) > 1e-3*want+1e-3
		}
		tt.work.Job = tt.job
		if got := Step(&tt.job, &tt.work, inv.Topology(), 1000, tt.jobs); off(got, tt.step) {
			t.Errorf("%s: a step of %v, want %v ms", tt.name, got, tt.step)
		}
		if got := Operation(&tt.job, &tt.work, inv.Topology(), tt.jobs); off(got, tt.operation) {
			t.Errorf("%s: an operation of %v, want %v ms", tt.name, got, tt.operation)
		}
	}
}

// TestClosest: hosts of one switch are nearest to each other, wherever others are.
func TestClosest(t *testing.T) {
	host := func(sw string, us int) inventory.Host {
		return inventory.Host{NICs: []inventory.NIC{{Switch: sw, Delay: time.Duration(us) * time.Microsecond}}}
	}
	for _, tt := range []struct {
		hosts []inventory.Host
		want  float64
	}{
		{nil, 0},
		{[]inventory.Host{host("a", 5)}, 0},
		{[]inventory.Host{host("a", 5), host("b", 1), host("b", 20), host("a", 7)}, 24e-6},
		{[]inventory.Host{host("a", 5), host("b", 1)}, 12e-6},
		{[]inventory.Host{{NICs: slices.Concat(host("a", 1).NICs, host("a", 1).NICs)}, host("a", 5), host("a", 5)}, 12e-6}, // two cables of one host
	} {
		if got := Closest(&inventory.Inventory{Hosts: tt.hosts}, func(n *inventory.NIC) float64 { return n.Delay.Seconds() }); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%d hosts: %v, want %v", len(tt.hosts), got, tt.want)
		}
	}
}

package spec

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
)

// FatTree is a cluster of equal racks under one core, in place of an inventory. Its
// defaults are those of NetPack's simulator (ASPLOS '24, section 6.1).
type FatTree struct {
	Racks int               `toml:"racks" default:"16"`       // each with a ToR switch
	Hosts int               `toml:"hosts" default:"16"`       // in a rack
	GPUs  int               `toml:"gpus" default:"4"`         // of a host
	Rate  inventory.BitRate `toml:"rate" default:"100Gbit/s"` // of every host's cable
	// Oversubscription is what a rack's hosts can send together, over what its ToR
	// switch can send to the core; at least 1.
	Oversubscription float64 `toml:"oversubscription" default:"1"`
	// PAT is the peak aggregation throughput of each ToR switch; 0: nothing is aggregated.
	PAT    inventory.BitRate  `toml:"pat" default:"1Tbit/s"`
	Delay  inventory.Duration `toml:"delay" default:"5us"`   // of every cable
	Buffer inventory.Bytes    `toml:"buffer" default:"8MiB"` // of each egress port
	ECN    inventory.Bytes    `toml:"ecn" default:"256KiB"`  // egress queue length above which packets are marked
}

// Limits of a fat tree: what an inventory can name, and what a simulation is for.
const (
	maxRacks = 4096
	maxHosts = 1 << 17 // in all racks
)

// Check implements topology.
func (t *FatTree) Check(c *Checker) {
	between := func(key string, n, most int) {
		if (n < 1 || n > most) && !c.Reported("fat_tree."+key) {
			c.Problemf("fat_tree."+key, "", "%s must be 1 to %d", key, most)
		}
	}
	between("racks", t.Racks, maxRacks)
	between("hosts", t.Hosts, maxHosts/max(1, min(t.Racks, maxRacks)))
	between("gpus", t.GPUs, inventory.MostGPUs)
	Positive(c, "fat_tree.rate", t.Rate)
	Positive(c, "fat_tree.delay", t.Delay)
	if t.Oversubscription < 1 && !c.Reported("fat_tree.oversubscription") {
		c.Problemf("fat_tree.oversubscription", "1 is full bisection", "oversubscription must be at least 1")
	}
	if t.PAT < 0 && !c.Reported("fat_tree.pat") {
		c.Problemf("fat_tree.pat", "", "pat must not be negative")
	}
}

// Config is the tree as policies see it. Delays, which only simulators look at, are those of its inventory.
func (t *FatTree) Config() cluster.Config {
	c := cluster.FatTree(t.Racks, t.Hosts, t.GPUs, float64(t.Rate), float64(t.PAT), t.Oversubscription)
	if t.Racks == 1 {
		c.Racks[0].Uplink = math.Inf(1)
	}
	return c
}

// key implements topology.
func (t *FatTree) key() string { return fmt.Sprintf("fat_tree %+v", *t) }

// inventory is the tree with names: ToR switches tor1, tor2, ..., the hosts of the first
// r1h1, r1h2, ..., and a switch core that aggregates nothing.
func (t *FatTree) inventory() (*inventory.Inventory, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d racks of %d hosts with %d GPUs, 1:%g oversubscribed, PAT %v.\n", t.Racks, t.Hosts, t.GPUs, t.Oversubscription, t.PAT)
	fmt.Fprintf(&b, "version = 1\nname = \"fat-tree\"\n\n[defaults]\nkind = \"soft\"\nrate = %q\ndelay = %q\ngpus = %d\n", t.Rate, t.Delay, t.GPUs)
	fmt.Fprintf(&b, "\n[[switch]]\nname = \"tor[1-%d]\"\naggregators = %d\nbuffer = %q\necn = %q\n", t.Racks, t.aggregators(float64(t.Rate), 1), t.Buffer, t.ECN)
	for r := 1; r <= t.Racks; r++ {
		fmt.Fprintf(&b, "\n[[host]]\nname = \"r%dh[1-%d]\"\nrack = \"r%d\"\nnic = {port = \"tor%d/[1-%d]\"}\n", r, t.Hosts, r, r, t.Hosts)
	}
	if t.Racks > 1 {
		fmt.Fprintf(&b, "\n[[switch]]\nname = \"core\"\nbuffer = %q\necn = %q\n", t.Buffer, t.ECN)
		up := inventory.BitRate(math.Round(float64(t.Rate) * float64(t.Hosts) / t.Oversubscription))
		fmt.Fprintf(&b, "\n[[link]]\na = \"tor[1-%d]/%d\"\nb = \"core/[1-%d]\"\nrate = %q\n", t.Racks, t.Hosts+1, t.Racks, up)
	}
	return inventory.Parse("fat_tree", []byte(b.String()))
}

// aggregators is the memory that makes a ToR switch's PAT what the spec says, where hosts
// are linked at a rate and factor is what divides all rates: PAT times the shortest time
// that an aggregator can be held.
func (t *FatTree) aggregators(rate, factor float64) int {
	return min(inventory.MostAggregators, placement.Memory(float64(t.PAT)/factor, rate, time.Duration(t.Delay)))
}

package spec

import (
	"fmt"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/tree"
)

// Clos is a fat-tree of switches in layers above hosts, in place of an inventory, whose
// switches aggregate for one job at a time (SHARP). Its defaults are those of MINA's
// simulator (INFOCOM '24, section V-A): 1,024 hosts and 320 Quantum-2 switches.
type Clos struct {
	Down []int `toml:"down"` // hosts or switches below a switch of each layer, the lowest first
	Up   []int `toml:"up"`   // switches above each of those
	// Rate is that of every cable. One way, a host reduces no faster with INA.
	Rate inventory.BitRate `toml:"rate" default:"100Gbit/s"`
	// Uplink is the rate of cables between switches instead; 0: none.
	Uplink    inventory.BitRate  `toml:"uplink"`
	Delay     inventory.Duration `toml:"delay" default:"5us"`                          // of every cable
	Exclusive string             `toml:"exclusive" default:"port" words:"port,switch"` // what one job at a time has for itself: a port, as of Quantum-2 (NDR), or a switch, as of Quantum (HDR)
	AtOnce    int                `toml:"at_once" default:"1"`                          // so many jobs have it at once instead
}

// maxClos is how many hosts a fat-tree may have.
const maxClos = 1 << 17

// Check implements topology.
func (t *Clos) Check(c *Checker) {
	if !c.Has("clos.down") && !c.Has("clos.up") {
		t.Down, t.Up = []int{8, 8, 16}, []int{1, 8, 8}
	}
	switch f, err := tree.NewFabric(t.Down, t.Up); {
	case c.Reported("clos.down") || c.Reported("clos.up"):
	case err != nil:
		c.KeyProblemf("clos", "write down = [8, 8, 16] and up = [1, 8, 8]", "%v", err)
	case f.Hosts() > maxClos:
		c.Problemf("clos.down", "", "%d hosts, at most %d", f.Hosts(), maxClos)
	}
	Positive(c, "clos.rate", t.Rate)
	Positive(c, "clos.uplink", t.Uplink)
	Positive(c, "clos.delay", t.Delay)
	if t.AtOnce < 1 && !c.Reported("clos.at_once") {
		c.Problemf("clos.at_once", "write sharing = \"never\" in [operations] to do without INA", "a %s that serves %d jobs at once is of no use", t.Exclusive, t.AtOnce)
	}
}

// Limits are how many jobs a switch and a port serve at once.
func (t *Clos) Limits() (perSwitch, perLink int) {
	if t.Exclusive == "switch" {
		return t.AtOnce, tree.Unlimited
	}
	return tree.Unlimited, t.AtOnce
}

// inventory is the fat-tree with names.
func (t *Clos) inventory() (*inventory.Inventory, error) {
	return clos.Spec{
		Down: t.Down, Up: t.Up, Rate: t.Rate, Uplink: t.Uplink, Delay: time.Duration(t.Delay),
		Switch: fmt.Sprintf("kind = \"quantum\"\nsharp = {trees = 126, jobs = %d, resource = %q}\n", t.AtOnce, t.Exclusive),
	}.Inventory()
}

// key implements topology.
func (t *Clos) key() string { return fmt.Sprintf("clos %+v", *t) }

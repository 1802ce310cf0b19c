package clos

import (
	"fmt"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
)

// Spec is a fat-tree to make an inventory of, in which all switches are alike.
type Spec struct {
	Down, Up []int // as of tree.NewFabric
	Rate     inventory.BitRate
	Uplink   inventory.BitRate // of cables between switches; 0: Rate
	Delay    time.Duration
	GPUs     int    // of a host
	Switch   string // more lines for all switches, in TOML
}

// Inventory has hosts h1, h2, ... and switches leaf1, ..., spine1, ..., core1, ..., and
// above those tier4-1 and so on, numbered as the fabric numbers them. Ports of a switch are
// numbered from 1, those that lead down first.
func (s Spec) Inventory() (*inventory.Inventory, error) {
	f, err := tree.NewFabric(s.Down, s.Up)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# A fat-tree: %v below a switch of each layer, %v above.\nversion = 1\nname = \"clos\"\n\n", s.Down, s.Up)
	fmt.Fprintf(&b, "[defaults]\nkind = \"soft\"\nrate = %q\ndelay = %q\ngpus = %d\n", s.Rate, inventory.Duration(s.Delay), max(1, s.GPUs))
	pods := make([]int, f.Layers()+1) // how many, by layer
	pods[0] = f.Hosts()
	for l := 1; l <= f.Layers(); l++ {
		pods[l] = pods[l-1] / s.Down[l-1]
		fmt.Fprintf(&b, "\n[[switch]]\nname = \"%s[1-%d]\"\n%s", tier(l), pods[l]*f.Width(l), s.Switch)
	}
	for p := range pods[1] {
		first := p*s.Down[0] + 1
		fmt.Fprintf(&b, "\n[[host]]\nname = \"h[%d-%d]\"\nrack = \"rack%d\"\nnic = [", first, first+s.Down[0]-1, p+1)
		for w := range f.Width(1) {
			if w > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "{device = \"d%d\", port = \"%s%d/[1-%d]\"}", w, tier(1), p*f.Width(1)+w+1, s.Down[0])
		}
		b.WriteString("]\n")
	}
	uplink := ""
	if s.Uplink > 0 {
		uplink = fmt.Sprintf("rate = %q\n", s.Uplink)
	}
	for l := 2; l <= f.Layers(); l++ {
		below := f.Width(l - 1)
		for sub := range pods[l-1] {
			for w := range f.Width(l) {
				fmt.Fprintf(&b, "\n[[link]]\na = \"%s%d/%d\"\nb = \"%s%d/%d\"\n%s",
					tier(l-1), sub*below+w%below+1, s.Down[l-2]+w/below+1,
					tier(l), sub/s.Down[l-1]*f.Width(l)+w+1, sub%s.Down[l-1]+1, uplink)
			}
		}
	}
	return inventory.Parse("clos", []byte(b.String()))
}

func tier(l int) string {
	if names := []string{"leaf", "spine", "core"}; l <= len(names) {
		return names[l-1]
	}
	return fmt.Sprintf("tier%d-", l)
}

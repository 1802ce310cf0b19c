package ibfabric

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/inventory"
)

// Each generation has its own numbers, or none: never those of another.
func TestGenerations(t *testing.T) {
	lane := func(name string) map[int]*Port { return map[int]*Port{1: {Speed: Speed{Lane: name, Width: 4}}} }
	for _, test := range []struct {
		name  string
		node  Node
		known bool
		want  inventory.SHARP
		says  string
	}{
		{"Switch-IB 2", Node{Device: 0xcf08}, true, inventory.SHARP{}, "Switch-IB 2 (EDR). How many trees it has is not published"},
		{"Quantum", Node{Device: 0xd2f0}, true, inventory.SHARP{Trees: 126, Jobs: 1, Resource: "switch"}, "Quantum (HDR). SHARP is assumed: 126 trees, 63 of them streaming"},
		{"Quantum-2", Node{Device: 0xd2f2}, true, inventory.SHARP{Trees: 1023, Jobs: 1, Resource: "port"}, "1023 trees, 511 of them streaming, and one such job at a time on a port"},
		{"Quantum-2 with old cables", Node{Device: 0xd2f2, Ports: lane("HDR")}, true, inventory.SHARP{Trees: 1023, Jobs: 1, Resource: "port"}, "Quantum-2"},
		{"Quantum-3", Node{Device: 0xd2f4}, true, inventory.SHARP{}, "Quantum-3 (XDR). How many trees it has is not published"},
		{"NDR links", Node{Ports: lane("NDR")}, true, inventory.SHARP{Trees: 1023, Jobs: 1, Resource: "port"}, "Quantum-2 (NDR), by its links"},
		{"XDR links", Node{Ports: lane("XDR")}, true, inventory.SHARP{}, "Quantum-3 (XDR), by its links"},
		{"a device nobody knows, with links that somebody does", Node{Device: 0xd2f6, Ports: lane("NDR")}, false, inventory.SHARP{}, ""},
		{"nothing", Node{}, false, inventory.SHARP{}, ""},
	} {
		g, known := test.node.generation()
		if known != test.known {
			t.Errorf("%s: known %v", test.name, known)
		}
		if !known {
			continue
		}
		if got, note := g.sharp(); got != test.want || !strings.Contains(note, test.says) {
			t.Errorf("%s: %+v, %q, want %+v, %q", test.name, got, note, test.want, test.says)
		}
	}
	for id, g := range generations {
		if (g.trees == 0) != (g.resource == "") || 2*g.streaming > g.trees {
			t.Errorf("%#x: %+v", id, g)
		}
	}
}

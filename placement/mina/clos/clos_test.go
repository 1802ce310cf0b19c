package clos

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
)

var seed = flag.Uint64("clos.seed", 1, "of shuffled inventories")

func generate(t *testing.T, down, up []int) *inventory.Inventory {
	t.Helper()
	inv, err := Spec{Down: down, Up: up, Rate: 100e9, Delay: time.Microsecond}.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

var shapes = []struct{ down, up []int }{
	{[]int{4}, []int{1}},
	{[]int{2, 2}, []int{1, 3}}, // 4 hosts, 5 switches
	{[]int{2, 3}, []int{2, 2}}, // two NICs a host
	{[]int{2, 2, 2}, []int{1, 2, 2}},
	{[]int{3, 2, 4}, []int{1, 2, 3}},
	{[]int{2, 1, 2, 3}, []int{1, 3, 1, 2}},
	{[]int{8, 8, 16}, []int{1, 8, 8}},
}

// What is recognised is what was made, whatever the order of the file: on the way of every
// root, link after link and switch after switch follow on each other from every host.
func TestRoundTrip(t *testing.T) {
	t.Logf("-clos.seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for _, shape := range shapes {
		t.Run(fmt.Sprint(shape.down, shape.up), func(t *testing.T) {
			inv := generate(t, shape.down, shape.up)
			for range 5 {
				check(t, inv, shape.down, shape.up)
				rng.Shuffle(len(inv.Hosts), func(i, j int) { inv.Hosts[i], inv.Hosts[j] = inv.Hosts[j], inv.Hosts[i] })
				rng.Shuffle(len(inv.Switches), func(i, j int) { inv.Switches[i], inv.Switches[j] = inv.Switches[j], inv.Switches[i] })
				rng.Shuffle(len(inv.Links), func(i, j int) { inv.Links[i], inv.Links[j] = inv.Links[j], inv.Links[i] })
				inv = inv.Clone()
			}
		})
	}
}

func check(t *testing.T, inv *inventory.Inventory, down, up []int) {
	t.Helper()
	c, err := Of(inv)
	if err != nil {
		t.Fatal(err)
	}
	want, err := tree.NewFabric(down, up)
	if err != nil {
		t.Fatal(err)
	}
	f := c.Fabric
	if f.Hosts() != want.Hosts() || f.Switches() != want.Switches() || f.Resources() != want.Resources() {
		t.Fatalf("%d hosts, %d switches, %d resources", f.Hosts(), f.Switches(), f.Resources())
	}
	for h, name := range c.Hosts {
		if i, ok := c.Host(name); !ok || i != h {
			t.Fatalf("host %s is %d, not %d", name, i, h)
		}
		for u := range f.Width(f.Layers()) {
			at := name
			for l := 1; l <= f.Layers(); l++ {
				link := c.topo.Links[c.up[f.Link(l, h, u)-f.Switches()]]
				if link.From != at || link.To != c.Resource(f.Switch(l, h, u)) {
					t.Fatalf("way %d of %s: link %s follows on %s and leads to %s", u, name, link.Name, at, c.Resource(f.Switch(l, h, u)))
				}
				at = link.To
			}
		}
	}
	seen := map[string]bool{}
	for r := range f.Resources() {
		if n := c.Resource(r); n == "" || seen[n] {
			t.Fatalf("resource %d is %q", r, n)
		} else {
			seen[n] = true
		}
	}
	root := f.Width(f.Layers()) - 1
	hosts := []int{0, f.Hosts() - 1}
	plan := f.Tree(hosts, root)
	nodes := c.Tree(plan)
	if len(nodes) != len(plan.Switches) || nodes[len(nodes)-1].Up != nil {
		t.Fatalf("tree %+v", nodes)
	}
	links := 0
	for i, n := range nodes {
		links += len(n.Down)
		if (n.Up == nil) != (i == len(nodes)-1) {
			t.Errorf("%s: up %v", n.Switch, n.Up)
		}
	}
	if links != len(plan.Links) {
		t.Errorf("%d links, not %d", links, len(plan.Links))
	}
}

func TestIrregular(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(inv *inventory.Inventory)
		want   string
	}{
		{"a link is missing", func(inv *inventory.Inventory) { inv.Links = inv.Links[1:] }, "cables up"},
		{"a host is missing", func(inv *inventory.Inventory) { inv.Hosts = inv.Hosts[1:] }, "below"},
		{"a host elsewhere", func(inv *inventory.Inventory) {
			i := slices.IndexFunc(inv.Hosts, func(h inventory.Host) bool { return h.NICs[0].Switch == "leaf2" })
			inv.Hosts[i].NICs[0].Switch = "leaf1"
			inv.Hosts[i].NICs[0].Port = 9
		}, "below"},
		{"two cables", func(inv *inventory.Inventory) { inv.Links[1].B.Switch = inv.Links[0].B.Switch }, ""},
		{"a switch apart", func(inv *inventory.Inventory) {
			inv.Switches = append(inv.Switches, inventory.Switch{Name: "lonely", Kind: "soft"})
		}, "lonely"},
		{"leaves joined", func(inv *inventory.Inventory) {
			inv.Links = append(inv.Links, inventory.Link{A: inventory.Port{Switch: "leaf1", Port: 20}, B: inventory.Port{Switch: "leaf2", Port: 20}, Rate: 1e9})
		}, "joins layers"},
		{"no switches", func(inv *inventory.Inventory) { inv.Switches, inv.Links, inv.Hosts = nil, nil, nil }, "no switches"},
	} {
		inv := generate(t, []int{2, 2, 2}, []int{1, 2, 2})
		c.change(inv)
		inv = inv.Clone()
		if _, err := Of(inv); !errors.Is(err, ErrIrregular) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

package cluster

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// Three servers under one ToR: two workers and a PS share nothing but the switch.
func TestSteadyState(t *testing.T) {
	c := New(FatTree(2, 3, 4, 100, 1000, 1))
	enter := func(id int, p Placement) {
		t.Helper()
		j := Job{ID: id}
		for _, w := range p.Parts {
			j.GPUs += w.GPUs
		}
		if err := c.Enter(j, p); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 && got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	enter(1, Placement{Parts: []Part{{0, 2}, {1, 2}}, PS: []int{2}})
	want("alone", c.Rate(1), 100)
	want("flows at the PS, aggregated", float64(c.Flows(2)), 1)
	if err := c.SetPlain(1, []int{0}); err != nil {
		t.Fatal(err)
	}
	want("not aggregated", c.Rate(1), 50)
	want("flows at the PS, not aggregated", float64(c.Flows(2)), 2)
	want("left at a worker", c.Bandwidth(0), 50)
	enter(2, Placement{Parts: []Part{{3, 4}}})
	want("on one server", c.Rate(2), math.Inf(1))
	want("free", float64(c.TotalFree()), 24-8)
	enter(3, Placement{Parts: []Part{{0, 1}, {4, 4}}, PS: []int{5}})
	want("across racks", c.Rate(3), 50)
	want("across racks, flows up", float64(c.UplinkFlows(0)), 1)
	for id := 1; id <= 3; id++ {
		if err := c.Leave(id); err != nil {
			t.Fatal(err)
		}
	}
	want("empty", c.Bandwidth(0), 100)
	want("all free", float64(c.TotalFree()), 24)
	if err := c.Leave(3); !errors.Is(err, ErrNoJob) {
		t.Errorf("left twice: %v", err)
	}
}

// Nothing that does not fit is entered, and nothing changes then.
func TestEnterRefuses(t *testing.T) {
	c := New(FatTree(1, 3, 2, 100, 0, 1))
	if err := c.Enter(Job{ID: 1, GPUs: 1}, Placement{Parts: []Part{{0, 1}}}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		j Job
		p Placement
	}{
		"the same job again":      {Job{ID: 1, GPUs: 1}, Placement{Parts: []Part{{1, 1}}}},
		"nowhere":                 {Job{ID: 2}, Placement{}},
		"less than none":          {Job{ID: 2}, Placement{Parts: []Part{{1, -1}, {2, 1}}}},
		"too few":                 {Job{ID: 2, GPUs: 3}, Placement{Parts: []Part{{1, 2}}}},
		"more than are free":      {Job{ID: 2, GPUs: 2}, Placement{Parts: []Part{{0, 2}}}},
		"more than there are":     {Job{ID: 2, GPUs: 3}, Placement{Parts: []Part{{1, 3}}}},
		"a server twice":          {Job{ID: 2, GPUs: 2}, Placement{Parts: []Part{{1, 1}, {1, 1}}, PS: []int{0}}},
		"no such server":          {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{3, 1}}}},
		"no PS":                   {Job{ID: 2, GPUs: 4}, Placement{Parts: []Part{{1, 2}, {2, 2}}}},
		"a PS for one server":     {Job{ID: 2, GPUs: 2}, Placement{Parts: []Part{{1, 2}}, PS: []int{2}}},
		"a PS for a ring":         {Job{ID: 2, GPUs: 4, Traffic: Ring}, Placement{Parts: []Part{{1, 2}, {2, 2}}, PS: []int{0}}},
		"a PS nowhere":            {Job{ID: 2, GPUs: 4}, Placement{Parts: []Part{{1, 2}, {2, 2}}, PS: []int{-1}}},
		"plain in no rack at all": {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Plain: []int{1}}},
		"spare beside its own":    {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Spare: []Part{{1, 2}}}},
		"spare that are taken":    {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Spare: []Part{{0, 2}}}},
		"spare less than none":    {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Spare: []Part{{2, -1}}}},
		"spare nowhere":           {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Spare: []Part{{3, 1}}}},
		"spare twice":             {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Spare: []Part{{2, 1}, {2, 1}}}},
		"ranks elsewhere":         {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Ranks: []int{2}}},
		"ranks elsewhere, too":    {Job{ID: 2, GPUs: 1}, Placement{Parts: []Part{{1, 1}}, Ranks: []int{1, 2}}},
	} {
		if err := c.Enter(tt.j, tt.p); !errors.Is(err, ErrPlacement) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.Jobs() != 1 || c.TotalFree() != 5 || c.Free(0) != 1 || c.Free(1) != 2 {
		t.Errorf("%d jobs, %d GPUs free, %d and %d", c.Jobs(), c.TotalFree(), c.Free(0), c.Free(1))
	}
}

// A link is full duplex: what a ring sends and what it receives do not meet. A rack's link
// carries as many streams as leave the rack.
func TestRingIsDuplex(t *testing.T) {
	parts := func(servers ...int) (p []Part) {
		for _, s := range servers {
			p = append(p, Part{s, 1})
		}
		return p
	}
	for _, tt := range []struct {
		name      string
		at        []Part
		rate      float64
		uplink    int // flows
		leftOfOne float64
	}{
		{"two servers of a rack", parts(0, 1), 100, 0, 0},
		{"a whole rack", parts(0, 1, 2, 3), 100, 0, 0},
		{"one of each rack: each leaves its own once", parts(0, 4), 75, 1, 25},
		{"two of each rack, rack by rack", parts(0, 1, 4, 5), 75, 1, 25},
		{"two of each rack, in turn: each rack is left twice", parts(0, 4, 1, 5), 37.5, 2, 62.5},
	} {
		cfg := FatTree(2, 4, 2, 100, 0, 1)
		cfg.Racks[0].Uplink, cfg.Racks[1].Uplink = 75, 75
		c := New(cfg)
		if err := c.Enter(Job{ID: 1, GPUs: len(tt.at), Traffic: Ring}, Placement{Parts: tt.at}); err != nil {
			t.Fatal(err)
		}
		if c.Rate(1) != tt.rate || c.UplinkFlows(0) != tt.uplink || c.UplinkFlows(1) != tt.uplink || c.Flows(0) != 1 || c.Bandwidth(0) != tt.leftOfOne {
			t.Errorf("%s: %v, %d and %d flows between racks, %d and %v left at a server", tt.name,
				c.Rate(1), c.UplinkFlows(0), c.UplinkFlows(1), c.Flows(0), c.Bandwidth(0))
		}
	}
	// A worker of an INA job sends by the direction by which the ring sends, and both share it.
	c := New(FatTree(1, 3, 2, 100, math.Inf(1), 1))
	for id, p := range []Placement{{Parts: parts(0, 1)}, {Parts: parts(0, 1), PS: []int{2}}} {
		traffic := []Traffic{Ring, INA}[id]
		if err := c.Enter(Job{ID: id, GPUs: 2, Traffic: traffic}, p); err != nil {
			t.Fatal(err)
		}
	}
	if c.Rate(0) != 50 || c.Rate(1) != 50 {
		t.Errorf("a ring and INA share two links: %v and %v", c.Rate(0), c.Rate(1))
	}
}

// Spare GPUs are nobody else's, and come back with the others; who watches hears of them.
func TestSpare(t *testing.T) {
	c := New(FatTree(1, 3, 4, 100, 0, 1))
	watch := c.Subscribe()
	defer watch.Close()
	p := Placement{Parts: []Part{{0, 2}, {1, 1}}, Spare: []Part{{1, 3}, {2, 1}}, Ranks: []int{0, 1, 0}}
	if err := c.Enter(Job{ID: 1, GPUs: 3, Traffic: Ring}, p); err != nil {
		t.Fatal(err)
	}
	if c.Free(0) != 2 || c.Free(1) != 0 || c.Free(2) != 3 || c.TotalFree() != 5 {
		t.Errorf("%d, %d and %d GPUs are free, %d in all", c.Free(0), c.Free(1), c.Free(2), c.TotalFree())
	}
	if got := len(watch.Servers()); got != 3 {
		t.Errorf("%d servers changed, want 3", got)
	}
	if _, at, _ := c.Placement(1); !slices.Equal(at.ServerOf(), []int{0, 1, 0}) {
		t.Errorf("its ranks are on %v", at.ServerOf())
	}
	if err := c.Leave(1); err != nil || c.TotalFree() != 12 || c.Free(2) != 4 {
		t.Errorf("after it left %d are free, %d of them on server 2 (%v)", c.TotalFree(), c.Free(2), err)
	}
	if got := (Placement{Parts: []Part{{2, 2}, {0, 1}}}).ServerOf(); !slices.Equal(got, []int{2, 2, 0}) {
		t.Errorf("without ranks they are on %v", got)
	}
}

// What is kept with a cluster is made once for each key, and is not part of a clone.
func TestKeep(t *testing.T) {
	c := New(FatTree(1, 1, 1, 1, 1, 1))
	type key struct{}
	type other struct{}
	made := 0
	get := func(c *Cluster, key any) int {
		return c.Keep(key, func() any { made++; return made }).(int)
	}
	for _, tt := range []struct {
		c    *Cluster
		key  any
		want int
	}{{c, key{}, 1}, {c, other{}, 2}, {c, key{}, 1}, {c.Clone(), key{}, 3}, {c, other{}, 2}} {
		if got := get(tt.c, tt.key); got != tt.want {
			t.Errorf("%T: %d, want %d", tt.key, got, tt.want)
		}
	}
}

// Without a PS the ToR switch with most of the servers adds up: the others send it one flow each.
func TestRoot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []int // of three racks of three
		root    int
		uplinks [3]int // flows
	}{
		{"one rack", []int{3, 4}, 1, [3]int{}},
		{"the middle has most", []int{0, 3, 4, 5, 6}, 1, [3]int{1, 2, 1}},
		{"the last has most", []int{0, 6, 7, 3}, 2, [3]int{1, 1, 2}},
		{"of equals the first", []int{6, 3}, 1, [3]int{0, 1, 1}},
	} {
		var parts []Part
		for _, s := range tt.servers {
			parts = append(parts, Part{s, 1})
		}
		c := New(FatTree(3, 3, 1, 100, 1000, 4))
		if err := c.Enter(Job{ID: 1, GPUs: len(parts), Traffic: Tree}, Placement{Parts: parts}); err != nil {
			t.Fatal(err)
		}
		flows := [3]int{c.UplinkFlows(0), c.UplinkFlows(1), c.UplinkFlows(2)}
		if root := c.Root(parts); root != tt.root || flows != tt.uplinks {
			t.Errorf("%s: %d, %v flows, want %d, %v", tt.name, root, flows, tt.root, tt.uplinks)
		}
	}
}

package netpack

import (
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/cluster"
)

// selected enters jobs where they are said to go and returns where they go without
// aggregation after step 4.
func selected(t *testing.T, cfg cluster.Config, places ...cluster.Placement) (plain [][]int) {
	t.Helper()
	c := cluster.New(cfg)
	p := newPlanner(c)
	p.start(Options{})
	var batch []cluster.Job
	for i := range places {
		j := cluster.Job{ID: i, PSes: len(places[i].PS)}
		for _, w := range places[i].Parts {
			j.GPUs += w.GPUs
		}
		places[i].Plain = p.plain(places[i])
		if err := c.Enter(j, places[i]); err != nil {
			t.Fatal(err)
		}
		p.entered(j, places[i])
		batch = append(batch, j)
	}
	p.selectINA(batch, places)
	for i := range places {
		_, at, _ := c.Placement(i)
		if !slices.Equal(at.Plain, places[i].Plain) {
			t.Errorf("job %d: returned %v, runs %v", i, places[i].Plain, at.Plain)
		}
		plain = append(plain, at.Plain)
	}
	return plain
}

// on is a placement with one GPU on each of some servers.
func on(ps []int, servers ...int) cluster.Placement {
	p := cluster.Placement{PS: ps}
	for _, s := range servers {
		p.Parts = append(p.Parts, cluster.Part{Server: s, GPUs: 1})
	}
	return p
}

// sixRacks of two servers: 2r and 2r+1 are in rack r. Only the last rack's memory is scarce.
func sixRacks(pat float64) cluster.Config {
	cfg := cluster.FatTree(6, 2, 1, 100, 1e4, 1)
	cfg.Racks[5].PAT = pat
	return cfg
}

// Two jobs meet only in the rack of their PSes. The one with the smaller fan-in there
// goes without aggregation, whichever comes first.
func TestSelectionAtPS(t *testing.T) {
	for _, tt := range [][2]cluster.Placement{
		{on([]int{10}, 0, 2), on([]int{11}, 4, 6, 8)},
		{on([]int{10}, 0, 2, 4), on([]int{11}, 6, 8)},
	} {
		for i, plain := range selected(t, sixRacks(40), tt[0], tt[1]) {
			if want := len(tt[i].Parts) == 2; slices.Contains(plain, 5) != want {
				t.Errorf("%d workers: plain at %v, at rack 5: want %v", len(tt[i].Parts), plain, want)
			}
		}
	}
}

// Memory that is used up but for what rounding leaves is used up: six jobs share 2C, a
// third of C each, and send 2C/3, so three of them use it up.
func TestSelectionRounding(t *testing.T) {
	for _, link := range []float64{0.1, 0.3, 1, 7, 10, 25, 100, 1e9, 25e9, 1e11} {
		var places []cluster.Placement
		for i := range 6 {
			places = append(places, on([]int{3*i + 2}, 3*i, 3*i+1))
		}
		with := 0
		for _, plain := range selected(t, cluster.FatTree(1, 18, 1, link, 2*link, 1), places...) {
			if len(plain) == 0 {
				with++
			}
		}
		if with != 3 {
			t.Errorf("links of %v: %d jobs aggregate, want 3", link, with)
		}
	}
}

// A job with two PSes sends half its gradients to each: of the memory at one of them, 90,
// it takes 50, and a job with one PS gets the rest.
func TestSelectionSeveralPS(t *testing.T) {
	cfg := cluster.FatTree(6, 8, 1, 100, 1e4, 1)
	cfg.Racks[4].PAT, cfg.Racks[5].PAT = 90, 90
	for i, plain := range selected(t, cfg, on([]int{32, 40}, 0, 8), on([]int{41}, 16, 24)) {
		if slices.Contains(plain, 5) {
			t.Errorf("job %d is plain at %v", i, plain)
		}
	}
}

// A job that has nothing to add up in a rack says nothing about the memory there.
func TestSelectionSingleFlow(t *testing.T) {
	cfg := cluster.FatTree(3, 4, 1, 100, 1e4, 1)
	plain := selected(t, cfg, on([]int{8}, 0, 4), on([]int{9}, 1, 2, 5))
	if slices.Contains(plain[1], 0) {
		t.Errorf("two workers are plain at their rack: %v", plain)
	}
}

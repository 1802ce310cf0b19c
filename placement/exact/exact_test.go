package exact_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact"
)

var (
	seed = flag.Uint64("exact.seed", 0, "seed of the random instances; 0: from the clock")
	gap  = flag.Int("exact.gap", 5, "instances per cell of TestGap; 200 is the full size")
)

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -exact.seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// everything is the least cost over every way to deal the GPUs, with every PS and, if
// wanted, every choice of switches: nothing left out.
func everything(t *testing.T, in exact.Instance, sel bool) float64 {
	c, err := in.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	best := math.Inf(1)
	n := len(in.Config.Servers)
	var place func(k int, places []cluster.Placement)
	var deal func(k, server, left int, p cluster.Placement, places []cluster.Placement)
	place = func(k int, places []cluster.Placement) {
		if k == len(in.Batch) {
			cost, err := in.Cost(places)
			if err != nil {
				t.Fatal(err)
			}
			best = min(best, cost)
			return
		}
		deal(k, 0, in.Batch[k].GPUs, cluster.Placement{}, places)
	}
	deal = func(k, server, left int, p cluster.Placement, places []cluster.Placement) {
		if server < n {
			for g := range min(left, c.Free(server)) + 1 {
				p := p.Clone()
				if g > 0 {
					p.Parts = append(p.Parts, cluster.Part{Server: server, GPUs: g})
				}
				deal(k, server+1, left-g, p, places)
			}
			return
		}
		if left > 0 {
			return
		}
		choices := 1
		if sel {
			choices = 1 << len(in.Config.Racks)
		}
		for choice := range choices {
			p := p.Clone()
			for r := range in.Config.Racks {
				if choice>>r&1 != 0 {
					p.Plain = append(p.Plain, r)
				}
			}
			for ps := range n {
				if p.PS = nil; len(p.Parts) > 1 {
					p.PS = []int{ps}
				}
				if err := c.Enter(in.Batch[k], p); err != nil {
					t.Fatal(err)
				}
				place(k+1, append(slices.Clone(places), p))
				if err := c.Leave(in.Batch[k].ID); err != nil {
					t.Fatal(err)
				}
				if len(p.PS) == 0 {
					break
				}
			}
		}
	}
	place(0, nil)
	return best
}

// Symmetry and bounds rule out nothing that is better.
func TestSolveMissesNothing(t *testing.T) {
	rnd := random(t)
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for n := range rounds {
		racks := 1 + n%2
		cfg := cluster.FatTree(racks, 4/racks, 2, 1, []float64{0, 0.3, 0.5, 1, math.Inf(1)}[rnd.IntN(5)], []float64{1, 3}[rnd.IntN(2)])
		in := exact.Random(rnd, cfg)
		in.Batch = in.Batch[:min(2, len(in.Batch))]
		if len(in.Batch) == 0 {
			continue
		}
		sel := rnd.IntN(4) == 0
		got, err := exact.Solve(t.Context(), in, exact.Options{SelectINA: sel})
		if err != nil {
			t.Fatalf("%v\n%v", err, &in)
		}
		want := everything(t, in, sel)
		cost, err := in.Cost(got.Places)
		if err != nil || math.Abs(got.Cost-want) > 1e-6*want || math.Abs(cost-want) > 1e-6*want {
			t.Errorf("cost %v, its placement's %v (%v), the least %v, selective %v\n%v%v", got.Cost, cost, err, want, sel, &in, got.Places)
		}
	}
}

// cells are the settings of TestGap.
func cells() (out []cluster.Config) {
	for _, racks := range []int{1, 2} {
		for _, pat := range []float64{0, 0.5, 1} {
			out = append(out, cluster.FatTree(racks, 6/racks, 4, 1e11, pat*1e11, 1))
		}
	}
	return out
}

func policies() []cluster.Policy { return baseline.All() }

// How far every policy is from the optimum (-exact.gap 200 -v for the full table).
func TestGap(t *testing.T) {
	rnd := random(t)
	for _, cfg := range cells() {
		name := fmt.Sprintf("%d racks, PAT %v link", len(cfg.Racks), cfg.Racks[0].PAT/cfg.Servers[0].Link)
		t.Run(name, func(t *testing.T) {
			var instances []exact.Instance
			for range *gap {
				instances = append(instances, exact.Random(rnd, cfg))
			}
			start := time.Now()
			table, err := exact.Gap(t.Context(), policies(), instances, exact.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range table.Rows {
				if r.Unplaced > 0 {
					t.Errorf("%s leaves jobs without a place though all fit", r.Policy)
				}
			}
			t.Logf("%d instances in %v, %d cost nothing at best\n%v", table.Instances, time.Since(start), table.Free, table)
		})
	}
}

func TestSolveRefuses(t *testing.T) {
	four := cluster.FatTree(1, 4, 2, 1, 1, 1)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	large := exact.Random(rand.New(rand.NewPCG(2, 0)), cluster.FatTree(1, 10, 4, 1, 0, 1))
	for name, tt := range map[string]struct {
		ctx  context.Context
		in   exact.Instance
		o    exact.Options
		want error
	}{
		"too many GPUs":    {t.Context(), exact.Instance{Config: four, Batch: []cluster.Job{{GPUs: 9}}}, exact.Options{}, exact.ErrInfeasible},
		"too many servers": {t.Context(), exact.Instance{Config: cluster.FatTree(1, 11, 1, 1, 1, 1)}, exact.Options{}, exact.ErrTooLarge},
		"too few nodes":    {t.Context(), large, exact.Options{Nodes: 10}, exact.ErrTooLarge},
		"cancelled":        {done, large, exact.Options{}, context.Canceled},
		"runs nowhere":     {t.Context(), exact.Instance{Config: four, Running: []exact.Running{{}}}, exact.Options{}, cluster.ErrPlacement},
	} {
		if s, err := exact.Solve(tt.ctx, tt.in, tt.o); !errors.Is(err, tt.want) || s.Places != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	s, err := exact.Solve(t.Context(), exact.Instance{Config: four}, exact.Options{})
	if err != nil || s.Cost != 0 || len(s.Places) != 0 {
		t.Errorf("nothing: %+v, %v", s, err)
	}
}

func TestParse(t *testing.T) {
	rnd := random(t)
	in := exact.Random(rnd, cluster.FatTree(2, 3, 4, 1e11, math.Inf(1), 2))
	again, err := exact.Parse(strings.NewReader("# as printed\n\n" + in.String()))
	if err != nil || again.String() != in.String() {
		t.Errorf("%v\n%v\n%v", err, &in, &again)
	}
	for text, want := range map[string]string{
		"rack 1 2\nsrever 0 1 1":                     "line 2",
		"rack 1":                                     "want 2",
		"rack 1 x":                                   `"x"`,
		"rack 1 1\nserver 0 1.5 1":                   "1.5",
		"rack 1 1\nserver 1 1 1":                     "rack 1 of 1",
		"rack 1 1\nserver 0 1 1\njob 0 1":            "no GPUs",
		"rack 1 1\nserver 0 1 1\nrun 1 0:2":          "1 are free",
		"rack 1 1\nserver 0 1 1\nrun 1":              "no part",
		"rack 1 1\nserver 0 1 1\nrun":                "want 1",
		"rack 1 1\nserver 0 1 1\njob 1 -1":           "-1",
		"rack 1 1\nserver 0 1 1\njob 1 1\nrun 1 0:1": "after the batch",
	} {
		if in, err := exact.Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || in.Config.Racks != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

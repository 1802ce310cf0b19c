package exact_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact"
	"github.com/inabench/inabench/placement/exact/cbc"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/testbed/testbedtest"
)

var (
	seed = flag.Uint64("exact.seed", 0, "seed of the random instances; 0: from the clock")
	gap  = flag.Int("exact.gap", 8, "instances per PAT of TestGap and BenchmarkGap; 200 is the full size")
	sel  = flag.Bool("exact.select", false, "the optimum of TestGap and BenchmarkGap chooses where switches aggregate")

	solve = flag.String("exact.solve", "enumeration", "how TestGap and BenchmarkGap find the optimum: enumeration, or milp with cbc")
	limit = flag.Duration("exact.limit", time.Minute, "time that cbc has for an instance")

	update = flag.Bool("update", false, "write testdata")
)

func random(t testing.TB) *rand.Rand {
	t.Helper()
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
	if !proof.Wanted() {
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

// GPUs that a running job keeps without a worker on them are nobody else's.
func TestSolveSpare(t *testing.T) {
	in, err := exact.Parse(strings.NewReader("rack 1 1\nserver 0 4 1\nserver 0 4 1\nrun 1 0:1 spare 0:2\njob 5 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := exact.Solve(t.Context(), in, exact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := in.Cost(got.Places); err != nil || math.Abs(cost-got.Cost) > 1e-9*cost {
		t.Errorf("%v costs %v (%v), and is said to cost %v", got.Places, cost, err, got.Cost)
	}
}

// pats are the PATs that gaps are told for, in parts of a server's link.
var pats = []float64{0, 0.5, 1}

// instances are random ones for a PAT, in clusters of four kinds in turn: one rack, two,
// two that are oversubscribed, three that are. Each has six servers of four GPUs.
func instances(rnd *rand.Rand, pat float64, n int) (out []exact.Instance) {
	const link = 1e11
	for i := range n {
		kind := []struct{ racks, oversubscription int }{{1, 1}, {2, 1}, {2, 4}, {3, 4}}[i%4]
		out = append(out, exact.Random(rnd, cluster.FatTree(kind.racks, 6/kind.racks, 4, link, pat*link, float64(kind.oversubscription))))
	}
	return out
}

// options are those of the flags. A short run is short.
func options(t testing.TB) exact.Options {
	t.Helper()
	o := exact.Options{SelectINA: *sel, Nodes: 50_000 * *gap}
	switch *solve {
	case "enumeration":
	case "milp":
		solver, err := cbc.Find()
		testbedtest.Require(t, "cbc", err)
		o.Solver, o.Limit = solver, *limit
	default:
		t.Fatalf("-exact.solve %s: enumeration or milp", *solve)
	}
	return o
}

func policies() []cluster.Policy {
	return append(baseline.All(),
		netpack.New(netpack.Options{Variant: netpack.Published}), netpack.New(netpack.Options{}), netpack.Plus(netpack.Options{}),
		titan.New(titan.Options{Reading: titan.Published}), titan.New(titan.Options{}),
		baseline.ElasticFlow(), baseline.ElasticFlow().PowerOfTwo(), baseline.ElasticFlowClosest(), baseline.ElasticFlowIdle(), baseline.HiveD(), baseline.Tiresias(0))
}

// How far every policy is from the optimum (-exact.gap 200 -v for the full table). With
// -update, the instances that are worst for NetPack's go into testdata.
func TestGap(t *testing.T) {
	proof.Only(t, "exact optima of random problems")
	rnd := random(t)
	for _, pat := range pats {
		t.Run(fmt.Sprintf("PAT %v link", pat), func(t *testing.T) {
			all := instances(rnd, pat, *gap)
			start := time.Now()
			table, err := exact.Gap(t.Context(), policies(), all, options(t))
			if err != nil {
				t.Fatal(err)
			}
			mean := map[string]float64{}
			for _, r := range table.Rows {
				mean[r.Policy] = r.Mean
				if r.Unplaced > 0 {
					t.Errorf("%s leaves jobs without a place though all fit", r.Policy)
				}
				if *update && r.WorstAt >= 0 && (r.Policy == "netpack" || r.Policy == "netpack+") {
					text := fmt.Sprintf("# The worst of %d for %s, seed %d.\n%v", *gap, r.Policy, *seed, &all[r.WorstAt])
					if err := os.WriteFile(fmt.Sprintf("testdata/%s-pat%v.txt", r.Policy, pat), []byte(text), 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
			if mean["netpack+"] > mean["netpack"]+1e-9 {
				t.Errorf("netpack+ is at %v, netpack at %v: the search made it worse", mean["netpack+"], mean["netpack"])
			}
			t.Logf("%d instances in %v, %d cost nothing at best, %d too large\n%v", table.Instances, time.Since(start), table.Free, table.Unsolved, table)
		})
	}
}

// The instances that were worst for a policy, and how many times the optimum they cost with
// it. No policy may become worse there; -update keeps what is better. The optimum is exact.
func TestWorst(t *testing.T) {
	const golden = "testdata/worst.golden"
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no instances: ", err)
	}
	kept, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	was := map[string]float64{}
	for line := range strings.Lines(string(kept)) {
		var file, policy string
		var ratio float64
		if _, err := fmt.Sscan(line, &file, &policy, &ratio); err != nil {
			t.Fatalf("%s: %q: %v", golden, line, err)
		}
		was[file+" "+policy] = ratio
	}
	var now strings.Builder
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		in, err := exact.Parse(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		table, err := exact.Gap(t.Context(), policies(), []exact.Instance{in}, exact.Options{SelectINA: *sel})
		if err != nil || table.Unsolved > 0 {
			t.Fatalf("%s: %v, %d too large", file, err, table.Unsolved)
		}
		fmt.Fprintf(&now, "%s optimum %.9g\n", filepath.Base(file), table.Optimal[0])
		if want := was[filepath.Base(file)+" optimum"]; !*update && math.Abs(table.Optimal[0]-want) > 1e-6*want {
			t.Errorf("%s: the optimum is %.9g, was %.9g", file, table.Optimal[0], want)
		}
		for _, r := range table.Rows {
			if !strings.HasPrefix(r.Policy, "netpack") {
				continue
			}
			fmt.Fprintf(&now, "%s %s %.4f\n", filepath.Base(file), r.Policy, r.Worst)
			if want := was[filepath.Base(file)+" "+r.Policy]; !*update && !(r.Worst <= want+1e-4) {
				t.Errorf("%s: %s costs %.4f times the optimum, was %.4f", file, r.Policy, r.Worst, want)
			}
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(now.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkGap is how far every policy is from the optimum, as the cost with it over the
// least, and how long it takes for all of the batches together. The full table is that of
//
//	go test ./placement/exact -run '^$' -bench Gap -exact.gap 200 -exact.seed 1 -timeout 30m
func BenchmarkGap(b *testing.B) {
	rnd := random(b)
	for _, pat := range pats {
		all := instances(rnd, pat, *gap) // the same as TestGap's
		b.Run(fmt.Sprintf("PAT=%v", pat), func(b *testing.B) {
			table, err := exact.Gap(b.Context(), policies(), all, options(b))
			if err != nil {
				b.Fatal(err)
			}
			for k, p := range policies() {
				b.Run(p.Name(), func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						var clusters []*cluster.Cluster
						for i := range all {
							c, err := all[i].Cluster()
							if err != nil {
								b.Fatal(err)
							}
							clusters = append(clusters, c)
						}
						b.StartTimer()
						for i, c := range clusters {
							p.Place(c, all[i].Batch, uint64(i))
						}
					}
					r := table.Rows[k]
					b.ReportMetric(r.Median, "median")
					b.ReportMetric(r.Mean, "mean")
					b.ReportMetric(r.Tail, "p95")
					b.ReportMetric(r.Worst, "worst")
					b.ReportMetric(100*float64(r.Optimal)/float64(table.Instances), "%optimal")
					b.ReportMetric(float64(table.Unsolved), "unsolved")
				})
			}
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

package flow

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 1, "seed of the random problems; 0: from the clock")

func rng(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed %d", s)
	return rand.New(rand.NewPCG(s, 0))
}

func near(a, b, tol float64) bool {
	return math.Abs(a-b) <= tol*max(1, math.Abs(a), math.Abs(b))
}

func waterFill(t testing.TB, p *Problem) *Result {
	t.Helper()
	r, err := WaterFill(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// figure5 is the job of NetPack's Figure 5: two workers in each of four racks, a
// PS in rack p (here 1) on a server of its own, A1 < Ap < A3 < A4.
func figure5(rate float64) *Problem {
	pat := []float64{1, 2, 3, 4}
	ample := func(int) float64 { return 1000 }
	c := newClos(4, 3, ample, ample, func(r int) Switch { return Switch{PAT: pat[r]} })
	j := c.job([]int{0, 1, 3, 4, 6, 7, 9, 10}, 5)
	j.Limit = rate
	c.Jobs = []Job{j}
	return &c.Problem
}

func TestFigure5(t *testing.T) {
	// FC: flows from the network into the PS's ToR; FS: from there to the PS.
	const fc, fs = 2*12 + 2*1 + 1, 2*5 + 1
	for _, tt := range []struct{ c, fc, fs float64 }{
		{0.5, 3, 1},
		{1.5, 4, 1}, // the PS's ToR still sums what ToR 1 passes on, by worker
		{2.5, 4, 6},
		{3.5, 5, 7},
		{4.5, 6, 8},
		// A = C: aggregated, as Table 1 has it.
		{1, 3, 1}, {2, 4, 1}, {3, 4, 6}, {4, 5, 7},
	} {
		r := waterFill(t, figure5(tt.c))
		if got := r.Links[fc].Flows; got != tt.fc {
			t.Errorf("C = %v: FC = %v, want %v", tt.c, got, tt.fc)
		}
		if got := r.Links[fs].Flows; got != tt.fs {
			t.Errorf("C = %v: FS = %v, want %v", tt.c, got, tt.fs)
		}
		if b := r.Jobs[0].Bottleneck; b.Kind != ByLimit {
			t.Errorf("C = %v: bottleneck %v", tt.c, b)
		}
	}
	// Shares at C = 2.5: A/C where the PAT ran out.
	r := waterFill(t, figure5(2.5))
	share := r.Jobs[0].Share // 8 workers, ToRs 1 3 4, core, ToR p, PS
	for n, want := range map[int]float64{8: 0.4, 9: 1, 10: 1, 11: 0, 12: 0.8} {
		if !near(share[n], want, 1e-12) {
			t.Errorf("share at node %d: %v, want %v", n, share[n], want)
		}
	}
}

// One worker pair and a PS in a rack, checked by hand.
func TestWaterFillByHand(t *testing.T) {
	ten := func(int) float64 { return 10 }
	for _, tt := range []struct {
		name       string
		pat, limit float64
		jobs       int
		rate       float64
		share      float64
		kind       BottleneckKind
	}{
		{"ample memory: line rate", 100, 0, 1, 10, 1, ByLink},
		{"no memory: the PS link carries two flows", 0, 0, 1, 5, 0, ByLink},
		{"4 aggregated, then two flows for the 6 left", 4, 0, 1, 7, 4.0 / 7, ByLink},
		{"limited below memory", 4, 3, 1, 3, 1, ByLimit},
		{"limited above memory", 4, 5, 1, 5, 0.8, ByLimit},
		{"two jobs share both", 4, 0, 2, 3.5, 2 / 3.5, ByLink},
		{"half the memory each", 3, 3, 2, 3, 0.5, ByLimit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClos(1, 3, ten, ten, func(int) Switch { return Switch{PAT: tt.pat} })
			for range tt.jobs {
				j := c.job([]int{0, 1}, 2)
				j.Limit = tt.limit
				c.Jobs = append(c.Jobs, j)
			}
			r := waterFill(t, &c.Problem)
			for _, j := range r.Jobs {
				if !near(j.Rate, tt.rate, 1e-12) || !near(j.Share[2], tt.share, 1e-12) || j.Bottleneck.Kind != tt.kind {
					t.Errorf("rate %v share %v bottleneck %v, want %v %v %v", j.Rate, j.Share[2], j.Bottleneck, tt.rate, tt.share, tt.kind)
				}
			}
		})
	}
}

// TestOneRack repeats published figures: see testdata/onerack.txt.
func TestOneRack(t *testing.T) {
	data, err := os.ReadFile("testdata/onerack.txt")
	if err != nil {
		t.Fatal(err)
	}
	num := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	one := func(int) float64 { return 1 }
	var c *clos
	var rates []float64
	cases := 0
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		switch f[0] {
		case "case":
			pat := num(f[2])
			c, rates = newClos(1, int(num(f[1])), one, one, func(int) Switch { return Switch{PAT: pat} }), nil
		case "job":
			var workers []int
			for _, w := range f[3:] {
				workers = append(workers, int(num(w)))
			}
			c.Jobs = append(c.Jobs, c.job(workers, int(num(f[1]))))
			rates = append(rates, num(f[2]))
		case "residual":
			cases++
			r := waterFill(t, &c.Problem)
			for i, want := range rates {
				if !near(r.Jobs[i].Rate, want, 1e-9) {
					t.Errorf("case %d job %d: rate %v, want %v", cases, i, r.Jobs[i].Rate, want)
				}
			}
			for i, want := range f[1:] {
				if got := 1 - r.Links[2*i].Load - r.Links[2*i+1].Load; !near(got, num(want), 1e-5) {
					t.Errorf("case %d server %d: residual %v, want %v", cases, i, got, want)
				}
			}
		}
	}
	if cases != 11 {
		t.Errorf("%d cases, want 11", cases)
	}
}

// TestWaterFillReference: the event-driven solver agrees with the algorithm as
// printed, and with what any such state must satisfy.
func TestWaterFillReference(t *testing.T) {
	rnd := rng(t)
	for i := range 3000 {
		c := random(rnd)
		r := waterFill(t, &c.Problem)
		rate, bw := algorithm1(&c.Problem)
		for j := range rate {
			if !near(r.Jobs[j].Rate, rate[j], 1e-9) {
				t.Fatalf("problem %d job %d: rate %v, Algorithm 1 says %v\n%+v", i, j, r.Jobs[j].Rate, rate[j], c.Problem)
			}
		}
		for l := 0; l < len(c.Links); l += 2 {
			capacity := c.Links[l].Capacity
			load := r.Links[l].Load + r.Links[l+1].Load // one of them is 0
			if got := capacity - load; !near(got, bw[l], 1e-9) {
				t.Fatalf("problem %d link %d: residue %v, Algorithm 1 says %v", i, l, got, bw[l])
			}
			if load > capacity*(1+1e-9) {
				t.Fatalf("problem %d link %d: load %v over %v", i, l, load, capacity)
			}
		}
		for j, out := range r.Jobs {
			switch b := out.Bottleneck; b.Kind {
			case ByLink:
				l := b.Index &^ 1
				if r.Links[l].Load+r.Links[l+1].Load < c.Links[l].Capacity*(1-1e-9) {
					t.Fatalf("problem %d job %d: its bottleneck %d is not saturated", i, j, l)
				}
			case ByLimit:
				if out.Rate != c.Jobs[j].Limit {
					t.Fatalf("problem %d job %d: rate %v at limit %v", i, j, out.Rate, c.Jobs[j].Limit)
				}
			default:
				t.Fatalf("problem %d job %d: bottleneck %v", i, j, b)
			}
		}
		checkInvariance(t, c, r, WaterFill, 1e-9)
	}
}

// checkInvariance: capacities times k give rates times k, and the jobs' order
// does not matter.
func checkInvariance(t *testing.T, c *clos, r *Result, model func(*Problem) (*Result, error), tol float64) {
	t.Helper()
	const k = 3.7
	scaled := Problem{Links: append([]Link(nil), c.Links...), Switches: append([]Switch(nil), c.Switches...)}
	for i := range scaled.Links {
		scaled.Links[i].Capacity *= k
	}
	for i := range scaled.Switches {
		scaled.Switches[i].PAT *= k
	}
	n := len(c.Jobs)
	for i := range c.Jobs {
		j := c.Jobs[n-1-i] // backwards
		j.Limit *= k
		j.Packet = k * packet(&j)
		scaled.Jobs = append(scaled.Jobs, j)
	}
	s, err := model(&scaled)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Jobs {
		if got, want := s.Jobs[n-1-i].Rate, k*r.Jobs[i].Rate; !near(got, want, tol) {
			t.Fatalf("job %d: rate %v scaled and reordered, want %v\n%+v", i, got, want, c.Problem)
		}
	}
}

func TestValidate(t *testing.T) {
	good := func() *Problem { return figure5(1) }
	for name, spoil := range map[string]func(*Problem){
		"parent before child":   func(p *Problem) { p.Jobs[0].Nodes[3].Parent = 2 },
		"parent out of range":   func(p *Problem) { p.Jobs[0].Nodes[3].Parent = 99 },
		"link out of range":     func(p *Problem) { p.Jobs[0].Nodes[3].Up = 99 },
		"down out of range":     func(p *Problem) { p.Jobs[0].Nodes[3].Down = -2 },
		"switch out of range":   func(p *Problem) { p.Jobs[0].Nodes[3].Switch = 4 },
		"negative capacity":     func(p *Problem) { p.Links[0].Capacity = -1 },
		"capacity not a number": func(p *Problem) { p.Links[0].Capacity = math.NaN() },
		"negative PAT":          func(p *Problem) { p.Switches[0].PAT = -1 },
		"negative limit":        func(p *Problem) { p.Jobs[0].Limit = -1 },
	} {
		p := good()
		spoil(p)
		for _, model := range []func(*Problem) (*Result, error){WaterFill, func(p *Problem) (*Result, error) { return Occupancy(t.Context(), p) }} {
			if r, err := model(p); err == nil || r != nil {
				t.Errorf("%s: no error", name)
			}
		}
	}
}

// cluster is a benchmark input: racks of 16 servers with 4 GPUs, oversubscribed
// 2:1, jobs of 2 to 12 servers that share links and use up their switches' PAT.
func cluster(servers int) *Problem {
	rnd := rand.New(rand.NewPCG(1, uint64(servers)))
	const perRack = 16
	racks := servers / perRack
	c := newClos(racks, perRack,
		func(int) float64 { return 100e9 },
		func(int) float64 { return 800e9 },
		func(int) Switch { return Switch{PAT: float64(50+rnd.IntN(200)) * 1e9} })
	for range servers * 2 / 5 {
		n := 2 + rnd.IntN(11)
		// Mostly within a few neighbouring racks, as placements are.
		first := rnd.IntN(racks)
		span := 1 + rnd.IntN(3)
		seen := map[int]bool{}
		var workers []int
		for len(workers) < n {
			w := (first+rnd.IntN(span))%racks*perRack + rnd.IntN(perRack)
			if !seen[w] {
				seen[w] = true
				workers = append(workers, w)
			}
		}
		c.Jobs = append(c.Jobs, c.job(workers, (first%racks)*perRack+rnd.IntN(perRack)))
	}
	return &c.Problem
}

// The benchmark's input is what it says it is.
func TestClusterBinds(t *testing.T) {
	p := cluster(10000)
	r := waterFill(t, p)
	if len(p.Switches) != 625 || len(p.Jobs) != 4000 {
		t.Fatalf("%d racks, %d jobs", len(p.Switches), len(p.Jobs))
	}
	partial := 0
	for _, j := range r.Jobs {
		for _, a := range j.Share {
			if a > 0 && a < 1 {
				partial++
			}
		}
	}
	if partial < 1000 {
		t.Errorf("PAT binds at only %d (job, switch) pairs", partial)
	}
}

// BenchmarkWaterFill: jobs = 0.4 x servers, 16 servers per rack. The last line is
// the exponent e of time ~ servers^e over the sizes.
func BenchmarkWaterFill(b *testing.B) {
	var x, y []float64
	for _, servers := range []int{640, 1280, 2560, 5120, 10000} {
		p := cluster(servers)
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				waterFill(b, p)
			}
			per := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(per*1e3, "ms/fill")
			x, y = append(x, math.Log(float64(servers))), append(y, math.Log(per))
		})
	}
	b.Run("growth", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(slope(x, y), "exponent")
	})
}

// slope is the least squares slope of y over x.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}

package replay

import (
	"math"
	"reflect"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/titan"
)

func TestPricing(t *testing.T) {
	j := &Job{GPUs: 4, Iterations: 1800, Compute: 3}
	want := map[string]float64{"job": 1, "gpus": 4, "gpu-time": 6, "": 0}
	for _, name := range append(Pricings(), "") {
		if got := Pricing(name).Price(j); got != want[name] {
			t.Errorf("%q: %v, want %v", name, got, want[name])
		}
	}
}

// Two machines of two GPUs at 100 Gbit/s, halving and doubling, 1 GB. In ranks' order both
// pairs at distance 2 cross, whose exchanges are of a half: 1 GB each way, first and last.
// Titan has the pairs at distance 1 cross instead, half as much.
func TestCollective(t *testing.T) {
	const second = 8e9 / 100e9 // of a gigabyte on a link
	for _, tt := range []struct {
		policy          cluster.Policy
		gpus            int
		crossing, extra float64 // bytes; seconds an iteration
		machines        float64
	}{
		{baseline.ElasticFlow(), 4, 2e9, 2 * second, 2},
		{titan.New(titan.Options{}), 4, 1e9, second, 2},
		{titan.New(titan.Options{}), 2, 0, 0, 1},
		{baseline.ElasticFlow().PowerOfTwo(), 3, 1.5e9, 0, 2}, // blocks of two and one, the one alone on the second machine
	} {
		cfg := Config{
			Cluster: cluster.FatTree(1, 2, 2, 100e9, 0, 1), Policy: tt.policy, Overhead: 1,
			Collective: collectives.HalvingDoubling, Price: PerGPU.Price, Fidelity: Phases,
		}
		job := Job{ID: 7, Submit: 100, GPUs: tt.gpus, Iterations: 10, Compute: 3, Bytes: 1e9}
		r, err := Run(t.Context(), cfg, []Job{job})
		if err != nil {
			t.Fatal(err)
		}
		got := r.Jobs[0]
		if tt.gpus == 3 { // 1 GB there, and back: the volumes are tested where they are made
			p := collectives.HalvingDoubling(3).Pattern()
			tt.extra = p.Seconds([]int{0, 0, 1}, 8e9, 0, func(int) float64 { return 100e9 })
			tt.crossing = 1e9 * float64(p.Cross([]int{0, 0, 1})) / float64(p.Parts)
		}
		near := func(what string, got, want float64) {
			t.Helper()
			if math.Abs(got-want) > 1e-9*math.Max(1, want) {
				t.Errorf("%s, %d GPUs: %s %v, want %v", tt.policy.Name(), tt.gpus, what, got, want)
			}
		}
		jct := 10 * (3 + tt.extra)
		near("JCT", got.JCT(), jct)
		near("crossing", got.Crossing, tt.crossing)
		s := r.Summary
		near("cross traffic", s.Crossing, tt.crossing)
		near("network", s.Network, jct-30)
		near("machines", s.Machines, tt.machines)
		near("machine hours", s.MachineHours, tt.machines*jct/3600)
		near("profit rate", s.Profit, float64(tt.gpus)/jct*3600/tt.machines)
		near("total profit", s.ProfitTotal, s.Profit)
	}
}

// The figures are those of what became of the jobs, worked out anew at every arrival from
// nothing else. With a collective nobody's time depends on who else runs.
func TestMachines(t *testing.T) {
	r := rng(t)
	policies := []cluster.Policy{
		titan.New(titan.Options{}), baseline.ElasticFlow(), baseline.ElasticFlowIdle().PowerOfTwo(), baseline.HiveD(), baseline.Tiresias(0), baseline.FirstFit(),
	}
	for n := range 24 {
		cfg := Config{Cluster: small(r), Policy: policies[n%len(policies)], Period: float64(r.IntN(2)), Seed: uint64(n), Price: PerGPU.Price}
		if n < 18 {
			cfg.Collective = collectives.HalvingDoubling
		}
		jobs := random(r, 40, 12, true)
		got, err := Run(t.Context(), cfg, jobs)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Run(t.Context(), cfg, jobs)
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("case %d, %s: another time, another result (%v)", n, cfg.Policy.Name(), err)
		}
		var want Summary
		for i := range got.Jobs {
			j := &got.Jobs[i]
			if cfg.Collective != nil && j.Servers > 1 {
				p := collectives.HalvingDoubling(j.GPUs).Pattern()
				at := j.Placement.ServerOf()
				seconds := p.Seconds(at, 8*jobs[i].Bytes*1514/1448, 33./1514, func(s int) float64 { return cfg.Cluster.Servers[s].Link })
				end := j.Start + float64(j.Iterations)*(j.Compute+seconds)
				if math.Abs(j.End-end) > 1e-9*end {
					t.Errorf("case %d, %s: job %d ends at %v, want %v", n, cfg.Policy.Name(), j.ID, j.End, end)
				}
				if cross := jobs[i].Bytes * float64(p.Cross(at)) / float64(p.Parts); math.Abs(j.Crossing-cross) > 1e-9*cross {
					t.Errorf("case %d, %s: %v bytes of job %d cross, want %v", n, cfg.Policy.Name(), j.Crossing, j.ID, cross)
				}
			}
			now := j.Submit
			free := make([]int, len(cfg.Cluster.Servers))
			for s := range free {
				free[s] = cfg.Cluster.Servers[s].GPUs
			}
			income := 0.0
			for k := range got.Jobs {
				o := &got.Jobs[k]
				if o.Start > now || o.End <= now {
					continue
				}
				for _, parts := range [][]cluster.Part{o.Placement.Parts, o.Placement.Spare} {
					for _, p := range parts {
						free[p.Server] -= p.GPUs
					}
				}
				want.Crossing += o.Crossing / float64(len(got.Jobs))
				income += 3600 * float64(o.GPUs) / o.JCT()
			}
			used, idle := 0.0, 0.0
			for s, server := range cfg.Cluster.Servers {
				if free[s] < server.GPUs {
					used++
					idle += float64(free[s]) / float64(server.GPUs)
				}
			}
			if used > 0 {
				want.Machines += used / float64(len(got.Jobs))
				want.Fragmentation += idle / used / float64(len(got.Jobs))
				want.ProfitTotal += income / used
			}
		}
		s := got.Summary
		for _, f := range []struct {
			what      string
			got, want float64
		}{
			{"machines", s.Machines, want.Machines}, {"fragmentation", s.Fragmentation, want.Fragmentation},
			{"cross traffic", s.Crossing, want.Crossing},
			{"machine hours", got.Series.MachineHours()[len(got.Series.Machines)-1], s.MachineHours},
			{"total profit", s.ProfitTotal, want.ProfitTotal}, {"profit rate", s.Profit * float64(len(got.Jobs)), want.ProfitTotal},
		} {
			if cfg.Collective == nil && (f.what == "total profit" || f.what == "profit rate") {
				continue // the pace of jobs changes
			}
			if math.Abs(f.got-f.want) > 1e-9*math.Max(1, f.want) {
				t.Errorf("case %d, %s: %s %v, want %v", n, cfg.Policy.Name(), f.what, f.got, f.want)
			}
		}
	}
}

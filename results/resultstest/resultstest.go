// Package resultstest has records of every kind for tests: those that ship, large ones, and some with names that attack.
package resultstest

import (
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
)

var seed = flag.Uint64("seed", 1, "seed of the random tests")

// Random is a generator of the -seed, which it logs.
func Random(t testing.TB) *rand.Rand {
	t.Logf("-seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0x9e3779b97f4a7c15))
}

// base is a record with everything but points.
func base(name, title string) *results.Record {
	start := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	return &results.Record{
		Schema: results.Schema, ID: "01JD4K7Q3ZT9V8B6N2XHFQW5MC", Name: name, Title: title,
		Started: start, Finished: start.Add(24100 * time.Millisecond),
		Driver: "netns", Switch: "soft", Kind: results.Measured, Scale: results.Scale{Mode: "slow-motion", Factor: 100}, Seed: 7, Tool: "v0.1.0",
		Args:       []string{"run", "experiments/" + name + ".toml"},
		Experiment: results.File{Path: "experiments/" + name + ".toml", SHA256: "3f2a", Text: "name = \"" + name + "\"\n"},
		Inventory:  results.File{Path: "inventory.toml", SHA256: "9c01", Text: "# the lab\n"},
		Hosts:      []results.HostFacts{{Host: "bench", Kernel: "6.1.0-28-amd64", Arch: "amd64", CPUs: 2, CPU: "Xeon 2.1 GHz", Rootless: true}},
		Calibration: []results.Calibration{
			{What: "T", Of: "A@tor1", Value: 0.0512, Lo: 0.0508, Hi: 0.0516, N: 120, Unit: "s"},
			{What: "link_rate", Of: "h1->tor1", Value: 99.7e6, Lo: 99.5e6, Hi: 99.9e6, N: 20, Unit: "bit/s"},
		},
		Timings: map[string]float64{"bringup": 0.41, "deploy": 1.2, "measure": 20.4, "teardown": 0.3},
		Outcome: results.Pass,
	}
}

// judge decides a record as its run does.
func judge(r *results.Record) {
	r.Checks, r.Outcome, r.Reasons = results.Judge(r.Expect, r.Points)
	r.ExitCode = results.ExitCode(r.Outcome)
}

// Rack is a ToR with n hosts at rate bit/s; racks of them join at a spine.
func Rack(racks, hosts int, rate float64) results.Topology {
	var t results.Topology
	link := func(a, b string, rate float64) {
		t.Links = append(t.Links, results.Link{Name: a + "->" + b, From: a, To: b, Rate: rate}, results.Link{Name: b + "->" + a, From: b, To: a, Rate: rate})
	}
	for i := range racks * hosts {
		t.Nodes = append(t.Nodes, results.Node{Name: fmt.Sprintf("h%d", i+1), Kind: "host", Rack: fmt.Sprintf("r%d", i/hosts+1), GPUs: 8})
	}
	for r := range racks {
		tor := fmt.Sprintf("tor%d", r+1)
		t.Nodes = append(t.Nodes, results.Node{Name: tor, Kind: "soft", Rack: fmt.Sprintf("r%d", r+1), Tier: 1})
		for i := range hosts {
			link(fmt.Sprintf("h%d", r*hosts+i+1), tor, rate)
		}
	}
	return t
}

// Spines joins the racks of a topology at n spines of a rate in bit/s.
func Spines(t results.Topology, n int, rate float64) results.Topology {
	for s := range n {
		spine := fmt.Sprintf("spine%d", s+1)
		var tors []string
		for _, x := range t.Nodes {
			if x.Tier == 1 {
				tors = append(tors, x.Name)
			}
		}
		t.Nodes = append(t.Nodes, results.Node{Name: spine, Kind: "soft", Tier: 2})
		for _, tor := range tors {
			t.Links = append(t.Links, results.Link{Name: tor + "->" + spine, From: tor, To: spine, Rate: rate}, results.Link{Name: spine + "->" + tor, From: spine, To: tor, Rate: rate})
		}
	}
	return t
}

// MeasuredFig is a measured figure with half an interval.
func MeasuredFig(metric, of string, v, half float64, unit string) results.Figure {
	return results.Figure{Metric: metric, Of: of, Kind: results.Measured, Value: v, Lo: v - half, Hi: v + half, N: 20, Unit: unit}
}

// PredictedFig is a prediction.
func PredictedFig(metric, of string, v float64, unit, predictor, bottleneck string) results.Figure {
	return results.Figure{Metric: metric, Of: of, Kind: results.Predicted, Value: v, Lo: v, Hi: v, Unit: unit, Predictor: predictor, Bottleneck: bottleneck}
}

// FairShare is a sweep of PAT with two jobs: NetPack's Figure 14b.
func FairShare() *results.Record {
	r := base("fair-share", "Two jobs share a switch's memory")
	rng := rand.New(rand.NewPCG(3, 4))
	r.Topology = Rack(1, 3, 100e6)
	r.Expect = []results.Expect{
		{Name: "share", Metric: "share", Of: "*@tor1", Predictor: "occupancy", Statistic: "each", Tolerance: 0.03, Bound: "within", Gate: true, Reason: "NetPack Figure 14b: each of two jobs gets half of PAT"},
		{Name: "fair", Metric: "jain", Predictor: "value", Value: 0.99, Statistic: "each", Bound: "at-least", Gate: true, Reason: "dithered pacing must not lock the jobs' phases"},
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.03, Relative: true, Bound: "within", Gate: true},
		{Name: "exact sums", Metric: "sum_errors", Predictor: "value", Statistic: "each", Bound: "at-most", Gate: true},
	}
	for i := range 8 {
		x := float64(i+1) / 8
		p := results.Point{Index: i, Params: map[string]any{"switch.pat_ratio": x}, Labels: []string{fmt.Sprintf("switch.pat_ratio=%g", x)}}
		ph := results.Phase{Start: float64(i)*2.5 + 0.5, End: float64(i+1) * 2.5, Jobs: []string{"A", "B"}}
		for k, j := range []string{"A", "B"} {
			m := 0.5*x + 0.007*rng.NormFloat64() + 0.003*float64(k)
			ph.Figures = append(ph.Figures, MeasuredFig("share", j+"@tor1", m, 0.004+0.006*x, "1"),
				PredictedFig("share", j+"@tor1", 0.5*x, "1", "occupancy", "tor1"),
				PredictedFig("share", j+"@tor1", math.Min(1, 0.62*x), "1", "waterfill", "tor1"),
				MeasuredFig("goodput", j, 23e6*(1+x)*(1+0.006*rng.NormFloat64()), 0.3e6, "bit/s"),
				PredictedFig("goodput", j, 23e6*(1+x), "bit/s", "occupancy", "tor1->h3"),
				results.Figure{Metric: "sum_errors", Of: j, Kind: results.Measured, N: 1, Unit: "1"})
			p.Jobs = append(p.Jobs, results.JobSummary{Job: j, Workers: 2, Iterations: 40, Packets: 31200, Resends: 12, SumsChecked: 7_987_200})
		}
		ph.Figures = append(ph.Figures, MeasuredFig("jain", "A,B", 0.9994, 0.0003, "1"))
		p.Phases = []results.Phase{ph}
		r.Points = append(r.Points, p)
	}
	judge(r)
	return r
}

// Waterfill is jobs that come and go on two racks: NetPack's Figure 15, one link off.
func Waterfill() (*results.Record, []results.Sample) {
	r := base("waterfill", "Jobs come and go on two racks; every link against prediction")
	rng := rand.New(rand.NewPCG(5, 6))
	r.Topology = Spines(Rack(2, 4, 100e6), 1, 200e6)
	r.Expect = []results.Expect{
		{Name: "links", Metric: "link_rate", Predictor: "occupancy", Statistic: "each", Tolerance: 0.08, Relative: true, Bound: "within", Gate: true, Reason: "worst link at most 8 %"},
		{Name: "mean link error", Metric: "link_rate", Predictor: "occupancy", Statistic: "mean", Tolerance: 0.03, Relative: true, Bound: "within", Gate: true},
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Relative: true, Bound: "within", Gate: true},
		{Name: "published model", Metric: "goodput", Predictor: "waterfill", Statistic: "mean", Tolerance: 0.05, Relative: true, Bound: "within"},
	}
	jobs := []string{"A", "B", "C"}
	active := [][]int{{0}, {0, 1}, {0, 1, 2}, {1, 2}, {2}}
	p := results.Point{Health: []results.Trouble{{Where: "host bench", What: "load average 1.4 of 2 CPUs", Value: 1.4, Limit: 2}}}
	rates := make([]map[string]float64, len(active))
	for i, on := range active {
		ph := results.Phase{Start: float64(i)*6 + 1, End: float64(i+1) * 6}
		rates[i] = map[string]float64{}
		add := func(l string, v float64) { rates[i][l] += v }
		for _, j := range on {
			ph.Jobs = append(ph.Jobs, jobs[j])
			c := 96e6 / float64(len(on))
			share := 1.0
			if len(on) == 3 {
				share = 0.7
			}
			src := [][]int{{1, 2, 5}, {2, 3, 6}, {1, 3, 7}}[j]
			for _, h := range src {
				tor := (h-1)/4 + 1
				add(fmt.Sprintf("h%d->tor%d", h, tor), c)
				add(fmt.Sprintf("tor%d->h%d", tor, h), c)
			}
			add("tor1->spine1", c*(share+(1-share)*2))
			add("spine1->tor2", c*(share+(1-share)*2))
			add("tor2->spine1", c)
			add("spine1->tor1", c)
			add("tor2->h8", c*(share+(1-share)*3)/1.6)
			add("h8->tor2", c)
			m := c * 0.94 * (1 + 0.01*rng.NormFloat64())
			ph.Figures = append(ph.Figures, MeasuredFig("goodput", jobs[j], m, 0.5e6, "bit/s"),
				PredictedFig("goodput", jobs[j], c*0.94, "bit/s", "occupancy", "h2->tor1"),
				PredictedFig("goodput", jobs[j], c*1.08, "bit/s", "waterfill", "h2->tor1"))
		}
		for _, l := range r.Topology.Links {
			v := rates[i][l.Name]
			noise := 1 + 0.012*rng.NormFloat64()
			if i == 2 && l.Name == "tor1->spine1" {
				noise = 0.87
			}
			rates[i][l.Name] = v * noise
			ph.Figures = append(ph.Figures, MeasuredFig("link_rate", l.Name, v*noise, v*0.008, "bit/s"),
				PredictedFig("link_rate", l.Name, v, "bit/s", "occupancy", "h2->tor1"),
				PredictedFig("link_rate", l.Name, v*1.1, "bit/s", "waterfill", "h2->tor1"))
		}
		p.Phases = append(p.Phases, ph)
	}
	for _, j := range jobs {
		p.Jobs = append(p.Jobs, results.JobSummary{Job: j, Workers: 3, Iterations: 120, Packets: 188_000, Resends: 41, SumsChecked: 144_384_000, JCT: 11.8, AlgBW: 30e6, BusBW: 40e6})
	}
	r.Points = []results.Point{p}
	judge(r)

	var samples []results.Sample
	total := map[string]float64{}
	for k := range 301 {
		t := float64(k) * 0.1
		for _, l := range r.Topology.Links {
			v := 0.0
			if i := int((t - 0.0001) / 6); i < len(rates) {
				v = rates[i][l.Name]
				if t-float64(i)*6 < 0.6 {
					v *= (t - float64(i)*6) / 0.6
				}
			}
			total[l.Name] += v / 8 * 0.1 * (1 + 0.03*rng.NormFloat64())
			samples = append(samples, results.Sample{T: t, Source: "fabric", Metric: "port_tx_bytes", Of: l.Name, Value: total[l.Name], Unit: "B"})
		}
	}
	return r, samples
}

// Addressing sweeps a category beside a number, simulated.
func Addressing() *results.Record {
	r := base("addressing", "Four ways to address the aggregators")
	r.Driver, r.Switch, r.Kind, r.Scale = "sim", "model", results.Simulated, results.Scale{Mode: "none", Factor: 1}
	r.Topology = Rack(1, 3, 100e9)
	r.Expect = []results.Expect{{Name: "share", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: 0.04, Bound: "within", Gate: true}}
	i := 0
	for _, mode := range []string{"pool", "hash", "linear"} {
		for _, u := range []float64{0.75, 1.5, 2.5, 3.5} {
			want := map[string]float64{"pool": math.Min(1, 1/u), "hash": 1 / (1 + u), "linear": 1 / math.Ceil(u)}[mode]
			got := want + 0.002
			if mode == "linear" && u == 2.5 {
				got -= 0.06
			}
			p := results.Point{Index: i, Params: map[string]any{"switch.addressing": mode, "u": u}, Labels: []string{"switch.addressing=" + mode, fmt.Sprintf("u=%g", u)},
				Phases: []results.Phase{{Start: 0, End: 2, Jobs: []string{"A"}, Figures: []results.Figure{
					results.Exact(results.Figure{Metric: "share", Of: "A@tor1", Kind: results.Simulated, Value: got, N: 1, Unit: "1"}),
					PredictedFig("share", "A@tor1", want, "1", "occupancy", "tor1"),
					PredictedFig("share", "A@tor1", math.Min(1, 1/u), "1", "waterfill", "tor1"),
				}}}}
			r.Points = append(r.Points, p)
			i++
		}
	}
	judge(r)
	return r
}

// Quickstart is one point with little in it, and undecided.
func Quickstart() *results.Record {
	r := base("quickstart", "Two jobs on one switch")
	r.Topology = Rack(1, 3, 100e6)
	r.Expect = []results.Expect{
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Relative: true, Bound: "within", Gate: true},
		{Name: "share", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Bound: "within", Gate: true},
	}
	ph := results.Phase{Start: 1, End: 6, Jobs: []string{"A", "B"}, Figures: []results.Figure{
		MeasuredFig("goodput", "A", 46.2e6, 0.4e6, "bit/s"), PredictedFig("goodput", "A", 46.8e6, "bit/s", "occupancy", "tor1->h3"), PredictedFig("goodput", "A", 51e6, "bit/s", "waterfill", "tor1->h3"),
		MeasuredFig("goodput", "B", 44.0e6, 1.4e6, "bit/s"), PredictedFig("goodput", "B", 46.8e6, "bit/s", "occupancy", "tor1->h3"), PredictedFig("goodput", "B", 51e6, "bit/s", "waterfill", "tor1->h3"),
		MeasuredFig("share", "A@tor1", 1, 0, "1"), PredictedFig("share", "A@tor1", 1, "1", "occupancy", ""),
		MeasuredFig("share", "B@tor1", 0.98, 0.006, "1"), PredictedFig("share", "B@tor1", 1, "1", "occupancy", ""),
	}}
	for i, l := range r.Topology.Links {
		v := []float64{50e6, 48e6, 51e6, 49e6, 97e6, 98.5e6}[i]
		ph.Figures = append(ph.Figures, MeasuredFig("link_rate", l.Name, v, 0.3e6, "bit/s"), PredictedFig("link_rate", l.Name, v*1.01, "bit/s", "occupancy", "tor1->h3"))
	}
	r.Points = []results.Point{{Phases: []results.Phase{ph}}}
	judge(r)
	return r
}

// Policies compares nine policies over a sweep, repeats times, by invented figures: the
// reference's lead grows with the oversubscription, and one policy hardly differs.
func Policies(oversubscriptions []float64, repeats int) *results.Record {
	r := base("oversubscription", "Nine placement policies while cross-rack links grow scarce")
	r.Driver, r.Switch, r.Kind, r.Scale = "sim", "model", results.Simulated, results.Scale{Mode: "none", Factor: 1}
	r.Calibration, r.Inventory, r.Timings = nil, results.File{}, map[string]float64{"replay": 20.4}
	r.Comparison = &results.Comparison{Key: "placement.policy", Reference: "netpack", Metrics: []string{"avg_jct", "de", "queueing"}, Published: []results.Published{
		{Metric: "avg_jct", Lo: -0.45, Hi: -0.13, Text: "section 6.2, testbed"},
		{Metric: "avg_jct", At: "fat_tree.oversubscription=20", Lo: -0.89, Hi: -0.89, Text: "section 6.3, average"},
		{Metric: "de", Lo: 0.13, Hi: 0.46, Text: "section 6.2, testbed"},
	}}
	rng := rand.New(rand.NewPCG(11, 12))
	names := []string{"netpack", "gpu-balance", "flow-balance", "least-fragmentation", "optimus", "tetris", "comb", "first-fit", "random"}
	base := []float64{1, 1.28, 1.19, 1.33, 1.22, 1.15, 1.02, 1.41, 1.52}
	grows := []float64{0.2, 0.9, 0.75, 0.55, 0.7, 0.6, 0.22, 0.8, 1.1}
	load := make([]float64, repeats)
	for i := range load {
		load[i] = 0.8 + 0.4*rng.Float64() // the same jobs for every policy
	}
	index := 0
	for _, o := range oversubscriptions {
		for k, name := range names {
			for rep := range repeats {
				noise := func() float64 { return math.Exp(0.035 * rng.NormFloat64() * (0.4 + base[k])) }
				scale := base[k] + grows[k]*math.Log2(o)/4
				jct := 1850 * load[rep] * scale * noise()
				p := results.Point{Index: index, Repeat: rep, Params: map[string]any{"placement.policy": name},
					Labels: []string{"placement.policy=" + name}}
				if len(oversubscriptions) > 1 {
					p.Params["fat_tree.oversubscription"] = o
					p.Labels = append([]string{fmt.Sprintf("fat_tree.oversubscription=%g", o)}, p.Labels...)
				}
				fig := func(metric string, v float64, unit string) {
					p.Phases[0].Figures = append(p.Phases[0].Figures, results.Figure{Metric: metric, Of: results.Cluster, Kind: results.Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: unit})
				}
				p.Phases = []results.Phase{{End: 86400}}
				fig("avg_jct", jct, "s")
				fig("de", 0.93/scale/math.Sqrt(load[rep])*noise(), "1")
				fig("queueing", 240*load[rep]*load[rep]*(0.7+0.3*scale)*noise(), "s")
				r.Points = append(r.Points, p)
			}
			index++
		}
	}
	judge(r)
	return r
}

// Machines are those of a cluster in racks with other jobs on the first GPUs of some.
func Machines(racks, perRack, gpus int, background func(i int) int) []results.Machine {
	var out []results.Machine
	for i := range racks * perRack {
		m := results.Machine{Name: fmt.Sprintf("h%d", i+1), Rack: fmt.Sprintf("r%d", i/perRack+1), GPUs: make([]results.Cell, gpus)}
		for k := range background(i) {
			m.GPUs[k] = results.Cell{Use: results.Background}
		}
		out = append(out, m)
	}
	return out
}

// Occupy gives a job the next free GPUs of these machines, a rank each.
func Occupy(all []results.Machine, job string, at ...int) []results.Machine {
	for rank, i := range at {
		for k, c := range all[i].GPUs {
			if c.Use == results.Free {
				all[i].GPUs[k] = results.Cell{Use: results.Worker, Job: job, Rank: rank}
				break
			}
		}
	}
	return all
}

// Figure8 is a sweep of workers and policies on eight machines of four GPUs.
func Figure8() *results.Record {
	r := base("placements", "Where four policies put the workers of a job")
	index := 0
	for _, workers := range []int{4, 6, 12} {
		for _, policy := range []string{"titan", "elasticflow", "tiresias", "hived"} {
			all := Machines(1, 8, 4, func(i int) int { return []int{0, 3, 1, 2, 0, 1, 3, 2}[i] })
			order := map[string][]int{
				"titan": {2, 2, 2, 5, 5, 5, 3, 3, 7, 7, 1, 6}, "elasticflow": {0, 0, 0, 0, 4, 4, 4, 4, 2, 2, 2, 5},
				"tiresias": {2, 5, 2, 5, 2, 5, 3, 7, 3, 7, 1, 6}, "hived": {1, 6, 3, 3, 7, 7, 2, 2, 2, 5, 5, 5},
			}[policy]
			p := results.Point{Index: index, Params: map[string]any{"allreduce.workers": workers, "placement.policy": policy},
				Labels:   []string{fmt.Sprintf("allreduce.workers=%d", workers), "placement.policy=" + policy},
				Machines: Occupy(all, "resnet50", order[:workers]...)}
			if policy == "elasticflow" && workers == 6 { // it takes powers of two
				p.Machines[4].GPUs[2], p.Machines[4].GPUs[3] = results.Cell{Use: results.Spare, Job: "resnet50"}, results.Cell{Use: results.Spare, Job: "resnet50"}
			}
			p.Phases = []results.Phase{{End: 5, Figures: []results.Figure{MeasuredFig("throughput", "resnet50", 1000+100*float64(workers), 3, "1")}}}
			r.Points = append(r.Points, p)
			index++
		}
	}
	judge(r)
	return r
}

// Trial is a point of a policy with one figure of the cluster, in a group.
func Trial(group, policy string, repeat int, jct float64) results.Point {
	p := results.Point{Repeat: repeat, Labels: []string{"placement.policy=" + policy}, Params: map[string]any{"placement.policy": policy},
		Phases: []results.Phase{{Figures: []results.Figure{
			{Metric: "avg_jct", Of: "job 7", Kind: results.Simulated, Value: 1e9, N: 1, Unit: "s"},
			{Metric: "avg_jct", Of: results.Cluster, Kind: results.Predicted, Value: 1e9, N: 1, Unit: "s"},
			{Metric: "avg_jct", Of: results.Cluster, Kind: results.Simulated, Value: jct, Lo: jct, Hi: jct, N: 1, Unit: "s"},
		}}}}
	if group != "" {
		p.Labels = append([]string{group}, p.Labels...)
	}
	return p
}

// Comparison is a record that compares points by policy.
func Comparison(points ...results.Point) *results.Record {
	return &results.Record{Name: "compare", Outcome: results.Pass, Kind: results.Simulated, Points: points, Comparison: &results.Comparison{
		Key: "placement.policy", Reference: "netpack", Metrics: []string{"avg_jct", "de"}}}
}

// Hostile is a record whose every name is evil.
func Hostile() *results.Record {
	r := base("hostile", Evil)
	r.Name, r.Driver, r.Switch, r.Tool = Evil, Evil, Evil, Evil
	r.Overrides, r.Warnings, r.Args = []string{Evil}, []string{Evil}, []string{Evil}
	r.Experiment.Text, r.Experiment.Path, r.Inventory.Text = Evil, Evil, Evil
	r.Hosts[0].Host, r.Hosts[0].CPU = Evil, Evil
	r.Calibration[0].Of = Evil
	r.Timings[Evil] = 1
	r.Topology = results.Topology{Nodes: []results.Node{{Name: Evil, Kind: "host", Rack: Evil}, {Name: Evil + "2", Kind: Evil, Tier: 1}},
		Links: []results.Link{{Name: Evil, From: Evil, To: Evil + "2", Rate: 1e8}, {Name: Evil + "b", From: Evil + "2", To: Evil, Rate: 1e8}}}
	r.Expect = []results.Expect{{Name: Evil, Metric: "share", Of: "*", Predictor: Evil, Tolerance: 0.01, Gate: true, Reason: Evil},
		{Name: Evil + "2", Metric: Evil, Predictor: "value", Gate: true}, {Name: Evil + "3", Metric: "link_rate", Predictor: Evil, Gate: true, Relative: true, Tolerance: 0.1}}
	for i := range 2 {
		p := results.Point{Index: i, Params: map[string]any{Evil: i, Evil + "s": Evil}, Labels: []string{Evil + "=" + fmt.Sprint(i)}, Health: []results.Trouble{{Where: Evil, What: Evil}},
			Jobs: []results.JobSummary{{Job: Evil, SumsChecked: 3, SumErrors: 1}}}
		ph := results.Phase{Start: 1, End: 2, Figures: []results.Figure{MeasuredFig("share", Evil, 0.4, 0.001, "1"), PredictedFig("share", Evil, 0.5, "1", Evil, Evil),
			MeasuredFig(Evil, Evil, 3, 1, Evil)}}
		for _, l := range []string{Evil, Evil + "b"} {
			ph.Figures = append(ph.Figures, MeasuredFig("link_rate", l, 3e7, 1e5, "bit/s"), PredictedFig("link_rate", l, 3.1e7, "bit/s", Evil, Evil))
		}
		p.Phases = []results.Phase{ph}
		p.Machines = []results.Machine{{Name: Evil, Rack: Evil, GPUs: []results.Cell{{Use: results.Worker, Job: Evil}, {Use: results.Spare, Job: Evil}, {Use: results.Background, Job: Evil}}}}
		r.Points = append(r.Points, p)
	}
	judge(r)
	r.Comparison = &results.Comparison{Key: Evil + "s", Reference: Evil, Metrics: []string{Evil}, Published: []results.Published{{Metric: Evil, Lo: 1, Hi: 2, Text: Evil}}}
	for i := range r.Points {
		r.Points[i].Labels = append(r.Points[i].Labels, Evil+"s="+Evil)
		r.Points[i].Phases[0].Figures = append(r.Points[i].Phases[0].Figures, MeasuredFig(Evil, results.Cluster, 3, 1, Evil))
	}
	return r
}

// HostileSamples are readings with what names may hold.
func HostileSamples() []results.Sample {
	var out []results.Sample
	for i := range 20 {
		out = append(out, results.Sample{T: float64(i) / 10, Source: Evil, Metric: Evil, Of: Evil, Value: float64(i) * 4e5, Unit: "B"})
	}
	return out
}

// WellFormed holds a drawing to XML without scripts, links or numbers that are none.
func WellFormed(t *testing.T, name, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Errorf("%s is not well-formed: %v", name, err)
			return
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		if e.Name.Local == "script" {
			t.Errorf("%s has a script", name)
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
				t.Errorf("%s has %s=%q", name, a.Name.Local, a.Value)
			}
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s has %s=%q", name, a.Name.Local, a.Value)
			}
		}
	}
}

var svgElement = regexp.MustCompile(`(?s)<svg [^>]*class="ina".*?</svg>`)

// Svgs are the drawings of a page.
func Svgs(page string) []string { return svgElement.FindAllString(page, -1) }

// One is a point with one measured figure and its prediction.
func One(v, half, predicted float64, n int) results.Point {
	m := MeasuredFig("share", "A@tor1", v, half, "1")
	m.N = n
	return results.Point{Phases: []results.Phase{{Figures: []results.Figure{m, PredictedFig("share", "A@tor1", predicted, "1", "occupancy", "tor1")}}}}
}

// LargeRun is a run of n bytes of samples: 24 switches with 33 counters of each of 12 ports and jobs.
func LargeRun(t testing.TB, n int) (*results.Dir, *results.Record) {
	t.Helper()
	rec := &results.Record{Name: "large"}
	for k := range 48 {
		rec.Topology.Links = append(rec.Topology.Links, results.Link{Name: fmt.Sprintf("h%d->tor1", k), From: fmt.Sprint("h", k), To: "tor1", Rate: 1e9})
	}
	d, err := results.Create(t.TempDir(), rec)
	if err != nil {
		t.Fatal(err)
	}
	for size, at := 0, 0.0; size < n; at += 0.25 {
		var round []results.Sample
		for k := range 48 {
			for m := range 20 {
				s := results.Sample{T: at + float64(m)*1e-4, Source: "switch tor1", Metric: fmt.Sprintf("port_counter%d_packets", m), Of: fmt.Sprintf("h%d->tor1", k), Value: math.Round(at * 1e5), Unit: "1"}
				switch m {
				case 0:
					s.Metric, s.Unit = "port_tx_bytes", "B"
				case 1:
					s.Metric, s.Unit, s.Of = "job_hold_seconds", "s", fmt.Sprintf("J%d@tor1", k)
				}
				round = append(round, s)
				size += 120
			}
		}
		if err := d.Append(round...); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d, rec
}

// Evil is what a name in a TOML file may hold.
const Evil = "x\"'><script>alert(1)</script><svg onload=alert(2)>&\x1b[2J\u0085]]>{{.}}</title></style>"

// Edit returns the readings of the samples that keep returns true for, which it may change.
func Edit(r *results.Readings, keep func(s *results.Sample) bool) *results.Readings {
	out := &results.Readings{}
	for of, series := range r.All() {
		for i := range series.T {
			s := results.Sample{T: series.T[i], Value: series.V[i], Source: of.Source, Metric: of.Metric, Of: of.Of, Gauge: of.Gauge}
			if keep(&s) {
				out.Add(s)
			}
		}
	}
	return out
}

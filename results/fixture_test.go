package results

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var (
	render = flag.String("render", "", "write reports of the fixtures into this directory, to look at them")
	seed   = flag.Uint64("seed", 1, "seed of the random tests")
)

func random(t testing.TB) *rand.Rand {
	t.Logf("-seed %d", *seed)
	return rand.New(rand.NewPCG(*seed, 0x9e3779b97f4a7c15))
}

// base is a record with everything but points.
func base(name, title string) *Record {
	start := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	return &Record{
		Schema: Schema, ID: "01JD4K7Q3ZT9V8B6N2XHFQW5MC", Name: name, Title: title,
		Started: start, Finished: start.Add(24100 * time.Millisecond),
		Driver: "netns", Switch: "soft", Kind: Measured, Scale: Scale{"slow-motion", 100}, Seed: 7, Tool: "v0.1.0",
		Args:       []string{"run", "experiments/" + name + ".toml"},
		Experiment: File{Path: "experiments/" + name + ".toml", SHA256: "3f2a", Text: "name = \"" + name + "\"\n"},
		Inventory:  File{Path: "inventory.toml", SHA256: "9c01", Text: "# the lab\n"},
		Hosts:      []HostFacts{{Host: "bench", Kernel: "6.1.0-28-amd64", Arch: "amd64", CPUs: 2, CPU: "Xeon 2.1 GHz", Rootless: true}},
		Calibration: []Calibration{
			{What: "T", Of: "A@tor1", Value: 0.0512, Lo: 0.0508, Hi: 0.0516, N: 120, Unit: "s"},
			{What: "link_rate", Of: "h1->tor1", Value: 99.7e6, Lo: 99.5e6, Hi: 99.9e6, N: 20, Unit: "bit/s"},
		},
		Timings: map[string]float64{"bringup": 0.41, "deploy": 1.2, "measure": 20.4, "teardown": 0.3},
		Outcome: Pass,
	}
}

// rack is a ToR with n hosts at rate bit/s; racks of them join at a spine.
func rack(racks, hosts int, rate float64) Topology {
	var t Topology
	link := func(a, b string, rate float64) {
		t.Links = append(t.Links, Link{a + "->" + b, a, b, rate}, Link{b + "->" + a, b, a, rate})
	}
	for i := range racks * hosts {
		t.Nodes = append(t.Nodes, Node{Name: fmt.Sprintf("h%d", i+1), Kind: "host", Rack: fmt.Sprintf("r%d", i/hosts+1), GPUs: 8})
	}
	for r := range racks {
		tor := fmt.Sprintf("tor%d", r+1)
		t.Nodes = append(t.Nodes, Node{Name: tor, Kind: "soft", Rack: fmt.Sprintf("r%d", r+1), Tier: 1})
		for i := range hosts {
			link(fmt.Sprintf("h%d", r*hosts+i+1), tor, rate)
		}
	}
	return t
}

func spines(t Topology, n int, rate float64) Topology {
	for s := range n {
		spine := fmt.Sprintf("spine%d", s+1)
		var tors []string
		for _, x := range t.Nodes {
			if x.Tier == 1 {
				tors = append(tors, x.Name)
			}
		}
		t.Nodes = append(t.Nodes, Node{Name: spine, Kind: "soft", Tier: 2})
		for _, tor := range tors {
			t.Links = append(t.Links, Link{tor + "->" + spine, tor, spine, rate}, Link{spine + "->" + tor, spine, tor, rate})
		}
	}
	return t
}

func measuredFig(metric, of string, v, half float64, unit string) Figure {
	return Figure{Metric: metric, Of: of, Kind: Measured, Value: v, Lo: v - half, Hi: v + half, N: 20, Unit: unit}
}

func predictedFig(metric, of string, v float64, unit, predictor, bottleneck string) Figure {
	return Figure{Metric: metric, Of: of, Kind: Predicted, Value: v, Lo: v, Hi: v, Unit: unit, Predictor: predictor, Bottleneck: bottleneck}
}

// fairShare is a sweep of PAT with two jobs: NetPack's Figure 14b.
func fairShare() *Record {
	r := base("fair-share", "Two jobs share a switch's memory")
	rng := rand.New(rand.NewPCG(3, 4))
	r.Topology = rack(1, 3, 100e6)
	r.Expect = []Expect{
		{Name: "share", Metric: "share", Of: "*@tor1", Predictor: "occupancy", Statistic: "each", Tolerance: 0.03, Bound: "within", Gate: true, Reason: "NetPack Figure 14b: each of two jobs gets half of PAT"},
		{Name: "fair", Metric: "jain", Predictor: "value", Value: 0.99, Statistic: "each", Bound: "at-least", Gate: true, Reason: "dithered pacing must not lock the jobs' phases"},
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.03, Relative: true, Bound: "within", Gate: true},
		{Name: "exact sums", Metric: "sum_errors", Predictor: "value", Statistic: "each", Bound: "at-most", Gate: true},
	}
	for i := range 8 {
		x := float64(i+1) / 8
		p := Point{Index: i, Params: map[string]any{"switch.pat_ratio": x}, Labels: []string{fmt.Sprintf("switch.pat_ratio=%g", x)}}
		ph := Phase{Start: float64(i)*2.5 + 0.5, End: float64(i+1) * 2.5, Jobs: []string{"A", "B"}}
		for k, j := range []string{"A", "B"} {
			m := 0.5*x + 0.007*rng.NormFloat64() + 0.003*float64(k)
			ph.Figures = append(ph.Figures, measuredFig("share", j+"@tor1", m, 0.004+0.006*x, "1"),
				predictedFig("share", j+"@tor1", 0.5*x, "1", "occupancy", "tor1"),
				predictedFig("share", j+"@tor1", math.Min(1, 0.62*x), "1", "waterfill", "tor1"),
				measuredFig("goodput", j, 23e6*(1+x)*(1+0.006*rng.NormFloat64()), 0.3e6, "bit/s"),
				predictedFig("goodput", j, 23e6*(1+x), "bit/s", "occupancy", "tor1->h3"),
				Figure{Metric: "sum_errors", Of: j, Kind: Measured, N: 1, Unit: "1"})
			p.Jobs = append(p.Jobs, JobSummary{Job: j, Workers: 2, Iterations: 40, Packets: 31200, Resends: 12, SumsChecked: 7_987_200})
		}
		ph.Figures = append(ph.Figures, measuredFig("jain", "A,B", 0.9994, 0.0003, "1"))
		p.Phases = []Phase{ph}
		r.Points = append(r.Points, p)
	}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	r.ExitCode = ExitCode(r.Outcome)
	return r
}

// waterfill is jobs that come and go on two racks: NetPack's Figure 15, one link off.
func waterfill() (*Record, []Sample) {
	r := base("waterfill", "Jobs come and go on two racks; every link against prediction")
	rng := rand.New(rand.NewPCG(5, 6))
	r.Topology = spines(rack(2, 4, 100e6), 1, 200e6)
	r.Expect = []Expect{
		{Name: "links", Metric: "link_rate", Predictor: "occupancy", Statistic: "each", Tolerance: 0.08, Relative: true, Bound: "within", Gate: true, Reason: "worst link at most 8 %"},
		{Name: "mean link error", Metric: "link_rate", Predictor: "occupancy", Statistic: "mean", Tolerance: 0.03, Relative: true, Bound: "within", Gate: true},
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Relative: true, Bound: "within", Gate: true},
		{Name: "published model", Metric: "goodput", Predictor: "waterfill", Statistic: "mean", Tolerance: 0.05, Relative: true, Bound: "within"},
	}
	jobs := []string{"A", "B", "C"}
	active := [][]int{{0}, {0, 1}, {0, 1, 2}, {1, 2}, {2}}
	p := Point{Health: []Trouble{{Where: "host bench", What: "load average 1.4 of 2 CPUs", Value: 1.4, Limit: 2}}}
	rates := make([]map[string]float64, len(active))
	for i, on := range active {
		ph := Phase{Start: float64(i)*6 + 1, End: float64(i+1) * 6}
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
			ph.Figures = append(ph.Figures, measuredFig("goodput", jobs[j], m, 0.5e6, "bit/s"),
				predictedFig("goodput", jobs[j], c*0.94, "bit/s", "occupancy", "h2->tor1"),
				predictedFig("goodput", jobs[j], c*1.08, "bit/s", "waterfill", "h2->tor1"))
		}
		for _, l := range r.Topology.Links {
			v := rates[i][l.Name]
			noise := 1 + 0.012*rng.NormFloat64()
			if i == 2 && l.Name == "tor1->spine1" {
				noise = 0.87
			}
			rates[i][l.Name] = v * noise
			ph.Figures = append(ph.Figures, measuredFig("link_rate", l.Name, v*noise, v*0.008, "bit/s"),
				predictedFig("link_rate", l.Name, v, "bit/s", "occupancy", "h2->tor1"),
				predictedFig("link_rate", l.Name, v*1.1, "bit/s", "waterfill", "h2->tor1"))
		}
		p.Phases = append(p.Phases, ph)
	}
	for _, j := range jobs {
		p.Jobs = append(p.Jobs, JobSummary{Job: j, Workers: 3, Iterations: 120, Packets: 188_000, Resends: 41, SumsChecked: 144_384_000, JCT: 11.8, AlgBW: 30e6, BusBW: 40e6})
	}
	r.Points = []Point{p}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	r.ExitCode = ExitCode(r.Outcome)

	var samples []Sample
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
			samples = append(samples, Sample{T: t, Source: "fabric", Metric: "port_tx_bytes", Of: l.Name, Value: total[l.Name], Unit: "B"})
		}
	}
	return r, samples
}

// addressing sweeps a category beside a number, simulated.
func addressing() *Record {
	r := base("addressing", "Four ways to address the aggregators")
	r.Driver, r.Switch, r.Kind, r.Scale = "sim", "model", Simulated, Scale{"none", 1}
	r.Topology = rack(1, 3, 100e9)
	r.Expect = []Expect{{Name: "share", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: 0.04, Bound: "within", Gate: true}}
	i := 0
	for _, mode := range []string{"pool", "hash", "linear"} {
		for _, u := range []float64{0.75, 1.5, 2.5, 3.5} {
			want := map[string]float64{"pool": math.Min(1, 1/u), "hash": 1 / (1 + u), "linear": 1 / math.Ceil(u)}[mode]
			got := want + 0.002
			if mode == "linear" && u == 2.5 {
				got -= 0.06
			}
			p := Point{Index: i, Params: map[string]any{"switch.addressing": mode, "u": u}, Labels: []string{"switch.addressing=" + mode, fmt.Sprintf("u=%g", u)},
				Phases: []Phase{{Start: 0, End: 2, Jobs: []string{"A"}, Figures: []Figure{
					Exact(Figure{Metric: "share", Of: "A@tor1", Kind: Simulated, Value: got, N: 1, Unit: "1"}),
					predictedFig("share", "A@tor1", want, "1", "occupancy", "tor1"),
					predictedFig("share", "A@tor1", math.Min(1, 1/u), "1", "waterfill", "tor1"),
				}}}}
			r.Points = append(r.Points, p)
			i++
		}
	}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	return r
}

// quickstart is one point with little in it, and undecided.
func quickstart() *Record {
	r := base("quickstart", "Two jobs on one switch")
	r.Topology = rack(1, 3, 100e6)
	r.Expect = []Expect{
		{Name: "goodput", Metric: "goodput", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Relative: true, Bound: "within", Gate: true},
		{Name: "share", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: 0.05, Bound: "within", Gate: true},
	}
	ph := Phase{Start: 1, End: 6, Jobs: []string{"A", "B"}, Figures: []Figure{
		measuredFig("goodput", "A", 46.2e6, 0.4e6, "bit/s"), predictedFig("goodput", "A", 46.8e6, "bit/s", "occupancy", "tor1->h3"), predictedFig("goodput", "A", 51e6, "bit/s", "waterfill", "tor1->h3"),
		measuredFig("goodput", "B", 44.0e6, 1.4e6, "bit/s"), predictedFig("goodput", "B", 46.8e6, "bit/s", "occupancy", "tor1->h3"), predictedFig("goodput", "B", 51e6, "bit/s", "waterfill", "tor1->h3"),
		measuredFig("share", "A@tor1", 1, 0, "1"), predictedFig("share", "A@tor1", 1, "1", "occupancy", ""),
		measuredFig("share", "B@tor1", 0.98, 0.006, "1"), predictedFig("share", "B@tor1", 1, "1", "occupancy", ""),
	}}
	for i, l := range r.Topology.Links {
		v := []float64{50e6, 48e6, 51e6, 49e6, 97e6, 98.5e6}[i]
		ph.Figures = append(ph.Figures, measuredFig("link_rate", l.Name, v, 0.3e6, "bit/s"), predictedFig("link_rate", l.Name, v*1.01, "bit/s", "occupancy", "tor1->h3"))
	}
	r.Points = []Point{{Phases: []Phase{ph}}}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	r.ExitCode = ExitCode(r.Outcome)
	return r
}

// policies compares nine policies over a sweep, repeats times, by invented figures: the
// reference's lead grows with the oversubscription, and one policy hardly differs.
func policies(oversubscriptions []float64, repeats int) *Record {
	r := base("oversubscription", "Nine placement policies while cross-rack links grow scarce")
	r.Driver, r.Switch, r.Kind, r.Scale = "sim", "model", Simulated, Scale{"none", 1}
	r.Calibration, r.Inventory, r.Timings = nil, File{}, map[string]float64{"replay": 20.4}
	r.Comparison = &Comparison{Key: "placement.policy", Reference: "netpack", Metrics: []string{"avg_jct", "de", "queueing"}, Published: []Published{
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
				p := Point{Index: index, Repeat: rep, Params: map[string]any{"placement.policy": name},
					Labels: []string{"placement.policy=" + name}}
				if len(oversubscriptions) > 1 {
					p.Params["fat_tree.oversubscription"] = o
					p.Labels = append([]string{fmt.Sprintf("fat_tree.oversubscription=%g", o)}, p.Labels...)
				}
				fig := func(metric string, v float64, unit string) {
					p.Phases[0].Figures = append(p.Phases[0].Figures, Figure{Metric: metric, Of: Cluster, Kind: Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: unit})
				}
				p.Phases = []Phase{{End: 86400}}
				fig("avg_jct", jct, "s")
				fig("de", 0.93/scale/math.Sqrt(load[rep])*noise(), "1")
				fig("queueing", 240*load[rep]*load[rep]*(0.7+0.3*scale)*noise(), "s")
				r.Points = append(r.Points, p)
			}
			index++
		}
	}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	r.ExitCode = ExitCode(r.Outcome)
	return r
}

// big is a topology with 74 nodes and its loads.
func big() (Topology, map[string]LinkLoad) {
	t := spines(rack(8, 8, 25e9), 2, 100e9)
	loads := map[string]LinkLoad{}
	for i, l := range t.Links {
		v := l.Rate * float64((i*37)%101) / 100
		loads[l.Name] = LinkLoad{Observed: Figure{Kind: Measured, Value: v, Lo: v, Hi: v}, Predicted: Figure{Kind: Predicted, Value: v * 1.02}}
	}
	return t, loads
}

func TestRenderFixtures(t *testing.T) {
	if *render == "" {
		t.Skip("no -render directory")
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(*render, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wf, samples := waterfill()
	wf.Points[0].Trees = jobTrees()
	put("past.html", reportOf(t, wf, append(samples, holdSamples()...), past()))
	put("fair-share.html", htmlOf(t, fairShare(), nil))
	put("waterfill.html", htmlOf(t, wf, samples))
	put("addressing.html", htmlOf(t, addressing(), nil))
	put("quickstart.html", htmlOf(t, quickstart(), nil))
	put("policies.html", htmlOf(t, policies([]float64{1, 2, 4, 10, 20}, 10), nil))
	many := policies([]float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20}, 3)
	many.Comparison.Metrics = []string{"avg_jct"}
	put("policies-many.html", htmlOf(t, many, nil))
	put("policies-one.html", htmlOf(t, policies([]float64{4}, 1), nil))
	put("placements.html", htmlOf(t, figure8(), nil))
	put("placements-large.svg", MachinesSVG("Jobs on 512 machines", largePlacements()))
	topo, loads := big()
	put("big.svg", TopologySVG(topo, loads))
	put("rack.svg", TopologySVG(rack(1, 3, 100e6), nil))
	put("two.svg", TopologySVG(spines(rack(2, 12, 25e9), 2, 100e9), nil))
}

// machines are those of a cluster in racks with other jobs on the first GPUs of some.
func machines(racks, perRack, gpus int, background func(i int) int) []Machine {
	var out []Machine
	for i := range racks * perRack {
		m := Machine{Name: fmt.Sprintf("h%d", i+1), Rack: fmt.Sprintf("r%d", i/perRack+1), GPUs: make([]Cell, gpus)}
		for k := range background(i) {
			m.GPUs[k] = Cell{Use: Background}
		}
		out = append(out, m)
	}
	return out
}

// occupy gives a job the next free GPUs of these machines, a rank each.
func occupy(all []Machine, job string, at ...int) []Machine {
	for rank, i := range at {
		for k, c := range all[i].GPUs {
			if c.Use == Free {
				all[i].GPUs[k] = Cell{Use: Worker, Job: job, Rank: rank}
				break
			}
		}
	}
	return all
}

// figure8 is a sweep of workers and policies on eight machines of four GPUs.
func figure8() *Record {
	r := base("placements", "Where four policies put the workers of a job")
	index := 0
	for _, workers := range []int{4, 6, 12} {
		for _, policy := range []string{"titan", "elasticflow", "tiresias", "hived"} {
			all := machines(1, 8, 4, func(i int) int { return []int{0, 3, 1, 2, 0, 1, 3, 2}[i] })
			order := map[string][]int{
				"titan": {2, 2, 2, 5, 5, 5, 3, 3, 7, 7, 1, 6}, "elasticflow": {0, 0, 0, 0, 4, 4, 4, 4, 2, 2, 2, 5},
				"tiresias": {2, 5, 2, 5, 2, 5, 3, 7, 3, 7, 1, 6}, "hived": {1, 6, 3, 3, 7, 7, 2, 2, 2, 5, 5, 5},
			}[policy]
			p := Point{Index: index, Params: map[string]any{"allreduce.workers": workers, "placement.policy": policy},
				Labels:   []string{fmt.Sprintf("allreduce.workers=%d", workers), "placement.policy=" + policy},
				Machines: occupy(all, "resnet50", order[:workers]...)}
			if policy == "elasticflow" && workers == 6 { // it takes powers of two
				p.Machines[4].GPUs[2], p.Machines[4].GPUs[3] = Cell{Use: Spare, Job: "resnet50"}, Cell{Use: Spare, Job: "resnet50"}
			}
			p.Phases = []Phase{{End: 5, Figures: []Figure{measuredFig("throughput", "resnet50", 1000+100*float64(workers), 3, "1")}}}
			r.Points = append(r.Points, p)
			index++
		}
	}
	r.Checks, r.Outcome, r.Reasons = Judge(r.Expect, r.Points)
	return r
}

// largePlacements are many jobs on 512 machines of eight GPUs, by two policies.
func largePlacements() []Placement {
	var out []Placement
	for _, name := range []string{"titan", "elasticflow", "tiresias", "hived"} {
		rng := rand.New(rand.NewPCG(5, 6))
		all := machines(64, 8, 8, func(i int) int { return 0 })
		at := 0
		for job := range 90 {
			var where []int
			for range 1 << rng.IntN(6) {
				where = append(where, at/8)
				at++
			}
			if name == "elasticflow" || name == "tiresias" && job%3 == 0 {
				at = (at + 7) / 8 * 8
			}
			if at > 512*8-64 {
				break
			}
			occupy(all, fmt.Sprintf("job%d", job), where...)
		}
		out = append(out, Placement{Name: name, Machines: all})
	}
	return out
}

package jobs

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/spec/spectest"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// TestUnsteady: a prediction is of a steady state, which messages that are short do not come to.
func TestUnsteady(t *testing.T) {
	share := func(granted float64) []placement.SharePrediction {
		return []placement.SharePrediction{{Switch: "tor1", Share: granted, Granted: granted, In: 2, Hold: 100e-6}}
	}
	paced := placement.JobPrediction{Name: "A", Bottleneck: "rate limit", Shares: share(0.55)}
	queued := placement.JobPrediction{Name: "A", Bottleneck: "tor1->h3", Queue: 1e6, Shares: share(0.02)}
	full := placement.JobPrediction{Name: "A", Bottleneck: "rate limit", Shares: share(1)}
	other := placement.JobPrediction{Name: "B", Bottleneck: "rate limit", Shares: share(0.55)}
	for _, tt := range []struct {
		name    string
		message int64
		jobs    []placement.JobPrediction
		want    string // of what is said; empty: nothing is
	}{
		{"a stream", 0, []placement.JobPrediction{paced}, ""},
		{"short", 256 << 10, []placement.JobPrediction{paced}, "at its beginning"},
		{"some windows", 1 << 20, []placement.JobPrediction{paced}, "at its beginning"},
		{"some windows, among others", 1 << 20, []placement.JobPrediction{paced, other}, ""},
		{"long", 4 << 20, []placement.JobPrediction{paced}, ""},
		{"enough memory", 256 << 10, []placement.JobPrediction{full}, ""},
		{"a queue that fills", 4 << 20, []placement.JobPrediction{queued}, "fill queues"},
	} {
		setup := testbed.Setup{Settings: testbed.Settings{Lanes: 240}, Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}, {Name: "B"}}}}
		setup.Workloads = []testbed.Workload{{Rate: 30e9, Window: 1024, Message: tt.message}, {Rate: 30e9, Window: 1024}}
		got := unsteady(setup, &placement.Prediction{Jobs: tt.jobs})
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want something of %q", tt.name, got, tt.want)
		}
	}
}

// TestInStep: jobs whose iterations take equally long keep the phase in which they began.
func TestInStep(t *testing.T) {
	job := func(name string, goodput, granted float64) placement.JobPrediction {
		return placement.JobPrediction{Name: name, Goodput: goodput, Trip: 200e-6, Shares: []placement.SharePrediction{{Switch: "tor1", Granted: granted}}}
	}
	for _, tt := range []struct {
		name string
		a, b int64 // messages; 0: a stream
		jobs []placement.JobPrediction
		want bool
	}{
		{"equal jobs", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 17e9, 0.6), job("B", 17e9, 0.6)}, true},
		{"twice as much", 2 << 20, 1 << 20, []placement.JobPrediction{job("A", 21e9, 0.6), job("B", 17e9, 0.6)}, false},
		{"hardly a pause", 1 << 28, 1 << 28, []placement.JobPrediction{job("A", 28e9, 0.6), job("B", 28e9, 0.6)}, false},
		{"enough memory", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 17e9, 1), job("B", 17e9, 1)}, false},
		{"a stream", 1 << 20, 0, []placement.JobPrediction{job("A", 17e9, 0.6), job("B", 17e9, 0.6)}, false},
		{"alone", 1 << 20, 0, []placement.JobPrediction{job("A", 17e9, 0.6)}, false},
		{"no results", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 0, 0.6), job("B", 0, 0.6)}, false},
	} {
		setup := testbed.Setup{Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}, {Name: "B"}}}}
		setup.Workloads = []testbed.Workload{{Message: tt.a}, {Message: tt.b}}
		if got := inStep(setup, 3, &placement.Prediction{Jobs: tt.jobs}); (got != "") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// TestUnscaled: slow motion of cables that lose packets is not the lab's, and says so.
func TestUnscaled(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  spec.Spec
		wants bool
	}{
		{"lossy in slow motion", spec.Spec{Emulation: spec.Emulation{Scale: "slow-motion", Factor: 200}, LinkStates: []spec.LinkState{{Of: "*", Loss: 0.01}}}, true},
		{"at the lab's speed", spec.Spec{Emulation: spec.Emulation{Scale: "slow-motion", Factor: 1}, LinkStates: []spec.LinkState{{Of: "*", Loss: 0.01}}}, false},
		{"shrunk, where times are the lab's", spec.Spec{Emulation: spec.Emulation{Scale: "shrunk", Factor: 200}, LinkStates: []spec.LinkState{{Of: "*", Loss: 0.01}}}, false},
		{"nothing is lost", spec.Spec{Emulation: spec.Emulation{Scale: "slow-motion", Factor: 200}, LinkStates: []spec.LinkState{{Of: "*", Duplicate: 0.01}}}, false},
	} {
		if got := unscaled(&c.spec); (got != "") != c.wants {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestChance: a job that crosses a lossy cable needs many losses for its mean to be known, and one that crosses none needs
// none.
func TestChance(t *testing.T) {
	for _, c := range []struct {
		name  string
		lossy string // cable, by its direction; A has h1, B has h2, and both have h3
		jobs  []string
		again map[string]float64 // packets that each sent again
		says  string             // the job; empty: nothing
	}{
		{"nothing is lost", "", []string{"A", "B"}, nil, ""},
		{"B loses many", "h2->tor1", []string{"A", "B"}, map[string]float64{"B": 5000}, ""},
		{"B loses few", "h2->tor1", []string{"A", "B"}, map[string]float64{"B": 10}, "B"},
		{"B loses few results", "tor1->h2", []string{"A", "B"}, map[string]float64{"B": 10}, "B"},
		{"B is not there", "h2->tor1", []string{"A"}, nil, ""},
		{"both lose on the way to their PS", "tor1->h3", []string{"A", "B"}, map[string]float64{"B": 5000}, "A"},
		{"both lose on the way back", "h3->tor1", []string{"A", "B"}, map[string]float64{"A": 5000, "B": 10}, "B"},
	} {
		text := `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1"]
ps = "h3"
[[job]]
name = "B"
hosts = ["h2"]
ps = "h3"
`
		if c.lossy != "" {
			text += "[[link_state]]\nof = \"" + c.lossy + "\"\nloss = 0.01\n"
		}
		s := spectest.Pair(t, nil, "1us", text)
		setup, err := setupOf(s, planned(t, s).Plan, s.Inventory(), Baseline{}, results.Scale{Mode: "none", Factor: 1})
		if err != nil {
			t.Fatal(err)
		}
		readings := &results.Readings{}
		for _, job := range c.jobs {
			for i := range 11 {
				at := float64(i) / 10
				readings.Add(results.Sample{Source: "agent", Metric: "worker_resends", Of: job + "/0", T: at, Value: at * c.again[job]})
			}
		}
		m := study.NewMeasurer(readings, results.Window{Start: 0, End: 1}, results.Measured)
		got := chance(m, setup, c.jobs, s.Inventory())
		if (got == "") != (c.says == "") || !strings.HasPrefix(got, "job "+c.says) && got != "" {
			t.Errorf("%s: %q, want something of job %q", c.name, got, c.says)
		}
		m.Kind = results.Simulated
		if got := chance(m, setup, c.jobs, s.Inventory()); got != "" {
			t.Errorf("%s, simulated: %q", c.name, got)
		}
	}
}

// TestEarly: what is measured long before queues are full, or before a job has had a result, need not be what is
// predicted.
func TestEarly(t *testing.T) {
	for _, c := range []struct {
		warmup, settled float64
		replayed, early bool
	}{{2, 0, false, false}, {2, 3, false, false}, {2, 4, false, false}, {2, 5, false, true}, {0, .1, false, true}, {.1, 0, false, false}, {.1, 0, true, true}, {.3, 0, true, false}} {
		p := &placement.Prediction{Settled: c.settled, Replayed: c.replayed, Jobs: []placement.JobPrediction{{Name: "A", Trip: .2}}}
		if why := early(c.warmup, p); (why != "") != c.early {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestSparse: packets of a job with a limit of rate leave at random times of blocks of 16, so that a phase needs some
// blocks, and a warm-up that is as long as it may take until the first packet.
func TestSparse(t *testing.T) {
	for _, c := range []struct {
		name                 string
		rate, warmup, length float64
		ring, replayed       bool
		kind                 results.Kind
		says                 string // empty: nothing
	}{
		{"a packet every 0.4 s", 20e3, 1, 3, false, false, results.Measured, "warmup of 13.1 s"},
		{"a long warm-up", 20e3, 14, 3, false, false, results.Measured, "duration of 39.3 s"},
		{"and a long phase", 20e3, 14, 40, false, false, results.Measured, ""},
		{"a packet every 8 ms", 1e6, 1, 3, false, false, results.Measured, ""},
		{"no limit", 0, 0, 1, false, false, results.Measured, ""},
		{"a model", 20e3, 1, 3, false, false, results.Simulated, ""},
		{"followed", 20e3, 1, 3, false, true, results.Measured, ""},
		{"a ring", 20e3, 1, 3, true, false, results.Measured, ""},
	} {
		setup := testbed.Setup{Settings: testbed.Settings{Lanes: 240}, Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}}}, Workloads: []testbed.Workload{{Rate: c.rate}}}
		if c.ring {
			setup.Plan.Jobs[0].Collective = placement.Ring
		}
		p := &placement.Prediction{Replayed: c.replayed, Jobs: []placement.JobPrediction{{Name: "A"}}}
		got := sparse(setup, c.warmup, c.length, c.kind, p)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want something of %q", c.name, got, c.says)
		}
	}
}

// TestCoarse: a phase that was followed has ten readings, or fails by none of what they say.
func TestCoarse(t *testing.T) {
	for _, c := range []struct {
		length, interval float64
		replayed, coarse bool
	}{
		{.9, .1, true, true}, {1.1, .1, true, false}, {.9, .1, false, false}, {.9, .05, true, false},
	} {
		if why := coarse(c.length, c.interval, &placement.Prediction{Replayed: c.replayed}); (why != "") != c.coarse {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestBrief: what is counted in a few round trips need not be what is predicted of many.
func TestBrief(t *testing.T) {
	for _, c := range []struct {
		length, rtt float64
		job         placement.JobPrediction
		control     string
		brief       bool
		by          float64
	}{
		{2, .05, placement.JobPrediction{}, "fixed", false, 0},
		{.5, .05, placement.JobPrediction{}, "fixed", true, .2},
		{.5, .05, placement.JobPrediction{}, "aimd", true, 0},
		{.08, .05, placement.JobPrediction{}, "fixed", true, 0},                          // nobody knows what a window and a half carries
		{2, .05, placement.JobPrediction{WireRate: 8e6, Queue: 1e5}, "fixed", true, .15}, // .1 s before the bottleneck
		{4, .05, placement.JobPrediction{WireRate: 8e6, Queue: 1e5}, "fixed", false, 0},
		{1e-9, 0, placement.JobPrediction{}, "fixed", false, 0}, // nothing is known of it
	} {
		c.job.Name, c.job.Trip = "A", c.rtt
		setup := testbed.Setup{Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}}}, Workloads: []testbed.Workload{{Control: c.control}}}
		why, by := brief(c.length, setup, &placement.Prediction{Jobs: []placement.JobPrediction{c.job}})
		if (why != "") != c.brief || math.Abs(by-c.by) > 1e-9 {
			t.Errorf("%v s of trips of %v s, %s, %+v: %q, by %v", c.length, c.rtt, c.control, c.job, why, by)
		}
	}
}

// TestCrowded: a plan says of which job it does not know how much later the last packet of a PSN comes than the first one:
// of a tiny window that is part of each turn, and of a large one the bottleneck is another.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		window     int
		collective string
		says       bool
	}{
		{2, "ps", true},
		{4096, "ps", false},
		{2, "ina", false}, // its packets are one on each link
	} {
		s := spectest.Pair(t, nil, "1us", fmt.Sprintf(`
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
collective = %q
window = %d
`, c.collective, c.window))
		p := planned(t, s)
		setup, err := setupOf(s, p.Plan, s.Inventory(), Baseline{}, results.Scale{Mode: "none", Factor: 1})
		if err != nil {
			t.Fatal(err)
		}
		predictions, err := predict(t.Context(), s.Inventory(), setup, Baseline{}, []string{"A"}, spec.Predictors)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(provisos(s, setup, predictions[0], s.Inventory()), "; ")
		if says := strings.Contains(got, "windows of job A come round by up to "); says != c.says {
			t.Errorf("a window of %d, %s: %q", c.window, c.collective, got)
		}
	}
}

package experiments

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/spec/spectest"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// pairOn is an experiment on two servers, and one for a parameter server, on a switch.
func pairOn(t *testing.T, delay, text string, args ...any) *spec.Spec {
	t.Helper()
	return spectest.Pair(t, kinds.All(), delay, fmt.Sprintf(text, args...))
}

// simulated is a run in the model.
func simulated(t *testing.T, s *spec.Spec) *results.Record {
	t.Helper()
	rec, _, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// figureOf is a figure of a run's only phase; the predicted one is occupancy's.
func figureOf(t *testing.T, rec *results.Record, metric, of string, kind results.Kind) float64 {
	t.Helper()
	for _, f := range rec.Points[0].Phases[0].Figures {
		if f.Metric == metric && f.Of == of && f.Kind == kind && f.Predictor != "waterfill" {
			return f.Value
		}
	}
	t.Fatalf("no %s of %s", metric, of)
	return 0
}

// One job between two idle servers. Whoever says how long an iteration takes says the same:
// pencil and paper, the plan, the model of packets' flows, the simulator of traces. Only a
// testbed is lacking here, which needs quiet; what one measured is in docs/STUDIES.md.
//
// Of a gradient of K bytes every direction of a server's link carries, of two servers,
//
//	ring and halving-doubling  2(n-1)/n·K = K in segments of 1514 bytes with 1448 of K, and of
//	                           those that go the other way one in two an acknowledgement of 66
//	INA, a PS                  K in frames of 1024 bytes with 960 of K
//
// and the link to a PS on a third server twice as much where no switch adds it up. Then what
// is last is on its way: of a ring one hop, of INA and a PS there and back.
func TestPair(t *testing.T) {
	const (
		line    = 100e9
		vgg     = 553_430_176. // bytes of VGG-16
		compute = 0.23255
		tcp     = 8. * (1514 + 66/2) / 1448 / line
		ina     = 8. * 1024 / 960 / line
	)
	for _, tt := range []struct {
		collective string
		perByte    float64 // s
		hops       float64 // that what is last takes
	}{
		{"ring", tcp, 2}, {"ina", ina, 4}, {"ps", 2 * ina, 4},
	} {
		ps := "ps = \"h3\""
		if tt.collective == "ring" {
			ps = ""
		}
		for _, size := range []struct {
			name, delay string
			bytes       float64
			hop         float64 // s
		}{
			{"100MB", "1us", 100e6, 1e-6},
			{"10MB", "50us", 10e6, 50e-6},
			{"1234567B", "20us", 1234567, 20e-6},
		} {
			s := pairOn(t, size.delay, `
inventory = "pair.toml"
[switch]
queue = "fair"
[[job]]
name = "A"
hosts = ["h1", "h2"]
collective = %q
%s
message = %q
window = 65536
duration = "4s"
[measure]
warmup = "1s"
duration = "2s"
`, tt.collective, ps, size.name)
			want := 8 * size.bytes / (size.bytes*tt.perByte + tt.hops*size.hop)
			near := func(who string, got float64) {
				t.Helper()
				if math.Abs(got/want-1) > 0.02 {
					t.Errorf("%s of %s over %s: %s says %s, by hand %s", tt.collective, size.name, size.delay, who,
						human.Quantity(got, "bit/s"), human.Quantity(want, "bit/s"))
				}
			}
			plan, err := NewPlan(t.Context(), s, "test")
			if err != nil {
				t.Fatal(err)
			}
			near("plan", plan.Points[0].Phases[0].Predictions[0].Jobs[0].Goodput)
			rec := simulated(t, s)
			near("the model", figureOf(t, rec, "goodput", "A", results.Simulated))
			near("the prediction beside it", figureOf(t, rec, "goodput", "A", results.Predicted))
			// To Algorithm 1 the job sends all the time.
			if alone, fill := 8/tt.perByte, plan.Points[0].Phases[0].Predictions[1].Jobs[0].Goodput; math.Abs(fill/alone-1) > 0.02 {
				t.Errorf("%s: waterfill says %s, by hand %s", tt.collective, human.Quantity(fill, "bit/s"), human.Quantity(alone, "bit/s"))
			}
		}
		// In a trace VGG-16 computes and exchanges in turn. The policy puts the PS on the third
		// server, where no worker's flow is.
		for _, fidelity := range []string{"fluid", "phases"} {
			rec := simulated(t, pairOn(t, "10us", `
inventory = "pair.toml"
[trace]
from = "one.csv"
models = ["vgg16"]
collective = %q
fidelity = %q
period = "0s"
[placement]
policy = "flow-balance"
`, tt.collective, fidelity))
			want := 100 * (compute + vgg*tt.perByte + tt.hops*10e-6)
			if got := figureOf(t, rec, "avg_jct", results.Cluster, results.Simulated); math.Abs(got/want-1) > 0.02 {
				t.Errorf("a trace of %s (%s): %v s, by hand %v", tt.collective, fidelity, got, want)
			}
		}
	}
	// Halving and doubling of two exchanges halves, twice.
	half := simulated(t, pairOn(t, "10us", `
inventory = "pair.toml"
[trace]
from = "one.csv"
models = ["vgg16"]
collective = "halving-doubling"
period = "0s"
`))
	want := 100 * (compute + vgg*tcp)
	if got := figureOf(t, half, "avg_jct", results.Cluster, results.Simulated); math.Abs(got/want-1) > 0.02 {
		t.Errorf("a trace of halving-doubling: %v s, by hand %v", got, want)
	}
	for _, operation := range []string{"ring", "halving-doubling", "halving-doubling-near"} {
		s := pairOn(t, "10us", `
inventory = "pair.toml"
[training]
model = "vgg16"
workers = 2
background = [0, 0, 0]
collective = %q
batch = 16
`, operation)
		plan, err := NewPlan(t.Context(), s, "test")
		if err != nil {
			t.Fatal(err)
		}
		rec := simulated(t, s)
		want := vgg * tcp
		for who, figures := range map[string][]results.Figure{"plan": plan.Points[0].Figures, "the simulator": rec.Points[0].Phases[0].Figures} {
			for _, f := range figures {
				if f.Metric == "iteration_comm_time" && math.Abs(f.Value/want-1) > 0.02 {
					t.Errorf("training by %s: %s says %v s, by hand %v", operation, who, f.Value, want)
				}
			}
		}
	}
}

// goodputHolds expects little but what is predicted.
const goodputHolds = `
[[expect]]
metric = "goodput"
tolerance = "1%%"
reason = "nothing else is on the way"
`

// TestEndOfPhase: a phase ends when the job does, and not with the reading after that.
func TestEndOfPhase(t *testing.T) {
	rec := simulated(t, pairOn(t, "5us", `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
rate = "20Gbit/s"
message = "1GiB"
iterations = 3
[measure]
warmup = "1s"
`+goodputHolds))
	if rec.Outcome != results.Pass {
		t.Errorf("%s: %v", rec.Outcome, rec.Reasons)
	}
}

// TestShortRings: a ring's goodput is of its vector's values, which fill no packets.
func TestShortRings(t *testing.T) {
	for _, message := range []string{"1B", "64B", "4KiB", "9000B", "16KiB"} {
		rec := simulated(t, pairOn(t, "5us", `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
collective = "ring"
message = "%s"
[measure]
warmup = "100ms"
duration = "1s"
`+goodputHolds, message))
		if rec.Outcome != results.Pass {
			t.Errorf("%s: %s: %v", message, rec.Outcome, rec.Reasons)
		}
	}
}

// TestMessagesAndMemory: a message of many windows meets what a stream meets; one that is over before
// queues are full meets something else, and is not judged by the steady state.
func TestMessagesAndMemory(t *testing.T) {
	proof.Only(t, "it follows packets")
	for _, c := range []struct {
		message string
		want    results.Outcome
	}{{"16MiB", results.Pass}, {"512KiB", results.Inconclusive}} {
		rec := simulated(t, pairOn(t, "5us", `
inventory = "pair.toml"
[switch]
aggregators = 64
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
message = "%s"
[measure]
warmup = "100ms"
duration = "1s"
`+goodputHolds, c.message))
		if rec.Outcome != c.want {
			t.Errorf("%s: %s: %v", c.message, rec.Outcome, rec.Reasons)
		}
	}
}

// TestOverflows: what windows need of a queue is what is left of them when the way is full.
func TestOverflows(t *testing.T) {
	proof.Only(t, "it follows packets")
	for _, c := range []struct {
		name, job, buffer string
		says              string
	}{
		{"windows", "", "1MiB", "the windows of A need 1."},
		{"a buffer that has room", "", "4MiB", ""},
		{"a small window", "window = 256", "1MiB", ""},
		{"a rate that fills no queue", `rate = "20Gbit/s"`, "1MiB", ""},
		{"windows that look after themselves", `control = "aimd"`, "1MiB", ""},
	} {
		s := pairOn(t, "5us", `
inventory = "pair.toml"
[switch]
aggregators = 64
ecn = "64KiB"
buffer = "%s"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
%s
`+goodputHolds, c.buffer, c.job)
		plan, err := NewPlan(t.Context(), s, "test")
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(plan.Points[0].Phases[0].Conditions, "\n")
		if (c.says == "") != (got == "") || !strings.HasPrefix(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}

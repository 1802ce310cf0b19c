package random_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
)

// load reads a setting as `inabench run` would.
func load(t *testing.T, s *random.Setting) *spec.Spec {
	t.Helper()
	inv, err := inventory.Parse(s.Name+"-inventory.toml", []byte(s.Inventory))
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.Name, err, s.Inventory)
	}
	spec, err := kinds.Parse(s.Name+".toml", []byte(s.Experiment), inv)
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.Name, err, s.Experiment)
	}
	return spec
}

// TestDrawnFiles keeps two settings to the byte: a seed must mean the same for ever.
func TestDrawnFiles(t *testing.T) {
	for _, seed := range []string{"1", "8ff0169c1d1b6f0e5a2d4c3b2a19080706050403"} {
		s := random.Draw(random.Seed(seed), 1)
		golden.Compare(t, fmt.Sprintf("%.7s.toml", seed), s.Inventory+"\n"+s.Experiment)
	}
}

func TestSeed(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "17": 17, "0x11": 17, "18446744073709551615": 1<<64 - 1,
		"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, // FNV-1a's published vectors
	} {
		if got := random.Seed(text); got != want {
			t.Errorf("seed %q is %#x, want %#x", text, got, want)
		}
	}
}

// TestDrawnFit checks and places 2,000 settings.
func TestDrawnFit(t *testing.T) {
	drawn := 2000
	if !proof.Wanted() {
		drawn = 200
	}
	for number := range drawn {
		s := random.Draw(2, number+1)
		for _, p := range load(t, s).Points() {
			if _, err := p.Spec.Place(t.Context()); err != nil {
				t.Fatalf("%s: %v\n%s\n%s", s.Name, err, s.Inventory, s.Experiment)
			}
		}
	}
}

// TestDrawnSettings plans 120 settings with all their predictions, and sees that all that the
// package promises is among them; without proofs it plans one of them.
func TestDrawnSettings(t *testing.T) {
	seen, n := map[string]int{}, 120
	if !proof.Wanted() {
		n = 1
	}
	for number := range n {
		s := random.Draw(1, number+1)
		spec := load(t, s)
		plan, err := experiments.NewPlan(t.Context(), spec, "test")
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", s.Name, err, s.Inventory, s.Experiment)
		}
		kinds := map[string]bool{}
		for _, j := range spec.Jobs {
			kinds[j.Collective] = true
			seen["collective "+j.Collective]++
			if j.Rate > 0 {
				seen["rate limit"]++
			}
			if j.Start > 0 {
				seen["comes later"]++
			}
		}
		seen[fmt.Sprint("jobs ", len(spec.Jobs))]++
		seen[fmt.Sprint("phases ", len(plan.Points[0].Phases))]++
		seen["mode "+spec.Switch.Mode]++
		seen["addressing "+spec.Switch.Addressing]++
		seen[fmt.Sprint("lanes ", spec.Switch.Lanes)]++
		if kinds["ina"] && kinds["ps"] && kinds["ring"] {
			seen["all collectives"]++
		}
		deepest := 0
		for _, j := range plan.Points[0].Plan.Jobs {
			n := 0
			for _, node := range j.Tree {
				if node.Aggregate {
					n++
				}
			}
			deepest = max(deepest, n)
		}
		seen[fmt.Sprint("aggregating switches ", min(deepest, 3))]++
		short := false
		for _, ph := range plan.Points[0].Phases {
			shares := 0
			for _, p := range ph.Predictions {
				for _, j := range p.Jobs {
					if j.Goodput <= 0 {
						t.Errorf("%s: job %s is predicted nothing", s.Name, j.Name)
					}
					for _, sh := range j.Shares {
						shares++
						short = short || sh.Share < 0.9
					}
				}
			}
			if shares == 0 {
				t.Errorf("%s: a phase without a share", s.Name)
			}
		}
		if short {
			seen["scarce memory"]++
		}
	}
	for _, want := range []string{
		"collective ina", "collective ps", "collective ring", "all collectives", "rate limit", "comes later", "scarce memory",
		"jobs 1", "jobs 2", "jobs 3", "jobs 4", "jobs 5", "phases 1", "phases 2", "phases 3", "mode statistical", "mode synchronous",
		"addressing pool", "addressing hash", "addressing linear", "addressing atp", "lanes 32", "lanes 240",
		"aggregating switches 1", "aggregating switches 2", "aggregating switches 3",
	} {
		if seen[want] < n/50 { // 0 of a few
			t.Errorf("%s: %d times in %d settings", want, seen[want], n)
		}
	}
}

// TestWrite writes a setting and reads it from its folder.
func TestWrite(t *testing.T) {
	s := random.Draw(3, 2)
	path, err := s.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := kinds.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range spec.Expectations() {
		want := map[string]float64{"goodput": random.RateTolerance, "link_rate": random.RateTolerance, "share": random.ShareTolerance}[e.Metric]
		if e.Tolerance != want || e.Relative != (want == random.RateTolerance) || e.Statistic != "each" || !e.Gate {
			t.Errorf("%s is held to %v", e.Metric, e.Tolerance)
		}
	}
	if spec.Name != s.Name || !strings.HasSuffix(path, s.Name+".toml") || spec.Text != s.Experiment {
		t.Errorf("%s holds experiment %s", path, spec.Name)
	}
}

// TestSlow: phases are as many as before at each pace, and as long as it makes them.
func TestSlow(t *testing.T) {
	n := 25 // each is planned three times
	if !proof.Wanted() {
		n = 2
	}
	for number := 1; number <= n; number++ {
		s := random.Draw(5, number)
		for _, tt := range []struct {
			pace                          random.Pace
			longer                        float64
			warmup, duration, stretch, at string
		}{
			{random.Pace{Factor: 10}, 1, "2000ms", "", "", ""}, // what is measured of a ring is longer
			{random.Pace{Factor: 100, Warm: 180000, Length: 30000}, 1, "180000ms", "30000ms", "3", "250ms"},
			{random.Pace{Factor: 100, Length: 10000}, 2, "2000ms", "20000ms", "3", "250ms"},
			{random.Pace{Factor: 100, Length: 30000}, 4, "2000ms", "60000ms", "3", "250ms"},
			{random.Pace{Factor: 100, Length: 90000}, 4, "2000ms", "90000ms", "3", "250ms"},
		} {
			got := s.Slow(tt.pace, tt.longer)
			want := map[string]string{
				"emulation.factor": fmt.Sprintf("%g", tt.pace.Factor), "measure.stretch": tt.stretch,
				"measure.warmup": tt.warmup, "measure.duration": tt.duration, "measure.interval": tt.at,
			}
			for _, set := range got {
				key, value, _ := strings.Cut(set, "=")
				if w := want[key]; w != "" && value != w {
					t.Errorf("%s at %+v: %s, want %s", s.Name, tt.pace, set, w)
				}
			}
		}
		inv, err := inventory.Parse(s.Name+"-inventory.toml", []byte(s.Inventory))
		if err != nil {
			t.Fatal(err)
		}
		before, err := experiments.NewPlan(t.Context(), load(t, s), "test")
		if err != nil {
			t.Fatal(err)
		}
		model, err := kinds.Parse(s.Name+".toml", []byte(s.Experiment), inv, s.Model()...)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		simulated, err := experiments.NewPlan(t.Context(), model, "test")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(simulated.Points[0].Phases), len(before.Points[0].Phases); got != want {
			t.Errorf("%s: %d phases on a model, else %d", s.Name, got, want)
		}
		slow, err := kinds.Parse(s.Name+".toml", []byte(s.Experiment), inv, s.Slow(random.Pace{Factor: 1e5, Warm: 6e3 * s.Trip() * 1e5, Length: 6e3 * s.Trip() * 1e5}, 1)...)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		after, err := experiments.NewPlan(t.Context(), slow, "test")
		if err != nil {
			t.Fatal(err)
		}
		if slow.Emulation.Factor != 1e5 || len(before.Points[0].Phases) != len(after.Points[0].Phases) {
			t.Fatalf("%s: factor %v, %d phases, %d before", s.Name, slow.Emulation.Factor, len(after.Points[0].Phases), len(before.Points[0].Phases))
		}
		for i, ph := range after.Points[0].Phases {
			// Of the longest round trip by cables, two of 2 us cables at least, six fit into what is not measured.
			if was := before.Points[0].Phases[i]; ph.End-ph.Start < 1.1*(was.End-was.Start) || ph.Start < 6*8e-6*1e5 {
				t.Errorf("%s: phase %d is %v to %v s, before %v to %v", s.Name, i, ph.Start, ph.End, was.Start, was.End)
			}
		}
	}
}

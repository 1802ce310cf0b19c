package stream_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sim"
)

// roomy is a testbed whose switches would take ids that packets cannot carry.
type roomy struct{ testbed.Testbed }

func (r roomy) Capabilities() testbed.Capabilities {
	c := r.Testbed.Capabilities()
	c.Jobs = ina.MaxJob + 1
	return c
}

type runner struct {
	study.Runner
	tb testbed.Testbed
}

func (r runner) Testbed() testbed.Testbed             { return r.tb }
func (runner) Scale() results.Scale                   { return results.Scale{Mode: "none"} }
func (runner) Origin() time.Time                      { return time.Now() }
func (runner) Progress(string, string, time.Duration) {}
func (runner) Timing(string, time.Time)               {}
func (runner) Left() time.Duration                    { return 0 }
func (runner) Keep(...results.Sample) error           { return nil }
func (runner) Sabotage(context.Context) (end func() int64, err error) {
	return func() int64 { return 0 }, nil
}

// TestIDs: the jobs of a trace have the ids that the testbed's switches take.
func TestIDs(t *testing.T) {
	s, err := kinds.Load("../../testbed-policies.toml")
	if err != nil {
		t.Fatal(err)
	}
	tb, err := sim.Open(s.Inventory(), sim.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(t.Context())
	p := study.Planned{Point: s.Points()[0]}
	b := &study.Bench{Runner: runner{tb: roomy{tb}}, Planned: p}
	_, _, err = kinds.Of(p.Spec).Run(t.Context(), b)
	if !b.Placed.Once {
		t.Error("jobs may come again")
	}
	if err == nil || !strings.Contains(err.Error(), "ids of jobs up to 4096, want 1..4095") {
		t.Errorf("got %v", err)
	}
}

// simulate does the first repeat of an experiment's first point.
func simulate(t *testing.T, s *spec.Spec) *study.Repetition {
	t.Helper()
	p := s.Points()[0]
	out, err := kinds.Of(p.Spec).(study.Simulator).Simulate(t.Context(), p.Spec, 0)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSettingsOfSimulation: a simulated trace has the switch memory and the delay of cables that its experiment says, of an
// inventory or of a fat tree.
func TestSettingsOfSimulation(t *testing.T) {
	jct := func(file string, sets ...string) float64 {
		s, err := kinds.Load(file, sets...)
		if err != nil {
			t.Fatal(err)
		}
		out := simulate(t, s)
		for _, f := range out.Figures {
			if f.Metric == "avg_jct" {
				return f.Value
			}
		}
		t.Fatal("no avg_jct")
		return 0
	}
	for file, size := range map[string]string{"../../testbed-policies.toml": "trace.jobs=10", "../../policies.toml": "trace.jobs=40"} {
		if all, little := jct(file, size), jct(file, size, "switch.aggregators=1"); little <= all {
			t.Errorf("%s: %v s with all memory, %v s with one aggregator", file, all, little)
		}
	}
	const fat = "../../fidelity.toml"
	if near, far := jct(fat, "fat_tree.delay=1us"), jct(fat, "fat_tree.delay=2ms"); far <= near {
		t.Errorf("%s: %v s over cables of 1us, %v s over those of 2ms", fat, near, far)
	}
}

// TestMachinesOfSimulation: the machines of a simulated trace are drawn as they were at the time that stands beside them, when
// the last job was placed or passed over, whether there are periods or GPUs that are free.
func TestMachinesOfSimulation(t *testing.T) {
	for _, period := range []string{"0s", "60s"} {
		for _, load := range []string{"0.5", "20"} {
			s, err := kinds.Parse("drawn.toml", []byte(`
version = 1
on = "sim"
placement = {policy = "titan"}
fat_tree = {racks = 2, hosts = 4, gpus = 8, rate = "100Gbit/s", pat = "0bit/s"}
trace = {from = "elasticflow", jobs = 60, load = `+load+`, period = "`+period+`", collective = "halving-doubling", models = ["resnet50"]}
`), nil)
			if err != nil {
				t.Fatal(err)
			}
			out := simulate(t, s)
			drawn := map[string]bool{}
			for _, m := range out.Machines {
				for _, c := range m.GPUs {
					if c.Use == results.Worker {
						drawn[c.Job] = true
					}
				}
			}
			last := 0.0
			for _, row := range out.Rows {
				var at [3]float64 // submitted, begun, ended
				for i := range at {
					if at[i], err = strconv.ParseFloat(row[2+i], 64); err != nil {
						t.Fatal(err)
					}
				}
				last = max(last, at[0])
				if runs := at[1] <= out.MachinesAt && out.MachinesAt < at[2]; runs != drawn[row[0]] {
					t.Errorf("period %s, load %s: after %v s job %s, which runs from %v to %v, is drawn: %t", period, load, out.MachinesAt, row[0], at[1], at[2], drawn[row[0]])
				}
			}
			if len(drawn) == 0 || out.MachinesAt < last {
				t.Errorf("period %s, load %s: %d jobs after %v s, and the last one came after %v s", period, load, len(drawn), out.MachinesAt, last)
			}
		}
	}
}

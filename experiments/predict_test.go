package experiments

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// counting is a testbed whose samples a test makes up.
type counting struct{ testbed.Testbed }

func (c counting) Capabilities() testbed.Capabilities {
	caps := c.Testbed.Capabilities()
	caps.Kind = results.Measured
	return caps
}

// TestLongMessage: a ring counts a message when it is done. Of one that takes longer than a phase
// it is not known how much was carried, and what is not known is not 0.
func TestLongMessage(t *testing.T) {
	spec := pairOn(t, "50us", `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
collective = "ring"
[measure]
warmup = "1s"
duration = "4s"
[[expect]]
metric = "goodput"
tolerance = "5%%"
reason = "nothing else is on the way"
`)
	points, err := plans(spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := openTestbed(t.Context(), "sim", spec, fabricOf(spec, "sim"), "", holding{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close(t.Context())
	r := &run{spec: spec, tb: counting{tb}}
	setup, err := spec.setup(points[0].plan, tb.Inventory(), Baseline{}, emulationScale(spec, "sim"))
	if err != nil {
		t.Fatal(err)
	}
	predicted, err := r.predict(tb.Inventory(), setup, Baseline{}, []string{"A"})
	if err != nil {
		t.Fatal(err)
	}
	goodput := predicted[0].Jobs[0].Goodput / 8 // bytes a second
	for _, c := range []struct {
		name  string
		every float64 // seconds that a message takes; 0: no time
		want  results.Outcome
	}{
		{"four messages between readings", 0.025, results.Pass},
		{"one in more than the phase", 6, results.Inconclusive},
		{"one in more than half of it", 2.9, results.Inconclusive},
		{"half of the rate", 0, results.Fail},
	} {
		var obs observation
		for i := range 60 {
			at := float64(i) / 10
			carried := goodput * at / 2
			if c.every > 0 {
				carried = goodput * c.every * float64(int(at/c.every+1e-9))
			}
			for rank := range 2 {
				of, source := fmt.Sprintf("A/%d", rank), fmt.Sprintf("worker A/%d", rank)
				obs.samples = append(obs.samples, results.Sample{T: at, Source: source, Metric: "worker_goodput_bytes", Of: of, Value: carried, Unit: "B"})
			}
		}
		ph, err := r.phase(setup, Baseline{}, obs, span{start: time.Second, end: 5 * time.Second, jobs: []string{"A"}})
		if err != nil {
			t.Fatal(err)
		}
		checks, got, reasons := results.Judge(spec.Expectations(), []results.Point{{Phases: []results.Phase{ph}}})
		if got != c.want {
			t.Errorf("%s: %s %q, want %s", c.name, got, reasons, c.want)
		}
		if c.want == results.Inconclusive && !strings.Contains(checks[0].Why, "one message takes more than half of the phase") {
			t.Errorf("%s: %q", c.name, checks[0].Why)
		}
	}
}

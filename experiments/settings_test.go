package experiments

import (
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
)

// TestReallocated: the simulator gives jobs whose memory is divided anew what is predicted for their windows, pacing included: a
// window of a few packets is held back by the places that paced workers have in a block.
func TestReallocated(t *testing.T) {
	for _, aggregators := range []int{16, 24, 96} {
		rec := simulated(t, pairOn(t, "1us", `
inventory = "pair.toml"
[switch]
mode = "synchronous"
aggregators = %d
reallocate = "500ms"
[[job]]
name = "A"
hosts = ["h1", "h2", "h3"]
rate = "30Gbit/s"
window = 40
[[job]]
name = "B"
hosts = ["h2", "h3"]
rate = "11Gbit/s"
window = 40
[measure]
warmup = "2s"
duration = "5s"
[[expect]]
metric = "goodput"
tolerance = "1%%"
reason = "windows are what memory allows"
`, aggregators))
		if rec.Outcome != results.Pass {
			t.Errorf("%d aggregators: %s: %q", aggregators, rec.Outcome, rec.Reasons)
		}
	}
}

// TestSmallWindow: a window of a packet or two is as slow for the simulator as it is predicted to be, under every addressing.
func TestSmallWindow(t *testing.T) {
	for _, addressing := range []string{"hash", "pool", "linear"} {
		for _, window := range []int{1, 3, 20} {
			rec := simulated(t, pairOn(t, "20us", `
inventory = "pair.toml"
[switch]
addressing = %q
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
window = %d
[measure]
warmup = "1s"
duration = "1s"
[[expect]]
metric = "goodput"
tolerance = "1%%"
reason = "one job alone"
`, addressing, window))
			if rec.Outcome != results.Pass {
				t.Errorf("%s, a window of %d: %s: %q", addressing, window, rec.Outcome, rec.Reasons)
			}
		}
	}
}

// TestClockBefore: a clock that jumped before what is measured began is found all the same.
func TestClockBefore(t *testing.T) {
	o, err := ParseSabotage("jump-clock")
	if err != nil {
		t.Fatal(err)
	}
	for _, warmup := range []string{"1s", "4s"} {
		rec, _, err := Run(t.Context(), loadCell(t, "quickstart.toml", []string{"measure.warmup=" + warmup}), RunOptions{Driver: "sim", Root: t.TempDir(), Tool: "test", Sabotage: o})
		if err != nil {
			t.Fatal(err)
		}
		if why := strings.Join(rec.Reasons, "\n"); rec.Outcome != results.Fail || !strings.Contains(why, "worker A/0 on host h1 reports from the future") {
			t.Errorf("a warm-up of %s: %s: %s", warmup, rec.Outcome, why)
		}
	}
}

// TestSlotsOfSwitch: a job that is to pick more slots than its switch has is refused before anything runs.
func TestSlotsOfSwitch(t *testing.T) {
	s := pairOn(t, "1us", `
inventory = "pair.toml"
[switch]
addressing = "atp"
slots = 16
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
`)
	s.Inventory().Switches[0].Aggregators = 7
	if _, err := NewPlan(s, "test"); !errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), "switch.slots is 16, and a switch that adds up for it has 7 aggregators") {
		t.Errorf("%v", err)
	}
}

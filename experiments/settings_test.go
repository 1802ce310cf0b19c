package experiments

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
)

// reallocated is a simulation of two jobs whose memory is divided anew again and again; more is what one says of the first.
func reallocated(t *testing.T, aggregators int, more, warmup, duration string) *results.Record {
	t.Helper()
	return simulated(t, pairOn(t, "1us", `
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
%s
[[job]]
name = "B"
hosts = ["h2", "h3"]
rate = "11Gbit/s"
window = 40
[measure]
warmup = %q
duration = %q
[[expect]]
metric = "goodput"
tolerance = "1%%"
reason = "windows are what memory allows"
`, aggregators, more, warmup, duration))
}

// TestReallocated: the simulator gives jobs whose memory is divided anew what is predicted for their windows, pacing included: a
// window of a few packets is held back by the places that paced workers have in a block.
func TestReallocated(t *testing.T) {
	for _, aggregators := range []int{16, 24, 96} {
		rec := reallocated(t, aggregators, "", "2s", "5s")
		if rec.Outcome != results.Pass {
			t.Errorf("%d aggregators: %s: %q", aggregators, rec.Outcome, rec.Reasons)
		}
	}
}

// TestReallocatedAlone: a job has all memory that is divided anew while those before it in the file are not there, and is predicted to.
func TestReallocatedAlone(t *testing.T) {
	for _, aggregators := range []int{16, 96} {
		rec := reallocated(t, aggregators, `start = "4s"`, "1s", "3s")
		if rec.Outcome != results.Pass {
			t.Errorf("%d aggregators: %s: %q", aggregators, rec.Outcome, rec.Reasons)
		}
		if ph := rec.Points[0].Phases[0]; !slices.Equal(ph.Jobs, []string{"B"}) {
			t.Errorf("at first there are %s, want B alone", ph.Jobs)
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

// TestSlotsOfSwitch: slots that a job cannot pick on its switch are refused before anything runs: more than there are, less
// than one, or of more aggregators than slots can name.
func TestSlotsOfSwitch(t *testing.T) {
	for _, test := range []struct {
		says        string
		aggregators int
		want        string
	}{
		{"slots = 16", 7, "switch.slots is 16, and a switch that adds up for it has 7 aggregators"},
		{"slots_ratio = 0.1", 4, "switch.slots_ratio 0.1 of 4 aggregators is less than one slot"},
		{"slots_ratio = 0.1\naggregators = 4", 4096, "switch.slots_ratio 0.1 of 4 aggregators is less than one slot"},
		{"slots_ratio = 0.1", 5, ""}, // half a slot is one
		{"slots = 7", 7, ""},
		{"slots_ratio = 0.5", 100_000, "a switch that adds up for it has 100,000 aggregators, and slots are chosen among 65536 at most"},
		{"slots_ratio = 0.5\naggregators = 65536", 100_000, ""},
	} {
		s := pairOn(t, "1us", `
inventory = "pair.toml"
[switch]
addressing = "atp"
%s
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
`, test.says)
		s.Inventory().Switches[0].Aggregators = test.aggregators
		_, err := NewPlan(t.Context(), s, "test")
		if test.want == "" && err != nil {
			t.Errorf("%q of %d aggregators: %v", test.says, test.aggregators, err)
		}
		if test.want != "" && (!errors.Is(err, spec.ErrInput) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q of %d aggregators: %v, want %q", test.says, test.aggregators, err, test.want)
		}
	}
}

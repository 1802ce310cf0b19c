package jobs

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// TestSurest: of calibrations that a machine disturbs that one counts whose worst value is the surest.
func TestSurest(t *testing.T) {
	of := func(halves ...float64) (cal []results.Calibration) { // of values of 2
		for _, h := range halves {
			cal = append(cal, results.Calibration{Value: 2, Lo: 2 - h, Hi: 2 + h})
		}
		return cal
	}
	for _, tt := range []struct {
		name  string
		times [][]results.Calibration
		tries int
		want  int // index in times
		asked int // how many of them were asked for
	}{
		{"sure at once", [][]results.Calibration{of(.05, .01), of(0, 0)}, 4, 0, 1},
		{"sure the second time", [][]results.Calibration{of(.05, .07), of(.05, .04), of(0, 0)}, 4, 1, 2},
		{"never sure", [][]results.Calibration{of(.5, .1), of(.01, .4), of(.1, .1), of(.3, .3), of(0, 0)}, 4, 2, 4},
		{"one try", [][]results.Calibration{of(.5), of(0)}, 1, 0, 1},
		{"no time at all", [][]results.Calibration{{{Value: 0}}, of(.01)}, 4, 1, 2},
		{"nothing is counted", [][]results.Calibration{nil, of(0)}, 4, 0, 1},
	} {
		asked := 0
		got, err := surest(tt.tries, func() ([]results.Calibration, error) {
			asked++
			return tt.times[asked-1], nil
		})
		if err != nil || asked != tt.asked || !slices.Equal(got, tt.times[tt.want]) {
			t.Errorf("%s: %v after %d times, %v; want %v after %d", tt.name, got, asked, err, tt.times[tt.want], tt.asked)
		}
	}
	broken := errors.New("broken")
	if _, err := surest(4, func() ([]results.Calibration, error) { return of(1), broken }); !errors.Is(err, broken) {
		t.Errorf("an error of a measurement is %v", err)
	}
}

// TestUnsureShares: a share of what a memory holds is no surer than how long an aggregator stays taken. An emulated rack that
// stood still while it was calibrated aggregated .533 of the half that its memory was for: its T was 23.3 ms ± 12.4 ms.
func TestUnsureShares(t *testing.T) {
	p := &placement.Prediction{Predictor: placement.Occupancy, Jobs: []placement.JobPrediction{{
		Name: "A", Goodput: 1e9, Shares: []placement.SharePrediction{{Switch: "tor1", Granted: .5, Share: .5, Spread: .3 / placement.Deviations, In: 1e6}, {Switch: "tor2", Granted: 1, Share: 1, In: 1e6}},
	}}}
	inv := pairOn(t, "\ninventory = \"pair.toml\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\nps = \"h3\"\n").Inventory()
	got := map[string]results.Figure{}
	for _, f := range figures(p, inv.Topology(), Baseline{Unsure: map[string]float64{"A@tor1": .8, "A@tor2": .02}}) {
		if f.Metric == "share" {
			got[f.Of] = f
		}
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if f := got["A@tor1"]; !near(f.Lo, 0) || !near(f.Hi, 1) {
		t.Errorf("share of %v to %v, want 0 to 1: .3 and .4 make .5", f.Lo, f.Hi)
	}
	if f := got["A@tor2"]; !near(f.Lo, .98) || f.Hi != 1 {
		t.Errorf("share of %v to %v, want .98 to 1", f.Lo, f.Hi)
	}
}

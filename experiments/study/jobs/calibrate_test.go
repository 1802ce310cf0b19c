package jobs

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// TestSurest: of calibrations that a machine disturbs that one counts whose worst value is the surest.
func TestSurest(t *testing.T) {
	of := func(halves ...float64) (cal []results.Calibration) { // of values of 2
		for _, h := range halves {
			cal = append(cal, results.Calibration{Value: 2, Lo: 2 - h, Hi: 2 + h, N: 10})
		}
		return cal
	}
	single := []results.Calibration{{Value: 2, Lo: 2, Hi: 2, N: 1}}
	for _, tt := range []struct {
		name  string
		times [][]results.Calibration
		lost  []int // values of each time
		tries int
		want  int // index in times
		asked int // how many of them were asked for
	}{
		{"sure at once", [][]results.Calibration{of(.05, .01), of(0, 0)}, nil, 4, 0, 1},
		{"sure the second time", [][]results.Calibration{of(.05, .07), of(.05, .04), of(0, 0)}, nil, 4, 1, 2},
		{"never sure", [][]results.Calibration{of(.5, .1), of(.01, .4), of(.1, .1), of(.3, .3), of(0, 0)}, nil, 4, 2, 4},
		{"one try", [][]results.Calibration{of(.5), of(0)}, nil, 1, 0, 1},
		{"no time at all", [][]results.Calibration{{{Value: 0}}, of(.01)}, nil, 4, 1, 2},
		{"nothing is counted", [][]results.Calibration{nil, of(0)}, nil, 4, 0, 1},
		{"nothing is left", [][]results.Calibration{nil, of(.05, .01)}, []int{2, 0}, 4, 1, 2},
		{"a part is left", [][]results.Calibration{of(.001), of(.3, .3), of(.001)}, []int{1, 0, 1}, 3, 1, 3},
		{"less and less is left", [][]results.Calibration{of(.001), nil, nil}, []int{1, 2, 3}, 3, 0, 3},
		{"one reading", [][]results.Calibration{single, of(.1)}, nil, 2, 1, 2},
	} {
		asked := 0
		got, err := surest(tt.tries, func() (m measured, err error) {
			m.values = tt.times[asked]
			if tt.lost != nil {
				m.lost = slices.Repeat([]string{"A"}, tt.lost[asked])
			}
			asked++
			return m, nil
		})
		if err != nil || asked != tt.asked || !slices.Equal(got.values, tt.times[tt.want]) {
			t.Errorf("%s: %v after %d times, %v; want %v after %d", tt.name, got, asked, err, tt.times[tt.want], tt.asked)
		}
	}
	broken := errors.New("broken")
	if _, err := surest(4, func() (measured, error) { return measured{values: of(1)}, broken }); !errors.Is(err, broken) {
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

// TestTimed: processes of a lab are held to the round trips that were calibrated there, those of an emulation to its topology.
func TestTimed(t *testing.T) {
	base := Baseline{RTTs: map[string]float64{"A": 250e-6}}
	for pace, want := range map[testbed.Pace]time.Duration{{}: 250 * time.Microsecond, {Within: time.Second}: 0} {
		setup := testbed.Setup{Workloads: []testbed.Workload{{Job: placement.JobPlan{Name: "A"}}, {Job: placement.JobPlan{Name: "B"}}}}
		if timed(setup, pace, base); setup.Workloads[0].Trip != want || setup.Workloads[1].Trip != 0 {
			t.Errorf("%+v: %v, want %v", pace, setup.Workloads, want)
		}
	}
}

// TestCalibrate: of a model, which has no queues at so low a rate, what is calibrated is what its topology says. Rings are
// not: nobody counts their round trips.
func TestCalibrate(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
[[job]]
name = "R"
hosts = ["h1", "h2"]
collective = "ring"
`)
	known, err := placement.Resolve(r.Spec.Inventory(), r.Plan, conditions(setup, Baseline{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	base, values, err := calibrate(t.Context(), r.Testbed(), r.Spec, r.Plan, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < .01*b }
	if len(base.RTTs) != 1 || !near(base.RTTs["A"], known[0].RTT) {
		t.Errorf("round trips of %v, want %v of A", base.RTTs, known[0].RTT)
	}
	if len(base.Holds) != 1 || !near(base.Holds["A@tor1"], known[0].Holds[0]) || base.Unsure["A@tor1"] > calibrationError {
		t.Errorf("an aggregator is held for %v, off by %v of it; want %v", base.Holds, base.Unsure, known[0].Holds[0])
	}
	for _, v := range values {
		if v.Unit != "s" || v.Lo > v.Value || v.Value > v.Hi {
			t.Errorf("%+v", v)
		}
	}
}

package jobs

import (
	"math"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
)

// TestState: a phase is held to one of the runs that were followed where all of it came as in that one, which must be
// another state than the mean; what is of one state in one figure and of the other in the next is in none.
func TestState(t *testing.T) {
	draw := func(a, b, shareA, shareB, load float64) []results.Figure {
		var out []results.Figure
		for _, f := range []results.Figure{
			{Metric: "goodput", Of: "A", Value: a}, {Metric: "goodput", Of: "B", Value: b},
			{Metric: "share", Of: "A@tor1", Value: shareA}, {Metric: "share", Of: "B@tor1", Value: shareB},
			{Metric: "link_rate", Of: "tor1->h3", Value: load}, {Metric: "link_rate", Of: "h9->tor1", Value: 1},
		} {
			f.Kind, f.Predictor, f.Lo, f.Hi, f.OfRun = results.Predicted, placement.Occupancy, f.Value, f.Value, true
			out = append(out, f)
		}
		return out
	}
	first, second := draw(100, 100, 1, 0, 300), draw(90, 130, .32, .76, 360)
	none := draw(0, 200, 0, 1, 400)
	mean := draw(95, 115, .66, .38, 330)
	near := draw(97, 115, .66, .38, 330) // within a tolerance of the mean
	for _, c := range []struct {
		name string
		got  []results.Figure
		held []results.Figure // nil: to none of the runs
	}{
		{"the first state", draw(101, 99, .99, .01, 303), first},
		{"the second state", draw(91, 130, .31, .77, 356), second},
		{"a link with few packets", draw(91, 130, .31, .77, 360), second},
		{"shares of one, rates of the other", draw(100, 100, .32, .76, 300), nil},
		{"one share of each", draw(100, 100, 1, .76, 300), nil},
		{"further off than half a tolerance", draw(104, 100, 1, 0, 300), nil},
		{"between them", draw(95, 115, .66, .38, 300), nil},
		{"a link that carries more than any", draw(90, 130, .32, .76, 380), nil},
		{"a job that got something where it gets nothing", draw(50, 200, 0, 1, 400), nil},
		{"a job that gets nothing", draw(0, 200, 0, 1, 400), none},
		{"a job that stopped", draw(0, 130, .32, .76, 360), nil},
	} {
		ph := &results.Phase{}
		for _, f := range c.got {
			f.Kind, f.Predictor = results.Measured, ""
			if c.name == "a link with few packets" && f.Value == 1 {
				f.Value, f.Grain = 2.5, 2
			}
			ph.Figures = append(ph.Figures, f)
		}
		other := results.Figure{Metric: "goodput", Of: "A", Value: 200, Kind: results.Predicted, Predictor: "waterfill"}
		ph.Figures = append(append(ph.Figures, mean...), other)
		runs := [][]results.Figure{first, second, near, none}
		found := hold(ph, elsewhere(runs, mean), len(runs))
		held := c.held
		if held == nil {
			held = mean
		}
		if said := strings.Contains(ph.State, "one of 4 runs"); said != (c.held != nil) || said != found {
			t.Errorf("%s: %v, %q", c.name, found, ph.State)
		}
		if len(ph.Figures) != 2*len(mean)+1 {
			t.Errorf("%s: %d figures", c.name, len(ph.Figures))
		}
		for _, f := range held {
			if p, ok := predicted(ph.Figures, f.Metric, f.Of); !ok || p.Value != f.Value {
				t.Errorf("%s: held to %s of %s %v, want %v", c.name, f.Metric, f.Of, p.Value, f.Value)
			}
		}
		if w, ok := figureOf(ph.Figures, results.Predicted, "waterfill", "goodput", "A"); !ok || w.Value != 200 {
			t.Errorf("%s: what others predict is lost: %+v", c.name, ph.Figures)
		}
	}
}

// off excuses what lies between what was predicted and what others come to, and nothing else: of a shaken run no more than
// was predicted, of jobs that are apart at random all.
func TestOff(t *testing.T) {
	figure := func(kind results.Kind, metric string, v, lo, hi float64) results.Figure {
		f := results.Figure{Kind: kind, Metric: metric, Of: "A", Value: v, Lo: lo, Hi: hi}
		if kind == results.Predicted {
			f.Predictor = placement.Occupancy
		}
		return f
	}
	says := func(goodput, share, load [3]float64) []results.Figure {
		return []results.Figure{
			figure(results.Predicted, "goodput", goodput[0], goodput[1], goodput[2]),
			figure(results.Predicted, "share", share[0], share[1], share[2]),
			figure(results.Predicted, "link_rate", load[0], load[1], load[2]),
		}
	}
	predicted := says([3]float64{100, 100, 100}, [3]float64{.8, .8, .8}, [3]float64{300, 300, 300})
	shaken := alternative{says([3]float64{80, 40, 120}, [3]float64{.7, .5, 1}, [3]float64{280, 250, 400}), true}
	apart := alternative{says([3]float64{100, 90, 120}, [3]float64{.8, .6, 1}, [3]float64{300, 100, 500}), false}
	for _, c := range []struct {
		name                 string
		goodput, share, load float64
		off, shaken, both    bool
	}{
		{"as predicted", 97, .78, 310, false, false, false},
		{"the other state", 45, .55, 390, true, false, false},
		{"a job that stopped", 0, .55, 300, true, true, true},
		{"less than any state", 30, .7, 300, true, true, true},
		{"a share of none", 60, .4, 300, true, true, true},
		{"more than predicted", 110, .8, 300, true, true, false},
		{"a share of all", 100, 1, 300, true, true, false},
		{"a share of all, and its link", 100, .83, 110, true, true, false},
		{"more than any state", 130, .8, 300, true, true, true},
		{"a link that nothing explains", 100, .8, 550, true, true, true},
	} {
		got := append([]results.Figure{
			figure(results.Measured, "goodput", c.goodput, 0, 0), figure(results.Measured, "share", c.share, 0, 0),
			figure(results.Measured, "link_rate", c.load, c.load-5, c.load+5), figure(results.Measured, "rtt", 9, 9, 9),
		}, predicted...)
		if off(got) != c.off || off(got, shaken) != c.shaken || off(got, shaken, apart) != c.both {
			t.Errorf("%s: off %v, from a shaken run too %v, and from jobs apart at random %v", c.name, off(got), off(got, shaken), off(got, shaken, apart))
		}
	}
}

// TestScatter: jobs that index a memory by PSN are as far apart as at random where they begin within a turn of it.
func TestScatter(t *testing.T) {
	r, setup := judging(t, `
inventory = "pair.toml"
[switch]
aggregators = 1000
lanes = 100
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
[[job]]
name = "B"
hosts = ["h1", "h2"]
ps = "h3"
[[job]]
name = "C"
collective = "ps"
hosts = ["h1", "h2"]
ps = "h3"
`)
	phase := func(a, b, c float64, jobs ...string) *results.Phase {
		ph := &results.Phase{Jobs: jobs}
		for job, v := range map[string]float64{"A": a, "B": b, "C": c} {
			ph.Figures = append(ph.Figures, results.Figure{Metric: "goodput", Of: job, Kind: results.Measured, Value: v})
		}
		return ph
	}
	for _, c := range []struct {
		name     string
		as, mode string
		ph       *results.Phase
		within   float64 // that B begins, s; the others: 10 ms
	}{
		{"by PSN", "linear", "statistical", phase(1e6, 3.2e6, 7, "A", "B", "C"), 1},
		{"in slots of their own, from some on", "atp", "statistical", phase(1e6, 1.6e6, 7, "A", "B"), 2},
		{"in a turn that is shorter than what nobody knows", "linear", "statistical", phase(1e9, 1e9, 7, "A", "B"), .01},
		{"in any slot", "pool", "statistical", phase(1e6, 3.2e6, 7, "A", "B"), .01},
		{"by a hash", "hash", "statistical", phase(1e6, 3.2e6, 7, "A", "B"), .01},
		{"in slots that are reserved", "linear", "synchronous", phase(1e6, 3.2e6, 7, "A", "B"), .01},
		{"one of them alone", "linear", "statistical", phase(1e6, 3.2e6, 7, "B", "C"), .01},
		{"of which nothing came", "linear", "statistical", phase(1e6, 0, 7, "A", "B"), .01},
	} {
		setup.Settings.Addressing, setup.Settings.Mode = c.as, c.mode
		s := placement.Schedule{Jobs: map[string]flow.Times{}}
		for _, j := range setup.Plan.Jobs {
			s.Jobs[j.Name] = flow.Times{Within: .01}
		}
		if got := scatter(s, setup, r.Testbed().Inventory(), c.ph); got != (c.within > .01) {
			t.Errorf("%s: %v", c.name, got)
		}
		if a, b, c3 := s.Jobs["A"].Within, s.Jobs["B"].Within, s.Jobs["C"].Within; a != .01 || math.Abs(b-c.within) > 1e-9 || c3 != .01 {
			t.Errorf("%s: A begins within %v s, B within %v, C within %v; want B within %v", c.name, a, b, c3, c.within)
		}
	}
}

// TestUnmet: what few of a setting's states were followed says that there are states, not how far these are apart.
func TestUnmet(t *testing.T) {
	for _, c := range []struct {
		name          string
		spread, share float64 // of the job's rate, and of its share
		want          float64
	}{
		{"one state", .002, .003, 0},
		{"two states of a rate", .05, 0, .196},
		{"two states of a share", .002, .03, .1176},
	} {
		p := &placement.Prediction{Jobs: []placement.JobPrediction{{Name: "A", Spread: c.spread, Shares: []placement.SharePrediction{{Switch: "tor1", Spread: c.share}}}}}
		why, by := unmet(p)
		if math.Abs(by-c.want) > 1e-9 || (why == "") != (c.want == 0) {
			t.Errorf("%s: %q, %v, want %v", c.name, why, by, c.want)
		}
	}
}

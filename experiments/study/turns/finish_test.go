package turns

import (
	"math"
	"slices"
	"testing"

	"github.com/inabench/inabench/results"
)

// TestFinish: a point's score lies between the ends of its scale, each of which is another point, and there is none where
// what was measured of one of these does not count.
func TestFinish(t *testing.T) {
	record := func() *results.Record {
		rec := &results.Record{}
		for repeat := range 2 {
			for i, sharing := range []string{"never", "mina", "always"} {
				rec.Points = append(rec.Points, results.Point{
					Index: i, Repeat: repeat, Params: map[string]any{"operations.sharing": sharing},
					Phases: []results.Phase{{Figures: []results.Figure{{Metric: "avg_jct", Of: results.Cluster, Kind: results.Measured, Value: []float64{20, 14, 10}[i]}}}},
				})
			}
		}
		return rec
	}
	busy := []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
	for _, c := range []struct {
		name    string
		harm    func(p []results.Point) // of the first repeat
		score   float64                 // of its second point; NaN: none
		missing string
		stood   string
	}{
		{"all is well", func([]results.Point) {}, .6, "", ""},
		{"never is unsound", func(p []results.Point) { p[0].Health = busy }, math.NaN(), "operations.sharing=never: host h1: busy", ""},
		{"always is unsound", func(p []results.Point) { p[2].Health = busy }, math.NaN(), "operations.sharing=always: host h1: busy", ""},
		{"always ended early", func(p []results.Point) { p[2].Error, p[2].Phases = "lost", nil }, math.NaN(), "operations.sharing=always: ended early: lost", ""},
		{"never is spoilt", func(p []results.Point) { p[0].Phases[0].Spoilt = "all of it" }, math.NaN(), "operations.sharing=never: all of it", ""},
		{"never may be off", func(p []results.Point) { p[0].Phases[0].Stood = "it stood still" }, .6, "", "operations.sharing=never: it stood still"},
		{"both may be off", func(p []results.Point) { p[0].Phases[0].Stood, p[2].Phases[0].Stood = "it stood still", "it, too" }, .6, "", "operations.sharing=never: it stood still"},
		{"it is unsound itself", func(p []results.Point) { p[1].Health = busy }, .6, "", ""}, // which judges leave out
	} {
		rec := record()
		c.harm(rec.Points[:3])
		new(Operations).Finish(rec)
		for repeat, want := range []float64{c.score, .6} {
			ph, got := rec.Points[1+3*repeat].Phases[0], math.NaN()
			for _, f := range ph.Figures {
				if f.Metric == "ina_score" {
					got = f.Value
				}
			}
			if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: repeat %d: score %v, want %v", c.name, repeat, got, want)
			}
			why := map[string]string{}
			for _, m := range ph.Missing {
				why[m.Metric] = m.Why
			}
			if repeat == 0 && (why["ina_score"] != c.missing || why["jct_range"] != c.missing || ph.Excuse("ina_score") != c.stood || ph.Excuse("jct_range") != c.stood) || repeat == 1 && len(why) > 0 {
				t.Errorf("%s: repeat %d: %v, %q", c.name, repeat, why, ph.StoodOf)
			}
			if why := ph.Excuse("avg_jct"); why != "" {
				t.Errorf("%s: repeat %d: what is of this point alone is excused by %q", c.name, repeat, why)
			}
		}
	}
}

// TestNoisyRange: a range that differs between repeats by as much as it is makes no score, whatever each repeat came to.
func TestNoisyRange(t *testing.T) {
	for _, c := range []struct {
		name   string
		never  []float64 // mean JCT without INA in each repeat; with INA for all it is 10, as evaluated 10 or so
		scores int
		ranges int
	}{
		{"one repeat", []float64{12}, 1, 1}, // nobody knows its noise
		{"alike", []float64{12, 12.1, 11.9}, 3, 3},
		{"two that are not far apart", []float64{12, 11.5}, 2, 2},
		{"noise", []float64{12, 10.2, 10.9}, 0, 3},
		{"noise of many, with a mean that is certain", slices.Repeat([]float64{10.3, 13}, 15), 0, 30},
		{"sometimes slower with INA", []float64{10.5, 9.5, 10.4}, 0, 3},
	} {
		rec := &results.Record{}
		for repeat, never := range c.never {
			for i, sharing := range []string{"never", "mina", "always"} {
				rec.Points = append(rec.Points, results.Point{
					Index: i, Repeat: repeat, Params: map[string]any{"operations.sharing": sharing},
					Phases: []results.Phase{{Figures: []results.Figure{{Metric: "avg_jct", Of: results.Cluster, Kind: results.Measured, Value: []float64{never, 10.1, 10}[i]}}}},
				})
			}
		}
		new(Operations).Finish(rec)
		scores, ranges, missing := 0, 0, 0
		for _, p := range rec.Points {
			if p.Index != 1 {
				continue
			}
			for _, f := range p.Phases[0].Figures {
				switch f.Metric {
				case "ina_score":
					scores++
				case "jct_range":
					ranges++
				}
			}
			missing += len(p.Phases[0].Missing)
		}
		if scores != c.scores || ranges != c.ranges || missing != len(c.never)-scores {
			t.Errorf("%s: %d scores, %d ranges, %d missing; want %d, %d", c.name, scores, ranges, missing, c.scores, c.ranges)
		}
	}
}

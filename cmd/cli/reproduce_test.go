package cli

import (
	"testing"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestNewestRuns: claims are judged by the newest run of all points. A newer one that was small, was interrupted or broke takes
// its place nowhere, nor has one of another setting.
func TestNewestRuns(t *testing.T) {
	point, shipped := results.Point{}, experiments.Shipped("policies.toml")
	of := func(change func(*results.Record)) *results.Record {
		rec := &results.Record{Name: "policies", Driver: "sim", Experiment: results.File{Path: "experiments/policies.toml", Text: shipped.Experiment.Text}, Planned: 2, Points: []results.Point{point, point}}
		change(rec)
		return rec
	}
	whole := func() *results.Record { return of(func(*results.Record) {}) }
	quick := func() *results.Record {
		return of(func(rec *results.Record) {
			rec.Overrides, rec.Planned, rec.Points = []string{"trace.jobs=400"}, 1, []results.Point{point}
		})
	}
	stopped := func() *results.Record { return of(func(rec *results.Record) { rec.Points = rec.Points[:1] }) }
	broken := func() *results.Record {
		return of(func(rec *results.Record) { rec.Points[1].Error = "host h1: unreachable" })
	}
	other := func() *results.Record {
		return of(func(rec *results.Record) { rec.Overrides = []string{"trace.jobs=50"} })
	}
	for name, c := range map[string]struct {
		runs []*results.Record // the oldest first
		want int
	}{
		"the newest":                     {[]*results.Record{whole(), whole()}, 1},
		"a small one after it":           {[]*results.Record{whole(), quick()}, 0},
		"one that was interrupted after": {[]*results.Record{whole(), stopped()}, 0},
		"one that broke after it":        {[]*results.Record{whole(), broken(), quick()}, 0},
		"interrupted after a small one":  {[]*results.Record{quick(), stopped()}, 0},
		"one of another setting after":   {[]*results.Record{stopped(), other()}, 0},
		"one of another setting alone":   {[]*results.Record{other()}, 0},
		"interrupted alone":              {[]*results.Record{broken(), stopped()}, 1},
	} {
		root := t.TempDir()
		for i, rec := range c.runs {
			rec.Started = time.Date(2026, 10, 1+i, 2, 0, 0, 0, time.UTC)
			rec.Finished = rec.Started.Add(time.Minute)
			resultstest.Save(t, root, rec)
		}
		shown, err := newestRuns(root)
		if err != nil || len(shown) != 1 {
			t.Fatalf("%s: %v, %v", name, shown, err)
		}
		if got := shown["policies.toml"].ID; got != c.runs[c.want].ID {
			t.Errorf("%s: run %s, want the one of %s", name, got, c.runs[c.want].Started)
		}
	}
}

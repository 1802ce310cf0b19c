package results_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

// TestEachVerdictInCSV: of several expectations of one figure each has a row, in every repeat, whatever holds it: one that
// failed is never hidden by another that passed.
func TestEachVerdictInCSV(t *testing.T) {
	value := func(v float64, bound string, tolerance float64) results.Expect {
		return results.Expect{Name: bound, Metric: "share", Predictor: "value", Value: v, Bound: bound, Statistic: "each", Tolerance: tolerance, Gate: true}
	}
	loose := results.Expect{Name: "loose", Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: .5, Gate: true}
	tight := loose
	tight.Name, tight.Tolerance = "tight", .01
	rec := &results.Record{Points: []results.Point{resultstest.One(.5, .001, .6, 20), resultstest.One(.5, .001, .6, 20)}}
	rec.Points[1].Repeat = 1
	rec.Points[0].Phases[0].Figures = append(rec.Points[0].Phases[0].Figures, resultstest.MeasuredFig("rtt", "A", 1, 0, "s"))
	rec.Checks, _, _ = results.Judge([]results.Expect{value(.95, "at-most", 0), value(.1, "within", .05), loose, tight}, rec.Points)
	var got []string
	for _, row := range csvOf(t, rec) {
		got = append(got, strings.Join([]string{row["repeat"], row["metric"], row["predictor"], row["predicted"], row["bottleneck"], row["verdict"]}, " "))
	}
	want := []string{
		"0 share occupancy 0.6 tor1 pass", "0 share value 0.95  pass", "0 share value 0.1  fail", "0 share occupancy 0.6 tor1 fail", "0 rtt    ",
		"1 share occupancy 0.6 tor1 pass", "1 share value 0.95  pass", "1 share value 0.1  fail", "1 share occupancy 0.6 tor1 fail",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// csvOf are the rows that WriteCSV writes, by the names of columns.
func csvOf(t *testing.T, rec *results.Record) (out []map[string]string) {
	t.Helper()
	var b strings.Builder
	if err := results.WriteCSV(&b, rec); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		named := map[string]string{}
		for i, name := range rows[0] {
			named[name] = row[i]
		}
		out = append(out, named)
	}
	return out
}

// TestErrorInCSV: the error of a row is of what stands in that row, whatever that of the mean of repeats is; it has none where
// it has nothing that it is part of.
func TestErrorInCSV(t *testing.T) {
	value := func(v float64) results.Expect {
		return results.Expect{Metric: "share", Predictor: "value", Value: v, Bound: "within", Statistic: "each", Tolerance: .05, Gate: true}
	}
	relative, absolute := value(.5), value(.5)
	relative.Relative = true
	none := value(0)
	none.Relative = true
	model := results.Expect{Metric: "share", Predictor: "occupancy", Statistic: "each", Tolerance: .5, Relative: true, Gate: true}
	idle := []results.Point{resultstest.One(.25, .001, 0, 20)}
	idle[0].Phases[0].Figures = append(idle[0].Phases[0].Figures, resultstest.One(.5, .001, .5, 20).Phases[0].Figures...)
	for i := range idle[0].Phases[0].Figures[2:] {
		idle[0].Phases[0].Figures[2+i].Of = "B"
	}
	repeats := []results.Point{resultstest.One(.5, .001, 1, 20), resultstest.One(.75, .001, .5, 20), resultstest.One(.25, .001, .5, 20)}
	repeats[1].Repeat, repeats[2].Repeat = 1, 2
	for name, c := range map[string]struct {
		e      results.Expect
		points []results.Point
		want   string
	}{
		"relative":           {relative, repeats, "0 0.5 -0.5"},
		"absolute":           {absolute, repeats, "0 0.25 -0.25"},
		"of its own":         {model, repeats, "-0.5 0.5 -0.5"},
		"of zero":            {none, repeats, "  "},
		"of the largest one": {model, idle, "0.5 0"},
	} {
		rec := &results.Record{Points: c.points}
		rec.Checks, _, _ = results.Judge([]results.Expect{c.e}, rec.Points)
		var got []string
		for _, row := range csvOf(t, rec) {
			if row["predictor"] == c.e.Predictor {
				got = append(got, row["error"])
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}

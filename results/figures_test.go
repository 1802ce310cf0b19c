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
	var b strings.Builder
	if err := results.WriteCSV(&b, rec); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int { return slices.Index(rows[0], name) }
	var got []string
	for _, row := range rows[1:] {
		got = append(got, strings.Join([]string{row[at("repeat")], row[at("metric")], row[at("predictor")], row[at("predicted")], row[at("bottleneck")], row[at("verdict")]}, " "))
	}
	want := []string{
		"0 share occupancy 0.6 tor1 pass", "0 share value 0.95  pass", "0 share value 0.1  fail", "0 share occupancy 0.6 tor1 fail", "0 rtt    ",
		"1 share occupancy 0.6 tor1 pass", "1 share value 0.95  pass", "1 share value 0.1  fail", "1 share occupancy 0.6 tor1 fail",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

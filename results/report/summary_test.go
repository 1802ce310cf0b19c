package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
)

// A row a point, a column a metric that any point has; repeats are averaged.
func TestSummary(t *testing.T) {
	point := func(index, repeat int, label string, figures ...results.Figure) results.Point {
		return results.Point{Index: index, Repeat: repeat, Labels: []string{"x.size=" + label}, Phases: []results.Phase{{Figures: figures}}}
	}
	of := func(metric string, v float64) results.Figure {
		return results.Figure{Metric: metric, Of: results.Cluster, Kind: results.Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"}
	}
	rec := &results.Record{Kind: results.Simulated, Summary: []string{"ina_score", "nothing", "migrations"}, Points: []results.Point{
		point(0, 0, "1", of("ina_score", 0.25)),
		point(1, 0, "2", of("ina_score", 0.5), of("migrations", 3)),
		point(2, 0, "3"),
		point(1, 1, "2", of("ina_score", 0.5), of("migrations", 5)),
	}}
	s := summarize(rec)
	if s == nil || !slices.Equal(s.Keys, []string{"size"}) || !slices.Equal(s.Metrics, []string{"INA efficiency score", "migrations"}) {
		t.Fatalf("%+v", s)
	}
	var rows []string
	for _, r := range s.Rows {
		rows = append(rows, strings.Join(append(r.Labels, r.Values...), " | "))
	}
	if want := []string{"1 | 0.250 | –", "2 | 0.500 | 4 ± 13"}; !slices.Equal(rows, want) {
		t.Errorf("%q", rows)
	}
	for _, rec := range []*results.Record{{Summary: []string{"ina_score"}}, {Points: rec.Points}} {
		if s := summarize(rec); s != nil {
			t.Errorf("%+v", s)
		}
	}
}

// TestSummaryNote: what is said of intervals is what ended the repeats; one that was cut off has those that there are.
func TestSummaryNote(t *testing.T) {
	narrow := results.Repeating{Metric: "avg_jct", Precision: .05, Least: 10, Most: 50, Repeats: 12, Settled: true, Widest: .04}
	wide, cut := narrow, narrow
	wide.Settled, wide.Repeats, wide.Widest = false, 50, .2
	cut.CutOff()
	for _, c := range []struct {
		s    summary
		want string
	}{
		{summary{Repeats: 1}, "one repeat: no intervals"},
		{summary{Repeats: 3}, "means of 3 repeats with 95 % intervals"},
		{summary{Repeats: 12, Repeating: &narrow}, "means with 95 % intervals of 12 repeats: average JCT of each point is known to 5 %; " + narrow.Holds()},
		{summary{Repeats: 50, Repeating: &wide}, "means with 95 % intervals of 50 repeats, the most: average JCT is known to 20.0 %, not to 5 %"},
		{summary{Repeats: 11, Repeating: &cut}, "means of 11 repeats with 95 % intervals; " + cut.String()},
	} {
		if got := c.s.Note(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

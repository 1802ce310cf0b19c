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

package results

import (
	"slices"
	"strings"
	"testing"
)

// A row a point, a column a metric that any point has; repeats are averaged.
func TestSummary(t *testing.T) {
	point := func(index, repeat int, label string, figures ...Figure) Point {
		return Point{Index: index, Repeat: repeat, Labels: []string{"x.size=" + label}, Phases: []Phase{{Figures: figures}}}
	}
	of := func(metric string, v float64) Figure {
		return Figure{Metric: metric, Of: Cluster, Kind: Simulated, Value: v, Lo: v, Hi: v, N: 1, Unit: "1"}
	}
	rec := &Record{Kind: Simulated, Summary: []string{"ina_score", "nothing", "migrations"}, Points: []Point{
		point(0, 0, "1", of("ina_score", 0.25)),
		point(1, 0, "2", of("ina_score", 0.5), of("migrations", 3)),
		point(2, 0, "3"),
		point(1, 1, "2", of("ina_score", 0.5), of("migrations", 5)),
	}}
	s := rec.summary()
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
	for _, rec := range []*Record{{Summary: []string{"ina_score"}}, {Points: rec.Points}} {
		if s := rec.summary(); s != nil {
			t.Errorf("%+v", s)
		}
	}
}

package experiments

import (
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
)

// TestNothingHeld: a run in which nothing was compared, expected or measured of what it is about
// does not pass, however well the rest of it does.
func TestNothingHeld(t *testing.T) {
	figure := func(metric, of string, v float64) results.Figure {
		return results.Figure{Metric: metric, Of: of, Kind: results.Measured, Value: v, Lo: v, Hi: v, N: 2, Unit: "1"}
	}
	point := func(checked int64, figures ...results.Figure) results.Point {
		return results.Point{Jobs: []results.JobSummary{{Job: "A", Workers: 2, SumsChecked: checked}}, Phases: []results.Phase{{Figures: figures}}}
	}
	policy := func(name string, p results.Point) results.Point {
		p.Labels = []string{"placement.policy=" + name}
		return p
	}
	late := func(p results.Point) results.Point {
		p.Health = []results.Trouble{{Where: "host h1", What: "busy", Fatal: true}}
		return p
	}
	held := results.Expect{Name: "fast", Metric: "speed", Predictor: "value", Value: 1, Gate: true}
	open := held
	open.Gate = false
	first := held
	first.Points = []string{"placement.policy=netpack"}
	sums := results.Expect{Name: "sums are exact", Metric: "sum_errors", Predictor: "value", Gate: true}
	var reverts []results.Expect
	for _, e := range loadCell(t, "autops-testbed-timeline.toml", nil).Expectations() {
		if e.Metric == "reverts" {
			reverts = append(reverts, e, held)
		}
	}
	policies := &results.Comparison{Key: "placement.policy", Reference: "netpack", Metrics: []string{"de"}}
	for _, c := range []struct {
		name    string
		expects []results.Expect
		compare *results.Comparison
		points  []results.Point
		want    results.Outcome
		says    string
	}{
		{"sums were compared", []results.Expect{sums}, nil, []results.Point{point(100, figure("sum_errors", "A", 0))}, results.Pass, ""},
		{"a job that sent nothing", []results.Expect{sums}, nil, []results.Point{point(0, figure("sum_errors", "A", 0))}, results.Inconclusive, "no sum of this job was compared"},
		{"something is expected", []results.Expect{held}, nil, []results.Point{point(1, figure("speed", "A", 1))}, results.Pass, ""},
		{"nothing is", nil, nil, []results.Point{point(1, figure("speed", "A", 1))}, results.NotJudged, results.CodeNotJudged},
		{"nothing that decides is", []results.Expect{open}, nil, []results.Point{point(1, figure("speed", "A", 1))}, results.NotJudged, results.CodeNotJudged},
		{"two policies", []results.Expect{held}, policies, []results.Point{
			policy("netpack", point(1, figure("speed", "A", 1), figure("de", results.Cluster, .5))), policy("comb", point(1, figure("speed", "A", 1), figure("de", results.Cluster, .4))),
		}, results.Pass, ""},
		{"the second policy is undecided", []results.Expect{first}, policies, []results.Point{
			policy("netpack", point(1, figure("speed", "A", 1), figure("de", results.Cluster, .5))), late(policy("comb", point(1, figure("de", results.Cluster, .4)))),
		}, results.Inconclusive, "comb"},
		{"there is no second policy", []results.Expect{held}, policies, []results.Point{policy("netpack", point(1, figure("speed", "A", 1), figure("de", results.Cluster, .5)))}, results.Inconclusive, "nothing to compare"},
		{"a job is assigned anew", reverts, nil, []results.Point{point(1, figure("speed", "A", 1), figure("reverts", results.Cluster, 1))}, results.Pass, ""},
		{"no job is", reverts, nil, []results.Point{point(1, figure("speed", "A", 1), figure("reverts", results.Cluster, 0))}, results.Inconclusive, "what the study is about"},
	} {
		r := &run{rec: &results.Record{Expect: c.expects, Comparison: c.compare}, points: make([]study.Planned, len(c.points))}
		for i, p := range c.points {
			r.points[i].Labels = p.Labels
			r.add(i, 0, &p, nil)
		}
		r.judge(nil, nil)
		said := slices.ContainsFunc(r.rec.Reasons, func(s string) bool { return strings.Contains(s, c.says) })
		if r.rec.Outcome != c.want || c.want != results.Pass && !said {
			t.Errorf("%s: %s %q, want %s that says %q", c.name, r.rec.Outcome, r.rec.Reasons, c.want, c.says)
		}
	}
}

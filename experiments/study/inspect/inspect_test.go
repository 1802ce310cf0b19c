package inspect

import (
	"slices"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/spec/spectest"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// Studies have no plan: who was wrong is not known then, and that somebody was is.
func TestIntegrityWithoutPlan(t *testing.T) {
	in := &Inspection{Spec: &spec.Spec{}, Caps: testbed.Capabilities{Sums: true}, Jobs: []results.JobSummary{
		{Job: "A", Workers: 2, SumsChecked: 100, SumErrors: 3, Asked: 5, Iterations: 4}, {Job: "B", Workers: 2},
	}}
	codes := map[string]int{}
	for _, f := range append(in.Work(), in.Sums()...) {
		codes[f.Code]++
	}
	if codes[results.CodeSums] != 1 || codes[results.CodeIterations] != 1 || codes[results.CodeUnchecked] != 1 {
		t.Errorf("%v", codes)
	}
}

// TestUnlooked: a worker compares all values that it gets. One that stops doing so is no reason to believe the rest.
func TestUnlooked(t *testing.T) {
	const psns, values = 10_000, 240 * 10_000
	for _, c := range []struct {
		name    string
		checked float64 // by the second of two workers
		want    results.Outcome
	}{
		{"all", values, results.Pass},
		{"all but one packet", values - 240, results.Inconclusive},
		{"the first few", 2400, results.Inconclusive},
		{"it does not say how many", -1, results.Pass},
	} {
		in := handedOn(t, nil)
		in.Jobs = []results.JobSummary{{Job: "A", Workers: 2, SumsChecked: 1000}}
		tell := func(metric, of string, v float64) {
			if v >= 0 {
				in.Readings.Add(results.Sample{T: 8, Source: "worker " + of, Metric: metric, Of: of, Value: v})
			}
		}
		for _, of := range []string{"A/0", "A/1"} {
			tell("worker_psns", of, psns)
		}
		tell("worker_sums_checked", "A/0", values)
		tell("worker_sums_checked", "A/1", c.checked)
		got := in.Sums()
		if c.want == results.Pass && len(got) > 0 || c.want != results.Pass && (len(got) != 1 || got[0].Outcome != c.want || got[0].Code != results.CodeUnchecked) {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// TestCrossed: what one burst between two readings makes of few frames is no loss, and neither is
// a small part of many.
func TestCrossed(t *testing.T) {
	for _, tt := range []struct {
		differ, limit, of float64
		lost              bool
	}{
		{21, 17, 1713, false},
		{82, 17, 1713, true},
		{85, 17, 40, true},
		{209, 10, 100_000, false},
		{211, 10, 100_000, true},
		{5_000, 10, 100_000, true},
	} {
		got := Crossed([]results.Trouble{{Where: "link h1->tor1", Code: results.CodeLost, Value: tt.differ, Limit: tt.limit, Of: tt.of}}, &inventory.Topology{}, nil)
		if lost := len(got) == 1 && got[0].Outcome == results.Fail; lost != tt.lost {
			t.Errorf("%v of %v differ, %v may: %+v", tt.differ, tt.of, tt.limit, got)
		}
	}
}

// TestSlow: a cable that carries less than it can fails a run, unless the testbed itself explains it; other troubles of links
// are not of it.
func TestSlow(t *testing.T) {
	slow := results.Trouble{Where: "link h1->tor1", Code: results.CodeLinkSlow, What: "it carried 95.0 % of what its cable carries", Value: .05, Limit: .01}
	got := Slow([]results.Trouble{{Where: "link h2->tor1", Code: results.CodeLost}, {Where: "switch tor1", Code: results.CodeLimited}, slow})
	if len(got) != 1 || got[0].Of != "h1->tor1" || got[0].Code != results.CodeLinkSlow || got[0].Outcome != results.Fail || got[0].What != slow.String() {
		t.Errorf("%+v", got)
	}
	point := &results.Point{Health: []results.Trouble{slow, {Where: "switch tor1", What: "frames leave late", Fatal: true}}}
	if got := Excused(Slow(point.Health), point); len(got) != 1 || got[0].Outcome != results.Inconclusive {
		t.Errorf("beside a switch that is late: %+v", got)
	}
}

type sumsBed struct {
	testbed.Testbed
	inv *inventory.Inventory
}

func (b sumsBed) Inventory() *inventory.Inventory { return b.inv }

func (sumsBed) Capabilities() testbed.Capabilities {
	return testbed.Capabilities{Sums: true, Kind: results.Measured}
}

type sumsRun struct {
	study.Runner
	tb testbed.Testbed
}

func (r sumsRun) Testbed() testbed.Testbed { return r.tb }

// TestWrongSumOfStudy: studies without phases look at sums, too.
func TestWrongSumOfStudy(t *testing.T) {
	s := spectest.Pair(t, nil, "50us", "inventory = \"pair.toml\"\n[[job]]\nname = \"A\"\nhosts = [\"h1\", \"h2\"]\nps = \"h3\"\n")
	for wrong, want := range []bool{false, true} {
		b := &study.Bench{Runner: sumsRun{tb: sumsBed{inv: s.Inventory()}}, Planned: study.Planned{Point: spec.Point{Spec: s}}}
		found := Study(b, &results.Point{Jobs: []results.JobSummary{{Job: "A", Workers: 2, SumsChecked: 1000, SumErrors: int64(wrong)}}})
		if got := slices.ContainsFunc(found, func(f results.Finding) bool { return f.Code == results.CodeSums && f.Outcome == results.Fail }); got != want {
			t.Errorf("%d wrong: %+v", wrong, found)
		}
	}
}

package experiments

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/inspect"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// TestWrongSumFails: one value that is not the sum of what was sent fails a run whose figures are
// all right, and of which nobody expects anything about sums.
func TestWrongSumFails(t *testing.T) {
	proof.Only(t, "five experiments are simulated")
	for file, sets := range map[string][]string{
		"two-racks.toml": nil, "waterfill.toml": nil, "cables.toml": nil,
		"addressing-shared.toml": {"switch.addressing=hash"}, "addressing-atp.toml": {"sweep.0.values=[0.25, 0.5]", "sweep.1.values=[8.0, 4.0]"},
	} {
		s := loadCell(t, file, sets)
		if slices.ContainsFunc(s.Expects, func(e spec.Expect) bool { return e.Metric == "sum_errors" }) {
			t.Errorf("%s expects something about sums", file)
		}
		rec := simulated(t, s)
		for wrong, want := range []results.Outcome{results.Pass, results.Fail} {
			in := inspect.Inspection{Spec: s, Caps: testbed.Capabilities{Sums: true}}
			for _, j := range rec.Points[0].Jobs {
				j.SumsChecked = 1000
				in.Jobs = append(in.Jobs, j)
			}
			in.Jobs[0].SumErrors = int64(wrong)
			rec.Points[0].Findings = in.Sums()
			if _, got, reasons := results.Judge(rec.Expect, rec.Points); got != want {
				t.Errorf("%s with %d of 1000 values wrong: %s %q, want %s", file, wrong, got, reasons, want)
			}
		}
	}
}

// unruly is an error of a job, as testbeds have them.
type unruly struct{ error }

func (unruly) Broken() (code, job string) { return results.CodeIterations, "A" }

// An error that says which job did wrong is a finding as well, by its code; others are not.
func TestBroken(t *testing.T) {
	r := run{rec: &results.Record{}, points: []study.Planned{{}}}
	r.add(0, 0, &results.Point{}, fmt.Errorf("jobs: %w", errors.Join(errors.New("noise"), unruly{errors.New("worker A/0 on host h1 ended")})))
	r.add(0, 1, &results.Point{}, errors.New("no network"))
	r.add(0, 2, &results.Point{}, nil)
	want := results.Finding{Name: study.AllDone, Code: results.CodeIterations, Of: "A", Outcome: results.Fail, What: "worker A/0 on host h1 ended"}
	if got := r.rec.Points[0].Findings; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if a, b := r.rec.Points[1].Findings, r.rec.Points[2].Findings; a != nil || b != nil {
		t.Errorf("%+v, %+v", a, b)
	}
	checks, outcome, reasons := results.Judge(nil, r.rec.Points[:1])
	if outcome != results.ErrorOutcome || len(checks) != 1 || checks[0].Code != results.CodeIterations {
		t.Errorf("%s: %+v, %v", outcome, checks, reasons)
	}
}

// Reports from the future are of a clock that jumped, whose agent is named with its host.
func TestClocks(t *testing.T) {
	c := study.Clocks{}
	sample := func(source, of string, at float64) results.Sample {
		metric := "worker_tx_packets"
		if strings.HasPrefix(source, "host ") {
			metric = "link_tx_bytes"
		}
		return results.Sample{Source: source, Metric: metric, Of: of, T: at}
	}
	c.Hear([]results.Sample{sample("worker A/0", "A/0", 9.9), sample("worker A/1", "A/1", 12), sample("host h1", "h1->tor1", 99)}, 10*time.Second)
	c.Hear([]results.Sample{sample("worker A/0", "A/0", 20.5), sample("worker A/1", "A/1", 20), sample("ps A", "A/ps", 25)}, 20*time.Second)
	found := c.Wrong(&placement.JobPlan{Name: "A", PS: "h3", Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}}})
	var who []string
	for _, f := range found {
		if f.Outcome != results.Fail || f.Code != results.CodeCounters {
			t.Errorf("%+v", f)
		}
		before, _, _ := strings.Cut(f.What, " reports from the future")
		who = append(who, before)
	}
	if want := []string{"worker A/1 on host h2", "ps A on host h3"}; !slices.Equal(who, want) {
		t.Errorf("%q, want %q", who, want)
	}
}

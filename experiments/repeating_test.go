package experiments

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
)

// TestRepeatsUntilPrecise: a run goes on until its intervals are narrow or it has as many repeats as it may, and each of them
// is what it is in a run that is told how many there are.
func TestRepeatsUntilPrecise(t *testing.T) {
	simulate := func(repeats int, sets ...string) *results.Record {
		s := precise(t, sets...)
		rec, _, err := Run(t.Context(), s, RunOptions{Driver: "sim", Root: t.TempDir(), Repeats: repeats})
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	never := simulate(0, "measure.precision='0.0001%'")
	if r := never.Repeating; r == nil || r.Settled || r.Repeats != 14 || r.Metric != "avg_jct" || never.Planned != 28 || len(never.Points) != 28 {
		t.Errorf("%+v, %d points, %d planned", r, len(never.Points), never.Planned)
	}
	if told := simulate(14, "measure.precision='0.0001%'"); told.Repeating != nil || !reflect.DeepEqual(told.Points, never.Points) {
		t.Errorf("%+v: points differ from those of a run that is told how many repeats there are", told.Repeating)
	}
	soon := simulate(0, "measure.precision='99%'")
	if r := soon.Repeating; r == nil || !r.Settled || r.Repeats != 12 || r.Widest > .99 || len(soon.Points) != 24 {
		t.Errorf("%+v, %d points", r, len(soon.Points))
	}
}

// TestRepeatingInterrupted: a run that is cut off between two looks does not pass off what the first one found as its end.
func TestRepeatingInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec, _, err := Run(ctx, precise(t, "measure.precision='0.0001%'"), RunOptions{Driver: "sim", Root: t.TempDir(), Progress: func(s Status) {
		if s.Of == 28 { // of 14 repeats, after the look at 12
			cancel()
		}
	}})
	if err == nil || rec == nil {
		t.Fatalf("%v, %v: it was not cut off", rec, err)
	}
	if r := rec.Repeating; r == nil || r.Repeats != 0 || r.Where != "" || len(rec.Points) < 24 || rec.Planned != 28 {
		t.Errorf("%+v, %d points of %d", r, len(rec.Points), rec.Planned)
	}
}

// precise is a sweep of two points whose repeats, 12 to 14, a precision ends.
func precise(t *testing.T, sets ...string) *spec.Spec {
	t.Helper()
	s, err := kinds.Parse("sweep.toml", sweepText(20, 24), nil, append([]string{"summary=['avg_jct']", "measure.most=14"}, sets...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPrecisionRefused: runs that cannot have more repeats as they go on say so before they begin.
func TestPrecisionRefused(t *testing.T) {
	s := precise(t, "measure.precision='5%'")
	for want, o := range map[string]RunOptions{
		"not of driver netns":                 {Driver: "netns"},
		"a batch system computes a number of": {Driver: "sim", Batch: backwards{}},
	} {
		if _, err := until(s, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		o.Repeats = 3
		if r, err := until(s, o); r != nil || err != nil {
			t.Errorf("three repeats: %+v, %v", r, err)
		}
	}
}

// TestPrecisionChecked: what an experiment says of repeats that a precision ends has to fit together.
func TestPrecisionChecked(t *testing.T) {
	summary := "summary=['avg_jct']"
	for _, c := range []struct {
		sets []string
		want string
	}{
		{[]string{summary, "measure.precision='5%'"}, ""},
		{[]string{"measure.precision='5%'"}, "precision needs a summary"},
		{[]string{summary, "measure.precision='5%'", "measure.repeats=3"}, "3 repeats are too few"},
		{[]string{summary, "measure.precision='5%'", "measure.most=11"}, "at least 12 repeats, and at most 11"},
		{[]string{summary, "measure.precision='5%'", "measure.most=20000"}, "20000 repeats: at most 10000"},
		{[]string{summary, "measure.precision='5%'", "measure.most=0"}, "most must be above zero"},
		{[]string{"measure.most=20"}, "most has no effect without precision"},
		{[]string{summary, "measure.precision=5"}, `write "2%"`},
		{[]string{summary, "measure.precision='5%'", "sweep.0.key='measure.most'"}, "cannot be swept"},
	} {
		_, err := kinds.Parse("sweep.toml", sweepText(20, 24), nil, c.sets...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.sets, err, c.want)
		}
	}
	if _, err := kinds.Load("quickstart.toml", "measure.precision='5%'"); err == nil || !strings.Contains(err.Error(), "precision has no figure to go by") {
		t.Errorf("[[job]] tables: %v", err)
	}
}

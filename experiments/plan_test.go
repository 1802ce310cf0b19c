package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// A cluster that an experiment describes may be another one in every point: each is planned, and
// read again, on its own.
func TestPlanOfDescribedClusters(t *testing.T) {
	spec, err := kinds.Parse("exp.toml", []byte(`version = 1

[fat_tree]
racks = 1
hosts = 3
gpus = 1

[[job]]
name = "A"
gpus = 2

[[sweep]]
key = "fat_tree.rate"
values = ["10Gbit/s", "40Gbit/s"]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(t.Context(), spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	slow, fast := plan.Points[0].Phases[0].Predictions[0].Jobs[0].WireRate, plan.Points[1].Phases[0].Predictions[0].Jobs[0].WireRate
	if slow <= 0 || fast <= slow {
		t.Errorf("on cables of 10 Gbit/s %v bit/s are predicted, and on 40 Gbit/s %v", slow, fast)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePlan("saved.plan", text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plan.Points, again.Points); d != "" {
		t.Error(d)
	}
	// Made by an inabench that describes it otherwise.
	other := strings.Replace(string(text), plan.Inventory.SHA256, strings.Repeat("0", 64), 1)
	if _, err := ParsePlan("saved.plan", []byte(other)); err == nil || !strings.Contains(err.Error(), "another version of fat_tree") {
		t.Errorf("a plan for another cluster: %v", err)
	}
	for what, tt := range map[string]struct {
		spoil func()
		want  string
	}{
		"a host that is not there": {func() { plan.Points[1].Plan.Jobs[0].Workers[0].Host = "r9h9" }, "point 1: "},
		"a job too few":            {func() { plan.Points[0].Plan = &placement.Plan{} }, "places 0 jobs, and the experiment has 1"},
		"a job of another name":    {func() { plan.Points[1].Plan.Jobs[0].Name = "B" }, "its job 1 is B"},
		"a rank below 0":           {func() { plan.Points[1].Plan.Jobs[0].Workers[1].Rank = -1 }, "worker 1 has rank -1"},
		"a point too many":         {func() { plan.Points = append(plan.Points, study.PlanPoint{}) }, "3 points, its experiment 2"},
	} {
		points := slices.Clone(plan.Points)
		tt.spoil()
		if text, err = json.Marshal(plan); err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePlan("saved.plan", text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", what, err)
		}
		plan.Points = points
	}
}

// A plan that was saved runs as it was, and not at all once its inventory differs.
func TestSavedPlan(t *testing.T) {
	spec, err := kinds.Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(t.Context(), spec, "test")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(plan.Points); n != 1 || len(plan.Points[0].Phases) != 2 {
		t.Fatalf("%d points, want 1 with 2 phases", n)
	}
	path := t.TempDir() + "/plan.json"
	if err := plan.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := loadPlan(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plan.Points, again.Points); d != "" {
		t.Error(d)
	}
	plan.Inventory.SHA256 = strings.Repeat("0", 64)
	if err := plan.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPlan(t, path); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("a plan for another inventory: %v", err)
	}
}

func loadPlan(t *testing.T, path string) (*SavedPlan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return ParsePlan(path, text)
}

// soon is a context that is interrupted as soon as it has been asked whether it is, from a time on.
type soon struct {
	context.Context
	began bool
	asked int
}

func (s *soon) Value(any) any { return nil } // so that causes are what Err says

func (s *soon) Err() error {
	if !s.began {
		return nil
	}
	if s.asked++; s.asked == 1 {
		return nil
	}
	return context.Canceled
}

// TestInterruptedWhileJudged: a run that is interrupted while it is judged passes or ends with an error, and does not do both.
func TestInterruptedWhileJudged(t *testing.T) {
	ctx := &soon{Context: t.Context()}
	rec, _, err := Run(ctx, alone(t), RunOptions{Driver: "sim", Root: t.TempDir(), Repeats: 1, ExitCode: func(error) int { return 130 }, Progress: func(s Status) {
		ctx.began = ctx.began || s.Stage == "report"
	}})
	if err != nil || ctx.asked == 0 || rec.Outcome != results.Pass || rec.ExitCode != 0 {
		t.Errorf("asked %d times: %s, exit code %d, %v", ctx.asked, rec.Outcome, rec.ExitCode, err)
	}
}

// alone is an experiment with one job.
func alone(t *testing.T) *spec.Spec {
	return pairOn(t, "50us", `
inventory = "pair.toml"
[[job]]
name = "A"
hosts = ["h1"]
ps = "h3"
[[expect]]
metric = "goodput"
tolerance = "5%%"
reason = "it is alone"
`)
}

// TestInterruptedAtTheEnd: a run that is interrupted when all is measured says in its record what its program exits with.
func TestInterruptedAtTheEnd(t *testing.T) {
	for _, stage := range []string{"measure", "tear down"} {
		cause := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		rec, _, err := Run(ctx, alone(t), RunOptions{Driver: "sim", Root: t.TempDir(), Repeats: 1, ExitCode: func(error) int { return 130 }, Progress: func(s Status) {
			if s.Stage == stage {
				cancel(cause)
			}
		}})
		if rec == nil || rec.ExitCode != 130 || rec.Outcome != results.ErrorOutcome || !slices.Contains(rec.Reasons, cause.Error()) {
			t.Errorf("while it was to %s: %+v, %v", stage, rec, err)
		}
	}
}

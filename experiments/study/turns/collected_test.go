package turns

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// TestCollected: what a job finds out on a scaled testbed, with slower GPUs, is the pattern of its model again once it is
// in the lab's units, also after it was written to a file.
func TestCollected(t *testing.T) {
	model, ok := workload.BuiltinPatterns().Lookup("opt-350m", 4)
	if !ok {
		t.Fatal("no opt-350m")
	}
	o := &Operations{Batch: 4, GPUSpeed: .25}
	for _, scale := range []results.Scale{{Mode: "none", Factor: 1}, {Mode: "slow-motion", Factor: 4}, {Mode: "shrunk", Factor: 160}} {
		times, size := study.Factors(scale)
		found := &agent.Pattern{Step: model.Step / o.GPUSpeed * times}
		for _, op := range model.Ops {
			found.Ops = append(found.Ops, agent.Op{Start: op.Start / o.GPUSpeed * times, Bytes: int64(math.Round(float64(op.Bytes) * size))})
		}
		have := o.collected(scale, &named{Job: ops.Job{Pattern: &model}}, found)
		if e := patternError(&have, &model); e > 1e-6 { // bytes are whole ones
			t.Errorf("%+v: error %v", scale, e)
		}
		for i := range have.Ops {
			if d := math.Abs(float64(have.Ops[i].Bytes - model.Ops[i].Bytes)); d > 1/size {
				t.Errorf("%+v: all-reduce %d has %d bytes, of %d", scale, i, have.Ops[i].Bytes, model.Ops[i].Bytes)
			}
		}
		have.Source = "a test"
		all, err := workload.ParsePatterns("patterns.toml", workload.FormatPatterns(have))
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := all.Lookup("opt-350m", 4); !ok || !reflect.DeepEqual(again, have) {
			t.Errorf("%+v: read again as %+v", scale, again)
		}
	}
}

// known is what a study has of a run that keeps what it knows, and has a directory.
type known struct {
	study.Runner
	dir   *results.Dir
	knows map[string]any
}

func (known) Scale() results.Scale    { return results.Scale{} }
func (k known) Dir() *results.Dir     { return k.dir }
func (k known) Known() map[string]any { return k.knows }

// TestLearned: the run directory has the patterns of all points, of each model and batch one.
func TestLearned(t *testing.T) {
	k := known{dir: &results.Dir{Path: t.TempDir()}, knows: map[string]any{}}
	for _, p := range []struct {
		model string
		batch int
		step  float64
	}{{"vit-large", 4, 1}, {"opt-350m", 4, 2}, {"vit-large", 8, 3}, {"vit-large", 4, 4}, {"", 4, 5}} {
		b := &study.Bench{Runner: k, Planned: study.Planned{Point: spec.Point{Spec: &spec.Spec{Name: "test"}}}}
		jobs := []named{{Name: "A", Job: ops.Job{Pattern: &workload.Pattern{Model: p.model}}}}
		out := []training.Outcome{{Job: training.Job{Name: "A", ID: 1}, Learned: &agent.Pattern{Step: p.step, Ops: []agent.Op{{Start: .5, Bytes: 8}}}}}
		if p.model == "" {
			out[0].Learned = nil // it was too short
		}
		if err := (&Operations{Batch: p.batch, GPUSpeed: 1}).learned(b, jobs, out); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(k.dir.Path, "patterns.toml"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := workload.ParsePatterns("patterns.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	for step, of := range map[float64]workload.Pattern{1: {Model: "vit-large", Batch: 4}, 2: {Model: "opt-350m", Batch: 4}, 3: {Model: "vit-large", Batch: 8}} {
		if p, ok := all.Lookup(of.Model, of.Batch); !ok || p.Step != step {
			t.Errorf("%s, %d: %+v, want a step of %v s", of.Model, of.Batch, p, step)
		}
	}
}

// TestPatternError: the error is of the worst time over the step, or of the worst all-reduce's bytes over those of the step.
func TestPatternError(t *testing.T) {
	want := workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5, Bytes: 8}, {Start: 1, Bytes: 8}}}
	for _, c := range []struct {
		name string
		have workload.Pattern
		want float64
	}{
		{"alike", want, 0},
		{"a longer step", workload.Pattern{Step: 2.5, Ops: want.Ops}, .25},
		{"a late all-reduce", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5, Bytes: 8}, {Start: 1.25, Bytes: 8}}}, .125},
		{"an early one", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .25, Bytes: 8}, {Start: 1, Bytes: 8}}}, .125},
		{"more bytes", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5, Bytes: 12}, {Start: 1, Bytes: 8}}}, .25},
		{"bytes of another all-reduce", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5, Bytes: 12}, {Start: 1, Bytes: 4}}}, .25},
		{"two steps for one", workload.Pattern{Step: 4, Ops: append(want.Ops[:2:2], want.Ops...)}, 1},
		{"far off", workload.Pattern{Step: 9, Ops: want.Ops}, 1},
	} {
		if got := patternError(&c.have, &want); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPatternErrorsScaled: a job that collects on a scaled testbed, with slower GPUs, what it was given there has no error.
func TestPatternErrorsScaled(t *testing.T) {
	model, ok := workload.BuiltinPatterns().Lookup("opt-350m", 4)
	if !ok {
		t.Fatal("no opt-350m")
	}
	for _, scale := range []results.Scale{{Mode: "none", Factor: 1}, {Mode: "slow-motion", Factor: 4}, {Mode: "shrunk", Factor: 160}} {
		for _, speed := range []float64{1, .25} {
			o := &Operations{Batch: 4, GPUSpeed: speed}
			jobs := []named{{Name: "A", Job: ops.Job{Pattern: &model, Hosts: 2, Steps: 1}}}
			shrink(jobs, scale)
			come, err := o.training(jobs, ops.PaperCost())
			if err != nil {
				t.Fatal(err)
			}
			given := come[0]
			found := agent.Pattern{Step: given.Pattern.Step / given.Speed}
			for _, op := range given.Pattern.Ops {
				found.Ops = append(found.Ops, agent.Op{Start: op.Start / given.Speed, Bytes: op.Bytes})
			}
			out := []training.Outcome{{Job: given, Learned: &found}}
			if figures, _ := o.patternErrors(results.Measured, jobs, out); len(figures) != 1 || figures[0].Value > 1e-6 {
				t.Errorf("%+v, GPUs of speed %g: %+v, want no error", scale, speed, figures)
			}
			found.Step *= 1.25
			if figures, _ := o.patternErrors(results.Measured, jobs, out); len(figures) != 1 || math.Abs(figures[0].Value-.25) > 1e-6 {
				t.Errorf("%+v, GPUs of speed %g: %+v, want 0.25: steps are longer by a quarter", scale, speed, figures)
			}
		}
	}
}

// TestPatternsJudged: a pattern that was collected can be held against an expectation in one run, by the job that it is of, and
// a job that has none is missing: others do not stand for it.
func TestPatternsJudged(t *testing.T) {
	pattern := func(step float64) *workload.Pattern {
		return &workload.Pattern{Step: step, Ops: []workload.Op{{Start: .5, Bytes: 8}}}
	}
	jobs := []named{{Name: "A", Job: ops.Job{Pattern: pattern(1)}}, {Name: "B", Job: ops.Job{Pattern: pattern(2)}}, {Name: "C", Job: ops.Job{Pattern: pattern(4)}}}
	found := func(step float64) *agent.Pattern {
		return &agent.Pattern{Step: step, Ops: []agent.Op{{Start: .5, Bytes: 8}}}
	}
	for _, c := range []struct {
		name string
		out  []training.Outcome // B has 2 s, and C 4 s
		want results.Outcome
	}{
		{"as they are", []training.Outcome{{Job: training.Job{Name: "B", ID: 2}, Learned: found(2)}, {Job: training.Job{Name: "C", ID: 3}, Learned: found(4)}}, results.Pass},
		{"one is off", []training.Outcome{{Job: training.Job{Name: "B", ID: 2}, Learned: found(2)}, {Job: training.Job{Name: "C", ID: 3}, Learned: found(5)}}, results.Fail},
		{"one is too short", []training.Outcome{{Job: training.Job{Name: "B", ID: 2}, Learned: found(2)}, {Job: training.Job{Name: "C", ID: 3}}}, results.Inconclusive},
	} {
		o := &Operations{Batch: 4, GPUSpeed: 1}
		figures, short := o.patternErrors(results.Measured, jobs, c.out)
		checks, outcome, reasons := results.Judge(
			[]results.Expect{{Name: "patterns", Metric: "pattern_error", Predictor: "value", Value: .05, Bound: "at-most", Statistic: "each", Gate: true}},
			[]results.Point{{Phases: []results.Phase{{Figures: figures, Missing: short}}}})
		if outcome != c.want || len(checks) != 2 {
			t.Errorf("%s: %s, want %s: %q, %+v", c.name, outcome, c.want, reasons, checks)
		}
	}
}

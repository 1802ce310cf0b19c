package turns

import (
	"math"
	"reflect"
	"testing"

	"github.com/inabench/inabench/experiments/study"
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
		if e := patternError(&have, &model); e > 1e-12 {
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

// TestPatternError: the error is of the worst time, over the step.
func TestPatternError(t *testing.T) {
	want := workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5, Bytes: 8}, {Start: 1, Bytes: 8}}}
	for _, c := range []struct {
		name string
		have workload.Pattern
		want float64
	}{
		{"alike", want, 0},
		{"a longer step", workload.Pattern{Step: 2.5, Ops: want.Ops}, .25},
		{"a late all-reduce", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .5}, {Start: 1.25}}}, .125},
		{"an early one", workload.Pattern{Step: 2, Ops: []workload.Op{{Start: .25}, {Start: 1}}}, .125},
		{"two steps for one", workload.Pattern{Step: 4, Ops: append(want.Ops[:2:2], want.Ops...)}, 1},
		{"far off", workload.Pattern{Step: 9, Ops: want.Ops}, 1},
	} {
		if got := patternError(&c.have, &want); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

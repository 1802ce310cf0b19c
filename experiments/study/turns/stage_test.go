package turns

import (
	"math"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// TestStage: two all-reduces that queue without INA have a gap with it, and the curve of bytes is level in the gap.
func TestStage(t *testing.T) {
	p := &workload.Pattern{Model: "m", Step: 1, Ops: []workload.Op{{Start: 1, Bytes: 200}, {Start: 2, Bytes: 100}}}
	jobs := []named{{Job: ops.Job{Pattern: p, Hosts: 2}}}
	for _, c := range []struct {
		ina         bool
		stage, gaps float64
		x, y        []float64
	}{
		{false, 3, 0, []float64{1, 3, 4}, []float64{0, 200, 300}},
		{true, 1.25, .5, []float64{1, 1.5, 2, 2.25}, []float64{0, 200, 200, 300}},
	} {
		steps, err := ops.Config{Cost: tree.Cost{Bandwidth: 100, Ratio: 4}}.Steps(p, 2)
		if err != nil {
			t.Fatal(err)
		}
		figures, curves := stageFigures(steps.Spans(c.ina)), stageCurves(steps.Spans(c.ina), jobs)
		if len(figures) != 2 || math.Abs(figures[0].Value-c.stage) > 1e-12 || math.Abs(figures[1].Value-c.gaps) > 1e-12 {
			t.Errorf("INA %t: %+v, want %v and %v", c.ina, figures, c.stage, c.gaps)
		}
		if len(curves) != 1 || !slices.Equal(curves[0].X, c.x) || !slices.Equal(curves[0].Y, c.y) {
			t.Errorf("INA %t: %+v, want %v at %v", c.ina, curves, c.y, c.x)
		}
	}
	if stageFigures(nil) != nil || stageCurves(nil, jobs) != nil {
		t.Error("figures of nothing")
	}
}

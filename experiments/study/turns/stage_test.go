package turns

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/inabench/inabench/experiments/spec"
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

// TestLoadOfList: a file that says when jobs come is not drawn again by a load; one that does not, is.
func TestLoadOfList(t *testing.T) {
	for text, want := range map[string]string{
		"vit-large 8 10\nvit-large 8 10\n":     "",
		"vit-large 8 10 0\nvit-large 8 10 0\n": "",
		"vit-large 8 10\nvit-large 8 10 3\n":   "operations.load draws when jobs come, and job 1 comes after 3 s by the list",
	} {
		file := filepath.Join(t.TempDir(), "jobs.txt")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := spec.Kinds{Kind}.Load("../../mina-conflicts.toml", "operations.from="+file, "operations.jobs=2", "operations.load=0.5")
		if err != nil {
			t.Fatal(err)
		}
		p := s.Points()[0].Spec
		jobs, err := p.Study().(*Operations).jobs(p, 1)
		if want == "" && (err != nil || jobs[1].Submit == 0) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %+v, %v", text, jobs, err)
		}
	}
}

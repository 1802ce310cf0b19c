package report

import (
	"testing"

	"github.com/inabench/inabench/results"
)

// TestReproducedFigures: a figure is as good as the worst of its statements.
func TestReproducedFigures(t *testing.T) {
	rec := &results.Record{Reproduced: []results.Reproduction{{Figure: "Figure 7b", Word: results.ReproducedYes}, {Figure: "Table 2", Word: results.ReproducedNotRun}, {Figure: "Figure 7b", Word: results.ReproducedNo}}}
	f := reproducedFiguresOf(rec)
	if len(f) != 2 || f[0].Name != "Figure 7b" || f[0].Word != results.ReproducedNo || len(f[0].All) != 2 || f[1].Word != results.ReproducedNotRun {
		t.Errorf("figures: %+v", f)
	}
}

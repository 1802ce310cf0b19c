package experiments_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
)

// TestShipped: the program has the files that its experiments name, and what it says of them is what a run's record has.
func TestShipped(t *testing.T) {
	files, err := filepath.Glob("*.toml")
	if err != nil || len(files) < 40 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		spec, err := kinds.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		sums, err := kinds.Files(spec)
		if err != nil {
			t.Fatal(err)
		}
		rec := experiments.Shipped(name)
		if rec == nil || rec.Experiment.Text != spec.Text || rec.Experiment.SHA256 != spec.SHA256 {
			t.Errorf("%s: %+v", name, rec)
			continue
		}
		if rec.Inventory.Path != "" && rec.Inventory.Text != spec.Inventory().Text {
			t.Errorf("%s has another inventory", name)
		}
		if !slices.Equal(slices.Sorted(maps.Values(rec.Files)), slices.Sorted(maps.Values(sums))) {
			t.Errorf("%s names %v, and not %v", name, sums, rec.Files)
		}
	}
	if experiments.Shipped("mine.toml") != nil {
		t.Error("an experiment of others ships")
	}
}

package experiments

import (
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
)

// Every batch that ships can be placed by its policy.
func TestBatches(t *testing.T) {
	files, err := filepath.Glob("batches/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		spec, err := kinds.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := spec.Place(t.Context()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

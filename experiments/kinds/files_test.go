package kinds

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/experiments/study/programs"
)

// TestFilesOfTables: a file is one of the experiment's whichever of its tables names it, beside the study's own too.
func TestFilesOfTables(t *testing.T) {
	dir := t.TempDir()
	trees := filepath.Join(dir, "trees.txt")
	if err := os.WriteFile(trees, []byte("tree 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load("../quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	if files, err := Files(s); err != nil || files != nil {
		t.Errorf("of none: %v, %v", files, err)
	}
	for _, p := range s.Points() {
		p.Spec.Studies = map[string]any{"sharp": &programs.SHARPSetup{Trees: trees}}
	}
	if files, err := Files(s); err != nil || len(files) != 1 || files[trees] == "" {
		t.Errorf("of a table: %v, %v", files, err)
	}
}

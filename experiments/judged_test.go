package experiments

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/proof"
)

// TestShippedAreJudged: every experiment that ships, and its small version, has an expectation
// that decides its run. Without one a run is never PASS.
func TestShippedAreJudged(t *testing.T) {
	proof.Only(t, "it follows packets")
	files, err := filepath.Glob("*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no experiments: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		quick, _ := spec.Quick(file, text)
		for name, sets := range map[string][]string{"whole": nil, "quick": quick} {
			spec, err := kinds.Load(file, sets...)
			if err != nil {
				t.Fatalf("%s, %s: %v", file, name, err)
			}
			decides := 0
			for _, e := range spec.Expectations() {
				if e.Gate {
					decides++
				}
			}
			if decides == 0 {
				t.Errorf("%s, %s: no expectation decides", file, name)
			}
		}
	}
}

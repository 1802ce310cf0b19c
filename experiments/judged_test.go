package experiments

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
)

// TestNotApplicable: an expectation of some points is skipped where its jobs send nothing there, whatever they do elsewhere.
func TestNotApplicable(t *testing.T) {
	s, err := kinds.Load("quickstart.toml")
	if err != nil {
		t.Fatal(err)
	}
	points, err := plans(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	pack, spread := points[0], points[0]
	pack.Labels, spread.Labels = []string{"placement.policy=pack"}, []string{"placement.policy=spread"}
	plan := *pack.Plan
	plan.Jobs = slices.Clone(plan.Jobs)
	for i := range plan.Jobs {
		plan.Jobs[i].Workers, plan.Jobs[i].PS = plan.Jobs[i].Workers[:1], ""
	}
	pack.Plan = &plan
	for at, skipped := range map[string]bool{"": false, "placement.policy=spread": false, "placement.policy=pack": true} {
		e := results.Expect{Metric: "goodput"}
		if at != "" {
			e.Points = []string{at}
		}
		if why := notApplicable(e, []study.Planned{pack, spread}); strings.HasPrefix(why, "not applicable: jobs A, B are") != skipped {
			t.Errorf("at %q: %q", at, why)
		}
	}
}

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

package report

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/inabench/inabench/results/resultstest"
)

var render = flag.String("render", "", "write reports of the fixtures into this directory, to look at them")

func TestRenderFixtures(t *testing.T) {
	if *render == "" {
		t.Skip("no -render directory")
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(*render, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wf, samples := resultstest.Waterfill()
	wf.Points[0].Trees = jobTrees()
	put("past.html", reportOf(t, wf, append(samples, holdSamples()...), past()))
	put("fair-share.html", htmlOf(t, resultstest.FairShare(), nil))
	put("waterfill.html", htmlOf(t, wf, samples))
	put("addressing.html", htmlOf(t, resultstest.Addressing(), nil))
	put("quickstart.html", htmlOf(t, resultstest.Quickstart(), nil))
	put("policies.html", htmlOf(t, resultstest.Policies([]float64{1, 2, 4, 10, 20}, 10), nil))
	many := resultstest.Policies([]float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20}, 3)
	many.Comparison.Metrics = []string{"avg_jct"}
	put("policies-many.html", htmlOf(t, many, nil))
	put("policies-one.html", htmlOf(t, resultstest.Policies([]float64{4}, 1), nil))
	put("placements.html", htmlOf(t, resultstest.Figure8(), nil))
	put("placements-large.svg", MachinesSVG("Jobs on 512 machines", largePlacements()))
}

// largePlacements are many jobs on 512 machines of eight GPUs, by two policies.
func largePlacements() []Placement {
	var out []Placement
	for _, name := range []string{"titan", "elasticflow", "tiresias", "hived"} {
		rng := rand.New(rand.NewPCG(5, 6))
		all := resultstest.Machines(64, 8, 8, func(i int) int { return 0 })
		at := 0
		for job := range 90 {
			var where []int
			for range 1 << rng.IntN(6) {
				where = append(where, at/8)
				at++
			}
			if name == "elasticflow" || name == "tiresias" && job%3 == 0 {
				at = (at + 7) / 8 * 8
			}
			if at > 512*8-64 {
				break
			}
			resultstest.Occupy(all, fmt.Sprintf("job%d", job), where...)
		}
		out = append(out, Placement{Name: name, Machines: all})
	}
	return out
}

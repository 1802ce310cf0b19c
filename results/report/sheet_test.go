package report

import (
	"regexp"
	"slices"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/resultstest"
)

// TestJobColours: a job has one colour on a page, that of its place among the jobs, whichever of them a drawing shows and
// in which order: charts, placements, trees.
func TestJobColours(t *testing.T) {
	rec, samples := resultstest.Waterfill()
	all := jobTrees()
	rec.Points[0].Trees = []results.Tree{{Job: "C", Hops: all[1].Hops, Adds: all[1].Adds}, all[0]}
	machines := resultstest.Machines(1, 2, 2, func(int) int { return 0 })
	rec.Points[0].Machines = resultstest.Occupy(resultstest.Occupy(machines, "B", 0, 1), "C", 0)
	page := htmlOf(t, rec, samples)
	want := map[string]string{"A": "c0", "B": "c1", "C": "c2"}
	for _, tt := range []struct {
		drawing, pattern string   // of a class and a job
		jobs             []string // that it has at least
	}{
		{"names", `class="name (?:small )?(c\d)"[^>]*>([ABC])<`, []string{"A", "C"}},
		{"trees", `class="tree (c\d)"[^>]*><title>([ABC]): `, []string{"A", "C"}},
		{"switches that add up", `class="adds (c\d)"[^>]*><title>\w+ adds up for ([ABC])<`, []string{"A", "C"}},
		{"placements", `class="gpu (c\d)"[^>]*><title>([ABC]), rank `, []string{"B", "C"}},
	} {
		seen := map[string]bool{}
		for _, m := range regexp.MustCompile(tt.pattern).FindAllStringSubmatch(page, -1) {
			if seen[m[2]] = true; m[1] != want[m[2]] {
				t.Errorf("%s: job %s is %s, want %s", tt.drawing, m[2], m[1], want[m[2]])
			}
		}
		for _, job := range tt.jobs {
			if !seen[job] {
				t.Errorf("%s do not show job %s", tt.drawing, job)
			}
		}
	}
}

// TestApart: what one drawing shows keeps the colours of the page while they tell it apart.
func TestApart(t *testing.T) {
	for _, tt := range []struct{ page, want []int }{
		{nil, nil},
		{[]int{4}, []int{4}},
		{[]int{4, 0, 2}, []int{4, 0, 2}},
		{[]int{4, 0, 4}, []int{0, 1, 2}},
		{[]int{1, 1 + plot.Colours}, []int{0, 1}},
	} {
		if got := apart(tt.page); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.page, got, tt.want)
		}
	}
}

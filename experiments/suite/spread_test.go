package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/trend"
)

// sweep are the labels of points of three policies on two kinds of jobs.
func sweep() map[string][]string {
	out := map[string][]string{}
	for _, policy := range []string{"netpack", "tetris", "comb"} {
		for _, trace := range []string{"philly", "poisson"} {
			l := []string{"trace.from=" + trace, "placement.policy=" + policy}
			out[strings.Join(l, " ")] = l
		}
	}
	return out
}

func worseAt(point, metric string, shift float64) Move {
	state := trend.Higher
	if shift < 0 {
		state = trend.Lower
	}
	return Move{Item: "policies", Point: point, Metric: metric, Of: "cluster", Effect: effect(metric, map[string]string{"avg_jct": "s"}[metric], state), Verdict: trend.Verdict{State: state, Shift: shift}}
}

func TestSpreads(t *testing.T) {
	points := slices.Sorted(maps.Keys(sweep()))
	with := func(words ...string) (out []string) {
		for _, p := range points {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p, w) }) {
				out = append(out, p)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		worse []string
		want  []string
	}{
		{"nothing", nil, nil},
		{"a policy", with("netpack"), []string{"policies with placement.policy=netpack, all 2 points, and none of the others: avg_jct higher by 3.0 % (2.0 % to 4.0 %)"}},
		{"kinds of jobs", with("philly"), []string{"policies with trace.from=philly, all 3 points, and none of the others: avg_jct higher by 3.0 % (2.0 % to 4.0 %)"}},
		{"both", with("philly", "comb"), []string{"policies with placement.policy=comb and trace.from=philly, the only point, and none of the others: avg_jct higher by 2.0 %"}},
		{"all of it", points, []string{"policies, all 6 points: avg_jct higher by 3.0 % (2.0 % to 4.0 %)"}},
		{"one and a half policies", append(with("netpack"), with("philly", "comb")...), []string{
			"policies with placement.policy=netpack, all 2 points, and 1 of the 4 others: avg_jct higher by 3.0 % (2.0 % to 4.0 %)",
			"policies with placement.policy=comb and trace.from=philly, the only point, and 2 of the 5 others: avg_jct higher by 2.0 %"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			moves := []Move{
				worseAt(points[0], "avg_jct", -0.1),                // better
				worseAt(points[1], "link_utilisation", 0.2),        // neither
				{Item: "another", Point: points[2], Effect: Worse}, // of another item
				{Item: "policies", Point: points[3], Effect: Worse, Accepted: "meant"},
			}
			for i, p := range tt.worse {
				moves = append(moves, worseAt(p, "avg_jct", 0.02+0.02*float64(i)/max(float64(len(tt.worse)-1), 1)))
			}
			if tt.name == "one and a half policies" {
				moves[len(moves)-3].Verdict.Shift, moves[len(moves)-2].Verdict.Shift, moves[len(moves)-1].Verdict.Shift = 0.02, 0.04, 0.02
			}
			var got []string
			for _, s := range spreads("policies", sweep(), moves) {
				got = append(got, s.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	// Metrics that fewer points have come later, and say so.
	moves := []Move{worseAt(points[0], "de", -0.05), worseAt(points[0], "avg_jct", 0.01), worseAt(points[1], "avg_jct", 0.03)}
	if got, want := spreads("policies", sweep(), moves)[0].String(), "avg_jct higher by 2.0 % (1.0 % to 3.0 %), de lower by 5.0 % in 1 of them"; !strings.HasSuffix(got, want) {
		t.Errorf("%s lacks %s", got, want)
	}
	if got := spreads("policies", nil, moves); got != nil {
		t.Errorf("%v of what is no study", got)
	}
}

// TestSpreadsThatCross: points that are worse and were put down to something count as worse where they have other values
// that something is put down to.
func TestSpreadsThatCross(t *testing.T) {
	labels := map[string][]string{}
	var moves []Move
	for policy := range 4 {
		for load := range 3 {
			l := []string{fmt.Sprintf("load=%d", load+1), fmt.Sprintf("policy=%d", policy+1)}
			point := strings.Join(l, " ")
			if labels[point] = l; policy == 0 || load == 0 {
				moves = append(moves, worseAt(point, "avg_jct", .02))
			}
		}
	}
	var got []string
	for _, s := range spreads("policies", labels, moves) {
		got = append(got, s.String())
	}
	want := []string{
		"policies with load=1, all 4 points, and 2 of the 8 others: avg_jct higher by 2.0 %",
		"policies with policy=1, all 3 points, and 3 of the 9 others: avg_jct higher by 2.0 %",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// bent does runs in which what a policy comes to is worse by a part, from some night on.
type bent struct {
	here
	by float64
}

func (b *bent) Run(ctx context.Context, r Request) Ended {
	e := b.here.Run(ctx, r)
	if b.by == 0 {
		return e
	}
	dir, rec, err := results.Open(r.Root, "latest")
	if err != nil {
		return Ended{Exit: 6, Message: err.Error()}
	}
	for i := range rec.Points {
		if !slices.Contains(rec.Points[i].Labels, "placement.policy=tetris") {
			continue
		}
		for k := range rec.Points[i].Phases[0].Figures {
			if f := &rec.Points[i].Phases[0].Figures[k]; f.Metric == "avg_jct" {
				f.Value, f.Lo, f.Hi = f.Value*(1+b.by), f.Lo*(1+b.by), f.Hi*(1+b.by)
			}
		}
	}
	if err := dir.Save(rec); err != nil {
		return Ended{Exit: 6, Message: err.Error()}
	}
	return e
}

// TestNightOfStudies runs nights of a simulated study until they are known, and one in which a
// policy is worse: the night says which, where, and by which metric.
func TestNightOfStudies(t *testing.T) {
	dir := t.TempDir()
	const text = `version = 1
name = "study"
on = "sim"
[fat_tree]
racks = 2
hosts = 4
gpus = 4
rate = "100Gbit/s"
pat = "1Tbit/s"
[trace]
from = "philly"
jobs = 12
load = 1.0
period = "60s"
[[sweep]]
key = "trace.from"
values = ["philly", "poisson"]
[[sweep]]
key = "placement.policy"
values = ["netpack", "tetris", "random"]
[[expect]]
metric = "de"
value = 1
bound = "at-most"
reason = "nothing is faster than without a network"
`
	if err := os.WriteFile(filepath.Join(dir, "study.toml"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := Parse(filepath.Join(dir, "s.toml"), []byte("version = 1\n[[experiment]]\npath = \"study.toml\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var n *Night
	r := &bent{}
	for i := range 11 {
		if i == 10 {
			r.by = 0.05
		}
		if n, err = Run(t.Context(), s, Options{Root: filepath.Join(dir, "runs"), Runner: r}); err != nil {
			t.Fatal(err)
		}
		if r.by == 0 && len(n.Spreads) > 0 {
			t.Fatalf("night %d, in which nothing changed: %v", i+1, n.Spreads)
		}
	}
	want := []Spread{{Item: "study", Where: []string{"placement.policy=tetris"}, Points: 2, Worse: 2, Others: 4, Metrics: []SpreadMetric{{"avg_jct", 2, 0.05, 0.05, 0.05}}}}
	if diff := cmp.Diff(want, n.Spreads, cmpopts.EquateApprox(1e-9, 0)); diff != "" || n.Outcome != results.Fail {
		t.Fatalf("%s (-want +got):\n%s", n.Outcome, diff)
	}
	var out, md, junit bytes.Buffer
	if err := errors.Join(WriteText(&out, dir, n), WriteMarkdown(&md, n), WriteJUnit(&junit, dir, n)); err != nil {
		t.Fatal(err)
	}
	line := "study with placement.policy=tetris, all 2 points, and none of the others: avg_jct higher by 5.0 %"
	for _, where := range []string{out.String(), strings.ReplaceAll(md.String(), `\_`, "_"), junit.String()} {
		if !strings.Contains(where, line) {
			t.Errorf("%s\nlacks %s", where, line)
		}
	}
}

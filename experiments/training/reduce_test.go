package training

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/sabotage"
)

// reductions are a job of four ranks on three hosts, and others that only compute.
func reductions(iterations int64) []Reduction {
	return []Reduction{
		{Name: "A", ID: 1, On: []string{"h1", "h1", "h2", "h3"}, Operation: "halving-doubling-near", Message: 40_000, Compute: 0.05, Iterations: iterations},
		{Name: "B", ID: 2, On: []string{"h1"}, Compute: 0.02},
		{Name: "C", ID: 3, On: []string{"h4"}, Compute: 0.02},
	}
}

// Ranks of one host and of several reduce, bit for bit, while others compute, who end when
// they have ended.
func TestReduce(t *testing.T) {
	b := newBedOf(t, false)
	told := 0
	out, err := Reduce(t.Context(), Config{
		Hosts: b, Agent: agent.Config{Epoch: 1, Seed: 3, Interval: 100 * time.Millisecond, LocalRate: 50e6},
		Ready: func(context.Context) error { told++; return nil },
	}, reductions(6))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 3 || told != 1 {
		t.Fatalf("%d jobs, of which it was told %d times that they are ready", len(out), told)
	}
	if checked, wrong := out[0].Sums(); checked != 6*4*10_000 || wrong != 0 {
		t.Errorf("%d sums were checked, %d are wrong", checked, wrong)
	}
	for rank, own := range out[0].Times {
		if len(own) != 6 || out[0].Ranks[rank].Iterations != 6 {
			t.Fatalf("rank %d: %d iterations, of %d are the times", rank, out[0].Ranks[rank].Iterations, len(own))
		}
		for _, it := range own {
			if it.Compute < 0.05 || !(it.Comm > 0) {
				t.Errorf("rank %d: an iteration of %+v", rank, it)
			}
		}
	}
	for _, j := range out[1:] {
		if n := j.Ranks[0].Iterations; n < 5 {
			t.Errorf("job %s: %d iterations", j.Name, n)
		}
	}
}

// When a rank is lost, or something is wrong with a job, all ends at once, and the error says
// of which job and host.
func TestReduceFails(t *testing.T) {
	b := newBedOf(t, false)
	for name, tt := range map[string]struct {
		change func([]Reduction)
		ready  func() error
		want   []string
	}{
		"a rank is killed":      {ready: func() error { b.kill("h3"); return nil }, want: []string{"job A", "host h3"}},
		"a background is lost":  {ready: func() error { b.kill("h4"); return nil }, want: []string{"job C", "host h4"}},
		"whoever waits says no": {ready: func() error { return errors.New("not today") }, want: []string{"not today"}},
		"no such host":          {change: func(j []Reduction) { j[0].On[1] = "h9" }, want: []string{"job A", `"h9"`}},
		"no such collective":    {change: func(j []Reduction) { j[0].Operation = "broadcast" }, want: []string{"job A", "broadcast"}},
		"no rank":               {change: func(j []Reduction) { j[1].On = nil }, want: []string{"job B", "no rank"}},
	} {
		t.Run(name, func(t *testing.T) {
			jobs := reductions(100)
			if tt.change != nil {
				tt.change(jobs)
			}
			_, err := Reduce(t.Context(), Config{
				Hosts: b, Agent: agent.Config{Epoch: 1, Seed: 3},
				Ready: func(context.Context) error {
					if tt.ready != nil {
						return tt.ready()
					}
					return nil
				},
			}, jobs)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, which says nothing of %s", err, want)
				}
			}
		})
	}
	if _, err := Reduce(t.Context(), Config{Hosts: b, Agent: agent.Config{Epoch: 2, Seed: 3}}, reductions(2)); err != nil {
		t.Errorf("after all that: %v", err) // nothing is left that would be in the way
	}
}

// Ranks that do not do what they were asked are told from a testbed that fails, by their code.
func TestReduceMisbehaves(t *testing.T) {
	proof.Only(t, "another rank that is lost")
	b := newBedOf(t, false)
	for fault, want := range map[string][]string{
		"stop":       {results.CodeIterations, results.CodeJobEnded},
		"end-early":  {results.CodeIterations, results.CodeJobEnded},
		"jump-clock": {results.CodeCounters},
	} {
		t.Run(fault, func(t *testing.T) {
			_, err := Reduce(t.Context(), Config{Hosts: b, Agent: agent.Config{
				Epoch: 1, Seed: 3, Interval: 100 * time.Millisecond, Sabotage: &sabotage.Act{Fault: fault, After: 300 * time.Millisecond},
			}}, reductions(40))
			code, job := codeOf(err)
			if !slices.Contains(want, code) || job == "" || !strings.Contains(err.Error(), "rank "+job+"/") || !strings.Contains(err.Error(), "on host h") {
				t.Errorf("%s of job %q: %v, want %v", code, job, err, want)
			}
		})
	}
}

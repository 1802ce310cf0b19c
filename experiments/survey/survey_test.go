package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/results"
)

// TestNextAttempt: what was not decided is measured for longer, and then in repeats, or slower where the
// machine was in the way.
func TestNextAttempt(t *testing.T) {
	undecided := &results.Record{Checks: []results.Check{{Outcome: results.Inconclusive, More: 1}}}
	differ := &results.Record{Checks: []results.Check{{Outcome: results.Pass}, {Outcome: results.Inconclusive, Code: results.CodeVaries}}}
	spoilt := &results.Record{Points: []results.Point{{Phases: []results.Phase{{}, {Spoilt: "the testbed stood still"}}}}}
	for _, c := range []struct {
		name string
		rec  *results.Record
		was  attempt
		want attempt
		ok   bool
	}{
		{"undecided", undecided, attempt{1, 1, 1}, attempt{1, 3, 1}, true},
		{"again", undecided, attempt{1, 3, 1}, attempt{3, 1.5, 1}, true},
		{"and again", undecided, attempt{3, 1.5, 1}, attempt{3, 1.5, 1}, false},
		{"runs differ", differ, attempt{1, 1, 1}, attempt{3, 1.5, 1}, true},
		{"the machine was in the way", spoilt, attempt{1, 1, 1}, attempt{1, 1, 2}, true},
		{"of repeats too", spoilt, attempt{3, 1.5, 1}, attempt{3, 1.5, 2}, true},
	} {
		if got, ok := c.was.next(c.rec); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v, want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestAll: settings come in their order, each as often as it takes, none is begun once they are left, and one that comes to nothing
// says why.
func TestAll(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("no such host")
	numbers, ran := map[string]int{}, map[int][]string{}
	d := Driver{
		Seed: 7, On: "netns", Factor: 100,
		Prepare: func(ctx context.Context, s *random.Setting) (string, *experiments.SavedPlan, error) {
			if s.Number == 4 {
				return "", nil, broken
			}
			path, err := s.Write(dir)
			if err != nil {
				return "", nil, err
			}
			numbers[path] = s.Number
			spec, err := kinds.Load(path)
			if err != nil {
				return "", nil, err
			}
			plan, err := experiments.NewPlan(ctx, spec, "test")
			return path, plan, err
		},
	}
	d.Run = func(ctx context.Context, path string, options []string) (*results.Record, error) {
		s := numbers[path]
		ran[s] = append(ran[s], strings.Join(options, " "))
		if s > 4 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		rec := &results.Record{Outcome: results.Inconclusive, Checks: []results.Check{{Outcome: results.Inconclusive, More: 1}}, Points: []results.Point{{Phases: []results.Phase{{}}}}}
		switch n := len(ran[s]); {
		case s == 1, s == 2 && n == 2:
			rec.Outcome = results.Pass
		case s == 2:
			rec.Points[0].Phases[0].Spoilt = "the testbed stood still"
		}
		return rec, nil
	}
	var got []string
	for i, r := range d.All(t.Context(), 1, 9) {
		outcome := "-"
		if r.Record != nil {
			outcome = string(r.Record.Outcome)
		}
		got = append(got, fmt.Sprintf("%d: %d at %g, again %t, %s, %v", i, r.Setting.Number, r.Setting.Factor, r.Again, outcome, r.Err))
		if i == 3 {
			break
		}
	}
	want := []string{
		"0: 1 at 100, again false, pass, <nil>",
		"1: 2 at 200, again true, pass, <nil>",
		"2: 3 at 100, again true, inconclusive, <nil>",
		"3: 4 at 0, again false, -, no such host",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if len(ran[1]) != 1 || len(ran[2]) != 2 || len(ran[3]) != mostAttempts || !strings.Contains(ran[3][2], "--repeat 3") || len(ran[6]) > 0 {
		t.Errorf("%v", ran)
	}
}

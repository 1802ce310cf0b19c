package cbc_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/exact/cbc"
	"github.com/inabench/inabench/placement/exact/lp"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// What cbc 2.10 prints above everything else.
const welcome = "Welcome to the CBC MILP Solver \nVersion: 2.10.8 \nBuild Date: Jan  1 2022 \n\n"

// summary is what it prints at the end.
func summary(result string, lines ...string) string {
	return welcome + "Result - " + result + "\n\n" + strings.Join(lines, "\n") + "\nTotal time (CPU seconds):       0.10   (Wallclock seconds):       0.11\n"
}

var parsed = []struct {
	name, log, solution string
	want                lp.Answer
	err                 string
}{
	{
		name:     "optimal",
		log:      summary("Optimal solution found", "Objective value:                12.00000000", "Enumerated nodes:               0"),
		solution: "Optimal - objective value 12.00000000\n      0 x_0                    1                     500\n      3 v_0                    0.5                       0\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Optimal, Objective: 12, Bound: 12, Values: map[string]float64{"x_0": 1, "v_0": 0.5}},
	},
	{
		name:     "within the gap, and the bound has fewer digits than the objective",
		log:      summary("Optimal solution found (within gap tolerance)", "Objective value:                12.00049000", "Lower bound:                    12.001"),
		solution: "Optimal (within gap tolerance) - objective value 12.00049000\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Optimal, Objective: 12.00049, Bound: 12.00049, Values: map[string]float64{}},
	},
	{
		name:     "stopped with a solution, of which one value is out of its bounds",
		log:      summary("Stopped on time limit", "Objective value:                21.50000000", "Lower bound:                    16.310", "Gap:                            0.32"),
		solution: "Stopped on time - objective value 21.50000000\n**      7 w_0_1                  2.0000001               0\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Stopped, Objective: 21.5, Bound: 16.3095, Values: map[string]float64{"w_0_1": 2.0000001}},
	},
	{
		name:     "stopped near nothing: rounding is most of the bound",
		log:      summary("Stopped on time limit", "Objective value:                0.00100000", "Lower bound:                    0.001"),
		solution: "Stopped on time - objective value 0.00100000\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Stopped, Objective: 0.001, Bound: 0.0005, Values: map[string]float64{}},
	},
	{
		name:     "stopped, and its bound is its infinity",
		log:      summary("Stopped on time limit", "Objective value:                21.50000000", "Lower bound:                    1"+strings.Repeat("0", 50)+".000"),
		solution: "Stopped on time - objective value 21.50000000\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Stopped, Objective: 21.5, Bound: math.Inf(-1), Values: map[string]float64{}},
	},
	{
		name:     "stopped without a solution: values of the relaxation are none",
		log:      summary("Stopped on time limit", "No feasible solution found", "Lower bound:                    12.000"),
		solution: "Stopped on time (no integer solution - continuous used) - objective value 12.00000000\n      0 x_0                  0.5                   0\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Stopped, Bound: 11.9995},
	},
	{
		name: "stopped, and it left no file",
		log:  summary("Stopped on time limit", "No feasible solution found"),
		want: lp.Answer{Version: "2.10.8", Status: lp.Stopped, Bound: math.Inf(-1)},
	},
	{
		name:     "infeasible: what follows is the last attempt",
		log:      summary("Problem proven infeasible", "No feasible solution found"),
		solution: "Infeasible - objective value 4.00000000\n**      0 x_0                    4                       1\n",
		want:     lp.Answer{Version: "2.10.8", Status: lp.Infeasible, Bound: math.Inf(-1)},
	},
	{
		name:     "infeasible in whole numbers",
		solution: "Integer infeasible - objective value 0.00000000\n",
		want:     lp.Answer{Status: lp.Infeasible, Bound: math.Inf(-1)},
	},
	{
		name: "infeasible before it began",
		log:  welcome + "Problem is infeasible - 0.00 seconds\n",
		want: lp.Answer{Version: "2.10.8", Status: lp.Infeasible, Bound: math.Inf(-1)},
	},
	{name: "not read", log: welcome + "### ERROR: CoinLpIO::readLp(): Maximization or Minimization objective function\n", err: `last words are "### ERROR: CoinLpIO`},
	{name: "nothing", err: `last words are ""`},
	{name: "unbounded", solution: "Unbounded - objective value 0.00000000\n", err: `it says "Unbounded"`},
	{name: "another file", solution: "x_0 1\n", err: `begins with "x_0 1"`},
	{name: "no objective", solution: "Optimal - objective value much\n", err: `"much"`},
	{name: "an infinite objective", solution: "Optimal - objective value inf\n", err: "no finite number"},
	{name: "half a line", solution: "Optimal - objective value 1\n 0 x_0 1 0\n 1 x_1\n", err: `line 3 of its solution: "1 x_1"`},
	{name: "no value", solution: "Optimal - objective value 1\n 0 x_0 one 0\n", err: "line 2 of its solution: x_0"},
}

func TestParse(t *testing.T) {
	for _, tt := range parsed {
		got, err := cbc.Parse(tt.log, tt.solution)
		if tt.err != "" {
			if !errors.Is(err, cbc.ErrAnswer) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		tt.want.Solver = cbc.Program
		if err != nil || !same(got, tt.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", tt.name, got, err, tt.want)
		}
	}
}

// same reports whether answers say the same, and have values or have none.
func same(a, b lp.Answer) bool {
	if a.Solver != b.Solver || a.Version != b.Version || a.Status != b.Status || a.Objective != b.Objective ||
		a.Bound != b.Bound && !(math.Abs(a.Bound-b.Bound) < 1e-9) || (a.Values == nil) != (b.Values == nil) || len(a.Values) != len(b.Values) {
		return false
	}
	for name, v := range a.Values {
		if w, ok := b.Values[name]; !ok || v != w {
			return false
		}
	}
	return true
}

// Whatever stands in the two texts, an answer is one of the three, and its numbers are some.
func FuzzParse(f *testing.F) {
	for _, tt := range parsed {
		f.Add(tt.log, tt.solution)
	}
	f.Fuzz(func(t *testing.T, log, solution string) {
		a, err := cbc.Parse(log, solution)
		if err != nil {
			if !errors.Is(err, cbc.ErrAnswer) {
				t.Error(err)
			}
			return
		}
		if a.Status != lp.Optimal && a.Status != lp.Stopped && a.Status != lp.Infeasible {
			t.Errorf("status %q", a.Status)
		}
		if a.Values == nil && a.Status == lp.Optimal || a.Values != nil && (a.Status == lp.Infeasible || !(a.Bound <= a.Objective)) {
			t.Errorf("%+v", a)
		}
		for name, v := range a.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s is %v", name, v)
			}
		}
	})
}

// knapsack is the program to take of three things that weigh 2, 3 and 4 those that are worth most and
// weigh 5 at most: the first two.
func knapsack() *lp.Program {
	var p lp.Program
	a, b, c := p.Whole("a", 0, 1), p.Whole("b", 0, 1), p.Whole("c", 0, 1)
	p.Cost(a, -3)
	p.Cost(b, -4)
	p.Cost(c, -5)
	p.AtMost("weight", 5, a.Times(2), b.Times(3), c.Times(4))
	return &p
}

// script is a cbc that is a shell script. Its arguments are as Minimise has them: the program is $1, the
// seconds are $5, and the solution goes to $8.
func script(t *testing.T, text string) cbc.Solver {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cbc")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return cbc.Solver{Path: path}
}

func TestMinimise(t *testing.T) {
	s := script(t, `grep -q 'weight: +2 a +3 b +4 c <= 5' "$1" || exit 3
[ "$2 $3 $4 $5 $6 $7" = "-timeMode elapsed -sec 1.5 -solve -solution" ] || exit 4
echo 'Version: 2.10.8 '
printf 'Optimal - objective value -7\n 0 a 1 -3\n 1 b 1 -4\n' >"$8"`)
	got, err := s.Minimise(t.Context(), knapsack(), 1500*time.Millisecond)
	want := lp.Answer{Solver: "cbc", Version: "2.10.8", Status: lp.Optimal, Objective: -7, Bound: -7, Values: map[string]float64{"a": 1, "b": 1}}
	if err != nil || !same(got, want) || got.Elapsed <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// What a cbc does that does not answer, and what is said of it.
func TestMinimiseFails(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		text string
		is   error
		want string
	}{
		"breaks off":      {t.Context(), "echo reading; echo 'no memory' >&2; exit 3", cbc.ErrAnswer, "exit status 3: no memory"},
		"leaves no file":  {t.Context(), "echo 'cannot read it'", cbc.ErrAnswer, `"cannot read it"`},
		"leaves a folder": {t.Context(), `mkdir "$8"`, cbc.ErrAnswer, "is a directory"},
		"is not wanted":   {done, "sleep 1000", context.Canceled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, tt.text)
			if a, err := s.Minimise(tt.ctx, knapsack(), time.Minute); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	if _, err := (cbc.Solver{Path: filepath.Join(t.TempDir(), "none")}).Minimise(t.Context(), knapsack(), time.Second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

// A cbc that does not end is killed, and has found nothing.
func TestMinimiseKills(t *testing.T) {
	s := script(t, "sleep 1000")
	s.Grace = time.Millisecond
	got, err := s.Minimise(t.Context(), knapsack(), time.Millisecond)
	if err != nil || !same(got, lp.Answer{Solver: "cbc", Status: lp.Stopped, Bound: math.Inf(-1)}) || got.Elapsed <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFind(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := cbc.Find(); !errors.Is(err, cbc.ErrMissing) || !strings.Contains(err.Error(), "install coinor-cbc") {
		t.Error(err)
	}
}

// The real one reads the text and answers as the fake one does.
func TestCBC(t *testing.T) {
	s, err := cbc.Find()
	testbedtest.Require(t, "cbc", err)
	got, err := s.Minimise(t.Context(), knapsack(), time.Minute)
	if err != nil || got.Status != lp.Optimal || math.Abs(got.Objective+7) > 1e-6 || math.Abs(got.Bound+7) > 1e-2 || got.Version == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if math.Abs(got.Values["a"]-1) > 1e-6 || math.Abs(got.Values["b"]-1) > 1e-6 || math.Abs(got.Values["c"]) > 1e-6 {
		t.Errorf("%v", got.Values)
	}
	p := knapsack()
	p.AtLeast("more", 10, lp.Var(0).Times(2), lp.Var(1).Times(3))
	if got, err = s.Minimise(t.Context(), p, time.Minute); err != nil || got.Status != lp.Infeasible || got.Values != nil {
		t.Errorf("infeasible: %+v, %v", got, err)
	}
}

package cbc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/inabench/inabench/placement/exact/lp"
)

// Parse reads what cbc printed and the text of its solution file, "" where it left none. Errors wrap
// ErrAnswer and say which line is not understood.
//
// The first line of a solution says what it is, as in "Optimal - objective value 12.00000000" or "Stopped
// on time - objective value 13.50000000". "(no integer solution - continuous used)" in it says that the
// values are of no solution: some that should be whole are not. The lines below it are those of variables
// that are not 0: a number, the name, the value, the reduced cost; ** stands before one that is out of its
// bounds. What cbc prints ends with a summary that has, unless it solved all, the lower bound, rounded to
// three decimals.
func Parse(log, solution string) (lp.Answer, error) {
	a := lp.Answer{Solver: Program, Version: field(log, "Version:"), Bound: bound(field(log, "Lower bound:"))}
	if solution == "" {
		return withoutSolution(a, log)
	}
	head, lines, _ := strings.Cut(solution, "\n")
	said, value, ok := strings.Cut(strings.TrimSpace(head), " - objective value ")
	if !ok {
		return lp.Answer{}, fmt.Errorf("%w: its solution begins with %q", ErrAnswer, head)
	}
	switch {
	case strings.HasPrefix(said, "Optimal"):
		a.Status = lp.Optimal
	case strings.HasPrefix(said, "Infeasible"), strings.HasPrefix(said, "Integer infeasible"):
		a.Status = lp.Infeasible
		return a, nil
	case strings.HasPrefix(said, "Stopped on"):
		a.Status = lp.Stopped
		if strings.Contains(said, "no integer solution") {
			return a, nil
		}
	default:
		return lp.Answer{}, fmt.Errorf("%w: it says %q", ErrAnswer, said)
	}
	var err error
	if a.Objective, err = finite(value); err != nil {
		return lp.Answer{}, fmt.Errorf("%w: objective value %w", ErrAnswer, err)
	}
	if a.Values, err = values(lines); err != nil {
		return lp.Answer{}, err
	}
	if a.Status == lp.Optimal && math.IsInf(a.Bound, -1) {
		a.Bound = a.Objective
	}
	a.Bound = min(a.Bound, a.Objective) // the summary has fewer digits
	return a, nil
}

// unbounded is from where on cbc means no number: it begins with 1e50.
const unbounded = 1e50

// bound is the least that a printed bound can have been before it was rounded; -Inf: it says nothing.
func bound(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(v) < unbounded) {
		return math.Inf(-1)
	}
	_, decimals, _ := strings.Cut(text, ".")
	return v - math.Pow10(-len(decimals))/2
}

// withoutSolution is the answer where cbc left no solution: what it printed has to say why.
func withoutSolution(a lp.Answer, log string) (lp.Answer, error) {
	for line := range strings.Lines(log) {
		switch strings.TrimPrefix(strings.TrimSpace(line), "Result - ") {
		case "Stopped on time limit":
			a.Status = lp.Stopped
			return a, nil
		case "Problem proven infeasible", "Linear relaxation infeasible":
			a.Status = lp.Infeasible
			return a, nil
		}
		if strings.HasPrefix(strings.TrimSpace(line), "Problem is infeasible") { // "- 0.00 seconds"
			a.Status = lp.Infeasible
			return a, nil
		}
	}
	return lp.Answer{}, fmt.Errorf("%w: no solution, and its last words are %q", ErrAnswer, lastLine(log))
}

// values are those of the lines below a solution's first.
func values(lines string) (map[string]float64, error) {
	out := map[string]float64{}
	n := 1
	for line := range strings.Lines(lines) {
		n++
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "**"))
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			return nil, fmt.Errorf("%w: line %d of its solution: %q is no number, name and value", ErrAnswer, n, strings.TrimSpace(line))
		}
		v, err := finite(f[2])
		if err != nil {
			return nil, fmt.Errorf("%w: line %d of its solution: %s: %w", ErrAnswer, n, f[1], err)
		}
		out[f[1]] = v
	}
	return out, nil
}

func finite(text string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = fmt.Errorf("%q is no finite number", text)
	}
	return v, err
}

// field is what stands behind a label at the beginning of a line, in the last line that has it.
func field(text, label string) string {
	out := ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), label); ok {
			out = strings.TrimSpace(rest)
		}
	}
	return out
}

// lastLine is the last line of a text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

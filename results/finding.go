package results

import (
	"slices"
	"strings"
)

// Finding is a check that is decided where it is made, by evidence that is no figure: what a
// log says, or that a program refused its own results.
type Finding struct {
	Name    string  `json:"name"` // of the check: "switches add up"
	Code    string  `json:"code"` // stable; what a failure is known by: CodeFallback
	Of      string  `json:"of"`   // the program
	Outcome Outcome `json:"outcome"`
	What    string  `json:"what"` // in a line
	// Implied says that this must hold of every run, whatever it is about: where it does, that alone
	// judges nothing.
	Implied bool `json:"implied,omitempty"`
	// Evidence is lines of logs and what counters say, for and against.
	Evidence []string `json:"evidence,omitempty"`
}

// Evidence is what findings are named as predictor of: nothing predicts them.
const Evidence = "evidence"

// check is the finding as a check of its point. It decides the run.
func (f *Finding) check(p *Point) Check {
	why := f.What
	if f.Outcome == Fail || f.Outcome == Inconclusive {
		why = f.Code + ": " + why
		if len(f.Evidence) > 0 {
			why += " (" + strings.Join(f.Evidence, "; ") + ")"
		}
	}
	return Check{
		Expect: f.Name, Code: f.Code, Point: p.Label(), Index: p.Index, Metric: Evidence, Predictor: Evidence, Bound: "within",
		Of: f.Of, Outcome: f.Outcome, Why: why, Gate: true, Implied: f.Implied,
	}
}

// foundChecks are the findings of all points, one for each name and subject of a cell: the
// worst of its repeats, since a repeat that was not what it should be is none.
func foundChecks(points []Point) []Check {
	rank := []Outcome{Skipped, Pass, Inconclusive, Fail}
	var out []Check
	for i := range points {
		for k := range points[i].Findings {
			c := points[i].Findings[k].check(&points[i])
			at := slices.IndexFunc(out, func(o Check) bool { return o.Expect == c.Expect && o.Of == c.Of && o.Index == c.Index })
			switch {
			case at < 0:
				out = append(out, c)
			case slices.Index(rank, c.Outcome) > slices.Index(rank, out[at].Outcome):
				out[at] = c
			}
		}
	}
	return out
}

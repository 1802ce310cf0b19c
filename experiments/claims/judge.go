package claims

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/inabench/inabench/results"
)

// Words of claims that no record tells of, beside those of results.Reproduced.
const (
	NotRun  = results.ReproducedNotRun         // no run of the experiment that shows it is there
	Missing = results.Reproduced("missing")    // no experiment that ships shows it
	Cannot  = results.Reproduced("cannot run") // it needs what this project cannot have
	NotHeld = results.Reproduced("not held")   // a run makes the figure, and nothing holds it against the paper's
)

// Words are all that a claim can come to, the best first.
var Words = []results.Reproduced{results.ReproducedYes, results.ReproducedOrder, results.ReproducedNo, results.ReproducedUndecided, NotHeld, NotRun, Missing, Cannot}

// Judged is a claim and what became of it.
type Judged struct {
	ID    string             `json:"id"`
	Where string             `json:"where"`
	Says  string             `json:"says"`
	Paper string             `json:"paper,omitempty"` // what it prints
	Word  results.Reproduced `json:"reproduced"`
	Here  []string           `json:"here,omitempty"` // what was found, row by row
	Why   string             `json:"why,omitempty"`
	Run   string             `json:"run,omitempty"` // where
	From  string             `json:"experiment,omitempty"`
	// On is the driver of the run: "sim", "netns" or "lab"; Testbed is what the paper has it from, "simulation", "testbed" or
	// "analysis".
	On      string `json:"on,omitempty"`
	Testbed string `json:"testbed,omitempty"`
}

// Judge says of every claim of a paper what became of it, by the newest record of each experiment, and by what an experiment
// is as it ships; nil: there is none.
func (p *Paper) Judge(newest, shipped func(experiment string) *results.Record) []Judged {
	out := make([]Judged, len(p.Claims))
	for i := range p.Claims {
		c := &p.Claims[i]
		out[i] = c.judge(newest, shipped)
	}
	return out
}

func (c *Claim) judge(newest, shipped func(string) *results.Record) Judged {
	j := Judged{ID: c.ID, Where: c.Where, Says: c.Says, Paper: c.Printed(), Testbed: c.Testbed}
	switch {
	case c.Shown != nil:
	case c.Needs != "":
		j.Word, j.Why = Cannot, "needs "+c.Needs
		return j
	default:
		j.Word, j.Why = Missing, "it would take: "+c.Missing
		return j
	}
	j.From = c.Shown.Experiment
	rec := newest(j.From)
	if rec == nil {
		j.Word = NotRun
		return j
	}
	extent, why := ExtentOf(rec, shipped(j.From))
	if extent == Foreign {
		j.Word, j.Why = NotRun, "run "+rec.ID+" is of another setting: "+why
		return j
	}
	j.Run, j.On = rec.ID, rec.Driver
	if !c.Shown.holds() {
		j.Word, j.Why = NotHeld, "the report of "+j.From+" has it"
		return j
	}
	for _, r := range c.Shown.Rows(rec) {
		j.take(r.Word, found(r), r.Why)
	}
	for i := range rec.Checks {
		if k := &rec.Checks[i]; c.Shown.Expect != "" && k.Expect == c.Shown.Expect {
			j.take(cmp.Or(words[k.Outcome], NotRun), "", k.Why)
		}
	}
	for i := range rec.Expect {
		if e := &rec.Expect[i]; c.Shown.Expect != "" && e.Name == c.Shown.Expect && j.Word != "" {
			if key := rec.Left(e.Points); key != "" {
				j.take(results.ReproducedUndecided, "", results.Some(key))
			}
		}
	}
	switch {
	case j.Word == "":
		j.Word, j.Why = NotRun, "the run has no such points"
	case extent == Cut:
		j.take(results.ReproducedUndecided, "", why)
	}
	return j
}

// holds says whether a record holds it against what the paper says.
func (s *Shown) holds() bool { return s.Figure != "" || s.Expect != "" }

// Rows are those of a record that are about the claim.
func (s *Shown) Rows(rec *results.Record) (out []results.Reproduction) {
	is := func(want, got string) bool { return want == "" || want == got }
	for _, r := range rec.Reproduced {
		if s.Figure != "" && s.Figure == r.Figure && is(s.Metric, r.Metric) && is(s.Against, r.Against) && is(s.Point, r.At) {
			out = append(out, r)
		}
	}
	return out
}

// take adds a row: a claim comes to the worst of its rows.
func (j *Judged) take(word results.Reproduced, here, why string) {
	if j.Word == "" || word.Worse(j.Word) {
		j.Word, j.Why = word, why
	}
	if here != "" {
		j.Here = append(j.Here, here)
	}
}

// found is what a row found, in words.
func found(r results.Reproduction) string {
	text := r.Words()
	if text == "" {
		return ""
	}
	return text + r.Contrast()
}

// words are what a claim comes to by a check.
var words = map[results.Outcome]results.Reproduced{
	results.Pass: results.ReproducedYes, results.Fail: results.ReproducedNo, results.Inconclusive: results.ReproducedUndecided,
}

// Count is how many claims came to each word, in the order of Words.
func Count(all []Judged) string {
	var parts []string
	for _, w := range Words {
		n := 0
		for i := range all {
			if all[i].Word == w {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w))
		}
	}
	return strings.Join(parts, ", ")
}

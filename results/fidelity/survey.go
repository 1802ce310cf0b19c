package fidelity

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Survey is runs of settings that nobody tuned, each held against what was predicted of it: a
// fidelity figure for settings as they come.
//
// The error of a figure is that of a check: (measured - predicted) / predicted, of a link without
// predicted traffic over the largest prediction of its phase, and of a share measured - predicted.
// Points that the testbed spoilt are looked at apart: what they say may be about the machine. Links
// that are idle on both sides are left out, since they would only make means look better.
type Survey struct {
	Schema  int    `json:"schema"` // 1
	Driver  string `json:"driver"`
	Seed    string `json:"seed"`  // as it was given
	Model   string `json:"model"` // the predictor
	Planned int    `json:"planned"`

	// Outcomes of the runs. Those that are Broken ended early, or before they had a record.
	Passed    int `json:"passed"`
	Failed    int `json:"failed"`
	Undecided int `json:"undecided"`
	Broken    int `json:"broken"`

	Groups []SurveyGroup  `json:"groups"`        // of the metrics asked for, in their order
	Spoilt []SurveyGroup  `json:"spoilt"`        // the same of points that the testbed spoilt, which count for nothing else
	States []SurveyGroup  `json:"states"`        // and of phases that are held to one state of several, chosen by what was measured (Phase.State)
	Why    []SurveyReason `json:"why,omitempty"` // runs that are undecided or broken, the most frequent reason first
	Worst  []SurveyError  `json:"worst"`         // figures that are furthest off by their tolerances, one of each setting and metric
	Cases  []SurveyCase   `json:"cases"`

	limits map[string]float64
	errors []SurveyError
}

// SurveyGroup is the errors of one metric over all settings.
type SurveyGroup struct {
	Metric    string  `json:"metric"`
	Relative  bool    `json:"relative"` // errors are parts of what was predicted
	N         int     `json:"n"`
	Tolerance float64 `json:"tolerance"`
	Within    float64 `json:"within"` // the part of figures whose error is no more than the tolerance, 0 to 1
	Mean      float64 `json:"mean"`   // of |error|, as are the next two
	P95       float64 `json:"p95"`    // 95th percentile
	Max       float64 `json:"max"`
	Bias      float64 `json:"bias"` // mean of the errors with their sign
}

// SurveyReason is why runs were undecided or broke, without the numbers and names in it.
type SurveyReason struct {
	Why     string `json:"why"`
	N       int    `json:"n"`
	Example string `json:"example"` // as one of them says it
	Case    string `json:"case"`    // of the example
}

// SurveyCase is one setting.
type SurveyCase struct {
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	Run     string          `json:"run,omitempty"` // ID; empty: it has no record
	Outcome results.Outcome `json:"outcome"`
	Why     string          `json:"why,omitempty"` // the first reason of an outcome that is not pass
	Factor  float64         `json:"factor,omitempty"`
	Again   bool            `json:"again,omitempty"` // a run left it undecided, so that this one repeated it
	Command string          `json:"command"`         // that runs it again
}

// SurveyError is one figure.
type SurveyError struct {
	Case      string  `json:"case"`
	Phase     int     `json:"phase"` // from 0
	Metric    string  `json:"metric"`
	Of        string  `json:"of"`
	Unit      string  `json:"unit"`
	Measured  float64 `json:"measured"` // in the lab's units, as is Predicted
	Predicted float64 `json:"predicted"`
	Error     float64 `json:"error"`
	Relative  bool    `json:"relative"`
	Command   string  `json:"command"`

	kind kind
}

// kind is what a figure's error tells of.
type kind int

const (
	sound  kind = iota // the prediction
	chosen             // that there is a state like it
	spoilt             // the testbed
)

// worstSettings is how many of the figures that are furthest off a survey lists.
const worstSettings = 10

// SurveyLimit is the tolerance of a metric.
type SurveyLimit struct {
	Metric    string
	Tolerance float64 // of what is predicted, of shares absolute
}

// NewSurvey is a survey without any setting. Figures of these metrics are held against
// what a predictor says.
func NewSurvey(driver, seed, predictor string, planned int, limits []SurveyLimit) *Survey {
	s := &Survey{Schema: Schema, Driver: driver, Seed: seed, Model: predictor, Planned: planned, Cases: []SurveyCase{}, Worst: []SurveyError{}, limits: map[string]float64{}}
	for _, l := range limits {
		s.Groups = append(s.Groups, SurveyGroup{Metric: l.Metric, Tolerance: l.Tolerance})
		s.Spoilt = append(s.Spoilt, SurveyGroup{Metric: l.Metric, Tolerance: l.Tolerance})
		s.States = append(s.States, SurveyGroup{Metric: l.Metric, Tolerance: l.Tolerance})
		s.limits[l.Metric] = l.Tolerance
	}
	return s
}

// Add adds the run of a setting. rec is nil where there is none because of err.
func (s *Survey) Add(c SurveyCase, rec *results.Record, err error) {
	switch {
	case rec == nil:
		c.Outcome = results.ErrorOutcome
		if err != nil {
			c.Why = err.Error()
		}
	default:
		c.Run, c.Outcome = rec.ID, rec.Outcome
		if len(rec.Reasons) > 0 && rec.Outcome != results.Pass {
			c.Why = rec.Reasons[0]
		}
		s.errors = append(s.errors, s.pairs(c, rec)...)
	}
	switch c.Outcome {
	case results.Pass:
		s.Passed++
	case results.Fail:
		s.Failed++
	case results.ErrorOutcome:
		s.Broken++
	default:
		s.Undecided++
	}
	s.Cases = append(s.Cases, c)
	s.summarise()
}

// pairs are a run's figures and what was predicted of them.
func (s *Survey) pairs(c SurveyCase, rec *results.Record) (out []SurveyError) {
	for _, p := range rec.Points {
		for i, ph := range p.Phases {
			kind := sound
			switch {
			case p.UnsoundIn(i) != "":
				kind = spoilt
			case ph.State != "":
				kind = chosen
			}
			said, largest := map[[2]string]results.Figure{}, map[string]float64{}
			for _, f := range ph.Figures {
				if f.Kind == results.Predicted && f.Predictor == s.Model {
					said[[2]string{f.Metric, f.Of}] = f
					largest[f.Metric] = max(largest[f.Metric], math.Abs(f.Value))
				}
			}
			for _, f := range ph.Figures {
				g, ok := said[[2]string{f.Metric, f.Of}]
				if _, asked := s.limits[f.Metric]; !asked || !ok || f.Kind == results.Predicted || f.N == 0 {
					continue
				}
				if class, _ := classOf(f.Metric, f.Of); class == Link && max(f.Value, g.Value) <= idle*largest[f.Metric] {
					continue
				}
				e := SurveyError{kind: kind, Case: c.Name, Phase: i, Metric: f.Metric, Of: f.Of, Unit: f.Unit, Command: c.Command,
					Measured: rec.Scale.Lab(f.Value, f.Unit), Predicted: rec.Scale.Lab(g.Value, g.Unit), Relative: f.Unit != "1" && f.Unit != ""}
				over := 1.0
				if e.Relative {
					if over = math.Abs(g.Value); over == 0 {
						over = largest[f.Metric]
					}
				}
				if e.Error = (f.Value - g.Value) / over; math.IsNaN(e.Error) || math.IsInf(e.Error, 0) {
					continue
				}
				out = append(out, e)
			}
		}
	}
	return out
}

// of draws a group's numbers from the errors of its metric that are of a kind.
func (g *SurveyGroup) of(all []SurveyError, kind kind) {
	*g = SurveyGroup{Metric: g.Metric, Tolerance: g.Tolerance}
	var sizes []float64
	for _, e := range all {
		if e.Metric != g.Metric || e.kind != kind {
			continue
		}
		size := math.Abs(e.Error)
		sizes = append(sizes, size)
		g.Relative = e.Relative
		g.Mean += size
		g.Bias += e.Error
		if size <= g.Tolerance {
			g.Within++
		}
	}
	if g.N = len(sizes); g.N == 0 {
		return
	}
	n := float64(g.N)
	g.Mean, g.Bias, g.Within = g.Mean/n, g.Bias/n, g.Within/n
	slices.Sort(sizes)
	g.Max, g.P95 = sizes[g.N-1], sizes[int(math.Ceil(0.95*n))-1]
}

// summarise draws everything from the cases and errors so far.
func (s *Survey) summarise() {
	for i := range s.Groups {
		s.Groups[i].of(s.errors, sound)
		s.States[i].of(s.errors, chosen)
		s.Spoilt[i].of(s.errors, spoilt)
	}
	s.Why = nil
	for _, c := range s.Cases {
		if c.Outcome == results.Pass || c.Outcome == results.Fail {
			continue
		}
		why := general(c.Why)
		i := slices.IndexFunc(s.Why, func(r SurveyReason) bool { return r.Why == why })
		if i < 0 {
			i = len(s.Why)
			s.Why = append(s.Why, SurveyReason{Why: why, Example: c.Why, Case: c.Name})
		}
		s.Why[i].N++
	}
	slices.SortStableFunc(s.Why, func(a, b SurveyReason) int { return cmp.Compare(b.N, a.N) })
	off := func(e SurveyError) float64 { return math.Abs(e.Error) / s.limits[e.Metric] }
	all := slices.DeleteFunc(slices.Clone(s.errors), func(e SurveyError) bool { return e.kind != sound })
	slices.SortStableFunc(all, func(a, b SurveyError) int { return cmp.Compare(off(b), off(a)) })
	seen := map[[2]string]bool{}
	s.Worst = []SurveyError{}
	for _, e := range all {
		if k := [2]string{e.Case, e.Metric}; !seen[k] && len(s.Worst) < worstSettings {
			seen[k] = true
			s.Worst = append(s.Worst, e)
		}
	}
}

var (
	names   = regexp.MustCompile(`\b(h|[A-Za-z]{2,})\d+(:\d+)?(->(h|[A-Za-z]{2,})\d+(:\d+)?)?\b|\b[A-Z](/\d+|@[a-z]+\d+)?\b`)
	numbers = regexp.MustCompile(`\d+([.,]\d+)*`)
)

// general is a reason without its numbers, and without the hosts, switches and jobs of settings that
// were drawn, which differ from run to run.
func general(why string) string {
	return numbers.ReplaceAllString(names.ReplaceAllString(why, "…"), "N")
}

// Outcome is that of all settings together: fail if one failed, else error if one broke, else
// inconclusive if one is undecided or there is none, else pass.
func (s *Survey) Outcome() results.Outcome {
	switch {
	case s.Failed > 0:
		return results.Fail
	case s.Broken > 0:
		return results.ErrorOutcome
	case s.Undecided > 0 || s.Passed == 0:
		return results.Inconclusive
	}
	return results.Pass
}

// Write writes the survey for the terminal.
func (s *Survey) Write(w io.Writer) error {
	n := len(s.Cases)
	fmt.Fprintf(w, "FIDELITY  %s drawn from seed %s, on %s, against %s\n", human.Plural(n, "setting"), s.Seed, s.Driver, s.Model)
	if n < s.Planned {
		fmt.Fprintf(w, "  ! %d of %d settings: it was cut off\n", n, s.Planned)
	}
	fmt.Fprintf(w, "  %d passed, %d failed, %d undecided, %d broken\n\n", s.Passed, s.Failed, s.Undecided, s.Broken)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURES\tN\tMEAN ERROR\t95 % WITHIN\tMAX\tBIAS\tWITHIN TOLERANCE")
	for _, g := range s.Groups {
		g.write(tw, "")
	}
	for _, g := range s.States {
		if g.N > 0 {
			g.write(tw, ", a state")
		}
	}
	for _, g := range s.Spoilt {
		if g.N > 0 {
			g.write(tw, ", spoilt")
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(s.Why) > 0 {
		fmt.Fprintln(w, "\nUNDECIDED OR BROKEN")
	}
	for _, r := range s.Why {
		fmt.Fprintf(w, "  %d x %s\n      %s: %s\n", r.N, r.Why, r.Case, firstLine(r.Example))
	}
	if len(s.Worst) > 0 {
		fmt.Fprintln(w, "\nFURTHEST OFF, by their tolerances")
	}
	for _, e := range s.Worst {
		fmt.Fprintf(w, "  %s  %s %s, phase %d: measured %s, predicted %s, %s\n", e.Case, e.Metric, e.Of, e.Phase+1,
			human.Quantity(e.Measured, e.Unit), human.Quantity(e.Predicted, e.Unit), human.SignedError(e.Error, e.Relative, e.Unit))
		for _, c := range s.Cases {
			if c.Name == e.Case {
				fmt.Fprintf(w, "      %s; %s%s\n", c.Title, c.Outcome, c.again())
			}
		}
		fmt.Fprintf(w, "      %s\n", e.Command)
	}
	failed := slices.ContainsFunc(s.Cases, func(c SurveyCase) bool { return c.Outcome == results.Fail })
	if failed {
		fmt.Fprintln(w, "\nFAILED")
	}
	for _, c := range s.Cases {
		if c.Outcome == results.Fail {
			fmt.Fprintf(w, "  %s  %s\n      %s\n      %s\n", c.Name, firstLine(c.Why), c.Title, c.Command)
		}
	}
	return nil
}

// write writes a row.
func (g SurveyGroup) write(w io.Writer, note string) {
	if g.N == 0 {
		fmt.Fprintf(w, "%s\t0\t-\t-\t-\t-\t-\n", g.Metric)
		return
	}
	fmt.Fprintf(w, "%s%s\t%d\t%s\t%s\t%s\t%s\t%s of %s\n", g.Metric, note, g.N, size(g.Mean, g.Relative, "1"), size(g.P95, g.Relative, "1"), size(g.Max, g.Relative, "1"),
		human.SignedError(g.Bias, g.Relative, "1"), human.Percent(g.Within), size(g.Tolerance, g.Relative, "1"))
}

// again tells of a second run.
func (c *SurveyCase) again() string {
	if c.Again {
		return ", at the second try"
	}
	return ""
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

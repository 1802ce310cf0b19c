package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"

	"github.com/inabench/inabench/results"
)

// JUnitSuite is the part of JUnit's XML that CI systems agree on: a testsuite.
type JUnitSuite struct {
	XMLName   xml.Name    `xml:"testsuite"`
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Props     *junitProps `xml:"properties,omitempty"`
	Cases     []JUnitCase `xml:"testcase"`
}

// JUnitCase is a testcase. With none of Failure, Error and Skipped it passed.
type JUnitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr,omitempty"`
	Props   *junitProps  `xml:"properties,omitempty"`
	Failure *JUnitResult `xml:"failure,omitempty"`
	Error   *JUnitResult `xml:"error,omitempty"`
	Skipped *JUnitResult `xml:"skipped,omitempty"`
	Out     *junitOut    `xml:"system-out,omitempty"`
}

type junitProps struct {
	Props []junitProp `xml:"property"`
}

type junitProp struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// JUnitResult is why a case did not pass.
type JUnitResult struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

type junitOut struct {
	Text string `xml:",chardata"`
}

// WriteJUnit writes the run for CI: one test case a check. What could not be
// decided is skipped with its reason, as are checks that are not gated and did not
// hold, so that they are seen and decide nothing; a point that the testbed failed
// is an error.
func WriteJUnit(w io.Writer, rec *results.Record) error {
	s := JUnitSuite{Name: rec.Name}
	if !rec.Started.IsZero() {
		s.Timestamp = rec.Started.UTC().Format("2006-01-02T15:04:05")
	}
	s.Time = "0"
	if rec.Complete() {
		s.Time = strconv.FormatFloat(rec.Finished.Sub(rec.Started).Seconds(), 'f', 3, 64)
	}
	s.Props = &junitProps{[]junitProp{
		{"id", rec.ID}, {"outcome", string(rec.Outcome)}, {"driver", rec.Driver}, {"switch", rec.Switch},
		{"kind", string(rec.Kind)}, {"scale", rec.Scale.String()}, {"seed", strconv.FormatUint(rec.Seed, 10)}, {"tool", rec.Tool},
	}}
	if rec.Sabotage != nil {
		s.Props.Props = append(s.Props.Props, junitProp{"sabotage", rec.Sabotage.String()})
	}
	for _, p := range rec.Points {
		if p.Error == "" {
			continue
		}
		name := "testbed"
		if p.Repeat > 0 {
			name += fmt.Sprintf(" repeat %d", p.Repeat+1)
		}
		s.Cases = append(s.Cases, JUnitCase{
			Class: class(rec.Name, p.Label()), Name: name, Time: "0",
			Error: &JUnitResult{Message: p.Error, Type: results.CodeTestbed},
		})
	}
	if len(s.Cases) == 0 && rec.Outcome == results.ErrorOutcome { // it failed before there was anything to measure
		r := &JUnitResult{Message: "the run ended with an error", Type: results.CodeTestbed}
		if len(rec.Reasons) > 0 {
			r.Message = rec.Reasons[0]
		}
		s.Cases = append(s.Cases, JUnitCase{Class: class(rec.Name, ""), Name: "run", Time: "0", Error: r})
	}
	if rec.Outcome == results.NotJudged { // a document of no other case, or of cases that decide nothing, would pass for one that held
		s.Cases = append(s.Cases, JUnitCase{Class: class(rec.Name, ""), Name: "run", Time: "0", Skipped: &JUnitResult{Message: rec.Outcome.Word() + ": " + results.NothingJudged}})
	}
	for _, c := range rec.Checks {
		s.Cases = append(s.Cases, caseOf(c, rec))
	}
	s.Tally()
	return EncodeJUnit(w, s)
}

// Tally counts the cases.
func (s *JUnitSuite) Tally() {
	s.Tests, s.Failures, s.Errors, s.Skipped = len(s.Cases), 0, 0, 0
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

// EncodeJUnit writes a document: a JUnitSuite, or what holds several.
func EncodeJUnit(w io.Writer, doc any) error {
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func class(experiment, point string) string {
	if point == "" {
		return experiment
	}
	return experiment + "." + point
}

func caseOf(c results.Check, rec *results.Record) JUnitCase {
	name := c.Expect
	if c.Phase > 0 {
		name += fmt.Sprintf(" phase %d", c.Phase+1)
	}
	if c.Of != "" {
		name += " " + c.Of
	}
	t := JUnitCase{Class: class(rec.Name, c.Point), Name: name, Time: "0"}
	msg := c.Message() + rangeBeside(rec, c)
	switch {
	case !c.Gate && c.Outcome != results.Pass:
		t.Skipped = &JUnitResult{Message: "not gated: " + msg}
	case c.Outcome == results.Fail:
		text := ""
		for _, e := range rec.Expect {
			if e.Name == c.Expect && e.Reason != "" {
				text = e.Reason + "\n"
			}
		}
		if e, ok := results.Explain(c.FailureCode()); ok {
			text += e.Code + ": " + e.Means + "\ninabench explain " + e.Code + " says what to do.\n"
		}
		t.Failure = &JUnitResult{Message: msg, Type: c.FailureCode(), Text: text}
	case c.Outcome == results.ErrorOutcome:
		t.Error = &JUnitResult{Message: msg, Type: c.FailureCode()}
	case c.Outcome == results.Inconclusive || c.Outcome == results.Skipped:
		t.Skipped = &JUnitResult{Message: string(c.Outcome) + ": " + msg}
		if c.More > 0 {
			t.Props = &junitProps{[]junitProp{{"further_repeats", strconv.Itoa(c.More)}}}
		}
	default:
		t.Out = &junitOut{msg}
	}
	return t
}

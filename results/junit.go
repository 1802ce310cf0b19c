package results

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
)

// The part of JUnit's XML that CI systems agree on.
type junitSuite struct {
	XMLName   xml.Name    `xml:"testsuite"`
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Props     []junitProp `xml:"properties>property"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr"`
	Props   *junitProps  `xml:"properties,omitempty"`
	Failure *junitResult `xml:"failure,omitempty"`
	Error   *junitResult `xml:"error,omitempty"`
	Skipped *junitResult `xml:"skipped,omitempty"`
	Out     *junitOut    `xml:"system-out,omitempty"`
}

type junitProps struct {
	Props []junitProp `xml:"property"`
}

type junitProp struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitResult struct {
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
func WriteJUnit(w io.Writer, rec *Record) error {
	s := junitSuite{Name: rec.Name}
	if !rec.Started.IsZero() {
		s.Timestamp = rec.Started.UTC().Format("2006-01-02T15:04:05")
	}
	s.Time = "0"
	if rec.Complete() {
		s.Time = strconv.FormatFloat(rec.Finished.Sub(rec.Started).Seconds(), 'f', 3, 64)
	}
	s.Props = []junitProp{
		{"id", rec.ID}, {"outcome", string(rec.Outcome)}, {"driver", rec.Driver}, {"switch", rec.Switch},
		{"kind", string(rec.Kind)}, {"scale", rec.Scale.String()}, {"seed", strconv.FormatUint(rec.Seed, 10)}, {"tool", rec.Tool},
	}
	for _, p := range rec.Points {
		if p.Error == "" {
			continue
		}
		name := "testbed"
		if p.Repeat > 0 {
			name += fmt.Sprintf(" repeat %d", p.Repeat+1)
		}
		s.Cases = append(s.Cases, junitCase{
			Class: class(rec.Name, p.Label()), Name: name, Time: "0",
			Error: &junitResult{Message: p.Error, Type: "testbed"},
		})
	}
	if len(s.Cases) == 0 && rec.Outcome == ErrorOutcome { // it failed before there was anything to measure
		r := &junitResult{Message: "the run ended with an error", Type: "testbed"}
		if len(rec.Reasons) > 0 {
			r.Message = rec.Reasons[0]
		}
		s.Cases = append(s.Cases, junitCase{Class: class(rec.Name, ""), Name: "run", Time: "0", Error: r})
	}
	for _, c := range rec.Checks {
		s.Cases = append(s.Cases, c.junit(rec))
	}
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
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

func (c Check) junit(rec *Record) junitCase {
	name := c.Expect
	if c.Phase > 0 {
		name += fmt.Sprintf(" phase %d", c.Phase+1)
	}
	if c.Of != "" {
		name += " " + c.Of
	}
	t := junitCase{Class: class(rec.Name, c.Point), Name: name, Time: "0"}
	msg := c.Message()
	switch {
	case !c.Gate && c.Outcome != Pass:
		t.Skipped = &junitResult{Message: "not gated: " + msg}
	case c.Outcome == Fail:
		text := ""
		for _, e := range rec.Expect {
			if e.Name == c.Expect {
				text = e.Reason
			}
		}
		t.Failure = &junitResult{Message: msg, Type: c.Metric, Text: text}
	case c.Outcome == ErrorOutcome:
		t.Error = &junitResult{Message: msg, Type: "testbed"}
	case c.Outcome == Inconclusive || c.Outcome == Skipped:
		t.Skipped = &junitResult{Message: string(c.Outcome) + ": " + msg}
		if c.More > 0 {
			t.Props = &junitProps{[]junitProp{{"further_repeats", strconv.Itoa(c.More)}}}
		}
	default:
		t.Out = &junitOut{msg}
	}
	return t
}

package report

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/golden"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/resultstest"
)

func junitOf(t *testing.T, rec *results.Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJUnit(&b, rec); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJUnitGolden(t *testing.T) {
	golden.Compare(t, "quickstart.xml", junitOf(t, resultstest.Quickstart()))
	rec := resultstest.Addressing()
	rec.Expect[0].Reason = "the closed forms of the four addressing modes"
	golden.Compare(t, "addressing.xml", junitOf(t, rec))
	rec = resultstest.Quickstart()
	rec.Points[0].Error = "host h2: connection lost"
	rec.Expect[1].Gate = false
	rec.Checks, rec.Outcome, rec.Reasons = results.Judge(rec.Expect, rec.Points)
	golden.Compare(t, "error.xml", junitOf(t, rec))
	cut := &results.Record{Name: "cut-off"}
	cut.Unfinished()
	golden.Compare(t, "cut-off.xml", junitOf(t, cut))
}

func TestJUnitCounts(t *testing.T) {
	rec, _ := resultstest.Waterfill()
	var s JUnitSuite
	if err := xml.Unmarshal([]byte(junitOf(t, rec)), &s); err != nil {
		t.Fatal(err)
	}
	if s.Tests != len(rec.Checks) || s.Failures != 1 || s.Errors != 0 || s.Skipped != 1 || len(s.Cases) != s.Tests {
		t.Errorf("tests %d of %d checks, failures %d, errors %d, skipped %d", s.Tests, len(rec.Checks), s.Failures, s.Errors, s.Skipped)
	}
	for _, c := range s.Cases {
		if c.Failure != nil && !strings.HasPrefix(c.Failure.Message, "measured 108.6 ± 1.0 Mbit/s, predicted 125 Mbit/s ± 8 %, bottleneck h2->tor1") {
			t.Errorf("failure message %q", c.Failure.Message)
		}
	}
	// A testbed that failed before the first point must not look skipped.
	rec.Outcome, rec.Points, rec.Reasons = results.ErrorOutcome, nil, []string{"host h2: unreachable"}
	if err := xml.Unmarshal([]byte(junitOf(t, rec)), &s); err != nil || s.Errors != 1 {
		t.Errorf("run that failed at the start: %d errors (%v)", s.Errors, err)
	}
	// Whatever names hold, the document is one that parses.
	if err := xml.Unmarshal([]byte(junitOf(t, resultstest.Hostile())), &s); err != nil {
		t.Error(err)
	}
}

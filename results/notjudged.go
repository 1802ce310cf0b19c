package results

import "strings"

// notJudged is the reason of the outcome NotJudged.
const notJudged = CodeNotJudged + ": no expectation is gated, so that nothing was judged"

// Word is the outcome as people read it: "not judged".
func (o Outcome) Word() string { return strings.ReplaceAll(string(o), "-", " ") }

// junit is the test case of a run that judged nothing, which a document of no other case, or of
// cases that decide nothing, would pass for one that held.
func (o Outcome) junit(rec *Record) []JUnitCase {
	if o != NotJudged {
		return nil
	}
	return []JUnitCase{{Class: class(rec.Name, ""), Name: "run", Time: "0", Skipped: &JUnitResult{Message: o.Word() + ": " + notJudged}}}
}

package results

import "strings"

// NothingJudged is the reason of the outcome NotJudged.
const NothingJudged = CodeNotJudged + ": no expectation is gated, so that nothing was judged"

// Word is the outcome as people read it: "not judged".
func (o Outcome) Word() string { return strings.ReplaceAll(string(o), "-", " ") }

package results

// decideEvents looks at checks of events, which are what a study is about: a reversal, a migration,
// a refusal. Where one did not happen the run has shown nothing, and is not PASS: it fails where the
// expectation is gated, else it is undecided. The same holds for one that could not be looked for. One that happened is a
// check like any other: not gated, it decides nothing.
func decideEvents(expects []Expect, checks []Check) {
	events := map[string]bool{}
	for _, e := range expects {
		if e.Event {
			events[e.Name] = true
		}
	}
	for i := range checks {
		c := &checks[i]
		if !events[c.Expect] || c.Outcome == Pass {
			continue
		}
		what := ""
		switch c.Outcome {
		case Fail:
			what = "what the study is about did not happen"
			if !c.Gate {
				c.Outcome = Inconclusive
			}
		case Skipped:
			what = "what the study is about cannot be seen here"
			c.Outcome = Inconclusive
		case Inconclusive:
			what = "it is not known whether what the study is about happened"
		}
		c.Gate = true
		c.Code = CodeNoEvent
		if c.Why != "" {
			what += ": " + c.Why
		}
		c.Why = what
	}
}

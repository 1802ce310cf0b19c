package results

import (
	"fmt"
	"slices"
	"strings"
)

// Preflight is one check of one host before anything was measured.
type Preflight struct {
	Name    string  `json:"name"` // of the check: "mtu"
	Host    string  `json:"host"`
	Outcome Outcome `json:"outcome"`          // Pass, Fail, Skipped, or Inconclusive: near its limit
	Why     string  `json:"why,omitempty"`    // it was skipped, not decided, or not reached; without addresses
	Found   string  `json:"found,omitempty"`  // "ens1f0 1500"
	Wanted  string  `json:"wanted,omitempty"` // "ens1f0 9000, as on the other 7 hosts"
	Hint    string  `json:"hint,omitempty"`   // what to do about it
}

// String says what failed, or why nothing is known.
func (p Preflight) String() string {
	s := p.Name
	if p.Host != "" {
		s += " of host " + p.Host
	}
	switch p.Outcome {
	case Fail, Inconclusive:
		s += ": " + p.Found
		if p.Wanted != "" {
			s += ", wanted " + p.Wanted
		}
	case Skipped:
		s += ": skipped: " + p.Why
	default:
		s += ": " + p.Found
	}
	return s
}

// PreflightWarnings are checks that failed, were near to that, or were skipped, in words; hosts of
// which the same is said come together. Of what was near to that they say what to do.
func PreflightWarnings(all []Preflight) []string {
	type line struct{ text, hint string }
	hosts := map[line][]string{}
	var lines, skipped []line
	for _, p := range all {
		if p.Outcome == Pass {
			continue
		}
		host := p.Host
		p.Host = ""
		l := line{text: p.String()}
		if p.Outcome == Inconclusive { // of what failed, the error says it
			l.hint = p.Hint
		}
		if _, ok := hosts[l]; !ok {
			if p.Outcome == Skipped {
				skipped = append(skipped, l)
			} else {
				lines = append(lines, l)
			}
		}
		hosts[l] = append(hosts[l], host)
	}
	var out []string
	for _, l := range append(lines, skipped...) {
		s := "preflight: " + l.text
		if on := slices.DeleteFunc(hosts[l], func(h string) bool { return h == "" }); len(on) > 4 {
			s += fmt.Sprintf(" (%s and %d more hosts)", strings.Join(on[:3], ", "), len(on)-3)
		} else if len(on) > 0 {
			s += " (" + strings.Join(on, ", ") + ")"
		}
		if l.hint != "" {
			s += "; to do: " + l.hint
		}
		out = append(out, s)
	}
	return out
}

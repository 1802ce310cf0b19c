package results

import (
	"fmt"
	"slices"
)

// Sabotage is a fault that a run's testbed was given on purpose, to see whether the verdict
// notices. Such a run says nothing of the testbed.
type Sabotage struct {
	Fault string `json:"fault"` // its name in the catalogue, testbed/sabotage
	What  string `json:"what"`  // what it does, in a line
	Part  string `json:"part"`  // what was given it: "tor1", "A/0", "h1->tor1"
	Want  string `json:"want"`  // an honest verdict on a run in which it acted
	Acted int64  `json:"acted"` // how often, in all points
}

// Order is what asked for it: "stop=A/0".
func (s *Sabotage) Order() string { return s.Fault + "=" + s.Part }

// String says what is broken, where and from when.
func (s *Sabotage) String() string {
	if s.Acted == 0 {
		return fmt.Sprintf("SABOTAGED: %s at %s, which never acted", s.Fault, s.Part)
	}
	times := "times"
	if s.Acted == 1 {
		times = "time"
	}
	return fmt.Sprintf("SABOTAGED: %s at %s, acted %d %s", s.Fault, s.Part, s.Acted, times)
}

// AddSabotaged counts how often the run's fault acted.
func (rec *Record) AddSabotaged(acted int64) {
	if rec.Sabotage != nil {
		rec.Sabotage.Acted += acted
	}
}

// Idle warns of a fault that never acted: that such a run passes says nothing.
func (rec *Record) Idle() {
	s := rec.Sabotage
	if s == nil || s.Acted > 0 {
		return
	}
	w := fmt.Sprintf("%s: fault %s at %s never acted: the verdict says nothing of it", CodeSabotageIdle, s.Fault, s.Part)
	if !slices.Contains(rec.Warnings, w) {
		rec.Warnings = append(rec.Warnings, w)
	}
}

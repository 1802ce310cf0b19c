package sharing

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/inabench/inabench/placement/mina/timetable"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/testbed/mina/commit"
)

// pattern is what a host has learned of its job's steps.
type pattern struct {
	Step float64   `json:"step"`
	Ops  []tree.Op `json:"ops"`
}

// where is a host when it has locked, in seconds before.
type where struct {
	Launched float64 `json:"launched"` // its last operation
	Began    float64 `json:"began"`    // the step of that one
	Running  bool    `json:"running,omitempty"`
	INA      bool    `json:"ina,omitempty"`
}

// report is what a host tells now and then. Rank 0 tells the pattern each time: so a
// controller that comes back learns it.
type report struct {
	Version commit.Txn `json:"version"`
	Drift   float64    `json:"drift"` // s that the last operation began after its time
	Steps   uint64     `json:"steps,omitempty"`
	Refused uint64     `json:"refused,omitempty"` // operations that asked for INA and did not get it
	Pattern *pattern   `json:"pattern,omitempty"`
}

// plan is a state of a group as one of its hosts uses it.
type plan struct {
	alone bool // nobody wants what the job has
	table *timetable.Timetable
}

// planOf reads a state. No state, or one without the job, is one in which it never asks.
func planOf(body string, job uint32) (plan, error) {
	if body == "" {
		return plan{}, nil
	}
	var s timetable.Snapshot
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return plan{}, fmt.Errorf("state of the sharing group: %w", err)
	}
	i := slices.IndexFunc(s.Jobs, func(j timetable.Job) bool { return j.ID == job })
	switch {
	case i < 0:
		return plan{}, nil
	case len(s.Jobs[i].Rivals) == 0:
		return plan{alone: true}, nil
	case len(s.Jobs[i].Ops) == 0:
		return plan{}, nil
	}
	t, err := timetable.New(&s, i)
	if err != nil {
		return plan{}, fmt.Errorf("state of the sharing group: %w", err)
	}
	return plan{table: t}, nil
}

// ask says whether an operation asks for INA, and when its time is; ok is false where
// there is none.
func (p *plan) ask(op uint64) (ina bool, at float64, ok bool) {
	if p.table == nil {
		return p.alone, 0, false
	}
	return p.table.Ask(op)
}

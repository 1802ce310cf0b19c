package agent

import (
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/stall"
)

// TestLateness: what is done late is late from when it was due, or from when the socket had room again: a link that is slower
// than what is to go over it makes nobody's machine late, and excuses nothing.
func TestLateness(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name            string
		due, freed, now time.Duration
		late            time.Duration
	}{
		{"in time", 10 * ms, 0, 10 * ms, 0},
		{"late", 10 * ms, 0, 80 * ms, 70 * ms},
		{"late after the socket had room", 10 * ms, 5 * ms, 80 * ms, 70 * ms},
		{"the socket had no room until now", 10 * ms, 80 * ms, 80 * ms, 0},
		{"the socket had no room for a while, and then it was late", 10 * ms, 60 * ms, 80 * ms, 20 * ms},
		{"the socket had no room after that", 10 * ms, 90 * ms, 80 * ms, 0},
	} {
		var l lateness
		l.add(&control{stalls: stall.New(time.Second)}, c.due, c.freed, c.now)
		if l.all.Max != c.late {
			t.Errorf("%s: %v late, want %v", c.name, l.all.Max, c.late)
		}
	}
}

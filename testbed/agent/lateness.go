package agent

import (
	"time"

	"github.com/inabench/inabench/testbed/stall"
)

// lateness is how late what an agent does was, and that of it which was due outside of stalls.
type lateness struct{ all, clear stall.Histogram }

// add counts what was due and is done now, and tells the agent's record of stalls. Until freed a socket had no room, which is
// the network's doing.
func (l *lateness) add(c *control, due, freed, now time.Duration) {
	due = min(max(due, freed), now)
	l.all.Add(now - due)
	if !c.stalls.Add(max(due, c.paused), now) {
		l.clear.Add(now - due)
	}
}

// tell puts it into a report.
func (l *lateness) tell(s *Stats) {
	s.LateP99, s.LateMax, s.ClearP99 = l.all.Quantile(.99).Seconds(), l.all.Max.Seconds(), l.clear.Quantile(.99).Seconds()
}

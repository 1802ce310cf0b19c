package agent

import (
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/stall"
	"github.com/inabench/inabench/testbed/udp"
)

// TestLateResults: a PS tells how long after a sum's last packet its result left, and when it stood still.
func TestLateResults(t *testing.T) {
	const ms = time.Millisecond
	k := &ps{sock: new(udp.Socket), answered: []time.Duration{0, 90 * ms}}
	c := &control{stalls: stall.New(200 * ms)}
	k.note(c, 100*ms)
	k.answered = append(k.answered, 995*ms)
	k.note(c, 1000*ms)
	if got := c.stalls.Take(); len(got) != 1 || got[0].Late != 100*ms || got[0].Count != 1 {
		t.Errorf("stalls: %+v", got)
	}
	if k.late.all.N != 3 || k.late.all.Max != 100*ms || k.late.clear.N != 1 || k.late.clear.Max != 5*ms {
		t.Errorf("late: %d up to %v; outside of stalls: %d up to %v", k.late.all.N, k.late.all.Max, k.late.clear.N, k.late.clear.Max)
	}
}

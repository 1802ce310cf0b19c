package deployment

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts/hoststest"
	"github.com/inabench/inabench/testbed/stall"
)

// FuzzEvents: whatever an agent says, what is kept of it can be judged and written down.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"event":"ready","t":1}
{"event":"started","t":2}
{"event":"sample","t":3,"stats":{"packets_sent":7,"late_p99":0.1,"processor":1.5},"stalls":[{"start":1000000,"end":2000000,"late":1000000,"count":3}]}
{"event":"done","t":4,"stats":{"packets_sent":8,"sums_checked":64,"rtt_sum":0.5,"rtt_count":8}}
`))
	f.Add([]byte(`{"event":"pong","t":1,"id":1}
{"event":"error","error":"no memory"}
{"event":"held","psn":18446744073709551615}
not an event
`))
	f.Add([]byte(`{"event":"started"}{"event":"started"}
{"event":"sample","t":1e300,"stats":{},"stalls":[{"start":-9223372036854775808,"end":9223372036854775807}]}
{"event":"sample","stats":{},"stalls":[{"end":99999999000000000},{"start":5,"end":4},{"late":-1},{"count":-1}]}
`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := &deployment{}
		a := newAgent("worker A/0", "A", "A/0", "h1", 200*time.Millisecond, d.onSample)
		a.Start(hoststest.Said(text))
		a.Listen(a.ended)
		if err := a.Err(); err != nil && len(err.Error()) > 5000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		for _, s := range d.samples {
			if _, err := json.Marshal(s); err != nil {
				t.Errorf("%+v cannot be written: %v", s, err)
			}
		}
		for _, s := range a.stalls.Take() {
			if s.Start > s.End || s.Late < 0 || s.Count < 0 {
				t.Errorf("a stall of %+v", s)
			}
		}
		total := a.stalls.Totals()
		if total.Count < 0 || total.Sum < 0 || total.Longest < 0 {
			t.Errorf("stalls of %+v", total)
		}
		if s := a.stats(); s != nil {
			agentTrouble(a, s, time.Second, total, time.Second, true)
		}
	})
}

// TestFlood: an agent that reports faster than anybody asks has failed, and takes no memory for it.
func TestFlood(t *testing.T) {
	d := &deployment{}
	a := newAgent("worker A/0", "A", "A/0", "h1", 200*time.Millisecond, d.onSample)
	report := &agent.Event{Event: "sample", Stats: &agent.Stats{PacketsSent: 1}}
	for range mostTold {
		a.Take(report)
	}
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	kept := len(d.samples)
	a.Take(report)
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(mostTold+1)) || len(d.samples) != kept {
		t.Errorf("%v, and %d samples after %d", err, len(d.samples), kept)
	}
}

// TestSumOfStalls: stalls that somebody makes up do not add up to less than none.
func TestSumOfStalls(t *testing.T) {
	a := newAgent("worker A/0", "A", "A/0", "h1", 200*time.Millisecond, nil)
	for i := range 1000 {
		start := time.Duration(i%2) * 50_000_000 * time.Second
		a.stalls.Insert(stall.Span{Start: start, End: start + 40_000_000*time.Second})
	}
	if total := a.stalls.Totals(); total.Sum < 0 {
		t.Errorf("%+v", total)
	}
}

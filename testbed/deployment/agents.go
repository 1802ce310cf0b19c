package deployment

import (
	"sync"
	"time"

	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/agents"
	"github.com/inabench/inabench/testbed/stall"
	"github.com/inabench/inabench/testbed/supervise"
)

// remoteAgent is an agent of a deployment's job.
type remoteAgent struct {
	*agents.Agent
	job, of string // "A", "A/0"
	ps      bool

	stalls   *stall.Record // on the run's clock
	onSample func(*remoteAgent, *agent.Event)

	mu      sync.Mutex
	sent    int64     // packets, as it said last
	moved   time.Time // when it last said that it has sent something more
	spent   float64   // Processor when its health was asked last
	told    int       // reports that wait for somebody to ask for samples
	reports int       // all of them
}

func newAgent(name, job, of, host string, beat time.Duration, onSample func(*remoteAgent, *agent.Event)) *remoteAgent {
	a := &remoteAgent{job: job, of: of, onSample: onSample, stalls: stall.New(beat), sent: -1}
	a.Agent = agents.New(name, host, a.hear)
	return a
}

// hear takes reports.
func (a *remoteAgent) hear(e *agent.Event) {
	if e.Event != "sample" && e.Event != "done" {
		return
	}
	if s := e.Stats; s != nil {
		a.mu.Lock()
		if s.PacketsSent != a.sent {
			a.sent, a.moved = s.PacketsSent, time.Now()
		}
		a.mu.Unlock()
	}
	a.hearStalls(e)
	a.onSample(a, e)
}

// ended is told how its process has.
func (a *remoteAgent) ended(err error) {
	if a.Done() {
		return
	}
	if err == nil {
		err = agents.ErrUnfinished
	}
	a.Fail(a.Named(supervise.Why(err)))
}

// unsent reports whether the agent has ended, and for how long it has sent nothing, as far as it
// says.
func (a *remoteAgent) unsent(now time.Time) (ended bool, quiet time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Done(), now.Sub(a.moved)
}

// stats is what it has reported last; nil: nothing.
func (a *remoteAgent) stats() *agent.Stats {
	s, _ := a.Last()
	return s
}

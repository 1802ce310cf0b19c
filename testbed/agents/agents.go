// Package agents is agents as whoever launched them sees them: processes on hosts that become
// ready, are told to start, have a clock of their own, and answer. What their reports are about is
// up to whoever listens.
package agents

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
)

// Verb is the hidden verb by which this program is an agent.
const Verb = "agent"

// Agent is one. Its methods are safe for concurrent use.
type Agent struct {
	*hosts.Talk

	hear           func(e *agent.Event)
	ready, started chan struct{} // closed once each

	mu      sync.Mutex
	clock   collectors.Clock
	began   float64      // when its traffic did, on its clock
	last    *agent.Stats // that it has reported
	lastT   float64      // of last, on its clock
	heard   time.Time    // when it last said something
	done    bool         // it has given its last report
	asked   int64
	answers map[int64]chan agent.Event
}

// maxLine bounds a report of an agent, bytes, unless Talk.Limit is set.
const maxLine = 1 << 20

// New is an agent that people know by a name, to be launched on a host. What it says is told to
// hear, in order, after it was kept here; not what answers Ask.
func New(name, host string, hear func(e *agent.Event)) *Agent {
	a := &Agent{
		Talk: hosts.NewTalk(name, host), hear: hear, answers: map[int64]chan agent.Event{},
		ready: make(chan struct{}), started: make(chan struct{}),
	}
	a.Limit = maxLine
	return a
}

// Listen takes what the agent's process says until it ends, and then tells ended how, for what is
// to be known before the agent is Over.
func (a *Agent) Listen(ended func(err error)) { hosts.Listen(a.Talk, a.Take, ended) }

// ErrUnfinished is how an agent has ended that left well without a last report.
var ErrUnfinished = errors.New("ended without a last report")

// farthest is how far from 0 the clock of an agent may be, in s: a thousand years.
const farthest = 1000 * 365.25 * 86400

// maxSaid bounds what is kept of an error that an agent tells, bytes.
const maxSaid = 4096

// Take keeps an event, as Listen does with each.
func (a *Agent) Take(e *agent.Event) {
	if math.Abs(e.T) > farthest {
		a.Fail(a.Named(fmt.Errorf("not an event: a time of %v s", e.T)))
		return
	}
	a.mu.Lock()
	a.heard = time.Now()
	if answer := a.answers[e.ID]; e.ID != 0 && answer != nil {
		delete(a.answers, e.ID)
		a.mu.Unlock()
		answer <- *e // it has room
		return
	}
	if e.Stats != nil {
		a.last, a.lastT = e.Stats, e.T
	}
	switch e.Event {
	case "started":
		select {
		case <-a.started:
		default:
			a.began = e.T
		}
	case "done":
		a.done = true
	}
	a.mu.Unlock()
	if a.hear != nil {
		a.hear(e)
	}
	switch e.Event {
	case "ready":
		closeOnce(a.ready)
	case "started":
		closeOnce(a.started)
	case "error":
		a.Fail(a.Named(fmt.Errorf("%.*s", maxSaid, e.Error)))
	}
}

// closeOnce is for a channel that one goroutine closes.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// Ready is closed when it has said that it is.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Started is closed when it has said that its traffic has begun.
func (a *Agent) Started() <-chan struct{} { return a.started }

// Began is when that was, on its clock, s; 0: it has not.
func (a *Agent) Began() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began
}

// Last is what it has reported last, nil for nothing, and when, on its clock, s.
func (a *Agent) Last() (s *agent.Stats, t float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.lastT
}

// Done reports whether it has given its last report.
func (a *Agent) Done() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// Quiet is for how long an agent that has started, and has neither ended nor failed, has said nothing.
func (a *Agent) Quiet(now time.Time) time.Duration {
	select {
	case <-a.started:
	default:
		return 0
	}
	if a.Ended() || a.Err() != nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return 0
	}
	return now.Sub(a.heard)
}

// Excuse counts an agent as heard at a time at which nobody could have heard it before.
func (a *Agent) Excuse(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
}

// Ask gives it a command and waits for its answer, the event with the command's ID.
func (a *Agent) Ask(ctx context.Context, cmd agent.Command) (agent.Event, error) {
	answer := make(chan agent.Event, 1)
	a.mu.Lock()
	a.asked++
	cmd.ID = a.asked
	a.answers[cmd.ID] = answer
	a.mu.Unlock()
	defer func() { // also of what is not answered
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.answers, cmd.ID)
	}()
	if err := a.Tell(cmd); err != nil {
		return agent.Event{}, err
	}
	select {
	case e := <-answer:
		return e, nil
	case <-a.Over():
		return agent.Event{}, a.Ending("able to answer")
	case <-ctx.Done():
		return agent.Event{}, a.Named(fmt.Errorf("waiting for its answer to %s: %w", cmd.Cmd, context.Cause(ctx)))
	}
}

// Sync measures its clock against that of a run.
func (a *Agent) Sync(ctx context.Context, now func() time.Duration) error {
	clock, err := collectors.MeasureClock(ctx, 5, now, func(ctx context.Context) (float64, error) {
		e, err := a.Ask(ctx, agent.Command{Cmd: "ping"})
		return e.T, err
	})
	if err != nil {
		return err
	}
	a.SetClock(clock)
	return nil
}

// SetClock says how its clock is against the run's.
func (a *Agent) SetClock(c collectors.Clock) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock = c
}

// RunTime is a time of its clock on the run's, s.
func (a *Agent) RunTime(t float64) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clock.RunTime(t)
}

// OwnTime is a time of the run's clock on its own, s.
func (a *Agent) OwnTime(t time.Duration) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.Seconds() - a.clock.Offset
}

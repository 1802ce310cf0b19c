package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/stall"
	"github.com/inabench/inabench/testbed/supervise"
)

// remoteAgent is one agent process on a host: its commands, its last statistics,
// and its clock against ours.
type remoteAgent struct {
	name string // "worker A/0" or "ps A"
	job  string
	of   string // "A/0", "A/ps"
	host string
	proc *hosts.Process

	writing sync.Mutex // held while something is written to it

	mu      sync.Mutex
	last    *agent.Stats
	lastT   float64 // of last, on the agent's clock
	began   float64 // when its traffic did, on that clock
	clock   collectors.Clock
	ended   bool
	err     error
	heard   time.Time // when it last said something, since it has started
	moved   time.Time // when it last said that it has sent something more
	spent   float64   // Processor when its health was asked last
	told    int       // reports that wait for somebody to ask for samples
	reports int       // all of them

	ready, started chan struct{} // closed once

	onceReady, onceStarted sync.Once

	pongs    chan agent.Event
	answers  chan agent.Event // to commands of ask
	asked    int64
	over     chan struct{} // closed when the process has ended
	stalls   *stall.Record // on the run's clock
	onSample func(*remoteAgent, agent.Event)
}

func newAgent(name, job, of, host string, beat time.Duration, onSample func(*remoteAgent, agent.Event)) *remoteAgent {
	return &remoteAgent{
		name: name, job: job, of: of, host: host, onSample: onSample, stalls: stall.New(beat),
		ready: make(chan struct{}), started: make(chan struct{}),
		pongs: make(chan agent.Event, 1), answers: make(chan agent.Event, 4), over: make(chan struct{}),
	}
}

// read consumes the agent's events until its stdout ends, then waits for it.
func (a *remoteAgent) read() {
	defer close(a.over)
	sc := bufio.NewScanner(a.proc.Stdout)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		a.line(sc.Bytes(), time.Now())
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) { // a line that is longer than any of ours: nothing more is read
		a.fail(a.named(fmt.Errorf("what it says: %w", err)))
		_ = a.proc.Close() // its end says no more
	}
	err := a.proc.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended && a.err == nil {
		if err == nil {
			err = errors.New("ended without a last report")
		}
		a.err = a.named(supervise.Why(err))
	}
}

// farthest is how far from 0 the clock of an agent may be, in s: a thousand years.
const farthest = 1000 * 365.25 * 86400

// line is a line that the agent says, an event, at a time of this program.
func (a *remoteAgent) line(text []byte, now time.Time) {
	var ev agent.Event
	if err := json.Unmarshal(text, &ev); err != nil || math.Abs(ev.T) > farthest {
		a.fail(a.named(fmt.Errorf("not an event: %.80q", text)))
		return
	}
	select {
	case <-a.started:
		a.hear(now)
	default:
	}
	switch ev.Event {
	case "ready":
		a.onceReady.Do(func() { close(a.ready) })
	case "started":
		a.onceStarted.Do(func() {
			a.mu.Lock()
			a.began = ev.T
			a.mu.Unlock()
			close(a.started)
		})
	case "pong":
		select {
		case a.pongs <- ev:
		default:
		}
	case "held", "paused", "counted":
		select {
		case a.answers <- ev:
		default: // nobody waits for it any more
		}
	case "error":
		a.fail(a.named(fmt.Errorf("%.4096s", ev.Error)))
	case "sample", "done":
		a.mu.Lock()
		if ev.Stats != nil {
			if a.last == nil || ev.Stats.PacketsSent != a.last.PacketsSent {
				a.moved = now
			}
			a.last, a.lastT = ev.Stats, ev.T
		}
		a.ended = a.ended || ev.Event == "done"
		a.mu.Unlock()
		a.hearStalls(ev)
		a.onSample(a, ev)
	}
}

// hear notes that the agent has said something.
func (a *remoteAgent) hear(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = now
}

// quiet is for how long an agent that has started, and has not ended, has said nothing.
func (a *remoteAgent) quiet(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.over:
		return 0
	default:
	}
	if a.heard.IsZero() || a.ended || a.err != nil {
		return 0
	}
	return now.Sub(a.heard)
}

// unsent reports whether the agent has ended, and for how long it has sent nothing, as far as it
// says.
func (a *remoteAgent) unsent(now time.Time) (ended bool, quiet time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended, now.Sub(a.moved)
}

// named says which agent an error is about, and where it runs.
func (a *remoteAgent) named(err error) error {
	return blame.OnHost(a.name, a.host, err)
}

func (a *remoteAgent) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
}

// failure is why the agent ended, nil after a last report.
func (a *remoteAgent) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *remoteAgent) stats() *agent.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// send writes one line of JSON to the agent's stdin.
func (a *remoteAgent) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	a.writing.Lock() // and not mu: a host that takes nothing holds up who writes, and nobody else
	defer a.writing.Unlock()
	if _, err := a.proc.Stdin.Write(append(b, '\n')); err != nil {
		if failed := a.failure(); failed != nil {
			return failed
		}
		return a.named(err)
	}
	return nil
}

// ask sends a command and waits for its answer, which has no ID when the agent has ended
// instead. It is for one caller at a time.
func (a *remoteAgent) ask(ctx context.Context, cmd agent.Command) (agent.Event, error) {
	a.asked++
	cmd.ID = a.asked
	sent := a.send(cmd)
	for {
		select {
		case ev := <-a.answers:
			if ev.ID == cmd.ID {
				return ev, nil
			}
		case <-a.over:
			return agent.Event{}, a.failure()
		case <-ctx.Done():
			return agent.Event{}, errors.Join(sent, a.named(fmt.Errorf("waiting for its answer to %s: %w", cmd.Cmd, context.Cause(ctx))))
		}
	}
}

// await waits for ch, the agent's end, or ctx.
func (a *remoteAgent) await(ctx context.Context, what string, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-a.over:
		select {
		case <-ch:
			return nil
		default:
		}
		if err := a.failure(); err != nil {
			return err
		}
		return a.named(fmt.Errorf("ended before it was %s", what))
	case <-ctx.Done():
		return a.named(fmt.Errorf("waiting until it is %s: %w", what, context.Cause(ctx)))
	}
}

// ping asks for the agent's clock. It is for one caller at a time.
func (a *remoteAgent) ping(ctx context.Context, id int64) (float64, error) {
	if err := a.send(agent.Command{Cmd: "ping", ID: id}); err != nil {
		return 0, err
	}
	for {
		select {
		case ev := <-a.pongs:
			if ev.ID == id {
				return ev.T, nil
			}
		case <-a.over:
			return 0, a.await(ctx, "answering", nil)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// sync measures the agent's clock against the run's.
func (a *remoteAgent) sync(ctx context.Context, now func() time.Duration) error {
	id := int64(0)
	clock, err := collectors.MeasureClock(ctx, 5, now, func(ctx context.Context) (float64, error) {
		id++
		return a.ping(ctx, id)
	})
	if err != nil {
		return a.named(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock = clock
	return nil
}

// runTime converts a time of the agent's clock to the run's.
func (a *remoteAgent) runTime(t float64) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.clock.RunTime(t)
}

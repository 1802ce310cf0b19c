package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inabench/inabench/testbed/loop"
	"github.com/inabench/inabench/testbed/stall"
	"github.com/inabench/inabench/testbed/udp"
)

// role is what an agent does between "start" and "done".
type role interface {
	// run works until the job is done, or until it was asked to stop and has
	// finished, or until ctx is done, which is no error.
	run(ctx context.Context, c *control) error
	// interrupt makes run look at its control, where stop was set; any goroutine
	// may call it.
	interrupt()
	// stats may be called by run, and by others when run has returned.
	stats() Stats
	close() // may be called again
}

// control is how the command loop and a role's run talk to each other.
type control struct {
	stop     atomic.Bool
	clock    *udp.Clock
	events   chan Event
	interval time.Duration
	at       time.Duration // when to begin; set before run is called
	next     time.Duration // sample
	beat     time.Duration
	stalls   *stall.Record // of this process
	paused   time.Duration // until when it stood still on purpose, which is no stall of its host
	sab      *saboteur     // nil: nothing is wrong with it on purpose

	mu     sync.Mutex
	orders []Command
}

// order leaves a command for the role's run.
func (c *control) order(cmd Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = append(c.orders, cmd)
}

// take returns the orders since the last call.
func (c *control) take() []Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.orders
	c.orders = nil
	return out
}

// started reports when the job's traffic began.
func (c *control) started(t time.Duration) {
	c.sab.begins(t)
	c.events <- Event{Event: "started", T: t.Seconds()}
	c.next = t + c.interval
}

// due reports whether the next sample is.
func (c *control) due(now time.Duration) bool { return c.next != 0 && now >= c.next }

// report tells totals at now; any goroutine may call it. A reader that is behind misses
// some; nothing waits for it.
func (c *control) report(now time.Duration, s Stats) {
	for _, e := range c.sab.delay(Event{Event: "sample", T: now.Seconds(), Stats: &s, Stalls: c.stalls.Take()}) {
		select {
		case c.events <- e:
		default:
			c.stalls.Return(e.Stalls)
		}
	}
}

// watch notes when this process stood still, until ctx is done. It is for roles that do not
// look at the clock all the time themselves.
func (c *control) watch(ctx context.Context) {
	for {
		due := c.clock.Now() + stall.Rouse
		select {
		case <-ctx.Done():
			return
		case <-time.After(stall.Rouse):
			c.stalls.Woke(due, c.clock.Now())
		}
	}
}

// reports tells totals every interval, until ctx is done.
func (c *control) reports(ctx context.Context, stats func() Stats) {
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.report(c.clock.Now(), stats())
		}
	}
}

// sample reports totals, and when the next are due.
func (c *control) sample(now time.Duration, s Stats) {
	c.report(now, s)
	for c.next <= now {
		c.next += c.interval
	}
}

// wake is when to look at the control next: the earlier of t and the next sample.
func (c *control) wake(t time.Duration) time.Duration {
	if c.next != 0 {
		return min(t, c.next)
	}
	return t
}

// idle is how long a role sleeps when nothing is due, at most: one whose stalls count has to
// know when it stood still.
func (c *control) idle() time.Duration {
	if c.beat > 0 {
		return stall.Rouse
	}
	return time.Second
}

// owners are the goroutines of an agent that have a processor of their own, at most: a trainer, and its tree.
const owners = 2

// Main runs an agent: it reads its Config and then Commands from stdin, one JSON
// value a line, and writes Events to stdout. It returns when the job has ended, and
// at once when stdin ends or ctx is done. Errors are also sent as an event.
//
// A read from stdin may still be under way when Main returns.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	loop.Room(owners)
	a := &agent{clock: udp.NewClock(), stdout: stdout}
	defer a.threads.close()
	err := a.main(ctx, stdin)
	if err != nil {
		return errors.Join(err, a.emit(Event{Event: "error", T: a.clock.Now().Seconds(), Error: err.Error()}))
	}
	return nil
}

type agent struct {
	clock   udp.Clock
	stdout  io.Writer
	line    bytes.Buffer
	sab     *saboteur // nil: nothing is wrong with it on purpose
	had     processors
	threads threads
}

// emit writes e as one line in one piece.
func (a *agent) emit(e Event) error {
	if e.Stats != nil {
		now := a.threads.read(a.clock.Now())
		e.Stats.Processor = now.sum
		stall.Blame(e.Stalls, a.had.waited(now, e.Stalls))
		a.had.keep(now)
	}
	e = a.sab.tell(e)
	a.line.Reset()
	if err := json.NewEncoder(&a.line).Encode(e); err != nil {
		return fmt.Errorf("encode %s event: %w", e.Event, err)
	}
	if _, err := a.stdout.Write(a.line.Bytes()); err != nil {
		return fmt.Errorf("report %s: %w", e.Event, err)
	}
	return nil
}

// maxLine bounds a line on stdin; a config with a thousand layers has 50 kB.
const maxLine = 4 << 20

func (a *agent) main(ctx context.Context, stdin io.Reader) error {
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, maxLine)
	if !in.Scan() {
		return in.Err() // nil at EOF: nobody wants anything
	}
	cfg, err := parseConfig(in.Bytes())
	if err != nil {
		return err
	}
	if a.sab, cfg, err = newSaboteur(cfg); err != nil {
		return err
	}
	if a.sab != nil {
		cfg.spoil = func(values []byte) { a.sab.spoil(values, a.clock.Now()) }
	}
	r, err := newRole(cfg, &a.clock)
	if err != nil {
		return fmt.Errorf("job %d: %w", cfg.Job, err)
	}
	defer r.close()

	commands, bad := make(chan Command), make(chan error, 1)
	quit := make(chan struct{})
	defer close(quit)
	go func() { // ends with stdin, or at the next line after quit
		defer close(commands)
		for in.Scan() {
			var cmd Command
			if err := json.Unmarshal(in.Bytes(), &cmd); err != nil {
				bad <- fmt.Errorf("command: %w", err)
				return
			}
			select {
			case commands <- cmd:
			case <-quit:
				return
			}
		}
		if err := in.Err(); err != nil {
			bad <- fmt.Errorf("read commands: %w", err)
		}
	}()
	ready := Event{Event: "ready", T: a.clock.Now().Seconds()}
	if k, ok := r.(*rank); ok {
		ready.Listen = k.listens()
	}
	if err := a.emit(ready); err != nil {
		return err
	}
	return a.serve(ctx, cfg, r, commands, bad)
}

func (a *agent) serve(ctx context.Context, cfg Config, r role, commands <-chan Command, bad <-chan error) error {
	c := &control{clock: &a.clock, events: make(chan Event, 64), interval: cfg.Interval, sab: a.sab, beat: cfg.Beat, stalls: stall.New(cfg.Beat)}
	ended := make(chan error, 1)
	started, running := false, false
	roleCtx, kill := context.WithCancel(ctx)
	defer kill()
	if cfg.Beat > 0 && cfg.Role != "worker" && cfg.Role != "ps" {
		var watching sync.WaitGroup
		defer watching.Wait()
		defer kill()
		watching.Go(func() { c.watch(roleCtx) })
	}
	// end kills the role and waits for it.
	end := func(err error) error {
		kill()
		for running {
			select {
			case <-c.events: // nobody is interested any more
			case e := <-ended:
				running = false
				err = errors.Join(err, e)
			}
		}
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return end(ctx.Err())
		case e := <-c.events:
			if err := a.emit(e); err != nil {
				return end(err)
			}
		case err := <-ended:
			running = false
			for len(c.events) > 0 {
				err = errors.Join(err, a.emit(<-c.events))
			}
			if err != nil {
				return fmt.Errorf("job %d: %w", cfg.Job, err)
			}
			return a.done(r, c)
		case cmd, ok := <-commands:
			if !ok {
				select {
				case err := <-bad:
					return end(err)
				default:
					return end(nil)
				}
			}
			switch cmd.Cmd {
			case "ping":
				if err := a.emit(Event{Event: "pong", T: a.clock.Now().Seconds(), ID: cmd.ID}); err != nil {
					return end(err)
				}
			case "peers":
				switch {
				case cfg.Role != "rank":
					return end(errors.New("command peers: for ranks only"))
				case running:
					return end(errors.New("command peers: already told, or started"))
				}
				c.order(cmd)
				running = true
				go func() { ended <- r.run(roleCtx, c) }()
			case "start":
				switch {
				case started:
					return end(errors.New("command start: already started"))
				case cfg.Role == "rank" && cfg.Workers > 1 && !running:
					return end(errors.New("command start: without peers"))
				}
				started = true
				if cfg.Role == "rank" {
					c.order(cmd)
					r.interrupt()
				}
				if !running {
					running = true
					c.at = time.Duration(cmd.At * 1e9)
					go func() { ended <- r.run(roleCtx, c) }()
				}
			case "hold", "pause", "resume", "count":
				if cfg.Role != "worker" {
					return end(fmt.Errorf("command %s: for workers only", cmd.Cmd))
				}
				c.order(cmd)
				r.interrupt()
			case "tree":
				if cfg.Role != "trainer" {
					return end(errors.New("command tree: for trainers only"))
				}
				c.order(cmd)
				r.interrupt()
			case "stop":
				if !running { // there is nothing to finish
					return a.done(r, c)
				}
				c.stop.Store(true)
				r.interrupt()
			default:
				return end(fmt.Errorf("command %q: unknown", cmd.Cmd))
			}
		}
	}
}

// done reports r's totals when its ports are free for the next.
func (a *agent) done(r role, c *control) error {
	r.close()
	for _, e := range a.sab.rest() {
		if err := a.emit(e); err != nil {
			return err
		}
	}
	s := r.stats()
	return a.emit(Event{Event: "done", T: a.clock.Now().Seconds(), Stats: &s, Stalls: c.stalls.Take()})
}

// ErrConfig is wrapped by errors about what a Config asks for.
var ErrConfig = errors.New("agent config")

func parseConfig(line []byte) (Config, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var cfg Config
	if err := d.Decode(&cfg); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	var problems []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	want(cfg.Rate >= 0, "rate %g bit/s is negative", cfg.Rate)
	want(cfg.Beat >= 0, "beat of %v", cfg.Beat)
	want(cfg.Message >= 0, "message of %d bytes", cfg.Message)
	want(cfg.Iterations >= 0, "%d iterations", cfg.Iterations)
	want(cfg.Control == "" || cfg.Control == "fixed" || cfg.Control == "aimd", "control %q, want fixed or aimd", cfg.Control)
	for i, l := range cfg.Layers {
		want(l.Bytes >= 0 && l.Compute >= 0, "layer %d: %d bytes after %v", i, l.Bytes, l.Compute)
	}
	if len(problems) > 0 {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, errors.Join(problems...))
	}
	return cfg, nil
}

func newRole(cfg Config, c *udp.Clock) (role, error) {
	switch cfg.Role {
	case "worker":
		return newWorker(cfg, c)
	case "ps":
		return newPS(cfg, c)
	case "ring":
		return newRing(cfg, c)
	case "trainer":
		return newTrainer(cfg, c)
	case "rank":
		return newRank(cfg, c)
	}
	return nil, fmt.Errorf("%w: role %q, want worker, ps, ring, trainer or rank", ErrConfig, cfg.Role)
}

// openFor opens the socket on which a job's packets to group arrive, at the job's port
// of those from base on.
func openFor(cfg Config, base uint16, group [4]byte, c *udp.Clock) (*udp.Socket, error) {
	s, err := udp.Open(cfg.Device, base|cfg.Job, group, cfg.Offload, c)
	if err != nil {
		return nil, err
	}
	s.Rest = cfg.Rest
	return s, nil
}

package training

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/ssh"
)

// Hosts is where ranks run: testbed/remote.Testbed.
type Hosts interface {
	Inventory() *inventory.Inventory
	Launch(ctx context.Context, host, verb string, config any) (*ssh.Process, error)
	Reach(host string) (netip.Addr, error)
}

// readyTimeout is how long a rank may take until it is there.
const readyTimeout = 20 * time.Second

// process is one rank of a job: an agent on a host.
type process struct {
	name string // "A/0 on host h3"
	proc *ssh.Process

	clock collectors.Clock

	ready, started, over chan struct{}

	mu      sync.Mutex
	answers map[int64]chan agent.Event
	asked   int64
	last    *agent.Stats
	pattern *agent.Pattern
	done    bool // it has given its last report
	err     error
}

func launch(ctx context.Context, hosts Hosts, name, host string, cfg agent.Config) (*process, error) {
	p := &process{
		name: fmt.Sprintf("%s on host %s", name, host), answers: map[int64]chan agent.Event{},
		ready: make(chan struct{}), started: make(chan struct{}), over: make(chan struct{}),
	}
	var err error
	if p.proc, err = hosts.Launch(ctx, host, "agent", cfg); err != nil {
		return nil, fmt.Errorf("rank %s: %w", name, err)
	}
	go p.read()
	if err := p.await(ctx, "ready", p.ready); err != nil {
		return p, err
	}
	p.clock, err = collectors.MeasureClock(ctx, 5, now, func(ctx context.Context) (float64, error) {
		e, err := p.ask(ctx, agent.Command{Cmd: "ping"})
		return e.T, err
	})
	if err != nil {
		return p, fmt.Errorf("rank %s: %w", name, err)
	}
	return p, nil
}

// now is this program's clock.
func now() time.Duration { return time.Since(epoch) }

var epoch = time.Now()

// read takes the rank's events until it ends.
func (p *process) read() {
	defer close(p.over)
	ready, started := sync.OnceFunc(func() { close(p.ready) }), sync.OnceFunc(func() { close(p.started) })
	lines := bufio.NewScanner(p.proc.Stdout)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e agent.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.fail(fmt.Errorf("rank %s: not an event: %.80q", p.name, lines.Text()))
			continue
		}
		p.mu.Lock()
		if e.Stats != nil {
			p.last = e.Stats
		}
		switch e.Event {
		case "ready":
			ready()
		case "started":
			started()
		case "pattern":
			p.pattern = e.Pattern
		case "done":
			p.done = true
		case "pong", "acquired", "released", "refused":
			if c := p.answers[e.ID]; c != nil {
				c <- e // it has room
				delete(p.answers, e.ID)
			}
		case "error":
			if p.err == nil {
				p.err = fmt.Errorf("rank %s: %s", p.name, e.Error)
			}
		}
		p.mu.Unlock()
	}
	err := p.proc.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done && p.err == nil {
		if err == nil {
			err = errors.New("ended without a last report")
		}
		p.err = fmt.Errorf("rank %s: %w", p.name, err)
	}
}

func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *process) stats() (agent.Stats, *agent.Pattern) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		return agent.Stats{}, p.pattern
	}
	return *p.last, p.pattern
}

// await waits for a channel, the rank's end or ctx.
func (p *process) await(ctx context.Context, what string, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-p.over:
		select {
		case <-ch:
			return nil
		default:
		}
		if err := p.failure(); err != nil {
			return err
		}
		return fmt.Errorf("rank %s ended before it was %s", p.name, what)
	case <-ctx.Done():
		return fmt.Errorf("rank %s: waiting until it is %s: %w", p.name, what, context.Cause(ctx))
	}
}

// send gives the rank a command.
func (p *process) send(cmd agent.Command) error {
	b, err := json.Marshal(cmd)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.proc.Stdin.Write(append(b, '\n')); err != nil && p.err == nil && !p.done {
		return fmt.Errorf("rank %s: %w", p.name, err)
	}
	return nil
}

// ask gives the rank a command and waits for its answer.
func (p *process) ask(ctx context.Context, cmd agent.Command) (agent.Event, error) {
	p.mu.Lock()
	p.asked++
	cmd.ID = p.asked
	answer := make(chan agent.Event, 1)
	p.answers[cmd.ID] = answer
	p.mu.Unlock()
	if err := p.send(cmd); err != nil {
		return agent.Event{}, err
	}
	select {
	case e := <-answer:
		return e, nil
	case <-p.over:
		if err := p.failure(); err != nil {
			return agent.Event{}, err
		}
		return agent.Event{}, fmt.Errorf("rank %s has ended", p.name)
	case <-ctx.Done():
		return agent.Event{}, fmt.Errorf("rank %s: waiting for its answer to %s: %w", p.name, cmd.Cmd, context.Cause(ctx))
	}
}

// Running is a job whose ranks are there.
type Running struct {
	Name  string
	ID    uint16
	Hosts []string // by rank

	ranks []*process
	done  chan struct{}
}

// Launch starts the ranks of a job, which then wait to be started. The configuration has
// all that they have in common; NICs are the first ones of the hosts.
func Launch(ctx context.Context, hosts Hosts, name string, on []string, cfg agent.Config) (*Running, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("no sign of readiness in time"))
	defer cancel()
	j := &Running{Name: name, ID: cfg.Job, Hosts: on, ranks: make([]*process, len(on)), done: make(chan struct{})}
	devices := make([]string, len(on))
	for i, h := range on {
		host, ok := hosts.Inventory().Host(h)
		if !ok || len(host.NICs) == 0 {
			return nil, fmt.Errorf("job %s: no host %q with a NIC", name, h)
		}
		cfg.Peers = append(cfg.Peers, host.NICs[0].Address.Addr().String())
		devices[i] = host.NICs[0].Device
	}
	cfg.Role, cfg.Workers = "trainer", len(on)
	g, gctx := errgroup.WithContext(ctx)
	for i, h := range on {
		own := cfg
		own.Rank, own.Device = i, devices[i]
		g.Go(func() (err error) {
			j.ranks[i], err = launch(gctx, hosts, fmt.Sprintf("%s/%d", name, i), h, own)
			return err
		})
	}
	err := g.Wait()
	if err != nil {
		j.Close()
		return nil, err
	}
	go func() {
		defer close(j.done)
		for _, p := range j.ranks {
			<-p.over
		}
	}()
	return j, nil
}

// Start has all ranks begin their first step together after so long, which they may need to
// find each other, and returns when they have.
func (j *Running) Start(ctx context.Context, after time.Duration) error {
	at := (now() + after).Seconds()
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range j.ranks {
		g.Go(func() error {
			if err := p.send(agent.Command{Cmd: "start", At: at - p.clock.Offset}); err != nil {
				return err
			}
			return p.await(ctx, "started", p.started)
		})
	}
	return g.Wait()
}

// Stop asks the ranks to end, after a step that they agree on.
func (j *Running) Stop() error {
	var errs []error
	for _, p := range j.ranks {
		errs = append(errs, p.send(agent.Command{Cmd: "stop"}))
	}
	return errors.Join(errs...)
}

// Done is closed when all ranks have ended.
func (j *Running) Done() <-chan struct{} { return j.done }

// Err is why ranks ended early.
func (j *Running) Err() error {
	var errs []error
	for _, p := range j.ranks {
		errs = append(errs, p.failure())
	}
	return errors.Join(errs...)
}

// Stats are the last reports of the ranks.
func (j *Running) Stats() []agent.Stats {
	out := make([]agent.Stats, len(j.ranks))
	for i, p := range j.ranks {
		out[i], _ = p.stats()
	}
	return out
}

// Pattern is what the first rank collected, nil if it has not.
func (j *Running) Pattern() *agent.Pattern {
	_, p := j.ranks[0].stats()
	return p
}

// Close ends whatever still runs.
func (j *Running) Close() {
	var wg sync.WaitGroup
	for _, p := range j.ranks {
		if p != nil && p.proc != nil {
			wg.Go(func() {
				_ = p.proc.Close() // it has ended, or been killed
				<-p.over
			})
		}
	}
	wg.Wait()
}

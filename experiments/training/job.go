package training

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/hosts"
)

// Hosts is where ranks run: testbed/remote.Testbed.
type Hosts interface {
	Inventory() *inventory.Inventory
	Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error)
	Reach(host string) (netip.Addr, error)
	// Silence is why a process on a host that reports all the time has not for so long, and
	// nil as long as that may be.
	Silence(ctx context.Context, host, name string, quiet time.Duration) error
	// Why is why a process failed with err, if a host that was lost, or the process's
	// supervisor, knows more of it.
	Why(ctx context.Context, err error) error
}

const (
	// readyTimeout is how long a rank may take until it is there.
	readyTimeout = 20 * time.Second
	// grace is how long ranks whose job has lost one may take to say so themselves.
	grace = time.Second
)

// reports are what ranks have said and nobody has taken yet.
type reports struct {
	mu      sync.Mutex
	samples []results.Sample
}

// mostSamples are those of all ranks that wait to be taken, and mostTimes the iterations that a rank tells of, at most.
const (
	mostSamples = 1 << 18
	mostTimes   = 1 << 20
)

// add keeps samples, and says whether there was room for them.
func (r *reports) add(s []results.Sample) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples)+len(s) > mostSamples {
		return false
	}
	r.samples = append(r.samples, s...)
	return true
}

func (r *reports) take() []results.Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.samples
	r.samples = nil
	return s
}

// rank is one of a job: an agent on a host.
type rank struct {
	name, host string // "A/0"
	proc       *hosts.Process
	reports    *reports // nil: nobody wants them

	ready, started, over chan struct{}

	mu      sync.Mutex
	clock   collectors.Clock
	began   float64 // its first step, on its host's clock
	answers map[int64]chan agent.Event
	ids     int64 // of commands so far
	last    *agent.Stats
	listen  string            // where the others reach it, if it is a GPU's worker
	times   []agent.Iteration // of its iterations so far
	stalls  []testbed.Stall   // since it began, on the run's clock
	learned *agent.Pattern
	done    bool // it has given its last report
	heard   time.Time
	told    bool // to end
	closing bool // it is being ended
	err     error
	silent  bool // of err: what others say came of it, as when it died without a word

	asked    int64         // iterations; 0: until it is told to end
	patience time.Duration // how long it may do nothing at all; see standing
	now      func() time.Duration
}

// launchRank starts a rank and waits until it is ready and its clock has been measured. Of a
// process that ends early, why says more.
func (r *runner) launchRank(ctx context.Context, name, host string, cfg agent.Config, why func(error) error) (*rank, error) {
	p := &rank{
		name: name, host: host, answers: map[int64]chan agent.Event{}, reports: &r.reports,
		ready: make(chan struct{}), started: make(chan struct{}), over: make(chan struct{}),
		asked: cfg.Steps + cfg.Iterations, patience: patience(&cfg), now: r.Now,
	}
	if r.Sample == nil {
		p.reports = nil
	}
	var err error
	if p.proc, err = r.Hosts.Launch(ctx, host, "agent", cfg); err != nil {
		return nil, p.named(err)
	}
	go p.read(why)
	if err := p.await(ctx, "ready", p.ready); err != nil {
		return p, err
	}
	clock, err := collectors.MeasureClock(ctx, 5, r.Now, func(ctx context.Context) (float64, error) {
		e, err := p.ask(ctx, agent.Command{Cmd: "ping"})
		return e.T, err
	})
	if err != nil {
		return p, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock = clock
	return p, nil
}

// named says which rank an error is about, and where it runs.
func (p *rank) named(err error) error {
	return blame.OnHost("rank "+p.name, p.host, err)
}

// read takes the rank's events until it ends, and then asks why it did.
func (p *rank) read(why func(error) error) {
	defer close(p.over)
	ready, started := sync.OnceFunc(func() { close(p.ready) }), sync.OnceFunc(func() { close(p.started) })
	lines := bufio.NewScanner(p.proc.Stdout)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e agent.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.fail(p.named(fmt.Errorf("not an event: %.80q", lines.Text())), false)
			continue
		}
		p.take(&e)
		p.fail(p.odd(&e), true)
		switch e.Event {
		case "ready":
			ready()
		case "started":
			started()
		case "error":
			p.fail(p.named(errors.New(e.Error)), false)
		}
	}
	err := p.proc.Wait()
	p.mu.Lock()
	done, closing := p.done, p.closing
	p.mu.Unlock()
	if !done {
		switch {
		case err == nil:
			err = errors.New("ended without a last report")
		case !closing:
			err = why(err)
		}
		p.fail(p.named(err), true)
	}
}

// take keeps what an event says.
func (p *rank) take(e *agent.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	if e.Stats != nil {
		p.last = e.Stats
		kept := true
		if t := e.Stats.Reducing; t != nil {
			if kept = len(p.times)+len(t.Times) <= mostTimes; kept {
				p.times = append(p.times, t.Times...)
			}
		}
		if p.began > 0 { // its clock is known
			p.stood(e.Stalls)
		}
		if p.reports != nil {
			kept = p.reports.add(collectors.TrainerSamples(p.clock.RunTime(e.T), p.clock.RunTime(p.began), "rank "+p.name, p.name, *e.Stats)) && kept
		}
		if !kept && p.err == nil && !p.closing {
			p.err = p.named(errors.New("it tells more than anybody asks for"))
		}
	}
	switch e.Event {
	case "ready":
		p.listen = e.Listen
	case "started":
		p.began = e.T
	case "pattern":
		p.learned = e.Pattern
	case "done":
		p.done = true
	case "pong", "connected":
		if c := p.answers[e.ID]; c != nil {
			c <- *e // it has room
			delete(p.answers, e.ID)
		}
	}
}

func (p *rank) fail(err error, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.err == nil && !p.closing {
		p.err, p.silent = err, silent
	}
}

// attend returns when the rank has ended, or reports no more although it has started, or does
// nothing: then it has failed.
func (p *rank) attend(ctx context.Context, hosts Hosts) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var done int64
	var moved time.Time
	for {
		select {
		case <-p.over:
			return
		case <-tick.C:
		}
		select {
		case <-p.started:
		default:
			continue
		}
		p.mu.Lock()
		quiet := time.Since(p.heard)
		n := p.progress()
		p.mu.Unlock()
		err := hosts.Silence(ctx, p.host, "rank "+p.name, quiet)
		if n != done || moved.IsZero() {
			done, moved = n, time.Now()
		} else if still := time.Since(moved); still > p.patience && err == nil {
			err = p.standing(fmt.Sprintf("nothing for %s", human.Elapsed(still)))
		}
		if err != nil {
			p.fail(err, true)
			return
		}
	}
}

// failure is why the rank ended early.
func (p *rank) failure() (err error, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err, p.silent
}

// ending is the error of waiting for a rank that has ended.
func (p *rank) ending(what string) error {
	if err, _ := p.failure(); err != nil {
		return err
	}
	return p.named(fmt.Errorf("ended before it was %s", what))
}

// await waits for a channel, the rank's end or ctx.
func (p *rank) await(ctx context.Context, what string, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-p.over:
		select {
		case <-ch:
			return nil
		default:
		}
		return p.ending(what)
	case <-ctx.Done():
		return p.named(fmt.Errorf("waiting until it is %s: %w", what, context.Cause(ctx)))
	}
}

// send gives the rank a command.
func (p *rank) send(cmd agent.Command) error {
	b, err := json.Marshal(cmd)
	if err != nil {
		return err
	}
	if _, err := p.proc.Stdin.Write(append(b, '\n')); err != nil {
		select {
		case <-p.over: // which says more
			return p.ending("told to " + cmd.Cmd)
		case <-time.After(grace):
			return p.named(err)
		}
	}
	return nil
}

// ask gives the rank a command and waits for its answer.
func (p *rank) ask(ctx context.Context, cmd agent.Command) (agent.Event, error) {
	answer := make(chan agent.Event, 1)
	p.mu.Lock()
	p.ids++
	cmd.ID = p.ids
	p.answers[cmd.ID] = answer
	p.mu.Unlock()
	if err := p.send(cmd); err != nil {
		return agent.Event{}, err
	}
	select {
	case e := <-answer:
		return e, nil
	case <-p.over:
		return agent.Event{}, p.ending("able to answer")
	case <-ctx.Done():
		return agent.Event{}, p.named(fmt.Errorf("waiting for its answer to %s: %w", cmd.Cmd, context.Cause(ctx)))
	}
}

// ranks are those of a job.
type ranks struct {
	all    []*rank
	failed chan struct{} // closed when the first one has ended early
	once   sync.Once
}

// launch starts the ranks of a job, which then wait to be started. The configuration has
// all that they have in common; NICs are the first ones of the hosts.
func (r *runner) launch(ctx context.Context, name string, on []string, cfg agent.Config) (*ranks, error) {
	cfg.Role = "trainer"
	for _, h := range on {
		nic, err := r.nic(h)
		if err != nil {
			return nil, err
		}
		cfg.Peers = append(cfg.Peers, nic.Address.Addr().String())
	}
	return r.launchAll(ctx, name, on, cfg)
}

// nic is the first one of a host.
func (r *runner) nic(host string) (*inventory.NIC, error) {
	h, ok := r.Hosts.Inventory().Host(host)
	if !ok || len(h.NICs) == 0 {
		return nil, fmt.Errorf("no host %q with a NIC", host)
	}
	return &h.NICs[0], nil
}

// launchAll starts agents, the ranks of a job in their order, on the hosts given.
func (r *runner) launchAll(ctx context.Context, name string, on []string, cfg agent.Config) (*ranks, error) {
	run := ctx
	why := func(err error) error { return r.Hosts.Why(run, err) }
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, errors.New("no sign of readiness in time"))
	defer cancel()
	j := &ranks{all: make([]*rank, len(on)), failed: make(chan struct{})}
	cfg.Workers = len(on)
	devices := make([]string, len(on))
	for i, h := range on {
		nic, err := r.nic(h)
		if err != nil {
			return nil, err
		}
		devices[i] = nic.Device
	}
	g, gctx := errgroup.WithContext(ctx)
	for i, h := range on {
		own := cfg
		own.Rank, own.Device = i, devices[i]
		g.Go(func() (err error) {
			j.all[i], err = r.launchRank(gctx, fmt.Sprintf("%s/%d", name, i), h, own, why)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		j.close()
		return nil, err
	}
	for _, p := range j.all {
		r.watches.Go(func() {
			p.attend(run, r.Hosts)
			if err, _ := p.failure(); err != nil {
				j.once.Do(func() { close(j.failed) })
			}
		})
	}
	return j, nil
}

// start has all ranks begin their first step at the same time, by which they are to have
// found each other, and returns when they have.
func (j *ranks) start(ctx context.Context, at time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %s", human.Elapsed(startTimeout)))
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	for _, p := range j.all {
		g.Go(func() error {
			p.mu.Lock()
			own := at.Seconds() - p.clock.Offset
			p.mu.Unlock()
			if err := p.send(agent.Command{Cmd: "start", At: own}); err != nil {
				return err
			}
			return p.await(gctx, "started", p.started)
		})
	}
	err := g.Wait()
	if err != nil && ctx.Err() == nil {
		if why := j.why(); why != nil {
			err = why
		}
	}
	return err
}

// wait waits until all ranks have ended, or one has early, and returns why.
func (j *ranks) wait() error {
	for _, p := range j.all {
		select {
		case <-p.over:
		case <-j.failed:
		}
	}
	return j.why()
}

// why is why ranks ended early. That of ranks which died without a word is the reason for
// what others say, which may take these a moment.
func (j *ranks) why() error {
	moment := time.NewTimer(grace)
	defer moment.Stop()
	waiting := true
	for _, p := range j.all {
		if waiting {
			select {
			case <-p.over:
			case <-moment.C:
				waiting = false
			}
		}
	}
	var died, said, hung []error
	for _, p := range j.all {
		switch err, silent := p.failure(); {
		case err == nil && !p.ended():
			hung = append(hung, p.standing("nothing that the others waited for"))
		case err != nil && silent:
			died = append(died, err)
		case err != nil:
			said = append(said, err)
		}
	}
	switch {
	case len(died) > 0:
		return errors.Join(died...)
	case slices.ContainsFunc(said, waited):
		return errors.Join(append(hung, said...)...)
	}
	return errors.Join(said...)
}

// stats are the last reports of the ranks.
func (j *ranks) stats() []agent.Stats {
	out := make([]agent.Stats, len(j.all))
	for i, p := range j.all {
		p.mu.Lock()
		if p.last != nil {
			out[i] = *p.last
		}
		p.mu.Unlock()
	}
	return out
}

// stalls are the times in which the ranks stood still, by their own watch.
func (j *ranks) stalls() (all []testbed.Stall) {
	for _, p := range j.all {
		p.mu.Lock()
		all = append(all, p.stalls...)
		p.mu.Unlock()
	}
	return all
}

// pattern is what the first rank collected, nil if it has not.
func (j *ranks) pattern() *agent.Pattern {
	p := j.all[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.learned
}

// close ends whatever still runs.
func (j *ranks) close() {
	var all sync.WaitGroup
	for _, p := range j.all {
		if p == nil || p.proc == nil {
			continue
		}
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
		all.Go(func() {
			_ = p.proc.Close() // it has ended, or been killed
			<-p.over           // a host that is stuck is given up by its connection
		})
	}
	all.Wait()
}

package training

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/agents"
	"github.com/inabench/inabench/testbed/hosts"
)

// Hosts is where ranks run: testbed/remote.Testbed.
type Hosts interface {
	Inventory() *inventory.Inventory
	Launch(ctx context.Context, host, verb string, config any) (*hosts.Process, error)
	Reach(host string) (netip.Addr, error)
	// Silence is why a process of a job that reports all the time has not for so long, and nil as
	// long as that may be.
	Silence(ctx context.Context, t *hosts.Talk, job string, quiet time.Duration) error
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
	maxLine     = 4 << 20 // of a report, bytes: it has all iterations since the last one
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
	*agents.Agent
	name    string   // "A/0"
	reports *reports // nil: nobody wants them

	mu      sync.Mutex
	listen  string            // where the others reach it, if it is a GPU's worker
	times   []agent.Iteration // of its iterations so far
	stalls  []testbed.Stall   // since it began, on the run's clock
	learned *agent.Pattern
	told    bool // to end
	closing bool // it is being ended
	silent  bool // of its failure: what others say came of it, as when it died without a word

	asked    int64         // iterations; 0: until it is told to end
	patience time.Duration // how long it may do nothing at all; see standing
	now      func() time.Duration
}

// newRank is a rank that was not launched.
func newRank(name, host string) *rank {
	p := &rank{name: name}
	p.Agent = agents.New("rank "+name, host, p.take)
	p.Limit = maxLine
	return p
}

// launchRank starts a rank and waits until it is ready and its clock has been measured. Of a
// process that ends early, why says more.
func (r *runner) launchRank(ctx context.Context, name, host string, cfg agent.Config, why func(error) error) (*rank, error) {
	p := newRank(name, host)
	p.asked, p.patience, p.now = cfg.Steps+cfg.Iterations, patience(&cfg), r.Now
	if r.Sample != nil {
		p.reports = &r.reports
	}
	proc, err := r.Hosts.Launch(ctx, host, agents.Verb, cfg)
	if err != nil {
		return nil, p.Named(err)
	}
	p.Start(proc)
	go p.Listen(func(err error) { p.end(err, why) })
	if err := p.Await(ctx, "ready", p.Ready()); err != nil {
		return p, err
	}
	return p, p.Sync(ctx, r.Now)
}

// end is that the process has ended.
func (p *rank) end(err error, why func(error) error) {
	if p.Done() {
		return
	}
	p.mu.Lock()
	closing := p.closing
	p.mu.Unlock()
	switch {
	case err == nil:
		err = agents.ErrUnfinished
	case !closing:
		err = why(err)
	}
	p.fail(p.Named(err), true)
}

// take keeps what an event says.
func (p *rank) take(e *agent.Event) {
	p.keep(e)
	p.fail(p.odd(e), true)
}

func (p *rank) keep(e *agent.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := e.Stats; s != nil {
		kept := true
		if t := s.Reducing; t != nil {
			if kept = len(p.times)+len(t.Times) <= mostTimes; kept {
				p.times = append(p.times, t.Times...)
			}
		}
		began := p.Began()
		if began > 0 { // its clock is known
			p.stood(e.Stalls)
		}
		if p.reports != nil {
			kept = p.reports.add(collectors.TrainerSamples(p.RunTime(e.T), p.RunTime(began), p.Name(), p.name, *s)) && kept
		}
		if !kept && !p.closing {
			p.Fail(p.Named(errors.New("it tells more than anybody asks for")))
		}
	}
	switch e.Event {
	case "ready":
		p.listen = e.Listen
	case "pattern":
		p.learned = e.Pattern
	}
}

// fail is Fail of a rank that is not being ended.
func (p *rank) fail(err error, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing && p.Fail(err) {
		p.silent = silent
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
		case <-p.Over():
			return
		case now := <-tick.C:
			select {
			case <-p.Started():
			default:
				continue
			}
			n := p.progress()
			err := hosts.Silence(ctx, p.Talk, p.job(), p.Quiet(now))
			if n != done || moved.IsZero() {
				done, moved = n, now
			} else if still := now.Sub(moved); still > p.patience && err == nil {
				err = p.standing(fmt.Sprintf("nothing for %s", human.Elapsed(still)))
			}
			if err != nil {
				p.fail(err, true)
				return
			}
		}
	}
}

// job is whose rank it is.
func (p *rank) job() string {
	job, _, _ := strings.Cut(p.name, "/")
	return job
}

// failure is why the rank ended early.
func (p *rank) failure() (err error, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Err(), p.silent
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
			if err := p.Tell(agent.Command{Cmd: "start", At: p.OwnTime(at)}); err != nil {
				return err
			}
			return p.Await(gctx, "started", p.Started())
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
		case <-p.Over():
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
			case <-p.Over():
			case <-moment.C:
				waiting = false
			}
		}
	}
	var died, said, hung []error
	for _, p := range j.all {
		switch err, silent := p.failure(); {
		case err == nil && !p.Ended():
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
		if last, _ := p.Last(); last != nil {
			out[i] = *last
		}
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
		if p == nil {
			continue
		}
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
		all.Go(func() {
			_ = p.Process().Close() // it has ended, or been killed
			<-p.Over()              // a host that is stuck is given up by its connection
		})
	}
	all.Wait()
}

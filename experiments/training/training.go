// Package training runs training jobs that share aggregation trees on a testbed: each rank
// is an agent on a host (role "trainer"), and a controller says who gets which hosts, which
// tree, and who has it when several want it. The jobs come in their order, wait until there
// are hosts for them, and leave.
//
// When a rank, a host or the controller is lost, nothing that was going to be measured can
// be: everything ends, within seconds, and the error says who was lost.
package training

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
)

// MostJobs is how many a run has at most: their numbers have 12 bits.
const MostJobs = 4095

// Job is one that comes.
type Job struct {
	Name    string
	ID      uint16 // 1..MostJobs, unique
	Pattern agent.Pattern
	Speed   float64 // of its GPUs, over those that the pattern was measured on
	Steps   int64   // at least 1
	Hosts   int
	Submit  time.Duration // since the beginning

	Gain, Demand float64 // of INA: see tree.Job
}

var (
	// ErrNoRoom is wrapped where a job must wait for others to end.
	ErrNoRoom = errors.New("no room")
	// ErrJob is wrapped when a job cannot be one, or not here.
	ErrJob = errors.New("impossible job")
)

// Controller says who gets what.
type Controller interface {
	// Place gives a job hosts, in the order of its ranks. An error that wraps ErrNoRoom
	// passes when others end.
	Place(ctx context.Context, j Job) ([]string, error)
	// Addresses are where the ranks on a host find it: what gives them trees, and what says
	// who has a tree when several want it. Empty: there is none.
	Addresses(host string) (trees, sharing string, err error)
	// End says that nothing of a job runs any more.
	End(ctx context.Context, id uint16) error
	// Done is closed when it has ended itself, and Err is why; nil: it does not.
	Done() <-chan struct{}
	Err() error
}

// Config is a run of jobs.
type Config struct {
	Hosts      Hosts
	Controller Controller // of Run; Reduce asks nobody
	// Agent is what all ranks have in common: Sharing, Epoch, Lanes, RTO, Seed and so on.
	Agent agent.Config
	// Now is the clock of samples; nil: the time since Run was called.
	Now func() time.Duration
	// Ready is called by Reduce when all ranks have found each other, before any begins; nil:
	// nobody is to know.
	Ready func(ctx context.Context) error
	// Sample is called with what ranks have reported since the last call, every Interval of
	// Agent and once in the end, by one goroutine at a time. An error ends the run. nil:
	// nobody wants to know.
	Sample func(ctx context.Context, reports []results.Sample) error
}

// Outcome is what became of a job.
type Outcome struct {
	Job
	On         []string      // its hosts
	Start, End time.Duration // since the beginning: its ranks began, the last one ended; End 0: it was cut short
	JCT        float64       // s, of the slowest rank
	Ranks      []agent.Stats
	Learned    *agent.Pattern // what its first rank found out about its steps; nil: too few
	// Stalls are the times since they began in which ranks stood still, by their own watch, on
	// the clock of samples.
	Stalls []testbed.Stall
}

// Sums are how many int32 values ranks compared with the reference, and how many differed.
func (o *Outcome) Sums() (checked, wrong int64) { return sums(o.Ranks) }

func sums(ranks []agent.Stats) (checked, wrong int64) {
	for i := range ranks {
		checked += ranks[i].SumsChecked
		wrong += ranks[i].SumErrors
	}
	return checked, wrong
}

// Training is what the first rank did; all of them do the same.
func (o *Outcome) Training() agent.Training {
	if len(o.Ranks) == 0 || o.Ranks[0].Training == nil {
		return agent.Training{}
	}
	return *o.Ranks[0].Training
}

// entry is a job that has hosts.
type entry struct {
	Outcome
	ranks *ranks // nil: not launched
}

// settle takes what the ranks have reported.
func (e *entry) settle() {
	if e.ranks == nil {
		return
	}
	e.Ranks, e.Learned, e.Stalls = e.ranks.stats(), e.ranks.pattern(), e.ranks.stalls()
	for i := range e.Ranks {
		if t := e.Ranks[i].Training; t != nil {
			e.JCT = max(e.JCT, t.JCT)
		}
	}
}

// runner is a run.
type runner struct {
	Config
	began   time.Time
	cancel  context.CancelCauseFunc // ends the run
	reports reports
	watches sync.WaitGroup // of jobs
	running map[uint16]*entry
	ended   chan end
}

// end is that all ranks of a job have ended well.
type end struct {
	id uint16
	at time.Duration
}

// newRunner is a run that begins now.
func newRunner(cfg Config) *runner {
	if cfg.Agent.Interval == 0 {
		cfg.Agent.Interval = time.Second
	}
	r := &runner{Config: cfg, began: time.Now()}
	if r.Now == nil {
		r.Now = func() time.Duration { return time.Since(r.began) }
	}
	return r
}

// lastSample hands on what ranks have reported in the end, also of a run that was cut short.
func (r *runner) lastSample(ctx context.Context) error {
	if r.Sample == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return r.Sample(ctx, r.reports.take())
}

// Run runs jobs until all have ended. With an error nothing runs any more either, and the
// outcomes are those of all jobs that had begun.
func Run(ctx context.Context, cfg Config, jobs []Job) ([]Outcome, error) {
	if err := check(cfg.Hosts.Inventory(), jobs); err != nil {
		return nil, err
	}
	r := newRunner(cfg)
	r.running, r.ended = map[uint16]*entry{}, make(chan end, len(jobs))
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	var aside sync.WaitGroup
	aside.Go(func() {
		select {
		case <-cfg.Controller.Done():
			r.cancel(cfg.Controller.Err())
		case <-ctx.Done():
		}
	})
	if cfg.Sample != nil {
		aside.Go(func() { r.sample(ctx) })
	}
	out, err := r.run(ctx, jobs)
	if cause := context.Cause(ctx); cause != nil {
		err = cause // of all else that went wrong
	}
	cut, cerr := r.close(ctx)
	r.cancel(nil)
	aside.Wait()
	if serr := r.lastSample(ctx); err == nil {
		cerr = errors.Join(cerr, serr)
	}
	return append(out, cut...), errors.Join(err, cerr)
}

// check finds jobs that can never run.
func check(inv *inventory.Inventory, jobs []Job) error {
	ids := map[uint16]string{}
	for _, j := range jobs {
		other, taken := ids[j.ID]
		switch {
		case j.Hosts < 1 || j.Hosts > len(inv.Hosts):
			return fmt.Errorf("job %s: %w: it asks for %d hosts, and there are %d", j.Name, ErrJob, j.Hosts, len(inv.Hosts))
		case j.Steps < 1:
			return fmt.Errorf("job %s: %w: %d steps", j.Name, ErrJob, j.Steps)
		case j.ID < 1 || j.ID > MostJobs:
			return fmt.Errorf("job %s: %w: its number %d is not within 1 to %d", j.Name, ErrJob, j.ID, MostJobs)
		case taken:
			return fmt.Errorf("job %s: %w: it has the number of job %s", j.Name, ErrJob, other)
		}
		ids[j.ID] = j.Name
	}
	return nil
}

// run has the jobs come and waits for them.
func (r *runner) run(ctx context.Context, jobs []Job) (out []Outcome, err error) {
	queue := slices.Clone(jobs)
	slices.SortStableFunc(queue, func(a, b Job) int { return int(a.Submit - b.Submit) })
	blocked := false // until a job ends
	for len(queue) > 0 || len(r.running) > 0 {
		var come []*entry // those that get hosts now
		var due <-chan time.Time
		for len(queue) > 0 && !blocked {
			next := queue[0]
			if wait := next.Submit - time.Since(r.began); wait > 0 {
				due = time.After(wait)
				break
			}
			hosts, err := r.Controller.Place(ctx, next)
			if errors.Is(err, ErrNoRoom) && len(r.running) > 0 {
				blocked = true
				break
			}
			if err != nil {
				return out, fmt.Errorf("job %s: %w", next.Name, err)
			}
			queue = queue[1:]
			e := &entry{Outcome: Outcome{Job: next, On: hosts}}
			r.running[next.ID] = e
			come = append(come, e)
		}
		if err := r.start(ctx, come); err != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-due:
		case done := <-r.ended:
			e := r.running[done.id]
			delete(r.running, done.id)
			blocked = false
			e.End = done.at
			e.settle()
			out = append(out, e.Outcome)
			if err := r.Controller.End(ctx, e.ID); err != nil {
				return out, fmt.Errorf("job %s: %w", e.Name, err)
			}
		}
	}
	return out, nil
}

const (
	// lead is how long before their first step the ranks of a job are told of it.
	lead = 300 * time.Millisecond
	// startTimeout is how long ranks may take to find each other and the controller.
	startTimeout = 40 * time.Second
	// endTimeout bounds each step of the end.
	endTimeout = 20 * time.Second
)

// start launches the ranks of jobs, and then has all of them begin together.
func (r *runner) start(ctx context.Context, jobs []*entry) error {
	each := func(f func(ctx context.Context, e *entry) error) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, e := range jobs {
			g.Go(func() error {
				if err := f(ctx, e); err != nil {
					return fmt.Errorf("job %s: %w", e.Name, err)
				}
				return nil
			})
		}
		return g.Wait()
	}
	err := each(func(_ context.Context, e *entry) (err error) {
		c := r.Agent
		c.Job, c.Name, c.Pattern, c.Speed, c.Steps = e.ID, e.Name, &e.Pattern, e.Speed, e.Steps
		if c.Controller, c.SharingController, err = r.Controller.Addresses(e.On[0]); err == nil {
			e.ranks, err = r.launch(ctx, e.Name, e.On, c) // with the run's context: ranks are watched for longer than this takes
		}
		return err
	})
	if err != nil {
		return err
	}
	err = each(func(ctx context.Context, e *entry) error { return e.ranks.start(ctx, r.Now()+lead) })
	if err != nil {
		return err
	}
	for _, e := range jobs {
		e.Start = time.Since(r.began)
		r.watches.Go(func() {
			if err := e.ranks.wait(); err != nil {
				r.cancel(fmt.Errorf("job %s: %w", e.Name, err))
				return
			}
			r.ended <- end{e.ID, time.Since(r.began)} // it has room
		})
	}
	return nil
}

// sample hands on what ranks report until ctx ends.
func (r *runner) sample(ctx context.Context) {
	tick := time.NewTicker(r.Agent.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := r.Sample(ctx, r.reports.take()); err != nil {
			select {
			case <-ctx.Done(): // who lost a host, with a job on it, says more
			case <-time.After(2 * grace):
				r.cancel(err)
			}
			return
		}
	}
}

// close ends what still runs: jobs that were cut short.
func (r *runner) close(ctx context.Context) (cut []Outcome, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	ids := slices.Sorted(maps.Keys(r.running))
	var all sync.WaitGroup
	for _, id := range ids {
		if e := r.running[id]; e.ranks != nil {
			all.Go(e.ranks.close)
		}
	}
	all.Wait()
	r.watches.Wait()
	for _, id := range ids {
		e := r.running[id]
		e.settle()
		cut = append(cut, e.Outcome)
		select {
		case <-r.Controller.Done(): // it has forgotten all of them
		default:
			if eerr := r.Controller.End(ctx, id); eerr != nil {
				err = errors.Join(err, fmt.Errorf("job %s: %w", e.Name, eerr))
			}
		}
	}
	return cut, err
}

package training

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
)

// Reduction is a job whose workers have a GPU each (agents of role "rank"): in every
// iteration they compute, and then reduce a vector by a collective operation over TCP.
type Reduction struct {
	Name       string
	ID         uint16   // 1..4095, unique
	On         []string // host of each rank; one may have several
	Operation  string   // by its name in placement/collectives
	Message    int64    // bytes of gradient
	Compute    float64  // s, of an iteration
	Iterations int64    // 0: until all jobs that have a number have ended
}

// Reduced is what became of a Reduction.
type Reduced struct {
	Reduction
	Ranks []agent.Stats
	Times [][]agent.Iteration // of every rank, in order
	// Stalls are the times since they began in which ranks stood still, by their own watch, on
	// the clock of samples.
	Stalls []testbed.Stall
}

// Sums are how many int32 values ranks compared with the reference, and how many differed.
func (o *Reduced) Sums() (checked, wrong int64) { return sums(o.Ranks) }

// reduceLead is how long before their first iteration all ranks of all jobs are told of it.
const reduceLead = 600 * time.Millisecond

// Reduce runs jobs that are all there from the beginning, and begin together. Their ranks
// are where they say: nobody is asked. It returns when those with a number of iterations
// have ended, and then the others have, too. With an error nothing runs any more either, and
// what is returned is what ranks had reported. Of cfg, Controller is of no use.
func Reduce(ctx context.Context, cfg Config, jobs []Reduction) ([]Reduced, error) {
	r := newRunner(cfg)
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	var aside sync.WaitGroup
	if cfg.Sample != nil {
		aside.Go(func() { r.sample(ctx) })
	}
	all := make([]*ranks, len(jobs))
	err := r.reduce(ctx, jobs, all)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	var closing sync.WaitGroup
	for _, j := range all {
		if j != nil {
			closing.Go(j.close)
		}
	}
	closing.Wait()
	r.cancel(nil)
	r.watches.Wait()
	aside.Wait()
	if serr := r.lastSample(ctx); err == nil {
		err = serr
	}
	var out []Reduced
	for i, j := range all {
		if j != nil {
			out = append(out, Reduced{jobs[i], j.stats(), j.times(), j.stalls()})
		}
	}
	return out, err
}

// reduce runs the jobs, of which it leaves the ranks in all.
func (r *runner) reduce(ctx context.Context, jobs []Reduction, all []*ranks) error {
	each := func(ctx context.Context, f func(ctx context.Context, i int) error) error {
		g, ctx := errgroup.WithContext(ctx)
		for i := range jobs {
			g.Go(func() error {
				if err := f(ctx, i); err != nil {
					return fmt.Errorf("job %s: %w", jobs[i].Name, err)
				}
				return nil
			})
		}
		return g.Wait()
	}
	err := each(ctx, func(gctx context.Context, i int) (err error) {
		j, cfg := &jobs[i], r.Agent
		if len(j.On) == 0 {
			return fmt.Errorf("%w: it has no rank", ErrJob)
		}
		cfg.Role, cfg.Job, cfg.Name = "rank", j.ID, j.Name
		cfg.Operation, cfg.Message, cfg.Compute, cfg.Iterations = j.Operation, j.Message, j.Compute, j.Iterations
		// The watches of its ranks outlive this: they have the run's context.
		if all[i], err = r.launchAll(ctx, j.Name, j.On, cfg); err == nil {
			err = all[i].connect(gctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	if r.Ready != nil {
		if err := r.Ready(ctx); err != nil {
			return err
		}
	}
	at := r.Now() + reduceLead
	err = each(ctx, func(ctx context.Context, i int) error { return all[i].start(ctx, at) })
	if err != nil {
		return err
	}
	type end struct {
		job int
		err error
	}
	ended := make(chan end, len(jobs))
	bounded := 0
	for i := range jobs {
		if jobs[i].Iterations > 0 {
			bounded++
		}
		r.watches.Go(func() { ended <- end{i, all[i].wait()} }) // to close ranks ends it
	}
	stopping := false
	for range jobs {
		if bounded == 0 && !stopping {
			stopping = true
			for i := range jobs {
				if jobs[i].Iterations == 0 {
					if err := all[i].stop(); err != nil {
						return fmt.Errorf("job %s: %w", jobs[i].Name, err)
					}
				}
			}
		}
		select {
		case e := <-ended:
			err := e.err
			switch {
			case err != nil:
			case jobs[e.job].Iterations > 0:
				bounded--
			case !stopping:
				err = errors.New("it ended before the others did")
			}
			if err != nil {
				return fmt.Errorf("job %s: %w", jobs[e.job].Name, err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// connect tells the ranks of a job where all of them are, and returns when those that have
// something to exchange have found each other.
func (j *ranks) connect(ctx context.Context) error {
	if len(j.all) < 2 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("ranks did not find each other in time"))
	defer cancel()
	var peers []string
	for _, p := range j.all {
		p.mu.Lock()
		peers = append(peers, p.listen)
		p.mu.Unlock()
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range j.all {
		g.Go(func() error {
			_, err := p.Ask(ctx, agent.Command{Cmd: "peers", Peers: peers})
			return err
		})
	}
	return g.Wait()
}

// stop tells the ranks of a job to end.
func (j *ranks) stop() error {
	for _, p := range j.all {
		p.mu.Lock()
		p.told = true
		p.mu.Unlock()
		if err := p.Tell(agent.Command{Cmd: "stop"}); err != nil {
			return err
		}
	}
	return nil
}

// times are the iterations of the ranks.
func (j *ranks) times() [][]agent.Iteration {
	out := make([][]agent.Iteration, len(j.all))
	for i, p := range j.all {
		p.mu.Lock()
		out[i] = p.times
		p.mu.Unlock()
	}
	return out
}

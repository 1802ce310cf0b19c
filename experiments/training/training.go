// Package training runs training jobs that share aggregation trees on a testbed: each rank
// is an agent on a host (role "trainer"), and a controller says who gets which hosts, which
// tree, and who has it when several want it. The jobs come in their order, wait until there
// are hosts for them, and leave.
package training

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/testbed/agent"
)

// Job is one that comes.
type Job struct {
	Name    string
	ID      uint16 // 1..4095, unique
	Pattern agent.Pattern
	Speed   float64 // of its GPUs, over those that the pattern was measured on
	Steps   int64
	Hosts   int
	Submit  time.Duration // since the beginning

	Gain, Demand float64 // see placement/mina/tree.Job
}

// ErrNoRoom is wrapped where a job must wait for others to end.
var ErrNoRoom = errors.New("no room")

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
}

// Config is a run of jobs.
type Config struct {
	Hosts      Hosts
	Controller Controller // nil: the first hosts that are free, and no trees
	// Agent is what all ranks have in common: Sharing, Epoch, Lanes, RTO, Seed and so on.
	Agent agent.Config
	// Sample is called with what all ranks have done so far, every Interval of Agent; nil:
	// nobody wants to know.
	Sample func(running []*Running) error
}

// Outcome is what became of a job.
type Outcome struct {
	Job
	On         []string      // its hosts
	Start, End time.Duration // since the beginning: its ranks began, the last one ended
	JCT        float64       // s, of the slowest rank
	Ranks      []agent.Stats
	Learned    *agent.Pattern // what its first rank found out about its steps; nil: too few
}

// Sums are how many int32 values ranks compared with the reference, and how many differed.
func (o *Outcome) Sums() (checked, wrong int64) {
	for i := range o.Ranks {
		checked += o.Ranks[i].SumsChecked
		wrong += o.Ranks[i].SumErrors
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
	ranks *Running
}

// Run runs jobs until all have ended. With an error, the outcomes are those of jobs that
// had; nothing runs any more then.
func Run(ctx context.Context, cfg Config, jobs []Job) (out []Outcome, err error) {
	if cfg.Controller == nil {
		cfg.Controller = firstFree(cfg.Hosts)
	}
	queue := slices.Clone(jobs)
	slices.SortStableFunc(queue, func(a, b Job) int { return int(a.Submit - b.Submit) })
	began := time.Now()
	running := map[uint16]*entry{}
	ended := make(chan uint16, len(jobs))
	defer func() {
		for _, id := range slices.Sorted(maps.Keys(running)) {
			if running[id].ranks != nil {
				running[id].ranks.Close()
			}
			err = errors.Join(err, cfg.Controller.End(context.WithoutCancel(ctx), id))
		}
	}()
	every := cfg.Agent.Interval
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	blocked := false // until a job ends
	for len(queue) > 0 || len(running) > 0 {
		var come []*entry // those that get hosts now
		var due <-chan time.Time
		for len(queue) > 0 && !blocked {
			next := queue[0]
			if wait := next.Submit - time.Since(began); wait > 0 {
				due = time.After(wait)
				break
			}
			hosts, err := cfg.Controller.Place(ctx, next)
			if errors.Is(err, ErrNoRoom) && len(running) > 0 {
				blocked = true
				break
			}
			if err != nil {
				return out, fmt.Errorf("job %s: %w", next.Name, err)
			}
			queue = queue[1:]
			e := &entry{Outcome: Outcome{Job: next, On: hosts}}
			running[next.ID] = e
			come = append(come, e)
		}
		if err := start(ctx, cfg, come); err != nil {
			return out, err
		}
		for _, e := range come {
			e.Start = time.Since(began)
			go func() {
				<-e.ranks.Done()
				ended <- e.ID
			}()
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-due:
		case <-tick.C:
			if cfg.Sample != nil {
				var all []*Running
				for _, id := range slices.Sorted(maps.Keys(running)) {
					all = append(all, running[id].ranks)
				}
				if err := cfg.Sample(all); err != nil {
					return out, err
				}
			}
		case id := <-ended:
			e := running[id]
			delete(running, id)
			blocked = false
			e.End = time.Since(began)
			e.Ranks, e.Learned = e.ranks.Stats(), e.ranks.Pattern()
			for i := range e.Ranks {
				if t := e.Ranks[i].Training; t != nil {
					e.JCT = max(e.JCT, t.JCT)
				}
			}
			out = append(out, e.Outcome)
			if err := errors.Join(e.ranks.Err(), cfg.Controller.End(ctx, id)); err != nil {
				return out, fmt.Errorf("job %s: %w", e.Name, err)
			}
		}
	}
	return out, nil
}

// lead is how long before their first step the ranks of a job are told of it.
const lead = 300 * time.Millisecond

// start launches the ranks of jobs, and then has all of them begin together.
func start(ctx context.Context, cfg Config, jobs []*entry) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, e := range jobs {
		g.Go(func() error {
			c := cfg.Agent
			c.Job, c.Name, c.Pattern, c.Speed, c.Steps = e.ID, e.Name, &e.Pattern, e.Speed, e.Steps
			var err error
			if len(e.On) > 0 {
				c.Controller, c.SharingController, err = cfg.Controller.Addresses(e.On[0])
			}
			if err == nil {
				e.ranks, err = Launch(gctx, cfg.Hosts, e.Name, e.On, c)
			}
			if err != nil {
				return fmt.Errorf("job %s: %w", e.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, gctx = errgroup.WithContext(ctx)
	for _, e := range jobs {
		g.Go(func() error {
			if err := e.ranks.Start(gctx, lead); err != nil {
				return fmt.Errorf("job %s: %w", e.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// first gives jobs the first hosts that are free.
type first struct {
	order []string
	taken map[string]uint16
}

func firstFree(h Hosts) *first {
	f := &first{taken: map[string]uint16{}}
	for _, host := range h.Inventory().Hosts {
		f.order = append(f.order, host.Name)
	}
	return f
}

// Place implements Controller.
func (f *first) Place(_ context.Context, j Job) ([]string, error) {
	if j.Hosts > len(f.order) {
		return nil, fmt.Errorf("%d hosts, and there are %d", j.Hosts, len(f.order))
	}
	var on []string
	for _, h := range f.order {
		if f.taken[h] == 0 && len(on) < j.Hosts {
			on = append(on, h)
		}
	}
	if len(on) < j.Hosts {
		return nil, ErrNoRoom
	}
	for _, h := range on {
		f.taken[h] = j.ID
	}
	return on, nil
}

// Addresses implements Controller.
func (f *first) Addresses(string) (trees, sharing string, err error) { return "", "", nil }

// End implements Controller.
func (f *first) End(_ context.Context, id uint16) error {
	maps.DeleteFunc(f.taken, func(_ string, of uint16) bool { return of == id })
	return nil
}

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
	// Address is where the ranks on a host find it.
	Address(host string) (string, error)
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

// Run runs jobs until all have ended. With an error, the outcomes are those of jobs that
// had; nothing runs any more then.
func Run(ctx context.Context, cfg Config, jobs []Job) (out []Outcome, err error) {
	if cfg.Controller == nil {
		cfg.Controller = firstFree(cfg.Hosts)
	}
	queue := slices.Clone(jobs)
	slices.SortStableFunc(queue, func(a, b Job) int { return int(a.Submit - b.Submit) })
	began := time.Now()
	type entry struct {
		ranks *Running
		Outcome
	}
	running := map[uint16]*entry{}
	ended := make(chan uint16, len(jobs))
	defer func() {
		for _, id := range slices.Sorted(maps.Keys(running)) {
			running[id].ranks.Close()
			err = errors.Join(err, cfg.Controller.End(context.WithoutCancel(ctx), id))
		}
	}()
	every := cfg.Agent.Interval
	if every == 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	blocked := false
	for len(queue) > 0 || len(running) > 0 {
		var due <-chan time.Time
		if len(queue) > 0 && !blocked {
			next := queue[0]
			if wait := next.Submit - time.Since(began); wait > 0 {
				due = time.After(wait)
			} else {
				hosts, err := cfg.Controller.Place(ctx, next)
				switch {
				case errors.Is(err, ErrNoRoom) && len(running) > 0:
					blocked = true
				case err != nil:
					return out, fmt.Errorf("job %s: %w", next.Name, err)
				default:
					queue = queue[1:]
					e := &entry{Outcome: Outcome{Job: next, On: hosts}}
					if e.ranks, err = start(ctx, cfg, next, hosts); err != nil {
						return out, errors.Join(err, cfg.Controller.End(context.WithoutCancel(ctx), next.ID))
					}
					e.Start = time.Since(began)
					running[next.ID] = e
					go func() {
						<-e.ranks.Done()
						ended <- next.ID
					}()
				}
				continue
			}
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

// start launches and starts a job's ranks.
func start(ctx context.Context, cfg Config, j Job, hosts []string) (*Running, error) {
	c := cfg.Agent
	c.Job, c.Name, c.Pattern, c.Speed, c.Steps = j.ID, j.Name, &j.Pattern, j.Speed, j.Steps
	if len(hosts) > 0 {
		var err error
		if c.Controller, err = cfg.Controller.Address(hosts[0]); err != nil {
			return nil, fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	r, err := Launch(ctx, cfg.Hosts, j.Name, hosts, c)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	if err := r.Start(ctx); err != nil {
		r.Close()
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	return r, nil
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

// Address implements Controller.
func (f *first) Address(string) (string, error) { return "", nil }

// End implements Controller.
func (f *first) End(_ context.Context, id uint16) error {
	maps.DeleteFunc(f.taken, func(_ string, of uint16) bool { return of == id })
	return nil
}

package deployment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/ina"
)

// Reallocate implements testbed.Deployment. The workers of each job pause at a common
// PSN, when all of them have all results below: from then on no switch keeps anything
// that somebody needs. Switches first forget what the jobs had, then learn what they
// get, so that regions may change places. Then the workers go on.
func (d *deployment) Reallocate(ctx context.Context, grants map[string]placement.Grant) error {
	if d.setup.Settings.Mode != "synchronous" {
		return fmt.Errorf("reallocate memory in %s mode: %w", d.setup.Settings.Mode, errors.ErrUnsupported)
	}
	ctx, release := d.whole(ctx)
	defer release()
	d.moving.Lock()
	defer d.moving.Unlock()
	changed, err := d.changes(grants)
	if err != nil {
		return fmt.Errorf("reallocate memory: %w", err)
	}
	var locked []*runningJob
	defer func() {
		for _, j := range locked {
			j.turn.Unlock()
		}
	}()
	limit := stopTimeout
	for _, j := range changed {
		j.turn.Lock()
		locked = append(locked, j)
		limit = max(limit, 20*j.work.RTO, 4*d.step(j.plan, j.work))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", human.Elapsed(limit)))
	defer cancel()
	if err := d.move(ctx, changed, grants); err != nil {
		return fmt.Errorf("reallocate memory: %w", err)
	}
	return nil
}

// changes are the jobs whose memory is another with these grants, which must fit.
func (d *deployment) changes(grants map[string]placement.Grant) ([]*runningJob, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range grants {
		if d.jobs[name] == nil {
			return nil, fmt.Errorf("no job %q", name)
		}
	}
	var plans []placement.JobPlan
	var out []*runningJob
	all := map[string]placement.Grant{}
	for _, name := range d.order {
		j := d.jobs[name]
		plans, all[name] = append(plans, j.plan), j.grant
		g, ok := grants[name]
		if !ok || g.Window == j.grant.Window && maps.Equal(g.Base, j.grant.Base) {
			continue
		}
		all[name] = g
		out = append(out, j)
	}
	if d.setup.Grants == nil {
		d.setup.Grants = map[string]placement.Grant{} // nothing is handed out unasked any more
	}
	return out, placement.CheckGrants(d.tb.Inventory(), d.setup.Settings.Aggregators, plans, all)
}

// move gives the jobs their grants, from their pause to their going on.
func (d *deployment) move(ctx context.Context, jobs []*runningJob, grants map[string]placement.Grant) error {
	err := parallel.All(ctx, len(jobs), func(ctx context.Context, i int) error { return jobs[i].pause(ctx) })
	if err != nil {
		for _, j := range jobs { // on with what they have
			err = errors.Join(err, j.resume())
		}
		return err
	}
	without, with := map[string]*dataplane.Batch{}, map[string]*dataplane.Batch{}
	enter := func(to map[string]*dataplane.Batch, sw string, e ina.JobEntry) {
		if to[sw] == nil {
			to[sw] = &dataplane.Batch{}
		}
		to[sw].Jobs = append(to[sw].Jobs, e)
	}
	for _, j := range jobs {
		d.mu.Lock()
		j.grant = grants[j.plan.Name]
		d.mu.Unlock()
		for sw, b := range j.program {
			for i := range b.Jobs {
				e := &b.Jobs[i]
				if e.Mode != ina.Synchronous {
					continue
				}
				if e.Size > 0 {
					e.Base, e.Size = 0, 0
					enter(without, sw, *e)
				}
				if grant(e, j.grant, sw); e.Size > 0 {
					enter(with, sw, *e)
				}
			}
		}
	}
	for _, batch := range []map[string]*dataplane.Batch{without, with} {
		if err := d.tb.Write(ctx, batch); err != nil {
			return err
		}
	}
	var errs []error
	for _, j := range jobs {
		if j.grant.Window > 0 {
			errs = append(errs, j.resume())
		}
	}
	return errors.Join(errs...)
}

// pause has the job's workers finish at a common PSN. The caller has the job's turn.
func (j *runningJob) pause(ctx context.Context) error {
	if j.local != nil {
		return nil
	}
	if !j.begun {
		return j.tell(agent.Command{Cmd: "pause"}) // before the first PSN
	}
	at, err := j.hold(ctx)
	if err == nil {
		_, err = j.ask(ctx, agent.Command{Cmd: "pause", PSN: at})
	}
	if err != nil {
		return fmt.Errorf("pause job %s: %w", j.plan.Name, err)
	}
	return nil
}

// hold has the job's workers send nothing new, and returns where they can all end.
func (j *runningJob) hold(ctx context.Context) (at uint64, err error) {
	held, err := j.ask(ctx, agent.Command{Cmd: "hold"})
	for _, ev := range held {
		at = max(at, ev.PSN)
	}
	return at, err
}

// resume has the job's workers go on with the window that is granted.
func (j *runningJob) resume() error {
	if j.local != nil || j.grant.Window == 0 {
		return nil
	}
	return j.tell(agent.Command{Cmd: "resume", Window: j.grant.Window})
}

// tell sends a command to the workers that have not ended.
func (j *runningJob) tell(cmd agent.Command) error {
	for _, a := range j.workers() {
		select {
		case <-a.Over():
			continue
		default:
		}
		if err := a.Tell(cmd); err != nil && a.Err() != nil {
			return fmt.Errorf("job %s: %w", j.plan.Name, err)
		}
	}
	return nil
}

// ask sends a command to all workers and returns the answers of those that have not
// ended: one that has done its iterations has all that it needs.
func (j *runningJob) ask(ctx context.Context, cmd agent.Command) ([]agent.Event, error) {
	workers := j.workers()
	answers := make([]agent.Event, len(workers))
	err := parallel.Every(len(workers), len(workers), func(i int) (err error) {
		if answers[i], err = workers[i].Ask(ctx, cmd); workers[i].Ended() {
			err = workers[i].Err()
		}
		return err
	})
	return slices.DeleteFunc(answers, func(ev agent.Event) bool { return ev.ID == 0 }), err
}

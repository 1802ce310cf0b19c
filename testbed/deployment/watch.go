package deployment

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/remote"
)

// stuck is a job that does not go on, and what to do about it.
type stuck struct{ job, what, hint string }

func (e *stuck) Error() string {
	return fmt.Sprintf("job %s: %v: %s", e.job, remote.ErrStalled, e.what)
}
func (e *stuck) Unwrap() error { return remote.ErrStalled }

// Hint is what to do about it.
func (e *stuck) Hint() string { return e.hint }

// Broken is by which code of package results it is known, and the job.
func (e *stuck) Broken() (code, job string) { return results.CodeJobStopped, e.job }

// watch closes broken when something that everything depends on is lost while the deployment
// is there: a host, a switch, the lease of one, or an agent or job that stalls.
func (d *deployment) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	d.reading.Go(func() {
		<-d.closed
		cancel()
	})
	d.reading.Go(func() {
		if why, lost := d.tb.Lost(ctx); lost {
			d.fail(why)
		}
	})
	d.reading.Go(func() { d.watchJobs(ctx) })
	d.reading.Go(func() { d.watchSelf(ctx) })
}

// fail ends everything that is waited for, with the first cause that is found.
func (d *deployment) fail(cause error) {
	d.failing.Do(func() {
		d.cause = cause
		close(d.broken)
	})
}

// whole returns a context that ends with ctx, or when the deployment is broken: nothing
// that is waited for can then come, and nothing that is measured counts.
func (d *deployment) whole(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends when cancel is called at the latest
		select {
		case <-d.broken:
			cancel(d.cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// blame is why something failed with err: what broke the deployment, if it is broken, or is
// about to be found so. That is known within twice the testbed's patience.
func (d *deployment) blame(ctx context.Context, err error) error {
	if err == nil || context.Cause(ctx) != nil || d.sound(ctx, err) {
		return err
	}
	select {
	case <-d.broken:
		return d.cause
	case <-d.closed:
	case <-ctx.Done():
	case <-time.After(2 * d.tb.Patience()):
	}
	return err
}

// sound reports whether nothing broke the deployment and all hosts and switches are there after something has failed with
// err, so that they are not to blame.
func (d *deployment) sound(ctx context.Context, err error) bool {
	select {
	case <-d.broken:
		return false
	default:
	}
	return d.tb.Sound(ctx, err)
}

// watchJobs notices agents that do not report any more and jobs that get nothing through.
func (d *deployment) watchJobs(ctx context.Context) {
	patience := d.tb.Patience()
	every := patience / 8
	tick := time.NewTicker(every)
	defer tick.Stop()
	seen := map[*runningJob]*standing{}
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		asleep := now.Sub(last) > 2*every // this program was not there either
		last = now
		all := d.all()
		maps.DeleteFunc(seen, func(j *runningJob, _ *standing) bool { return !slices.Contains(all, j) })
		carried := sync.OnceValue(d.mark) // now, for all jobs
		for _, j := range all {
			for _, a := range j.agents {
				if asleep {
					a.Excuse(now)
				} else if quiet := a.Quiet(now); quiet > patience {
					d.fail(d.silence(ctx, a, quiet))
					return
				}
			}
			s := seen[j]
			if s == nil {
				s = &standing{}
				seen[j] = s
			}
			got := j.progress()
			if got != s.total || s.moved.IsZero() || asleep || !j.busy() {
				s.moved, s.total = now, got
			}
			still, limit := now.Sub(s.moved), j.limit(max(patience, 2*d.step(j.plan, j.work)))
			switch {
			case still > limit:
				d.fail(d.standstill(ctx, j, still, s))
				return
			case still < limit/4:
				s.trail, s.marks = nil, nil
			case s.trail == nil:
				s.trail = d.follow(ctx, j, now.Add(every)) // of all jobs together: else this would look asleep
			}
			if still >= limit/4 && (still <= limit/2 || s.marks == nil) {
				s.marks = append(s.marks, carried())
			}
		}
	}
}

// standing is what is known of a job's progress.
type standing struct {
	moved time.Time // when it went on last
	total int64     // how far it was then
	trail trail     // when it had stood still for a quarter of the time that it may
	marks []mark    // from then until half of that time: later something is sent again; counters are read late by a machine that is busy
}

// progress is how much of a job's work is done; any change is progress.
func (j *runningJob) progress() (n int64) {
	for _, a := range j.workers() {
		if s := a.stats(); s != nil {
			n += s.PSNs + s.Goodput + s.Iterations
		}
	}
	return n
}

// idle says of a job that gets no results for so long which of its workers have ended, and
// which do not even try, while others do; empty: all of them do. One that waits for its timeout
// tries.
func (j *runningJob) idle(still time.Duration) string {
	since := max(still/2, ina.LongestTimeout(j.work.RTO)*5/4)
	var all []string
	for _, a := range j.workers() {
		if ended, quiet := a.unsent(time.Now()); ended {
			all = append(all, a.Place()+" has ended")
		} else if quiet >= since {
			all = append(all, a.Place()+" sends nothing")
		}
	}
	if len(all) == len(j.workers()) {
		return "none of its workers sends anything"
	}
	return strings.Join(all, ", ")
}

// busy reports whether a job is to get results all the time.
func (j *runningJob) busy() bool {
	if j.local != nil || !j.turn.TryLock() { // it starts, pauses or stops
		return false
	}
	defer j.turn.Unlock()
	select {
	case <-j.done:
		return false
	default:
	}
	// Without memory it waits for some, also if it began with all it may have.
	waits := len(j.configs) > 0 && j.configs[0].Mode == "synchronous" && j.plan.Collective == placement.INA && j.grant.Window == 0
	return j.begun && !waits
}

// limit is how long a job may be without results.
func (j *runningJob) limit(patience time.Duration) time.Duration {
	var compute time.Duration
	for _, l := range j.work.Layers {
		compute += l.Compute
	}
	return max(patience, 2*compute, 25*j.work.RTO)
}

// silence is the error of an agent that does not report any more: its host is asked why.
func (d *deployment) silence(ctx context.Context, a *remoteAgent, quiet time.Duration) error {
	return d.tb.Silence(ctx, a.Talk, a.job, quiet)
}

// deaf is the error of agents that have not started for so long because they do not even answer.
func (d *deployment) deaf(ctx context.Context, agents []*remoteAgent, quiet time.Duration) error {
	return parallel.All(ctx, len(agents), func(ctx context.Context, i int) error {
		a := agents[i]
		asking, cancel := context.WithTimeout(ctx, d.tb.Patience()/4)
		defer cancel()
		select {
		case <-a.Over():
			return nil
		default:
		}
		if _, err := a.Ask(asking, agent.Command{Cmd: "ping"}); err != nil && ctx.Err() == nil {
			return d.silence(ctx, a, max(quiet, d.tb.Patience()+1))
		}
		return nil
	})
}

// mark is what cables carried when the time began in which their ends are compared, by link.
type mark map[string]collectors.Crossing

func (d *deployment) mark() mark {
	m := mark{}
	for _, x := range d.tb.Audit().Crossings() {
		m[x.Link] = x
	}
	return m
}

// standstill is the error of a job that gets no results: the cable that everything disappears
// in since it stood still, if there is one, or else where its packets have got lost since its trail was read.
func (d *deployment) standstill(ctx context.Context, j *runningJob, since time.Duration, before *standing) error {
	e := &stuck{job: j.plan.Name, what: fmt.Sprintf("no result for %s", human.Elapsed(since))}
	idle := j.idle(since)
	if idle != "" {
		e.what += "; " + idle
	}
	var dead []string
	crossings := d.tb.Audit().Crossings()
	for _, now := range crossings {
		for _, mark := range before.marks {
			then := mark[now.Link]
			if sent := now.Sent.Frames - then.Sent.Frames; sent > 0 && now.Received.Frames == then.Received.Frames {
				dead = append(dead, fmt.Sprintf("of %.0f packets on %s none arrived", sent, now.Link))
				break
			}
		}
	}
	if len(crossings) == 0 {
		e.hint = "is every cable where the inventory says, and in?"
		return e
	}
	if len(dead) == 0 {
		e.what += ", though packets pass every cable in use"
		e.hint = "does somebody else program the switches? inabench doctor looks"
		if idle != "" {
			e.hint = "who sends nothing is where to look: at its host, and at what it logged last"
		}
		if j.plan.Collective == placement.Ring {
			e.hint = "look at the hosts' own counters"
		}
		if what, hint := d.follow(ctx, j, time.Now().Add(d.tb.Patience()/8)).astray(before.trail, j.plan); what != "" {
			e.what, e.hint = e.what+what, hint
		}
		return e
	}
	e.what += "; " + strings.Join(dead, ", ")
	e.hint = "is the cable in, at both ends, and its port up?"
	return e
}

package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/supervise"
)

// ErrStalled is wrapped by the error of an agent that is there and does nothing, or of a job
// that gets nothing through the network.
var ErrStalled = errors.New("stalled")

// stalled is an agent or a job that does not go on, and what to do about it.
type stalled struct {
	who, what, hint string
	job             string // whose it is; empty: nobody knows
	blame.Part             // the host of a process
}

func (e *stalled) Error() string { return fmt.Sprintf("%s: %v: %s", e.who, ErrStalled, e.what) }
func (e *stalled) Unwrap() error { return ErrStalled }

// Hint is what to do about it.
func (e *stalled) Hint() string { return e.hint }

// Broken is by which code of package results it is known, and the job.
func (e *stalled) Broken() (code, job string) { return results.CodeJobStopped, e.job }

// watch closes broken when something that everything depends on is lost while the deployment
// is there: a host, a switch, the lease of one, or an agent or job that stalls.
func (d *deployment) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	d.reading.Go(func() {
		<-d.closed
		cancel()
	})
	watch := func(lost <-chan struct{}) {
		d.reading.Go(func() {
			select {
			case <-lost:
				d.losing.Do(func() { d.fail(d.tb.lost(ctx)) })
			case <-d.closed:
			}
		})
	}
	for _, c := range d.tb.hosts {
		watch(c.Done())
	}
	for _, c := range d.tb.switches {
		watch(c.Lost())
	}
	if d.tb.held != nil {
		watch(d.tb.held.Lost())
	}
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
	case <-time.After(2 * d.tb.opt.Patience):
	}
	return err
}

// sound reports whether all hosts and switches are there after something has failed with err,
// so that they are not to blame.
func (d *deployment) sound(ctx context.Context, err error) bool {
	select {
	case <-d.broken:
		return false
	default:
	}
	for _, c := range d.tb.hosts {
		if c.Err() != nil {
			return false
		}
	}
	for _, c := range d.tb.switches {
		if c.Err() != nil {
			return false
		}
	}
	// What ran on a host that goes down ends first, and a switch that does not answer may not
	// have been given up yet.
	names := sortedKeys(d.tb.hosts)
	alive := parallelLimit(ctx, d.tb.opt.Fan, len(names), func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, d.tb.opt.Patience)
		defer cancel()
		_, err := readBoot(ctx, d.tb.hosts[names[i]])
		return err
	})
	if alive != nil {
		return false
	}
	var sw *dataplane.Error
	if errors.As(err, &sw) && d.tb.switches[sw.Switch] != nil {
		select {
		case <-d.tb.switches[sw.Switch].Lost():
			return false
		case <-time.After(d.tb.opt.Patience / 4):
		case <-ctx.Done():
		}
	}
	return true
}

// watchJobs notices agents that do not report any more and jobs that get nothing through.
func (d *deployment) watchJobs(ctx context.Context) {
	patience := d.tb.opt.Patience
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
			still, limit := now.Sub(s.moved), j.limit(patience)
			switch {
			case still > limit:
				d.fail(d.standstill(ctx, j, still, s))
				return
			case still < limit/4:
				s.trail, s.mark = nil, carried()
			case s.trail == nil:
				s.trail = d.follow(ctx, j, now.Add(every)) // of all jobs together: else this would look asleep
			}
		}
	}
}

// standing is what is known of a job's progress.
type standing struct {
	moved time.Time // when it went on last
	total int64     // how far it was then
	trail trail     // when it had stood still for a quarter of the time that it may
	mark  mark      // until then: in the rest of the time something is sent again
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
	// Without memory it waits for some.
	return j.begun && (len(j.configs) == 0 || !j.configs[0].Halted || j.grant.Window > 0)
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
	return parallel(ctx, len(agents), func(ctx context.Context, i int) error {
		a := agents[i]
		asking, cancel := context.WithTimeout(ctx, d.tb.opt.Patience/4)
		defer cancel()
		select {
		case <-a.Over():
			return nil
		default:
		}
		if _, err := a.Ask(asking, agent.Command{Cmd: "ping"}); err != nil && ctx.Err() == nil {
			return d.silence(ctx, a, max(quiet, d.tb.opt.Patience+1))
		}
		return nil
	})
}

// Silence is why a process of Launch that reports all the time has not for so long, as far as its
// host can say. It is nil as long as Options.Patience. The job is the one that it works for; empty:
// several.
func (tb *Testbed) Silence(ctx context.Context, t *hosts.Talk, job string, quiet time.Duration) error {
	if quiet <= tb.opt.Patience {
		return nil
	}
	host := t.Host()
	e := &stalled{who: t.Place(), what: fmt.Sprintf("no report for %s", human.Elapsed(quiet)), job: job, Part: blame.Part{Kind: blame.KindHost, Node: host}}
	// Somebody else who gives up meanwhile does not know why.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tb.opt.Patience)
	defer cancel()
	found, err := supervise.Ask(ctx, tb.hosts[host], tb.agentPath[host], "list", tb.opt.Run)
	if err != nil {
		if tb.hosts[host].Err() != nil {
			return tb.lost(ctx)
		}
		e.what += fmt.Sprintf(", and the host does not say why: %v", cause(err))
		e.hint = "it may be out of memory or waiting for a disk: look at dmesg and top there"
		return e
	}
	i := slices.IndexFunc(found, func(f supervise.Found) bool { return f.Name == t.Name() && len(f.Processes) > 1 })
	if i < 0 {
		e.what += ", and its process is gone"
		return e
	}
	p := found[i].Processes[1] // the supervisor is the first
	switch {
	case p.Stopped():
		e.what += fmt.Sprintf("; its process %d is stopped", p.PID)
		e.hint = fmt.Sprintf("somebody sent it SIGSTOP, or debugs it: kill -CONT %d on host %s lets it go on", p.PID, host)
	case p.State == "D":
		e.what += fmt.Sprintf("; its process %d waits for a device", p.PID)
		e.hint = fmt.Sprintf("a disk or driver of host %s hangs: look at dmesg there", host)
	default:
		e.what += fmt.Sprintf("; its process %d runs (state %s)", p.PID, p.State)
		e.hint = fmt.Sprintf("is host %s overloaded, or frozen in a cgroup? Look at top there", host)
	}
	return e
}

// Why is why a process of Launch failed with err: what became of the hosts and switches, if
// any of them is lost, and otherwise how its supervisor says that it ended.
func (tb *Testbed) Why(ctx context.Context, err error) error {
	if errors.Is(err, hosts.ErrLost) {
		if lost := tb.lost(ctx); lost != nil {
			return lost
		}
	}
	return supervise.Why(err)
}

// mark is what cables carried when the time began in which their ends are compared, by link.
type mark map[string]collectors.Crossing

func (d *deployment) mark() mark {
	m := mark{}
	for _, x := range d.tb.audit.Crossings() {
		m[x.Link] = x
	}
	return m
}

// standstill is the error of a job that gets no results: the cable that everything disappears
// in since it stood still, if there is one, or else where its packets have got lost since its trail was read.
func (d *deployment) standstill(ctx context.Context, j *runningJob, since time.Duration, before *standing) error {
	e := &stalled{who: "job " + j.plan.Name, what: fmt.Sprintf("no result for %s", human.Elapsed(since)), job: j.plan.Name}
	idle := j.idle(since)
	if idle != "" {
		e.what += "; " + idle
	}
	var dead []string
	crossings := d.tb.audit.Crossings()
	for _, now := range crossings {
		then := before.mark[now.Link]
		if sent := now.Sent.Frames - then.Sent.Frames; sent > 0 && now.Received.Frames == then.Received.Frames {
			dead = append(dead, fmt.Sprintf("of %.0f packets on %s none arrived", sent, now.Link))
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
		if what, hint := d.follow(ctx, j, time.Now().Add(d.tb.opt.Patience/8)).astray(before.trail, j.plan); what != "" {
			e.what, e.hint = e.what+what, hint
		}
		return e
	}
	e.what += "; " + strings.Join(dead, ", ")
	e.hint = "is the cable in, at both ends, and its port up?"
	return e
}

package deployment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/stall"
)

// controllerBeat is the shortest time that matters to this program, which only looks on:
// where less matters to jobs, their hosts and switches know better what stood still.
const controllerBeat = 250 * time.Millisecond

// watchSelf notes when this program stood still, until ctx is done. A stop of the whole
// machine is seen here too.
func (d *deployment) watchSelf(ctx context.Context) {
	tick := time.NewTimer(stall.Rouse)
	defer tick.Stop()
	for {
		due := d.Now() + stall.Rouse
		tick.Reset(stall.Rouse)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.self.Woke(due, d.Now())
		}
	}
}

// Stalls implements testbed.Deployment: the fabric's, those that agents have told of, and
// this program's.
func (d *deployment) Stalls(ctx context.Context) ([]testbed.Stall, error) {
	all, err := d.tb.Stalls(ctx, d.began)
	all = append(all, told("this machine", "", d.self.Take(), "", "this program did not run for")...)
	for _, j := range d.all() {
		for _, a := range j.agents {
			all = append(all, a.stood()...)
		}
	}
	d.mu.Lock()
	d.leftOut = true
	all = append(all, d.gone...)
	d.gone = nil
	d.mu.Unlock()
	slices.SortStableFunc(all, func(a, b testbed.Stall) int { return int(a.Start - b.Start) })
	return all, err
}

// goneKept is how many stalls of jobs that were removed wait until somebody asks.
const goneKept = 1000

// bury keeps the stalls of a job that is removed.
func (d *deployment) bury(j *runningJob) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range j.agents {
		d.gone = append(d.gone, a.stood()...)
	}
	d.gone = d.gone[max(0, len(d.gone)-goneKept):]
}

// told are spans as stalls of a place, or of the process of a job there. Work says that some of what it did was late, idle that
// only the process itself was.
func told(where, job string, spans []stall.Span, work, idle string) (all []testbed.Stall) {
	for _, s := range spans {
		what := idle
		if s.Count > 0 {
			what = work
		}
		all = append(all, testbed.Stall{
			Start: s.Start, End: s.End, Where: where, Late: s.Late, Held: s.Held, Waited: s.Waited, Job: job,
			What: fmt.Sprintf("%s up to %s", what, human.Quantity(s.Late.Seconds(), "s")),
		})
	}
	return all
}

// stood are the agent's stalls since the last call.
func (a *remoteAgent) stood() []testbed.Stall {
	return told(a.Place(), a.job, a.stalls.Take(), a.does()+" were late by", "it did not run for")
}

// does is what an agent does that may be late.
func (a *remoteAgent) does() string {
	if a.ps {
		return "results"
	}
	return "paced sends"
}

// hearStalls keeps what an agent tells of its stalls, on the run's clock, where that makes sense.
func (a *remoteAgent) hearStalls(ev *agent.Event) {
	for _, s := range ev.Stalls {
		start, end := a.RunTime(s.Start.Seconds()), a.RunTime(s.End.Seconds())
		if start > end || math.Abs(start) > longest || math.Abs(end) > longest || s.Late < 0 || s.Held < 0 || s.Waited < 0 || s.Count < 0 {
			continue
		}
		s.Start, s.End = seconds(start), seconds(end)
		a.stalls.Insert(s)
	}
}

// longest is how far from its beginning a run comes, in s: no run is planned for a tenth of that.
const longest = 1e8

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// held is how late an agent may be, in seconds, before a machine that has had time for it does not explain that.
const held = 0.4

// heldUp says whether an agent that was late by so many seconds was held up by itself: it neither ran nor
// waited for a processor for half of the time in which it had traffic. One that cannot keep up runs, and one on a
// busy machine waits.
func (a *remoteAgent) heldUp(late float64, s *agent.Stats, passed time.Duration) (part float64, byItself bool) {
	_, last := a.Last()
	a.mu.Lock()
	defer a.mu.Unlock()
	ran := min(passed.Seconds(), last-a.Began())
	part = (s.Processor - a.spent) / max(ran, 1e-3)
	return part, s.Processor > 0 && late > held && part < 0.5
}

// agentTrouble says where an agent could not keep up with what it was asked. Stalls are those
// of the time that has passed since it was asked last; leftOut: whoever measures leaves them
// out. They are not fatal: a job whose worker does not run may be what is wrong. If they take
// too much of the time, nothing is left out of what is judged.
func agentTrouble(a *remoteAgent, s *agent.Stats, rtt time.Duration, stalls stall.Total, passed time.Duration, leftOut bool) (out []results.Trouble) {
	where := a.Place()
	if stalls.Count > 0 {
		share := stalls.Sum.Seconds() / max(passed, stalls.Sum).Seconds()
		what := fmt.Sprintf("%v, %s of the time (limit %s)", stalls, human.Percent(share), human.Percent(testbed.StallLimit))
		if s.LateP99 > 0 {
			what += fmt.Sprintf("; with these, %s 99th percentile %s late", a.does(), human.Quantity(s.LateP99, "s"))
		}
		out = append(out, results.Trouble{Where: where, What: what, Value: share, Limit: testbed.StallLimit})
		leftOut = leftOut && share <= testbed.StallLimit
	}
	late, which := s.LateP99, ""
	if leftOut {
		late = s.ClearP99
		if s.ClearP99 != s.LateP99 {
			which = "besides, "
		}
	}
	limit := testbed.LateLimit * rtt.Seconds()
	part, alone := a.heldUp(late, s, passed)
	switch {
	case limit <= 0 || late <= limit:
	case alone && (leftOut || stalls.Count == 0): // else what stopped it may have stopped its machine
		out = append(out, results.Trouble{
			Where: where, Code: results.CodeJobStopped, Job: a.job,
			What: fmt.Sprintf("%s%s 99th percentile %s late, and it ran or waited for a processor for %s of the time: it was held up, and not by its machine",
				which, a.does(), human.Quantity(late, "s"), human.Percent(part)),
			Value: late, Limit: limit,
		})
	default:
		out = append(out, results.Trouble{
			Where: where,
			What: fmt.Sprintf("%s%s 99th percentile %s late, %s of the round trip (limit %s)",
				which, a.does(), human.Quantity(late, "s"), human.Percent(late/rtt.Seconds()), human.Percent(testbed.LateLimit)),
			Value: late, Limit: limit, Fatal: true,
		})
	}
	if s.SocketDrops > 0 {
		out = append(out, results.Trouble{
			Where: where,
			What:  fmt.Sprintf("%d packets lost in the socket before the agent read them", s.SocketDrops),
			Value: float64(s.SocketDrops), Fatal: true,
		})
	}
	return out
}

// seen remembers what an agent had spent when its health was asked.
func (a *remoteAgent) seen(s *agent.Stats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spent = s.Processor
}

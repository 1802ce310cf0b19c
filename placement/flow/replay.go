package flow

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/flow/packets"
)

// Schedule is when each of a problem's jobs sends, and the phases in which what they do is asked for.
type (
	Schedule = packets.Schedule
	Times    = packets.Times
	Count    = packets.Count
	Lag      = packets.Lag
)

// replayEvents are what following a whole run once may take, and all its repetitions beyond the fourth: long runs are
// followed four times even so, as in the mean of a steady state there is nothing of what moves for minutes.
const replayEvents = 96_000_000

// Replay predicts what jobs get in phases of one run, as Occupancy does of a steady state: jobs that join find
// memory and queues as those before them have left them, a steady state need not have come about, and who
// begins at which time has the slots of then. A job that sends in all of a phase has a result there; of others it is
// empty.
//
// All of the run is followed packet by packet where some phase has no closed form, or a link holds a job back, so
// that queues grow and drain from phase to phase. A closed form is kept where what was followed comes to the
// same. There are no results where a run cannot be followed, or takes too long, but for closed forms. Following packets ends with ctx, of which there is then the error.
func Replay(ctx context.Context, p *Problem, s Schedule) ([]*Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := s.Validate(len(p.Jobs)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProblem, err)
	}
	out := make([]*Result, len(s.Counts))
	parts := make([]part, len(s.Counts))
	closed, still := true, true
	for i, c := range s.Counts {
		pt := p.during(s, c)
		var err error
		if pt.average, err = average(pt.p); err == nil && exact(pt.p, pt.average) {
			out[i] = pt.whole(len(p.Jobs), pt.average)
		}
		closed = closed && out[i] != nil
		still = still && out[i] != nil && !slices.ContainsFunc(pt.average.Jobs, func(j JobResult) bool { return j.Bottleneck.Kind == ByLink })
		parts[i] = pt
	}
	if still {
		return out, nil
	}
	followed := replay(ctx, p, s, parts)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case followed == nil && closed:
		return out, nil
	case followed == nil:
		return nil, nil
	}
	for i := range out {
		if out[i] == nil || !out[i].near(followed[i], parts[i].of) {
			out[i] = followed[i]
		}
	}
	return out, nil
}

// nearly is by how much what was followed may differ from a closed form, rates and loads as a part, and be that.
const nearly = 0.01

// near says that another result has the same rates and shares of some jobs, and the same loads.
func (r *Result) near(o *Result, of []int) bool {
	off := func(a, b float64) bool { return math.Abs(a-b) > nearly*max(a, b) }
	for _, ji := range of {
		a, b := &r.Jobs[ji], &o.Jobs[ji]
		if off(a.Rate, b.Rate) || b.Got > 0 && off(a.Rate, b.Got) {
			return false
		}
		for k := range a.Share {
			if math.Abs(a.Share[k]-b.Share[k]) > nearly {
				return false
			}
		}
	}
	for l := range r.Links {
		if off(r.Links[l].Load, o.Links[l].Load) {
			return false
		}
	}
	return true
}

// part is a problem with only those jobs that send in all of a phase.
type part struct {
	p       *Problem
	of      []int // job of each of p's
	average *Result
}

// during is the part of those who send in all of a count.
func (p *Problem) during(s Schedule, c Count) part {
	pt := part{p: &Problem{Links: p.Links, Switches: p.Switches, Turn: p.Turn}}
	for ji, t := range s.Jobs {
		if t.Cover(c) {
			pt.p.Jobs = append(pt.p.Jobs, p.Jobs[ji])
			pt.of = append(pt.of, ji)
		}
	}
	return pt
}

// whole is a result of the part as one of all jobs.
func (pt *part) whole(jobs int, r *Result) *Result {
	out := *r
	out.Jobs = make([]JobResult, jobs)
	for i, ji := range pt.of {
		out.Jobs[ji] = r.Jobs[i]
	}
	return &out
}

// replay is what following all of a run says of its phases; nil: it cannot be followed, or takes too long.
func replay(ctx context.Context, p *Problem, s Schedule, parts []part) []*Result {
	t := p.traffic(expect(p, parts))
	if t == nil {
		return nil
	}
	mine := Schedule{Counts: s.Counts, Lag: s.Lag}
	for i, ji := range t.of {
		t.net.Jobs[i].Behind = false
		mine.Jobs = append(mine.Jobs, s.Jobs[ji])
	}
	got, ok := packets.Replay(ctx, t.net, mine, packets.Limits{Seed: 1, Error: followError, Events: replayEvents})
	if !ok {
		return nil
	}
	var out []*Result
	for i, pt := range parts {
		r := p.counted(t, pt, got[i])
		for _, one := range got[i].Each {
			r.Each = append(r.Each, p.counted(t, pt, one))
		}
		out = append(out, r)
	}
	return out
}

// counted is what was followed of a part, as a result of all jobs.
func (p *Problem) counted(t *traffic, pt part, got *packets.Result) *Result {
	r := &Result{Jobs: make([]JobResult, len(p.Jobs)), Links: make([]LinkResult, len(p.Links)), Replayed: true}
	if pt.average != nil {
		r.Jobs = pt.whole(len(p.Jobs), pt.average).Jobs
	}
	var of []int // of those whose packets were followed, who sends in all of the phase
	only := packets.Result{Links: got.Links}
	for k, ji := range t.of {
		if slices.Contains(pt.of, ji) {
			of = append(of, ji)
			only.Jobs = append(only.Jobs, got.Jobs[k])
		}
	}
	p.followed(of, &only, r)
	return r
}

// expect says of each job whether it ever sends, and whether a link ever holds it back; nil: that is not known.
func expect(p *Problem, parts []part) *Result {
	r := &Result{Jobs: make([]JobResult, len(p.Jobs))}
	seen := make([]bool, len(p.Jobs))
	for _, pt := range parts {
		if pt.average == nil {
			return nil
		}
		for i, ji := range pt.of {
			seen[ji] = true
			if jr := &pt.average.Jobs[i]; r.Jobs[ji].Rate == 0 || jr.Bottleneck.Kind == ByLink {
				r.Jobs[ji] = *jr
			}
		}
	}
	for ji := range seen {
		if !seen[ji] { // it sends in no whole phase
			r.Jobs[ji].Rate = 1
		}
	}
	return r
}

package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// A stall of the testbed costs seconds and not the run: a phase goes on until it has as many
// seconds without one as were planned, and figures are of these. So does chance: it goes on until
// figures are certain enough for expectations to hold or not. Measure.Stretch bounds both.

// enough is the part of a phase's seconds that must be clean for figures to stand for it.
const enough = 0.8

// stall is a testbed.Stall on the run's clock, in seconds.
type standstill struct {
	results.Span
	where, what string
	late        float64 // the most, s: several that are close together are one
}

// onClock puts stalls of a deployment on the run's clock, which is so many seconds ahead.
func onClock(in []testbed.Stall, ahead float64) []standstill {
	var out []standstill
	for _, s := range in {
		out = append(out, standstill{results.Span{Start: s.Start.Seconds() + ahead, End: s.End.Seconds() + ahead}, s.Where, s.What, s.Late.Seconds()})
	}
	return out
}

// machine says whether the testbed stood still, and not what is tested: an agent that does not
// send may have been made to.
func (s standstill) machine() bool {
	role, _, _ := strings.Cut(s.where, " ")
	return !slices.Contains([]string{"worker", "ps", "rank"}, role)
}

// job is whose process stood still.
func (s standstill) job() string {
	_, agent, _ := strings.Cut(s.where, " ")
	agent, _, _ = strings.Cut(agent, " on host ")
	name, _, _ := strings.Cut(agent, "/")
	return name
}

// of reports whether a job's own process stood still.
func (s standstill) of(job string) bool { return !s.machine() && s.job() == job }

// alone is for how long a process's stall lasted while nothing else stood still, in seconds. Else is the testbed:
// what stops or delays a whole machine does so to its switches too, or to this program, and many jobs'
// processes may be stopped at once.
func (s standstill) alone(machine []standstill) float64 {
	return max(0, min(s.late, s.End-s.Start)-results.Total(spoiltTimes(machine, s.Start, s.End, 0)))
}

// pauses are the stalls of one process alone.
type pauses struct {
	where   string
	longest standstill
	most    float64 // s, of the longest
	n       int
	sum     float64 // s, of all
}

// stoppedAlone are the pauses of each of a job's processes that reach into [start, end], in the order in which the
// processes stood still first.
func stoppedAlone(stalls []standstill, job string, start, end float64) (out []pauses) {
	machine := ofMachine(stalls)
	for _, s := range stalls {
		if !s.of(job) || s.End <= start || s.Start >= end {
			continue
		}
		i := slices.IndexFunc(out, func(p pauses) bool { return p.where == s.where })
		if i < 0 {
			i, out = len(out), append(out, pauses{where: s.where})
		}
		long := s.alone(machine)
		if p := &out[i]; long > 0 {
			p.n++
			if p.sum += long; long > p.most {
				p.longest, p.most = s, long
			}
		}
	}
	return out
}

// recovery is how long after a stall traffic is not what it was: what waited is sent, and what
// was lost or thought to be lost is sent again. Two round trips of the slowest job.
func recovery(base Baseline) float64 {
	_, longest := base.trips()
	return 2 * longest
}

// trips are the shortest and the longest round trip of a job, in seconds; 0 where none is known.
func (b Baseline) trips() (shortest, longest float64) {
	for _, rtt := range b.RTTs {
		if longest == 0 {
			shortest = rtt
		}
		shortest, longest = min(shortest, rtt), max(longest, rtt)
	}
	return shortest, longest
}

// unnoticed is the part of a phase that stalls may take together of which no job notices any.
const unnoticed = 0.01

// noticed are the stalls between start and end that figures may show. One that is shorter than
// testbed.LateLimit of every job's round trip holds up a small part of a window, and costs a figure no more than
// its own length. Where such stalls take less than unnoticed of the time together, they are left out.
func noticed(stalls []standstill, start, end float64, base Baseline) []standstill {
	shortest, _ := base.trips()
	var short, long []standstill
	for _, s := range stalls {
		if s.late <= testbed.LateLimit*shortest {
			short = append(short, s)
		} else {
			long = append(long, s)
		}
	}
	if results.Total(spoiltTimes(short, start, end, 0)) > unnoticed*(end-start) {
		return stalls
	}
	return long
}

// lostTimes are the times between start and end that figures leave out.
func lostTimes(stalls []standstill, start, end float64, base Baseline) []results.Stall {
	return spoiltTimes(noticed(stalls, start, end, base), start, end, recovery(base))
}

// ofMachine are those in which the testbed stood still, and not what is tested.
func ofMachine(stalls []standstill) []standstill {
	return slices.DeleteFunc(slices.Clone(stalls), func(s standstill) bool { return !s.machine() })
}

// spoiltTimes are the times within [start, end] that stalls and the time after
// them spoil: in order, apart from each other, each with what was seen first.
func spoiltTimes(stalls []standstill, start, end, recovery float64) []results.Stall {
	var in []standstill
	for _, s := range stalls {
		s.End += recovery
		s.Start, s.End = max(s.Start, start), min(s.End, end)
		if s.Start < s.End {
			in = append(in, s)
		}
	}
	slices.SortStableFunc(in, func(a, b standstill) int { return cmp.Compare(a.Start, b.Start) })
	var out []results.Stall
	for _, s := range in {
		if n := len(out); n > 0 && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, results.Stall{Span: s.Span, Why: s.where + ": " + s.what})
	}
	return out
}

// without is the window from start to end but for the times.
func without(start, end float64, times []results.Stall) results.Window {
	w := results.Window{Start: start, End: end}
	for _, t := range times {
		w.Out = append(w.Out, t.Span)
	}
	return w
}

// patience makes a phase longer for the stalls in it, and until its figures are certain.
type patience struct {
	base       Baseline
	stretch    float64       // Measure.Stretch
	start, end time.Duration // of the phase without its warm-up, as planned, since the point began
	moved      time.Duration // by how much its end was put off for stalls
	longer     time.Duration // and for its figures
}

// begin is told that a phase begins at now, since the point began. The timeline has what is
// still to come.
func (p *patience) begin(t timeline, now time.Duration) {
	p.start, p.end, p.moved, p.longer = now+t.warmup, 0, 0, 0
	if len(t.events) > 0 {
		p.end = t.events[0].at
	}
}

// wait is for how long a phase that was to end at now has to go on. Stalls are on the run's
// clock, on which the point began at origin.
func (p *patience) wait(now time.Duration, origin float64, stalls []standstill) time.Duration {
	if p.end <= p.start {
		return 0
	}
	lost := results.Total(lostTimes(stalls, origin+p.start.Seconds(), origin+now.Seconds(), p.base))
	more := min(time.Duration(lost*float64(time.Second))-p.moved, p.left())
	if more < time.Millisecond {
		return 0
	}
	p.moved += more
	return more
}

// left is by how much the phase may still become longer.
func (p *patience) left() time.Duration {
	planned := p.end - p.start
	return time.Duration((p.stretch-1)*float64(planned)) - p.moved - p.longer
}

// doubt is for how long a phase that was to end goes on, whose figures are unsure or not: once more as long
// as it is, or as it may become. How much would do is a poor guess from little.
func (p *patience) doubt(unsure bool) time.Duration {
	planned := p.end - p.start
	more := min(planned+p.longer, p.left())
	if !unsure || more < planned/4 { // hardly anything would change
		return 0
	}
	p.longer += more
	return more
}

// delay puts off all that is still to come.
func (t *timeline) delay(by time.Duration) {
	for i := range t.events {
		t.events[i].at += by
	}
}

// leaveOut notes in a phase what figures leave out, and whether what is left is too little of it,
// where readings are so many seconds apart. It returns the window of figures.
func leaveOut(ph *results.Phase, stalls []standstill, base Baseline, interval, stretch float64) results.Window {
	ph.LeftOut = lostTimes(stalls, ph.Start, ph.End, base)
	w := without(ph.Start, ph.End, ph.LeftOut)
	lost, long, at := results.Total(ph.LeftOut), ph.End-ph.Start, ph.Start
	for _, o := range append(w.Out, results.Span{Start: ph.End, End: ph.End}) {
		if between := o.Start - at; between < 2*interval { // no two readings lie there for sure
			lost += between
		}
		at = o.End
	}
	if len(w.Out) > 0 && lost > (1-enough/stretch)*long {
		ph.Spoilt = fmt.Sprintf("the testbed stood still, %d times, so that %s of %s are lost, first %s", len(w.Out), results.Quantity(lost, "s"), results.Quantity(long, "s"), ph.LeftOut[0].Why)
	}
	return w
}

// ran is when a job of a study ran, on the run's clock.
type ran struct {
	job        string // as its agents have it
	start, end float64
}

// stood says of a study's jobs, whose figures are of all their time, whether a process of theirs
// stood still for long, which nothing of the testbed explains, and how much of its time the job
// or the testbed stood still that lost most: above lateShare, which excused says, a figure that
// is not what it should be may be about that.
func stood(jobs []ran, stalls []standstill) (found []results.Finding, most *results.Trouble, excused bool) {
	machine := ofMachine(stalls)
	for _, j := range jobs {
		short := slices.Clone(machine)
		var worst standstill
		for _, s := range stalls {
			if !s.of(j.job) {
				continue
			}
			s.Start, s.End = max(s.Start, j.start), min(s.End, j.end)
			if long := min(s.late, s.End-s.Start); long <= stillLeast {
				short = append(short, s)
			} else if long > worst.late {
				worst, worst.late = s, long
			}
		}
		if worst.where != "" {
			f := results.Finding{Name: goesOn, Code: results.CodeJobStopped, Of: j.job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s stood still: %s from %.2f s to %.2f s, of its time from %.2f s to %.2f s: %s", j.job, worst.where, worst.Start, worst.End, j.start, j.end, worst.what)}
			if times := spoiltTimes(machine, worst.Start, worst.End, 0); worst.late-results.Total(times) <= stillLeast {
				f.Outcome = results.Inconclusive
				f.What += "; the testbed stood still meanwhile: " + times[0].Why
			}
			found = append(found, f)
		}
		times := spoiltTimes(short, j.start, j.end, 0)
		if lost := results.Total(times); lost > 0 && (most == nil || lost/(j.end-j.start) > most.Value) {
			share := lost / (j.end - j.start)
			most = &results.Trouble{Where: "job " + j.job, Value: share, Limit: lateShare, What: fmt.Sprintf(
				"it or the testbed stood still for %s of its time (limit %s), %s in all; first %s",
				results.Percent(share), results.Percent(lateShare), results.Quantity(lost, "s"), times[0].Why)}
		}
	}
	return found, most, most != nil && most.Value > lateShare
}

// stillness collects the stalls of a study's testbed and jobs while it runs.
type stillness struct {
	stalls []standstill
	jobs   []ran
	ask    func(ctx context.Context) ([]testbed.Stall, error) // the testbed
	ahead  float64                                            // s, of the run's clock to that of what it says
}

// watchStalls forgets the stalls that somebody has had so far who is asked on a clock that the
// run's is so many seconds ahead of, and collects those to come.
func watchStalls(ctx context.Context, ask func(ctx context.Context) ([]testbed.Stall, error), ahead float64) (*stillness, error) {
	_, err := ask(ctx)
	return &stillness{ask: ask, ahead: ahead}, err
}

// read asks the testbed.
func (s *stillness) read(ctx context.Context) error {
	stalls, err := s.ask(ctx)
	s.keep(stalls)
	return err
}

func (s *stillness) keep(stalls []testbed.Stall) {
	s.stalls = append(s.stalls, onClock(stalls, s.ahead)...)
}

// judge adds to a point what the stalls mean for its jobs. What it returns is Stood of its phase.
func (s *stillness) judge(point *results.Point) (why string) {
	found, most, excused := stood(s.jobs, s.stalls)
	point.Findings = append(point.Findings, found...)
	if most != nil {
		point.Health = append(point.Health, *most)
	}
	if excused {
		why = most.String()
	}
	if t := late(s.jobs, s.stalls); t != nil {
		point.Health = append(point.Health, *t)
	}
	return why
}

// late is the trouble of a testbed that stood still for too much of the time of a study's jobs: what was
// as it should be all the same may be so by chance, because stalls make up for what is too fast.
func late(jobs []ran, stalls []standstill) *results.Trouble {
	if len(jobs) == 0 {
		return nil
	}
	start, end := jobs[0].start, jobs[0].end
	for _, j := range jobs {
		start, end = min(start, j.start), max(end, j.end)
	}
	times := spoiltTimes(ofMachine(stalls), start, end, 0)
	share := results.Total(times) / (end - start)
	if !(share > lateShare) {
		return nil
	}
	return &results.Trouble{Where: "testbed", Value: share, Limit: lateShare, Fatal: true, What: fmt.Sprintf(
		"it stood still for %s of the time of jobs (limit %s), %d times, first %s", results.Percent(share), results.Percent(lateShare), len(times), times[0].Why)}
}

// overslept is the trouble of a rank that woke up late for too much of its time; long stalls, of
// which there are findings, are not among that.
func overslept(where string, late, jct float64, stalls []testbed.Stall) (results.Trouble, bool) {
	late = besides(late, where, stalls)
	share := late / jct
	return results.Trouble{
		Where: where, What: fmt.Sprintf("woke up late by %s in all, %s of its time (limit %s)",
			results.Quantity(late, "s"), results.Percent(share), results.Percent(lateShare)),
		Value: share, Limit: lateShare, Fatal: true,
	}, share > lateShare
}

// besides is what is left of the time that a process was late by, in seconds, without long
// stalls, of which there are findings.
func besides(late float64, where string, stalls []testbed.Stall) float64 {
	for _, s := range stalls {
		if s.Where == where && s.Late.Seconds() > stillLeast {
			late -= s.Late.Seconds()
		}
	}
	return max(0, late)
}

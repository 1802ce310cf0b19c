package study

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// Enough is the part of a phase's seconds that must be clean for figures to stand for it.
const Enough = 0.8

// Standstill is a testbed.Stall on the run's clock, in seconds.
type Standstill struct {
	results.Span
	Where, What string
	Late        float64 // the most, s: several that are close together are one
	Held        float64 // for how long of it something was late, s
	Waited      float64 // of it, for a processor, s
	Job         string  // whose process it was; empty: of the testbed, and not of what is tested
}

// OnClock puts stalls of a deployment on the run's clock, which is so many seconds ahead.
func OnClock(in []testbed.Stall, ahead float64) []Standstill {
	var out []Standstill
	for _, s := range in {
		out = append(out, Standstill{
			Span:  results.Span{Start: s.Start.Seconds() + ahead, End: s.End.Seconds() + ahead},
			Where: s.Where, What: s.What, Late: s.Late.Seconds(), Held: s.Held.Seconds(), Waited: s.Waited.Seconds(), Job: s.Job,
		})
	}
	return out
}

// by is for how long at once a process's stall was its own, in seconds: not for want of a processor.
func (s Standstill) by() float64 { return min(s.Late, s.End-s.Start) - s.Waited }

// alone is for how long a process's stall was its own while nothing else stood still, in seconds: at once, and in all
// where it is many short ones. Else is the testbed: what stops or delays a whole machine does so to its switches too,
// or to this program, and many jobs' processes may be stopped at once.
func (s Standstill) alone(machine []Standstill) (once, all float64) {
	others := results.Total(SpoiltTimes(machine, s.Start, s.End, 0))
	return max(0, s.by()-others), max(0, s.held()-s.Waited-others)
}

// held is for how long something of a process was late, s.
func (s Standstill) held() float64 { return min(cmp.Or(s.Held, s.Late), s.End-s.Start) }

// pauses are the stalls of one process alone.
type pauses struct {
	Where   string
	Longest Standstill
	Most    float64 // s, of the longest
	N       int
	Sum     float64 // s, of all
}

// StoppedAlone are the pauses of each of a job's processes that reach into [start, end], in the order in which the
// processes stood still first.
func StoppedAlone(stalls []Standstill, job string, start, end float64) (out []pauses) {
	machine := OfMachine(stalls)
	for _, s := range stalls {
		if s.Job != job || s.End <= start || s.Start >= end {
			continue
		}
		i := slices.IndexFunc(out, func(p pauses) bool { return p.Where == s.Where })
		if i < 0 {
			i, out = len(out), append(out, pauses{Where: s.Where})
		}
		once, all := s.alone(machine)
		if p := &out[i]; all > 0 {
			p.N++
			p.Sum += all
			if once > p.Most || p.N == 1 {
				p.Longest, p.Most = s, once
			}
		}
	}
	return out
}

// OfMachine are those in which the testbed stood still, and not what is tested.
func OfMachine(stalls []Standstill) []Standstill {
	return slices.DeleteFunc(slices.Clone(stalls), func(s Standstill) bool { return s.Job != "" })
}

// SpoiltTimes are the times within [start, end] that stalls and the time after
// them spoil: in order, apart from each other, each with what was seen first.
func SpoiltTimes(stalls []Standstill, start, end, recovery float64) []results.Stall {
	var in []Standstill
	for _, s := range stalls {
		s.End += recovery
		s.Start, s.End = max(s.Start, start), min(s.End, end)
		if s.Start < s.End {
			in = append(in, s)
		}
	}
	slices.SortStableFunc(in, func(a, b Standstill) int { return cmp.Compare(a.Start, b.Start) })
	var out []results.Stall
	for _, s := range in {
		if n := len(out); n > 0 && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, results.Stall{Span: s.Span, Why: s.Where + ": " + s.What})
	}
	return out
}

// Ran is when a job of a study ran, on the run's clock.
type Ran struct {
	Job        string // as its agents have it
	Start, End float64
}

// stood says of a study's jobs, whose figures are of all their time, whether a process of theirs
// stood still for long, which nothing of the testbed explains, and how much of its time the job
// or the testbed stood still that lost most: above lateShare, which excused says, a figure that
// is not what it should be may be about that.
func stood(jobs []Ran, stalls []Standstill) (found []results.Finding, most *results.Trouble, excused bool) {
	machine := OfMachine(stalls)
	for _, j := range jobs {
		var short []Standstill
		var worst Standstill
		for _, s := range stalls {
			if s.Job != j.Job {
				continue
			}
			s.Start, s.End = max(s.Start, j.Start), min(s.End, j.End)
			if long := s.by(); long <= StillLeast {
				short = append(short, s)
			} else if long > worst.Late {
				worst, worst.Late = s, long
			}
		}
		if worst.Where != "" {
			f := results.Finding{Name: GoesOn, Code: results.CodeJobStopped, Of: j.Job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s stood still: %s from %.2f s to %.2f s, of its time from %.2f s to %.2f s: %s", j.Job, worst.Where, worst.Start, worst.End, j.Start, j.End, worst.What)}
			if times := SpoiltTimes(machine, worst.Start, worst.End, 0); worst.Late-results.Total(times) <= StillLeast {
				f.Outcome = results.Inconclusive
				f.What += "; the testbed stood still meanwhile: " + times[0].Why
			}
			found = append(found, f)
		}
		times := SpoiltTimes(append(short, machine...), j.Start, j.End, 0)
		lost := results.Total(SpoiltTimes(machine, j.Start, j.End, 0))
		for _, s := range short { // many stops that are one span are no longer together than they were late
			lost += max(0, s.held()-results.Total(SpoiltTimes(machine, s.Start, s.End, 0)))
		}
		if lost = min(lost, results.Total(times)); lost > 0 && (most == nil || lost/(j.End-j.Start) > most.Value) {
			share := lost / (j.End - j.Start)
			most = &results.Trouble{Where: "job " + j.Job, Value: share, Limit: LateShare, What: fmt.Sprintf(
				"it or the testbed stood still for %s of its time (limit %s), %s in all; first %s",
				human.Percent(share), human.Percent(LateShare), human.Quantity(lost, "s"), times[0].Why)}
		}
	}
	return found, most, most != nil && most.Value > LateShare
}

// Stillness collects the stalls of a study's testbed and jobs while it runs.
type Stillness struct {
	stalls []Standstill
	Jobs   []Ran
	ask    func(ctx context.Context) ([]testbed.Stall, error) // the testbed
	ahead  float64                                            // s, of the run's clock to that of what it says
}

// WatchStalls forgets the stalls that somebody has had so far who is asked on a clock that the
// run's is so many seconds ahead of, and collects those to come.
func WatchStalls(ctx context.Context, ask func(ctx context.Context) ([]testbed.Stall, error), ahead float64) (*Stillness, error) {
	_, err := ask(ctx)
	return &Stillness{ask: ask, ahead: ahead}, err
}

// Read asks the testbed.
func (s *Stillness) Read(ctx context.Context) error {
	stalls, err := s.ask(ctx)
	s.Keep(stalls)
	return err
}

func (s *Stillness) Keep(stalls []testbed.Stall) {
	s.stalls = append(s.stalls, OnClock(stalls, s.ahead)...)
}

// Judge adds to a point what the stalls mean for its jobs. What it returns is Stood of its phase.
func (s *Stillness) Judge(point *results.Point) (why string) {
	found, most, excused := stood(s.Jobs, s.stalls)
	point.Findings = append(point.Findings, found...)
	if most != nil {
		point.Health = append(point.Health, *most)
	}
	if excused {
		why = most.String()
	}
	if t := late(s.Jobs, s.stalls); t != nil {
		point.Health = append(point.Health, *t)
	}
	return why
}

// late is the trouble of a testbed that stood still for too much of the time of a study's jobs: what was
// as it should be all the same may be so by chance, because stalls make up for what is too fast.
func late(jobs []Ran, stalls []Standstill) *results.Trouble {
	if len(jobs) == 0 {
		return nil
	}
	start, end := jobs[0].Start, jobs[0].End
	for _, j := range jobs {
		start, end = min(start, j.Start), max(end, j.End)
	}
	times := SpoiltTimes(OfMachine(stalls), start, end, 0)
	share := results.Total(times) / (end - start)
	if !(share > LateShare) {
		return nil
	}
	return &results.Trouble{Where: "testbed", Value: share, Limit: LateShare, Fatal: true, What: fmt.Sprintf(
		"it stood still for %s of the time of jobs (limit %s), %d times, first %s", human.Percent(share), human.Percent(LateShare), len(times), times[0].Why)}
}

// Overslept is the trouble of a rank that woke up late for too much of its time; long stalls, of
// which there are findings, are not among that.
func Overslept(where string, late, jct float64, stalls []testbed.Stall) (results.Trouble, bool) {
	late = besides(late, where, stalls)
	share := late / jct
	return results.Trouble{
		Where: where, What: fmt.Sprintf("woke up late by %s in all, %s of its time (limit %s)",
			human.Quantity(late, "s"), human.Percent(share), human.Percent(LateShare)),
		Value: share, Limit: LateShare, Fatal: true,
	}, share > LateShare
}

// besides is what is left of the time that a process was late by, in seconds, without long
// stalls, of which there are findings.
func besides(late float64, where string, stalls []testbed.Stall) float64 {
	for _, s := range stalls {
		if s.Where == where && s.Late.Seconds() > StillLeast {
			late -= s.Late.Seconds()
		}
	}
	return max(0, late)
}

// Names of these checks; where all of them hold, there is one.
const (
	GoesOn      = "jobs go on"
	AllDone     = "jobs do what was asked"
	AllMeasured = "every phase is measured"
	SumsRight   = "sums are right"
	Agree       = "who sends and who receives agree"
	CablesHold  = "cables carry what they can"
	SharesHold  = "switches add up what they claim"
	AllHold     = "the run is whole"
)

// Clocks are the reports of agents that came from the future, by what they are of: the one that
// was furthest ahead. All was well when clocks were measured.
type Clocks map[string]future

type future struct {
	ahead float64 // s
	why   string
}

// Hear looks at reports that came by now, of the deployment's clock.
func (c Clocks) Hear(got []results.Sample, now time.Duration) {
	for _, s := range got {
		if !strings.HasPrefix(s.Metric, "worker_") {
			continue
		}
		if ahead, why := collectors.Future(s.T, now.Seconds()); why != "" && ahead > c[s.Of].ahead {
			c[s.Of] = future{ahead, why}
		}
	}
}

// Wrong are the findings of a job whose reports came from the future.
func (c Clocks) Wrong(j *placement.JobPlan) (out []results.Finding) {
	add := func(role, of, host string) {
		if f, found := c[of]; found {
			out = append(out, results.Finding{Name: Agree, Code: results.CodeCounters, Of: of, Outcome: results.Fail,
				What: fmt.Sprintf("%s on host %s %s", role, host, f.why)})
		}
	}
	for _, w := range j.Workers {
		of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
		add("worker "+of, of, w.Host)
	}
	add("ps "+j.Name, j.Name+"/ps", j.PS)
	return out
}

// Parts of a phase, and multiples of what a job needs for one step, that it may be without
// results.
const (
	StillPart    = 0.1
	StillReports = 3.0
	StillTrips   = 5.0
	StillLeast   = 0.4 // seconds: what a busy machine makes of nothing
)

// LateShare is how much of its time a rank may lose by waking up late, before its figures
// are about its host; above: fatal.
const LateShare = 0.05

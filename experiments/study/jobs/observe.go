package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// point deploys and measures one point. The point returned holds what was
// measured, also with an error.
func (r *run) point(ctx context.Context) (_ *results.Point, err error) {
	p := r.Planned
	point := &results.Point{Labels: p.Labels}
	base, err := r.baseline(ctx)
	if err != nil {
		return point, err
	}
	setup, err := setupOf(p.Spec, p.Plan, r.Testbed().Inventory(), base, r.Scale())
	if err != nil {
		return point, err
	}
	setup.Interval = readings(p.Spec.Measure.Interval.Std(), period(setup, base))
	timed(setup, r.Testbed().Capabilities().Pace, base)
	if slices.ContainsFunc(p.Labels, func(l string) bool { return strings.HasPrefix(l, "placement.policy=") }) {
		point.Machines = study.Machines(r.Testbed().Inventory(), p.Plan, study.There(p.Spec.PlacementJobs()))
	}
	var planned [][]*placement.Prediction
	if r.doubts() { // and asks for predictions while jobs run, which working them out would hold up
		if planned, err = r.predict(ctx, setup, base, timelineOf(p.Spec)); err != nil {
			return point, fmt.Errorf("predict: %w", err)
		}
		base.Laps = lapsOf(setup, planned)
	}
	mend, err := r.Sabotage(ctx)
	if err != nil {
		return point, err
	}
	defer func() { point.Sabotaged = mend() }()
	r.Progress("measure", spec.Labels(p.Labels), r.Left())
	began := time.Now()
	dep, err := r.Deploy(ctx, setup)
	if err != nil {
		return point, fmt.Errorf("deploy: %w", err)
	}
	r.Timing("deploy", began)
	defer func() {
		if cerr := dep.Close(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("undeploy: %w", cerr))
		}
	}()
	r.clock = r.Clock(dep)
	began = time.Now()
	obs, err := r.observe(ctx, setup, dep, base, planned)
	r.Timing("measure", began)
	point.Health = obs.health
	point.Jobs = obs.summaries
	if err != nil {
		return point, err
	}
	late := results.Late(obs.health)
	obs.timeline.late = late.Value * late.Of
	predictions, err := r.predict(ctx, setup, base, obs.timeline)
	if err != nil {
		return point, fmt.Errorf("predict: %w", err)
	}
	for i, sp := range obs.timeline.spans() {
		ph, err := r.phase(setup, base, obs, sp, predictions[i])
		if err == nil && ph.Stood == "" && ph.Unlike == "" && predictions[i][0].Replayed {
			err = r.locate(ctx, setup, base, obs, i, predictions[i][0], &ph)
		}
		if err != nil {
			return point, err
		}
		point.Phases = append(point.Phases, ph)
	}
	whole := r.whole(obs)
	r.ask(ctx, setup, base, point.Phases, &whole)
	point.Phases = append(point.Phases, whole)
	point.Findings = append(point.Findings, r.integrity(ctx, setup, base, obs, point)...)
	return point, nil
}

// observation is what was seen of one point.
type observation struct {
	timeline  timeline // with the times at which things really happened, on the run's clock
	readings  *results.Readings
	health    []results.Trouble
	summaries []results.JobSummary
	stalls    []study.Standstill // in order of their beginnings
	early     map[string]float64 // streams that ended by themselves, and when
	clocks    study.Clocks       // of agents that report from the future

	began, ended time.Duration // on the run's clock
}

// mending is how long a cable may take to be whole again.
const mending = 5 * time.Second

// observe plays the timeline: it starts and stops jobs when their time has come,
// reads all counters in between, and moves memory between jobs. Predictions are those of planned spans, for phases
// that go on until they are certain.
func (r *run) observe(ctx context.Context, setup testbed.Setup, dep testbed.Deployment, base Baseline, predictions [][]*placement.Prediction) (obs observation, err error) {
	s := r.Spec
	obs.readings = &results.Readings{}
	defer func() {
		for _, j := range s.Jobs {
			sum, serr := dep.Summary(j.Name)
			if serr != nil && err == nil {
				err = serr
			}
			sum.Asked = j.Iterations
			obs.summaries = append(obs.summaries, sum)
		}
	}()
	topo := r.Testbed().Inventory().Topology()
	for _, l := range topo.Links {
		if state, ok := setup.Damage[l.Name]; ok {
			if err := dep.SetLink(ctx, l.Name, state); err != nil {
				return obs, fmt.Errorf("link %s: %w", l.Name, err)
			}
			defer func() { // cables are those of the next point, too, and of the next run where an emulation stays up
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mending)
				defer cancel()
				if e := dep.SetLink(ctx, l.Name, testbed.LinkState{}); e != nil {
					err = errors.Join(err, fmt.Errorf("link %s: %w", l.Name, e))
				}
			}()
		}
	}
	if _, err := dep.Health(ctx); err != nil { // begins a new interval
		return obs, err
	}
	if _, err := dep.Stalls(ctx); err != nil {
		return obs, err
	}
	plan := timelineOf(s)
	obs.timeline = timeline{warmup: plan.warmup, jobs: plan.jobs}
	origin := dep.Now()
	obs.began = origin + time.Duration(r.clock*float64(time.Second))
	clock := func() time.Duration { return dep.Now() + time.Duration(r.clock*float64(time.Second)) } // the run's
	defer func() { obs.ended = clock() }()
	memory := reallocation{inv: r.Testbed().Inventory(), setup: setup, dep: dep, period: time.Duration(s.Switch.Reallocate), running: map[string]bool{}}
	memory.next = origin + memory.period
	finite := map[string]<-chan struct{}{}
	streams := map[string]<-chan struct{}{}
	obs.early, obs.clocks = map[string]float64{}, study.Clocks{}
	interval := setup.Interval
	patient := patience{base: base, stretch: s.Measure.Stretch, interval: interval.Seconds()}
	var doubts chan bool // takes what unsure says; nil: it was not asked
	var audit collectors.Audit
	next := origin // of the next reading
	virtual := r.Testbed().Capabilities().Virtual
	var last time.Duration // when it was read last
	sample := func() error {
		got, err := dep.Sample(ctx)
		last = dep.Now()
		obs.clocks.Hear(got, last)
		if virtual { // a testbed does so itself
			got = audit.Check(got)
		}
		for i := range got {
			got[i].T += r.clock
		}
		obs.readings.Add(got...)
		stood, serr := dep.Stalls(ctx)
		obs.stalls = append(obs.stalls, study.OnClock(stood, r.clock)...)
		err = errors.Join(err, serr)
		if !virtual { // nobody watches what takes no time
			r.Watch(func() study.Scene { return scene(setup, obs, predictions, plan.events, dep.Now()-origin) })
		}
		return errors.Join(err, r.Keep(got...))
	}
	did := func(e event, at time.Duration) {
		memory.note(e)
		e.at = at
		e.delay, e.planned = patient.longer, patient.planned()
		obs.timeline.events = append(obs.timeline.events, e)
	}
	var final time.Duration // when the last event was to happen
	for len(plan.events) > 0 || len(finite) > 0 {
		if final = max(final, plan.end()); dep.Now()-origin > final+study.JobTimeout {
			return obs, fmt.Errorf("jobs %v have not done their iterations %v after the last event", slices.Sorted(maps.Keys(finite)), study.JobTimeout)
		}
		var ended []string // in one turn: no phase is between
		now := clock()
		for name, done := range finite {
			select {
			case <-done:
				ended = append(ended, name)
				delete(finite, name)
				did(event{job: name, stop: true}, now)
			default:
			}
		}
		if len(ended) > 0 { // figures of the phase are of readings up to here
			if err := sample(); err != nil {
				return obs, err
			}
		}
		for _, name := range ended { // its PS goes on answering until it is told, and says then what it has counted
			if err := dep.Stop(ctx, name); err != nil {
				return obs, err
			}
		}
		for name, done := range streams {
			select {
			case <-done:
				delete(streams, name)
				obs.early[name] = dep.Now().Seconds() + r.clock
			default:
			}
		}
		if due := plan.due(dep.Now() - origin); len(due) > 0 {
			if !virtual && dep.Now()-last > interval/4 { // stalls until now are to be known
				if err := sample(); err != nil {
					return obs, err
				}
			}
			more := patient.wait(dep.Now()-origin, r.clock+origin.Seconds(), obs.stalls)
			if more == 0 && len(finite) == 0 && patient.left() > 0 && r.doubts() {
				// Readings go on while figures are drawn from those so far.
				select {
				case unsure := <-doubts:
					doubts = nil
					more = patient.doubt(unsure)
				default:
					if more = interval; doubts == nil {
						doubts = make(chan bool, 1)
						seen, end, told := obs, event{at: clock(), stop: true, delay: patient.longer, planned: patient.planned()}, doubts
						seen.early, seen.readings = maps.Clone(obs.early), obs.readings.Since(math.Inf(-1)) // all else only grows
						go func() { told <- r.unsure(setup, base, seen, end, predictions) }()
					}
				}
			}
			if more > 0 {
				plan.delay(more)
				if err := dep.Sleep(ctx, min(origin+plan.events[0].at, max(next, dep.Now()))); err != nil {
					return obs, err
				}
				if err := sample(); err != nil {
					return obs, err
				}
				continue
			}
			plan.events = plan.events[len(due):]
			// Stopping takes round trips in which nothing is steady, so a stop counts
			// from its beginning and a start from its end.
			at := clock() // of all of them: no phase is between
			for _, e := range due {
				if e.stop {
					did(e, at)
					delete(streams, e.job)
				}
			}
			if err := sample(); err != nil {
				return obs, err
			}
			begun := clock()
			opened, err := perform(ctx, dep, due)
			if err != nil {
				return obs, err
			}
			for i, e := range due {
				if !e.stop {
					e.begun, e.opened = begun, opened[i]+time.Duration(r.clock*float64(time.Second))
					did(e, clock())
				}
				switch {
				case !e.stop && endsItself(s, e.job):
					finite[e.job] = dep.Done(e.job)
				case !e.stop:
					streams[e.job] = dep.Done(e.job)
				}
			}
			// What starting took is no part of the phase: it is as long as was planned.
			plan.delay(max(0, dep.Now()-origin-due[len(due)-1].at))
			patient.begin(plan, dep.Now()-origin)
			doubts = nil // of the phase before, if it ended without an answer
		}
		wake := next
		if len(plan.events) > 0 {
			wake = min(wake, origin+plan.events[0].at)
		}
		if s.Reallocates() {
			if err := memory.due(ctx); err != nil {
				return obs, err
			}
			wake = min(wake, memory.next)
		}
		if err := dep.Sleep(ctx, wake, slices.Collect(maps.Values(finite))...); err != nil {
			return obs, err
		}
		if dep.Now() >= next {
			if err := sample(); err != nil {
				return obs, err
			}
			// Readings keep to their grid; those that a busy machine missed are left out.
			for next <= dep.Now() {
				next += interval
			}
		}
	}
	if err := sample(); err != nil {
		return obs, err
	}
	obs.health, err = dep.Health(ctx)
	obs.health = append(obs.health, audit.Troubles()...)
	return obs, err
}

// doubts says whether a phase of the run goes on until its figures are certain: a model's are, and of
// repeats it is their mean that has to be.
func (r *run) doubts() bool { return r.Repeats() == 1 && !r.Testbed().Capabilities().Virtual }

// unsure says whether expectations of the phase that such an event is about to end are open, and a longer one may decide.
func (r *run) unsure(setup testbed.Setup, base Baseline, obs observation, end event, predictions [][]*placement.Prediction) bool {
	t := obs.timeline
	t.events = append(slices.Clone(t.events), end)
	spans := t.spans()
	last := len(spans) - 1
	if last < 0 || spans[last].end != end.at || last >= len(predictions) {
		return false
	}
	// What was read before the phase is of no use. Readings of several places are not quite in order.
	before := spans[last].start.Seconds() - 2*setup.Interval.Seconds()
	obs.readings = obs.readings.Since(before)
	ph, err := r.phase(setup, base, obs, spans[last], predictions[last])
	if err != nil { // it is told of at the end
		return false
	}
	phases := make([]results.Phase, len(spans))
	phases[last] = ph
	expects := slices.Clone(r.Expect())
	for i := range expects { // a few readings more, and an interval that just fits no longer does
		expects[i].Tolerance *= 0.9
	}
	checks, _, _ := results.Judge(expects, []results.Point{{Labels: r.Labels, Phases: phases}})
	return slices.ContainsFunc(checks, func(c results.Check) bool {
		return c.Phase == last && c.Gate && c.Outcome == results.Inconclusive && c.Code == results.CodeNoise && c.More > 0
	})
}

// perform stops and then starts jobs, those of the same time together, and says when each event had happened, by
// dep's clock.
func perform(ctx context.Context, dep testbed.Deployment, due []event) ([]time.Duration, error) {
	happened := make([]time.Duration, len(due))
	for _, stop := range []bool{true, false} {
		g, ctx := errgroup.WithContext(ctx)
		note := func(i int, err error) error {
			happened[i] = dep.Now()
			return err
		}
		for i, e := range due {
			switch {
			case e.stop != stop:
			case stop:
				g.Go(func() error { return note(i, dep.Stop(ctx, e.job)) })
			default:
				g.Go(func() error { return note(i, dep.Start(ctx, e.job)) })
			}
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
	}
	return happened, nil
}

// readings is the interval between readings: the one asked for, adjusted so that
// a whole number of them make one period of the grants.
func readings(interval time.Duration, period float64) time.Duration {
	if n := math.Round(period / interval.Seconds()); n >= 1 {
		return time.Duration(period / n * float64(time.Second))
	}
	return interval
}

// endsItself says whether a job ends by itself.
func endsItself(s *spec.Spec, job string) bool {
	j, ok := s.Job(job)
	return ok && j.Iterations > 0
}

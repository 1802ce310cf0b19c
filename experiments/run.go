// Package experiments runs what a spec says: the loop over points and repeats, and the verdict. It has the list of all
// kinds of study, and the study of [[job]] tables with its calibration, predictions and integrity.
package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sabotage"
)

// RunOptions are what the person at the keyboard decides about a run.
type RunOptions struct {
	Driver        string // "netns", "sim" or "lab"
	Root          string // directory of run directories; empty: "runs"
	Tool          string // version of this program, for the record
	Args          []string
	Repeats       int          // overrides the spec's; 0: as it says
	Plan          *SavedPlan   // placements decided earlier; nil: decide now
	Pcap          bool         // capture every switch port into the run directory
	Progress      func(Status) // nil: silent
	KeepOnFailure func(ctx context.Context, tb testbed.Testbed, cause error)
	ExitCode      func(err error) int   // of the program after an error, for the record; nil: 6
	Hold          Holding               // of a lab
	Night         *results.NightRun     // of a suite, for the record
	Slow          *Slow                 // an emulation slower than its inventory says; nil: none
	Sabotage      *sabotage.Order       // a fault that the testbed is to have; nil: none
	Predictors    []predictor.Predictor // asked beside the experiment's own
	// Batch is where points of a simulated study are computed; nil: here, as many at a time as there
	// are processors. Resume is a run directory whose points are taken over, of a run with a Batch
	// that was cut off.
	Batch  Batch
	Resume string
}

// Status says how far a run has come.
type Status struct {
	Stage    string // "bring up", "calibrate", "measure", "tear down", "report"
	Point    string // labels of the point being measured
	Done, Of int    // points, repeats included
	Left     time.Duration
}

// BeginError is a run that could not begin: nothing was measured and no testbed
// was touched.
type BeginError struct{ Err error }

func (e *BeginError) Error() string { return e.Err.Error() }
func (e *BeginError) Unwrap() error { return e.Err }

// Run plans, deploys, measures, tears down, judges and reports an experiment. It
// returns the record of whatever was measured, and the directory that holds it,
// also with an error: one that ended the run early, or a *BeginError. An
// interruption (ctx) is torn down and recorded like any other end.
func Run(ctx context.Context, s *spec.Spec, o RunOptions) (*results.Record, *results.Dir, error) {
	r, err := newRun(ctx, s, o)
	if err != nil {
		return nil, nil, &BeginError{err}
	}
	began := time.Now()
	work := r.measure
	if simulatorOf(s, o.Driver) != nil {
		work = r.simulate
	}
	runErr := errors.Join(work(ctx), r.endStudy())
	r.Progress("report", "", 0)
	r.rec.Finished = time.Now().UTC()
	r.Timing("total", began)
	r.judge(ctx, runErr)
	r.rec.Idle()
	r.rec.ExitCode = results.ExitCode(r.rec.Outcome)
	if err := cmp.Or(runErr, context.Cause(ctx)); err != nil && o.ExitCode != nil { // it may be interrupted when all is measured
		r.rec.ExitCode = o.ExitCode(err)
	}
	r.rec.Failure = failure(runErr, s.Inventory())
	errs := []error{runErr, r.dir.Finish(r.rec, report.Write)} // while there is room that is reserved for it
	if r.cells != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(r.cells)) // all of it is in the record
	}
	if err := r.dir.Close(); err != nil && !errors.Is(errors.Join(errs...), err) {
		errs = append(errs, err)
	}
	return r.rec, r.dir, errors.Join(errs...)
}

// run is one run in progress.
type run struct {
	spec   *spec.Spec
	opt    RunOptions
	points []study.Planned
	rec    *results.Record
	dir    *results.Dir

	tb     testbed.Testbed
	fabric study.FabricKey // of tb
	clock  float64         // seconds from the run's origin to the current deployment's
	origin time.Time
	bases  map[string]Baseline // calibrated, by placement
	// Predictions, by what they were asked; each run has its own.
	predicted map[string][]*placement.Prediction
	known     map[string]any // what studies measured once for all points; see Once
	done      int
	table     *os.File // jobs.csv.gz, of a study
	cells     string   // directory of what others have computed; empty: there is none
	held      holding  // of a lab
	external  []predictor.Predictor
	kept      []results.Sample // of the point, where there is no dir

	sabotaged *sabotage.Order // nil: nothing is wrong on purpose
}

func newRun(ctx context.Context, s *spec.Spec, o RunOptions) (*run, error) {
	r := &run{spec: s, opt: o, bases: map[string]Baseline{}, known: map[string]any{}, origin: time.Now()}
	if r.opt.Root == "" {
		r.opt.Root = "runs"
	}
	if o.Sabotage != nil && o.Driver == "lab" {
		_, err := sabotaged(o.Sabotage, s, o.Driver, []study.Planned{{Point: spec.Point{Spec: s}}})
		return nil, err
	}
	if err := checkDriver(s, o.Driver); err != nil {
		return nil, err
	}
	if o.Batch != nil {
		if err := checkBatch(s, o.Driver); err != nil {
			return nil, err
		}
	}
	points, err := plans(s, o.Plan)
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		if err := studyOf(p.Spec).Ready(p); err != nil {
			return nil, fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
	}
	if r.sabotaged, err = sabotaged(o.Sabotage, s, o.Driver, points); err != nil {
		return nil, err
	}
	r.points = points
	if r.opt.Repeats == 0 {
		r.opt.Repeats = max(1, s.Measure.Repeats)
	}
	if n := len(points) * r.opt.Repeats; n > spec.MostMeasured {
		return nil, fmt.Errorf("%d points, %d times each: at most %d measurements in all", len(points), r.opt.Repeats, spec.MostMeasured)
	}
	var topo results.Topology
	if simulatorOf(s, o.Driver) == nil {
		topo = Topology(s.Inventory())
	}
	scale := spec.EmulationScale(s, o.Driver)
	r.rec = &results.Record{
		Name: s.Name, Title: s.Title, Driver: o.Driver, Kind: results.Measured, Seed: s.Measure.Seed,
		Tool: o.Tool, Args: o.Args, Overrides: s.Overrides,
		Scale:      scale,
		Experiment: results.File{Path: s.File, SHA256: s.SHA256, Text: s.Text},
		Inventory:  results.File{Path: s.Inventory().File, SHA256: s.Inventory().SHA256, Text: s.Inventory().Text},
		Topology:   topo, Expect: s.ExpectationsAt(scale), Planned: len(points) * r.opt.Repeats, Started: time.Now().UTC(),
		Timings: map[string]float64{}, Night: o.Night,
		Sabotage: recordOf(r.sabotaged),
	}
	if why := unscaled(s); why != "" && o.Driver == "netns" {
		r.Warn(why)
	}
	for i := range r.rec.Expect {
		e := &r.rec.Expect[i]
		if e.Skip = notApplicable(*e, points); !slices.ContainsFunc(points, func(p study.Planned) bool { return p.Has(e.Points) }) {
			e.Skip = "no point has " + strings.Join(e.Points, " ")
		}
	}
	if err := r.rehearse(ctx); err != nil {
		return nil, err
	}
	r.rec.Unfinished() // until it is judged, also where it is saved on its way
	r.dir, err = results.Create(r.opt.Root, r.rec)
	return r, err
}

// notApplicable is why an expectation has no subject: all that it could be about are
// jobs without traffic. "" if it has one, or none of those either.
func notApplicable(e results.Expect, points []study.Planned) string {
	m := spec.JobMetrics[e.Metric]
	if m.Of == "link" || len(points) > 0 && points[0].Plan == nil {
		return ""
	}
	about := func(job string, l *spec.Lab) bool {
		return m.Of == "comparison" || slices.ContainsFunc(m.Subjects(job, l), func(s string) bool { return results.Glob(e.Of, s) })
	}
	var local []string
	for _, p := range points {
		l, compared := spec.NewLab(p.Spec.Inventory()), 0
		for i := range p.Plan.Jobs {
			j := &p.Plan.Jobs[i]
			spec, _ := p.Spec.Job(j.Name)
			switch {
			case !m.Jobs(spec) || !about(j.Name, l):
			case m.By(spec, j.Local()):
				if compared++; m.Of != "comparison" || compared > 1 {
					return ""
				}
			case !slices.Contains(local, j.Name):
				local = append(local, j.Name)
			}
		}
	}
	switch len(local) {
	case 0:
		return ""
	case 1:
		return "not applicable: job " + local[0] + " is on one host and sends nothing"
	}
	return "not applicable: jobs " + strings.Join(local, ", ") + " are on one host each and send nothing"
}

// plans places the jobs of every point, or takes a placement that was saved.
func plans(s *spec.Spec, saved *SavedPlan) ([]study.Planned, error) {
	var out []study.Planned
	for _, p := range s.Points() {
		plan := saved.plan(len(out))
		if st, ok := studyOf(p.Spec).(study.Placer); ok && plan == nil {
			var err error
			if plan, err = st.Place(p.Spec); err != nil {
				return nil, fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
			}
		}
		out = append(out, study.Planned{Point: p, Plan: plan})
	}
	return out, nil
}

// measure does the points, repeat by repeat, so that a drift of the machine meets
// all points alike. The testbed is closed when it returns.
func (r *run) measure(ctx context.Context) (err error) {
	defer func() {
		began := time.Now()
		err = r.ousted(ctx, err)
		r.Progress("tear down", "", 0)
		if err != nil && r.opt.KeepOnFailure != nil && r.tb != nil {
			r.opt.KeepOnFailure(ctx, r.tb, err)
		}
		err = errors.Join(err, r.closeTestbed(ctx), r.held.hold.Journal.Close())
		r.Timing("teardown", began)
	}()
	if r.virtual() {
		return r.measureVirtually(ctx)
	}
	for repeat := range r.opt.Repeats {
		for i, p := range r.points {
			if err := r.openTestbed(ctx, p.Spec); err != nil {
				return err
			}
			point, err := r.studied(ctx, p, repeat)
			r.add(i, repeat, point, err)
			if err == nil {
				err = r.dir.Save(r.rec) // what is measured is kept, whatever comes
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// add puts a point into the record; err is why it ended early.
func (r *run) add(i, repeat int, point *results.Point, err error) {
	p := &r.points[i]
	point.Index, point.Repeat, point.Params, point.Labels = i, repeat, p.Params, p.Labels
	if repeat == 0 {
		point.Trees = trees(p.Plan)
	}
	if err != nil {
		point.Error = err.Error()
		point.Findings = append(point.Findings, broken(err)...)
	}
	point.DropUncompared()
	r.rec.AddSabotaged(point.Sabotaged)
	r.rec.Points = append(r.rec.Points, *point)
	r.done++
}

func fabricOf(s *spec.Spec, driver string) study.FabricKey {
	k := study.FabricKey{
		Inventory: s.Inventory().SHA256, Kind: s.Emulation.Switch, Queue: s.Switch.Queue, Buffer: s.Switch.Buffer, ECN: s.Switch.ECN,
		Scale: spec.EmulationScale(s, driver), Trees: s.Kind().Trees,
	}
	if b, ok := studyOf(s).(study.Builder); ok {
		b.Build(&k, s, driver)
	}
	return k
}

func (r *run) openTestbed(ctx context.Context, s *spec.Spec) error {
	key := fabricOf(s, r.opt.Driver)
	if r.tb != nil && key == r.fabric {
		return nil
	}
	if err := r.closeTestbed(ctx); err != nil {
		return err
	}
	r.Progress("bring up", "", 0)
	began := time.Now()
	pcap := ""
	if r.opt.Pcap {
		pcap = filepath.Join(r.dir.Path, "pcap")
		if err := os.MkdirAll(pcap, 0o755); err != nil {
			return err
		}
	}
	if r.held.run = r.rec.ID; r.opt.Driver == "lab" && r.held.hold.Journal == nil {
		var err error
		if r.held, err = r.opt.Hold.begin(r.rec.ID, s, touched(r.points, s.Inventory())); err != nil {
			return err
		}
	}
	r.held.hold.Need = r.planned()
	tb, err := openTestbed(ctx, r.opt.Driver, s, key, pcap, r.held, r.opt.Slow)
	r.lookedAt(tb, err)
	if err != nil {
		return err
	}
	r.tb, r.fabric = tb, key
	if len(r.rec.Topology.Nodes) > 0 {
		r.rec.Topology = Topology(tb.Inventory()) // rates as they are there
	}
	r.bases = map[string]Baseline{}
	r.predicted = nil
	c := tb.Capabilities()
	for i := range r.rec.Expect {
		if e := &r.rec.Expect[i]; e.Metric == "sum_errors" && !c.Sums {
			e.Skip = "a " + c.Switch + " carries no sums"
		}
	}
	r.rec.Kind, r.rec.Switch, r.rec.Hosts = c.Kind, c.Switch, tb.Facts()
	if t, ok := tb.(interface{ SwitchFacts() []results.SwitchFacts }); ok {
		r.rec.Switches = t.SwitchFacts()
	}
	r.Timing("bringup", began)
	return r.dir.Save(r.rec) // for who looks on while it goes on
}

func (r *run) closeTestbed(ctx context.Context) error {
	if r.tb == nil {
		return nil
	}
	if t, ok := r.tb.(interface{ Overruns() []string }); ok {
		for _, text := range t.Overruns() {
			r.Warn(text)
		}
	}
	err := r.tb.Close(ctx)
	r.tb = nil
	if err != nil {
		err = fmt.Errorf("tear down: %w", err)
	}
	return err
}

// point deploys and measures one point. The point returned holds what was
// measured, also with an error.
func (r *run) point(ctx context.Context, p study.Planned) (_ *results.Point, err error) {
	point := &results.Point{Labels: p.Labels}
	base, err := r.baseline(ctx, p)
	if err != nil {
		return point, err
	}
	setup, err := setupOf(p.Spec, p.Plan, r.tb.Inventory(), base, r.rec.Scale)
	if err != nil {
		return point, err
	}
	setup.Interval = readings(p.Spec.Measure.Interval.Std(), period(setup, base))
	if slices.ContainsFunc(p.Labels, func(l string) bool { return strings.HasPrefix(l, "placement.policy=") }) {
		point.Machines = study.Machines(r.tb.Inventory(), p.Plan, study.There(p.Spec.PlacementJobs()))
	}
	var planned [][]*placement.Prediction
	if r.doubts() { // and asks for predictions while jobs run, which working them out would hold up
		if planned, err = r.predict(setup, base, timelineOf(p.Spec)); err != nil {
			return point, fmt.Errorf("predict: %w", err)
		}
	}
	mend, err := r.Sabotage(ctx)
	if err != nil {
		return point, err
	}
	defer func() { point.Sabotaged = mend() }()
	r.Progress("measure", spec.Labels(p.Labels), r.Left())
	began := time.Now()
	dep, err := r.tb.Deploy(ctx, r.opt.Slow.workers(setup, r.tb.Inventory()))
	if err != nil {
		return point, fmt.Errorf("deploy: %w", err)
	}
	r.Timing("deploy", began)
	defer func() {
		if cerr := dep.Close(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("undeploy: %w", cerr))
		}
	}()
	if c := r.tb.Capabilities(); c.Virtual {
		r.clock = r.virtualClock()
	} else {
		r.clock = (time.Since(r.origin) - dep.Now()).Seconds()
	}
	began = time.Now()
	obs, err := r.observe(ctx, p, setup, dep, base, planned)
	r.Timing("measure", began)
	point.Health = obs.health
	point.Jobs = obs.summaries
	if r.dir == nil {
		r.kept = obs.samples
	}
	if err != nil {
		return point, err
	}
	late := results.Late(obs.health)
	obs.timeline.late = late.Value * late.Of
	predictions, err := r.predict(setup, base, obs.timeline)
	if err != nil {
		return point, fmt.Errorf("predict: %w", err)
	}
	for i, sp := range obs.timeline.spans() {
		ph, err := r.phase(p.Spec.Measure, setup, base, obs, sp, predictions[i])
		if err == nil && ph.Stood == "" && ph.Unlike == "" && predictions[i][0].Replayed {
			ph.Unlike, err = r.tipped(setup, base, obs.timeline, i, &ph)
		}
		if err != nil {
			return point, err
		}
		point.Phases = append(point.Phases, ph)
	}
	whole := r.whole(p.Spec, obs)
	r.ask(ctx, p, r.done/len(r.points), setup, base, point.Phases, &whole)
	point.Phases = append(point.Phases, whole)
	point.Findings = append(point.Findings, r.integrity(p.Spec, setup, base, obs, point)...)
	return point, nil
}

// virtualClock places deployments in virtual time one after the other.
func (r *run) virtualClock() float64 {
	end := 0.0
	if n := len(r.rec.Points); n > 0 {
		for _, ph := range r.rec.Points[n-1].Phases {
			end = max(end, ph.End)
		}
	}
	return math.Ceil(end)
}

// observation is what was seen of one point.
type observation struct {
	timeline  timeline // with the times at which things really happened, on the run's clock
	samples   []results.Sample
	health    []results.Trouble
	summaries []results.JobSummary
	stalls    []study.Standstill // in order of their beginnings
	early     map[string]float64 // streams that ended by themselves, and when

	began, ended time.Duration // on the run's clock
}

// observe plays the timeline: it starts and stops jobs when their time has come,
// reads all counters in between, and moves memory between jobs. Predictions are those of planned spans, for phases
// that go on until they are certain.
func (r *run) observe(ctx context.Context, p study.Planned, setup testbed.Setup, dep testbed.Deployment, base Baseline, predictions [][]*placement.Prediction) (obs observation, err error) {
	s := p.Spec
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
	topo := r.tb.Inventory().Topology()
	for _, l := range topo.Links {
		if state, ok := setup.Damage[l.Name]; ok {
			if err := dep.SetLink(ctx, l.Name, state); err != nil {
				return obs, fmt.Errorf("link %s: %w", l.Name, err)
			}
			defer func() { // cables are those of the next point, too
				if e := dep.SetLink(ctx, l.Name, testbed.LinkState{}); e != nil && err == nil {
					err = fmt.Errorf("link %s: %w", l.Name, e)
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
	memory := reallocation{inv: r.tb.Inventory(), setup: setup, dep: dep, period: time.Duration(s.Switch.Reallocate), running: map[string]bool{}}
	memory.next = origin + memory.period
	finite := map[string]<-chan struct{}{}
	streams := map[string]<-chan struct{}{}
	obs.early = map[string]float64{}
	patient := patience{base: base, stretch: s.Measure.Stretch}
	var doubts chan bool // takes what unsure says; nil: it was not asked
	var audit collectors.Audit
	interval := setup.Interval
	next := origin // of the next reading
	sample := func() error {
		got, err := dep.Sample(ctx)
		if r.tb.Capabilities().Virtual { // a testbed does so itself
			got = audit.Check(got)
		}
		for i := range got {
			got[i].T += r.clock
		}
		obs.samples = append(obs.samples, got...)
		stood, serr := dep.Stalls(ctx)
		obs.stalls = append(obs.stalls, study.OnClock(stood, r.clock)...)
		err = errors.Join(err, serr)
		if r.dir == nil {
			return err
		}
		err = errors.Join(err, r.dir.Append(got...))
		if !r.tb.Capabilities().Virtual { // that takes milliseconds, and a flush for each
			err = errors.Join(err, r.dir.Flush()) // kept, whatever comes
		}
		return err
	}
	did := func(e event, at time.Duration) {
		memory.note(e)
		e.at = at
		e.delay = patient.longer
		obs.timeline.events = append(obs.timeline.events, e)
	}
	var last time.Duration // when the last event was to happen
	for len(plan.events) > 0 || len(finite) > 0 {
		if last = max(last, plan.end()); dep.Now()-origin > last+study.JobTimeout {
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
						seen, end, told := obs, clock(), doubts
						seen.early = maps.Clone(obs.early) // all else only grows
						go func() { told <- r.unsure(p, setup, base, seen, end, predictions) }()
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
func (r *run) doubts() bool { return r.opt.Repeats == 1 && !r.tb.Capabilities().Virtual }

// unsure says whether expectations of the phase that is about to end are open, and a longer one may decide.
func (r *run) unsure(p study.Planned, setup testbed.Setup, base Baseline, obs observation, now time.Duration, predictions [][]*placement.Prediction) bool {
	t := obs.timeline
	t.events = append(slices.Clone(t.events), event{at: now, stop: true})
	spans := t.spans()
	last := len(spans) - 1
	if last < 0 || spans[last].end != now || last >= len(predictions) {
		return false
	}
	// What was read before the phase is of no use. Readings of several places are not quite in order.
	before := spans[last].start.Seconds() - 2*setup.Interval.Seconds()
	for i := len(obs.samples) - 1; i >= 0; i-- {
		if obs.samples[i].T < before {
			obs.samples = obs.samples[i:]
			break
		}
	}
	ph, err := r.phase(p.Spec.Measure, setup, base, obs, spans[last], predictions[last])
	if err != nil { // it is told of at the end
		return false
	}
	phases := make([]results.Phase, len(spans))
	phases[last] = ph
	expects := slices.Clone(r.rec.Expect)
	for i := range expects { // a few readings more, and an interval that just fits no longer does
		expects[i].Tolerance *= 0.9
	}
	checks, _, _ := results.Judge(expects, []results.Point{{Labels: p.Labels, Phases: phases}})
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

// whole is the point from beginning to end as a phase of its own: what only counts
// when everything is done.
func (r *run) whole(s *spec.Spec, obs observation) results.Phase {
	kind := r.tb.Capabilities().Kind
	ph := results.Phase{Start: obs.began.Seconds(), End: obs.ended.Seconds(), Jobs: obs.timeline.jobs}
	for _, j := range obs.summaries {
		exact := func(metric string, v float64) { ph.Figures = append(ph.Figures, study.Exactly(metric, j.Job, kind, v)) }
		asked, _ := s.Job(j.Job)
		if r.tb.Capabilities().Sums && spec.JobMetrics["sum_errors"].By(asked, j.Local) {
			exact("sum_errors", float64(j.SumErrors))
		}
		if spec.JobMetrics["iterations"].By(asked, j.Local) {
			exact("iterations", float64(j.Iterations))
		}
		if spec.JobMetrics["jct"].By(asked, j.Local) {
			exact("jct", j.JCT)
		}
	}
	return ph
}

// endsItself says whether a job ends by itself.
func endsItself(s *spec.Spec, job string) bool {
	j, ok := s.Job(job)
	return ok && j.Iterations > 0
}

// judge decides the run's outcome.
func (r *run) judge(ctx context.Context, runErr error) {
	checks, outcome, reasons := results.Judge(r.rec.Expect, r.rec.Points, r.rec.Incomplete()...)
	r.rec.Checks, r.rec.Outcome, r.rec.Reasons = checks, outcome, nil
	add := func(reason string) {
		if !slices.Contains(r.rec.Reasons, reason) {
			r.rec.Reasons = append(r.rec.Reasons, reason)
		}
	}
	if err := context.Cause(ctx); err != nil { // everything else came of it
		r.rec.Outcome = results.ErrorOutcome
		add(err.Error())
	}
	if runErr != nil {
		r.rec.Outcome = results.ErrorOutcome
		cause := context.Cause(ctx)
		for line := range strings.Lines(runErr.Error()) {
			line = strings.TrimSpace(line)
			if cause == nil || !strings.Contains(line, cause.Error()) && !strings.HasSuffix(line, context.Canceled.Error()) {
				add(line)
			}
		}
	}
	if len(r.rec.Reasons) > 0 && outcome != results.Fail {
		return // nothing more could be judged because of that
	}
	for _, reason := range reasons {
		if p := r.rec.Points; len(p) == 0 || p[len(p)-1].Error == "" || !strings.HasSuffix(reason, p[len(p)-1].Error) {
			add(reason)
		}
	}
}

// Progress implements study.Runner.
func (r *run) Progress(stage, point string, left time.Duration) {
	if r.opt.Progress != nil {
		r.opt.Progress(Status{Stage: stage, Point: point, Done: r.done, Of: len(r.points) * r.opt.Repeats, Left: left})
	}
}

// Left is how long the points that are not done yet are planned to take.
func (r *run) Left() time.Duration {
	if r.tb.Capabilities().Virtual {
		return 0
	}
	return r.planned()
}

// planned is how long the points that are not done yet take on a testbed in real time.
func (r *run) planned() time.Duration {
	var d time.Duration
	for i := r.done; i < len(r.points)*r.opt.Repeats; i++ {
		t := timelineOf(r.points[i%len(r.points)].Spec)
		d += t.end() + 300*time.Millisecond
	}
	return d
}

// Warn adds a remark to the record, once.
func (r *run) Warn(text string) {
	if !slices.Contains(r.rec.Warnings, text) {
		r.rec.Warnings = append(r.rec.Warnings, text)
	}
}

// Timing implements study.Runner.
func (r *run) Timing(what string, began time.Time) {
	r.rec.Timings[what] += time.Since(began).Seconds()
}

package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/inspect"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/remote"
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
	Hold          drivers.Holding       // of a lab
	Night         *results.NightRun     // of a suite, for the record
	Slow          *drivers.Slow         // an emulation slower than its inventory says; nil: none
	Sabotage      *sabotage.Order       // a fault that the testbed is to have; nil: none
	Standing      *Standing             // the emulation to run on, which stays up; nil: one of the run's own
	Predictors    []predictor.Predictor // asked beside the experiment's own
	// Batch is where points of a simulated study are computed; nil: here, as many at a time as there
	// are processors. Resume is a run directory whose points are taken over, of a run with a Batch
	// that was cut off.
	Batch  Batch
	Resume string
}

// Status says how far a run has come.
type Status struct {
	Stage    string         // "bring up", "calibrate", "measure", "simulate", "predict", "tear down", "report"; what else studies say
	Point    string         // labels of the point being measured
	Done, Of int            // points, repeats included
	Until    time.Time      // when all of it should have been done; zero: nobody knows
	Jobs     []study.Moving // how fast they are now, where it is known
	Busy     []study.Moving // else the links that carry most
}

// BeginError is a run that could not begin: nothing was measured and no testbed
// was touched.
type BeginError struct{ Err error }

func (e *BeginError) Error() string { return e.Err.Error() }

func (e *BeginError) Unwrap() error { return e.Err }

// DirError is a run directory that could not be made. A *BeginError wraps it.
type DirError struct{ Err error }

func (e *DirError) Error() string { return e.Err.Error() }

func (e *DirError) Unwrap() error { return e.Err }

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
	if kinds.Simulator(s, o.Driver) != nil {
		work = r.simulate
	}
	runErr := errors.Join(work(ctx), r.endStudy())
	if st := r.opt.Standing; st != nil && !interrupted(runErr, context.Cause(ctx)) {
		st.spoilt(r.rec.ID, runErr)
	}
	r.Progress("report", "", 0)
	r.looking.end()
	_ = r.dir.Flush() // Close says why not
	if short := r.dir.Shortened(); short != "" {
		r.Warn(short)
	}
	r.rec.Finished = time.Now().UTC()
	r.Timing("total", began)
	cause := context.Cause(ctx) // asked once: it may be interrupted when all is measured, and outcome and exit code are of one run
	r.judge(cause, runErr)
	r.rec.Idle()
	r.rec.ExitCode = results.ExitCode(r.rec.Outcome)
	if err := cmp.Or(runErr, cause); err != nil && o.ExitCode != nil {
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
	files  map[string]string // that the experiment names; see kinds.Files
	unread error             // why some cannot be read
	dir    *results.Dir

	tb       testbed.Testbed
	fabric   study.FabricKey // of tb
	origin   time.Time
	known    map[string]any // what studies measured once for all points; see study.Once
	here     map[string]any // what they found out about tb
	done     int
	status   Status // that was told last
	looking  *onlookers
	table    *os.File     // jobs.csv.gz, of a study
	cells    string       // directory of what others have computed; empty: there is none
	held     drivers.Held // of a lab
	external []predictor.Predictor
	kept     []results.Sample // of the point, where there is no dir

	until     *results.Repeating // that ends repeats; nil: there are as many as the options say
	sabotaged *sabotage.Order    // nil: nothing is wrong on purpose
}

func newRun(ctx context.Context, s *spec.Spec, o RunOptions) (*run, error) {
	r := &run{spec: s, opt: o, known: map[string]any{}, origin: time.Now(), looking: new(onlookers)}
	if r.opt.Root == "" {
		r.opt.Root = "runs"
	}
	if o.Sabotage != nil && o.Driver == "lab" {
		_, err := sabotaged(o.Sabotage, s, o.Driver, []study.Planned{{Point: spec.Point{Spec: s}}})
		return nil, err
	}
	if err := check(s, o.Driver); err != nil {
		return nil, err
	}
	if o.Batch != nil {
		if err := checkBatch(s, o.Driver); err != nil {
			return nil, err
		}
	}
	points, err := plans(ctx, s, o.Plan)
	if err != nil {
		return nil, err
	}
	if r.until, err = until(s, o); err != nil {
		return nil, err
	}
	most := s.Measure.UpTo()
	if r.opt.Repeats == 0 {
		r.opt.Repeats = s.Measure.Fewest()
	} else {
		most = r.opt.Repeats
	}
	if n := len(points) * most; n > spec.MostMeasured {
		return nil, fmt.Errorf("%d points, %d times each: at most %d measurements in all", len(points), most, spec.MostMeasured)
	}
	for i := range points {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		p := &points[i]
		p.Times, p.On = most, o.Driver
		if o.Standing != nil {
			if err := o.Standing.suits(p.Spec); err != nil {
				return nil, fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
			}
		}
		if err := kinds.Of(p.Spec).Ready(*p); err != nil {
			return nil, fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
	}
	if r.sabotaged, err = sabotaged(o.Sabotage, s, o.Driver, points); err != nil {
		return nil, err
	}
	r.points = points
	var topo results.Topology
	if kinds.Simulator(s, o.Driver) == nil {
		topo = drivers.Topology(s.Inventory())
	}
	scale := spec.EmulationScale(s, o.Driver)
	r.files, r.unread = kinds.Files(s)            // whoever reads one says why it cannot be read
	if err := r.resumable(r.work()); err != nil { // a run that does not begin is not the latest
		return nil, err
	}
	r.rec = &results.Record{
		Name: s.Name, Title: s.Title, Driver: o.Driver, Kind: kindOn(s, o.Driver), Seed: s.Measure.Seed,
		Tool: o.Tool, Args: o.Args, Overrides: s.Overrides,
		Scale:      scale,
		Experiment: results.File{Path: s.File, SHA256: s.SHA256, Text: s.Text},
		Inventory:  results.File{Path: s.Inventory().File, SHA256: s.Inventory().SHA256, Text: s.Inventory().Text},
		Files:      r.files,
		Topology:   topo, Expect: s.ExpectationsAt(scale), Planned: len(points) * r.opt.Repeats, Started: time.Now().UTC(),
		Timings: map[string]float64{}, Night: o.Night,
		Sabotage: recordOf(r.sabotaged), Repeating: r.until,
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
	if r.dir, err = results.Create(r.opt.Root, r.rec); err != nil {
		return nil, &DirError{err}
	}
	return r, nil
}

// kindOn is of which kind figures are on a driver, until its testbed says so itself: a run may be killed before.
func kindOn(s *spec.Spec, driver string) results.Kind {
	if driver == "sim" || kinds.Simulator(s, driver) != nil {
		return results.Simulated
	}
	return results.Measured
}

// until is what ends repeats where an experiment has a precision; nil: they are counted. It is an error where a run cannot
// have more of them as it goes on.
func until(s *spec.Spec, o RunOptions) (*results.Repeating, error) {
	m := &s.Measure
	switch {
	case m.Precision == 0 || o.Repeats > 0:
		return nil, nil
	case kinds.Simulator(s, o.Driver) == nil:
		return nil, spec.Invalid(tomlfile.WithHint("write --repeat N, or --on sim", "measure.precision is of simulations, not of driver %s", o.Driver))
	case o.Batch != nil:
		return nil, spec.Invalid(tomlfile.WithHint("write --repeat N", "a batch system computes a number of repeats, which measure.precision leaves open"))
	}
	return &results.Repeating{Metric: s.Summary[0], Precision: float64(m.Precision), Least: m.Fewest(), Most: m.UpTo()}, nil
}

// notApplicable is why an expectation has no subject: all that it could be about, at its points, are
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
		if !p.Has(e.Points) {
			continue
		}
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
func plans(ctx context.Context, s *spec.Spec, saved *SavedPlan) ([]study.Planned, error) {
	var out []study.Planned
	for _, p := range s.Points() {
		plan := saved.plan(len(out))
		if st, ok := kinds.Of(p.Spec).(study.Placer); ok && plan == nil {
			var err error
			if plan, err = st.Place(ctx, p.Spec); err != nil {
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
		err = drivers.Ousted(ctx, r.tb, err)
		if r.opt.Standing == nil {
			r.Progress("tear down", "", 0)
		}
		if err != nil && r.opt.KeepOnFailure != nil && r.tb != nil {
			r.opt.KeepOnFailure(ctx, r.tb, err)
		}
		err = errors.Join(err, r.closeTestbed(ctx), r.held.Hold.Journal.Close())
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
				err = r.keep() // what is measured is kept, whatever comes
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
		point.Findings = append(point.Findings, inspect.Broken(err)...)
	}
	point.DropUncompared()
	r.rec.AddSabotaged(point.Sabotaged)
	r.rec.Points = append(r.rec.Points, *point)
	r.done++
}

// touched are the hosts and switches that the placements of all points use, nil where they
// are decided while the experiment runs: it may be any then.
func touched(points []study.Planned, inv *inventory.Inventory) []string {
	var use []string
	for _, p := range points {
		st, ok := kinds.Of(p.Spec).(study.Settled)
		if !ok || p.Spec.Inventory().SHA256 != inv.SHA256 {
			return nil
		}
		hosts, switches := st.Uses(p, inv)
		use = slices.Concat(use, hosts, switches, remote.Use(inv, hosts))
	}
	return use
}

// asked is what the run asks of a lab's hosts: nothing that is known, where it is decided while the experiment runs.
func (r *run) asked(ctx context.Context) drivers.Asked {
	if r.spec.Unplanned() != nil {
		return drivers.Asked{}
	}
	points := make([]spec.Point, len(r.points))
	for i, p := range r.points {
		points[i] = p.Point
	}
	return drivers.Asking(r.opt.Tool, points, func() ([]study.PlanPoint, error) { return predicted(ctx, r.points) })
}

// check reports what an experiment, its inventory, or this machine, lacks for a driver.
func check(s *spec.Spec, driver string) error {
	if err := spec.CheckDriver(driver); err != nil {
		return err
	}
	for _, p := range s.Points() {
		if err := kinds.Of(p.Spec).Supports(driver); err != nil {
			return fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
	}
	return drivers.Check(s, driver)
}

func fabricOf(s *spec.Spec, driver string) study.FabricKey {
	k := study.FabricKey{
		Inventory: s.Inventory().SHA256, Kind: s.Emulation.Switch, Queue: s.Switch.Queue, Buffer: s.Switch.Buffer, ECN: s.Switch.ECN,
		Scale: spec.EmulationScale(s, driver), Trees: s.Kind().Trees,
	}
	if b, ok := kinds.Of(s).(study.Builder); ok {
		b.Build(&k, s, driver)
	}
	if k.Beat == 0 && driver == "netns" {
		k.Lanes = s.Switch.Lanes
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
	began := time.Now()
	pcap := ""
	if r.opt.Pcap {
		pcap = filepath.Join(r.dir.Path, "pcap")
		if err := os.MkdirAll(pcap, 0o755); err != nil {
			return err
		}
	}
	if r.held.Run = r.rec.ID; r.opt.Driver == "lab" && r.held.Hold.Journal == nil {
		var err error
		if r.held, err = r.opt.Hold.Begin(r.rec.ID, s, touched(r.points, s.Inventory())); err != nil {
			return err
		}
		r.held.Asked = r.asked(ctx)
	}
	r.held.Hold.Need = r.planned()
	tb, err := r.open(ctx, s, key, pcap)
	if looked := drivers.Looked(tb, err); len(looked) > 0 {
		r.rec.Preflight = looked // the last testbed's, where points need several
		for _, w := range results.PreflightWarnings(looked) {
			r.Warn(w)
		}
	}
	if err != nil {
		return err
	}
	r.tb, r.fabric = tb, key
	if len(r.rec.Topology.Nodes) > 0 {
		r.rec.Topology = drivers.Topology(tb.Inventory()) // rates as they are there
	}
	r.here = map[string]any{}
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
	return r.keep() // for who looks on while it goes on
}

// keep saves the record of a run that goes on. A full disk does not end it: for the last one there is room that is reserved.
func (r *run) keep() error {
	if err := r.dir.Save(r.rec); err != nil && !results.Full(err) {
		return err
	}
	return nil
}

// open brings up a testbed of the run's own, or takes the one that stays up.
func (r *run) open(ctx context.Context, s *spec.Spec, key study.FabricKey, pcap string) (testbed.Testbed, error) {
	if st := r.opt.Standing; st != nil {
		if t, ok := remote.Of(st.Testbed); ok {
			t.Uninterrupted()
		}
		r.Warn(fmt.Sprintf("on an emulation that is up since %s: what others do there meanwhile is not looked for", st.since.UTC().Format(time.RFC3339)))
		return st.Testbed, nil
	}
	r.Progress("bring up", "", 0)
	return drivers.Open(ctx, r.opt.Driver, s, key, pcap, r.held, r.opt.Slow)
}

func (r *run) closeTestbed(ctx context.Context) error {
	if r.opt.Standing != nil {
		r.tb = nil
	}
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

// judge decides the run's outcome. Cause is what interrupted it; nil: nothing did.
func (r *run) judge(cause, runErr error) {
	checks, outcome, reasons := results.Judge(r.rec.Expect, r.rec.Points, r.rec.Incomplete()...)
	r.rec.Checks, r.rec.Outcome, r.rec.Reasons = checks, outcome, nil
	add := func(reason string) {
		if !slices.Contains(r.rec.Reasons, reason) {
			r.rec.Reasons = append(r.rec.Reasons, reason)
		}
	}
	if cause != nil { // everything else came of it
		r.rec.Outcome = results.ErrorOutcome
		add(cause.Error())
	}
	if runErr != nil {
		r.rec.Outcome = results.ErrorOutcome
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
	r.status = Status{Stage: stage, Point: point, Done: r.done, Of: len(r.points) * r.opt.Repeats}
	if left > 0 {
		r.status.Until = time.Now().Add(left)
	}
	r.tell(nil)
}

// Watch implements study.Runner.
func (r *run) Watch(scene func() study.Scene) {
	if r.opt.Progress == nil && (r.dir == nil || !r.looking.due()) {
		return
	}
	s := scene()
	r.status.Jobs, r.status.Busy = s.Jobs, s.Busy
	r.tell(&s)
}

// tell reports the status to RunOptions.Progress and to onlookers; scene is that of the point, or nil.
func (r *run) tell(scene *study.Scene) {
	if r.opt.Progress != nil {
		r.opt.Progress(r.status)
	}
	if r.dir != nil {
		r.looking.tell(r.dir, r.status, scene)
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
		d += 300 * time.Millisecond
		p := &r.points[i%len(r.points)]
		if st, ok := kinds.Of(p.Spec).(study.Scheduled); ok {
			d += st.Lasts(p.Spec)
		}
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

package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/collectors"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/remote"
)

// Runner is what a bench has of the run that it belongs to.
type Runner interface {
	// Testbed is the testbed that is open.
	Testbed() testbed.Testbed
	// Driver is what the run is on, of spec.Drivers.
	Driver() string
	// ID is the run's.
	ID() string
	// Scale is how the testbed relates to the lab.
	Scale() results.Scale
	// Beat is the time for which the testbed's parts were built that matters to the study; see FabricKey.
	Beat() time.Duration
	// Journal is where changes of a lab are written down before they are made; nil elsewhere.
	Journal() *journal.Journal
	// Origin is when the run's clock began.
	Origin() time.Time
	// Progress says what is done, of which point, and how long that and what comes after it takes; 0: nobody knows.
	Progress(stage, point string, left time.Duration)
	// Watch offers the current scene of the stage and point that Progress was last called with. The function is called only
	// if its scene will be shown or written.
	Watch(func() Scene)
	// Timing adds the time since it began to what the record says that a stage took.
	Timing(stage string, began time.Time)
	// Warn adds a remark to the record, once.
	Warn(text string)
	// Left is how long this point and all after it are planned to take, by the experiment's own times.
	Left() time.Duration
	// Rest are the repeats of points that come after the one that is done now.
	Rest() []Bench
	// Sabotage gives the testbed the run's fault, which it has until end; that tells how often it acted.
	Sabotage(ctx context.Context) (end func() int64, err error)
	// Dir is the run's directory.
	Dir() *results.Dir
	// Calibrated puts what was calibrated into the record.
	Calibrated(found ...results.Calibration)
	// Known is what was measured once for all points; see Once.
	Known() map[string]any
	// Here is what was found out about the testbed that is open, and holds for no other; see Once.
	Here() map[string]any
	// Repeats is how often each point is measured.
	Repeats() int
	// Expect is what the run expects, in the testbed's units.
	Expect() []results.Expect
	// Clock is what a deployment's clock lacks to be the run's, in seconds.
	Clock(dep testbed.Deployment) float64
	// Deploy is the testbed's, but for what is slower there than anybody is told.
	Deploy(ctx context.Context, setup testbed.Setup) (testbed.Deployment, error)
	// Keep puts samples, on the run's clock, into the run's directory.
	Keep(samples ...results.Sample) error
	// Asks says whether predictors of others are asked about what is measured.
	Asks() bool
	// Ask puts what they say beside what was measured: of phases, and of all of them together.
	Ask(ctx context.Context, p Planned, req *predictor.Request, phases []results.Phase, whole *results.Phase)
}

// Scene is what happens while a point is measured.
type Scene struct {
	Jobs  []Moving           // those that run
	Busy  []Moving           // the links that carry most, of studies whose jobs do not say how fast they are
	Links map[string]float64 // bit/s that are predicted of them, by the links' names; nil: not known
	Next  string             // what happens next: "B begins"; empty: nothing that anybody knows
	In    time.Duration      // until that
}

// Moving is how fast a job is while it is measured.
type Moving struct {
	Job       string  // or a link
	Goodput   float64 // bit/s of gradients that a worker has reduced, over the last second or so; of a link, of frames
	Predicted float64 // bit/s, of the phase that it is in; 0: not known
}

// Unasked is the remark that predictors of others were not asked about a point of these labels, and why.
func Unasked(labels []string, why string) string {
	return spec.Prefix(labels) + "external predictors were not asked: " + why
}

// Bench is what a study has of a run while it does one repeat of a point: the testbed that is open, the
// run's clock, a place for all that it reads and hears, and what was calibrated before.
type Bench struct {
	Runner
	Planned
	Repeat int
	Placed Placed // what the run looks at when the study is done
}

// Hosts is the testbed where processes can be started on its hosts; what says what needs that.
func (b *Bench) Hosts(what string) (*remote.Testbed, error) {
	tb, ok := remote.Of(b.Testbed())
	if !ok {
		return nil, fmt.Errorf("%s on a %s: %w", what, b.Testbed().Capabilities().Switch, errors.ErrUnsupported)
	}
	return tb, nil
}

// Kind is the kind of figures that the testbed gives.
func (b *Bench) Kind() results.Kind { return b.Testbed().Capabilities().Kind }

// Seed is that of the repeat.
func (b *Bench) Seed() uint64 { return b.Spec.Measure.Seed + uint64(b.Repeat) }

// Now is the run's clock.
func (b *Bench) Now() time.Duration { return time.Since(b.Origin()) }

// Status says what is done, and how long that and what comes after it takes; 0: nobody knows.
func (b *Bench) Status(stage string, left time.Duration) {
	b.Progress(stage, spec.Labels(b.Labels), left)
}

// Countdown says how long the run still takes, if each point and repeat takes so long and this one begins now.
func (b *Bench) Countdown(each time.Duration) func() time.Duration {
	end, rest := time.Now().Add(each), time.Duration(len(b.Rest()))*each
	return func() time.Duration { return max(0, time.Until(end)) + rest }
}

// Path is that of a file in the run directory, for others to write.
func (b *Bench) Path(elem ...string) string {
	return filepath.Join(append([]string{b.Dir().Path}, elem...)...)
}

// Told is which repeat of which point a line of a file is of.
type Told struct {
	Point  string `json:"point"`
	Repeat int    `json:"repeat"`
}

// Told begins a line of a file that is about this repeat.
func (b *Bench) Told() Told { return Told{spec.Labels(b.Labels), b.Repeat} }

// Lines adds n lines of JSON to a file of the run directory.
func (b *Bench) Lines(file string, n int, line func(i int) any) error {
	f, err := bounded.OpenFile(b.Path(file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	for i := range n {
		if err := e.Encode(line(i)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// Once is what f made the first time that a run asked for the key without an error, kept in what the run knows.
func Once[T any](known map[string]any, key string, f func() (T, error)) (T, error) {
	if v, ok := known[key].(T); ok {
		return v, nil
	}
	v, err := f()
	if err == nil {
		known[key] = v
	}
	return v, err
}

// calibration is where troubles of one are.
const calibration = "calibration"

// calibrations is how often one is measured at most.
const calibrations = 4

// Calibrate calls measure until no trouble of the testbed's own has spoilt what it measured, four times at most: where
// a machine stands still while it is calibrated, that costs seconds and not the run. It returns the troubles of the last
// time, as those of a calibration, with a remark of what was left out.
func Calibrate(measure func() ([]results.Trouble, error)) ([]results.Trouble, error) {
	var left []string
	for {
		troubles, err := measure()
		spoilt := slices.IndexFunc(troubles, func(t results.Trouble) bool { return t.Fatal })
		if err == nil && spoilt >= 0 && len(left) < calibrations-1 {
			left = append(left, troubles[spoilt].String())
			continue
		}
		for i := range troubles {
			troubles[i].Where = calibration + ": " + troubles[i].Where
			if troubles[i].Code == results.CodeCounters {
				troubles[i].Code = "" // nobody counts what calibrates
			}
		}
		if len(left) > 0 {
			troubles = append(troubles, results.Trouble{Where: calibration, What: fmt.Sprintf("measured %d times; left out, as %s", len(left)+1, strings.Join(left, ", and "))})
		}
		return troubles, err
	}
}

// Assumed is the trouble of a calibration that made no sense: instead holds what is assumed ("what the inventory declares").
func Assumed(err error, instead string) results.Trouble {
	return results.Trouble{Where: calibration, What: err.Error() + ": " + instead + " is assumed", Fatal: true}
}

// WatchStalls collects the stalls that the testbed and its processes have from now on.
func (b *Bench) WatchStalls(ctx context.Context, tb *remote.Testbed) (*Stillness, error) {
	return WatchStalls(ctx, func(ctx context.Context) ([]testbed.Stall, error) { return tb.Stalls(ctx, b.Origin()) }, 0)
}

// Sampler reads a testbed's counters while a study runs on it, and keeps what it reads.
type Sampler struct {
	*collectors.Sampler
	bench *Bench
	Links *LinkLoads
	Still *Stillness           // nil: nobody looks for stalls
	Names map[string]string    // of counters of what is handed over, as Placed.Keep takes them; nil: none is kept
	Left  func() time.Duration // nil: the status stays as it is
	// Lenient says that counters that cannot be read are a remark and no error.
	Lenient, unread bool
}

// Sampler reads the counters of a testbed; jobs are its jobs' names by number, as switches count them.
func (b *Bench) Sampler(ctx context.Context, tb *remote.Testbed, jobs map[int]string) (*Sampler, error) {
	counters, err := tb.Counters(ctx, b.Now, jobs)
	return &Sampler{Sampler: counters, bench: b, Links: newLinkLoads(b.Testbed())}, err
}

// Read is one reading; reports are what jobs said themselves since the last one.
func (s *Sampler) Read(ctx context.Context, reports ...results.Sample) error {
	if s.Left != nil {
		s.bench.Status("measure", s.Left())
	}
	read, err := s.Sample(ctx)
	s.Links.keep(read)
	if s.Lenient && err != nil && ctx.Err() == nil {
		if !s.unread {
			s.bench.Warn("counters: " + strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		s.unread, err = true, nil
	}
	s.bench.Watch(func() Scene { return Scene{Busy: s.Links.busiest()} })
	read = slices.Concat(reports, read)
	if s.Names != nil {
		s.bench.Placed.Keep(s.Names, read)
	}
	if s.Still != nil {
		err = errors.Join(err, s.Still.Read(ctx))
	}
	return errors.Join(err, s.bench.Keep(read...))
}

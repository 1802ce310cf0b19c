package experiments

import (
	"context"
	"errors"
	"time"

	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/journal"
)

// A run is what benches of studies have of it.

func (r *run) Testbed() testbed.Testbed  { return r.tb }
func (r *run) Driver() string            { return r.opt.Driver }
func (r *run) ID() string                { return r.rec.ID }
func (r *run) Scale() results.Scale      { return r.rec.Scale }
func (r *run) Beat() time.Duration       { return r.fabric.Beat }
func (r *run) Journal() *journal.Journal { return r.held.Hold.Journal }
func (r *run) Origin() time.Time         { return r.origin }
func (r *run) Dir() *results.Dir         { return r.dir }
func (r *run) Known() map[string]any     { return r.known }
func (r *run) Here() map[string]any      { return r.here }
func (r *run) Repeats() int              { return r.opt.Repeats }
func (r *run) Expect() []results.Expect  { return r.rec.Expect }

// Clock implements study.Runner. Deployments in virtual time come one after the other.
func (r *run) Clock(dep testbed.Deployment) float64 {
	if r.tb.Capabilities().Virtual {
		return r.virtualClock()
	}
	return (time.Since(r.origin) - dep.Now()).Seconds()
}

// Deploy implements study.Runner.
func (r *run) Deploy(ctx context.Context, setup testbed.Setup) (testbed.Deployment, error) {
	return r.tb.Deploy(ctx, r.opt.Slow.Workers(setup, r.tb.Inventory()))
}

// Keep implements study.Runner. Points that are measured side by side hand their samples over when they are done.
func (r *run) Keep(samples ...results.Sample) error {
	if r.dir == nil {
		r.kept = append(r.kept, samples...)
		return nil
	}
	err := r.dir.Append(samples...)
	if !r.tb.Capabilities().Virtual { // that takes milliseconds, and a flush for each
		err = errors.Join(err, r.dir.Flush()) // kept, whatever comes
	}
	return err
}

// Calibrated implements study.Runner.
func (r *run) Calibrated(found ...results.Calibration) {
	r.rec.Calibration = append(r.rec.Calibration, found...)
}

// Rest implements study.Runner.
func (r *run) Rest() (out []study.Bench) {
	for i := r.done + 1; i < len(r.points)*r.opt.Repeats; i++ {
		out = append(out, study.Bench{Runner: r, Planned: r.points[i%len(r.points)], Repeat: i / len(r.points)})
	}
	return out
}

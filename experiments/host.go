package experiments

import (
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
func (r *run) Journal() *journal.Journal { return r.held.hold.Journal }
func (r *run) Origin() time.Time         { return r.origin }
func (r *run) Dir() *results.Dir         { return r.dir }
func (r *run) Known() map[string]any     { return r.known }

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

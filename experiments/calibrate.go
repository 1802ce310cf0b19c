package experiments

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study/jobs"
	"github.com/inabench/inabench/results"
)

// MeasureBaseline brings a testbed up, measures its baseline for the placement of the
// spec's first point, and what its links really carry, and takes it down. A lab is held
// meanwhile.
func MeasureBaseline(ctx context.Context, driver string, s *spec.Spec, hold drivers.Holding, progress func(Status)) (cal []results.Calibration, err error) {
	if err := check(s, driver); err != nil {
		return nil, err
	}
	points, err := plans(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	p := points[0]
	if p.Plan == nil {
		return nil, fmt.Errorf("[%s] is calibrated within its runs alone, [[job]] tables also apart from them: %w", s.Kind().Table, errors.ErrUnsupported)
	}
	progress(Status{Stage: "bring up"})
	scale := spec.EmulationScale(s, driver)
	var held drivers.Held
	if driver == "lab" {
		if held, err = hold.Begin(rand.Text(), s, nil); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, held.Hold.Journal.Close()) }()
	}
	tb, err := drivers.Open(ctx, driver, p.Spec, fabricOf(p.Spec, driver), "", held, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tb.Close(ctx)) }()
	if !tb.Capabilities().Calibrates {
		return nil, fmt.Errorf("driver %s has nothing to calibrate: %w", driver, errors.ErrUnsupported)
	}
	return jobs.Calibrate(ctx, tb, p.Spec, p.Plan, scale, func(stage string) { progress(Status{Stage: stage}) })
}

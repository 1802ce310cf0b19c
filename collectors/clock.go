package collectors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/results/human"
)

// Clock relates another machine's clock to the run's, in seconds.
type Clock struct {
	Offset float64 // run's time = its time + Offset
	Error  float64 // Offset is right to within this, at the time of measuring
}

// RunTime converts a time of the other clock.
func (c Clock) RunTime(t float64) float64 { return t + c.Offset }

// How far a clock may be ahead of where it was when it was measured, s, and by what part of the
// time since; clocks drift by a tenth of that.
const (
	farAhead = 1.0
	drift    = 1e-3
)

// Future says what is wrong with a report that came at now and is of t, both in seconds of the
// run's clock, and by how much it is ahead; empty: nothing.
func Future(t, now float64) (ahead float64, why string) {
	if ahead = t - now; ahead <= farAhead+drift*now {
		return ahead, ""
	}
	return ahead, "reports from the future: its clock is " + human.Quantity(ahead, "s") + " ahead of what it was when it began"
}

// MeasureClock asks another machine for the time up to k times and keeps the answer
// that came back fastest: the clock was read at some moment of that round trip, so
// half of it bounds the error whatever way the delay was split. Clocks drift apart, by
// some 1e-5 of the time that passes: measure at the end of a long run again.
//
// now is the run's clock; ping returns the other machine's, in seconds. Pings that fail
// are left out if one does not.
func MeasureClock(ctx context.Context, k int, now func() time.Duration, ping func(context.Context) (float64, error)) (Clock, error) {
	var best Clock
	var errs []error
	answers := 0
	for range k {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		sent := now().Seconds()
		t, err := ping(ctx)
		received := now().Seconds()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if half := (received - sent) / 2; answers == 0 || half < best.Error {
			best = Clock{Offset: sent + half - t, Error: half}
		}
		answers++
	}
	if answers == 0 {
		return Clock{}, fmt.Errorf("measure clock: no answer to %d pings: %w", k, errors.Join(errs...))
	}
	return best, nil
}

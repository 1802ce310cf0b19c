package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/testbed"
)

// Standing is an emulation that stays up between runs. One at a time uses it: RunOptions.Standing.
type Standing struct {
	Testbed testbed.Testbed // the caller's to close

	since  time.Time
	key    study.FabricKey
	spec   *spec.Spec
	broken atomic.Pointer[string] // what happened to it
}

// ErrStanding is a run that an emulation which stays up is not right for, and ErrSpoilt that it is right for none any more.
var (
	ErrStanding = errors.New("the emulation that is up is another one")
	ErrSpoilt   = errors.New("the emulation that is up may not be what it was")
)

// Stand brings up the emulation that the first point of an experiment runs on.
func Stand(ctx context.Context, s *spec.Spec) (*Standing, error) {
	if err := check(s, "netns"); err != nil {
		return nil, err
	}
	first := s.Points()[0].Spec
	key := fabricOf(first, "netns")
	tb, err := drivers.Open(ctx, "netns", first, key, "", drivers.Held{}, nil)
	if err != nil {
		return nil, err
	}
	return &Standing{Testbed: tb, since: time.Now(), key: key, spec: first}, nil
}

// Factor is of its slow motion.
func (st *Standing) Factor() float64 { return st.spec.Emulation.Factor }

// suits is an error, wrapping ErrStanding, if a point needs another emulation.
func (st *Standing) suits(s *spec.Spec) error {
	if why := st.broken.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrSpoilt, *why)
	}
	want := fabricOf(s, "netns")
	if want.Lanes > st.key.Lanes && st.key.Lanes > 0 { // whoever is in time for shorter packets is for longer ones
		want.Lanes = st.key.Lanes
	}
	var other []string
	for _, d := range []struct {
		what      string
		has, want any
	}{
		{"inventory", st.key.Inventory, want.Inventory},
		{"emulation.switch", st.key.Kind, want.Kind},
		{"emulation.sshd", st.spec.Emulation.SSHD, s.Emulation.SSHD},
		{"emulation.offload", st.spec.Emulation.Offload, s.Emulation.Offload},
		{"emulation.scale", st.key.Scale.Mode, want.Scale.Mode},
		{"emulation.factor", st.key.Scale.Factor, want.Scale.Factor},
		{"switch.queue", st.key.Queue, want.Queue},
		{"switch.lanes", st.key.Lanes, want.Lanes},
		{"switch.buffer", st.key.Buffer, want.Buffer},
		{"switch.ecn", st.key.ECN, want.ECN},
		{"measure.seed", st.spec.Measure.Seed, s.Measure.Seed},
		{"measure.interval", st.spec.Measure.Interval, s.Measure.Interval},
		{"measure.patience", st.spec.Measure.Patience, s.Measure.Patience},
	} {
		switch {
		case d.has == d.want:
		case d.what == "inventory":
			other = append(other, "another inventory")
		default:
			other = append(other, fmt.Sprintf("%s = %v, not %v", d.what, d.want, d.has))
		}
	}
	if len(other) == 0 && (st.key != want || st.spec.Kind().Foreign != s.Kind().Foreign) {
		other = append(other, "something that its kind of study needs of the fabric")
	}
	if len(other) > 0 {
		return fmt.Errorf("%w: this experiment wants %s", ErrStanding, strings.Join(other, ", "))
	}
	return nil
}

// interrupted says whether an error, if there is one, is nothing else than an interruption.
func interrupted(err, cause error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(several.Unwrap(), func(e error) bool { return !interrupted(e, cause) })
	}
	if inner := errors.Unwrap(err); inner != nil {
		return interrupted(inner, cause)
	}
	return err == nil || cause != nil && (err == cause || err == context.Canceled)
}

// spoilt says that a run ended in a way that may have left something of it.
func (st *Standing) spoilt(run string, err error) {
	why := fmt.Sprintf("run %s: %v", run, err)
	st.broken.CompareAndSwap(nil, &why)
}

package spec

import (
	"errors"
	"fmt"

	"github.com/inabench/inabench/results"
)

// ErrInput is wrapped by errors about what the user asked for that only show when
// a plan is made: exit code 3.
var ErrInput = errors.New("invalid input")

// Invalid wraps ErrInput around an error without a word of it: what is wrong says enough.
func Invalid(err error) error { return invalid{err} }

// Invalidf is Invalid of an error as fmt.Errorf makes it.
func Invalidf(format string, args ...any) error { return Invalid(fmt.Errorf(format, args...)) }

// invalid is what Invalid makes.
type invalid struct{ error }

func (e invalid) Unwrap() error        { return e.error }
func (e invalid) Is(target error) bool { return target == ErrInput }

// EmulationScale is how a driver relates to the lab: only netns changes scale, the
// model and the lab are the lab's own.
func EmulationScale(s *Spec, driver string) results.Scale {
	if driver != "netns" || s.Emulation.Scale == "none" {
		return results.Scale{Mode: "none", Factor: 1}
	}
	return results.Scale{Mode: s.Emulation.Scale, Factor: s.Emulation.Factor}
}

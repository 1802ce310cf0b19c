package testbed

import "fmt"

// Controlled is the error of a switch that somebody else controls, as err says: it wraps ErrBusy and says what to do.
func Controlled(sw string, err error) error { return &busyError{sw, err} }

// busyError is a switch that someone else controls.
type busyError struct {
	name string
	err  error
}

func (e *busyError) Error() string   { return fmt.Sprintf("%v: %v", ErrBusy, e.err) }
func (e *busyError) Unwrap() []error { return []error{ErrBusy, e.err} }

// Hint is what to do about it.
func (e *busyError) Hint() string {
	return "wait until the other run has ended; if it hangs, `inabench clean --force -i LAB.toml` takes switch " + e.name + " over"
}

// Leftover marks what could not be undone: the error wraps ErrLeftovers and says what to do. nil stays nil.
func Leftover(err error) error {
	if err == nil {
		return nil
	}
	return &leftoverError{err}
}

// leftoverError is something that a teardown could not undo.
type leftoverError struct{ err error }

func (e *leftoverError) Error() string   { return fmt.Sprintf("%v: %v", ErrLeftovers, e.err) }
func (e *leftoverError) Unwrap() []error { return []error{ErrLeftovers, e.err} }

// Hint is what to do about it.
func (e *leftoverError) Hint() string {
	return "once what is left answers again, and nobody else has it: inabench clean"
}

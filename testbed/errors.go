package testbed

import "fmt"

// marked is an error that wraps one of this package's, and says what to do.
type marked struct {
	as, err error
	hint    string
}

func (e *marked) Error() string   { return fmt.Sprintf("%v: %v", e.as, e.err) }
func (e *marked) Unwrap() []error { return []error{e.as, e.err} }

// Hint is what to do about it.
func (e *marked) Hint() string { return e.hint }

// Controlled is the error of a switch that somebody else controls, as err says: it wraps ErrBusy and says what to do.
func Controlled(sw string, err error) error {
	return &marked{ErrBusy, err, "wait until the other run has ended; if it hangs, `inabench clean --force -i LAB.toml` takes switch " + sw + " over"}
}

// Foreign is the error of a switch that runs somebody else's program, as err says: it wraps ErrBusy and says what to do.
func Foreign(sw string, err error) error {
	return &marked{ErrBusy, err, "ask whose it is. With replace_program = true for switch " + sw + " in the inventory a run loads its own, and puts that back at its end if its server gives it whole; entries of it are lost"}
}

// Leftover marks what could not be undone: the error wraps ErrLeftovers and says what to do. nil stays nil.
func Leftover(err error) error {
	if err == nil {
		return nil
	}
	return &marked{ErrLeftovers, err, "once what is left answers again, and nobody else has it: inabench clean"}
}

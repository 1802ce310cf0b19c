// Package blame says which part of a testbed an error is about, so that nobody has to look for names in its
// text: Host and Switch make such errors, OnHost those of a process, Of finds the part that an error names first, and
// Cause has the error without the name. Errors of other packages take part by a method Blames, as Part's.
package blame

import "fmt"

// The kinds of part.
const (
	KindHost   = "host"
	KindSwitch = "switch"
)

// Part is a host or a switch.
type Part struct {
	Kind string `json:"kind"` // KindHost or KindSwitch
	Node string `json:"node"` // its name in the inventory
}

// Blames is the part that an error is about.
func (p Part) Blames() Part { return p }

// Host is an error of a host, "host h1: " and what went wrong. It is err itself where that says so already, and
// nil where nothing went wrong.
func Host(name string, err error) error { return at(Part{KindHost, name}, err) }

// Switch is the same of a switch.
func Switch(name string, err error) error { return at(Part{KindSwitch, name}, err) }

func at(p Part, err error) error {
	if err == nil || says(err) == p {
		return err
	}
	return &partError{p, p.begin(), err}
}

// begin is how the text of Host and Switch begins.
func (p Part) begin() string { return p.Kind + " " + p.Node + ": " }

// Cause is what Host or Switch was given to make an error about a part, without the part's name; not ok of any other
// error.
func Cause(p Part, err error) (cause error, ok bool) {
	if e, made := err.(*partError); made && e.Part == p && e.prefix == p.begin() {
		return e.err, true
	}
	return nil, false
}

// OnHost is an error of a process: "worker A/0 on host h1: " and what went wrong.
func OnHost(process, host string, err error) error {
	if err == nil {
		return nil
	}
	return &partError{Part{KindHost, host}, process + " on ", Host(host, err)}
}

// About is an error of a part whose text is left as it is: that of another process, which named the part.
func About(p Part, err error) error {
	if err == nil || p == (Part{}) {
		return err
	}
	return &partError{p, "", err}
}

// partError is an error of a part.
type partError struct {
	Part
	prefix string
	err    error
}

func (e *partError) Error() string { return fmt.Sprint(e.prefix, e.err) }
func (e *partError) Unwrap() error { return e.err }

// says is the part that an error itself is about, not those that it wraps.
func says(err error) Part {
	if b, ok := err.(interface{ Blames() Part }); ok {
		return b.Blames()
	}
	return Part{}
}

// Of is the part that an error is about: of several errors in one, that of the first that says so; of one
// around another, that of the outer one. It is the zero Part where none does.
func Of(err error) Part {
	for err != nil {
		if p := says(err); p != (Part{}) {
			return p
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range x.Unwrap() {
				if p := Of(e); p != (Part{}) {
					return p
				}
			}
			return Part{}
		default:
			return Part{}
		}
	}
	return Part{}
}

package dataplane

import "errors"

var (
	// ErrForeign is wrapped when a switch runs a program of somebody else, and nobody has said that it may be replaced.
	ErrForeign = errors.New("the switch runs a program of somebody else")
	// ErrUntold is wrapped when a server does not tell what its switch runs.
	ErrUntold = errors.New("the server does not tell what the switch runs")
)

// Foreign is a program that a switch runs and that is none of INA.
type Foreign struct {
	Name string // as the server or the p4info calls it, see p4.Printable; not empty
	// Config is what Switch.Restore takes; empty: the server does not give the program whole. Entries, and how ports are set
	// up, are no part of it.
	Config []byte
}

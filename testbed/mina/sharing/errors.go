package sharing

import "errors"

// ErrClosed is what a Decider returns that has been closed.
var ErrClosed = errors.New("sharing of INA has ended for this host")

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

// Error is a call that a switch refused or did not answer.
type Error struct {
	Switch  string
	Op      string        // what was being done, such as "write"
	Code    codes.Code    // of the call, or of the first refused update
	Updates []UpdateError // updates of a batch that were refused; the others were applied
	Err     error
}

// UpdateError is one refused update of a batch.
type UpdateError struct {
	Op      string // such as "insert job 7"
	Code    codes.Code
	Message string // the switch's own words
}

func (u UpdateError) String() string { return fmt.Sprintf("%s: %s: %s", u.Op, u.Code, u.Message) }

// Error names the switch, and of several refused updates the first few.
func (e *Error) Error() string {
	const shown = 3
	if len(e.Updates) == 0 {
		return fmt.Sprintf("switch %s: %s: %v", e.Switch, e.Op, e.Err)
	}
	var s []string
	for i, u := range e.Updates {
		if i == shown {
			s = append(s, fmt.Sprintf("and %d more", len(e.Updates)-shown))
			break
		}
		s = append(s, u.String())
	}
	return fmt.Sprintf("switch %s: %s: %s", e.Switch, e.Op, strings.Join(s, "; "))
}

// Is makes a call that ended with its context look like it, which gRPC's status does
// not by itself, and what a server has not implemented like errors.ErrUnsupported.
func (e *Error) Is(target error) bool {
	return target == errors.ErrUnsupported && e.Code == codes.Unimplemented ||
		target == context.Canceled && e.Code == codes.Canceled ||
		target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded
}

// Hint is what to do about it, or "".
func (e *Error) Hint() string {
	if h := (interface{ Hint() string })(nil); errors.As(e.Err, &h) {
		return h.Hint()
	}
	return ""
}

// Unwrap returns the underlying error: a gRPC status, a context's error or one of
// this package's sentinels.
func (e *Error) Unwrap() error { return e.Err }

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/blame"
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

// Refused is the *Error of a batch, and nil if nothing in it was refused.
func Refused(name, op string, us []UpdateError) error {
	if len(us) == 0 {
		return nil
	}
	return &Error{Switch: name, Op: op, Code: us[0].Code, Updates: us, Err: status.Error(us[0].Code, us[0].Message)}
}

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

// Blames is the switch.
func (e *Error) Blames() blame.Part { return blame.Part{Kind: blame.KindSwitch, Node: e.Switch} }

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

// Hinted is an error that knows what to do about it.
type Hinted struct {
	Err    error
	Advice string
}

func (e *Hinted) Error() string { return e.Err.Error() }
func (e *Hinted) Unwrap() error { return e.Err }

// Hint is what to do about it.
func (e *Hinted) Hint() string { return e.Advice }

// Plain takes gRPC's wrapping off an error's text, and keeps its code for status.FromError.
func Plain(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the switch closed the stream")
	}
	if e, ok := err.(interface{ GRPCStatus() *status.Status }); ok { // not one around it, which says more
		return rpcError{e.GRPCStatus()}
	}
	return err
}

// Dialing is the part of a failed connection's text that tells a person something.
func Dialing(err error) string {
	s := status.Convert(err).Message()
	if _, after, ok := strings.Cut(s, "Error while dialing: "); ok {
		s = strings.TrimSuffix(after, `"`)
	}
	return s
}

type rpcError struct{ st *status.Status }

func (e rpcError) Error() string              { return e.st.Code().String() + ": " + e.st.Message() }
func (e rpcError) GRPCStatus() *status.Status { return e.st }

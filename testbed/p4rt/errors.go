package p4rt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
// not by itself.
func (e *Error) Is(target error) bool {
	return target == context.Canceled && e.Code == codes.Canceled ||
		target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded
}

// Unwrap returns the underlying error: a gRPC status, a context's error or one of
// this package's sentinels.
func (e *Error) Unwrap() error { return e.Err }

func (c *Client) fail(op string, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &Error{Switch: c.name, Op: op, Code: status.Code(err), Err: plain(err)}
}

// plain takes gRPC's wrapping off an error's text, and keeps its code for
// status.FromError.
func plain(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the switch closed the stream")
	}
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	return rpcError{st}
}

type rpcError struct{ st *status.Status }

func (e rpcError) Error() string              { return e.st.Code().String() + ": " + e.st.Message() }
func (e rpcError) GRPCStatus() *status.Status { return e.st }

// results returns the code and message of each of n updates of a Write that ended
// with err. ok is false when the call failed as a whole.
func results(err error, n int) (res []*p4v1.Error, ok bool) {
	res = make([]*p4v1.Error, n)
	for i := range res {
		res[i] = &p4v1.Error{} // OK: BMv2 leaves out what follows the last failure
	}
	if err == nil {
		return res, true
	}
	details := status.Convert(err).Proto().GetDetails()
	if len(details) == 0 || len(details) > n {
		return nil, false
	}
	failed := false
	for i, d := range details {
		if d.UnmarshalTo(res[i]) != nil {
			return nil, false
		}
		failed = failed || res[i].GetCanonicalCode() != int32(codes.OK)
	}
	return res, failed
}

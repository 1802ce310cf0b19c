package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/inabench/inabench/internal/blame"
)

// Error is trouble with reaching a host.
type Error struct {
	Host    string
	Address string
	Kind    error // ErrUnreachable, ErrLost, ErrNotRoot, or one of the launcher
	Err     error // the cause
	Hint    string
}

func (e *Error) Error() string {
	at := e.Host
	if e.Address != "" && e.Address != e.Host {
		at += " (" + e.Address + ")"
	}
	return fmt.Sprintf("host %s: %v: %v", at, e.Kind, e.Err)
}

// Unwrap makes both the kind and the cause visible to errors.Is.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// Blames is the host.
func (e *Error) Blames() blame.Part { return blame.Part{Kind: blame.KindHost, Node: e.Host} }

// Reason is why a host cannot be asked, without its name and its address: hosts that fail alike have the same. Of a
// host that others are behind, name and address stay.
func Reason(host string, err error) string {
	switch e := err.(type) {
	case *Error:
		if e.Host == host {
			return fmt.Sprintf("%v: %s", e.Kind, unaddressed(e.Err))
		}
	case *RunError:
		if e.Host == host {
			own := *e
			own.Host = ""
			return own.Error()
		}
	}
	if cause, ok := blame.Cause(blame.Part{Kind: blame.KindHost, Node: host}, err); ok {
		return Reason(host, cause)
	}
	return err.Error()
}

// unaddressed is what an error says, without the addresses of the connection that it is about.
func unaddressed(err error) string {
	op := (*net.OpError)(nil)
	if !errors.As(err, &op) {
		return err.Error()
	}
	why := op.Err.Error()
	if dns := (*net.DNSError)(nil); errors.As(op.Err, &dns) {
		why = "lookup: " + dns.Err
	}
	return strings.Replace(err.Error(), op.Error(), op.Op+" "+op.Net+": "+why, 1)
}

// RunError is a program that ran on a host and did not succeed.
type RunError struct {
	Host   string // empty: this machine
	Argv   []string
	Exit   int    // exit status; 128 plus the signal's number where there was one
	Signal string // without SIG: "KILL"; empty: it exited
	Stderr string // its last 2 KiB
}

func (e *RunError) Error() string {
	end := fmt.Sprintf("exit status %d", e.Exit)
	if e.Signal != "" {
		end = "killed by SIG" + e.Signal
	}
	msg := fmt.Sprintf("%s: %s", Abbreviate(e.Argv), end)
	if e.Host != "" {
		msg = fmt.Sprintf("host %s: %s", e.Host, msg)
	}
	if e.Stderr != "" {
		msg += ": " + e.Stderr
	}
	return msg
}

// Blames is the host; nobody, where that is this machine.
func (e *RunError) Blames() blame.Part {
	if e.Host == "" {
		return blame.Part{}
	}
	return blame.Part{Kind: blame.KindHost, Node: e.Host}
}

// Name makes sure that an error names the host; "" is this machine, which needs none.
func Name(host string, err error) error {
	if host == "" || err == nil {
		return err
	}
	if blame.Of(err) == (blame.Part{Kind: blame.KindHost, Node: host}) {
		return err
	}
	return blame.Host(host, err)
}

// Abbreviate shows enough of a command to recognise it.
func Abbreviate(argv []string) string {
	s := []rune(strings.Join(argv, " "))
	if len(s) > 80 {
		s = append(s[:77], []rune("...")...)
	}
	return string(s)
}

// Tail keeps the end of a stream for error messages: 2 KiB of it.
type Tail struct{ buf []byte }

const tailBytes = 2048

// Write implements io.Writer. It has no error.
func (t *Tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if n := len(t.buf); n > 2*tailBytes {
		t.buf = append(t.buf[:0], t.buf[n-tailBytes:]...)
	}
	return len(p), nil
}

// String is the end, without white space around it.
func (t *Tail) String() string {
	b := t.buf[max(0, len(t.buf)-tailBytes):]
	return strings.ToValidUTF8(string(bytes.TrimSpace(b)), "?")
}

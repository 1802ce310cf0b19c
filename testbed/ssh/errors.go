package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/inabench/inabench/internal/blame"
)

// What can be wrong with a connection. An *Error wraps one of them.
var (
	// ErrUnreachable: no TCP connection, or no SSH handshake over it in time.
	ErrUnreachable = errors.New("unreachable")
	// ErrHostKey: the host's key is unknown, or not the known one.
	ErrHostKey = errors.New("host key not verified")
	// ErrAuth: the host does not let this user in with these keys.
	ErrAuth = errors.New("permission denied")
	// ErrConfig: the user's ssh_config says what cannot be followed.
	ErrConfig = errors.New("ssh_config")
	// ErrNotRoot: the user is not root there, and may not become it without a password.
	ErrNotRoot = errors.New("no root")
	// ErrLost: the connection ended while it was in use.
	ErrLost = errors.New("connection lost")
)

// Error is trouble with the connection to a host.
type Error struct {
	Host    string // Target.Name
	Address string
	Kind    error // ErrUnreachable, ErrHostKey, ErrAuth, ErrConfig, ErrNotRoot or ErrLost
	Err     error // the cause
	Hint    string
}

func (e *Error) Error() string {
	at := e.Host
	if e.Address != e.Host {
		at += " (" + e.Address + ")"
	}
	return fmt.Sprintf("host %s: %v: %v", at, e.Kind, e.Err)
}

// Unwrap makes both the kind and the cause visible to errors.Is.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// Blames is the host.
func (e *Error) Blames() blame.Part { return blame.Part{Kind: blame.KindHost, Node: e.Host} }

// RunError is a remote command that ran and did not succeed.
type RunError struct {
	Host   string
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
	msg := fmt.Sprintf("host %s: %s: %s", e.Host, abbreviate(e.Argv), end)
	if e.Stderr != "" {
		msg += ": " + e.Stderr
	}
	return msg
}

// Blames is the host.
func (e *RunError) Blames() blame.Part { return blame.Part{Kind: blame.KindHost, Node: e.Host} }

// named makes sure that err names the host.
func named(host string, err error) error {
	if blame.Of(err) == (blame.Part{Kind: blame.KindHost, Node: host}) {
		return err
	}
	return blame.Host(host, err)
}

// abbreviate shows enough of a command to recognise it.
func abbreviate(argv []string) string {
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

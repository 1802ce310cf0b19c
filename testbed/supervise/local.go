package supervise

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// local is a supervisor on this machine, with what it is told.
type local struct {
	cmd    *exec.Cmd
	stdin  *beater
	line   []byte  // the config
	parsed *Config // as the supervisor reads it
	diag   hosts.Tail
}

// newLocal is a supervisor that is not started yet. The end of ctx ends its program: by the end of its stdin and by
// SIGTERM, each with the config's grace, and then by SIGKILL.
func newLocal(ctx context.Context, c Config) (*local, error) {
	line, parsed, err := c.encode()
	if err != nil {
		return nil, err
	}
	l := &local{cmd: exec.CommandContext(ctx, "/proc/self/exe", Verb), line: line, parsed: parsed}
	l.cmd.Stderr = &l.diag
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // who interrupts this process does not end it behind its back
	in, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	l.stdin = newBeater(in)
	l.cmd.Cancel = l.stdin.Close
	l.cmd.WaitDelay = 2*seconds(parsed.Grace) + time.Second // then it is killed, and the program with it
	return l, nil
}

// how is the end of the supervisor as that of its program, with the end of what that wrote to stderr.
func (l *local) how(err error) (said string, _ error) {
	said, own, has := cutLast(l.diag.String(), prefix)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return said, err
	}
	e := exitOf(l.parsed.Name, exit.ExitCode())
	if e.Signal == 0 && has { // the supervisor's own
		return said, errors.New(strings.TrimPrefix(own, l.parsed.Name+": "))
	}
	return said, e
}

// Output runs a program on this machine under a supervisor of its own, and returns what it writes to stdout, as
// bounded.Output does: at most limit bytes; and the end of what it writes to stderr, as hosts.Tail keeps it. When it
// returns, the program has ended and so has all that it started, in sessions of their own or not. The main
// function of this process must answer Verb with Play.
//
// The end of ctx ends the program: by the end of its stdin and by SIGTERM, each with the config's grace, and then by
// SIGKILL. A program that did not succeed is an *ExitError.
func Output(ctx context.Context, c Config, limit int64) (out []byte, said string, err error) {
	l, err := newLocal(ctx, c)
	if err != nil {
		return nil, "", err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		if _, err := l.stdin.Write(l.line); err == nil {
			l.stdin.beat(l.parsed.Lease, ended)
		}
	}()
	out, err = bounded.Output(l.cmd, limit)
	said, err = l.how(err)
	return out, said, err
}

// Explain is an error about a program that somebody named, with its arguments and the end of what it wrote to stderr.
func Explain(what string, argv []string, err error, said string) error {
	err = fmt.Errorf("%s: %s: %w", what, strings.Join(argv, " "), err)
	if said = strings.TrimSpace(said); said != "" {
		err = fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// Dialogue is a program on this machine that is spoken with line by line. It is not safe for concurrent use.
type Dialogue struct {
	*local
	told   chan []byte // lines on their way to it
	stdout *os.File    // this end of its pipe
	lines  *bufio.Reader
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing is left of the program
	said   string        // the end of its stderr; valid once ended is closed
	err    error         // how it ended; the same
}

// Converse starts a program on this machine under a supervisor of its own, as Output does, and leaves its stdin open.
// Whoever has started it calls End; the end of ctx ends it, too.
func Converse(ctx context.Context, c Config) (*Dialogue, error) {
	c.Relay = true
	within, cancel := context.WithCancel(ctx)
	d, err := converse(within, c)
	if err != nil {
		cancel()
		return nil, err
	}
	d.cancel = cancel
	go func() {
		defer close(d.ended)
		d.said, d.err = d.how(d.cmd.Wait())
		switch {
		case ctx.Err() != nil:
			d.err = context.Cause(ctx)
		case errors.Is(d.err, context.Canceled): // by End
			d.err = nil
		}
	}()
	go d.stdin.beat(d.parsed.Lease, d.ended)
	go d.write()
	return d, nil
}

// converse starts the supervisor and says what it has to do.
func converse(ctx context.Context, c Config) (*Dialogue, error) {
	l, err := newLocal(ctx, c)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.cmd.Stdout = w
	err = l.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%s: %w", l.parsed.Name, err)
	}
	_, _ = l.stdin.Write(l.line) // one that has ended does not read it, and Hear says so
	return &Dialogue{
		local: l, told: make(chan []byte, unheard), stdout: r, lines: bufio.NewReader(r), ended: make(chan struct{}),
	}, nil
}

// unheard is how many lines may be told before one is heard.
const unheard = 16

// write passes on what the program is told. It has a goroutine of its own, as a supervisor that is stopped reads nothing.
func (d *Dialogue) write() {
	for {
		select {
		case line := <-d.told:
			_, _ = d.stdin.Write(line)
		case <-d.ended:
			return
		}
	}
}

// Tell writes a line to the program. It does not wait until that is read: of one that never reads Hear says so.
func (d *Dialogue) Tell(line []byte) {
	select {
	case d.told <- append(slices.Clip(line), '\n'):
	case <-d.ended:
	}
}

// settling is how long a program may take to end after it has closed its stdout, until it is asked to.
const settling = 2 * time.Second

// Hear is the next line that the program writes to stdout, without its end. The error is os.ErrDeadlineExceeded where
// it does not come in time, wraps bounded.ErrTooLarge where it is longer than limit bytes, and is io.EOF where the
// program has closed its stdout, or io.ErrUnexpectedEOF where it did so within a line. As a rule it has ended: End says how.
func (d *Dialogue) Hear(within time.Duration, limit int) ([]byte, error) {
	if err := d.stdout.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	line, err := bounded.ReadLine(d.lines, limit)
	if errors.Is(err, io.EOF) {
		select {
		case <-d.ended:
		case <-time.After(settling):
		}
		if len(line) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, io.EOF
	}
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// End ends the program and all that it started, as the end of a context does, and returns the end of what it wrote to
// stderr. The error is an *ExitError of one that did not succeed by itself, or the cause of the context of Converse.
func (d *Dialogue) End() (said string, err error) {
	d.cancel()
	<-d.ended
	d.stdout.Close()
	return d.said, d.err
}

// prefix is what a supervisor's own line on stderr begins with.
const prefix = "inabench " + Verb + ": "

// cutLast takes off the last line of a text, if it begins with a prefix.
func cutLast(text, prefix string) (before, line string, ok bool) {
	at := strings.LastIndex("\n"+text, "\n"+prefix)
	if at < 0 {
		return text, "", false
	}
	return text[:at], strings.TrimSpace(text[at+len(prefix):]), true
}

// Play is Main for a main function: it says on stderr what was wrong, and returns the status to exit with, the
// program's own or, where it could not be run, failed.
func Play(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, failed int) int {
	err := Main(ctx, stdin, stdout)
	var program *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &program):
		if program.Signal != 0 { // otherwise it has said itself what was wrong
			fmt.Fprintf(stderr, "%s%v\n", prefix, err)
		}
		return program.ExitCode()
	}
	fmt.Fprintf(stderr, "%s%v\n", prefix, err)
	return failed
}

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// Output runs a program on this machine under a supervisor of its own, and returns what it writes to stdout, as
// bounded.Output does: at most limit bytes; and the end of what it writes to stderr, as hosts.Tail keeps it. When it
// returns, the program has ended and so has all that it started, in sessions of their own or not. The main
// function of this process must answer Verb with Play.
//
// The end of ctx ends the program: by the end of its stdin and by SIGTERM, each with the config's grace, and then by
// SIGKILL. A program that did not succeed is an *ExitError.
func Output(ctx context.Context, c Config, limit int64) (out []byte, said string, err error) {
	line, parsed, err := c.encode()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", Verb)
	var diag hosts.Tail
	cmd.Stderr = &diag
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // who interrupts this process does not end it behind its back
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	b := newBeater(in)
	cmd.Cancel = b.Close
	cmd.WaitDelay = 2*seconds(parsed.Grace) + time.Second // then it is killed, and the program with it
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		if _, err := b.Write(line); err == nil {
			b.beat(parsed.Lease, ended)
		}
	}()
	out, err = bounded.Output(cmd, limit)
	said, own, has := cutLast(diag.String(), prefix)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return out, said, err
	}
	e := exitOf(parsed.Name, exit.ExitCode())
	if e.Signal == 0 && has { // the supervisor's own
		return out, said, errors.New(strings.TrimPrefix(own, parsed.Name+": "))
	}
	return out, said, e
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

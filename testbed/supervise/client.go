package supervise

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// DefaultLease is how long a program may run without a sign of whoever started it, s: longer
// than a connection takes to be found dead, so that it is not the program that is blamed.
const DefaultLease = 20

// beatsPerLease is how often a lease is renewed: some may be late.
const beatsPerLease = 4

// Start starts a program on a host under a supervisor, which is exe there: this program, as
// hosts.EnsureFile copied it. The lease is DefaultLease unless the config says otherwise, and is
// renewed until the program ends, its Stdin is closed, or the connection or this process is
// gone. The process's Stdin takes whole lines, if the config says Relay, and none otherwise;
// closing it ends the program and all its descendants. Its end is that of the program: a
// *hosts.RunError says how it ended, with the end of its stderr, or why the supervisor ended it.
//
// ctx ends the process as that of ssh.Client.Start does.
func Start(ctx context.Context, client hosts.Host, exe string, c Config) (*hosts.Process, error) {
	line, parsed, err := c.encode()
	if err != nil {
		return nil, err
	}
	stderr := c.Stderr
	if stderr == nil {
		stderr = io.Discard
	}
	p, err := client.Start(ctx, []string{exe, Verb}, stderr)
	if err != nil {
		return nil, err
	}
	if _, err := p.Stdin.Write(line); err != nil {
		// Why it does not read is what counts.
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Name, err), p.Close())
	}
	b := newBeater(p.Stdin)
	p.Stdin = b
	go b.beat(parsed.Lease, p.Done())
	return p, nil
}

// encode is the config as a line for a supervisor, and as that reads it.
func (c Config) encode() (line []byte, parsed *Config, err error) {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	if line, err = json.Marshal(c); err != nil {
		return nil, nil, err
	}
	if parsed, err = parseConfig(line); err != nil {
		return nil, nil, err
	}
	return append(line, '\n'), parsed, nil
}

// Why is how a program ended, for people, out of the error of a process that Start has
// returned: as it says it itself at the end of its stderr, or its supervisor does. An error
// that is not of such a process stays as it is.
func Why(err error) error {
	var e *hosts.RunError
	if !errors.As(err, &e) || len(e.Argv) != 2 || e.Argv[1] != Verb {
		return err
	}
	return &programError{e}
}

// programError is a supervised program that did not succeed.
type programError struct{ run *hosts.RunError }

func (e *programError) Error() string {
	at, end := "host "+e.run.Host+": ", ""
	switch {
	case e.run.Signal != "":
		end = "killed by SIG" + e.run.Signal + ", with its supervisor"
	case exitOf("", e.run.Exit).Signal != 0:
		return at + exitOf("", e.run.Exit).How().Error()
	case e.run.Stderr == "":
		end = fmt.Sprintf("exit status %d", e.run.Exit)
	}
	// Of several lines, the supervisor's is the last.
	for line := range strings.Lines(e.run.Stderr) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			end = strings.TrimSpace(rest)
			if _, rest, ok := strings.Cut(end, ": "); ok { // after its name
				end = rest
			}
		}
	}
	if end == "" {
		end = fmt.Sprintf("exit status %d: %s", e.run.Exit, e.run.Stderr)
	}
	return at + end
}

func (e *programError) Unwrap() error { return e.run }

// Blames is the host.
func (e *programError) Blames() blame.Part { return e.run.Blames() }

// Hint is what to do about it, or "".
func (e *programError) Hint() string {
	switch {
	case e.run.Signal == "KILL" || e.run.Exit == 128+int(unix.SIGKILL):
		return fmt.Sprintf("somebody killed it, or host %s ran out of memory: dmesg there says which", e.run.Host)
	case strings.Contains(e.run.Stderr, ErrExpired.Error()+" for "):
		return "the network was cut, or this program was stopped or its machine asleep, for longer than patience in [measure]"
	case strings.Contains(e.run.Stderr, unix.EDQUOT.Error()):
		return fmt.Sprintf("make room within your quota on host %s: quota -s shows it", e.run.Host)
	case strings.Contains(e.run.Stderr, unix.ENOSPC.Error()):
		return fmt.Sprintf("make room on host %s: df -h shows where", e.run.Host)
	}
	return ""
}

// beater is a supervisor's stdin: lines of the program's user, and beats between them.
type beater struct {
	mu     sync.Mutex // held while a line is written
	to     io.WriteCloser
	part   []byte // of a line
	once   sync.Once
	closed chan struct{}
	ended  bool // to is closed; guarded by mu
}

func newBeater(to io.WriteCloser) *beater { return &beater{to: to, closed: make(chan struct{})} }

// beat renews a lease of so many seconds. It ends with the program, or when stdin is closed or cannot be
// written to.
func (b *beater) beat(lease float64, ended <-chan struct{}) {
	tick := time.NewTicker(seconds(lease) / beatsPerLease)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.closed:
			return
		case <-ended:
			return
		}
		if _, err := b.send([]byte(Beat + "\n")); err != nil {
			return
		}
	}
}

// Write passes whole lines on and keeps the beginning of one until its end comes.
func (b *beater) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.unlock()
	b.part = append(b.part, p...)
	i := bytes.LastIndexByte(b.part, '\n')
	if i < 0 {
		return len(p), nil
	}
	_, err := b.to.Write(b.part[:i+1])
	b.part = append(b.part[:0], b.part[i+1:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// send writes a line between those of Write.
func (b *beater) send(line []byte) (int, error) {
	b.mu.Lock()
	defer b.unlock()
	return b.to.Write(line)
}

// Close ends stdin. It does not wait for a line that is being written: stdin ends after it,
// since an SSH channel must not be closed and written to at once.
func (b *beater) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.end()
}

// unlock lets others write, and does what Close has left to the one who was writing.
func (b *beater) unlock() {
	b.mu.Unlock()
	select {
	case <-b.closed:
		b.end()
	default:
	}
}

// end closes stdin unless somebody writes, who ends it then.
func (b *beater) end() error {
	if !b.mu.TryLock() {
		return nil
	}
	defer b.mu.Unlock()
	if b.ended {
		return nil
	}
	b.ended = true
	return b.to.Close()
}

// Ask has a supervisor on a host, exe, list (do is "list") or end ("end") what runs there for a
// run, or for all if it is empty; see List and End.
func Ask(ctx context.Context, client hosts.Host, exe, do, run string) ([]Found, error) {
	line, err := json.Marshal(Config{Do: do, Run: run})
	if err != nil {
		return nil, err
	}
	out, err := client.Run(ctx, []string{exe, Verb}, bytes.NewReader(append(line, '\n')))
	if err != nil {
		return nil, err
	}
	var found []Found
	lines := bufio.NewScanner(bytes.NewReader(out.Stdout))
	lines.Buffer(nil, maxFound)
	for lines.Scan() {
		var f Found
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return found, blame.Host(client.String(), fmt.Errorf("lease: %w", err))
		}
		if found = append(found, f); len(found) > mostFound {
			return found, blame.Host(client.String(), fmt.Errorf("lease: %w: it lists more than %d processes", bounded.ErrTooLarge, mostFound))
		}
	}
	return found, lines.Err()
}

// mostFound is how many processes a host may list.
const mostFound = 10_000

// EndOn has a supervisor on a host, exe, end what runs there for a run; what does not end is an error that names it.
func EndOn(ctx context.Context, client hosts.Host, exe, run string) error {
	found, err := Ask(ctx, client, exe, "end", run)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		if !f.Ended {
			errs = append(errs, blame.Host(client.String(), fmt.Errorf("%s: process group %d: %s", f.Name, f.PID, f.Error)))
		}
	}
	return errors.Join(errs...)
}

// Package supervise makes sure that what a run starts on a host cannot outlive the run.
//
// A supervisor is a process on the host that starts a program, agent or foreign, and ends
// it with all its descendants when nobody renews the program's lease: when no "beat" came
// over stdin for as long as the lease lasts, or when stdin has ended. It is a process of
// its own, so it does so also when the program is stopped, stuck, or deaf to signals, and
// when the connection to the controller is dead without anybody having said so. It costs
// the program nothing: stdout and stderr are the program's own, and the supervisor sleeps
// between beats.
//
// What belongs to a program is found without its help. The supervisor leads the process
// group in which it starts the program, so that who kills the one kills both; it is the
// reaper of all that leave their parents (PR_SET_CHILD_SUBREAPER), wherever they go; and
// the program dies with it (PR_SET_PDEATHSIG). What it cannot end is what it may not signal:
// programs of another user, as sudo makes them, unless it is started through sudo itself.
//
// Each supervisor keeps a lease file on its host, which says what runs there for whom and
// until when; see [Lease]. `inabench clean` and doctors read these through [List], and end
// what is left through [End], on the host, or from here through [Ask].
//
// [Start] starts a program on a host under a supervisor, and renews its lease for as long as
// this process lives and is connected.
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
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/internal/bounded"
)

// Verb is the hidden verb by which the program is started as a supervisor.
const Verb = "supervise"

// Config is the first line that a supervisor reads from stdin. The lines after it are
// "beat", each of which renews the lease, and with Relay the program's own.
type Config struct {
	// Do is "run" (or empty), or "list" or "end": then nothing is run, and the leases that
	// are found on the host, of the run if it is given, are written to stdout as Found, one
	// a line; see List and End.
	Do string `json:"do,omitempty"`

	Run  string `json:"run,omitempty"`  // id of the run that the program belongs to
	Name string `json:"name,omitempty"` // what it is to people: "worker A/0"

	// Argv is the program and its arguments; a name without a slash is looked for in PATH,
	// one with a slash from Dir on, and "" is this program itself.
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"` // NAME=value, besides and over the session's environment
	Dir  string   `json:"dir,omitempty"` // to start in; empty: the session's

	// Stdin is what the program reads first, and all that it reads unless Relay has the lines
	// that come after this one passed on to it. The end of this stdin is also the program's.
	Stdin string `json:"stdin,omitempty"`
	Relay bool   `json:"relay,omitempty"`

	// Lease is how long the program may run without a beat, s; more than 0.
	Lease float64 `json:"lease,omitempty"`
	// Grace is how long it may take to end after it was asked to, once by the end of its
	// stdin and once by SIGTERM, before it is killed, s; 0: 1 s.
	Grace float64 `json:"grace,omitempty"`
	// Fence is the lease of the host for whose holder the program runs; nil: the host is nobody's.
	Fence *Fence `json:"fence,omitempty"`

	// Leases is the directory of lease files; empty: Dir().
	Leases string `json:"leases,omitempty"`

	// Stderr is where Start has the program's stderr written; nil: only its end is kept, for
	// the error.
	Stderr io.Writer `json:"-"`
}

// Beat is the line that renews a lease.
const Beat = "beat"

// ErrConfig is wrapped by errors about what a Config asks for.
var ErrConfig = errors.New("supervisor's config")

// ExitError is a program that ran and did not succeed.
type ExitError struct {
	Name   string
	Status int            // exit status
	Signal syscall.Signal // that killed it; 0: it exited
}

func (e *ExitError) Error() string { return e.Name + ": " + e.How().Error() }

// How is the error without the program's name.
func (e *ExitError) How() error {
	if e.Signal != 0 {
		return fmt.Errorf("killed by %s", unix.SignalName(e.Signal))
	}
	return fmt.Errorf("exit status %d", e.Status)
}

// exitOf is the end of a program whose supervisor exited with a status; see ExitCode.
func exitOf(name string, status int) *ExitError {
	if signal := syscall.Signal(status - 128); status > 128 && unix.SignalName(signal) != "" {
		return &ExitError{Name: name, Signal: signal}
	}
	return &ExitError{Name: name, Status: status}
}

// ExitCode is the status to exit with, as a shell says it: 128 and the signal's number for a
// program that was killed.
func (e *ExitError) ExitCode() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Status
}

// ErrExpired is wrapped by the error of a supervisor whose program was ended because its
// lease was not renewed.
var ErrExpired = errors.New("no beat")

// maxLine bounds a line on stdin, bytes: an agent's configuration with a thousand layers has 50 kB, but what a
// predictor is asked of a long trace is tens of megabytes. maxFound bounds one of what another supervisor says.
const (
	maxLine  = 64 << 20
	maxFound = 1 << 20
)

// Main is a supervisor: it reads its Config from stdin and returns when the program and all
// its descendants have ended. A program that did not succeed is an *ExitError; what was wrong
// besides is an error that says so. It changes the process that it runs in, which must be its
// own, and must be called from the main goroutine.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, 64<<10)
	line, err := readLine(in)
	if err == io.EOF && len(line) == 0 {
		return nil // nobody wants anything
	}
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the supervisor's config: %w", err)
	}
	c, err := parseConfig(line)
	if err != nil {
		return err
	}
	switch c.Do {
	case "list", "end":
		return c.report(ctx, stdout)
	}
	return c.run(ctx, in)
}

func parseConfig(line []byte) (*Config, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	c := &Config{}
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch {
	case c.Do == "list" || c.Do == "end":
		return c, nil
	case c.Do != "" && c.Do != "run":
		return nil, fmt.Errorf("%w: do %q, want run, list or end", ErrConfig, c.Do)
	case len(c.Argv) == 0:
		return nil, fmt.Errorf("%w: no program", ErrConfig)
	case !(c.Lease > 0) || c.Lease > maxLease || !(c.Grace >= 0) || c.Grace > maxLease:
		return nil, fmt.Errorf("%w: a lease of %v s, and %v s of grace", ErrConfig, c.Lease, c.Grace)
	}
	c.Grace = cmp.Or(c.Grace, 1)
	c.Name = cmp.Or(c.Name, c.Argv[0])
	return c, nil
}

// maxLease bounds leases, s.
const maxLease = 24 * 3600

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// readLine returns the next line without its end; io.EOF comes with what is behind the last.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := bounded.ReadLine(in, maxLine)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// program is what a supervisor runs.
type program struct {
	cfg   *Config
	pid   int
	stdin *os.File // this end of its pipe

	ended chan syscall.WaitStatus // its own end
	empty chan struct{}           // closed when no descendant is left
}

// run supervises one program.
func (c *Config) run(ctx context.Context, in *bufio.Reader) error {
	// The program is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // what is ignored would be ignored in the program, too
	if unix.Getpgrp() != os.Getpid() {
		if err := unix.Setpgid(0, 0); err != nil {
			return fmt.Errorf("%s: lead a process group: %w", c.Name, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("%s: reap what leaves its parent: %w", c.Name, err)
	}
	if err := c.Fence.check(ctx); err != nil {
		return fmt.Errorf("%s: not started: %w", c.Name, err)
	}
	lease, err := c.take()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	defer lease.release()
	p, err := c.start()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	defer p.stdin.Close()
	lease.renew()

	beats, over := make(chan struct{}, 1), make(chan error, 1)
	relay := make(chan []byte, 1024) // more than anybody says at a time
	go p.read(in, beats, relay, over)
	go p.feed(relay)
	fenced := c.Fence.watch(ctx)
	timer := time.NewTimer(seconds(c.Lease))
	defer timer.Stop()
	for {
		select {
		case <-beats:
			timer.Reset(seconds(c.Lease))
			lease.renew()
			fenced.look()
			continue
		case err := <-fenced.lost:
			return errors.Join(fmt.Errorf("%s: ended: %w", c.Name, err), p.end(false))
		case <-timer.C:
			err = fmt.Errorf("%s: %w for %v s: the connection to whoever started it is gone; ended", c.Name, ErrExpired, c.Lease)
			return errors.Join(err, p.end(false))
		case err := <-over:
			return errors.Join(err, p.end(err == nil))
		case s := <-signals:
			return errors.Join(fmt.Errorf("%s: ended by %s", c.Name, unix.SignalName(s.(syscall.Signal))), p.end(false))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %w", c.Name, context.Cause(ctx)), p.end(false))
		case status := <-p.ended:
			err := p.end(false) // those that it left behind
			if e := p.exit(status); e != nil {
				return errors.Join(e, err)
			}
			return err
		}
	}
}

// start starts the program.
func (c *Config) start() (*program, error) {
	p := &program{cfg: c, ended: make(chan syscall.WaitStatus, 1), empty: make(chan struct{})}
	env := os.Environ()
	for _, e := range c.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			return nil, fmt.Errorf("%w: environment %q, want NAME=value", ErrConfig, e)
		}
		env = append(env, e)
		if name == "PATH" { // where it is looked for
			os.Setenv("PATH", strings.TrimPrefix(e, "PATH="))
		}
	}
	path := "/proc/self/exe"
	if c.Argv[0] != "" {
		var err error
		if path, err = c.lookPath(); err != nil {
			return nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	argv := append([]string{}, c.Argv...)
	if argv[0] == "" {
		argv[0] = "inabench"
	}
	// No other thread's descriptors can leak into it: all of ours are close-on-exec.
	p.pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: c.Dir, Env: (&exec.Cmd{Env: env}).Environ(), Files: []uintptr{r.Fd(), 1, 2},
		Sys: &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL},
	})
	r.Close()
	if err != nil {
		w.Close()
		return nil, &os.PathError{Op: "start", Path: c.Argv[0], Err: err}
	}
	p.stdin = w
	go p.reap()
	return p, nil
}

// lookPath is the program's file, as a process in Dir names it.
func (c *Config) lookPath() (string, error) {
	name := c.Argv[0]
	if at := strings.IndexByte(name, '/'); at > 0 && c.Dir != "" {
		_, err := exec.LookPath(c.Dir + "/" + name)
		return name, err
	}
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	return path, err
}

// reap buries the program and whatever it left to us.
func (p *program) reap() {
	defer close(p.empty)
	for {
		var ws syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &ws, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return // there is no child
		case pid == p.pid:
			p.ended <- ws
		}
	}
}

// read takes beats and what is the program's from stdin, until it ends.
func (p *program) read(in *bufio.Reader, beats chan<- struct{}, relay chan<- []byte, over chan<- error) {
	defer close(relay)
	if p.cfg.Stdin != "" {
		relay <- []byte(p.cfg.Stdin)
	}
	if !p.cfg.Relay {
		relay <- nil // the end
	}
	for {
		line, err := readLine(in)
		switch {
		case err == nil && string(line) == Beat:
			select {
			case beats <- struct{}{}:
			default: // the last one has not been looked at
			}
		case err == nil && p.cfg.Relay:
			select {
			case relay <- append(line, '\n'):
			default: // a beat must never wait for a program that is stuck
				over <- fmt.Errorf("%s: does not read its stdin: %d lines wait", p.cfg.Name, cap(relay))
				return
			}
		case err == nil:
			over <- fmt.Errorf("%s: %w: unexpected line %.40q", p.cfg.Name, ErrConfig, line)
			return
		case err == io.EOF:
			over <- nil
			return
		default:
			over <- fmt.Errorf("%s: read stdin: %w", p.cfg.Name, err)
			return
		}
	}
}

// feed writes the program's stdin. What it does not want to read is dropped.
func (p *program) feed(relay <-chan []byte) {
	for line := range relay {
		if line == nil {
			p.stdin.Close()
		} else if _, err := p.stdin.Write(line); err != nil {
			break
		}
	}
	p.stdin.Close()
	for range relay { // until stdin ends
	}
}

// exit is the program's end as an error.
func (p *program) exit(ws syscall.WaitStatus) error {
	switch {
	case ws.Signaled():
		return &ExitError{Name: p.cfg.Name, Signal: ws.Signal()}
	case ws.ExitStatus() != 0:
		return &ExitError{Name: p.cfg.Name, Status: ws.ExitStatus()}
	}
	return nil
}

// survival is how long after a kill something may be there, until it is said to survive.
const survival = 5 * time.Second

// end ends the program and its descendants and returns when none is left, or what survives.
// Gently means that the program has been asked already: its stdin has ended.
func (p *program) end(gently bool) error {
	grace := seconds(p.cfg.Grace)
	wait := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-p.empty:
			return true
		case <-timer.C:
			return false
		}
	}
	if wait(5*time.Millisecond) || gently && p.cfg.Relay && wait(grace) {
		return nil // as a rule a program leaves nothing
	}
	// A process that is stopped gets SIGTERM when it goes on.
	signalAll(unix.SIGTERM)
	signalAll(unix.SIGCONT)
	if wait(grace) {
		return nil
	}
	for deadline := time.Now().Add(survival); ; {
		left := signalAll(unix.SIGKILL)
		if wait(20 * time.Millisecond) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: survives SIGKILL: %s", p.cfg.Name, strings.Join(left, ", "))
		}
	}
}

// signalAll sends a signal to all descendants of this process, wherever they have gone, and
// says which they were.
func signalAll(sig syscall.Signal) (names []string) {
	below, err := descendants(os.Getpid())
	if err != nil { // another namespace's /proc: what has not left the group is all that can be found
		if sig != unix.SIGKILL {
			_ = unix.Kill(0, sig) // SIGTERM and SIGCONT do nothing to this process
			return nil
		}
		_ = unix.Kill(0, unix.SIGKILL)
		return []string{err.Error()}
	}
	for _, p := range below {
		_ = unix.Kill(p.PID, sig) // it may have ended
		names = append(names, p.String())
	}
	return names
}

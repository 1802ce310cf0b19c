package ssh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/inabench/inabench/testbed/hosts"
)

// process is a running remote command: a hosts.Running.
type process struct {
	stdin  io.WriteCloser
	stdout io.Reader

	client  *Client
	session *ssh.Session
	argv    []string
	stderr  *stderr
	done    chan struct{} // closed when the command has ended
	sudo    bool          // it is root's
	err     error

	closing sync.Once
	closed  error // of Close
}

// Start implements hosts.Commands. Its arguments arrive as they are: no shell sees them
// unquoted. When ctx ends, its process group is killed.
//
// The login shell of the user may be any that knows exec and single quotes (sh, bash,
// dash, zsh, csh, fish); /bin/sh must be a POSIX one. argv runs in the process group that
// the server made for the session, so shell builtins are not commands.
func (c *Client) Start(ctx context.Context, argv []string, stderr io.Writer) (*hosts.Process, error) {
	return c.start(ctx, argv, false, stderr)
}

// StartRoot implements hosts.Commands: root is as it is for one who logs in as root, and otherwise
// through sudo, if the target allows that.
func (c *Client) StartRoot(ctx context.Context, argv []string, stderr io.Writer) (*hosts.Process, error) {
	sudo, err := c.needsSudo()
	if err != nil {
		return nil, err
	}
	return c.start(ctx, argv, sudo, stderr)
}

// needsSudo tells how the user becomes root.
func (c *Client) needsSudo() (bool, error) {
	switch {
	case c.target.User == "root":
		return false, nil
	case c.target.Sudo:
		return true, nil
	}
	return false, &hosts.Error{Host: c.String(), Address: c.target.Address, Kind: hosts.ErrNotRoot,
		Err:  fmt.Errorf("this needs root, and user %s is not", c.target.User),
		Hint: "log in as root, or write sudo = true for the host (ssh = {sudo = true})"}
}

// start starts a command, whose diagnostics go to diag; nil: nowhere.
func (c *Client) start(ctx context.Context, argv []string, sudo bool, diag io.Writer) (*hosts.Process, error) {
	if diag == nil {
		diag = io.Discard
	}
	line, err := remote(announce, argv)
	if err == nil && sudo {
		line, err = remote(announce, append(slices.Clone(asRoot), argv...))
	}
	if err != nil {
		return nil, c.errorf("%w", err)
	}
	p := &process{
		client: c, argv: argv, sudo: sudo, stderr: newStderr(diag, sudo),
		done: make(chan struct{}),
	}
	doing := "start " + hosts.Abbreviate(argv)
	err = c.await(ctx, func() error {
		defer c.impatient("it has not answered that " + hosts.Abbreviate(argv) + " is to start")()
		s, err := c.conn.NewSession()
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			err = fmt.Errorf("%w: has it too many sessions of one connection? Raise MaxSessions in its sshd_config, 10 by default", err)
		}
		if err != nil {
			return c.failed(doing, err)
		}
		p.session = s
		s.Stderr = p.stderr
		if p.stdin, err = s.StdinPipe(); err == nil {
			p.stdin = &input{p.stdin, c}
		}
		if err == nil {
			var r io.Reader
			r, err = s.StdoutPipe()
			p.stdout = &output{r: r}
		}
		if err == nil {
			err = s.Start(line)
		}
		if err != nil {
			s.Close()
			return c.failed(doing, err)
		}
		// These run also when ctx has ended meanwhile and nobody wants p any more.
		c.wg.Go(p.wait)
		c.wg.Go(func() { p.killWith(ctx) })
		return nil
	})
	if err != nil && ctx.Err() != nil {
		err = c.errorf("%s: %w", doing, context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	return &hosts.Process{Stdin: p.stdin, Stdout: p.stdout, Running: p}, nil
}

// impatient gives a host up that does not do in time what the protocol asks of it, though it may go on answering
// keepalives, unless over is called before.
func (c *Client) impatient(why string) (over func()) {
	long := 2*c.patience() + c.target.KeepAlive
	stuck := time.AfterFunc(long, func() { c.giveUp(fmt.Errorf("%s for %v", why, long)) })
	return func() { stuck.Stop() }
}

// killGrace bounds how long the killing of a cancelled command may take before its
// session is closed, whatever has become of it. beginGrace is how much of that is for one that
// has not announced itself, which there is no way to kill yet.
const (
	killGrace  = 5 * time.Second
	beginGrace = time.Second
)

// killWith kills the process when ctx ends.
func (p *process) killWith(ctx context.Context) {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Close()
	}
}

// wait collects the end of the command.
func (p *process) wait() {
	defer close(p.done)
	err := p.session.Wait()
	var exit *ssh.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && p.sudo && !p.stderr.begun():
		p.err = p.client.notRoot(p.stderr.tail())
	case errors.As(err, &exit):
		p.err = &hosts.RunError{Host: p.client.String(), Argv: p.argv, Exit: exit.ExitStatus(), Signal: exit.Signal(), Stderr: p.stderr.tail()}
	default:
		p.err = p.client.failed(hosts.Abbreviate(p.argv), err)
	}
}

// asRoot is put before what root shall do. What it runs announces its process group
// again, for sudo may give it another (use_pty).
var asRoot = []string{"sudo", "-n", "--", "/bin/sh", "-c",
	`set -- $(cat /proc/$$/stat) -- "$@"; group=$5; while [ "$1" != -- ]; do shift; done; shift; echo ` + groupMark + `$group >&2; exec "$@"`, "sh"}

// notRoot is the end of a command that sudo has not begun.
func (c *Client) notRoot(said string) error {
	return &hosts.Error{Host: c.String(), Address: c.target.Address, Kind: hosts.ErrNotRoot,
		Err:  fmt.Errorf("sudo -n for user %s: %s", c.target.User, cmp.Or(said, "it said nothing")),
		Hint: fmt.Sprintf("sudo must not ask for a password: on the host write %q into /etc/sudoers.d/inabench", c.target.User+" ALL=(root) NOPASSWD: ALL")}
}

// Done is closed when the command has ended.
func (p *process) Done() <-chan struct{} { return p.done }

// Wait waits for the command to end. A command that did not succeed is a *hosts.RunError;
// a connection that broke is an *hosts.Error with hosts.ErrLost. With OpenSSH a command also
// lasts as long as a descendant holds its output open.
func (p *process) Wait() error {
	<-p.done
	return p.err
}

// errNotBegun is why a command cannot be killed: it has not announced its process group.
var errNotBegun = errors.New("it has not begun")

// Kill kills the command and all its descendants that did not leave its process
// group, through a second session, and returns without waiting for their end. It
// does nothing when the command has ended.
func (p *process) Kill(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	group, err := p.stderr.group(ctx, p.done)
	if err != nil {
		return p.client.errorf("kill %s: %w: %w", hosts.Abbreviate(p.argv), errNotBegun, err)
	}
	if group == 0 { // ended before it began
		return nil
	}
	kill := fmt.Sprintf("exec /bin/sh -c 'kill -s KILL -- -%d'", group)
	if p.sudo { // what is root's only root can kill
		kill = fmt.Sprintf("exec sudo -n -- /bin/sh -c 'kill -s KILL -- -%d'", group)
	}
	return p.client.await(ctx, func() error {
		s, err := p.client.conn.NewSession()
		if err != nil {
			// No room for a session (MaxSessions): OpenSSH since 7.9 takes this.
			return p.client.failed("kill "+hosts.Abbreviate(p.argv), p.session.Signal(ssh.SIGKILL))
		}
		defer s.Close()
		var out hosts.Tail
		s.Stderr = &out
		err = s.Run(kill)
		if err != nil {
			select {
			case <-p.done: // it went by itself, which makes kill fail; word of it may be on the way
				return nil
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		if err != nil && out.String() != "" {
			err = fmt.Errorf("%w: %s", err, &out)
		}
		return p.client.failed("kill "+hosts.Abbreviate(p.argv), err)
	})
}

// Close makes sure that the command is gone: it kills it if it still runs, waits
// for its end, and closes its session; 5 s at most. All calls are one, the end of the
// context with which the command was started too: they wait for it and say what it says.
func (p *process) Close() error {
	p.closing.Do(func() { p.closed = p.end() })
	return p.closed
}

func (p *process) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	err := p.Kill(ctx)
	if errors.Is(err, errNotBegun) {
		p.hangUp() // a host that has not got so far need not be waited for
		return err
	}
	// Output that nobody reads must not hold up the end, with which this ends.
	go io.Copy(io.Discard, p.stdout)
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	p.hangUp()
	return err
}

// hangUp closes the session. A host that does not end it then is given up, or whoever waits for the command's end would
// wait for ever.
func (p *process) hangUp() {
	p.session.Close()
	go func() { // ends with the connection at the latest
		grace := time.NewTimer(killGrace)
		defer grace.Stop()
		select {
		case <-p.done:
		case <-p.client.done:
		case <-grace.C:
			p.client.giveUp(errors.New("it does not end a session that was closed"))
		}
	}()
}

// input is what a command reads. A host that takes nothing of it is given up: a write waits for the host's leave, and
// nothing else ends it.
type input struct {
	io.WriteCloser
	client *Client
}

// inputPart is what is written at once: so much is taken in twice the client's patience.
const inputPart = 32 << 10

func (i *input) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), inputPart)]
		over := i.client.impatient("it has taken nothing of what is written to a command")
		var m int
		m, err = i.WriteCloser.Write(part)
		over()
		n, b = n+m, b[m:]
	}
	return n, err
}

// Run implements hosts.Commands. After the command has ended no more is read from stdin, but a Read
// that is blocked then stays so until it returns.
func (c *Client) Run(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error) {
	return hosts.Collect(ctx, c.String(), c.Start, argv, stdin)
}

// RunRoot implements hosts.Commands: root is as with StartRoot.
func (c *Client) RunRoot(ctx context.Context, argv []string, stdin io.Reader) (hosts.Output, error) {
	return hosts.Collect(ctx, c.String(), c.StartRoot, argv, stdin)
}

// outputMark ends what the user's login shell may have said on stdout, which is not the
// command's: a greeting in .bashrc, which bash reads for every command over SSH.
const outputMark = "inabench-output"

// output is a command's stdout, from the mark on.
type output struct {
	r     io.Reader
	mu    sync.Mutex // held by Read: Close reads what is left, beside whoever still does
	begun bool       // the mark has come
	held  []byte     // before the mark: what may hold its beginning
	rest  []byte     // after it: what Read has not given out yet
}

// maxGreeting bounds what is kept while the mark has not come, bytes; of more the end is, in which one may stand.
const (
	maxGreeting = 64 << 10
	maxMark     = 64
)

// feed takes bytes and returns those after the mark.
func (o *output) feed(p []byte) []byte {
	if o.begun {
		return p
	}
	from := max(0, len(o.held)-len(outputMark)) // before that there is none
	o.held = append(o.held, p...)
	i := bytes.Index(o.held[from:], []byte(outputMark+"\n"))
	if i < 0 {
		if n := len(o.held); n > maxGreeting {
			o.held = append(o.held[:0], o.held[n-len(outputMark):]...)
		}
		return nil
	}
	rest := o.held[from+i+len(outputMark)+1:]
	o.begun, o.held = true, nil
	return rest
}

func (o *output) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.begun && len(p) > 0 {
		n, err := o.r.Read(p)
		o.rest = bytes.Clone(o.feed(p[:n]))
		if err != nil && len(o.rest) == 0 {
			return 0, err // otherwise it comes again
		}
	}
	if len(o.rest) > 0 {
		n := copy(p, o.rest)
		o.rest = o.rest[n:]
		return n, nil
	}
	return o.r.Read(p)
}

// groupMark stands in the line that tells a command's process group.
const groupMark = "inabench-group "

// stderr takes the group lines out of a command's stderr and keeps the end of the
// rest. Anything before them (a chatty login shell) passes.
type stderr struct {
	next  io.Writer
	known chan struct{} // closed when pid is set

	mu    sync.Mutex
	marks int    // lines that are still to come: sudo's process group, then the command's
	line  []byte // not yet complete, only before the last mark
	pid   int
	end   hosts.Tail
}

func newStderr(next io.Writer, sudo bool) *stderr {
	w := &stderr{next: next, known: make(chan struct{}), marks: 1}
	if sudo {
		w.marks = 2
	}
	return w
}

func (w *stderr) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for w.marks > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.line = append(w.line, p...)
			if len(w.line) > maxGreeting { // nobody says that much before a mark, in one line
				end := len(w.line) - maxMark
				w.pass(w.line[:end])
				w.line = slices.Clone(w.line[end:])
			}
			return n, nil
		}
		line := append(w.line, p[:i+1]...)
		p, w.line = p[i+1:], nil
		if i := bytes.LastIndex(line, []byte(groupMark)); i >= 0 {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(line[i+len(groupMark):]))); err == nil && pid > 1 {
				w.pass(line[:i])
				if w.marks--; w.marks == 0 {
					w.pid = pid
					close(w.known)
				}
				continue
			}
		}
		w.pass(line)
	}
	w.pass(p)
	return n, nil
}

// begun tells whether the command itself has announced itself.
func (w *stderr) begun() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.marks == 0
}

func (w *stderr) pass(p []byte) {
	if len(p) == 0 {
		return
	}
	w.end.Write(p)
	w.next.Write(p) // a full buffer of diagnostics is no reason to stop the command
}

func (w *stderr) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(w.end.String() + string(w.line))
}

// group waits for the process group, for a moment; 0 if the command ends first.
func (w *stderr) group(ctx context.Context, ended <-chan struct{}) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, beginGrace)
	defer cancel()
	select {
	case <-w.known:
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.pid, nil
	case <-ended:
		return 0, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

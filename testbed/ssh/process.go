package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Process is a running remote command.
type Process struct {
	Stdin  io.WriteCloser // closing it is the command's end of file
	Stdout io.Reader      // must be read: an unread pipe stops the command

	client  *Client
	session *ssh.Session
	argv    []string
	stderr  *stderr
	done    chan struct{} // closed when the command has ended
	over    chan struct{} // closed when nothing more will be done about it
	err     error
}

// Start starts a command. Its arguments arrive as they are: no shell sees them
// unquoted. When ctx ends, its process group is killed.
//
// The login shell of the user must be a POSIX one. Its exec runs argv in the process
// group that the server made for the session, so shell builtins are not commands.
func (c *Client) Start(ctx context.Context, argv []string) (*Process, error) {
	return c.start(ctx, argv, nil, io.Discard)
}

// start starts a command whose stdout goes to a writer, or into a pipe.
func (c *Client) start(ctx context.Context, argv []string, stdout, diag io.Writer) (*Process, error) {
	line, err := Quote(argv)
	if err != nil {
		return nil, c.errorf("%w", err)
	}
	// The shell announces its process group before it becomes the command, because
	// servers differ in whether they deliver signals (golang/go#16597).
	line = "echo " + groupMark + "$$ >&2; exec " + line
	p := &Process{
		client: c, argv: argv, stderr: newStderr(diag),
		done: make(chan struct{}), over: make(chan struct{}),
	}
	doing := "start " + abbreviate(argv)
	err = c.await(ctx, func() error {
		s, err := c.conn.NewSession()
		if err != nil {
			return c.failed(doing, err)
		}
		p.session = s
		s.Stdout, s.Stderr = stdout, p.stderr
		if p.Stdin, err = s.StdinPipe(); err == nil && stdout == nil {
			p.Stdout, err = s.StdoutPipe()
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
	return p, nil
}

// killGrace bounds how long the killing of a cancelled command may take before its
// session is closed, whatever has become of it.
const killGrace = 5 * time.Second

// killWith kills the process when ctx ends.
func (p *Process) killWith(ctx context.Context) {
	defer close(p.over)
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Close()
	}
}

// wait collects the end of the command.
func (p *Process) wait() {
	defer close(p.done)
	err := p.session.Wait()
	var exit *ssh.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		p.err = &RunError{Host: p.client.String(), Argv: p.argv, Exit: exit.ExitStatus(), Signal: exit.Signal(), Stderr: p.stderr.tail()}
	default:
		p.err = p.client.failed(abbreviate(p.argv), err)
	}
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the command to end. A command that did not succeed is a *RunError;
// a connection that broke is an *Error with ErrLost. With OpenSSH a command also
// lasts as long as a descendant holds its output open.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Kill kills the command and all its descendants that did not leave its process
// group, through a second session, and returns without waiting for their end. It
// does nothing when the command has ended.
func (p *Process) Kill(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	group, err := p.stderr.group(ctx, p.done)
	if err != nil {
		return p.client.errorf("kill %s: %w", abbreviate(p.argv), err)
	}
	if group == 0 { // ended before it began
		return nil
	}
	return p.client.await(ctx, func() error {
		s, err := p.client.conn.NewSession()
		if err != nil {
			// No room for a session (MaxSessions): OpenSSH since 7.9 takes this.
			return p.client.failed("kill "+abbreviate(p.argv), p.session.Signal(ssh.SIGKILL))
		}
		defer s.Close()
		var out tail
		s.Stderr = &out
		err = s.Run(fmt.Sprintf("kill -s KILL -- -%d", group))
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
		return p.client.failed("kill "+abbreviate(p.argv), err)
	})
}

// Close makes sure that the command is gone: it kills it if it still runs, waits
// for its end, and closes its session; 5 s at most.
func (p *Process) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), killGrace)
	defer cancel()
	err := p.Kill(ctx)
	if p.Stdout != nil {
		// Output that nobody reads must not hold up the end, with which this ends.
		go io.Copy(io.Discard, p.Stdout)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	p.session.Close()
	return err
}

// Output is what a command wrote.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
}

// maxOutput bounds what Run keeps of each stream, bytes.
const maxOutput = 16 << 20

// Run runs a command to its end, with the Output also of one that failed. A nil
// stdin is empty; after the command has ended no more is read from stdin, but a
// Read that is blocked then stays so until it returns. Errors are as those of Wait,
// and ctx's cause when it ended first.
func (c *Client) Run(ctx context.Context, argv []string, stdin io.Reader) (Output, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tooMuch := func() { cancel(fmt.Errorf("more than %d MiB of output", maxOutput>>20)) }
	stdout, diag := &limited{full: tooMuch}, &limited{full: tooMuch}
	p, err := c.start(ctx, argv, stdout, diag)
	if err != nil {
		return Output{}, err
	}
	if stdin == nil {
		p.Stdin.Close()
	} else {
		go func() {
			io.Copy(p.Stdin, stdin) // a command need not read all of its input
			p.Stdin.Close()
		}()
	}
	<-p.over
	select {
	case <-p.done:
	default: // the host is stuck
		return Output{}, c.errorf("%s: %w", abbreviate(argv), context.Cause(ctx))
	}
	out, err := Output{Stdout: stdout.buf.Bytes(), Stderr: diag.buf.Bytes()}, p.err
	var failed *RunError
	if errors.As(err, &failed) {
		out.Exit = failed.Exit
	}
	if err != nil && ctx.Err() != nil {
		err = c.errorf("%s: %w", abbreviate(argv), context.Cause(ctx))
	}
	return out, err
}

// limited is a buffer that calls full instead of growing past maxOutput.
type limited struct {
	buf  bytes.Buffer
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.buf.Len()+len(p) > maxOutput {
		l.full()
		return len(p), nil
	}
	return l.buf.Write(p)
}

// groupMark begins the line that tells a command's process group.
const groupMark = "inabench-group "

// stderr takes the group line out of a command's stderr and keeps the end of the
// rest. Anything before that line (a chatty login shell) passes.
type stderr struct {
	next  io.Writer
	known chan struct{} // closed when pid is set

	mu   sync.Mutex
	line []byte // not yet complete, only before the mark
	pid  int
	end  tail
}

func newStderr(next io.Writer) *stderr {
	return &stderr{next: next, known: make(chan struct{})}
}

func (w *stderr) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for w.pid == 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.line = append(w.line, p...)
			return n, nil
		}
		line := append(w.line, p[:i+1]...)
		p, w.line = p[i+1:], nil
		if rest, ok := strings.CutPrefix(string(line), groupMark); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(rest)); err == nil && pid > 1 {
				w.pid = pid
				close(w.known)
				break
			}
		}
		w.pass(line)
	}
	w.pass(p)
	return n, nil
}

func (w *stderr) pass(p []byte) {
	w.end.Write(p)
	w.next.Write(p) // a full buffer of diagnostics is no reason to stop the command
}

func (w *stderr) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end.String()
}

// group waits for the process group; 0 if the command ends first.
func (w *stderr) group(ctx context.Context, ended <-chan struct{}) (int, error) {
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

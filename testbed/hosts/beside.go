package hosts

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on the end of a program on this machine.
const (
	inherited = time.Second     // how long its output is read after its end, where what it started holds it open
	dying     = 5 * time.Second // how long it may take to be killed
)

// Beside starts a program on this machine, as a part of this one that has a process of its own,
// and is to end with its stdin.
func Beside(argv []string) (*Process, error) {
	return Exec(context.Background(), "", exec.Command(argv[0], argv[1:]...))
}

// Exec starts a command of this machine as a program on a host, which is called so in its errors;
// "" is this machine. It is in a process group of its own, so that who interrupts this program does
// not end it behind its back. When ctx ends, it is killed with its group. The command's Stdin and
// Stdout must not be set; its Stderr may fail.
func Exec(ctx context.Context, host string, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = inherited
	b := &beside{host: host, cmd: cmd, done: make(chan struct{})}
	b.said.next = cmd.Stderr
	cmd.Stderr = &b.said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, into, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = into
	err = cmd.Start()
	into.Close()
	if err != nil {
		stdout.Close()
		return nil, Name(host, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = b.Close() })
	go func() {
		b.wait(stdout)
		stop()
	}()
	return &Process{Stdin: stdin, Stdout: stdout, Running: b}, nil
}

// beside is a program on this machine.
type beside struct {
	host string
	cmd  *exec.Cmd
	said diagnostics
	done chan struct{}
	err  error // valid when done

	closing sync.Once
	closed  error
}

// diagnostics keeps the end of what is written to another writer.
type diagnostics struct {
	next io.Writer // nil: nobody
	end  Tail
}

func (d *diagnostics) Write(p []byte) (int, error) {
	if d.next != nil {
		_, _ = d.next.Write(p) // a full buffer of diagnostics is no reason to stop the program
	}
	return d.end.Write(p)
}

func (b *beside) wait(stdout *os.File) {
	defer close(b.done)
	err := b.cmd.Wait()
	_ = stdout.SetReadDeadline(time.Now().Add(inherited)) // whoever else holds it
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		e := &RunError{Host: b.host, Argv: b.cmd.Args, Exit: exit.ExitCode(), Stderr: b.said.end.String()}
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			e.Exit, e.Signal = 128+int(s.Signal()), strings.TrimPrefix(unix.SignalName(s.Signal()), "SIG")
		}
		b.err = e
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // somebody else holds its stderr
		b.err = Name(b.host, err)
	}
}

func (b *beside) Done() <-chan struct{} { return b.done }

func (b *beside) Wait() error {
	<-b.done
	return b.err
}

func (b *beside) Kill(context.Context) error {
	select {
	case <-b.done:
		return nil
	default:
		return syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	}
}

func (b *beside) Close() error {
	b.closing.Do(func() {
		b.closed = b.Kill(context.Background())
		select {
		case <-b.done:
		case <-time.After(dying):
			b.closed = errors.Join(b.closed, errors.New("it does not end, though it was killed"))
		}
	})
	return b.closed
}

package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/inabench/inabench/testbed/hosts"
)

// Interactive gives the user a shell on the host, or runs argv there, with the
// host's terminal when stdin is one, and without otherwise. The end of the shell
// with another status than 0 is a *hosts.RunError.
//
// A Read of stdin may stay blocked after it returns.
func (c *Client) Interactive(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) error {
	command := ""
	if len(argv) > 0 {
		var err error
		if command, err = remote("", argv); err != nil {
			return c.errorf("%w", err)
		}
	}
	var s *ssh.Session
	err := c.await(ctx, func() (err error) {
		s, err = c.conn.NewSession()
		return c.failed("open session", err)
	})
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()

	restore, err := c.terminal(s, stdin)
	if err != nil {
		return err
	}
	defer restore()
	s.Stdout, s.Stderr = stdout, stderr
	in, err := s.StdinPipe()
	if err != nil {
		return c.failed("open session", err)
	}
	if command != "" {
		err = s.Start(command)
	} else {
		err = s.Shell()
	}
	if err != nil {
		return c.failed("start shell", err)
	}
	go func() {
		io.Copy(in, stdin)
		in.Close()
	}()
	err = s.Wait()
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return c.errorf("shell: %w", context.Cause(ctx))
	case errors.As(err, &exit):
		if len(argv) == 0 {
			argv = []string{"shell"}
		}
		return &hosts.RunError{Host: c.String(), Argv: argv, Exit: exit.ExitStatus(), Signal: exit.Signal()}
	}
	return c.failed("shell", err)
}

// terminal asks for a terminal there if stdin is one here, and passes every key
// through. restore undoes it.
func (c *Client) terminal(s *ssh.Session, stdin io.Reader) (restore func(), err error) {
	tty, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(tty.Fd())) {
		return func() {}, nil
	}
	fd := int(tty.Fd())
	width, height, err := term.GetSize(fd)
	if err != nil {
		return nil, fmt.Errorf("size of the terminal: %w", err)
	}
	name := cmp.Or(os.Getenv("TERM"), "dumb")
	if err := s.RequestPty(name, height, width, ssh.TerminalModes{}); err != nil {
		return nil, c.failed("open terminal", err)
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("raw mode of the terminal: %w", err)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for range resized {
			if w, h, err := term.GetSize(fd); err == nil {
				s.WindowChange(h, w)
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		close(resized)
		<-followed
		term.Restore(fd, state)
	}, nil
}

package ssh_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
	"github.com/inabench/inabench/testbed/sshd"
)

// What a shell would act upon if it saw it unquoted; "canary" is a file that must
// never come to be.
var nasty = []string{
	"", " ", "a b", "'", "''", "'\\''", `"`, `\`, `\\`, "\n", "a\nb\n", "\r", "\t", "*", "?", "[a-z]", "~", "~root",
	"$HOME", "${HOME}", "$(touch canary)", "`touch canary`", "; touch canary", "& touch canary", "| touch canary",
	"> canary", "'$(touch canary)'", "'; touch canary; '", "!!", "#", "--", "-n", "=", "A=b", "{a,b}", "\x01", "\xff\xfe", "é", "🦉",
	"$$", "\\n", "%s", "\n; touch canary\n",
}

// A command that no shell would take is refused before it is sent.
func TestLongCommand(t *testing.T) {
	c := newHost(t, nil).connect(t)
	out, err := c.Run(t.Context(), []string{"printf", "%s", strings.Repeat("x", 100_000)}, nil)
	if err != nil || len(out.Stdout) != 100_000 {
		t.Errorf("%d bytes, %v", len(out.Stdout), err)
	}
	for _, long := range []string{strings.Repeat("x", 140_000), strings.Repeat("'", 30_000)} {
		if _, err := c.Run(t.Context(), []string{"echo", long}, nil); err == nil || !strings.Contains(err.Error(), "through stdin") || len(err.Error()) > 300 {
			t.Error(err)
		}
	}
}

func TestRun(t *testing.T) {
	c := newHost(t, nil).connect(t)
	tests := []struct {
		name           string
		argv           []string
		stdin          string
		stdout, stderr string
		exit           int
		err            string
	}{
		{name: "arguments arrive", argv: append([]string{"printf", `<%s>`}, nasty...), stdout: "<" + strings.Join(nasty, "><") + ">"},
		{name: "stdin", argv: []string{"cat"}, stdin: "line\n", stdout: "line\n"},
		{name: "no stdin", argv: []string{"cat"}},
		{name: "ignored stdin", argv: []string{"true"}, stdin: strings.Repeat("x", 4<<20)},
		{name: "much output", argv: []string{"head", "-c", "3000000", "/dev/zero"}, stdout: strings.Repeat("\x00", 3000000)},
		{name: "exit status", argv: []string{"sh", "-c", "echo out; echo why >&2; exit 3"}, stdout: "out\n", stderr: "why\n", exit: 3,
			err: "host h1: sh -c echo out; echo why >&2; exit 3: exit status 3: why"},
		{name: "signal", argv: []string{"sh", "-c", "kill -SEGV $$"}, exit: 139, err: "killed by SIGSEGV"},
		{name: "no such program", argv: []string{"/nonexistent"}, exit: 127, err: "not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := c.Run(t.Context(), tt.argv, strings.NewReader(tt.stdin))
			if string(out.Stdout) != tt.stdout || out.Exit != tt.exit {
				t.Errorf("stdout %.60q, exit %d", out.Stdout, out.Exit)
			}
			if tt.stderr != "" && string(out.Stderr) != tt.stderr {
				t.Errorf("stderr %q", out.Stderr)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v", err)
			}
			var failed *hosts.RunError
			if err != nil && (!errors.As(err, &failed) || failed.Exit != tt.exit) {
				t.Errorf("%T", err)
			}
		})
	}
	if left, _ := c.Run(t.Context(), []string{"ls", "-A"}, nil); len(left.Stdout) > 0 {
		t.Errorf("a shell made %q", left.Stdout)
	}
}

// A command that writes without end is stopped.
func TestRunBoundsOutput(t *testing.T) {
	c := newHost(t, nil).connect(t)
	_, err := c.Run(t.Context(), []string{"cat", "/dev/zero"}, nil)
	if err == nil || !strings.Contains(err.Error(), "MiB of output") {
		t.Error(err)
	}
}

// lifeline is a fifo that processes hold open: gone returns when the last of them
// is dead, however it died and whoever its parent was.
type lifeline struct {
	path  string
	lines chan string   // that were written to it
	end   chan struct{} // closed when all writers are gone
}

func newLifeline(t *testing.T) *lifeline {
	t.Helper()
	l := &lifeline{path: filepath.Join(t.TempDir(), "fifo"), lines: make(chan string, 16), end: make(chan struct{})}
	if err := syscall.Mkfifo(l.path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.end)
		f, err := os.Open(l.path) // returns when there is a writer
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			l.lines <- sc.Text()
		}
	}()
	return l
}

// family is a command with children and grandchildren in one process group, all of
// which ignore what can be ignored and hold the lifeline.
func (l *lifeline) family() []string {
	const script = `trap '' TERM HUP INT; exec 9>"$1"; (sleep 1000 & sleep 1000) & (sh -c 'sleep 1000; :') & echo up >&9; cat; wait`
	return []string{"/bin/sh", "-c", script, "sh", l.path}
}

func (l *lifeline) up(t *testing.T) {
	t.Helper()
	select {
	case <-l.lines:
	case <-time.After(20 * time.Second):
		t.Fatal("the command did not start")
	}
}

func (l *lifeline) gone(t *testing.T) {
	t.Helper()
	select {
	case <-l.end:
	case <-time.After(20 * time.Second):
		t.Fatal("processes are left")
	}
}

// However a command ends, its whole process group does.
func TestProcessGroup(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *host, *ssh.Client, *hosts.Process, context.CancelFunc){
		"kill": func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) {
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			var failed *hosts.RunError
			if err := p.Wait(); !errors.As(err, &failed) || failed.Signal != "KILL" {
				t.Error(err)
			}
			if err := p.Kill(t.Context()); err != nil {
				t.Errorf("again: %v", err)
			}
		},
		"cancel":           func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) { cancel() },
		"close process":    func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) { p.Close() },
		"close connection": func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) { c.Close() },
		"stop server":      func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) { h.down() },
		"no session left to kill by": func(t *testing.T, h *host, c *ssh.Client, p *hosts.Process, cancel context.CancelFunc) {
			h.Inject(sshd.NoSessions)
			if _, err := c.Run(t.Context(), []string{"true"}, nil); err == nil || !strings.Contains(err.Error(), "MaxSessions") {
				t.Errorf("a session more: %v", err)
			}
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			c := h.connect(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := newLifeline(t)
			p, err := c.Start(ctx, l.family(), nil)
			if err != nil {
				t.Fatal(err)
			}
			l.up(t)
			end(t, h, c, p, cancel)
			l.gone(t)
			if err := p.Wait(); err == nil {
				t.Error("ended as if all were well")
			}
		})
	}
}

func TestProcessPipes(t *testing.T) {
	c := newHost(t, nil).connect(t)
	p, err := c.Start(t.Context(), []string{"cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(p.Stdout)
	for i := range 10 {
		fmt.Fprintf(p.Stdin, "line %d\n", i)
		if line, err := r.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	p.Stdin.Close()
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRunCancelled(t *testing.T) {
	c := newHost(t, nil).connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	l := newLifeline(t)
	go func() {
		<-l.lines
		cancel(errors.New("enough"))
	}()
	r, w := io.Pipe() // an input that does not end
	defer w.Close()
	_, err := c.Run(ctx, l.family(), r)
	if err == nil || !strings.Contains(err.Error(), "host h1") || !strings.HasSuffix(err.Error(), ": enough") {
		t.Error(err)
	}
	l.gone(t)
	if _, err := c.Run(ctx, []string{"true"}, nil); err == nil {
		t.Error("ran after its context had ended")
	}
}

// A host that stops answering ends the connection and all that goes on over it.
func TestKeepAlive(t *testing.T) {
	h := newHost(t, func(h *host) { h.KeepAlive, h.KeepAliveMax = 20*time.Millisecond, 50 })
	c := h.connect(t)
	p, err := c.Start(t.Context(), []string{"cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadFile(t.Context(), "/proc/version"); err != nil {
		t.Fatal(err)
	}
	// Being asked for long does not wear a connection out.
	select {
	case <-c.Done():
		t.Fatal(c.Err())
	case <-time.After(1500 * time.Millisecond): // longer than it would be borne
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	h.Inject(sshd.Hang)
	pending := make(chan error, 3)
	go func() { _, err := c.Run(t.Context(), []string{"true"}, nil); pending <- err }()
	go func() { _, err := c.ReadFile(t.Context(), "/proc/version"); pending <- err }()
	go func() { pending <- p.Wait() }()
	for range 3 {
		err := <-pending
		if !errors.Is(err, hosts.ErrLost) || !strings.Contains(err.Error(), "no answer to keepalives for 1s") {
			t.Error(err)
		}
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
	if _, err := c.Start(t.Context(), []string{"true"}, nil); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
}

func TestUseAfterClose(t *testing.T) {
	c := newHost(t, nil).connect(t)
	c.Close()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Run(t.Context(), []string{"true"}, nil); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
	if _, err := c.Stat(t.Context(), "x"); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
}

func TestInteractive(t *testing.T) {
	c := newHost(t, nil).connect(t)
	var out, diag bytes.Buffer
	err := c.Interactive(t.Context(), nil, strings.NewReader("echo hello $((1+1)); exit 3\n"), &out, &diag)
	var failed *hosts.RunError
	if !errors.As(err, &failed) || failed.Exit != 3 || out.String() != "hello 2\n" {
		t.Errorf("%q %q %v", out.String(), diag.String(), err)
	}
	out.Reset()
	if err := c.Interactive(t.Context(), []string{"echo", "$HOME"}, strings.NewReader(""), &out, &diag); err != nil || out.String() != "$HOME\n" || diag.Len() > 0 {
		t.Errorf("%q %v", out.String(), err)
	}
}

func BenchmarkDial(b *testing.B) {
	h := newHost(b, nil)
	for b.Loop() {
		c, err := ssh.Dial(b.Context(), h.Target)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

func BenchmarkRun(b *testing.B) {
	c := newHost(b, nil).connect(b)
	for b.Loop() {
		if _, err := c.Run(b.Context(), []string{"true"}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

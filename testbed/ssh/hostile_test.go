package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/internal/heap"
	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/ssh"
)

// mostMemory is what a host may make this process keep, bytes.
const mostMemory = 128 << 20

// TestEndlessGreeting: a login shell that never comes to the command costs neither memory nor
// patience, whatever it says and however somebody ends it.
func TestEndlessGreeting(t *testing.T) {
	greetings := []string{"cat /dev/zero >&2", "yes >&2", "cat /dev/zero", "sleep 100"}
	if !proof.Wanted() {
		greetings = greetings[:1]
	}
	for _, says := range greetings {
		for name, do := range map[string]func(context.Context, *ssh.Client) error{
			"Run": func(ctx context.Context, c *ssh.Client) error {
				_, err := c.Run(ctx, []string{"true"}, nil)
				return err
			},
			"Start": func(ctx context.Context, c *ssh.Client) error {
				p, err := c.Start(ctx, []string{"true"}, io.Discard)
				if err != nil {
					return err
				}
				<-ctx.Done()
				if err := p.Close(); err == nil {
					t.Error("killed, though it has not begun")
				}
				return context.Cause(ctx)
			},
			"Start, closed after its end": func(ctx context.Context, c *ssh.Client) error {
				p, err := c.Start(ctx, []string{"true"}, io.Discard)
				if err != nil {
					return err
				}
				<-p.Done() // some time after ctx, when the host is given up
				if err := p.Close(); err == nil {
					t.Error("killed, though it has not begun")
				}
				return p.Wait()
			},
		} {
			t.Run(says+", "+name, func(t *testing.T) {
				h := newOpenSSH(t, "ForceCommand exec "+says)
				c, err := ssh.Dial(t.Context(), h.Target)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				most := heap.Watch()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begin := time.Now()
				if err := do(ctx, c); err == nil {
					t.Error("it ended as if all were well")
				}
				patience := 4 * time.Second
				if name == "Start, closed after its end" {
					patience = 12 * time.Second
				}
				if took := time.Since(begin); took > patience {
					t.Errorf("it took %v to end", took)
				}
				if n := most(); n > mostMemory {
					t.Errorf("%d MiB were kept", n>>20)
				}
			})
		}
	}
}

// TestHostileFiles: files that have no end, or for which a server waits, end what reads them, and
// nothing else: the next use goes on.
func TestHostileFiles(t *testing.T) {
	t.Parallel() // it waits
	hosts := map[string]func(*testing.T) ssh.Target{
		"sshd":    func(t *testing.T) ssh.Target { return newHost(t, nil).Target },
		"OpenSSH": func(t *testing.T) ssh.Target { return newOpenSSH(t).Target },
	}
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			c, err := ssh.Dial(t.Context(), host(t))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			write(t, at("file"), "abc")
			if err := errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("/dev/zero", at("zero")), os.Symlink(at("file"), at("link")), os.Mkdir(at("many"), 0o755)); err != nil {
				t.Fatal(err)
			}
			defer func() { // lets go whoever waits at its other end
				if f, err := os.OpenFile(at("fifo"), os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
					f.Close()
				}
			}()
			long := strings.Repeat("x", 240)
			for i := range 20_000 {
				write(t, at(fmt.Sprintf("many/%s%d", long, i)), "")
			}
			most := heap.Watch()
			for _, step := range []struct {
				what string
				do   func(context.Context) error
				want error
			}{
				{"read what has no end", func(ctx context.Context) error { _, err := c.ReadFile(ctx, at("zero")); return err }, bounded.ErrTooLarge},
				{"list what has too many names", func(ctx context.Context) error { _, err := c.ReadDir(ctx, at("many")); return err }, bounded.ErrTooLarge},
				{"read a FIFO", func(ctx context.Context) error { _, err := c.ReadFile(ctx, at("fifo")); return err }, context.DeadlineExceeded},
				{"read a FIFO that others may have put there", func(ctx context.Context) error { _, _, err := c.ReadSmall(ctx, at("fifo")); return err }, bounded.ErrIrregular},
				{"a link", func(ctx context.Context) error { _, _, err := c.ReadSmall(ctx, at("link")); return err }, bounded.ErrIrregular},
				{"nothing", func(ctx context.Context) error { _, _, err := c.ReadSmall(ctx, at("none")); return err }, fs.ErrNotExist},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if step.want == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
				}
				if err := step.do(ctx); !errors.Is(err, step.want) {
					t.Errorf("%s: %v, want %v", step.what, err, step.want)
				}
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				data, by, err := c.ReadSmall(ctx, at("file"))
				if err != nil || string(data) != "abc" || int(by.UID) != os.Getuid() || by.At.IsZero() {
					t.Fatalf("after that: %q, %v", data, err)
				}
				if names, err := c.ReadDir(ctx, dir); err != nil || len(names) != 5 {
					t.Fatalf("after that: %q, %v", names, err)
				}
				cancel()
			}
			if n := most(); n > mostMemory {
				t.Errorf("%d MiB were kept", n>>20)
			}
		})
	}
}

// TestSilentFiles: a server of files that says nothing ends what waits for it, though its host answers every sign of life
// and nobody set a time; the next use goes on.
func TestSilentFiles(t *testing.T) {
	t.Parallel() // it waits
	h := newHost(t, nil)
	target := h.Target
	target.KeepAlive, target.KeepAliveMax = 100*time.Millisecond, 8
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { // lets go whoever waits at its other end
		if f, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}()
	if _, err := c.ReadFile(t.Context(), fifo); err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Stat(t.Context(), fifo); err != nil {
		t.Errorf("after that: %v", err)
	}
}

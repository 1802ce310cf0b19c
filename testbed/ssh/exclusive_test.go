package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

// TestCreateMode: what is created for others to read can be read, where files of a host are for their owner alone.
func TestCreateMode(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	defer syscall.Umask(syscall.Umask(0o077)) // the server is this process
	if _, err := c.Create(t.Context(), "leases/host-h1.1", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(h.Dir, "leases", "host-h1.1"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != fs.FileMode(0o644) {
		t.Errorf("mode %v", mode)
	}
}

// TestNobodyWaits: who stops waiting for a file that is being written has no part in what becomes of it, which the race
// detector sees.
func TestNobodyWaits(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	if _, err := c.Create(t.Context(), "again", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
		_, made := c.Create(ctx, fmt.Sprint("new", i), []byte("{}"))
		_, written := c.Rewrite(ctx, "again", []byte("{}"))
		cancel()
		for _, err := range []error{made, written} {
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	}
	if at, err := c.Rewrite(t.Context(), "again", []byte("{}")); err != nil || at.At.IsZero() {
		t.Errorf("in the end: %v, %v", at, err)
	}
}

// TestReplaceCut: a connection that is cut while a file is given another content leaves the old one. What has
// arrived looks whole on the host.
func TestReplaceCut(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	at := filepath.Join(h.Dir, "sharp_am.cfg")
	if err := os.WriteFile(at, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Replace(t.Context(), at, make([]byte, 64<<20), 0o600, false) }()
	temps := func() []string {
		found, err := filepath.Glob(at + ".*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		for _, temp := range temps() {
			info, err := os.Stat(temp)
			begun = begun || err == nil && info.Size() > 3
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended before it was cut: %v", err)
		default:
		}
	}
	c.Close()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	for begin := time.Now(); len(temps()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%v are still there", temps())
		}
	}
	if got, err := os.ReadFile(at); string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestTakesNothing: a host that answers every sign of life, and reads nothing of what a command is given, is given up like one
// that says nothing.
func TestTakesNothing(t *testing.T) {
	h := newHost(t, nil)
	target := h.Target
	target.KeepAlive, target.KeepAliveMax = 200*time.Millisecond, 3
	c, err := ssh.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.Start(t.Context(), []string{"sleep", "60"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Stdin.Write(make([]byte, 16<<20))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		if err == nil {
			t.Error("all of it was taken")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the write does not end")
	}
	if err := p.Wait(); !errors.Is(err, hosts.ErrLost) {
		t.Errorf("the command: %v", err)
	}
}

// TestReadSmallSwapped: who puts a link in the place of a file of his own, just when it is read, has it taken for no file of
// the one whose file the link leads to.
func TestReadSmallSwapped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of others")
	}
	c := newHost(t, nil).connect(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("lease"), "anna's")
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	swap := func() error {
		return errors.Join(os.WriteFile(at("file"), nil, 0o644), os.Chown(at("file"), 4242, -1), os.Rename(at("file"), at("mark")),
			os.Symlink(at("lease"), at("link")), os.Rename(at("link"), at("mark")))
	}
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := swap(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 1000 {
		if data, by, err := c.ReadSmall(t.Context(), at("mark")); err == nil && (len(data) > 0 || by.UID != 4242) {
			t.Fatalf("%q of account %d", data, by.UID)
		}
	}
}

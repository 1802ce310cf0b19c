// Package hoststest is the suite that every launcher's hosts pass.
package hoststest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/hosts"
)

// patience is how long the suite waits for what is to happen at once: it only ends a hang.
const patience = 30 * time.Second

// Run holds a launcher to what a hosts.Host promises. Reach connects to a host named "h1", on which
// programs run as the same user as here; it is called for each part, and what it returns is closed
// by the suite. What the suite writes into the home there it removes.
func Run(t *testing.T, reach func(t *testing.T) hosts.Host) {
	for _, part := range []struct {
		name string
		test func(t *testing.T, h hosts.Host, dir string)
	}{
		{"run", runs}, {"start", starts}, {"kill", kills}, {"context", cancelled},
		{"files", files}, {"exclusive files", exclusive}, {"install", installs}, {"network", network},
	} {
		t.Run(part.name, func(t *testing.T) {
			h, dir := reach(t), "inabench-"+rand.Text()
			t.Cleanup(func() {
				if _, err := h.Run(context.Background(), []string{"rm", "-rf", dir}, nil); err != nil {
					t.Error(err)
				}
				h.Close()
			})
			part.test(t, h, dir)
		})
	}
	t.Run("close", func(t *testing.T) { closes(t, reach(t)) })
}

// runs: arguments arrive as they are, and how a program ended is told.
func runs(t *testing.T, h hosts.Host, _ string) {
	if h.String() != "h1" || h.Err() != nil {
		t.Errorf("%s, %v", h, h.Err())
	}
	args := []string{"a b", "$HOME", "'", `"`, "*", "", "\\", "ä\n"}
	out, err := h.Run(t.Context(), append([]string{"printf", "[%s]"}, args...), nil)
	if want := "[" + strings.Join(args, "][") + "]"; err != nil || string(out.Stdout) != want {
		t.Errorf("%q, %v, want %q", out.Stdout, err, want)
	}
	out, err = h.Run(t.Context(), []string{"sh", "-c", "cat; echo oh >&2; exit 3"}, strings.NewReader("in"))
	var failed *hosts.RunError
	if !errors.As(err, &failed) || failed.Exit != 3 || failed.Host != "h1" || failed.Stderr != "oh" || out.Exit != 3 || string(out.Stdout) != "in" || string(out.Stderr) != "oh\n" {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := h.Run(t.Context(), []string{"sh", "-c", "kill -TERM $$"}, nil); !errors.As(err, &failed) || failed.Signal != "TERM" && failed.Exit != 143 {
		t.Errorf("%v", err)
	}
	if _, err := h.Run(t.Context(), []string{"head", "-c", "20000000", "/dev/zero"}, nil); err == nil || !strings.Contains(err.Error(), "h1") {
		t.Errorf("20 MB of output: %v", err)
	}
	if out, err := h.Run(t.Context(), []string{"cat"}, nil); err != nil || len(out.Stdout) > 0 {
		t.Errorf("no stdin is %q, %v", out.Stdout, err)
	}
	root, err := h.RunRoot(t.Context(), []string{"id", "-u"}, nil)
	if errors.Is(err, hosts.ErrNotRoot) {
		if _, err := h.StartRoot(t.Context(), []string{"true"}, nil); !errors.Is(err, hosts.ErrNotRoot) {
			t.Errorf("%v", err)
		}
	} else if err != nil || string(root.Stdout) != "0\n" {
		t.Errorf("root is %q, %v", root.Stdout, err)
	}
}

// starts: a program is talked to while it runs, and its stderr goes where it was told.
func starts(t *testing.T, h hosts.Host, _ string) {
	var said safe
	p, err := h.Start(t.Context(), []string{"sh", "-c", `while read -r x; do echo "<$x>"; echo "($x)" >&2; done; exit 7`}, &said)
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	for _, x := range []string{"1", "2"} {
		if _, err := io.WriteString(p.Stdin, x+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p.Stdout, answer); err != nil || string(answer) != "<"+x+">\n" {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	select {
	case <-p.Done():
		t.Fatal("it has ended")
	default:
	}
	p.Stdin.Close()
	if rest, err := io.ReadAll(p.Stdout); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	var failed *hosts.RunError
	if err := p.Wait(); !errors.As(err, &failed) || failed.Exit != 7 {
		t.Errorf("%v", err)
	}
	within(t, p.Done(), "done")
	if said.String() != "(1)\n(2)\n" {
		t.Errorf("%q", said.String())
	}
	if err := errors.Join(p.Kill(t.Context()), p.Close(), p.Close()); err != nil {
		t.Errorf("of what has ended: %v", err)
	}
}

// family is a program with a child; each says its number.
var family = []string{"sh", "-c", "sleep 1000 & echo $$ $!; wait"}

// kills: closing a process ends what it has started, too.
func kills(t *testing.T, h hosts.Host, _ string) {
	p, err := h.Start(t.Context(), family, nil)
	if err != nil {
		t.Fatal(err)
	}
	pids := numbers(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, p.Done(), "done")
	var failed *hosts.RunError
	if err := p.Wait(); !errors.As(err, &failed) {
		t.Errorf("a killed program ended with %v", err)
	}
	gone(t, h, pids)
}

// cancelled: the end of a context ends its program, and is why.
func cancelled(t *testing.T, h hosts.Host, _ string) {
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := h.Start(ctx, family, nil)
	if err != nil {
		t.Fatal(err)
	}
	pids := numbers(t, p)
	enough := errors.New("enough")
	cancel(enough)
	within(t, p.Done(), "done")
	gone(t, h, pids)
	if _, err := h.Start(ctx, []string{"true"}, nil); !errors.Is(err, enough) {
		t.Errorf("started: %v", err)
	}
	if _, err := h.Run(ctx, []string{"true"}, nil); !errors.Is(err, enough) {
		t.Errorf("run: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(enough) })
	if _, err := h.Run(ctx, []string{"sleep", "1000"}, nil); !errors.Is(err, enough) || !strings.Contains(err.Error(), "h1") {
		t.Errorf("%v", err)
	}
}

// files: names are of the home, content is whole, and what is wrong is told by kind.
func files(t *testing.T, h hosts.Host, dir string) {
	ctx := t.Context()
	if err := h.WriteFile(ctx, dir+"/b/file", []byte("one"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile(ctx, dir+"/b/file", []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := h.ReadFile(ctx, dir+"/b/file"); err != nil || string(text) != "two" {
		t.Errorf("%q, %v", text, err)
	}
	if out, err := h.Run(ctx, []string{"cat", dir + "/b/file"}, nil); err != nil || string(out.Stdout) != "two" {
		t.Errorf("a program finds %q, %v: its directory is the home", out.Stdout, err)
	}
	if info, err := h.Stat(ctx, dir+"/b/file"); err != nil || info.Size() != 3 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	digest := sha256.Sum256([]byte("two"))
	if size, sum, err := h.Sum(ctx, dir+"/b/file"); err != nil || size != 3 || sum != hex.EncodeToString(digest[:]) {
		t.Errorf("%d, %s, %v", size, sum, err)
	}
	if err := h.Rename(ctx, dir+"/b/file", dir+"/b/other"); err != nil {
		t.Error(err)
	}
	if err := h.Replace(ctx, dir+"/b/other", []byte("three"), 0o644, false); err != nil {
		t.Error(err)
	}
	got := h.ReadFilesOf(ctx, 64, dir+"/b/other", dir+"/b/none", dir+"/b/other")
	if len(got) != 3 || string(got[0].Data) != "three" || !errors.Is(got[1].Err, fs.ErrNotExist) || string(got[2].Data) != "three" {
		t.Errorf("%+v", got)
	}
	if got := h.ReadFilesOf(ctx, 4, dir+"/b/other"); got[0].Err == nil {
		t.Errorf("more than the limit: %q", got[0].Data)
	}
	if names, err := h.ReadDir(ctx, dir+"/b"); err != nil || !slices.Equal(names, []string{"other"}) {
		t.Errorf("%q, %v", names, err)
	}
	for range 2 { // what is not there need not be removed
		if err := h.Remove(ctx, dir+"/b/other", false); err != nil {
			t.Error(err)
		}
	}
	for what, err := range map[string]error{
		"read": second(h.ReadFile(ctx, "none")), "stat": second(h.Stat(ctx, "none")), "list": second(h.ReadDir(ctx, "none")),
		"sum":    third(h.Sum(ctx, "none")),
		"rename": h.Rename(ctx, "none", "x"), "link": h.Link(ctx, "none", "x"), "rewrite": second(h.Rewrite(ctx, "none", nil)),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "h1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// exclusive: what leases are made of.
func exclusive(t *testing.T, h hosts.Host, dir string) {
	ctx := t.Context()
	before := time.Now().Add(-2 * time.Second)
	made, err := h.Create(ctx, dir+"/first", []byte("mine"))
	if err != nil || made.At.Before(before) || made.UID != uint32(os.Getuid()) {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := h.Create(ctx, dir+"/first", []byte("yours")); err == nil { // OpenSSH does not say more
		t.Error("made twice")
	}
	if err := h.Link(ctx, dir+"/first", dir+"/second"); err != nil {
		t.Error(err)
	}
	if err := h.Link(ctx, dir+"/first", dir+"/second"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("linked twice: %v", err)
	}
	if _, err := h.Rewrite(ctx, dir+"/first", []byte("mine")); err != nil {
		t.Error(err)
	}
	if err := h.WriteFile(ctx, dir+"/third", []byte("theirs"), 0o644); err != nil {
		t.Error(err)
	}
	if _, err := h.Rewrite(ctx, dir+"/third", []byte("mine")); !errors.Is(err, hosts.ErrChanged) {
		t.Errorf("somebody else's: %v", err)
	}
	if text, at, err := h.ReadSmall(ctx, dir+"/second"); err != nil || string(text) != "mine" || at.UID != made.UID || at.At.Before(made.At) {
		t.Errorf("%q, %+v, %v", text, at, err)
	}
	if _, err := h.Run(ctx, []string{"sh", "-c", `cd "$1" && ln -s first alias && mkfifo pipe && head -c 200000 /dev/zero >large`, "sh", dir}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"alias", "pipe", "large", "."} {
		if text, _, err := h.ReadSmall(ctx, dir+"/"+name); err == nil {
			t.Errorf("%s is read: %.20q", name, text)
		}
	}
}

// installs: a program is copied once.
func installs(t *testing.T, h hosts.Host, dir string) {
	local := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(local, []byte("#!/bin/sh\necho here # "+dir+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var at string
	for range 2 {
		var err error
		if at, err = hosts.EnsureFile(t.Context(), []hosts.Host{h}, local); err != nil {
			t.Fatal(err)
		}
	}
	defer h.Remove(context.Background(), at, false)
	if out, err := h.Run(t.Context(), []string{at}, nil); err != nil || string(out.Stdout) != "here\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
}

// network: the address at which the host reaches this machine is one of this machine's.
func network(t *testing.T, h hosts.Host, _ string) {
	local, err := h.Local()
	if err != nil || !local.IsValid() {
		t.Fatalf("%v, %v", local, err)
	}
	lis, err := net.Listen("tcp", net.JoinHostPort(local.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	lis.Close()
}

// closes: nothing is started any more on a host that was closed, and whoever waits is told.
func closes(t *testing.T, h hosts.Host) {
	p, err := h.Start(t.Context(), []string{"sleep", "1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Close(), h.Close()); err != nil {
		t.Error(err)
	}
	within(t, h.Done(), "the host")
	if err := h.Err(); !errors.Is(err, hosts.ErrLost) {
		t.Errorf("it was closed: %v", err)
	}
	within(t, p.Done(), "a process")
	if p.Wait() == nil {
		t.Error("it ended well")
	}
	if _, err := h.Run(context.Background(), []string{"true"}, nil); !errors.Is(err, hosts.ErrLost) {
		t.Errorf("run: %v", err)
	}
	if _, err := h.ReadFile(context.Background(), "x"); !errors.Is(err, hosts.ErrLost) {
		t.Errorf("read: %v", err)
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

// within waits for a channel to be closed.
func within(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: not over after %v", what, patience)
	}
}

// numbers are the two process numbers that a family says.
func numbers(t *testing.T, p *hosts.Process) []string {
	t.Helper()
	line := make([]byte, 0, 64)
	for one := make([]byte, 1); !bytes.HasSuffix(line, []byte("\n")); {
		if _, err := p.Stdout.Read(one); err != nil || len(line) == cap(line) {
			t.Fatalf("%q, %v", line, err)
		}
		line = append(line, one[0])
	}
	pids := strings.Fields(string(line))
	if len(pids) != 2 {
		t.Fatalf("%q", line)
	}
	return pids
}

// gone waits until processes of a host are.
func gone(t *testing.T, h hosts.Host, pids []string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		out, err := h.Run(t.Context(), append([]string{"sh", "-c", `for p; do [ ! -d /proc/$p ] || grep -q '^State:.Z' /proc/$p/status || echo $p; done`, "sh"}, pids...), nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(out.Stdout) == 0:
			return
		case time.Now().After(end):
			t.Fatalf("still there: %q", out.Stdout)
		}
	}
}

// safe is a buffer for several goroutines.
type safe struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

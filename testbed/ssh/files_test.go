package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/ssh"
)

func TestFiles(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	ctx := t.Context()
	local := writeFile(t, "local", strings.Repeat("0123456789", 100_000))
	if err := c.Upload(ctx, local, "a/b/file", 0o640); err != nil {
		t.Fatal(err)
	}
	info, err := c.Stat(ctx, "a/b/file")
	if err != nil || info.Size() != 1_000_000 || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	got, err := c.ReadFile(ctx, filepath.Join(h.Dir, "a/b/file"))
	want, _ := os.ReadFile(local)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	digest := sha256.Sum256(want)
	if size, sum, err := c.Sum(ctx, "a/b/file"); err != nil || size != 1_000_000 || sum != hex.EncodeToString(digest[:]) {
		t.Errorf("%d %s %v", size, sum, err)
	}
	if err := c.Upload(ctx, writeFile(t, "local", "new"), "a/b/file", 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := c.ReadFile(ctx, "a/b/file"); err != nil || string(got) != "new" {
		t.Errorf("replaced: %q, %v", got, err)
	}
	if got, err := c.ReadFile(ctx, "/proc/self/stat"); err != nil || len(got) == 0 {
		t.Errorf("a file without a size: %q, %v", got, err)
	}
	files := c.ReadFilesOf(ctx, bounded.Config, "a/b/file", "nothing", "/proc/version")
	if string(files[0].Data) != "new" || !errors.Is(files[1].Err, fs.ErrNotExist) || len(files[2].Data) == 0 {
		t.Errorf("%q", files)
	}
	for range 2 {
		if err := c.Remove(ctx, "a/b/file", false); err != nil {
			t.Error(err)
		}
	}
	wantTree(t, h.Dir, "a", "a/b")
}

func TestFileErrors(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	ctx := t.Context()
	local := writeFile(t, "local", "text")
	if err := os.WriteFile(filepath.Join(h.Dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, readErr := c.ReadFile(ctx, "nothing")
	_, statErr := c.Stat(ctx, "nothing")
	_, _, sumErr := c.Sum(ctx, "$(nothing)")
	for name, err := range map[string]error{"read nothing": readErr, "stat nothing": statErr, "sum $(nothing)": sumErr} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "host h1: "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"no local file":       c.Upload(ctx, "/nonexistent", "x", 0o600),
		"a file for a folder": c.Upload(ctx, local, "file/x", 0o600),
		"onto a folder":       c.Upload(ctx, local, ".", 0o600),
	} {
		if err == nil || !strings.Contains(err.Error(), "host h1: upload ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantTree(t, h.Dir, "file")
	// The connection is none the worse for it.
	if err := c.Upload(ctx, local, "x", 0o600); err != nil {
		t.Error(err)
	}
	c.Close()
	if _, err := c.ReadFile(ctx, "file"); !errors.Is(err, hosts.ErrLost) || strings.Count(err.Error(), "host h1") != 1 {
		t.Errorf("of a connection that is gone: %v", err)
	}
}

// wantTree says what is under a directory.
func wantTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			got = append(got, rel)
		}
		return err
	})
	if !slices.Equal(got, want) {
		t.Errorf("there is %q instead of %q", got, want)
	}
}

// An upload that is cancelled half-way leaves nothing.
func TestUploadCancelled(t *testing.T) {
	h := newHost(t, nil)
	c := h.connect(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Upload(t.Context(), fifo, "dir/file", 0o600); !errors.Is(err, bounded.ErrIrregular) {
		t.Errorf("a FIFO: %v", err)
	}
	r := &stuckReader{left: 1 << 20, waits: make(chan struct{}), ends: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- c.UploadFrom(ctx, r, "dir/file", 0o600) }()
	select {
	case <-r.waits:
	case err := <-result:
		t.Fatal(err)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "host h1: upload") {
		t.Error(err)
	}
	// The upload behind it ends when its read does. It then cleans up, and does not take the end for that of the text.
	close(r.ends)
	for range 1000 {
		if left, _ := os.ReadDir(filepath.Join(h.Dir, "dir")); len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	wantTree(t, h.Dir, "dir")
}

// stuckReader gives some bytes, says that it waits, and is at its end when it is told so.
type stuckReader struct {
	left        int
	waits, ends chan struct{}
}

func (r *stuckReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		close(r.waits)
		<-r.ends
		return 0, io.EOF
	}
	n := min(r.left, len(p))
	r.left -= n
	return n, nil
}

// program is a small program and the path that EnsureFile gives it.
func program(t *testing.T) (local, remote string) {
	text := "#!/bin/sh\necho it runs\n"
	sum := sha256.Sum256([]byte(text))
	return writeFile(t, "program", text), fmt.Sprintf(".cache/inabench/agent-%x", sum[:6])
}

// sums makes a host count, in a file, how often a checksum was asked for, which is
// once for each upload. It may also give a wrong one.
func sums(t *testing.T, h *host, command string) (count func() int) {
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	script := "#!/bin/sh\necho >>" + log + "\nPATH=/usr/bin:/bin\n" + command + "\n"
	if err := os.WriteFile(filepath.Join(bin, "sha256sum"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	h.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	return func() int {
		b, _ := os.ReadFile(log)
		return len(b)
	}
}

func TestEnsureFile(t *testing.T) {
	local, want := program(t)
	shared := t.TempDir()
	for _, tt := range []struct {
		name  string
		dir   func(i int) string
		total int // uploads
	}{
		{"own homes", func(i int) string { return "" }, 5},
		{"one shared home", func(i int) string { return shared }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var clients []hosts.Host
			var counts []func() int
			for i := range 5 {
				h := newHost(t, func(h *host) {
					h.Name = fmt.Sprintf("h%d", i)
					if dir := tt.dir(i); dir != "" {
						h.Dir = dir
					}
					counts = append(counts, sums(t, h, "exec sha256sum"))
				})
				clients = append(clients, h.connect(t))
			}
			for range 2 { // the second time there is nothing to do
				remote, err := hosts.EnsureFile(t.Context(), clients, local)
				if err != nil || remote != want {
					t.Fatalf("%q, %v", remote, err)
				}
				total := 0
				for i, count := range counts {
					total += count()
					out, err := clients[i].Run(t.Context(), []string{remote}, nil)
					if err != nil || string(out.Stdout) != "it runs\n" {
						t.Errorf("host %d: %q, %v", i, out.Stdout, err)
					}
				}
				if total != tt.total {
					t.Errorf("%d uploads instead of %d", total, tt.total)
				}
			}
			if tt.total == 1 {
				wantTree(t, shared, ".cache", ".cache/inabench", want)
			}
		})
	}
}

// Several runs that begin together on one home do not disturb each other, nor what
// already runs from there.
func TestEnsureFileRace(t *testing.T) {
	local, want := program(t)
	h := newHost(t, nil)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			c, err := ssh.Dial(t.Context(), h.Target)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			remote, err := hosts.EnsureFile(t.Context(), []hosts.Host{c}, local)
			if err != nil {
				t.Error(err)
				return
			}
			if out, err := c.Run(t.Context(), []string{remote}, nil); err != nil || string(out.Stdout) != "it runs\n" {
				t.Errorf("%q, %v", out.Stdout, err)
			}
		})
	}
	wg.Wait()
	wantTree(t, h.Dir, ".cache", ".cache/inabench", want)
}

func TestEnsureFileErrors(t *testing.T) {
	local, want := program(t)
	wrong := newHost(t, func(h *host) { sums(t, h, "echo "+strings.Repeat("0", 64)) })
	c := wrong.connect(t)
	if _, err := hosts.EnsureFile(t.Context(), []hosts.Host{c}, local); err == nil || !strings.Contains(err.Error(), "host h1") || !strings.Contains(err.Error(), "sha256 0000") {
		t.Errorf("corrupted on its way: %v", err)
	}
	wantTree(t, wrong.Dir, ".cache", ".cache/inabench")

	// One that was cut short by other means is replaced.
	h := newHost(t, nil)
	cut := filepath.Join(h.Dir, want)
	if err := os.MkdirAll(filepath.Dir(cut), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, []byte("#!/bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	good := h.connect(t)
	if _, err := hosts.EnsureFile(t.Context(), []hosts.Host{good}, local); err != nil {
		t.Error(err)
	}
	if out, err := good.Run(t.Context(), []string{want}, nil); err != nil || string(out.Stdout) != "it runs\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}

	c.Close()
	if _, err := hosts.EnsureFile(t.Context(), []hosts.Host{good, c}, local); !errors.Is(err, hosts.ErrLost) {
		t.Error(err)
	}
	if _, err := hosts.EnsureFile(t.Context(), nil, "/nonexistent"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestReplace: a file gets another content and mode, and stays otherwise what it is.
func TestReplace(t *testing.T) {
	c := newHost(t, nil).connect(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("file"), "old")
	if err := errors.Join(os.Symlink("file", at("link")), os.WriteFile(at("it's one"), nil, 0o600), os.Link(at("it's one"), at("-two"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "-two", "new"} {
		if err := c.Replace(t.Context(), at(name), []byte("new of "+name), 0o604, false); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"file": "new of link", "it's one": "new of -two", "-two": "new of -two", "new": "new of new"} {
		st, err := os.Lstat(at(name))
		if err != nil || read(t, at(name)) != want || st.Mode() != 0o604 {
			t.Errorf("%s: %q, %v, %v", name, read(t, at(name)), st.Mode(), err)
		}
	}
	if to, err := os.Readlink(at("link")); err != nil || to != "file" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := c.Replace(t.Context(), at("no/file"), nil, 0o600, false); err == nil || !strings.Contains(err.Error(), "replace "+at("no/file")) {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 5 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// TestReplaceUnforeseen: nobody can tell beforehand what the new content is called until it is whole, and put a file there.
func TestReplaceUnforeseen(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	log, at := filepath.Join(bin, "log"), filepath.Join(dir, "file")
	mv := "#!/bin/sh\nfor at; do :; done\nls -d \"$at\".* >>" + log + "\nPATH=/usr/bin:/bin\nexec mv \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "mv"), []byte(mv), 0o700); err != nil {
		t.Fatal(err)
	}
	c := newHost(t, func(h *host) { h.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")) }).connect(t)
	const times = 3
	for i := range times {
		if err := c.Replace(t.Context(), at, []byte{byte(i)}, 0o644, false); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, name := range strings.Fields(read(t, log)) {
		seen[name] = true
		if own := strings.TrimPrefix(name, at+"."); len(own) < 8 || own == name {
			t.Errorf("it is called %s", name)
		}
	}
	if len(seen) != times {
		t.Errorf("%d names for %d files: %v", len(seen), times, seen)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}

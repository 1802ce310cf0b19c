package ssh_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/ssh"
)

// until reads some bytes now and then until a time.
type until struct{ end time.Time }

func (u *until) Read(p []byte) (int, error) {
	if time.Now().After(u.end) {
		return 0, io.EOF
	}
	time.Sleep(100 * time.Millisecond)
	return copy(p, bytes.Repeat([]byte{'x'}, 4096)), nil
}

// TestForgottenSession: who gives up waiting for a file does not end an upload beside, however long that takes.
func TestForgottenSession(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	h := newHost(t, func(h *host) { h.Dir = dir })
	c, err := ssh.Dial(t.Context(), h.Target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(9 * time.Second) // twice what a session that is forgotten has
	uploaded := make(chan error, 1)
	go func() { uploaded <- c.UploadFrom(t.Context(), &until{end}, filepath.Join(dir, "file"), 0o600) }()
	time.Sleep(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.ReadFile(ctx, fifo); err == nil { // nobody writes there
		t.Error("a FIFO was read to its end")
	}
	w, err := os.OpenFile(fifo, os.O_RDWR, 0) // its reader ends with the session
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := <-uploaded; err != nil || time.Now().Before(end) {
		t.Errorf("%v", err)
	}
	if st, err := os.Stat(filepath.Join(dir, "file")); err != nil || st.Size() < 40*4096 {
		t.Errorf("%v, %v", st, err)
	}
}

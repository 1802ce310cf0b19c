package supervise_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/supervise"
)

// TestConverse: lines go both ways, each within its time and length, and the end waits for what the program still says.
func TestConverse(t *testing.T) {
	begin := func(script string) *supervise.Dialogue {
		d, err := supervise.Converse(t.Context(), supervise.Config{
			Name: "script", Argv: []string{"sh", "-c", script}, Leases: t.TempDir(), Grace: patience.Seconds(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := begin(`while read -r line; do echo "$line"; done; echo bye >&2`)
	if _, err := d.Hear(time.Millisecond, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v before anything was said", err)
	}
	for _, want := range []string{"a", "", "b c"} {
		d.Tell([]byte(want))
		if got, err := d.Hear(patience, 10); err != nil || string(got) != want {
			t.Errorf("heard %q, %v, want %q", got, err, want)
		}
	}
	d.Tell([]byte(strings.Repeat("x", 11)))
	if _, err := d.Hear(patience, 10); !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	if said, err := d.End(); err != nil || said != "bye" {
		t.Errorf("it said %q, %v", said, err)
	}
	d = begin("printf half")
	if _, err := d.Hear(patience, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v of half a line", err)
	}
	if _, err := d.End(); err != nil {
		t.Error(err)
	}
	d = begin("exit 3")
	if _, err := d.Hear(patience, 10); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
	var exit *supervise.ExitError
	if _, err := d.End(); !errors.As(err, &exit) || exit.Status != 3 {
		t.Errorf("error %v", err)
	}
}

// TestDirectory: a program that is named with a slash is looked for from the directory on in which it starts, as a shell
// there does, and wherever its supervisor is.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\necho here\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(dir))
	for _, in := range []string{dir, filepath.Base(dir)} {
		ask := func(program string) (string, error) {
			out, _, err := supervise.Output(t.Context(), supervise.Config{
				Name: "mine", Argv: []string{program}, Dir: in, Leases: t.TempDir(), Grace: patience.Seconds(),
			}, 1<<10)
			return string(out), err
		}
		if out, err := ask("./mine"); err != nil || out != "here\n" {
			t.Errorf("in %s it said %q, error %v", in, out, err)
		}
		if _, err := ask("./other"); err == nil || !strings.Contains(err.Error(), in+"/./other") {
			t.Errorf("in %s error %v", in, err)
		}
	}
}

// TestStopped: nobody waits for ever for a program that stops its supervisor, however much it was told and did not read.
func TestStopped(t *testing.T) {
	t.Parallel() // it waits
	d, err := supervise.Converse(t.Context(), supervise.Config{
		Name: "script", Argv: []string{"sh", "-c", "kill -STOP $PPID; echo stopped; exec sleep 1000"}, Leases: t.TempDir(), Grace: 0.01,
	})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := d.Hear(patience, 10); err != nil || string(line) != "stopped" {
		t.Fatalf("heard %q, %v", line, err)
	}
	for range 3 {
		d.Tell(make([]byte, 1<<20)) // more than a pipe holds
	}
	if _, err := d.Hear(time.Millisecond, 10); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if _, err := d.End(); err == nil {
		t.Error("its supervisor was not killed")
	}
}

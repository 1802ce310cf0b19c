package netns

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCallGivenUp checks that an answer which comes too late is not taken for that
// of the next question.
func TestCallGivenUp(t *testing.T) {
	// It answers every line with that line, the first one only when told to.
	gate := filepath.Join(t.TempDir(), "gate")
	script := filepath.Join(t.TempDir(), "script")
	text := "#!/bin/sh\nread first\nwhile ! test -e " + gate + "; do sleep 0.01; done\necho \"$first\"\nwhile read line; do echo \"$line\"; done\necho bye >&2\nexit 7\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(script, "switch slow", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stdin.Close(); p.cmd.Process.Kill(); <-p.exited })
	ctx, cancel := context.WithCancel(t.Context())
	var answer string
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := p.call(ctx, "one", &answer); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "switch slow") {
		t.Fatalf("a cancelled call: %v", err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"two", "three"} {
		if err := p.call(t.Context(), q, &answer); err != nil || answer != q {
			t.Errorf("%q was answered %q (%v)", q, answer, err)
		}
	}
	p.stdin.Close()
	if err := stop([]*process{p}, 5*time.Second); err != nil {
		t.Error(err)
	}
	if err := p.call(t.Context(), "four", &answer); err == nil || err.Error() != "switch slow is gone: exit status 7: bye" {
		t.Errorf("a call to a process that has ended: %v", err)
	}
}

// TestStopKills checks that a process which ignores the end of its stdin is killed.
func TestStopKills(t *testing.T) {
	p, err := startProcess("/bin/sh", "host stubborn", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.exited // sh netns-host: no such script
	if err := stop([]*process{p}, time.Second); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if p, err = startProcess(script, "host stubborn", 0, nil); err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	if err := stop([]*process{p}, 50*time.Millisecond); err == nil || err.Error() != "host stubborn did not stop within 50ms: killed" {
		t.Errorf("stopping what does not stop: %v", err)
	}
	if p.alive() {
		t.Error("it is still there")
	}
}

// TestCloseGivesUp: a process that survives a kill, as one does that waits for a dead disk, is named; nobody waits for its end.
func TestCloseGivesUp(t *testing.T) {
	p, err := startProcess("/bin/sh", "host stuck", 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.exited
	stuck := &process{name: p.name, cmd: p.cmd, stdin: p.stdin, exited: make(chan struct{})}
	f := &Fabric{procs: []*process{stuck}, closing: make(chan struct{}), failed: make(chan struct{})}
	f.watch.Go(func() { f.watchProcess(stuck) })
	closed := make(chan error, 1)
	go func() { closed <- f.Close(t.Context()) }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "host stuck") {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it is waited for")
	}
}

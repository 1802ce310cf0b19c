package supervise_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/supervise"
)

// TestFence: who has lost a host runs nothing there any more, whether he knows or not.
func TestFence(t *testing.T) {
	dir := t.TempDir()
	place := lease.Place{Name: "host h1", Key: "host-h1", Files: lease.Dir(dir)}
	take := func(owner, run string) supervise.Fence {
		t.Helper()
		l, err := lease.Take(t.Context(), place, lease.Claim{Owner: owner, Reason: "a deadline", Run: run, TTL: time.Minute, Takeover: true})
		if err != nil {
			t.Fatal(err)
		}
		return supervise.Fence{Name: "host h1", Dir: dir, Key: place.Key, Number: l.Fencing(), Holder: l.Holder()}
	}
	const script = "echo up; exec sleep 1000"
	anna := take("anna", "R1")
	s := start(t, script, supervise.Config{Name: "worker A/0", Lease: 60, Fence: &anna})
	s.line()
	s.say(supervise.Beat)
	bob := take("bob", "R2")
	time.Sleep(10 * time.Millisecond)
	_, _ = fmt.Fprintln(s.stdin, supervise.Beat) // it may know by the one before, if that came late
	const taken = `host h1: lease lost: bob took it over for "a deadline" (fencing number 2 after 1)`
	if status := s.wait(); status != 6 || !strings.Contains(s.stderr.String(), "worker A/0: ended: "+taken) {
		t.Errorf("ended with %d and %q", status, &s.stderr)
	}
	s.noLease()

	s = start(t, script, supervise.Config{Name: "worker A/1", Lease: 60, Fence: &anna})
	if status := s.wait(); status != 6 || !strings.Contains(s.stderr.String(), "worker A/1: not started: "+taken) {
		t.Errorf("ended with %d and %q", status, &s.stderr)
	}
	s.noLease()

	// A directory that is not there, or in which somebody has put a FIFO, ends nobody's program.
	if err := unix.Mkfifo(filepath.Join(dir, "host-h1.3"), 0o644); err != nil {
		t.Fatal(err)
	}
	away := bob
	away.Dir = filepath.Join(dir, "gone")
	for _, f := range []supervise.Fence{bob, away} {
		s = start(t, script, supervise.Config{Name: "worker B/0", Lease: 60, Fence: &f})
		s.line()
		s.say(supervise.Beat)
		s.say(supervise.Beat)
		s.stdin.Close()
		if status := s.wait(); status != 0 {
			t.Errorf("%s: ended with %d and %q", f.Dir, status, &s.stderr)
		}
	}
}

package experiments

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/program"
)

// TestCleaned: what programs printed loses its secrets, and holds up nobody who has interrupted the run.
func TestCleaned(t *testing.T) {
	const secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	long := []byte(strings.Repeat("a line of a log\n", 10_000) + "token=" + secret + "\nthe end\n")
	if got := cleaned(t.Context(), long, false, program.Redact); len(got) < 100_000 || bytes.Contains(got, []byte(secret)) {
		t.Errorf("%d bytes of %d", len(got), len(long))
	}
	over, cancel := context.WithCancel(t.Context())
	slow := func(b []byte) []byte {
		if len(b) > lastKept {
			cancel()
			time.Sleep(time.Hour)
		}
		return program.Redact(b)
	}
	for _, ctx := range []context.Context{over, over} { // interrupted meanwhile, and before
		if got := string(cleaned(ctx, long, false, slow)); !strings.HasPrefix(got, "(interrupted: the beginning is not kept)") || !strings.HasSuffix(got, "the end\n") || strings.Contains(got, secret) {
			t.Errorf("%.100s", got)
		}
	}
	if got := string(cleaned(over, []byte(`{"env": {"X": "hunter2"}}`), true, program.RedactJSON)); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
	if got := string(cleaned(over, []byte("short\n"), false, program.Redact)); got != "short\n" {
		t.Error(got)
	}
}

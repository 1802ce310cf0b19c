package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTakeTurn: of two emulations on one machine the second says what to expect, or waits for the first; one that has ended
// is in nobody's way.
func TestTakeTurn(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	take := func(ctx context.Context, experiment string, wait time.Duration) (done func(), said []string, err error) {
		done, err = takeTurn(ctx, experiment, wait, func(text string) { said = append(said, text) })
		return done, said, err
	}
	first, said, err := take(t.Context(), "first", 0)
	if err != nil || len(said) > 0 {
		t.Fatalf("alone: %q, %v", said, err)
	}
	for range 2 { // what runs beside it takes nothing from it
		beside, said, err := take(t.Context(), "second", 0)
		if err != nil || len(said) != 1 || !strings.HasPrefix(said[0], "there is another emulation (first), for ") || !strings.HasSuffix(said[0], "; --wait 10m waits for its end") {
			t.Fatalf("beside another: %q, %v", said, err)
		}
		beside()
	}
	_, said, err = take(t.Context(), "second", time.Millisecond)
	if len(said) != 1 || !strings.HasPrefix(said[0], "waiting for another emulation (first), for ") {
		t.Errorf("it says %q while it waits", said)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "another emulation (first), for ") || !strings.HasSuffix(err.Error(), " has not ended within 1ms") || codeOf(t.Context(), err) != exitInvalid {
		t.Errorf("waited for too short: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := interruption{syscall.SIGINT}
	cancel(stopped)
	if _, _, err = take(ctx, "second", time.Hour); !errors.Is(err, stopped) {
		t.Errorf("interrupted while it waits: %v", err)
	}
	second, err := takeTurn(t.Context(), "second", time.Hour, func(string) { first() }) // which ends while it is waited for
	if err != nil {
		t.Fatal(err)
	}
	if _, said, err := take(t.Context(), "third", 0); err != nil || len(said) != 1 || !strings.HasPrefix(said[0], "there is another emulation (second), for ") {
		t.Errorf("beside who has waited: %q, %v", said, err)
	}
	second()
	third, said, err := take(t.Context(), "third", 0)
	if err != nil || len(said) > 0 {
		t.Errorf("after all others: %q, %v", said, err)
	}
	third()
	// Where no file can be kept, nothing is marked and nothing is wrong.
	if err := os.WriteFile(filepath.Join(cache, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(cache, "file"))
	for range 2 {
		done, said, err := take(t.Context(), "fourth", 0)
		if err != nil || len(said) > 0 {
			t.Errorf("without a file: %q, %v", said, err)
		}
		defer done()
	}
}

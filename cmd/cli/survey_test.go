package cli

import "testing"

// TestChildError: a run that came to nothing ends this program with its exit code; one that a signal ended is no expectation
// that failed, but a testbed that did.
func TestChildError(t *testing.T) {
	for code, want := range map[int]int{-1: exitTestbed, exitInvalid: exitInvalid, exitBusy: exitBusy} {
		if got := codeOf(t.Context(), childError{"netns", code, "signal: killed"}); got != want {
			t.Errorf("a run that exited with %d: exit code %d, want %d", code, got, want)
		}
	}
}

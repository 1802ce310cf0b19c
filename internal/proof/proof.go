// Package proof is for tests that take long. What `go test ./...` runs is what somebody waits for who changes something; with
// INABENCH_PROOFS=1 in the environment it runs all proofs, as .ci/nightly does.
package proof

import (
	"os"
	"testing"
)

// Wanted reports whether tests, or cases of them, that take long are wanted.
func Wanted() bool { return os.Getenv("INABENCH_PROOFS") != "" }

// Only skips a test that takes long, unless such are wanted; why says what of it does.
func Only(tb testing.TB, why string) {
	tb.Helper()
	if !Wanted() {
		tb.Skip("INABENCH_PROOFS is not set: " + why)
	}
}

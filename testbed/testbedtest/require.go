package testbedtest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Require skips a test that needs something this machine lacks: what is its name
// ("netns", "bmv2"), err says why it is not there, nil that it is. A name listed in
// INABENCH_REQUIRE ("netns,bmv2", or "all") may not be skipped: the test fails.
// Every skip in this project goes through here, so that green never means "skipped".
func Require(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	required := strings.Split(os.Getenv("INABENCH_REQUIRE"), ",")
	if slices.Contains(required, what) || slices.Contains(required, "all") {
		t.Fatalf("%s is required by INABENCH_REQUIRE: %v", what, err)
	}
	t.Skipf("skipped: %s: %v", what, err)
}

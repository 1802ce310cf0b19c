package cli

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/preflight"
)

// TestWritePreflight: below what is near to its limit, and a ceiling that a plan exceeds, is what to do. Of other checks that
// fail an error says it.
func TestWritePreflight(t *testing.T) {
	var out strings.Builder
	err := writePreflight(&out, []results.Preflight{
		{Name: preflight.MTU, Host: "h1", Outcome: results.Fail, Found: "1500", Wanted: "9000", Hint: "set it"},
		{Name: preflight.Ceiling, Host: "h1", Outcome: results.Inconclusive, Found: "much", Wanted: "less", Hint: "ask for less"},
		{Name: preflight.Ceiling, Host: "h2", Outcome: results.Inconclusive, Found: "much", Wanted: "less", Hint: "ask for less"},
		{Name: preflight.Ceiling, Host: "h3", Outcome: results.Fail, Found: "too much", Wanted: "less", Hint: "ask for far less"},
		{Name: preflight.Ceiling, Host: "h4", Outcome: results.Skipped, Why: "off"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"CHECK HOSTS FOUND",
		"FAIL mtu h1 1500; wanted 9000",
		"WARN ceiling h1, h2 much; wanted less", "to do: ask for less",
		"FAIL ceiling h3 too much; wanted less", "to do: ask for far less",
		"skipped ceiling h4 off",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}

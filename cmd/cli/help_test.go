package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHelpFits: help of commands fits a terminal, and is no error. What is in it is in testdata/script/help.txtar.
func TestHelpFits(t *testing.T) {
	for _, words := range []string{
		"check", "plan", "calibrate", "show", "history", "baseline set", "gc", "graph", "place", "models", "ssh", "doctor", "clean", "policy check",
		"inventory", "inventory import", "inventory diff", "inventory routes", "inventory discover",
	} {
		var stdout, stderr strings.Builder
		code := Main(slices.Concat([]string{"inabench"}, strings.Fields(words), []string{"-h"}), nil, &stdout, &stderr)
		if code != exitOK || stdout.Len() == 0 || stderr.Len() > 0 {
			t.Errorf("%s: exit code %d, %d bytes of help: %s", words, code, stdout.Len(), &stderr)
		}
		for line := range strings.Lines(stdout.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", words, n, line)
			}
		}
	}
}

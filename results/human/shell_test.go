package human

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestShellLine: a shell takes the words apart again.
func TestShellLine(t *testing.T) {
	words := []string{"plain", "a=1,2", "", "with blanks", "it's", `"`, "$(touch hurt)", "`x`", "{a,b}", "line\nend", "\t", "~", "*", "a;b", `\`}
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+ShellLine(words...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("%q, want %q", got, words)
	}
	if got := ShellLine("run", "--set", "a.b=1"); got != "run --set a.b=1" {
		t.Errorf("%s", got)
	}
}

package human

import (
	"regexp"
	"strings"
)

// quiet is a word in which a shell sees nothing but itself.
var quiet = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%-]+$`)

// ShellLine is a command that can be pasted into a shell: each word comes out of it as it is here, whoever wrote it.
func ShellLine(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; !quiet.MatchString(w) {
			out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

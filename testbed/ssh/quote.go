package ssh

import (
	"errors"
	"fmt"
	"strings"
)

// Quote makes a command line that a POSIX shell splits back into exactly argv.
// SSH carries a command as one string for the user's login shell, so every
// element goes into single quotes, inside which nothing has a meaning.
//
// It refuses an empty argv, NUL bytes, which no argument can hold, and a program
// name that is empty or could be taken for an option of the shell's exec.
func Quote(argv []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("no command")
	}
	if argv[0][0] == '-' {
		return "", fmt.Errorf("command %q begins with a dash; write ./%s", argv[0], argv[0])
	}
	var b strings.Builder
	for i, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return "", fmt.Errorf("argument %d of %q holds a NUL byte", i, argv[0])
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(arg, "'", `'\''`))
		b.WriteByte('\'')
	}
	return b.String(), nil
}

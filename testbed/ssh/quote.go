package ssh

import (
	"errors"
	"fmt"
	"strings"

	"github.com/inabench/inabench/testbed/hosts"
)

// remote makes the command line that runs argv on a host, after what /bin/sh shall do
// first: announce, or nothing.
//
// The user's login shell sees no byte of argv that means anything to a shell, be it a
// POSIX one, csh or fish, which differ in what quotes do: what is not plain is written
// in octal, and /bin/sh turns it back. The only shell syntax is what stands here.
//
// It refuses an empty argv, NUL bytes, which no argument can hold, and a program name
// that is empty or could be taken for an option of the shell's exec.
func remote(first string, argv []string) (string, error) {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return "", errors.New("no command")
	case argv[0][0] == '-':
		return "", fmt.Errorf("command %q begins with a dash; write ./%s", argv[0], argv[0])
	}
	var b strings.Builder
	b.WriteString("exec /bin/sh -c '" + first + unpack + "' sh")
	for i, arg := range argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return "", fmt.Errorf("argument %d of %q holds a NUL byte", i, argv[0])
		}
		b.WriteString(" '")
		pack(&b, arg)
		b.WriteByte('\'')
	}
	if b.Len() > maxLine {
		return "", fmt.Errorf("command %q is %d bytes long as it is sent, and %d is all that a shell takes: send what is long through stdin", hosts.Abbreviate(argv), b.Len(), maxLine)
	}
	return b.String(), nil
}

// maxLine bounds a command line, bytes: it is one argument of the login shell, which
// Linux takes up to 128 KiB.
const maxLine = 128<<10 - 1

const (
	// announce says on stdout where the command's output begins, and on stderr its process
	// group, because servers differ in whether they deliver signals (golang/go#16597).
	announce = `echo ` + outputMark + `; echo ` + groupMark + `$$ >&2; `
	// unpack turns arguments back, of which those in octal begin with a percent sign, and
	// becomes the command that they are. Command substitution takes newlines from the end,
	// hence the x. LC_ALL is for shells that would count characters, and is put back. There
	// is no backslash and no quote in it, which login shells differ about.
	unpack = `ina_l=${LC_ALL-} ina_h=${LC_ALL+x}; LC_ALL=C; ` +
		`for ina_a do shift; case $ina_a in %*) ina_a=$(printf "%bx" "${ina_a#%}"); ina_a=${ina_a%x};; esac; set -- "$@" "$ina_a"; done; ` +
		`LC_ALL=$ina_l; [ "$ina_h" ] || unset LC_ALL; exec "$@"`
)

// pack writes an argument, in octal if anything in it is not plain.
func pack(b *strings.Builder, arg string) {
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("_-+=./:,@", c) >= 0
	}
	i := 0
	for i < len(arg) && plain(arg[i]) {
		i++
	}
	if i == len(arg) {
		b.WriteString(arg)
		return
	}
	b.WriteByte('%')
	for i := range len(arg) {
		if plain(arg[i]) {
			b.WriteByte(arg[i])
		} else {
			fmt.Fprintf(b, `\0%03o`, arg[i])
		}
	}
}

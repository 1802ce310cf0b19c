package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// door is what all text passes on its way to a stream: much of it is that of hosts, switches, files
// and people, and nothing that they say may move the cursor, write over a line, name the window or fill
// the clipboard. Where a person reads it, what changes the order of letters does not pass either. It
// stands in the way of nothing that this program prints of its own: colours pass, and who has the door can
// write lines that are not to stay.
type door struct {
	to  io.Writer
	tty bool

	mu    sync.Mutex
	rest  []byte // of a rune or a colour that has not ended
	lines int    // on the terminal that are not to stay
}

func newDoor(to io.Writer) *door {
	tty, _, _ := terminal(to)
	return &door{to: to, tty: tty}
}

// colour is what package results paints with.
var colour = regexp.MustCompile(`^\x1b\[(0|2|3[1-6])m`)

// mostRest bounds what is kept of a colour that does not end.
const mostRest = len("\x1b[00m")

// Write implements io.Writer. What may not pass is shown as U+FFFD.
func (d *door) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.erase(); err != nil {
		return 0, err
	}
	return d.write(p)
}

func (d *door) write(p []byte) (int, error) {
	in := append(d.rest, p...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		if in[0] == 0x1b {
			if c := colour.Find(in); c != nil {
				out, in = append(out, c...), in[len(c):]
				continue
			}
			if len(in) < mostRest && unfinished(in) {
				break
			}
		}
		if !utf8.FullRune(in) {
			break
		}
		r, n := utf8.DecodeRune(in)
		if r == utf8.RuneError && n == 1 || !d.passes(r) {
			r = utf8.RuneError
		}
		out, in = utf8.AppendRune(out, r), in[n:]
	}
	d.rest = append([]byte(nil), in...)
	if _, err := d.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unfinished says whether bytes can be the beginning of a colour.
func unfinished(p []byte) bool {
	for i, b := range p {
		switch {
		case i == 0 && b != 0x1b, i == 1 && b != '[', i > 1 && (b < '0' || b > '9'):
			return false
		}
	}
	return true
}

func (d *door) passes(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return true
	case r == '\r': // of a document, such as CSV
		return !d.tty
	case unicode.IsControl(r):
		return false
	}
	return !d.tty || !unicode.Is(unicode.Bidi_Control, r)
}

// close lets out what has not ended.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range d.rest {
		_, _ = io.WriteString(d.to, string(utf8.RuneError))
	}
	d.rest = nil
}

// transient writes lines that are not to stay, in the place of those before: whatever is written next takes them away.
func (d *door) transient(lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.erase() == nil && len(lines) > 0 {
		_, _ = d.write([]byte(strings.Join(lines, "\n")))
		d.lines = len(lines)
	}
}

// erase takes lines away that were not to stay; the cursor is in the last of them.
func (d *door) erase() error {
	if d.lines == 0 {
		return nil
	}
	up := ""
	if d.lines > 1 {
		up = fmt.Sprintf("\x1b[%dA", d.lines-1)
	}
	d.lines = 0
	_, err := io.WriteString(d.to, "\r"+up+"\x1b[J")
	return err
}

// transient writes lines that are not to stay on a stream that is a terminal.
func transient(w io.Writer, lines []string) {
	if d, ok := w.(*door); ok {
		d.transient(lines)
	}
}

// behind is the stream behind a door, for who passes it on to a program as it is.
func behind(w io.Writer) io.Writer {
	switch d := w.(type) {
	case *door:
		return d.to
	case *output:
		return behind(d.Writer)
	}
	return w
}

// file is the file that a stream is, behind what stands before it.
func file(w any) (*os.File, bool) {
	if out, ok := w.(io.Writer); ok {
		w = behind(out)
	}
	f, ok := w.(*os.File)
	return f, ok
}

package cli

import (
	"bytes"
	"cmp"
	"errors"
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
// write lines that are not to stay. It folds lines wider than the terminal between words, except commands.
type door struct {
	to    io.Writer
	tty   bool
	width int // of the terminal, in columns; 0: no terminal, or output for programs, which is not folded

	mu     sync.Mutex
	used   bool   // something was written
	lost   error  // why something could not be written, the first time
	rest   []byte // of a rune or a colour that has not ended
	line   []byte // that has not ended
	column int    // where the next letter stands
	lines  int    // on the terminal that are not to stay
}

func newDoor(to io.Writer) *door {
	tty, width, _ := terminal(to)
	return &door{to: to, tty: tty, width: width}
}

// What package results paints with: at the beginning of a text, anywhere in it, and one that has not ended.
const painting = `\x1b\[(0|2|3[1-6])m`

var (
	colour     = regexp.MustCompile(`^` + painting)
	colours    = regexp.MustCompile(painting)
	unfinished = regexp.MustCompile(`^\x1b(\[[0-9]*)?$`)
)

// mostRest bounds what is kept of a colour that does not end.
const mostRest = len("\x1b[00m")

// Write implements io.Writer. What may not pass is shown as U+FFFD.
func (d *door) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used = true
	if err := d.erase(); err != nil {
		return 0, err
	}
	return d.write(p)
}

func (d *door) write(p []byte) (int, error) {
	out := d.clean(p)
	if d.width > 0 { // an unfinished line waits for its end, since tables arrive cell by cell; a prompt is written at once
		d.line = append(d.line, out...)
		whole := d.line[:bytes.LastIndexByte(d.line, '\n')+1]
		asked := asking.Match(d.line[len(whole):])
		if asked || len(d.line) > mostLine {
			whole = d.line
		}
		d.line, out = append([]byte(nil), d.line[len(whole):]...), d.fold(whole)
		if asked { // the answer ends the line, and is not written here
			d.column = 0
		}
	}
	if _, err := d.to.Write(out); err != nil {
		d.lost = cmp.Or(d.lost, err)
		return 0, err
	}
	return len(p), nil
}

// unwritten is err, what a command ended with, or that its output could not be written if it did not end with a verdict.
func (d *door) unwritten(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, judged := errors.AsType[ending](err)
	if d.lost == nil || judged || err != nil && !errors.Is(err, d.lost) {
		return err
	}
	return outputError{fmt.Errorf("write what there is to say: %w", d.lost)}
}

// mostLine bounds what is kept of a line that does not end, in bytes.
const mostLine = 64 << 10

// clean returns a text with U+FFFD in the place of what may not pass. An unfinished rune or colour waits in d.rest.
func (d *door) clean(p []byte) []byte {
	in := append(d.rest, p...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		if in[0] == 0x1b {
			if c := colour.Find(in); c != nil {
				out, in = append(out, c...), in[len(c):]
				continue
			}
			if len(in) < mostRest && unfinished.Match(in) {
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
	return out
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

// asking matches a prompt at the end of a text, which is answered on the same line.
var asking = regexp.MustCompile(`[^ ][:?>\])] $`)

// flush lets out a line that has not ended.
func (d *door) flush() error {
	if len(d.line) == 0 {
		return nil
	}
	out := d.fold(d.line)
	d.line = nil
	_, err := d.to.Write(out)
	return err
}

// close lets out what has not ended.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.flush()
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
		_, _ = d.to.Write(d.clean([]byte(strings.Join(lines, "\n"))))
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
	d.lines, d.column = 0, 0
	_, err := io.WriteString(d.to, "\r"+up+"\x1b[J")
	return err
}

// fold breaks lines wider than the terminal, except commands, which stay whole to be copied.
func (d *door) fold(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		body, ended := bytes.CutSuffix(line, []byte("\n"))
		if n := columns(body); d.column+n <= d.width || typed.Match(body) {
			out, d.column = append(out, body...), d.column+n
		} else {
			out = d.foldLine(out, body, ended)
		}
		if ended {
			out, d.column = append(out, '\n'), 0
		}
	}
	return out
}

// typed is a line with a command to be typed.
var typed = regexp.MustCompile(`^( +|inabench: hint: )(inabench|sudo|ssh|export|go|head|bash|CGO_ENABLED=0) `)

var word = regexp.MustCompile(`( *)([^ ]*)`)

// foldLine appends a line to a text and breaks it before words that do not fit. A word wider than the terminal stays whole.
func (d *door) foldLine(text, line []byte, ended bool) []byte {
	hang := 0
	if d.column == 0 {
		hang = hanging(line, d.width/2)
	}
	before, some := 0, d.column > 0 // blanks, and whether there is a word on the line
	for _, m := range word.FindAllSubmatch(line, -1) {
		blanks, n := before+len(m[1]), columns(m[2])
		if d.column == 0 {
			blanks = min(blanks, max(d.width-n, 0))
		}
		switch {
		case n == 0: // a colour, or the end of the line
			text, before = append(text, m[2]...), blanks
			continue
		case some && d.column+blanks+n > d.width:
			at := min(hang, max(d.width-n, 0))
			text = append(append(append(text, '\n'), bytes.Repeat([]byte(" "), at)...), m[2]...)
			d.column = at + n
		default:
			text = append(append(text, bytes.Repeat([]byte(" "), blanks)...), m[2]...)
			d.column += blanks + n
		}
		before, some = 0, true
	}
	if !ended { // as of a question
		text, d.column = append(text, bytes.Repeat([]byte(" "), before)...), d.column+before
	}
	return text
}

// hanging returns the indent of a broken line's continuation: in a row of a table, the start of the last cell that begins by
// column most; else the line's own indent, plus 2 for messages and list items. It never exceeds most.
func hanging(line []byte, most int) int {
	text := bytes.TrimLeft(line, " ")
	indent := len(line) - len(text)
	at, blanks, column := indent, 0, -1
	for _, r := range string(colours.ReplaceAll(text, nil)) {
		if at > most {
			break
		}
		switch {
		case r == ' ':
			blanks++
		case blanks > 1:
			column, blanks = at, 0
		default:
			blanks = 0
		}
		at++
	}
	if column >= 0 {
		return column
	}
	if bytes.HasPrefix(text, []byte("inabench: ")) || bytes.HasPrefix(text, []byte("- ")) {
		indent += 2
	}
	return min(indent, most)
}

// columns counts the columns of a text on a terminal: one a letter, also for tabs and wide letters, and none for colours.
func columns(text []byte) int { return utf8.RuneCount(colours.ReplaceAll(text, nil)) }

// forPrograms turns folding off for a stream whose output is for programs or files.
func forPrograms(w io.Writer) {
	if d, ok := w.(*door); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		_ = d.flush()
		d.width = 0
	}
}

// transient writes lines that are not to stay on a stream that is a terminal.
func transient(w io.Writer, lines []string) {
	if d, ok := w.(*door); ok {
		d.transient(lines)
	}
}

// behind is the stream behind a door, for who passes it on to a program as it is.
func behind(w io.Writer) io.Writer {
	if d, ok := w.(*door); ok {
		return d.to
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

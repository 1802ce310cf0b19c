package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"unicode"

	"github.com/inabench/inabench/results"
)

// TestDoor: of what hosts say, nothing reaches a terminal but letters, and colours that are our own.
func TestDoor(t *testing.T) {
	for name, test := range map[string]struct{ give, want string }{
		"text":                    {"host h1: größer, µs, →\n\tx\n", "host h1: größer, µs, →\n\tx\n"},
		"our colours":             {"\x1b[32mPASS\x1b[0m \x1b[2m-\x1b[0m", "\x1b[32mPASS\x1b[0m \x1b[2m-\x1b[0m"},
		"hidden text":             {"\x1b[8mx", "\uFFFD[8mx"},
		"clear screen":            {"\x1b[2Jx", "\uFFFD[2Jx"},
		"title":                   {"\x1b]0;owned\x07x", "\uFFFD]0;owned\uFFFDx"},
		"clipboard":               {"\x1b]52;c;aGk=\x1b\\x", "\uFFFD]52;c;aGk=\uFFFD\\x"},
		"one byte for ESC [":      {"\u009b2Jx", "\uFFFD2Jx"},
		"a byte that is no rune":  {"a\x9bb", "a\uFFFDb"},
		"over the line":           {"FAIL\rPASS", "FAIL\uFFFDPASS"},
		"backspace":               {"FAIL\b\b\b\bPASS", "FAIL\uFFFD\uFFFD\uFFFD\uFFFDPASS"},
		"another order":           {"a\u202ecba", "a\uFFFDcba"},
		"a colour without an end": {"\x1b[3", "\uFFFD\uFFFD\uFFFD"},
		"half a rune at the end":  {"a\xc3", "a\uFFFD"},
	} {
		for _, size := range []int{1, 2, 3, 100} { // however it is cut up
			var b bytes.Buffer
			d := &door{to: &b, tty: true}
			for p := []byte(test.give); len(p) > 0; {
				n, err := d.Write(p[:min(size, len(p))])
				if err != nil {
					t.Fatal(err)
				}
				p = p[n:]
			}
			d.close()
			if b.String() != test.want {
				t.Errorf("%s, by %d: %q, want %q", name, size, b.String(), test.want)
			}
		}
	}
	var b bytes.Buffer
	d := &door{to: &b}
	io.WriteString(d, "a,b\r\n\u202e\x1b[2J")
	if want := "a,b\r\n\u202e\uFFFD[2J"; b.String() != want {
		t.Errorf("to a file: %q, want %q", b.String(), want)
	}
}

// TestUnwritten: a command whose output cannot be written says so, whatever it did; a verdict stays the verdict.
func TestUnwritten(t *testing.T) {
	full, other := errors.New("no space left on device"), errors.New("no such host")
	for _, c := range []struct {
		name      string
		lost, err error
		want      int
	}{
		{"all is well", nil, nil, exitOK},
		{"nobody looked whether it could be written", full, nil, exitUnsupported},
		{"somebody did", full, fmt.Errorf("write the report: %w", full), exitUnsupported},
		{"something else was wrong", full, other, exitTestbed},
		{"the run failed", full, errors.Join(outcomeError{results.Fail}, full), exitFailed},
	} {
		d := &door{to: brokenWriter{c.lost}}
		_, _ = io.WriteString(d, "ok\n")
		if got := codeOf(t.Context(), d.unwritten(c.err)); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

// brokenWriter takes nothing, for a reason; nil: it takes all.
type brokenWriter struct{ why error }

func (b brokenWriter) Write(p []byte) (int, error) { return len(p), b.why }

func FuzzDoor(f *testing.F) {
	f.Add([]byte("\x1b[32mPASS\x1b[0m"), 3)
	f.Add([]byte("\x1b]52;c;aGk=\x07\xc2"), 1)
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		var whole, parts bytes.Buffer
		d := &door{to: &whole, tty: true}
		d.Write(p)
		d.close()
		d = &door{to: &parts, tty: true}
		cut = min(max(cut, 0), len(p))
		d.Write(p[:cut])
		d.Write(p[cut:])
		d.close()
		if whole.String() != parts.String() {
			t.Errorf("%q cut at %d is %q, whole %q", p, cut, parts.String(), whole.String())
		}
		rest := colourAnywhere(whole.Bytes())
		for _, r := range string(rest) {
			if r != '\n' && r != '\t' && unicode.IsControl(r) {
				t.Errorf("%q lets %U through: %q", p, r, whole.String())
			}
		}
	})
}

// colourAnywhere is a text without colours.
func colourAnywhere(p []byte) (out []byte) {
	for i := 0; i < len(p); {
		if c := colour.Find(p[i:]); c != nil {
			i += len(c)
			continue
		}
		out = append(out, p[i])
		i++
	}
	return out
}

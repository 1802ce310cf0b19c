package cli

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestFold: what is longer than a terminal is broken between words, under what it belongs to; colours take no room.
func TestFold(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"short", "one two\n", "one two\n"},
		{"words", "one two three four five six seven\n", "one two three four\nfive six seven\n"},
		{"indented", "    one two three four five\n", "    one two three\n    four five\n"},
		{"a message", "inabench: error: nothing is there\n", "inabench: error:\n  nothing is there\n"},
		{"an item", "- one two three four five\n", "- one two three four\n  five\n"},
		{"a row", "NAME  what it is and does\n", "NAME  what it is and\n      does\n"},
		{"a row with a column far to the right", "a name that is long  what it is\n", "a name that is long\nwhat it is\n"},
		{"three columns", "a  bcd  what it is and does\n", "a  bcd  what it is\n        and does\n"},
		{"a long word", "see /one/two/three/four/five six\n", "see\n/one/two/three/four/five\nsix\n"},
		{"a command", "  inabench run one two three four\n", "  inabench run one two three four\n"},
		{"a long word alone", "/one/two/three/four/five\n", "/one/two/three/four/five\n"},
		{"colours", "\x1b[31mone two three\x1b[0m four five\n", "\x1b[31mone two three\x1b[0m four\nfive\n"},
		{"just as wide", "one two three four..\nx\n", "one two three four..\nx\n"},
		{"blanks at the end", "one two three four    \n", "one two three four\n"},
		{"letters of several bytes", "ä ö ü ä ö ü ä ö ü ä ö ü\n", "ä ö ü ä ö ü ä ö ü ä\nö ü\n"},
	} {
		var out strings.Builder
		d := &door{to: &out, tty: true, width: 20}
		if _, err := d.Write([]byte(tt.in)); err != nil || out.String() != tt.want {
			t.Errorf("%s: %q, want %q (%v)", tt.name, out.String(), tt.want, err)
		}
	}
	// Parts of a line that come one by one, as of a question, are one line.
	var out strings.Builder
	d := &door{to: &out, tty: true, width: 20}
	for _, p := range []string{"one", "  ", "two three four five", "  ", "\nsix\n", "hosts [3]: "} {
		if _, err := d.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); got != "one  two three four\n     five\nsix\nhosts [3]: " { // which is a question
		t.Errorf("in parts: %q", got)
	}
	// The answer ends the line of a question, and the next one begins a line of its own.
	for _, p := range []string{"GPUs in each [8]: ", "rate [1]: ", "one two three", "\n"} {
		if _, err := d.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); !strings.HasSuffix(got, "hosts [3]: GPUs in each [8]: rate [1]: one two three\n") {
		t.Errorf("several questions: %q", got)
	}
	// What does not stay takes nothing with it of a line that has not ended.
	if _, err := d.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	d.transient([]string{"now"})
	if _, err := d.Write([]byte(" done\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasSuffix(got, "three\nnow\r\x1b[Jhalf done\n") {
		t.Errorf("with a line that does not stay: %q", got)
	}
	out.Reset()
	forPrograms(d)
	if _, err := d.Write([]byte("one two three four five six seven\n")); err != nil || out.String() != "one two three four five six seven\n" {
		t.Errorf("for programs: %q", out.String())
	}
}

// TestFoldLosesNothing checks that folding changes only blanks and line ends, however a text is split into writes, and that
// no line of short words is wider than the terminal.
func TestFoldLosesNothing(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		width := 10 + r.IntN(60)
		var in, out strings.Builder
		d := &door{to: &out, tty: true, width: width}
		for range 1 + r.IntN(5) {
			var part strings.Builder
			for range r.IntN(30) {
				part.WriteString([]string{" ", "  ", "     ", "\n", "a", "word", "ä", "\x1b[31m", "\x1b[0m", "inabench", "a-word-of-some-length"}[r.IntN(11)])
			}
			in.WriteString(part.String())
			if _, err := d.Write([]byte(part.String())); err != nil {
				t.Fatal(err)
			}
		}
		d.close()
		bare := strings.NewReplacer(" ", "", "\n", "")
		if got, want := bare.Replace(out.String()), bare.Replace(in.String()); got != want {
			t.Fatalf("seed %d: %q became %q", seed, in.String(), out.String())
		}
		for line := range strings.Lines(out.String()) {
			long := slices.ContainsFunc(strings.Fields(line), func(w string) bool { return columns([]byte(w)) > width/2 })
			if line = strings.TrimRight(line, " \n"); columns([]byte(line)) > width && !long && !typed.MatchString(line) {
				t.Fatalf("seed %d: %q has more than %d columns, of %q", seed, line, width, in.String())
			}
		}
	}
}

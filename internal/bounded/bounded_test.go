package bounded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endless gives zeros for ever.
type endless struct{ given int }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.given += len(p)
	return len(p), nil
}

func TestReadAll(t *testing.T) {
	for name, test := range map[string]struct {
		give  string
		limit int64
		want  string
		err   error
	}{
		"all of it":   {"abc", 10, "abc", nil},
		"just enough": {"abc", 3, "abc", nil},
		"one more":    {"abcd", 3, "abc", ErrTooLarge},
		"nothing":     {"", 0, "", nil},
	} {
		got, err := ReadAll(strings.NewReader(test.give), test.limit)
		if string(got) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	e := &endless{}
	if _, err := ReadAll(e, Small); !errors.Is(err, ErrTooLarge) || e.given > 2*Small || !strings.Contains(err.Error(), "more than 64 KiB") {
		t.Errorf("of what has no end %d bytes were read: %v", e.given, err)
	}
	if _, err := ReadAll(io.MultiReader(strings.NewReader("ab"), failing{}), 10); !errors.Is(err, errBroken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

var errBroken = errors.New("broken")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

// TestReadFile: files that are none, or that somebody else has put there, end at once.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(at("file"), []byte("abc"), 0o600),
		os.Symlink("/dev/zero", at("device")),
		unix.Mkfifo(at("fifo"), 0o600),
		os.Symlink(at("file"), at("link")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"file": nil, "link": nil, "device": ErrIrregular, "fifo": ErrIrregular, ".": ErrIrregular, "none": os.ErrNotExist,
	} {
		done := make(chan error, 1)
		go func() {
			b, err := ReadFile(at(name), 3)
			if err == nil && string(b) != "abc" {
				t.Errorf("%s: %q", name, b)
			}
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), at(name)) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it waits", name)
		}
	}
	for name, want := range map[string]error{"file": nil, "new": nil, "device": ErrIrregular, "fifo": ErrIrregular, "none/new": os.ErrNotExist} {
		for _, how := range []int{os.O_WRONLY, os.O_RDWR} {
			f, err := OpenFile(at(name), how|os.O_CREATE|os.O_APPEND, 0o600)
			if !errors.Is(err, want) {
				t.Errorf("%s, to be written: %v, want %v", name, err, want)
			}
			f.Close()
		}
	}
	for name, want := range map[string]error{"file": nil, "link": ErrIrregular, "fifo": ErrIrregular} {
		f, err := OpenOwn(at(name))
		if !errors.Is(err, want) {
			t.Errorf("%s, if it is no link: %v, want %v", name, err, want)
		}
		f.Close()
	}
	if _, err := ReadFile(at("file"), 2); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), at("file")) {
		t.Errorf("a large one: %v", err)
	}
}

func TestLines(t *testing.T) {
	for name, test := range map[string]struct {
		give  string
		limit int
		want  []string
		err   error
	}{
		"some":               {"a\nbc\r\n\nd", 10, []string{"a", "bc", "", "d"}, nil},
		"as long as may be":  {"abc\nabc\n", 3, []string{"abc", "abc"}, nil},
		"one is longer":      {"abc\nabcdef\nx\n", 3, []string{"abc"}, ErrTooLarge},
		"without any end":    {strings.Repeat("x", 1000), 100, nil, ErrTooLarge},
		"more than a buffer": {strings.Repeat("x", 100_000) + "\ny\n", 100_000, []string{strings.Repeat("x", 100_000), "y"}, nil},
	} {
		var got []string
		var failed error
		for line, err := range Lines(strings.NewReader(test.give), test.limit) {
			if failed = err; err == nil {
				got = append(got, string(line))
			}
		}
		if strings.Join(got, "|") != strings.Join(test.want, "|") || !errors.Is(failed, test.err) {
			t.Errorf("%s: %q, %v", name, got, failed)
		}
	}
	for range Lines(&endless{}, 1000) {
		break // and nobody goes on reading
	}
}

func TestUntil(t *testing.T) {
	why := errors.New("somebody ended it")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := Until(ctx, &endless{})
	if _, err := io.CopyN(io.Discard, r, 1<<20); err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, why) {
		t.Errorf("it goes on: %v", err)
	}
	if b, err := io.ReadAll(Until(t.Context(), bytes.NewReader([]byte("abc")))); err != nil || string(b) != "abc" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestReadLine(t *testing.T) {
	for name, test := range map[string]struct {
		give  string
		limit int
		want  []string
		err   error
	}{
		"lines":             {"a\nbc\n", 10, []string{"a\n", "bc\n"}, io.EOF},
		"the last has none": {"a\nbc", 10, []string{"a\n", "bc"}, io.EOF},
		"as long as may be": {"abc\nabc", 3, []string{"abc\n", "abc"}, io.EOF},
		"one is longer":     {"abc\nabcd\nx\n", 3, []string{"abc\n"}, ErrTooLarge},
		"the last is":       {"abc\nabcd", 3, []string{"abc\n"}, ErrTooLarge},
		"many buffers":      {strings.Repeat("x", 100) + "\ny", 100, []string{strings.Repeat("x", 100) + "\n", "y"}, io.EOF},
		"more than these":   {strings.Repeat("x", 10_000), 100, nil, ErrTooLarge},
	} {
		in := bufio.NewReaderSize(strings.NewReader(test.give), 16)
		var got []string
		var err error
		for err == nil {
			var line []byte
			if line, err = ReadLine(in, test.limit); (err == nil || err == io.EOF) && len(line) > 0 {
				got = append(got, string(line))
			}
		}
		if strings.Join(got, "|") != strings.Join(test.want, "|") || !errors.Is(err, test.err) {
			t.Errorf("%s: %.100q, %v", name, got, err)
		}
	}
}

func TestOutput(t *testing.T) {
	for _, test := range []struct {
		script, want string
		err          string
	}{
		{"echo out; echo why >&2", "out\n", ""},
		{"echo out; echo why >&2; exit 3", "out\n", "exit status 3: why\n"},
		{"cat /dev/zero", string(make([]byte, 100)), "too large: more than 100 bytes"},
		{"cat /dev/zero | head -c 200; exit 0", string(make([]byte, 100)), "too large: more than 100 bytes"},
		{"head -c 1000000 /dev/zero >&2; exit 1", "", "exit status 1: "},
	} {
		out, err := Output(exec.Command("/bin/sh", "-c", test.script), 100)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			said += ": " + string(bytes.Trim(exit.Stderr, "\x00"))
		}
		if string(out) != test.want || said != test.err {
			t.Errorf("%s: %q, %q", test.script, out, said)
		}
	}
}

func TestDecodeOnly(t *testing.T) {
	for _, tt := range []struct {
		text, rest string
		ok         bool
	}{
		{`{"a": 1}`, "", true},
		{" {\"a\": 1}\r\n\t", "", true},
		{`{"a": 1} done`, " done", true},
		{`{"a": 1}{"a": 2}`, `{"a": 2}`, true},
		{`{"a": 1, "b": 2}`, "", false},
		{`{"a": 1`, "", false},
		{"", "", false},
		{`{"a": 2, "a": 1}`, "", false},
		{`{"A": 1}`, "", false},
		{`{"a": 1, "m": {"x": [{"n": 1}], "y": null}, "s": [{"n": 1}]}`, "", true},
		{`{"a": 1, "m": {"x": [{"n": 1, "n": 2}]}}`, "", false},
		{`{"a": 1, "s": [{"N": 1}]}`, "", false},
		{`{"a": 1, "any": {"x": 1, "X": [{}, null]}}`, "", true},
		{`{"a": 1, "any": {"x": 1, "x": 1}}`, "", false},
	} {
		type one struct {
			N int `json:"n"`
		}
		var v struct {
			A   int              `json:"a"`
			M   map[string][]one `json:"m,omitempty"`
			S   []*one           `json:"s"`
			Any any              `json:"any"`
		}
		rest, err := DecodeOnly([]byte(tt.text), &v)
		if string(rest) != tt.rest || (err == nil) != tt.ok || tt.ok && v.A != 1 {
			t.Errorf("%q: %+v, rest %q, error %v", tt.text, v, rest, err)
		}
	}
}

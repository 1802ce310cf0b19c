package ssh

import (
	"bytes"
	"io"
	"testing"
)

// pieces is a reader of so many bytes at a time.
type pieces struct {
	r    io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(p.size, len(b))]) }

// FuzzMarks: however a host cuts what it says into pieces, what a command says comes after the marks, and what stands
// before them is kept to a bound.
func FuzzMarks(f *testing.F) {
	f.Add([]byte("hello\n"+outputMark+"\nrest"), []byte("motd\n"+groupMark+"123\nerr"), uint8(3))
	f.Add([]byte(outputMark), []byte(groupMark+"x\n"+groupMark+"1\n"), uint8(1))
	long := maxGreeting + 100
	f.Add(append(bytes.Repeat([]byte("x"), long), outputMark+"\nrest"...), bytes.Repeat([]byte("y"), long), uint8(255))
	f.Fuzz(func(t *testing.T, out, diag []byte, cut uint8) {
		size := int(cut) + 1
		o := &output{r: pieces{bytes.NewReader(out), size}}
		got, err := io.ReadAll(o)
		if err != nil {
			t.Fatal(err)
		}
		w := newStderr(io.Discard, len(diag)%2 == 0)
		for p := diag; len(p) > 0; p = p[min(size, len(p)):] {
			if n, err := w.Write(p[:min(size, len(p))]); n != min(size, len(p)) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if len(o.held) > maxGreeting+size || len(w.line) > maxGreeting+size {
			t.Fatalf("%d and %d bytes are kept", len(o.held), len(w.line))
		}
		if _, rest, ok := bytes.Cut(out, []byte(outputMark+"\n")); len(out) <= maxGreeting && (ok != o.begun || !bytes.Equal(rest, got)) {
			t.Fatalf("%q of %q", got, out)
		}
		if w.begun() && w.pid < 2 {
			t.Fatalf("process group %d", w.pid)
		}
		_ = w.tail()
	})
}

// TestNoMark: of what a host says before a mark no more is kept than one may stand in, whether or not it ever ends a line. The mark is
// found all the same.
func TestNoMark(t *testing.T) {
	o, w := &output{}, newStderr(io.Discard, false)
	part := bytes.Repeat([]byte("x"), 4<<10)
	for range 1000 {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if rest := o.feed(part); len(rest) > 0 {
			t.Fatalf("%q is taken for output", rest)
		}
		if len(w.line) > maxGreeting || len(o.held) > maxGreeting {
			t.Fatalf("%d and %d bytes are kept", len(w.line), len(o.held))
		}
	}
	if n := len(w.tail()); n > maxGreeting+len(part) {
		t.Errorf("%d bytes of diagnostics are kept", n)
	}
	if _, err := w.Write([]byte(groupMark + "123\n")); err != nil || !w.begun() || w.pid != 123 {
		t.Errorf("process group %d, %v", w.pid, err)
	}
	if rest := o.feed([]byte(outputMark + "\nhello")); string(rest) != "hello" {
		t.Errorf("output %q", rest)
	}
}

package standing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// pair are the two ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// FuzzReceive: whatever a connection brings, a keeper reads a request or refuses it, and what it has read means the same
// when it is sent again.
func FuzzReceive(f *testing.F) {
	for _, text := range []string{`{"info":true}`, `{"dial":"h1"}`, `{"down":true}`, `{"run":{"what":"x","args":["inabench"],"sees":[{"path":"/","dev":1,"ino":2}]}}`, `{"run":null}`, `[]`, ``} {
		f.Add([]byte(text + "\nrest"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 32<<10 { // more than a socket holds
			t.Skip()
		}
		send := func(text []byte) (request, error) {
			a, b := pair(t)
			if _, err := a.Write(text); err != nil {
				t.Fatal(err)
			}
			a.Close()
			r, _, files, err := receive(b)
			if len(files) > 0 {
				t.Errorf("files came from nowhere: %v", files)
			}
			return r, err
		}
		first, err := send(text)
		if err != nil {
			return
		}
		line, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		again, err := send(append(line, '\n'))
		if err != nil {
			t.Fatalf("%s was read, and cannot be sent: %v", line, err)
		}
		if line2, err := json.Marshal(again); err != nil || !bytes.Equal(line, line2) {
			t.Errorf("%s became %s (%v): %s", line, line2, err, cmp.Diff(first, again))
		}
	})
}

// FuzzAnswer: whatever a keeper answers is read or refused.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{`{}`, `{"error":"no"}`, `{"busy":true,"error":"x"}`, `{"info":{"name":"a","hosts":[{"name":"h1"}]},"exit":3}`, `{"exit":1e99}`} {
		f.Add([]byte(text + "\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &conn{in: bufio.NewReader(bytes.NewReader(text))}
		if a, err := c.answer(); err == nil && a.Error != "" {
			t.Errorf("an answer with an error was accepted: %+v", a)
		}
	})
}

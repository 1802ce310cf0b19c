package supervise

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/testbed/hosts"
)

// pipe is an SSH channel that takes no more until it is asked on, and must not be closed while
// it is written to, which the race detector sees.
type pipe struct {
	full   chan struct{}
	lines  []string
	closed int
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.closed > 0 {
		return 0, io.EOF
	}
	<-p.full
	p.lines = append(p.lines, string(b))
	return len(b), nil
}

func (p *pipe) Close() error {
	p.closed++
	return nil
}

// TestCloseWhileWriting: Close waits for no line on its way, and stdin ends once, after that line.
func TestCloseWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{full: make(chan struct{})}
		b := &beater{to: p, closed: make(chan struct{})}
		go b.Write([]byte("a line\n"))
		synctest.Wait()
		for range 2 {
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		close(p.full)
		synctest.Wait()
		if len(p.lines) != 1 || p.closed != 1 {
			t.Errorf("%q was written, and stdin closed %d times, want one line and once", p.lines, p.closed)
		}
		if _, err := b.Write([]byte("another\n")); err != io.EOF {
			t.Errorf("a line after the end: %v, want %v", err, io.EOF)
		}
	})
}

// TestBeats: beats come between lines until stdin ends, of which the race detector says
// whether it ended while one was written.
func TestBeats(t *testing.T) {
	t.Parallel() // it waits
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			p := &pipe{full: make(chan struct{})}
			close(p.full)
			b := &beater{to: p, closed: make(chan struct{})}
			go b.beat(1, nil)
			go b.Write([]byte("a line\n"))
			b.Close()
			synctest.Wait()
			if p.closed != 1 {
				t.Fatalf("stdin closed %d times", p.closed)
			}
		}
	})
}

// listing is a host whose supervisor says what a test has it say.
type listing struct {
	hosts.Host
	says []byte
}

func (l listing) String() string { return "h1" }

func (l listing) Run(context.Context, []string, io.Reader) (hosts.Output, error) {
	return hosts.Output{Stdout: l.says}, nil
}

// TestEndless: a host that lists processes without end is refused, and one error is made of many.
func TestEndless(t *testing.T) {
	err := EndOn(t.Context(), listing{says: bytes.Repeat([]byte("{}\n"), 5_000_000)}, "inabench", "")
	if !errors.Is(err, bounded.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	err = EndOn(t.Context(), listing{says: bytes.Repeat([]byte("{\"name\":\"a\",\"pid\":7,\"error\":\"no\"}\n"), 1000)}, "inabench", "")
	all, ok := err.(interface{ Unwrap() []error })
	if !ok || len(all.Unwrap()) != 1000 || !strings.Contains(err.Error(), "a: process group 7: no") {
		t.Errorf("%.200v", err)
	}
}

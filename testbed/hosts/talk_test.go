package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// event is what programs of these tests say.
type event struct {
	Event string
	N     int
}

// playing is a program that says a text and has ended then, with err.
type playing struct {
	err    error
	closed bool
}

func (p *playing) Done() <-chan struct{}      { return nil }
func (p *playing) Wait() error                { return p.err }
func (p *playing) Kill(context.Context) error { return nil }
func (p *playing) Close() error               { p.closed = true; return nil }

// play has a talk listen to a text, and is what it took and how it ended.
func play(t *Talk, p *playing, text string) (said []event, ended error) {
	t.Start(&Process{Stdin: shut{}, Stdout: strings.NewReader(text), Running: p})
	Listen(t, func(e *event) { said = append(said, *e) }, func(err error) { ended = err })
	return said, ended
}

// shut is the stdin of a program that reads no more.
type shut struct{}

func (shut) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (shut) Close() error              { return nil }

// What is no event is a failure that names the program and its host, and does not hide what comes
// after it; how the program ended is told once everything was taken.
func TestListen(t *testing.T) {
	died := errors.New("died")
	talk := NewTalk("worker A/0", "h1")
	said, ended := play(talk, &playing{err: died}, "{\"Event\":\"one\",\"N\":1}\nwho is this\n{\"Event\":\"two\"}\n")
	if fmt.Sprint(said) != "[{one 1} {two 0}]" || ended != died || !talk.Ended() {
		t.Errorf("%v, %v", said, ended)
	}
	if err := talk.Err(); err == nil || err.Error() != `worker A/0 on host h1: not an event: "who is this"` {
		t.Errorf("%v", err)
	}
	if talk.Fail(errors.New("and again")) {
		t.Error("it has failed before")
	}
	if err := talk.Tell("x"); err != talk.Err() {
		t.Errorf("told after its end: %v", err)
	}

	talk, p := NewTalk("pMaster", ""), &playing{}
	talk.Limit = 1 << 20
	if said, _ := play(talk, p, strings.Repeat("x", 1<<20+1)); len(said) > 0 || !p.closed {
		t.Errorf("a line without end: %v, closed %t", said, p.closed)
	}
	if err := talk.Err(); err == nil || !strings.HasPrefix(err.Error(), "pMaster: what it says: ") {
		t.Errorf("%v", err)
	}
}

// Whoever waits for what a program does is told when it has ended instead, and why.
func TestAwait(t *testing.T) {
	happened := make(chan struct{})
	close(happened)
	never := make(chan struct{})
	talk := NewTalk("rank A/0", "h1")
	if err := talk.Tell("x"); err == nil || !strings.Contains(err.Error(), "not started") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := talk.Await(ctx, "ready", never); err == nil || err.Error() != "rank A/0 on host h1: waiting until it is ready: enough" {
		t.Errorf("%v", err)
	}
	play(talk, &playing{}, "")
	if err := talk.Await(t.Context(), "ready", happened); err != nil {
		t.Error(err)
	}
	if err := talk.Await(t.Context(), "ready", never); err == nil || err.Error() != "rank A/0 on host h1: ended before it was ready" {
		t.Errorf("%v", err)
	}
	talk.Fail(io.ErrUnexpectedEOF)
	if err := talk.Await(t.Context(), "ready", never); err != io.ErrUnexpectedEOF {
		t.Errorf("%v", err)
	}
}

// A program beside this one is talked to, and says how it ended.
func TestBeside(t *testing.T) {
	p, err := Beside([]string{"sh", "-c", `read -r x; echo "{\"Event\":$x}"; echo out of luck >&2; exit 3`})
	if err != nil {
		t.Fatal(err)
	}
	talk := NewTalk("pMaster", "")
	talk.Start(p)
	if err := talk.Tell("ready"); err != nil {
		t.Fatal(err)
	}
	var said []event
	Listen(talk, func(e *event) { said = append(said, *e) }, func(err error) { talk.Fail(talk.Named(err)) })
	if err := talk.Err(); fmt.Sprint(said) != "[{ready 0}]" || err == nil || !strings.HasPrefix(err.Error(), "pMaster: sh -c") || !strings.HasSuffix(err.Error(), "exit status 3: out of luck") {
		t.Errorf("%v, %v", said, err)
	}
	// Output that a child holds open is not waited for.
	if p, err = Beside([]string{"sh", "-c", "sleep 1000 & echo $!"}); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	began := time.Now()
	pid, err := io.ReadAll(p.Stdout)
	if time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if child, err := strconv.Atoi(strings.TrimSpace(string(pid))); err != nil || syscall.Kill(child, syscall.SIGKILL) != nil {
		t.Errorf("the child is %q", pid)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := Beside([]string{"/does/not/exist"}); err == nil {
		t.Error("what is not there was started")
	}
}

// FuzzListen: whatever a program says, what is no event is told within bounds, and it is over.
func FuzzListen(f *testing.F) {
	f.Add([]byte("{\"Event\":\"ready\"}\n{}\n"))
	f.Add([]byte("{\"N\":1e400}\nnull\n[]\n\xff\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		talk := NewTalk("worker A/0", "h1")
		talk.Start(&Process{Stdout: bytes.NewReader(text), Running: &playing{}})
		n := 0
		Listen(talk, func(*event) { n++ }, func(error) {})
		if lines := bytes.Count(text, []byte("\n")) + 1; n > lines || !talk.Ended() {
			t.Errorf("%d events of %d lines", n, lines)
		}
		if err := talk.Err(); err != nil && len(err.Error()) > 600 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

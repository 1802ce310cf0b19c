package hosts

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
)

// MaxLine bounds a line that a program says, bytes, unless Talk.Limit does: reports on thousands of
// tensors.
const MaxLine = 16 << 20

// grace is for how long whoever cannot tell a program something waits for its end, which says more.
const grace = time.Second

// Talk is a program of ours, on a host or beside this one, that is told things and says things,
// each a line of JSON. Its methods are safe for concurrent use.
type Talk struct {
	Limit int // of a line that it says, bytes; 0: MaxLine. Not to be changed after Start

	name, host string
	over       chan struct{} // closed when the program has ended
	failed     chan struct{} // closed when err is set

	writing sync.Mutex // held while something is written to it: not mu, for a host that takes nothing holds up who writes, and nobody else

	mu   sync.Mutex
	proc *Process // nil: not there yet
	err  error
}

// NewTalk is one with a program that people know by a name, which is to be started on a host; an
// empty one is this machine. Where the name is empty as well, who talks says what errors are about.
func NewTalk(name, host string) *Talk {
	return &Talk{name: name, host: host, over: make(chan struct{}), failed: make(chan struct{})}
}

// Name is what people know the program by.
func (t *Talk) Name() string { return t.name }

// Host is where it runs.
func (t *Talk) Host() string { return t.host }

// Place is both: "worker A/0 on host h1".
func (t *Talk) Place() string {
	if t.host == "" {
		return t.name
	}
	return t.name + " on host " + t.host
}

// Named says which program an error is about, and where it runs.
func (t *Talk) Named(err error) error {
	switch {
	case t.name == "":
		return err
	case t.host == "":
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return blame.OnHost(t.name, t.host, err)
}

// Fail keeps why the program is of no use any more, unless something was wrong before; it reports
// whether that is so.
func (t *Talk) Fail(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || t.err != nil {
		return false
	}
	t.err = err
	close(t.failed)
	return true
}

// Failed is closed when Fail has been told something.
func (t *Talk) Failed() <-chan struct{} { return t.failed }

// Err is what Fail was told first.
func (t *Talk) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Over is closed when the program has ended and everything that it said was taken.
func (t *Talk) Over() <-chan struct{} { return t.over }

// Ended reports whether it has.
func (t *Talk) Ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// Process is the program; nil: it was not started yet.
func (t *Talk) Process() *Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proc
}

// Start says which process the program is, to be listened to by who calls Listen.
func (t *Talk) Start(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proc = p
}

// Listen has everything that a program says taken, each an E, until it ends, and then ended told
// how. What is no E is a failure, see Fail, and is left out; after a line longer than Limit the
// program is ended. It is called once, after Start.
func Listen[E any](t *Talk, take func(e *E), ended func(err error)) {
	p := t.Process()
	defer close(t.over)
	lines := bufio.NewScanner(p.Stdout)
	lines.Buffer(nil, cmp.Or(t.Limit, MaxLine))
	for lines.Scan() {
		e := new(E)
		if err := json.Unmarshal(lines.Bytes(), e); err != nil {
			t.Fail(t.Named(fmt.Errorf("not an event: %.80q", lines.Bytes())))
			continue
		}
		take(e)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		t.Fail(t.Named(fmt.Errorf("what it says: %w", err)))
		_ = p.Close() // its end says no more
	}
	ended(p.Wait())
}

// Tell tells the program something. Of one that has ended the error is that of Err.
func (t *Talk) Tell(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	p := t.Process()
	if p == nil {
		return t.Named(errors.New("it was not started"))
	}
	t.writing.Lock()
	_, err = p.Stdin.Write(append(line, '\n'))
	t.writing.Unlock()
	if err == nil {
		return nil
	}
	select {
	case <-t.over:
	case <-time.After(grace):
	}
	if failed := t.Err(); failed != nil {
		return failed
	}
	return t.Named(err)
}

// Await waits for a channel to be closed, for the program's end, which is an error then, or for ctx.
func (t *Talk) Await(ctx context.Context, what string, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-t.over:
		select {
		case <-ch:
			return nil
		default:
		}
		return t.Ending(what)
	case <-ctx.Done():
		return t.Named(fmt.Errorf("waiting until it is %s: %w", what, context.Cause(ctx)))
	}
}

// Ending is the error of waiting for a program that has ended.
func (t *Talk) Ending(what string) error {
	if err := t.Err(); err != nil {
		return err
	}
	return t.Named(fmt.Errorf("ended before it was %s", what))
}

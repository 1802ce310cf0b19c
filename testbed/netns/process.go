package netns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inabench/inabench/internal/bounded"
)

// process is the process of one host or switch. Its stdin is what keeps it alive,
// its stdout answers lines with lines.
type process struct {
	name   string // "host h1", "switch tor1"
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan []byte
	errors *tail
	turn   chan struct{} // held during a call
	exited chan struct{} // closed when the process has ended and was waited for
	err    error         // how; valid after exited
}

// HostVerb is the hidden verb by which this program is a host or a switch of an emulation: HostMain.
const HostVerb = "netns-host"

// startProcess starts exe's hidden verb HostVerb in new namespaces. It gets no
// parent death signal, which would be bound to one of our threads: it dies with
// its stdin, and with the first process of the pid namespace around it.
func startProcess(exe, name string, namespaces uintptr, log io.Writer) (*process, error) {
	p := &process{
		name: name, lines: make(chan []byte, 16), errors: &tail{prefix: name + ": ", log: log},
		turn: make(chan struct{}, 1), exited: make(chan struct{}),
	}
	p.cmd = exec.Command(exe, HostVerb, name)
	p.cmd.Env = environ()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	p.cmd.Stderr = p.errors
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.wait(stdout)
	return p, nil
}

// wait reads answers until the process is done with them, then waits for it.
func (p *process) wait(stdout io.Reader) {
	defer close(p.exited)
	r := bufio.NewReader(stdout)
	for {
		line, err := bounded.ReadLine(r, bounded.Config)
		if len(line) > 0 {
			select {
			case p.lines <- line:
			default: // nobody asked for so much
			}
		}
		if err != nil {
			break
		}
	}
	p.err = p.cmd.Wait()
}

// alive reports whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// died is the error of a process that ended by itself.
func (p *process) died() error {
	how := "ended"
	if p.err != nil {
		how = p.err.Error()
	}
	if last := p.errors.String(); last != "" {
		return fmt.Errorf("%s is gone: %s: %s", p.name, how, last)
	}
	return fmt.Errorf("%s is gone: %s", p.name, how)
}

// send writes v as one line.
func (p *process) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// receive reads one line into v.
func (p *process) receive(ctx context.Context, v any) error {
	var line []byte
	select {
	case line = <-p.lines:
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	case <-p.exited:
		select {
		case line = <-p.lines:
		default:
			return p.died()
		}
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%s answered %q: %w", p.name, bytes.TrimSpace(line), err)
	}
	return nil
}

// call sends one line and reads its answer. When ctx ends first, the next call
// waits until that answer has come after all.
func (p *process) call(ctx context.Context, question, answer any) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	case <-p.exited:
		return p.died()
	}
	err := p.send(question)
	if err == nil {
		err = p.receive(ctx, answer)
	}
	switch {
	case err == nil:
	case !p.alive():
		err = p.died()
	case ctx.Err() != nil:
		go func() { // ends with the process at the latest
			select {
			case <-p.lines:
				<-p.turn
			case <-p.exited:
			}
		}()
		return err
	}
	<-p.turn
	return err
}

// dying is how long the kernel of a busy machine may take for a process that was killed: it takes a network namespace down,
// and waits for others that do so.
const dying = 10 * time.Second

// stop waits for processes whose stdin has ended, and kills those that are still
// there after the grace.
func stop(ps []*process, grace time.Duration) error {
	deadline := time.After(grace)
	var errs []error
	for _, p := range ps {
		select {
		case <-p.exited:
			continue
		case <-deadline:
		}
		// The others had as long; what is still there goes now.
		for _, q := range ps {
			if q.alive() {
				errs = append(errs, fmt.Errorf("%s did not stop within %v: killed", q.name, grace))
				_ = q.cmd.Process.Kill()
			}
		}
		break
	}
	lost := time.After(max(grace, dying))
	for _, p := range ps {
		select {
		case <-p.exited:
		case <-lost:
			return errors.Join(append(errs, fmt.Errorf("%s survives a kill", p.name))...)
		}
	}
	return errors.Join(errs...)
}

// tail passes lines on with a prefix and remembers the last ones.
type tail struct {
	prefix string
	log    io.Writer // nil: nowhere
	mu     sync.Mutex
	part   []byte // of a line
	last   []string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, b...)
	for {
		line, rest, ok := bytes.Cut(t.part, []byte("\n"))
		if !ok {
			break
		}
		t.part = rest
		t.last = append(t.last, string(line))
		if n := len(t.last) - 4; n > 0 {
			t.last = t.last[n:]
		}
		if t.log != nil {
			fmt.Fprintf(t.log, "%s%s\n", t.prefix, line)
		}
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.Join(t.last, "; ") + string(t.part))
}

package training

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/mina/controller"
)

// Process is a MINA controller that runs beside this program, as a process of its own.
type Process struct {
	hosts Hosts
	cmd   *exec.Cmd
	stdin io.WriteCloser
	at    controller.Addresses

	over chan struct{} // closed when it has ended

	mu     sync.Mutex
	events []controller.Event
	news   chan struct{} // closed, and replaced, with every event
	err    error
}

// Start starts a controller: argv is how this program is started as one.
func Start(ctx context.Context, hosts Hosts, argv []string, s controller.Setup) (*Process, error) {
	line, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("MINA controller: %w", err)
	}
	p := &Process{hosts: hosts, over: make(chan struct{}), news: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.WaitDelay = time.Second
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the MINA controller: %w", err)
	}
	go p.read(stdout, &stderr)
	if _, err = p.stdin.Write(append(line, '\n')); err != nil {
		_ = p.Close()
		return nil, p.Err()
	}
	ctx, cancel := answering(ctx)
	defer cancel()
	e, err := p.await(ctx, 0, func(e *controller.Event) bool { return e.Event == "ready" })
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	p.at = *e.Ready
	return p, nil
}

func (p *Process) read(stdout io.Reader, stderr fmt.Stringer) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e controller.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = controller.Event{Event: "error", Error: fmt.Sprintf("not an event: %.80q", lines.Text())}
		}
		p.mu.Lock()
		p.events = append(p.events, e)
		if e.Event == "error" && e.Job == 0 && p.err == nil {
			p.err = blame.About(e.Part, errors.New(strings.TrimPrefix(e.Error, "MINA controller: ")))
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.err == nil {
		p.err = err
		if text := strings.TrimSpace(stderr.String()); text != "" {
			p.err = fmt.Errorf("%w: %s", err, text)
		}
	}
	close(p.over)
	close(p.news)
	p.news = make(chan struct{})
}

// await is the first event from a number on that is wanted.
func (p *Process) await(ctx context.Context, from int, wanted func(e *controller.Event) bool) (*controller.Event, error) {
	for {
		p.mu.Lock()
		for ; from < len(p.events); from++ {
			if wanted(&p.events[from]) {
				e := p.events[from]
				p.mu.Unlock()
				return &e, nil
			}
		}
		news := p.news
		p.mu.Unlock()
		select {
		case <-p.over:
			return nil, p.Err()
		default:
		}
		select {
		case <-news:
		case <-p.over:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the MINA controller: %w", context.Cause(ctx))
		}
	}
}

// SetLink says whether trees may use the cable between two switches. What does not go by trees
// may use it all the time.
func (p *Process) SetLink(a, b string, up bool) error {
	_, err := p.command(controller.Command{Cmd: "link", A: a, B: b, Up: up})
	return err
}

// command sends a command; events from the number it returns on come after it.
func (p *Process) command(c controller.Command) (from int, err error) {
	line, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	from = len(p.events)
	p.mu.Unlock()
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		select {
		case <-p.over: // which says more
			return 0, p.Err()
		case <-time.After(grace):
			return 0, fmt.Errorf("MINA controller: %w", err)
		}
	}
	return from, nil
}

// answerTimeout is how long the controller may take to place a job or to release a tree.
const answerTimeout = 30 * time.Second

func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("no answer within %v", answerTimeout))
}

// Done implements Controller: it is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.over }

// Err implements Controller.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return errors.New("the MINA controller has ended")
	}
	return fmt.Errorf("the MINA controller has ended: %w", p.err)
}

// Place implements Controller.
func (p *Process) Place(ctx context.Context, j Job) ([]string, error) {
	ctx, cancel := answering(ctx)
	defer cancel()
	from, err := p.command(controller.Command{Cmd: "submit", Submit: controller.Submission{ID: j.ID, Name: j.Name, N: j.Hosts, Gain: j.Gain, Demand: j.Demand}})
	if err != nil {
		return nil, err
	}
	e, err := p.await(ctx, from, func(e *controller.Event) bool {
		return e.Job == j.ID && (e.Event == "placed" || e.Event == "refused" || e.Event == "error")
	})
	switch {
	case err != nil:
		return nil, err
	case e.Event == "placed":
		return e.Hosts, nil
	case e.NoRoom:
		return nil, fmt.Errorf("%w: %s", ErrNoRoom, e.Error)
	}
	return nil, blame.About(e.Part, errors.New(e.Error))
}

// Addresses implements Controller.
func (p *Process) Addresses(host string) (trees, sharing string, err error) {
	at, err := p.hosts.Reach(host)
	if err != nil {
		return "", "", err
	}
	reach := func(listens string) string {
		_, port, err := net.SplitHostPort(listens)
		if err != nil {
			return "" // it does not
		}
		return net.JoinHostPort(at.String(), port)
	}
	return reach(p.at.Hosts), reach(p.at.Sharing), nil
}

// End implements Controller.
func (p *Process) End(ctx context.Context, id uint16) error {
	p.mu.Lock()
	for i := range p.events { // it may have seen so itself
		if e := &p.events[i]; e.Event == "ended" && e.Job == id {
			p.mu.Unlock()
			return nil
		}
	}
	p.mu.Unlock()
	ctx, cancel := answering(ctx)
	defer cancel()
	from, err := p.command(controller.Command{Cmd: "end", Job: id})
	if err != nil {
		return err
	}
	e, err := p.await(ctx, from, func(e *controller.Event) bool {
		return e.Job == id && (e.Event == "ended" || e.Event == "error")
	})
	if err == nil && e.Event == "error" {
		err = errors.New(e.Error)
	}
	return err
}

// Events are those that it has told so far.
func (p *Process) Events() []controller.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]controller.Event(nil), p.events...)
}

// Close ends it; it releases all trees first.
func (p *Process) Close() error {
	_ = p.stdin.Close()
	select {
	case <-p.over:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return fmt.Errorf("MINA controller: %w", p.err)
	}
	return nil
}

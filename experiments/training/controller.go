package training

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/mina/controller"
)

// Process is a MINA controller that runs beside this program, as a process of its own.
type Process struct {
	talk  *hosts.Talk
	hosts Hosts
	at    controller.Addresses

	mu     sync.Mutex
	events []controller.Event
	news   chan struct{} // closed, and replaced, with every event
}

// Start starts a controller: argv is how this program is started as one.
func Start(ctx context.Context, on Hosts, argv []string, s controller.Setup) (*Process, error) {
	proc, err := hosts.Beside(argv)
	if err != nil {
		return nil, fmt.Errorf("start the MINA controller: %w", err)
	}
	p := &Process{talk: hosts.NewTalk("", ""), hosts: on, news: make(chan struct{})}
	p.talk.Start(proc)
	go hosts.Listen(p.talk, p.take, func(err error) { p.talk.Fail(err) })
	if err := p.talk.Tell(s); err != nil {
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

// take keeps an event.
func (p *Process) take(e *controller.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, *e)
	if e.Event == "error" && e.Job == 0 {
		p.talk.Fail(blame.About(e.Part, errors.New(strings.TrimPrefix(e.Error, "MINA controller: "))))
	}
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
		case <-p.talk.Over():
			return nil, p.Err()
		default:
		}
		select {
		case <-news:
		case <-p.talk.Over():
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
	p.mu.Lock()
	from = len(p.events)
	p.mu.Unlock()
	if err := p.talk.Tell(c); err != nil {
		if p.talk.Ended() { // which says more
			return 0, p.Err()
		}
		return 0, fmt.Errorf("MINA controller: %w", err)
	}
	return from, nil
}

// answerTimeout is how long the controller may take to place a job or to release a tree.
const answerTimeout = 30 * time.Second

func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("no answer within %v", answerTimeout))
}

// Done implements Controller: it is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.talk.Over() }

// Err implements Controller.
func (p *Process) Err() error {
	err := p.talk.Err()
	if err == nil {
		return errors.New("the MINA controller has ended")
	}
	return fmt.Errorf("the MINA controller has ended: %w", err)
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
	proc := p.talk.Process()
	_ = proc.Stdin.Close()
	select {
	case <-p.talk.Over():
	case <-time.After(30 * time.Second):
		_ = proc.Close()
		<-p.talk.Over()
	}
	if err := p.talk.Err(); err != nil {
		return fmt.Errorf("MINA controller: %w", err)
	}
	return nil
}

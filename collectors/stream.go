package collectors

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/testbed/hosts"
)

// stream is a program on a host that goes on printing what it sees, line by line. Starting
// nvidia-smi anew for each reading would take longer than the reading. It cannot outlive its
// connection: the next line that it prints has nowhere to go.
type stream struct {
	client hosts.Host
	argv   func() []string         // asked before each start
	take   func(line string) error // called with mu held
	fix    func(err error) bool    // after it failed: whether another argv may work

	mu      sync.Mutex
	process *hosts.Process
	tried   time.Time // to start it
	fresh   time.Time // when it last said something that take took
	odd     error     // what take did not take last
	ended   error     // why it is not running; nil: it is, or was never started

	reading sync.WaitGroup
}

// again is how long a program that ended is left alone; stale, how long one may be silent
// before what it said no longer counts; first, how long before its first line: nvidia-smi
// may set every GPU up before that.
const (
	again = 10 * time.Second
	stale = 3 * time.Second
	first = 30 * time.Second
)

// live makes sure that the program runs, and returns with mu held. An error says why
// there is nothing to take from it; without one there may be nothing yet. A program that
// the host does not have is ErrNoData.
func (s *stream) live(ctx context.Context) error {
	s.mu.Lock()
	since, patience := s.fresh, stale
	if since.IsZero() {
		since, patience = s.tried, first
	}
	switch {
	case s.process != nil && time.Since(since) > patience:
		err := blame.Host(s.client.String(), fmt.Errorf("%s has said nothing for %v", s.argv()[0], time.Since(since).Round(time.Second)))
		return errors.Join(err, s.odd)
	case s.process != nil || errors.Is(s.ended, ErrNoData), time.Since(s.tried) < again:
		return s.ended
	}
	return s.start(ctx)
}

func (s *stream) start(ctx context.Context) error {
	s.tried, s.ended, s.odd, s.fresh = time.Now(), nil, nil, time.Time{}
	p, err := hosts.Outlive(ctx, func(ctx context.Context) (*hosts.Process, error) { return s.client.Start(ctx, s.argv(), nil) })
	if err != nil {
		s.ended = err
		return err
	}
	s.process = p
	s.reading.Go(func() { s.read(p) })
	return nil
}

func (s *stream) read(p *hosts.Process) {
	in := bufio.NewScanner(p.Stdout)
	for in.Scan() {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		s.mu.Lock()
		if err := s.take(in.Text()); err != nil {
			s.odd = err
		} else {
			s.fresh = time.Now()
		}
		s.mu.Unlock()
	}
	err := p.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p { // closed
		return
	}
	s.process = nil
	run := (*hosts.RunError)(nil)
	switch {
	case errors.As(err, &run) && (run.Exit == 127 || run.Exit == 126): // 126 where PATH has directories that are closed to us
		s.ended = blame.Host(s.client.String(), fmt.Errorf("no %s: %w", s.argv()[0], ErrNoData))
	case errors.Is(s.odd, ErrNoData):
		s.ended = s.odd
	default:
		s.ended = blame.Host(s.client.String(), fmt.Errorf("%s ended: %w", s.argv()[0], errors.Join(err, s.odd)))
		if s.fix != nil && s.fix(s.ended) {
			s.ended, s.tried = nil, time.Time{}
		}
	}
}

// Close ends the program on the host.
func (s *stream) Close() error {
	s.mu.Lock()
	p := s.process
	s.process, s.ended = nil, blame.Host(s.client.String(), fmt.Errorf("closed: %w", ErrNoData))
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	defer s.reading.Wait()
	return p.Close()
}

// holds says whether a cell holds a value: tools write N/A, [N/A], [Not Supported], - and
// nothing for what a GPU does not have.
func holds(cell string) bool {
	return cell != "" && cell != "N/A" && cell != "-" && !strings.HasPrefix(cell, "[")
}

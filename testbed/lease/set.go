package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/inabench/inabench/internal/parallel"
)

// Options say how a set of leases is taken.
type Options struct {
	// Wait is how long to wait for others to leave; nothing is held meanwhile. Who asks
	// first when they have, has it: nobody queues.
	Wait time.Duration
	// Waiting is told who has what is wanted: once for each that does. May be nil.
	Waiting func(*HeldError)
	// Poll is how often to ask; 0: every second.
	Poll time.Duration
}

// Set is several resources that one holder has, and the renewing of them.
type Set struct {
	leases []*Lease
	lost   chan struct{}
	stop   context.CancelFunc
	beats  sync.WaitGroup

	mu  sync.Mutex
	err error
}

// TakeAll takes all of the places or none, in one order for everybody, that of their keys:
// of two that want the same, one gets past the first. While it waits it holds nothing, so
// there is no deadlock, whatever others hold. Leases of a set have one token, and are
// renewed four times in their time to live until Release.
func TakeAll(ctx context.Context, places []Place, c Claim, o Options) (*Set, error) {
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b Place) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Name, b.Name)) })
	c.Token = cmp.Or(c.Token, rand.Text())
	deadline := time.Now().Add(o.Wait)
	told := map[string]bool{}
	for {
		s, err := takeAll(ctx, places, c)
		var held *HeldError
		if err == nil || !errors.As(err, &held) {
			return s, err
		}
		if time.Now().After(deadline) {
			if o.Wait > 0 {
				err = &waitedError{err, o.Wait}
			}
			return nil, err
		}
		if key := held.Place + " " + held.Token; o.Waiting != nil && !told[key] {
			told[key] = true
			o.Waiting(held)
		}
		select {
		case <-time.After(min(cmp.Or(o.Poll, time.Second), max(time.Until(deadline), time.Millisecond))):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// waitedError is somebody who stayed for longer than was waited.
type waitedError struct {
	error
	wait time.Duration
}

func (e *waitedError) Unwrap() error { return e.error }
func (e *waitedError) Error() string {
	return fmt.Sprintf("%v; waited for %s", e.error, span(e.wait))
}

// fan is how many places are worked on at once.
const fan = 32

// each calls f for all places, some at once, and returns the error of the first of them
// that had one.
func each(places []Place, f func(i int) error) error {
	errs := make([]error, len(places))
	_ = parallel.Every(fan, len(places), func(i int) error {
		errs[i] = f(i)
		return nil
	})
	return cmp.Or(errs...)
}

// takeAll writes all files first, side by side, and then gives them their names, one after
// the other: what is done in order takes one round trip for each.
func takeAll(ctx context.Context, places []Place, c Claim) (_ *Set, err error) {
	if err := checkTTL(c.TTL); err != nil {
		return nil, fmt.Errorf("take leases: %w", err)
	}
	s := &Set{lost: make(chan struct{}), leases: make([]*Lease, len(places)), stop: func() {}}
	files := make([]*next, len(places))
	linked := 0
	defer func() {
		if err == nil {
			return
		}
		// What was taken is given back, also where nobody heard that it was.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.TTL)
		defer cancel()
		_ = each(places, func(i int) error {
			if files[i] != nil && i >= linked {
				files[i].drop(undo)
			}
			return nil
		})
		for i := min(linked, len(places)-1); i >= 0; i-- {
			if rerr := Return(undo, places[i], c.Token); rerr != nil && !errors.Is(err, ErrHeld) {
				err = errors.Join(err, rerr)
			}
		}
	}()
	err = each(places, func(i int) (err error) {
		if files[i], err = places[i].prepare(ctx, c.on); err != nil && !errors.Is(err, ErrHeld) {
			err = fmt.Errorf("%s: take a lease: %w", places[i].Name, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		if files[i] != nil {
			err = files[i].link(ctx)
		}
		if files[i] == nil || errors.Is(err, fs.ErrExist) { // it went out of date
			files[i] = nil
			s.leases[i], err = p.take(ctx, c.on)
		}
		if err != nil {
			return nil, err
		}
		linked++
	}
	err = each(places, func(i int) (err error) {
		if files[i] == nil {
			return nil
		}
		if s.leases[i], err = files[i].finish(ctx); err != nil {
			err = fmt.Errorf("%s: take a lease: %w", places[i].Name, err)
		}
		return err
	})
	for i, p := range places {
		if err == nil && s.leases[i] == nil {
			s.leases[i], err = p.take(ctx, c.on)
		}
	}
	if err != nil {
		return nil, err
	}
	beat, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	for _, l := range s.leases {
		s.beats.Go(func() { s.keep(beat, l) })
	}
	return s, nil
}

// keep renews a lease until ctx ends or it is lost.
func (s *Set) keep(ctx context.Context, l *Lease) {
	every := l.span() / 4
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		once, cancel := context.WithTimeoutCause(ctx, every, errors.New("no answer in time"))
		err := l.Renew(once)
		cancel()
		if errors.Is(err, ErrLost) && ctx.Err() == nil {
			s.fail(err)
			return
		}
	}
}

func (s *Set) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.lost)
	}
}

// Check renews everything now, and returns Err.
func (s *Set) Check(ctx context.Context) error {
	var all sync.WaitGroup
	for _, l := range s.leases {
		all.Go(func() {
			if err := l.Renew(ctx); errors.Is(err, ErrLost) {
				s.fail(err)
			}
		})
	}
	all.Wait()
	return s.Err()
}

// Lost is closed when the first lease is lost; Err then says which and why.
func (s *Set) Lost() <-chan struct{} { return s.lost }

// Err is why the set is no longer whole, nil while it is.
func (s *Set) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Leases are the set's, in the order in which they were taken.
func (s *Set) Leases() []*Lease { return s.leases }

// Keep ends the renewing and gives nothing back: a person keeps what has a long time to
// live.
func (s *Set) Keep() {
	s.stop()
	s.beats.Wait()
}

// Release gives everything back but places that are named: of these time gives it back. None waits for another, whose
// host may say nothing; given are the names of those that are back. It is idempotent.
func (s *Set) Release(ctx context.Context, keep ...string) (given []string, err error) {
	s.Keep()
	errs := make([]error, len(s.leases))
	err = parallel.Every(len(errs), len(errs), func(i int) error {
		if l := s.leases[i]; !slices.Contains(keep, l.Place().Name) {
			errs[i] = l.Release(ctx)
		}
		return errs[i]
	})
	for i, l := range s.leases {
		if name := l.Place().Name; errs[i] == nil && !slices.Contains(keep, name) {
			given = append(given, name)
		}
	}
	return given, err
}

// Return gives back what the holder with a token has, if it has it still: it is Release
// for a holder that is gone.
func Return(ctx context.Context, p Place, token string) error {
	l, err := p.list(ctx)
	if err != nil {
		return err
	}
	_, err = p.newest(l, 0, func(n uint64) error {
		data, _, err := p.Files.Read(ctx, p.file(n))
		var r Record
		if err != nil || json.Unmarshal(data, &r) != nil || r.Token != token {
			return err
		}
		return p.release(ctx, n)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another has followed
	}
	return err
}

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/internal/blame"
)

// Session is how a client has hold of a switch: by one stream after the other, of which at most one is good at a time. T
// is what calls have to say of that one: an election id, or a client's number. A protocol has the streams (Open), and says
// when one is good (Begin). Methods are safe for concurrent use.
type Session[T any] struct {
	name, protocol string
	cancel         context.CancelFunc // ends the streams
	ended          chan struct{}      // closed when no stream will follow
	lost           chan struct{}
	explained      chan struct{} // closed when it is known what became of the switch

	mu      sync.Mutex
	good    bool
	ready   chan struct{} // closed while good
	value   T
	over    error // why no stream will follow
	lostErr error
	explain sync.Once // closes explained
}

// NewSession is a session with the switch that errors call by that name, over a protocol of that name.
func NewSession[T any](name, protocol string) *Session[T] {
	return &Session[T]{
		name: name, protocol: protocol, cancel: func() {},
		ended: make(chan struct{}), lost: make(chan struct{}), explained: make(chan struct{}), ready: make(chan struct{}),
	}
}

// Stream opens a stream, asks for control, calls won when it is granted, and returns why that ended, which cancel, with a
// cause, may make it do.
type Stream func(ctx context.Context, due Due, cancel context.CancelCauseFunc, won func()) error

// Due is what is known of whether control is due to a client.
type Due struct {
	At   time.Time // when that was asked: who asks for control later has it
	Sure bool      // it was due to nobody else then
}

// Open has one stream after the other until Close, or one says that none is to follow (Over), or the switch has gone to
// another while there was none (Options.Mine). It returns when the first has control, which must be granted within
// Options.DialTimeout; if that fails there is no second. ctx bounds this wait only. Whoever has called it calls Close,
// also after an error.
func (s *Session[T]) Open(ctx context.Context, o Options, stream Stream) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	first := make(chan error, 1)
	go s.keep(life, o, first, stream)
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the streams, and waits for that. It is idempotent.
func (s *Session[T]) Close() {
	s.cancel()
	<-s.ended
}

// keep is Open until ctx ends; the outcome of the first stream goes to first.
func (s *Session[T]) keep(ctx context.Context, o Options, first chan<- error, stream Stream) {
	defer close(s.ended)
	won := false
	err := s.once(ctx, Due{time.Now(), true}, o.DialTimeout, stream, func() {
		won = true
		first <- nil
	})
	if !won {
		first <- err
		return
	}
	pause := MinBackoff
	for ctx.Err() == nil && s.final() == nil {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, MaxBackoff)
		due := Due{time.Now(), true}
		if o.Mine != nil {
			err := o.Mine(ctx)
			if errors.Is(err, ErrNotPrimary) {
				_ = s.Over(err)
				return
			}
			due.Sure = err == nil
		}
		_ = s.once(ctx, due, o.DialTimeout, stream, func() { pause = MinBackoff }) // how control was lost first is what counts
	}
}

// once has one stream.
func (s *Session[T]) once(life context.Context, due Due, patience time.Duration, stream Stream, won func()) error {
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	late := fmt.Errorf("no answer within %v", patience)
	timer := time.AfterFunc(patience, func() { cancel(late) })
	defer timer.Stop()
	err := stream(ctx, due, cancel, func() {
		timer.Stop()
		won()
	})
	if context.Cause(ctx) == late {
		switch status.Code(err) {
		case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable: // others say more
			err = fmt.Errorf("%w: %s", late, Dialing(err))
		}
	}
	s.end(life, err)
	return err
}

// Idle is for a client that only looks: there will be no streams.
func (s *Session[T]) Idle() { close(s.ended) }

// Begin makes the present stream the good one, of which calls say v.
func (s *Session[T]) Begin(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = v
	if !s.good {
		s.good = true
		close(s.ready)
	}
}

// end notes that a stream has ended, other than by the client's own doing, which ends its life.
func (s *Session[T]) end(life context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.good { // it never was
		return
	}
	s.good, s.ready = false, make(chan struct{})
	if s.lostErr == nil && life.Err() == nil {
		s.lostErr = blame.Switch(s.name, fmt.Errorf("%s stream lost: %w", s.protocol, err))
		close(s.lost)
	}
}

// Over says why no stream is to follow the present one, and returns it. Of a switch that is lost it is part of Err.
func (s *Session[T]) Over(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = err
	if s.lostErr != nil { // whatever is known of an earlier loss
		s.lostErr = fmt.Errorf("%w; %w", s.lostErr, err)
		s.explain.Do(func() { close(s.explained) })
	}
	return err
}

// final is why no stream will follow; nil: one may.
func (s *Session[T]) final() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// isGood says whether there is control now.
func (s *Session[T]) isGood() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good
}

// Await is what calls have to say, once there is control. Errors are that of Over, ErrClosed, and ctx's, with how control
// was lost.
func (s *Session[T]) Await(ctx context.Context) (v T, err error) {
	for {
		s.mu.Lock()
		good, ready, v, over, lost := s.good, s.ready, s.value, s.over, s.lostErr
		s.mu.Unlock()
		switch {
		case good:
			return v, nil
		case over != nil:
			return v, over
		}
		select {
		case <-ready: // of which stream is to be seen
		case <-s.ended:
			if over := s.final(); over != nil {
				return v, over
			}
			return v, ErrClosed
		case <-ctx.Done():
			if lost != nil {
				return v, fmt.Errorf("%w (%w)", ctx.Err(), lost)
			}
			return v, ctx.Err()
		}
	}
}

// Lost implements Switch.
func (s *Session[T]) Lost() <-chan struct{} { return s.lost }

// Err implements Switch.
func (s *Session[T]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lostErr
}

// Explain implements Switch.
func (s *Session[T]) Explain(ctx context.Context) error {
	if s.Err() != nil {
		select {
		case <-s.explained:
		case <-s.ended:
		case <-ctx.Done():
		}
	}
	return s.Err()
}

// Recognise makes part of Err what has become of a switch that was lost: what is gone, in words, or "", or why that is not
// known. Only the first time counts.
func (s *Session[T]) Recognise(gone string, unknown error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.explain.Do(func() {
		switch {
		case gone != "":
			s.lostErr = blame.Switch(s.name, fmt.Errorf("%w, %s (%w)", ErrRestarted, gone, s.lostErr))
		case unknown != nil:
			s.lostErr = fmt.Errorf("%w; what has become of it is not known: %w", s.lostErr, Plain(unknown))
		default:
			s.lostErr = fmt.Errorf("%w; it is controlled again, and has kept what was written into it", s.lostErr)
		}
		close(s.explained)
	})
}

// Parting is how long a client may take to change everything back: ctx's deadline counts, also one that is over, its
// being cancelled does not, and patience, or LostPatience to win back a switch that is lost.
func (s *Session[T]) Parting(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	if !s.isGood() {
		patience = min(patience, LostPatience)
	}
	until := time.Now().Add(patience)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}

// Watch asks for signs of life until ctx ends, by calls: a C++ server (BMv2, Stratum, the SDE) hangs up on who pings an
// idle connection more often than every five minutes, as gRPC's own keepalive does. It ends with a cause what gets none.
func Watch(ctx context.Context, cancel context.CancelCauseFunc, o Options, ask func(context.Context) error) {
	tick := time.NewTicker(o.Keepalive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, done := context.WithTimeout(ctx, o.CallTimeout)
		err := ask(call)
		done()
		if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
			cancel(fmt.Errorf("no sign of life within %v", o.CallTimeout))
			return
		}
	}
}

// EndOf is why a stream takes no more, which Send does not say: it comes after what the server has said before, and must
// come, or who waits would take the session for a good one.
func EndOf[M any](stream interface{ Recv() (M, error) }) error {
	for range 100 {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	return errors.New("the server takes no more, and goes on talking")
}

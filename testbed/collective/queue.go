package collective

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Collective is an all-reduce among the ranks of a job.
type Collective interface {
	// AllReduce sums so many bytes of gradients over all ranks, by the switches if ina asks
	// for them and they do not refuse. All ranks call it with the same arguments, and get
	// the same answer.
	AllReduce(ctx context.Context, bytes int64, ina bool) (Outcome, error)
}

// Outcome is how an all-reduce went.
type Outcome struct {
	INA     bool  // the switches summed
	Refused bool  // they were asked, and refused
	Checked int64 // int32 values that were compared with the reference
	Wrong   int64 // of these, different
	Stop    bool  // a rank wants the job to end; all ranks are told with the same operation
}

// Alone is the all-reduce of a job's only rank: there is nobody to send to.
type Alone struct{}

// AllReduce does nothing.
func (Alone) AllReduce(context.Context, int64, bool) (Outcome, error) { return Outcome{}, nil }

// Decider says before each all-reduce whether to ask the switches. One goroutine calls it,
// by turns; sharing.Decider has more about it.
type Decider interface {
	Next(ctx context.Context) (op uint64, ina bool, err error)
	Done(op uint64, used bool)
}

// Clock tells the time since any fixed origin.
type Clock interface{ Now() time.Duration }

// ErrClosed is that of operations that were requested of a queue that has been closed.
var ErrClosed = errors.New("queue of all-reduces closed")

// Queue launches the all-reduces of a job one at a time in the order in which they are
// requested. Its methods may be called by any goroutine.
type Queue struct {
	collective Collective
	decider    Decider
	clock      Clock
	collector  *Collector

	more  chan struct{} // there is something to do
	ended chan struct{}

	mu       sync.Mutex
	requests []*Operation
	closed   bool
	stats    QueueStats
}

// Operation is an all-reduce that was requested.
type Operation struct {
	Bytes int64
	// When it was requested, when it began and ended, and what came of it: valid when
	// Wait has waited for it.
	Requested, Began, Ended time.Duration
	Outcome                 Outcome
	Err                     error

	done chan struct{}
}

// QueueStats are totals. Durations are seconds.
type QueueStats struct {
	Ops     int64 `json:"ops"` // that have ended, INA and Refused among them
	INA     int64 `json:"ina"`
	Refused int64 `json:"refused"`
	Checked int64 `json:"checked"` // int32 values
	Wrong   int64 `json:"wrong"`
	Tree    Line  `json:"tree"` // durations by bytes, of operations that had INA
	Ring    Line  `json:"ring"` // of those that did not ask for it
	// Fallback is of those that were refused the tree, the asking with it.
	Fallback Line `json:"fallback"`
	// Launch is from when an operation could begin, which is when it was requested or the
	// one before it ended, until it did; without Decision, the time until it was decided
	// whether to ask for INA. A job that stands still while its group's state is changed
	// loses it there.
	Launch   Span `json:"launch"`
	Decision Span `json:"decision"`
	Queued   Span `json:"queued"` // between the request of an operation and its beginning
}

// Span adds up durations in seconds.
type Span struct {
	Sum float64 `json:"sum"`
	Max float64 `json:"max"`
}

// Add adds one.
func (s *Span) Add(d time.Duration) {
	v := d.Seconds()
	s.Sum += v
	s.Max = max(s.Max, v)
}

// NewQueue returns a queue before c, and a goroutine that launches its operations until
// ctx is done or Close is called. The collector may be nil.
func NewQueue(ctx context.Context, c Collective, d Decider, clock Clock, collector *Collector) *Queue {
	q := &Queue{
		collective: c, decider: d, clock: clock, collector: collector,
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go q.run(ctx)
	return q
}

// AllReduce requests an operation. It does not wait.
func (q *Queue) AllReduce(bytes int64) *Operation {
	o := &Operation{Bytes: bytes, Requested: q.clock.Now(), done: make(chan struct{})}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		o.Err = ErrClosed
		close(o.done)
		return o
	}
	q.collector.requested(o.Requested, bytes)
	q.requests = append(q.requests, o)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
	return o
}

// Wait waits for operations. The error is the first one's that has any.
func (q *Queue) Wait(ctx context.Context, ops ...*Operation) error {
	q.mu.Lock()
	q.collector.waiting(q.clock.Now())
	q.mu.Unlock()
	for _, o := range ops {
		select {
		case <-o.done:
			if o.Err != nil {
				return o.Err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	q.mu.Lock()
	q.collector.waited(q.clock.Now())
	q.mu.Unlock()
	return nil
}

// Stats are the totals so far.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Close ends the queue when the operation that is under way has ended; those that were
// not launched fail. The owner of the collective has to end one that hangs.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
	<-q.ended
}

// run launches operations. After the first that fails all others do.
func (q *Queue) run(ctx context.Context) {
	defer close(q.ended)
	var failed error
	free := time.Duration(0) // when the operation before ended
	for failed == nil {
		o, closed := q.take()
		if o == nil {
			if closed {
				failed = ErrClosed
				break
			}
			select {
			case <-q.more:
				continue
			case <-ctx.Done():
				failed = ctx.Err()
			}
			break
		}
		if closed {
			o.Err = ErrClosed
		} else {
			q.launch(ctx, o, free)
		}
		free, failed = o.Ended, o.Err
		close(o.done)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, o := range q.requests {
		o.Err = failed
		close(o.done)
	}
	q.requests = nil
}

// take is the next operation, or nil.
func (q *Queue) take() (o *Operation, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.requests) == 0 {
		return nil, q.closed
	}
	o = q.requests[0]
	q.requests = q.requests[1:]
	return o, q.closed
}

func (q *Queue) launch(ctx context.Context, o *Operation, free time.Duration) {
	could := max(o.Requested, free)
	asked := q.clock.Now()
	op, ina, err := q.decider.Next(ctx)
	o.Began = q.clock.Now()
	if err != nil {
		o.Err = err
		return
	}
	o.Outcome, o.Err = q.collective.AllReduce(ctx, o.Bytes, ina)
	o.Ended = q.clock.Now()
	if o.Err != nil {
		return
	}
	q.decider.Done(op, o.Outcome.INA)

	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.stats
	s.Ops++
	s.Checked += o.Outcome.Checked
	s.Wrong += o.Outcome.Wrong
	s.Launch.Add(asked - could)
	s.Decision.Add(o.Began - asked)
	s.Queued.Add(o.Began - o.Requested)
	switch took := o.Ended - o.Began; {
	case o.Outcome.INA:
		s.INA++
		s.Tree.Add(o.Bytes, took)
	case o.Outcome.Refused:
		s.Refused++
		s.Fallback.Add(o.Bytes, took)
	default:
		s.Ring.Add(o.Bytes, took)
	}
}

// Line adds up durations by bytes, for the straight line through them: a latency, and a
// time per byte.
type Line struct {
	N            int64   `json:"n"`
	Bytes        float64 `json:"bytes"` // and so on: sums of them, of seconds, and of products
	Seconds      float64 `json:"seconds"`
	BytesBytes   float64 `json:"bytes_bytes"`
	BytesSeconds float64 `json:"bytes_seconds"`

	SecondsSeconds float64 `json:"seconds_seconds"`
}

// Add adds an operation.
func (l *Line) Add(bytes int64, took time.Duration) {
	b, s := float64(bytes), took.Seconds()
	l.N++
	l.Bytes += b
	l.Seconds += s
	l.BytesBytes += b * b
	l.BytesSeconds += b * s
	l.SecondsSeconds += s * s
}

// Fit is the line of least squares: latency in seconds, bandwidth in bytes/s. It is not ok
// where the operations were all of one size, or did not take longer if larger.
func (l *Line) Fit() (latency, bandwidth float64, ok bool) {
	n := float64(l.N)
	d := n*l.BytesBytes - l.Bytes*l.Bytes
	slope := (n*l.BytesSeconds - l.Bytes*l.Seconds) / d
	if l.N < 2 || d <= 1e-9*n*l.BytesBytes || !(slope > 0) {
		return 0, 0, false
	}
	return (l.Seconds - slope*l.Bytes) / n, 1 / slope, true
}

// Draw is a line that the operations allow as well: that of least squares, moved by what its
// standard errors leave open. It is ok where Fit is, but for a bandwidth that was not positive.
func (l *Line) Draw(rng *rand.Rand) (latency, bandwidth float64, ok bool) {
	latency, bandwidth, ok = l.Fit()
	if !ok || l.N < 3 {
		return latency, bandwidth, ok
	}
	n, slope := float64(l.N), 1/bandwidth
	bytes, seconds := l.Bytes/n, l.Seconds/n
	width := l.BytesBytes - n*bytes*bytes
	rest := l.SecondsSeconds - n*seconds*seconds - slope*slope*width // of squares
	deviation := math.Sqrt(max(rest, 0) / (n - 2))
	slope += deviation / math.Sqrt(width) * rng.NormFloat64()
	seconds += deviation / math.Sqrt(n) * rng.NormFloat64() // at the mean size, which slope does not move
	return seconds - slope*bytes, 1 / slope, slope > 0
}

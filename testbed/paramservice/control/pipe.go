package control

import (
	"context"
	"sync"
)

// End is one end of a Pipe.
type End struct {
	in, out *queue
}

// Pipe connects a node with a pMaster in the same process: what one end sends the other one
// receives, however late.
func Pipe() (node, master *End) {
	a, b := newQueue(), newQueue()
	return &End{in: a, out: b}, &End{in: b, out: a}
}

// Send implements Link.
func (e *End) Send(m Message) { e.out.put(m) }

// Receive implements Link.
func (e *End) Receive(ctx context.Context) (Message, error) { return e.in.get(ctx) }

// Close ends both directions. What has been sent can still be received.
func (e *End) Close() {
	e.in.close()
	e.out.close()
}

// queue holds messages until they are asked for.
type queue struct {
	mu     sync.Mutex
	all    []Message
	closed bool
	wake   chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) put(m Message) {
	q.mu.Lock()
	if !q.closed {
		q.all = append(q.all, m)
	}
	q.mu.Unlock()
	q.signal()
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue) get(ctx context.Context) (Message, error) {
	for {
		q.mu.Lock()
		switch {
		case len(q.all) > 0:
			m := q.all[0]
			q.all = q.all[1:]
			more := len(q.all) > 0 || q.closed
			q.mu.Unlock()
			if more {
				q.signal() // for others that wait
			}
			return m, nil
		case q.closed:
			q.mu.Unlock()
			q.signal()
			return nil, ErrClosed
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.wake:
		}
	}
}

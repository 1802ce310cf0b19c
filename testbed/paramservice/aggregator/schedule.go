package aggregator

import (
	"fmt"
	"math"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/control"
)

// work is one aggregation, all gradients of which are there.
type work struct {
	tensor *tensor
	run    run
	real   bool          // it takes what it takes, in one go
	left   time.Duration // else, of its time on the core

	slot int // in the cycle; -1: it takes time that is left
	turn paramservice.Turn
}

// schedule says what has its turn on the core: those with a slot by the cycle (paramservice.Slots),
// others in the order in which they came, in time that is left. Time counts from the origin
// of the core and does not go back.
type schedule struct {
	slots *paramservice.Slots
	began time.Duration // of the first cycle
	of    map[control.Key]int
	exec  []time.Duration
	in    []*work // by slot: the request that has its time
	queue []*work // without a slot
}

// newSchedule lays out a cycle; without slots there is none.
func newSchedule(r control.Reserve) (*schedule, error) {
	n := &schedule{of: map[control.Key]int{}, in: make([]*work, len(r.Slots)), exec: make([]time.Duration, len(r.Slots))}
	if len(r.Slots) == 0 {
		return n, nil
	}
	tasks := make([]paramservice.Slot, len(r.Slots))
	for i, t := range r.Slots {
		tasks[i] = paramservice.Slot{Iteration: t.Iteration, Exec: t.Exec}
		n.of[t.Key], n.exec[i] = i, t.Exec
	}
	var err error
	if n.slots, err = paramservice.NewSlots(r.Cycle, tasks); err != nil {
		return nil, fmt.Errorf("cycle of %v: %w", r.Cycle, err)
	}
	return n, nil
}

// replace begins with the cycle of another schedule. Requests that are here come anew.
func (s *schedule) replace(now time.Duration, n *schedule) {
	was := *s
	*s = *n
	s.began = now
	for _, w := range was.in {
		if w != nil {
			s.arrive(now, w)
		}
	}
	for _, w := range was.queue {
		s.arrive(now, w)
	}
}

// arrive is a request.
func (s *schedule) arrive(now time.Duration, w *work) {
	w.slot, w.turn = -1, paramservice.OnTime
	if i, ok := s.of[w.tensor.key]; ok && s.in[i] == nil {
		if turn, _, ok := s.slots.Arrive(now-s.began, i); ok {
			w.slot, w.turn = i, turn
			s.in[i] = w
			if w.left < s.exec[i] && !w.real { // a part has been done, or it takes less than was reserved
				if s.slots.Ran(now-s.began, i, s.exec[i]-w.left) {
					w.slot, s.in[i] = -1, nil
				}
			}
		}
	}
	if w.slot < 0 {
		s.queue = append(s.queue, w)
	}
}

// next is what has its turn, and until when at most; nil if nothing is to be done.
func (s *schedule) next(now time.Duration) (w *work, until time.Duration) {
	until = math.MaxInt64
	if s.slots != nil {
		i, end, ok := s.slots.Next(now - s.began)
		if until = end + s.began; ok {
			w = s.in[i]
			return w, until
		}
	}
	if len(s.queue) == 0 {
		return nil, until
	}
	w = s.queue[0]
	return w, min(until, now+w.left)
}

// ran says that a request has had so much time until now, and returns whether it is done.
func (s *schedule) ran(now time.Duration, w *work, spent time.Duration) (done bool) {
	w.left -= spent
	done = w.left <= 0
	if i := w.slot; i >= 0 {
		served := s.slots.Ran(now-s.began, i, spent)
		if done && !served {
			s.slots.Ran(now-s.began, i, s.exec[i])
		}
		if done || served {
			s.in[i], w.slot = nil, -1
			if !done { // it takes longer than was reserved
				s.queue = append(s.queue, w)
			}
		}
		return done
	}
	if done {
		for i := range s.queue {
			if s.queue[i] == w {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				break
			}
		}
	}
	return done
}

// drop takes away the requests of a job.
func (s *schedule) drop(now time.Duration, job uint32) {
	for i, w := range s.in {
		if w != nil && w.tensor.key.Job == job {
			s.slots.Ran(now-s.began, i, s.exec[i])
			s.in[i] = nil
		}
	}
	kept := s.queue[:0]
	for _, w := range s.queue {
		if w.tensor.key.Job != job {
			kept = append(kept, w)
		}
	}
	clear(s.queue[len(kept):])
	s.queue = kept
}

package paramservice

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrOver is when slots do not fit into their cycle.
var ErrOver = errors.New("more work than the cycle has room for")

// mostRuns is how many slots a cycle may have: the layout takes some 100 bytes for each.
const mostRuns = 100_000

// Slot is what one tensor has reserved in a cycle.
type Slot struct {
	Iteration time.Duration // of its job, at most a cycle long
	Exec      time.Duration // of one run
}

// piece is a part of a slot in the layout of a cycle.
type piece struct {
	from, to time.Duration
	run      int
}

// run is one slot in a cycle.
type run struct {
	task       int
	begin, end time.Duration // of its window
	first      time.Duration // when its first piece begins: later requests are late
	last       time.Duration // when its last piece ends: earlier ones are done by then
}

// Turn is when a request gets its time.
type Turn uint8

// Turns.
const (
	OnTime    Turn = iota // in its slot of this cycle, or before
	Spare                 // late, but in this cycle: what is not reserved for others is enough
	Postponed             // late: in the tensor's next slot
)

func (t Turn) String() string { return [...]string{"on time", "spare", "postponed"}[t] }

// Slots is the cycle of one Aggregator while it runs, on one core: which request has its
// turn when. Time counts from when the first cycle began.
//
// Each slot has its place in the cycle. A request that is there when its slot begins has been
// served when the slot ends, whatever others do. It is served earlier if nobody whose
// slot it is wants the core. A late request takes time that is left in this cycle after
// everything that is still reserved; if there is not enough, it gets the tensor's next slot.
type Slots struct {
	cycle  time.Duration
	tasks  []Slot
	runs   []run
	pieces []piece
	of     [][]int // runs of each task, in order
	start  time.Duration
	taken  []bool // runs of this cycle
	wants  []request
}

// request is one of a tensor, which has at most one at a time.
type request struct {
	left time.Duration
	run  int // whose time it has, or spare or next
	here bool
}

const (
	spare = -1
	next  = -2 // the tensor's first slot of the next cycle
)

// NewSlots lays out a cycle. Errors wrap ErrOver or ErrJob.
func NewSlots(cycle time.Duration, tasks []Slot) (*Slots, error) {
	runs, pieces, err := lay(cycle, tasks)
	if err != nil {
		return nil, err
	}
	s := &Slots{cycle: cycle, tasks: slices.Clone(tasks), runs: runs, pieces: pieces,
		of: make([][]int, len(tasks)), taken: make([]bool, len(runs)), wants: make([]request, len(tasks))}
	for i, r := range runs {
		s.of[r.task] = append(s.of[r.task], i)
	}
	return s, nil
}

// roll goes to the cycle that now is in, and returns how far it is.
func (s *Slots) roll(now time.Duration) time.Duration {
	if len(s.tasks) == 0 || now < s.start+s.cycle {
		return max(0, now-s.start)
	}
	s.start += (now - s.start) / s.cycle * s.cycle
	clear(s.taken)
	for t := range s.wants {
		w := &s.wants[t]
		switch {
		case w.here && w.run == next:
			w.run = s.of[t][0]
			s.taken[w.run] = true
		case w.here:
			w.run = spare // the core was slower than it should be
		}
	}
	return now - s.start
}

// Arrive is a tensor's request, all gradients of which are there: when it is served, and by when at
// the latest. A tensor has one request at a time; for another one ok is false.
func (s *Slots) Arrive(now time.Duration, task int) (turn Turn, by time.Duration, ok bool) {
	w := &s.wants[task]
	at := s.roll(now)
	if w.here {
		return 0, 0, false
	}
	e := s.tasks[task].Exec
	// Its slot is the one of the window that now is in.
	i, _ := slices.BinarySearchFunc(s.of[task], at, func(r int, at time.Duration) int {
		if s.runs[r].end <= at {
			return -1
		}
		return 1
	})
	r := s.of[task][i]
	*w = request{left: e, here: true}
	if !s.taken[r] && at <= s.runs[r].first {
		s.taken[r], w.run = true, r
		return OnTime, s.start + s.runs[r].last, true
	}
	free := s.cycle - at
	for i := range s.wants {
		if o := &s.wants[i]; o.here && o.run != next && i != task {
			free -= o.left
		}
	}
	for i := range s.runs {
		if !s.taken[i] && s.runs[i].first >= at {
			free -= s.tasks[s.runs[i].task].Exec
		}
	}
	if free >= e {
		w.run = spare
		return Spare, s.start + s.cycle, true
	}
	for _, r := range s.of[task][i+1:] {
		if !s.taken[r] { // else it had that one before its time
			s.taken[r], w.run = true, r
			return Postponed, s.start + s.runs[r].last, true
		}
	}
	w.run = next
	return Postponed, s.start + s.cycle + s.runs[s.of[task][0]].last, true
}

// Next is the tensor that has its turn now, and until when at most: then, or when a request
// arrives, ask again. Without a request ok is false, and until is when to ask again at the
// latest.
func (s *Slots) Next(now time.Duration) (task int, until time.Duration, ok bool) {
	at := s.roll(now)
	for t := range s.wants {
		if w := &s.wants[t]; w.here && w.left == 0 {
			return t, now, true // tensors that take no time have no place in the layout
		}
	}
	i, _ := slices.BinarySearchFunc(s.pieces, at, func(p piece, at time.Duration) int {
		if p.to <= at {
			return -1
		}
		return 1
	})
	until = s.cycle
	if i < len(s.pieces) {
		p := s.pieces[i]
		if p.from > at {
			until = p.from
		} else {
			until = p.to
			if t := s.runs[p.run].task; s.wants[t].here && s.wants[t].run == p.run {
				return t, s.start + min(until, at+s.wants[t].left), true
			}
		}
	}
	task, deadline := -1, time.Duration(0)
	for t := range s.wants {
		w := &s.wants[t]
		if !w.here {
			continue
		}
		d := s.cycle // spare
		switch {
		case w.run == next:
			d = 2 * s.cycle
		case w.run != spare:
			d = s.runs[w.run].end
		}
		if task < 0 || d < deadline {
			task, deadline = t, d
		}
	}
	if task < 0 {
		return 0, s.start + until, false
	}
	return task, s.start + min(until, at+s.wants[task].left), true
}

// Ran says that a tensor's request has had so much time until now, and returns whether it has
// been served.
func (s *Slots) Ran(now time.Duration, task int, spent time.Duration) (served bool) {
	w := &s.wants[task]
	if !w.here {
		return false
	}
	w.left -= spent
	if w.left <= 0 {
		w.here = false
	}
	s.roll(now)
	return !w.here
}

// lay lays a cycle out: run i of a tensor with k of them lies within [i·C/k, (i+1)·C/k), by
// earliest deadline first. That fits if and only if the sum does.
func lay(cycle time.Duration, tasks []Slot) ([]run, []piece, error) {
	var work time.Duration
	var runs []run
	for t, s := range tasks {
		if s.Iteration <= 0 || s.Iteration > cycle || cycle > longest || s.Exec < 0 {
			return nil, nil, fmt.Errorf("tensor %d: %v every %v in a cycle of %v: %w", t, s.Exec, s.Iteration, cycle, ErrJob)
		}
		k := time.Duration(Runs(cycle, s.Iteration))
		if k > mostRuns-time.Duration(len(runs)) {
			return nil, nil, fmt.Errorf("tensors 0 to %d: more than %d slots in a cycle: %w", t, mostRuns, ErrOver)
		}
		work += k * s.Exec
		if work > cycle {
			return nil, nil, fmt.Errorf("tensors 0 to %d: %v in %v: %w", t, work, cycle, ErrOver)
		}
		for i := range k {
			runs = append(runs, run{task: t, begin: i * cycle / k, end: (i + 1) * cycle / k, first: -1})
		}
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.begin, b.begin) })
	left := make([]time.Duration, len(runs))
	queue := &byDeadline{runs: runs}
	var pieces []piece
	next := 0
	for now := time.Duration(0); next < len(runs) || queue.Len() > 0; {
		if queue.Len() == 0 {
			now = max(now, runs[next].begin)
		}
		for ; next < len(runs) && runs[next].begin <= now; next++ {
			left[next] = tasks[runs[next].task].Exec
			heap.Push(queue, next)
		}
		r := queue.waiting[0]
		until := now + left[r]
		if next < len(runs) {
			until = min(until, runs[next].begin)
		}
		if runs[r].first < 0 {
			runs[r].first = now
		}
		if until > now {
			if n := len(pieces); n > 0 && pieces[n-1].run == r && pieces[n-1].to == now {
				pieces[n-1].to = until
			} else {
				pieces = append(pieces, piece{now, until, r})
			}
		}
		left[r] -= until - now
		now = until
		if left[r] == 0 {
			runs[r].last = now
			heap.Pop(queue)
		}
	}
	return runs, pieces, nil
}

type byDeadline struct {
	runs    []run
	waiting []int
}

func (q *byDeadline) Len() int { return len(q.waiting) }
func (q *byDeadline) Less(a, b int) bool {
	x, y := q.waiting[a], q.waiting[b]
	return q.runs[x].end < q.runs[y].end || q.runs[x].end == q.runs[y].end && x < y
}
func (q *byDeadline) Swap(a, b int) { q.waiting[a], q.waiting[b] = q.waiting[b], q.waiting[a] }
func (q *byDeadline) Push(x any)    { q.waiting = append(q.waiting, x.(int)) }
func (q *byDeadline) Pop() any {
	n := len(q.waiting) - 1
	x := q.waiting[n]
	q.waiting = q.waiting[:n]
	return x
}

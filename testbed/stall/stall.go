// Package stall joins what a process did too late into spans of time in which it stood
// still: one stop of a tenth of a second makes a thousand frames late, and is one event.
package stall

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limit is how late something may be before that is a stall, over the beat: the shortest
// time that matters to whom it is late for.
const Limit = 0.20

// Rouse is how late a process that had nothing to do may wake up before that is a stall,
// where Limit allows less: nothing came of it yet.
const Rouse = 10 * time.Millisecond

// kept is how many spans wait to be taken; of more, the oldest two become one.
const kept = 256

// Span is a stall. Its times are on the clock of who recorded it.
type Span struct {
	Start time.Duration `json:"start"` // when the first of what was late was due
	End   time.Duration `json:"end"`   // when the last of it was done
	Late  time.Duration `json:"late"`  // the most
	// Held is for how long of it something was late, each moment once: of many short stops that are one
	// span, their sum.
	Held  time.Duration `json:"held,omitempty"`
	Count int64         `json:"count"` // of what was late; 0: the process itself, with nothing to do
	// Waited is for how long of that it waited for a processor, as its kernel counts it: that is its machine's.
	Waited time.Duration `json:"waited,omitempty"`
}

// Total is what a Record has seen of stalls.
type Total struct {
	Count   int           `json:"count"`   // spans
	Sum     time.Duration `json:"sum"`     // of their lengths
	Longest time.Duration `json:"longest"` // of them
}

// String is how often and how long: "stood still 3 times, 310 ms in all, longest 104 ms".
func (t Total) String() string {
	switch t.Count {
	case 0:
		return "did not stand still"
	case 1:
		return fmt.Sprintf("stood still once, %s", length(t.Sum))
	}
	return fmt.Sprintf("stood still %d times, %s in all, longest %s", t.Count, length(t.Sum), length(t.Longest))
}

// length is a duration in the unit in which people think of stops.
func length(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// Record makes spans of what was late. One goroutine calls Add and Woke, or others while that
// one waits; the other methods are safe for concurrent use. The zero Record never sees a stall.
type Record struct {
	limit, join, rouse time.Duration

	begin, end time.Duration // of the newest span, taken or not
	any        bool          // there is one
	before     time.Duration // until when something was late, before from
	from, to   time.Duration // what was late last, or together with it

	mu    sync.Mutex    // below, and writes above
	spans []Span        // not taken
	total Total         // since the last Totals
	since time.Duration // the end of the newest span then
}

// New returns a Record of what is late by more than Limit of beat. Spans that are closer
// together than a beat are one. With a beat of 0 there are none.
func New(beat time.Duration) *Record {
	limit := time.Duration(Limit * float64(beat))
	return &Record{limit: limit, join: beat, rouse: max(limit, Rouse)}
}

// Add tells that something that was due is done now, and reports whether that was in a
// stall: late beyond the limit, or due while other things were.
func (r *Record) Add(due, now time.Duration) bool {
	if now-due <= r.limit || r.limit == 0 {
		return r.any && due >= r.begin && due <= r.end
	}
	r.add(Span{Start: due, End: now, Late: now - due, Held: r.cover(due, now), Count: 1})
	return true
}

// Woke tells that a process that meant to look for work at due does so now.
func (r *Record) Woke(due, now time.Duration) {
	if now-due > r.rouse && r.limit > 0 {
		r.add(Span{Start: due, End: now, Late: now - due, Held: r.cover(due, now)})
	}
}

// cover is for how much of the time from due to now, the newest so far, nothing was late that was told before.
func (r *Record) cover(due, now time.Duration) time.Duration {
	if due > r.to {
		r.before, r.from, r.to = r.to, due, due
	}
	first := min(r.from, max(due, r.before))
	held := r.from - first + max(0, now-r.to)
	r.from, r.to = first, max(r.to, now)
	return held
}

func (r *Record) add(s Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	joins := r.any && s.Start <= r.end+r.join && s.End >= r.begin-r.join
	switch {
	case !joins:
		r.any, r.begin, r.end = true, s.Start, s.End
		r.spans = append(r.spans, s)
		r.total.Count++
		r.total.Sum += s.End - s.Start
	case len(r.spans) == 0: // what went before was taken
		if s.End <= r.end {
			return
		}
		s.Start = r.end
		long := s.End - s.Start
		s.Late, s.Waited, s.Held = min(s.Late, long), min(s.Waited, long), min(s.Held, long)
		r.spans = append(r.spans, s)
		r.total.Count = max(r.total.Count, 1)
		r.total.Sum += s.End - s.Start
		r.end = s.End
	default:
		last := &r.spans[len(r.spans)-1]
		was := last.End - last.Start
		last.Start, last.End = min(last.Start, s.Start), max(last.End, s.End)
		last.Late = max(last.Late, s.Late)
		last.Count += s.Count
		last.Waited = min(last.Waited+s.Waited, last.End-last.Start)
		last.Held = min(last.Held+s.Held, last.End-last.Start)
		if grown := last.End - last.Start - was; grown > 0 {
			r.total.Sum += grown
			r.total.Count = max(r.total.Count, 1) // it may have begun before the last Totals
		}
		r.begin, r.end = min(r.begin, s.Start), max(r.end, s.End)
	}
	if r.total.Sum < 0 { // more than can be counted, which is made up
		r.total.Sum = math.MaxInt64
	}
	r.total.Longest = max(r.total.Longest, r.end-max(r.begin, r.since))
	if len(r.spans) > kept {
		a, b := r.spans[0], r.spans[1]
		r.spans = append(r.spans[:0], r.spans[1:]...)
		r.spans[0] = Span{Start: a.Start, End: b.End, Late: max(a.Late, b.Late), Held: a.Held + b.Held, Count: a.Count + b.Count, Waited: a.Waited + b.Waited}
	}
}

// Insert adds a span that another Record has seen.
func (r *Record) Insert(s Span) {
	if r.limit > 0 {
		r.add(s)
	}
}

// Return has the next Take return spans that were taken and did not arrive.
func (r *Record) Return(spans []Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(spans, r.spans...)
}

// Take returns the spans since the last call, in order, and forgets them. One that goes on
// is told in parts.
func (r *Record) Take() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.spans
	r.spans = nil
	return out
}

// Blame gives spans the time for which a process waited for a processor meanwhile, each in proportion to its length.
func Blame(spans []Span, waited time.Duration) {
	var sum time.Duration
	for _, s := range spans {
		sum += s.End - s.Start
	}
	if sum <= 0 {
		return
	}
	for i := range spans {
		long := spans[i].End - spans[i].Start
		spans[i].Waited = min(long, time.Duration(float64(waited)*(float64(long)/float64(sum))))
	}
}

// Totals are those since the last call; of a span that goes on, what is new.
func (r *Record) Totals() Total {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.total
	r.total, r.since = Total{}, r.end
	return t
}

// Monotonic is a time on the clock that all processes of a machine share, CLOCK_MONOTONIC.
// T comes from time.Now.
func Monotonic(t time.Time) (at time.Duration) {
	for range 5 { // until nothing came between the two clocks
		before := time.Since(t)
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: both arguments are valid
		at = time.Duration(ts.Nano()) - before
		if time.Since(t)-before < 100*time.Microsecond {
			break
		}
	}
	return at
}

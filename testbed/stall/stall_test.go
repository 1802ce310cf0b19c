package stall

import (
	"reflect"
	"testing"
	"time"
)

const ms = time.Millisecond

// what is due and when it is done, ms
type event struct {
	due, done int
	woke      bool
}

func feed(r *Record, events []event) (inside int) {
	for _, e := range events {
		due, done := time.Duration(e.due)*ms, time.Duration(e.done)*ms
		if e.woke {
			r.Woke(due, done)
		} else if r.Add(due, done) {
			inside++
		}
	}
	return inside
}

// The beat is 200 ms, so 40 ms are the limit.
func TestRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		events []event
		want   []Span
		inside int
	}{
		"in time":         {events: []event{{due: 10, done: 11}, {due: 20, done: 60}}},
		"one that is not": {[]event{{due: 10, done: 51}}, []Span{{Start: 10 * ms, End: 51 * ms, Late: 41 * ms, Held: 41 * ms, Count: 1}}, 1},
		// Nothing that was due while it stood still tells of the time in which it did not.
		"a stop makes many late, and some less than the limit": {
			[]event{{due: 10, done: 11}, {due: 20, done: 120}, {due: 50, done: 120}, {due: 100, done: 120}, {due: 121, done: 121}},
			[]Span{{Start: 20 * ms, End: 120 * ms, Late: 100 * ms, Held: 100 * ms, Count: 2}}, 3,
		},
		"two stops within a beat are one": {
			[]event{{due: 0, done: 100}, {due: 200, done: 201}, {due: 300, done: 400}},
			[]Span{{Start: 0, End: 400 * ms, Late: 100 * ms, Held: 200 * ms, Count: 2}}, 2,
		},
		"two that are not": {
			[]event{{due: 0, done: 100}, {due: 301, done: 361}},
			[]Span{{Start: 0, End: 100 * ms, Late: 100 * ms, Held: 100 * ms, Count: 1}, {Start: 301 * ms, End: 361 * ms, Late: 60 * ms, Held: 60 * ms, Count: 1}}, 2,
		},
		"frames of ports are out of order": {
			[]event{{due: 80, done: 121}, {due: 20, done: 121}},
			[]Span{{Start: 20 * ms, End: 121 * ms, Late: 101 * ms, Held: 101 * ms, Count: 2}}, 2,
		},
		"nothing to do, and late for that": {
			[]event{{due: 10, done: 160, woke: true}, {due: 150, done: 160}},
			[]Span{{Start: 10 * ms, End: 160 * ms, Late: 150 * ms, Held: 150 * ms, Count: 0}}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(200 * ms)
			if inside := feed(r, tt.events); inside != tt.inside {
				t.Errorf("%d were in a stall, want %d", inside, tt.inside)
			}
			if got := r.Take(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if again := r.Take(); again != nil {
				t.Errorf("taken twice: %v", again)
			}
		})
	}
}

// A process that is late all the time has stalls that cover all the time, however few of what
// it does is late beyond the limit.
func TestAlwaysLate(t *testing.T) {
	r := New(200 * ms)
	for at := range 100 {
		r.Add(time.Duration(at*100)*ms, time.Duration(at*100+50)*ms)
	}
	if got := r.Totals(); got.Count != 1 || got.Sum != 9950*ms || got.Longest != got.Sum {
		t.Errorf("got %+v", got)
	}
	if got := r.Totals(); got != (Total{}) {
		t.Errorf("the next totals are %+v", got)
	}
}

// TestHeld: many short stops that are one span, whose longest says little, are told with what they take together.
func TestHeld(t *testing.T) {
	r := New(50 * ms)
	for k := range time.Duration(11) { // of 109 ms, 100
		for due := k * 109 * ms; due < k*109*ms+100*ms; due += 10 * ms {
			r.Add(due, k*109*ms+100*ms)
		}
	}
	want := []Span{{Start: 0, End: 1190 * ms, Late: 100 * ms, Held: 1100 * ms, Count: 11 * 9}}
	if got := r.Take(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCutHeld: what is told of a stop in parts is told once, whatever is still done late of it.
func TestCutHeld(t *testing.T) {
	r := New(50 * ms)
	r.Add(0, 100*ms)
	r.Take()
	r.Add(13*ms, 101*ms) // of what waited
	r.Add(130*ms, 151*ms)
	want := []Span{{Start: 100 * ms, End: 151 * ms, Late: 21 * ms, Held: 22 * ms, Count: 2}}
	if got := r.Take(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCover: each moment counts once, in whichever order what was late in it is told.
func TestCover(t *testing.T) {
	r := New(time.Second)
	for _, c := range []struct{ due, now, want time.Duration }{
		{0, 100, 100}, {200, 300, 100}, {250, 300, 0}, {150, 310, 60}, {400, 450, 50}, {50, 450, 90}, {460, 470, 10},
	} {
		if got := r.cover(c.due, c.now); got != c.want {
			t.Errorf("from %d to %d: %d, want %d", c.due, c.now, got, c.want)
		}
	}
}

// A stall that goes on after it was taken is told in parts, and counted once each time.
func TestTakenMeanwhile(t *testing.T) {
	r := New(200 * ms)
	r.Add(0, 100*ms)
	first := r.Take()
	r.Add(50*ms, 100*ms) // of what was told
	r.Add(150*ms, 300*ms)
	second := r.Take()
	want := []Span{{Start: 0, End: 100 * ms, Late: 100 * ms, Held: 100 * ms, Count: 1}, {Start: 100 * ms, End: 300 * ms, Late: 150 * ms, Held: 150 * ms, Count: 1}}
	if got := append(first, second...); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := r.Totals(); got.Count != 1 || got.Sum != 300*ms || got.Longest != 300*ms {
		t.Errorf("totals %+v", got)
	}
}

// What was taken and did not arrive is taken again, in order; what another Record has seen
// joins what this one has.
func TestReturnInsert(t *testing.T) {
	r := New(200 * ms)
	r.Add(0, 100*ms)
	first := r.Take()
	r.Add(150*ms, 300*ms)
	r.Return(first)
	all := r.Take()
	want := []Span{{Start: 0, End: 100 * ms, Late: 100 * ms, Held: 100 * ms, Count: 1}, {Start: 100 * ms, End: 300 * ms, Late: 150 * ms, Held: 150 * ms, Count: 1}}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	other := New(200 * ms)
	for _, s := range all {
		other.Insert(s)
	}
	if got := other.Take(); !reflect.DeepEqual(got, []Span{{Start: 0, End: 300 * ms, Late: 150 * ms, Held: 250 * ms, Count: 2}}) {
		t.Errorf("inserted: %v", got)
	}
}

// Of more stalls than are kept, the oldest are one: nothing is forgotten.
func TestBounded(t *testing.T) {
	r := New(10 * ms)
	for i := range 2 * kept {
		at := time.Duration(i) * time.Second
		r.Add(at, at+5*ms)
	}
	got := r.Take()
	var count int64
	for i, s := range got {
		count += s.Count
		if i > 0 && s.Start < got[i-1].End {
			t.Errorf("%v after %v", s, got[i-1])
		}
	}
	if len(got) != kept || count != 2*kept || got[0].Start != 0 || got[0].End != kept*time.Second+5*ms {
		t.Errorf("%d spans of %d, the first %+v", len(got), count, got[0])
	}
}

// Without a beat, nothing is late.
func TestTotalsOfParts(t *testing.T) {
	r := New(200 * ms)
	r.Add(0, 100*ms)
	if got := r.Totals(); got != (Total{1, 100 * ms, 100 * ms}) {
		t.Errorf("%+v", got)
	}
	r.Add(150*ms, 300*ms) // the same span
	if got := r.Totals(); got != (Total{1, 200 * ms, 200 * ms}) {
		t.Errorf("its second part: %+v", got)
	}
	if got := r.Totals(); got != (Total{}) {
		t.Errorf("and nothing after it: %+v", got)
	}
}

func TestZero(t *testing.T) {
	for _, r := range []*Record{{}, New(0)} {
		r.Woke(0, time.Hour)
		if r.Add(0, time.Hour) || r.Take() != nil || r.Totals().String() != "did not stand still" {
			t.Error("late for nothing")
		}
	}
}

func TestTotalString(t *testing.T) {
	for want, total := range map[string]Total{
		"stood still once, 104 ms":                           {1, 104 * ms, 104 * ms},
		"stood still 3 times, 310 ms in all, longest 104 ms": {3, 310*ms + 10*time.Microsecond, 104 * ms},
	} {
		if got := total.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Two processes put one instant at the same time: here, twice the same one.
func TestMonotonic(t *testing.T) {
	now := time.Now()
	a, b := Monotonic(now), Monotonic(now.Add(time.Hour))
	if d := b - a - time.Hour; d.Abs() > time.Second || a <= 0 {
		t.Errorf("an instant is %v, one an hour later %v", a, b)
	}
}

// TestBlame: the time for which a process waited for a processor is its spans' in proportion to their length, and spans that
// become one keep what each had.
func TestBlame(t *testing.T) {
	spans := []Span{{Start: 0, End: 300 * ms}, {Start: 900 * ms, End: 1000 * ms}}
	Blame(spans, 200*ms)
	if spans[0].Waited != 150*ms || spans[1].Waited != 50*ms {
		t.Errorf("%+v", spans)
	}
	if Blame(spans, 900*ms); spans[0].Waited != 300*ms || spans[1].Waited != 100*ms {
		t.Errorf("more than there was: %+v", spans)
	}
	Blame(nil, ms)
	r := New(time.Second)
	r.Insert(spans[0])
	r.Insert(spans[1])
	if got := r.Take(); len(got) != 1 || got[0].Waited != 400*ms {
		t.Errorf("%+v", got)
	}
}

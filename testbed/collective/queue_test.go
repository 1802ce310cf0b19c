package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/mina/sharing"
	"github.com/inabench/inabench/testbed/udp"
)

// virtual is a clock that tests move.
type virtual struct {
	mu  sync.Mutex
	now time.Duration
}

func (v *virtual) Now() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

func (v *virtual) advance(to time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = max(v.now, to)
}

// scripted is a collective whose operations last as told.
type scripted struct {
	clock   *virtual
	seen    []int64
	inas    []bool
	err     error
	refuse  bool
	release chan struct{} // nil: at once
}

func (s *scripted) AllReduce(ctx context.Context, bytes int64, ina bool) (Outcome, error) {
	s.seen, s.inas = append(s.seen, bytes), append(s.inas, ina)
	if s.release != nil {
		select {
		case <-s.release:
		case <-ctx.Done():
			return Outcome{}, ctx.Err()
		}
	}
	if s.clock != nil {
		s.clock.advance(s.clock.Now() + time.Duration(bytes))
	}
	return Outcome{INA: ina && !s.refuse, Refused: ina && s.refuse, Checked: bytes / 4}, s.err
}

// alternate asks for INA every other time, and remembers what it is told.
type alternate struct {
	op   uint64
	done []string
}

func (a *alternate) Next(context.Context) (uint64, bool, error) {
	a.op++
	return a.op - 1, a.op%2 == 1, nil
}
func (a *alternate) Done(op uint64, used bool) { a.done = append(a.done, fmt.Sprint(op, used)) }

// Operations run one at a time in the order of their requests, and each is decided about
// when it is launched.
func TestQueue(t *testing.T) {
	clock, d := &virtual{}, &alternate{}
	c := &scripted{clock: clock, release: make(chan struct{})}
	q := NewQueue(t.Context(), c, d, clock, nil)
	var ops []*Operation
	for i := range int64(4) {
		ops = append(ops, q.AllReduce(100*(i+1)))
	}
	select {
	case <-ops[0].Done():
		t.Error("an operation ended before it could")
	default:
	}
	for range ops {
		c.release <- struct{}{}
	}
	if err := q.Wait(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	q.Close()
	if !slices.Equal(c.seen, []int64{100, 200, 300, 400}) || !slices.Equal(c.inas, []bool{true, false, true, false}) {
		t.Errorf("operations of %v bytes, INA %v", c.seen, c.inas)
	}
	if want := []string{"0 true", "1 false", "2 true", "3 false"}; !slices.Equal(d.done, want) {
		t.Errorf("done: %v, want %v", d.done, want)
	}
	end := time.Duration(0)
	for i, o := range ops {
		if o.Began != end || o.Ended != end+time.Duration(o.Bytes) || o.Outcome.INA != (i%2 == 0) {
			t.Errorf("operation %d: %+v", i, o)
		}
		end = o.Ended
	}
	s := q.Stats()
	if s.Ops != 4 || s.INA != 2 || s.Refused != 0 || s.Checked != 250 || s.Tree.N != 2 || s.Ring.N != 2 {
		t.Errorf("%+v", s)
	}
	latency, bandwidth, ok := s.Ring.Fit() // 1 ns a byte
	if !ok || latency > 1e-12 || bandwidth < .999e9 || bandwidth > 1.001e9 {
		t.Errorf("fit %v s, %v bytes/s, %v", latency, bandwidth, ok)
	}
	if o := q.AllReduce(1); o.Err != ErrClosed {
		t.Errorf("a closed queue takes an operation: %+v", o)
	}
}

// After an operation that failed nothing is launched any more.
func TestQueueFails(t *testing.T) {
	broken := errors.New("broken")
	c := &scripted{err: broken}
	q := NewQueue(t.Context(), c, sharing.Never(), &virtual{}, nil)
	defer q.Close()
	a := q.AllReduce(4)
	if err := q.Wait(t.Context(), a); err != broken {
		t.Errorf("error %v", err)
	}
	b := q.AllReduce(4)
	<-b.Done()
	if b.Err == nil || len(c.seen) != 1 {
		t.Errorf("after an error: %v, %d launched", b.Err, len(c.seen))
	}
}

// The end of the context ends what is under way and what waits.
func TestQueueEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, &scripted{release: make(chan struct{})}, sharing.Greedy(), &virtual{}, nil)
	a, b := q.AllReduce(4), q.AllReduce(4)
	cancel()
	for _, o := range []*Operation{a, b} {
		if <-o.Done(); !errors.Is(o.Err, context.Canceled) {
			t.Errorf("error %v", o.Err)
		}
	}
	if err := q.Wait(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	q.Close()
}

// The line through points on a line is that line.
func TestLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 4))
	for range 100 {
		latency, perByte := rng.Float64()*1e-3, 1e-10+rng.Float64()*1e-8
		var l Line
		least, most := int64(1e9), int64(0)
		for range 2 + rng.IntN(50) {
			bytes := 1 + rng.Int64N(1e9)
			least, most = min(least, bytes), max(most, bytes)
			l.Add(bytes, time.Duration((latency+perByte*float64(bytes))*1e9))
		}
		got, bandwidth, ok := l.Fit()
		if !ok {
			continue // all but the same size
		}
		// Times are whole nanoseconds, and a line through points that are close together is as steep as these make it.
		off := 2e-9 * float64(most) / float64(most-least)
		if d := math.Abs(got - latency); d > 1e-6+off || math.Abs(bandwidth*perByte-1) > 1e-4+2e-9/(perByte*float64(most-least)) {
			t.Fatalf("%v s + bytes * %v: fit %v s, %v bytes/s of %+v", latency, perByte, got, bandwidth, l)
		}
	}
	for _, l := range []Line{{}, {N: 1, Bytes: 5, Seconds: 1, BytesBytes: 25, BytesSeconds: 5}} {
		if _, _, ok := l.Fit(); ok {
			t.Errorf("a line through %+v", l)
		}
	}
}

// The middle 80 % of lines drawn hold the true one as often as it says, of operations whose
// times are Gaussian.
func TestLineDraw(t *testing.T) {
	const latency, perByte, noise = 5e-3, 4e-8, 1e-3
	rng := rand.New(rand.NewPCG(seed(t), 5))
	const trials, draws = 400, 200
	within := [2]int{}
	for range trials {
		var l Line
		for range 30 {
			bytes := 1e4 + rng.Int64N(1e6)
			l.Add(bytes, time.Duration((latency+perByte*float64(bytes)+noise*rng.NormFloat64())*1e9))
		}
		below := [2]int{}
		for range draws {
			got, bandwidth, ok := l.Draw(rng)
			if !ok {
				t.Fatalf("no line through %+v", l)
			}
			if got < latency {
				below[0]++
			}
			if 1/bandwidth < perByte {
				below[1]++
			}
		}
		for i, n := range below {
			if n > draws/10 && n < draws*9/10 {
				within[i]++
			}
		}
	}
	for i, what := range []string{"latency", "time of a byte"} {
		if share := float64(within[i]) / trials; share < .7 || share > .9 {
			t.Errorf("%s: the true one is in the middle 80 %% of draws %.0f %% of times", what, 100*share)
		}
	}
	if got, bandwidth, ok := (&Line{N: 2, Bytes: 3, Seconds: 3, BytesBytes: 5, BytesSeconds: 5, SecondsSeconds: 5}).Draw(rng); !ok || got != 0 || bandwidth != 1 {
		t.Errorf("of two operations: %v s, %v bytes/s, %t, want the line through both", got, bandwidth, ok)
	}
}

// BenchmarkLaunch is what it costs to launch an operation: from its request until the
// collective is called, directly and by the queue. MINA measured 43.8 and 2.23 us for
// empty kernels on a GPU.
func BenchmarkLaunch(b *testing.B) {
	clock := udp.NewClock()
	d := sharing.Always()
	b.Run("direct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, ina, _ := d.Next(b.Context())
			Alone{}.AllReduce(b.Context(), 4, ina)
		}
	})
	b.Run("queue", func(b *testing.B) { // one after the other, as a job that waits for each
		q := NewQueue(b.Context(), Alone{}, d, &clock, nil)
		defer q.Close()
		b.ReportAllocs()
		for b.Loop() {
			<-q.AllReduce(4).Done()
		}
		b.ReportMetric(q.Stats().Launch.Sum/float64(b.N)*1e9, "ns/launch")
	})
	b.Run("queue full", func(b *testing.B) { // all requested at once, as in backpropagation
		q := NewQueue(b.Context(), Alone{}, d, &clock, nil)
		defer q.Close()
		b.ReportAllocs()
		var last *Operation
		for b.Loop() {
			last = q.AllReduce(4)
		}
		<-last.Done()
		b.ReportMetric(q.Stats().Launch.Sum/float64(b.N)*1e9, "ns/launch")
	})
}

// Done is closed when the operation has ended.
func (o *Operation) Done() <-chan struct{} { return o.done }

package collective

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/testbed/mina/sharing"
)

// play gives a collector what it would see of a job's steps, in virtual time. An
// operation takes as long as network says. Where waits is not nil, the job waits after
// these operations of a step too.
func play(c *Collector, p workload.Pattern, steps int, network func() time.Duration, waitsAfter ...int) {
	var now, free time.Duration
	wait := func() {
		c.waiting(now)
		now = max(now, free)
		c.waited(now)
	}
	for range steps {
		begin := now
		blocked := time.Duration(0)
		for i, o := range p.Ops {
			now = max(now, begin+blocked+time.Duration(o.Start*1e9))
			c.requested(now, o.Bytes)
			free = max(free, now) + network()
			for _, w := range waitsAfter {
				if w == i {
					before := now
					wait()
					blocked += now - before
				}
			}
		}
		now = max(now, begin+blocked+time.Duration(p.Step*1e9))
		wait()
	}
	c.requested(now+time.Duration(p.Ops[0].Start*1e9), p.Ops[0].Bytes)
}

func same(t *testing.T, got, want workload.Pattern, tolerance float64) {
	t.Helper()
	if len(got.Ops) != len(want.Ops) || math.Abs(got.Step-want.Step) > tolerance {
		t.Fatalf("steps of %v s with %d operations, want %v s with %d", got.Step, len(got.Ops), want.Step, len(want.Ops))
	}
	for i, o := range got.Ops {
		if w := want.Ops[i]; o.Bytes != w.Bytes || math.Abs(o.Start-w.Start) > tolerance {
			t.Errorf("operation %d: %+v, want %+v", i, o, w)
		}
	}
}

// What comes back is the pattern that went in, of all models, however slow the network is
// and wherever in a step the job waits besides.
func TestCollector(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 5))
	all := workload.BuiltinPatterns()
	for _, model := range all.Models(4) {
		p, _ := all.Lookup(model, 4)
		for _, network := range []float64{0, .001, .1} {
			slow := func() time.Duration { return time.Duration(network * rng.ExpFloat64() * p.Step * 1e9) }
			c := NewCollector(2, 5)
			play(c, p, 7, slow)
			got, ok := c.Pattern()
			if !ok {
				t.Fatalf("%s: nothing found", p.Model)
			}
			same(t, got, p, 2e-9)
			c = NewCollector(2, 5)
			play(c, p, 7, slow, 0, len(p.Ops)/2)
			if got, ok = c.Pattern(); !ok {
				t.Fatalf("%s with waits: nothing found", p.Model)
			}
			if len(p.Ops) > 2 { // otherwise nothing says which wait ends a step
				same(t, got, p, 2e-9)
			}
		}
	}
}

// Nothing is said before enough has been seen, nor of a job without steps.
func TestCollectorWaits(t *testing.T) {
	p := workload.Pattern{Step: 1, Ops: []workload.Op{{Start: .5, Bytes: 8}, {Start: .6, Bytes: 12}}}
	for steps := range 12 {
		c := NewCollector(3, 4)
		play(c, p, steps, func() time.Duration { return 0 })
		if _, ok := c.Pattern(); ok != (steps >= 7) {
			t.Errorf("%d steps of warm-up 3 and 4: found %v", steps, ok)
		}
	}
	c := NewCollector(1, 3)
	for i := range int64(maxEvents + 1000) {
		now := time.Duration(i) * time.Second
		c.requested(now, i*i)
		if i%7 == 0 {
			c.waiting(now)
			c.waited(now)
		}
	}
	if p, ok := c.Pattern(); ok {
		t.Errorf("found %+v where nothing comes again", p)
	}
	var none *Collector
	none.requested(0, 4)
	none.waiting(0)
	none.waited(0)
}

// Steps whose times scatter have their medians.
func TestCollectorMedian(t *testing.T) {
	c := NewCollector(1, 5)
	now := time.Duration(0)
	for _, ms := range []time.Duration{50, 10, 11, 90, 12, 9} { // of which the first is warm-up
		c.requested(now+ms*time.Millisecond, 4)
		now += ms*time.Millisecond + 10*time.Millisecond
		c.waiting(now)
		now += time.Second // the network
		c.waited(now)
	}
	c.requested(now, 4)
	p, ok := c.Pattern()
	if !ok {
		t.Fatal("nothing found")
	}
	same(t, p, workload.Pattern{Step: .021, Ops: []workload.Op{{Start: .011, Bytes: 4}}}, 1e-9)
}

// A queue tells its collector what the job does.
func TestQueueCollects(t *testing.T) {
	clock := &virtual{}
	c := NewCollector(1, 3)
	q := NewQueue(t.Context(), &scripted{clock: clock}, sharing.Never(), clock, c)
	for range 6 {
		begin := clock.Now()
		clock.advance(begin + 10)
		first := q.AllReduce(1000)
		<-first.Done() // so that the virtual clock does not run ahead: the job takes it for computing
		clock.advance(begin + 1030)
		last := q.AllReduce(3000)
		<-last.Done()
		clock.advance(begin + 5000)
		if err := q.Wait(context.Background(), first, last); err != nil {
			t.Fatal(err)
		}
	}
	q.Close()
	p, ok := c.Pattern()
	if !ok {
		t.Fatal("nothing found")
	}
	same(t, p, workload.Pattern{Step: 5000e-9, Ops: []workload.Op{{Start: 10e-9, Bytes: 1000}, {Start: 1030e-9, Bytes: 3000}}}, 1e-12)
}

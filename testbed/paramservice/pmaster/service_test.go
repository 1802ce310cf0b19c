package pmaster_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

const ms = time.Millisecond

// Three jobs come, are profiled on temporary Aggregators, and share. One leaves, and what was
// beside it moves to where there is room, while it trains. Figure 10's time line, with models
// that are equal bit for bit to those without a service.
func TestJobsComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	const iterations = 400
	a := f.submit(newJob("a", 2, 1000, 10))
	b := f.submit(newJob("b", 1, 500))
	a.run(iterations/4, 5*ms)
	b.run(iterations, 5*ms)
	a.profile(100*ms, 50*ms, 30*ms)
	b.profile(100*ms, 70*ms)
	if x, y := a.settle(), b.settle(); x[0] != x[1] || x[0] == y[0] {
		t.Fatalf("a on %v, b on %v", x, y)
	}
	c := f.submit(newJob("c", 2, 2000, 3000))
	c.run(iterations, 5*ms)
	if got := c.settle(); slices.Contains(a.settle(), got[0]) || slices.Contains(b.settle(), got[0]) {
		t.Errorf("c is profiled on %v, where others are", got)
	}
	c.profile(100*ms, 10*ms, 5*ms)
	beside := a.settle()[0]
	if got := c.settle(); got[0] != beside || got[1] != beside {
		t.Errorf("c on %v, and the best fit is %d", got, beside)
	}
	f.wait("released", 1, nil) // the temporary one of c
	a.check(iterations / 4)
	f.wait("ended", 1, of("a"))
	f.wait("released", 2, nil)
	if x, y := b.settle(), c.settle(); x[0] != y[0] || x[0] != y[1] {
		t.Errorf("b on %v, c on %v after a has left", x, y)
	}
	b.check(iterations)
	c.check(iterations)
	f.wait("released", 3, nil)
	if n := f.count("migrated"); n != 4 {
		t.Errorf("%d migrations", n)
	}
	if n := f.count("lost") + f.count("recovered") + f.count("refused") + f.count("error"); n != 0 {
		t.Errorf("%d things went wrong", n)
	}
	counts := []int{}
	for _, e := range f.log() {
		if e.Aggregators != nil {
			counts = append(counts, *e.Aggregators)
		}
	}
	if want := []int{1, 2, 3, 2, 1, 0}; !slices.Equal(counts, want) {
		t.Errorf("Aggregators over time: %v, not %v", counts, want)
	}
}

// All tensors of a job migrate twenty times while it trains for 200 iterations, profiled and not, and
// the models are those without a service, bit for bit.
func TestTwentyMigrations(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	spec := newJob("a", 3, 5000, 20, 1, 3000)
	spec.Servers = 2
	a := f.submit(spec)
	a.run(200, 5*ms)
	for n := range 20 {
		a.past(8 * n)
		if n == 10 {
			a.profile(100*ms, 30*ms, 30*ms, 30*ms, 30*ms)
		}
		a.move()
	}
	a.check(200)
	var took []float64
	for _, e := range f.log() {
		if e.Event == "migrated" {
			took = append(took, e.Seconds)
		}
	}
	if len(took) < 20*4 {
		t.Fatalf("%d migrations of 20 times 4 tensors", len(took))
	}
	slices.Sort(took)
	t.Logf("%d migrations took %.1f ms in the middle, %.1f ms at most", len(took), 1e3*took[len(took)/2], 1e3*took[len(took)-1])
	if n := f.count("lost") + f.count("recovered") + f.count("error"); n != 0 {
		t.Errorf("%d things went wrong", n)
	}
	if err := f.master.Move(f.ctx, a.job.ID); status.Code(err) != codes.NotFound {
		t.Errorf("after its end: %v", err)
	}
}

// A job that is too slow after 100 iterations gets one Aggregator more; one beside an
// Aggregator that is interfered with leaves it.
func TestFeedback(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	const iterations = 150
	a, b := f.submit(newJob("a", 1, 100, 100)), f.submit(newJob("b", 1, 100))
	a.run(iterations, 20*ms)
	b.run(iterations, 20*ms)
	a.profile(100*ms, 20*ms, 20*ms)
	b.profile(100*ms, 20*ms)
	if x, y := a.settle(), b.settle(); x[0] != y[0] {
		t.Fatalf("a on %v, b on %v", x, y)
	}
	verdict := func(n int, want, other string) {
		t.Helper()
		if e := f.wait("verdict", n, nil); e.Verdict != want || e.Other != other {
			t.Fatalf("verdict %d: %s", n, describe(e))
		}
	}
	b.report(100*ms, nil, 1, usual)
	b.report(105*ms, nil, 100, usual)
	verdict(1, "fine", "")
	b.report(200*ms, nil, 100, func(int32) float64 { return 2.5 }) // they share its link: that is no interference
	verdict(2, "reverted", "b")
	if x, y := a.settle(), b.settle(); x[0] == y[0] {
		t.Fatalf("a on %v, b on %v", x, y)
	}
	a.report(100*ms, nil, 1, usual)
	bad := a.settle()[0]
	for range 10 { // one report might be chance
		a.report(200*ms, nil, 20, func(id int32) float64 {
			if id == bad {
				return 5
			}
			return 1
		})
	}
	e := f.wait("verdict", 3, nil)
	if e.Verdict != "evacuated" || !slices.Equal(e.Interfered, []int{int(bad)}) {
		t.Fatalf("%s", describe(e))
	}
	if x := a.settle(); slices.Contains(x, bad) {
		t.Errorf("a is on %v still", x)
	}
	a.check(iterations)
	b.check(iterations)
}

// An Aggregator is seen to be interfered with also by who was profiled on busy links: transfers
// with it take longer than they have before.
func TestBusyProfile(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	spec := newJob("a", 1, 100, 100)
	spec.Servers = 2
	a := f.submit(spec)
	a.run(200, 20*ms)
	f.wait("training", 1, of("a"))
	busy := func(int32) float64 { return 3 }
	a.report(100*ms, nil, 1, busy)
	a.report(100*ms, []time.Duration{20 * ms, 20 * ms}, 3, busy)
	f.wait("profiled", 1, of("a"))
	bad := a.settle()[0]
	a.report(100*ms, nil, 1, usual)
	for range 12 { // enough to tell more than the profile
		a.report(100*ms, nil, 2, usual)
	}
	for range 10 {
		a.report(200*ms, nil, 20, func(id int32) float64 {
			if id == bad {
				return 3
			}
			return 1
		})
	}
	if e := f.wait("verdict", 1, nil); e.Verdict != "evacuated" {
		t.Errorf("%s", describe(e))
	}
	if at := a.settle(); slices.Contains(at, bad) || at[0] == at[1] {
		t.Errorf("at %v, and %d is interfered with", at, bad)
	}
	a.check(200)
}

// A job that is on an Aggregator again that it had left because of others has not been assigned
// anew by its own speed: its workers are told of no such thing.
func TestRespread(t *testing.T) {
	t.Parallel()
	f := newFarm(t, func(f *farm) { f.cfg.Plan.Aggregators, f.cfg.Plan.Retry = 2, ms })
	spec := newJob("a", 1, 100, 100)
	spec.Servers = 2
	a := f.submit(spec)
	a.run(200, 20*ms)
	a.profile(100*ms, 20*ms, 20*ms)
	bad := a.settle()[0]
	slow := func(at int32) float64 {
		if at == bad {
			return 5
		}
		return 1
	}
	a.report(100*ms, nil, 1, usual)
	for range 10 {
		a.report(200*ms, nil, 20, slow)
	}
	if e := f.wait("verdict", 1, nil); e.Verdict != "evacuated" {
		t.Fatal(describe(e))
	}
	if at := a.settle(); at[0] != at[1] {
		t.Fatalf("on %v", at)
	}
	a.report(100*ms, nil, 1, usual)
	for range 10 {
		a.report(200*ms, nil, 20, usual)
	}
	if e := f.wait("verdict", 2, nil); e.Verdict != "respread" {
		t.Fatal(describe(e))
	}
	if at := a.settle(); at[0] == at[1] {
		t.Errorf("on %v", at)
	}
	s, err := a.clients[0].Statistics(f.ctx)
	if err != nil || len(s.Jobs) != 1 || s.Jobs[0].Profile.Reverts != 0 {
		t.Errorf("%v: %v", s, err)
	}
	a.check(200)
}

// What one Aggregator had goes to another one when it crashes, and training goes on; what is
// told is the truth.
func TestAggregatorCrash(t *testing.T) {
	t.Parallel()
	f := newFarm(t, nil)
	const iterations = 200
	a := f.submit(newJob("a", 2, 3000, 20, 700))
	a.run(iterations, 5*ms)
	a.past(10)
	for n := range 3 { // temporary, and in its cluster
		victim := a.settle()[0]
		f.kill(victim)
		f.wait("lost", 1, func(e pmaster.Event) bool { return *e.Aggregator == victim && e.Why != "" })
		f.wait("recovered", 3*(n+1), of("a"))
		if n == 1 {
			a.profile(100*ms, 10*ms, 10*ms, 10*ms)
		}
	}
	a.check(iterations)
	f.wait("ended", 1, func(e pmaster.Event) bool { return e.Why == "" })
}

// kill ends an Aggregator's process.
func (f *farm) kill(id int32) {
	f.mu.Lock()
	r := f.running[id]
	f.mu.Unlock()
	r.stop()
}

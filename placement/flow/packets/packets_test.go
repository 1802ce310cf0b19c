package packets

import (
	"context"
	"math"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/inabench/inabench/testbed/ina"
)

// rack is one switch with m aggregators, and jobs of two workers each, with hold s from
// the switch to the parameter server and back and half as much to the workers.
func rack(m int, a Addressing, jobs ...Job) *Network {
	n := &Network{Switches: []int{m}}
	for _, j := range jobs {
		j.Bits = 1
		j.Nodes = []Node{
			{Parent: 2, Up: None, Down: None, Switch: None, Delay: 0.25},
			{Parent: 2, Up: None, Down: None, Switch: None, Delay: 0.25},
			{Parent: 3, Up: None, Down: None, Switch: 0, Addressing: a, Delay: 0.5},
			{Parent: None, Up: None, Down: None, Switch: None},
		}
		n.Jobs = append(n.Jobs, j)
	}
	return n
}

// paced is a job that keeps u·m aggregators busy for a hold of 1 s.
func paced(u float64, m, slots int) Job {
	return Job{Gap: 1 / (u * float64(m)), Window: 8 * m, Slots: slots}
}

// twoRacks has two workers at a leaf and two at the root, beside the parameter server:
// the leaf is a hop of 0.4 s there and back from the root.
func twoRacks(leaf, root int, a Addressing, j Job) *Network {
	j.Bits = 1
	j.Nodes = []Node{
		{Parent: 4, Up: None, Down: None, Switch: None, Delay: 0.1},
		{Parent: 4, Up: None, Down: None, Switch: None, Delay: 0.1},
		{Parent: 5, Up: None, Down: None, Switch: None, Delay: 0.1},
		{Parent: 5, Up: None, Down: None, Switch: None, Delay: 0.1},
		{Parent: 5, Up: None, Down: None, Switch: 0, Addressing: a, Delay: 0.2},
		{Parent: 6, Up: None, Down: None, Switch: 1, Addressing: a, Delay: 0.3},
		{Parent: None, Up: None, Down: None, Switch: None},
	}
	return &Network{Switches: []int{leaf, root}, Jobs: []Job{j}}
}

// TestShares: what can be said without following packets.
func TestShares(t *testing.T) {
	const m = 256
	for _, tt := range []struct {
		name   string
		n      *Network
		shares []float64
		within float64
	}{
		{"a pool with room", rack(m, Pool, paced(.75, m, 0)), []float64{1}, 0},
		{"a pool that is short", rack(m, Pool, paced(2, m, 0)), []float64{.5}, .01},
		{"a pool that just fits is short at times, as packets come at random", rack(m, Pool, paced(1, m, 0)), []float64{.98}, .005},
		{"no memory", rack(0, Pool, paced(1, m, 0)), []float64{0}, 0},
		{"hash: 1/(1+u)", rack(m, Hash, paced(2, m, 0)), []float64{1. / 3}, .006},
		{"hash, two jobs: 1/(1+sum)", rack(m, Hash, paced(.5, m, 0), paced(1.5, m, 0)), []float64{1. / 3, 1. / 3}, .009},
		{"linear: every second turn finds its slot free", rack(m, Linear, paced(1.5, m, 0)), []float64{.5}, .005},
		{"linear beside another: the slower job meets what the faster leaves", rack(m, Linear, paced(1.5, m, 0), paced(.6, m, 0)), []float64{.4, .25}, .01},
		{"atp alone", rack(m, ATP, paced(.25, m, 128)), []float64{1}, 0},
		{"atp, two equal jobs with half of the slots each: 1 - r/2", rack(m, ATP, paced(.2, m, 128), paced(.2, m, 128)), []float64{.8, .8}, .015},
		// Without correlation the root would see 2 + 2 - a packets of a PSN at once.
		{"levels of equal size decide alike by hash", twoRacks(m, m, Hash, paced(1, m, 0)), []float64{.5}, .02},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Run(t.Context(), tt.n, Limits{Seed: 1, Error: .003, Events: 4e6})
			if !ok {
				t.Fatal("no result")
			}
			for i, want := range tt.shares {
				j := &r.Jobs[i]
				k := len(j.Share) - 2
				if math.Abs(j.Share[k]-want) > tt.within {
					t.Errorf("job %d: share %.4f +- %.4f, want %.4f", i, j.Share[k], 2*j.ShareError[k], want)
				}
				if rate := 1 / tt.n.Jobs[i].Gap; math.Abs(j.Rate/rate-1) > .002 {
					t.Errorf("job %d: rate %.2f of %.2f", i, j.Rate, rate)
				}
			}
		})
	}
}

// TestRates: links are shared per job, windows are used up, and a schedule that scatters
// packets costs a window about a block of them.
func TestRates(t *testing.T) {
	line := func(jobs ...Job) *Network {
		n := rack(1<<16, Pool, jobs...)
		n.Links = []float64{1000, 1000} // to the parameter server and from it
		for ji := range n.Jobs {
			n.Jobs[ji].Nodes[2].Up, n.Jobs[ji].Nodes[2].Down = 0, 1
		}
		return n
	}
	for _, tt := range []struct {
		name   string
		n      *Network
		rates  []float64
		within float64
	}{
		{"a window a round trip", line(Job{Window: 600}), []float64{400}, .01},
		{"a link", line(Job{Window: 4000}), []float64{1000}, .005},
		{"two jobs have equal parts of it", line(Job{Window: 4000}, Job{Window: 2500}), []float64{500, 500}, .005},
		{"a job that asks for less gets it", line(Job{Window: 4000}, Job{Window: 2500, Gap: .005}), []float64{800, 200}, .005},
		{"a rate limit whose window is ample", rack(1<<16, Pool, Job{Window: 1000, Gap: .01}), []float64{100}, .002},
		// 150 packets in 1.5 s, and how much later than evenly spaced a block's packets may be.
		{"a rate limit whose window just fits the round trip", rack(1<<16, Pool, Job{Window: 150, Gap: .01}), []float64{89}, .02},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Run(t.Context(), tt.n, Limits{Seed: 1, Error: .003, Events: 4e6})
			if !ok {
				t.Fatal("no result")
			}
			for i, want := range tt.rates {
				if got := r.Jobs[i].Rate; math.Abs(got/want-1) > tt.within {
					t.Errorf("job %d: %.2f PSN/s, want %.2f", i, got, want)
				}
			}
		})
	}
}

// TestTurn: of a job with one packet under way, each waits until the queue of another has had its
// whole turn, which is 4 frames here, and more where the other's frames are shorter. It waits itself for up to half
// a round trip, as workers do, and would miss a turn now and then if frames were on their way for longer.
func TestTurn(t *testing.T) {
	for _, tt := range []struct {
		name string
		turn float64
		bits float64 // of the other's frames
		rate float64
	}{
		{"of a frame", 0, 1, 500},
		{"of less than a frame", .5, 1, 500},
		{"of four frames", 4, 1, 200},
		{"of eight that are half as long", 4, .5, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := func(window int, bits float64) Job {
				return Job{Window: window, Bits: bits, Nodes: []Node{
					{Parent: 1, Up: 0, Down: None, Switch: None, Delay: 1e-5},
					{Parent: None, Up: None, Down: None, Switch: None},
				}}
			}
			n := &Network{Links: []float64{1000}, Turn: tt.turn, Jobs: []Job{job(1, 1), job(100, tt.bits)}}
			r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6})
			if !ok {
				t.Fatal("no result")
			}
			if got := r.Jobs[0].Rate; math.Abs(got/tt.rate-1) > .01 {
				t.Errorf("%.2f PSN/s, want %v", got, tt.rate)
			}
			if got, rest := r.Jobs[1].Rate*tt.bits, 1000-tt.rate; math.Abs(got/rest-1) > .01 {
				t.Errorf("the other: %.2f of the link, want %v", got, rest)
			}
		})
	}
}

// TestSettles: a window that is full at once waits at the worker's NIC first, and moves on to the
// slower link behind it, which takes as many windows as the two differ little. What is counted
// before that is no steady state: more comes to the switch than leaves it.
func TestSettles(t *testing.T) {
	n := &Network{Links: []float64{1000, 900}, Jobs: []Job{{Bits: 1, Window: 400, Nodes: []Node{
		{Parent: 1, Up: 0, Down: None, Switch: None, Delay: .005},
		{Parent: 2, Up: 1, Down: None, Switch: None, Delay: .005},
		{Parent: None, Up: None, Down: None, Switch: None},
	}}}}
	r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6, Settled: true})
	if !ok {
		t.Fatal("no result")
	}
	if j := r.Jobs[0]; math.Abs(j.Rate/900-1) > .005 || math.Abs(j.Up[0]-1) > .01 || math.Abs(j.Up[1]-1) > .01 {
		t.Errorf("%.1f PSN/s, %.3f packets a PSN from the worker and %.3f from the switch; want 900, 1 and 1", j.Rate, j.Up[0], j.Up[1])
	}
	if r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 12_000, Settled: true}); ok {
		t.Errorf("what has no time to settle has a steady state: %+v", r)
	}
}

// TestFilling: while a queue grows, a switch sends more than its link carries, and more than the parameter server
// completes. Of what goes on for ever each packet comes once: no more leave than come, and a link is not loaded beyond
// its rate.
func TestFilling(t *testing.T) {
	for _, tt := range []struct {
		name  string
		m     int
		limit float64 // PSN/s
		rate  float64 // that the link to the parameter server leaves it
		up    float64 // packets of a PSN to that
	}{
		{"no memory", 0, 503, 500, 2},
		{"ample memory", 1 << 16, 1006, 1000, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := rack(tt.m, Pool, Job{Gap: 1 / tt.limit, Window: 4000})
			n.Links = []float64{1000, 1000}
			n.Jobs[0].Nodes[2].Up, n.Jobs[0].Nodes[2].Down = 0, 1
			r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6, Settled: true})
			if !ok {
				t.Fatal("no result")
			}
			j := &r.Jobs[0]
			if math.Abs(j.Rate/tt.rate-1) > .004 || j.Up[0] != 1 || j.Up[1] != 1 || math.Abs(j.Up[2]/tt.up-1) > .001 || j.Up[2] > 2 {
				t.Errorf("%.1f PSN/s and %v packets of each, want %v, and 1, 1 and %v", j.Rate, j.Up[:3], tt.rate, tt.up)
			}
			if load := j.Rate * j.Up[2]; load > 1001 {
				t.Errorf("a load of %.1f of 1000", load)
			}
		})
	}
}

// TestStream: a ring, whose hops are a node each, shares links with jobs that aggregate.
func TestStream(t *testing.T) {
	n := &Network{Links: []float64{1000, 1000, 1000}, Switches: []int{4096}, Jobs: []Job{
		{Kind: Stream, Bits: 1, Window: 64, Nodes: []Node{{Parent: None, Up: 0, Down: None, Switch: None}, {Parent: None, Up: 1, Down: None, Switch: None}}},
		{Bits: 1, Window: 1000, Nodes: []Node{
			{Parent: 1, Up: 1, Down: None, Switch: None, Delay: .01},
			{Parent: None, Up: None, Down: None, Switch: None},
		}},
	}}
	r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6})
	if !ok || math.Abs(r.Jobs[0].Rate-500) > 5 || math.Abs(r.Jobs[1].Rate-500) > 5 {
		t.Fatalf("%+v", r)
	}
}

// TestSame: the same network gives the same result, to the last bit.
func TestSame(t *testing.T) {
	n := rack(100, Hash, paced(1.5, 100, 0), paced(.6, 100, 0))
	a, _ := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6})
	b, _ := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: 1e6})
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

// TestRefuses: what has no steady state, or would take longer than it may.
func TestRefuses(t *testing.T) {
	ok := Limits{Seed: 1, Error: .003, Events: 1e6}
	for name, tt := range map[string]struct {
		n *Network
		l Limits
	}{
		"no window":      {rack(100, Pool, Job{}), ok},
		"no jobs":        {&Network{}, ok},
		"too few events": {rack(100, Pool, paced(1, 100, 0)), Limits{Seed: 1, Error: .003, Events: 1000}},
	} {
		if r, ok := Run(t.Context(), tt.n, tt.l); ok {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// ending is a context that ends when it has been looked at so often.
type ending struct {
	context.Context
	after, looks atomic.Int64
}

func (e *ending) Err() error {
	if e.looks.Add(1) > e.after.Load() {
		return context.Canceled
	}
	return nil
}

// TestEnds: nothing is followed for longer than it is wanted, by the times that runs look whether it is: each of those
// that go on side by side once, after a number of events that takes no time.
func TestEnds(t *testing.T) {
	n := rack(128, Linear, paced(1.5, 128, 0), paced(.6, 128, 0))
	long := Limits{Seed: 1, Events: 1 << 60}
	for name, follow := range map[string]func(context.Context) (ok bool){
		"a steady state": func(ctx context.Context) bool { _, ok := Run(ctx, n, long); return ok },
		"later":          func(ctx context.Context) bool { l := long; l.Late = true; _, ok := Run(ctx, n, l); return ok },
		"a run": func(ctx context.Context) bool {
			_, ok := Replay(ctx, n, Schedule{Jobs: []Times{{End: 1e12}, {Begin: 5, End: 1e12}}, Counts: []Count{{10, 1e12}}}, long)
			return ok
		},
	} {
		for _, after := range []int64{0, 1, 30} {
			ctx := &ending{Context: t.Context()}
			ctx.after.Store(after)
			if follow(ctx) {
				t.Errorf("%s, which ends at look %d: there are figures", name, after)
			}
			if more := ctx.looks.Load() - after; more < 1 || more > minRuns {
				t.Errorf("%s, which ends at look %d: goes on for %d more", name, after, more)
			}
		}
	}
	if glance > 1<<16 {
		t.Errorf("a run looks after %d events", glance)
	}
}

// TestChoose: slots are those that hosts choose (testbed/ina), found by a function of the
// model's own.
func TestChoose(t *testing.T) {
	m := &model{}
	for _, tt := range [][3]int{{1, 16, 16}, {7, 100, 333}, {300, 512, 4096}} {
		want, err := ina.ATPSlots(uint16(tt[0]), tt[1], tt[2])
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range m.choose(uint16(tt[0]), tt[1], tt[2]) {
			if s != int(want[i]) {
				t.Fatalf("job %d: slot %d of %d is %d, hosts choose %d", tt[0], i, tt[1], s, want[i])
			}
		}
	}
}

// BenchmarkRun is two paced jobs in a memory that is short.
func BenchmarkRun(b *testing.B) {
	for name, a := range map[string]Addressing{"pool": Pool, "hash": Hash, "linear": Linear, "atp": ATP} {
		b.Run(name, func(b *testing.B) {
			n := rack(256, a, paced(1.5, 256, 128), paced(.6, 256, 128))
			events := 0
			for b.Loop() {
				r, _ := Run(b.Context(), n, Limits{Seed: 1, Error: .003, Events: 4e6})
				events += r.Events
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}

// TestLoss: of a worker alone, what it sends and gets again follows from what links lose, make two
// of, and let through: it asks until it gets an answer, and who completes its PSN answers each time.
func TestLoss(t *testing.T) {
	const p, q, twice = .05, .1, .2
	alone := func(kind Kind, up, down Damage) *Network {
		n := &Network{Links: []float64{1000, 1000}, Damage: []Damage{up, down}, Switches: []int{0}, Jobs: []Job{{
			Kind: kind, Bits: 1, Window: 4000, Gap: .02, Timeout: 2,
			Nodes: []Node{
				{Parent: 1, Up: 0, Down: 1, Switch: None, Delay: .1},
				{Parent: None, Up: None, Down: None, Switch: None},
			},
		}}}
		if kind == Synchronous {
			n.Jobs[0].Nodes[1].Switch = 0
		}
		return n
	}
	for _, tt := range []struct {
		name                     string
		n                        *Network
		up, came, down, downCame float64
	}{
		{"nothing is lost", alone(Unicast, Damage{}, Damage{}), 1, 1, 1, 1},
		{"gradients are", alone(Unicast, Damage{Loss: p}, Damage{}), 1 / (1 - p), 1, 1, 1},
		{"results are", alone(Unicast, Damage{}, Damage{Loss: q}), 1 / (1 - q), 1 / (1 - q), 1 / (1 - q), 1},
		{"both are", alone(Unicast, Damage{Loss: p}, Damage{Loss: q}), 1 / (1 - p) / (1 - q), 1 / (1 - q), 1 / (1 - q), 1},
		{"a root answers as a parameter server does", alone(Synchronous, Damage{Loss: p}, Damage{Loss: q}), 1 / (1 - p) / (1 - q), 1 / (1 - q), 1 / (1 - q), 1},
		{"of two results one is for nothing", alone(Unicast, Damage{}, Damage{Twice: twice}), 1, 1, 1, 1 + twice},
		{"what comes twice and was not sent again is not answered twice", alone(Unicast, Damage{Twice: twice}, Damage{}), 1, 1 + twice, 1, 1},
		{"who is late is in time", alone(Unicast, Damage{Late: .5, Delay: .1}, Damage{}), 1, 1, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, ok := Run(t.Context(), tt.n, Limits{Seed: 1, Error: .003, Events: 2e6})
			if !ok {
				t.Fatal("no result")
			}
			j := &r.Jobs[0]
			if math.Abs(j.Rate-50) > .25 {
				t.Errorf("%.2f PSN/s, its rate limit is 50", j.Rate)
			}
			for what, v := range map[string][2]float64{
				"packets are sent": {j.Up[0], tt.up}, "of these come": {j.UpCame[0], tt.came},
				"results are sent": {j.Down[0], tt.down}, "of these come, ": {j.DownCame[0], tt.downCame},
			} {
				if math.Abs(v[0]-v[1]) > .01 {
					t.Errorf("per PSN, %s %.3f, want %.3f", what, v[0], v[1])
				}
			}
		})
	}
}

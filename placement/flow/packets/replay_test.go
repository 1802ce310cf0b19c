package packets

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
)

// TestReplay: two jobs of one rate look for slots in the order of their PSNs. Who begins half a memory behind
// the other never meets it; who joins at the same slots has none, or takes them all, by when it begins.
func TestReplay(t *testing.T) {
	const m, gap = 128, 1 / 25.6 // s between PSNs, which hold a slot for one: a fifth of a memory
	turn := m * gap              // s after which the first job looks for the same slot again
	for _, tt := range []struct {
		name          string
		offset, after float64 // of the second job: a part of the memory, turns after the first
		first, second float64 // shares
	}{
		{"half a memory apart", .5, 0, 1, 1},
		{"half a turn later", 0, 10.5, 1, 1},
		{"a tenth of a memory behind the first", .5, 10.6, 1, 0},
		{"a tenth of a memory ahead of it", .5, 10.4, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := rack(m, Linear, paced(.2, m, 0), paced(.2, m, 0))
			n.Jobs[1].Offset = tt.offset
			begin := 10 + tt.after*turn
			end := begin + 20*turn
			r, ok := Replay(t.Context(), n, Schedule{
				Jobs:   []Times{{Begin: 10, End: end}, {Begin: begin, End: end}},
				Counts: []Count{{begin + 5*turn, end}},
			}, Limits{Seed: 1, Error: .003, Events: 3e6})
			if !ok {
				t.Fatal("no result")
			}
			for ji, want := range []float64{tt.first, tt.second} {
				if got := r[0].Jobs[ji].Share[2]; math.Abs(got-want) > .1 {
					t.Errorf("job %d: share %.3f, want %.0f", ji, got, want)
				}
			}
		})
	}
}

// TestReplayCounts: jobs have what they send between their times, in each count of its own.
func TestReplayCounts(t *testing.T) {
	n := rack(0, Pool, paced(.2, 128, 0), paced(.4, 128, 0))
	r, ok := Replay(t.Context(), n, Schedule{
		Jobs:   []Times{{0, .01, 60}, {40, .01, 100}},
		Counts: []Count{{10, 30}, {45, 60}, {65, 100}},
	}, Limits{Seed: 1, Error: .003, Events: 3e6})
	if !ok {
		t.Fatal("no result")
	}
	for i, want := range [][]float64{{.2, 0}, {.2, .4}, {0, .4}} {
		for ji, u := range want {
			if got := r[i].Jobs[ji].Rate; math.Abs(got-u*128) > .01*128 {
				t.Errorf("count %d, job %d: %.2f PSN/s, want %.2f", i, ji, got, u*128)
			}
		}
	}
}

// TestBrink: windows of three jobs fill a memory to within a slot. Some runs find a place for each beside the
// others, where nobody is ever refused; in others jobs run into each other for good, are slower for it, and meet all
// the others again. A run on an emulated rack came to shares of .69, .58 and .83, and goodputs a third of those without.
// Twice the memory has room for all, wherever they begin.
func TestBrink(t *testing.T) {
	const window, bits, rate = 244, 1024 * 8, 40e6
	network := func(memory int) *Network {
		n := &Network{Switches: []int{memory}, Turn: bits, Links: make([]float64, 16)}
		for l := range n.Links {
			n.Links[l] = rate
		}
		for _, j := range []struct {
			ps     int
			limit  float64 // bit/s; 0: none
			offset float64
			hosts  []int
		}{
			{2, 0, .49, []int{5, 0, 3}},
			{0, 14e6, .24, []int{5, 3, 7, 2, 6, 1, 4}},
			{0, 32e6, .85, []int{2, 4}},
		} {
			out := Job{Bits: bits, Window: window, Answer: .0005, Offset: j.offset}
			if j.limit > 0 {
				out.Gap = bits / j.limit
			}
			leaf := len(j.hosts)
			for _, h := range j.hosts {
				out.Nodes = append(out.Nodes, Node{Parent: leaf, Up: 2 * h, Down: 2*h + 1, Delay: .025, Switch: None})
			}
			out.Nodes = append(out.Nodes,
				Node{Parent: leaf + 1, Up: 2*j.ps + 1, Down: 2 * j.ps, Delay: .025, Switch: 0, Addressing: Linear},
				Node{Parent: None, Up: None, Down: None, Switch: None})
			n.Jobs = append(n.Jobs, out)
		}
		return n
	}
	events := int(50e6)
	if !proof.Wanted() {
		events = 16e6
	}
	for _, tt := range []struct {
		seed   uint64
		memory int
		lo, hi float64 // of the spread of the second job's share
		long   bool
	}{
		{6, 3*window + 1, .1, 1, false}, // the first four runs come to the same
		{6, 6 * window, 0, .01, true},
		{13, 3*window + 1, .1, 1, true},
		{33, 3*window + 220, .1, 1, true}, // the first twelve do
	} {
		if tt.long && !proof.Wanted() {
			continue
		}
		s := Schedule{Counts: []Count{{12, 15}}, Lag: Lag{Rest: .001, Wake: .0003, Trip: .01}}
		n := network(tt.memory)
		for range n.Jobs {
			s.Jobs = append(s.Jobs, Times{Begin: .2, Within: .02, End: 15})
		}
		r, ok := Replay(t.Context(), n, s, Limits{Seed: tt.seed, Error: .003, Events: events})
		if !ok {
			t.Fatal("no result")
		}
		j := &r[0].Jobs[1]
		sw := len(j.Share) - 2
		t.Logf("seed %d, memory %d: %d runs, share %.3f, by run %.3f; rate %.1f, by run %.1f Mbit/s",
			tt.seed, tt.memory, r[0].Runs, j.Share[sw], j.ShareSpread[sw], j.Rate*bits/1e6, j.RateSpread*bits/1e6)
		if got := j.ShareSpread[sw]; got < tt.lo || got > tt.hi {
			t.Errorf("seed %d, memory %d: share %.3f varies by %.3f, not %v to %v", tt.seed, tt.memory, j.Share[sw], got, tt.lo, tt.hi)
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	whole := []Times{{0, 0, 10}}
	for _, tt := range []struct {
		name string
		s    Schedule
	}{
		{"no count", Schedule{Jobs: whole}},
		{"a job too few", Schedule{Counts: []Count{{1, 2}}}},
		{"an end before the beginning", Schedule{Jobs: []Times{{5, 0, 1}}, Counts: []Count{{1, 2}}}},
		{"counts that overlap", Schedule{Jobs: whole, Counts: []Count{{1, 3}, {2, 4}}}},
		{"no number", Schedule{Jobs: []Times{{math.NaN(), 0, 1}}, Counts: []Count{{1, 2}}}},
		{"more events than there may be", Schedule{Jobs: []Times{{0, 0, 1e9}}, Counts: []Count{{1, 1e9}}}},
	} {
		if _, ok := Replay(t.Context(), rack(128, Linear, paced(.2, 128, 0)), tt.s, Limits{Seed: 1, Events: 1e5}); ok {
			t.Errorf("%s: has a result", tt.name)
		}
	}
}

// TestReplayLong: a run of which the limits have room for one is followed as often as a standard error needs, and no
// oftener.
func TestReplayLong(t *testing.T) {
	s := Schedule{Jobs: []Times{{End: 1000}}, Counts: []Count{{20, 1000}}}
	run := func(events int) *Result {
		r, ok := Replay(t.Context(), rack(40, Linear, Job{Window: 64}), s, Limits{Seed: 1, Error: .003, Events: events})
		if !ok {
			t.Fatalf("%d events: no result", events)
		}
		return r[0]
	}
	many := run(1e8)
	each := many.Events / many.Runs
	few := run(each + each/10)
	if many.Runs < manyRuns || few.Runs != minRuns {
		t.Errorf("%d runs where there is room, and %d in that for one", many.Runs, few.Runs)
	}
}

// TestReplayAgainstProtocol holds phases of runs in which jobs come and go to the packets of testbed/ina. The bars are
// those of single runs, of which other tests have the mean.
//
//	go test ./placement/flow/packets -run TestReplayAgainstProtocol -v -settings 100 -seed 1 -timeout 1h
func TestReplayAgainstProtocol(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	var shares, rates, ups, crossed misses
	var spent time.Duration
	most := 12e6
	if !proof.Wanted() {
		most = 4e6
	}
	for i := range runs() {
		rnd := rand.New(rand.NewPCG(*seed, uint64(i)))
		n, s := comeAndGo(rnd)
		ofHosts := make([]bool, len(n.Links))
		for _, p := range newModel(n).paths {
			if p.host && p.wire != None {
				ofHosts[p.wire] = true
			}
		}
		of, links := make([]tally, len(s.Counts)), make([]tally, len(s.Counts))
		opened := make([]float64, len(n.Jobs))
		for range 6 {
			p := newProtocol(t, n, rnd, 0, &s)
			for c, count := range s.Counts {
				p.run(time.Duration(count.From * 1e9))
				before, sent := p.counts(), p.crossed()
				p.run(time.Duration(count.To * 1e9))
				of[c].add(p.counts(), before, count.To-count.From, false)
				links[c].add(p.crossed(), sent, count.To-count.From, false)
			}
			for ji, j := range p.jobs {
				opened[ji] = max(opened[ji], j.opened)
			}
		}
		// What is seen of a job that begins is when its windows are open.
		seen := Schedule{Jobs: slices.Clone(s.Jobs), Counts: s.Counts}
		for ji := range seen.Jobs {
			seen.Jobs[ji].Begin = opened[ji]
		}
		began := time.Now()
		r, ok := Replay(t.Context(), n, seen, Limits{Seed: 1, Error: .003, Events: int(most)})
		spent += time.Since(began)
		if !ok {
			t.Errorf("setting %d: the model has no result", i)
			continue
		}
		for c := range r {
			for l, v := range links[c].mean[0] {
				out := &r[c].Links[l]
				if out.Load > n.Links[l]+1/(s.Counts[c].To-s.Counts[c].From) && !ofHosts[l] { // a frame begins in one count and ends in the next
					t.Errorf("setting %d count %d link %d: %v bit/s of %v", i, c, l, out.Load, n.Links[l])
				}
				if few := 3 / (s.Counts[c].To - s.Counts[c].From); v > few { // what starts a job, and the ends of counts
					crossed.add(out.Load/v-1, math.Hypot(links[c].open()[0][l], few)/v, "setting %d count %d link %d: %.4g, protocol %.4g", i, c, l, out.Load, v)
				}
			}
			allOpen := of[c].open()
			for ji, row := range of[c].mean {
				out, open := &r[c].Jobs[ji], allOpen[ji]
				if !seen.Jobs[ji].Cover(s.Counts[c]) {
					continue
				}
				what := fmt.Sprintf("setting %d count %d job %d (%d runs)", i, c, ji, r[c].Runs)
				rates.add(out.Rate/row[0]-1, math.Hypot(open[0], 2*out.RateError)/row[0], "%s: rate %.4g +- %.2g, protocol %.4g +- %.2g", what, out.Rate, 2*out.RateError, row[0], open[0])
				got, workers := 0.0, 0.0
				for k := range n.Jobs[ji].Nodes {
					if !slices.ContainsFunc(n.Jobs[ji].Nodes, func(nd Node) bool { return nd.Parent == k }) {
						got += row[1+figures*k+5]
						workers++
					}
				}
				rates.add(out.Got/(got/workers)-1, math.Hypot(open[0], 2*out.RateError)/row[0], "%s: workers get %.4g, protocol %.4g", what, out.Got, got/workers)
				for k := range n.Jobs[ji].Nodes {
					at := 1 + figures*k
					u, g, d := row[at], row[at+1], row[at+2]
					if came := row[at+3]; came > 0 {
						ups.add(out.Rate*out.UpCame[k]/came-1, math.Hypot(open[at+3], 2*out.RateError*out.UpCame[k])/came, "%s node %d: of that comes %.4g, protocol %.4g +- %.2g", what, k, out.Rate*out.UpCame[k], came, open[at+3])
					}
					if u > 0 {
						ups.add(out.Rate*out.Up[k]/u-1, math.Hypot(open[at], 2*out.RateError*out.Up[k])/u, "%s node %d: sends up %.4g, protocol %.4g +- %.2g", what, k, out.Rate*out.Up[k], u, open[at])
					}
					if d > 0 {
						shares.add(out.Share[k]-g/d, math.Hypot(open[at+1]/d, 2*out.ShareError[k]), "%s node %d: granted %.4f +- %.4f, protocol %.4f +- %.4f", what, k, out.Share[k], 2*out.ShareError[k], g/d, open[at+1]/d)
					}
				}
			}
		}
	}
	t.Logf("%d settings in %v", runs(), spent)
	shares.judge(t, "share", .04)
	rates.judge(t, "rate", .05)
	ups.judge(t, "up", .05)
	crossed.judge(t, "link", .05)
}

// comeAndGo is a random network, and two to four phases of a run in which jobs begin and end.
func comeAndGo(rnd *rand.Rand) (*Network, Schedule) {
	for {
		n := randomNetwork(rnd)
		if len(n.Jobs) < 2 {
			continue
		}
		for ji := range n.Jobs {
			n.Jobs[ji].Offset = rnd.Float64()
		}
		span := newModel(n).span()
		length := span * (6 + 40*rnd.Float64())
		warm := 4 * span // or soon, while queues of the phase before drain
		if rnd.IntN(2) == 0 {
			warm, length = 2*span*rnd.Float64(), span*(3+6*rnd.Float64())
		}
		phases := 2 + rnd.IntN(3)
		s := Schedule{}
		for p := range phases {
			at := 4*span + float64(p)*length
			s.Counts = append(s.Counts, Count{at + warm, at + length})
		}
		for ji := range n.Jobs {
			first, last := rnd.IntN(phases), phases-1
			if ji == 0 {
				first = 0
			}
			if rnd.IntN(3) == 0 {
				last = first + rnd.IntN(phases-first)
			}
			s.Jobs = append(s.Jobs, Times{s.Counts[first].From - warm, .02 * span, s.Counts[last].To})
			if j := &n.Jobs[ji]; rnd.IntN(3) == 0 && j.Kind < Stream && j.Timeout == 0 {
				for range 1 + rnd.IntN(2) {
					l := Layer{PSNs: 1 + int(float64(j.Window)*6*rnd.Float64())}
					if rnd.IntN(2) == 0 {
						l.Ready = span * rnd.Float64()
					}
					if k := len(j.Layers); k > 0 {
						l.Ready += j.Layers[k-1].Ready
					}
					j.Layers = append(j.Layers, l)
				}
			}
		}
		return n, s
	}
}

// TestReplayLeaves: a job that ends leaves no aggregator taken, although its near worker is ahead of its far one.
func TestReplayLeaves(t *testing.T) {
	const m = 256
	n := rack(m, Pool, paced(.9, m, 0), paced(.6, m, 0))
	n.Jobs[1].Nodes[0].Delay, n.Jobs[1].Nodes[1].Delay = .05, .45
	r, ok := Replay(t.Context(), n, Schedule{Jobs: []Times{{End: 100}, {Begin: 10, End: 30}}, Counts: []Count{{1, 9}, {35, 100}}}, Limits{Seed: 1, Error: .003, Events: 4e6})
	if !ok {
		t.Fatal("no result")
	}
	for i := range r {
		if got := r[i].Jobs[0].Share[2]; got < .99 {
			t.Errorf("phase %d: share %.3f of a memory that suffices", i+1, got)
		}
	}
}

// TestLag: processes that are late make round trips no longer than they are told to be, for these contain it, and
// windows at a memory that just holds them less regular.
func TestLag(t *testing.T) {
	shares := map[float64]float64{}
	for _, wake := range []float64{0, .004} {
		n := rack(1<<12, Pool, Job{Window: 64})
		r, ok := Replay(t.Context(), n, Schedule{Jobs: []Times{{End: 1000}}, Counts: []Count{{20, 1000}}, Lag: Lag{Wake: wake}}, Limits{Seed: 1, Error: .003, Events: 4e6})
		if !ok {
			t.Fatal("no result")
		}
		if rate := r[0].Jobs[0].Rate; math.Abs(rate/(64/1.5)-1) > .02 { // of round trips of 1.5 s
			t.Errorf("wakes of %v s: %.2f PSN/s, want %.2f", wake, rate, 64/1.5)
		}
		n = rack(40, Linear, Job{Window: 64})
		r, ok = Replay(t.Context(), n, Schedule{Jobs: []Times{{End: 1000}}, Counts: []Count{{20, 1000}}, Lag: Lag{Wake: wake, Rest: wake}}, Limits{Seed: 1, Error: .003, Events: 4e6})
		if !ok {
			t.Fatal("no result")
		}
		shares[wake] = r[0].Jobs[0].Share[2]
	}
	if t.Log(shares); math.Abs(shares[0]-shares[.004]) < .01 {
		t.Errorf("whoever is late has the share of who is not: %v", shares)
	}
}

// TestHitch: workers that keep step find a memory long enough that is shorter than their windows, of which the rest waits in
// their own queues. Once one of them stood still the others are ahead, and take each other's slots for good. Windows no longer
// than the memory lose nothing but the time.
func TestHitch(t *testing.T) {
	for _, c := range []struct {
		window int
		hitch  float64
		tips   bool
	}{{100, 0, false}, {100, 1, true}, {64, 1, false}} {
		n := rack(64, Linear, Job{Window: c.window})
		n.Links = []float64{40, 40, 40, 40, 40, 40}
		for k, node := range []*Node{&n.Jobs[0].Nodes[0], &n.Jobs[0].Nodes[1], &n.Jobs[0].Nodes[2]} {
			node.Up, node.Down = 2*k, 2*k+1
		}
		r, ok := Replay(t.Context(), n, Schedule{Jobs: []Times{{End: 300}}, Counts: []Count{{100, 300}}, Lag: Lag{Hitch: c.hitch}}, Limits{Seed: 1, Error: .003, Events: 4e6})
		if !ok {
			t.Fatal("no result")
		}
		j := r[0].Jobs[0]
		t.Logf("window %d, hitch %v: share %.3f, spread %.3f, rate %.3f, spread %.3f", c.window, c.hitch, j.Share[2], j.ShareSpread[2], j.Rate, j.RateSpread)
		if tips := j.ShareSpread[2] > .05; tips != c.tips || c.hitch == 0 && j.Share[2] < .99 {
			t.Errorf("window %d, hitch %v: share %.3f, spread %.3f", c.window, c.hitch, j.Share[2], j.ShareSpread[2])
		}
		sum, least, most := 0.0, 1.0, 0.0
		for _, one := range r[0].Each {
			k := one.Jobs[0]
			if one.Runs != 1 || len(one.Each) != 0 || k.RateSpread != 0 || k.ShareSpread[2] != 0 || k.RateError != 0 {
				t.Errorf("window %d, hitch %v: a run by itself: %+v", c.window, c.hitch, one)
			}
			sum, least, most = sum+k.Rate, min(least, k.Share[2]), max(most, k.Share[2])
		}
		if len(r[0].Each) != r[0].Runs || math.Abs(sum/float64(r[0].Runs)-j.Rate) > 1e-9*j.Rate {
			t.Errorf("window %d, hitch %v: %d runs of %d, %v in their mean and %v in all", c.window, c.hitch, len(r[0].Each), r[0].Runs, sum/float64(r[0].Runs), j.Rate)
		}
		if apart := most - least; c.tips != (apart > .3) {
			t.Errorf("window %d, hitch %v: shares of runs are %.3f to %.3f", c.window, c.hitch, least, most)
		}
	}
}

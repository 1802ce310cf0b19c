package placement_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/placement/policytest"
)

// TestPredictMessages: an iteration takes until its last frame has left and a round trip more. Its goodput is the message in
// that time, and frames are whole on the wire. What takes most of it limits it.
func TestPredictMessages(t *testing.T) {
	const (
		line  = 100e9
		frame = 8 * 1024.0
		rtt   = 4 * (1e-6 + frame/line)
	)
	inv := policytest.Racks(1, 3, 2)
	inv.Switches[0].Aggregators = 1 << 20
	for _, tt := range []struct {
		name    string
		s       placement.Sender
		compute float64 // s
		bytes   float64
		frames  float64
		gap     float64 // s between frames
		limits  string
		sending string // that limits it while it sends, where that is something else
		blocks  bool   // in a run that takes most of an iteration, as the limit has frames leave anywhere in a block
	}{
		{"one frame", placement.Sender{Window: 1024}, 0, 960, 1, frame / line, "round trip", "tor1->h1-3", false},
		{"hardly a frame", placement.Sender{Window: 1024}, 0, 4, 1, frame / line, "round trip", "tor1->h1-3", false},
		{"a frame and a value", placement.Sender{Window: 1024}, 0, 964, 2, frame / line, "round trip", "tor1->h1-3", false},
		{"the same at a rate", placement.Sender{Window: 1024, Rate: 10e9}, 0, 964, 2, frame / 10e9, "round trip", "rate limit", true},
		{"some frames", placement.Sender{Window: 1024}, 0, 4096, 5, frame / line, "round trip", "tor1->h1-3", false},
		{"less than a round trip", placement.Sender{Window: 1024, Rate: 10e9}, 0, 1924, 3, frame / 10e9, "round trip", "rate limit", true},
		{"more than a round trip", placement.Sender{Window: 1024, Rate: 10e9}, 0, 6724, 8, frame / 10e9, "rate limit", "", false},
		{"many frames", placement.Sender{Window: 1024}, 0, 2000*960 + 4, 2001, frame / line, "tor1->h1-3", "", false},
		{"many frames at a rate", placement.Sender{Window: 1024, Rate: 10e9}, 0, 200*960 + 4, 201, frame / 10e9, "rate limit", "", false},
		{"small windows", placement.Sender{Window: 20}, 0, 400*960 + 4, 401, rtt / 20, "window", "", false},
		{"it computes", placement.Sender{Window: 1024, Rate: 10e9}, 400e-6, 200*960 + 4, 201, frame / 10e9, "computing", "rate limit", false},
		{"it computes less than it sends", placement.Sender{Window: 1024, Rate: 10e9}, 100e-6, 200*960 + 4, 201, frame / 10e9, "rate limit", "", false},
		{"it computes less than it waits", placement.Sender{Window: 1024}, 2e-6, 964, 2, frame / line, "round trip", "tor1->h1-3", false},
	} {
		for _, collective := range []placement.Collective{placement.INA, placement.PS} {
			if collective == placement.PS && tt.s.Rate == 0 {
				continue // the PS's link carries all workers' frames
			}
			t.Run(tt.name+"/"+string(collective), func(t *testing.T) {
				plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3", Collective: collective})
				tt.s.Layers = []placement.Layer{{Bytes: tt.bytes, Compute: tt.compute}}
				c := placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": tt.s}}
				iteration := tt.compute + (tt.frames-1)*tt.gap + rtt
				near := func(what string, got, want, within float64) {
					if math.Abs(got/want-1) > within {
						t.Errorf("%s: %.5g bit/s, want %.5g", what, got, want)
					}
				}
				limited := func(what string, j placement.JobPrediction, limits, sending string) {
					if j.Bottleneck != limits || j.Sending != sending {
						t.Errorf("%s is limited by %q, and by %q while it sends, want %q and %q", what, j.Bottleneck, j.Sending, limits, sending)
					}
				}
				j := predict(t, inv, plan, c).Jobs[0]
				limited("the steady state", j, tt.limits, tt.sending)
				near("goodput", j.Goodput, 8*tt.bytes/iteration, 1e-6)
				near("wire rate", j.WireRate, tt.frames*frame/iteration, 1e-6)

				c.Predictor = placement.WaterFill // which has all send all the time
				j = predict(t, inv, plan, c).Jobs[0]
				near("goodput over wire rate by waterfill", j.Goodput/j.WireRate, 8*tt.bytes/(tt.frames*frame), 1e-9)

				c.Predictor = placement.Occupancy
				run, err := placement.Replay(t.Context(), inv, plan, c, placement.Schedule{
					Jobs:   map[string]flow.Times{"A": {End: 70 * iteration}},
					Phases: []placement.Phase{{Count: flow.Count{From: 8 * iteration, To: 68 * iteration}, Jobs: []string{"A"}}},
				})
				if err != nil || len(run) != 1 {
					t.Fatalf("%v, %v", run, err)
				}
				j = run[0].Jobs[0]
				if tt.blocks {
					limited("a run", j, tt.sending, "")
				} else {
					limited("a run", j, tt.limits, tt.sending)
				}
				near("goodput over wire rate of a run", j.Goodput/j.WireRate, 8*tt.bytes/(tt.frames*frame), .05)
			})
		}
	}
}

// TestPredictRingWaits: a ring whose chunks are a frame is limited by its way, and one that has much to send by a link.
func TestPredictRingWaits(t *testing.T) {
	inv := policytest.Racks(1, 3, 2)
	for _, tt := range []struct {
		hosts []string
		bytes float64
		rate  float64
		want  string
	}{
		{[]string{"h1-1", "h1-2"}, 964, 0, "round trip"},
		{[]string{"h1-1", "h1-2", "h1-3"}, 964, 0, "round trip"},
		{[]string{"h1-1", "h1-2"}, 64 << 20, 0, "->"},
		{[]string{"h1-1", "h1-2"}, 1 << 20, 1e9, "rate limit"},
	} {
		plan := place(t, inv, placement.Job{Name: "A", Hosts: tt.hosts, Collective: placement.Ring})
		j := predict(t, inv, plan, placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{
			"A": {Rate: tt.rate, Layers: []placement.Layer{{Bytes: tt.bytes}}},
		}}).Jobs[0]
		if !strings.Contains(j.Bottleneck, tt.want) {
			t.Errorf("%d workers, %v B: %+v, want %s", len(tt.hosts), tt.bytes, j, tt.want)
		}
	}
}

// TestBottleneckLimits: what a prediction says limits a job is what costs it most where there is a tenth less of it, of
// jobs whose iterations send, compute and wait in any proportion.
func TestBottleneckLimits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, rnd.Float64()) }
	settings := 30
	if proof.Wanted() {
		settings = 300
	}
	named := map[string]int{}
	for n := range settings {
		inv := policytest.Racks(1, 3, 2)
		inv.Switches[0].Aggregators = 1 << 20
		cables := map[string]*inventory.BitRate{}
		for i := range inv.Hosts {
			h := &inv.Hosts[i]
			h.NICs[0].Rate = inventory.BitRate(between(1e10, 4e11))
			cables[h.Name+"->tor1"], cables["tor1->"+h.Name] = &h.NICs[0].Rate, &h.NICs[0].Rate
		}
		plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3", Collective: placement.INA})
		sender := placement.Sender{Window: 10 * int(between(1, 1e3)), Rate: between(1e9, 1e12)}
		computes := rnd.IntN(2) == 0
		for range 1 + rnd.IntN(4) {
			l := placement.Layer{Bytes: between(4, 1e6)}
			if computes {
				l.Compute = between(1e-8, 1e-4)
			}
			sender.Layers = append(sender.Layers, l)
		}
		trip := between(2e-6, 2e-4)
		predicted := func() placement.JobPrediction {
			return predict(t, inv, plan, placement.Conditions{
				Lanes: 240, Senders: map[string]placement.Sender{"A": sender}, RTTs: map[string]float64{"A": trip},
			}).Jobs[0]
		}
		j := predicted()
		cost := map[string]float64{} // parts of the goodput
		less := func(what string, by func()) {
			before, layers, at := sender, slices.Clone(sender.Layers), trip
			by()
			cost[what] = 1 - predicted().Goodput/j.Goodput
			sender, sender.Layers, trip = before, layers, at
		}
		less("rate limit", func() { sender.Rate *= .9 })
		less("window", func() { sender.Window = sender.Window / 10 * 9 })
		less(placement.RoundTrip, func() { trip /= .9 })
		less(placement.Computing, func() {
			for i := range sender.Layers {
				sender.Layers[i].Compute /= .9
			}
		})
		for name, rate := range cables {
			whole := *rate
			less(name, func() { *rate = *rate / 10 * 9 })
			*rate = whole
		}
		cost[placement.RoundTrip] -= cost["window"] // which comes round as often
		for what, c := range cost {
			if c > cost[j.Bottleneck]+.01 {
				t.Errorf("setting %d: a tenth less of %s costs %.3f, and of its bottleneck, %s, %.3f", n, what, c, j.Bottleneck, cost[j.Bottleneck])
			}
		}
		named[strings.TrimLeft(j.Bottleneck, "htor123-")]++
	}
	t.Log(named)
}

// TestQueueOfMessages: what waits before a link at most is what waits there of packets that are followed one by one, of
// messages that are shorter than a window and longer, and no more than all of a message.
func TestQueueOfMessages(t *testing.T) {
	const line, frame = 100e9, 8 * 1024.0
	type setting struct {
		collective placement.Collective
		rate       float64 // limit, bit/s; 0: none
		slow       float64 // rate of the PS's cable
		window     int
		frames     int
	}
	tests := []setting{
		{placement.PS, 0, line, 1024, 2}, {placement.PS, 0, line, 1024, 1}, {placement.PS, 0, line, 1024, 20}, {placement.PS, 0, line, 1024, 900},
		{placement.PS, 0, line, 1024, 1100}, {placement.PS, 0, line, 1024, 20000}, {placement.PS, 0, line, 100, 20000}, {placement.PS, 80e9, line, 1024, 500},
		{placement.INA, 0, 25e9, 1024, 2}, {placement.INA, 0, 25e9, 1024, 300}, {placement.INA, 0, 25e9, 1024, 5000}, {placement.INA, 40e9, 25e9, 1024, 700},
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, rnd.Float64()) }
	for range 60 {
		x := setting{placement.INA, 0, math.Round(between(1e10, 8e10)), int(between(60, 4000)), int(between(1, 20000))}
		if rnd.IntN(2) == 0 {
			x.collective = placement.PS
		}
		if rnd.IntN(2) == 0 {
			x.rate = between(1.2*x.slow, 1e11)
		}
		tests = append(tests, x)
	}
	for _, tt := range tests {
		inv := policytest.Racks(1, 3, 2)
		inv.Switches[0].Aggregators = 1 << 20
		inv.Hosts[2].NICs[0].Rate = inventory.BitRate(tt.slow)
		plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3", Collective: tt.collective})
		j := predict(t, inv, plan, placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{
			"A": {Window: tt.window, Rate: tt.rate, Layers: []placement.Layer{{Bytes: float64(960 * tt.frames)}}},
		}}).Jobs[0]
		each := 1.0 // packets of a PSN that cross the PS's link
		if tt.collective == placement.PS {
			each = 2
		}
		gap, served := frame/line, each*frame/tt.slow
		if tt.rate > 0 {
			gap = frame / tt.rate
		}
		rest := j.Trip - frame/tt.slow // of a round trip, beside the link
		done := make([]float64, tt.frames)
		sent, free, most := -gap, 0.0, 0.0
		for n := range done {
			sent += gap
			if n >= tt.window {
				sent = max(sent, done[n-tt.window])
			}
			free = max(free, sent) + served
			most = max(most, free-sent)
			done[n] = free + rest
		}
		want := most * tt.slow / 8
		if off := math.Abs(j.Queue - want); off > 2*each*frame/8 || j.Queue > each*frame/8*float64(min(tt.frames, tt.window)) {
			t.Errorf("%+v: %.0f B, want %.0f", tt, j.Queue, want)
		}
	}
}

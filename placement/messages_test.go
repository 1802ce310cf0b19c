package placement_test

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/placement/policytest"
)

// TestPredictMessages: an iteration takes until its last frame has left and a round trip more. Its goodput is the message in
// that time, and frames are whole on the wire.
func TestPredictMessages(t *testing.T) {
	const (
		line  = 100e9
		frame = 8 * 1024.0
		rtt   = 4 * (1e-6 + frame/line)
	)
	inv := policytest.Racks(1, 3, 2)
	inv.Switches[0].Aggregators = 1 << 20
	for _, tt := range []struct {
		name   string
		s      placement.Sender
		bytes  float64
		frames float64
		gap    float64 // s between frames
	}{
		{"one frame", placement.Sender{Window: 1024}, 960, 1, frame / line},
		{"hardly a frame", placement.Sender{Window: 1024}, 4, 1, frame / line},
		{"a frame and a value", placement.Sender{Window: 1024}, 964, 2, frame / line},
		{"the same at a rate", placement.Sender{Window: 1024, Rate: 10e9}, 964, 2, frame / 10e9},
		{"some frames", placement.Sender{Window: 1024}, 4096, 5, frame / line},
		{"many frames", placement.Sender{Window: 1024}, 2000*960 + 4, 2001, frame / line},
		{"many frames at a rate", placement.Sender{Window: 1024, Rate: 10e9}, 200*960 + 4, 201, frame / 10e9},
		{"small windows", placement.Sender{Window: 20}, 400*960 + 4, 401, rtt / 20},
	} {
		for _, collective := range []placement.Collective{placement.INA, placement.PS} {
			if collective == placement.PS && tt.s.Rate == 0 {
				continue // the PS's link carries all workers' frames
			}
			t.Run(tt.name+"/"+string(collective), func(t *testing.T) {
				plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3", Collective: collective})
				tt.s.Layers = []placement.Layer{{Bytes: tt.bytes}}
				c := placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": tt.s}}
				iteration := (tt.frames-1)*tt.gap + rtt
				near := func(what string, got, want, within float64) {
					if math.Abs(got/want-1) > within {
						t.Errorf("%s: %.5g bit/s, want %.5g", what, got, want)
					}
				}
				j := predict(t, inv, plan, c).Jobs[0]
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
				near("goodput over wire rate of a run", j.Goodput/j.WireRate, 8*tt.bytes/(tt.frames*frame), .05)
			})
		}
	}
}

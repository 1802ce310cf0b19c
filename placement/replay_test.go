package placement_test

import (
	"math"
	"testing"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/placement/policytest"
)

// TestReplayOfParts: a phase has results of jobs that send in all of it, and there is no replay where a job of a phase
// begins after it or leaves before its end, as a plan has it whose warm-up is shorter than what jobs need to begin.
func TestReplayOfParts(t *testing.T) {
	inv := policytest.Racks(1, 3, 2)
	plan := place(t, inv,
		placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"},
		placement.Job{Name: "B", Hosts: []string{"h1-1", "h1-2"}, PS: "h1-3"})
	c := placement.Conditions{Lanes: 240, Addressing: "hash", Aggregators: 100, Holds: map[string]float64{}, Senders: map[string]placement.Sender{}}
	for _, job := range []string{"A", "B"} {
		c.Senders[job] = placement.Sender{Rate: 20e9, Window: 1000}
		c.Holds[job+"@tor1"] = 100e-6
	}
	both := []placement.Phase{{Count: flow.Count{From: .001, To: .002}, Jobs: []string{"A"}}, {Count: flow.Count{From: .003, To: .004}, Jobs: []string{"A", "B"}}}
	for _, tt := range []struct {
		name     string
		b        flow.Times
		followed bool
	}{
		{"it sends in all of its phase", flow.Times{Begin: .0025, End: .004}, true},
		{"it begins in its phase", flow.Times{Begin: .0035, End: .004}, false},
		{"it begins after its phase", flow.Times{Begin: .0045, End: .005}, false},
		{"it leaves in its phase", flow.Times{Begin: .0025, End: .0035}, false},
		{"it never sends", flow.Times{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := placement.Schedule{Jobs: map[string]flow.Times{"A": {End: .005}, "B": tt.b}, Phases: both}
			if tt.b == (flow.Times{}) {
				delete(s.Jobs, "B")
			}
			got, err := placement.Replay(t.Context(), inv, plan, c, s)
			if err != nil || (got != nil) != tt.followed {
				t.Fatalf("%v, %v", got, err)
			}
			for i, p := range got {
				if len(p.Jobs) != len(both[i].Jobs) || len(p.Jobs[0].Shares) != 1 {
					t.Errorf("phase %d: %+v", i+1, p)
				}
				sum := 0.0
				for _, one := range p.Each {
					if len(one.Jobs) != len(p.Jobs) || one.Jobs[0].Spread != 0 {
						t.Errorf("phase %d: a run by itself: %+v", i+1, one)
					}
					sum += one.Jobs[0].WireRate
				}
				if mean := sum / float64(len(p.Each)); p.Replayed != (len(p.Each) > 0) || p.Replayed && math.Abs(mean-p.Jobs[0].WireRate) > 1e-9*mean {
					t.Errorf("phase %d: %d runs, of %v bit/s in the mean, and %v in all", i+1, len(p.Each), mean, p.Jobs[0].WireRate)
				}
			}
		})
	}
}

// TestReplayWhileQueuesFill: at the start of a job its window is on its way to the parameter server, which
// completes fewer PSNs than pass the switch of its workers. What that adds up of two packets of a
// PSN is what it grants all the same.
func TestReplayWhileQueuesFill(t *testing.T) {
	proof.Only(t, "it follows packets")
	inv := policytest.Racks(2, 3, 2)
	plan := place(t, inv, placement.Job{Name: "A", Hosts: []string{"h1-1", "h1-2", "h2-1"}, PS: "h2-2"})
	c := placement.Conditions{Lanes: 240, Addressing: "hash", Aggregators: 2000, Holds: map[string]float64{"A@tor1": 100e-6, "A@tor2": 100e-6},
		Senders: map[string]placement.Sender{"A": {Window: 4000}}}
	for _, start := range []float64{.0002, .001, .004} {
		s := placement.Schedule{Jobs: map[string]flow.Times{"A": {End: .02}}, Phases: []placement.Phase{{Count: flow.Count{From: start, To: start + .001}, Jobs: []string{"A"}}}}
		got, err := placement.Replay(t.Context(), inv, plan, c, s)
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		for _, sh := range got[0].Jobs[0].Shares {
			t.Logf("from %v: %+v", start, sh)
			if sh.Switch == "tor1" && (math.Abs(sh.Share-sh.Granted) > .005 || sh.Granted < .05 || sh.Granted > .95) {
				t.Errorf("from %v: %+v", start, sh)
			}
		}
	}
}

// TestReplayRing: a ring of four that computes puts one and a half times its gradient on each link, and takes as long for
// that where a run is followed as in the steady state.
func TestReplayRing(t *testing.T) {
	inv := policytest.Racks(1, 4, 2)
	plan := place(t, inv, placement.Job{Name: "R", Hosts: []string{"h1-1", "h1-2", "h1-3", "h1-4"}, Collective: placement.Ring})
	c := placement.Conditions{Lanes: 2400, Senders: map[string]placement.Sender{"R": {Layers: []placement.Layer{{Bytes: 1 << 20, Compute: 200e-6}}}}}
	steady, err := placement.Predict(t.Context(), inv, plan, c)
	if err != nil {
		t.Fatal(err)
	}
	s := placement.Schedule{Jobs: map[string]flow.Times{"R": {End: .01}}, Phases: []placement.Phase{{Count: flow.Count{From: .0007, To: .0041}, Jobs: []string{"R"}}}}
	run, err := placement.Replay(t.Context(), inv, plan, c, s)
	if err != nil || len(run) != 1 {
		t.Fatalf("%v, %v", run, err)
	}
	if got, want := run[0].Jobs[0].WireRate, steady.Jobs[0].WireRate; math.Abs(got-want) > .12*want { // ten iterations, give or take one
		t.Errorf("%.3g bit/s as the run is followed, %.3g in the steady state", got, want)
	}
}

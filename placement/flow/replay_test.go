package flow

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/inabench/inabench/internal/proof"
)

// TestReplayClosedForms: phases that have a closed form have it, of those jobs that send in all of them.
func TestReplayClosedForms(t *testing.T) {
	p := rack3(1<<20, Pool, 2, func(i int, j *Job) {
		j.Window, j.Limit = 4096, 100*float64(i+1)
	})
	got, err := Replay(t.Context(), p, Schedule{
		Jobs:   []Times{{Begin: 0, End: 3}, {Begin: 1, End: 2}},
		Counts: []Count{{From: .5, To: 1}, {From: 1.5, To: 2}, {From: 2.5, To: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, jobs := range [][]int{{0}, {0, 1}, {0}} {
		only := *p
		only.Jobs = nil
		for _, ji := range jobs {
			only.Jobs = append(only.Jobs, p.Jobs[ji])
		}
		want, err := Occupancy(t.Context(), &only)
		if err != nil {
			t.Fatal(err)
		}
		if got[i].Replayed || !reflect.DeepEqual(got[i].Links, want.Links) {
			t.Errorf("phase %d: links %+v, want %+v", i, got[i].Links, want.Links)
		}
		for ji := range p.Jobs {
			var w JobResult
			if ji < len(jobs) {
				w = want.Jobs[ji]
			}
			if !reflect.DeepEqual(got[i].Jobs[ji], w) {
				t.Errorf("phase %d job %d: %+v, want %+v", i, ji, got[i].Jobs[ji], w)
			}
		}
	}
}

// TestReplayDrains: a queue that grew while two jobs shared a link drains in the next phase, in which the job that is
// left has more than its rate limit, although its memory never is short. By hand: of 600 packets/s of each 500 pass, so
// that 1,000 of each wait after 10 s; B's pass in 2 s more, and then A's, of which there are 1,200, at 400 a second.
func TestReplayDrains(t *testing.T) {
	proof.Only(t, "it follows packets")
	p := rack3(1<<20, Pool, 2, func(_ int, j *Job) {
		j.Packet, j.Limit, j.Window, j.RTT = 1, 600, 8192, .01
	})
	got, err := Replay(t.Context(), p, Schedule{
		Jobs:   []Times{{Begin: 0, End: 40}, {Begin: 10, End: 20}},
		Counts: []Count{{From: 1, To: 9}, {From: 11, To: 20}, {From: 22.5, To: 24.5}, {From: 30, To: 40}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float64{{600, 0}, {500, 500}, {1000, 0}, {600, 0}} {
		for ji, rate := range want {
			r := &got[i].Jobs[ji]
			if have := max(r.Got, r.Rate); !near(have, rate, .03) {
				t.Errorf("phase %d job %d: %.1f packets/s, want %v", i+1, ji+1, have, rate)
			}
		}
	}
	for i, followed := range []bool{false, true, true, false} { // steady states are those of closed forms, and the second is none
		if got[i].Replayed != followed {
			t.Errorf("phase %d: followed is %v", i+1, got[i].Replayed)
		}
	}
}

// TestReplayRemembers: of two jobs of one rate that look for the same slots in the same order, the one ahead has them
// all for as long as they go on, whichever was there first.
func TestReplayRemembers(t *testing.T) {
	const m, hold = 256, 1. // s
	p := rack3(m, Linear, 2, func(_ int, j *Job) {
		j.Limit, j.RTT, j.Window = .3*m, 1.2, 8*m
		j.Nodes[0].Up, j.Nodes[1].Up, j.Nodes[2].Up = None, None, None
	})
	turn := 1 / .3 // s, in which a job comes round
	replay := func(begin float64) []*Result {
		t.Helper()
		got, err := Replay(t.Context(), p, Schedule{
			Jobs:   []Times{{Begin: 0, End: 100}, {Begin: begin, End: 100}},
			Counts: []Count{{From: 5, To: 20}, {From: 40, To: 100}},
		})
		if err != nil || got == nil {
			t.Fatal(got, err)
		}
		return got
	}
	// Half a hold behind the first one, and half of one ahead of it.
	for _, tt := range []struct{ begin, first, second float64 }{{7*turn + hold/2, 1, 0}, {7*turn - hold/2, 0, 1}} {
		got := replay(tt.begin)
		a, b := &got[1].Jobs[0], &got[1].Jobs[1]
		if !got[1].Replayed || !near(got[0].Jobs[0].Share[2], 1, .02) || !near(a.Share[2], tt.first, .05) || !near(b.Share[2], tt.second, .05) {
			t.Errorf("after %.2f turns: alone %.3f, then %.3f and %.3f, want 1, then %v and %v", tt.begin/turn,
				got[0].Jobs[0].Share[2], a.Share[2], b.Share[2], tt.first, tt.second)
		}
	}
}

// TestReplayIsSteady: a phase that lasts long, of jobs that begin at random times, has what Occupancy says of a steady state.
func TestReplayIsSteady(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	compared, problems, end := 0, 12, 130.
	if !proof.Wanted() {
		problems, end = 2, 40
	}
	for range problems {
		p := rack3(64+float64(rng.IntN(300)), []Addressing{Pool, Hash}[rng.IntN(2)], 1+rng.IntN(3), func(_ int, j *Job) {
			j.Packet, j.Window = 1, float64(16+rng.IntN(400))
			if rng.IntN(2) == 0 {
				j.Limit = 100 + 500*rng.Float64()
			}
			for k := range j.Nodes {
				if j.Nodes[k].Parent != None {
					j.Nodes[k].Trip = .1
				}
			}
			holds, rtt := Holds(j)
			for k := range j.Nodes {
				j.Nodes[k].Hold = holds[k]
			}
			j.RTT = rtt
		})
		want, err := Occupancy(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		s := Schedule{Counts: []Count{{From: 20, To: end}}}
		for range p.Jobs {
			s.Jobs = append(s.Jobs, Times{Begin: rng.Float64(), Within: .5, End: 200})
		}
		got, err := Replay(t.Context(), p, s)
		if err != nil || got == nil {
			t.Fatal(got, err)
		}
		if !got[0].Replayed {
			continue
		}
		compared++
		for ji := range p.Jobs {
			a, b := &got[0].Jobs[ji], &want.Jobs[ji]
			if off := math.Abs(a.Rate - b.Rate); off > .03*b.Rate+2*max(a.RateSpread, b.RateSpread) {
				t.Errorf("%d jobs, job %d: rate %.1f, steady %.1f", len(p.Jobs), ji, a.Rate, b.Rate)
			}
			for k := range a.Share {
				if off := math.Abs(a.Share[k] - b.Share[k]); off > .04+2*b.ShareSpread[k] {
					t.Errorf("%d jobs, job %d: share %.3f, steady %.3f +- %.3f", len(p.Jobs), ji, a.Share[k], b.Share[k], b.ShareSpread[k])
				}
			}
		}
	}
	if 4*compared < problems && proof.Wanted() {
		t.Errorf("%d of %d were followed", compared, problems)
	}
}

// TestReplayRefuses: what makes no sense is an error, and what there is too much of has no result.
func TestReplayRefuses(t *testing.T) {
	p := rack3(128, Linear, 1, func(_ int, j *Job) { j.Window, j.RTT, j.Limit = 512, 1, 100 })
	whole := []Times{{Begin: 0, End: 1e9}}
	for _, s := range []Schedule{
		{Jobs: whole, Counts: []Count{{From: 2, To: 1}}},
		{Counts: []Count{{From: 1, To: 2}}},
		{Jobs: whole, Counts: []Count{{From: 1, To: 2}}, Lag: Lag{Wake: -1}},
	} {
		if got, err := Replay(t.Context(), p, s); err == nil {
			t.Errorf("%+v: %v", s, got)
		}
	}
	if !proof.Wanted() { // that takes tens of millions of events
		return
	}
	if got, err := Replay(t.Context(), p, Schedule{Jobs: whole, Counts: []Count{{From: 1, To: 1e9}}}); got != nil || err != nil {
		t.Errorf("of a hundred billion packets: %v, %v", got, err)
	}
}

package experiments

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// TestCountedShare: what waits between a switch and the PS comes and goes, so counts of both differ by
// it from one moment to the next. Those of one place do not, and are taken where nothing is sent again.
func TestCountedShare(t *testing.T) {
	series := func(rate, waits float64) (s results.Series) {
		for i := range 101 {
			at := float64(i) / 10
			s.T = append(s.T, at)
			s.V = append(s.V, math.Floor(rate*at+waits*(1+math.Sin(7*at))))
		}
		return s
	}
	// Of 100 PSNs a second of four workers, tor1 adds up a tenth of those of the first two, and spine1 a fifth
	// of what then comes beside those of the other two.
	j := placement.JobPlan{Name: "A", PS: "h5", Workers: make([]placement.Worker, 4), Tree: []placement.TreeNode{
		{Switch: "tor1", Aggregate: true, Expect: 3, Parent: "spine1"}, {Switch: "spine1", Aggregate: true, Expect: 15},
	}}
	alone := placement.JobPlan{Name: "A", PS: "h5", Workers: make([]placement.Worker, 2), Tree: []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3}}}
	const out = 390 - .2*290
	for name, again := range map[string]float64{"": 0, "job_resends_packets": 1, "job_duplicates_packets": 2} {
		all := map[string]results.Series{
			"job_in_packets A@tor1": series(200, 0), "job_out_packets A@tor1": series(190, 0),
			"job_in_packets A@spine1": series(390, -4), "job_out_packets A@spine1": series(out, -4),
			"worker_arrived A/ps": series(out, -20), "worker_completed A/ps": series(100, -5),
		}
		for _, of := range []string{" A@tor1", " A@spine1"} {
			all["job_resends_packets"+of], all["job_duplicates_packets"+of] = series(0, 0), series(0, 0)
			if name != "" {
				all[name+of] = series(again, 0)
			}
		}
		counter := func(metric, of string) results.Series { return all[metric+" "+of] }
		w := results.Window{Start: 1, End: 9}
		both := func(j placement.JobPlan, node int) (before, got results.Figure) {
			seen, ok := seenShare(counter, j, node)
			if !ok {
				t.Fatal("nobody saw a share")
			}
			before, err := seen.of(w)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = seen.counted(w, counter, j, node).of(w); err != nil {
				t.Fatal(err)
			}
			return before, got
		}
		for node, want := range []float64{.1, .2} {
			before, got := both(j, node)
			narrow := got.N > 1 && (before.N == 1 || got.Hi-got.Lo < (before.Hi-before.Lo)/2)
			if narrow != (again == 0) || again == 0 && math.Abs(got.Value-want) > .01 {
				t.Errorf("%s, %s grows by %v: %.3f, %.3f to %.3f; by what others saw %.3f, %.3f to %.3f", j.Tree[node].Switch, name, again, got.Value, got.Lo, got.Hi, before.Value, before.Lo, before.Hi)
			}
		}
		// All that leaves the only switch comes to the PS, which counts what it completes of it.
		all["worker_arrived A/ps"], all["worker_completed A/ps"] = series(190, -19), series(100, -10)
		if before, got := both(alone, 0); before != got || math.Abs(got.Value-.1) > .01 {
			t.Errorf("one switch: %+v, by the PS %+v", got, before)
		}
	}
}

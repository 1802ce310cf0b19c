package experiments

import (
	"math"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// TestCountedShare: what waits between a switch and the PS comes and goes, so counts of both differ by
// it from one moment to the next. The switch's own do not, and are taken where nothing is sent again.
func TestCountedShare(t *testing.T) {
	j := placement.JobPlan{Name: "A", PS: "h3", Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}},
		Tree: []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3}}}
	series := func(rate, waits float64) (s results.Series) {
		for i := range 101 {
			at := float64(i) / 10
			s.T = append(s.T, at)
			s.V = append(s.V, math.Floor(rate*at+waits*(1+math.Sin(at))))
		}
		return s
	}
	w := results.Window{Start: 1, End: 9}
	for name, again := range map[string]float64{"": 0, "job_resends_packets": 1, "job_duplicates_packets": 2} {
		all := map[string]results.Series{ // 1.9 packets of each of 100 PSNs a second leave, so a tenth is added up
			"job_in_packets A@tor1": series(200, 0), "job_out_packets A@tor1": series(190, 0), "worker_arrived A/ps": series(190, -20), "worker_completed A/ps": series(100, -10),
			"job_resends_packets A@tor1": series(0, 0), "job_duplicates_packets A@tor1": series(0, 0),
		}
		if name != "" {
			all[name+" A@tor1"] = series(again, 0)
		}
		counter := func(metric, of string) results.Series { return all[metric+" "+of] }
		seen, ok := seenShare(counter, j, 0)
		if !ok {
			t.Fatal("nobody saw a share")
		}
		before, err := seen.of(w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := seen.counted(w, counter, "A@tor1").of(w)
		if err != nil {
			t.Fatal(err)
		}
		narrow := got.Hi-got.Lo < (before.Hi-before.Lo)/2
		if narrow != (again == 0) || again == 0 && math.Abs(got.Value-.1) > .01 {
			t.Errorf("%s grows by %v: %.3f, %.3f to %.3f; by what others saw %.3f, %.3f to %.3f", name, again, got.Value, got.Lo, got.Hi, before.Value, before.Lo, before.Hi)
		}
	}
}

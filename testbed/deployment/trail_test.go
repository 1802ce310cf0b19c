package deployment

import (
	"maps"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
)

// TestAstray: a job that stands still resends a few packets; where these get lost is said, leaves first.
func TestAstray(t *testing.T) {
	job := placement.JobPlan{
		ID: 1, Name: "A", Collective: placement.INA, PS: "h3", Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}},
		Tree: []placement.TreeNode{{Switch: "tor1", Aggregate: true, Expect: 3}},
	}
	of := func(metric string) handover.Counter {
		metric, of, _ := strings.Cut(metric, " ")
		return handover.Counter{Metric: metric, Of: of}
	}
	sound := map[string]int64{
		"worker_tx_packets A/0": 6, "worker_tx_packets A/1": 6, "job_in_packets A@tor1": 12, "job_dropped_packets A@tor1": 0, "job_inactive_packets A@tor1": 0,
		"job_out_packets A@tor1": 12, "worker_rx_packets A/ps": 12, "worker_stray A/ps": 0, "worker_arrived A/ps": 12, "worker_tx_packets A/ps": 6,
		"job_results_packets A@tor1": 6, "worker_rx_packets A/0": 6, "worker_rx_packets A/1": 6,
	}
	for _, c := range []struct {
		name  string
		count map[string]int64
		want  string
	}{
		{"nothing is lost", nil, ""},
		{"a report that is a moment old", map[string]int64{"worker_rx_packets A/1": 4}, ""},
		{"no entry", map[string]int64{"job_in_packets A@tor1": 0, "job_out_packets A@tor1": 0, "worker_rx_packets A/ps": 0, "worker_arrived A/ps": 0, "worker_tx_packets A/ps": 0, "job_results_packets A@tor1": 0, "worker_rx_packets A/0": 0, "worker_rx_packets A/1": 0},
			"of 12 packets that workers A/0, A/1 sent, switch tor1 received none"},
		{"halted: what arrived and was not for it", map[string]int64{"job_in_packets A@tor1": 2, "job_dropped_packets A@tor1": 10}, ""},
		{"one worker is not heard", map[string]int64{"job_in_packets A@tor1": 6}, "of 12 packets that workers A/0, A/1 sent, switch tor1 received 6"},
		{"one worker gets nothing", map[string]int64{"worker_rx_packets A/1": 0}, "of 6 packets that switch tor1 sent, worker A/1 received none"},
		{"a PS that drops", map[string]int64{"worker_arrived A/ps": 0, "worker_tx_packets A/ps": 0, "job_results_packets A@tor1": 0, "worker_rx_packets A/0": 0, "worker_rx_packets A/1": 0},
			"of 12 packets that arrived at its PS on host h3, worker_arrived and worker_stray tell of none"},
		{"a worker that says nothing", map[string]int64{"worker_rx_packets A/1": -1, "worker_tx_packets A/1": -1}, ""},
	} {
		before, now := trail{}, trail{}
		counts := maps.Clone(sound)
		maps.Copy(counts, c.count)
		for what, n := range counts {
			if before[of(what)] = 1000; n >= 0 {
				now[of(what)] = 1000 + n
			}
		}
		if got := strings.Join(now.lost(before, job), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

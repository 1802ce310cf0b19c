package experiments

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// TestUnsteady: a prediction is of a steady state, which messages that are short do not come to.
func TestUnsteady(t *testing.T) {
	share := func(granted float64) []placement.SharePrediction {
		return []placement.SharePrediction{{Switch: "tor1", Share: granted, Granted: granted, In: 2, Hold: 100e-6}}
	}
	paced := placement.JobPrediction{Name: "A", Bottleneck: "rate limit", Shares: share(0.55)}
	queued := placement.JobPrediction{Name: "A", Bottleneck: "tor1->h3", Queue: 1e6, Shares: share(0.02)}
	full := placement.JobPrediction{Name: "A", Bottleneck: "rate limit", Shares: share(1)}
	other := placement.JobPrediction{Name: "B", Bottleneck: "rate limit", Shares: share(0.55)}
	for _, tt := range []struct {
		name    string
		message int64
		jobs    []placement.JobPrediction
		want    string // of what is said; empty: nothing is
	}{
		{"a stream", 0, []placement.JobPrediction{paced}, ""},
		{"short", 256 << 10, []placement.JobPrediction{paced}, "at its beginning"},
		{"some windows", 1 << 20, []placement.JobPrediction{paced}, "at its beginning"},
		{"some windows, among others", 1 << 20, []placement.JobPrediction{paced, other}, ""},
		{"long", 4 << 20, []placement.JobPrediction{paced}, ""},
		{"enough memory", 256 << 10, []placement.JobPrediction{full}, ""},
		{"a queue that fills", 4 << 20, []placement.JobPrediction{queued}, "fill queues"},
	} {
		setup := testbed.Setup{Settings: testbed.Settings{Lanes: 240}, Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}, {Name: "B"}}}}
		setup.Workloads = []testbed.Workload{{Rate: 30e9, Window: 1024, Message: tt.message}, {Rate: 30e9, Window: 1024}}
		got := unsteady(setup, &placement.Prediction{Jobs: tt.jobs})
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want something of %q", tt.name, got, tt.want)
		}
	}
}

// TestInStep: jobs whose iterations take equally long keep the phase in which they began.
func TestInStep(t *testing.T) {
	job := func(name string, goodput, granted float64) placement.JobPrediction {
		return placement.JobPrediction{Name: name, Goodput: goodput, Trip: 200e-6, Shares: []placement.SharePrediction{{Switch: "tor1", Granted: granted}}}
	}
	for _, tt := range []struct {
		name string
		a, b int64 // messages; 0: a stream
		jobs []placement.JobPrediction
		want bool
	}{
		{"equal jobs", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 17e9, 0.6), job("B", 17e9, 0.6)}, true},
		{"twice as much", 2 << 20, 1 << 20, []placement.JobPrediction{job("A", 21e9, 0.6), job("B", 17e9, 0.6)}, false},
		{"hardly a pause", 1 << 28, 1 << 28, []placement.JobPrediction{job("A", 28e9, 0.6), job("B", 28e9, 0.6)}, false},
		{"enough memory", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 17e9, 1), job("B", 17e9, 1)}, false},
		{"a stream", 1 << 20, 0, []placement.JobPrediction{job("A", 17e9, 0.6), job("B", 17e9, 0.6)}, false},
		{"alone", 1 << 20, 0, []placement.JobPrediction{job("A", 17e9, 0.6)}, false},
		{"no results", 1 << 20, 1 << 20, []placement.JobPrediction{job("A", 0, 0.6), job("B", 0, 0.6)}, false},
	} {
		setup := testbed.Setup{Plan: &placement.Plan{Jobs: []placement.JobPlan{{Name: "A"}, {Name: "B"}}}}
		setup.Workloads = []testbed.Workload{{Message: tt.a}, {Message: tt.b}}
		if got := inStep(setup, 3, &placement.Prediction{Jobs: tt.jobs}); (got != "") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

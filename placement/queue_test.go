package placement_test

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/policytest"
)

// TestQueue: links are predicted to be shared as by a queue for each job. Where they have others, and that matters to a job that
// a link holds back, the prediction says so.
func TestQueue(t *testing.T) {
	inv := policytest.Racks(1, 6, 2)
	const ps = "h1-3"
	job := func(name string, kind placement.Collective, hosts ...string) placement.Job {
		return placement.Job{Name: name, Hosts: hosts, PS: ps, Collective: kind}
	}
	sums := job("A", placement.INA, "h1-1", "h1-2")
	for _, c := range []struct {
		name   string
		queue  string
		others []placement.Job
		window int
		known  bool
	}{
		{"a queue for each job", "fair", []placement.Job{job("B", placement.PS, "h1-4", "h1-5")}, 1000, true},
		{"none is said", "", []placement.Job{job("B", placement.PS, "h1-4", "h1-5")}, 1000, true},
		{"one stream beside two", "flows", []placement.Job{job("B", placement.PS, "h1-4", "h1-5")}, 1000, false},
		{"one stream beside one", "flows", []placement.Job{job("B", placement.INA, "h1-4", "h1-5")}, 1000, true},
		{"alone", "flows", nil, 1000, true},
		{"alone in one queue", "fifo", nil, 1000, true},
		{"one queue for two", "fifo", []placement.Job{job("B", placement.INA, "h1-4", "h1-5")}, 1000, false},
		{"windows too small for a link", "fifo", []placement.Job{job("B", placement.INA, "h1-4", "h1-5")}, 1, true},
	} {
		plan := place(t, inv, append([]placement.Job{sums}, c.others...)...)
		senders := map[string]placement.Sender{}
		for _, j := range plan.Jobs {
			senders[j.Name] = placement.Sender{Window: c.window}
		}
		p, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Lanes: 240, Queue: c.queue, Senders: senders})
		if err != nil {
			t.Fatal(err)
		}
		if known := p.Beyond == ""; known != c.known || !known && !strings.Contains(p.Beyond, "job A shares tor1->h1-3 with others") {
			t.Errorf("%s: %q", c.name, p.Beyond)
		}
	}
}

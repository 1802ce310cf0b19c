package handover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
)

// TestHops is the list of hops of jobs of each kind, as sender's counters > receiver's, and within one as what arrived = what became of it.
func TestHops(t *testing.T) {
	three := []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}, {Rank: 2, Host: "h5"}}
	racks := []placement.TreeNode{
		{Switch: "tor1", Parent: "spine1", Aggregate: true, Expect: 0b011}, {Switch: "tor2", Parent: "spine1", Aggregate: false, Expect: 0b100},
		{Switch: "spine1", Aggregate: true, Expect: 0b111},
	}
	passes := []placement.TreeNode{
		{Switch: "tor1", Parent: "spine1", Aggregate: true, Expect: 0b011}, {Switch: "spine1", Parent: "tor2", Expect: 0b011},
		{Switch: "tor2", Aggregate: true, Expect: 0b011},
	}
	for _, c := range []struct {
		name string
		job  placement.JobPlan
		want string
		part bool // not every packet passes a hop
	}{
		{name: "ring", job: placement.JobPlan{Collective: placement.Ring, Workers: three}, part: true},
		{name: "PS", job: placement.JobPlan{Collective: placement.PS, PS: "h3", Workers: three[:2]}, want: `
			at worker J/0: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at worker J/1: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at its PS on host h3: worker_rx_packets = worker_arrived and worker_stray
			workers J/0, J/1: worker_tx_packets > its PS on host h3: worker_rx_packets
			its PS on host h3: worker_tx_packets > workers J/0, J/1: worker_rx_packets`},
		{name: "a tree without PS", job: placement.JobPlan{Collective: placement.INA, Workers: three, Tree: racks}, want: `
			at worker J/0: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at worker J/1: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at worker J/2: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			workers J/0, J/1: worker_tx_packets > switch tor1: job_in_packets
			switch tor1: job_results_packets > each of workers J/0, J/1: worker_rx_packets
			at switch tor1: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets
			worker J/2: worker_tx_packets > switch tor2: job_in_packets
			switch tor2: job_results_packets > each of worker J/2: worker_rx_packets
			at switch tor2: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets
			switch tor1 and switch tor2: job_out_packets > switch spine1: job_in_packets
			switch spine1: job_out_packets > each of switch tor1 and switch tor2: job_results_packets, or answers
			at switch spine1: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets`},
		{name: "one whose packets no switch looks at, and a switch that forwards", job: placement.JobPlan{Collective: placement.INA, PS: "h6", Workers: three, Tree: passes}, want: `
			at worker J/0: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at worker J/1: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at worker J/2: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			workers J/0, J/1: worker_tx_packets > switch tor1: job_in_packets
			switch tor1: job_results_packets > each of workers J/0, J/1: worker_rx_packets
			at switch tor1: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets
			switch tor1: job_out_packets > switch spine1: job_in_packets
			switch spine1: job_results_packets > each of switch tor1: job_results_packets
			at switch spine1: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets
			switch spine1: job_out_packets > switch tor2: job_in_packets
			switch tor2: job_results_packets > each of switch spine1: job_results_packets
			at switch tor2: job_in_packets = job_aggregated_packets, job_fallback_packets and job_duplicates_packets
			at its PS on host h6: worker_rx_packets = worker_arrived and worker_stray
			worker J/2 and switch tor2: worker_tx_packets job_out_packets > its PS on host h6: worker_rx_packets
			its PS on host h6: worker_tx_packets > each of worker J/2 and switch tor2: worker_rx_packets job_results_packets`},
		{name: "switches that only forward", job: placement.JobPlan{Collective: placement.INA, PS: "h6", Workers: three[:1], Tree: []placement.TreeNode{{Switch: "tor1", Expect: 1}}}, part: true, want: `
			at worker J/0: worker_rx_packets = worker_psns, worker_duplicates and worker_stray
			at its PS on host h6: worker_rx_packets = worker_arrived and worker_stray
			worker J/0: worker_tx_packets > its PS on host h6: worker_rx_packets
			its PS on host h6: worker_tx_packets > each of worker J/0: worker_rx_packets`},
	} {
		c.job.Name = "J"
		hops, whole := Hops(c.job)
		var got strings.Builder
		for _, h := range hops {
			each, answers := "", ""
			if h.Each {
				each = "each of "
			}
			if h.Inside {
				fmt.Fprintf(&got, "\n\t\t\tat %s: %s = %s", h.To(h.Received), counters(h.Sent), h.From())
				continue
			}
			if h.Answers != (Counter{}) {
				answers = ", or answers"
			}
			fmt.Fprintf(&got, "\n\t\t\t%s: %s > %s%s: %s%s", h.From(), counters(h.Sent), each, h.To(h.Received), counters(h.Received), answers)
		}
		if got.String() != c.want || whole == c.part {
			t.Errorf("%s: whole %t, hops%s\nwant%s", c.name, whole, got.String(), c.want)
		}
	}
}

func counters(ends []End) string {
	var all []string
	for _, e := range ends {
		if !strings.Contains(strings.Join(all, " "), e.Metric) {
			all = append(all, e.Metric)
		}
	}
	return strings.Join(all, " ")
}

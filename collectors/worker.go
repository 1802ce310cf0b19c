package collectors

import (
	"slices"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
)

// WorkerSamples are an agent's totals as samples. t is their time on the run's clock,
// source who said it ("worker A/0", "ps A") and of what it is about ("A/0", "A/ps").
//
// What a job's aggregation really was can be worked out from the PS alone, over any time:
// (n-p)/(n-1) of n workers, where p is worker_arrived over worker_completed, resends and
// pushed-out partial sums included. What it should have got is worker_psns_sent and worker_resends of the
// workers; what a switch claims is job_granted and job_denied, which say nothing about
// resends, and job_out is what it sent on.
func WorkerSamples(t float64, source, of string, s agent.Stats) []results.Sample {
	out := make([]results.Sample, 0, 30)
	count, gauge := adder(&out, t, source, of, false), adder(&out, t, source, of, true)
	count("worker_tx_packets", "1", float64(s.PacketsSent))
	count("worker_tx_bytes", "B", float64(s.BytesSent))
	count("worker_rx_packets", "1", float64(s.PacketsReceived))
	count("worker_rx_bytes", "B", float64(s.BytesReceived))
	count("worker_resends", "1", float64(s.Resends))
	count("worker_psns", "1", float64(s.PSNs))
	count("worker_psns_sent", "1", float64(s.PSNsSent))
	count("worker_duplicates", "1", float64(s.Duplicates))
	count("worker_stray", "1", float64(s.Stray))
	count("worker_goodput_bytes", "B", float64(s.Goodput))
	count("worker_rtt_seconds", "s", s.RTTSum)
	count("worker_rtt_count", "1", float64(s.RTTCount))
	count("worker_iterations", "1", float64(s.Iterations))
	count("worker_iteration_seconds", "s", s.IterationSum)
	count("worker_comm_seconds", "s", s.CommSum)
	count("worker_marks", "1", float64(s.Marks))
	count("worker_overflows", "1", float64(s.Overflows))
	count("worker_sums_checked", "1", float64(s.SumsChecked))
	count("worker_sum_errors", "1", float64(s.SumErrors))
	count("worker_arrived", "1", float64(s.Arrived))
	count("worker_completed", "1", float64(s.Completed))
	count("worker_merged", "1", float64(s.Merged))
	count("worker_conflicts", "1", float64(s.Conflicts))
	count("worker_outdated", "1", float64(s.Outdated))
	count("worker_evicted", "1", float64(s.Evicted))
	count("worker_socket_drops", "1", float64(s.SocketDrops))
	gauge("worker_rtt_min", "s", s.RTTMin)
	gauge("worker_late_p99", "s", s.LateP99)
	gauge("worker_late_max", "s", s.LateMax)
	gauge("worker_outstanding", "1", float64(s.Outstanding))
	return out
}

// adder adds samples, all of one time and about the same, to others.
func adder(to *[]results.Sample, t float64, source, of string, gauge bool) func(metric, unit string, v float64) {
	return func(metric, unit string, v float64) {
		*to = append(*to, results.Sample{T: t, Source: source, Metric: metric, Of: of, Value: v, Unit: unit, Gauge: gauge})
	}
}

// TrainerSamples are the totals of a rank of a training job as samples, as WorkerSamples'
// are: what it sent and received, its steps (iterations), its all-reduces (worker_ops; of
// these with INA, and those that were refused it), where their time went, and its own
// lateness. A gauge worker_step_seconds for each step since the last report is of the time
// at which the step ended, where began says when the first one began.
func TrainerSamples(t, began float64, source, of string, s agent.Stats) []results.Sample {
	var out []results.Sample
	add := adder(&out, t, source, of, false)
	add("worker_tx_packets", "1", float64(s.PacketsSent))
	add("worker_tx_bytes", "B", float64(s.BytesSent))
	add("worker_rx_packets", "1", float64(s.PacketsReceived))
	add("worker_rx_bytes", "B", float64(s.BytesReceived))
	add("worker_resends", "1", float64(s.Resends))
	add("worker_iterations", "1", float64(s.Iterations))
	add("worker_iteration_seconds", "s", s.IterationSum)
	add("worker_sums_checked", "1", float64(s.SumsChecked))
	add("worker_sum_errors", "1", float64(s.SumErrors))
	add("worker_socket_drops", "1", float64(s.SocketDrops))
	tr := s.Training
	if tr == nil {
		return out
	}
	add("worker_ops", "1", float64(tr.Ops))
	add("worker_ops_ina", "1", float64(tr.INA))
	add("worker_ops_refused", "1", float64(tr.Refused))
	add("worker_tree_seconds", "s", tr.Tree.Seconds)
	add("worker_tree_bytes", "B", tr.Tree.Bytes)
	add("worker_tree_tx_packets", "1", float64(tr.TreeSent))
	add("worker_tree_rx_packets", "1", float64(tr.TreeReceived))
	add("worker_ring_seconds", "s", tr.Ring.Seconds)
	add("worker_ring_bytes", "B", tr.Ring.Bytes)
	add("worker_fallback_seconds", "s", tr.Fallback.Seconds)
	add("worker_fallback_bytes", "B", tr.Fallback.Bytes)
	add("worker_launch_seconds", "s", tr.Launch.Sum)
	add("worker_decision_seconds", "s", tr.Decision.Sum)
	add("worker_queued_seconds", "s", tr.Queued.Sum)
	add("worker_late_seconds", "s", tr.Late.Sum)
	add("worker_cpu_seconds", "s", tr.CPU)
	ended := began + tr.JCT
	for _, took := range slices.Backward(tr.Times) {
		out = append(out, results.Sample{T: ended, Source: source, Metric: "worker_step_seconds", Of: of, Value: took, Unit: "s", Gauge: true})
		ended -= took
	}
	return out
}

package collectors

import (
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/agent"
)

// WorkerSamples are an agent's totals as samples. t is their time on the run's clock,
// source who said it ("worker A/0", "ps A") and of what it is about ("A/0").
func WorkerSamples(t float64, source, of string, s agent.Stats) []results.Sample {
	counters := []struct {
		metric, unit string
		value        float64
	}{
		{"worker_tx_packets", "1", float64(s.PacketsSent)},
		{"worker_tx_bytes", "B", float64(s.BytesSent)},
		{"worker_rx_packets", "1", float64(s.PacketsReceived)},
		{"worker_rx_bytes", "B", float64(s.BytesReceived)},
		{"worker_resends", "1", float64(s.Resends)},
		{"worker_psns", "1", float64(s.PSNs)},
		{"worker_goodput_bytes", "B", float64(s.Goodput)},
		{"worker_rtt_seconds", "s", s.RTTSum},
		{"worker_rtt_count", "1", float64(s.RTTCount)},
		{"worker_iterations", "1", float64(s.Iterations)},
		{"worker_iteration_seconds", "s", s.IterationSum},
		{"worker_comm_seconds", "s", s.CommSum},
		{"worker_marks", "1", float64(s.Marks)},
		{"worker_overflows", "1", float64(s.Overflows)},
		{"worker_sums_checked", "1", float64(s.SumsChecked)},
		{"worker_sum_errors", "1", float64(s.SumErrors)},
		{"worker_arrived", "1", float64(s.Arrived)},
		{"worker_completed", "1", float64(s.Completed)},
		{"worker_socket_drops", "1", float64(s.SocketDrops)},
	}
	gauges := []struct {
		metric string
		value  float64
	}{
		{"worker_rtt_min", s.RTTMin},
		{"worker_late_p99", s.LateP99},
		{"worker_late_max", s.LateMax},
	}
	out := make([]results.Sample, 0, len(counters)+len(gauges))
	for _, c := range counters {
		out = append(out, results.Sample{T: t, Source: source, Metric: c.metric, Of: of, Value: c.value, Unit: c.unit})
	}
	for _, g := range gauges {
		out = append(out, results.Sample{T: t, Source: source, Metric: g.metric, Of: of, Value: g.value, Unit: "s", Gauge: true})
	}
	return out
}

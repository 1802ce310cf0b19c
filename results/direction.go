package results

import (
	"slices"
	"strings"
)

// Metrics of which more is better, and less, where the unit does not say so: rates are better when they are higher, and
// times when they are lower. Of neither is better what follows from what is done, as the rate of a link.
var (
	upward   = strings.Fields("share granted jain iterations throughput speed avg_speed min_speed speed_static de de_queued gpu_utilisation ina_score ina_utilisation cpu_saving cpu_reduction correlation profit_rate total_profit")
	downward = strings.Fields("sum_errors loss max_loss refused retransmits used_machines machine_hours fragmentation cross_traffic")
	neither  = strings.Fields("link_rate wire_rate fidelity turning_point")
)

// Better says which way a metric in a unit gets better: 1 up, -1 down, 0 where neither is. A ratio of a metric goes the
// way of that.
func Better(metric, unit string) int {
	if base, isRatio := strings.CutSuffix(metric, "_ratio"); isRatio {
		metric = base
		unit = ratioOf(metric)
	}
	switch {
	case slices.Contains(neither, metric):
		return 0
	case slices.Contains(downward, metric):
		return -1
	case slices.Contains(upward, metric):
		return 1
	case unit == "s":
		return -1
	case unit == "bit/s" || unit == "1/s":
		return 1
	}
	return 0
}

// ratioOf is the unit of a metric that there is a ratio of, whose own is "1"; empty: it is not known.
func ratioOf(metric string) string {
	for _, rate := range []string{"goodput", "bw", "_rate"} {
		if strings.HasSuffix(metric, rate) {
			return "bit/s"
		}
	}
	for _, time := range []string{"jct", "avg_jct", "queueing", "makespan", "latency", "stall"} {
		if strings.HasPrefix(metric, time) {
			return "s"
		}
	}
	if strings.HasSuffix(metric, "_time") {
		return "s"
	}
	return ""
}

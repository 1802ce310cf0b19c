package results

import "slices"

// Better says which way a metric in a unit gets better: 1 up, -1 down, 0 where neither is, as with
// the rate of a link, which follows from what is done.
func Better(metric, unit string) int {
	switch {
	case slices.Contains([]string{"link_rate", "wire_rate", "fidelity"}, metric):
		return 0
	case metric == "sum_errors" || lowerIsBetter(metric, unit):
		return -1
	case unit == "bit/s" || unit == "1/s":
		return 1
	case slices.Contains([]string{"share", "jain", "iterations", "throughput", "de", "de_queued", "gpu_utilisation", "ina_score", "ina_utilisation"}, metric):
		return 1
	}
	return 0
}

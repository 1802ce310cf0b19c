// Package metric is the one table of the quantities that experiments measure, simulate and predict:
// a metric's name in expectations, its unit, what people call it, and which way it gets better.
// A new metric is a line of the table; what prints, draws, compares or judges asks here.
package metric

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Metric is a quantity.
type Metric struct {
	Name   string // as expectations have it: "avg_jct"
	Unit   string // base unit of its values: "1", "1/s", "bit/s", "s" or "B"
	Better Better
	Title  string // in words; empty: the name, with blanks
}

// Better is which way a metric gets better.
type Better int

// Directions. Neither is of what follows from what is done, as the rate of a link.
const (
	Less    Better = -1
	Neither Better = 0
	More    Better = 1
)

// Ratio is the ending of a metric that is another one over its value in a reference.
const Ratio = "_ratio"

// table is all metrics, sorted by name.
var table = []Metric{
	{"aggregator_utilisation", "1", Neither, ""},
	{"aggregators", "1", Neither, ""},
	{"algbw", "bit/s", More, ""},
	{"avg_iteration_time", "s", Less, "average iteration time"},
	{"avg_jct", "s", Less, "average JCT"},
	{"avg_jct_all", "s", Less, "average JCT with everything aggregated"},
	{"avg_jct_none", "s", Less, "average JCT with nothing aggregated"},
	{"avg_jct_queued", "s", Less, "average JCT with queueing"},
	{"avg_speed", "1", More, "average speed"},
	{"avg_speed_static", "1", More, "average speed without changes"},
	{"avg_step_time", "s", Less, "average step time"},
	{"busbw", "bit/s", More, ""},
	{"busy", "1", Neither, ""},
	{"busy_peak", "1", Neither, "busiest interval"},
	{"comm_gaps", "s", Less, "gaps between all-reduces of a step"},
	{"comm_stage", "s", Less, "communication stage of a step"},
	{"comm_time", "s", Less, "communication time"},
	{"conflicts", "1", Neither, ""},
	{"conflicts_fragments_correlation", "1", Neither, "correlation of conflicts and fragments"},
	{"cpu", "1", Neither, "CPU"},
	{"cpu_busy", "1", Neither, "CPU busy"},
	{"cpu_reduction", "1", More, "CPU reduction"},
	{"cpu_saving", "1", More, "CPU saving"},
	{"cpu_used", "1", Neither, "CPU used"},
	{"cross_traffic", "B", Less, "communication overhead"},
	{"de", "1", More, "distribution efficiency"},
	{"de_queued", "1", More, "distribution efficiency with queueing"},
	{"decision_time", "s", Less, ""},
	{"epoch_time", "s", Less, ""},
	{"evacuations", "1", Neither, ""},
	{"fidelity", "1", Neither, ""},
	{"fragmentation", "1", Less, "machine fragmentation rate"},
	{"fragments", "1", Neither, ""},
	{"free_fragments", "1", Neither, ""},
	{"goodput", "bit/s", More, ""},
	{"gpu_utilisation", "1", More, "GPU utilisation"},
	{"granted", "1", More, ""},
	{"idle", "1", Neither, "idle intervals"},
	{"idle_machines", "1", Neither, ""},
	{"idle_taken", "1", Neither, "idle machines taken"},
	{"ina_score", "1", More, "INA efficiency score"},
	{"ina_utilisation", "1", More, "INA utilisation"},
	{"iteration_comm_time", "s", Less, "communication time of an iteration"},
	{"iteration_time", "s", Less, ""},
	{"iterations", "1", More, ""},
	{"jain", "1", More, "Jain index"},
	{"jct", "s", Less, "JCT"},
	{"jct_range", "1", Neither, "JCT range of the score"},
	{"jitter", "s", Less, ""},
	{"job_machines", "1", Neither, ""},
	{"late", "1", Neither, ""},
	{"latency", "s", Less, ""},
	{"latency_p99", "s", Less, "99th percentile of latency"},
	{"launch_time", "s", Less, ""},
	{"link_rate", "bit/s", Neither, ""},
	{"link_utilisation", "1", Neither, ""},
	{"loss", "1", Less, ""},
	{"machine_hours", "1", Less, ""},
	{"machine_traffic", "B", Less, "traffic between machines"},
	{"makespan", "s", Less, ""},
	{"max_loss", "1", Less, "largest loss"},
	{"message_rate", "1/s", More, ""},
	{"migration_acquire", "s", Less, ""},
	{"migration_adopt", "s", Less, ""},
	{"migration_leave", "s", Less, ""},
	{"migration_release", "s", Less, ""},
	{"migration_time", "s", Less, ""},
	{"migration_wait", "s", Less, ""},
	{"migrations", "1", Neither, ""},
	{"min_speed", "1", More, "lowest speed"},
	{"min_speed_static", "1", More, "lowest speed without changes"},
	{"most_aggregators", "1", Neither, ""},
	{"moves", "1", Neither, ""},
	{"network_time", "s", Less, ""},
	{"part_of_time", "1", Neither, ""},
	{"pattern_error", "1", Less, "error of the collected pattern"},
	{"placement_time", "s", Less, "placement time of a job"},
	{"postponed", "1", Neither, ""},
	{"profit_rate", "1", More, ""},
	{"queueing", "s", Less, ""},
	{"queueing_p95", "s", Less, "95th percentile of queueing"},
	{"ratio_above_1", "1", Neither, ""},
	{"ratio_p50", "1", Neither, ""},
	{"ratio_p99", "1", Neither, ""},
	{"ratio_worst", "1", Neither, ""},
	{"reduced", "B", Neither, "reduced in a step"},
	{"refused", "1", Less, ""},
	{"retransmits", "1", Less, ""},
	{"reverted_at", "s", Neither, "first reversal"},
	{"reverts", "1", Neither, ""},
	{"rtt", "s", Less, "round trip"},
	{"run_time", "s", Less, ""},
	{"servers", "1", Neither, ""},
	{"share", "1", More, "aggregated share"},
	{"speed", "1", More, ""},
	{"speed_static", "1", More, "speed without changes"},
	{"stall", "s", Less, ""},
	{"stall_part", "1", Neither, ""},
	{"step_rate", "1/s", More, ""},
	{"step_time", "s", Less, ""},
	{"sum_errors", "1", Less, ""},
	{"throughput", "1/s", More, ""},
	{"total_goodput", "bit/s", More, ""},
	{"total_profit", "1", More, ""},
	{"training_time", "s", Less, ""},
	{"tree_time", "s", Less, "tree building time"},
	{"turning_point", "bit/s", Neither, ""},
	{"used_machines", "1", Less, ""},
	{"wire_rate", "bit/s", Neither, ""},
}

// signed are metrics that may be less than 0; fractions are never more than 1.
var (
	signed    = []string{"conflicts_fragments_correlation", "cpu_reduction", "cpu_saving", "fidelity", "jct_range", "loss", "max_loss", "profit_rate", "total_profit"}
	fractions = []string{"granted", "jain", "share"}
)

// Part is the range that a metric is a part of: what its value is worth hangs on how large that is.
type Part struct {
	Name  string // the range's metric, a fraction
	Short string // the same in words that fit beside a value
}

// parts are the ranges of the metrics that have one.
var parts = map[string]Part{"ina_score": {"jct_range", "JCT range"}}

// Within is the range that a metric is a part of, and false of one that is none.
func Within(name string) (Part, bool) {
	p, ok := parts[name]
	return p, ok
}

// Range is what a metric can be at all, infinite where nothing bounds it. One that is not in the table may be anything.
func Range(name string) (lo, hi float64) {
	base := strings.TrimSuffix(name, Ratio)
	_, known := slices.BinarySearchFunc(table, base, func(m Metric, name string) int { return strings.Compare(m.Name, name) })
	if lo, hi = 0, math.Inf(1); !known || slices.Contains(signed, base) {
		lo = math.Inf(-1)
	}
	if slices.Contains(fractions, name) {
		hi = 1
	}
	return lo, hi
}

// Names are the names of all metrics in the table, sorted.
func Names() []string {
	out := make([]string, len(table))
	for i, m := range table {
		out[i] = m.Name
	}
	return out
}

// Of is the metric of a name, a ratio of one too, with its Title in words. One that is not in the
// table, such as a rule of an experiment finds in a program's output, has the unit that is given and
// gets better as that says: rates up and times down.
func Of(name, unit string) Metric {
	if base, ok := strings.CutSuffix(name, Ratio); ok {
		m := Of(base, "")
		return Metric{name, "1", m.Better, m.Title + " over the reference's"}
	}
	i, ok := slices.BinarySearchFunc(table, name, func(m Metric, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Metric{name, unit, byUnit(unit), words(name)}
	}
	m := table[i]
	m.Title = cmp.Or(m.Title, words(name))
	return m
}

func byUnit(unit string) Better {
	switch unit {
	case "s":
		return Less
	case "bit/s", "1/s":
		return More
	}
	return Neither
}

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

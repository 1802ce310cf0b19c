package metric

import (
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	if !slices.IsSortedFunc(table, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	for i, m := range table {
		if i > 0 && table[i-1].Name == m.Name {
			t.Errorf("%s is there twice", m.Name)
		}
		if !slices.Contains([]string{"1", "1/s", "bit/s", "s", "B"}, m.Unit) {
			t.Errorf("%s: unit %q", m.Name, m.Unit)
		}
		if strings.HasSuffix(m.Name, Ratio) {
			t.Errorf("%s: ratios are not listed", m.Name)
		}
		if instant := strings.HasSuffix(m.Name, "_at"); m.Unit == "s" && !instant && m.Better != Less {
			t.Errorf("%s: of times less is better, if they are no instants", m.Name)
		}
	}
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name, unit string
		want       Metric
	}{
		{"avg_jct", "", Metric{"avg_jct", "s", Less, "average JCT"}},
		{"step_rate", "", Metric{"step_rate", "1/s", More, "step rate"}},
		{"link_rate", "", Metric{"link_rate", "bit/s", Neither, "link rate"}},
		{"avg_jct_ratio", "", Metric{"avg_jct_ratio", "1", Less, "average JCT over the reference's"}},
		{"de_ratio", "1", Metric{"de_ratio", "1", More, "distribution efficiency over the reference's"}},
		// What the table does not have.
		{"my_rate", "bit/s", Metric{"my_rate", "bit/s", More, "my rate"}},
		{"my_time", "s", Metric{"my_time", "s", Less, "my time"}},
		{"depth", "1", Metric{"depth", "1", Neither, "depth"}},
	} {
		if got := Of(tt.name, tt.unit); got != tt.want {
			t.Errorf("%s in %q: %+v, want %+v", tt.name, tt.unit, got, tt.want)
		}
	}
	for name, want := range map[string]Better{
		"used_machines": Less, "machine_hours": Less, "fragmentation": Less, "cross_traffic": Less, "refused": Less, "sum_errors": Less,
		"de": More, "profit_rate": More, "total_profit": More, "gpu_utilisation": More, "min_speed": More, "goodput": More,
		"queueing_ratio": Less, "step_time_ratio": Less, "throughput_ratio": More, "total_goodput_ratio": More, "queueing_p95_ratio": Less,
		"link_rate_ratio": Neither, "something": Neither,
	} {
		if got := Of(name, "").Better; got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

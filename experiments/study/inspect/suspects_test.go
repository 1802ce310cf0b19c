package inspect

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/placement"
)

// TestSuspects: who may have made sums wrong follows from who got wrong ones.
func TestSuspects(t *testing.T) {
	job := func(name string, wrong, checked int64, ps string, switches ...string) sums {
		t.Helper()
		j := placement.JobPlan{Name: name, PS: ps, Workers: []placement.Worker{{Rank: 0, Host: "h1"}, {Rank: 1, Host: "h2"}}}
		for _, s := range switches {
			name, passes := strings.CutPrefix(s, "-")
			j.Tree = append(j.Tree, placement.TreeNode{Switch: name, Aggregate: !passes, Expect: 3})
		}
		return sums{job: j, checked: checked, wrong: wrong}
	}
	packets := func(s sums, n int64) sums {
		s.damaged = n
		return s
	}
	adding := func(s sums, n float64) sums {
		s.added = map[string]float64{"tor1": n}
		return s
	}
	for _, c := range []struct {
		name      string
		all       []sums
		says, not string // of the first one
	}{
		{"alone", []sums{job("A", 10, 1e6, "h3", "tor1")}, "it is switch tor1 or worker A/0 on host h1 or A/1 on host h2 or its PS on host h3", "one cause"},
		{"alone, without a PS", []sums{job("A", 10, 1e6, "", "tor1")}, "worker A/0 on host h1 or A/1 on host h2", "PS"},
		{"two at one switch", []sums{job("A", 10, 1e6, "h3", "tor1"), job("B", 10, 1e6, "h3", "tor1")}, "if all have one cause it is switch tor1, and else switch tor1 or worker A/0 on host h1", ""},
		{"two with a tree each", []sums{job("A", 10, 1e6, "h3", "tor1", "spine"), job("B", 10, 1e6, "h3", "tor2", "spine")}, "one cause it is switch spine, and else switch tor1 or spine or worker", "tor2"},
		{"two that meet twice, and one that clears a switch", []sums{job("A", 10, 1e6, "h3", "tor1", "spine"), job("B", 10, 1e6, "h3", "tor1", "spine"), job("C", 0, 1e6, "h3", "spine")}, "one cause it is switch tor1, and else switch tor1 or worker", "spine"},
		{"another is right at the same switch", []sums{job("A", 10, 1e6, "h3", "tor1"), job("B", 0, 1e6, "h3", "tor1")}, "carry other jobs without an error, so that it is worker A/0 on host h1 or A/1 on host h2 or its PS on host h3", "tor1"},
		{"another is right, but has hardly begun", []sums{job("A", 10, 1e6, "h3", "tor1"), job("B", 0, 7e5, "h3", "tor1")}, "it is switch tor1 or worker", "without an error"},
		{"others elsewhere are wrong, too", []sums{job("A", 10, 1e6, "h3", "tor1"), job("B", 10, 1e6, "h3", "tor2")}, "it is switch tor1 or worker", "tor2"},
		{"a switch that only passes on what one worker sends", []sums{job("A", 10, 1e6, "h3", "-tor1", "spine"), job("B", 10, 1e6, "h3", "tor1", "spine")}, "one cause it is switch tor1 or spine", ""},
		{"two at one switch, and a third that is right there", []sums{job("A", 10, 1e6, "h3", "tor1"), job("B", 10, 1e6, "h3", "tor1"), job("C", 0, 1e6, "h3", "tor1")}, "one cause it is switch tor1, and else worker A/0", "without an error"},
		{"another is right at the same switch, which adds up little for it", []sums{adding(job("A", 10, 1e6, "h3", "tor1"), 1e4), adding(job("B", 0, 1e6, "h3", "tor1"), 100)}, "it is switch tor1 or worker", "without an error"},
		{"another is right at the same switch, which adds up as much for it", []sums{adding(job("A", 10, 1e6, "h3", "tor1"), 1e4), adding(job("B", 0, 1e6, "h3", "tor1"), 1e4)}, "carry other jobs without an error", "tor1"},
		{"another is right at the same switch, and few packets of the first were not", []sums{packets(job("A", 1920, 1e6, "h3", "tor1"), 8), job("B", 0, 5e5, "h3", "tor1")}, "it is switch tor1 or worker", "without an error"},
		{"another is right at the same switch, and many packets of the first were not", []sums{packets(job("A", 1920, 1e6, "h3", "tor1"), 80), job("B", 0, 5e5, "h3", "tor1")}, "carry other jobs without an error", "tor1"},
		{"nobody is on its way", []sums{job("A", 10, 1e6, "h3")}, "it is worker A/0 on host h1 or A/1 on host h2 or its PS", "switch"},
	} {
		if got := suspects(c.all[0], c.all); !strings.Contains(got, c.says) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q, want %q and not %q", c.name, got, c.says, c.not)
		}
	}
}

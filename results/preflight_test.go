package results

import (
	"fmt"
	"slices"
	"testing"
)

// What failed or nearly did comes first, then what was skipped; hosts of which the same is true come
// together, and what passed says nothing.
func TestPreflightWarnings(t *testing.T) {
	all := []Preflight{
		{Name: "numa", Outcome: Skipped, Why: "left out on request"},
		{Name: "mtu", Host: "h2", Outcome: Fail, Found: "eth0 1500", Wanted: "eth0 9000, as 2 of 3 have", Hint: "set it"},
		{Name: "clock", Host: "h1", Outcome: Pass, Found: "agrees to within 3 ms"},
		{Name: "reachable", Host: "h9", Outcome: Fail, Found: "host h9: unreachable"},
		{Name: "ceiling", Host: "h1", Outcome: Inconclusive, Found: "much", Wanted: "less", Hint: "ask for less"},
	}
	for i := range 6 {
		all = append(all, Preflight{Name: "pfc", Host: fmt.Sprint("n", i+1), Outcome: Skipped, Why: "no mlnx_qos"})
	}
	want := []string{
		"preflight: mtu: eth0 1500, wanted eth0 9000, as 2 of 3 have (h2)",
		"preflight: reachable: host h9: unreachable (h9)",
		"preflight: ceiling: much, wanted less (h1); to do: ask for less",
		"preflight: numa: skipped: left out on request",
		"preflight: pfc: skipped: no mlnx_qos (n1, n2, n3 and 3 more hosts)",
	}
	if got := PreflightWarnings(all); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := PreflightWarnings(all[2:3]); got != nil {
		t.Errorf("of what passed: %q", got)
	}
}

package remote

import (
	"strings"
	"testing"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// A damaged cable explains what it loses, and nothing beyond that.
func TestExcuse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		s     testbed.LinkState
		value float64
		asked bool
	}{
		{"what it loses", testbed.LinkState{Loss: .05}, 540, true},
		{"what it doubles", testbed.LinkState{Duplicate: .02}, 210, true},
		{"a loss so small that it loses nothing", testbed.LinkState{Loss: 1e-9}, 9000, false},
		{"more than it loses", testbed.LinkState{Loss: .02, Duplicate: .02}, 500, false},
		{"another order", testbed.LinkState{Reorder: .05}, 500, false},
	} {
		got := excuse(results.Trouble{Where: "link a->b", What: "a sent 10000 frames; the cable loses them", Value: tt.value, Limit: 8, Of: 10_000}, tt.s)
		if got.Asked != tt.asked || !strings.Contains(got.What, "the experiment damages this cable") {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

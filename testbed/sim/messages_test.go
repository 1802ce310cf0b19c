package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// near is a rack of four hosts with cables of so much delay.
func near(rate inventory.BitRate, delay time.Duration) *inventory.Inventory {
	inv := lab(1, rate, 1<<12)
	for i := range inv.Hosts {
		inv.Hosts[i].NICs[0].Delay = delay
	}
	return inv
}

// TestRings holds a ring of long messages beside one of short ones, which is followed frame by frame, against the
// prediction.
func TestRings(t *testing.T) {
	inv := near(100e9, 50*time.Microsecond)
	s := setup(t, inv, testbed.Settings{Queue: "fair"},
		spec{name: "A", hosts: []string{"h1", "h2"}, collective: placement.Ring, w: testbed.Workload{Rate: 70e9, Message: 1 << 20}},
		spec{name: "B", hosts: []string{"h3", "h2"}, collective: placement.Ring, w: testbed.Workload{Message: 4 << 20}})
	got, want := steady(t, deploy(t, inv, s), s), predict(t, inv, s)
	for _, j := range want.Jobs {
		if g := 8 * got["worker_goodput_bytes "+j.Name+"/0"]; math.Abs(g/j.Goodput-1) > 0.02 {
			t.Errorf("job %s: goodput %.4g, predicted %.4g", j.Name, g, j.Goodput)
		}
	}
}

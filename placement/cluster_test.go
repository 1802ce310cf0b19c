package placement

import (
	"testing"
	"time"
)

// TestMemory: PAT times the way to a PS and back, 2.16 us, is 26.4 packets of 8192 bits at 100 Gbit/s. Less than half of an aggregator is one, since none would
// mean all that a switch has.
func TestMemory(t *testing.T) {
	for pat, want := range map[float64]int{0: 0, 1: 1, 1e9: 1, 50e9: 13, 100e9: 26} {
		if got := Memory(pat, 100e9, time.Microsecond); got != want {
			t.Errorf("%g bit/s: %d aggregators, want %d", pat, got, want)
		}
	}
}

package deployment

import "testing"

// Every job that comes has another epoch than those before it, and none has 0, also where
// numbers of 16 bits begin again.
func TestEpochs(t *testing.T) {
	var tb Testbed
	tb.epochs.Store(0xFFFF - 100)
	last := map[uint16]int{}
	for i := range 1 << 17 {
		e := tb.newEpoch()
		if before, ok := last[e]; ok && i-before < 1<<16-1 || e == 0 {
			t.Fatalf("epoch %d after %d others", e, i-last[e]-1)
		}
		last[e] = i
	}
}

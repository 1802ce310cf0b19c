package client

import (
	"testing"
	"time"
)

// Each iteration computes as much longer as it is told to, and those of which nothing is told as long as they are to.
func TestComputing(t *testing.T) {
	l := Loop{Slower: []float64{1, 1.5, 0.5}}
	for i, want := range []time.Duration{10, 15, 5, 10, 10} {
		if got := l.computing(i, 10); got != want {
			t.Errorf("iteration %d: %v, want %v", i, got, want)
		}
	}
}

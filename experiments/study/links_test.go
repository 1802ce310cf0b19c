package study

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/results"
)

// TestBusiest: the links that carry most come first, few of them, and none that carries nothing.
func TestBusiest(t *testing.T) {
	l := LinkLoads{Measurer: NewMeasurer(&results.Readings{}, results.Window{}, results.Measured), metrics: map[string]string{}}
	if got := l.busiest(); got != nil {
		t.Errorf("before anything was read: %v", got)
	}
	for i := range mostBusy + 3 {
		name := fmt.Sprintf("h%d->tor1", i)
		l.metrics[name] = "nic_tx_bytes"
		for at := range 3 {
			l.keep([]results.Sample{
				{T: float64(at), Source: "host", Metric: "nic_tx_bytes", Of: name, Value: float64(100 * i * at)},
				{T: float64(at), Source: "host", Metric: "other", Of: name, Value: 1e9 * float64(at)},
			})
		}
	}
	var want []Moving
	for i := mostBusy + 2; len(want) < mostBusy; i-- {
		want = append(want, Moving{Job: fmt.Sprintf("h%d->tor1", i), Goodput: float64(800 * i)})
	}
	if diff := cmp.Diff(want, l.busiest()); diff != "" {
		t.Error(diff)
	}
}

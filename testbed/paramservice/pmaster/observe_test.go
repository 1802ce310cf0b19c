package pmaster

import (
	"testing"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

// Jobs crowd an Aggregator that have tensors there, and not those whose tensors are nowhere yet.
func TestCrowd(t *testing.T) {
	of := func(id uint32, workers int, t ...*tensor) *job {
		return &job{Job: control.Job{ID: id, Workers: workers}, tensors: t}
	}
	j := of(1, 2, &tensor{placed: true})
	m := &Master{jobs: map[uint32]*job{1: j, 2: of(2, 8, &tensor{}, &tensor{}), 3: of(3, 3, &tensor{}, &tensor{placed: true}), 4: of(4, 6, &tensor{placed: true, at: 1})}}
	for id, want := range map[int32]float64{0: 2.5, 1: 4, 2: 1} {
		if got := m.crowd(j, id); got != want {
			t.Errorf("Aggregator %d: %v times as many workers, want %v", id, got, want)
		}
	}
}

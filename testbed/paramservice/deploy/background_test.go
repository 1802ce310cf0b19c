package deploy

import (
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/aggregator"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/node"
)

// Turns of jobs that have left are not told any more, and count all the same.
func TestTurns(t *testing.T) {
	r := &runner{holds: map[control.Key]*server{}, load: map[string]int{}, Config: Config{Aggregators: []string{"h1"}, Now: func() time.Duration { return 0 }}}
	s := r.newServer(0, nil)
	first, second := control.TensorReport{Key: control.Key{Job: 1}, Runs: 1000}, control.TensorReport{Key: control.Key{Job: 2}, Runs: 10}
	told := func(tensors ...control.TensorReport) {
		if err := s.take(t.Context(), &node.Event{Event: "stats", Stats: &aggregator.Stats{AggregatorReport: control.AggregatorReport{Tensors: tensors}}}); err != nil {
			t.Fatal(err)
		}
	}
	told(first)
	told(first, second)
	second.Runs, second.Spare, second.Postponed = 900, 10, 600
	told(second)
	told()
	if want := [3]int{1290, 10, 600}; s.Turns != want {
		t.Errorf("%v, want %v", s.Turns, want)
	}
}

// Background flows go where most bytes are of jobs that are there: what the workers of each send, where it was last summed.
func TestMost(t *testing.T) {
	a, b, idle := &server{process: &process{}}, &server{process: &process{}}, &server{process: &process{}}
	first := &job{Job: Job{Job: control.Job{ID: 1, Workers: 2, Tensors: []control.Tensor{{Elements: 50}, {Elements: 60}}}}}
	second := &job{Job: Job{Job: control.Job{ID: 2, Workers: 1, Tensors: []control.Tensor{{Elements: 100}}}}}
	r := &runner{jobs: []*job{first, second}, aggs: []*server{idle, a, b}, holds: map[control.Key]*server{}}
	if got := r.most(); got != nil {
		t.Errorf("nothing was summed: %p", got)
	}
	r.holds[control.Key{Job: 1}], r.holds[control.Key{Job: 1, Tensor: 1}], r.holds[control.Key{Job: 2}] = a, b, a
	if got := r.most(); got != a {
		t.Error("100 values and 100 are less than 120")
	}
	second.out.End = 1
	if got := r.most(); got != b {
		t.Error("100 values are more than 120")
	}
	b.released = true
	if got := r.most(); got != a {
		t.Error("an Aggregator that is gone is disturbed")
	}
}

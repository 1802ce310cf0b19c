package deploy

import (
	"testing"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

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

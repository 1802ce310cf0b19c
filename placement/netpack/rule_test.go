package netpack

import (
	"reflect"
	"testing"

	"github.com/inabench/inabench/placement/cluster"
)

// Who asks why gets the same placement.
func TestExplained(t *testing.T) {
	cfg := cluster.FatTree(2, 3, 2, 10e9, 20e9, 2)
	batch := []cluster.Job{{ID: 1, GPUs: 5}, {ID: 2, GPUs: 2}, {ID: 3, GPUs: 99}, {ID: 4, GPUs: 3}}
	for _, p := range []cluster.Policy{New(Options{}), New(Options{Variant: Published}), Plus(Options{})} {
		var told []int
		q, ok := Explained(p, func(e Explanation) { told = append(told, e.Job.ID) })
		if !ok || q.Name() != p.Name() {
			t.Fatalf("%s: explained as %v", p.Name(), q)
		}
		want, got := p.Place(cluster.New(cfg), batch, 0), q.Place(cluster.New(cfg), batch, 0)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, explained %v", p.Name(), want, got)
		}
		if len(told) != len(batch) || told[3] != 3 {
			t.Errorf("%s: told of jobs %v", p.Name(), told)
		}
	}
	if _, ok := Explained(struct{ cluster.Policy }{New(Options{})}, nil); ok {
		t.Error("another policy explained")
	}
}

package policytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
)

// RunCluster checks a policy that decides on clusters, in clusters and, as
// placement.On makes it, in inventories (Run). Jobs come in batches and go over time. It
// checks that no GPU is given twice, that every placed job has exactly what it asked and
// is in the cluster as returned, that jobs that run are not moved, that the same seed
// gives the same placements, that the batch is left alone, that all jobs of a batch that
// fits get a place, and that what does not fit waits.
func RunCluster(t *testing.T, p cluster.Policy) {
	t.Run("cluster", func(t *testing.T) {
		t.Run("batches", func(t *testing.T) { batches(t, p) })
		t.Run("waits", func(t *testing.T) { waits(t, p) })
	})
	t.Run("inventory", func(t *testing.T) { Run(t, placement.On(p)) })
}

// config is a random cluster, sometimes of unequal servers or with one that has no link.
func config(rnd *rand.Rand) cluster.Config {
	const link = 1e11
	cfg := cluster.FatTree(1+rnd.IntN(3), 1+rnd.IntN(5), 1+rnd.IntN(8), link,
		[]float64{0, link / 2, link, 10 * link, math.Inf(1)}[rnd.IntN(5)], []float64{1, 4}[rnd.IntN(2)])
	switch some := rnd.IntN(len(cfg.Servers)); rnd.IntN(4) {
	case 0:
		cfg.Servers[some].GPUs += 4
		cfg.Servers[some].Link /= 4
	case 1:
		if len(cfg.Servers) > 1 {
			cfg.Servers[some].GPUs, cfg.Servers[some].Link = 0, cluster.NoLink
		}
	}
	return cfg
}

func batches(t *testing.T, p cluster.Policy) {
	rnd := source(t)
	alone, together, waited := 0, 0, 0
	for range 40 {
		cfg := config(rnd)
		w := &world{t: t, policy: p, c: cluster.New(cfg), twin: cluster.New(cfg), runs: map[int]cluster.Placement{}}
		var batch []cluster.Job
		for range 12 {
			w.leave(func() bool { return rnd.IntN(3) == 0 })
			for range rnd.IntN(4) {
				batch = append(batch, cluster.Job{
					ID: w.next, GPUs: 1 + rnd.IntN(12), PSes: rnd.IntN(3), Bytes: float64(rnd.IntN(5)) * 1e8,
					Traffic: []cluster.Traffic{cluster.INA, cluster.INA, cluster.PS, cluster.Ring, cluster.Tree}[rnd.IntN(5)],
					Compute: rnd.Float64(), Value: float64(rnd.IntN(3)),
				})
				w.next++
			}
			free, want := w.c.TotalFree(), 0
			for _, j := range batch {
				want += j.GPUs
			}
			left := w.place(batch, rnd.Uint64())
			switch {
			case want > free:
				waited += len(left)
			case len(left) > 0:
				t.Fatalf("%d GPUs wanted, %d free, and yet %+v waits", want, free, left[0])
			case len(batch) == 1:
				alone++
			case len(batch) > 1:
				together++
			}
			for i := range left {
				left[i].Waited++
			}
			batch = left
		}
		w.leave(func() bool { return true })
		w.check()
	}
	if alone == 0 || together == 0 || waited == 0 {
		t.Errorf("%d jobs alone and %d batches fitted, %d jobs waited: nothing was shown", alone, together, waited)
	}
}

// waits: jobs for which there is no room, now or ever, stay out, and harm none.
func waits(t *testing.T, p cluster.Policy) {
	cfg := cluster.FatTree(1, 2, 4, 1e11, 1e11, 1)
	w := &world{t: t, policy: p, c: cluster.New(cfg), twin: cluster.New(cfg), runs: map[int]cluster.Placement{}}
	if left := w.place(nil, 1); len(left) != 0 {
		t.Errorf("of no jobs %v wait", left)
	}
	if left := w.place([]cluster.Job{{ID: 1, GPUs: 0}, {ID: 2, GPUs: 9}}, 1); len(left) != 2 {
		t.Errorf("of a job of no GPUs and one of more than there are %v wait", left)
	}
	if left := w.place([]cluster.Job{{ID: 3, GPUs: 6}}, 1); len(left) != 0 {
		t.Errorf("%v waits in an empty cluster", left)
	}
	if left := w.place([]cluster.Job{{ID: 4, GPUs: 3}}, 1); len(left) != 1 {
		t.Error("a job of 3 GPUs does not wait where 2 are free")
	}
	w.leave(func() bool { return true })
	if left := w.place([]cluster.Job{{ID: 4, GPUs: 3, Waited: 1}}, 1); len(left) != 0 {
		t.Errorf("%v waits still", left)
	}
}

// world is a cluster under a policy, with books of its own, and the same once more.
type world struct {
	t       *testing.T
	policy  cluster.Policy
	c, twin *cluster.Cluster
	runs    map[int]cluster.Placement
	next    int // job ID
}

// leave ends some of the jobs, in the order of their IDs.
func (w *world) leave(ends func() bool) {
	w.t.Helper()
	ids := make([]int, 0, len(w.runs))
	for id := range w.runs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if !ends() {
			continue
		}
		for _, c := range []*cluster.Cluster{w.c, w.twin} {
			if err := c.Leave(id); err != nil {
				w.t.Fatal(err)
			}
		}
		delete(w.runs, id)
	}
}

// place has a batch placed and returns what waits.
func (w *world) place(batch []cluster.Job, seed uint64) (left []cluster.Job) {
	w.t.Helper()
	t, before := w.t, fmt.Sprintf("%+v", batch)
	places := w.policy.Place(w.c, batch, seed)
	if got := fmt.Sprintf("%+v", batch); got != before {
		t.Fatalf("batch changed from\n%s\nto\n%s", before, got)
	}
	if again := w.policy.Place(w.twin, batch, seed); !reflect.DeepEqual(again, places) {
		t.Fatalf("not deterministic: %v, then %v", places, again)
	}
	if len(places) != len(batch) {
		t.Fatalf("%d placements for %d jobs", len(places), len(batch))
	}
	for i, j := range batch {
		got := places[i]
		in, at, ok := w.c.Placement(j.ID)
		if len(got.Parts) == 0 {
			if ok {
				t.Fatalf("job %d waits, and runs at %v", j.ID, at)
			}
			left = append(left, j)
			continue
		}
		if !ok || at.String() != got.String() || !reflect.DeepEqual(in, j) {
			t.Fatalf("job %+v is said to be at %v, in the cluster is %+v at %v", j, got, in, at)
		}
		for _, part := range got.Parts {
			if part.GPUs < 1 || len(got.Parts) > 1 && !w.c.Servers[part.Server].Linked() {
				t.Fatalf("job %+v at %v: nothing can be done on server %d", j, got, part.Server)
			}
		}
		want := 0
		if j.NeedsPS(len(got.Parts)) {
			want = max(1, j.PSes)
		}
		if len(got.PS) != want || slices.ContainsFunc(got.PS, func(s int) bool { return !w.c.Servers[s].Linked() }) {
			t.Fatalf("job %+v at %v: want %d parameter servers where there is a link", j, got, want)
		}
		w.runs[j.ID] = got.Clone()
	}
	w.check()
	return left
}

// check holds the cluster against the books.
func (w *world) check() {
	w.t.Helper()
	total := 0
	free := make([]int, len(w.c.Servers))
	for i, s := range w.c.Servers {
		free[i] = s.GPUs
		total += s.GPUs
	}
	for id, want := range w.runs {
		j, at, ok := w.c.Placement(id)
		if !ok || !slices.Equal(at.Parts, want.Parts) || !slices.Equal(at.PS, want.PS) {
			w.t.Fatalf("job %d was placed at %v, now it is at %v", id, want, at)
		}
		gpus := 0
		for _, p := range at.Parts {
			free[p.Server] -= p.GPUs
			gpus += p.GPUs
		}
		if gpus != j.GPUs {
			w.t.Fatalf("job %d has %d GPUs and asked for %d", id, gpus, j.GPUs)
		}
		if !(w.c.Rate(id) > 0) {
			w.t.Fatalf("job %d at %v never sends: its rate is %v", id, at, w.c.Rate(id))
		}
		for _, p := range at.Spare {
			free[p.Server] -= p.GPUs
			total -= p.GPUs
		}
		total -= gpus
	}
	for i, n := range free {
		if n < 0 || n != w.c.Free(i) {
			w.t.Fatalf("server %d has %d GPUs free by the books, %d in the cluster", i, n, w.c.Free(i))
		}
	}
	if w.c.Jobs() != len(w.runs) || w.c.TotalFree() != total {
		w.t.Fatalf("%d jobs and %d free GPUs by the books, %d and %d in the cluster", len(w.runs), total, w.c.Jobs(), w.c.TotalFree())
	}
}

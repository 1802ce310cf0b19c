package policycheck

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
)

// Cluster are the checks of a policy that decides on clusters. Its twin is asked the same and must answer the same: it is
// p itself, or another instance that knows nothing of p. Jobs come in batches and go over time.
func Cluster(p, twin cluster.Policy) []Check {
	return []Check{
		{"batches", "placements are exact, deterministic, and leave running jobs alone; what fits is placed",
			func(rnd *rand.Rand) error { return batches(rnd, p, twin) }},
		{"waits", "what does not fit waits, and harms nobody",
			func(*rand.Rand) error { return waits(p, twin) }},
	}
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

// fitted counts batches by what became of them, so that a check shows something.
type fitted struct{ alone, together, waited int }

func batches(rnd *rand.Rand, p, twin cluster.Policy) error {
	var n fitted
	for range 40 {
		w := newWorld(config(rnd), p, twin)
		if err := w.live(rnd, &n); err != nil {
			return err
		}
	}
	if n.alone == 0 || n.together == 0 || n.waited == 0 {
		return fmt.Errorf("%d jobs alone and %d batches fitted, %d jobs waited: nothing was shown", n.alone, n.together, n.waited)
	}
	return nil
}

// live has jobs come and go for twelve batches, and the cluster empty in the end.
func (w *world) live(rnd *rand.Rand, n *fitted) error {
	var batch []cluster.Job
	for range 12 {
		if err := w.leave(func() bool { return rnd.IntN(3) == 0 }); err != nil {
			return err
		}
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
		left, err := w.place(batch, rnd.Uint64())
		switch {
		case err != nil:
			return err
		case want > free:
			n.waited += len(left)
		case len(left) > 0:
			return fmt.Errorf("%d GPUs wanted, %d free, and yet %+v waits", want, free, left[0])
		case len(batch) == 1:
			n.alone++
		case len(batch) > 1:
			n.together++
		}
		for i := range left {
			left[i].Waited++
		}
		batch = left
	}
	if err := w.leave(func() bool { return true }); err != nil {
		return err
	}
	return w.check()
}

// waits: jobs for which there is no room, now or ever, stay out, and harm none.
func waits(p, twin cluster.Policy) error {
	w := newWorld(cluster.FatTree(1, 2, 4, 1e11, 1e11, 1), p, twin)
	for _, step := range []struct {
		what  string
		empty bool // first
		batch []cluster.Job
		waits int
	}{
		{"of no jobs", false, nil, 0},
		{"of a job of no GPUs and one of more than there are", false, []cluster.Job{{ID: 1, GPUs: 0}, {ID: 2, GPUs: 9}}, 2},
		{"in an empty cluster, of a job that fits", false, []cluster.Job{{ID: 3, GPUs: 6}}, 0},
		{"of a job of 3 GPUs where 2 are free", false, []cluster.Job{{ID: 4, GPUs: 3}}, 1},
		{"of a job that waited, in a cluster that is empty again", true, []cluster.Job{{ID: 4, GPUs: 3, Waited: 1}}, 0},
	} {
		if step.empty {
			if err := w.leave(func() bool { return true }); err != nil {
				return err
			}
		}
		left, err := w.place(step.batch, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if len(left) != step.waits {
			return fmt.Errorf("%s, %d wait, not %d: %+v", step.what, len(left), step.waits, left)
		}
	}
	return nil
}

// world is a cluster under a policy, with books of its own, and the same once more.
type world struct {
	policy, again cluster.Policy
	c, twin       *cluster.Cluster
	runs          map[int]cluster.Placement
	next          int // job ID
}

func newWorld(cfg cluster.Config, p, twin cluster.Policy) *world {
	return &world{policy: p, again: twin, c: cluster.New(cfg), twin: cluster.New(cfg), runs: map[int]cluster.Placement{}}
}

// leave ends some of the jobs, in the order of their IDs.
func (w *world) leave(ends func() bool) error {
	for _, id := range slices.Sorted(maps.Keys(w.runs)) {
		if !ends() {
			continue
		}
		if err := errors.Join(w.c.Leave(id), w.twin.Leave(id)); err != nil {
			return err
		}
		delete(w.runs, id)
	}
	return nil
}

// place has a batch placed and returns what waits.
func (w *world) place(batch []cluster.Job, seed uint64) (left []cluster.Job, err error) {
	before := fmt.Sprintf("%+v", batch)
	places := w.policy.Place(w.c, batch, seed)
	if err := cluster.Err(w.policy); err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%+v", batch); got != before {
		return nil, fmt.Errorf("batch changed from\n%s\nto\n%s", before, got)
	}
	again := w.again.Place(w.twin, batch, seed)
	if err := cluster.Err(w.again); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(again, places) {
		return nil, fmt.Errorf("not deterministic: %v, then %v", places, again)
	}
	if len(places) != len(batch) {
		return nil, fmt.Errorf("%d placements for %d jobs", len(places), len(batch))
	}
	for i, j := range batch {
		waits, err := w.placed(j, places[i])
		if err != nil {
			return nil, err
		}
		if waits {
			left = append(left, j)
		}
	}
	return left, w.check()
}

// placed enters where a job went into the books, unless it waits.
func (w *world) placed(j cluster.Job, got cluster.Placement) (waits bool, err error) {
	in, at, ok := w.c.Placement(j.ID)
	if len(got.Parts) == 0 {
		if ok {
			return false, fmt.Errorf("job %d waits, and runs at %v", j.ID, at)
		}
		return true, nil
	}
	if !ok || at.String() != got.String() || !reflect.DeepEqual(in, j) {
		return false, fmt.Errorf("job %+v is said to be at %v, in the cluster is %+v at %v", j, got, in, at)
	}
	for _, part := range got.Parts {
		if part.GPUs < 1 || len(got.Parts) > 1 && !w.c.Servers[part.Server].Linked() {
			return false, fmt.Errorf("job %+v at %v: nothing can be done on server %d", j, got, part.Server)
		}
	}
	want := 0
	if j.NeedsPS(len(got.Parts)) {
		want = max(1, j.PSes)
	}
	if len(got.PS) != want || slices.ContainsFunc(got.PS, func(s int) bool { return !w.c.Servers[s].Linked() }) {
		return false, fmt.Errorf("job %+v at %v: want %d parameter servers where there is a link", j, got, want)
	}
	w.runs[j.ID] = got.Clone()
	return false, nil
}

// check holds the cluster against the books.
func (w *world) check() error {
	total := 0
	free := make([]int, len(w.c.Servers))
	for i, s := range w.c.Servers {
		free[i] = s.GPUs
		total += s.GPUs
	}
	for id, want := range w.runs {
		j, at, ok := w.c.Placement(id)
		if !ok || !slices.Equal(at.Parts, want.Parts) || !slices.Equal(at.PS, want.PS) {
			return fmt.Errorf("job %d was placed at %v, now it is at %v", id, want, at)
		}
		gpus := 0
		for _, p := range at.Parts {
			free[p.Server] -= p.GPUs
			gpus += p.GPUs
		}
		if gpus != j.GPUs {
			return fmt.Errorf("job %d has %d GPUs and asked for %d", id, gpus, j.GPUs)
		}
		if !(w.c.Rate(id) > 0) {
			return fmt.Errorf("job %d at %v never sends: its rate is %v", id, at, w.c.Rate(id))
		}
		for _, p := range at.Spare {
			free[p.Server] -= p.GPUs
			total -= p.GPUs
		}
		total -= gpus
	}
	for i, n := range free {
		if n < 0 || n != w.c.Free(i) {
			return fmt.Errorf("server %d has %d GPUs free by the books, %d in the cluster", i, n, w.c.Free(i))
		}
	}
	if w.c.Jobs() != len(w.runs) || w.c.TotalFree() != total {
		return fmt.Errorf("%d jobs and %d free GPUs by the books, %d and %d in the cluster", len(w.runs), total, w.c.Jobs(), w.c.TotalFree())
	}
	return nil
}

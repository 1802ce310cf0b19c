package queue

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/cluster"
)

var seed = flag.Uint64("seed", 1, "of random jobs")

// job is one that comes, in whole seconds. Its ID is its place in a list.
type job struct{ submit, gpus, seconds int }

const (
	gpus  = 8 // of the clusters here, on four servers
	never = -1
)

// world runs jobs in a cluster for as long as they are estimated to, second by second.
type world struct {
	c       *cluster.Cluster
	jobs    []job
	start   []int // never: not yet
	waiting []int
}

func newWorld(jobs []job) *world {
	w := &world{c: cluster.New(cluster.FatTree(2, 2, gpus/4, 1e11, 1e12, 1)), jobs: jobs, start: make([]int, len(jobs))}
	for i := range w.start {
		w.start[i] = never
	}
	return w
}

// run has a queue place the jobs, and looks at the world after every batch.
func (w *world) run(t *testing.T, q *Queue, look func(now int)) {
	t.Helper()
	for now := 0; slices.Contains(w.start, never); now++ {
		if now > 10_000 {
			t.Fatalf("%v never all start: %v", w.jobs, w.start)
		}
		var batch []cluster.Job
		for i, j := range w.jobs {
			if w.start[i] != never && w.start[i]+j.seconds == now {
				if err := w.c.Leave(i); err != nil {
					t.Fatal(err)
				}
			}
			if j.submit == now {
				w.waiting = append(w.waiting, i)
			}
		}
		for _, i := range w.waiting {
			batch = append(batch, cluster.Job{ID: i, GPUs: w.jobs[i].gpus, Seconds: float64(w.jobs[i].seconds)})
		}
		placed := q.Place(w.c, float64(now), batch, 1)
		var still []int
		for k, i := range w.waiting {
			_, _, runs := w.c.Placement(i)
			if runs != (len(placed[k].Parts) > 0) {
				t.Fatalf("job %d runs: %t, placed at %+v", i, runs, placed[k])
			}
			if runs {
				w.start[i] = now
			} else {
				still = append(still, i)
			}
		}
		w.waiting = still
		look(now)
	}
}

// first is the earliest second from now on at which so many GPUs are free, of those that jobs take that run now and count, spare
// ones as well, if none starts before.
func (w *world) first(now, want int, counts func(i int) bool) int {
	for at := now; ; at++ {
		free := gpus
		for i, j := range w.jobs {
			if w.start[i] != never && at < w.start[i]+j.seconds && counts(i) {
				free -= held(w.c, i)
			}
		}
		if free >= want {
			return at
		}
	}
}

// reference is when jobs start by a discipline, found without a reservation: a job behind the head of the line may start if
// the head could then start no later than without it, which is tried.
func reference(jobs []job, d Discipline) []int {
	start := make([]int, len(jobs))
	for i := range start {
		start[i] = never
	}
	free := func(at int) int {
		n := gpus
		for i, j := range jobs {
			if start[i] != never && start[i] <= at && at < start[i]+j.seconds {
				n -= j.gpus
			}
		}
		return n
	}
	first := func(now, want int) int {
		for free(now) < want {
			now++
		}
		return now
	}
	for now := 0; slices.Contains(start, never); now++ {
		head := never
		for i, j := range jobs {
			switch {
			case j.submit > now || start[i] != never:
			case head == never && j.gpus <= free(now):
				start[i] = now
			case head == never:
				head = i
			case d == Backfill && j.gpus <= free(now):
				promised := first(now, jobs[head].gpus)
				if start[i] = now; first(now, jobs[head].gpus) > promised {
					start[i] = never
				}
			}
		}
	}
	return start
}

// random is jobs in the order of submission, for more GPUs than there are.
func random(r *rand.Rand) []job {
	jobs := make([]job, 5+r.IntN(20))
	at := 0
	for i := range jobs {
		at += r.IntN(3)
		jobs[i] = job{at, 1 + r.IntN(gpus), 1 + r.IntN(12)}
	}
	return jobs
}

// By hand: eight GPUs, of which the first job has six for ten seconds. The second wants all; it is the head of the line.
func TestByHand(t *testing.T) {
	for _, tt := range []struct {
		name           string
		jobs           []job
		fcfs, backfill []int
	}{
		{
			"a short one ends before the head starts, a long one would not",
			[]job{{0, 6, 10}, {1, 8, 5}, {1, 2, 20}, {2, 2, 7}},
			[]int{0, 10, 15, 15}, []int{0, 10, 15, 2},
		},
		{
			"beside a head of seven GPUs there is room for one, not for two",
			[]job{{0, 6, 10}, {1, 7, 5}, {1, 1, 20}, {2, 1, 20}},
			[]int{0, 10, 10, 15}, []int{0, 10, 1, 15},
		},
		{
			"who ends as the head starts does not delay it",
			[]job{{0, 6, 10}, {1, 8, 5}, {2, 2, 8}, {2, 2, 9}},
			[]int{0, 10, 15, 15}, []int{0, 10, 2, 15},
		},
		{
			"only the head has a reservation: the third job waits longer for the fourth",
			[]job{{0, 6, 10}, {1, 7, 5}, {1, 8, 5}, {2, 1, 20}},
			[]int{0, 10, 15, 20}, []int{0, 10, 22, 2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for d, want := range map[Discipline][]int{FCFS: tt.fcfs, Backfill: tt.backfill} {
				w := newWorld(tt.jobs)
				w.run(t, New(d, baseline.FirstFit()), func(int) {})
				if diff := cmp.Diff(want, w.start); diff != "" {
					t.Errorf("%s: starts (-want +got):\n%s", d, diff)
				}
				if diff := cmp.Diff(want, reference(tt.jobs, d)); diff != "" {
					t.Errorf("%s: the reference's starts (-want +got):\n%s", d, diff)
				}
			}
		})
	}
}

// TestReference: random jobs start when the reference starts them.
func TestReference(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 0))
	earlier := 0
	for range 200 {
		jobs := random(r)
		for _, d := range []Discipline{FCFS, Backfill} {
			w := newWorld(jobs)
			w.run(t, New(d, baseline.FirstFit()), func(int) {})
			if diff := cmp.Diff(reference(jobs, d), w.start); diff != "" {
				t.Fatalf("-seed=%d: %s of %v: starts (-want +got):\n%s", *seed, d, jobs, diff)
			}
			if d == Backfill && !slices.IsSorted(w.start) {
				earlier++
			}
		}
	}
	if earlier == 0 {
		t.Error("nobody ever started before an older job: backfilling was not tried")
	}
}

// policies are some that place in different ways; one takes spare GPUs.
func policies() []cluster.Policy {
	return []cluster.Policy{baseline.FirstFit(), baseline.Random(), baseline.Comb(), baseline.ElasticFlow().PowerOfTwo()}
}

// TestInOrder: whatever the policy, nobody starts before an older job under FCFS.
func TestInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	for range 50 {
		jobs := random(r)
		for _, p := range policies() {
			w := newWorld(jobs)
			w.run(t, New(FCFS, p), func(int) {})
			if !slices.IsSorted(w.start) {
				t.Fatalf("-seed=%d: %s starts %v at %v", *seed, p.Name(), jobs, w.start)
			}
		}
	}
}

// TestPromise: with exact estimates nobody who starts behind the head of the line delays it, whatever the policy, and with spare
// GPUs: it starts no later than it could have if nobody had passed it.
func TestPromise(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 2))
	for range 50 {
		jobs := random(r)
		for _, p := range policies() {
			w := newWorld(jobs)
			promised := map[int]int{}
			w.run(t, New(Backfill, p), func(now int) {
				if len(w.waiting) == 0 {
					return
				}
				head := w.waiting[0]
				promise := w.first(now, jobs[head].gpus, func(i int) bool { return i < head || w.start[i] < now })
				if before, ok := promised[head]; ok {
					promise = min(promise, before)
				}
				promised[head] = promise
				if at := w.first(now, jobs[head].gpus, func(int) bool { return true }); at > promise {
					t.Fatalf("-seed=%d: %s: at %d job %d of %v is delayed from %d to %d", *seed, p.Name(), now, head, jobs, promise, at)
				}
			})
			for head, at := range promised {
				if w.start[head] > at {
					t.Errorf("-seed=%d: %s: job %d of %v starts at %d, promised for %d", *seed, p.Name(), head, jobs, w.start[head], at)
				}
			}
		}
	}
}

// TestNoEstimate: behind a job that may run for ever nobody knows when the head of the line starts, so nobody passes it but who
// fits beside it.
func TestNoEstimate(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 4, 2, 1e11, 1e12, 1))
	q := New(Backfill, baseline.FirstFit())
	placed := q.Place(c, 0, []cluster.Job{{ID: 1, GPUs: 4}, {ID: 2, GPUs: 6, Seconds: 1}, {ID: 3, GPUs: 3, Seconds: 1}, {ID: 4, GPUs: 2}}, 1)
	if len(placed[0].Parts) == 0 || len(placed[1].Parts)+len(placed[2].Parts) > 0 || len(placed[3].Parts) == 0 {
		t.Errorf("%+v: want jobs 1 and 4", placed)
	}
}

// TestOverdue: a job that outlived its estimate may end at any moment, so nobody who needs its GPUs starts before the head.
func TestOverdue(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 4, 2, 1e11, 1e12, 1))
	q := New(Backfill, baseline.FirstFit())
	old, head := cluster.Job{ID: 1, GPUs: 6, Seconds: 10}, cluster.Job{ID: 2, GPUs: 7, Seconds: 1}
	q.Place(c, 0, []cluster.Job{old, head}, 1)
	placed := q.Place(c, 11, []cluster.Job{head, {ID: 3, GPUs: 2, Seconds: 1}, {ID: 4, GPUs: 1, Seconds: 1}}, 1)
	if len(placed[0].Parts)+len(placed[1].Parts) > 0 || len(placed[2].Parts) == 0 {
		t.Errorf("%+v: want job 4 alone, on the GPU beside the head's", placed)
	}
}

// several answers for more jobs than it was asked about.
type several struct{ cluster.Policy }

func (several) Place(*cluster.Cluster, []cluster.Job, uint64) []cluster.Placement {
	return make([]cluster.Placement, 2)
}

// TestPolicy: without another discipline the policy gets the whole batch, and its answer is the queue's.
func TestPolicy(t *testing.T) {
	c := cluster.New(cluster.FatTree(1, 1, 2, 1e11, 1e12, 1))
	p := several{baseline.FirstFit()}
	for _, d := range []Discipline{"", Policy} {
		if placed := New(d, p).Place(c, 0, []cluster.Job{{ID: 1, GPUs: 2}}, 1); len(placed) != 2 {
			t.Errorf("%q: %d placements, the policy said 2", d, len(placed))
		}
	}
	for _, d := range []Discipline{FCFS, Backfill} {
		q := New(d, p)
		if placed := q.Place(c, 0, []cluster.Job{{ID: 1, GPUs: 2}}, 1); placed != nil {
			t.Errorf("%s: %+v of a policy that broke its contract", d, placed)
		}
		if err := q.Err(); err == nil || err.Error() != "first-fit returned 2 placements for one job" {
			t.Errorf("%s: error %v", d, err)
		}
	}
	if q := New(FCFS, p); q.Name() != "first-fit" {
		t.Errorf("the queue of first-fit is called %s", q.Name())
	}
}

// TestCheck: what is no discipline is an error that names those there are.
func TestCheck(t *testing.T) {
	for _, d := range append(Disciplines(), "") {
		if err := Discipline(d).Check(); err != nil {
			t.Errorf("%q: %v", d, err)
		}
	}
	if err := Discipline("lifo").Check(); err == nil || err.Error() != `unknown queue discipline "lifo": one of policy, fcfs, backfill` {
		t.Errorf("error %v", err)
	}
}

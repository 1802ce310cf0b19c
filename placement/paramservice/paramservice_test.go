package paramservice

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var seed = flag.Uint64("paramservice.seed", 0, "of random tests; 0: a new one")

// random is a generator whose seed is printed.
func random(t testing.TB) *rand.Rand {
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("-paramservice.seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}

const unit = time.Millisecond

func units(n ...int) []time.Duration {
	out := make([]time.Duration, len(n))
	for i := range n {
		out[i] = time.Duration(n[i]) * unit
	}
	return out
}

func job(name string, iteration int, tasks ...int) Job {
	return Job{Name: name, Iteration: time.Duration(iteration) * unit, Tasks: units(tasks...)}
}

func assign(t testing.TB, c *Cluster, j Job) Change {
	t.Helper()
	change, err := c.Assign(j, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

// J1 of Figure 5 has an iteration of 6 and needs 2, J2 of 12 and 3.
func TestFigure5(t *testing.T) {
	for _, tt := range []struct {
		jobs  []Job
		cycle int
		work  int
		runs  []int64
	}{
		{[]Job{job("J1", 6, 2)}, 6, 2, []int64{1}},
		{[]Job{job("J2", 12, 3)}, 12, 3, []int64{1}},
		{[]Job{job("J1", 6, 2), job("J2", 12, 3)}, 12, 7, []int64{2, 1}},
		{[]Job{job("J2", 12, 3), job("J1", 6, 2)}, 12, 7, []int64{2, 1}},
	} {
		c := NewCluster(Default(), nil)
		for _, j := range tt.jobs {
			assign(t, c, j)
		}
		got := c.Aggregators()
		if len(got) != 1 || got[0].Cycle != time.Duration(tt.cycle)*unit || got[0].Work != time.Duration(tt.work)*unit {
			t.Fatalf("%v: %+v, want one with %d of %d", tt.jobs, got, tt.work, tt.cycle)
		}
		for i, l := range got[0].Loads {
			if l.Runs != tt.runs[i] {
				t.Errorf("%s runs %d times, want %d", l.Job, l.Runs, tt.runs[i])
			}
		}
	}
}

// The text's example: beside J2, an iteration of 5 becomes one of 6, a loss of 17 %.
func TestLoss(t *testing.T) {
	if got := Loss(12, 5); got < 0.166 || got > 0.167 {
		t.Errorf("loss %v, want 1/6", got)
	}
	c := NewCluster(Default(), nil)
	assign(t, c, job("short", 5, 1))
	assign(t, c, job("J2", 12, 3))
	if c.Size() != 2 || c.Loss("short") != 0 {
		t.Errorf("%d Aggregators, loss %v: want 2 and none", c.Size(), c.Loss("short"))
	}
	// The other way round it is the new job that would lose.
	c = NewCluster(Default(), nil)
	assign(t, c, job("J2", 12, 3))
	assign(t, c, job("short", 5, 1))
	if c.Size() != 2 {
		t.Errorf("%d Aggregators, want 2", c.Size())
	}
	// A loss as large as the limit is allowed.
	c = NewCluster(Options{LossLimit: 0.1}, nil)
	assign(t, c, job("a", 9, 1))
	assign(t, c, job("b", 10, 1))
	if c.Size() != 1 || c.Loss("a") != 0.1 {
		t.Errorf("%d Aggregators, loss %v: want 1 and 0.1", c.Size(), c.Loss("a"))
	}
}

// Pseudocode 1 as printed takes a tensor that runs six times a cycle for the room of one,
// and does not look at what the new job loses.
func TestPrinted(t *testing.T) {
	o := Default()
	o.Printed = true
	c := NewCluster(o, nil)
	assign(t, c, job("slow", 12, 10))
	assign(t, c, job("fast", 2, 2))
	if a := c.Aggregators()[0]; a.Work <= a.Cycle {
		t.Errorf("%v of %v: not more than it can do", a.Work, a.Cycle)
	}
	c = NewCluster(o, nil)
	assign(t, c, job("slow", 12, 3))
	assign(t, c, job("new", 7, 1))
	if c.Loss("new") <= o.LossLimit {
		t.Errorf("loss %v: not more than the limit", c.Loss("new"))
	}
	for _, jobs := range [][]Job{{job("slow", 12, 10), job("fast", 2, 2)}, {job("slow", 12, 3), job("new", 7, 1)}} {
		c := NewCluster(Default(), nil)
		for _, j := range jobs {
			assign(t, c, j)
		}
		if c.Size() != 2 {
			t.Errorf("corrected: %d Aggregators for %v, want 2", c.Size(), jobs)
		}
		check(t, c)
	}
}

// How often that happens among random jobs, and what it saves.
func TestPrintedOverload(t *testing.T) {
	r := random(t)
	size := [2]int{}
	over, worst, lost := 0, 0.0, 0
	for range 20 {
		o := Default()
		o.Most = 0
		corrected, printed := NewCluster(o, nil), NewCluster(o, nil)
		printed.o.Printed = true
		for i := range 100 {
			j := randomJob(r, fmt.Sprint("job", i))
			assign(t, corrected, j)
			assign(t, printed, j)
		}
		size[0] += corrected.Size()
		size[1] += printed.Size()
		for _, a := range printed.Aggregators() {
			if a.Work > a.Cycle {
				over++
				worst = max(worst, float64(a.Work)/float64(a.Cycle))
			}
		}
		for _, name := range printed.Jobs() {
			if printed.Loss(name) > o.LossLimit {
				lost++
			}
		}
	}
	t.Logf("2000 jobs: %d Aggregators; as printed %d, of which %d have more work than time, up to %.2f times; %d jobs lose more than the limit", size[0], size[1], over, worst, lost)
	if over == 0 || lost == 0 {
		t.Error("nothing is wrong with it")
	}
}

// A cycle is kept when the job that it came from leaves, where a shorter one would break the limit.
func TestCycleIsKept(t *testing.T) {
	c := NewCluster(Default(), nil)
	for _, j := range []Job{job("a", 10, 1), job("c", 20, 1), job("b", 19, 1)} {
		assign(t, c, j)
	}
	if c.Size() != 1 {
		t.Fatalf("%d Aggregators, want 1", c.Size())
	}
	if _, err := c.Remove("c"); err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if got := c.Aggregators()[0].Cycle; got != 20*unit {
		t.Errorf("cycle %v, want 20", got)
	}
	if _, err := c.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if got := c.Aggregators()[0].Cycle; got != 19*unit {
		t.Errorf("cycle %v, want 19", got)
	}
}

// check holds a cluster to what must always be true of it.
func check(t testing.TB, c *Cluster) {
	t.Helper()
	exec := map[string]map[int]time.Duration{}
	for name, p := range c.jobs {
		exec[name] = map[int]time.Duration{}
		for task, id := range p.at {
			exec[name][id] += p.Tasks[task]
		}
	}
	losses := c.Losses()
	for name := range c.jobs {
		if losses[name] != c.Loss(name) || len(losses) != len(c.jobs) {
			t.Fatalf("losses %v, of %s %v", losses, name, c.Loss(name))
		}
	}
	last := -1
	for _, a := range c.Aggregators() {
		if a.ID <= last {
			t.Fatalf("Aggregator %d after %d", a.ID, last)
		}
		last = a.ID
		var work time.Duration
		var longest time.Duration
		var slots []Slot
		for _, l := range a.Loads {
			work += time.Duration(l.Runs) * l.Exec
			longest = max(longest, l.Iteration)
			slots = append(slots, Slot{l.Iteration, l.Exec})
			if got := exec[l.Job][a.ID]; got != l.Exec {
				t.Fatalf("Aggregator %d has %v of job %s, its tensors are %v", a.ID, l.Exec, l.Job, got)
			}
			delete(exec[l.Job], a.ID)
			if loss := Loss(a.Cycle, l.Iteration); loss > c.o.LossLimit {
				t.Fatalf("Aggregator %d: job %s loses %v", a.ID, l.Job, loss)
			}
		}
		if work != a.Work || work > a.Cycle || a.Cycle < longest {
			t.Fatalf("Aggregator %d: work %v (%v), cycle %v, longest iteration %v", a.ID, work, a.Work, a.Cycle, longest)
		}
		if len(slots) > 0 {
			if _, err := NewSlots(a.Cycle, slots); err != nil {
				t.Fatalf("Aggregator %d: %v", a.ID, err)
			}
		}
	}
	for name, rest := range exec {
		for id, e := range rest {
			if e > 0 {
				t.Fatalf("job %s has %v on Aggregator %d, which knows nothing of it", name, e, id)
			}
		}
	}
}

func randomJob(r *rand.Rand, name string) Job {
	iteration := []int{40, 60, 61, 80, 100, 120, 240, 250}[r.IntN(8)]
	j := job(name, iteration)
	j.Servers = r.IntN(5)
	n := 1 + r.IntN(12)
	budget := iteration * 1000 / 2
	for range n {
		j.Tasks = append(j.Tasks, time.Duration(1+r.IntN(budget/n))*time.Microsecond)
	}
	return j
}

// Whatever comes and goes, no Aggregator is over its cycle, no job over its limit, every
// tensor in one place, and nothing is left in the end.
func TestClusterProperties(t *testing.T) {
	r := random(t)
	for round := range 60 {
		o := Default()
		o.Most = []int{0, 8, 32}[r.IntN(3)]
		c := NewCluster(o, nil)
		for step := range 60 {
			names := c.Jobs()
			switch k := r.IntN(10); {
			case k < 5:
				before := c.Size()
				j := randomJob(r, fmt.Sprint("job", step))
				change, err := c.Assign(j, r.IntN(4))
				if err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				if err == nil && (len(change.Moves) != len(j.Tasks) || c.Size() != before+len(change.Allocated)) {
					t.Fatalf("%d moves of %d tensors, %d Aggregators and before %d: %+v", len(change.Moves), len(j.Tasks), c.Size(), before, change)
				}
			case k < 7 && len(names) > 0:
				if _, err := c.Remove(names[r.IntN(len(names))]); err != nil {
					t.Fatal(err)
				}
				checkMoves(t, c, c.Recycle)
				c.Release(r.IntN(2))
			case k == 8 && len(names) > 0:
				checkMoves(t, c, func() Change {
					change, err := c.Reassign(names[r.IntN(len(names))], 1+r.IntN(3))
					if err != nil && (!errors.Is(err, ErrFull) || !change.Empty()) {
						t.Fatal(err, change)
					}
					return change
				})
			case k == 9 && c.Size() > 0:
				id := c.aggs[r.IntN(c.Size())].id
				checkMoves(t, c, func() Change {
					change, err := c.Evacuate(id, r.IntN(2))
					if err != nil {
						t.Fatal(err)
					}
					return change
				})
				c.Recover(id)
			}
			check(t, c)
			if o.Most > 0 && c.Size() > o.Most {
				t.Fatalf("round %d: %d Aggregators", round, c.Size())
			}
		}
		for _, name := range c.Jobs() {
			if _, err := c.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		if c.Release(0); c.Size() != 0 {
			t.Fatalf("%d Aggregators remain", c.Size())
		}
	}
}

// checkMoves holds a change to where tensors were before and are after it.
func checkMoves(t testing.TB, c *Cluster, do func() Change) {
	t.Helper()
	where := map[string][]int{}
	for _, name := range c.Jobs() {
		where[name] = c.Where(name)
	}
	for _, m := range do().Moves {
		if where[m.Job][m.Task] != m.From || m.From == m.To {
			t.Fatalf("%+v: it is on %d", m, where[m.Job][m.Task])
		}
		where[m.Job][m.Task] = m.To
	}
	for name, w := range where {
		if got := c.Where(name); !slices.Equal(got, w) {
			t.Fatalf("job %s is on %v, by the moves on %v", name, got, w)
		}
	}
}

// The order in which a job lists its tensors does not matter to what Aggregators have to do.
func TestOrderOfTensors(t *testing.T) {
	r := random(t)
	for range 100 {
		a, b := NewCluster(Default(), nil), NewCluster(Default(), nil)
		for i := range 6 {
			j := randomJob(r, fmt.Sprint("job", i))
			k := j
			k.Tasks = slices.Clone(j.Tasks)
			r.Shuffle(len(k.Tasks), func(x, y int) { k.Tasks[x], k.Tasks[y] = k.Tasks[y], k.Tasks[x] })
			assign(t, a, j)
			assign(t, b, k)
		}
		if x, y := fmt.Sprint(a.Aggregators()), fmt.Sprint(b.Aggregators()); x != y {
			t.Fatalf("in one order\n%s\nin another\n%s", x, y)
		}
	}
}

// A job has as many Aggregators as it had servers when it was profiled, and the most loaded of them
// no more of it than then. Other jobs share them.
func TestSpread(t *testing.T) {
	c := NewCluster(Default(), nil)
	for i := range 4 {
		j := job(fmt.Sprint("VGG19-", i), 600, 70, 10, 10, 10, 10, 5, 5)
		j.Servers = 2
		assign(t, c, j)
	}
	if c.Size() != 2 {
		t.Fatalf("%d Aggregators for 4 jobs of 2 servers at 16 %%, want 2 as in Figure 8", c.Size())
	}
	for _, a := range c.Aggregators() {
		for _, l := range a.Loads {
			if l.Exec > 70*unit {
				t.Errorf("Aggregator %d has %v of %s", a.ID, l.Exec, l.Job)
			}
		}
	}
}

func TestBadJobs(t *testing.T) {
	c := NewCluster(Options{LossLimit: 0.1, Most: 1}, nil)
	assign(t, c, job("a", 10, 6))
	for _, tt := range []struct {
		job  Job
		want error
	}{
		{job("", 10, 1), ErrJob},
		{job("b", 0, 1), ErrJob},
		{job("b", 10), ErrJob},
		{job("b", 10, 11), ErrJob},
		{job("b", 10, -1), ErrJob},
		{Job{Name: "b", Iteration: unit, Tasks: units(1), Servers: -1}, ErrJob},
		{job("a", 10, 1), ErrKnown},
		{job("b", 10, 6), ErrFull},
	} {
		if change, err := c.Assign(tt.job, 9); !errors.Is(err, tt.want) || !change.Empty() {
			t.Errorf("%+v: %v, want %v", tt.job, err, tt.want)
		}
	}
	if _, err := c.Remove("b"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := c.Evacuate(7, 0); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	check(t, c)
}

// bigJob is one of n tensors that needs some part of a core, with a few large tensors as models have.
func bigJob(r *rand.Rand, name string, n int) Job {
	iteration := time.Duration(100+20*r.IntN(20)) * time.Millisecond
	j := Job{Name: name, Iteration: iteration, Servers: 4}
	part := float64(iteration) * (0.2 + 0.6*r.Float64()) / float64(n)
	for range n {
		j.Tasks = append(j.Tasks, time.Duration(part*r.ExpFloat64()))
	}
	for i := range j.Tasks {
		j.Tasks[i] = min(j.Tasks[i], iteration/4)
	}
	return j
}

// Assigning one job of 400 tensors where 1,000 Aggregators have jobs already, in one cluster or in
// many, pMaster's choice of the cluster included; and 1,000 jobs one after the other.
func BenchmarkAssign(b *testing.B) {
	for _, most := range []int{32, 0} {
		b.Run(fmt.Sprintf("cluster=%d", most), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			o := DefaultMaster()
			o.Most = most
			m := NewMaster(o)
			for i := 0; m.Size() < 1000; i++ {
				arrive(b, m, bigJob(r, fmt.Sprint("job", i), 400))
			}
			one := bigJob(r, "one", 400)
			if _, err := m.Arrive("one", 4, make([]int64, 400)); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := m.Profiled("one", one.Iteration, one.Tasks); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if _, err := m.Exit("one"); err != nil {
					b.Fatal(err)
				}
				if _, err := m.Arrive("one", 4, make([]int64, 400)); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(m.Size()), "Aggregators")
			b.ReportMetric(float64(len(m.Clusters())), "clusters")
		})
	}
	b.Run("jobs=1000", func(b *testing.B) {
		r := rand.New(rand.NewPCG(1, 1))
		var jobs []Job
		for i := range 1000 {
			jobs = append(jobs, bigJob(r, fmt.Sprint("job", i), 400))
		}
		demand, size := 0.0, 0
		for _, j := range jobs {
			demand += j.Demand()
		}
		for b.Loop() {
			m := NewMaster(DefaultMaster())
			for _, j := range jobs {
				arrive(b, m, j)
			}
			size = m.Size()
		}
		b.ReportMetric(float64(size), "Aggregators")
		b.ReportMetric(demand, "cores-needed")
	})
}

func arrive(t testing.TB, m *Master, j Job) Change {
	t.Helper()
	change, err := m.Arrive(j.Name, max(j.Servers, 1), make([]int64, len(j.Tasks)))
	if err != nil {
		t.Fatal(err)
	}
	more, err := m.Profiled(j.Name, j.Iteration, j.Tasks)
	if err != nil {
		t.Fatal(err)
	}
	change.add(more)
	return change
}

package client_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/client"
)

// BenchmarkMigration is what a worker sees of the migration of all tensors of its job from one
// group of Aggregators to another (Table 3): the median, over 50 of them, of the time by which
// three iterations take longer than the three after them, which are not disturbed: in the first it
// learns of the new places, in the second its gradients go there, and in the third it has to have what
// became of them. Those do not count in which the worker was late by more than a twentieth of an
// iteration, because of what else this machine does; "low" and "high" have the median between them in
// 95 of 100 cases.
// The job has 16 tensors of 1 MiB, two workers that compute for 100 ms, and two
// Aggregators in a group.
func BenchmarkMigration(b *testing.B) {
	const migrations, most, every = 50, 80, 6
	j := newJob(2)
	l := client.Loop{Iterations: (most + 1) * every}
	for range 16 {
		j.Tensors = append(j.Tensors, newJob(1, 1<<18).Tensors[0])
		l.Forward = append(l.Forward, 2*time.Millisecond)
		l.Backward = append(l.Backward, 4250*time.Microsecond)
	}
	s := newService(b, j, 4, nil)
	s.master.start()
	group := 0
	begin := make(chan struct{}, 1)
	s.wg.Go(func() {
		for range begin {
			group = 2 - group
			for t := range j.Tensors {
				s.master.migrate(t, int32(group+t%2))
			}
		}
	})
	var all []client.Iteration
	var wg sync.WaitGroup
	for r, a := range s.agents {
		l := l
		if r == 0 {
			l.Done = func(it client.Iteration) {
				if all = append(all, it); it.Number%every == every-1 {
					begin <- struct{}{}
				}
			}
		}
		wg.Go(func() {
			if err := a.Run(s.ctx, l); err != nil {
				b.Error(err)
			}
		})
	}
	for b.Loop() {
		wg.Wait()
	}
	close(begin)
	if b.Failed() {
		return
	}
	var plain, longer []time.Duration // of three iterations
	moves, late := 0, 0
	for i := every; i+every <= len(all) && len(longer) < migrations; i += every {
		if slices.ContainsFunc(all[i:i+every], func(it client.Iteration) bool { return it.Late > it.Spent/20 }) {
			late++
			continue
		}
		sum := func(its []client.Iteration) (spent time.Duration) {
			for _, it := range its {
				spent += it.Spent
			}
			return spent
		}
		p := sum(all[i+3 : i+6])
		plain, longer = append(plain, p), append(longer, sum(all[i:i+3])-p)
		moves += all[i].Moved + all[i+1].Moved
	}
	if len(longer) < migrations {
		b.Fatalf("%d of %d migrations were not disturbed by what else this machine does", len(longer), len(longer)+late)
	}
	slices.Sort(plain)
	slices.Sort(longer)
	one := plain[migrations/2].Seconds() / 3
	at := func(i float64) float64 { return longer[int(math.Round(i))].Seconds() }
	const middle = (migrations - 1.) / 2
	half := 0.98 * math.Sqrt(migrations) // by the binomial distribution
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(1e3*one, "iteration-ms")
	b.ReportMetric(1e3*at(middle), "longer-ms")
	b.ReportMetric(100*at(middle)/one, "longer-%")
	b.ReportMetric(100*at(middle-half)/one, "longer-%-low")
	b.ReportMetric(100*at(middle+half)/one, "longer-%-high")
	b.ReportMetric(migrations, "migrations")
	b.ReportMetric(float64(late), "not-counted")
	b.ReportMetric(float64(moves)/migrations, "tensors")
}

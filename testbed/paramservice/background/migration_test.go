package background_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/testbed/paramservice/client"
)

// BenchmarkMigration is what a worker sees of the migration of all tensors of its job from one group of
// Aggregators to another, on hosts and links of their own (Table 3): the median, over 50 of them, of the
// time by which the iterations in which tensors move, from the order until the copies are there, take
// longer together than as many after them, with the interval that has it in 95 of 100 cases. Iterations
// do not count in which worker 0 was late by more than a twentieth of an iteration, because of what else
// this machine does, and no migration in which that are more than half.
func BenchmarkMigration(b *testing.B) {
	for _, c := range []struct {
		model string
		times float64
	}{{"alexnet", 1}, {"vgg19", 6}, {"awd-lstm", 2}, {"bert-base", 1}} {
		b.Run(c.model, func(b *testing.B) {
			const migrations, most = 50, 150
			const servers, workers = 2, 2
			var longer []float64 // s
			var all []client.Iteration
			var lasted []int // iterations
			late, moved := 0, 0
			for range b.N { // once takes a minute
				l := newLab(b, 2*servers, workers)
				plan := paramservice.DefaultMaster()
				plan.Periodic, plan.LowPerf = true, 0 // Aggregators stay, and nothing else moves
				s := l.serve(plan)
				tr, j := s.begin(model(b, c.model, servers, workers, c.times), math.MaxInt32)
				tr.past(5)
				for range most {
					i := tr.past(0)
					if err := s.m.Move(l.ctx, j.ID); err != nil {
						b.Fatal(err)
					}
					its := tr.moved(i, len(j.Tensors))
					k := len(its) / 2
					with, n := undisturbed(its[:k])
					without, m := undisturbed(its[k:])
					for _, it := range its {
						moved += it.Moved
					}
					lasted = append(lasted, k)
					all = append(all, its[k:]...)
					if 2*min(n, m) < k {
						late++
						continue
					}
					longer = append(longer, float64(k)*(with-without).Seconds())
					if len(longer) == migrations {
						break
					}
				}
				tr.stop()
				s.close()
			}
			var ls []time.Duration
			for _, it := range all {
				ls = append(ls, it.Late)
			}
			slices.Sort(ls)
			b.Log("late", ls[len(ls)/10], ls[len(ls)/2], ls[len(ls)*9/10], ls[len(ls)-1])
			if len(longer) < migrations {
				b.Fatalf("%d of %d migrations were not disturbed by what else this machine does", len(longer), len(longer)+late)
			}
			slices.Sort(longer)
			// By the binomial distribution, as for any median.
			half := 0.98 * math.Sqrt(float64(len(longer)))
			at := func(i float64) float64 { return longer[int(math.Round(i))] }
			middle := float64(len(longer)-1) / 2
			one := 1 / between(all)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(1e3*one, "iteration-ms")
			b.ReportMetric(1e3*at(middle), "longer-ms")
			b.ReportMetric(100*at(middle)/one, "longer-%")
			b.ReportMetric(100*at(middle-half)/one, "longer-%-low")
			b.ReportMetric(100*at(middle+half)/one, "longer-%-high")
			slices.Sort(lasted)
			b.ReportMetric(float64(lasted[len(lasted)/2]), "iterations")
			b.ReportMetric(float64(len(longer)), "migrations")
			b.ReportMetric(float64(late), "not-counted")
			b.ReportMetric(float64(moved)/float64(len(longer)+late), "tensors")
		})
	}
}

// moved waits until all tensors of a migration that was ordered after iteration i have moved, and as
// many iterations have passed after them, and returns all these: as many with copies as without.
func (tr *training) moved(i, tensors int) []client.Iteration {
	tr.l.t.Helper()
	const after = 2 // the copies of the tensors that moved last, and what is said of them
	k := 0
	tr.until(tr.l.t, fmt.Sprint(tensors, " tensors to move"), func() bool {
		if k == 0 {
			n := 0
			for j, it := range tr.its[i:] {
				if n += it.Moved; n >= tensors {
					k = j + 1 + after
					break
				}
			}
		}
		return k > 0 && len(tr.its) >= i+2*k
	})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.its[i : i+2*k])
}

// undisturbed is the mean of those iterations in which the worker was not late, and how many they are.
func undisturbed(its []client.Iteration) (mean time.Duration, n int) {
	for _, it := range its {
		if it.Late <= it.Spent/20 {
			mean += it.Spent
			n++
		}
	}
	return mean / time.Duration(max(n, 1)), n
}

package exact

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

var (
	seed      = flag.Uint64("exact.seed", 0, "of random instances; 0: a new one")
	instances = flag.Int("exact.gap", 60, "instances of TestGap")
)

func random(t testing.TB) *rand.Rand {
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("-exact.seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}

func job(name string, iteration int, tasks ...int) paramservice.Job {
	j := paramservice.Job{Name: name, Iteration: time.Duration(iteration) * time.Millisecond}
	for _, e := range tasks {
		j.Tasks = append(j.Tasks, time.Duration(e)*time.Millisecond)
	}
	return j
}

// instance is one of two to four jobs, of tensors that need 20 to 80 % of a core together.
func instance(r *rand.Rand, tensors int) []paramservice.Job {
	n := 2 + r.IntN(3)
	var jobs []paramservice.Job
	for i := range n {
		iteration := []int{60, 61, 100, 110, 120, 125, 180, 240, 250, 300}[r.IntN(10)]
		j := job(fmt.Sprint("job", i), iteration)
		k := max(1, tensors/n)
		for range k {
			e := float64(j.Iteration) * (0.2 + 0.6*r.Float64()) / float64(k) * 2 * r.Float64()
			j.Tasks = append(j.Tasks, min(j.Iteration, time.Duration(e)))
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func TestSolve(t *testing.T) {
	figure5 := []paramservice.Job{job("J1", 6, 2), job("J2", 12, 3)}
	for _, tt := range []struct {
		name        string
		jobs        []paramservice.Job
		n           int
		loss        float64
		aggregators int
		want        error
	}{
		{"Figure 5", figure5, 1, 0, 1, nil},
		{"5 beside 12", []paramservice.Job{job("a", 5, 1), job("b", 12, 3)}, 1, 1. / 6, 1, nil},
		{"5 and 12 apart", []paramservice.Job{job("a", 5, 1), job("b", 12, 3)}, 2, 0, 2, nil},
		{"too much for one", []paramservice.Job{job("a", 6, 4), job("b", 12, 5)}, 1, 0, 0, ErrInfeasible},
		{"a tensor moves to where there is room", []paramservice.Job{job("a", 10, 6, 3), job("b", 10, 6, 3)}, 2, 0, 2, nil},
		{"none", nil, 1, 0, 0, nil},
		{"nowhere", figure5, 0, 0, 0, ErrInfeasible},
		{"too large", []paramservice.Job{job("a", 100, make([]int, MaxTasks+1)...)}, 1, 0, 0, ErrTooLarge},
		{"no job", []paramservice.Job{job("a", 0, 1)}, 1, 0, 0, paramservice.ErrJob},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Solve(tt.jobs, tt.n)
			if !errors.Is(err, tt.want) || math.Abs(got.Loss-tt.loss) > 1e-12 || got.Aggregators != tt.aggregators {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// What is found is what trying everything finds, and as good as it says.
func TestSolveMissesNothing(t *testing.T) {
	r := random(t)
	for range 60 {
		jobs := instance(r, 6)
		n := 1 + r.IntN(3)
		total := 0
		for _, j := range jobs {
			total += len(j.Tasks)
		}
		best := math.Inf(1)
		where := make([]int, total)
		for {
			best = min(best, loss(jobs, split(jobs, where), n))
			i := 0
			for ; i < total && where[i] == n-1; i++ {
				where[i] = 0
			}
			if i == total {
				break
			}
			where[i]++
		}
		got, err := Solve(jobs, n)
		if err != nil {
			if !errors.Is(err, ErrInfeasible) || !math.IsInf(best, 1) {
				t.Fatalf("%v, best %v", err, best)
			}
			continue
		}
		if got.Loss != best || loss(jobs, got.Assignment, n) != best {
			t.Fatalf("%+v: loss %v, best %v", got, loss(jobs, got.Assignment, n), best)
		}
	}
}

func split(jobs []paramservice.Job, where []int) [][]int {
	var out [][]int
	for _, j := range jobs {
		out = append(out, where[:len(j.Tasks)])
		where = where[len(j.Tasks):]
	}
	return out
}

// loss is that of an assignment, straight from the program's constraints.
func loss(jobs []paramservice.Job, at [][]int, n int) float64 {
	worst := 0.0
	for a := range n {
		var cycle, work time.Duration
		for j, p := range at {
			for _, x := range p {
				if x == a {
					cycle = max(cycle, jobs[j].Iteration)
				}
			}
		}
		for j, p := range at {
			d := jobs[j].Iteration
			for i, x := range p {
				if x == a {
					work += (cycle / d) * jobs[j].Tasks[i]
					slow := float64(cycle) / float64(cycle/d)
					worst = max(worst, paramservice.Loss(cycle, d))
					if math.Abs((slow-float64(d))/slow-paramservice.Loss(cycle, d)) > 1e-9 {
						panic("the two forms of the loss differ")
					}
				}
			}
		}
		if work > cycle {
			return math.Inf(1)
		}
	}
	return worst
}

// How far the heuristic is from the fewest Aggregators within the limit, and, with as many
// Aggregators as it takes, from the least loss that the integer program finds. Jobs come in one after
// the other, which the optimum need not know of.
func TestGap(t *testing.T) {
	r := random(t)
	more := map[int]int{}
	used, fewest, demand := 0, 0, 0.0
	var loss, least float64
	for range *instances {
		jobs := instance(r, 12)
		c := paramservice.NewCluster(paramservice.Options{LossLimit: paramservice.DefaultLossLimit}, nil)
		for _, j := range jobs {
			demand += j.Demand()
			if _, err := c.Assign(j, 1<<30); err != nil {
				t.Fatal(err)
			}
		}
		mine := 0.0
		for _, j := range jobs {
			mine = max(mine, c.Loss(j.Name))
		}
		few, err := Fewest(jobs, paramservice.DefaultLossLimit)
		if err != nil {
			t.Fatal(err)
		}
		best, err := Solve(jobs, c.Size())
		if err != nil {
			t.Fatal(err)
		}
		if c.Size() < few.Aggregators || mine < best.Loss {
			t.Fatalf("%d Aggregators with a loss of %v, the optimum has %d, or %v; %+v", c.Size(), mine, few.Aggregators, best.Loss, jobs)
		}
		more[c.Size()-few.Aggregators]++
		used += c.Size()
		fewest += few.Aggregators
		loss += mine
		least += best.Loss
	}
	n := float64(*instances)
	t.Logf("%d instances, %.0f cores of work: %d Aggregators, at best %d (%.3f times), by how many more: %v; mean of the largest loss %.4f, at best with as many %.4f",
		*instances, demand, used, fewest, float64(used)/float64(fewest), more, loss/n, least/n)
	if float64(used) > 1.5*float64(fewest) {
		t.Error("more than half more Aggregators than needed")
	}
}

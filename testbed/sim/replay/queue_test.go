package replay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/inabench/inabench/placement/baseline"
	"github.com/inabench/inabench/placement/queue"
)

// busy is random jobs in the order of submission, many of which wait.
func busy(r *rand.Rand) []Job {
	jobs := random(r, 40, 16, true)
	for i := range jobs {
		jobs[i].Compute = 5*jobs[i].Compute + 0.01
	}
	return jobs
}

// First come, first served: whatever the policy, the period and the network, jobs start in the order of submission.
func TestFCFS(t *testing.T) {
	r := rng(t)
	policies := append(baseline.All(), baseline.ElasticFlow().PowerOfTwo())
	for n := range 40 {
		p := policies[n%len(policies)]
		cfg := Config{Cluster: small(r), Policy: p, Queue: queue.FCFS, Period: float64(r.IntN(3)), Fidelity: Fidelity(n % 2), Seed: uint64(n)}
		got, err := Run(t.Context(), cfg, busy(r))
		if err != nil {
			t.Fatalf("%s: %v", p.Name(), err)
		}
		for i := range got.Jobs[1:] {
			if a, b := got.Jobs[i], got.Jobs[i+1]; b.Start < a.Start {
				t.Errorf("%s: job %d starts at %v, before job %d at %v", p.Name(), b.ID, b.Start, a.ID, a.Start)
			}
		}
	}
}

// Where the network takes no time estimates are exact, and nobody who passes the head of the line delays it.
func TestBackfill(t *testing.T) {
	r := rng(t)
	passed := 0
	for range 40 {
		c, jobs := small(r), busy(r)
		for i := range jobs {
			jobs[i].Bytes = 0
		}
		got, err := Run(t.Context(), Config{Cluster: c, Policy: baseline.FirstFit(), Queue: queue.Backfill}, jobs)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range got.Jobs {
			if latest := promised(c.GPUs(), got.Jobs, i); j.Start > latest+1e-9 {
				t.Errorf("job %d starts at %v, promised for %v", j.ID, j.Start, latest)
			}
			if i > 0 && j.Start < got.Jobs[i-1].Start {
				passed++
			}
		}
	}
	if passed == 0 {
		t.Error("nobody passed an older job")
	}
}

// promised is when job i could have started, of jobs in the order of submission, if nobody had passed it since it was the head of
// the line: since it had come and all older ones had started.
func promised(gpus int, jobs []JobResult, i int) float64 {
	head := jobs[i].Submit
	for _, j := range jobs[:i] {
		head = max(head, j.Start)
	}
	var before []JobResult // who ran then, or started just before it
	at := []float64{head}
	for k, j := range jobs {
		if (j.Start < head || k < i) && j.End > head {
			before = append(before, j)
			at = append(at, j.End)
		}
	}
	slices.Sort(at)
	for _, t := range at {
		free := gpus
		for _, j := range before {
			if j.End > t {
				free -= j.GPUs
			}
		}
		if free >= jobs[i].GPUs {
			return t
		}
	}
	return math.Inf(1)
}

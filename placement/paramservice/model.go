package paramservice

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors.
var (
	ErrJob   = errors.New("not a job that can be served")
	ErrKnown = errors.New("a job of this name is there already")
	// ErrUnknown is about a job or Aggregator that is not there.
	ErrUnknown = errors.New("not there")
	ErrFull    = errors.New("no room")
)

// None is where a tensor is that no Aggregator has.
const None = -1

// Job is a training job as profiled alone.
type Job struct {
	Name      string
	Iteration time.Duration   // D_j
	Tasks     []time.Duration // e_t: CPU time that summing and updating takes, for each tensor
	// Servers is over how many servers the tensors were spread when that was measured, and
	// are at least to be spread. 0 is 1.
	Servers int
}

// Demand is the CPU time that the job needs per time, in cores.
func (j *Job) Demand() float64 { return float64(j.total()) / float64(j.Iteration) }

func (j *Job) total() (sum time.Duration) {
	for _, e := range j.Tasks {
		sum += e
	}
	return sum
}

// longest is the longest iteration that is planned for: products of times stay within
// 63 bits.
const longest = 24 * time.Hour

// Check returns an error wrapping ErrJob unless the job is one.
func (j *Job) Check() error {
	switch {
	case j.Name == "":
		return fmt.Errorf("%w: it has no name", ErrJob)
	case j.Iteration <= 0 || j.Iteration > longest:
		return fmt.Errorf("job %s: %w: an iteration of %v", j.Name, ErrJob, j.Iteration)
	case len(j.Tasks) == 0:
		return fmt.Errorf("job %s: %w: it has no tensors", j.Name, ErrJob)
	case j.Servers < 0:
		return fmt.Errorf("job %s: %w: %d servers", j.Name, ErrJob, j.Servers)
	}
	for i, e := range j.Tasks {
		if e < 0 || e > j.Iteration {
			return fmt.Errorf("job %s: %w: tensor %d needs %v of an iteration of %v", j.Name, ErrJob, i, e, j.Iteration)
		}
	}
	return nil
}

// Runs is how often a job of that iteration runs in a cycle: floor(C/D).
func Runs(cycle, iteration time.Duration) int64 { return int64(cycle / iteration) }

// Loss is the part of its speed that a job of that iteration loses in a cycle that is
// not shorter: (d-D)/d with d = C/floor(C/D), which is (C mod D)/C.
func Loss(cycle, iteration time.Duration) float64 {
	return float64(cycle%iteration) / float64(cycle)
}

// largestFirst are the indices of sizes, the largest first; equal ones in order.
func largestFirst[T ~int64](sizes []T) []int {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	return order
}

// spread puts sizes into n groups, the largest first, each where least is: which group each
// is in, and what the largest group has.
func spread[T ~int64](sizes []T, order []int, n int) (group []int, most T) {
	group = make([]int, len(sizes))
	sums := make([]T, max(n, 1))
	for _, i := range order {
		least := 0
		for g, s := range sums {
			if s < sums[least] {
				least = g
			}
		}
		group[i] = least
		sums[least] += sizes[i]
	}
	return group, slices.Max(sums)
}

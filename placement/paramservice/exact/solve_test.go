// Package exact solves the integer program of Parameter Service's appendix C for small
// instances, so that the heuristic can be held against it.
//
// The program puts each tensor on one of N Aggregators so that the largest loss of a job is least, and
// no Aggregator has more work in a cycle than the cycle is long. Two things differ from print.
// C_n is the longest iteration on the Aggregator, as there, and W_n counts a tensor floor(C_n/D_j)
// times, not floor(C_n/d_j): where a job is slowed elsewhere, so that d_j > C_n = D_j, the latter is
// 0, and all its tensors on n would cost nothing. And the pseudocode's aim, the fewest
// Aggregators within LossLimit, is not in the program, whose N is given; Fewest answers that.
//
// With this W_n an Aggregator is fit for its tensors or not whatever the others have, and a job's
// loss is the largest of those on its Aggregators. So the best partition of the tensors is found by
// dynamic programming over their subsets.
package exact

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/inabench/inabench/placement/paramservice"
)

// MaxTasks is how many tensors are looked at, of all jobs together: 3^n steps are made for each
// Aggregator.
const MaxTasks = 14

// Errors.
var (
	ErrTooLarge   = errors.New("too large to be solved exactly")
	ErrInfeasible = errors.New("the tensors do not fit")
)

// Solution is an assignment that none is better than.
type Solution struct {
	Loss        float64 // the largest of a job
	Aggregators int     // that have tensors
	Assignment  [][]int // Aggregator of each tensor, by job
}

// program is an instance by subsets of its tensors.
type program struct {
	jobs []paramservice.Job
	of   []int // job of each tensor, jobs in order
	loss []float64
}

// newProgram finds out for each set of tensors what one Aggregator makes of it: the largest loss
// of a job, or +Inf if it has no room.
func newProgram(jobs []paramservice.Job) (*program, error) {
	p := &program{jobs: jobs}
	var exec []time.Duration
	for j := range jobs {
		if err := jobs[j].Check(); err != nil {
			return nil, err
		}
		for _, e := range jobs[j].Tasks {
			p.of = append(p.of, j)
			exec = append(exec, e)
		}
	}
	n := len(p.of)
	if n > MaxTasks {
		return nil, fmt.Errorf("%d tensors: %w", n, ErrTooLarge)
	}
	p.loss = make([]float64, 1<<n)
	for s := 1; s < 1<<n; s++ {
		var cycle, work time.Duration
		for i := range n {
			if s>>i&1 != 0 {
				cycle = max(cycle, jobs[p.of[i]].Iteration)
			}
		}
		for i := range n {
			if s>>i&1 != 0 {
				d := jobs[p.of[i]].Iteration
				work += time.Duration(paramservice.Runs(cycle, d)) * exec[i]
				p.loss[s] = max(p.loss[s], paramservice.Loss(cycle, d))
			}
		}
		if work > cycle {
			p.loss[s] = math.Inf(1)
		}
	}
	return p, nil
}

// Solve assigns the tensors of the jobs to at most so many Aggregators with the least loss: the
// integer program. Errors wrap ErrTooLarge, ErrInfeasible or paramservice.ErrJob.
func Solve(jobs []paramservice.Job, aggregators int) (Solution, error) {
	p, err := newProgram(jobs)
	if err != nil {
		return Solution{}, err
	}
	all := len(p.loss) - 1
	if all == 0 {
		return Solution{}, nil
	}
	if aggregators < 1 {
		return Solution{}, fmt.Errorf("%d Aggregators: %w", aggregators, ErrInfeasible)
	}
	// best[s] is the least loss of s on n Aggregators, last[n][s] what one of them has then.
	best := append([]float64(nil), p.loss...)
	var last [][]int
	for n := 2; n <= min(aggregators, len(p.of)); n++ {
		next := append([]float64(nil), best...)
		taken := make([]int, len(best))
		for s := 1; s <= all; s++ {
			low := s & -s // is on the one, so that no partition is looked at twice
			for rest := s &^ low; ; rest = (rest - 1) & (s &^ low) {
				one := rest | low
				if l := max(p.loss[one], best[s&^one]); l < next[s] {
					next[s], taken[s] = l, one
				}
				if rest == 0 {
					break
				}
			}
		}
		best, last = next, append(last, taken)
	}
	if math.IsInf(best[all], 1) {
		return Solution{}, fmt.Errorf("%d tensors on %d Aggregators: %w", len(p.of), aggregators, ErrInfeasible)
	}
	where := make([]int, len(p.of))
	out := Solution{Loss: best[all]}
	put := func(s int) {
		for ; s != 0; s &= s - 1 {
			where[bits.TrailingZeros(uint(s))] = out.Aggregators
		}
		out.Aggregators++
	}
	s := all
	for n := len(last) - 1; n >= 0; n-- {
		if one := last[n][s]; one != 0 {
			put(one)
			s &^= one
		}
	}
	if s != 0 {
		put(s)
	}
	out.Assignment = p.split(where)
	return out, nil
}

// Fewest assigns the tensors to as few Aggregators as can be with no job's loss over the limit; of
// these assignments it is one with the least loss. Errors as Solve's.
func Fewest(jobs []paramservice.Job, limit float64) (Solution, error) {
	p, err := newProgram(jobs)
	if err != nil {
		return Solution{}, err
	}
	all := len(p.loss) - 1
	count := make([]int, len(p.loss))
	for s := 1; s <= all; s++ {
		count[s] = len(p.of) + 1
		low := s & -s
		for rest := s &^ low; ; rest = (rest - 1) & (s &^ low) {
			if one := rest | low; p.loss[one] <= limit {
				count[s] = min(count[s], 1+count[s&^one])
			}
			if rest == 0 {
				break
			}
		}
	}
	if count[all] > len(p.of) {
		return Solution{}, fmt.Errorf("%d tensors within a loss of %v: %w", len(p.of), limit, ErrInfeasible)
	}
	return Solve(jobs, count[all])
}

// split gives each job its tensors' Aggregators.
func (p *program) split(where []int) [][]int {
	out := make([][]int, len(p.jobs))
	for i, j := range p.of {
		out[j] = append(out[j], where[i])
	}
	return out
}

package client

import (
	"context"
	"fmt"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/control"
)

// Loop is a training job as seen by a worker: forward through the model, tensor by tensor, as soon
// as each has been pulled; back through it, and each tensor's gradient is pushed as soon as it is
// there.
type Loop struct {
	Iterations int
	// Forward and Backward are how long the worker computes with each tensor. Both may be
	// shorter than the list of tensors: the rest takes no time.
	Forward, Backward []time.Duration
	// Slower is by what factor each iteration computes longer than Forward and Backward say. It may be shorter than
	// there are iterations: the rest takes as long as they say.
	Slower []float64
	// Gradient computes a tensor's gradient from its model of a version, in less time than
	// Backward. nil pushes zeros; for experiments in which values do not matter.
	Gradient func(tensor int, version uint64, model, gradient []float32)
	// Done takes each iteration when it is over; nil: nobody does. It must not wait.
	Done func(Iteration)
	// Report is after how many iterations pMaster is told; 0: never.
	Report int
}

// Iteration is what became of one.
type Iteration struct {
	Number  int           // from 0
	Begun   time.Time     // its forward pass, or the wait for the first model; on a clock that nobody has set since the first
	Spent   time.Duration // until the next one
	Stalled time.Duration // of that, waiting for models
	Moved   int           // tensors whose model told of a new Aggregator
	Late    time.Duration // by how much the process was late, at most: the machine is too slow
}

// at is element i, or 0.
func at(d []time.Duration, i int) time.Duration {
	if i < len(d) {
		return d[i]
	}
	return 0
}

// computing is how long an iteration computes that would for d.
func (l *Loop) computing(iteration int, d time.Duration) time.Duration {
	if iteration < len(l.Slower) {
		return time.Duration(float64(d) * l.Slower[iteration])
	}
	return d
}

// Run runs a loop, and pulls the last models. Errors name the iteration.
//
// The time of computing goes on from when it could begin, not from when the process was woken: being
// late does not add up.
func (a *Agent) Run(ctx context.Context, l Loop) error {
	tensors := len(a.tensors)
	moves := make([]int, tensors)
	now := time.Now() // of the emulated device
	start, begun := now, now
	var stalled, late time.Duration
	var spentSum, stalledSum time.Duration
	sinceReport, moved := 0, 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	compute := func(d time.Duration) error {
		now = now.Add(d)
		wait := time.Until(now)
		if wait <= 0 {
			late = max(late, -wait)
			return nil
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ended:
			return a.err
		case <-timer.C:
			return nil
		}
	}
	for i := 0; ; i++ {
		models := make([]Model, 0, tensors)
		for t := range tensors {
			m, err := a.Pull(ctx, t)
			if err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
			models = append(models, m)
			if m.Moves > moves[t] {
				moves[t], moved = m.Moves, moved+1
			}
			if wait := m.Pulled.Sub(now); wait > 0 {
				stalled += wait
				now = m.Pulled
			}
			if t == 0 && i > 0 { // an iteration ends when the next one can begin
				it := Iteration{Number: i - 1, Begun: start.Add(begun.Sub(start)), Spent: now.Sub(begun), Stalled: stalled, Moved: moved, Late: late}
				begun, stalled, moved, late = now, 0, 0, 0
				if l.Done != nil {
					l.Done(it)
				}
				spentSum, stalledSum = spentSum+it.Spent, stalledSum+it.Stalled
				if sinceReport++; sinceReport == l.Report {
					a.Report(sinceReport, spentSum, stalledSum)
					sinceReport, spentSum, stalledSum = 0, 0, 0
				}
			} else if t == 0 {
				begun, stalled, moved = now, 0, 0
			}
			if i < l.Iterations {
				if err := compute(l.computing(i, at(l.Forward, t))); err != nil {
					return fmt.Errorf("iteration %d: %w", i, err)
				}
			}
		}
		if i == l.Iterations {
			return nil
		}
		for t := tensors - 1; t >= 0; t-- {
			g := a.Block(t)
			if l.Gradient != nil {
				l.Gradient(t, models[t].Version, models[t].Values, g.Values)
			} else {
				clear(g.Values)
			}
			if err := compute(l.computing(i, at(l.Backward, t))); err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
			if err := a.Push(t, g); err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
		}
	}
}

// Synthetic is a gradient for experiments: from seed, rank, tensor, version and the model itself,
// so that a wrong bit in any of them stays in all later models. It takes some nanoseconds for a
// value.
func Synthetic(seed uint64, rank int32) func(tensor int, version uint64, model, gradient []float32) {
	return func(tensor int, version uint64, model, gradient []float32) {
		x := seed ^ uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(tensor+1)*0xbf58476d1ce4e5b9 ^ version*0x94d049bb133111eb
		for i := range gradient {
			x = x*6364136223846793005 + 1442695040888963407
			gradient[i] = float32(int32(x>>32))/(1<<31) + model[i]/4
		}
	}
}

// Initial is a model to begin with, for the same: other values in each tensor.
func Initial(tensor int, values []float32) {
	for i := range values {
		values[i] = float32(tensor+1) / float32(i%1000+1)
	}
}

// Models are those of a job after so many iterations, made by a plain loop without a service,
// bit for bit: from Initial, with gradients that are Synthetic.
func Models(j control.Job, seed uint64, iterations int) [][]float32 {
	var models [][]float32
	for t, spec := range j.Tensors {
		model, gradient, sum := make([]float32, spec.Elements), make([]float32, spec.Elements), make([]float32, spec.Elements)
		Initial(t, model)
		for v := range iterations {
			for rank := range j.Workers {
				Synthetic(seed, int32(rank))(t, uint64(v+1), model, gradient)
				if rank == 0 {
					copy(sum, gradient)
					continue
				}
				for i, g := range gradient {
					sum[i] += g
				}
			}
			for i := range model {
				step := j.Rate * sum[i] // a statement of its own, so that nothing is fused, as Aggregators do
				model[i] -= step
			}
		}
		models = append(models, model)
	}
	return models
}

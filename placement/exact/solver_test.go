package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/inabench/inabench/placement/exact/lp"
)

// Solver solves mixed integer linear programs, as package cbc does.
type Solver interface {
	// Minimise solves a program within a limit of time. What is infeasible, or not solved in time, is an
	// answer and no error.
	Minimise(ctx context.Context, p *lp.Program, limit time.Duration) (lp.Answer, error)
}

// ErrTime is wrapped where a Solver finds no placement within Options.Limit.
var ErrTime = errors.New("no placement was found in time")

// Tolerance is the part of its cost by which a placement that a Solver calls optimal can be above the least:
// solvers keep to rows within 1e-7 to 1e-6, and a rate counts as often as it stands in them.
const Tolerance = 1e-4

// Proof is what a Solver says of a placement.
type Proof struct {
	Solver, Version string
	Status          lp.Status // Optimal, within Tolerance, or Stopped
	Bound           float64   // no placement costs less, seconds
	Gap             float64   // by which part of its cost the placement is above Bound
	Seconds         float64   // that the solver took, for all programs
	Programs        int       // that it solved, each with finer tangents than the one before
}

// program has Table 3's program solved. What it finds is costed as everything else is. Where that is above
// the solver's bound, the rates' tangents are refined where the solution is, and it is solved again.
func (in *Instance) program(ctx context.Context, o Options) (Solution, error) {
	c, err := in.Cluster()
	if err != nil {
		return Solution{}, err
	}
	if err := in.check(c); err != nil {
		return Solution{}, err
	}
	if len(in.Running)+len(in.Batch) == 0 {
		return Solution{}, nil
	}
	p, err := newTable3(in, c, o.SelectINA)
	if err != nil {
		return Solution{}, err
	}
	left := o.Limit
	if left == 0 {
		left = time.Minute
	}
	best := Solution{Cost: math.Inf(1), Proof: &Proof{Status: lp.Stopped}}
	for round := 0; left > 0; round++ {
		a, err := o.Solver.Minimise(ctx, &p.Program, left)
		if err != nil {
			return Solution{}, err
		}
		left -= a.Elapsed
		best.Proof.add(a, p.seconds)
		if a.Status == lp.Infeasible && best.Places == nil {
			return Solution{}, fmt.Errorf("%s: %w", a.Solver, ErrInfeasible)
		}
		if a.Values == nil {
			break
		}
		if err := best.take(in, p, a); err != nil {
			return Solution{}, err
		}
		if best.Cost <= best.Proof.Bound*(1+Tolerance) {
			best.Proof.Status = lp.Optimal
			break
		}
		if a.Status == lp.Stopped {
			break
		}
		if !p.refine(a.Values, round) {
			if said := a.Objective * p.seconds; best.Cost > said*(1+Tolerance) {
				return Solution{}, fmt.Errorf("%s: its placement costs %v s, and by its rates %v s", a.Solver, best.Cost, said)
			}
			break // optimal only within a gap of the solver's own
		}
	}
	if best.Places == nil {
		return Solution{}, fmt.Errorf("%s, after %.3g s: %w", best.Proof.Solver, best.Proof.Seconds, ErrTime)
	}
	best.Proof.Bound = min(best.Proof.Bound, best.Cost)
	if best.Cost > 0 {
		best.Proof.Gap = 1 - best.Proof.Bound/best.Cost
	}
	return best, nil
}

// add adds what a solver said of one more program. Tangents are never above 1/v, so that all bounds hold.
func (p *Proof) add(a lp.Answer, seconds float64) {
	p.Solver, p.Version = a.Solver, cmp.Or(a.Version, p.Version)
	p.Bound = max(p.Bound, a.Bound*seconds)
	p.Seconds += a.Elapsed.Seconds()
	p.Programs++
}

// take keeps the placement of an answer if it costs less.
func (s *Solution) take(in *Instance, p *table3, a lp.Answer) error {
	places := p.places(a.Values)
	cost, err := in.Cost(places)
	if err != nil {
		return fmt.Errorf("%s: what it placed: %w", a.Solver, err)
	}
	if math.IsInf(cost, 1) {
		return fmt.Errorf("%s: it leaves a job without a place", a.Solver)
	}
	if cost < s.Cost {
		s.Cost, s.Places = cost, places
	}
	return nil
}

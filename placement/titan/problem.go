package titan

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/inabench/inabench/placement/collectives"
)

// Problem is a job to be placed: one worker per GPU, numbered as in the pattern.
type Problem struct {
	Machines []Machine
	Pattern  *collectives.Pattern
	Reading  Reading // of it only the variants count

	// The bandwidth constraint: what a phase of the pattern sends from one machine to
	// another must pass in Phase seconds at the Rate that is available there, in bit/s.
	Vector float64                    // bits that each worker has (K); 0: they do not matter
	Phase  float64                    // s; 0: 1, with which the paper's C <= P is about numbers alone
	Rate   func(from, to int) float64 // between two different machines; nil: any amount passes
}

// Machine is one machine of a problem. It is idle where all its GPUs are free.
type Machine struct{ GPUs, Free int }

// Idle reports whether nothing runs on a machine. One without GPUs is not idle: it can
// take nothing.
func (m Machine) Idle() bool { return m.GPUs > 0 && m.Free == m.GPUs }

// Solution is where a job's workers are.
type Solution struct {
	At    []int // machine, by worker
	Idle  int   // idle machines used: objective O1
	Used  int   // machines used: objective O2
	Cross int   // traffic between machines in parts, as collectives.Pattern.Cross counts it
}

// Less compares by the objectives in their order.
func (s Solution) Less(o Solution) bool {
	return cmp.Or(s.Idle-o.Idle, s.Used-o.Used, s.Cross-o.Cross) < 0
}

// ErrRoom is that of a job with more workers than there are free GPUs.
var ErrRoom = errors.New("more workers than free GPUs")

// CongestedError says that no placement was found that keeps within the bandwidth.
type CongestedError struct {
	// Of the best placement found: in this phase of the pattern, counted from 0, one
	// machine sends another so many bits, and so many would pass.
	Phase         int
	From, To      int // machines
	Bits, Passing float64
	Seconds       float64 // that a phase may last
	// Best is that placement: the one with the least traffic over what passes.
	Best Solution
}

// Error names the pair of machines and the phase.
func (e *CongestedError) Error() string {
	return fmt.Sprintf("phase %d sends %.4g Gbit from machine %d to machine %d, %.4g Gbit pass in %.4g s",
		e.Phase, e.Bits/1e9, e.From, e.To, e.Passing/1e9, e.Seconds)
}

// limited reports whether there is a bandwidth constraint.
func (p *Problem) limited() bool { return p.Rate != nil && p.Vector > 0 }

// seconds is how long a phase may last.
func (p *Problem) seconds() float64 {
	if p.Phase > 0 {
		return p.Phase
	}
	return 1
}

// room is how many parts of the vector pass from one machine to another in a phase.
func (p *Problem) room(from, to int) int {
	parts := p.Rate(from, to) * p.seconds() * float64(p.Pattern.Parts) / p.Vector
	if !(parts < math.MaxInt32) {
		return math.MaxInt32
	}
	// What fits to the bit must not fail by rounding.
	return max(0, int(math.Floor(parts*(1+1e-12))))
}

// solution is the figures of a placement.
func (p *Problem) solution(at []int) Solution {
	s := Solution{At: at, Cross: p.Pattern.Cross(at)}
	seen := map[int]bool{}
	for _, m := range at {
		if !seen[m] {
			seen[m] = true
			s.Used++
			if p.Machines[m].Idle() {
				s.Idle++
			}
		}
	}
	return s
}

// Check holds a placement against the bandwidth constraint. An error is a
// *CongestedError, about what exceeds most.
func (p *Problem) Check(at []int) error {
	if !p.limited() {
		return nil
	}
	var worst *CongestedError
	most, phase := 0, 0
	type pair struct{ from, to int }
	sent := map[pair]int{}
	for _, ph := range p.Pattern.Phases {
		clear(sent)
		for _, f := range ph.Flows {
			x := pair{at[f.From], at[f.To]}
			if x.from == x.to {
				continue
			}
			sent[x] += f.Volume
		}
		for _, f := range ph.Flows { // in an order that is always the same
			x := pair{at[f.From], at[f.To]}
			if x.from == x.to {
				continue
			}
			if over := sent[x] - p.room(x.from, x.to); over > most {
				most = over
				worst = &CongestedError{
					Phase: phase, From: x.from, To: x.to, Seconds: p.seconds(),
					Bits: float64(sent[x]) / float64(p.Pattern.Parts) * p.Vector, Passing: p.Rate(x.from, x.to) * p.seconds(),
				}
			}
		}
		phase += ph.Times
	}
	if worst == nil {
		return nil
	}
	worst.Best = p.solution(at)
	return worst
}

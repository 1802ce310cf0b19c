// Package pace is how fast an emulation goes: the factor of slow motion that a machine carries an experiment with, and
// the times on the wall clock that follow from it.
//
// The factor is package carry's, of what a plan predicts: frames a second, through the busiest switch, and the lateness
// of the machine against the shortest round trip. At that factor, windows have to fill, queues have to come to rest, and
// what is measured has to be many packets of every job: Needs is how long that takes.
package pace

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/ina"
)

// Pace is how fast an experiment goes on a machine that carries it. What is not slowed is in the lab's time.
type Pace struct {
	Factor  float64 // of slow motion, 1 or more; 0: nothing is predicted
	Trip    float64 // seconds, not slowed: the longest round trip of a job's packets by the cables
	Turn    float64 // seconds, not slowed: the longest time in which a window that a link or itself holds back comes round
	Settled float64 // seconds, not slowed, after which all queues are as long as they stay; 0: not known
	Block   float64 // seconds, not slowed: the longest in which a sender with a limit of rate sends a block of packets
	PSNs    float64 // a second, not slowed, of the slowest job with a window; 0 without one
	Rounds  float64 // all-reduces a second, not slowed, of the slowest ring; 0 without one
}

// Windows fill, queues with them, and shares come to rest in so many round trips by the cables, and
// in so many turns of a window with its queues full.
const (
	settle = 6
	turns  = 3
)

// What a phase has of each job at least, so that a figure is one of many.
const (
	leastPSNs   = 1500
	leastRounds = 20
)

// Of is the pace of an experiment as it is planned, on a machine.
func Of(m carry.Machine, plan *experiments.SavedPlan) (p Pace, err error) {
	points := plan.Spec().Points()
	for i, pt := range plan.Points {
		phases := pt.Occupied()
		if len(phases) == 0 {
			continue
		}
		s := points[i].Spec
		load, err := carry.Demand(s.Inventory(), pt.Plan, phases, s.Switch.Lanes)
		if err != nil {
			return p, err
		}
		p.Factor = max(p.Factor, carry.Factor(m, load))
		if p.Trip, err = farthest(s, pt.Plan, p.Trip); err != nil {
			return p, err
		}
		for _, ph := range phases {
			p.Settled = max(p.Settled, ph.Settled)
			p.slowest(s, ph)
		}
	}
	return p, nil
}

// farthest is the longest round trip by the cables between hosts of a job, in seconds, or least if that is longer.
func farthest(s *spec.Spec, plan *placement.Plan, least float64) (float64, error) {
	topo := s.Inventory().Topology()
	frame := 8 * float64((&placement.Conditions{Lanes: s.Switch.Lanes}).FrameBytes())
	for _, j := range plan.Jobs {
		for k := range j.Workers {
			path, err := topo.PathBy(j.Workers[k].End(), j.Goal(k))
			if err != nil {
				return least, fmt.Errorf("pace of job %s: %w", j.Name, err)
			}
			trip := 0.0
			for _, l := range path {
				trip += 2 * (topo.Links[l].Delay.Seconds() + frame/float64(topo.Links[l].Rate))
			}
			least = max(least, trip)
		}
	}
	return least, nil
}

// slowest makes a pace no faster than the jobs of a phase are.
func (p *Pace) slowest(s *spec.Spec, ph *placement.Prediction) {
	conditions := placement.Conditions{Lanes: s.Switch.Lanes}
	frame := 8 * float64(conditions.FrameBytes())
	least := func(a *float64, b float64) {
		if *a == 0 || b < *a {
			*a = b
		}
	}
	for _, j := range ph.Jobs {
		k, ok := s.Job(j.Name)
		if !ok || j.Goodput <= 0 {
			continue
		}
		if k.Collective == string(placement.Ring) {
			least(&p.Rounds, j.Goodput/(8*float64(k.Message)))
		} else {
			frames := collectives.FramesOf(int64(k.Message), s.Switch.Lanes)
			least(&p.PSNs, j.Goodput/(8*frames.Mean()))
			p.Block = max(p.Block, testbed.Block(float64(k.Rate), conditions.FrameBytes()).Seconds())
			if j.HeldBy() != "rate limit" { // else its window is not full
				p.Turn = max(p.Turn, float64(k.Window)*frame/j.WireRate)
			}
		}
	}
}

// Needs are the least times on the wall clock, in milliseconds, of a warm-up and of what is measured in a phase: six
// round trips and three turns at least, and two blocks; a phase then has as many, 1500 PSNs of each job and 20 all-reduces
// of each ring.
func (p Pace) Needs() (warm, length float64) {
	second := 1e3 * p.Factor // of the lab
	rest := max(settle*p.Trip, turns*p.Turn) * second
	warm, length = max(rest, p.Settled*second, testbed.FirstBlocks*p.Block*second), rest
	if p.PSNs > 0 {
		length = max(length, leastPSNs/p.PSNs*second)
	}
	if p.Rounds > 0 {
		length = max(length, leastRounds/p.Rounds*second)
	}
	return warm, length
}

// Open says whether an experiment leaves it to the machine how fast its emulation goes: it does not say a factor. What
// BMv2 carries is not known.
func Open(s *spec.Spec) bool {
	return Slowed(s) && !s.Says("emulation.factor") && s.Unplanned() == nil
}

// Slowed says whether an experiment's emulation goes in slow motion, and is one of which a machine knows what it carries.
func Slowed(s *spec.Spec) bool {
	return s.Emulation.Scale == results.SlowMotion && s.Emulation.Switch == string(inventory.Soft)
}

// A phase has so many round trips, with queues, for its figures to be those of a steady state; otherwise so many
// milliseconds are enough of it: it goes on while its figures are not certain. Nobody waits longer than most for either
// part of a phase without having asked for it: where that is too short, the verdict says so.
const (
	trips   = 20
	longest = 30000
	most    = 300000
)

// Sparse says why an experiment's times are too short for how few packets a job with a limit of rate sends at its factor;
// empty: they are not.
func (p Pace) Sparse(s *spec.Spec) string {
	block := p.Block * s.Emulation.Factor
	warm, long := testbed.FirstBlocks*block, testbed.LeastBlocks*block
	if s.Measure.Warmup.Std().Seconds() >= warm && (s.Measure.Duration.Std().Seconds() >= long || slices.ContainsFunc(s.Jobs, func(j spec.Job) bool { return j.Duration > 0 })) {
		return ""
	}
	return fmt.Sprintf("at emulation.factor = %g a job sends %d packets in %s, at random times of these, so that figures would not be judged: a smaller factor, a higher rate, or measure.warmup = %.0fs and measure.duration = %.0fs would do",
		s.Emulation.Factor, ina.Block, human.Quantity(block, "s"), math.Ceil(warm), math.Ceil(long))
}

// Sets are the assignments of --set with which an experiment that leaves that open goes at a pace, or slower by some
// times: a factor of the ladder 1, 2, 5, 10 and so on, and such times of [measure] as it does not say itself. Where it
// says when jobs start or how long they run, all times are as it says.
func (p Pace) Sets(s *spec.Spec, slower float64) []string {
	p.Factor = Ladder(Ladder(p.Factor) * slower)
	out := []string{fmt.Sprintf("emulation.factor=%g", p.Factor)}
	for _, pt := range s.Points() {
		if slices.ContainsFunc(pt.Spec.Jobs, func(j spec.Job) bool { return j.Start > 0 || j.Duration > 0 }) {
			return out
		}
	}
	warm, length := p.Needs()
	warm, length = min(warm, most), min(max(min(length, longest), max(trips*max(p.Trip, p.Turn), testbed.LeastBlocks*p.Block)*1e3*p.Factor), most)
	for _, t := range []struct {
		key string
		has time.Duration
		ms  float64
	}{{"measure.warmup", s.Measure.Warmup.Std(), warm}, {"measure.duration", s.Measure.Duration.Std(), length}} {
		if needs := math.Ceil(t.ms / 100); !s.Says(t.key) && needs*100 > float64(t.has.Milliseconds()) {
			out = append(out, fmt.Sprintf("%s=%gs", t.key, needs/10))
		}
	}
	return out
}

// Ladder is the least of 1, 2, 5, 10, 20 and so on that is not below a factor: experiments whose paces differ little
// have the same one, and can be compared.
func Ladder(factor float64) float64 {
	for decade := 1.0; ; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if decade*step >= factor*(1-1e-9) {
				return decade * step
			}
		}
	}
}

// About is how long a run of a plan takes at least: all warm-ups, and what is measured in all phases.
func About(plan *experiments.SavedPlan) (d time.Duration) {
	points := plan.Spec().Points()
	for i, pt := range plan.Points {
		m := points[i].Spec.Measure
		d += time.Duration(max(1, m.Repeats)*len(pt.Phases)) * (m.Warmup.Std() + m.Duration.Std())
	}
	return d
}

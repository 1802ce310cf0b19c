package tree

import (
	"errors"
	"fmt"
	"math"
)

// Cost is how long an all-reduce takes: a latency, and its bytes at a bandwidth.
type Cost struct {
	Latency   float64 // s
	Bandwidth float64 // bytes/s, without INA
	Ratio     float64 // by what INA multiplies the bandwidth
}

// Duration is that of an all-reduce, in seconds. One host has nobody to send to: it is
// the latency alone.
func (c Cost) Duration(bytes float64, hosts int, ina bool) float64 {
	switch {
	case hosts < 2:
		return c.Latency
	case ina:
		return c.Latency + bytes/(c.Bandwidth*c.Ratio)
	}
	return c.Latency + bytes/c.Bandwidth
}

// Op is an all-reduce of a step.
type Op struct {
	Start float64 // s since the step began: not earlier, as the gradient is not there
	Bytes float64
}

// Pattern is the communication of every step of a job: its all-reduces run one after the
// other, each from its Start on, and the step ends with the last one, or later: when its
// computation does.
type Pattern struct {
	ops  []timed
	step float64
	// From an end of op i-1 at x, the rest without INA ends at max(x+tail[i], floor[i]).
	tail, floor []float64
	full        float64
}

type timed struct{ start, with, without float64 }

var errPattern = errors.New("no such communication pattern")

// NewPattern is the pattern of a job on so many hosts whose step computes for so many
// seconds.
func NewPattern(step float64, ops []Op, hosts int, c Cost) (*Pattern, error) {
	if !(c.Latency >= 0) || !(c.Bandwidth > 0) || !(c.Ratio >= 1) || !(step >= 0) || math.IsInf(step+c.Latency, 0) {
		return nil, fmt.Errorf("%w: a step of %v s, cost %+v", errPattern, step, c)
	}
	p := &Pattern{step: step, tail: make([]float64, len(ops)+1), floor: make([]float64, len(ops)+1)}
	for i, o := range ops {
		if !(o.Start >= 0) || !(o.Bytes >= 0) || math.IsInf(o.Start+o.Bytes, 0) || i > 0 && o.Start < ops[i-1].Start {
			return nil, fmt.Errorf("%w: operation %d of %v bytes at %v s", errPattern, i, o.Bytes, o.Start)
		}
		p.ops = append(p.ops, timed{o.Start, c.Duration(o.Bytes, hosts, true), c.Duration(o.Bytes, hosts, false)})
	}
	p.floor[len(ops)] = step
	for i := len(ops) - 1; i >= 0; i-- {
		o := p.ops[i]
		p.tail[i] = o.without + p.tail[i+1]
		p.floor[i] = max(o.start+p.tail[i], p.floor[i+1])
	}
	p.full = p.Step(true)
	return p, nil
}

// Ops is how many all-reduces a step has.
func (p *Pattern) Ops() int { return len(p.ops) }

// Earliest is when an operation may start, in seconds since the step began.
func (p *Pattern) Earliest(op int) float64 { return p.ops[op].start }

// Compute is the least that a step lasts, in seconds.
func (p *Pattern) Compute() float64 { return p.step }

// Duration is that of an operation, in seconds.
func (p *Pattern) Duration(op int, ina bool) float64 {
	if ina {
		return p.ops[op].with
	}
	return p.ops[op].without
}

// Step is how long a step lasts, in seconds, with INA for all of its operations or none.
func (p *Pattern) Step(ina bool) float64 {
	end := 0.0
	for i := range p.ops {
		end = max(end, p.ops[i].start) + p.Duration(i, ina)
	}
	return max(end, p.step)
}

// Span is when an all-reduce runs, in seconds since its step began.
type Span struct{ Begin, End float64 }

// Spans are those of a step's all-reduces in order, with INA for all of them or none (Figure 3 of the paper).
func (p *Pattern) Spans(ina bool) []Span {
	out := make([]Span, len(p.ops))
	end := 0.0
	for i := range p.ops {
		begin := max(end, p.ops[i].start)
		end = begin + p.Duration(i, ina)
		out[i] = Span{begin, end}
	}
	return out
}

// Stage is how long the communication stage of a step is, from the first all-reduce's begin to the last one's end, and how
// much of it lies between all-reduces, in seconds. Both are 0 of no spans.
func Stage(spans []Span) (length, gaps float64) {
	if len(spans) == 0 {
		return 0, 0
	}
	for i := 1; i < len(spans); i++ {
		gaps += spans[i].Begin - spans[i-1].End
	}
	return spans[len(spans)-1].End - spans[0].Begin, gaps
}

// Gain is by which part INA for all operations shortens a step.
func (p *Pattern) Gain() float64 {
	if without := p.Step(false); without > 0 {
		return 1 - p.full/without
	}
	return 0
}

// Demand is the part of its time for which a job needs INA to be as fast as with INA for
// all operations: that for the last ones, from the end on until the rest can go without
// (Figure 4 of the paper).
func (p *Pattern) Demand() float64 {
	if p.full == 0 {
		return 0
	}
	ends := make([]float64, len(p.ops)) // without INA
	end := 0.0
	for i, o := range p.ops {
		end = max(end, o.start) + o.without
		ends[i] = end
	}
	need, latest := 0.0, p.full // when operation i must end
	for i := len(p.ops) - 1; i >= 0 && ends[i] > latest*(1+1e-12); i-- {
		need += p.ops[i].with
		latest -= p.ops[i].with
	}
	return need / p.full
}

// rest is when a step ends, since it began, if operation op-1 ended at x and nothing
// later has INA.
func (p *Pattern) rest(op int, x float64) float64 { return max(x+p.tail[op], p.floor[op]) }

// State is where a job is.
type State struct {
	*Pattern
	Began   float64 // when the step did, s
	Op      int     // of the step, that runs or comes next; Ops(): the step waits for its end
	Running bool
	INA     bool    // the one that runs has it
	Ends    float64 // when it ends, s
	Last    bool    // no step comes after this one
	Weight  float64 // what a second of it counts, beside others; 0: 1
}

// next is the operation that a job starts next: when its step began, when it starts, which
// it is; ok is false if there is none.
func (s *State) next(now float64) (began, start float64, op int, ok bool) {
	began, op = s.Began, s.Op
	if s.Running {
		now, op = s.Ends, op+1
	}
	if op >= len(s.ops) {
		if s.Last || len(s.ops) == 0 {
			return 0, 0, 0, false
		}
		now = max(now, began+s.step)
		began, op = now, 0
	}
	return began, max(now, began+s.ops[op].start), op, true
}

// Urgency is what INA for a job's next operation gains by the second that it waits for it
// and has it: by how much the step ends earlier than without, if no later operation has
// it, times the job's weight, divided by the time from now to the operation's end. Start is
// when it starts; ok is false if no operation comes.
func (s *State) Urgency(now float64) (urgency, start float64, ok bool) {
	began, start, op, ok := s.next(now)
	if !ok {
		return 0, 0, false
	}
	o := &s.ops[op]
	x := start - began
	gain := s.rest(op+1, x+o.without) - s.rest(op+1, x+o.with)
	if s.Weight > 0 {
		gain *= s.Weight
	}
	return gain / (start + o.with - now), start, true
}

// Decide is the sharing rule: whether a job that is about to start an operation now has
// INA for it, beside others of its group. It has not if one of them is using it, or starts
// an operation before this one would end with more to gain from it. That there is room in
// the switches besides is for the caller to see.
//
// What it says depends on its arguments alone. Where hosts must agree without a message,
// they must be what was committed, and now the time that follows from it, not a clock's.
func Decide(now float64, job *State, others []*State) bool {
	for _, o := range others {
		if o.Running && o.INA {
			return false
		}
	}
	urgency, start, ok := job.Urgency(now)
	if !ok {
		return false
	}
	_, _, op, _ := job.next(now)
	end := start + job.ops[op].with
	for _, o := range others {
		if u, at, ok := o.Urgency(now); ok && at < end && u > urgency {
			return false
		}
	}
	return true
}

// Thrifty is Decide, but an operation that gains nothing by INA goes without it where
// others want it: the step ends no later for that, whatever comes after, and who does gain
// need not wait for its end. The paper's rule sees only the next operation of the others.
func Thrifty(now float64, job *State, others []*State) bool {
	if len(others) > 0 {
		if urgency, _, _ := job.Urgency(now); urgency <= 0 {
			return false
		}
	}
	return Decide(now, job, others)
}

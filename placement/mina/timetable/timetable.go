// Package timetable says which all-reduces of the jobs that share switches ask for INA,
// long before they come: MINA's sharing rule as a function of a snapshot of the group and
// the number of the operation, and of nothing else.
//
// MINA's hosts decide before each all-reduce without a message ("MINA", INFOCOM '24,
// section IV-B), and all hosts of a job must decide alike. A rule that asks a clock, or who
// uses the switches now, as the authors' simulator does, would let them differ. So every
// host simulates the group forward from the last snapshot that was committed, in virtual
// time, with nominal durations and tree.Decide. In virtual time no two rivals use INA at
// once. Where real time drifts from it switches refuse now and then, until a new snapshot
// is committed; hosts of a job stay alike however far it drifts.
//
// To be alike on all hosts, whatever they are, it only adds, subtracts, divides and compares
// float64 in an order that the snapshot fixes. No product is added to anything, which some
// processors would round once instead of twice.
package timetable

import (
	"errors"
	"fmt"
	"math"

	"github.com/inabench/inabench/placement/mina/tree"
)

// Job is one of a group, and where it is at the instant of the snapshot.
type Job struct {
	ID    uint32
	Hosts int
	Step  float64   // s that a step computes
	Ops   []tree.Op // its all-reduces; none: the pattern is not known, and the job never asks
	Steps uint64    // of the job; 0: it goes on for ever
	// Rivals are the jobs, as indices, that cannot have INA while this one has. Nil is
	// all others.
	Rivals []int

	Next    uint64  // the operation that it begins next, counted from 0 since the job's start
	Began   float64 // s ago, its step: that of Next-1 if Next is the first of one, but not of all
	Running bool    // Next-1 still runs
	INA     bool    // with INA
	Ends    float64 // and for so many more s
}

// Snapshot is the state of a group.
type Snapshot struct {
	Cost    tree.Cost
	PerHost bool // a job counts in the rule as often as it has hosts
	Jobs    []Job
}

// ErrSnapshot is an error of New.
var ErrSnapshot = errors.New("no timetable")

// Timetable is that of one job. It is not for several goroutines at once.
type Timetable struct {
	jobs []job
	me   int
	now  float64
	idle int // events since the last operation of me

	decided bool
	op      uint64 // the last one that was decided
	ina     bool
	at      float64
}

type job struct {
	tree.State
	others []*tree.State
	ops    uint64 // begun since the job's start
	end    uint64 // of which it has so many; 0: no end
	gone   bool
}

// New is the timetable of a job of a snapshot, by index.
func New(s *Snapshot, me int) (*Timetable, error) {
	if me < 0 || me >= len(s.Jobs) {
		return nil, fmt.Errorf("%w: job %d of %d", ErrSnapshot, me, len(s.Jobs))
	}
	t := &Timetable{jobs: make([]job, len(s.Jobs)), me: me}
	for i := range s.Jobs {
		from, j := &s.Jobs[i], &t.jobs[i]
		p, err := tree.NewPattern(from.Step, from.Ops, from.Hosts, s.Cost)
		if err != nil {
			return nil, fmt.Errorf("%w: job %d: %w", ErrSnapshot, from.ID, err)
		}
		n := uint64(len(from.Ops))
		if n > 0 && !(p.Step(true) > 0) || !(from.Began >= 0) || !(from.Ends >= 0) || math.IsInf(from.Began+from.Ends, 0) ||
			from.Running && (from.Next == 0 || n == 0) || from.Steps > math.MaxUint64/max(n, 1) {
			return nil, fmt.Errorf("%w: job %d: step %v s of %d operations, began %v s ago, ends in %v s", ErrSnapshot, from.ID, p.Step(true), n, from.Began, from.Ends)
		}
		j.State = tree.State{Pattern: p, Began: -from.Began, Running: from.Running, INA: from.INA, Ends: from.Ends}
		if s.PerHost {
			j.Weight = float64(from.Hosts)
		}
		j.ops, j.end = from.Next, from.Steps*n
		switch {
		case n == 0:
			j.gone = true
		case from.Running:
			j.Op = int((from.Next - 1) % n)
		case from.Next == 0:
		default:
			j.Op = int((from.Next-1)%n) + 1
		}
		j.last()
	}
	for i := range t.jobs {
		rivals := s.Jobs[i].Rivals
		if rivals == nil {
			for k := range t.jobs {
				if k != i {
					rivals = append(rivals, k)
				}
			}
		}
		for _, k := range rivals {
			if k < 0 || k >= len(t.jobs) || k == i {
				return nil, fmt.Errorf("%w: job %d: rival %d of %d", ErrSnapshot, s.Jobs[i].ID, k, len(t.jobs))
			}
			if !t.jobs[k].gone {
				t.jobs[i].others = append(t.jobs[i].others, &t.jobs[k].State)
			}
		}
	}
	return t, nil
}

// last notes whether the step is the job's last one.
func (j *job) last() {
	if n := uint64(j.Pattern.Ops()); j.end > 0 && n > 0 {
		begun := uint64(j.Op) // of this step
		if j.Running {
			begun++
		}
		j.State.Last = j.ops-begun+n >= j.end
	}
}

// most is how many events may lie between two operations of a job: more is a snapshot of
// jobs whose steps take no time at all beside its own.
const most = 1 << 20

// Ask says whether an operation asks for INA, and when it begins in seconds after the
// snapshot. Operations are asked about in order, some may be left out, and one may be asked
// about again until a later one has been. Ok is false for others, for those before the
// snapshot, and for those that the job does not have: they do not ask.
func (t *Timetable) Ask(op uint64) (ina bool, at float64, ok bool) {
	me := &t.jobs[t.me]
	if t.decided && op == t.op {
		return t.ina, t.at, true
	}
	if me.gone || op < me.ops || me.end > 0 && op >= me.end {
		return false, 0, false
	}
	for !t.decided || t.op != op {
		if t.idle++; t.idle > most {
			me.gone = true
			return false, 0, false
		}
		t.step()
	}
	return t.ina, t.at, true
}

// step lets the next thing happen.
func (t *Timetable) step() {
	at, next := math.Inf(1), -1
	for i := range t.jobs {
		j := &t.jobs[i]
		if j.gone {
			continue
		}
		event := 0.0
		switch {
		case j.Running:
			event = max(t.now, j.Ends)
		case j.Op < j.Pattern.Ops():
			event = max(t.now, j.Began+j.Earliest(j.Op))
		default:
			event = max(t.now, j.Began+j.Compute())
		}
		if event < at {
			at, next = event, i
		}
	}
	t.now = at
	j := &t.jobs[next]
	switch {
	case j.Running:
		j.Running = false
		j.Op++
	case j.Op < j.Pattern.Ops():
		j.INA = tree.Decide(at, &j.State, j.others)
		j.Running, j.Ends = true, at+j.Duration(j.Op, j.INA)
		if next == t.me {
			t.decided, t.op, t.ina, t.at = true, j.ops, j.INA, at
			t.idle = 0
		}
		j.ops++
	case j.State.Last:
		j.gone = true
	default:
		j.Began, j.Op = at, 0
		j.last()
	}
}

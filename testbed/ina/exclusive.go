package ina

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Limits are what a switch offers jobs with exclusive trees (SHARP; MINA, INFOCOM '25,
// section II-C). A job sums on such a tree like in synchronous mode, through any number
// of levels, but only while it has its turn: while it has locked, for one operation, the
// resource of every switch of its tree.
//
// An operation is a run of consecutive PSNs: a packet flagged FlagLock, the gradients,
// a packet flagged FlagUnlock, the last sent when all results have come (see Reducer).
// Locks and unlocks are summed and answered like gradients, so that they too survive
// losses:
//
//  1. When the lock of all workers below is complete, a switch takes its resource for
//     the job, unless lane 0 says that a switch below could not. If Capacity jobs have it
//     already, it takes nothing and adds 1 to lane 0, which it takes from lane 1 (see
//     Seal): a refusal. It never waits, so there
//     is no deadlock; two jobs that lock crosswise may both be refused.
//  2. The root's sum is the answer, the same for all workers. On its way down every
//     switch keeps what it took, if nobody refused, or gives it back.
//  3. Gradients of a job without a turn are dropped and counted: refused, not slowed.
//  4. The sum of the unlocks, on its way down, ends the turn. It is complete when no
//     worker lacks a result.
//  5. Locks and unlocks that are not sealed are damaged. They are dropped and counted on
//     their way up and down: damage neither gives nor takes a turn.
//
// A job that is gone without unlocking keeps its turn until its entry is deleted or
// replaced (SetJob, DeleteJob), which ends it. An entry that comes after needs another
// epoch: a lock that was still under way would be taken for a new one.
type Limits struct {
	Resource Resource
	Capacity int // jobs that may have a resource at once; 1 is SHARP's streaming aggregation
	Trees    int // jobs with an exclusive tree through the switch, whether they have a turn or not; 0: none
}

// Resource is what jobs with exclusive trees contend for at a switch.
type Resource uint8

const (
	PerSwitch Resource = iota // the switch as a whole (Quantum, HDR)
	PerPort                   // each of its ports: trees with no port in common run at once (Quantum-2, NDR)
)

var resourceNames = [...]string{"switch", "port"}

func (r Resource) String() string {
	if int(r) < len(resourceNames) {
		return resourceNames[r]
	}
	return fmt.Sprintf("resource(%d)", uint8(r))
}

// ParseResource reverses String.
func ParseResource(s string) (Resource, error) {
	if i := slices.Index(resourceNames[:], s); i >= 0 {
		return Resource(i), nil
	}
	return 0, fmt.Errorf("resource %q is neither switch nor port", s)
}

// check says what is wrong with limits.
func (l Limits) check() error {
	switch {
	case int(l.Resource) >= len(resourceNames):
		return fmt.Errorf("unknown %v", l.Resource)
	case l.Trees < 0 || l.Trees > MaxJob:
		return fmt.Errorf("%d exclusive trees outside 0..%d", l.Trees, MaxJob)
	case l.Trees > 0 && l.Capacity < 1:
		return fmt.Errorf("exclusive trees with a capacity of %d jobs, at least 1 must be able to use them", l.Capacity)
	}
	return nil
}

// Limit sets what the switch offers exclusive trees; before, it offers none. It fails
// while there are any.
func (s *Switch) Limit(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	if n := s.trees(0); n > 0 {
		return fmt.Errorf("the switch has %d exclusive trees, delete them first", n)
	}
	s.limits = l
	return nil
}

// Active lists the jobs that have taken their resources here, for a turn or while the
// answer to their lock is under way, in ascending order.
func (s *Switch) Active() []uint16 {
	var ids []uint16
	for _, j := range s.jobs {
		if j != nil && j.turn.holds() {
			ids = append(ids, j.Job)
		}
	}
	return ids
}

// trees counts exclusive trees other than job's.
func (s *Switch) trees(job uint16) int {
	n := 0
	for _, j := range s.jobs {
		if j != nil && j.Mode == Exclusive && j.Job != job {
			n++
		}
	}
	return n
}

func (s *Switch) checkTree(e JobEntry, ports []uint32) error {
	switch {
	case s.limits.Trees == 0:
		return errors.New("the switch has no exclusive trees: its quota of trees is 0")
	case s.trees(e.Job) >= s.limits.Trees:
		return fmt.Errorf("%w: the switch has its %d exclusive trees, delete one first", ErrQuota, s.limits.Trees)
	case s.limits.Resource == PerPort && len(ports) == 0:
		return errors.New("an exclusive tree without ports: the switch's resource is the port")
	}
	for i, p := range ports {
		if slices.Contains(ports[:i], p) {
			return fmt.Errorf("an exclusive tree uses port %d twice", p)
		}
	}
	return nil
}

// resource is a switch or one of its ports, as trees share it.
type resource struct {
	trees  int // jobs that need it
	active int // of these, have it
}

// wholeSwitch is the key of the resource of PerSwitch. Ports of a switch count from 1.
const wholeSwitch = 0

// share returns the resources that a tree with these ports needs.
func (s *Switch) share(ports []uint32) []*resource {
	if s.limits.Resource == PerSwitch {
		ports = []uint32{wholeSwitch}
	}
	var needs []*resource
	for _, p := range ports {
		if s.resources[p] == nil {
			s.resources[p] = new(resource)
		}
		s.resources[p].trees++
		needs = append(needs, s.resources[p])
	}
	return needs
}

func (s *Switch) unshare(j *job) {
	for _, r := range j.needs {
		r.trees--
	}
	j.needs = nil
	for p, r := range s.resources {
		if r.trees == 0 {
			delete(s.resources, p)
		}
	}
}

// turn is where a job is in its latest operation.
type turn struct {
	state turnState
	psn   uint32        // of the lock
	since time.Duration // of an active turn
}

type turnState uint8

const (
	away    turnState = iota // no operation, or one that was refused
	refused                  // the lock is complete here and has failed, here or below
	taken                    // the lock has the resource, its answer is to come
	active                   // the lock was granted
)

func (t *turn) holds() bool { return t.state >= taken }

func (s *Switch) exclusive(j *job, h *Header, b []byte, port uint32, now time.Duration) Verdict {
	switch op := h.Flags & (FlagLock | FlagUnlock); {
	case op == 0 && (j.turn.state != active || int32(h.PSN-j.turn.psn) < 0):
		j.counters.In.sub(b)
		j.counters.Inactive.add(b)
		return Verdict{Reason: NoTurn}
	case op == FlagLock|FlagUnlock || op != 0 && !sealed(b[HeaderLen:], h.Bitmap):
		j.counters.In.sub(b)
		j.counters.Dropped.add(b)
		return Verdict{Reason: Malformed}
	}
	return s.synchronous(j, h, b, port, now)
}

// ask takes the job's resources for the lock that is complete in slot, or refuses.
func (s *Switch) ask(j *job, slot uint32) {
	s.yield(j)
	j.turn = turn{state: refused, psn: s.aggs[slot].psn}
	lanes := &s.sums[slot][0]
	if *lanes>>32 != 0 {
		return
	}
	for _, r := range j.needs {
		if r.active >= s.limits.Capacity {
			*lanes = (*lanes>>32+1)<<32 | uint64(uint32(*lanes)-1)
			j.counters.Conflicts.Packets++
			return
		}
	}
	for _, r := range j.needs {
		r.active++
	}
	j.turn.state = taken
}

// answer is what the result b of a lock or unlock does to the job's turn.
func (s *Switch) answer(j *job, b []byte, now time.Duration) {
	t := &j.turn
	psn := binary.BigEndian.Uint32(b[4:])
	switch {
	case Flags(b[1])&FlagUnlock != 0:
		if t.state == active && int32(psn-t.psn) > 0 {
			j.counters.Releases++
			j.counters.Hold += now - t.since
			s.yield(j)
		}
	case psn != t.psn || t.state == away || t.state == active: // answered before
	case binary.BigEndian.Uint32(b[HeaderLen:]) != 0:
		j.counters.Refused.add(b)
		s.yield(j)
	case t.state == taken:
		j.counters.Locks.add(b)
		t.state, t.since = active, now
	}
}

// yield ends the job's turn.
func (s *Switch) yield(j *job) {
	if j.turn.holds() {
		for _, r := range j.needs {
			r.active--
		}
	}
	j.turn.state = away
}

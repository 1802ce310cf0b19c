package ina

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// OpState is where a Reducer is in an operation.
type OpState uint8

const (
	OpIdle      OpState = iota // nothing was started yet
	OpLocking                  // the lock is sent, or about to be
	OpRefused                  // over: the tree was refused; no gradient was sent
	OpReducing                 // the tree was granted to all workers; gradients are sent and summed
	OpUnlocking                // every result has come; the tree is given back
	OpDone                     // over: everything was reduced
)

var opStateNames = [...]string{"idle", "locking", "refused", "reducing", "unlocking", "done"}

func (s OpState) String() string {
	if int(s) < len(opStateNames) {
		return opStateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Over reports whether the next operation can be started.
func (s OpState) Over() bool { return s == OpIdle || s == OpRefused || s == OpDone }

// Reducer is one worker of a job on an exclusive tree (see Limits): it takes part in one
// operation after the other. All workers of the job start the same operations, with as
// many packets, in the same order; when they do so does not matter. Every worker then
// comes to the same end of each: refused or done.
//
// It is driven like a Worker: what Next says is ready is sent with Send, what Deadline
// says is due again with Resend, and what arrives goes to Receive. Times are offsets
// from any fixed origin and must not decrease.
//
// A tree that is deleted in the middle of an operation leaves its workers asking for
// ever: whoever deletes it tells them, and they go on with new Reducers in the epoch of
// the next tree. How long one operation may take is for the caller to decide.
type Reducer struct {
	w        *Worker
	op       operation
	packets  uint64
	refusals uint32
	state    OpState
}

// NewReducer returns a worker of a job that has not reduced anything in this epoch.
// Of cfg, AIMD and Slots mean nothing here. The window is that of the job's
// entries in the switches, or less, and the region is theirs; locks and unlocks are PSNs
// too.
func NewReducer(cfg WorkerConfig) (*Reducer, error) {
	cfg.AIMD, cfg.Slots = false, nil
	if cfg.Region == 0 {
		return nil, errors.New("reducer: a region of 0 aggregators, want that of its entries in the switches")
	}
	w, err := NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	r := &Reducer{w: w}
	w.startup, w.op = 0, &r.op
	return r, nil
}

// Start begins an operation of the given number of packets of gradients at t. It fails
// while another is not over.
func (r *Reducer) Start(packets int64, t time.Duration) error { return r.start(packets, 0, t) }

// Veto begins an operation as Start does, and has it refused: no switch gives its
// resource to a lock that was refused below. So one worker that is to leave the tree
// makes all others learn of it, before they have sent any gradients.
func (r *Reducer) Veto(packets int64, t time.Duration) error { return r.start(packets, veto, t) }

// veto is what a worker that refuses puts into lane 0, above the refusals of any number
// of switches; those of MaxWorkers do not wrap.
const veto = 1 << 24

func (r *Reducer) start(packets int64, veto uint32, t time.Duration) error {
	switch {
	case !r.state.Over():
		return fmt.Errorf("reducer: operation at PSN %d is %v, not over", r.Lock(), r.state)
	case packets < 0:
		return fmt.Errorf("reducer: operation of %d packets", packets)
	}
	r.packets = uint64(packets)
	r.op.first = r.w.next
	r.op.unlock = r.op.first + r.packets + 1
	r.op.veto = veto
	r.state, r.refusals = OpLocking, 0
	r.w.Allow(1, t)
	return nil
}

// State is where the operation is.
func (r *Reducer) State() OpState { return r.state }

// Lock is the PSN of the latest operation's lock.
func (r *Reducer) Lock() uint32 { return r.w.psn(r.op.first) }

// Vetoes is how many workers refused the latest operation, as all were told.
func (r *Reducer) Vetoes() int { return int(r.refusals / veto) }

// Receive takes a UDP payload that arrived at t. It reports whether it was the first
// result of an outstanding PSN.
func (r *Reducer) Receive(b []byte, t time.Duration) bool {
	if !r.w.Receive(b, t) {
		return false
	}
	switch w := r.w; r.state {
	case OpLocking:
		if r.refusals = binary.BigEndian.Uint32(b[HeaderLen:]); r.refusals != 0 {
			r.state = OpRefused
			break
		}
		r.state = OpReducing
		w.Allow(int64(r.packets), t)
		fallthrough
	case OpReducing:
		if w.base == r.op.unlock {
			r.state = OpUnlocking
			w.Allow(1, t)
		}
	case OpUnlocking:
		r.state = OpDone
	}
	return true
}

// Next returns the PSN to be sent next and when the window opened for it; not ok while
// there is none.
func (r *Reducer) Next() (psn uint32, opened time.Duration, ok bool) { return r.w.Next() }

// Send writes the next packet to b, to be transmitted at t, and returns its length, or
// 0 when Next is not ok.
func (r *Reducer) Send(t time.Duration, b []byte) int { return r.w.Send(t, b) }

// Deadline is when the oldest unanswered packet has to be resent; not ok when nothing
// is outstanding.
func (r *Reducer) Deadline() (t time.Duration, ok bool) { return r.w.Deadline() }

// Resend writes the packet whose deadline passed longest ago to b, to be transmitted at
// t, and returns its length, or 0 when none is due.
func (r *Reducer) Resend(t time.Duration, b []byte) int { return r.w.Resend(t, b) }

// Stats returns the totals so far. Results count locks and unlocks; round trips do not.
func (r *Reducer) Stats() WorkerStats { return r.w.Stats() }

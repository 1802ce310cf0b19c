// Package sharing is who of the jobs that share switches asks for INA, operation by
// operation: the sharing controller and the hosts' side of MINA (section IV-B).
//
// A training job asks a Decider before each all-reduce. Those without a controller are
// Always, Greedy and Never. With one it is a Host.
//
// # How it works
//
// Hosts report to the Controller where their jobs are and what their steps look like. When
// a group's jobs change, when a pattern becomes known, and when jobs have drifted apart,
// it has all hosts of the group take over a snapshot of the group at once (package
// commit). From it every host knows which of its job's operations ask for INA (package
// timetable), without another message. Next waits only while the host is locked for a
// new snapshot: a round trip, about, and longer where messages are lost or hosts die.
//
// What guarantees what: that hosts of a job ask alike, the two-phase commit; that one of
// two rivals has the switches, the switches, which grant what all hosts of a job ask for or
// refuse them all. Snapshots only make refusals rare.
//
// Controller and hosts each serve one call, wire.Sharing.Deliver, and call each other: the
// hosts of a job too, for when the controller is silent. A call carries one message and
// answers nothing, so a network that loses, doubles or delays messages is the one that
// package commit is made for.
//
// # Logs
//
// With a Log, everything that was decided, locked, committed or aborted is written down
// before it takes effect, and Check says whether what must hold has held.
package sharing

import (
	"context"
	"sync"

	"github.com/inabench/inabench/placement/mina/tree"
)

// Decider says before each all-reduce of a job, on one of its hosts, whether it is to ask
// for INA. All hosts of a job get the same answer for the same operation. Asking is not
// getting: the switches refuse a job that asks while a rival is active, and then all of
// its hosts alike.
//
// One goroutine calls Next and Done, by turns. The other methods may be called by any.
type Decider interface {
	// Next is the operation that comes now, counted from 0 since the job's start, and
	// whether to ask for INA. It waits while the group's state is being changed: a host
	// that has begun an operation cannot be asked to do it differently. An error means
	// that the job cannot go on: of ctx, or ErrClosed.
	Next(ctx context.Context) (op uint64, ina bool, err error)
	// Done says that an operation has ended, and whether it had INA.
	Done(op uint64, used bool)
	// Learned gives the pattern of the job's steps, once it is known: seconds that a step
	// computes, and its all-reduces in the order in which Next counts them.
	Learned(step float64, ops []tree.Op) error
	// Close ends it; a Next that waits returns ErrClosed.
	Close() error
}

// Always asks for INA each time: for a job that has its switches to itself.
func Always() Decider { return newFixed(true) }

// Greedy asks for INA each time and takes what it gets: Table I's baseline for jobs that
// share switches. To the caller it is Always.
func Greedy() Decider { return newFixed(true) }

// Never asks for INA.
func Never() Decider { return newFixed(false) }

type fixed struct {
	ina    bool
	op     uint64
	closed chan struct{}
	once   sync.Once
}

func newFixed(ina bool) *fixed { return &fixed{ina: ina, closed: make(chan struct{})} }

func (f *fixed) Next(ctx context.Context) (op uint64, ina bool, err error) {
	select {
	case <-f.closed:
		return 0, false, ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	op = f.op
	f.op++
	return op, f.ina, nil
}

func (f *fixed) Done(uint64, bool)                {}
func (f *fixed) Learned(float64, []tree.Op) error { return nil }
func (f *fixed) Close() error                     { f.once.Do(func() { close(f.closed) }); return nil }

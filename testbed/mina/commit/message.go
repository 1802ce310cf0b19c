package commit

import (
	"cmp"
	"fmt"
	"time"
)

// Txn is the number of a transaction, and of the state that it brought. The zero value is
// before all others: the state in which nobody asks for INA.
type Txn struct {
	Epoch uint64 // of the controller
	Seq   uint64
}

// Compare orders transactions: -1 if t is older than u, 0, or 1.
func (t Txn) Compare(u Txn) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Seq, u.Seq))
}

func (t Txn) String() string { return fmt.Sprintf("%d.%d", t.Epoch, t.Seq) }

// Node is a host of a job; job 0 is the controller.
type Node struct {
	Job  uint32
	Rank uint32
}

func (n Node) String() string {
	if n.Job == 0 {
		return "controller"
	}
	return fmt.Sprintf("%d/%d", n.Job, n.Rank)
}

// Kind is what a message says.
type Kind uint8

// Messages, and who sends them to whom.
const (
	Prepare Kind = iota + 1 // controller to hosts: lock
	Ack                     // host to controller: locked, before operation Index
	Busy                    // host to controller: still locked for another transaction
	Commit                  // controller to hosts, or rank 0 to its job: take over Body
	Abort                   // likewise: unlock
	Done                    // host to controller: unlocked; Applied if it took Body over
	Ask                     // host to rank 0: what became of it?
	Query                   // rank 0 to its job: have you taken it over? If not, do not
	Answer                  // host to rank 0: Applied, with Body; or not, and it will not
	Report                  // host to controller: here I am
)

var kinds = [...]string{"none", "prepare", "ack", "busy", "commit", "abort", "done", "ask", "query", "answer", "report"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message goes from one node to another.
type Message struct {
	Kind     Kind
	From, To Node
	Run      uint64 // of the job that From or To is a host of
	Txn      Txn    // not of a Report
	Index    uint64 // Ack: the operation that the host begins next
	Applied  bool   // Done, Answer
	Body     string // Commit, Answer: the state. Ack: what the host tells of itself
}

func (m Message) String() string {
	s := fmt.Sprintf("%v %v>%v run %d txn %v", m.Kind, m.From, m.To, m.Run, m.Txn)
	switch m.Kind {
	case Ack:
		s += fmt.Sprintf(" index %d", m.Index)
	case Done, Answer:
		s += fmt.Sprintf(" applied %v", m.Applied)
	}
	return s
}

// Timer is one that a machine wants to be told of when it has run out, once. Timers that
// nobody waits for any more are ignored.
type Timer struct {
	Kind TimerKind
	Txn  Txn
	Job  uint32 // Readmit
}

// TimerKind is what a timer is for.
type TimerKind uint8

// Timers.
const (
	Resend  TimerKind = iota + 1 // controller: repeat what is not answered
	Again                        // controller: the interval after an abort
	Readmit                      // controller: a job that was taken out may come back
	Lease                        // host: the lock has lasted too long
)

// Event is something to be written down.
type Event struct {
	Kind  EventKind
	Node  Node   // Locked, Applied, Released: the host. Out: who was silent
	Run   uint64 // of it
	Txn   Txn
	Index uint64 // hosts: their next operation
	Why   Reason // Aborted, Out
	// Sent is how often the messages of the phase that ends here were sent to a host that
	// did not answer. Committed, Aborted: the first, Closed: the second.
	Sent int
	Jobs []uint32 // Committed: those that take part
}

// EventKind is what has happened.
type EventKind uint8

// Events.
const (
	Locked    EventKind = iota + 1 // a host has locked
	Applied                        // a host has taken the state over, and unlocked
	Released                       // a host has unlocked and keeps its state
	Fenced                         // a host obeys rank 0 only
	InDoubt                        // a host asks rank 0, or rank 0 all
	Begun                          // the controller has begun a transaction
	Committed                      // it has decided to commit
	Aborted                        // or to abort
	Closed                         // all have answered that were waited for
	Out                            // a job has been taken out of the group
	In                             // a job is in the group (again), from the next transaction on
)

var events = [...]string{"none", "locked", "applied", "released", "fenced", "in doubt", "begun", "committed", "aborted", "closed", "out", "in"}

func (k EventKind) String() string {
	if int(k) < len(events) {
		return events[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Reason is why a transaction was aborted or a job taken out.
type Reason uint8

// Reasons.
const (
	None      Reason = iota
	Differ           // hosts of a job were about to begin different operations
	Silent           // a host did not answer
	Occupied         // a host is locked for another transaction, or will not lock for this one
	Restarted        // a host has come back in a new run
	Left             // the job was taken out of the group by the caller
)

var reasons = [...]string{"", "indices differ", "silent", "busy", "restarted", "left"}

func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Output is what a machine wants done. It only grows; the caller empties it.
type Output struct {
	Messages []Message
	Timers   []Alarm
	Events   []Event
}

// Alarm is a timer and when it runs out.
type Alarm struct {
	Timer
	After time.Duration
}

// Reset empties it.
func (o *Output) Reset() { o.Messages, o.Timers, o.Events = o.Messages[:0], o.Timers[:0], o.Events[:0] }

func (o *Output) send(m Message)                     { o.Messages = append(o.Messages, m) }
func (o *Output) alarm(t Timer, after time.Duration) { o.Timers = append(o.Timers, Alarm{t, after}) }
func (o *Output) event(e Event)                      { o.Events = append(o.Events, e) }

// Times are how long machines wait.
type Times struct {
	Resend   time.Duration // until a message is repeated
	Attempts int           // messages without an answer until a host is taken for dead; at least 1
	Interval time.Duration // from an abort to the next try, and the first until a job may come back
	Lease    time.Duration // until a host that is locked asks the others of its job; longer than Attempts * Resend
}

// Default are the times for a network with round trips of a millisecond or less.
func Default() Times {
	return Times{Resend: 20 * time.Millisecond, Attempts: 8, Interval: 10 * time.Millisecond, Lease: 300 * time.Millisecond}
}

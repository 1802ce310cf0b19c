package migrate

import (
	"cmp"
	"fmt"
	"time"
)

// Term is the number of an assignment of the tensor to an Aggregator. Later ones are greater. The
// zero value is before all others.
type Term struct {
	Epoch uint64 // of pMaster
	Seq   uint64
}

// Compare orders terms: -1 if t is older than u, 0, or 1.
func (t Term) Compare(u Term) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Seq, u.Seq))
}

func (t Term) less(u Term) bool { return t.Compare(u) < 0 }

func (t Term) String() string { return fmt.Sprintf("%d.%d", t.Epoch, t.Seq) }

// Role is what a node is.
type Role uint8

// Roles.
const (
	PMaster Role = iota
	Aggregator
	Worker
)

// Node is who sends or receives: pMaster, an Aggregator by its id or a worker's Agent by
// its rank. An Aggregator that has crashed and comes back has another id.
type Node struct {
	Role Role
	ID   int32
}

func (n Node) String() string {
	switch n.Role {
	case Aggregator:
		return fmt.Sprintf("aggregator %d", n.ID)
	case Worker:
		return fmt.Sprintf("worker %d", n.ID)
	}
	return "pMaster"
}

// Kind is what a message says.
type Kind uint8

// Messages, and who sends them to whom.
const (
	// Data plane.
	Pull  Kind = iota + 1 // worker to Aggregator: I want the model of Version
	Push                  // worker to Aggregator: my gradient for the model of Version; I want the next one
	Model                 // Aggregator to worker: the model of Version. With Next, the tensor is at At from now on
	Wait                  // Aggregator to worker: I know, and have not got it yet
	Moved                 // Aggregator to worker: the tensor is at At, in term Next

	// Figure 13.
	MigrateInit // pMaster to the source: give it to At, in term Next
	Migrating   // its answer: I am about to give it to At, in term Next
	TensorCopy  // source, or a worker that seeds, to the destination: the model
	CopyAck     // its answer
	CopyDone    // source, or that worker, to pMaster: TENSOR_COPY_DONE
	WorkerDone  // destination to pMaster: all workers have come to me
	Release     // pMaster to either: I know; forget what is older

	// After a crash.
	Fence    // pMaster to workers: obey no term before this one
	Fenced   // its answer: I have the model of Version
	Assign   // pMaster to workers: the tensor is at At; worker Seeder copies its model there
	Assigned // its answer
	Ask      // pMaster, without memory, to workers: where is it?
	Status   // its answer: at At in Term, and no terms before Next are obeyed
	Stuck    // worker to pMaster: At does not answer
)

var kinds = [...]string{"none", "pull", "push", "model", "wait", "moved", "MIGRATE_INIT", "migrating",
	"TENSOR_COPY", "copy ack", "TENSOR_COPY_DONE", "WORKER_DONE", "release",
	"fence", "fenced", "assign", "assigned", "ask", "status", "stuck"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message goes from one node to another. D is what stands for a tensor's data: models,
// gradients. Machines pass it on and never look into it.
type Message[D any] struct {
	Kind     Kind
	From, To Node
	Term     Term
	Version  uint64 // of the model: how many updates are in it, and 1 for the initial value
	Next     Term
	At       int32 // an Aggregator
	Seeder   int32 // a rank
	Data     D
}

func (m Message[D]) String() string {
	s := fmt.Sprintf("%v, %v to %v, term %v", m.Kind, m.From, m.To, m.Term)
	if m.Version > 0 {
		s += fmt.Sprintf(", version %d", m.Version)
	}
	if m.Next != (Term{}) {
		s += fmt.Sprintf(", next %v", m.Next)
	}
	switch m.Kind {
	case Model, Moved, MigrateInit, Migrating, Assign, Status:
		s += fmt.Sprintf(" at %d", m.At)
	}
	return s
}

// Event is something that the caller acts on, or writes down.
type Event struct {
	Kind    EventKind
	Term    Term
	Version uint64
	At      int32
	Why     string // Failed
}

// EventKind is what has happened.
type EventKind uint8

// Events.
const (
	Pulled    EventKind = iota + 1 // worker: it has the model of Version
	Ready                          // Holder: all gradients for Version are there: call Updated
	Holding                        // Holder: it has the master copy from now on
	Gone                           // Holder: it has given it away, or was told that another one has it
	Redirects                      // Holder: workers are told the new place, with the model of Version
	Orphaned                       // Master: the tensor needs a place, other than At: call Recover or Fail
	Settled                        // Master: the tensor is at At, and all know
	Moving                         // Master: a migration to At has begun
	Failed                         // Master: training cannot go on
)

var events = [...]string{"none", "pulled", "ready", "holding", "gone", "redirects", "orphaned", "settled", "moving", "failed"}

func (k EventKind) String() string {
	if int(k) < len(events) {
		return events[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Output is what a machine wants done. It only grows; the caller empties it.
type Output[D any] struct {
	Messages []Message[D] // in this order to one node
	Events   []Event
	// Alarm asks for a call of Timeout after so long, instead of what was asked for before. 0:
	// as it was.
	Alarm time.Duration
}

// Reset empties it.
func (o *Output[D]) Reset() { o.Messages, o.Events, o.Alarm = o.Messages[:0], o.Events[:0], 0 }

func (o *Output[D]) send(m Message[D]) { o.Messages = append(o.Messages, m) }
func (o *Output[D]) event(e Event)     { o.Events = append(o.Events, e) }

// Alarm is the timer of one machine. The zero value is ready, and not set.
type Alarm struct{ timer *time.Timer }

// Set sets it to an Output's Alarm; ring is the same each time.
func (a *Alarm) Set(after time.Duration, ring func()) {
	switch {
	case after <= 0:
	case a.timer == nil:
		a.timer = time.AfterFunc(after, ring)
	default:
		a.timer.Reset(after)
	}
}

// Stop says that it need not ring any more. It may be about to.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// Times are how long machines wait.
type Times struct {
	Resend   time.Duration // until a message is repeated; doubled each time, up to 32 times
	Attempts int           // messages without an answer until whoever is asked is taken for dead; at least 1
}

// DefaultTimes are those for connections that lose nothing while they last: repeating is for
// those that broke.
func DefaultTimes() Times { return Times{Resend: 100 * time.Millisecond, Attempts: 6} }

// after is how long to wait after so many attempts.
func (t Times) after(tries int) time.Duration { return t.Resend << min(tries, 5) }

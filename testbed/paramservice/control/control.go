// Package control has what pMaster and the nodes of a Parameter Service, its Aggregators and
// its workers' Agents, say to each other beside tensors; and Link, which carries it. A link may be
// gRPC to a pMaster in another process, a Pipe to one in this process, or Static, which stands
// for a pMaster that assigns tensors once and never again.
package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/inabench/inabench/testbed/paramservice/migrate"
)

// Protocol is the version of what nodes say to each other and to pMaster. Others are refused.
const Protocol = 1

// Limits of a job. A tensor has a master copy at its Aggregator, and a gradient for each
// worker.
const (
	MaxElements = 1 << 27 // of a tensor: 512 MiB; VGG19's largest has 392 MiB
	MaxTensors  = 1 << 16
	MaxWorkers  = 1 << 12
)

// Errors.
var (
	// ErrJob is about jobs that cannot be served.
	ErrJob = errors.New("not a job that can be served")
	// ErrClosed is that of a link that has been closed.
	ErrClosed = errors.New("link to pMaster closed")
)

// Key names a tensor. A tensor's own id is not enough where jobs share Aggregators (appendix A).
type Key struct {
	Job    uint32 // Job.ID
	Tensor uint32 // its index in Job.Tensors
}

func (k Key) String() string { return fmt.Sprintf("tensor %d of job %d", k.Tensor, k.Job) }

// Tensor is a part of a model that is summed as a whole.
type Tensor struct {
	Name     string
	Elements int // float32 values
	// Work is the time that one aggregation of it takes on the emulated core of an Aggregator;
	// 0: that which it really takes.
	Work time.Duration
}

// Bytes is the size of the tensor's values.
func (t Tensor) Bytes() int64 { return 4 * int64(t.Elements) }

// Job is what Aggregators have to know of a job.
type Job struct {
	ID      uint32 // by pMaster, which gives none twice
	Name    string
	Workers int
	Servers int     // that it would have to itself without the service; 0 is 1
	Rate    float32 // of SGD: a model becomes model - Rate·(sum of the workers' gradients)
	Tensors []Tensor
}

// Check returns an error wrapping ErrJob unless the job can be served.
func (j *Job) Check() error {
	switch {
	case j.Workers < 1 || j.Workers > MaxWorkers:
		return fmt.Errorf("job %q: %d workers, not 1 to %d: %w", j.Name, j.Workers, MaxWorkers, ErrJob)
	case len(j.Tensors) < 1 || len(j.Tensors) > MaxTensors:
		return fmt.Errorf("job %q: %d tensors, not 1 to %d: %w", j.Name, len(j.Tensors), MaxTensors, ErrJob)
	case j.Servers < 0:
		return fmt.Errorf("job %q: %d servers: %w", j.Name, j.Servers, ErrJob)
	case j.Rate != j.Rate || j.Rate-j.Rate != 0:
		return fmt.Errorf("job %q: learning rate %v: %w", j.Name, j.Rate, ErrJob)
	}
	for i, t := range j.Tensors {
		if t.Elements < 1 || t.Elements > MaxElements || t.Work < 0 {
			return fmt.Errorf("job %q: tensor %d, %q: %d values, %v of work: %w", j.Name, i, t.Name, t.Elements, t.Work, ErrJob)
		}
	}
	return nil
}

// Message is what pMaster and a node say to each other: one of the types of this package that
// say so.
type Message interface{ message() }

// Migrate is a message of migrate's protocol about one tensor; those of the control plane carry
// no data.
type Migrate struct {
	Key     Key
	Message migrate.Message[None]
}

// None stands for the data of messages without any.
type None struct{}

// Admit tells an Aggregator of a job whose tensors may come. For a job that it knows it changes
// nothing. The answer is Admitted; workers are sent there after it.
type Admit struct{ Job Job }

// Admitted is an Aggregator's answer.
type Admitted struct{ Job uint32 }

// Dismiss tells a node that a job is over: at Aggregators it is forgotten, and an Agent ends. Why
// is empty for those that came to their end.
type Dismiss struct {
	Job uint32
	Why string
}

// Reserve gives an Aggregator its cycle, instead of the one that it has. Tensors without a slot
// are served in the time that is left.
type Reserve struct {
	Cycle time.Duration
	Slots []Slot
}

// Slot is a tensor's part of a cycle, as paramservice.Slot.
type Slot struct {
	Key       Key
	Iteration time.Duration // of its job
	Exec      time.Duration // of one aggregation
}

// Peers tells a node where Aggregators are: some, in addition to those that it knows.
type Peers struct{ Aggregators []Peer }

// Peer is an Aggregator. No id stands for another one later, not even at the same address.
type Peer struct {
	ID      int32
	Address string // of its data plane
}

// Failed is a node's word that a job cannot go on.
type Failed struct {
	Job uint32
	Why string
}

// Finished is an Agent's word that its worker has all models that it wants. It goes on answering until
// Dismiss comes, which it does when all workers have finished: others may need its model still.
type Finished struct{ Job uint32 }

// WorkerReport is what an Agent has seen since its last report.
type WorkerReport struct {
	Job        uint32
	Rank       int32
	Iterations int
	Spent      time.Duration // on them
	Stalled    time.Duration // of that, waiting for models
	Transfers  []Transfer
}

// Transfer is how long gradients and models took to an Aggregator and back, without the time that
// they were there. Divided by Bytes and compared with what it was without other traffic, it tells of
// interference (appendix D).
type Transfer struct {
	Aggregator int32
	Exchanges  int   // gradients that were answered
	Bytes      int64 // both ways
	Spent      time.Duration
}

// AggregatorReport is what an Aggregator has done since its last report.
type AggregatorReport struct {
	Span    time.Duration // since then
	Busy    time.Duration // its core, emulated where tensors say so
	CPU     time.Duration // the whole process, by the kernel's account
	Tensors []TensorReport
}

// TensorReport is about one tensor.
type TensorReport struct {
	Key       Key
	Runs      int           // aggregations
	Busy      time.Duration // they took, on the core
	Spare     int           // were late, and took spare time of the cycle
	Postponed int           // were late, and waited for their next slot
	NaNs      int64         // values that were not numbers, or not finite, after an update
	Ranks     []int32       // whose gradients they came from
}

func (Migrate) message()          {}
func (Admit) message()            {}
func (Admitted) message()         {}
func (Dismiss) message()          {}
func (Reserve) message()          {}
func (Peers) message()            {}
func (Failed) message()           {}
func (Finished) message()         {}
func (WorkerReport) message()     {}
func (AggregatorReport) message() {}

// Link is a node's connection with pMaster. It is safe for concurrent use.
type Link interface {
	// Send hands on a message, in order with others, and does not wait. One that cannot be
	// sent is lost: who needs an answer repeats it.
	Send(Message)
	// Receive waits for the next message. Its error is the context's, or wraps ErrClosed: there
	// will be no other message. A link that breaks but may come back does not return.
	Receive(context.Context) (Message, error)
}

// Strip makes a control message of one of migrate's.
func Strip[D any](k Key, m migrate.Message[D]) Migrate {
	return Migrate{k, convert[None](m)}
}

// With is the reverse of Strip, without data.
func With[D any](m Migrate) migrate.Message[D] { return convert[D](m.Message) }

func convert[B, A any](m migrate.Message[A]) migrate.Message[B] {
	return migrate.Message[B]{Kind: m.Kind, From: m.From, To: m.To, Term: m.Term, Version: m.Version, Next: m.Next, At: m.At, Seeder: m.Seeder}
}

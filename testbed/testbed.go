// Package testbed is where a plan becomes traffic: drivers that realise it in a
// lab, in an emulated rack, or in a model.
//
// There are two levels. A Fabric is hardware, real or emulated, brought up from
// an inventory; it hands back an inventory whose addresses point at it. A
// Deployment runs jobs: package remote does so over SSH and P4Runtime on any
// Fabric (lab and netns), package sim does so in virtual time.
package testbed

import (
	"context"
	"errors"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/stall"
)

// ErrBusy is wrapped when a testbed refuses work because another run holds it.
var ErrBusy = errors.New("testbed is in use")

// Fabric is a testbed's hosts, switches and cables, powered on.
type Fabric interface {
	// Inventory is the inventory that was brought up with addresses, rates and
	// delays as they are here: a lab returns its own, an emulation one that points
	// into its namespaces with scaled rates.
	Inventory() *inventory.Inventory

	// SetLink changes the state of one directed link, named as in
	// inventory.Topology. A lab returns an error wrapping errors.ErrUnsupported.
	SetLink(ctx context.Context, link string, s LinkState) error

	// Health reports signs that the fabric itself limited what was measured since
	// the last call, judged against the shortest round trip that matters.
	Health(ctx context.Context) ([]results.Trouble, error)

	// Stalls are those of the fabric, as those of a Deployment, whose clock was 0 at began.
	// A lab has none to tell of.
	Stalls(ctx context.Context, began time.Time) ([]Stall, error)

	// Close takes the fabric down. It is idempotent, bounded in time, and works
	// after ctx is cancelled.
	Close(ctx context.Context) error
}

// LinkState is deliberate damage to one direction of a cable.
type LinkState struct {
	Loss, Duplicate, Reorder float64       // probabilities 0..1
	ReorderBy                time.Duration // how long a reordered packet is held back
}

// Stall is a time in which a part of the testbed, not what is tested, stood still or was
// late by more than LateLimit. Readings of such a time, and of one just after it, are about
// the machine.
type Stall struct {
	Start, End time.Duration // on the deployment's clock, see Deployment.Now; the first is not after the second
	Where      string        // "switch tor1", "worker A/0 on host h1", "this machine"
	What       string        // "frames left up to 104 ms late"
	Late       time.Duration // the most
	Held       time.Duration // for how long of it something was late, each moment once
	Waited     time.Duration // of it, for a processor: of a process whose machine was busy
	Job        string        // whose process stood still; empty: the testbed did
}

// LateLimit is how late a part of a testbed may be, over the shortest time that matters,
// before that is a stall: of the 99th percentile it is what the figures of a run stand.
const LateLimit = stall.Limit

// StallLimit is how much of the time a part of a testbed may stand still, 0 to 1, before what
// is left does not count either.
const StallLimit = 0.25

// Rest is how long the processes of a testbed whose shortest round trip is rtt may
// rest between looking for packets: so little of it that nothing measured changes,
// and much less work than waking up for each packet. Where packets that have come
// together cost little more than one (offload), longer.
func Rest(rtt time.Duration, offload bool) time.Duration {
	if offload {
		rtt *= 2
	}
	return min(rtt/200, time.Millisecond)
}

// Pace is how well an emulation keeps to its times.
type Pace struct {
	Within time.Duration // by how much a job may have begun before it was seen to
	Rest   time.Duration // between two looks of a process at what there is to do
	Wake   time.Duration // the median of what a look takes to come about, under load
	Trip   float64       // by how much round trips may differ from calibrated ones, as a part of them
}

// ManyLinks is how many links, each in both directions, are all read and predicted. Where there are more, those that no job
// uses are left out: what is said of them would be most of a record.
const ManyLinks = 4096

// Settings are what an experiment says about all its switches and senders.
type Settings struct {
	Mode        string // "statistical" or "synchronous"
	Addressing  string // "pool", "hash", "linear" or "atp"
	Aggregators int    // used on every INA switch; 0: all it has
	Queue       string // "fifo", "fair" (one queue per job) or "flows" (one per worker of a job, for sums, for results)
	Lanes       int    // int32 per packet
	Seed        uint64
}

// Workload is what one job sends, in the testbed's own (scaled) units.
type Workload struct {
	Job        placement.JobPlan
	Rate       float64       // wire bit/s per worker; 0: no limit
	Window     int           // packets outstanding per worker
	Control    string        // "fixed" or "aimd"
	Message    int64         // gradient bytes per iteration; 0: a stream
	Layers     []Layer       // from a model profile; overrides Message
	Iterations int64         // 0: until stopped
	Slots      int           // atp addressing: W
	RTO        time.Duration // 0: a multiple of the path's round trip
	// Trip is how long a packet and its answer were measured to take, where no topology says it: hosts of a lab take longer
	// than its cables. What is late by a part of it makes a window carry that part less. 0: as Beat has it.
	Trip time.Duration
}

// Reduces is what the job reduces in an iteration, a layer after the other; none of a stream. A ring has a message even
// where none is asked for.
func (w *Workload) Reduces() []Layer {
	switch {
	case len(w.Layers) > 0:
		return w.Layers
	case w.Message > 0:
		return []Layer{{Bytes: w.Message}}
	case w.Job.Collective == placement.Ring:
		return []Layer{{Bytes: collectives.RingMessage}}
	}
	return nil
}

// Frames are those that the job's gradients fill over a tree, with so many values in each.
func (w *Workload) Frames(lanes int) collectives.Frames {
	bytes := int64(0)
	for _, l := range w.Reduces() {
		bytes += l.Bytes
	}
	return collectives.FramesOf(bytes, lanes)
}

// Layer is one gradient tensor of a model profile.
type Layer struct {
	Bytes   int64
	Compute time.Duration
}

// Capabilities are what a deployment can do; what it cannot is declared here, not
// discovered by failing.
type Capabilities struct {
	Sums        bool // carries real gradients and checks them
	Impairments bool // SetLink works
	Calibrates  bool // T and round trips can be measured here; a model knows its own
	Virtual     bool // Now is virtual time: Sleep returns at once
	SuperFrames bool // hosts' NICs count what was handed over together as one; switches count frames
	Pace        Pace // of emulations; the zero Pace: nobody knows when jobs begin
	Jobs        int  // the largest id of a job that all switches can sum for; 0: ina.MaxJob
	Kind        results.Kind
	Switch      string // soft, bmv2, tofino, quantum, model
}

// Setup is one point of an experiment, ready to be deployed.
type Setup struct {
	Plan      *placement.Plan
	Settings  Settings
	Workloads []Workload // one per job of the plan, same order

	// Grants are the memory of synchronous jobs, by name; jobs that they lack begin at a
	// halt. nil: every job has two of its windows, one behind the other, and an error
	// wrapping placement.ErrMemory says where they do not fit.
	Grants map[string]placement.Grant

	// Damage is what SetLink is to make of directed links, by name, before jobs start. Deploy does not do
	// it: it is what predictions have to know.
	Damage map[string]LinkState

	Interval time.Duration // between the reports of workers and PSs; 0: as the testbed does
}

// Testbed is a testbed that stands ready to run one experiment after another:
// connections are open, agents copied, pipelines pushed.
type Testbed interface {
	Capabilities() Capabilities

	// Inventory is what the testbed really is: addresses, rates and delays as they
	// are here. Predictions for what is measured here are made from it.
	Inventory() *inventory.Inventory

	// Facts describe the machines that do the work.
	Facts() []results.HostFacts

	// Deploy realises a setup. On error nothing of it remains. Only one deployment
	// exists at a time; a second one is refused with an error wrapping ErrBusy.
	Deploy(ctx context.Context, s Setup) (Deployment, error)

	// Close ends the testbed and, for an emulation, takes it down. It is
	// idempotent, bounded in time, and works after ctx is cancelled.
	Close(ctx context.Context) error
}

// Saboteur is a Testbed whose parts can be given faults on purpose: an emulation, or a model.
type Saboteur interface {
	// Sabotage gives a part a fault in the place of any earlier; nil: none. Workers and
	// parameter servers that are started from then on have it. It says how often the earlier
	// fault has acted.
	Sabotage(ctx context.Context, o *sabotage.Order) (acted int64, err error)
}

// Deployment is an experiment's jobs on a testbed: processes started, switches
// programmed, nothing sent yet. The caller must Close it.
type Deployment interface {
	// Add brings another job in while others run, ready to be started. Its name and ID
	// are new. Remove takes one out that has ended, been stopped, or never started:
	// switches forget it, and its ID may be used again. In synchronous mode, memory is
	// handed out once; where there are grants, a new job begins at a halt. Every job that
	// is added has an epoch of its own, so that no packet of one before with its ID is
	// taken for its own. Both are safe for concurrent use with everything else but Close.
	Add(ctx context.Context, job placement.JobPlan, w Workload) error
	Remove(ctx context.Context, job string) error

	// Reallocate gives synchronous jobs the memory that is granted to them in place of
	// what they have; jobs that are not named keep theirs. Jobs for which that is another
	// finish what is outstanding, wait until all switches have been told, and go on: no
	// sum is lost or wrong. One without memory is at a halt until it is granted some. It
	// returns when all workers have been told. Grants that do not fit are an error
	// wrapping placement.ErrMemory, before anything is changed; after another error jobs
	// may be left at a halt. It is not for statistical mode (errors.ErrUnsupported).
	Reallocate(ctx context.Context, grants map[string]placement.Grant) error

	// Start lets a job send. Stop makes it finish what is outstanding. Both return
	// when every worker has confirmed. A job at a halt starts when it is granted memory.
	Start(ctx context.Context, job string) error
	Stop(ctx context.Context, job string) error

	// Done is closed when the job has ended by itself, having done its iterations,
	// or has failed; Summary then says which.
	Done(job string) <-chan struct{}
	Summary(job string) (results.JobSummary, error)

	// Sample reads every counter once. Samples carry the time of their reading.
	Sample(ctx context.Context) ([]results.Sample, error)

	SetLink(ctx context.Context, link string, s LinkState) error
	Health(ctx context.Context) ([]results.Trouble, error)

	// Stalls are those that have ended, or were seen so far, since the last call, in order of
	// their starts; one that goes on is told in parts. Agents tell of
	// theirs with their samples, so one may come as late as those do. A model has none.
	//
	// Who asks leaves them out of its figures. So what Health says of lateness is of the time
	// outside of stalls if they were asked for since it was called last, and of all the time
	// otherwise. An error means that a part could not be asked; what the others said comes
	// with it.
	Stalls(ctx context.Context) ([]Stall, error)

	// Now is the time since the deployment was made; Sleep returns when it is t, when
	// one of the channels is closed, or ctx is done. In virtual time Sleep runs the model
	// up to t, or to the instant that closes a channel.
	Now() time.Duration
	Sleep(ctx context.Context, t time.Duration, until ...<-chan struct{}) error

	Close(ctx context.Context) error
}

// ErrLeftovers is wrapped when a teardown could not undo everything; the error
// lists what is left.
var ErrLeftovers = errors.New("cleanup incomplete")

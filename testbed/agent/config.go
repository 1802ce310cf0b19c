// Package agent is the process that runs on a host: a worker, a rank or a parameter
// server of one job. inabench copies itself to the host and starts it over SSH
// with a fixed command line; all parameters travel as JSON on stdin, so nothing
// from a file ever meets a remote shell, and a closed stdin ends the agent. Package
// supervise ends one that cannot hear.
package agent

import (
	"fmt"
	"time"

	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/stall"
)

// Config is the first line an agent reads from stdin.
type Config struct {
	Role       string   `json:"role"`       // "worker", "ps", "ring", "trainer" or "rank"
	Collective string   `json:"collective"` // "ina", "ps" or "ring"
	Job        uint16   `json:"job"`
	Name       string   `json:"name"` // of the job
	Epoch      uint16   `json:"epoch"`
	Rank       int      `json:"rank"` // of a worker, 0..Workers-1
	Workers    int      `json:"workers"`
	Mode       string   `json:"mode"`            // "statistical", "synchronous" or "forward"
	Device     string   `json:"device"`          // NIC to use
	PS         string   `json:"ps,omitempty"`    // data address of the PS, for the plain ps collective
	Peers      []string `json:"peers,omitempty"` // data addresses of all workers in rank order, for ring and ps

	Lanes  int     `json:"lanes"`  // int32 values per packet, 1..240
	Window int     `json:"window"` // packets a worker may have outstanding, at most
	Rate   float64 `json:"rate"`   // wire rate limit, bit/s of frame bytes; 0: none
	// LineRate keeps a worker without a rate limit from handing its NIC a window at
	// once, bit/s; 0: it may. Without influence on what the network lets through if it
	// is somewhat above the NIC's rate.
	LineRate float64 `json:"line_rate,omitempty"`
	Control  string  `json:"control"` // "fixed" window, or "aimd" driven by ECN marks
	Seed     uint64  `json:"seed"`

	// What to send: iterations of a compute pause, then gradients. Empty Layers and
	// Message 0 is a plain stream without iterations (of a ring, which has none,
	// iterations of 4 MiB). The gradients of an iteration are padded to whole packets.
	Message    int64   `json:"message,omitempty"`    // bytes of gradient per iteration
	Layers     []Layer `json:"layers,omitempty"`     // overrides Message
	Iterations int64   `json:"iterations,omitempty"` // 0: until stopped
	// Addressing and Offset are how packets name their aggregators: see ina.NameSlot.
	Addressing ina.Addressing `json:"addressing,omitempty"`
	Offset     uint32         `json:"offset,omitempty"`
	// ATP addressing: the distinct slots of the job out of Aggregators.
	Slots       int `json:"slots,omitempty"`
	Aggregators int `json:"aggregators,omitempty"`

	// Halted has a worker begin in a pause: its job has no memory in switches yet. If it
	// is started in that it counts as started at once, and sends nothing until it is told
	// to resume.
	Halted bool `json:"halted,omitempty"`

	// RTO is the first resend timeout. It adapts upwards, to 16 times this at most, so
	// it should be a few round trips with full queues.
	RTO      time.Duration `json:"rto"`
	Interval time.Duration `json:"interval"` // between samples; 0: 1 s
	// Step is how long its job may be without a result where nothing is amiss; of a ring, how
	// long an operation may take. Who ends waits longer for the others.
	Step time.Duration `json:"step,omitempty"`
	// Rest is the least time between two looks at the socket and the schedule: packets
	// that are due within it go together. 0: each is handled at once.
	Rest time.Duration `json:"rest,omitempty"`
	// Beat is the shortest time that matters: what is late by more than stall.Limit of it is
	// told as a stall. 0: nothing is.
	Beat time.Duration `json:"beat,omitempty"`
	// Offload hands packets that go or have come together to and from the NIC as one
	// (up to ina.MaxSegments), which costs a fraction of handing over each. The NIC must
	// offload checksums.
	Offload bool `json:"offload,omitempty"`

	// A trainer uses the following, and Job, Epoch (of its ring), Rank, Workers, Peers,
	// Device, Lanes, Rate (of its ring), LineRate, Seed, RTO, Interval, Rest and Offload. One
	// that is the only rank of its job communicates with nobody.
	Pattern *Pattern `json:"pattern,omitempty"` // of its steps
	Speed   float64  `json:"speed,omitempty"`   // of its GPU, over that of the pattern; 0: 1
	Steps   int64    `json:"steps,omitempty"`   // until it is done; 0: until stopped
	// Sharing is who decides whether an all-reduce asks for the job's tree: "none" never
	// does, "exclusive" and "greedy" do each time, "shared" as the sharing controller says.
	Sharing string `json:"sharing,omitempty"`
	// Controller is the address of MINA's controller, which gives the job its trees; empty:
	// there is none.
	Controller string `json:"controller,omitempty"`
	// SharingController is the address of the one that "shared" goes by, and Run the number
	// of this run of the job: the same on all ranks, and greater each time; 0: Epoch. The
	// others reach this rank where it reaches the controller from. SharingLog is a file to
	// which the rank's decisions are appended; empty: none.
	SharingController string `json:"sharing_controller,omitempty"`
	Run               uint64 `json:"run,omitempty"`
	SharingLog        string `json:"sharing_log,omitempty"`
	// Profiled says that the job's pattern is known from an earlier run: its rank need not
	// find out by itself before it shares.
	Profiled bool `json:"profiled,omitempty"`
	// Tree is the job's from the start; nil: none before a command or Controller gives it
	// one.
	Tree *collective.Tree `json:"tree,omitempty"`
	// Timeout is how long a rank waits for others within an all-reduce; 0:
	// collective.DefaultTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`

	// A rank is a GPU's worker: each of its Iterations it computes, which is a timer, and
	// then takes part in an all-reduce of Message bytes of gradients, which is real. It uses
	// the following, and Job, Epoch (another for every run of the job), Rank, Workers, Device,
	// Rate or LineRate (of what it sends each rank on another host), Seed, Speed, Timeout and
	// Interval. The only rank of its job computes, as a background job does.
	//
	// Operation is the all-reduce, by its name in placement/collectives, and Compute how long
	// an iteration computes, s.
	Operation string  `json:"operation,omitempty"`
	Compute   float64 `json:"compute,omitempty"`
	// Listen is the address at which the others reach this rank; empty: that of Device. The
	// kernel gives the port, unless the address says which, and "ready" tells it.
	Listen string `json:"listen,omitempty"`
	// LocalRate is what a rank sends to others of its host, all together, bit/s of gradients:
	// loopback is no cable that could be slow. 0: as fast as that goes.
	LocalRate float64 `json:"local_rate,omitempty"`

	// Sabotage is a fault that the agent is to have; nil: none.
	Sabotage *sabotage.Act `json:"sabotage,omitempty"`
	// spoil is of the fault, for roles that do not send their gradients themselves.
	spoil func(values []byte)
}

// Title is what the agent is to people: "worker A/0", "ps A".
func (c Config) Title() string {
	switch c.Role {
	case "ps":
		return "ps " + c.Name
	case "trainer", "rank":
		return fmt.Sprintf("rank %s/%d", c.Name, c.Rank)
	}
	return fmt.Sprintf("worker %s/%d", c.Name, c.Rank)
}

// Part implements sabotage.Victim.
func (c Config) Part() (name string, kind sabotage.Kind, ok bool) {
	if c.Role == "ps" {
		return c.Name + "/ps", sabotage.PS, c.Workers > 1
	}
	return fmt.Sprintf("%s/%d", c.Name, c.Rank), sabotage.Worker, c.Workers > 1
}

// With implements sabotage.Victim.
func (c Config) With(act sabotage.Act) any {
	c.Sabotage = &act
	return c
}

// Pattern is the steps of a training job; see workload.Pattern.
type Pattern struct {
	Step float64 `json:"step"` // s that a step computes
	Ops  []Op    `json:"ops"`
}

// Op is an all-reduce of a step.
type Op struct {
	Start float64 `json:"start"` // s since the step began: not earlier, as the gradients are not there
	Bytes int64   `json:"bytes"`
}

// Layer is one gradient tensor: computed for Compute, then sent.
type Layer struct {
	Bytes   int64         `json:"bytes"`
	Compute time.Duration `json:"compute"`
}

// Command is any later line on stdin.
type Command struct {
	// Cmd is "start", "stop", "ping", or of workers "hold", "pause", "resume" and "count", or
	// of trainers "tree", or of ranks "peers".
	//
	// A job pauses in two steps, because its workers must end at one PSN. Hold has each
	// send nothing new and answer with the PSN at which it is; pause, with the largest of
	// these, has each finish what is below and then answer. Resume ends the pause with a
	// window that may be another.
	//
	// Count is answered with "counted" and totals, also before the worker has started.
	//
	// Stop is for workers first, then the PS. Workers that were told where to pause end
	// there: they finish what is outstanding up to there, report and exit. One that was
	// not told sends nothing new, and ends where it is. One whose others have died, or
	// have ended before, gives up after a second, four RTO or two Steps without progress. Trainers and ranks end after the step or iteration
	// in which all have heard of it.
	//
	// Tree gives a job another tree, or with epoch 0 none. All ranks are told, and each
	// answers "acquired" or "released" when all of them have agreed, which they do with the
	// next all-reduces, without waiting for it. Then no rank has anything to do with the
	// tree before any more, and it may be taken from the switches. The new one is to be
	// there before any rank is told. "refused" is the answer to a tree that cannot be; a
	// command that another follows before it is settled is not answered.
	//
	// Peers tells a rank where all ranks of its job listen. It answers "connected" when it has
	// connections to all with which it exchanges something. A job of one rank needs none.
	Cmd    string `json:"cmd"`
	ID     int64  `json:"id,omitempty"`     // not 0, of what is answered
	PSN    uint64 `json:"psn,omitempty"`    // of pause
	Window int    `json:"window,omitempty"` // of resume

	Tree collective.Tree `json:"tree,omitzero"`
	// At is when a trainer or rank that is told to start begins its first step, in seconds of
	// its host's clock, if its job's ranks have found each other by then. Ranks of a job that
	// computes longer than it communicates stay as far apart as they began.
	At float64 `json:"at,omitempty"`
	// Peers are what the job's ranks told in "ready", in the order of their numbers.
	Peers []string `json:"peers,omitempty"`
}

// Event is a line an agent writes to stdout: "ready" when its sockets are open, so
// that any agent of the job may be started, "started" when its traffic begins (of a
// worker: when all workers of the job have started, see ina.Startup), "sample" every
// Interval from then on, the answers "pong", "held", "paused", "counted", "acquired", "released",
// "refused" and "connected", of a trainer "pattern" when it has found out its own, and in the end "done" or
// "error".
type Event struct {
	Event string `json:"event"`
	// T is the host's monotonic clock in seconds (an arbitrary origin; the
	// controller measures the offset with pings).
	T     float64 `json:"t"`
	ID    int64   `json:"id,omitempty"`  // of the command that this answers
	PSN   uint64  `json:"psn,omitempty"` // of "held"; does not wrap
	Error string  `json:"error,omitempty"`
	Stats *Stats  `json:"stats,omitempty"`
	// Stalls are of "sample" and "done": those since the last, on the clock of T.
	Stalls []stall.Span `json:"stalls,omitempty"`
	// Pattern is what was collected from the job's queue.
	Pattern *Pattern `json:"pattern,omitempty"`
	// Listen is where a rank that is ready takes connections, host:port.
	Listen string `json:"listen,omitempty"`
}

// Stats are totals since the agent began. Packets and bytes count frames as a NIC
// does (Ethernet header in, preamble and FCS out).
type Stats struct {
	PacketsSent     int64 `json:"packets_sent"` // resends included
	BytesSent       int64 `json:"bytes_sent"`
	PacketsReceived int64 `json:"packets_received"`
	BytesReceived   int64 `json:"bytes_received"`
	Resends         int64 `json:"resends"`
	// Worker: reduced PSNs received, those of the startup included, and their gradient
	// bytes (goodput): of iterations, without the startup's and without what pads the last
	// packet of each. Ring: gradient bytes only.
	PSNs         int64   `json:"psns"`
	Goodput      int64   `json:"goodput_bytes"`
	RTTSum       float64 `json:"rtt_sum"` // seconds, over first transmissions answered
	RTTCount     int64   `json:"rtt_count"`
	RTTMin       float64 `json:"rtt_min"` // the startup's second PSN probes it at low load
	Iterations   int64   `json:"iterations"`
	IterationSum float64 `json:"iteration_sum"` // seconds spent in iterations
	CommSum      float64 `json:"comm_sum"`      // of these, from first gradient ready to last result
	Marks        int64   `json:"marks"`         // results carrying ECN
	Overflows    int64   `json:"overflows"`
	SumsChecked  int64   `json:"sums_checked"` // int32 values compared with the reference
	SumErrors    int64   `json:"sum_errors"`
	Damaged      int64   `json:"damaged,omitempty"` // workers: results of which some value is wrong
	// Worker: PSNs sent, each counted once however often it was sent again. Worker and PS:
	// of the packets received, those that said nothing new (of a worker, results of PSNs
	// that it had; of a PS, workers that were in the sum), and those that are of no use: of
	// another job, epoch or shape.
	PSNsSent   int64 `json:"psns_sent"`
	Duplicates int64 `json:"duplicates"`
	Stray      int64 `json:"stray"`
	// Worker: PSNs sent and not answered yet. One that is done has some only if it gave
	// up, because the others have died or have ended elsewhere.
	Outstanding int64 `json:"outstanding"`
	// PS: gradient packets that arrived, resends and duplicates included, and PSNs
	// completed from them. Arrived = Merged + Duplicates + Conflicts +
	// Outdated. Evicted are PSNs given up incomplete.
	Arrived   int64 `json:"arrived"`
	Completed int64 `json:"completed"`
	Merged    int64 `json:"merged"`
	Conflicts int64 `json:"conflicts"`
	Outdated  int64 `json:"outdated"`
	Evicted   int64 `json:"evicted"`
	// Health of the agent: how late a worker's paced sends were, or a PS's results.
	LateP99     float64 `json:"late_p99"` // seconds
	LateMax     float64 `json:"late_max"`
	ClearP99    float64 `json:"clear_p99"`    // LateP99 of those that were due outside of stalls
	SocketDrops int64   `json:"socket_drops"` // SO_RXQ_OVFL
	// Processor is for how long its threads have run or waited to run, in seconds; 0: nobody tells.
	Processor float64 `json:"processor,omitempty"`

	// Sabotaged is how often the agent's fault has acted.
	Sabotaged int64 `json:"sabotaged,omitempty"`

	// Training is of trainers, whose iterations are steps.
	Training *Training `json:"training,omitempty"`
	// Reducing is of ranks.
	Reducing *Reducing `json:"reducing,omitempty"`
}

// Reducing is what a rank has done, in totals since its first iteration began. Stats has what
// ranks have in common with others: Iterations, IterationSum, CommSum (the communicating of
// iterations), SumsChecked, SumErrors, Goodput (the gradient bytes that it reduced) and what
// passed its sockets.
type Reducing struct {
	// Compute and Comm are the parts of iterations: until this rank had its gradients, and
	// from then until it had all sums, waiting for ranks that computed longer included.
	Compute collective.Span `json:"compute"`
	Comm    collective.Span `json:"comm"`
	JCT     float64         `json:"jct"` // s until the end of the last iteration so far
	CPU     float64         `json:"cpu"` // s of processor time since then, of the whole process
	// Late is how long after its times this process woke up: what its host, not the network,
	// added to computing.
	Late collective.Span `json:"late"`
	// Times are the iterations since the last sample, at most 1,000 of them.
	Times []Iteration `json:"times,omitempty"`
}

// Iteration is the parts of one, s.
type Iteration struct {
	Compute float64 `json:"compute"`
	Comm    float64 `json:"comm"`
}

// Training is what a trainer has done, in totals since its first step began.
type Training struct {
	collective.QueueStats
	Steps int64           `json:"steps"`
	Step  collective.Span `json:"step"` // how long they took
	JCT   float64         `json:"jct"`  // s until the end of the last step so far
	CPU   float64         `json:"cpu"`  // s of processor time since then, of the whole process
	// Late is how long after its times this process woke up: what its host, not the
	// network, added to steps.
	Late collective.Span `json:"late"`
	// TreeSent and TreeReceived are the packets that passed trees, of PacketsSent and
	// PacketsReceived: what switches count.
	TreeSent     int64 `json:"tree_sent"`
	TreeReceived int64 `json:"tree_received"`
	// Times are how long the steps since the last sample took, s, at most 1,000 of them.
	Times []float64 `json:"times,omitempty"`
}

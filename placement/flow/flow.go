package flow

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/flow/packets"
)

// None stands for "no link", "no switch" and "no parent".
const None = packets.None

// Problem is a network and the jobs that run in it. The models never change it.
type Problem struct {
	Links    []Link
	Switches []Switch
	Jobs     []Job

	// Turn is how many bits a fair queue sends before it is the next one's turn; 0: one frame. Occupancy
	// only: short frames go in bursts of it, which meet full windows and memories otherwise than single ones.
	Turn float64
}

// Link is one direction of a cable.
type Link struct {
	Capacity float64 // bit/s
	// Cable, where it is not 0, names the cable: the two directions of one cable
	// have the same number. WaterFill fills them as one undirected link with the
	// smaller capacity, of which a ring takes the busier direction; Occupancy does not
	// look at it.
	Cable int

	// Occupancy only.
	Damage Damage
}

// Damage is what a link does to frames.
type Damage = packets.Damage

// Switch is the memory of one switch.
type Switch struct {
	PAT float64 // peak aggregation throughput M/T, bit/s; WaterFill only

	// Occupancy only.
	Aggregators float64    // M
	Addressing  Addressing // how a packet finds its aggregator
	Jitter      float64    // standard deviation of a hold, as a fraction of it; Linear only
}

// Addressing is how a switch finds the aggregator of a (job, PSN).
type Addressing = packets.Addressing

const (
	Pool   = packets.Pool   // any free aggregator
	Hash   = packets.Hash   // H(job, PSN) mod M, H uniform
	Linear = packets.Linear // (offset of the job + PSN) mod M
	ATP    = packets.ATP    // one of the job's Slots distinct slots, by PSN mod Slots
)

// Kind is what a job's packets do.
type Kind = packets.Kind

const (
	// Statistical jobs reserve an aggregator per PSN and fall back to the PS where
	// they get none; the result is multicast (ATP, NetPack section 2.2).
	Statistical = packets.Statistical
	// Synchronous jobs own Slots aggregators in each of their switches. They need
	// two windows of them (one is kept for resends) and stand still with fewer.
	Synchronous = packets.Synchronous
	// Unicast jobs have no aggregation: every worker's packet reaches the PS, which
	// answers each worker separately.
	Unicast = packets.Unicast
)

// Job is one job and its aggregation tree.
type Job struct {
	// Nodes is the tree, children before parents: workers are the nodes without
	// children and send one packet per PSN; the last is the PS, or in synchronous
	// mode the root switch. A worker with a link but no parent is a stream of its
	// own (a hop of a ring); one of a Unicast job with a link only upward has its PS on its own
	// host, which hands it its results.
	Nodes  []Node
	Kind   Kind
	Limit  float64 // the job's own limit on its rate, bit/s; 0: none
	Packet float64 // bits of one frame; 0: 1

	// Occupancy only (Window and Slots also decide whether a synchronous job runs).
	Window float64 // packets each worker may have outstanding; 0: no such limit
	RTT    float64 // seconds from a packet's sending to its result's arrival with empty queues
	Slots  float64 // aggregators it owns (Synchronous) or chose (ATP)
	ID     uint16  // from which its hosts choose their slots (ATP); 0: not known
	Offset float64 // where in a memory its first PSN looks, 0 to 1 of the size (Linear); of a Replay
	// Timeout is the least time in seconds after which a worker sends again what is unanswered: it
	// matters where links of the job are damaged, and is more than 0 there.
	Timeout float64
	Ring    *Ring // of streams: messages so short that they matter; nil: it sends without end
	// Layers are those of an iteration, after the results of which comes the next one; of a Replay. Nil: it sends without end.
	Layers []Layer
}

// Layer is a part of an iteration.
type Layer = packets.Layer

// Ring is how the streams of a job are all-reduces, one after the other without pause.
type Ring struct {
	// Hops is how many nodes in turn are the way from each worker to the next one, and Delays
	// is the delay of each node's link in seconds.
	Hops   []int
	Delays []float64
	// Chunks are what the workers' vectors are cut into, and Bits what each sends of that in an
	// all-reduce, nominally: what a Rate is of.
	Chunks []Chunk
	Bits   float64
}

// Chunk is a part of a ring's vector, in frames.
type Chunk = packets.Chunk

// Node is a worker, a switch or the PS in a job's tree.
type Node struct {
	Parent    int     // index in Nodes, greater than the node's own; None at the root
	Up        int     // link to the parent, or None
	Down      int     // link from the parent, or None
	Switch    int     // index in Problem.Switches; None: a worker, a PS, or a device that only forwards
	Aggregate bool    // the switch aggregates for this job
	Hold      float64 // T: seconds an aggregator here stays taken with empty queues; Occupancy only
	// Trip is seconds from here to the parent and back with empty queues, as the links say;
	// Occupancy only. Where no node of a job has one, holds and RTT say how far it is.
	Trip float64
}

// Result is what a model predicts.
type Result struct {
	Jobs  []JobResult
	Links []LinkResult
	// Rings says that rates of jobs with a Ring are what all-reduces get in the mean over time,
	// as packets were followed; else they are those of streams.
	Rings bool
	// Settled is after how many seconds all is as it goes on, as packets were followed from empty queues; 0:
	// they were not.
	Settled float64
	// Replayed says that it is of a phase of one run, which was followed from its beginning, and not of a steady
	// state.
	Replayed bool
	// Each are the runs that a replayed phase is the mean of, each as it would be alone: where there is more than one
	// state, what jobs get together is in one of them, and not what each gets in the mean.
	Each []*Result
	// Lossless says that there are links that lose frames, or otherwise damage them, and that what jobs get
	// is as if there were none: packets could not be followed, or one of the jobs on them is a ring, whose
	// TCP nothing here knows.
	Lossless bool
	// Approximate says that no closed form is exact here and packets could not be followed: shares are of average loads,
	// see Occupancy.
	Approximate bool
}

// JobResult is the steady state of one job.
type JobResult struct {
	Rate float64 // C, bit/s per worker; 0 for a job that crosses no link and has no limit
	// Share of each node's PSNs that it aggregates, indexed like Job.Nodes:
	// a = (n-p)/(n-1) when p packets leave for n that entered; 0 where nothing is
	// aggregated. A switch with a = C's worth of memory exactly aggregates all of
	// it (Table 1's A >= C; the paper's text says the opposite for A = C).
	Share      []float64
	Bottleneck Bottleneck
	// Up is packets per PSN that each node sends to its parent, indexed like Share. In a
	// tree that is no product of shares: levels decide together.
	Up []float64
	// Of a job whose links are damaged, and of one in a replayed phase, indexed like Share and per PSN: packets that
	// come to the parent, results that the parent sends to the node, and those of them that come. Else nil.
	UpCame, Down, DownCame []float64
	// Got is what its workers get results of, in a replayed phase, bit/s: while queues grow or drain that is not
	// Rate, which the parameter server adds up. Else 0.
	Got float64
	// ShareSpread and RateSpread are by how much the share and the rate of one run may be off,
	// as phases of jobs are random and queues may fill late: standard deviations, the shares'
	// indexed like Share, where packets were followed; else nil and 0.
	ShareSpread []float64
	RateSpread  float64
}

// Bottleneck is what keeps a job from being faster.
type Bottleneck struct {
	Kind  BottleneckKind
	Index int // of the link or switch; None otherwise
}

// BottleneckKind tells what Bottleneck.Index counts.
type BottleneckKind uint8

const (
	Unlimited BottleneckKind = iota // crosses no link: it has no rate to predict
	ByLink                          // a saturated link
	BySwitch                        // a synchronous job without enough slots there
	ByLimit                         // its own rate limit
	ByWindow                        // its window per round trip
)

// LinkResult is the steady state of one link.
type LinkResult struct {
	Load float64 // bit/s that its transmitter sends
	Peak float64 // while jobs send together that do not send all the time, bit/s; 0: Load
	// Lost is how much less of that comes out at its other end, bit/s; it is negative where more
	// frames are made two of than are lost.
	Lost float64
	// Flows is packets per PSN, summed over the jobs: NetPack's flow count in
	// WaterFill, with fractions for partial aggregation in Occupancy. WaterFill
	// puts a cable's load and flows on the direction that more of the flows take
	// towards a PS, and nothing on the other.
	Flows float64
	// Spread is by how much the load of one run may be off, as in JobResult.RateSpread: the sum of
	// what its jobs' packets may be.
	Spread float64
}

// ErrProblem is wrapped by every error about a Problem that makes no sense.
var ErrProblem = errors.New("invalid flow problem")

// Validate reports the first thing in p that makes no sense: an index out of
// range, a parent before its child, a negative quantity.
func (p *Problem) Validate() error {
	for i, l := range p.Links {
		if !(l.Capacity >= 0) || math.IsInf(l.Capacity, 1) {
			return fmt.Errorf("%w: link %d: capacity %v", ErrProblem, i, l.Capacity)
		}
		if d := l.Damage; !(d.Loss >= 0 && d.Loss <= 1 && d.Twice >= 0 && d.Twice <= 1 && d.Late >= 0 && d.Late <= 1 && d.Delay >= 0) {
			return fmt.Errorf("%w: link %d: %+v", ErrProblem, i, d)
		}
	}
	for i, s := range p.Switches {
		if !(s.PAT >= 0) || !(s.Aggregators >= 0) || !(s.Jitter >= 0) || s.Addressing > ATP {
			return fmt.Errorf("%w: switch %d: %+v", ErrProblem, i, s)
		}
	}
	for i := range p.Jobs {
		if err := p.validateJob(&p.Jobs[i]); err != nil {
			return fmt.Errorf("%w: job %d: %w", ErrProblem, i, err)
		}
	}
	return nil
}

func (p *Problem) validateJob(j *Job) error {
	if !(j.Limit >= 0) || !(j.Packet >= 0) || !(j.Window >= 0) || !(j.RTT >= 0) || !(j.Slots >= 0) || !(j.Timeout >= 0) || !(j.Offset >= 0 && j.Offset < 1) || j.Kind > Unicast {
		return errors.New("negative or unknown parameter")
	}
	for i := range j.Nodes {
		n := &j.Nodes[i]
		switch {
		case n.Parent != None && (n.Parent <= i || n.Parent >= len(j.Nodes)):
			return fmt.Errorf("node %d: parent %d is not after it", i, n.Parent)
		case n.Up < None || n.Up >= len(p.Links):
			return fmt.Errorf("node %d: up link %d of %d", i, n.Up, len(p.Links))
		case n.Down < None || n.Down >= len(p.Links):
			return fmt.Errorf("node %d: down link %d of %d", i, n.Down, len(p.Links))
		case n.Switch < None || n.Switch >= len(p.Switches):
			return fmt.Errorf("node %d: switch %d of %d", i, n.Switch, len(p.Switches))
		case !(n.Hold >= 0):
			return fmt.Errorf("node %d: hold %v", i, n.Hold)
		}
	}
	return nil
}

// Damaged reports whether links of j are.
func (p *Problem) Damaged(j *Job) bool {
	return slices.ContainsFunc(j.Nodes, func(n Node) bool {
		return n.Up != None && p.Links[n.Up].Damage != (Damage{}) || n.Down != None && p.Links[n.Down].Damage != (Damage{})
	})
}

// aggregates reports whether node n of job j uses memory of its switch.
func (j *Job) aggregates(n *Node) bool {
	return n.Aggregate && n.Switch != None && j.Kind != Unicast
}

// Crossing is how many packets per PSN of a job with such a result a link carries; of a ring, how many of its streams.
func (j *Job) Crossing(r *JobResult, link int) (packets float64) {
	below := j.below()
	for k := range j.Nodes {
		switch nd := &j.Nodes[k]; {
		case nd.Up == link && j.Ring == nil && k < len(r.Up):
			packets += r.Up[k]
		case nd.Down == link && j.Kind == Unicast:
			packets += below[k]
		case nd.Up == link, nd.Down == link:
			packets++
		}
	}
	return packets
}

// below are the workers below each node to whom results pass it: themselves included, but not one of a
// Unicast job whose parameter server is on its host.
func (j *Job) below() []float64 {
	below, inner := make([]float64, len(j.Nodes)), make([]bool, len(j.Nodes))
	for k := range j.Nodes {
		n := &j.Nodes[k]
		if beside := j.Kind == Unicast && n.Up != None && n.Down == None; !inner[k] && !beside {
			below[k] = 1
		}
		if n.Parent != None {
			inner[n.Parent] = true
			below[n.Parent] += below[k]
		}
	}
	return below
}

// starved returns a switch that cannot give a synchronous job the slots it needs,
// or None.
func (j *Job) starved() int {
	if j.Kind == Synchronous && j.Slots < 2*j.Window {
		for i := range j.Nodes {
			if n := &j.Nodes[i]; j.aggregates(n) {
				return n.Switch
			}
		}
	}
	return None
}

// Package carry estimates what this machine carries as an emulated testbed, and what a plan asks
// of it, so that the factor of slow motion need not be found by trying. It estimates the same of
// the hosts of a lab, so that a run does not find out what their software is not able to send.
//
// An emulation spends its processor time on frames, which are handed over at both ends of a cable
// (at a host's agent, or in a switch), and on waking up for them. Waking costs more than a frame: a
// thread of an emulation looks for frames at most every testbed.Rest, and where many have come
// together they share one wake. So the time per second is
//
//	Frame · frames + Wake · min(2 · frames, threads / rest)
//
// and that of a switch, which is one thread, the same with costs of its own. Measure runs a small
// emulation at two rates, one at which each frame comes alone and one at which all threads wake as
// often as they may, and solves for the costs. It adds up processor time, so that other load on
// the machine changes it less than a throughput; caches that others use still make it more.
//
// Demand is what a plan's predictions say of the lab: frames over all cables, frames through the
// busiest switch, threads, and the shortest round trip, against which lateness is judged. Slow
// motion by f makes frames f times fewer and round trips f times longer. Factor finds the least f
// that leaves headroom in all of them.
//
// A lab's hosts have their processors for themselves, and switches are none of theirs. Look has each of them send itself
// packets over its loopback device, through the sockets that workers have: its Engine is what a packet costs there. Asks
// is what a plan's predictions say of each host: the packets that each of its workers and PSes sends and receives, and what
// goes over each NIC. The busiest of them is one thread and has one core, and all of them have all cores. A host is asked for
// too much above that, and should not be for more than Busy of it: packets come in bursts, and the loopback device leaves out
// the NIC's driver and its interrupts.
package carry

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/testbed"
)

// Headroom.
const (
	// Busy is the part of the machine's cores, and of one core for a switch, that an emulation
	// should keep busy at most. Runs are undecided from .97 and .9 on; packets come in bursts.
	Busy = 0.5
	// Lateness is the part of the shortest round trip that the 99th percentile of frames may be
	// late for. Runs are undecided from .2 on.
	Lateness = 0.1
	// Stall is the lateness that a plan must stand even where none was seen: a probe of a second
	// says little of what happens once in some seconds.
	Stall = time.Millisecond
)

// Machine is what a machine carries. Costs are seconds of processor time.
type Machine struct {
	CPUs       int     `json:"cpus"`
	Frame      float64 `json:"frame"`  // of a frame over a cable, at both of its ends
	Wake       float64 `json:"wake"`   // of a thread that wakes up
	Switch     float64 `json:"switch"` // of a frame through a switch, in the switch alone
	SwitchWake float64 `json:"switch_wake"`
	Late       float64 `json:"late"` // seconds that frames leave after they were due, 99th percentile
	// Others is the part of all cores that something else used meanwhile, 0 to 1. Frames were late
	// because of that, too.
	Others float64 `json:"others"`

	// What it was measured on, and with: another machine has other costs.
	Processor string `json:"processor"`
	Kernel    string `json:"kernel"`
	Tool      string `json:"tool"` // version of this program
}

// spend is the processor time a second of an emulation, all of it and in one switch.
func (m Machine) spend(frames, through float64, threads int, rest time.Duration) (all, one float64) {
	often := 1 / rest.Seconds()
	return m.Frame*frames + m.Wake*min(2*frames, float64(threads)*often), m.Switch*through + m.SwitchWake*min(2*through, often)
}

// usual are the threads and round trip of an emulated rack of five hosts, for String.
const (
	usualThreads = 8
	usualRTT     = 100 * time.Millisecond
)

// Frames is how many frames a second the machine carries over all cables of a small emulation,
// with headroom; 0 where waking its threads is too much already.
func (m Machine) Frames() float64 {
	rest := testbed.Rest(usualRTT, false)
	wakes := usualThreads / rest.Seconds()
	room := Busy * float64(m.CPUs)
	if alone := room / (m.Frame + 2*m.Wake); 2*alone <= wakes {
		return alone
	}
	return max(0, (room-m.Wake*wakes)/m.Frame)
}

// String is the machine in a line: "this machine carries about 80,000 packets/s through emulated
// switches".
func (m Machine) String() string {
	s := fmt.Sprintf("this machine carries about %s packets/s over the cables of an emulated rack", about(m.Frames()))
	if m.Others > quiet {
		s += fmt.Sprintf("; others used %.0f %% of its cores meanwhile, so that this is not kept: measure it again when it is idle", 100*m.Others)
	}
	return s
}

// about writes a number to two digits, with commas.
func about(v float64) string {
	if v < 1 || math.IsInf(v, 0) || math.IsNaN(v) {
		return "0"
	}
	unit := math.Pow(10, max(0, math.Floor(math.Log10(v))-1))
	digits := fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Load is what a plan asks of a machine, in the lab's units: divide rates and multiply times by
// the factor of slow motion.
type Load struct {
	Frames  float64 // a second over all cables, of the busiest phase, while jobs that also compute send together
	Switch  float64 // a second through the busiest switch
	RTT     float64 // seconds, the shortest round trip between two hosts or of a job, whichever is less; 0: there is none
	Threads int     // switches, workers and PS
}

// Demand is the load of a plan whose phases are predicted, frames having so many lanes.
func Demand(inv *inventory.Inventory, plan *placement.Plan, phases []*placement.Prediction, lanes int) (Load, error) {
	topo := inv.Topology()
	frame := (&placement.Conditions{Lanes: lanes}).FrameBytes()
	out := Load{Threads: len(inv.Switches), RTT: testbed.Closest(inv, func(n *inventory.NIC) float64 {
		d := n.Delay.Seconds()
		if n.Rate > 0 {
			d += 8 * float64(frame) / float64(n.Rate)
		}
		return d
	})}
	if beat := testbed.ShortestBeat(plan.Jobs, topo, frame).Seconds(); beat > 0 && (out.RTT == 0 || beat < out.RTT) {
		out.RTT = beat // to a switch and back
	}
	for _, j := range plan.Jobs {
		if out.Threads += len(j.Workers); j.PS != "" {
			out.Threads++
		}
	}
	for _, p := range phases {
		t, err := trafficOf(topo, plan, p, lanes)
		if err != nil {
			return out, err
		}
		total, into := 0.0, map[string]float64{}
		for i, l := range topo.Links {
			frames := t.segments[i] + t.packets[i]
			total += frames
			into[l.To] += frames
		}
		out.Frames = max(out.Frames, total)
		for _, sw := range inv.Switches {
			out.Switch = max(out.Switch, into[sw.Name])
		}
	}
	return out, nil
}

// traffic is what a phase puts on directed links, by a topology's indices: frames a second, while jobs that also compute
// send together.
type traffic struct {
	packets  []float64 // of gradients and results, at most
	peak     []float64 // of these, as part of the mean
	segments []float64 // of rings, over TCP, and what acknowledges them
}

// trafficOf is that of a phase of a plan as it is predicted, packets having so many lanes.
func trafficOf(topo *inventory.Topology, plan *placement.Plan, p *placement.Prediction, lanes int) (traffic, error) {
	index := map[string]int{}
	for i, l := range topo.Links {
		index[l.Name] = i
	}
	bits := make([]float64, len(topo.Links)) // of gradients and results
	peak := make([]float64, len(topo.Links))
	t := traffic{make([]float64, len(topo.Links)), peak, make([]float64, len(topo.Links))}
	for _, l := range p.Links {
		most := max(l.Load, l.Peak)
		bits[index[l.Link]], peak[index[l.Link]] = most, 1
		if l.Load > 0 {
			peak[index[l.Link]] = most / l.Load
		}
	}
	for _, jp := range p.Jobs {
		i := slices.IndexFunc(plan.Jobs, func(j placement.JobPlan) bool { return j.Name == jp.Name })
		if i < 0 {
			return t, fmt.Errorf("demand: job %s is not in the plan", jp.Name)
		}
		j := &plan.Jobs[i]
		if j.Collective != placement.Ring || j.Local() {
			continue
		}
		for k := range j.Workers {
			path, err := topo.PathBy(j.Workers[k].End(), j.Goal(k))
			if err != nil {
				return t, fmt.Errorf("demand: job %s: %w", j.Name, err)
			}
			data := jp.WireRate / (1 + collectives.Acks)
			segments := data / (8 * collectives.Segment)
			for _, l := range path { // and what acknowledges them comes back
				back := topo.Links[l].Reverse
				bits[l] -= peak[l] * data
				bits[back] -= peak[back] * data * collectives.Acks
				t.segments[l] += peak[l] * segments
				t.segments[back] += peak[back] * segments * collectives.AcksPerSegment
			}
		}
	}
	for i := range bits {
		t.packets[i] = max(0, bits[i]) / (8 * frameBytes(lanes))
	}
	return t, nil
}

// steps are the factors of a decade that Factor chooses from: each at most a third above the one before.
var steps = []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8}

// Factor is the least round factor of slow motion, of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 and these in each
// decade, with which the machine carries a load with headroom.
func Factor(m Machine, l Load) float64 {
	for decade := 1.0; decade < 1e9; decade *= 10 {
		for _, step := range steps {
			if f := decade * step; m.carries(l, f) {
				return f
			}
		}
	}
	return 1e9
}

// carries says whether a factor leaves headroom.
func (m Machine) carries(l Load, factor float64) bool {
	rtt := l.RTT * factor
	rest := time.Millisecond
	if rtt > 0 && rtt < 10 {
		rest = max(time.Microsecond, testbed.Rest(time.Duration(rtt*float64(time.Second)), false))
	}
	all, one := m.spend(l.Frames/factor, l.Switch/factor, l.Threads, rest)
	late := max(m.Late, Stall.Seconds())
	return all <= Busy*float64(m.CPUs) && one <= Busy && (rtt == 0 || late <= Lateness*rtt)
}

package softswitch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/inabench/inabench/testbed/ina"
)

// Config is the hardware of one switch: what a person with a screwdriver would
// decide. Everything else (pipeline, tables, multicast groups) comes in through
// P4Runtime. It is the first line of JSON on the switch process's stdin.
type Config struct {
	Name        string       `json:"name"`
	DeviceID    uint64       `json:"device_id"`
	Listen      string       `json:"listen"` // P4Runtime address, host:port or unix:path
	Aggregators int          `json:"aggregators"`
	Exclusive   *Exclusive   `json:"exclusive,omitempty"` // nil: no exclusive trees
	Program     ina.Program  `json:"program,omitzero"`    // what its data plane does otherwise
	Ports       []PortConfig `json:"ports"`
	Seed        uint64       `json:"seed"`
	MTU         int          `json:"mtu,omitempty"`  // largest frame, bytes without FCS; 0: 1514
	Pcap        string       `json:"pcap,omitempty"` // directory for one capture per port; empty: none
	// Rest is the least time between two looks at the ports: frames that come closer
	// together are handled together, late by at most that, which costs a fraction of
	// the wake-ups. What is written on the frames' schedule does not depend on it.
	Rest time.Duration `json:"rest,omitempty"`
	// Beat is the shortest time that matters: what is late by more than stall.Limit of it is
	// told as a stall. 0: nothing is.
	Beat time.Duration `json:"beat,omitempty"`
	// Offload: hosts and switches hand each other up to ina.MaxSegments frames at once,
	// which costs a fraction of handing over each. Devices must have the offloads tx and
	// tx-udp-segmentation on, tso off, at both ends. Linux 6.2.
	Offload bool `json:"offload,omitempty"`
}

// Exclusive is what a switch offers jobs with exclusive trees: see ina.Limits.
type Exclusive struct {
	Resource string `json:"resource"` // that jobs take turns with: "switch", the default, or "port"
	Capacity int    `json:"capacity"` // jobs that may have one at once, at least 1
	Trees    int    `json:"trees"`    // through the switch, at least 1
}

// limits says what is wrong with an Exclusive that offers nothing.
func (x *Exclusive) limits() (ina.Limits, error) {
	if x == nil {
		return ina.Limits{}, nil
	}
	r, err := ina.ParseResource(cmp.Or(x.Resource, ina.PerSwitch.String()))
	switch {
	case err != nil:
		return ina.Limits{}, err
	case x.Capacity < 1:
		return ina.Limits{}, fmt.Errorf("capacity of %d jobs, want at least 1", x.Capacity)
	case x.Trees < 1:
		return ina.Limits{}, fmt.Errorf("quota of %d trees, want at least 1, or no exclusive trees at all", x.Trees)
	}
	return ina.Limits{Resource: r, Capacity: x.Capacity, Trees: x.Trees}, nil
}

// PortConfig is one port and the cable in it.
type PortConfig struct {
	Number uint32 `json:"number"`
	Device string `json:"device"`
	// Egress towards the device. Rate 0 is "as fast as the machine can".
	Egress LinkConfig `json:"egress"`
	// Ingress is the other direction of the cable where this switch emulates it
	// too: the far end is a host, whose NIC queue, rate and delay live here. For a
	// cable between two switches each models its own egress and leaves Ingress zero.
	Ingress LinkConfig `json:"ingress"`
	// Inner is a device where the port's counterpart of another switch is, such as BMv2. Then
	// this process is the cables of that switch and nothing else: what comes out of Ingress
	// goes there, and what comes from there goes into Egress. Either all ports have one, or none.
	Inner string `json:"inner,omitempty"`
}

// LinkConfig is one direction of a cable and the queue that feeds it.
type LinkConfig struct {
	Rate       float64       `json:"rate"`       // bit/s of frame bytes (no preamble, no FCS); 0: unlimited
	Delay      time.Duration `json:"delay"`      // propagation, one way
	Buffer     int           `json:"buffer"`     // bytes; 0: 1 MiB
	ECN        int           `json:"ecn"`        // bytes of queue above which packets are marked; 0: never
	Discipline string        `json:"discipline"` // "fifo" (default), "drr": one queue per job, the rest shares one, or "drr-flow": one per worker of a job, for its sums, for its results (or those for each worker, where they are sent one after the other), and for a TCP connection one way
	Impair     Impair        `json:"impair"`
}

// Impair damages a link on purpose, from the switch's seed.
type Impair struct {
	Loss      float64       `json:"loss"`      // probability 0..1
	Duplicate float64       `json:"duplicate"` // probability 0..1
	Reorder   float64       `json:"reorder"`   // probability that a packet is held back by ReorderBy
	ReorderBy time.Duration `json:"reorder_by"`
}

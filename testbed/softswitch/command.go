package softswitch

import (
	"time"

	"github.com/inabench/inabench/testbed/sabotage"
	"github.com/inabench/inabench/testbed/stall"
)

// Command is a line on the switch process's stdin after its Config. It is for what
// a person does to cables, not to the switch: that is P4Runtime's.
type Command struct {
	Cmd string `json:"cmd"` // "impair", "sabotage", "health", "stalls" or "stop"

	// Of "impair": the port, the direction of its cable ("ingress" from the device,
	// "egress" towards it), and the damage in place of any earlier.
	Port   uint32 `json:"port,omitempty"`
	Dir    string `json:"dir,omitempty"`
	Impair Impair `json:"impair"`

	// Of "sabotage": a fault in the place of any earlier; one without a name is none.
	Sabotage *sabotage.Act `json:"sabotage,omitempty"`
}

// Reply is a line on the switch process's stdout: one when the switch is ready,
// then one for each Command.
type Reply struct {
	Ready  bool    `json:"ready,omitempty"`
	Addr   string  `json:"addr,omitempty"` // P4Runtime address, as in Config.Listen
	OK     bool    `json:"ok,omitempty"`
	Health *Health `json:"health,omitempty"` // of "health"
	// Stalls are of "stalls": those since it was last asked, on the clock of stall.Monotonic.
	Stalls []stall.Span `json:"stalls,omitempty"`
	Error  string       `json:"error,omitempty"`

	Sabotaged int64 `json:"sabotaged,omitempty"` // of "sabotage": how often the earlier fault acted
}

// Health is what the emulation itself did wrong, or nearly, since it was last asked.
type Health struct {
	Elapsed   time.Duration `json:"elapsed"`    // ns, as all durations here
	RingDrops int64         `json:"ring_drops"` // frames the kernel had no room for: never counted as received
	PoolDrops int64         `json:"pool_drops"` // frames the switch had no memory for
	Unseen    int64         `json:"unseen"`     // of these, those that are in no counter of a port
	Super     bool          `json:"super"`      // what was unread may have been super-frames, each of which counts as one
	Refused   int64         `json:"refused"`    // frames a device did not take
	Overflows int64         `json:"overflows"`  // frames dropped for a full emulated queue: the model at work
	Sent      int64         `json:"sent"`
	LateP50   time.Duration `json:"late_p50"` // how long after they were due frames were sent
	LateP99   time.Duration `json:"late_p99"`
	LateMax   time.Duration `json:"late_max"`
	Stalls    stall.Total   `json:"stalls"`
	ClearSent int64         `json:"clear_sent"` // of the frames sent, those that were due outside of stalls
	ClearP50  time.Duration `json:"clear_p50"`  // how late these were
	ClearP99  time.Duration `json:"clear_p99"`
	Busy      float64       `json:"busy"` // processor time of the switch's thread over elapsed time
	Warnings  []string      `json:"warnings,omitempty"`
	Cables    []Cable       `json:"cables,omitempty"` // with a rate, that had frames to carry

	Plane *Plane `json:"plane,omitempty"` // of the switch behind the cables, where it is another one
}

// Cable is what one direction of a port's cable carried while frames waited for it or were being sent: as much as its rate
// is, whatever its switch and their senders do. It is by when frames came and whether any was left, not by the rate.
type Cable struct {
	Port    uint32        `json:"port"`
	Ingress bool          `json:"ingress"` // from the device; else towards it
	Carried int64         `json:"carried"` // bytes of frames; the one that is being sent is among them
	Largest int           `json:"largest"` // bytes of the largest frame so far
	Waited  time.Duration `json:"waited"`  // ns in which there was a frame, to the end of the one that is being sent
}

// Plane is how well another switch kept up since its health was last asked.
type Plane struct {
	Name   string  `json:"name"`             // "bmv2"
	Busy   float64 `json:"busy"`             // processor time of its busiest thread over elapsed time
	Frames int64   `json:"frames"`           // handed to it
	Lost   int64   `json:"lost"`             // of these, never counted as received
	Unsent int64   `json:"unsent,omitempty"` // counted as sent, and never came
	Queued int64   `json:"queued,omitempty"` // found its own queues full: how many were lost is not counted
	Error  string  `json:"error,omitempty"`  // its counters could not be read
}

// Behind is another switch whose cables the process is, as its ports' Inner says.
type Behind interface {
	// Health is how well it kept up since the last call, given how many frames it was handed
	// and gave back in all.
	Health(handed, returned int64) Plane
	// Exited is closed when the switch has died; Err then says how.
	Exited() <-chan struct{}
	Err() error
}

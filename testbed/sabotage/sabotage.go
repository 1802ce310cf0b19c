// Package sabotage is the catalogue of faults that a testbed can be given on purpose, to
// see whether verdicts notice: what each does, to which part, and what an honest verdict is.
//
// The faults themselves are in the real parts: testbed/softswitch (switches and cables),
// testbed/agent (workers and parameter servers) and testbed/sim. A part without an Act does
// nothing but look whether it has one.
package sabotage

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what a fault is given to.
type Kind string

// The kinds of parts.
const (
	Switch Kind = "switch" // the embedded switch: its sums, memory, tables, counters
	Worker Kind = "worker" // a job's worker, the process
	PS     Kind = "ps"     // a job's parameter server, the process
	Link   Kind = "link"   // one direction of a cable
	Queue  Kind = "queue"  // the queue of one direction of a cable
	Clock  Kind = "clock"  // the clock that an agent reports by
)

// Verdict is what an honest verdict on a run with a fault is.
type Verdict string

// The verdicts.
const (
	// Fail: the run fails, or the testbed is reported broken and the part named. Never PASS,
	// in every setting in which the fault acted.
	Fail Verdict = "fail"
	// Bound: fails where what is damaged limits or changes a figure that is judged, and passes
	// elsewhere, with figures that are right.
	Bound Verdict = "fail where it binds"
	// Undecided: the testbed's own record explains it, so nothing can be decided.
	Undecided Verdict = "undecided"
	// Harmless: no sum, count or judged figure changes. The run passes.
	Harmless Verdict = "harmless"
)

// Fault is an entry of the catalogue.
type Fault struct {
	Name string  `json:"name"`
	What string  `json:"what"`    // in a line
	At   Kind    `json:"at"`      // what it is given to
	Want Verdict `json:"verdict"` // of a run in which it acted
	// Sign is by which code or figure it shows; of a harmless one, why it is.
	Sign string `json:"sign"`
	// Every is how many things it lets pass for each that it acts on; 0: it is not about things
	// that can be counted so.
	Every int `json:"every,omitempty"`
	// NoSim is why the simulator's model cannot carry it; empty: it can.
	NoSim string `json:"no_sim,omitempty"`
}

// After is how long after a part's first traffic its fault begins: what was calibrated was
// calibrated without it, and jobs have found each other.
const After = time.Second

// Magnitudes that are the same wherever a fault is.
const (
	Slow    = 0.05                    // of a link's rate that is lacking
	Loss    = 0.01                    // of a link's frames that a deaf link does not hear
	Reorder = 0.10                    // of a queue's frames that others overtake
	Behind  = 5 * time.Millisecond    // by how long these are late
	Lie     = 0.05                    // of a counter's growth
	Jump    = 2 * time.Second         // of a clock
	Late    = 2 * time.Second         // of reports
	Suspend = 2200 * time.Millisecond // of SIGSTOP
	Stall   = time.Second             // of a worker, every StallEvery
	Dawdle  = 60 * time.Millisecond   // of a switch, every DawdleEvery

	StallEvery  = 3 * time.Second
	DawdleEvery = 200 * time.Millisecond
)

const (
	noSums    = "the model carries no sums"
	noPackets = "the model has flows, not packets"
	noProcess = "the model has no processes"
)

// Catalogue is every fault, in the order in which it is listed.
var Catalogue = []Fault{
	{"flip-sums", "flips one bit in every 1,000th sum", Switch, Fail, "INA-SUMS", 1000, noSums},
	{"bump-sums", "adds 2^24 to lane 0 of every 1,000th sum: what looks like a worker's vote to stop", Switch, Fail, "INA-SUMS", 1000, noSums},
	{"flip-lanes", "flips one bit in every 1,000th gradient that arrives", Switch, Fail, "INA-SUMS", 1000, noSums},
	{"flip-headers", "flips one bit in the INA header of every 1,000th packet that arrives", Switch, Fail, "INA-COUNTERS: packets that arrived and are in no sum", 1000, noSums},
	{"double-count", "adds every 1,000th gradient twice", Switch, Fail, "INA-SUMS", 1000, noSums},
	{"release-early", "sends every 1,000th sum with its first worker in it as if it were complete", Switch, Fail, "INA-SUMS", 1000, noSums},
	{"release-never", "keeps an aggregator for ever with every 4th result", Switch, Bound, "INA-SHARE", 4, noPackets},
	{"forget-job", "loses a job's entry", Switch, Fail, "the job has no more results", 0, noPackets},
	{"multicast-less", "sends results to all workers below but the last", Switch, Fail, "the job has no more results", 1, noPackets},
	{"drop-results", "drops every 1,000th result without counting it", Switch, Fail, "INA-COUNTERS: results sent and received differ", 1000, noPackets},
	{"ignore-resends", "drops every 1,000th gradient, and all that are sent again for it", Switch, Fail, "the job has no more results", 1000, noPackets},
	{"duplicate", "sends every 10th sum and result twice", Switch, Fail, "results that nobody asked for again", 10, noPackets},
	{"favour-job", "denies memory to every second packet of all jobs but the first that it saw", Switch, Bound, "INA-SHARE", 2, noPackets},
	{"mark-all", "sets ECN in all gradients", Switch, Bound, "harmless with fixed windows: nobody looks at the mark", 1, noPackets},
	{"count-less", "says that it sent 5 % less of a job than it did", Switch, Fail, "sent and received differ", 0, ""},
	{"count-more", "says that it sent 5 % more of a job than it did", Switch, Fail, "sent and received differ", 0, ""},
	{"exaggerate", "says that every packet was aggregated", Switch, Bound, "the share that the PS and links saw differs from the claim", 0, ""},
	{"freeze-counters", "its counters stand still", Switch, Fail, "counters that do not move while traffic does", 0, ""},
	{"late-switch", "forwards nothing for 60 ms, every 200 ms", Switch, Undecided, "INA-LIMITED", 0, noPackets},

	{"wrong-gradient", "adds 1 to a lane of every 1,000th gradient that it sends", Worker, Fail, "INA-SUMS", 1000, noSums},
	{"stop", "says that it is done and leaves, without being asked", Worker, Fail, "a job that stopped", 0, ""},
	{"crash", "dies", Worker, Fail, "INA-TESTBED", 0, noProcess},
	{"hang", "neither reads nor sends any more", Worker, Fail, "a job that hangs", 0, ""},
	{"suspend", "is stopped by SIGSTOP for 2.2 s", Worker, Fail, "INA-JOB-STOPPED", 0, noProcess},
	{"stall", "pauses for 1 s every 3 s", Worker, Fail, "INA-JOB-STOPPED; in the model INA-RATE-LOW", 0, ""},
	{"end-early", "does half of its iterations; without any, it asks to stop", Worker, Fail, "fewer iterations than asked for", 0, ""},
	{"restart", "begins again from nothing, in the middle", Worker, Fail, "a job that hangs", 0, noProcess},
	{"report-late", "its reports come 2 s late, with the times at which they were made", Worker, Harmless, "reports carry their times, and the last ones come before the job has ended", 1, noProcess},

	{"ps-drops", "drops every 100th packet that arrives", PS, Fail, "INA-COUNTERS: what arrived and what is in sums differ", 100, noPackets},
	{"ps-hangs", "neither reads nor sends any more", PS, Fail, "a job that hangs", 0, noProcess},
	{"ps-wrong-sums", "flips one bit in every 1,000th result", PS, Fail, "INA-SUMS", 1000, noSums},

	{"slow-up", "the cable from a worker's host is 5 % slow", Link, Bound, "INA-LINK-SLOW", 1, ""},
	{"slow-down", "the cable towards a PS's host is 5 % slow", Link, Bound, "INA-LINK-SLOW", 1, ""},
	{"deaf-link", "1 % of what a host's cable carries does not arrive, and nobody counts it", Link, Fail, "sent and received differ", 1, noPackets},
	{"reorder-queue", "10 % of a queue's frames leave it 5 ms late, behind others", Queue, Harmless, "all sums are of sets of packets, and windows hold more than 5 ms", 1, noPackets},

	{"jump-clock", "the clock that a worker reports by jumps 2 s ahead", Clock, Fail, "reports from the future", 1, ""},
}

// Act is a fault as a part is told of it.
type Act struct {
	Fault string        `json:"fault"`
	After time.Duration `json:"after"`           // since the part's first traffic, ns
	Every int           `json:"every,omitempty"` // as Fault's

	// Of a link or queue: where its switch emulates it.
	Port uint32 `json:"port,omitempty"`
	Dir  string `json:"dir,omitempty"` // "ingress" or "egress", as of softswitch.Command
}

// Order is a fault and the part that is to have it.
type Order struct {
	Fault
	// Part is its name: a switch, a directed link "h1->tor1", a worker "A/0" or a PS "A/ps",
	// of which * stands for any. Empty: the first of the largest job.
	Part string
}

// Act is what the part is told.
func (o *Order) Act() Act { return Act{Fault: o.Name, After: After, Every: o.Every} }

// Victim is the configuration of a process that can be given a fault.
type Victim interface {
	// Part is what orders call the process, and its kind. ok: it has others to talk to, which faults of processes are about.
	Part() (name string, kind Kind, ok bool)
	// With is the configuration with the fault.
	With(act Act) any
}

// Parse reads NAME or NAME=PART. Its error lists what there is.
func Parse(text string) (*Order, error) {
	name, part, has := strings.Cut(text, "=")
	f, ok := Find(name)
	if !ok {
		return nil, fmt.Errorf("no fault %q", name)
	}
	if has && part == "" {
		return nil, fmt.Errorf("fault %s: which %s? NAME=PART has no part", name, f.At)
	}
	return &Order{f, part}, nil
}

// Find returns the fault of a name.
func Find(name string) (Fault, bool) {
	i := slices.IndexFunc(Catalogue, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return Catalogue[i], true
}

// Names are those of all faults, in the catalogue's order.
func Names() []string {
	var out []string
	for _, f := range Catalogue {
		out = append(out, f.Name)
	}
	return out
}

// Refused is why a fault has no meaning on a driver with switches of a kind; empty: it has.
// Kind is of netns: "soft", the default, or "bmv2".
func (f *Fault) Refused(driver, kind string) string {
	switch {
	case driver == "lab":
		return "a lab is not sabotaged: it is shared, and nobody could tell it from a broken one"
	case driver == "sim":
		return f.NoSim
	case driver != "netns":
		return "there is no such driver"
	case f.At == Switch && kind == "bmv2":
		return "only the embedded switch can be told to do wrong: emulation.switch is bmv2"
	}
	return ""
}

// Counter counts what passes, and says of which things a fault acts: the first, and then one
// of every Every.
type Counter struct{ seen int }

// Next reports whether the fault acts on the next thing.
func (c *Counter) Next(every int) bool {
	c.seen++
	return every <= 1 || c.seen%every == 1
}

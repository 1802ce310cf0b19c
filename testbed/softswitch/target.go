package softswitch

import (
	"fmt"

	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/p4"
)

// Target is the forwarding hardware as the P4Runtime server drives it: tables,
// multicast groups and counters of a running switch. Methods are safe for
// concurrent use and take effect before the next frame is processed.
type Target interface {
	// Reset empties every table and group, frees every aggregator and zeroes every
	// counter: what loading a pipeline does.
	Reset()

	// SetJob installs or replaces the entry of e.Job; its aggregators are freed. An error
	// that wraps ina.ErrQuota says that there is no room for another exclusive tree.
	SetJob(e ina.JobEntry) error
	DeleteJob(job uint16) error

	// SetRoute installs or replaces the exact IPv4 route to r.Dst.
	SetRoute(r Route) error
	DeleteRoute(dst [4]byte) error

	// SetGroup installs or replaces a multicast group; ids start at 1.
	SetGroup(id uint16, ports []uint32) error
	DeleteGroup(id uint16) error

	// Counter reads one counter; an index that never counted reads zero.
	Counter(c Counter, index int) (packets, bytes int64)
	ResetCounter(c Counter, index int)
}

// Route is an entry of the table ipv4_forward.
type Route = p4.Route

// A Counter is one of the switch's indirect counters. Its name is that of the P4
// counter. port_ counters are indexed by port number, job_ counters by job id.
// Bytes count frames as a NIC does: Ethernet header in, preamble and FCS out.
type Counter uint8

const (
	// Arrived from the cable and left into it. Receptions are counted before the
	// cable of the far end's NIC (LinkConfig Ingress), transmissions after the
	// cable of this port (Egress), so that at each port
	//
	//	frames into a link + duplicated = frames out of it + dropped + still in it
	PortRx        Counter = iota // "port_rx": frames read from the device
	PortTx                       // "port_tx": frames written to the device
	PortRxDrop                   // "port_rx_drop": lost on the ingress link: buffer overflow or impairment
	PortTxDrop                   // "port_tx_drop": lost on the egress link: buffer overflow, impairment, or the device refused
	PortRxDup                    // "port_rx_dup": frames the ingress impairment added
	PortTxDup                    // "port_tx_dup": frames the egress impairment added
	PortMarked                   // "port_marked": ECN marks set by the egress queue, or the ingress queue
	PortQueuePeak                // "port_queue_peak": a gauge; bytes is the longest egress queue since the last reset
	PortNoRoute                  // "port_no_route": frames that arrived here and matched no table

	JobIn         // "job_in": gradient packets that arrived
	JobAggregated // "job_aggregated": of these, absorbed into an aggregator or completing one
	JobFallback   // "job_fallback": of these, forwarded up as they were
	JobGranted    // "job_granted": PSNs whose first packet was granted an aggregator
	JobDenied     // "job_denied": PSNs whose first packet found its aggregator taken
	JobOut        // "job_out": packets sent up, sums and fallbacks together; for a synchronous root, results sent down
	JobResults    // "job_results": result packets that passed down
	JobResends    // "job_resends": packets that carried FlagResend
	JobDuplicates // "job_duplicates": dropped because their workers were in the sum already
	JobDropped    // "job_dropped": dropped for a wrong epoch or a malformed header
	JobMarked     // "job_marked": arrived with FlagECN
	JobHold       // "job_hold": packets = aggregators released by a result, bytes = the time they were taken in microseconds; of an exclusive tree, the turns that ended and how long they were
	JobLocks      // "job_locks": operations that got their exclusive tree
	JobRefused    // "job_refused": operations that were refused it, here or elsewhere
	JobConflicts  // "job_conflicts": of these, refused by this switch; packets only
	JobInactive   // "job_inactive": gradient packets dropped because their job had no turn; not in job_in
	JobAnswers    // "job_answers": resends without a PS that were answered from a kept sum; in job_duplicates, and each answer in job_out

	NumCounters int = iota
)

var counterNames = [NumCounters]string{
	"port_rx", "port_tx", "port_rx_drop", "port_tx_drop", "port_rx_dup", "port_tx_dup",
	"port_marked", "port_queue_peak", "port_no_route",
	"job_in", "job_aggregated", "job_fallback", "job_granted", "job_denied", "job_out",
	"job_results", "job_resends", "job_duplicates", "job_dropped", "job_marked", "job_hold",
	"job_locks", "job_refused", "job_conflicts", "job_inactive", "job_answers",
}

// String is the counter's P4 name.
func (c Counter) String() string {
	if int(c) < NumCounters {
		return counterNames[c]
	}
	return fmt.Sprintf("counter(%d)", uint8(c))
}

// PerJob reports whether the counter's index is a job id; otherwise it is a port number.
func (c Counter) PerJob() bool { return c >= JobIn }

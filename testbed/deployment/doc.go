// Package deployment runs jobs on a testbed of package remote: it writes their entries into switches, starts their workers and
// parameter servers as agents on hosts (testbed/agent), starts, stops and watches them, moves the memory of synchronous jobs
// while they run, and reads what all of them count.
//
// A job that stands still is looked into before it is given up: which of its agents do not report (their hosts are asked why),
// which send nothing, in which cable everything disappears, and, where packets are handed over from workers to switches to
// the PS and back (placement/handover), at which of these hops they get lost.
package deployment

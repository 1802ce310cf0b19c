// Package program runs workloads that others wrote, and reads what they print: nccl-tests,
// perftest, iperf3, torchrun, the benchmarks of ATP and of SwitchML, and any program whose
// figures a path into JSON or a regular expression finds.
//
// # Reading
//
// Each reader turns output into figures in base units (bit/s, s, 1) and says in notes what
// it converted. Columns are found by their headers, never by their places. Output that is
// cut off, or that a program printed on its way to a failure, is an error: half a result is
// none. Nor is a table of nccl-tests one that lacks sizes, or ranks, that were asked for.
//
//	program      metrics
//	nccl-tests   algbw, busbw, latency, sum_errors; of a size, in place and out of place
//	perftest     goodput or latency; of a size
//	iperf3       goodput, retransmits, loss, jitter
//	ATP          wire_rate, goodput, loss, jct
//	SwitchML     goodput, jct
//
// algbw is S/t, the size of the vector over the time; busbw is algbw·2(n-1)/n, which is
// what a ring moves over each link (nccl-tests, doc/PERFORMANCE.md). Where switches add up,
// every host sends S once, so busbw can be more than the rate of a link, and only algbw
// can be held against it.
//
// # Running
//
// Run starts servers first and waits until they listen, then all clients at once. Programs
// are started by argv; no shell sees what an experiment says. What they print is kept, with
// secrets taken out (Redact): nccl-tests -J writes the whole environment, tokens included.
package program

// Package ina is the aggregation protocol: its wire format, the switch's
// aggregator array, and the state machines of worker and PS.
//
// Nothing here does I/O or reads a clock: callers pass frames in, with the time
// they arrived, and get frames back. The embedded switch (testbed/softswitch)
// and the agent (testbed/agent) put sockets around it, and its tests run whole
// racks of it in virtual time.
//
// # Packets, rules, senders
//
// Packets. A gradient is an ordinary UDP datagram: IPv4 without options, UDP checksum 0 because
// switches change what it would cover, then the INA header of 22 bytes, then the lanes. With 240
// lanes the Ethernet frame is 14 + 20 + 8 + 22 + 960 = 1,024 bytes, without preamble and FCS. All
// fields are big-endian.
//
//	offset  field        meaning
//	0       magic u8     0xA1
//	1       flags u8     result, resend, collision, ECN, overflow, lock, unlock
//	2       job u16      1..4095
//	4       psn u32
//	8       epoch u16
//	10      slot u16     the aggregator that the host asks for (atp)
//	12      rank u8      of the sender; 255 when a switch or a PS sent it
//	13      lanes u8     values that follow
//	14      bitmap u64   workers whose gradients are in this packet
//	22      lanes × i32  two's complement; a wrap sets the overflow flag
//
// Ways. Gradients of job j go to the group 239.77.x.y, port 0x7000 + j; results to 239.78.x.y, port
// 0x6000 + j. Switches carry the first along the job's tree to the PS and multicast the second to
// every worker below, releasing aggregators on the way. An ingress parser tells INA from everything
// else by the top three bits of the port. Rings use TCP port 0x5000 + j.
//
// The binding rule (statistical mode). A PSN of n workers is n arrivals. An aggregator that became
// free between two of them would catch a partial sum that nobody completes. So:
//
//  1. The first packet of a (job, epoch, PSN) that a switch sees decides: granted an aggregator, or
//     denied. The decision binds all packets of that PSN. It is remembered in a ring per job of at
//     least two windows.
//  2. Packets of a granted PSN are added. The one that completes the bitmap of workers below sends
//     one packet with the sum up. The aggregator stays taken until the result passes.
//  3. Packets of a denied PSN go up as they are.
//  4. A packet flagged resend pushes the sum out, complete or not, frees the aggregator and goes up
//     itself. The PSN is denied from then on.
//  5. Packets whose workers are in the sum already are dropped.
//
// The PS merges by bitmap: disjoint sums are added, a superset replaces, everything else is
// ignored. Resends arrive one by one, so it always ends. PSN p + window is sent only when the
// result of p has come, so no decision that still matters is overwritten.
//
// Slots of sums. Under atp hosts write slots into packets; sums that a switch makes have none. So a
// switch that gets sums of a job is given hash for that job (placement.JobPlan.Addressing): it
// hashes job and PSN itself, which is where ATP's hosts begin. A result finds the aggregator to
// release by what was decided for its PSN, at every level, whatever slot is in it.
//
// A chip that takes no remainders and has no hash to speak of leaves it to hosts to name aggregators
// under every addressing but pool (Program.Named). Then sums keep the name, a PS puts it into the
// result, and so the chip finds what to release.
//
// Synchronous mode has no PS. A job owns 2 × window slots in each of its switches, slot = base +
// PSN mod size. The root multicasts the complete sum as a result, keeps it for one window, and
// answers resends from it. Where 2^32 is no multiple of the size, PSN mod size would jump when PSNs
// wrap, and two windows would meet in one slot. So workers count to the last multiple of the size
// that fits into 32 bits, and begin again at 0. Switches need not know: PSNs are compared by their
// difference, and the gap is shorter than the region.
//
// Exclusive mode is SHARP's: it sums as synchronous mode does, through any number of levels, but a
// job only while it has its turn with the tree. An operation is a run of PSNs: a lock of two lanes,
// the gradients, an unlock. When the lock of all workers below is complete, a switch takes its
// resource for the job: itself (switch, Quantum), or each port of the tree (port, Quantum-2). If so
// many jobs as its capacity have it, it adds 1 to lane 0 instead, and takes 1 from lane 1: what
// both add up to shows that neither was damaged. The root's sum is the answer for all workers: 0,
// and everybody keeps what it took; else everybody gives it back, and the operation ends there. So
// a second job is refused, not slowed, all workers of a job are told the same, and nobody waits, so
// there is no deadlock. Gradients without a turn are dropped and counted. The answer to the unlocks
// gives the tree back, and so does deleting the entry of a job that is gone. A switch holds so many
// trees as its quota; one more is RESOURCE_EXHAUSTED.
//
// Memory that changes hands. A kept result is the only copy: a switch that forgot it would leave a
// worker asking for what the others never send again. So the workers of a synchronous job pause
// before its memory changes. They hold, say at which PSN they are, and all finish up to the largest
// of these; then nobody needs anything kept. Switches first forget the old regions, then learn the
// new ones, and the workers go on with a window of half the region. A job without a region stays
// paused. Stopping is the same pause, without going on. placement.Divide says who gets what: equal
// parts, in turns where these would be too small.
//
// Exactness. A worker's gradients are a cheap function of (seed, job, rank, PSN, lane), so every
// worker computes by itself what the sum must be, and compares every lane of every result. Sums
// wrap as int32 do, so order never matters.
//
// Starting and stopping together. PSN 0 is a barrier; PSN 1 probes the round trip at low load.
// Workers are stopped at a PSN that all of them reach soon (as above), which the controller tells
// them. One that is asked to stop without being told where ends where it is. Nothing in a packet of
// gradients says that somebody wants to end: lanes are gradients in all their bits, so damage is
// always a wrong sum and never an order.
//
// Pacing. A sender with a rate limit keeps to a schedule of blocks of 16 PSNs that follow each
// other exactly; within a block, packets leave at random times. These depend on job and PSN only,
// so the workers of one job stay together and different jobs do not. Exact pacing locks jobs in
// phase, and then one of them always finds the memory taken; a dither of half a gap still lets the
// faster of two jobs find more than its part of a pool (0.06 of share at rates of 4 to 1). Without
// a limit results clock packets out, dithered by half a gap, and never faster than 1.25 times the
// NIC, so that a window does not start as one burst.
package ina

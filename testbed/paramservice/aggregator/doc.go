// Package aggregator is the Aggregator of a Parameter Service: it has master copies of
// tensors of many jobs, sums what the jobs' workers compute, and makes the next model by SGD.
//
// # Sums
//
// Gradients are added in the order of ranks when all are there, so models do not depend on
// the order in which they came, bit for bit, nor on where a tensor is. What is read from a
// socket is summed where it lies; what was made is sent from where it lies.
//
// # Whose turn it is
//
// An Aggregator is one core. Requests have it by the cycle that pMaster reserves (Reserve,
// paramservice.Slots): on time in their slot or before, late in spare time or in their next
// slot. Those of tensors without a slot, on temporary Aggregators and static servers, are served
// in the order in which they came, in time that is left.
//
// # Capacity
//
// Where a tensor says how long it takes (Work), the core is emulated: the sum is made, and the
// answer goes out when the core would have made it. The time of that core goes on from when the
// work before was done, not from when the process was woken, so being late does not add up. A sum
// that takes longer than what it emulates is counted in Late. Without Work, the core is the
// machine's, and its time is the CPU time of a thread.
//
// # Bad input
//
// A frame that is not one ends its connection. One that its sender may not send, or of another
// size than the tensor, is refused, which ends the connection, too; of a worker, its job has Failed.
// Others are not affected. Values that are not finite are summed like others, counted and
// reported with the ranks that they came from.
package aggregator

// Package service simulates a Parameter Service (Gu et al., "Elastic Model Aggregation with
// Parameter Service"; AutoPS) in virtual time: training jobs come, are profiled on temporary
// Aggregators, get shared ones as placement/paramservice plans them, train, and leave.
//
// There are two of them. Run follows every request of every tensor, for some jobs and
// minutes: it is what a testbed is held against. Replay follows jobs and the planner
// alone, for long traces of many thousand jobs.
//
// # Run
//
// A worker has a machine of its own, and so has an Aggregator. A machine's NIC carries Rate in each
// direction. All workers of a job are equally fast, so one stands for all of them.
//
// An iteration begins when all tensors have been pulled. Tensor i is ready to be
// pushed Ready[i] later, longer or shorter by Jitter, for all tensors alike. Every worker pushes it to its Aggregator.
// When the last gradient is there, the sum and the update take bytes·workers/Sum of the
// Aggregator's one core; then every worker pulls the result. An iteration whose tensors
// are all pulled is over.
//
// A connection, one for each job, worker, Aggregator and direction, carries its messages one
// after the other. Connections share NICs max-min fairly. A message arrives Latency after it has left.
//
// An Aggregator of a cluster serves requests in its cyclic slots (paramservice.Slots), a
// temporary one and a static server first come first served.
//
// A tensor that is to move goes on as appendix B of the paper has it. The response to the next pull
// names the new Aggregator. When that response has left, Packing later, the old one copies the
// tensor to the new one. Gradients go there from then on, and wait there for the copy.
//
// With Static every job has servers of its own, and its tensors go round them in turn, as
// with ps-lite.
//
// Background flows are endless. They begin when there is an Aggregator for them, leave the NIC of the one with the most bytes,
// and end with it; each gets as much of it as one connection. What pMaster is told of an Aggregator is by what
// factor foreign traffic makes transfers from it longer, as its NIC's counters show it.
//
// # Replay
//
// A job's work is its duration alone on as many servers as it asks for. It is profiled for a time on
// temporary Aggregators, at full speed, and then runs at the speed that the planner's model gives it,
// 1 - loss. GPUs are granted in order of submission, to whoever fits. Nobody is slower than the
// model says, so nothing is ever reverted there.
//
// Aggregators count from when they are allocated: in Run until the last tensor has left them,
// in Replay until they are released.
//
// The same configuration and jobs give the same result, bit for bit.
package service

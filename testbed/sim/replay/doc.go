// Package replay simulates a trace of jobs on a cluster: they arrive, are placed in
// batches by a policy, compute and exchange gradients at the rates that the flow model
// gives them, finish and leave. It is the simulator of NetPack (ASPLOS '24, sections
// 3.2 and 6.1): flow level and event driven, so that months of a cluster take seconds.
//
// # Queueing
//
// All jobs that wait are one batch, in the order of their submission, every Period.
// The policy places what it likes; the rest waits for another batch, and Waited counts
// the periods that passed a job over. Jobs that run are never moved and never preempted.
// A period is skipped, but counted, where nothing can have changed: no job arrived or
// ended since the last batch, or even the smallest job that waits asks more GPUs than
// are free.
//
// That is the policy's own discipline. Config.Queue has others (package queue), which estimate that a job runs for
// its iterations times its computing, without the network.
//
// # Fidelity
//
// An iteration is Compute seconds on every GPU, then an exchange of Bytes of gradient.
// The exchange takes bits/rate seconds, where bits are those that each worker puts on
// its link (in whole frames; of a ring in TCP segments with acknowledgements of those that go
// the other way) and rate is the job's in the steady state of NetPack's Algorithm 1 (package
// cluster). A link is full duplex, and a ring takes each direction of it once. Then the last
// gradients and their results are still on their way: Latency, a round trip over the cluster's
// delays, or the last hop of a ring (collectives.RingTail), which the published simulator
// leaves out. Jobs on one server exchange nothing. Both fidelities assume
// that all workers of a job are equally fast, that exchange and computing do not overlap,
// that rates settle at once when the set of jobs changes, and that with several parameter
// servers each serves a part of the gradient in proportion to its tree's rate.
//
//   - Fluid assumes besides that every job that runs on several servers sends all the
//     time, as NetPack's estimate does: what other jobs leave while they compute is
//     nobody's. A job makes 1/(Compute + bits/rate + Latency) iterations a second. Things
//     happen only when jobs arrive, are placed and end.
//   - Phases lets a job have a place in the network only while it exchanges: whoever
//     computes leaves its bandwidth and its aggregators to the others. Every job starts
//     with computing when it is placed. Things happen at every boundary of every
//     iteration, so it is for short traces, and for comparison with a testbed. The policy
//     still sees all running jobs as sending: an online manager knows no phases.
//
// Fluid is the slower one for jobs that share a bottleneck. The two agree where jobs
// never compute.
//
// # A collective alone
//
// With Config.Collective jobs do not share the network: this is the simulator of Titan (its
// section V-B). Every GPU of a job is a worker, where Placement.ServerOf has it. An
// iteration is Compute seconds, then an all-reduce of the gradient that has the links for
// itself: collectives.Pattern.Seconds, phases that wait for each other, over the links of
// servers, with acknowledgements by the other direction; links of racks do not count. So a job takes what the trace says and the time of communication besides, from the moment it is placed. It
// is the same for all jobs of one shape, which workers share a machine, and worked out
// once for each. Only policies see a network with others in it, the steady state in which
// each such job is a ring of its servers, by which Titan has its bandwidth constraint; and
// Series.Links is of that. Neither Latency nor Fidelity plays a part.
//
// # Titan's figures
//
// The paper leaves open what some of them are exactly. Here:
//
//   - A machine is used while a GPU of it is taken, by a worker or as a spare one, and
//     machine hours are the integral of that, to the last end.
//   - The fragmentation of a machine is its idle GPUs over all it has, as section V-A
//     defines it. Exp#2 prints occupied GPUs there, which its own figures are not. The
//     average is over used machines; without any it is 0.
//   - The communication overhead, here Crossing, is how many bytes of gradient cross
//     between machines in one iteration of every job that runs, without frames. Both ways
//     of an exchange count once, as in the paper's Figure 1 (collectives.Pattern.Cross).
//   - The profit rate is K·P/(N·T): for the jobs that run the sum of price over duration,
//     per machine that is used, in prices per machine and hour. A job's own price and
//     duration count, so nothing is averaged over jobs that have nothing to do with each
//     other. Its duration is Iterations at its present pace, so with Phases there is no
//     profit. Prices are Config.Price, which the paper does not tell: see Pricing.
//   - The total profit is the sum of the profit rates as jobs arrived, "of all timestamps".
//
// Averages in Summary are over arrivals, too, as the paper's workflow computes metrics
// whenever a job arrives; Series are exact means over time, so the two differ where jobs
// come in bursts.
//
// The same configuration, jobs and seed give the same result, bit for bit.
//
// # Titan
//
// Titan's simulator has no network that jobs share: what an all-reduce takes follows from which of
// a job's workers are on one machine, alone (replay.Config.Collective). That is worked out once for
// each such shape, so a job's end is known when it starts, and a replay of 15,000 jobs takes half a
// second. The paper leaves open what some of its figures are; the documentation of
// testbed/sim/replay says what they are here, and experiments/titan-recorded.toml where they come
// out as printed and where not.
package replay

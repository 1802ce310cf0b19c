// Package collective is the communication library of an emulated training job: it sums
// gradients among the ranks of the job, by the switches of an exclusive tree or, where
// that is refused or not asked for, over a ring of TCP connections.
//
// A Group is the ranks' all-reduce. What decides between the two ways is agreed upon by all
// ranks without a message of its own: the switches' answer to a lock reaches all of them,
// and whether they have the same tree is counted along with every all-reduce of the ring.
//
// A Queue stands before it, as in MINA's runtime (INFOCOM '24, section IV-C): operations
// are queued when they are requested and launched one at a time, so that the decision for
// or against INA is taken as late as can be. A Collector listens to the queue and finds
// the pattern of the job's steps, of which the job says nothing (section IV-B).
//
// A Mesh is for jobs without a tree, with a rank per GPU: it does whatever a schedule of package
// collectives says, and how long that takes is Schedule.Seconds of what two ranks were measured
// to get from each other. On emulated hosts both agree within a few percent if ranks pace to
// their NIC, queues are by connection, and the machine does nothing else (BenchmarkSchedules).
// What else TCP would add is: a sixth of the time, where acknowledgements queue behind what goes
// the other way; phases that seem over while the kernel still has what they sent; and after a
// pause a slow start, which package netns turns off. What remains is 66 bytes of headers with
// 1448 of gradients, and an acknowledgement the other way for two such frames, 2.2 % of it,
// which what goes one way only is spared: the schedule counts both (collectives.Network.Acks).
//
// Gradients are ina.Reference's, and every sum is checked bit for bit.
package collective

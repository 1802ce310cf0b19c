// Package commit is how the hosts of a sharing group agree on the group's state: MINA's
// two-phase commit (section IV-B, Figure 9) as state machines without I/O, clock or
// goroutine. Messages and timers that ran out go in; messages, timers and events come out.
//
// # The protocol
//
// The controller sends Prepare to all hosts of the group (step 1). A host locks: from now
// on its execution thread begins no operation (2). It answers with the index of its next
// operation (3). Where the indices of every job are equal (4) the controller sends the
// new state, Commit, else Abort, and tries again later (5). The host takes the state over,
// unlocks (6) and says so (7). All messages are repeated until they are answered.
//
// A state is always the whole state, never a difference, and has the number of the
// transaction that brought it: the controller's epoch, and a sequence number in it.
//
// # What may happen
//
//   - Messages are lost, come twice, late and in any order.
//   - A host stops at any moment, for ever or to come back without memory. An all-reduce
//     does not outlive any of its hosts, so whatever came back begins a new run of its
//     job, which the other hosts of the job then begin too. A run has a number greater
//     than those before, given by what starts jobs; no host begins the same run twice.
//     All messages name the run that they are about, and a host knows no other than its own.
//   - The controller stops at any moment and comes back without memory, with a greater
//     epoch. It learns from the hosts' reports who is there.
//   - Clocks run at any speed. Whoever is silent for too long is taken for dead, perhaps
//     wrongly: that costs time, never agreement.
//
// Nobody lies.
//
// # The blocking window
//
// A host that has answered Prepare and hears nothing may not go on by itself: another
// host of its job may have been told to commit, and begun the next operation by the new
// state. In general two-phase commit blocks here until the coordinator is back. Two
// facts about all-reduces make it end without:
//
//   - Agreement is needed among the hosts of one job only. Jobs that hold different
//     states may both ask for INA, and then the switches refuse one (they grant a lock to
//     all hosts of a job or none). That is slow, not wrong.
//   - A job goes on only if all of its hosts do. So a host that is in doubt can wait for
//     all hosts of its job: if one is dead, so is the run.
//
// A host whose lock has lasted too long asks rank 0 of its job. Rank 0 asks everybody
// (Query). A host that has taken the state over sends it back; any other promises not to
// do so on the controller's word any more (it is fenced), nor to lock for that
// transaction if it has not yet. If one has taken it over, rank 0 does too and tells all;
// if all have promised, the transaction is void for this job, and rank 0 tells that.
// Until it hears, a fenced host stays locked. The controller may have committed
// meanwhile: hosts that did not take it over tell it so, and it tries again.
//
// # Who is dead
//
// A job with a host that does not answer is taken out of the group, for the others to go
// on: Out. It comes back when all of its hosts have been heard, after an interval that
// doubles each time, so that a host that reports but never answers holds nobody up for long.
// While a job is out its hosts keep the state that they agreed on.
//
// # How far this is proven
//
// The package's tests visit every state that small groups can come to: two hosts, three,
// two rivals, two jobs of two hosts. Messages come at any time, often or never, timers run
// out too early, and hosts or the controller crash at every step, within bounds on how
// many operations, transactions and faults there are; of the largest groups, messages come
// once, and answers to the controller at once. In each state, hosts of a job have the
// same state for the same operation, no two rivals hold the switches, and there is a way on
// without more faults to where everything has settled. Eleven mistakes in the protocol,
// made on purpose, are each found.
package commit

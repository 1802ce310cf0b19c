// Package migrate is how a tensor moves from one Aggregator to another while its job
// trains: Parameter Service's protocol (AutoPS, Figure 13) as state machines without I/O, clock
// or goroutine. Messages, alarms and what was computed go in; messages, alarms and events
// come out. There is one machine for each tensor at each node: Agent at a worker, Holder at an Aggregator,
// Master at pMaster.
//
// # The protocol
//
// A model has versions; the one of version v becomes the next by the gradients that all
// workers computed for v, summed in the order of ranks. Push carries such a gradient and asks for
// the next model, so that a pull of its own is needed in the beginning only. Model is the answer.
//
//  1. pMaster sends MIGRATE_INIT to the source, which goes on until it has the next version.
//  2. The answers with that version name the destination (2 and 3 in Figure 13): all
//     workers read the same version from the source last, and push their next gradient to
//     the destination.
//  3. After the answers, TENSOR_COPY goes to the destination (4, 5), while the workers compute.
//     Gradients that are there before the copy wait for it.
//  4. The source says TENSOR_COPY_DONE when the copy has arrived (6), the destination WORKER_DONE
//     when all workers have come to it (7). With both pMaster is done, and says so:
//     until then the source answers late workers with the new place.
//
// # Consistency
//
// Every assignment has a Term, and nobody obeys an older one than it knows. Gradients name
// the version that they are for. A worker keeps its gradient until it has the next model, and
// its model until then, too. So no update is lost and none applied twice, however often a
// message comes.
//
// # Crashes
//
// An Aggregator that crashes loses its copies, and if it comes back it is a new one, with an id that
// no other has had: what was on its way to the old one must not reach it. It may be taken for
// dead wrongly, and go on. A new pMaster has no memory, and a greater epoch. A worker that vanishes ends its job.
//
// The workers' models are the backup. No worker is more than one version ahead of another, and
// who is behind has pushed what made the difference. To put a tensor somewhere after a
// crash pMaster sends Fence to all workers. They obey no older term from then on, and say which
// version they have. When all have answered, nothing that an old copy may still do counts. One of
// those with the newest model copies it there, and all push again what has not been
// answered: Assign. The first assignment of a tensor is the same, from rank 0's initial value.
//
// A new pMaster asks the workers where the tensor is. Migrations that were under way
// end without it, and it learns of them by their notifications. A recovery that was not finished is
// begun anew. A worker that gets no answer says Stuck, for crashes that nobody else notices.
//
// Messages are repeated until they are answered. Those to a process that is gone are lost, as
// its connections are.
//
// # What is left to the caller
//
// Where an orphaned tensor goes, and who is dead; when a worker is, Fail. Data is opaque here (D):
// a machine hands on what it got, keeps it as long as it says, and never writes to it.
//
// # How far this is proven
//
// The package's tests visit every state that two or three workers, two Aggregators and pMaster
// can come to, within bounds on how many updates, migrations and faults there are. In each
// state every model is the sum of exactly what was pushed, in order of ranks, and there is a way on
// without more faults to the end of training. Messages come at any time, often or never, timers run out
// too early, an Aggregator crashes or is taken for dead at every step, and so does pMaster. Eleven
// mistakes in the protocol, made on purpose, are each found.
package migrate

// Package pmaster is the pMaster of a Parameter Service as a process: it registers jobs, has
// Aggregators started and ended, decides by placement/paramservice which of them sums which
// tensor, and moves tensors by the protocol of testbed/paramservice/migrate.
//
// # Wanted and actual
//
// The planner says where each tensor is to be. What it says holds at once for the planner, and in
// time for the service: a tensor whose place differs from the planned one is moved when it is not
// moving already, and when the Aggregator that it goes to has joined and been told of its job. So
// plans may change while others are being carried out. An Aggregator that the planner has released
// ends when the last tensor has left, and there may be more of them for a while than MasterOptions
// allow.
//
// Everything that follows from one message, one report or one crash goes to each node in one batch:
// when an Aggregator with a hundred tensors crashes, a worker gets the hundred fences together.
//
// # A job's life
//
// Register gives it its id, and temporary Aggregators, as many as it asks for servers. When all its
// workers have attached, its tensors are assigned. By what workers and Aggregators report it is
// profiled, while nothing of it moves, and gets its place in a cluster. From then on its reports
// are what the planner observes. It ends when all workers have finished, when one of them
// vanishes or says that it has failed, when somebody deregisters it, and when there is no
// Aggregator for it.
//
// # Crashes
//
// A node that says nothing for a lease is dead, and an Aggregator also when its process ends, or
// when a worker gets no answer of it. An Aggregator's tensors are put elsewhere from what the
// workers have. A worker cannot come back as another process, as its models are gone.
//
// pMaster itself keeps only its epoch in a file. Ids of jobs and Aggregators begin anew in each
// epoch, so that none is given twice. A pMaster after one that has not ended properly takes over:
// for some time (Config.Grace) it waits for nodes to come back. Workers tell it what their job is, what it was
// profiled as, and where its tensors are; Aggregators who they are. Then it plans on from there.
// Jobs that have not come back in full have failed, Aggregators that nobody needs are released.
package pmaster

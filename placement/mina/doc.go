// Package mina allocates hosts and aggregation trees to training jobs as MINA does ("MINA:
// Fine-grained In-network Aggregation Resource Scheduling for Machine Learning Service",
// INFOCOM '24, section III): an Allocator is the state of a cluster, and the simulator and
// the allocation controller both go through it.
//
//   - A job that comes gets hosts, and keeps them until it leaves (package fragment).
//   - Then the trees of all running jobs are built again, and it is said who shares with
//     whom (package tree). What changed is a value, for whoever migrates trees.
//   - Who shares decides before every all-reduce whether it may use its tree: tree.Decide.
//
// Switches and links that are down are part of no tree; whoever has one of them loses its tree with
// the next call of Trees, and keeps its hosts.
//
// Each part has its baseline: Config.Place another fragment.Policy, Config.Trees First, and
// no sharing with tree.Exclusive. All is a function of the calls and of seeds in them.
//
// # Who has INA
//
// MINA's decisions are in three packages that know nothing of hosts and wires: fragment (which
// hosts), tree (which trees, who shares, and the rule by which), timetable (which operations ask
// for INA). placement/mina is a cluster on which they have been made; the simulator and the
// controller both go through it, so that what is simulated is what runs.
//
// Who has INA is decided three times, each time by less:
//
//   - The trees say who could be in the way of whom. Jobs whose trees do not meet always ask.
//   - The timetable says, for jobs whose trees do, which operation asks. Every host simulates its
//     group forward from the last state that was committed, in virtual time; so hosts of a job
//     agree without a message, and in virtual time rivals never meet. The sharing controller
//     commits a new state, by two-phase commit among all hosts of the group, when jobs come, go, or
//     drift from it.
//   - The lock in the switches has the last word. However far time has drifted, two rivals never
//     have a turn together, and all workers of a job hear the same answer. Whoever is refused takes
//     the ring for that operation.
//
// So agreement is the protocol's, exclusion is the switches', and speed is the timetable's; none of
// them needs the other two to be right. testbed/mina/commit says what may fail, and its tests go
// through every interleaving of a bounded scope, and kill mutants of the protocol.
//
// A tree is given back before another is taken: the hosts leave it between two operations and go on
// over the ring, then switches forget it, then those that it was in the way of get theirs. Nobody
// waits for a tree, so training never does.
package mina

// Package controller is the controller of a MINA cluster as a process ("MINA: Fine-grained
// In-network Aggregation Resource Scheduling for Machine Learning Service", INFOCOM '24,
// section IV): the allocation controller, and beside it the aggregation manager and the
// sharing controller (package testbed/mina/sharing).
//
// A job that comes gets hosts and keeps them. Then the trees of all jobs are built again
// (package placement/mina), and jobs whose trees are others now migrate:
//
//  1. The job's hosts are told to leave the tree. They do so after the operation that is
//     under way, go on without INA, and say so.
//  2. The tree is released from the switches.
//  3. When all jobs have released that had a switch of the new tree and are to leave it, the
//     aggregation manager sets the new one up. Where it refuses, that is said, and tried
//     again when something has been released, and every Config.Retry.
//  4. The hosts are told of the new tree, agree with each other to use it, and say so.
//
// So all is released before anything is acquired. Step 1 waits for the job's own hosts
// only, and step 3 for jobs in steps 1 and 2 only, so nobody waits for ever unless hosts do.
// Hosts never wait. A job's hosts are attached over gRPC (package allocation); a job that
// loses a host, and does not get it back in time, ends, and its tree is released.
//
// Who shares with whom follows from the trees and is told to Config.Share.
package controller

// Package allocation is the protocol between MINA's allocation controller and the hosts of
// jobs, over gRPC, and the hosts' side of it.
package allocation

// Package sharp is what a lab with Quantum switches needs to know of SHARP, NVIDIA's
// in-network aggregation for InfiniBand: the configuration file of its aggregation
// manager, sharp_am; the reservations of UFM; the environment by which a job asks for
// quota; and the log lines of jobs and of the manager, which say what was granted.
//
// # What is true
//
// A job that asks for SHARP and does not get it still runs, without an error: NCCL goes
// on over its ordinary network. So what was asked for proves nothing. A run is a SHARP run
// only if its own log proves it: JobLog.Proof. Nor is it one if NCCL chooses a ring although
// SHARP is there, or NVLS_TREE, which adds up in NVLink's switches and along a tree of hosts, or
// if hosts send what a ring does: Evidence holds all of it against the job, and a silent fallback
// is a failed run, results.CodeFallback. What NCCL writes of its choice differs by version, which
// the log tells; 2.18 and 2.19 write nothing. If the log cannot say and traffic does not prove it,
// the run is undecided, results.CodeUnproven. The same holds for
// reservations, which UFM may accept in part: Reservations.Create returns what was
// granted; and for sharp_am.cfg, which UFM may write anew: Manager.Apply reads it back.
//
// # What SHARP has and has not
//
// Its manager grants jobs a part of each switch: OSTs (outstanding operations), bytes in
// each, groups, queue pairs and trees. It does not grant "so many bytes of switch memory".
// Trees are of two types: LLT (low latency, small messages) and SAT (streaming, long
// messages), and on Quantum HDR switches one job at a time holds the lock of a SAT.
//
// # Pitfalls
//
//   - Where the subnet manager runs, that port cannot be a compute node (github.com/NVIDIA/nccl, issue 1219).
//   - Switches show their aggregation nodes as one-port channel adapters: not hosts.
//   - opensm must have sharp_enabled 2 and a fat-tree or up/down routing engine.
//   - grep TreeID in ibdiagnet's output counts 0 in dynamic mode while no job runs: not a fault.
//   - In reservation mode a host without a reservation gets no SHARP job.
//   - UFM's releases of April 2026 drop creating and changing reservations: partitions
//     (pkeys) make them, unless sharp_am.cfg says reservation_auto_by_pkeys FALSE.
//   - The job library names tree ids in hexadecimal in old versions, in decimal in new ones.
//
// Sources: release notes and manuals of NVIDIA SHARP 3.x, HPC-X 2.x and UFM Enterprise 6.x
// (docs.nvidia.com/networking), github.com/Mellanox/nccl-rdma-sharp-plugins (source, and
// issue 151), github.com/aistabci/abci-docs (a log of an older library),
// github.com/NVIDIA/nccl (source at its tags v2.18.1-1 to v2.30.7-1; issues 1219, 1292, 1460), github.com/NVIDIA/nccl-tests (issue 311).
// They are what was published at some version, and a lab may run another: what is not known is kept as it is, never refused.
package sharp

// Package remote connects to hosts and switches, whether they stand in a lab or are namespaces on this machine: the fabric that
// it is given says where they are. It leases them where others use them too, remembers what it changes and changes it back,
// starts processes on hosts, writes into switches, and reads what all of them count. It knows of no job: see package
// deployment, and the studies that start processes of their own.
//
// # A lab
//
//   - No string is seen by a shell. Arguments travel in octal and /bin/sh on the host turns them
//     back, so the login shell may be bash, dash, csh or fish. All hosts behind a jump host share
//     one login to it (256 hosts: 3.3 s, against 4.8 s with one each, go test -bench Farm
//     ./testbed/ssh). The limit on fan-out counts logins, so hosts that are off cost their timeout
//     once, all together.
//   - Leases are histories. Each change of hands is a file of its own, made with link(2), which one
//     of any number of controllers does first; nothing is written over by another and the highest
//     number stays, so fencing numbers never repeat. Times are the host's alone. testbed/lease is
//     explored in every order of operations of two and three controllers, with deaths and full
//     disks.
//   - A journal says how to undo before anything is done, with a closed set of inverses: data, not
//     commands. What undoes them can tell what carries the run's mark.
//   - A process on a host has a supervisor, a process of its own, because a stopped or stuck
//     program cannot watch itself. Beats come over the connection; without them for the lease's
//     span, or when stdin ends, all that was started is killed, daemons too.
//   - Every counter passes an audit: wraps are continued, restarts and gaps are troubles with host
//     and counter, and what one end of a cable sent is held against what the other received, less
//     the check sequences that MACs count. Labs are read by one process per host: a round of 32
//     hosts with RDMA counters takes 16 ms, and 284 ms by SFTP (go test -bench
//     BenchmarkSample32Hosts ./collectors, with other load).
//   - Differences between P4Runtime servers are in three places: the form of the device config
//     (testbed/p4rt/deviceconfig.go), what the inventory says (testbed/device), and, for tests,
//     testbed/personality, which puts each server's refusals in front of the embedded switch.
//   - Programs of others ([[program]]) have no plan: their hosts are given, servers start and
//     listen before clients, and what they print becomes figures. The prediction is the directed
//     max-min share of links times what of a frame is payload. What no figure can say, such as a
//     job that asked for SHARP and went on without it, is a finding.
package remote

// Package policy has commands that others wrote decide where jobs go, in any language.
//
// Such a policy is a process. It is started once, reads JSON from its standard input and writes JSON to its standard output,
// a line each: an Opening has the cluster, a Request the state of it and the jobs that wait, an Answer where they go. What
// it writes to standard error is shown where it fails. docs/POLICY.md has the contract for those who write one.
//
// To the rest of the program it is a cluster.Policy: jobs and racks have no other names there than numbers, and what can
// go wrong with a process is what cluster.Err says. A request has all that a policy may go by, so that one needs no memory of
// what it was asked before; what an answer says of the whole batch is looked at before any of it is done.
package policy

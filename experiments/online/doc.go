// Package online is NetPack's job manager (ASPLOS '24, section 3.2) on a testbed: jobs
// are submitted over time, wait, are placed in batches by a policy, started and stopped
// for real, and leave. What came of them has the types of package replay, which does the
// same in virtual time on the flow model alone, so that both stand side by side.
//
// # Queueing
//
// It is package replay's: all jobs that wait are one batch at multiples of the period,
// or whenever a job arrives or ends if there is no period; Waited counts the periods that
// passed a job over; jobs that run are never moved. Periods count from the beginning of
// Run, as do all times.
//
// # Times
//
// A job counts as running from the moment that all its workers have begun, for as long as
// its iterations took its slowest worker. What it costs to bring it there is not hidden
// in that: Placed is when the policy decided, Issued when switches were programmed and
// agents ready, so that it could be told to start, and Seen when the manager knew that it
// had ended. Its GPUs are taken from Placed to Seen. In virtual time all that takes none.
//
// # Ids
//
// Jobs on the wire have ids, and switches have room for so many (Config.IDs). The id of a job
// that has left goes to another one, in an epoch of its own, so that nothing of the former
// is taken for the latter's. Where more jobs with aggregation run than there are ids, those
// placed last have their GPUs and begin when others have left.
//
// # Iterations
//
// An iteration is computing, then an exchange of all gradients, one after the other, as
// the simulator has it. A job on one host only computes.
package online

// Package jobs is the study of [[job]] tables: jobs that begin and end when the experiment says. A repeat of a point is
// calibrated, deployed and observed (run.point); every phase, in which the same jobs send, gets figures of what was measured
// beside what is predicted of it, with what makes them incomparable; and what must hold of a run is looked at.
//
// Figures are of phases without a warm-up and without the times in which the testbed stood still. What is predicted is exact
// where package placement says so; doubts.go has the conditions under which it is not held against what was measured.
//
// # Phases
//
// A phase is as long as planned: what starting its jobs takes is put between phases, and all that
// is to come is put off by as much (run.observe). A phase of the plan that was not measured leaves
// the run undecided (inspection.missed).
//
// A stall of the testbed costs seconds and not the run. Drivers say when and where something stood
// still (testbed.Stall); figures leave that time out, and two round trips after it, and a phase
// goes on until it has as many clean seconds as were planned, up to three times as long. What was
// left out is in the record. Stalls shorter than a fifth of every job's round trip that take less
// than 1 % of a phase together cost no seconds: none moves a figure by more than its own length. A
// phase without repeats goes on as well where an expectation of it is undecided by its interval
// (run.unsure, patience.doubt): it doubles until intervals fit 0.9 of the tolerances, within
// measure.stretch; its prediction was made before anything ran, and readings go on while figures
// are drawn. Figures of studies are of all the time of their jobs and leave nothing out: where a
// job, or the testbed, stood still for more than 5 % of it, a check that fails is inconclusive
// (Phase.Stood), and one that passes passes. A process that did not run for 0.4 s while the testbed
// did fails its job.
//
// A process of a job that did not run for 0.4 s while switches and this program did fails the job,
// whatever lateness came of it; one that stood still with them is left out (below). Agents also
// tell for how long their threads ran or waited for a processor (/proc/PID/task/TID/schedstat):
// late sends make a run undecided where that explains them, and fail the job where it does not.
//
// A ring counts a message when it is done. Its goodput is taken from one message's end to
// another's, and is not known where a message takes more than half of the phase.
//
// # Shares
//
// PSNs granted over PSNs decided is the switch's own claim. Resends that push a partial
// sum out do not count in it: with 8 % loss it said 1.0 where 1.54 packets of each PSN of two
// workers arrived at the PS, a share of .46. So the measured share is (in-out)/(in-psns): what
// came (a packet of each PSN from each worker, and what switches below sent), what left (what
// arrived at the PS, as the PS counts it, or what the switch sent on), and PSNs that the PS
// completed. What the switch decided is a metric of its own, granted, and a run in which the two
// differ and resends do not explain it fails. Where nothing was sent again, counts are of one place
// as far as there are any: the PS's where its root is the only switch, else in and out as the
// switch has them. What waits between it and the PS made a share of few packets two to four times
// as uncertain (a drawn setting of three levels: .73 ± .12, now ± .03). What it says that it
// received and sent is held to its neighbours' counts, to the packet, in any case
// (experiments/study/inspect/hops.go). Readings keep in step with the period in which a memory that
// is too small is granted and denied: T for a pool, rounds of the array for linear and atp.
// Synchronous jobs have no PS: their share is what switches say.
//
// What a switch claims has neither resends nor the partial sums that they push
// out of an aggregator that was granted. The PS sees both: what aggregation was in fact is (n-p)/(n-1)
// of n workers, p being its worker_arrived over its worker_completed. At 5 % loss two workers have a granted share of
// 1.00, and the PS receives 1.8 packets for each PSN.
package jobs

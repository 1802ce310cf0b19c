// Package results is what a run leaves behind: its record, its raw samples, the
// statistics and verdicts drawn from them. results/report shows them.
//
// It imports nothing of this project but how numbers are written and named: drivers and the run loop fill its
// types, and a stored run can be read, compared and rendered without a testbed.
//
// # Figures
//
// A figure is a rate or a ratio of counters over a phase, and readings must cover the phase: where
// there is none for more than 5 % of it, or for longer than two and a half times what lies between
// readings as a rule, there is no figure, and the check says why (results.Window). The value is
// what was counted. Its 95 % interval comes from batch means (at most 20 batches, delete-one
// jackknife, variance inflated for correlation between neighbouring batches, raised by half its
// standard error). Batches that are worth less than one independent one give no interval. Repeats
// are combined with Student's t over the repeats where they differ more than their own intervals
// explain. Figures of the model are exact.
//
// # Checks
//
// A check passes if the interval of its error lies within the tolerance, or if the error does and
// half the interval is not longer than the tolerance. It fails if the whole interval lies outside,
// or if what was counted over the phase is off by more than twice the tolerance, and 1 %: a stall
// makes the interval wide, and the count none the better. Otherwise it is inconclusive, and says
// how many further repeats should decide it where repeats can. A mean or a maximum fails as soon as
// what is certain of some figures is enough, whatever is open of others, and a mean fails with a
// link that should be idle and is not. Points with fatal trouble are inconclusive, not failed, and
// their figures are shown; only counts such as wrong sums are held however busy the machine was.
// The run's outcome is error, else fail, else inconclusive, else not judged where no check is
// gated, else pass.
//
// # No evidence, no pass
//
// Nothing passes for want of evidence: a comparison without the points that it is of is undecided
// (results/incomplete.go), and so is an event that the study is about and that did not happen
// (event.go); of a job of which no sum was compared there is no number of wrong sums
// (uncompared.go). Whether a paper's figure is reproduced is another question than whether a run
// passed, and has words of its own (reproduced.go).
package results

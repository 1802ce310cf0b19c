// Package predictor asks simulators that others wrote what an experiment should bring.
//
// A predictor is a command. It is started once for each point and repeat of an experiment,
// after the point was measured; it reads one JSON document (Request) from its standard input
// until that ends, writes one (Answer) to its standard output, and exits with 0. What it writes to
// standard error is shown if it fails. Its answers stand in the record beside those of the
// built-in models. docs/PREDICTOR.md has the contract for those who write one.
//
// All quantities are in SI units: seconds, bit/s, bytes. They are those of the testbed as it was,
// so of an emulation they are scaled.
//
// # In a run
//
// A predictor of the user's (experiments/predictor) is a process that is asked with one JSON
// document and answers with one, point by point. It is told all that the built-in models start from
// (placement.Resolve is theirs, too), and its answers become predicted figures beside theirs; so
// expectations, reports, history and results/fidelity need not know whose they are. It is tried
// before anything is measured, where jobs are placed before that, and then can only lose its own figures. A simulation that
// places jobs as they come hands over what it told of them when it is done (study.Repetition.Request).
//
// Fidelity is computed from records alone: what a run was is in its record, predictions included.
// The figure is kept in the record of the run that was the reference, where the index finds it,
// instead of a run directory of its own, which baselines, gc and latest would have to tell from
// runs.
package predictor

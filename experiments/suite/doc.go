// Package suite runs a list of experiments in a night, and says in the morning what is
// different.
//
// A suite is a TOML file: which experiments, on which drivers, how often, in how much time,
// and what is tried again. Items, an experiment on a driver each, run one after the other,
// the riskiest first (Plan). No failure of one ends the night (Run). Every run lands in the
// store of runs as any other, with the night that it is of in its record; the night itself
// is a directory beside them, of which suite.json (File) is replaced after every step, so
// that whatever is killed can be gone on with. At the end each metric is held against its
// own history (package results/trend), and where something became worse, the record is asked
// for the part of the testbed that explains it (Culprit).
//
// # Children, and culprits
//
// experiments/suite runs each item as a child process of inabench run, so that whatever happens to
// one does not happen to the night. Only what the testbed did wrong is tried again, by the class
// that the record's failure names; a verdict never. results/history has what was measured before,
// results/trend says what is noise. The culprit is the subject whose being slower by one factor has
// the greatest likelihood given how much slower every job is, the unmoved ones included.
package suite

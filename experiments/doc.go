// Package experiments runs what a spec says: the loop over points and repeats, and the verdict. It has the experiments that
// ship, which runs are told from others by.
//
// # Sweeps elsewhere
//
// A batch engine (experiments/batch.go) measures each point of a simulated sweep in a process of
// its own, which leaves it in .cells/ of the run directory; the run is put together when all are
// there, and equals a local one but for identities and times. A point that is missing is measured
// by the next --resume.
package experiments

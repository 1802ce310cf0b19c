//go:build !race

package netnstest

// Race says that the race detector is there, which takes several times the memory.
const Race = false

func hurry() error { return nil }

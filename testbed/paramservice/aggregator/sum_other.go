//go:build !amd64

package aggregator

// add sums two vectors.
func add(to, a, b []float32) { addEach(to, a, b) }

// step is to = old - rate·sum, and returns how many values of it are not finite.
func step(to, old, sum []float32, rate float32) (odd int64) { return stepEach(to, old, sum, rate) }

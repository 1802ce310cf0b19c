package aggregator

// block is how many values addBlocks and stepBlocks take at a time.
const block = 8

// addBlocks is to = a + b, for so many blocks, at least one.
//
//go:noescape
func addBlocks(to, a, b *float32, blocks int)

// stepBlocks is to = old - rate·sum, for so many blocks, at least one. odd is 0 if all of it is finite.
//
//go:noescape
func stepBlocks(to, old, sum *float32, rate float32, blocks int) (odd uint32)

// add sums two vectors.
func add(to, a, b []float32) {
	a, b = a[:len(to)], b[:len(to)]
	n := len(to) / block * block
	if n > 0 {
		addBlocks(&to[0], &a[0], &b[0], n/block)
	}
	addEach(to[n:], a[n:], b[n:])
}

// step is to = old - rate·sum, and returns how many values of it are not finite.
func step(to, old, sum []float32, rate float32) (odd int64) {
	old, sum = old[:len(to)], sum[:len(to)]
	n := len(to) / block * block
	if n > 0 && stepBlocks(&to[0], &old[0], &sum[0], rate, n/block) != 0 {
		odd = count(to[:n])
	}
	return odd + stepEach(to[n:], old[n:], sum[n:], rate)
}

package aggregator

// piece is how many values are summed at a time: their sum stays in the first-level cache.
const piece = 2048

// update makes the next model: next = model - rate·(((g0+g1)+g2)+…), each step rounded to float32.
// The order is that of ranks, so the bits do not depend on which gradient came first. It returns
// how many values of the next model are not finite. next may not be one of the others.
func update(next, model []float32, gradients [][]float32, rate float32) (odd int64) {
	var acc [piece]float32
	for from := 0; from < len(next); from += piece {
		n := min(piece, len(next)-from)
		to, old, sum := next[from:from+n], model[from:from+n], acc[:n]
		switch rest := gradients; {
		case len(rest) == 1:
			copy(sum, rest[0][from:from+n])
		default:
			add(sum, rest[0][from:from+n], rest[1][from:from+n])
			for _, g := range rest[2:] {
				add(sum, sum, g[from:from+n])
			}
		}
		odd += step(to, old, sum, rate)
	}
	return odd
}

// addEach is add without the help of the processor's vectors.
func addEach(to, a, b []float32) {
	a, b = a[:len(to)], b[:len(to)]
	for len(to) >= 8 {
		x, y, z := a[:8:8], b[:8:8], to[:8:8]
		z[0] = x[0] + y[0]
		z[1] = x[1] + y[1]
		z[2] = x[2] + y[2]
		z[3] = x[3] + y[3]
		z[4] = x[4] + y[4]
		z[5] = x[5] + y[5]
		z[6] = x[6] + y[6]
		z[7] = x[7] + y[7]
		a, b, to = a[8:], b[8:], to[8:]
	}
	for i := range to {
		to[i] = a[i] + b[i]
	}
}

// stepEach is step without the help of the processor's vectors. The conversion keeps compilers from
// fusing the two operations, which would round differently from one architecture to another.
func stepEach(to, old, sum []float32, rate float32) (odd int64) {
	old, sum = old[:len(to)], sum[:len(to)]
	for len(to) >= 4 {
		x, y, z := old[:4:4], sum[:4:4], to[:4:4]
		a := x[0] - float32(rate*y[0])
		b := x[1] - float32(rate*y[1])
		c := x[2] - float32(rate*y[2])
		d := x[3] - float32(rate*y[3])
		z[0], z[1], z[2], z[3] = a, b, c, d
		if (a-a)+(b-b)+(c-c)+(d-d) != 0 {
			odd += count(z)
		}
		old, sum, to = old[4:], sum[4:], to[4:]
	}
	for i := range to {
		to[i] = old[i] - float32(rate*sum[i])
	}
	return odd + count(to)
}

// count is how many values are not finite.
func count(v []float32) (odd int64) {
	for _, x := range v {
		if x-x != 0 {
			odd++
		}
	}
	return odd
}

// finite says whether all values are.
func finite(v []float32) bool { return count(v) == 0 }

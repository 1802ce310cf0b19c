package aggregator

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sums are those of a plain loop in the order of ranks, bit for bit, whatever the length and
// the number of workers.
func TestUpdate(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for workers := 1; workers <= 5; workers++ {
		for _, n := range []int{1, 3, 4, 7, 8, 9, piece - 1, piece, piece + 1, 3*piece + 5} {
			random := func() []float32 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20)-10)))
				}
				return v
			}
			model, next := random(), make([]float32, n)
			var gradients [][]float32
			for range workers {
				gradients = append(gradients, random())
			}
			if odd := update(next, model, gradients, 0.1); odd != 0 {
				t.Errorf("%d workers, %d values: %d are not finite", workers, n, odd)
			}
			for i := range next {
				sum := gradients[0][i]
				for _, g := range gradients[1:] {
					sum += g[i]
				}
				product := 0.1 * sum
				if want := model[i] - product; math.Float32bits(next[i]) != math.Float32bits(want) {
					t.Fatalf("seed %d, %d workers, value %d of %d: %x, not %x", seed, workers, i, n, next[i], want)
				}
			}
		}
	}
}

// Values that are not finite are counted, each once, wherever they are.
func TestUpdateNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for n := 1; n < 20; n++ {
		for i := range n {
			model, g, next := make([]float32, n), make([]float32, n), make([]float32, n)
			g[i] = nan
			if i > 0 {
				g[0] = inf
			}
			if odd, want := update(next, model, [][]float32{g, make([]float32, n)}, 1), int64(min(2, i+1)); odd != want {
				t.Errorf("%d of %d values: %d, not %d", i, n, odd, want)
			}
			if finite(g) || !finite(model) {
				t.Error("which of them is not finite")
			}
		}
	}
}

// Vectors are a matter of speed: what one value at a time gives, they give, wherever values begin in
// memory and however many are left over.
func TestVectors(t *testing.T) {
	const seed = 2
	r := rand.New(rand.NewPCG(seed, 0))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = math.Float32frombits(r.Uint32()) // also infinite ones, and such as are no number
		}
		return v
	}
	same := func(a, b []float32) bool {
		return slices.EqualFunc(a, b, func(x, y float32) bool {
			return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
		})
	}
	for n := range 3*8 + 2 {
		for from := range 4 {
			a, b, rate := random(from + n)[from:], random(from + n)[from:], r.Float32()
			got, want := make([]float32, from+n)[from:], make([]float32, n)
			add(got, a, b)
			addEach(want, a, b)
			if !same(got, want) {
				t.Fatalf("seed %d: %v + %v is %v, not %v", seed, a, b, got, want)
			}
			if odd, each := step(got, a, b, rate), stepEach(want, a, b, rate); !same(got, want) || odd != each {
				t.Fatalf("seed %d: %v - %v·%v is %v, %d not finite, instead of %v, %d", seed, a, rate, b, got, odd, want, each)
			}
		}
	}
}

// BenchmarkUpdate compares what an Aggregator's core does with a plain float32 add, both on
// tensors far larger than the caches. Bytes are those of gradients.
func BenchmarkUpdate(b *testing.B) {
	const n = 16 << 20
	fill := func() []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i & 1023)
		}
		return v
	}
	b.Run("add", func(b *testing.B) {
		to, g := fill(), fill()
		b.SetBytes(4 * n)
		for b.Loop() {
			for i := range to {
				to[i] += g[i]
			}
		}
	})
	for _, workers := range []int{1, 2, 4} {
		b.Run(map[int]string{1: "update-1", 2: "update-2", 4: "update-4"}[workers], func(b *testing.B) {
			model, next := fill(), fill()
			var gradients [][]float32
			for range workers {
				gradients = append(gradients, fill())
			}
			b.SetBytes(int64(4 * n * workers))
			for b.Loop() {
				update(next, model, gradients, 1e-3)
				model, next = next, model
			}
		})
	}
}

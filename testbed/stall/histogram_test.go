package stall

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Buckets follow each other without a gap, and a longer time is never in an earlier one.
func TestBucket(t *testing.T) {
	for d := range time.Duration(1 << 16) {
		if step := bucket(d+1) - bucket(d); step != 0 && step != 1 {
			t.Fatalf("buckets of %d and the next are %d and %d", d, bucket(d), bucket(d+1))
		}
	}
	if last := bucket(math.MaxInt64); last >= len(Histogram{}.buckets) {
		t.Errorf("the longest time is in bucket %d", last)
	}
}

// A quantile is never shorter than the true one, and at most 13 % longer.
func TestHistogram(t *testing.T) {
	if got := new(Histogram).Quantile(.5); got != 0 {
		t.Errorf("median of nothing: %v", got)
	}
	rng := rand.New(rand.NewPCG(1, 3))
	var halves [2]Histogram
	all := []time.Duration{0}
	halves[0].Add(-5) // early is not late
	for i := range 10_000 {
		d := time.Duration(math.Exp(20 * rng.Float64()))
		halves[i%2].Add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	h := halves[0].Plus(&halves[1])
	for _, q := range []float64{0, .5, .9, .99, .999, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		if got := h.Quantile(q); got < want || float64(got) > 1.13*float64(want)+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if last := all[len(all)-1]; h.N != int64(len(all)) || h.Max != last || h.Quantile(1) != last {
		t.Errorf("%d of at most %v, quantile 1 is %v; want %d of at most %v", h.N, h.Max, h.Quantile(1), len(all), last)
	}
}

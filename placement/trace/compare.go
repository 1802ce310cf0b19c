package trace

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Likeness is how alike one quantity of two traces is.
type Likeness struct {
	Quantity string    `json:"quantity"` // with its unit, where it has one
	Distance float64   `json:"distance"` // of Kolmogorov and Smirnov: the largest difference of the distribution functions, 0 to 1
	First    Quantiles `json:"first"`
	Second   Quantiles `json:"second"`
}

// Compare says how alike two traces are: in the times between submissions, GPUs, durations, those of the most frequent
// sizes that both have, and GPU time.
func Compare(a, b *Trace) []Likeness {
	var out []Likeness
	add := func(quantity string, of func(*Trace) []float64) {
		x, y := of(a), of(b)
		if len(x) == 0 || len(y) == 0 {
			return
		}
		first, second := quantiles(x), quantiles(y) // sorts them
		out = append(out, Likeness{quantity, distance(x, y), first, second})
	}
	each := func(value func(*Job) float64) func(*Trace) []float64 {
		return func(t *Trace) []float64 {
			values := make([]float64, len(t.Jobs))
			for i := range t.Jobs {
				values[i] = value(&t.Jobs[i])
			}
			return values
		}
	}
	add("time between jobs, s", func(t *Trace) []float64 {
		var gaps []float64
		for i := 1; i < len(t.Jobs); i++ {
			gaps = append(gaps, t.Jobs[i].Submit-t.Jobs[i-1].Submit)
		}
		return gaps
	})
	add("GPUs", each(func(j *Job) float64 { return float64(j.GPUs) }))
	add("duration, s", each(func(j *Job) float64 { return j.Duration }))
	for _, gpus := range frequentSizes(a, 4) {
		add(fmt.Sprintf("duration of %d-GPU jobs, s", gpus), func(t *Trace) []float64 {
			var values []float64
			for i := range t.Jobs {
				if t.Jobs[i].GPUs == gpus {
					values = append(values, t.Jobs[i].Duration)
				}
			}
			return values
		})
	}
	add("GPU time, s", each(func(j *Job) float64 { return float64(j.GPUs) * j.Duration }))
	return out
}

// frequentSizes are the most frequent numbers of GPUs, in ascending order.
func frequentSizes(t *Trace, most int) []int {
	jobs := map[int]int{}
	for i := range t.Jobs {
		jobs[t.Jobs[i].GPUs]++
	}
	sizes := slices.SortedFunc(maps.Keys(jobs), func(a, b int) int { return cmp.Or(jobs[b]-jobs[a], a-b) })
	sizes = sizes[:min(most, len(sizes))]
	slices.Sort(sizes)
	return sizes
}

// distance is that of Kolmogorov and Smirnov, of two samples in ascending order.
func distance(a, b []float64) float64 {
	most, i, k := 0.0, 0, 0
	for i < len(a) && k < len(b) {
		at := min(a[i], b[k])
		for i < len(a) && a[i] == at {
			i++
		}
		for k < len(b) && b[k] == at {
			k++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(k)/float64(len(b))))
	}
	return most
}

package trace

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Stats describe a trace. A quantile p of n values is the one with index ⌊p·n⌋ in
// ascending order.
type Stats struct {
	Name     string     `json:"name"`
	Origin   *time.Time `json:"origin,omitempty"` // of second 0, where the trace has dates
	Jobs     int        `json:"jobs"`
	Start    float64    `json:"start_s"` // first submission
	Span     float64    `json:"span_s"`  // from the first submission to the last
	GPUs     Quantiles  `json:"gpus"`
	MultiGPU float64    `json:"multi_gpu"` // part of the jobs with more than one GPU
	Duration Quantiles  `json:"duration_s"`
	GPUHours float64    `json:"gpu_hours"`
	// Load is the GPUs that are busy on average over the span, if there are always
	// enough: GPU time / span. 0 where the span is 0.
	Load float64 `json:"load_gpus"`
	// Peak is how many GPUs are busy at once if every job starts when it is submitted.
	Peak    int     `json:"peak_gpus"`
	Models  []Count `json:"models"`  // most frequent first
	Sources []Count `json:"sources"` // most frequent first
}

// Quantiles of a set of values.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Count is how many jobs have a name.
type Count struct {
	Name string `json:"name"`
	Jobs int    `json:"jobs"`
}

// Inspect describes a trace.
func Inspect(t *Trace) Stats {
	s := Stats{Name: t.Name, Jobs: len(t.Jobs), Models: []Count{}, Sources: []Count{}}
	if !t.Origin.IsZero() {
		s.Origin = &t.Origin
	}
	if len(t.Jobs) == 0 {
		return s
	}
	gpus, durations := make([]float64, 0, len(t.Jobs)), make([]float64, 0, len(t.Jobs))
	models, sources := map[string]int{}, map[string]int{}
	busy, multi := 0.0, 0
	for i := range t.Jobs {
		j := &t.Jobs[i]
		gpus, durations = append(gpus, float64(j.GPUs)), append(durations, j.Duration)
		busy += float64(j.GPUs) * j.Duration
		if j.GPUs > 1 {
			multi++
		}
		models[j.Model]++
		sources[j.Source]++
	}
	s.Start = t.Jobs[0].Submit
	s.Span = t.Jobs[len(t.Jobs)-1].Submit - s.Start
	s.GPUs, s.Duration = quantiles(gpus), quantiles(durations)
	s.MultiGPU = float64(multi) / float64(len(t.Jobs))
	s.GPUHours = busy / 3600
	if s.Span > 0 {
		s.Load = busy / s.Span
	}
	s.Peak = peak(t.Jobs)
	s.Models, s.Sources = counts(models), counts(sources)
	return s
}

func quantiles(values []float64) Quantiles {
	slices.Sort(values)
	return Quantiles{quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99), values[len(values)-1]}
}

// quantile p of sorted values.
func quantile(sorted []float64, p float64) float64 {
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// peak sweeps over starts and ends; what ends at a moment makes room for what starts.
func peak(jobs []Job) int {
	type event struct {
		at   float64
		gpus int
	}
	events := make([]event, 0, 2*len(jobs))
	for i := range jobs {
		j := &jobs[i]
		events = append(events, event{j.Submit, j.GPUs}, event{j.Submit + j.Duration, -j.GPUs})
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.gpus, b.gpus))
	})
	now, most := 0, 0
	for _, e := range events {
		now += e.gpus
		most = max(most, now)
	}
	return most
}

// counts leaves out jobs without a name.
func counts(m map[string]int) []Count {
	out := []Count{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name != "" {
			out = append(out, Count{name, m[name]})
		}
	}
	slices.SortStableFunc(out, func(a, b Count) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return out
}

// duration is seconds as Go has them.
func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

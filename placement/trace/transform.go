package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// Transform cuts a trace to size. Steps are taken in the order of the fields; the zero
// value changes nothing.
type Transform struct {
	Sources  []string // only jobs of these, such as one cluster; none: of all
	From, To float64  // only jobs submitted at From or later and before To, seconds; To 0: to the end
	MaxGPUs  int      // most GPUs of a job; 0: any
	Clamp    bool     // jobs above MaxGPUs get MaxGPUs; otherwise they are dropped
	Sample   int      // so many jobs, drawn with equal chances by Seed; 0: all
	Seed     uint64
	First    int // the first so many jobs; 0: all

	ScaleSubmit   float64 // multiplies submissions; 0 is 1, else 1e-6 to 1e6. Below 1 the load rises
	ScaleDuration float64 // multiplies durations; as ScaleSubmit
	Rebase        bool    // the first job is submitted at 0
}

// Changes counts what a Transform did to jobs.
type Changes struct {
	OtherSources  int `json:"other_sources"`  // dropped
	OutsideWindow int `json:"outside_window"` // dropped
	TooLarge      int `json:"too_large"`      // dropped: more GPUs than MaxGPUs
	Clamped       int `json:"clamped"`        // kept, with MaxGPUs
	NotSampled    int `json:"not_sampled"`    // dropped
	AfterFirst    int `json:"after_first"`    // dropped
}

// Dropped is how many jobs are no longer there.
func (c Changes) Dropped() int {
	return c.OtherSources + c.OutsideWindow + c.TooLarge + c.NotSampled + c.AfterFirst
}

// String is what happened to jobs: "12 of other sources, 3 outside the window"; empty when
// nothing did.
func (c Changes) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{c.OtherSources, "of other sources"}, {c.OutsideWindow, "outside the window"}, {c.TooLarge, "with too many GPUs"},
		{c.Clamped, "clamped to the most GPUs"}, {c.NotSampled, "not in the sample"}, {c.AfterFirst, "after the first"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Apply returns the changed trace and leaves the given one alone. It is an error if
// numbers make no sense, or if no job is left.
func (x Transform) Apply(t *Trace) (*Trace, Changes, error) {
	out := &Trace{Name: t.Name, Origin: t.Origin, Jobs: slices.Clone(t.Jobs)}
	c, err := x.ApplyTo(out)
	if err != nil {
		return nil, c, err
	}
	return out, c, nil
}

// ApplyTo is Apply in place, for a trace that nobody needs any more as it was. After an error it is neither of both.
func (x Transform) ApplyTo(out *Trace) (Changes, error) {
	var c Changes
	if err := x.Check(); err != nil {
		return c, fmt.Errorf("transform trace %s: %w", out.Name, err)
	}
	all := len(out.Jobs)
	keep := func(dropped *int, ok func(*Job) bool) {
		n := len(out.Jobs)
		out.Jobs = slices.DeleteFunc(out.Jobs, func(j Job) bool { return !ok(&j) })
		*dropped = n - len(out.Jobs)
	}
	if len(x.Sources) > 0 {
		keep(&c.OtherSources, func(j *Job) bool { return slices.Contains(x.Sources, j.Source) })
	}
	if x.From > 0 || x.To > 0 {
		keep(&c.OutsideWindow, func(j *Job) bool { return j.Submit >= x.From && (x.To == 0 || j.Submit < x.To) })
	}
	if x.MaxGPUs > 0 && !x.Clamp {
		keep(&c.TooLarge, func(j *Job) bool { return j.GPUs <= x.MaxGPUs })
	}
	if x.MaxGPUs > 0 && x.Clamp {
		for i := range out.Jobs {
			if j := &out.Jobs[i]; j.GPUs > x.MaxGPUs {
				j.GPUs = x.MaxGPUs
				c.Clamped++
			}
		}
	}
	if n := len(out.Jobs); x.Sample > 0 && x.Sample < n {
		out.Jobs = sample(out.Jobs, x.Sample, x.Seed)
		c.NotSampled = n - x.Sample
	}
	if n := len(out.Jobs); x.First > 0 && x.First < n {
		out.Jobs = out.Jobs[:x.First]
		c.AfterFirst = n - x.First
	}
	if len(out.Jobs) == 0 {
		return c, fmt.Errorf("transform trace %s: no job is left of %d: %s", out.Name, all, c)
	}
	x.times(out)
	return c, nil
}

// Check says which of the numbers make no sense.
func (x Transform) Check() error {
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"from", x.From}, {"to", x.To}, {"max GPUs", float64(x.MaxGPUs)}, {"sample", float64(x.Sample)},
		{"first", float64(x.First)}, {"submit scale", x.ScaleSubmit}, {"duration scale", x.ScaleDuration},
	} {
		if !(v.value >= 0) || math.IsInf(v.value, 0) {
			return tomlfile.WithHint("", "%s %g: not negative, and finite", v.name, v.value)
		}
	}
	for _, scale := range []float64{x.ScaleSubmit, x.ScaleDuration} {
		if scale != 0 && (scale < 1e-6 || scale > 1e6) {
			return tomlfile.WithHint("", "a scale of %g: 1e-6 to 1e6", scale)
		}
	}
	if x.To != 0 && x.To <= x.From {
		return tomlfile.WithHint("", "the window ends at %g s, it begins at %g s", x.To, x.From)
	}
	return nil
}

// sample draws n jobs, in place, and keeps their order: every subset has the same chance.
func sample(jobs []Job, n int, seed uint64) []Job {
	r := rand.New(rand.NewPCG(seed, 0x7361_6d70_6c65))
	out := jobs[:0]
	for i := range jobs {
		if r.Uint64N(uint64(len(jobs)-i)) < uint64(n-len(out)) {
			out = append(out, jobs[i])
		}
	}
	return out
}

func (x *Transform) times(t *Trace) {
	origin := 0.0
	if x.Rebase {
		origin = t.Jobs[0].Submit
		if !t.Origin.IsZero() {
			t.Origin = t.Origin.Add(duration(origin))
		}
	}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		j.Submit -= origin
		if x.ScaleSubmit > 0 {
			j.Submit *= x.ScaleSubmit
		}
		if x.ScaleDuration > 0 {
			j.Duration *= x.ScaleDuration
		}
	}
}

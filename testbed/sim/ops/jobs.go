package ops

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/inabench/inabench/placement/workload"
)

// Draw is a list of jobs as MINA's evaluation draws them: of each pattern with equal
// probability, on so many hosts as a histogram says, of 10 to 100 steps. All are there at
// the beginning.
func Draw(seed uint64, jobs int, patterns []*workload.Pattern, hosts *workload.Histogram) []Job {
	r := rand.New(rand.NewPCG(seed, 0x6d696e61))
	out := make([]Job, jobs)
	for i := range out {
		out[i] = Job{ID: i, Pattern: patterns[r.IntN(len(patterns))], Hosts: hosts.Draw(r), Steps: 10 * (1 + r.IntN(10))}
	}
	return out
}

// Arrive lets jobs come one after the other, with exponential gaps of a mean of so many
// seconds.
func Arrive(seed uint64, jobs []Job, gap float64) {
	r := rand.New(rand.NewPCG(seed, 0x67617073))
	at := 0.0
	for i := range jobs {
		jobs[i].Submit = at
		at += gap * r.ExpFloat64()
	}
}

// Patterns are all those of a catalogue at a batch, by model.
func Patterns(all *workload.Patterns, batch int) []*workload.Pattern {
	var out []*workload.Pattern
	for _, m := range all.Models(batch) {
		p, _ := all.Lookup(m, batch)
		out = append(out, &p)
	}
	return out
}

// ParseJobs reads a list of jobs, one a line: the model, hosts, steps, and, where it does
// not come at the beginning, after how many seconds it comes. Words are separated by
// blanks; what follows a # is a comment. IDs count from 0. The error has every problem
// with its line.
func ParseJobs(name, text string, patterns []*workload.Pattern) ([]Job, error) {
	known := map[string]*workload.Pattern{}
	for _, p := range patterns {
		known[p.Model] = p
	}
	var out []Job
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: %s", name, n, fmt.Sprintf(format, args...)))
		}
		if len(w) != 3 && len(w) != 4 {
			bad("%d words: model, hosts, steps, and seconds until it comes if these are not 0", len(w))
			continue
		}
		j := Job{ID: len(out), Pattern: known[w[0]]}
		if j.Pattern == nil {
			bad("no pattern of a model %q", w[0])
		}
		count := func(word, of string) int {
			x, err := strconv.ParseInt(word, 10, 32)
			if err != nil || x < 1 {
				bad("%q %s: a number from 1 on", word, of)
			}
			return int(x)
		}
		j.Hosts, j.Steps = count(w[1], "hosts"), count(w[2], "steps")
		if len(w) == 4 {
			x, err := strconv.ParseFloat(w[3], 64)
			if err != nil || !(x >= 0) || math.IsInf(x, 1) {
				bad("%q seconds until it comes: a number from 0 on", w[3])
			}
			j.Submit = x
		}
		out = append(out, j)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no jobs", name)
	}
	return out, nil
}

// Package survey runs settings drawn at random, and measures again what a run leaves undecided although it was
// measured for as long as a phase may go on: slower where the machine was in the way, then for longer, then in
// repeats.
//
// What runs a setting is given: the program itself, in a process of its own.
package survey

import (
	"cmp"
	"context"
	"iter"
	"runtime"
	"slices"
	"strconv"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
)

// Driver draws settings of a seed and runs them.
type Driver struct {
	Seed    uint64
	On      string        // netns or sim
	Machine carry.Machine // on netns without Factor: what carries them
	Factor  float64       // of slow motion, of all of them, 1 or more; 0: what the machine carries

	// Prepare writes the files of a setting, and plans it without touching anything. On sim there need be no plan.
	Prepare func(ctx context.Context, s *random.Setting) (path string, plan *experiments.SavedPlan, err error)
	// Run runs the experiment in a file with options of `inabench run`. An error says that it came to nothing.
	Run func(ctx context.Context, path string, options []string) (*results.Record, error)
}

// Prepared is a setting whose files are written.
type Prepared struct {
	*random.Setting
	Path   string
	Factor float64 // of slow motion of its run; 0 on sim
	pace   pace.Pace
}

// Result is a setting that was run.
type Result struct {
	Setting Prepared
	Options []string        // of its run, the last one
	Again   bool            // a run left it undecided, so that the last one repeated it
	Record  *results.Record // nil where that came to nothing because of Err
	Err     error
}

// All runs settings first to first+n-1, and gives each in its turn: emulations one after the other, since two that take
// half of the machine's headroom each are late where either alone is not, and models as many at a time as there are
// processors. Once it is left no more are begun, and those that are under way are waited for.
func (d *Driver) All(ctx context.Context, first, n int) iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		ctx, cancel := context.WithCancel(ctx)
		done := make([]chan Result, n)
		for i := range done {
			done[i] = make(chan Result, 1)
		}
		limit := 1
		if d.On == "sim" {
			limit = runtime.NumCPU()
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = parallel.Every(limit, n, func(i int) error { // what goes wrong is in done
				r := Result{Err: ctx.Err()}
				if r.Err == nil {
					r = d.run(ctx, first+i)
				}
				done[i] <- r
				return nil
			})
		}()
		defer func() {
			cancel()
			<-ended
		}()
		for i := range n {
			if !yield(i, <-done[i]) {
				return
			}
		}
	}
}

// attempt is how a setting is measured: so many times, in phases so many times as long, at a factor of
// slow motion so many times that which the machine should carry.
type attempt struct {
	times  int
	longer float64
	slower float64
}

// Bounds of attempts, and what further ones do.
const (
	mostAttempts = 3
	repeats      = 3
	longer       = 3 // times the phases of the first, which go on for longer if that may do
	slowed       = 2 // times the factor, where the machine did not carry it
)

// next is how to measure again what an attempt left undecided, although its phases went on for as long as
// they may: slower where the machine was in the way; in longer phases; then in repeats of half that length,
// since each has phases of its own, and three have an interval. Longer phases are left out where all that is
// undecided is so because one run differs from another. There is none where repeats did not decide, or more of
// them would have to.
func (a attempt) next(rec *results.Record) (b attempt, ok bool) {
	switch {
	case spoilt(rec):
		a.slower *= slowed
	case a.times > 1, varies(rec) && far(rec):
		return a, false
	case a.longer == 1 && !varies(rec):
		a.longer = longer
	default:
		a.times, a.longer = repeats, longer/2.0
	}
	return a, true
}

// spoilt says whether the testbed stood still for too much of a phase.
func spoilt(rec *results.Record) bool {
	return slices.ContainsFunc(rec.Points, func(p results.Point) bool {
		return slices.ContainsFunc(p.Phases, func(ph results.Phase) bool { return ph.Spoilt != "" })
	})
}

// varies says whether one run differs from another by as much as all that is undecided is off.
func varies(rec *results.Record) bool {
	return !slices.ContainsFunc(rec.Checks, func(c results.Check) bool {
		return c.Outcome == results.Inconclusive && c.Code != results.CodeVaries
	})
}

// far says whether it takes more runs than repeats are until the mean of them is known.
func far(rec *results.Record) bool {
	return slices.ContainsFunc(rec.Checks, func(c results.Check) bool {
		return c.Outcome == results.Inconclusive && c.More > repeats
	})
}

// run draws and runs a setting, and again what an attempt leaves undecided; a model decides at once.
func (d *Driver) run(ctx context.Context, number int) (r Result) {
	p, err := d.prepare(ctx, number)
	if err != nil {
		return Result{Setting: p, Err: err}
	}
	a, more := attempt{1, 1, 1}, true
	for i := 0; more && i < mostAttempts; i++ {
		r = d.try(ctx, p, a)
		r.Again = i > 0
		if r.Err != nil || d.On == "sim" || r.Record.Outcome != results.Inconclusive {
			break
		}
		a, more = a.next(r.Record)
	}
	return r
}

// prepare draws a setting, and finds out how fast this machine carries it.
func (d *Driver) prepare(ctx context.Context, number int) (Prepared, error) {
	p := Prepared{Setting: random.Draw(d.Seed, number)}
	path, plan, err := d.Prepare(ctx, p.Setting)
	p.Path = path
	if err != nil || d.On == "sim" {
		return p, err
	}
	p.pace, err = pace.Of(d.Machine, plan)
	p.pace.Factor = cmp.Or(d.Factor, p.pace.Factor)
	p.pace.Trip = max(p.pace.Trip, p.Trip())
	return p, err
}

// try is one run of a setting.
func (d *Driver) try(ctx context.Context, p Prepared, a attempt) Result {
	sets := p.Model()
	if d.On != "sim" {
		p.pace.Factor *= a.slower
		p.Factor = p.pace.Factor
		warm, length := p.pace.Needs()
		sets = p.Slow(random.Pace{Factor: p.Factor, Warm: warm, Length: length}, a.longer)
	}
	options := []string{"--on", d.On}
	if a.times > 1 {
		options = append(options, "--repeat", strconv.Itoa(a.times))
	}
	for _, set := range sets {
		options = append(options, "--set", set)
	}
	rec, err := d.Run(ctx, p.Path, options)
	return Result{Setting: p, Options: options, Record: rec, Err: err}
}

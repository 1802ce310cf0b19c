package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/carry"
)

// surveyFlags are those of `fidelity --random`.
func surveyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "random", Usage: "run `N` random settings, one after the other, and compare each with its prediction"},
		&cli.StringFlag{Name: "seed", Value: "1", Usage: "`SEED` of --random: a number, or any text, such as the hash of a commit"},
		&cli.IntFlag{Name: "case", Value: 1, Usage: "with --random: begin with setting `NUMBER`"},
		&cli.StringFlag{Name: "keep", Usage: "with --random: keep the files of the settings in `DIR`"},
		&cli.Float64Flag{Name: "factor", Usage: "with --random: slow-motion `FACTOR` of all settings, instead of what this machine carries"},
	}
}

// survey runs settings drawn at random.
func survey(c *cli.Context) (err error) {
	n, first := c.Int("random"), c.Int("case")
	driver := "netns"
	if c.IsSet("on") {
		driver = c.String("on")
	}
	switch flag := slices.IndexFunc([]string{"set", "predictor", "quick", "repeat", "switch", "svg", "anyway", "no-record"}, c.IsSet); {
	case n < 1 || first < 1:
		return usagef("inabench fidelity --random 20 --seed 1", "--random and --case are 1 or more")
	case c.Args().Present():
		return usagef("leave one of them out", "fidelity: --random draws settings of its own, and takes no experiment or run")
	case flag >= 0:
		return usagef("--keep DIR leaves the files, which inabench run takes with all options", "fidelity --random has none of --set, --predictor, --quick, --repeat, --switch, --svg, --anyway and --no-record")
	case driver != "netns" && driver != "sim":
		return usagef(tomlfile.OneOf(driver, []string{"netns", "sim"}), "fidelity --random on %q", driver)
	case c.IsSet("factor") && !(c.Float64("factor") >= 1):
		return usagef("leave it out for what this machine carries", "--factor is 1 or more")
	}
	dir := c.String("keep")
	if dir == "" {
		if dir, err = os.MkdirTemp("", "inabench-random-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if err := os.MkdirAll(dir, 0o777); err != nil {
		return outputError{err}
	}
	d := drawer{c: c, driver: driver, dir: dir, seed: random.Seed(c.String("seed"))}
	if driver == "netns" && !c.IsSet("factor") {
		if d.machine, err = carry.Measure(c.Context, version()); err != nil {
			return err
		}
		d.say("%v", d.machine)
	}
	out := fidelity.NewSurvey(driver, c.String("seed"), placement.Occupancy, n, []fidelity.SurveyLimit{
		{Metric: "goodput", Tolerance: random.RateTolerance}, {Metric: "link_rate", Tolerance: random.RateTolerance}, {Metric: "share", Tolerance: random.ShareTolerance},
	})
	began := time.Now()
	for i, r := range d.all(first, n) {
		if c.Context.Err() != nil {
			break
		}
		child, ended := errors.AsType[childError](r.err)
		if r.err != nil && !ended {
			return r.err
		}
		if child.said != "" {
			r.err = errors.New(child.said)
		}
		out.Add(r.setting, r.rec, r.err)
		last := out.Cases[len(out.Cases)-1]
		d.say("setting %d of %d: %s: %s, after %s", i+1, n, last.Title, last.Outcome, human.Elapsed(time.Since(began).Round(time.Second)))
	}
	err = put(c, out, out.Write)
	if err == nil && out.Outcome() != results.Pass {
		err = outcomeError{out.Outcome()}
	}
	return errors.Join(err, context.Cause(c.Context))
}

// drawer runs settings of a seed.
type drawer struct {
	c       *cli.Context
	driver  string
	dir     string
	seed    uint64
	machine carry.Machine // of netns, without --factor
}

func (d *drawer) say(format string, args ...any) {
	if !d.c.Bool("quiet") {
		fmt.Fprintf(d.c.App.ErrWriter, "inabench: "+format+"\n", args...)
	}
}

// ran is a setting that was run.
type ran struct {
	setting fidelity.SurveyCase
	rec     *results.Record // nil where the run came to nothing because of err
	err     error
}

// all runs settings, and gives each in its turn: emulations one after the other, since two that take half
// of the machine's headroom each are late where either alone is not, and models as many at a time as there
// are processors. Once it is left no more are begun, and those that are under way are waited for.
func (d *drawer) all(first, n int) iter.Seq2[int, ran] {
	return func(yield func(int, ran) bool) {
		ctx, cancel := context.WithCancel(d.c.Context)
		done := make([]chan ran, n)
		for i := range done {
			done[i] = make(chan ran, 1)
		}
		limit := 1
		if d.driver == "sim" {
			limit = runtime.NumCPU()
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = parallel.Every(limit, n, func(i int) error { // what goes wrong is in done
				r := ran{err: ctx.Err()}
				if r.err == nil {
					r = d.run(first + i)
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

// prepared is a setting whose files are written.
type prepared struct {
	*random.Setting
	setting fidelity.SurveyCase
	path    string
	pace    pace.Pace // on netns
}

// prepare draws a setting, and finds out how fast this machine carries it.
func (d *drawer) prepare(number int) (p prepared, err error) {
	p.Setting = random.Draw(d.seed, number)
	p.setting = fidelity.SurveyCase{Name: p.Name, Title: p.Title}
	if p.path, err = p.Write(d.dir); err != nil {
		return p, outputError{err}
	}
	if d.driver == "netns" {
		p.pace, err = d.motion(p.path)
		p.pace.Trip = max(p.pace.Trip, p.Trip())
	}
	return p, err
}

// run draws and runs a setting, and again what an attempt leaves undecided; a model decides at once. The
// record is nil where the run came to nothing.
func (d *drawer) run(number int) (r ran) {
	p, err := d.prepare(number)
	if err != nil {
		return ran{setting: p.setting, err: err}
	}
	a, more := attempt{1, 1, 1}, true
	for i := 0; more && i < mostAttempts; i++ {
		r = d.try(p, a)
		r.setting.Again = i > 0
		if r.err != nil || d.driver == "sim" || r.rec.Outcome != results.Inconclusive {
			break
		}
		a, more = a.next(r.rec)
	}
	return r
}

// spoilt says whether the testbed stood still for too much of a phase.
func spoilt(rec *results.Record) bool {
	return slices.ContainsFunc(rec.Points, func(p results.Point) bool {
		return slices.ContainsFunc(p.Phases, func(ph results.Phase) bool { return ph.Spoilt != "" })
	})
}

// try is one run of a setting.
func (d *drawer) try(p prepared, a attempt) (r ran) {
	k := &r.setting
	*k = p.setting
	sets := p.Model()
	if d.driver == "netns" {
		at := p.pace
		at.Factor *= a.slower
		warm, length := at.Needs()
		k.Factor, sets = at.Factor, p.Slow(random.Pace{Factor: at.Factor, Warm: warm, Length: length}, a.longer)
	}
	options := []string{"--on", d.driver}
	if a.times > 1 {
		options = append(options, "--repeat", strconv.Itoa(a.times))
	}
	for _, set := range sets {
		options = append(options, "--set", set)
	}
	again := append([]string{"inabench", "run", p.path}, options...)
	if d.c.String("keep") == "" { // the file goes
		again = []string{"inabench", "fidelity", "--random", "1", "--seed", fmt.Sprintf("%#x", d.seed), "--case", strconv.Itoa(p.Number), "--on", d.driver}
		if d.driver == "netns" {
			again = append(again, "--factor", fmt.Sprintf("%g", k.Factor))
		}
	}
	k.Command = human.ShellLine(again...)
	args := append([]string{"run", "--runs", rootOf(d.c), "--output", "json", "--quiet"}, options...)
	var id string
	if id, r.err = runChild(d.c, d.driver, append(args, "--", p.path)); r.err == nil {
		_, r.rec, r.err = results.Open(rootOf(d.c), id)
	}
	return r
}

// motion is the pace at which this machine carries an experiment.
func (d *drawer) motion(path string) (p pace.Pace, err error) {
	spec, err := kinds.Load(path)
	if err != nil {
		return p, err
	}
	plan, err := experiments.NewPlan(d.c.Context, spec, version())
	if err != nil {
		return p, err
	}
	if p, err = pace.Of(d.machine, plan); d.c.IsSet("factor") {
		p.Factor = d.c.Float64("factor")
	}
	return p, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/random"
	"github.com/inabench/inabench/experiments/survey"
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

// surveyAtRandom runs settings drawn at random.
func surveyAtRandom(c *cli.Context) (err error) {
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
	d := drawer{c, dir, survey.Driver{Seed: random.Seed(c.String("seed")), On: driver, Factor: c.Float64("factor")}}
	d.Prepare, d.Run = d.prepare, d.run
	if driver == "netns" && d.Factor == 0 {
		if d.Machine, err = carry.Measure(c.Context, version()); err != nil {
			return err
		}
		d.say("%v", d.Machine)
	}
	out := fidelity.NewSurvey(driver, c.String("seed"), placement.Occupancy, n, []fidelity.SurveyLimit{
		{Metric: "goodput", Tolerance: random.RateTolerance}, {Metric: "link_rate", Tolerance: random.RateTolerance}, {Metric: "share", Tolerance: random.ShareTolerance},
	})
	began := time.Now()
	for i, r := range d.All(c.Context, first, n) {
		if c.Context.Err() != nil {
			break
		}
		child, ended := errors.AsType[childError](r.Err)
		if r.Err != nil && !ended {
			return r.Err
		}
		if child.said != "" {
			r.Err = errors.New(child.said)
		}
		out.Add(d.described(r), r.Record, r.Err)
		last := out.Cases[len(out.Cases)-1]
		d.say("setting %d of %d: %s: %s, after %s", i+1, n, last.Title, last.Outcome, human.Elapsed(time.Since(began).Round(time.Second)))
	}
	err = put(c, out, out.Write)
	if err == nil && out.Outcome() != results.Pass {
		err = outcomeError{out.Outcome()}
	}
	return errors.Join(err, context.Cause(c.Context))
}

// drawer runs settings of a seed, each in a process of its own.
type drawer struct {
	c   *cli.Context
	dir string
	survey.Driver
}

func (d *drawer) say(format string, args ...any) {
	if !d.c.Bool("quiet") {
		fmt.Fprintf(d.c.App.ErrWriter, "inabench: "+format+"\n", args...)
	}
}

// prepare writes a setting's files, and plans it for netns.
func (d *drawer) prepare(ctx context.Context, s *random.Setting) (path string, plan *experiments.SavedPlan, err error) {
	if path, err = s.Write(d.dir); err != nil {
		return path, nil, outputError{err}
	}
	if d.On == "sim" {
		return path, nil, nil
	}
	spec, err := kinds.Load(path)
	if err == nil {
		plan, err = experiments.NewPlan(ctx, spec, version())
	}
	return path, plan, err
}

// run runs a setting's file.
func (d *drawer) run(_ context.Context, path string, options []string) (rec *results.Record, err error) {
	args := append([]string{"run", "--runs", rootOf(d.c), "--output", "json", "--quiet"}, options...)
	id, err := runChild(d.c, d.On, append(args, "--", path))
	if err == nil {
		_, rec, err = results.Open(rootOf(d.c), id)
	}
	return rec, err
}

// described is a setting that was run, with the command that runs it again.
func (d *drawer) described(r survey.Result) fidelity.SurveyCase {
	again := append([]string{"inabench", "run", r.Setting.Path}, r.Options...)
	if d.c.String("keep") == "" { // the file goes
		again = []string{"inabench", "fidelity", "--random", "1", "--seed", fmt.Sprintf("%#x", d.Seed), "--case", strconv.Itoa(r.Setting.Number), "--on", d.On}
		if d.On == "netns" {
			again = append(again, "--factor", fmt.Sprintf("%g", r.Setting.Factor))
		}
	}
	return fidelity.SurveyCase{Name: r.Setting.Name, Title: r.Setting.Title, Factor: r.Setting.Factor, Again: r.Again, Command: human.ShellLine(again...)}
}

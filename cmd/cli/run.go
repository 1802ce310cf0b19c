package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/pace"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/report"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sabotage"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run an experiment, or a plan saved by `plan -o`, and judge it",
		ArgsUsage: "EXPERIMENT.toml|-",
		Flags: append([]cli.Flag{
			driverFlag(), setFlag(), switchFlag(), rootFlag(), predictorFlag(), outputFlag("text", "json", "junit"),
			&cli.BoolFlag{Name: "quick", Usage: "run the experiment's small version (its key quick), for a first look"},
			&cli.IntFlag{Name: "repeat", Usage: "measure every point `N` times, whatever the experiment says"},
			choice(cli.StringFlag{Name: "engine", Value: "local", Usage: "`ENGINE` that computes the points of a simulated sweep: local (all cores) or slurm (a job array; sbatch's options come from its environment, such as SBATCH_PARTITION)"}, "local", "slurm"),
			&cli.StringFlag{Name: "resume", Usage: "finish a sweep on Slurm that was cut off: compute only the points that `RUN` lacks"},
			skipFlag("skip-preflight"),
			&cli.StringSliceFlag{Name: "sabotage", Usage: "inject a fault, to see whether the verdict notices: `NAME[=PART]`, or list for all; never in a lab"},
			&cli.BoolFlag{Name: "reuse", Usage: "run on the emulation that inabench up brought up, and leave it up"},
			upFlag(),
			&cli.BoolFlag{Name: "keep-on-failure", Usage: "when the testbed fails, keep it up until Enter is pressed, to look around"},
			&cli.BoolFlag{Name: "pcap", Usage: "capture every switch port into the run directory"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress on stderr"},
		}, holdFlags()...),
		Action: runAction,
	}
}

func runAction(c *cli.Context) error {
	faults := c.StringSlice("sabotage")
	if len(faults) > 1 {
		return usagef("run the experiment once for each", "--sabotage is given %d times: one fault at a time", len(faults))
	}
	if slices.Contains(faults, "list") {
		return listFaults(c.App.Writer)
	}
	path, err := argument(c, "experiment")
	if err != nil {
		return err
	}
	format := c.String("output")
	driver := cmp.Or(c.String("on"), defaultDriver)
	engine := c.String("engine")
	if c.IsSet("resume") && engine != "slurm" {
		return usagef("--engine slurm --resume RUN", "--resume needs --engine slurm: it takes over points that Slurm computed")
	}
	if n := c.Int("repeat"); n < 0 || n == 0 && c.IsSet("repeat") || n > spec.MostRepeats {
		return usagef("leave it out for as many as the experiment says", "--repeat %d: 1 to %d", n, spec.MostRepeats)
	}
	var order *sabotage.Order
	if len(faults) > 0 {
		if order, err = experiments.ParseSabotage(faults[0]); err != nil {
			return err
		}
	}
	on, kept := keptOf(c.Context)
	if c.Bool("reuse") && !kept {
		if why := notReused(c, path, driver); why != "" {
			return usagef("leave --reuse out", "--reuse: %s", why)
		}
		return reuse(c, path)
	}
	src, err := readEmulated(c, path)
	if err != nil {
		return err
	}
	skip, err := skipped(c, "skip-preflight")
	if err != nil {
		return err
	}
	sets := sets(c)
	if c.Bool("quick") {
		quick, err := src.quick()
		if err != nil {
			return err
		}
		sets = append(quick, sets...)
	}
	spec, saved, err := src.load(sets)
	if err != nil {
		return err
	}
	driver = driverOf(c, spec)
	p := newProgress(c.App.ErrWriter, c.Bool("quiet"))
	slow := slowly{asked: spec, spec: spec, src: src, sets: sets, say: p.say}
	if kept && driver != "netns" {
		return usagef("leave --reuse out", "--reuse: the experiment runs on %s", driver)
	}
	if driver == "netns" {
		if err := emulate(c.Context); err != nil {
			return err
		}
		slow.open = saved == nil && pace.Open(spec)
		if kept {
			slow.factor = on.standing.Factor()
		}
		done, err := takeTurn(c.Context, spec.Name, c.Duration("wait"), p.say)
		if err != nil {
			return err
		}
		defer done()
	}
	if _, err := slow.choose(c.Context, 1); err != nil {
		return err
	}
	hold, err := holdOf(c, p.note)
	if err != nil {
		return err
	}
	asked, err := predictorsOf(c)
	if err != nil {
		return err
	}
	opt := experiments.RunOptions{
		Predictors: asked, Hold: hold, Sabotage: order, Night: suite.NightOfEnvironment(),
		Driver: driver, Root: rootOf(c), Tool: version(), Args: os.Args[1:],
		Standing: on.standing,
		Repeats:  c.Int("repeat"), Plan: saved, Pcap: c.Bool("pcap"),
		ExitCode: func(err error) int { return codeOf(c.Context, err) },
	}
	if kept {
		opt.Args = on.args[1:]
	}
	if !c.Bool("quiet") {
		opt.Progress = p.update
	}
	if engine == "slurm" {
		opt.Batch = experiments.Slurm{}
	}
	if ref := c.String("resume"); ref != "" {
		cut, _, err := openRun(c, ref)
		if err != nil {
			return err
		}
		opt.Resume = cut.Path
	}
	if c.Bool("keep-on-failure") {
		opt.KeepOnFailure = func(ctx context.Context, tb testbed.Testbed, cause error) {
			p.clear()
			keep(ctx, tb, cause, c.App.Reader, c.App.ErrWriter)
		}
	}
	var rec *results.Record
	var dir *results.Dir
	run := func() {
		slow.spec.SkipPreflight(skip...)
		rec, dir, err = experiments.Run(c.Context, slow.spec, opt)
		p.clear()
	}
	if run(); err == nil && pace.Limited(rec) {
		first, firstDir := rec, dir
		if ok, err := slow.choose(c.Context, again); err == nil && ok {
			p.say("undecided, for this machine was the limit; once more, slower. The first run is " + first.ID)
			if run(); rec == nil {
				rec, dir = first, firstDir
			}
		}
	}
	if rec == nil && isA[*experiments.DirError](err) {
		return hinted{err, "--runs DIR names another place"}
	}
	switch {
	case errors.Is(err, experiments.ErrSpoilt):
		err = hinted{err, "inabench down takes it down, and inabench up brings another one up"}
	case errors.Is(err, experiments.ErrStanding):
		err = hinted{err, "run it without --reuse, or inabench up --name NAME " + human.ShellLine(path)}
	}
	if rec == nil {
		return err
	}
	retell(c, rec, dir)
	if werr := write(c.App.Writer, rec, dir.Path, format); werr != nil {
		err = errors.Join(err, werr)
	}
	if err != nil {
		return err
	}
	if driver == "netns" && !c.Bool("quiet") {
		if note := pace.TooFast(c.Context, slow.spec, rec, version()); note != "" {
			p.say(note)
		}
	}
	if rec.Outcome != results.Pass {
		return outcomeError{rec.Outcome}
	}
	return nil
}

// notReused is why a run cannot have the emulation that is up; "": it can.
func notReused(c *cli.Context, path, driver string) string {
	switch {
	case driver != "netns":
		return "an emulation is up, and this is to run on " + driver
	case path == stdin:
		return "the keeper of the emulation reads the experiment, and standard input is not its"
	case c.Bool("pcap"), c.Bool("keep-on-failure"), len(c.StringSlice("sabotage")) > 0:
		return "--pcap, --keep-on-failure and --sabotage want an emulation of the run's own"
	}
	return ""
}

// record is the command that does again what a run's record is of; not ok of another file.
func (s source) record() (command string, ok bool) {
	var rec struct {
		ID         string       `json:"id"`
		Driver     string       `json:"driver"`
		Overrides  []string     `json:"overrides"`
		Experiment results.File `json:"experiment"`
	}
	if json.Unmarshal(s.text, &rec) != nil || rec.ID == "" || !slices.Contains(spec.Drivers, rec.Driver) {
		return "", false
	}
	words := []string{"inabench", "run", "--on", rec.Driver}
	for _, set := range rec.Overrides {
		words = append(words, "--set", set)
	}
	return human.ShellLine(append(words, "--", rec.Experiment.Path)...), true
}

// load parses an experiment or a saved plan.
func (s source) load(sets []string) (*spec.Spec, *experiments.SavedPlan, error) {
	if !s.isPlan() {
		spec, err := s.spec(sets)
		return spec, nil, err
	}
	if err := s.foreign(""); err != nil {
		return nil, nil, err
	}
	if len(sets) > 0 {
		return nil, nil, usagef("make another plan: inabench plan --set KEY=VALUE -o FILE EXPERIMENT.toml", "--set cannot change a saved plan")
	}
	plan, err := experiments.ParsePlan(s.name, s.text)
	if err != nil {
		return nil, nil, err
	}
	return plan.Spec(), plan, nil
}

// write writes a run to stdout in the format that was asked for.
func write(w io.Writer, rec *results.Record, dir, format string) error {
	switch format {
	case "json":
		return results.WriteJSON(w, rec)
	case "junit":
		return report.WriteJUnit(w, rec)
	}
	_, width, colour := terminal(w)
	return report.WriteText(w, rec, report.TextOptions{Width: width, Color: colour, Dir: filepath.Clean(dir)})
}

// keep holds a failed testbed until the person is done with it.
func keep(ctx context.Context, tb testbed.Testbed, cause error, in io.Reader, out io.Writer) {
	fmt.Fprintf(out, "inabench: error: %v\ninabench: kept: type a host's name for a shell on it, Enter to take everything down\n", cause)
	shell, ok := tb.(interface {
		Shell(ctx context.Context, host string, in io.Reader, out io.Writer) error
	})
	typed := bufio.NewReader(in)
	for ctx.Err() == nil {
		line := make(chan string, 1)
		go func() {
			s, _ := bounded.ReadLine(typed, bounded.Small) // at its end an empty line, which ends this too
			line <- strings.TrimSpace(string(s))
		}()
		var host string
		select {
		case <-ctx.Done():
			return
		case host = <-line:
		}
		switch {
		case host == "":
			return
		case !ok:
			fmt.Fprintln(out, "inabench: this testbed has no shells")
		default:
			if err := shell.Shell(ctx, host, in, behind(out)); err != nil {
				fmt.Fprintf(out, "inabench: %v\n", err)
			}
			fmt.Fprintln(out, "inabench: back from the shell: another host, or Enter to take everything down")
		}
	}
}

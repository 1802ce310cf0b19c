package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/fidelity"
)

func predictorFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name:  "predictor",
		Usage: "also ask a simulator of your own: `NAME=COMMAND`, as 'mine=python3 sim.py'; the command is split at blanks; may be repeated",
	}
}

// predictorsOf are the predictors of the command line.
func predictorsOf(c *cli.Context) ([]predictor.Predictor, error) {
	var out []predictor.Predictor
	for _, text := range c.StringSlice("predictor") {
		name, command, ok := strings.Cut(text, "=")
		p := predictor.Predictor{Name: name, Command: strings.Fields(command)}
		if !ok || len(p.Command) == 0 {
			return nil, usagef("write --predictor 'mine=python3 sim.py'", "--predictor %q: a name and a command", text)
		}
		if err := spec.CheckPredictor(p); err != nil {
			return nil, usageError{err, ""}
		}
		out = append(out, p)
	}
	return out, nil
}

func fidelityCommand() *cli.Command {
	return &cli.Command{
		Name:      "fidelity",
		Usage:     "compare simulators with testbeds, figure by figure: an experiment on several drivers, or stored runs with their predictions",
		ArgsUsage: "[EXPERIMENT.toml|RUN...]",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "on", Value: "netns,sim", Usage: "comma-separated `DRIVERS` to run the experiment on"},
			setFlag(), switchFlag(), rootFlag(), predictorFlag(),
			&cli.BoolFlag{Name: "quick", Usage: "run the experiment's small version (its key quick)"},
			&cli.IntFlag{Name: "repeat", Usage: "measure every point `N` times, whatever the experiment says"},
			&cli.BoolFlag{Name: "anyway", Usage: "also compare runs of different experiments or inventories"},
			&cli.StringFlag{Name: "svg", Usage: "draw each metric of each model into `DIR`"},
			&cli.BoolFlag{Name: "no-record", Usage: "do not save the figures in the record of the reference run, whose history then lacks them"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress on stderr"},
			outputFlag("text", "json"),
		}, surveyFlags()...),
		Description: `The run nearest to reality is the reference: lab, then netns, then sim. With --random,
settings that nobody tuned are drawn and run, on netns unless --on says sim, and held against
what is predicted; exit codes are those of a run, 1 if one of them failed.
Examples:
  inabench fidelity experiments/quickstart.toml --on netns,sim
  inabench fidelity latest
  inabench fidelity 01JD4K 01JD5P -o json
  inabench history fidelity
  inabench fidelity --random 20 --seed $(git rev-parse HEAD) --keep drawn
`,
		Action: fidelityAction,
	}
}

func fidelityAction(c *cli.Context) error {
	if c.IsSet("random") {
		return surveyAtRandom(c)
	}
	if flag := slices.IndexFunc([]string{"seed", "case", "keep", "factor"}, c.IsSet); flag >= 0 {
		return usagef("add --random N", "fidelity: options of --random need --random")
	}
	if !c.Args().Present() {
		return usagef(c.Command.HelpName+" [options] "+c.Command.ArgsUsage, "fidelity: which experiment, or which runs?")
	}
	refs := c.Args().Slice()
	if isExperiment(refs[0]) {
		path, err := argument(c, "experiment")
		if err != nil {
			return err
		}
		if refs, err = runOnEach(c, path); err != nil {
			return err
		}
	} else if flag := slices.IndexFunc([]string{"on", "set", "predictor", "quick", "repeat"}, c.IsSet); flag >= 0 {
		return usagef("name an experiment to run it", "fidelity: options of a run, but only stored runs are named")
	}
	var recs []*results.Record
	var running []string
	dirs := map[string]*results.Dir{}
	for _, ref := range refs {
		dir, rec, err := openRun(c, ref)
		if err != nil {
			return err
		}
		switch {
		case rec.Complete():
		case results.Running(dir.Path):
			running = append(running, rec.ID)
		default: // it may have ended since it was read
			if rec, err = results.ReadRecord(dir.Path); err != nil {
				return err
			}
		}
		recs, dirs[rec.ID] = append(recs, rec), dir
	}
	report, err := fidelity.Compare(recs, fidelity.Options{Anyway: c.Bool("anyway"), Running: running})
	if errors.Is(err, fidelity.ErrDiffer) {
		return inputError{err, "runs of one experiment on one inventory can be compared; --anyway compares what is in both"}
	}
	if err != nil {
		return err
	}
	if into := c.String("svg"); into != "" {
		for _, d := range report.Drawings() {
			if _, err := writeInto(into, d.Name+".svg", []byte(d.SVG)); err != nil {
				return err
			}
		}
	}
	if !c.Bool("no-record") {
		dir := dirs[report.Runs[0].ID]
		rec, err := keepFidelity(dir, report, slices.Contains(running, report.Runs[0].ID))
		if err != nil {
			fmt.Fprintf(c.App.ErrWriter, "inabench: not kept with the run: %v\n", err)
		}
		if rec != nil {
			retell(c, rec, dir)
		}
	}
	err = put(c, report, report.Write)
	if err == nil && len(report.Models) == 0 {
		return outcomeError{results.Inconclusive}
	}
	return err
}

// isExperiment says whether an argument names an experiment rather than a run.
func isExperiment(arg string) bool {
	if strings.HasSuffix(arg, ".toml") {
		return true
	}
	st, err := os.Stat(arg)
	return err == nil && st.Mode().IsRegular() && filepath.Base(arg) != results.RecordFile
}

// errGoesOn is why nothing is kept with a run whose record is still written.
var errGoesOn = errors.New("it goes on")

// keepFidelity puts the figures into the record of the reference, in the place of older ones of
// the same models, and the report beside it. The record is as it is now; nil of a run that goes on, or went on when it was
// compared.
func keepFidelity(dir *results.Dir, report *fidelity.Report, running bool) (*results.Record, error) {
	if running || results.Running(dir.Path) {
		return nil, errGoesOn
	}
	rec, err := results.ReadRecord(dir.Path)
	if err != nil {
		return nil, err
	}
	for _, f := range report.Figures() {
		rec.Fidelity = slices.DeleteFunc(rec.Fidelity, func(o results.Figure) bool { return o.Of == f.Of })
		rec.Fidelity = append(rec.Fidelity, f)
	}
	text, err := json.MarshalIndent(report, "", "\t")
	if err != nil {
		return rec, err
	}
	return rec, errors.Join(dir.WriteFile(fidelity.File, append(text, '\n')), dir.Save(rec))
}

// childError is a run that came to nothing: it has said why, and its exit code is this program's. One that a signal
// ended has come to no verdict.
type childError struct {
	driver string
	code   int    // -1: a signal ended it
	said   string // its error's first line, or which signal
}

func (e childError) Error() string {
	if e.code < 0 {
		return fmt.Sprintf("fidelity: the run on %s died: %s", e.driver, e.said)
	}
	return fmt.Sprintf("fidelity: the run on %s exited with %d", e.driver, e.code)
}

func (e childError) exit() int {
	if e.code < 0 {
		return exitTestbed
	}
	return e.code
}

// runOnEach runs an experiment on each driver, one after the other, and returns the runs' IDs.
// Each run is a process of its own, since an emulation lives inside of namespaces and a lab outside.
func runOnEach(c *cli.Context, path string) (ids []string, err error) {
	drivers, err := listed(c.String("on"), "driver", spec.Drivers)
	if err != nil {
		return nil, err
	}
	if _, err := predictorsOf(c); err != nil {
		return nil, err
	}
	args := []string{"run", "--runs", rootOf(c), "--output", "json"}
	for _, flag := range []string{"set", "predictor"} {
		for _, v := range c.StringSlice(flag) {
			args = append(args, "--"+flag, v)
		}
	}
	for _, flag := range []string{"quick", "quiet"} {
		if c.Bool(flag) {
			args = append(args, "--"+flag)
		}
	}
	if n := c.Int("repeat"); n != 0 {
		args = append(args, "--repeat", strconv.Itoa(n))
	}
	if kind := c.String("switch"); kind != "" {
		args = append(args, "--switch", kind)
	}
	for _, d := range drivers {
		if !c.Bool("quiet") {
			fmt.Fprintf(c.App.ErrWriter, "inabench: %s on %s\n", path, d)
		}
		id, err := runChild(c, d, append(slices.Clone(args), "--on", d, "--", path))
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// runChild runs this program and returns the ID of the run that it made, whatever its verdict.
func runChild(c *cli.Context, driver string, args []string) (string, error) {
	cmd := exec.CommandContext(c.Context, "/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(c.App.ErrWriter, &said)
	// It gets each signal once: from here, and not from the terminal, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error {
		sig := syscall.SIGTERM
		if stopped, ok := errors.AsType[interruption](context.Cause(c.Context)); ok {
			sig = stopped.sig
		}
		return cmd.Process.Signal(sig)
	}
	err := cmd.Run()
	if c.Context.Err() != nil {
		return "", context.Cause(c.Context)
	}
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ended && !exit.Exited():
		return "", childError{driver, -1, exit.String()}
	case ended && !slices.Contains([]int{exitFailed, exitInconclusive}, exit.ExitCode()):
		_, why, _ := strings.Cut(said.String(), "inabench: error: ")
		why, _, _ = strings.Cut(why, "\n")
		return "", childError{driver, exit.ExitCode(), why}
	case err != nil && !ended:
		return "", err
	}
	var rec struct{ ID string }
	if err := json.Unmarshal(out.Bytes(), &rec); err != nil || rec.ID == "" {
		return "", fmt.Errorf("fidelity: the run on %s wrote no record: %v", driver, err)
	}
	return rec.ID, nil
}

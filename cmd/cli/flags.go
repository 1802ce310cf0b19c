package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/netns"
)

// Flags that several commands share. Each can come from the environment.

func setFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name:  "set",
		Usage: "override a key of the experiment: `KEY=VALUE`, as switch.pat_ratio=0.5 or job.A.rate=10Gbit/s; may be repeated",
	}
}

// words are the values of a flag that may be repeated and takes several at once, by commas.
func words(c *cli.Context, flag string) (all []string) {
	for _, list := range c.StringSlice(flag) {
		for w := range strings.SplitSeq(list, ",") {
			all = append(all, strings.TrimSpace(w))
		}
	}
	return all
}

// listed are the words of a list with commas, of those that are known, each once; what they are is for messages.
func listed(list, what string, known []string) (all []string, err error) {
	for w := range strings.SplitSeq(list, ",") {
		w = strings.TrimSpace(w)
		switch {
		case !slices.Contains(known, w):
			return nil, usagef(tomlfile.OneOf(w, known), "unknown %s %q", what, w)
		case slices.Contains(all, w):
			return nil, usagef("", "%s %s twice", what, w)
		}
		all = append(all, w)
	}
	return all, nil
}

func switchFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "switch", EnvVars: []string{"INABENCH_SWITCH"},
		Usage: "`KIND` of every emulated switch: soft (embedded) or bmv2 (simple_switch_grpc on PATH); short for --set emulation.switch=KIND",
	}
}

// sets are what the command line overrides of an experiment.
func sets(c *cli.Context) []string {
	all := c.StringSlice("set")
	if kind := c.String("switch"); kind != "" {
		all = append(slices.Clone(all), "emulation.switch="+kind)
	}
	return all
}

// defaultDriver is where an experiment runs if neither it nor the command line says.
const defaultDriver = "netns"

func driverFlag() cli.Flag {
	return choice(cli.StringFlag{
		Name: "on", DefaultText: defaultDriver, EnvVars: []string{"INABENCH_RUN_ON"},
		Usage: "`DRIVER` to run on: netns (an emulated rack on this machine), sim (a model in virtual time) or lab",
	}, spec.Drivers...)
}

// driverOf is the driver that the command line names, or the experiment, or the default.
func driverOf(c *cli.Context, s *spec.Spec) string {
	return cmp.Or(c.String("on"), s.On, defaultDriver)
}

func rootFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "runs", Value: "runs", EnvVars: []string{"INABENCH_RUNS"},
		Usage: "`DIR` with the run directories",
	}
}

// outputFlag says in which of some formats a command writes.
func outputFlag(formats ...string) cli.Flag {
	return choice(cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: "text", EnvVars: []string{"INABENCH_OUTPUT"},
		Usage: "`FORMAT` of stdout: " + strings.Join(formats, ", "),
	}, formats...)
}

// tableFlag is outputFlag for commands that show a table.
func tableFlag() cli.Flag {
	return choice(cli.StringFlag{
		Name: "output", Aliases: []string{"o", "format"}, Value: "text", EnvVars: []string{"INABENCH_OUTPUT"},
		Usage: "`FORMAT` of stdout: text, json",
	}, "text", "json")
}

// rootOf is the directory of run directories.
func rootOf(c *cli.Context) string { return cmp.Or(c.String("runs"), "runs") }

// choiceFlag is a flag whose value is one of some words.
type choiceFlag struct {
	*cli.StringFlag
	fallback string // its default
	words    []string
}

func choice(f cli.StringFlag, words ...string) cli.Flag { return choiceFlag{&f, f.Value, words} }

// checkChoices is an error if a flag of the command has another value than those that there are for it. An empty one is
// as if it were not given.
func checkChoices(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		f, ok := f.(choiceFlag)
		if !ok {
			continue
		}
		switch v := c.String(f.Name); {
		case v == "" && f.fallback == "":
		case v == "":
			if err := c.Set(f.Name, f.fallback); err != nil {
				return err
			}
		case !slices.Contains(f.words, v):
			return usagef(tomlfile.OneOf(v, f.words), "unknown --%s %q", f.Name, v)
		}
	}
	return nil
}

// version is that of the module, or of the commit this was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v != "" && v != "(devel)" {
		return v
	}
	rev, dirty := hosts.Setting(info, "vcs.revision"), ""
	if hosts.Setting(info, "vcs.modified") == "true" {
		dirty = "+changes"
	}
	if rev == "" {
		return "devel"
	}
	return "devel-" + rev[:min(12, len(rev))] + dirty
}

// terminal describes a stream: whether a person reads it, how wide it is, and
// whether it may be coloured (never without a terminal, nor with NO_COLOR).
func terminal(w any) (tty bool, width int, colour bool) {
	f, ok := file(w)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return true, width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// stdin is what stands for standard input in the place of a file.
const stdin = "-"

// source is a file that was named on the command line.
type source struct {
	name string // for messages and the record; what it names is relative to its folder
	text []byte
}

func readFile(path string) (source, error) {
	text, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return source{}, inputError{err, ""}
	}
	return source{path, text}, nil
}

// read reads a file, or standard input, whose folder is the current one.
func read(c *cli.Context, path string) (source, error) {
	if path != stdin {
		return readFile(path)
	}
	text, err := bounded.ReadAll(c.App.Reader, bounded.Config)
	if err != nil {
		return source{}, inputError{fmt.Errorf("read standard input: %w", err), ""}
	}
	return source{"stdin", text}, nil
}

// readEmulated is read for a command that may emulate: it begins once more inside, and standard input can be read once.
// What came from there is then the standard input inside.
func readEmulated(c *cli.Context, path string) (source, error) {
	src, err := read(c, path)
	if err != nil || path != stdin || netns.Inside() {
		return src, err
	}
	driver := c.String("on")
	if driver == "" {
		if s, _, err := src.load(sets(c)); err == nil { // what is wrong is said inside
			driver = driverOf(c, s)
		}
	}
	if cmp.Or(driver, defaultDriver) != "netns" {
		return src, nil
	}
	if err := stdinAgain(src.text); err != nil {
		return source{}, fmt.Errorf("keep standard input: %w", err)
	}
	return src, emulate(c.Context)
}

// stdinAgain has standard input begin again, for this process and those that it starts.
func stdinAgain(text []byte) (err error) {
	f, err := os.CreateTemp("", "inabench-stdin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unix.Dup3(int(f.Fd()), int(os.Stdin.Fd()), 0)
}

// spec parses an experiment.
func (s source) spec(sets []string) (*spec.Spec, error) {
	if err := s.foreign("inabench suite run %[1]s; inabench suite check %[1]s only reads it"); err != nil {
		return nil, err
	}
	return kinds.Parse(s.name, s.text, nil, sets...)
}

// quick are the assignments that make an experiment its own small version.
func (s source) quick() ([]string, error) {
	if err := s.foreign("inabench suite run %[1]s; with quick = true in the file it runs the small versions of its experiments"); err != nil {
		return nil, err
	}
	if s.isPlan() {
		return nil, usagef("inabench run "+human.ShellLine(s.name), "--quick cannot change a saved plan")
	}
	return spec.Quick(s.name, s.text)
}

// foreign says what the file is, where it is no experiment and no plan, and what to do with it; suite is the hint about
// a suite, with %[1]s for its name. It is nil of any other file.
func (s source) foreign(suite string) error {
	if again, ok := s.record(); ok {
		return inputError{fmt.Errorf("%s is the record of a run, not an experiment", s.name), "the same again: " + again}
	}
	if f, err := tomlfile.Parse(s.name, s.text); err == nil && f.Has("experiment[0]") {
		return inputError{fmt.Errorf("%s is a suite, not an experiment", s.name), fmt.Sprintf(suite, human.ShellLine(s.name))}
	}
	if is, err := spec.IsInventory(s.name, s.text); err == nil && is {
		return inputError{fmt.Errorf("%s is an inventory, not an experiment", s.name), fmt.Sprintf(`an experiment names it: inventory = %q`, filepath.Base(s.name))}
	}
	return nil
}

// isPlan says whether the file is a saved plan rather than an experiment.
func (s source) isPlan() bool { return bytes.HasPrefix(bytes.TrimSpace(s.text), []byte("{")) }

// inputError is something the user named that is not there or cannot be read.
type inputError hinted

func (e inputError) Unwrap() error { return e.error }
func (e inputError) Hint() string  { return e.hint }

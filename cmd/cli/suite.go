package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/serve"
)

func suiteCommand() *cli.Command {
	return &cli.Command{
		Name:        "suite",
		Usage:       "run a list of experiments every night, and say in the morning what changed",
		Action:      group,
		Subcommands: []*cli.Command{suiteRunCommand(), suiteCheckCommand(), suiteShowCommand()},
	}
}

// nightError carries what a night came to to exitCode; its summary has said the rest.
type nightError struct{ *suite.Night }

func (n nightError) Error() string { return "night: " + string(n.Outcome) }
func (n nightError) exit() int     { return n.ExitCode() }

func suiteRunCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a suite, the riskiest items first; whatever happens to one, the next one runs",
		ArgsUsage: "SUITE.toml",
		Flags: []cli.Flag{
			rootFlag(), outputFlag("text", "json", "junit", "md", "html"),
			&cli.BoolFlag{Name: "resume", Usage: "go on with the newest night if it was killed; otherwise begin one"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress on stderr"},
		},
		Description: `Examples:
  inabench suite show suites/nightly.toml     # what would run, in which order, and why
  inabench suite run suites/nightly.toml
  inabench suite run --resume suites/nightly.toml
`,
		Action: func(c *cli.Context) error {
			s, err := suiteOf(c)
			if err != nil {
				return err
			}
			p := &nightProgress{w: c.App.ErrWriter, quiet: c.Bool("quiet")}
			n, err := suite.Run(c.Context, s, suite.Options{
				Root: rootOf(c), Tool: version(), Runner: suite.Program{}, Resume: c.Bool("resume"), Progress: p.step,
			})
			if n == nil {
				return err
			}
			if err := errors.Join(writeNight(c, n), err); err != nil {
				return err
			}
			if n.Outcome != results.Pass {
				return nightError{n}
			}
			return nil
		},
	}
}

func suiteCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check a suite and its experiments: all errors at once",
		ArgsUsage: "SUITE.toml",
		Action: func(c *cli.Context) error {
			s, err := suiteOf(c)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%s: suite %s, %s\n", c.Args().First(), s.Name, human.Plural(len(s.Items), "item"))
			return nil
		},
	}
}

func suiteShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show what a suite would run, in which order and why; or a past night",
		ArgsUsage: "SUITE.toml",
		Flags: []cli.Flag{
			rootFlag(), outputFlag("text", "json", "junit", "md", "html"),
			&cli.StringFlag{Name: "night", Usage: "show a past `NIGHT`: latest, or part of its id"},
		},
		Action: func(c *cli.Context) error {
			s, err := suiteOf(c)
			if err != nil {
				return err
			}
			if ref := c.String("night"); ref != "" {
				n, err := suite.ReadNight(rootOf(c), s.Name, ref)
				if errors.Is(err, results.ErrNotFound) {
					return inputError{err, "inabench suite run begins one"}
				}
				if err != nil {
					return inputError{err, ""}
				}
				return writeNight(c, n)
			}
			nights, err := suite.Nights(rootOf(c), s.Name)
			if err != nil {
				return err
			}
			if format := c.String("output"); format != "json" && format != "text" {
				return usagef("--night latest -o "+format+" is of a night", "suite show: a plan is text or json")
			}
			plan := s.Plan(nights)
			return put(c, plan, func(w io.Writer) error { return writeTonight(w, s, nights, plan) })
		},
	}
}

// suiteOf reads the suite that is the command's argument.
func suiteOf(c *cli.Context) (*suite.Suite, error) {
	path, err := argument(c, "suite")
	if err != nil {
		return nil, err
	}
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return suite.Parse(src.name, src.text)
}

func writeNight(c *cli.Context, n *suite.Night) error {
	w, root := c.App.Writer, rootOf(c)
	switch c.String("output") {
	case "json":
		return writeJSON(w, n)
	case "junit":
		return suite.WriteJUnit(w, root, n)
	case "md":
		return suite.WriteMarkdown(w, n)
	case "html":
		verdict := string(n.Outcome)
		if !n.Complete() {
			verdict = "cut off" // or it goes on
		}
		return serve.WriteNight(w, nightOf(root, n, verdict))
	}
	return suite.WriteText(w, root, n)
}

// writeTonight writes what would run, and which of it is expected to fit.
func writeTonight(w io.Writer, s *suite.Suite, nights []*suite.Night, plan []suite.Done) error {
	fmt.Fprintf(w, "suite %s, %s, after %s", s.Name, human.Plural(len(plan), "item"), human.Plural(len(nights), "night"))
	if s.Budget > 0 {
		fmt.Fprintf(w, ", in %s", human.Elapsed(s.Budget.Std()))
	}
	fmt.Fprint(w, "\n\n")
	var table strings.Builder
	tw := newTable(&table, "", "ITEM", "ON", "TAKES", "WHY HERE", "NOTE")
	left := s.Budget.Std().Seconds()
	for i, d := range plan {
		takes, notes := "?", []string{}
		if d.Expected > 0 {
			takes = fmt.Sprintf("%.1f s", d.Expected)
		}
		if s.Budget > 0 {
			if d.Expected > left {
				notes = append(notes, "does not fit")
			} else {
				left -= d.Expected
			}
		}
		if d.Xfail != "" {
			notes = append(notes, "xfail: "+d.Xfail)
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\n", i+1, d.Name, d.Driver, takes, d.Why, strings.Join(notes, "; "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// nightProgress says on stderr how far a night has come, a line for each run and its end.
type nightProgress struct {
	w     io.Writer
	quiet bool
}

func (p *nightProgress) step(s suite.Step) {
	if p.quiet {
		return
	}
	switch {
	case s.Ended != nil:
		line := fmt.Sprintf("%s: %s", s.Ended.Name, s.Ended.Status)
		if s.Ended.Message != "" {
			line += ": " + s.Ended.Message
		}
		fmt.Fprintf(p.w, "inabench: %s\n", line)
	case s.Item == "":
		fmt.Fprintln(p.w, "inabench: figures against their history")
	default:
		line := fmt.Sprintf("%d/%d %s", s.Done+1, s.Of, s.Item)
		if s.Attempt > 1 {
			line += fmt.Sprintf(", attempt %d", s.Attempt)
		}
		if s.Expected > 0 {
			line += fmt.Sprintf(", takes %.1f s", s.Expected)
		}
		if left := time.Duration(s.Left * float64(time.Second)); s.Done+1 < s.Of && left > 0 {
			about := "at least" // some have never been run
			if s.All {
				about = "about"
			}
			line += fmt.Sprintf("; all that is left, %s %s", about, human.Elapsed(left))
		}
		fmt.Fprintf(p.w, "inabench: %s\n", line)
	}
}

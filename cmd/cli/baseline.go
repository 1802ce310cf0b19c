package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/suite"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/history"
	"github.com/inabench/inabench/results/human"
)

func baselineCommand() *cli.Command {
	return &cli.Command{
		Name:        "baseline",
		Usage:       "set, list and remove baselines: the runs that later ones of the same setting are compared with",
		Action:      group,
		Subcommands: []*cli.Command{baselineSetCommand(), baselineShowCommand(), baselineUnsetCommand()},
	}
}

func baselineSetCommand() *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "make RUN the baseline of its experiment; RUN is latest, an experiment's name for its newest, a directory, or part of an id",
		ArgsUsage: "RUN",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "reason", Usage: "why, as `TEXT` that is shown with the baseline"},
			&cli.BoolFlag{Name: "force", Usage: "accept a run that did not pass"},
		},
		Action: func(c *cli.Context) error {
			dir, _, err := runOf(c)
			if err != nil {
				return err
			}
			return openIndex(c, history.Open, func(x *history.Index) error {
				name := filepath.Base(dir.Path)
				if _, err := os.Stat(filepath.Join(rootOf(c), name, results.RecordFile)); err != nil {
					return inputError{fmt.Errorf("%s is not in %s", dir.Path, rootOf(c)), "--runs DIR names where it is"}
				}
				b, err := x.SetBaseline(c.Context, name, c.String("reason"), c.Bool("force"))
				if errors.Is(err, history.ErrUnfit) {
					return inputError{err, "take a run that passed; --force takes any that came to its end, and was not sabotaged"}
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(c.App.Writer, "%s is the baseline of %s in setting %s\n", b.Run, human.Printable(b.Experiment), b.Setting)
				return nil
			})
		},
	}
}

func baselineShowCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "list the baselines, or those of one experiment",
		ArgsUsage: "[EXPERIMENT]",
		Flags:     []cli.Flag{rootFlag(), tableFlag()},
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 {
				_, err := argument(c, "experiment")
				return err
			}
			root := rootOf(c)
			all, err := history.ReadBaselines(root)
			if err != nil {
				return err
			}
			if name := c.Args().First(); name != "" {
				all = slices.DeleteFunc(all, func(b history.Baseline) bool { return b.Experiment != name })
			}
			return put(c, append([]history.Baseline{}, all...), func(w io.Writer) error {
				if len(all) == 0 {
					fmt.Fprintf(c.App.ErrWriter, "inabench: no baselines in %s\n", root)
					return nil
				}
				tw := newTable(w, "EXPERIMENT", "SETTING", "SET", "RUN", "REASON")
				for _, b := range all {
					run := b.Run
					if _, err := os.Stat(filepath.Join(root, b.Run, results.RecordFile)); errors.Is(err, fs.ErrNotExist) {
						run += " (gone)"
					}
					fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", human.Printable(b.Experiment), b.Setting, b.Set.Local().Format(time.DateOnly), run, human.Printable(b.Reason))
				}
				return tw.Flush()
			})
		},
	}
}

func baselineUnsetCommand() *cli.Command {
	return &cli.Command{
		Name:      "unset",
		Usage:     "remove the baseline of an experiment; the run itself stays",
		ArgsUsage: "EXPERIMENT",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.StringFlag{Name: "setting", Usage: "`KEY` of the setting, or its first characters, if there are baselines in several"},
		},
		Action: func(c *cli.Context) error {
			name, err := argument(c, "experiment")
			if err != nil {
				return err
			}
			all, err := history.ReadBaselines(rootOf(c))
			if err != nil {
				return err
			}
			var of []history.Baseline
			var names, keys []string
			for _, b := range all {
				names = append(names, b.Experiment)
				if b.Experiment == name && strings.HasPrefix(b.Setting, c.String("setting")) {
					of, keys = append(of, b), append(keys, b.Setting)
				}
			}
			switch {
			case len(of) == 0:
				return inputError{fmt.Errorf("%s has no such baseline", name), tomlfile.DidYouMean(name, slices.Compact(names))}
			case len(of) > 1:
				return inputError{fmt.Errorf("%s has baselines in %d settings", name, len(of)), "--setting KEY says which: " + strings.Join(keys, ", ")}
			}
			if err := of[0].Unset(rootOf(c)); err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "%s in setting %s has no baseline any more; it was %s\n", name, of[0].Setting, of[0].Run)
			return nil
		},
	}
}

func gcCommand() *cli.Command {
	return &cli.Command{
		Name:  "gc",
		Usage: "remove old runs and nights; baselines, runs in progress and runs that cannot be read stay",
		Flags: []cli.Flag{
			rootFlag(),
			&cli.IntFlag{Name: "keep", Usage: "keep the newest `RUNS` of each experiment in each setting, and as many nights of each suite; at least 1"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be removed, and remove nothing"},
		},
		Action: func(c *cli.Context) error {
			if c.Int("keep") < 1 {
				return usagef("inabench gc --keep 30 --dry-run", "gc: --keep says how many runs of each experiment stay, at least 1")
			}
			return openIndex(c, history.OpenOrRead, func(x *history.Index) error {
				if why := x.Unkept(); errors.Is(why, history.ErrBusy) {
					return why // whoever writes it may be setting a baseline
				}
				dry := c.Bool("dry-run")
				removed, err := x.Prune(c.Context, c.Int("keep"), dry)
				did := "removed"
				if dry {
					did = "would remove"
				}
				for _, r := range removed {
					fmt.Fprintf(c.App.Writer, "%s %s: %s\n", did, filepath.Join(rootOf(c), r.Dir), human.Printable(r.Experiment))
				}
				if err != nil {
					return err
				}
				nights, err := suite.Prune(rootOf(c), c.Int("keep"), dry)
				for _, n := range nights {
					fmt.Fprintf(c.App.Writer, "%s %s: a night of %s\n", did, n.Path(rootOf(c)), human.Printable(n.Suite))
				}
				if err != nil {
					return err
				}
				if len(removed)+len(nights) == 0 {
					fmt.Fprintln(c.App.Writer, "nothing to remove")
				}
				return nil
			})
		},
	}
}

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/clean"
	"github.com/inabench/inabench/testbed/journal"
)

func cleanCommand() *cli.Command {
	return &cli.Command{
		Name:      "clean",
		Usage:     "undo what killed runs left in a lab (emulations leave nothing); safe to repeat",
		ArgsUsage: "[RUN]",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "every finished run of this user on this machine; the same as no RUN"},
			labFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be undone, and change nothing"},
			&cli.BoolFlag{Name: "force", Usage: "take switches over from a controller that hangs"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() > 1 || c.Args().Present() && (c.Bool("all") || c.String("inventory") != "") {
				return usagef("inabench clean [RUN|--all], or -i LAB.toml", "clean: one run, all, or a lab")
			}
			if lab := c.String("inventory"); lab != "" { // whose journals are elsewhere, or lost
				inv, err := inventoryOf(lab)
				if err != nil {
					return err
				}
				o, _ := cleaning(c)
				return clean.Lab(c.Context, inv, o)
			}
			dir, err := journal.Dir()
			if err != nil {
				return err
			}
			found, err := journal.List(dir)
			if err != nil {
				return err
			}
			if run := c.Args().First(); c.Args().Present() {
				i := slices.IndexFunc(found, func(f journal.Found) bool { return f.Run == run })
				switch {
				case i < 0:
					fmt.Fprintf(c.App.Writer, "nothing to clean: there is no journal of run %s\n", run)
					return nil
				case found[i].Live:
					return hinted{fmt.Errorf("%w: %w: run %s", testbed.ErrBusy, journal.ErrLive, run), "interrupt it: it takes everything down itself"}
				}
				found = found[i : i+1]
			}
			var errs []error
			n := 0
			for _, f := range slices.Backward(found) { // the last first: what it found is what those before it left
				if f.Live {
					fmt.Fprintf(c.App.ErrWriter, "inabench: run %s goes on, process %d: left alone\n", f.Run, pidOf(f.Log))
					continue
				}
				if c.Context.Err() != nil {
					break
				}
				n++
				errs = append(errs, cleanRun(c, dir, f))
			}
			if n == 0 {
				fmt.Fprintln(c.App.Writer, "nothing to clean: no run has left anything; what others left in switches goes with --inventory LAB.toml")
			}
			return errors.Join(errs...)
		},
	}
}

func pidOf(l *journal.Log) int {
	if l == nil {
		return 0
	}
	return l.PID
}

// cleanRun undoes what one run left.
func cleanRun(c *cli.Context, dir string, f journal.Found) error {
	if f.Err != nil {
		return hinted{fmt.Errorf("%w: run %s: %w", testbed.ErrLeftovers, f.Run, f.Err),
			"inabench clean -i LAB.toml undoes what it can see; then remove " + filepath.Join(dir, f.Run+".jsonl")}
	}
	j, err := journal.Resume(dir, f.Run)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, journal.ErrLive):
		return nil // somebody else is at it
	case err != nil:
		return fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
	}
	o, did := cleaning(c)
	err = clean.Run(c.Context, j, o)
	switch {
	case err != nil:
	case o.Dry && *did > 0:
		fmt.Fprintf(c.App.Writer, "run %s would be clean\n", f.Run)
	default:
		fmt.Fprintf(c.App.Writer, "run %s is clean\n", f.Run)
	}
	return errors.Join(err, j.Close())
}

// cleaning is what flags say about it. What is done goes to stdout, and is counted.
func cleaning(c *cli.Context) (o clean.Options, did *int) {
	did = new(int)
	return clean.Options{
		Exe: "/proc/self/exe", Dry: c.Bool("dry-run"), Force: c.Bool("force"), Owner: os.Getenv("INABENCH_OWNER"),
		Say: func(target, what string) {
			*did++
			fmt.Fprintf(c.App.Writer, "%s: %s\n", target, what)
		},
	}, did
}

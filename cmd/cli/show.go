package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/results/plot"
	"github.com/inabench/inabench/results/report"
)

func showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show a stored run again, or list all; RUN is latest, an experiment's name for its newest, a directory, or part of an id",
		ArgsUsage: "[RUN]",
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag("text", "json", "junit", "html"),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "follow the progress of a running run, and show the run when it has ended"},
		},
		Action: func(c *cli.Context) error {
			format := c.String("output")
			if !c.Args().Present() && !c.Bool("follow") {
				if format != "text" {
					return usagef("inabench show latest -o "+format+" shows the newest; inabench show -o text lists all", "show: %s is of one run, and none is named", format)
				}
				return listRuns(c)
			}
			dir, rec, err := runOf(c)
			if err != nil {
				return err
			}
			if c.Bool("follow") && !rec.Complete() {
				if err := follow(c.Context, c.App.ErrWriter, dir.Path); err != nil {
					return err
				}
				if rec, err = results.ReadRecord(dir.Path); err != nil {
					return inputError{err, ""}
				}
			}
			return writeReport(c, c.App.Writer, rec, dir, format)
		},
	}
}

// runOf opens the run that the only argument names; with --follow, the newest where there is none.
func runOf(c *cli.Context) (*results.Dir, *results.Record, error) {
	ref := "latest"
	if c.Args().Present() || !c.Bool("follow") {
		var err error
		if ref, err = argument(c, "run"); err != nil {
			return nil, nil, err
		}
	}
	return openRun(c, ref)
}

// openRun opens the run that a word names.
func openRun(c *cli.Context, ref string) (*results.Dir, *results.Record, error) {
	dir, rec, err := results.Open(rootOf(c), ref)
	if err != nil {
		return nil, nil, inputError{err, "inabench show lists all runs"}
	}
	return dir, rec, nil
}

// follow shows how far a run is until it has ended.
func follow(ctx context.Context, w io.Writer, dir string) error {
	p := newProgress(w, false)
	defer p.clear()
	t := time.NewTicker(tick)
	defer t.Stop()
	for results.Running(dir) {
		if n, err := results.ReadNow(dir); err == nil { // else it says nothing yet
			s := experiments.Status{Stage: human.Printable(n.Stage), Point: human.Printable(n.Point), Done: n.Done, Of: n.Of, Until: n.Until}
			for _, j := range n.Jobs {
				if j.Goodput > 0 {
					s.Jobs = append(s.Jobs, study.Moving{Job: human.Printable(j.Job), Goodput: j.Goodput, Predicted: j.Predicted})
				}
			}
			p.update(s)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
	return nil
}

func listRuns(c *cli.Context) error {
	entries, err := results.List(rootOf(c))
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		fmt.Fprintf(c.App.ErrWriter, "inabench: no runs in %s\n", rootOf(c))
		return nil
	}
	// A terminal has no room for directories; a run is known by the end of its name, too.
	name, head := func(path string) string { return path }, "DIRECTORY"
	if tty, _, _ := terminal(c.App.Writer); tty {
		n := shortest(entries)
		name, head = func(path string) string { return path[max(0, len(path)-n):] }, "RUN"
	}
	tw := newTable(c.App.Writer, "STARTED", "EXPERIMENT", "DRIVER", "OUTCOME", head)
	for _, e := range entries {
		if e.Err != nil {
			fmt.Fprintf(tw, "?\t?\t?\tunreadable\t%s: %s\n", e.Path, human.Printable(e.Err.Error()))
			continue
		}
		outcome := e.Record.Outcome.Word()
		if !e.Record.Complete() {
			outcome = "cut off"
			if results.Running(e.Path) {
				outcome = "running"
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", e.Record.Started.Local().Format("2006-01-02 15:04 MST"), human.Cell(e.Record.Name), human.Cell(e.Record.Driver), human.Cell(outcome), name(e.Path))
	}
	return tw.Flush()
}

// shortest returns how many bytes at the end of their paths tell the runs apart, at least 6.
func shortest(entries []results.Entry) int {
	for n := 6; ; n++ {
		seen := map[string]bool{}
		for _, e := range entries {
			seen[e.Path[max(0, len(e.Path)-n):]] = true
		}
		if len(seen) == len(entries) || n > 200 {
			return n
		}
	}
}

func graphCommand() *cli.Command {
	return &cli.Command{
		Name:      "graph",
		Usage:     "draw an inventory, an experiment's inventory, or a run with its link loads",
		ArgsUsage: "FILE.toml|RUN",
		Flags: []cli.Flag{
			rootFlag(),
			choice(cli.StringFlag{Name: "format", Aliases: []string{"o"}, Value: "svg", Usage: "`FORMAT` of the picture: svg, dot or mermaid"}, "svg", "dot", "mermaid"),
		},
		Action: func(c *cli.Context) error {
			format := c.String("format")
			ref, err := argument(c, "file")
			if err != nil {
				return err
			}
			var topo results.Topology
			loads := map[string]plot.LinkLoad{}
			if st, serr := os.Stat(ref); serr == nil && !st.IsDir() {
				inv, err := inventoryOf(ref)
				if err != nil {
					return err
				}
				topo = drivers.Topology(inv)
			} else {
				_, rec, err := openRun(c, ref)
				if err != nil {
					return err
				}
				topo = rec.Topology
				loads, _ = report.LinkLoads(rec)
			}
			switch format {
			case "dot":
				return plot.WriteDOT(c.App.Writer, topo)
			case "mermaid":
				return plot.WriteMermaid(c.App.Writer, topo)
			}
			_, err = fmt.Fprintln(c.App.Writer, plot.TopologySVG(topo, loads))
			return err
		},
	}
}

package cli

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments/drivers"
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
		},
		Action: func(c *cli.Context) error {
			format := c.String("output")
			if !c.Args().Present() {
				return listRuns(c)
			}
			dir, rec, err := runOf(c)
			if err != nil {
				return err
			}
			return writeReport(c, c.App.Writer, rec, dir, format)
		},
	}
}

// runOf opens the run that the only argument names.
func runOf(c *cli.Context) (*results.Dir, *results.Record, error) {
	ref, err := argument(c, "run")
	if err != nil {
		return nil, nil, err
	}
	dir, rec, err := results.Open(rootOf(c), ref)
	if err != nil {
		return nil, nil, inputError{err, "inabench show lists all runs"}
	}
	return dir, rec, nil
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
	tw := tabwriter.NewWriter(c.App.Writer, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "STARTED\tEXPERIMENT\tDRIVER\tOUTCOME\tDIRECTORY")
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
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", e.Record.Started.Local().Format("2006-01-02 15:04:05"), human.Printable(e.Record.Name), human.Printable(e.Record.Driver), outcome, e.Path)
	}
	return tw.Flush()
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
				_, rec, err := results.Open(rootOf(c), ref)
				if err != nil {
					return inputError{err, "inabench show lists all runs"}
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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/standing"
)

func calibrateCommand() *cli.Command {
	return &cli.Command{
		Name:      "calibrate",
		Usage:     "measure T, round trips and PAT at low load, and the rates that links really carry",
		ArgsUsage: "EXPERIMENT.toml|-",
		Flags:     append([]cli.Flag{driverFlag(), setFlag(), switchFlag(), skipFlag("skip-preflight"), outputFlag("text", "json")}, holdFlags()...),
		Action: func(c *cli.Context) error {
			path, err := argument(c, "experiment")
			if err != nil {
				return err
			}
			src, err := readEmulated(c, path)
			if err != nil {
				return err
			}
			spec, err := src.spec(sets(c))
			if err != nil {
				return err
			}
			driver := driverOf(c, spec)
			skip, err := skipped(c, "skip-preflight")
			if err != nil {
				return err
			}
			spec.SkipPreflight(skip...)
			if driver == "netns" {
				if err := emulate(c.Context); err != nil {
					return err
				}
			}
			p := newProgress(c.App.ErrWriter, false)
			hold, err := holdOf(c, p.note)
			if err != nil {
				return err
			}
			cal, err := experiments.MeasureBaseline(c.Context, driver, spec, hold, p.update)
			p.clear()
			if err != nil {
				return err
			}
			return put(c, cal, func(w io.Writer) error {
				tw := newTable(w, "WHAT", "OF", "MEASURED", "SAMPLES")
				for _, x := range cal {
					fmt.Fprintf(tw, "%s\t%s\t%s\t%d\n", x.What, x.Of, human.QuantityCI(x.Value, x.Lo, x.Hi, x.Unit), x.N)
				}
				return tw.Flush()
			})
		},
	}
}

func sshCommand() *cli.Command {
	return &cli.Command{
		Name:      "ssh",
		Usage:     "open a shell on a host, or run a command there: in a lab, in the emulation that is up, or with --on netns in a fresh one",
		ArgsUsage: "HOST [-- COMMAND ...]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory or experiment `FILE`", EnvVars: []string{"INABENCH_INVENTORY"}},
			choice(cli.StringFlag{Name: "on", Value: "lab", Usage: "`DRIVER`: lab or netns"}, "lab", "netns"),
			upFlag(),
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("inabench ssh -i FILE.toml HOST", "ssh: which host?")
			}
			name := c.Args().First()
			if c.String("inventory") == "" {
				if on := c.String("on"); c.IsSet("on") && on == "netns" {
					return usagef("inabench ssh --on netns -i FILE.toml "+name, "ssh: which inventory has host %s?", name)
				}
				err := onStanding(c, name, c.Args().Tail(), c.App.Reader)
				if errors.Is(err, standing.ErrNone) && c.String("name") == "" {
					return usagef("inabench ssh -i FILE.toml "+name, "ssh: which inventory has host %s? No emulation is up", name)
				}
				return err
			}
			on := c.String("on")
			inv, err := inventoryOf(c.String("inventory"))
			if err != nil {
				return err
			}
			if _, ok := inv.Host(name); !ok {
				return noHost(name, inv.File, inv.HostNames())
			}
			if on == "netns" {
				if err := emulate(c.Context); err != nil {
					return err
				}
				f, err := netns.Up(c.Context, inv, netns.Options{})
				if err != nil {
					return err
				}
				defer f.Close(context.WithoutCancel(c.Context))
				inv = f.Inventory()
			}
			h, _ := inv.Host(name)
			if !h.Reachable() {
				return inputError{fmt.Errorf("host %s has no ssh address in %s", name, inv.File),
					"write one, or use an emulation of it: --on netns"}
			}
			if err := reach.Known(inv); err != nil {
				return err
			}
			client, err := reach.Dial(c.Context, reach.To(inv, *h), reach.Options{Warn: warner(c)})
			if err != nil {
				return err
			}
			defer client.Close()
			return interact(c, client, c.Args().Tail(), c.App.Reader)
		},
	}
}

// interact gives the user a command on a host, or a shell, with the streams of this one.
func interact(c *cli.Context, host hosts.Host, argv []string, stdin io.Reader) error {
	err := host.Interactive(c.Context, argv, stdin, behind(c.App.Writer), behind(c.App.ErrWriter))
	if run, ok := errors.AsType[*hosts.RunError](err); ok {
		return &commandError{run}
	}
	return err
}

// noHost is an error about a host that is not in what has known ones: a file, an emulation.
func noHost(name, where string, known []string) error {
	return inputError{fmt.Errorf("no host %q in %s", name, where), tomlfile.DidYouMean(name, known)}
}

// inventoryOf reads an inventory, or an experiment's.
func inventoryOf(path string) (*inventory.Inventory, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	inv, _, err := src.lab(nil)
	return inv, err
}

// lab parses an inventory, or an experiment, whose inventory it is; the experiment is nil of an inventory.
func (s source) lab(sets []string) (inv *inventory.Inventory, of *spec.Spec, err error) {
	isInventory, err := spec.IsInventory(s.name, s.text)
	if err != nil { // of no TOML: it may be a record
		return nil, nil, cmp.Or(s.foreign(""), err)
	}
	if isInventory {
		inv, err = inventory.Parse(s.name, s.text)
		return inv, nil, err
	}
	if of, err = s.spec(sets); err != nil {
		return nil, nil, err
	}
	return of.Inventory(), of, nil
}

// checkLab reports what keeps an inventory from being that of a lab.
func checkLab(inv *inventory.Inventory) error {
	if err := inv.CheckLab(); err != nil {
		return err
	}
	return reach.Known(inv)
}

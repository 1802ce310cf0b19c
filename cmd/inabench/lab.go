package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/p4rt"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/ssh"
)

func calibrateCommand() *cli.Command {
	return &cli.Command{
		Name:      "calibrate",
		Usage:     "measure T, round trips and PAT at low load, and the rates that links really carry",
		ArgsUsage: "EXPERIMENT.toml|-",
		Flags:     []cli.Flag{driverFlag(), setFlag(), outputFlag("text", "json")},
		Action: func(c *cli.Context) error {
			path, err := argument(c, "experiment")
			if err != nil {
				return err
			}
			driver, err := oneOf(c, "on", "netns", "sim", "lab")
			if err != nil {
				return err
			}
			format, err := oneOf(c, "output", "text", "json")
			if err != nil {
				return err
			}
			src, done, err := readEmulated(c, path, driver)
			if done || err != nil {
				return err
			}
			spec, err := src.spec(c.StringSlice("set"))
			if err != nil {
				return err
			}
			if driver == "netns" {
				if done, err := emulate(c.Context); done || err != nil {
					return err
				}
			}
			p := newProgress(c.App.ErrWriter, false)
			cal, err := experiments.MeasureBaseline(c.Context, driver, spec, p.update)
			p.clear()
			if err != nil {
				return err
			}
			if format == "json" {
				return writeJSON(c.App.Writer, cal)
			}
			tw := tabwriter.NewWriter(c.App.Writer, 0, 4, 2, ' ', 0)
			fmt.Fprintln(tw, "WHAT\tOF\tMEASURED\tSAMPLES")
			for _, x := range cal {
				fmt.Fprintf(tw, "%s\t%s\t%s\t%d\n", x.What, x.Of, results.QuantityCI(x.Value, x.Lo, x.Hi, x.Unit), x.N)
			}
			return tw.Flush()
		},
	}
}

func sshCommand() *cli.Command {
	return &cli.Command{
		Name:      "ssh",
		Usage:     "open a shell on a host, or run a command there; with --on netns, in a fresh emulation",
		ArgsUsage: "HOST [-- COMMAND ...]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory or experiment `FILE`", EnvVars: []string{"INABENCH_INVENTORY"}},
			&cli.StringFlag{Name: "on", Value: "lab", Usage: "`DRIVER`: lab or netns"},
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("inabench ssh -i FILE.toml HOST", "ssh: which host?")
			}
			name := c.Args().First()
			if c.String("inventory") == "" {
				return usagef("inabench ssh -i FILE.toml "+name, "ssh: which inventory has host %s?", name)
			}
			on, err := oneOf(c, "on", "lab", "netns")
			if err != nil {
				return err
			}
			inv, err := inventoryOf(c.String("inventory"))
			if err != nil {
				return err
			}
			if _, ok := inv.Host(name); !ok {
				return noHost(inv, name)
			}
			if on == "netns" {
				if done, err := emulate(c.Context); done || err != nil {
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
			if h.SSH.Address == "" {
				return inputError{fmt.Errorf("host %s has no ssh address in %s", name, inv.File),
					"write one, or use an emulation of it: --on netns"}
			}
			client, err := ssh.Dial(c.Context, remote.InventoryTarget(inv, *h))
			if err != nil {
				return err
			}
			defer client.Close()
			err = client.Interactive(c.Context, c.Args().Tail(), c.App.Reader, c.App.Writer, c.App.ErrWriter)
			if run := (*ssh.RunError)(nil); errors.As(err, &run) {
				return &commandError{run}
			}
			return err
		},
	}
}

func noHost(inv *inventory.Inventory, name string) error {
	var known []string
	for _, h := range inv.Hosts {
		known = append(known, h.Name)
	}
	return inputError{fmt.Errorf("no host %q in %s", name, inv.File), tomlfile.DidYouMean(name, known)}
}

// inventoryOf reads an inventory, or an experiment's.
func inventoryOf(path string) (*inventory.Inventory, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	isInventory, err := experiments.IsInventory(src.name, src.text)
	if err != nil {
		return nil, err
	}
	if isInventory {
		return inventory.Parse(src.name, src.text)
	}
	s, err := src.spec(nil)
	if err != nil {
		return nil, err
	}
	return s.Inventory(), nil
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "say what this machine can do, and what to do about the rest",
		Flags: []cli.Flag{outputFlag("text", "json")},
		Action: func(c *cli.Context) error {
			format, err := oneOf(c, "output", "text", "json")
			if err != nil {
				return err
			}
			report, err := netns.Probe(c.Context)
			if err != nil {
				return err
			}
			if format == "json" {
				if err := writeJSON(c.App.Writer, report); err != nil {
					return err
				}
				return report.Err()
			}
			tw := tabwriter.NewWriter(c.App.Writer, 0, 4, 2, ' ', 0)
			for _, k := range report.Checks {
				mark := "ok"
				if !k.OK {
					mark = "missing"
					if k.Required {
						mark = "NEEDED"
					}
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\n", mark, k.Name, k.Why)
				if !k.OK && k.Fix != "" {
					fmt.Fprintf(tw, "\t\tto do: %s\n", k.Fix)
				}
			}
			if err := tw.Flush(); err != nil {
				return err
			}
			if err := report.Err(); err != nil {
				return err
			}
			fmt.Fprintln(c.App.Writer, "this machine can emulate racks: inabench run experiments/quickstart.toml")
			return nil
		},
	}
}

func cleanCommand() *cli.Command {
	return &cli.Command{
		Name:  "clean",
		Usage: "remove what a killed run left on a lab's switches; emulations leave nothing. Idempotent, like rm -f",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory or experiment `FILE` of the lab", EnvVars: []string{"INABENCH_INVENTORY"}},
			&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be removed"},
			&cli.BoolFlag{Name: "force", Usage: "take switches over from a controller that has hung"},
		},
		Action: func(c *cli.Context) error {
			if c.String("inventory") == "" {
				fmt.Fprintln(c.App.Writer, "nothing to clean: emulations end with their run; name a lab with --inventory")
				return nil
			}
			inv, err := inventoryOf(c.String("inventory"))
			if err != nil {
				return err
			}
			var errs []error
			for _, sw := range inv.Switches {
				if sw.Control == "" {
					continue
				}
				n, err := cleanSwitch(c.Context, inv, sw, c.Bool("dry-run"), c.Bool("force"))
				if err != nil {
					errs = append(errs, err)
					continue
				}
				verb := "removed"
				if c.Bool("dry-run") {
					verb = "would be removed"
				}
				fmt.Fprintf(c.App.Writer, "switch %s: %d job%s, %d route%s, %d group%s %s\n", sw.Name,
					len(n.Jobs), plural(len(n.Jobs)), len(n.Routes), plural(len(n.Routes)), len(n.Groups), plural(len(n.Groups)), verb)
			}
			return errors.Join(errs...)
		},
	}
}

// cleanSwitch deletes what a run wrote into a switch, and says what that was: all
// jobs, their multicast groups, and the routes to hosts of the inventory.
func cleanSwitch(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, dry, force bool) (batch p4rt.Batch, err error) {
	client, err := p4rt.Dial(ctx, sw.Name, sw.Control, sw.DeviceID, p4rt.Options{DialTimeout: 5 * time.Second, Polite: !force})
	switch {
	case errors.Is(err, p4rt.ErrNotPrimary):
		return batch, inUse{err}
	case err != nil:
		return batch, fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
	}
	defer func() {
		if err = errors.Join(err, client.Close(ctx)); err != nil {
			err = fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
		}
	}()
	if err := client.Attach(ctx); err != nil {
		if errors.Is(err, p4rt.ErrNoPipeline) {
			err = nil // it has been restarted: there is nothing in it
		}
		return batch, err
	}
	if batch.Jobs, err = client.ReadJobs(ctx); err != nil {
		return batch, err
	}
	groups, err := client.ReadGroups(ctx)
	if err != nil {
		return batch, err
	}
	for _, g := range groups {
		for _, j := range batch.Jobs {
			if j.DownGroup == g.ID {
				batch.Groups = append(batch.Groups, g)
				break
			}
		}
	}
	routes, err := client.ReadRoutes(ctx)
	if err != nil {
		return batch, err
	}
	for _, r := range routes {
		if slices.ContainsFunc(inv.Hosts, func(h inventory.Host) bool {
			return slices.ContainsFunc(h.NICs, func(n inventory.NIC) bool {
				return n.Address.IsValid() && n.Address.Addr() == netip.AddrFrom4(r.Dst)
			})
		}) {
			batch.Routes = append(batch.Routes, r)
		}
	}
	if dry {
		return batch, nil
	}
	return batch, client.Delete(ctx, batch)
}

// inUse is a switch that someone else controls.
type inUse struct{ error }

func (e inUse) Unwrap() []error { return []error{testbed.ErrBusy, e.error} }

// Hint is what to do about it.
func (e inUse) Hint() string {
	return "wait until that run has ended; --force takes over from one that has hung"
}

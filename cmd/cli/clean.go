package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/clean"
	"github.com/inabench/inabench/testbed/dataplane"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/journal"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/lease"
	"github.com/inabench/inabench/testbed/switches"
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
			if c.String("inventory") != "" {
				return sweep(c)
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
					return inUse{fmt.Errorf("%w: %w: run %s", testbed.ErrBusy, journal.ErrLive, run), "interrupt it: it takes everything down itself"}
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
	dry := c.Bool("dry-run")
	said := 0
	err = clean.Run(c.Context, j, clean.Options{
		Exe: "/proc/self/exe", Dry: dry, Force: c.Bool("force"),
		Say: func(target, what string) {
			said++
			fmt.Fprintf(c.App.Writer, "%s: %s\n", target, what)
		},
	})
	switch {
	case err != nil:
	case dry && said > 0:
		fmt.Fprintf(c.App.Writer, "run %s would be clean\n", f.Run)
	default:
		fmt.Fprintf(c.App.Writer, "run %s is clean\n", f.Run)
	}
	return errors.Join(err, j.Close())
}

// sweep is clean for a lab whose journals are elsewhere, or lost: it removes what any run
// of this program left on its hosts and in its switches, which must not be leased.
func sweep(c *cli.Context) error {
	inv, err := inventoryOf(c.String("inventory"))
	if err != nil {
		return err
	}
	var hosts []string
	for _, h := range inv.Hosts {
		if h.Reachable() {
			hosts = append(hosts, h.Name)
		}
	}
	k := keepers.Open(c.Context, inv, hosts, 32)
	defer k.Close()
	var errs []error
	if err := k.Err(); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", testbed.ErrLeftovers, err))
	}
	ended, failed := make([]string, len(hosts)), make([]error, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		if k.Client(h) != nil {
			all.Go(func() {
				ended[i], failed[i] = clean.Sweep(c.Context, k, h, "/proc/self/exe", c.Bool("dry-run"))
			})
		}
	}
	all.Wait()
	for i, h := range hosts {
		verb := "ended"
		if c.Bool("dry-run") {
			verb = "would be ended"
		}
		if ended[i] != "" {
			fmt.Fprintf(c.App.Writer, "host %s: %s %s\n", h, strings.TrimSuffix(ended[i], " ended"), verb)
		}
		errs = append(errs, failed[i])
	}
	for _, sw := range inv.Switches {
		if sw.Kind == inventory.Scripted {
			errs = append(errs, clearScripted(c, inv, sw))
			continue
		}
		if sw.Control == "" || !switches.Programmed(sw.Kind) {
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
}

// clearScripted runs a switch's clear script.
func clearScripted(c *cli.Context, inv *inventory.Inventory, sw inventory.Switch) error {
	if sw.Script == nil || len(sw.Script.Clear) == 0 {
		return nil
	}
	verb := "run"
	if c.Bool("dry-run") {
		verb = "would be run"
	} else {
		if !c.Bool("force") {
			if err := unleased(c.Context, inv, sw.Name); err != nil {
				return err
			}
		}
		if err := switches.ClearScript(c.Context, inv, sw); err != nil {
			return fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
		}
	}
	fmt.Fprintf(c.App.Writer, "switch %s: %s %s\n", sw.Name, strings.Join(sw.Script.Clear, " "), verb)
	return nil
}

// unleased says that nobody has a switch, or who has it. Where nobody can be asked only
// P4Runtime is left to say so.
func unleased(ctx context.Context, inv *inventory.Inventory, name string) error {
	k := keepers.Open(ctx, inv, []string{name}, 1)
	defer k.Close()
	if k.Err() != nil {
		return nil
	}
	p, err := k.Place(ctx, name)
	if err != nil {
		return nil
	}
	s, err := lease.Look(ctx, p)
	if err == nil && s.Held {
		return keepers.Busy(&lease.HeldError{State: s})
	}
	return err
}

// cleanSwitch deletes what a run wrote into a switch, and says what that was: all
// jobs, their multicast groups, and the routes to hosts of the inventory.
func cleanSwitch(ctx context.Context, inv *inventory.Inventory, sw inventory.Switch, dry, force bool) (batch dataplane.Batch, err error) {
	if !force {
		if err := unleased(ctx, inv, sw.Name); err != nil {
			return batch, err
		}
	}
	client, err := device.Dial(ctx, sw, device.Cables(inv.Topology(), sw.Name), dataplane.Options{DialTimeout: 5 * time.Second, Polite: !force})
	switch {
	case errors.Is(err, dataplane.ErrNotPrimary):
		return batch, inUse{err, "wait until that run has ended; --force takes over from one that has hung"}
	case err != nil:
		return batch, fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
	}
	defer func() {
		if err = errors.Join(err, client.Close(ctx)); err != nil {
			err = fmt.Errorf("%w: %w", testbed.ErrLeftovers, err)
		}
	}()
	if ours, err := device.Attach(ctx, client); !ours || err != nil {
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

// inUse is something that somebody else is using.
type inUse hinted

func (e inUse) Unwrap() []error { return []error{testbed.ErrBusy, e.error} }

// Hint is what to do about it.
func (e inUse) Hint() string { return e.hint }

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/internal/parallel"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/device"
	"github.com/inabench/inabench/testbed/netns"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/reach"
	"github.com/inabench/inabench/testbed/switches"
)

// hostFlags are those of commands that ask all hosts of a lab.
func hostFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "inventory", Aliases: []string{"i"}, Usage: "inventory or experiment `FILE` of the lab to check", EnvVars: []string{"INABENCH_INVENTORY"}},
		&cli.DurationFlag{Name: "timeout", Value: 10 * time.Second, Usage: "give up on a host that does not let us in within `TIME`"},
		&cli.IntFlag{Name: "fan-out", Value: 32, Usage: "ask `N` hosts at a time"},
	}
}

// askHosts reads the flags of hostFlags: the lab and how to log in to its hosts; nil
// without a lab.
func askHosts(c *cli.Context) (inv *inventory.Inventory, ways []reach.Way, err error) {
	if c.Int("fan-out") < 1 || c.Duration("timeout") <= 0 {
		return nil, nil, usagef("leave them out for the defaults, 32 and 10s", "--fan-out and --timeout must be greater than 0")
	}
	if c.String("inventory") == "" {
		return nil, nil, nil
	}
	if inv, err = inventoryOf(c.String("inventory")); err != nil {
		return nil, nil, err
	}
	var none []string
	for _, h := range inv.Hosts {
		if !h.Reachable() {
			none = append(none, h.Name)
		}
		ways = append(ways, reach.To(inv, h))
	}
	if n := len(none); n > 0 {
		who := "host " + none[0]
		if n > 1 {
			who += fmt.Sprintf(" (and %d more)", n-1)
		}
		return nil, nil, inputError{fmt.Errorf("%s: no ssh address in %s", who, inv.File), "give hosts an ssh address; for an emulation, inabench doctor without -i checks this machine"}
	}
	if err := reach.Known(inv); err != nil {
		return nil, nil, err
	}
	dialer := reach.Dialer{Options: reach.Options{Warn: warner(c)}}
	_ = dialer.Check(ways) // what keeps hosts from being reached is said of each host
	return inv, ways, nil
}

// warner writes warnings for the user.
func warner(c *cli.Context) func(line string) {
	return func(line string) { fmt.Fprintln(c.App.ErrWriter, "inabench: warning: "+line) }
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check this machine, or a lab's hosts and switches: what is missing, and how to get it",
		Flags: append(hostFlags(), outputFlag("text", "json")),
		Action: func(c *cli.Context) error {
			inv, ways, err := askHosts(c)
			if err != nil {
				return err
			}
			d := diagnosis{}
			if d.Report, err = netns.Probe(c.Context); err != nil {
				return err
			}
			if d.Parts, err = preflight.PartsHere(c.Context); err != nil {
				return err
			}
			if inv == nil && d.Report.Err() == nil {
				if d.Carries, err = carries(c.Context); err != nil {
					return err
				}
			}
			if inv != nil {
				d.Hosts = preflight.Diagnose(c.Context, inv, ways, c.Int("fan-out"), c.Duration("timeout"))
				d.Switches = diagnoseSwitches(c.Context, inv, c.Int("fan-out"), c.Duration("timeout"))
				d.Services = diagnoseSHARP(c.Context, inv, c.Duration("timeout"))
				d.Ceilings = carry.Foresee(answering(inv, d.Hosts), nil, version())
			}
			return errors.Join(put(c, d, d.write), d.err())
		},
	}
}

// answering are the hosts of a lab that answered: of others nothing is known today.
func answering(inv *inventory.Inventory, all []preflight.Diagnosis) *inventory.Inventory {
	there := *inv
	there.Hosts = slices.DeleteFunc(slices.Clone(inv.Hosts), func(h inventory.Host) bool {
		return slices.ContainsFunc(all, func(d preflight.Diagnosis) bool { return d.Host == h.Name && d.Error != "" })
	})
	return &there
}

// diagnosis is what doctor finds.
type diagnosis struct {
	netns.Report
	Parts   []preflight.Found     `json:"parts"`
	Carries *carry.Machine        `json:"carries,omitempty"` // as an emulated testbed; nil: not measured
	Hosts   []preflight.Diagnosis `json:"hosts,omitempty"`

	Ceilings []results.Preflight `json:"ceilings,omitempty"` // of hosts that inabench preflight has measured

	Switches []device.Diagnosis `json:"switches,omitempty"`
	Services []service          `json:"services,omitempty"`
}

// carries is what this machine carries as an emulated testbed; nil where it cannot be one.
func carries(ctx context.Context) (*carry.Machine, error) {
	m, err := carry.Measure(ctx, version())
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return &m, err
}

// diagnoseSwitches asks all switches that can be asked what they run.
func diagnoseSwitches(ctx context.Context, inv *inventory.Inventory, fan int, timeout time.Duration) []device.Diagnosis {
	out := make([]device.Diagnosis, len(inv.Switches))
	_ = parallel.Every(fan, len(out), func(i int) error { // what went wrong is in the diagnoses
		out[i], _ = switches.Diagnose(ctx, inv, inv.Switches[i], timeout)
		return nil
	})
	// Of those that cannot be asked there is none.
	return slices.DeleteFunc(out, func(d device.Diagnosis) bool { return d.Switch == "" })
}

// err is nil when an emulation can run here and all hosts can be asked. Where a lab was
// named, what an emulation lacks is said and is no failure.
func (d diagnosis) err() error {
	if d.Hosts == nil {
		return d.Report.Err()
	}
	var errs []error
	for _, dead := range preflight.DeadOf(d.Hosts) {
		errs = append(errs, hinted{errors.New(dead.String()), dead.Hint})
	}
	for _, sw := range d.Switches {
		if sw.Error != "" {
			errs = append(errs, hinted{errors.New(sw.Error), sw.Hint})
		}
		for _, l := range sw.Links {
			if len(l.Wrong) > 0 {
				errs = append(errs, hinted{fmt.Errorf("switch %s: %v", sw.Switch, l), l.Hint()})
			}
		}
	}
	for _, s := range d.Services {
		if s.Error != "" {
			errs = append(errs, hinted{fmt.Errorf("%s: %s", s.Name, s.Error), s.Hint})
		}
	}
	return errors.Join(errs...)
}

// writeDead writes a line for each reason for which hosts do not answer.
func writeDead(w io.Writer, all []preflight.Diagnosis) {
	for _, d := range preflight.DeadOf(all) {
		who, found := d.Hosts[0], d.Found
		if n := len(d.Hosts); n > 1 {
			who, found = fmt.Sprintf("%d hosts", n), strings.Join(d.Hosts, ", ")+"; "+found
		}
		writeFound(w, "DEAD", who, found, d.Hint)
	}
}

// writeSwitches writes a line for each switch.
func writeSwitches(w io.Writer, all []device.Diagnosis) {
	for _, sw := range all {
		if sw.Error != "" {
			writeFound(w, "DEAD", sw.Switch, strings.TrimPrefix(sw.Error, "switch "+sw.Switch+": "), sw.Hint)
			continue
		}
		what := "pipeline: " + sw.Pipeline
		if sw.Version != "" {
			what = "P4Runtime " + sw.Version + "; " + what
		}
		if sw.Ports > 0 {
			what += fmt.Sprintf("; gNMI knows its %d ports", sw.Ports)
		}
		if sw.PlainText {
			what += "; without TLS"
		}
		writeFound(w, "ok", sw.Switch, what, "")
		for _, l := range sw.Links { // cabled ports that it tells of
			if len(l.Wrong) > 0 {
				writeFound(w, "FAIL", sw.Switch, l.String(), l.Hint())
			} else {
				writeFound(w, "ok", sw.Switch, l.String(), "")
			}
		}
	}
}

func (d diagnosis) write(w io.Writer) error {
	tw := newTable(w)
	for _, k := range d.Checks {
		mark, fix := "ok", ""
		if !k.OK {
			mark, fix = "missing", k.Fix
			if k.Required {
				mark = "NEEDED"
			}
		}
		writeFound(tw, mark, k.Name, k.Why, fix)
	}
	writeParts(tw, used(d.Parts), 0)
	if err := tw.Flush(); err != nil {
		return err
	}
	if d.Hosts == nil {
		if d.Report.Err() == nil {
			fmt.Fprintln(w, "this machine can emulate racks: inabench run experiments/quickstart.toml")
		}
		if d.Carries != nil {
			fmt.Fprintln(w, d.Carries)
		}
		return nil
	}
	var parts []preflight.Found
	there := 0
	slowest := preflight.Diagnosis{}
	for _, h := range d.Hosts {
		if h.Error == "" {
			there++
			parts = append(parts, h.Parts...)
		}
		if h.Seconds > slowest.Seconds {
			slowest = h
		}
	}
	fmt.Fprintf(w, "\n%d of %d hosts answer; the slowest, %s, after %.1f s\n", there, len(d.Hosts), slowest.Host, slowest.Seconds)
	tw = newTable(w)
	writeDead(tw, d.Hosts)
	writeSwitches(tw, d.Switches)
	writeServices(tw, d.Services)
	writeParts(tw, parts, there)
	writeCeilings(tw, d.Ceilings)
	return tw.Flush()
}

// developing are parts of this machine that inabench's own tests and its build use, and no run.
var developing = []string{"p4c", "ibsim", "opensm", "cbc"}

// used are parts of this machine without those that it lacks and no run needs.
func used(parts []preflight.Found) []preflight.Found {
	return slices.DeleteFunc(slices.Clone(parts), func(f preflight.Found) bool {
		return !f.Present && slices.Contains(developing, f.Part)
	})
}

// writeParts writes what was found, hosts of which the same is true together. of is how
// many hosts were asked; 0: this machine was.
func writeParts(w io.Writer, found []preflight.Found, of int) {
	type row struct{ mark, part, what, fix string }
	hosts := map[row][]string{}
	var rows []row
	for _, f := range found {
		r := row{part: f.Part, fix: f.Fix}
		switch {
		case f.Problem != "":
			r.mark, r.what = "BROKEN", f.Problem
		case f.Present && f.Version != "":
			r.mark, r.what = "ok", f.Version
		case f.Present:
			r.mark, r.what = "ok", f.Path
		default:
			r.mark, r.what = "missing", "for "+f.For
		}
		if _, ok := hosts[r]; !ok {
			rows = append(rows, r)
		}
		hosts[r] = append(hosts[r], f.Host)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return slices.IndexFunc(found, is(a.part)) - slices.IndexFunc(found, is(b.part)) })
	for _, r := range rows {
		on := ""
		if n := len(hosts[r]); n > 1 && n == of {
			on = fmt.Sprintf(", on all %d hosts", n)
		} else if of > 0 && n > 4 {
			on = fmt.Sprintf(", on %s and %d more hosts", strings.Join(hosts[r][:3], ", "), n-3)
		} else if of > 0 {
			on = ", on " + strings.Join(hosts[r], ", ")
		}
		writeFound(w, r.mark, r.part, r.what+on, r.fix)
	}
}

func is(part string) func(preflight.Found) bool {
	return func(f preflight.Found) bool { return f.Part == part }
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/preflight"
	"github.com/inabench/inabench/testbed/reach"
)

// skipFlag names checks that are not to be made.
func skipFlag(name string) cli.Flag {
	return &cli.StringFlag{Name: name, EnvVars: []string{"INABENCH_SKIP_PREFLIGHT"}, Usage: "leave out the preflight checks with these comma-separated `NAMES`: " + strings.Join(preflight.Names(), ", ")}
}

// skipped reads it.
func skipped(c *cli.Context, flag string) ([]string, error) {
	if c.String(flag) == "" {
		return nil, nil
	}
	return listed(c.String(flag), "check", preflight.Names())
}

func preflightCommand() *cli.Command {
	return &cli.Command{
		Name:  "preflight",
		Usage: "check whether a lab's hosts are fit for a run, as `run` does before it changes anything",
		Flags: append(hostFlags(), skipFlag("skip"), outputFlag("text", "json")),
		Action: func(c *cli.Context) error {
			names, err := skipped(c, "skip")
			if err != nil {
				return err
			}
			inv, ways, err := askHosts(c)
			if err != nil {
				return err
			}
			if inv == nil {
				return usagef("inabench preflight -i LAB.toml", "preflight: of which lab?")
			}
			asks, unforeseen, err := asksIn(c.Context, c.String("inventory"))
			if err != nil {
				return err
			}
			var skip []preflight.Skip
			for _, name := range names {
				skip = append(skip, preflight.Skip{Name: name, Why: "--skip"})
			}
			clients := make([]hosts.Host, len(ways))
			dead := make([]error, len(ways))
			dialer := reach.Dialer{Options: reach.Options{Timeout: c.Duration("timeout")}}
			_ = hosts.FanOut(c.Context, c.Int("fan-out"), ways, func(ctx context.Context, i int, w reach.Way) error {
				clients[i], dead[i] = dialer.Dial(ctx, w)
				return dead[i]
			})
			defer hosts.CloseAll(clients)
			var all []results.Preflight
			var there []preflight.Host
			for i, h := range inv.Hosts {
				if clients[i] != nil {
					there = append(there, preflight.Host{Host: h, Client: clients[i], Lab: inv})
				} else {
					all = append(all, preflight.Unreachable(h.Name, cmp.Or(dead[i], context.Cause(c.Context)))) // not dialled: interrupted
				}
			}
			looked, facts := preflight.Run(c.Context, there, nil, skip, c.Int("fan-out"))
			all = append(all, looked...)
			if slices.Contains(names, preflight.Ceiling) {
				all = append(all, results.Preflight{Name: preflight.Ceiling, Outcome: results.Skipped, Why: "--skip"})
			} else {
				there = slices.DeleteFunc(there, func(h preflight.Host) bool { // those that do not answer
					return !slices.ContainsFunc(facts, func(f results.HostFacts) bool { return f.Host == h.Name })
				})
				all = append(all, unforeseen...)
				all = append(all, lookAtCeilings(c.Context, inv, there, asks, c.Int("fan-out"))...)
			}
			doc := map[string]any{"preflight": all, "hosts": facts}
			if err := put(c, doc, func(w io.Writer) error { return writePreflight(w, all) }); err != nil {
				return err
			}
			return preflight.Err(all)
		},
	}
}

// writePreflight writes a table: what failed host by host, everything else with the hosts
// of which it is true together.
func writePreflight(w io.Writer, all []results.Preflight) error {
	type row struct{ mark, name, what, hint string }
	hosts := map[row][]string{}
	var rows []row
	for _, p := range all {
		r := row{mark: "ok", name: p.Name, what: p.Found}
		switch p.Outcome {
		case results.Fail, results.Inconclusive:
			r.mark = map[results.Outcome]string{results.Fail: "FAIL", results.Inconclusive: "WARN"}[p.Outcome]
			if p.Wanted != "" {
				r.what += "; wanted " + p.Wanted
			}
			if p.Outcome == results.Inconclusive || p.Name == preflight.Ceiling { // no error says it, or none of a plan
				r.hint = p.Hint
			}
		case results.Skipped:
			r = row{mark: "skipped", name: p.Name, what: p.Why}
		default:
			if p.Name == preflight.Clock || p.Name == preflight.Disk { // every host's is its own
				r.what = ""
			}
		}
		if _, ok := hosts[r]; !ok {
			rows = append(rows, r)
		}
		if p.Host != "" {
			hosts[r] = append(hosts[r], p.Host)
		}
	}
	tw := newTable(w, "", "CHECK", "HOSTS", "FOUND")
	for _, r := range rows {
		on := strings.Join(hosts[r], ", ")
		if len(hosts[r]) > 4 {
			on = fmt.Sprintf("%s and %d more", strings.Join(hosts[r][:3], ", "), len(hosts[r])-3)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.mark, r.name, on, r.what)
		if r.hint != "" {
			fmt.Fprintf(tw, "\t\t\tto do: %s\n", r.hint)
		}
	}
	return tw.Flush()
}

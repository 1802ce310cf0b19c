package cli

import (
	"cmp"
	"context"
	"io"
	"os"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
	"github.com/inabench/inabench/testbed/hosts"
	"github.com/inabench/inabench/testbed/keepers"
	"github.com/inabench/inabench/testbed/preflight"
)

// asksOf is what a plan asks of the hosts of its lab.
func asksOf(plan *experiments.SavedPlan) ([]carry.Ask, error) {
	return drivers.Asks(plan.Spec().Inventory(), plan.Spec().Points(), plan.Points)
}

// asksIn is what the experiment in a file asks of the hosts of its lab: nothing of an inventory, and of an experiment
// without a plan. unforeseen is why what is asked is not known, of one that should have a plan.
func asksIn(ctx context.Context, path string) (asks []carry.Ask, unforeseen []results.Preflight, err error) {
	src, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	_, s, err := src.lab(nil)
	if err != nil || s == nil || s.Unplanned() != nil {
		return nil, nil, err
	}
	plan, err := experiments.NewPlan(ctx, s, version())
	if err == nil {
		asks, err = asksOf(plan)
	}
	if err != nil {
		return nil, []results.Preflight{drivers.Unforeseen(err)}, nil
	}
	return asks, nil, nil
}

// lookAtCeilings is carry.Look for hosts that nobody has a lease of: a host is busy while it measures itself. Others are
// judged by what was kept of them.
func lookAtCeilings(ctx context.Context, inv *inventory.Inventory, there []preflight.Host, asks []carry.Ask, fan int) []results.Preflight {
	have := map[string]hosts.Host{}
	for _, h := range there {
		have[h.Name] = h.Client
	}
	taken := keepers.Taken(ctx, inv, have, cmp.Or(os.Getenv("INABENCH_OWNER"), keepers.Owner()), fan)
	var free []preflight.Host
	var rest []inventory.Host
	for _, h := range there {
		if taken[h.Name] == "" {
			free = append(free, h)
		} else {
			rest = append(rest, h.Host)
		}
	}
	all := carry.Look(ctx, free, asks, version(), fan)
	for _, p := range carry.Foresee(&inventory.Inventory{Hosts: rest}, asks, version()) {
		if p.Outcome == results.Skipped {
			p.Why = "not measured, since it would be disturbed: " + taken[p.Host]
		}
		all = append(all, p)
	}
	return all
}

// writeForeseen says whether a lab's hosts are able to do what a plan asks of them, as far as they have been measured.
func writeForeseen(w io.Writer, plan *experiments.SavedPlan) error {
	asks, err := asksOf(plan)
	if err != nil || len(asks) == 0 {
		return err
	}
	return writePreflight(w, carry.Foresee(plan.Spec().Inventory(), asks, version()))
}

// writeCeilings writes a line for each host of a lab that has been measured.
func writeCeilings(w io.Writer, all []results.Preflight) {
	for _, p := range all {
		if p.Outcome == results.Pass {
			writeFound(w, "ok", p.Host, p.Found, "")
		}
	}
}

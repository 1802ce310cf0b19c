package cli

import (
	"fmt"
	"io"

	"github.com/inabench/inabench/experiments"
	"github.com/inabench/inabench/experiments/drivers"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/carry"
)

// asksOf is what a plan asks of the hosts of its lab.
func asksOf(plan *experiments.SavedPlan) ([]carry.Ask, error) {
	return drivers.Asks(plan.Spec().Points(), plan.Points)
}

// asksIn is what the experiment in a file asks of the hosts of its lab: nothing of an inventory, or where there is no plan.
func asksIn(path string) ([]carry.Ask, error) {
	src, err := readFile(path)
	if err != nil {
		return nil, err
	}
	isInventory, err := spec.IsInventory(src.name, src.text)
	if err != nil || isInventory {
		return nil, err
	}
	s, err := src.spec(nil)
	if err != nil {
		return nil, err
	}
	plan, err := experiments.NewPlan(s, version())
	if err != nil {
		return nil, nil // inabench plan says why
	}
	return asksOf(plan)
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
			fmt.Fprintf(w, "ok\t%s\t%s\n", p.Host, p.Found)
		}
	}
}

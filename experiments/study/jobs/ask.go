package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// ask has predictors of others say of a point that was measured what they do: phases
// are those of steady states, whole is the point from beginning to end.
func (r *run) ask(ctx context.Context, setup testbed.Setup, base Baseline, phases []results.Phase, whole *results.Phase) {
	if !r.Asks() {
		return
	}
	inv := r.Testbed().Inventory()
	var shifted []results.Phase
	for _, ph := range phases {
		ph.Start, ph.End = ph.Start-whole.Start, ph.End-whole.Start
		shifted = append(shifted, ph)
	}
	req, err := request(r.Planned, inv, setup, base, r.Repeat, shifted, whole.End-whole.Start)
	if err != nil {
		r.Warn(fmt.Sprintf("predictors were not asked: %v", err))
		return
	}
	r.Ask(ctx, r.Planned, req, phases, whole)
}

// Request implements study.Predicted.
func (js Study) Request(p study.Planned) (*predictor.Request, error) {
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.Plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return nil, err
	}
	t := timelineOf(p.Spec)
	var phases []results.Phase
	for _, sp := range t.spans() {
		phases = append(phases, results.Phase{Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs})
	}
	return request(p, inv, setup, Baseline{}, 0, phases, t.end().Seconds())
}

// request is what predictors are told of a point. inv, setup and base are in the testbed's units.
func request(p study.Planned, inv *inventory.Inventory, setup testbed.Setup, base Baseline, repeat int, phases []results.Phase, duration float64) (*predictor.Request, error) {
	req := study.Asked(p, inv, setup.Settings, repeat, duration)
	c := conditions(setup, base, nil)
	known, err := placement.Resolve(inv, setup.Plan, c)
	if err != nil {
		return nil, err
	}
	for i := range setup.Plan.Jobs {
		w := &setup.Workloads[i]
		j := study.AskedOf(&setup.Plan.Jobs[i], known)
		j.Rate, j.Window, j.Control, j.Slots, j.Iterations = w.Rate, w.Window, w.Control, w.Slots, w.Iterations
		if len(w.Layers) == 0 {
			j.Message = w.Message
		}
		for _, l := range w.Layers {
			j.Layers = append(j.Layers, predictor.Layer{Bytes: l.Bytes, Compute: l.Compute.Seconds()})
		}
		if spec, ok := p.Spec.Job(j.Name); ok {
			j.Start = time.Duration(spec.Start).Seconds()
			j.Submit = j.Start
		}
		req.Jobs = append(req.Jobs, j)
	}
	for _, ph := range phases {
		req.Phases = append(req.Phases, predictor.Phase{Start: ph.Start, End: ph.End, Jobs: ph.Jobs})
	}
	return req, nil
}

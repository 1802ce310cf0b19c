package experiments

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/online"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// externals are the predictors of the spec and the run's own.
func externals(s *spec.Spec, more []predictor.Predictor) ([]predictor.Predictor, error) {
	var out []predictor.Predictor
	if p := s.Predictor; p != nil {
		out = append(out, predictor.Predictor{Name: p.Name, Command: p.Command, Dir: filepath.Dir(s.File), Timeout: time.Duration(p.Timeout)})
	}
	for _, p := range more {
		if err := spec.CheckPredictor(p); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o predictor.Predictor) bool { return o.Name == p.Name }) {
			return nil, spec.Invalidf("two predictors are called %s", p.Name)
		}
		out = append(out, p)
	}
	return out, nil
}

// rehearse asks every predictor about the first point as it is planned, so that one that does not
// work is found before anything is measured.
func (r *run) rehearse(ctx context.Context) error {
	var err error
	if r.external, err = externals(r.spec, r.opt.Predictors); err != nil || len(r.external) == 0 {
		return err
	}
	p := r.points[0]
	if err := r.spec.Askable(); err != nil {
		return spec.Invalid(tomlfile.WithHint("leave --predictor out: what predicts these figures is the simulator, --on sim", "%v", err))
	}
	switch {
	case simulatorOf(p.Spec, r.opt.Driver) != nil:
		r.external = nil
		r.Warn("external predictors were not asked: of a trace they are told what ran on a testbed")
		return nil
	case p.Plan == nil:
		return nil // nothing is placed yet
	}
	req, err := before(r.spec, p)
	if err != nil {
		return err
	}
	for _, x := range r.external {
		if _, err := x.Predict(ctx, req); err != nil {
			return spec.Invalid(err)
		}
	}
	return nil
}

// before is what predictors are told of a point before it runs, in the lab's units.
func before(s *spec.Spec, p study.Planned) (*predictor.Request, error) {
	inv := p.Spec.Inventory()
	setup, err := setupOf(p.Spec, p.Plan, inv, Baseline{}, results.Scale{Mode: "none", Factor: 1})
	if err != nil {
		return nil, err
	}
	var phases []results.Phase
	for _, sp := range timelineOf(p.Spec).spans() {
		phases = append(phases, results.Phase{Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs})
	}
	return request(s, p, inv, setup, Baseline{}, 0, phases, timelineOf(p.Spec).end().Seconds())
}

// Ask adds what the experiment's external predictor and these others say to a plan that NewPlan made.
// The error wraps ErrInput if one cannot be asked, or fails.
func (p *SavedPlan) Ask(ctx context.Context, more []predictor.Predictor) error {
	all, err := externals(p.spec, more)
	if err != nil || len(all) == 0 {
		return err
	}
	if err := p.spec.Askable(); err != nil {
		return spec.Invalid(tomlfile.WithHint("leave --predictor out", "%v", err))
	}
	for i, pt := range p.planned {
		req, err := before(p.spec, pt)
		if err != nil {
			return fmt.Errorf("%s%w", spec.Prefix(pt.Labels), err)
		}
		for _, x := range all {
			a, err := x.Predict(ctx, req)
			if err != nil {
				return spec.Invalid(fmt.Errorf("%s%w", spec.Prefix(pt.Labels), err))
			}
			for k := range a.Phases {
				ph := &p.Points[i].Phases[k]
				ph.External = append(ph.External, answered(x.Name, &a.Phases[k], pt.Spec.Inventory().Topology().Links)...)
			}
		}
	}
	return nil
}

// ask puts what the external predictors say of a point that was measured beside the rest: phases
// are those of steady states, whole is the point from beginning to end. One that fails
// is a warning: what was measured counts without it.
func (r *run) ask(ctx context.Context, p study.Planned, repeat int, setup testbed.Setup, base Baseline, phases []results.Phase, whole *results.Phase) {
	if len(r.external) == 0 {
		return
	}
	inv := r.tb.Inventory()
	var shifted []results.Phase
	for _, ph := range phases {
		ph.Start, ph.End = ph.Start-whole.Start, ph.End-whole.Start
		shifted = append(shifted, ph)
	}
	req, err := request(r.spec, p, inv, setup, base, repeat, shifted, whole.End-whole.Start)
	if err != nil {
		r.Warn(fmt.Sprintf("predictors were not asked: %v", err))
		return
	}
	r.predictWith(ctx, p, req, inv, phases, whole)
}

func (r *run) predictWith(ctx context.Context, p study.Planned, req *predictor.Request, inv *inventory.Inventory, phases []results.Phase, whole *results.Phase) {
	links := inv.Topology().Links
	for _, x := range r.external {
		r.Progress("predict", spec.Labels(p.Labels), 0)
		began := time.Now()
		a, err := x.Predict(ctx, req)
		r.Timing("predict", began)
		if err != nil {
			r.Warn(spec.Prefix(p.Labels) + err.Error())
			continue
		}
		for i := range a.Phases {
			phases[i].Figures = append(phases[i].Figures, answered(x.Name, &a.Phases[i], links)...)
		}
		for _, j := range a.JCT {
			whole.Figures = append(whole.Figures, said(x.Name, "jct", j.Job, *j.Seconds, ""))
		}
	}
}

// said is a figure of a predictor.
func said(name, metric, of string, v float64, bottleneck string) results.Figure {
	f := study.Exactly(metric, of, results.Predicted, v)
	f.Predictor, f.Bottleneck = name, bottleneck
	return f
}

// answered are the figures of a phase.
func answered(name string, a *predictor.PhaseAnswer, links []inventory.DirectedLink) []results.Figure {
	var out []results.Figure
	var goodputs []float64
	for _, j := range a.Jobs {
		if j.Goodput == nil {
			continue // it is local
		}
		out = append(out, said(name, "goodput", j.Name, *j.Goodput, j.Bottleneck))
		goodputs = append(goodputs, *j.Goodput)
		if j.WireRate != nil {
			out = append(out, said(name, "wire_rate", j.Name, *j.WireRate, j.Bottleneck))
		}
		for _, s := range j.Shares {
			out = append(out, said(name, "share", spec.AtSwitch(j.Name, s.Switch), *s.Share, j.Bottleneck))
		}
	}
	if len(goodputs) > 1 {
		out = append(out, said(name, "jain", "goodput", results.JainIndex(goodputs), ""))
	}
	if len(a.Links) == 0 {
		return out
	}
	loads := map[string]float64{}
	for _, l := range a.Links {
		loads[l.Name] = *l.Load
	}
	for _, l := range links {
		out = append(out, said(name, "link_rate", l.Name, loads[l.Name], ""))
	}
	return out
}

// request is what predictors are told of a point. inv, setup and base are in the testbed's units.
func request(s *spec.Spec, p study.Planned, inv *inventory.Inventory, setup testbed.Setup, base Baseline, repeat int, phases []results.Phase, duration float64) (*predictor.Request, error) {
	req, err := network(s, p, inv, setup.Settings, repeat, duration)
	if err != nil {
		return nil, err
	}
	c := conditions(setup, base, nil)
	known, err := placement.Resolve(inv, setup.Plan, c)
	if err != nil {
		return nil, err
	}
	for i := range setup.Plan.Jobs {
		w := &setup.Workloads[i]
		j := described(&setup.Plan.Jobs[i], known)
		j.Rate, j.Window, j.Control, j.Slots, j.Iterations = w.Rate, w.Window, w.Control, w.Slots, w.Iterations
		if len(w.Layers) == 0 {
			j.Message = w.Message
		}
		for _, l := range w.Layers {
			j.Layers = append(j.Layers, predictor.Layer{Bytes: l.Bytes, Compute: l.Compute.Seconds()})
		}
		if spec, ok := p.Spec.Job(j.Name); ok {
			j.Start = time.Duration(spec.Start).Seconds()
		}
		req.Jobs = append(req.Jobs, j)
	}
	for _, ph := range phases {
		req.Phases = append(req.Phases, predictor.Phase{Start: ph.Start, End: ph.End, Jobs: ph.Jobs})
	}
	return req, nil
}

// network is a request without jobs.
func network(s *spec.Spec, p study.Planned, inv *inventory.Inventory, set testbed.Settings, repeat int, duration float64) (*predictor.Request, error) {
	frame := int(frameBits(set.Lanes) / 8)
	req := &predictor.Request{
		Schema: predictor.Schema, Experiment: s.Name, Point: slices.Clone(p.Labels), Repeat: repeat, Seed: set.Seed, Duration: duration,
		Frame: predictor.Frame{Bytes: frame, Payload: 4 * set.Lanes}, Mode: set.Mode, Addressing: set.Addressing, Queue: set.Queue,
		Phases: []predictor.Phase{}, Jobs: []predictor.Job{},
	}
	if req.Point == nil {
		req.Point = []string{}
	}
	topo := inv.Topology()
	for _, h := range inv.Hosts {
		req.Hosts = append(req.Hosts, predictor.Host{Name: h.Name, Rack: h.Rack, GPUs: h.GPUs})
	}
	for i := range inv.Switches {
		sw := &inv.Switches[i]
		req.Switches = append(req.Switches, predictor.Switch{Name: sw.Name, Kind: string(sw.Kind), Tier: topo.Tier(sw.Name),
			Aggregators: placement.Aggregators(sw, set.Aggregators), Buffer: int64(sw.Buffer), ECN: int64(sw.ECN)})
	}
	for _, l := range topo.Links {
		req.Links = append(req.Links, predictor.Link{Name: l.Name, From: l.From, To: l.To, Reverse: topo.Links[l.Reverse].Name,
			Rate: float64(l.Rate), Delay: l.Delay.Seconds()})
	}
	return req, nil
}

// described is a placed job, with what is known of its links and holds.
func described(j *placement.JobPlan, known []placement.Resolved) predictor.Job {
	out := predictor.Job{Name: j.Name, Collective: string(j.Collective), Local: j.Local(), PS: j.PS,
		Workers: []predictor.Worker{}, Tree: []predictor.Node{}, Hops: []string{}, Layers: []predictor.Layer{}}
	var r placement.Resolved
	if i := slices.IndexFunc(known, func(r placement.Resolved) bool { return r.Job == j.Name }); i >= 0 {
		r = known[i]
	}
	out.RTT = r.RTT
	ring := j.Collective == placement.Ring
	up := func(k int) string {
		if !ring && k < len(r.Up) {
			return r.Up[k]
		}
		return ""
	}
	for k, w := range j.Workers {
		out.Workers = append(out.Workers, predictor.Worker{Rank: w.Rank, Host: w.Host, GPUs: w.GPUs, Up: up(k)})
	}
	if ring {
		out.Hops = append(out.Hops, r.Up...)
	}
	for k, n := range j.Tree {
		node := predictor.Node{Switch: n.Switch, Parent: n.Parent, Up: up(len(j.Workers) + k), Aggregate: n.Aggregate && j.Collective == placement.INA}
		if node.Aggregate && k < len(r.Holds) {
			node.Hold = r.Holds[k]
		}
		out.Tree = append(out.Tree, node)
	}
	return out
}

// AskOnline implements study.Runner.
func (r *run) AskOnline(ctx context.Context, b *study.Bench, set testbed.Settings, res *online.Result, names []string, list []online.Job, ph *results.Phase) error {
	if len(r.external) == 0 {
		return nil
	}
	inv := r.tb.Inventory()
	req, err := network(r.spec, b.Planned, inv, set, b.Repeat, res.Summary.Makespan)
	if err != nil {
		return err
	}
	plan := &placement.Plan{}
	c := placement.Conditions{Mode: set.Mode, Addressing: set.Addressing, Aggregators: set.Aggregators, Lanes: set.Lanes, Senders: map[string]placement.Sender{}}
	for i := range res.Jobs {
		j := res.Jobs[i].Plan
		j.Name = names[res.Jobs[i].ID]
		plan.Jobs = append(plan.Jobs, j)
		c.Senders[j.Name] = placement.Sender{Window: list[res.Jobs[i].ID].Window, Control: list[res.Jobs[i].ID].Control}
	}
	known, err := placement.Resolve(inv, plan, c)
	if err != nil {
		return err
	}
	for i := range res.Jobs {
		done, asked := &res.Jobs[i], &list[res.Jobs[i].ID]
		j := described(&plan.Jobs[i], known)
		j.Window, j.Control, j.Start, j.Iterations = asked.Window, asked.Control, done.Start, int64(done.Iterations)
		j.Layers = []predictor.Layer{{Bytes: int64(asked.Bytes), Compute: asked.Compute}}
		req.Jobs = append(req.Jobs, j)
	}
	r.predictWith(ctx, b.Planned, req, inv, nil, ph)
	return nil
}

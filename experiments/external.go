package experiments

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/results"
)

// externals are the predictors of the spec and the run's own.
func externals(s *spec.Spec, more []predictor.Predictor) ([]predictor.Predictor, error) {
	var out []predictor.Predictor
	if p := s.Predictor; p != nil {
		out = append(out, predictor.Predictor{Name: p.Name, Command: p.Command, Dir: filepath.Dir(s.File), Timeout: time.Duration(p.Timeout)})
	}
	for _, p := range more {
		if err := s.CheckPredictor(p); err != nil {
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
	case r.spec.Kind().Virtual && kinds.Simulator(p.Spec, r.opt.Driver) == nil:
		r.unasked(fmt.Sprintf("of %v they are told what is simulated, --on sim", r.spec.Kind()))
		return nil
	case r.opt.Batch != nil:
		r.unasked("a batch system simulates elsewhere, and they are told of what is simulated here")
		return nil
	case p.Plan == nil:
		return nil // nothing is placed yet
	}
	st, ok := kinds.Of(p.Spec).(study.Predicted)
	if !ok {
		return nil
	}
	req, err := st.Request(p)
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
		st, ok := kinds.Of(pt.Spec).(study.Predicted)
		if !ok {
			continue
		}
		req, err := st.Request(pt)
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
				ph.External = append(ph.External, answered(x.Name, &a.Phases[k], req.Links)...)
			}
		}
	}
	return nil
}

// Asks implements study.Runner.
func (r *run) Asks() bool { return len(r.external) > 0 }

// Ask implements study.Runner. A predictor that fails is a warning: what was measured counts without it.
func (r *run) Ask(ctx context.Context, p study.Planned, req *predictor.Request, phases []results.Phase, whole *results.Phase) {
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
			phases[i].Figures = append(phases[i].Figures, answered(x.Name, &a.Phases[i], req.Links)...)
		}
		whole.Figures = append(whole.Figures, completions(x.Name, a.JCT, whole.Figures)...)
	}
}

// unasked has no predictor of others be asked in this run, and says why. What is expected of the experiment's own is skipped.
func (r *run) unasked(why string) {
	r.external = nil
	why = study.Unasked(nil, why)
	r.Warn(why)
	for i := range r.rec.Expect {
		if e := &r.rec.Expect[i]; e.Skip == "" && r.foreign(e) {
			e.Skip = why
		}
	}
}

// foreign says whether an expectation holds what is observed against the experiment's own predictor.
func (r *run) foreign(e *results.Expect) bool {
	return r.spec.Predictor != nil && e.Against == "" && e.Predictor == r.spec.Predictor.Name
}

// askSimulated puts what predictors of others say of a repeat that was simulated beside what it came to.
func (r *run) askSimulated(ctx context.Context, p study.Planned, c *study.Repetition, ph *results.Phase) {
	if !r.Asks() {
		return
	}
	if c.Request == nil {
		r.Warn(study.Unasked(nil, "this study tells them nothing of what it simulates"))
		return
	}
	req, own, err := c.Request(p)
	if err != nil {
		r.Warn(study.Unasked(p.Labels, err.Error()))
		return
	}
	ph.Figures = append(ph.Figures, own...)
	r.Ask(ctx, p, req, nil, ph)
}

// completions are the completion times that a predictor says of jobs; and their mean, where that was observed, which is of all
// jobs there are.
func completions(name string, list []predictor.JCT, observed []results.Figure) []results.Figure {
	var out []results.Figure
	sum := 0.0
	for _, j := range list {
		out = append(out, study.Foretold(name, "jct", j.Job, *j.Seconds, ""))
		sum += *j.Seconds
	}
	if len(list) > 0 && slices.ContainsFunc(observed, func(f results.Figure) bool {
		return f.Metric == meanJCT && f.Of == results.Cluster && f.Kind != results.Predicted
	}) {
		out = append(out, study.Foretold(name, meanJCT, results.Cluster, sum/float64(len(list)), ""))
	}
	return out
}

// meanJCT is the mean of all jobs' completion times.
const meanJCT = "avg_jct"

// answered are the figures of a phase.
func answered(name string, a *predictor.PhaseAnswer, links []predictor.Link) []results.Figure {
	var out []results.Figure
	var goodputs []float64
	for _, j := range a.Jobs {
		if j.Goodput == nil {
			continue // it is local
		}
		out = append(out, study.Foretold(name, "goodput", j.Name, *j.Goodput, j.Bottleneck))
		goodputs = append(goodputs, *j.Goodput)
		if j.WireRate != nil {
			out = append(out, study.Foretold(name, "wire_rate", j.Name, *j.WireRate, j.Bottleneck))
		}
		for _, s := range j.Shares {
			out = append(out, study.Foretold(name, "share", spec.AtSwitch(j.Name, s.Switch), *s.Share, j.Bottleneck))
		}
	}
	if len(goodputs) > 1 {
		out = append(out, study.Foretold(name, "jain", "goodput", results.JainIndex(goodputs), ""))
	}
	if len(a.Links) == 0 {
		return out
	}
	loads := map[string]float64{}
	for _, l := range a.Links {
		loads[l.Name] = *l.Load
	}
	for _, l := range links {
		out = append(out, study.Foretold(name, "link_rate", l.Name, loads[l.Name], ""))
	}
	return out
}

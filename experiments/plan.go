package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/why"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
)

// SavedPlan is a placement to be run later, with everything that it was made from.
type SavedPlan struct {
	Schema     int               `json:"schema"` // 1
	Tool       string            `json:"tool"`
	Experiment results.File      `json:"experiment"`
	Inventory  results.File      `json:"inventory"`
	Overrides  []string          `json:"overrides,omitempty"`
	Points     []study.PlanPoint `json:"points"`

	spec    *spec.Spec
	planned []study.Planned // that NewPlan made it of
}

// NewPlan places the jobs of every point and predicts every phase from the
// inventory alone. A run predicts again, from what it calibrated.
func NewPlan(ctx context.Context, s *spec.Spec, tool string) (*SavedPlan, error) {
	if err := s.Unplanned(); err != nil {
		return nil, err
	}
	points, err := plans(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	inv := s.Inventory()
	out := &SavedPlan{
		Schema: 1, Tool: tool, Overrides: s.Overrides,
		Experiment: results.File{Path: s.File, SHA256: s.SHA256, Text: s.Text},
		Inventory:  results.File{Path: inv.File, SHA256: inv.SHA256, Text: inv.Text},
		spec:       s,
		planned:    points,
	}
	if out.Points, err = predicted(ctx, points); err != nil {
		return nil, err
	}
	return out, nil
}

// predicted is the plan of points of an experiment that can be planned.
func predicted(ctx context.Context, points []study.Planned) (out []study.PlanPoint, err error) {
	for _, p := range points {
		st, ok := kinds.Of(p.Spec).(study.Planner)
		if !ok {
			return nil, fmt.Errorf("%sits study predicts nothing", spec.Prefix(p.Labels))
		}
		pp, err := st.Plan(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s%w", spec.Prefix(p.Labels), err)
		}
		out = append(out, pp)
	}
	return out, nil
}

// Save writes the plan to a file.
func (p *SavedPlan) Save(path string) error {
	b, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o666)
}

// Spec is the experiment that the plan was made for.
func (p *SavedPlan) Spec() *spec.Spec { return p.spec }

// plan is the saved placement of a point, nil if there is none.
func (p *SavedPlan) plan(i int) *placement.Plan {
	if p == nil || i >= len(p.Points) {
		return nil
	}
	return p.Points[i].Plan
}

// ParsePlan reads a saved plan; name is its path for messages. It is refused, with an
// error wrapping ErrInput, when the inventory has changed since: the plan may name what is no
// longer there.
func ParsePlan(name string, text []byte) (*SavedPlan, error) {
	var p SavedPlan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, spec.Invalidf("%s is not a plan: %w", name, err)
	}
	if p.Schema != 1 {
		return nil, spec.Invalidf("plan %s has schema %d, this inabench reads 1", name, p.Schema)
	}
	text = []byte(p.Experiment.Text)
	var inv *inventory.Inventory // nil: the experiment describes it
	if !kinds.Describes(p.Experiment.Path, text, p.Overrides...) {
		var err error
		if inv, err = inventory.Load(p.Inventory.Path); err != nil {
			return nil, spec.Invalidf("plan %s: its inventory: %w", name, err)
		}
		if err := p.stale(name, inv); err != nil {
			return nil, err
		}
	}
	var err error
	if p.spec, err = kinds.Parse(p.Experiment.Path, text, inv, p.Overrides...); err != nil {
		return nil, spec.Invalidf("plan %s: its experiment: %w", name, err)
	}
	if err := p.stale(name, p.spec.Inventory()); err != nil {
		return nil, err
	}
	points := p.spec.Points()
	if len(p.Points) > len(points) {
		return nil, spec.Invalidf("plan %s has %d points, its experiment %d", name, len(p.Points), len(points))
	}
	for i, pt := range p.Points {
		if pt.Plan == nil { // it is placed again
			continue
		}
		if err := errors.Join(checkPlan(points[i].Spec, pt.Plan), placement.Validate(pt.Plan, points[i].Spec.Inventory())); err != nil {
			return nil, spec.Invalidf("plan %s: point %d: %w", name, i, err)
		}
	}
	return &p, nil
}

// checkPlan is an error if a plan is not of the experiment's jobs, in their order.
func checkPlan(s *spec.Spec, plan *placement.Plan) error {
	if len(plan.Jobs) != len(s.Jobs) {
		return fmt.Errorf("it places %d jobs, and the experiment has %d", len(plan.Jobs), len(s.Jobs))
	}
	var errs []error
	for i, want := range s.PlacementJobs() {
		if got := &plan.Jobs[i]; got.Name != want.Name || got.ID != want.ID || got.Collective != want.Collective {
			errs = append(errs, fmt.Errorf("its job %d is %s, with id %d and collective %s; the experiment's is %s, with id %d and collective %s",
				i+1, got.Name, got.ID, got.Collective, want.Name, want.ID, want.Collective))
		}
	}
	return errors.Join(errs...)
}

// stale is an error if the plan was made for another inventory than this.
func (p *SavedPlan) stale(name string, inv *inventory.Inventory) error {
	if inv.SHA256 == p.Inventory.SHA256 {
		return nil
	}
	return &staleError{spec.Invalidf("plan %s was made for another version of %s (sha256 %.12s, now %.12s)",
		name, p.Inventory.Path, p.Inventory.SHA256, inv.SHA256), p.Experiment.Path, name}
}

// staleError is a plan whose inventory has changed.
type staleError struct {
	error
	experiment, plan string
}

func (e *staleError) Unwrap() error { return e.error }

// Hint says how to make the plan anew.
func (e *staleError) Hint() string {
	return fmt.Sprintf("plan again: inabench plan -o %s %s", e.plan, e.experiment)
}

// Explain adds to the plan of every point why its jobs are where they are.
func (p *SavedPlan) Explain(ctx context.Context) error {
	for i, pt := range p.spec.Points() {
		if _, ok := kinds.Of(pt.Spec).(study.Placer); !ok {
			p.Points[i].Why = &study.Why{Policy: pt.Spec.Placement.Policy, Rule: why.Rule(pt.Spec, pt.Spec.Placement.Policy)}
			continue
		}
		placed, err := why.Place(ctx, pt.Spec, pt.Spec.Placement.Policy, pt.Spec.Inventory(), pt.Spec.PlacementJobs(), pt.Spec.Measure.Seed)
		if err != nil {
			return err
		}
		p.Points[i].Why = &placed.Why
	}
	return nil
}

package drivers

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/inabench/inabench/experiments/kinds"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/preflight"
)

const askedRack = `version = 1
[[switch]]
name = "tor1"
kind = "soft"
aggregators = 4096
[[host]]
name = "h[1-3]"
gpus = 1
nic = {port = "tor1/[1-3]", rate = "100Gbit/s", delay = "5us"}
`

const askedJob = `version = 1
inventory = "rack.toml"
[[job]]
name = "A"
hosts = ["h1", "h2"]
ps = "h3"
rate = "1Gbit/s"
`

// plannedPoint is a point of a job, and its plan.
func plannedPoint(t *testing.T, rack string) (spec.Point, study.PlanPoint) {
	t.Helper()
	inv, err := inventory.Parse("rack.toml", []byte(rack))
	if err != nil {
		t.Fatal(err)
	}
	s, err := kinds.Parse("exp.toml", []byte(askedJob), inv)
	if err != nil {
		t.Fatal(err)
	}
	plan := &placement.Plan{Jobs: []placement.JobPlan{
		{ID: 1, Name: "A", Collective: placement.INA, PS: "h3", Workers: []placement.Worker{{Host: "h1"}, {Rank: 1, Host: "h2"}}},
	}}
	if err := placement.BuildTree(inv.Topology(), inv, &plan.Jobs[0]); err != nil {
		t.Fatal(err)
	}
	p, err := placement.Predict(t.Context(), inv, plan, placement.Conditions{Lanes: 240, Senders: map[string]placement.Sender{"A": {Rate: 1e9}}})
	if err != nil {
		t.Fatal(err)
	}
	return spec.Point{Spec: s}, study.PlanPoint{Plan: plan, Phases: []study.PlanPhase{{Predictions: []*placement.Prediction{p}}}}
}

// TestAsks: a point asks hosts of its own inventory; hosts of another one are others, though their names are the same.
func TestAsks(t *testing.T) {
	one, onePlan := plannedPoint(t, askedRack)
	two, twoPlan := plannedPoint(t, strings.Replace(askedRack, "5us", "6us", 1))
	for _, tt := range []struct {
		points  []spec.Point
		planned []study.PlanPoint
		want    int
	}{
		{nil, nil, 0},
		{[]spec.Point{one}, []study.PlanPoint{{}}, 0}, // no plan
		{[]spec.Point{one}, []study.PlanPoint{onePlan}, 3},
		{[]spec.Point{one, two}, []study.PlanPoint{onePlan, twoPlan}, 3},
		{[]spec.Point{two}, []study.PlanPoint{twoPlan}, 0},
	} {
		asks, err := Asks(one.Spec.Inventory(), tt.points, tt.planned)
		if err != nil || len(asks) != tt.want {
			t.Errorf("%d points: %+v, %v; want %d", len(tt.points), asks, err, tt.want)
		}
	}
}

// TestCeilingOf: what hosts are able to do is looked at where something is asked of them, they are fit, and nobody has left
// the check out, which is then in the record, and predicts nothing.
func TestCeilingOf(t *testing.T) {
	point, plan := plannedPoint(t, askedRack)
	planned := 0
	asked := func(points []study.PlanPoint, err error) Asked {
		return Asking("test", []spec.Point{point}, func() ([]study.PlanPoint, error) {
			planned++
			return points, err
		})
	}
	something, nothing := asked([]study.PlanPoint{plan}, nil), asked([]study.PlanPoint{{}}, nil)
	unknown := asked(nil, errors.New("too much\nto follow"))
	over := errors.New("the run is over")
	fit := results.Preflight{Name: preflight.Clock, Host: "h1", Outcome: results.Pass}
	unfit := results.Preflight{Name: preflight.Clock, Host: "h1", Outcome: results.Fail}
	for _, tt := range []struct {
		name  string
		asked Asked
		skip  []string
		found results.Preflight
		why   string // the ceiling is skipped; "": it is not looked at
		plans int    // more
	}{
		{"not planned", Asked{}, nil, fit, "", 0},
		{"hosts are not fit", something, nil, unfit, "", 0},
		{"left out", something, []string{preflight.Ceiling}, fit, omitted, 0},
		{"another is left out", something, []string{preflight.Disk}, fit, "not asked", 1}, // the run is over
		{"once more", something, nil, fit, "not asked", 0},
		{"nothing is asked", nothing, nil, fit, "", 1},
		{"not predicted", unknown, nil, fit, "nothing says what is asked of hosts: too much to follow", 1},
	} {
		before := planned
		s := *point.Spec
		s.Preflight.Skip = tt.skip
		look := tt.asked.ceilingOf(&s, func(context.Context, []preflight.Host) ([]results.Preflight, []results.HostFacts, error) {
			all := []results.Preflight{tt.found}
			return all, nil, preflight.Err(all)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over) // so that nobody is asked
		h := preflight.Host{}
		h.Name = "h1"
		all, _, err := look(ctx, []preflight.Host{h})
		if (err != nil) != (tt.found.Outcome == results.Fail) {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got results.Preflight
		if len(all) > 1 {
			got = all[1]
		}
		if tt.why == "" && len(all) != 1 || tt.why != "" && (got.Name != preflight.Ceiling || got.Outcome != results.Skipped || got.Why != tt.why) {
			t.Errorf("%s: %+v, want %q", tt.name, all, tt.why)
		}
		if planned-before != tt.plans {
			t.Errorf("%s: planned %d times, want %d", tt.name, planned-before, tt.plans)
		}
	}
}

// TestBMv2Refuses: what switches that are BMv2 cannot do, or do not count, is refused before anything is emulated.
func TestBMv2Refuses(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	inv, err := inventory.Parse("rack.toml", []byte(askedRack))
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(how string) *spec.Spec {
		s, err := kinds.Parse("exp.toml", []byte(askedJob+"[emulation]\nswitch = \"bmv2\"\n[[link_state]]\nof = \"h1->tor1\"\n"+how+"\n"), inv)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	trees, err := kinds.Load("../mina-pairs.toml", "emulation.switch=bmv2", "emulation.offload=false")
	if err != nil {
		t.Fatal(err)
	}
	const uncounted, exclusive, missing = "cables that lose or double packets between switches that are BMv2", "exclusive trees in switches that are BMv2", "simple_switch_grpc is not on PATH"
	for _, c := range []struct {
		name, want string
		s          *spec.Spec
	}{
		{"cables that lose", uncounted, damaged("loss = 0.01")},
		{"cables that double", uncounted, damaged("duplicate = 0.01")},
		{"cables that hold back, which changes no count", missing, damaged("reorder = 0.01\nreorder_by = \"1ms\"")},
		{"trees", exclusive, trees},
	} {
		if err := Check(c.s, "netns"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err := Check(c.s, "sim"); err != nil {
			t.Errorf("%s, in the model: %v", c.name, err)
		}
	}
}

package exact_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/exact"
	"github.com/inabench/inabench/placement/exact/cbc"
	"github.com/inabench/inabench/placement/exact/lp"
	"github.com/inabench/inabench/testbed/testbedtest"
)

// told is a Solver that answers as it is told, one answer after the other, and keeps what it was asked.
type told struct {
	answers []lp.Answer
	asked   []string
	limits  []time.Duration
}

func (s *told) Minimise(_ context.Context, p *lp.Program, limit time.Duration) (lp.Answer, error) {
	s.asked, s.limits = append(s.asked, p.String()), append(s.limits, limit)
	a := s.answers[len(s.asked)-1]
	a.Solver, a.Version, a.Elapsed = "told", "1.0", time.Second
	return a, nil
}

// tiny is two servers of a GPU each, and a job of two GPUs: a worker on each, the PS beside one of them, whose
// link of 1 bit/s both fill at 0.5 bit/s. That takes 16 s for 8 bytes, as sizes and rates are in one unit.
func tiny(t *testing.T) exact.Instance {
	t.Helper()
	in, err := exact.Parse(strings.NewReader("rack 0.5 1\nserver 0 1 1\nserver 0 1 1\njob 2 8"))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// solved are the values of the variables of tiny's optimum, with c as they say.
func solved(c float64) map[string]float64 {
	return map[string]float64{"x_0_0": 1, "x_0_1": 1, "w_0_0": 1, "w_0_1": 0.9999999, "y_0_0": 1, "z_0_0": 1, "v_0": 0.5, "a_0_0": 0.5, "c_0": c}
}

// The program of a tiny instance, to be read beside the package's documentation.
func TestProgramText(t *testing.T) {
	s := &told{answers: []lp.Answer{{Status: lp.Optimal, Objective: 2000, Bound: 2000, Values: solved(2)}}}
	if _, err := exact.Solve(t.Context(), tiny(t), exact.Options{Solver: s}); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/tiny.lp"
	if *update {
		if err := os.WriteFile(golden, []byte(s.asked[0]), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if s.asked[0] != string(want) {
		t.Errorf("%s (-run TestProgramText -update rewrites it):\n%s", golden, s.asked[0])
	}
}

// What becomes of what a solver answers.
func TestProgramAnswers(t *testing.T) {
	stopped := func(bound float64, values map[string]float64) lp.Answer {
		return lp.Answer{Status: lp.Stopped, Objective: 2000, Bound: bound, Values: values}
	}
	for name, tt := range map[string]struct {
		answers []lp.Answer
		want    exact.Proof // but for who solved it
	}{
		"optimal":                     {[]lp.Answer{{Status: lp.Optimal, Objective: 2000, Bound: 2000, Values: solved(2)}}, exact.Proof{Status: lp.Optimal, Bound: 16, Seconds: 1, Programs: 1}},
		"optimal as far as it counts": {[]lp.Answer{{Status: lp.Optimal, Objective: 1999.9, Bound: 1999.9, Values: solved(1.9999)}}, exact.Proof{Status: lp.Optimal, Bound: 15.9992, Gap: 0.00005, Seconds: 1, Programs: 1}},
		"optimal within its own gap":  {[]lp.Answer{{Status: lp.Optimal, Objective: 2000, Bound: 1999, Values: solved(2)}}, exact.Proof{Status: lp.Stopped, Bound: 15.992, Gap: 0.0005, Seconds: 1, Programs: 1}},
		"optimal with finer tangents": {[]lp.Answer{
			{Status: lp.Optimal, Objective: 1900, Bound: 1900, Values: solved(1.9)},
			{Status: lp.Optimal, Objective: 2000, Bound: 2000, Values: solved(2)},
		}, exact.Proof{Status: lp.Optimal, Bound: 16, Seconds: 2, Programs: 2}},
		"stopped":                      {[]lp.Answer{stopped(1000, solved(2))}, exact.Proof{Status: lp.Stopped, Bound: 8, Gap: 0.5, Seconds: 1, Programs: 1}},
		"stopped without a bound":      {[]lp.Answer{stopped(math.Inf(-1), solved(2))}, exact.Proof{Status: lp.Stopped, Gap: 1, Seconds: 1, Programs: 1}},
		"stopped with nothing further": {[]lp.Answer{{Status: lp.Optimal, Objective: 1900, Bound: 1900, Values: solved(1.9)}, stopped(1950, nil)}, exact.Proof{Status: lp.Stopped, Bound: 15.6, Gap: 0.025, Seconds: 2, Programs: 2}},
	} {
		s := &told{answers: tt.answers}
		got, err := exact.Solve(t.Context(), tiny(t), exact.Options{Solver: s, Limit: 10 * time.Second})
		if err != nil || got.Proof == nil || len(got.Places) != 1 || got.Places[0].String() != "0:1 1:1 ps 0" || math.Abs(got.Cost-16) > 1e-9 {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		p := *got.Proof
		if p.Solver != "told" || p.Version != "1.0" || p.Status != tt.want.Status || p.Programs != tt.want.Programs || p.Seconds != tt.want.Seconds ||
			math.Abs(p.Bound-tt.want.Bound) > 1e-9 || math.Abs(p.Gap-tt.want.Gap) > 1e-9 || got.Optimal() != (tt.want.Status == lp.Optimal) {
			t.Errorf("%s: %+v, want %+v", name, p, tt.want)
		}
		if p.Programs > 1 && (!strings.Contains(s.asked[1], "\ntangent_0_again_0: +1 c_0 +4 v_0 -4 sends_0 >= 0\n") || s.limits[1] != 9*time.Second) {
			t.Errorf("%s: then it had %v for\n%s", name, s.limits[1], s.asked[1])
		}
	}
}

func TestProgramFails(t *testing.T) {
	astray := func(name string) map[string]float64 {
		values := solved(2)
		delete(values, name)
		return values
	}
	optimal := lp.Answer{Status: lp.Optimal, Objective: 2000, Bound: 2000}
	for name, tt := range map[string]struct {
		answer lp.Answer
		values map[string]float64
		is     error
		want   string
	}{
		"infeasible":             {lp.Answer{Status: lp.Infeasible, Bound: math.Inf(-1)}, nil, exact.ErrInfeasible, "told"},
		"no solution in time":    {lp.Answer{Status: lp.Stopped, Bound: 1000}, nil, exact.ErrTime, "told, after 1 s"},
		"fewer GPUs than wanted": {optimal, astray("w_0_1"), cluster.ErrPlacement, "what it placed"},
		"no PS":                  {optimal, astray("y_0_0"), cluster.ErrPlacement, "what it placed"},
		"no place":               {optimal, map[string]float64{}, nil, "without a place"},
		"another cost":           {lp.Answer{Status: lp.Optimal, Objective: 1000, Bound: 1000}, solved(2), nil, "costs 16 s, and by its rates 8 s"},
	} {
		tt.answer.Values = tt.values
		got, err := exact.Solve(t.Context(), tiny(t), exact.Options{Solver: &told{answers: []lp.Answer{tt.answer}}})
		if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || got.Places != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Without a batch the cost is that of the jobs that run, if the solver comes to it in time.
func TestProgramWithoutBatch(t *testing.T) {
	in := tiny(t)
	place := cluster.Placement{Parts: []cluster.Part{{Server: 0, GPUs: 1}, {Server: 1, GPUs: 1}}, PS: []int{0}}
	in.Running, in.Batch = []exact.Running{{Job: in.Batch[0], Place: place}}, nil
	optimal := &told{answers: []lp.Answer{{Status: lp.Optimal, Objective: 2000, Bound: 2000, Values: solved(2)}}}
	if s, err := exact.Solve(t.Context(), in, exact.Options{Solver: optimal}); err != nil || !s.Optimal() || math.Abs(s.Cost-16) > 1e-9 {
		t.Errorf("%+v, %v", s, err)
	}
	stopped := &told{answers: []lp.Answer{{Status: lp.Stopped, Bound: math.Inf(-1)}}}
	if s, err := exact.Solve(t.Context(), in, exact.Options{Solver: stopped}); !errors.Is(err, exact.ErrTime) {
		t.Errorf("out of time: %+v, %v", s, err)
	}
}

// beside is a policy that places all jobs on the servers 0 and 1, with the PS on this one.
type beside int

func (s beside) Name() string { return fmt.Sprintf("beside %d", s) }

func (s beside) Place(c *cluster.Cluster, batch []cluster.Job, _ uint64) []cluster.Placement {
	out := make([]cluster.Placement, len(batch))
	for i, j := range batch {
		p := cluster.Placement{Parts: []cluster.Part{{Server: 0, GPUs: 1}, {Server: 1, GPUs: 1}}, PS: []int{int(s)}}
		if c.Enter(j, p) == nil {
			out[i] = p
		}
	}
	return out
}

// A solver's optimum has its tolerance in the table of gaps, too: a policy that is that little better has
// found it, and is not below it. Here the PS is best on server 1, whose link is a little faster.
func TestGapTolerance(t *testing.T) {
	for name, tt := range map[string]struct {
		link  float64
		below int
	}{"within it": {1.00005, 0}, "beyond it": {1.01, 1}} {
		in, err := exact.Parse(strings.NewReader(fmt.Sprintf("rack 2 1\nserver 0 1 1\nserver 0 1 %v\njob 2 8", tt.link)))
		if err != nil {
			t.Fatal(err)
		}
		c := 2 * tt.link // with the PS on server 0, which the solver says is best
		s := &told{answers: []lp.Answer{{Status: lp.Optimal, Objective: 1000 * c, Bound: 1000 * c, Values: solved(c)}}}
		table, err := exact.Gap(t.Context(), []cluster.Policy{beside(0), beside(1)}, []exact.Instance{in}, exact.Options{Solver: s})
		if err != nil || table.Instances != 1 {
			t.Fatalf("%s: %+v, %v", name, table, err)
		}
		for k, below := range []int{0, tt.below} {
			if r := table.Rows[k]; r.Optimal != 1 || r.Below != below || r.Worst != 1 {
				t.Errorf("%s: %+v, want %d below", name, r, below)
			}
		}
	}
}

// What is no program never comes to a solver.
func TestProgramRefuses(t *testing.T) {
	four := cluster.FatTree(1, 4, 2, 1, 1, 1)
	ring := exact.Running{Job: cluster.Job{GPUs: 2, Traffic: cluster.Ring}, Place: cluster.Placement{Parts: []cluster.Part{{Server: 0, GPUs: 1}, {Server: 1, GPUs: 1}}}}
	for name, tt := range map[string]struct {
		in   exact.Instance
		want error
	}{
		"too many GPUs":      {exact.Instance{Config: four, Batch: []cluster.Job{{GPUs: 9}}}, exact.ErrInfeasible},
		"too large":          {exact.Instance{Config: cluster.FatTree(100, 30, 1, 1, 1, 1), Batch: []cluster.Job{{GPUs: 1}}}, exact.ErrTooLarge},
		"a ring that runs":   {exact.Instance{Config: four, Running: []exact.Running{ring}}, errors.ErrUnsupported},
		"a job on a tree":    {exact.Instance{Config: four, Batch: []cluster.Job{{GPUs: 2, Traffic: cluster.Tree}}}, errors.ErrUnsupported},
		"no such placement":  {exact.Instance{Config: four, Running: []exact.Running{{}}}, cluster.ErrPlacement},
		"nothing to be done": {exact.Instance{Config: four}, nil},
	} {
		if s, err := exact.Solve(t.Context(), tt.in, exact.Options{Solver: &told{}}); !errors.Is(err, tt.want) || s.Places != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// cbc and the enumeration come to the same cost, and no bound of cbc's is above it: in one rack and in two, with
// all there is of PAT, of oversubscription, of jobs that run, and of choice where switches aggregate.
func TestProgramAgrees(t *testing.T) {
	solver, err := cbc.Find()
	testbedtest.Require(t, "cbc", err)
	rounds := 40
	if !proof.Wanted() {
		rounds = 6
	}
	for n := range rounds {
		rnd := rand.New(rand.NewPCG(1, uint64(n)))
		racks := 1 + n%2
		cfg := cluster.FatTree(racks, 4/racks, 2, 1, []float64{0.3, 0, 1, 0.5, math.Inf(1)}[n%5], []float64{1, 3}[n/2%2])
		in := exact.Random(rnd, cfg)
		in.Batch = in.Batch[:min(2, len(in.Batch))]
		sel := n%4 == 3
		want, err := exact.Solve(t.Context(), in, exact.Options{SelectINA: sel})
		if err != nil {
			t.Fatalf("round %d: %v\n%v", n, err, &in)
		}
		got, err := exact.Solve(t.Context(), in, exact.Options{SelectINA: sel, Solver: solver, Limit: 5 * time.Minute})
		if err != nil {
			t.Errorf("round %d: %v\n%v", n, err, &in)
			continue
		}
		if len(in.Running)+len(in.Batch) == 0 {
			continue
		}
		if !got.Optimal() || got.Cost < want.Cost*(1-1e-9) || got.Cost > want.Cost*(1+exact.Tolerance) || got.Proof.Bound > want.Cost*(1+exact.Tolerance) {
			t.Errorf("round %d, selective %v: %v by %+v, %v by enumeration\n%v%v, not %v", n, sel, got.Cost, *got.Proof, want.Cost, &in, got.Places, want.Places)
		}
	}
}

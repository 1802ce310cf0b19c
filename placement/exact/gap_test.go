package exact

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/placement/cluster"
)

// Table is how far policies are from the optimum over instances.
type Table struct {
	Instances int       // solved
	Unsolved  int       // too large for Solve, or their time was up: they count nowhere
	Free      int       // of them, those that cost nothing at best: they have no ratio
	Optimal   []float64 // cost by instance; NaN where unsolved
	Rows      []Row     // in the order of the policies
}

// Row is one policy's. Ratios are its cost over the least cost, at least 1, +Inf where
// it left a job without a place. A cost within Tolerance of what a Solver found is the optimum.
type Row struct {
	Policy             string
	Ratios             []float64 // by instance; NaN where the optimum is 0 or unknown
	Optimal            int       // instances in which it found the optimum
	Paid               int       // instances that cost nothing at best, but did with it
	Below              int       // instances in which it cost less: it chose what Solve was not free to
	Unplaced           int       // instances in which it left a job without a place
	Median, Mean, Tail float64   // of the ratios; Tail is the 95th percentile
	Worst              float64
	WorstAt            int // index of the instance; -1 if none has a ratio
}

// Gap holds policies against Solve. Each policy is asked with the index of the instance
// as its seed. An error is Solve's, but for ErrTooLarge and ErrTime, or says which policy placed what
// cannot be.
func Gap(ctx context.Context, policies []cluster.Policy, instances []Instance, o Options) (*Table, error) {
	t := &Table{}
	for _, p := range policies {
		t.Rows = append(t.Rows, Row{Policy: p.Name(), WorstAt: -1})
	}
	for i, in := range instances {
		best, err := Solve(ctx, in, o)
		if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrTime) || err == nil && !best.Optimal() {
			t.Unsolved++
			t.Optimal = append(t.Optimal, math.NaN())
			for k := range t.Rows {
				t.Rows[k].Ratios = append(t.Rows[k].Ratios, math.NaN())
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("instance %d: %w", i, err)
		}
		t.Instances++
		t.Optimal = append(t.Optimal, best.Cost)
		if best.Cost == 0 {
			t.Free++
		}
		for k, p := range policies {
			cost, err := in.ask(p, uint64(i))
			if err != nil {
				return nil, fmt.Errorf("instance %d: policy %s: %w", i, p.Name(), err)
			}
			t.Rows[k].add(i, cost, &best)
		}
	}
	for k := range t.Rows {
		t.Rows[k].finish()
	}
	return t, nil
}

// ask is what a policy's placement of the batch costs.
func (in *Instance) ask(p cluster.Policy, seed uint64) (float64, error) {
	c, err := in.Cluster()
	if err != nil {
		return 0, err
	}
	for _, place := range p.Place(c, slices.Clone(in.Batch), seed) {
		if len(place.Parts) == 0 {
			return math.Inf(1), nil
		}
	}
	if c.Jobs() != len(in.Running)+len(in.Batch) {
		return 0, fmt.Errorf("%d jobs run of %d", c.Jobs(), len(in.Running)+len(in.Batch))
	}
	return in.cost(c), nil
}

func (r *Row) add(i int, cost float64, optimum *Solution) {
	best, slack := optimum.Cost, 1e-9
	if optimum.Proof != nil {
		slack = Tolerance
	}
	if math.IsInf(cost, 1) {
		r.Unplaced++
	}
	ratio := math.NaN()
	switch {
	case best > 0:
		ratio = max(1, cost/best)
		if r.WorstAt < 0 || ratio > r.Worst {
			r.Worst, r.WorstAt = ratio, i
		}
	case cost > 0:
		r.Paid++
	}
	if cost <= best*(1+slack) {
		r.Optimal++
	}
	if cost < best*(1-slack) {
		r.Below++
	}
	r.Ratios = append(r.Ratios, ratio)
}

func (r *Row) finish() {
	var v []float64
	for _, x := range r.Ratios {
		if !math.IsNaN(x) {
			v = append(v, x)
			r.Mean += x
		}
	}
	if len(v) == 0 {
		r.Mean, r.Median, r.Tail, r.Worst = math.NaN(), math.NaN(), math.NaN(), math.NaN()
		return
	}
	slices.Sort(v)
	r.Mean /= float64(len(v))
	r.Median = (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	r.Tail = v[(len(v)*95+99)/100-1]
}

// String is the table as aligned text.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %8s %8s %8s %8s %8s %6s %8s %6s\n", "policy", "optimal", "median", "mean", "p95", "worst", "at", "unplaced", "below")
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "%-20s %7.1f%% %8.3f %8.3f %8.3f %8.3f %6d %8d %6d\n", r.Policy,
			100*float64(r.Optimal)/float64(t.Instances), r.Median, r.Mean, r.Tail, r.Worst, r.WorstAt, r.Unplaced, r.Below)
	}
	return b.String()
}

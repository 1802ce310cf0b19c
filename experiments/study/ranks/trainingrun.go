package ranks

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
)

// paced is how iterations went, in the time of what they ran on.
type paced struct {
	ends []float64 // s, when the last worker had ended each
	comm []float64 // s, of each: the mean of the workers' communicating
	all  float64   // s, when the last worker had ended the last, also where the times of some are not known
}

// pace is how iterations go whose workers begin the first one together, and every other one
// when they have ended the one before. bits are those of the gradient.
func (t *Training) pace(at []int, bits, compute float64, net collectives.Network) paced {
	pattern := t.operation(len(at)).Pattern()
	begin := make([]float64, len(at)) // of communicating
	for w := range begin {
		begin[w] = compute
	}
	var out paced
	for range t.Iterations {
		ended := pattern.Times(at, bits, net, begin)
		comm := 0.0
		for w := range ended {
			comm += (ended[w] - begin[w]) / float64(len(at))
			begin[w] = ended[w] + compute
		}
		out.ends = append(out.ends, slices.Max(ended))
		out.comm = append(out.comm, comm)
		out.all = out.ends[len(out.ends)-1]
	}
	return out
}

// crossing are the bytes that workers of different machines send each other in an iteration.
func (t *Training) crossing(at []int, bytes float64) float64 {
	p, parts := t.operation(len(at)).Pattern(), 0
	for _, ph := range p.Phases {
		for _, f := range ph.Flows {
			if at[f.From] != at[f.To] {
				parts += ph.Times * f.Volume
			}
		}
	}
	return bytes * float64(parts) / float64(p.Parts)
}

// figures are those of iterations. times is what the testbed multiplies times with.
func (t *Training) figures(kind results.Kind, o *occupied, run paced, crossing, times float64) (out []results.Figure) {
	add := func(metric string, f results.Figure) {
		f.Metric, f.Of, f.Kind, f.Unit = metric, results.Cluster, kind, trainingMetrics[metric].Unit
		if kind == results.Predicted {
			f.Predictor = scheduled
		}
		if kind != results.Measured {
			f = results.Exact(f)
		}
		out = append(out, f)
	}
	exact := func(metric string, v float64) { add(metric, results.Figure{Value: v, Lo: v, Hi: v, N: 2}) }
	took := make([]float64, len(run.ends)-1)
	for i := range took {
		took[i] = run.ends[i+1] - run.ends[i]
	}
	iteration, comm := results.Mean(took), results.Mean(run.comm[1:])
	samples := float64(t.Batch * t.Workers)
	throughput := results.Figure{Value: samples / iteration.Value, Lo: samples / iteration.Hi, Hi: samples / iteration.Lo, N: iteration.N}
	if iteration.Lo <= 0 { // it may be anything: as of a single iteration
		throughput.Lo, throughput.Hi, throughput.N = throughput.Value, throughput.Value, 1
	}
	add("throughput", throughput)
	add("iteration_time", iteration)
	add("iteration_comm_time", comm)
	add("comm_time", comm.Affine(t.epoch(), 0))
	add("epoch_time", iteration.Affine(t.epoch(), 0))
	all := iteration.Affine(t.epoch()*float64(t.Epochs), 0)
	add("training_time", all)
	add("machine_hours", all.Affine(float64(o.used)/times/3600, 0))
	exact("run_time", run.all)
	exact("machine_traffic", crossing)
	if kind != results.Predicted {
		exact("used_machines", float64(o.used))
		exact("idle_machines", float64(len(o.machines)-o.used))
		exact("job_machines", float64(o.own))
		exact("idle_taken", float64(o.taken))
	}
	return out
}

// progress is how many iterations had ended when.
func progress(run paced) []results.Curve {
	c := results.Curve{Metric: "iterations", Unit: "1", Over: "time, s", X: []float64{0}, Y: []float64{0}}
	for i, at := range run.ends {
		c.X, c.Y = append(c.X, at), append(c.Y, float64(i+1))
	}
	return []results.Curve{c}
}

// declared is a network as an inventory has it: cables carry full segments of TCP, and what
// acknowledges those that go the other way.
func (t *Training) declared(inv *inventory.Inventory) collectives.Network {
	topo := inv.Topology()
	net := collectives.Network{
		Worker: float64(t.Local), Acks: collectives.Acks,
		Rate: func(machine int) float64 {
			return float64(inv.Hosts[machine].NICs[0].Rate) / collectives.Wire
		},
	}
	for _, h := range inv.Hosts[1:] {
		if path, err := topo.Path(inv.Hosts[0].Name, h.Name); err == nil {
			net.Latency = max(net.Latency, topo.PathDelay(path).Seconds())
		}
	}
	return net
}

// Simulate implements study.Study.
func (t *Training) Simulate(ctx context.Context, s *spec.Spec, repeat int) (*study.Repetition, error) {
	o, err := t.occupy(ctx, s, s.Measure.Seed+uint64(repeat))
	if err != nil {
		return nil, err
	}
	p, compute := t.profile(s, t.Model)
	run := t.pace(o.at, 8*float64(p.Bytes()), compute, t.declared(s.Inventory()))
	if end := run.ends[len(run.ends)-1]; math.IsInf(end, 1) {
		return nil, spec.Invalidf("a host of the job has a cable that carries nothing")
	}
	rows := make([][]string, len(o.at))
	for rank := range rows {
		rows[rank] = []string{
			strconv.Itoa(rank), o.hosts[rank], strconv.FormatInt(t.Iterations, 10), study.InSeconds(compute * float64(t.Iterations)), "", "",
		}
	}
	return &study.Repetition{
		End: run.ends[len(run.ends)-1], Figures: t.figures(results.Simulated, o, run, t.crossing(o.at, float64(p.Bytes())), 1),
		Curves: progress(run), Machines: o.machines, Rows: rows,
	}, ctx.Err()
}

// Plan implements study.Planner: where the job goes, and what is predicted from what the inventory declares.
func (t *Training) Plan(ctx context.Context, p study.Planned) (study.PlanPoint, error) {
	s := p.Spec
	o, err := t.occupy(ctx, s, s.Measure.Seed)
	if err != nil {
		return study.PlanPoint{}, err
	}
	m, compute := t.profile(s, t.Model)
	bytes := float64(m.Bytes())
	run := t.pace(o.at, 8*bytes, compute, t.declared(s.Inventory()))
	return study.PlanPoint{
		Labels: p.Labels, Machines: o.machines, Figures: t.figures(results.Predicted, o, run, t.crossing(o.at, bytes), 1),
	}, nil
}

// Columns implements study.Study.
func (t *Training) Columns() []string {
	return strings.Fields("rank host iterations compute_s comm_s sums_checked")
}

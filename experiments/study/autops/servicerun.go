package autops

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/stream"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/paramservice"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sim/service"
)

// master are pMaster's options. With limited Aggregators are bounded.
func (o *Service) master(inv *inventory.Inventory, limited bool) paramservice.MasterOptions {
	m := paramservice.MasterOptions{
		Options:     paramservice.Options{LossLimit: o.LossLimit, Most: o.Cluster},
		Aggregators: o.Aggregators, Periodic: o.Period > 0, Threshold: o.Threshold,
		LowPerf: o.LowPerf, Iterations: o.Observe, Interference: o.Interfered,
	}
	if limited && m.Aggregators == 0 {
		_, m.Aggregators = cpuHosts(inv)
	}
	return m
}

// config is the simulation of a point.
func (o *Service) config(s *spec.Spec, seed uint64) service.Config {
	rate := o.Rate
	if rate == 0 {
		rate = spec.NewLab(s.Inventory()).Fastest
	}
	return service.Config{
		Static: o.Mode == staticService, Master: o.master(s.Inventory(), o.Trace == nil), Period: o.Period.Std(),
		Rate: float64(rate), Latency: o.Latency.Std(), Sum: float64(o.Sum) / 8,
		Profile: o.Profile, Packing: o.Packing.Std(), Jitter: o.Jitter, Seed: seed,
		Migrate: o.Migrate, Background: o.Background, From: o.From.Std(), End: o.Duration.Std(), Usage: o.Usage.Std(),
	}
}

// tensors are those of a model, in the order in which they are ready.
func (o *Service) tensors(s *spec.Spec, model string, compute time.Duration) ([]service.Tensor, error) {
	p, ok := s.Models().Lookup(model) // checked
	if !ok {
		return nil, spec.Invalidf("no model %q", model)
	}
	p, err := p.Step(compute)
	if err != nil {
		return nil, spec.Invalidf("model %s: %v", model, err)
	}
	var out []service.Tensor
	var at time.Duration
	for _, l := range p.Layers {
		at += l.Compute
		for _, bytes := range pieces(l.Bytes, int64(o.Slice)) {
			out = append(out, service.Tensor{Bytes: bytes, Ready: at})
		}
	}
	return out, nil
}

// pieces cuts the bytes of whole values into equal parts, at most so large; 0: it does not.
func pieces(bytes, most int64) []int64 {
	n := int64(1)
	if most >= 4 {
		n = (bytes + most - 1) / most
	}
	out := make([]int64, max(n, 1))
	for i := range out {
		k, m := int64(i), int64(len(out))
		out[i] = 4 * (bytes/4*(k+1)/m - bytes/4*k/m)
	}
	return out
}

// serving is a job with the model that it trains.
type serving struct {
	service.Job
	Model string
}

// jobs are those of the table.
func (o *Service) jobs(s *spec.Spec) ([]serving, error) {
	var out []serving
	for i := range o.Table {
		j := &o.Table[i]
		tensors, err := o.tensors(s, j.Model, j.Compute.Std())
		if err != nil {
			return nil, err
		}
		for k, name := range j.names() {
			out = append(out, serving{Model: j.Model, Job: service.Job{
				Name: name, Tensors: tensors, Workers: j.Workers, Servers: j.Servers,
				Arrive: j.Arrive.Std() + time.Duration(k)*j.Every.Std(), Iterations: j.Iterations, Stay: j.Stay.Std(),
			}})
		}
	}
	return out, nil
}

// Ready implements study.Study.
func (o *Service) Ready(p study.Planned) error {
	s := p.Spec
	if o.Trace != nil {
		_, err := o.trace(s, s.Measure.Seed)
		return err
	}
	_, err := o.jobs(s)
	return err
}

// Simulate implements study.Study.
func (o *Service) Simulate(ctx context.Context, s *spec.Spec, repeat int) (*study.Repetition, error) {
	seed := s.Measure.Seed + uint64(repeat)
	if o.Trace != nil {
		return o.replay(ctx, s, seed)
	}
	jobs, err := o.jobs(s)
	if err != nil {
		return nil, err
	}
	cfg := o.config(s, seed)
	plain := make([]service.Job, len(jobs))
	for i := range jobs {
		plain[i] = jobs[i].Job
	}
	res, err := service.Run(ctx, cfg, plain)
	if err != nil {
		return nil, err
	}
	ref, err := alone(ctx, cfg, plain)
	if err != nil {
		return nil, err
	}
	out := &study.Repetition{End: res.End.Seconds(), Curves: serviceCurves(res, plain, ref), Rows: serviceRows(jobs, res)}
	out.Figures, out.Missing = serviceFigures(results.Simulated, res, plain, ref, o.Background > 0)
	if interval := o.Usage.Std(); interval > 0 {
		figures, missing, curves := usage(results.Simulated, res, interval)
		out.Figures, out.Missing, out.Curves = append(out.Figures, figures...), append(out.Missing, missing...), append(out.Curves, curves...)
	}
	if o.Migrate > 0 {
		cfg.Migrate = 0
		still, err := service.Run(ctx, cfg, plain)
		if err != nil {
			return nil, err
		}
		out.Figures = append(out.Figures, stall(results.Simulated, res, still)...)
	}
	return out, nil
}

// drawn is how many intervals a curve of a core's use has: the last ones. More cannot be told apart.
const drawn = 500

// usage is how unevenly each Aggregator's core is in use, interval by interval: the busiest one, the part of them in which it
// does nothing, and a curve. Only whole intervals count; of an Aggregator that has more than can be kept nothing is told.
func usage(kind results.Kind, res *service.Result, interval time.Duration) (figures []results.Figure, missing []results.Missing, curves []results.Curve) {
	for i := range res.Machines {
		m := &res.Machines[i]
		of := strconv.Itoa(i)
		first, end := int((m.From+interval-1)/interval), int(m.To/interval)
		if end > service.MaxUsage {
			for _, metric := range []string{"busy_peak", "idle"} {
				missing = append(missing, results.Missing{Metric: metric, Of: of,
					Why: fmt.Sprintf("usage is so short that there are %d intervals: %d are kept", end, service.MaxUsage)})
			}
			continue
		}
		if first >= end {
			continue
		}
		c := results.Curve{Metric: "busy", Of: of, Unit: "1", Over: "time, s"}
		peak, idle := 0.0, 0
		for k := first; k < end; k++ {
			part := 0.0
			if k < len(m.Usage) {
				part = m.Usage[k]
			}
			if part == 0 {
				idle++
			}
			peak = max(peak, part)
			if k >= end-drawn {
				c.X, c.Y = append(c.X, (time.Duration(k)*interval).Seconds()), append(c.Y, part)
			}
		}
		figures = append(figures, study.Exactly("busy_peak", of, kind, peak), study.Exactly("idle", of, kind, float64(idle)/float64(end-first)))
		if len(c.X) > 1 {
			curves = append(curves, c)
		}
	}
	return figures, missing, curves
}

// standalone is how long an iteration of a job takes alone: as the experiment has it, and with
// servers of its own.
type standalone struct{ own, static time.Duration }

// alone finds out for each job, with nothing else there and nothing going wrong.
func alone(ctx context.Context, cfg service.Config, jobs []service.Job) ([]standalone, error) {
	const iterations = 60 // the first half of them on temporary Aggregators, or moving
	cfg.Migrate, cfg.Background, cfg.End, cfg.Usage, cfg.Master.Periodic = 0, 0, 0, 0, false
	cfg.Profile = min(cfg.Profile, iterations/4)
	mean := func(j service.Job, static bool) (time.Duration, error) {
		cfg := cfg
		cfg.Static = static
		j.Arrive, j.Stay, j.Iterations = 0, 0, iterations
		res, err := service.Run(ctx, cfg, []service.Job{j})
		if err != nil {
			return 0, err
		}
		return res.Jobs[0].Mean(iterations/2, iterations), nil
	}
	out := make([]standalone, len(jobs))
	for i, j := range jobs {
		for k := range jobs[:i] { // copies are alike, but for their names
			if slices.Equal(jobs[k].Tensors, j.Tensors) && jobs[k].Workers == j.Workers && jobs[k].Servers == j.Servers {
				out[i] = out[k]
			}
		}
		if out[i].static > 0 {
			continue
		}
		var err error
		if out[i].static, err = mean(j, true); err != nil {
			return nil, err
		}
		out[i].own = out[i].static
		if !cfg.Static {
			if out[i].own, err = mean(j, false); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// calm is why background flows are not in the time that counts, which begins at from; empty: they are, or tensors have left the
// Aggregator that they disturb.
func calm(res *service.Result, from time.Duration) string {
	i := slices.IndexFunc(res.Changes, func(c service.Change) bool { return c.What == service.Disturbed })
	switch {
	case i < 0:
		return "had no background flows beside it: none began"
	case res.Changes[i].At > from:
		return "trained longest without a change before background flows began"
	}
	for _, c := range res.Changes[i:] {
		if c.At <= from && (c.What == service.Evacuated || c.What == service.Reverted) {
			return ""
		}
	}
	if slices.ContainsFunc(res.Machines, func(m service.Machine) bool { return m.Disturbed && m.To > from }) {
		return ""
	}
	return "trained longest without a change after background flows had ended with their Aggregator"
}

// serviceFigures are what some jobs came to, in the longest time in which nothing changed. beside is that background flows are to
// be there meanwhile.
func serviceFigures(kind results.Kind, res *service.Result, jobs []service.Job, ref []standalone, beside bool) (out []results.Figure, missing []results.Missing) {
	add := func(metric, of string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, study.Exactly(metric, of, kind, v))
		}
	}
	// unseen is what there is not of a job: figures of its own, and those of all jobs, for the others are not all.
	unseen := func(job, why string, more ...string) {
		for _, m := range append(more, "iteration_time", "speed", "speed_static") {
			missing = append(missing, results.Missing{Metric: m, Of: job, Why: fmt.Sprintf("job %s %s", job, why)})
		}
		for _, m := range []string{"avg_speed", "min_speed", "avg_speed_static", "min_speed_static", "avg_iteration_time", "max_loss"} {
			missing = append(missing, results.Missing{Metric: m, Of: results.Cluster, Why: fmt.Sprintf("job %s %s", job, why)})
		}
	}
	from, to := res.Steady()
	at := res.At(to - 1)
	why := ""
	if beside {
		why = calm(res, from)
	}
	var own, static, times []float64
	for i := range res.Jobs {
		j := &res.Jobs[i]
		if !j.Started {
			if jobs[i].Arrive < res.End {
				unseen(jobs[i].Name, "never began", "jct", "loss")
			}
			continue
		}
		add("jct", jobs[i].Name, (j.End - j.Start).Seconds())
		add("loss", jobs[i].Name, j.Loss)
		if why != "" {
			unseen(jobs[i].Name, why)
			continue
		}
		took := j.Between(from, to)
		if took == 0 {
			if j.Start <= from && j.End >= to { // the slowest of all
				unseen(jobs[i].Name, "did no whole iteration while nothing changed")
			}
			continue
		}
		add("iteration_time", jobs[i].Name, took.Seconds())
		times = append(times, took.Seconds())
		own = append(own, float64(ref[i].own)/float64(took))
		static = append(static, float64(ref[i].static)/float64(took))
		add("speed", jobs[i].Name, own[len(own)-1])
		add("speed_static", jobs[i].Name, static[len(static)-1])
	}
	var busy, lost float64
	for i := range res.Machines {
		m := &res.Machines[i]
		busy += m.Busy.Seconds()
		if span := m.To - m.From; span > 0 {
			add("busy", strconv.Itoa(i), float64(m.Busy)/float64(span))
		}
	}
	turns, moves := [3]int{}, 0
	for i := range res.Jobs {
		j := &res.Jobs[i]
		lost = max(lost, j.Loss)
		moves += j.Moved
		for t, n := range j.Turns {
			turns[t] += n
		}
	}
	events := map[service.What]int{}
	for _, c := range res.Changes {
		events[c.What]++
	}
	u := res.Usage(res.End)
	add("aggregators", results.Cluster, float64(at.Aggregators))
	add("servers", results.Cluster, float64(at.Required))
	add("cpu_reduction", results.Cluster, 1-float64(at.Aggregators)/float64(at.Required))
	add("most_aggregators", results.Cluster, float64(u.Most))
	add("cpu_saving", results.Cluster, u.Saved())
	add("cpu_busy", results.Cluster, busy/u.Aggregators)
	if len(own) > 0 && len(missing) == 0 {
		add("avg_speed", results.Cluster, study.Mean(own))
		add("min_speed", results.Cluster, slices.Min(own))
		add("avg_speed_static", results.Cluster, study.Mean(static))
		add("min_speed_static", results.Cluster, slices.Min(static))
		add("avg_iteration_time", results.Cluster, study.Mean(times))
	}
	if len(missing) == 0 {
		add("max_loss", results.Cluster, lost)
	}
	add("moves", results.Cluster, float64(moves))
	add("reverts", results.Cluster, float64(events[service.Reverted]))
	if i := slices.IndexFunc(res.Changes, func(c service.Change) bool { return c.What == service.Reverted }); i >= 0 {
		add("reverted_at", results.Cluster, res.Changes[i].At.Seconds())
	}
	add("evacuations", results.Cluster, float64(events[service.Evacuated]))
	if all := float64(turns[0] + turns[1] + turns[2]); all > 0 {
		add("late", results.Cluster, float64(turns[paramservice.Spare]+turns[paramservice.Postponed])/all)
		add("postponed", results.Cluster, float64(turns[paramservice.Postponed])/all)
	}
	return out, missing
}

// stall is by how much longer jobs take for each time that all their tensors move, against the
// same iterations without moving.
func stall(kind results.Kind, moving, still *service.Result) []results.Figure {
	events := 0
	for _, c := range moving.Changes {
		if c.What == service.Migrated {
			events++
		}
	}
	var longer, iteration time.Duration
	n := 0
	for i := range moving.Jobs {
		a, b := moving.Jobs[i].Iterations, still.Jobs[i].Iterations
		for k := range min(len(a), len(b)) {
			longer += a[k].Took - b[k].Took
			iteration += b[k].Took
			n++
		}
	}
	if events == 0 || n == 0 {
		return nil
	}
	each := longer.Seconds() / float64(events)
	return []results.Figure{
		study.Exactly("stall", results.Cluster, kind, each),
		study.Exactly("stall_part", results.Cluster, kind, each/(iteration.Seconds()/float64(n))),
	}
}

// serviceCurves are the jobs' speeds and the number of Aggregators over time.
func serviceCurves(res *service.Result, jobs []service.Job, ref []standalone) []results.Curve {
	const over = "time, s"
	var out []results.Curve
	for i := range res.Jobs {
		c := results.Curve{Metric: "speed", Of: jobs[i].Name, Unit: "1", Over: over}
		const of = 10 // iterations, as one of them says little
		its := res.Jobs[i].Iterations
		for k := of; k <= len(its); k += of {
			c.X = append(c.X, its[k-1].End.Seconds())
			c.Y = append(c.Y, float64(ref[i].own)/float64(res.Jobs[i].Mean(k-of, k)))
		}
		if len(c.X) > 1 {
			out = append(out, c)
		}
	}
	return append(out, countCurves(res, over, res.End)...)
}

// countCurves are Aggregators and what jobs asked for, as steps.
func countCurves(res *service.Result, over string, until time.Duration) []results.Curve {
	have := results.Curve{Metric: "aggregators", Of: "allocated", Unit: "1", Over: over}
	want := results.Curve{Metric: "aggregators", Of: "asked for", Unit: "1", Over: over}
	step := func(c *results.Curve, at time.Duration, v int) {
		if n := len(c.Y); n > 0 {
			c.X, c.Y = append(c.X, at.Seconds()), append(c.Y, c.Y[n-1])
		}
		c.X, c.Y = append(c.X, at.Seconds()), append(c.Y, float64(v))
	}
	for _, n := range res.Counts {
		if n.At > until {
			break
		}
		step(&have, n.At, n.Aggregators)
		step(&want, n.At, n.Required)
	}
	if n := len(have.Y); n > 0 {
		step(&have, until, int(have.Y[n-1]))
		step(&want, until, int(want.Y[n-1]))
	}
	return []results.Curve{have, want}
}

func serviceRows(jobs []serving, res *service.Result) [][]string {
	out := make([][]string, len(jobs))
	for i := range jobs {
		j, r := &jobs[i], &res.Jobs[i]
		out[i] = []string{j.Name, j.Model, strconv.Itoa(j.Servers), strconv.Itoa(j.Workers), study.InSeconds(j.Arrive.Seconds()), study.InSeconds(r.Start.Seconds()), study.InSeconds(r.End.Seconds()),
			strconv.Itoa(len(r.Iterations)), study.InSeconds(r.Mean(0, len(r.Iterations)).Seconds()), study.InSeconds(r.CPU.Seconds()), strconv.Itoa(r.Moved), study.InSeconds(r.Loss)}
	}
	return out
}

// traceJob is a job of a trace with what it trains.
type traceJob struct {
	service.TraceJob
	Model   string
	Workers int
}

// trace makes the jobs of a trace, without their profiles.
func (o *Service) trace(s *spec.Spec, seed uint64) ([]traceJob, error) {
	t := &stream.Trace{From: o.Trace.From, Jobs: o.Trace.Jobs, Load: o.Trace.Load, Oversized: "clamp"}
	if stream.InFile(t.From) {
		path, err := filepath.Abs(s.Beside(t.From, "service.trace.from"))
		if err != nil {
			return nil, err
		}
		t.From = path
	} else if t.Load == 0 {
		t.Load = 0.8
	}
	tr, err := t.Read(s, seed, s.Inventory().GPUs())
	if err != nil {
		return nil, err
	}
	pick := rand.New(rand.NewPCG(seed, 0x6175_746f_7073))
	out := make([]traceJob, len(tr.Jobs))
	for i, j := range tr.Jobs {
		k := &out[i]
		k.Model = o.Trace.models()[pick.IntN(len(o.Trace.models()))]
		k.Workers = (j.GPUs + o.Trace.GPUs - 1) / o.Trace.GPUs
		k.Name, k.GPUs = j.ID, j.GPUs
		k.Submit, k.Duration = time.Duration(j.Submit*1e9), time.Duration(j.Duration*1e9)
	}
	return out, nil
}

// replay is a long trace in virtual time.
func (o *Service) replay(ctx context.Context, s *spec.Spec, seed uint64) (*study.Repetition, error) {
	jobs, err := o.trace(s, seed)
	if err != nil {
		return nil, err
	}
	cfg := o.config(s, seed)
	type kind struct {
		model   string
		workers int
	}
	known := map[kind]paramservice.Job{}
	plain := make([]service.TraceJob, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		if j.Workers >= o.Trace.Smallest {
			var compute time.Duration
			if at := slices.Index(o.Trace.models(), j.Model); len(o.Trace.Compute) > 0 {
				compute = o.Trace.Compute[at].Std()
			}
			tensors, err := o.tensors(s, j.Model, compute)
			if err != nil {
				return nil, err
			}
			k := kind{j.Model, j.Workers}
			p, ok := known[k]
			if !ok {
				servers := int(math.Ceil(float64(j.Workers) * o.Trace.Servers))
				if p, err = service.Profile(ctx, cfg, service.Job{Name: j.Model, Tensors: tensors, Workers: j.Workers, Servers: servers}); err != nil {
					return nil, fmt.Errorf("profile of %s with %d workers: %w", j.Model, j.Workers, err)
				}
				known[k] = p
			}
			j.Profile = p
			for _, t := range tensors {
				j.Bytes = append(j.Bytes, t.Bytes)
			}
		}
		plain[i] = j.TraceJob
	}
	res, err := service.Replay(ctx, service.ReplayConfig{Master: cfg.Master, Period: cfg.Period, Profiling: o.Trace.Profiling.Std(), GPUs: s.Inventory().GPUs()}, plain)
	if err != nil {
		return nil, err
	}
	// What comes after the last arrival is the tail of the longest jobs, which no cluster sees.
	until := plain[len(plain)-1].Submit
	if until == 0 {
		until = res.End
	}
	return &study.Repetition{End: until.Seconds(), Figures: replayFigures(res, until), Curves: replayCurves(res, until), Rows: replayRows(jobs, res)}, nil
}

// interval is how often the paper looked at what is allocated and asked for.
const interval = time.Minute

func replayFigures(res *service.Result, until time.Duration) (out []results.Figure) {
	add := func(metric string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, study.Exactly(metric, results.Cluster, results.Simulated, v))
		}
	}
	u := res.Usage(until)
	var cpu, lost, moves, speed, served float64
	least := 1.0
	for i := range res.Jobs {
		j := &res.Jobs[i]
		lost = max(lost, j.Loss)
		moves += float64(j.Moved)
		if cpu += j.CPU.Seconds(); j.CPU > 0 {
			served++
			v := j.Work.Seconds() / (j.End - j.Start).Seconds()
			speed += v
			least = min(least, v)
		}
	}
	add("cpu_saving", u.Saved())
	add("aggregators", u.Aggregators/until.Seconds())
	add("servers", u.Required/until.Seconds())
	add("most_aggregators", float64(u.Most))
	add("cpu_busy", cpu/res.Usage(res.End).Aggregators)
	if r := res.Ratios(interval, until); len(r) > 0 {
		above, _ := slices.BinarySearch(r, 1+1e-9) // the first
		add("ratio_above_1", float64(len(r)-above)/float64(len(r)))
		add("ratio_p50", r[len(r)/2])
		add("ratio_p99", r[len(r)*99/100])
		add("ratio_worst", r[len(r)-1])
	}
	if served > 0 {
		add("avg_speed", speed/served)
		add("min_speed", least)
	}
	add("max_loss", lost)
	add("moves", moves)
	return out
}

// replayCurves are Figure 11, and what is behind it.
func replayCurves(res *service.Result, until time.Duration) []results.Curve {
	out := countCurves(res, "time, s", until)
	r := res.Ratios(interval, until)
	if len(r) < 2 {
		return out
	}
	c := results.Curve{Metric: "part_of_time", Unit: "1", Over: "ratio of Aggregators to servers asked for, at most"}
	for i, v := range r {
		if i+1 < len(r) && r[i+1] == v {
			continue
		}
		c.X, c.Y = append(c.X, v), append(c.Y, float64(i+1)/float64(len(r)))
	}
	return append([]results.Curve{c}, out...)
}

func replayRows(jobs []traceJob, res *service.Result) [][]string {
	out := make([][]string, len(jobs))
	for i := range jobs {
		j, r := &jobs[i], &res.Jobs[i]
		iterations, each := 0.0, j.Profile.Iteration.Seconds()
		if each > 0 {
			iterations = math.Round(j.Duration.Seconds() / each)
		}
		out[i] = []string{j.Name, j.Model, strconv.Itoa(j.Profile.Servers), strconv.Itoa(j.Workers), study.InSeconds(j.Submit.Seconds()), study.InSeconds(r.Start.Seconds()), study.InSeconds(r.End.Seconds()),
			study.InSeconds(iterations), study.InSeconds(each), study.InSeconds(r.CPU.Seconds()), strconv.Itoa(r.Moved), study.InSeconds(r.Loss)}
	}
	return out
}

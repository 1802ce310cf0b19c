package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/inabench/inabench/experiments/online"
	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/queue"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// clusterConfig is the spec's cluster as policies see it.
func clusterConfig(s *spec.Spec) cluster.Config {
	used := placement.ClusterOf(placement.WithMemory(s.Inventory(), s.Switch.Aggregators))
	if s.FatTree == nil {
		return used
	}
	cfg := s.FatTree.Config()
	for i := range cfg.Servers {
		cfg.Servers[i].Delay = used.Servers[i].Delay
	}
	for i := range cfg.Racks {
		cfg.Racks[i].Delay = used.Racks[i].Delay
		if s.Switch.Aggregators > 0 { // in place of fat_tree.pat, as on a testbed
			cfg.Racks[i].PAT = used.Racks[i].PAT
		}
	}
	return cfg
}

// stopwatch takes the time of a policy.
type stopwatch struct {
	cluster.Policy
	spent  time.Duration
	placed int
}

// Unwrap is for cluster.Err.
func (p *stopwatch) Unwrap() cluster.Policy { return p.Policy }

func (p *stopwatch) Place(c *cluster.Cluster, batch []cluster.Job, seed uint64) []cluster.Placement {
	began := time.Now()
	out := p.Policy.Place(c, batch, seed)
	p.spent += time.Since(began)
	for i := range out {
		if len(out[i].Parts) > 0 {
			p.placed++
		}
	}
	return out
}

// mean is the seconds that placing a job took.
func (p *stopwatch) mean() float64 { return p.spent.Seconds() / max(1, float64(p.placed)) }

// Simulate implements study.Study.
func (t *Trace) Simulate(ctx context.Context, s *spec.Spec, repeat int) (*study.Repetition, error) {
	seed := s.Measure.Seed + uint64(repeat)
	cfg := replay.Config{
		Cluster: clusterConfig(s), Period: t.Period.Std().Seconds(), Seed: seed, Lanes: s.Switch.Lanes,
		Queue: queue.Discipline(t.Queue), Collective: reductions[t.Collective], Price: replay.Pricing(t.Pricing).Price,
	}
	jobs, err := t.jobs(s, seed, cfg.Cluster.GPUs())
	if err != nil {
		return nil, err
	}
	p, end, err := t.policy(ctx, s)
	if err != nil {
		return nil, err
	}
	defer end()
	var shot *snapshot
	if cfg.Collective != nil && repeat == 0 && cfg.Queue == queue.Policy { // policies are about where GPUs are left over, and see all that wait
		p, shot = withSnapshot(p, s.Inventory(), jobs)
		cfg.Asking = func(now float64) { shot.now = now }
	}
	watch := &stopwatch{Policy: p}
	cfg.Policy = watch
	if t.Fidelity == replay.Phases.String() {
		cfg.Fidelity = replay.Phases
	}
	list := make([]replay.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].Job
	}
	res, err := replay.Run(ctx, cfg, list)
	if err != nil {
		return nil, blamed(s, err)
	}
	out := &study.Repetition{
		End:     res.Summary.Makespan,
		Figures: append(traceSummary(s, &res.Summary, watch.mean(), results.Simulated), t.machineFigures(&res.Summary)...),
		Curves:  append(traceCurves(&res.Series, float64(cfg.Cluster.GPUs())), t.machineCurves(&res.Series)...),
		Rows:    traceRows(jobs, res.Jobs),
		Request: func(p study.Planned) (*predictor.Request, []results.Figure, error) {
			return t.simulatedRequest(p, repeat, jobs, res.Jobs)
		},
	}
	if shot != nil {
		out.Machines, out.MachinesAt = shot.machines, shot.at
	}
	return out, nil
}

// Run implements study.Study: jobs come, are placed, and run for real.
func (t *Trace) Run(ctx context.Context, b *study.Bench) (point *results.Point, rows [][]string, err error) {
	point = &results.Point{}
	tb := b.Testbed()
	s, inv, scale := b.Spec, tb.Inventory(), b.Scale()
	settings := study.SettingsOf(s, s.Switch.Aggregators)
	if s.FatTree != nil && settings.Aggregators == 0 {
		nic := inv.Hosts[0].NICs[0]
		settings.Aggregators = placement.Memory(float64(s.FatTree.PAT)/scale.Factor, float64(nic.Rate), nic.Delay)
	}
	cfg := online.ClusterOf(inv, settings)
	seed := b.Seed()
	jobs, err := t.jobs(s, seed, cfg.GPUs())
	if err != nil {
		return point, nil, err
	}
	pol, end, err := t.policy(ctx, s)
	if err != nil {
		return point, nil, err
	}
	defer end()
	watch := &stopwatch{Policy: pol}
	times, bytes := study.Factors(scale)
	list, plain, names := make([]online.Job, len(jobs)), make([]replay.Job, len(jobs)), make([]string, len(jobs))
	for i := range jobs {
		j := &jobs[i].Job
		j.Submit, j.Compute, j.Bytes = j.Submit*times, j.Compute*times, j.Bytes*bytes
		list[i] = online.Job{Job: *j, Window: t.Window, Control: t.Control}
		plain[i], names[i] = *j, jobs[i].Name
	}
	mend, err := b.Sabotage(ctx)
	if err != nil {
		return point, nil, err
	}
	defer func() { point.Sabotaged = mend() }()
	b.Status("run", b.Left())
	began := time.Now()
	dep, err := tb.Deploy(ctx, testbed.Setup{Plan: &placement.Plan{Policy: pol.Name()}, Settings: settings})
	if err != nil {
		return point, nil, fmt.Errorf("deploy: %w", err)
	}
	b.Timing("deploy", began)
	defer func() {
		if cerr := dep.Close(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("undeploy: %w", cerr))
		}
	}()
	clock := (b.Now() - dep.Now()).Seconds()   // of the run, ahead of the deployment's
	if _, err := dep.Health(ctx); err != nil { // begins a new interval
		return point, nil, err
	}
	still, err := study.WatchStalls(ctx, dep.Stalls, clock)
	if err != nil {
		return point, nil, err
	}
	began = time.Now()
	ahead := study.Clocks{}
	origin := clock + dep.Now().Seconds() // of the jobs' times
	res, err := online.Run(ctx, online.Config{
		Policy: watch, Queue: queue.Discipline(t.Queue), Inventory: inv, Settings: settings, Cluster: cfg, Seed: seed,
		Period: time.Duration(float64(t.Period) * times), Interval: max(time.Second, time.Duration(s.Measure.Interval)), IDs: tb.Capabilities().Jobs,
		Sample: func(got []results.Sample) error {
			ahead.Hear(got, dep.Now())
			for i := range got {
				got[i].T += clock
			}
			b.Placed.Keep(nil, got)
			return errors.Join(still.Read(ctx), b.Keep(got...))
		},
	}, dep, list)
	b.Timing("measure", began)
	b.Placed.Names, b.Placed.Begun, b.Placed.Iteration, b.Placed.Once = map[string]string{}, map[string]float64{}, map[string]float64{}, true
	for i := range res.Jobs {
		j := &res.Jobs[i]
		b.Placed.Plan.Jobs = append(b.Placed.Plan.Jobs, j.Plan)
		b.Placed.Begun[j.Plan.Name] = origin + j.Issued
		frames := collectives.FramesOf(int64(math.Round(plain[j.ID].Bytes)), s.Switch.Lanes)
		b.Placed.Iteration[j.Plan.Name] = float64(frames.PSNs())
		still.Jobs = append(still.Jobs, study.Ran{Job: j.Plan.Name, Start: origin + j.Start, End: origin + j.End})
		point.Findings = append(point.Findings, ahead.Wrong(&j.Plan)...)
	}
	why := still.Judge(point)
	if err != nil {
		return point, nil, blamed(s, err)
	}
	health, err := dep.Health(ctx)
	if err != nil {
		return point, nil, err
	}
	point.Health = append(point.Health, health...)
	kind := b.Kind()
	ph := results.Phase{Start: origin, End: origin + res.Summary.Makespan, Stood: why}
	ph.Figures = traceSummary(s, &res.Summary, watch.mean(), kind)
	again, err := replay.Run(ctx, replay.Config{
		Cluster: cfg, Policy: online.Recorded(res.Replayed()), Fidelity: replay.Phases,
		Lanes: s.Switch.Lanes,
	}, online.Restarted(plain, res.Replayed()))
	if err != nil {
		return point, nil, fmt.Errorf("simulate what ran: %w", err)
	}
	predicted, limit := map[int]float64{}, map[int]string{}
	for i := range again.Jobs {
		j := &again.Jobs[i]
		predicted[j.ID], limit[j.ID] = j.JCT(), "computing"
		if j.DE() < 0.5 { // it waits for the network for more than half of its time
			limit[j.ID] = "network"
		}
	}
	for i := range res.Jobs {
		j := &res.Jobs[i]
		sum := j.Summary
		sum.Job, sum.Asked = jobs[j.ID].Name, int64(plain[j.ID].Iterations)
		b.Placed.Names[sum.Job] = j.Plan.Name
		point.Jobs = append(point.Jobs, sum)
		ph.Jobs = append(ph.Jobs, sum.Job)
		f := study.Exactly("jct", sum.Job, kind, j.JCT())
		f.N = max(2, j.Iterations) // it is their sum
		ph.Figures = append(ph.Figures, f)
		ph.Figures = append(ph.Figures, study.Foretold(spec.Replayed, "jct", sum.Job, predicted[j.ID], limit[j.ID]))
		if tb.Capabilities().Sums {
			ph.Figures = append(ph.Figures, study.Exactly("sum_errors", sum.Job, kind, float64(sum.SumErrors)))
		}
	}
	ask(ctx, b, settings, res, names, list, &ph)
	point.Phases = []results.Phase{ph}
	return point, traceRows(jobs, res.Replayed()), nil
}

// traceSummary is a trace in figures. The time of placing, which is another in every run, is
// only there where it is asked for, and how busy links and memories are in the mean nobody measures of a testbed.
func traceSummary(s *spec.Spec, sum *replay.Summary, placing float64, kind results.Kind) []results.Figure {
	var out []results.Figure
	for _, f := range []struct {
		metric string
		value  float64
	}{
		{"avg_jct", sum.JCT}, {"avg_jct_queued", sum.JCTQueued}, {"makespan", sum.Makespan}, {"network_time", sum.Network},
		{"queueing", sum.QueueMean}, {"queueing_p95", sum.QueueP95}, {spec.PlacementTime, placing},
		{"de", sum.DE}, {"de_queued", sum.DEQueued},
		{"gpu_utilisation", sum.GPUs}, {"link_utilisation", sum.Links}, {"aggregator_utilisation", sum.Aggregators},
	} {
		unseen := kind == results.Measured && (f.metric == "link_utilisation" || f.metric == "aggregator_utilisation")
		if !unseen && (f.metric != spec.PlacementTime || s.Timed()) {
			out = append(out, study.Exactly(f.metric, results.Cluster, kind, f.value))
		}
	}
	return out
}

// traceCurves are how busy the cluster was over time.
func traceCurves(s *replay.Series, gpus float64) []results.Curve {
	return []results.Curve{
		overHours(s, "gpu_utilisation", "1", s.GPUs, gpus), overHours(s, "waiting_jobs", "1", s.Waiting, 1),
		overHours(s, "link_utilisation", "1", s.Links, 1),
	}
}

// overHours is a curve of a series' values.
func overHours(s *replay.Series, metric, unit string, y []float64, of float64) results.Curve {
	c := results.Curve{Metric: metric, Unit: unit, Over: "time, h", Y: make([]float64, len(y)), X: make([]float64, len(y))}
	for i := range y {
		c.X[i], c.Y[i] = (s.From+(float64(i)+0.5)*s.Step)/3600, y[i]/of
	}
	return c
}

// profits says whether a simulation knows jobs' durations before they end.
func (t *Trace) profits() bool {
	return t.Fidelity == replay.Fluid.String() || reductions[t.Collective] != nil
}

// machineFigures are Titan's figures of a simulation.
func (t *Trace) machineFigures(sum *replay.Summary) []results.Figure {
	var out []results.Figure
	for _, f := range []struct {
		metric string
		value  float64
		there  bool
	}{
		{"used_machines", sum.Machines, true}, {"machine_hours", sum.MachineHours, true}, {"fragmentation", sum.Fragmentation, true},
		{"cross_traffic", sum.Crossing, reductions[t.Collective] != nil},
		{"profit_rate", sum.Profit, t.profits()}, {"total_profit", sum.ProfitTotal, t.profits()},
	} {
		if f.there {
			out = append(out, study.Exactly(f.metric, results.Cluster, results.Simulated, f.value))
		}
	}
	return out
}

// machineCurves are Titan's figures over time, in its simulator.
func (t *Trace) machineCurves(s *replay.Series) []results.Curve {
	if reductions[t.Collective] == nil {
		return nil
	}
	return []results.Curve{
		overHours(s, "used_machines", "1", s.Machines, 1), overHours(s, "machine_hours", "1", s.MachineHours(), 1),
		overHours(s, "fragmentation", "1", s.Fragmentation, 1), overHours(s, "cross_traffic", "B", s.Crossing, 1),
		overHours(s, "profit_rate", "1", s.Profit, 1), overHours(s, "total_profit", "1", s.ProfitTotal, 1),
	}
}

// Columns implements study.Study.
func (t *Trace) Columns() []string {
	return []string{"job", "model", "submit_s", "start_s", "end_s", "gpus", "iterations", "compute_s", "waited", "servers", "racks", "de"}
}

// traceRows are what became of the jobs.
func traceRows(jobs []traced, done []replay.JobResult) [][]string {
	out := make([][]string, len(done))
	for i := range done {
		j := &done[i]
		out[i] = []string{
			jobs[j.ID].Name, jobs[j.ID].Model, study.InSeconds(j.Submit), study.InSeconds(j.Start), study.InSeconds(j.End),
			strconv.Itoa(j.GPUs), strconv.Itoa(j.Iterations), study.InSeconds(j.Compute),
			strconv.Itoa(j.Waited), strconv.Itoa(j.Servers), strconv.Itoa(j.Racks), strconv.FormatFloat(j.DE(), 'g', 6, 64),
		}
	}
	return out
}

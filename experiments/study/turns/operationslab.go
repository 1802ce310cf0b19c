package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/collective"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// operated is the predictor of what jobs did on a testbed: the simulator, with the cost of
// an all-reduce that was calibrated there.
const operated = "operations"

// words of an agent for who asks for INA.
var asking = map[string]string{"mina": "shared", "greedy": "greedy", "none": "exclusive", "never": "none", "always": "exclusive"}

// Run implements study.Study: jobs come, get hosts and trees, and reduce their gradients for real.
// With an error the point has what was measured of jobs that had ended.
func (o *Operations) Run(ctx context.Context, b *study.Bench) (point *results.Point, rows [][]string, err error) {
	point = &results.Point{}
	tb, err := b.Hosts("jobs that share trees")
	if err != nil {
		return point, nil, err
	}
	s, seed := b.Spec, b.Seed()
	jobs, err := o.jobs(s, seed)
	if err != nil {
		return point, nil, err
	}
	shrink(jobs, b.Scale())
	cost, err := o.calibrate(ctx, b, tb, jobs)
	if err != nil {
		return point, nil, fmt.Errorf("calibrate: %w", err)
	}
	come, err := o.training(jobs, cost.Cost)
	if err != nil {
		return point, nil, err
	}
	point.Health = slices.Clone(cost.health)
	mend, err := b.Sabotage(ctx)
	if err != nil {
		return point, nil, err
	}
	defer func() { point.Sabotaged = mend() }()
	finished := o.expected(b, jobs, cost.Cost)

	b.Status("measure", finished())
	began := time.Now()
	control, err := o.controller(ctx, b, tb, seed, o.Sharing, cost.Cost)
	if err != nil {
		return point, nil, err
	}
	defer func() {
		if cerr := control.Close(); err == nil { // otherwise it is another word for that
			err = cerr
		}
	}()
	names := map[int]string{}
	for i := range jobs {
		names[i+1] = jobs[i].Name
	}
	counters, err := b.Sampler(ctx, tb, names)
	if err != nil {
		return point, nil, err
	}
	counters.Names, counters.Left = ofTrees, finished
	still, err := b.WatchStalls(ctx, tb)
	counters.Still = still
	if err == nil {
		_, err = tb.Health(ctx) // begins a new interval
	}
	if err != nil {
		return point, nil, err
	}
	before, err := counters.Sample(ctx)
	if err != nil {
		return point, nil, err
	}
	b.Placed.Keep(ofTrees, before)
	b.Timing("deploy", began)

	began = time.Now()
	ph := results.Phase{Start: b.Now().Seconds()}
	done := o.maintain(ctx, tb.Inventory(), control)
	out, err := training.Run(ctx, training.Config{
		Hosts: tb, Controller: control, Agent: o.agent(tb, s, seed, o.Sharing, b.Beat()), Now: b.Now,
		Sample: func(ctx context.Context, reports []results.Sample) error { return counters.Read(ctx, reports...) },
	}, come)
	ph.End = b.Now().Seconds()
	settle(&b.Placed, ph.Start, out, control.Events(), tb.Inventory())
	if merr := done(); err == nil {
		err = merr
	}
	b.Timing("measure", began)
	health, herr := unwell(ctx, tb, out)
	point.Health = append(point.Health, health...)
	for i := range out {
		j := &out[i]
		still.Keep(j.Stalls)
		over := ph.End
		if j.End > 0 {
			over = ph.Start + j.End.Seconds()
		}
		still.Jobs = append(still.Jobs, study.Ran{Job: j.Name, Start: ph.Start + j.Start.Seconds(), End: over})
	}
	ph.Stood = still.Judge(point)
	if kerr := controlled(b, control.Events()); err == nil {
		err = errors.Join(herr, kerr)
	}
	slices.SortFunc(out, func(a, b training.Outcome) int { return int(a.ID) - int(b.ID) })
	var sims []*ops.Result
	if err == nil {
		if sims, err = o.again(ctx, s, seed, cost, jobs, out); err != nil {
			err = fmt.Errorf("simulate what ran: %w", err)
		}
	}
	ph.Figures = o.measured(b.Kind(), out, control.Events())
	collected, short := o.patternErrors(b.Kind(), jobs, out)
	ph.Figures = append(ph.Figures, collected...)
	if b.Spec.Asks("pattern_error") {
		ph.Missing = append(ph.Missing, short...)
	}
	again := middle(sims)
	if again != nil {
		ph.Figures = append(ph.Figures, o.predicted(jobs, sims)...)
		ph.Figures = append(ph.Figures, counters.Links.Figures(ph.Start, ph.End)...)
	}
	for i := range out {
		j := &out[i]
		sum := summarise(j)
		sum.Asked = int64(jobs[j.ID-1].Steps)
		point.Jobs = append(point.Jobs, sum)
		ph.Jobs = append(ph.Jobs, j.Name)
		if j.End > 0 {
			rows = append(rows, labRow(&jobs[j.ID-1], j, again))
		}
	}
	if len(ph.Figures) > 0 {
		point.Phases = []results.Phase{ph}
	}
	if err == nil {
		err = o.learned(b, jobs, out)
	}
	return point, rows, err
}

// again simulates jobs that came when those of a testbed did. Who gets a tree first may hang on
// less than what can be calibrated, and all that comes after hangs on that: they are simulated with all the
// costs, in order of score and then of the mean job.
func (o *Operations) again(ctx context.Context, s *spec.Spec, seed uint64, cost calibrated, jobs []named, out []training.Outcome) (all []*ops.Result, err error) {
	cfg, err := o.config(s, seed)
	if err != nil {
		return nil, err
	}
	cfg.Series = false     // nobody looks at them
	cfg.WholeGroup = false // switches and controller let jobs of a group go whose trees do not conflict
	list := unnamed(jobs)
	for i := range list {
		list[i].ID, list[i].Submit = int(number(i)), out[i].Start.Seconds()
	}
	for _, cfg.Cost = range append([]tree.Cost{cost.Cost}, cost.near...) {
		res, err := ops.Run(ctx, cfg, list)
		if err != nil {
			return nil, err
		}
		all = append(all, res)
	}
	slices.SortFunc(all, func(a, b *ops.Result) int {
		x, y := a.Score(o.byHosts()), b.Score(o.byHosts())
		return cmp.Or(cmp.Compare(x.Value, y.Value), cmp.Compare(x.Evaluated, y.Evaluated))
	})
	return all, nil
}

// middle is what is predicted, of simulations in order; nil: of none.
func middle(all []*ops.Result) *ops.Result {
	if len(all) == 0 {
		return nil
	}
	return all[len(all)/2]
}

// measured are the figures of jobs that have ended, and if all of them have those of the
// cluster.
func (o *Operations) measured(kind results.Kind, out []training.Outcome, events []controller.Event) (figures []results.Figure) {
	add := func(metric, of string, v float64) {
		figures = append(figures, ofSteps(metric, of, kind, v))
	}
	var jct, weights, steps, ina float64
	n, cut := float64(len(out)), false
	for i := range out {
		j, t := &out[i], out[i].Training()
		if j.End == 0 {
			cut = true
			continue
		}
		_, wrong := j.Sums()
		add("jct", j.Name, j.JCT)
		add("step_time", j.Name, j.JCT/float64(t.Steps))
		add("sum_errors", j.Name, float64(wrong))
		w := 1.0
		if o.byHosts() { // as ops.Result.Score has it
			w = float64(j.Hosts)
		}
		jct, weights = jct+w*j.JCT, weights+w
		steps, ina = steps+j.JCT/float64(t.Steps)/n, ina+t.Tree.Seconds/j.JCT/n
	}
	if cut || n == 0 {
		return figures
	}
	add("avg_jct", results.Cluster, jct/weights)
	add("avg_step_time", results.Cluster, steps)
	add("ina_utilisation", results.Cluster, ina)
	costs := overheads(out, events)
	for _, metric := range slices.Sorted(maps.Keys(costs)) {
		add(metric, results.Cluster, costs[metric])
	}
	return figures
}

// predicted are the figures of the same jobs in the middle one of simulations, each from the least to the most of what it
// is in all of them: a run may be any.
func (o *Operations) predicted(jobs []named, all []*ops.Result) (figures []results.Figure) {
	add := func(metric, of string, value func(*ops.Result) float64) {
		v := value(middle(all))
		if math.IsNaN(v) {
			return
		}
		f := study.Exactly(metric, of, results.Predicted, v)
		f.Predictor = operated
		for _, res := range all {
			if v := value(res); !math.IsNaN(v) {
				f.Lo, f.Hi = min(f.Lo, v), max(f.Hi, v)
			}
		}
		figures = append(figures, f)
	}
	for i := range jobs {
		add("jct", jobs[i].Name, func(res *ops.Result) float64 { return res.Jobs[i].JCT() })
		add("step_time", jobs[i].Name, func(res *ops.Result) float64 { return res.Jobs[i].JCT() / float64(jobs[i].Steps) })
	}
	add("avg_jct", results.Cluster, func(res *ops.Result) float64 { return res.Score(o.byHosts()).Evaluated })
	add("ina_utilisation", results.Cluster, (*ops.Result).Utilisation)
	add("ina_score", results.Cluster, func(res *ops.Result) float64 { return res.Score(o.byHosts()).Value })
	add("jct_range", results.Cluster, func(res *ops.Result) float64 { return res.Score(o.byHosts()).Range() })
	return figures
}

// summarise is what the ranks of a job reported, also of one that was cut short.
func summarise(j *training.Outcome) results.JobSummary {
	sum := results.JobSummary{Job: j.Name, Workers: len(j.On), Local: len(j.On) == 1, JCT: j.JCT}
	if j.End == 0 {
		sum.JCT = 0 // it was cut short
	}
	if t := j.Training(); t.Ops > 0 && len(j.On) > 1 {
		sum.Ops, sum.OpsINA, sum.OpsRefused = t.Ops, t.INA, t.Refused
		if seconds := t.Tree.Seconds + t.Ring.Seconds + t.Fallback.Seconds; seconds > 0 {
			n := float64(len(j.On))
			sum.AlgBW = 8 * (t.Tree.Bytes + t.Ring.Bytes + t.Fallback.Bytes) / seconds
			sum.BusBW = sum.AlgBW * 2 * (n - 1) / n
		}
	}
	sum.SumsChecked, sum.SumErrors = j.Sums()
	for i := range j.Ranks {
		s := &j.Ranks[i]
		if i == 0 || s.Iterations < sum.Iterations {
			sum.Iterations = s.Iterations
		}
		sum.Packets += s.PacketsSent
		sum.Resends += s.Resends
	}
	return sum
}

// labRow is the row of a job that has ended; without a simulation of it there is less to say.
func labRow(job *named, j *training.Outcome, again *ops.Result) []string {
	row := slices.Repeat([]string{""}, len((*Operations)(nil).Columns()))
	if again != nil {
		row = operationRow(job, &again.Jobs[j.ID-1])
	}
	t := j.Training()
	row[0], row[1], row[2], row[3] = job.Name, job.Pattern.Model, strconv.Itoa(job.Hosts), strconv.Itoa(job.Steps)
	row[4] = study.InSeconds(job.Submit)
	row[5], row[6], row[9] = study.InSeconds(j.Start.Seconds()), study.InSeconds(j.Start.Seconds()+j.JCT), study.InSeconds(t.Tree.Seconds)
	return row
}

// unwell is what limited jobs other than the testbed that is emulated, since it was asked
// last.
func unwell(ctx context.Context, tb *remote.Testbed, out []training.Outcome) ([]results.Trouble, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	all, err := tb.Health(ctx)
	for i := range out {
		for k := range out[i].Ranks {
			s := &out[i].Ranks[k]
			where := fmt.Sprintf("rank %s/%d on host %s", out[i].Name, k, out[i].On[k])
			if s.SocketDrops > 0 {
				all = append(all, results.Trouble{
					Where: where, What: fmt.Sprintf("%d packets lost in the socket before the agent read them", s.SocketDrops),
					Value: float64(s.SocketDrops), Fatal: true,
				})
			}
			t := s.Training
			if t == nil || !(t.JCT > 0) {
				continue
			}
			if trouble, bad := study.Overslept(where, t.Late.Sum, t.JCT, out[i].Stalls); bad {
				all = append(all, trouble)
			}
		}
	}
	return all, err
}

// expected says how long the run still takes: this point, of which the jobs have been shrunk
// and the cost of an all-reduce is known, and all after it, as the simulator has them.
func (o *Operations) expected(b *study.Bench, jobs []named, cost tree.Cost) func() time.Duration {
	simulated := func(o *Operations, s *spec.Spec, seed uint64, jobs []named, cost tree.Cost) time.Duration {
		cfg, err := o.config(s, seed)
		if err != nil {
			return 0 // it will be told when its turn comes
		}
		cfg.Cost, cfg.Series = cost, false
		res, err := ops.Run(context.Background(), cfg, unnamed(jobs))
		if err != nil {
			return 0
		}
		return study.PointOverhead + time.Duration(res.Makespan*float64(time.Second))
	}
	rest := time.Duration(0)
	for _, later := range b.Rest() {
		s, seed := later.Spec, later.Seed()
		o := s.Study().(*Operations)
		if next, err := o.jobs(s, seed); err == nil {
			shrink(next, b.Scale())
			rest += simulated(o, s, seed, next, scaled(o.cost(s), b.Scale()))
		}
	}
	end := time.Now().Add(simulated(o, b.Spec, b.Spec.Measure.Seed, jobs, cost))
	return func() time.Duration { return rest + max(0, time.Until(end)) }
}

// scaled is the cost of an all-reduce of an emulation, if it is what the experiment says.
func scaled(c tree.Cost, scale results.Scale) tree.Cost {
	times, size := study.Factors(scale)
	c.Latency *= times
	c.Bandwidth *= size / times
	return c
}

// maintain takes one cable between switches after the other from the trees, so that they
// migrate. What it returns ends that.
func (o *Operations) maintain(ctx context.Context, inv *inventory.Inventory, control *training.Process) (done func() error) {
	if o.Maintenance == 0 || len(inv.Links) == 0 {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(o.Maintenance.Std())
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
			}
			var err error
			if last := inv.Links[(i+len(inv.Links)-1)%len(inv.Links)]; i > 0 {
				err = control.SetLink(last.A.Switch, last.B.Switch, true)
			}
			if next := inv.Links[i%len(inv.Links)]; err == nil {
				err = control.SetLink(next.A.Switch, next.B.Switch, false)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// controlled keeps what the controller told.
func controlled(b *study.Bench, events []controller.Event) error {
	return b.Lines("controller.jsonl", len(events), func(i int) any {
		return struct {
			study.Told
			controller.Event
		}{b.Told(), events[i]}
	})
}

// overheads are what it costs that jobs share trees: means over operations and ranks, and
// medians over migrations from a tree to another.
func overheads(out []training.Outcome, events []controller.Event) map[string]float64 {
	var ops, asked, refused, launch, decision float64
	for i := range out {
		for _, s := range out[i].Ranks {
			if t := s.Training; t != nil {
				ops += float64(t.Ops)
				asked += float64(t.INA + t.Refused)
				refused += float64(t.Refused)
				launch += t.Launch.Sum
				decision += t.Decision.Sum
			}
		}
	}
	all := map[string]float64{}
	if ops > 0 {
		all["launch_time"], all["decision_time"] = launch/ops, decision/ops
	}
	if asked > 0 {
		all["refused"] = refused / asked
	}
	parts := map[string][]float64{}
	moved := 0.0
	for i := range events {
		m := events[i].Migration
		if m == nil || m.From == "" || m.To == "" {
			continue
		}
		moved++
		for name, v := range map[string]float64{
			"migration_time": m.Total, "migration_leave": m.Leave, "migration_release": m.Release,
			"migration_wait": m.Wait, "migration_acquire": m.Acquire, "migration_adopt": m.Adopt,
		} {
			parts[name] = append(parts[name], v)
		}
	}
	if len(out) > 0 {
		all["migrations"] = moved / float64(len(out))
	}
	for name, v := range parts {
		slices.Sort(v)
		all[name] = v[len(v)/2]
	}
	return all
}

// shrink turns jobs into those of an emulation.
func shrink(jobs []named, scale results.Scale) {
	times, size := study.Factors(scale)
	done := map[*workload.Pattern]*workload.Pattern{}
	for i := range jobs {
		p := jobs[i].Pattern
		if done[p] == nil {
			q := p.Faster(1 / times)
			for k := range q.Ops {
				q.Ops[k].Bytes = max(4, int64(float64(q.Ops[k].Bytes)*size)/4*4)
			}
			done[p] = &q
		}
		jobs[i].Pattern = done[p]
		jobs[i].Submit *= times
	}
}

// training are the jobs as ranks carry them out, with what INA is worth to them where all-reduces cost so much.
func (o *Operations) training(jobs []named, cost tree.Cost) ([]training.Job, error) {
	cfg := ops.Config{Cost: cost, GPU: o.GPUSpeed, PerHost: o.byHosts()}
	out := make([]training.Job, len(jobs))
	for i, j := range jobs {
		out[i] = training.Job{
			Name: j.Name, ID: number(i), Pattern: patternOf(j.Pattern), Speed: o.GPUSpeed, Steps: int64(j.Steps), Hosts: j.Hosts,
			Submit: time.Duration(j.Submit * float64(time.Second)),
		}
		var err error
		if out[i].Gain, out[i].Demand, err = cfg.Worth(j.Job); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// number is that of a job on a testbed, by its place in the list. Candidates for its trees are drawn by it.
func number(i int) uint16 { return uint16(i + 1) }

func patternOf(p *workload.Pattern) agent.Pattern {
	out := agent.Pattern{Step: p.Step}
	for _, op := range p.Ops {
		out.Ops = append(out.Ops, agent.Op{Start: op.Start, Bytes: op.Bytes})
	}
	return out
}

// agent is what all ranks have in common.
func (o *Operations) agent(tb *remote.Testbed, s *spec.Spec, seed uint64, sharing string, beat time.Duration) agent.Config {
	topo := tb.Inventory().Topology()
	var rtt time.Duration
	rate := inventory.BitRate(math.MaxInt64)
	for _, h := range tb.Inventory().Hosts {
		for _, other := range tb.Inventory().Hosts {
			if path, err := topo.Path(h.Name, other.Name); err == nil {
				rtt = max(rtt, 2*topo.PathDelay(path))
			}
		}
		rate = min(rate, h.NICs[0].Rate)
	}
	return agent.Config{
		Sharing: asking[sharing], Run: uint64(time.Now().UnixNano()), Profiled: o.Profiled, Epoch: uint16(time.Now().UnixMilli()) | 1, Lanes: s.Switch.Lanes, Seed: seed,
		RTO: 4*rtt + 20*time.Millisecond, LineRate: float64(rate), Interval: time.Duration(s.Measure.Interval),
		Rest: testbed.Rest(max(rtt, beat), s.Emulation.Offload), Beat: beat, Offload: s.Emulation.Offload,
	}
}

// calibrated is what an all-reduce costs on a testbed, and why that may be wrong.
type calibrated struct {
	tree.Cost
	near   []tree.Cost // that calibration allows as well
	health []results.Trouble
}

// simulations is how many say what jobs were to do, by costs that the calibration allows.
const simulations = 15

// near are the costs but one.
func near(ring, ina collective.Line, seed uint64) (all []tree.Cost) {
	rng := rand.New(rand.NewPCG(seed, uint64(ring.N)))
	for range simulations - 1 {
		latency, bandwidth, ok := ring.Draw(rng)
		_, faster, fine := ina.Draw(rng)
		if ok && fine {
			all = append(all, tree.Cost{Latency: max(0, latency), Bandwidth: bandwidth, Ratio: max(1, faster/bandwidth)})
		}
	}
	return all
}

// calibrate measures what an all-reduce costs, alone on the testbed: over the ring, and
// with INA, for the smallest and the largest of the jobs' operations. Where that makes no
// sense, on a machine that is too busy, it is what the experiment says, and the troubles
// are fatal.
func (o *Operations) calibrate(ctx context.Context, b *study.Bench, tb *remote.Testbed, jobs []named) (calibrated, error) {
	s := b.Spec
	assumed := calibrated{Cost: scaled(o.cost(s), b.Scale())}
	n := 0
	for i := range jobs {
		n = max(n, jobs[i].Hosts)
	}
	probe := probes(jobs)
	if n < 2 || len(probe.Ops) == 0 {
		return assumed, nil // nobody reduces anything
	}
	return study.Once(b.Known(), calibratedFor(s, n, probe), func() (calibrated, error) {
		return o.reduceAlone(ctx, b, tb, n, probe, assumed)
	})
}

// calibratedFor names what the cost of all-reduces of n hosts depends on.
func calibratedFor(s *spec.Spec, n int, probe agent.Pattern) string {
	return fmt.Sprintf("all-reduces %s lanes %d hosts %d %v", study.NetworkOf(s), s.Switch.Lanes, n, probe.Ops)
}

// reduceAlone measures what all-reduces of n hosts cost.
func (o *Operations) reduceAlone(ctx context.Context, b *study.Bench, tb *remote.Testbed, n int, probe agent.Pattern, assumed calibrated) (calibrated, error) {
	s, began := b.Spec, time.Now()
	defer func() { b.Timing("calibrate", began) }()
	var out [2]training.Outcome
	health, err := study.Calibrate(func() ([]results.Trouble, error) {
		if err := study.Anew(ctx, tb); err != nil {
			return nil, err
		}
		for i, way := range []string{"never", "always"} {
			b.Status("calibrate", 0)
			control, err := o.controller(ctx, b, tb, s.Measure.Seed, way, assumed.Cost)
			if err != nil {
				return nil, err
			}
			got, err := training.Run(ctx, training.Config{Hosts: tb, Controller: control, Agent: o.agent(tb, s, s.Measure.Seed, way, b.Beat())},
				[]training.Job{{Name: "calibrate", ID: 1, Pattern: probe, Speed: 1, Steps: 5, Hosts: n}})
			if cerr := control.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return nil, err
			}
			out[i] = got[0]
		}
		return unwell(ctx, tb, out[:])
	})
	if err != nil {
		return assumed, err
	}
	ring, ina := out[0].Training().Ring, out[1].Training().Tree
	c, found, err := fit(ring, ina)
	b.Calibrated(found...)
	if err != nil {
		c = assumed.Cost
		health = append(health, study.Assumed(err, "what the experiment says"))
	}
	done := calibrated{Cost: c, health: health}
	if err == nil {
		done.near = near(ring, ina, s.Measure.Seed)
	}
	return done, nil
}

// probes are the sizes of all-reduces that are calibrated: the smallest and the largest of
// the jobs', and one between them.
func probes(jobs []named) (p agent.Pattern) {
	small, large := int64(math.MaxInt64), int64(0)
	for i := range jobs {
		for _, op := range jobs[i].Pattern.Ops {
			small, large = min(small, op.Bytes), max(large, op.Bytes)
		}
	}
	if large == 0 {
		return p
	}
	if small > large/2 { // they must differ, or nothing can be said of either
		small = large / 2 / 4 * 4
	}
	for _, bytes := range []int64{small, (small + large) / 2 / 4 * 4, large} {
		p.Ops = append(p.Ops, agent.Op{Bytes: bytes})
	}
	return p
}

// fit finds the cost of all-reduces over the ring and with INA.
func fit(ring, ina collective.Line) (c tree.Cost, found []results.Calibration, err error) {
	for i, l := range []collective.Line{ring, ina} {
		what := []string{"all-reduce over the ring", "all-reduce with INA"}[i]
		latency, bandwidth, ok := l.Fit()
		if !ok {
			return c, found, fmt.Errorf("%s: %d operations did not take longer if larger", what, l.N)
		}
		if i == 0 {
			c.Latency, c.Bandwidth = max(0, latency), bandwidth
		} else {
			c.Ratio = bandwidth / c.Bandwidth
		}
		for _, k := range []results.Calibration{{Of: "latency", Value: latency, Unit: "s"}, {Of: "bandwidth", Value: 8 * bandwidth, Unit: "bit/s"}} {
			k.What, k.Lo, k.Hi, k.N = what, k.Value, k.Value, int(l.N)
			found = append(found, k)
		}
	}
	found = append(found, results.Calibration{What: "bandwidth with INA", Of: "over the ring's", Value: c.Ratio, Lo: c.Ratio, Hi: c.Ratio, N: int(ina.N), Unit: "1"})
	if c.Ratio < 1 {
		return c, found, fmt.Errorf("all-reduces with INA have %s of the ring's bandwidth", human.Percent(c.Ratio))
	}
	return c, found, nil
}

// learned keeps what the jobs found out about their own steps, in the lab's units: patterns
// that the simulator reads, of each model and batch the first that the run has seen.
func (o *Operations) learned(b *study.Bench, jobs []named, out []training.Outcome) error {
	const key = "patterns"
	all, _ := b.Known()[key].([]workload.Pattern)
	before := len(all)
	for i := range out {
		if out[i].Learned == nil {
			continue
		}
		w := o.collected(b.Scale(), &jobs[i], out[i].Learned)
		if slices.ContainsFunc(all, func(p workload.Pattern) bool { return p.Model == w.Model && p.Batch == w.Batch }) {
			continue
		}
		w.Source = fmt.Sprintf("collected by inabench from job %s of %s, %s", out[i].Name, b.Spec.Name, strings.Join(b.Labels, " "))
		all = append(all, w)
	}
	if len(all) == before {
		return nil
	}
	b.Known()[key] = all
	text := "# Patterns that ranks collected from their queues: patterns = \"...\" of an experiment.\n\n" + string(workload.FormatPatterns(all...))
	return b.Dir().WriteFile("patterns.toml", []byte(text))
}

// collected is what a job found out about its steps, in the lab's units and on the GPUs of its model's pattern.
func (o *Operations) collected(scale results.Scale, j *named, l *agent.Pattern) workload.Pattern {
	times, size := study.Factors(scale)
	out := workload.Pattern{Model: j.Pattern.Model, Batch: o.Batch, Step: l.Step / times * o.GPUSpeed}
	for _, op := range l.Ops {
		out.Ops = append(out.Ops, workload.Op{Start: op.Start / times * o.GPUSpeed, Bytes: int64(math.Round(float64(op.Bytes) / size))})
	}
	return out
}

// patternErrors are by how much the patterns that jobs found out differ from those that they had on the testbed, each of
// several steps. A job that was too short to find out has none, and says so.
func (o *Operations) patternErrors(kind results.Kind, jobs []named, out []training.Outcome) (figures []results.Figure, short []results.Missing) {
	for i := range out {
		name, j := out[i].Name, &jobs[out[i].ID-1]
		if out[i].Learned == nil {
			short = append(short, results.Missing{Metric: "pattern_error", Of: name, Why: "the job had too few steps to collect its pattern"})
			continue
		}
		have := o.collected(results.Scale{}, j, out[i].Learned) // both are in the testbed's units
		figures = append(figures, ofSteps("pattern_error", name, kind, patternError(&have, j.Pattern)))
	}
	return figures, short
}

// patternError is the largest error in a pattern: of a time, the step's length or an all-reduce's start, over that length, and
// of an all-reduce's bytes over those of the step. The sharing rule goes by all of them. It is 1 where the all-reduces are not
// as many.
func patternError(have, want *workload.Pattern) float64 {
	if len(have.Ops) != len(want.Ops) {
		return 1
	}
	late, wrong, total := math.Abs(have.Step-want.Step), 0.0, 0.0
	for i := range want.Ops {
		late = max(late, math.Abs(have.Ops[i].Start-want.Ops[i].Start))
		wrong = max(wrong, math.Abs(float64(have.Ops[i].Bytes-want.Ops[i].Bytes)))
		total += float64(want.Ops[i].Bytes)
	}
	return min(1, max(late/want.Step, wrong/max(1, total)))
}

// Finish implements study.Study with scores: where the mean JCT of a point lies between that
// without INA and that with INA for every all-reduce, which other points of the same repeat
// have. Where what was measured of either does not count there is no score, nor where that range is no larger than its noise:
// see unscaled.
func (o *Operations) Finish(rec *results.Record) {
	const key = "operations.sharing"
	scores := []string{"ina_score", "jct_range"}
	ends := map[[2]string]*results.Point{} // of each cohort's scale, by sharing
	for i := range rec.Points {
		p := &rec.Points[i]
		ends[[2]string{study.Cohort(p, key), spec.Format(p.Params[key])}] = p
	}
	jct := func(p *results.Point) float64 {
		for _, ph := range p.Phases {
			for _, f := range ph.Figures {
				if f.Metric == "avg_jct" && f.Kind == results.Measured {
					return f.Value
				}
			}
		}
		return math.NaN()
	}
	for i := range rec.Points {
		p := &rec.Points[i]
		if len(p.Phases) == 0 || math.IsNaN(jct(p)) {
			continue
		}
		end := func(sharing string) (v float64) {
			e := ends[[2]string{study.Cohort(p, key), sharing}]
			if e == nil {
				return math.NaN()
			}
			ph := &p.Phases[0]
			if why := e.UnsoundIn(0); why != "" {
				for _, name := range scores {
					ph.Missing = append(ph.Missing, results.Missing{Metric: name, Of: results.Cluster, Why: key + "=" + sharing + ": " + why})
				}
				return math.NaN()
			}
			if len(e.Phases) > 0 && e != p && e.Phases[0].Stood != "" {
				for _, name := range scores {
					ph.OffAs(name, key+"="+sharing+": "+e.Phases[0].Stood)
				}
			}
			return jct(e)
		}
		never, always := end("never"), end("always")
		if math.IsNaN(never) || math.IsNaN(always) || !(never > 0) {
			continue // there is one end of the scale, or none
		}
		p.Phases[0].Figures = append(p.Phases[0].Figures, ofSteps("jct_range", results.Cluster, results.Measured, 1-always/never))
		if never <= always {
			p.Phases[0].Missing = append(p.Phases[0].Missing, results.Missing{Metric: "ina_score", Of: results.Cluster, Why: "without INA jobs were no slower: there is no scale"})
			continue
		}
		p.Phases[0].Figures = append(p.Phases[0].Figures, ofSteps("ina_score", results.Cluster, results.Measured, (never-jct(p))/(never-always)))
	}
	unscaled(rec.Points)
}

// ofSteps is a figure that is of all steps of its jobs, two at least.
func ofSteps(metric, of string, kind results.Kind, v float64) results.Figure {
	f := study.Exactly(metric, of, kind, v)
	f.N = 2
	return f
}

// unscaled takes scores away whose range is no larger than its noise: where the range of one repeat is within two standard
// deviations of 0, the repeat's score is a quotient of two accidents, and their mean over many repeats is one, too. Of one
// repeat the noise is not known; of two, the interval of their scores says how little it is.
func unscaled(points []results.Point) {
	for _, c := range results.Settings(points) {
		ranges := rangesOf(c.Repeats)
		if len(ranges) < 2 {
			continue
		}
		n := float64(len(ranges))
		all := results.Mean(ranges)
		noise := (all.Hi - all.Lo) / results.StudentT(n-1) * math.Sqrt(n)
		if all.Value > noise {
			continue
		}
		why := fmt.Sprintf("the range that it is a part of, %s of the JCT without INA, is no larger than its noise: two standard deviations of %d repeats are %s",
			human.Percent(all.Value), len(ranges), human.Percent(noise))
		for i := range points {
			if p := &points[i]; p.Index == c.Index && len(p.Phases) > 0 {
				unscored(&p.Phases[0], why)
			}
		}
	}
}

// rangesOf are the ranges of a point's repeats that count.
func rangesOf(repeats []results.Point) (out []float64) {
	for i := range repeats {
		for k, ph := range repeats[i].Phases {
			for _, f := range ph.Figures {
				if f.Metric == "jct_range" && f.Kind == results.Measured && repeats[i].UnsoundIn(k) == "" {
					out = append(out, f.Value)
				}
			}
		}
	}
	return out
}

// unscored takes the score of a phase away, if it has one, and says why.
func unscored(ph *results.Phase, why string) {
	n := len(ph.Figures)
	ph.Figures = slices.DeleteFunc(ph.Figures, func(f results.Figure) bool { return f.Metric == "ina_score" && f.Kind == results.Measured })
	if len(ph.Figures) < n {
		ph.Missing = append(ph.Missing, results.Missing{Metric: "ina_score", Of: results.Cluster, Why: why})
	}
}

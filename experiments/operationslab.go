package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/agent"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// operated is the predictor of what jobs did on a testbed: the simulator, with the cost of
// an all-reduce that was calibrated there.
const operated = "operations"

// words of an agent for who asks for INA.
var asking = map[string]string{"mina": "shared", "greedy": "greedy", "none": "exclusive", "never": "none", "always": "exclusive"}

// run implements study: jobs come, get hosts and trees, and reduce their gradients for real.
func (o *Operations) run(ctx context.Context, r *run, p planned, repeat int) (*results.Point, [][]string, error) {
	point := &results.Point{}
	tb, ok := r.tb.(*remote.Testbed)
	if !ok {
		return point, nil, fmt.Errorf("jobs that share trees on a %s: %w", r.tb.Capabilities().Switch, errors.ErrUnsupported)
	}
	if o.Sharing == "thrifty" {
		return point, nil, fmt.Errorf("sharing = \"thrifty\" is only simulated so far: %w", errors.ErrUnsupported)
	}
	if o.Share > 0 {
		return point, nil, fmt.Errorf("share is about simulations: give jobs some steps instead: %w", errors.ErrUnsupported)
	}
	s, seed := p.Spec, p.Spec.Measure.Seed+uint64(repeat)
	jobs, err := o.jobs(s, seed)
	if err != nil {
		return point, nil, err
	}
	times, size := factors(r.rec.Scale)
	shrink(jobs, times, size)
	began := time.Now()
	cost, err := o.calibrate(ctx, r, tb, s, jobs)
	if err != nil {
		return point, nil, fmt.Errorf("calibrate: %w", err)
	}
	r.timing("calibrate", began)

	r.status("measure", labels(p.Labels), 0)
	began = time.Now()
	control, err := o.controller(ctx, r, tb, s, seed, o.Sharing, cost)
	if err != nil {
		return point, nil, err
	}
	start := time.Since(r.origin).Seconds()
	out, err := training.Run(ctx, training.Config{
		Hosts: tb, Controller: control, Agent: o.agent(tb, s, seed, o.Sharing),
	}, o.training(jobs))
	r.timing("measure", began)
	if err = errors.Join(err, control.Close(), r.controlled(p, repeat, control.Events())); err != nil {
		return point, nil, err
	}
	slices.SortFunc(out, func(a, b training.Outcome) int { return int(a.ID) - int(b.ID) })
	list := make([]ops.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].Job
		list[i].Submit = out[i].Start.Seconds()
	}
	cfg, err := o.config(s, seed)
	if err != nil {
		return point, nil, err
	}
	cfg.Cost = cost
	again, err := ops.Run(ctx, cfg, list)
	if err != nil {
		return point, nil, fmt.Errorf("simulate what ran: %w", err)
	}
	ph := results.Phase{Start: start, End: time.Since(r.origin).Seconds()}
	rows := operationRows(jobs, again)
	kind := r.tb.Capabilities().Kind
	add := func(metric, of string, k results.Kind, v float64) {
		f := exactly(metric, of, k, operationMetrics[metric].unit, v)
		if k == results.Predicted {
			f.Predictor = operated
		}
		f.N = 2 // at least: it is of all steps
		ph.Figures = append(ph.Figures, f)
	}
	var jct, steps, ina float64
	n := float64(len(out))
	for i := range out {
		j, t := &out[i], out[i].Training()
		checked, wrong := j.Sums()
		point.Jobs = append(point.Jobs, results.JobSummary{
			Job: j.Name, Workers: len(j.On), Local: len(j.On) == 1, Iterations: t.Steps, JCT: j.JCT, SumsChecked: checked, SumErrors: wrong,
		})
		ph.Jobs = append(ph.Jobs, j.Name)
		add("jct", j.Name, kind, j.JCT)
		add("jct", j.Name, results.Predicted, again.Jobs[i].JCT())
		add("step_time", j.Name, kind, j.JCT/float64(t.Steps))
		add("step_time", j.Name, results.Predicted, again.Jobs[i].JCT()/float64(jobs[i].Steps))
		add("sum_errors", j.Name, kind, float64(wrong))
		jct, steps, ina = jct+j.JCT/n, steps+j.JCT/float64(t.Steps)/n, ina+t.Tree.Seconds/j.JCT/n
		rows[i][5], rows[i][6], rows[i][9] = inSeconds(j.Start.Seconds()), inSeconds(j.Start.Seconds()+j.JCT), inSeconds(t.Tree.Seconds)
	}
	add("avg_jct", results.Cluster, kind, jct)
	add("avg_step_time", results.Cluster, kind, steps)
	add("ina_utilisation", results.Cluster, kind, ina)
	for metric, v := range overheads(out, control.Events()) {
		add(metric, results.Cluster, kind, v)
	}
	score := again.Score(o.Score == "hosts")
	add("avg_jct", results.Cluster, results.Predicted, score.Evaluated)
	add("ina_utilisation", results.Cluster, results.Predicted, again.Utilisation())
	if !math.IsNaN(score.Value) {
		add("ina_score", results.Cluster, results.Predicted, score.Value)
	}
	point.Phases = []results.Phase{ph}
	return point, rows, o.learned(r, p, jobs, out, times, size)
}

// controlled keeps what the controller told.
func (r *run) controlled(p planned, repeat int, events []controller.Event) error {
	f, err := os.OpenFile(filepath.Join(r.dir.Path, "controller.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	for i := range events {
		if err := e.Encode(struct {
			Point  string `json:"point"`
			Repeat int    `json:"repeat"`
			controller.Event
		}{strings.Join(p.Labels, " "), repeat, events[i]}); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
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
func shrink(jobs []named, times, size float64) {
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

// training are the jobs as ranks carry them out.
func (o *Operations) training(jobs []named) []training.Job {
	out := make([]training.Job, len(jobs))
	for i, j := range jobs {
		out[i] = training.Job{
			Name: j.Name, ID: uint16(i + 1), Pattern: patternOf(j.Pattern), Speed: o.GPUSpeed, Steps: int64(j.Steps), Hosts: j.Hosts,
			Submit: time.Duration(j.Submit * float64(time.Second)),
		}
	}
	return out
}

func patternOf(p *workload.Pattern) agent.Pattern {
	out := agent.Pattern{Step: p.Step}
	for _, op := range p.Ops {
		out.Ops = append(out.Ops, agent.Op{Start: op.Start, Bytes: op.Bytes})
	}
	return out
}

// agent is what all ranks have in common.
func (o *Operations) agent(tb *remote.Testbed, s *Spec, seed uint64, sharing string) agent.Config {
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
		Rest: testbed.Rest(rtt, s.Emulation.Offload), Offload: s.Emulation.Offload,
	}
}

// calibrate measures what an all-reduce costs, alone on the testbed: over the ring, and
// with INA, for the smallest and the largest of the jobs' operations.
func (o *Operations) calibrate(ctx context.Context, r *run, tb *remote.Testbed, s *Spec, jobs []named) (tree.Cost, error) {
	var n int
	small, large := int64(math.MaxInt64), int64(0)
	for i := range jobs {
		n = max(n, jobs[i].Hosts)
		for _, op := range jobs[i].Pattern.Ops {
			small, large = min(small, op.Bytes), max(large, op.Bytes)
		}
	}
	key := fmt.Sprint(s.inv.SHA256, n, small, large)
	if c, ok := r.costs[key]; ok {
		return c, nil
	}
	probe := agent.Pattern{Ops: []agent.Op{{Bytes: small}, {Bytes: (small + large) / 2}, {Bytes: large}}}
	var cost tree.Cost
	for _, way := range []string{"never", "always"} {
		r.status("calibrate", way, 0)
		control, err := o.controller(ctx, r, tb, s, s.Measure.Seed, way, cost)
		if err != nil {
			return cost, err
		}
		out, err := training.Run(ctx, training.Config{Hosts: tb, Controller: control, Agent: o.agent(tb, s, s.Measure.Seed, way)},
			[]training.Job{{Name: "calibrate", ID: 1, Pattern: probe, Speed: 1, Steps: 5, Hosts: n}})
		if err = errors.Join(err, control.Close()); err != nil {
			return cost, err
		}
		t := out[0].Training()
		line, what := t.Ring, "all-reduce over the ring"
		if way == "always" {
			line, what = t.Tree, "all-reduce with INA"
		}
		latency, bandwidth, ok := line.Fit()
		if !ok {
			return cost, fmt.Errorf("%s: %d operations say nothing of its cost", what, line.N)
		}
		if way == "always" {
			cost.Ratio = bandwidth / cost.Bandwidth
		} else {
			cost.Latency, cost.Bandwidth = max(0, latency), bandwidth
		}
		for _, c := range []results.Calibration{{What: what, Of: "latency", Value: latency, Unit: "s"}, {What: what, Of: "bandwidth", Value: 8 * bandwidth, Unit: "bit/s"}} {
			c.Lo, c.Hi, c.N = c.Value, c.Value, int(line.N)
			r.rec.Calibration = append(r.rec.Calibration, c)
		}
	}
	r.costs[key] = cost
	return cost, nil
}

// learned keeps what the jobs found out about their own steps, in the lab's units: patterns
// that the simulator reads.
func (o *Operations) learned(r *run, p planned, jobs []named, out []training.Outcome, times, size float64) error {
	var all []workload.Pattern
	for i := range out {
		l := out[i].Learned
		if l == nil || slices.ContainsFunc(all, func(p workload.Pattern) bool { return p.Model == jobs[i].Pattern.Model }) {
			continue
		}
		w := workload.Pattern{
			Model: jobs[i].Pattern.Model, Batch: o.Batch, Step: l.Step / times * o.GPUSpeed,
			Source: fmt.Sprintf("collected by inabench from job %s of %s, %s", out[i].Name, r.rec.Name, strings.Join(p.Labels, " ")),
		}
		for _, op := range l.Ops {
			w.Ops = append(w.Ops, workload.Op{Start: op.Start / times * o.GPUSpeed, Bytes: int64(math.Round(float64(op.Bytes) / size))})
		}
		all = append(all, w)
	}
	if len(all) == 0 {
		return nil
	}
	var b bytes.Buffer
	if err := workload.WritePatterns(&b, "Patterns that ranks collected from their queues: patterns = \"...\" of an experiment.", all...); err != nil {
		return err
	}
	return r.dir.WriteFile("patterns.toml", b.Bytes())
}

// finish adds scores to what was measured: where the mean JCT of a point lies between that
// without INA and that with INA for every all-reduce, which other points of the same repeat
// have.
func (o *Operations) finish(rec *results.Record) {
	const key = "operations.sharing"
	type ends struct{ never, always float64 }
	refs := map[string]*ends{}
	of := func(p *results.Point) string {
		rest := slices.DeleteFunc(slices.Clone(p.Labels), func(l string) bool { return strings.HasPrefix(l, key+"=") })
		return fmt.Sprint(p.Repeat, rest)
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
		if refs[of(p)] == nil {
			refs[of(p)] = &ends{math.NaN(), math.NaN()}
		}
		switch format(p.Params[key]) {
		case "never":
			refs[of(p)].never = jct(p)
		case "always":
			refs[of(p)].always = jct(p)
		}
	}
	for i := range rec.Points {
		p, e := &rec.Points[i], refs[of(&rec.Points[i])]
		if v := (e.never - jct(p)) / (e.never - e.always); e.never > e.always && !math.IsNaN(v) {
			ph := &p.Phases[0]
			score := exactly("ina_score", results.Cluster, results.Measured, "1", v)
			score.N = 2 // at least: it is of all steps
			ph.Figures = append(ph.Figures, score, exactly("jct_range", results.Cluster, results.Measured, "1", 1-e.always/e.never))
		}
	}
}

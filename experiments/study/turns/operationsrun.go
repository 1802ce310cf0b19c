package turns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/training"
	"github.com/inabench/inabench/internal/bounded"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/mina/clos"
	"github.com/inabench/inabench/placement/mina/tree"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// config is the simulation of a point.
func (o *Operations) config(s *spec.Spec, seed uint64) (ops.Config, error) {
	cfg := ops.Config{
		Cost: o.cost(s), GPU: o.GPUSpeed, Migration: o.Migration.Std().Seconds(), Series: true,
		Sharing: ops.Sharing(slices.Index(sharingRules, o.Sharing)), // checked
	}
	c := &cfg.Cluster
	if err := minaCluster(s, c); err != nil {
		return cfg, err
	}
	c.Options = o.options(seed)
	cfg.PerHost = o.byHosts()
	cfg.WholeGroup = o.Trees == "first-idle" // as its authors' code has it
	return cfg, c.Named(o.Placement, o.Trees, o.Groups, o.Alpha, seed)
}

// options are how trees are built, but for who joins groups.
func (o *Operations) options(seed uint64) tree.Options {
	t := tree.Options{K: o.Candidates, Seed: seed, Weighted: o.Weighted}
	if o.Groups == "merged" {
		t.Load = 1
	}
	return t
}

// byHosts is whether a job counts as often as it has hosts.
func (o *Operations) byHosts() bool { return o.Score == "hosts" }

// minaCluster says what fat-tree the jobs run on.
func minaCluster(s *spec.Spec, c *mina.Config) error {
	if s.Clos != nil {
		c.Down, c.Up = s.Clos.Down, s.Clos.Up
		c.PerSwitch, c.PerLink = s.Clos.Limits()
		return nil
	}
	found, err := clos.Of(s.Inventory())
	if err != nil {
		return spec.Invalid(err)
	}
	c.Down, c.Up = found.Down, found.Up
	first := s.Inventory().Switches[0].SHARP
	c.PerSwitch, c.PerLink = tree.Unlimited, tree.Unlimited
	limit := &c.PerSwitch
	if first.Resource == "port" {
		limit = &c.PerLink
	}
	*limit = max(1, first.Jobs)
	for _, sw := range s.Inventory().Switches {
		if sw.SHARP.Resource != first.Resource || sw.SHARP.Jobs != first.Jobs {
			return spec.Invalidf("switches %s and %s share their trees in different ways", s.Inventory().Switches[0].Name, sw.Name)
		}
	}
	return nil
}

// cost is that of an all-reduce.
func (o *Operations) cost(s *spec.Spec) tree.Cost {
	rate := o.Bandwidth
	if rate == 0 && s.Clos != nil {
		rate = s.Clos.Rate
	}
	if rate == 0 && s.Inventory() != nil && len(s.Inventory().Hosts) > 0 && len(s.Inventory().Hosts[0].NICs) > 0 {
		rate = s.Inventory().Hosts[0].NICs[0].Rate
	}
	return tree.Cost{Latency: o.Latency.Std().Seconds(), Bandwidth: float64(rate) / 8, Ratio: o.Ratio}
}

// named is a job with what it is called.
type named struct {
	ops.Job
	Name string
}

// unnamed are jobs as the simulator takes them.
func unnamed(jobs []named) []ops.Job {
	list := make([]ops.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].Job
	}
	return list
}

// jobs are those of a repeat.
func (o *Operations) jobs(s *spec.Spec, seed uint64) ([]named, error) {
	list, err := o.list(s, seed)
	if err != nil {
		return nil, err
	}
	out := make([]named, len(list))
	for i, j := range list {
		out[i] = named{Job: j, Name: strconv.Itoa(j.ID)}
		if len(o.Table) > 0 {
			out[i].Name = o.Table[i].Name
		}
	}
	return out, nil
}

func (o *Operations) list(s *spec.Spec, seed uint64) ([]ops.Job, error) {
	known := map[string]*workload.Pattern{}
	pattern := func(model string) *workload.Pattern {
		if known[model] == nil {
			p, _ := s.Patterns().Lookup(model, o.Batch) // checked
			known[model] = &p
		}
		return known[model]
	}
	var jobs []ops.Job
	switch {
	case len(o.Table) > 0:
		for i, j := range o.Table {
			if o.Jobs > 0 && i == o.Jobs {
				break
			}
			jobs = append(jobs, ops.Job{ID: i, Pattern: pattern(j.Model), Hosts: j.Hosts, Steps: j.Steps, Submit: j.Arrive.Std().Seconds()})
		}
	case o.From != "":
		path := s.Beside(o.From, "operations.from")
		text, err := bounded.ReadFile(path, bounded.Config)
		if err != nil {
			return nil, spec.Invalid(err)
		}
		if jobs, err = ops.ParseJobs(path, string(text), ops.Patterns(s.Patterns(), o.Batch)); err != nil {
			return nil, spec.Invalid(err)
		}
		if o.Jobs > 0 {
			jobs = jobs[:min(o.Jobs, len(jobs))]
		}
	default:
		names := o.Models
		if len(names) == 0 {
			names = minaModels
		}
		var patterns []*workload.Pattern
		for _, m := range names {
			patterns = append(patterns, pattern(m))
		}
		hosts, _ := workload.BuiltinHistograms().Lookup(o.Histogram) // checked
		jobs = ops.Draw(seed, o.Jobs, patterns, &hosts)
		if len(o.Steps) == 2 {
			r := rand.New(rand.NewPCG(seed, 0x73746570))
			for i := range jobs {
				jobs[i].Steps = o.Steps[0] + r.IntN(o.Steps[1]-o.Steps[0]+1)
			}
		}
	}
	if o.Load > 0 {
		if i := slices.IndexFunc(jobs, func(j ops.Job) bool { return j.Submit > 0 }); i >= 0 {
			return nil, spec.Invalidf("operations.load draws when jobs come, and job %d comes after %v s by the list", jobs[i].ID, jobs[i].Submit)
		}
		cfg, err := o.config(s, seed)
		if err != nil {
			return nil, err
		}
		asked := 0.0
		for _, j := range jobs {
			p, err := tree.NewPattern(j.Pattern.Step/cfg.GPU, nil, j.Hosts, cfg.Cost)
			if err != nil {
				return nil, err
			}
			asked += p.Step(false) * float64(j.Steps*j.Hosts)
		}
		ops.Arrive(seed, jobs, asked/float64(len(jobs))/float64(len(s.Inventory().Hosts))/o.Load)
	}
	for _, j := range jobs {
		if n := len(s.Inventory().Hosts); j.Hosts > n {
			return nil, spec.Invalidf("job %d wants %d hosts, and there are %d", j.ID, j.Hosts, n)
		}
	}
	return jobs, nil
}

// minaModels are those of the paper's evaluation.
var minaModels = []string{"opt-125m", "opt-350m", "opt-1.3b", "bert-base", "bert-large", "vit-base", "vit-large"}

// beat is what a typical operation takes with INA, by what the experiment says: where these
// matter, packets do not. 0: nobody knows.
func (o *Operations) beat(s *spec.Spec, scale results.Scale) time.Duration {
	jobs, err := o.jobs(s, s.Measure.Seed)
	if err != nil {
		return 0
	}
	times, _ := study.Factors(scale)
	cost := o.cost(s)
	var all []float64
	for i := range jobs {
		for _, op := range jobs[i].Pattern.Ops {
			all = append(all, times*cost.Duration(float64(op.Bytes), jobs[i].Hosts, true))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2] * float64(time.Second))
}

// Ready implements study.Study.
func (o *Operations) Ready(p study.Planned) error {
	drawn := len(o.Table) == 0 && o.From == ""
	return p.EachSeed(drawn, func(seed uint64) error {
		jobs, err := o.jobs(p.Spec, seed)
		if err == nil && p.On != "" && p.On != "sim" {
			err = runnable(jobs)
		}
		return err
	})
}

// runnable reports jobs that no testbed runs, as it cannot tell them or their ranks apart.
func runnable(jobs []named) error {
	if n := len(jobs); n > training.MostJobs {
		return fmt.Errorf("%d jobs: on a testbed there are %d at most: %w", n, training.MostJobs, errors.ErrUnsupported)
	}
	for _, j := range jobs {
		if j.Hosts > placement.MaxWorkers {
			return fmt.Errorf("job %s of %d hosts: on a testbed it has %d at most: %w", j.Name, j.Hosts, placement.MaxWorkers, errors.ErrUnsupported)
		}
	}
	return nil
}

// Simulate implements study.Study.
func (o *Operations) Simulate(ctx context.Context, s *spec.Spec, repeat int) (*study.Repetition, error) {
	seed := s.Measure.Seed + uint64(repeat)
	cfg, err := o.config(s, seed)
	if err != nil {
		return nil, err
	}
	jobs, err := o.jobs(s, seed)
	if err != nil {
		return nil, err
	}
	if o.Maintenance > 0 {
		return nil, fmt.Errorf("maintenance is about testbeds: %w", errors.ErrUnsupported)
	}
	if o.Share > 0 {
		return o.share(cfg, jobs)
	}
	if s.Timed() {
		began := time.Now()
		cfg.Clock = func() float64 { return time.Since(began).Seconds() }
	}
	res, err := ops.Run(ctx, cfg, unnamed(jobs))
	if err != nil {
		return nil, err
	}
	spans, err := o.spans(s, cfg, jobs)
	if err != nil {
		return nil, err
	}
	curves := operationCurves(res)
	return &study.Repetition{
		End: res.Makespan, Figures: append(o.figures(s, cfg, jobs, res, curves), stageFigures(spans)...),
		Curves: append(curves, stageCurves(spans, jobs)...), Rows: operationRows(jobs, res),
		Request: func(p study.Planned) (*predictor.Request, []results.Figure, error) {
			return o.request(p, &cfg, repeat, jobs, res)
		},
	}, nil
}

// share is one tree that all jobs want for so long.
func (o *Operations) share(cfg ops.Config, jobs []named) (*study.Repetition, error) {
	score, err := ops.Share(cfg, o.Share.Std().Seconds(), unnamed(jobs))
	if err != nil {
		return nil, err
	}
	return &study.Repetition{End: o.Share.Std().Seconds(), Figures: scores(score)}, nil
}

// rounding is what may be left of times that are equal.
const rounding = 1e-12

// scores are a score and what it normalises. Both ends of the range are of the same jobs: it has no noise but rounding, and
// where it is no more than that there is no score.
func scores(score ops.Score) (out []results.Figure) {
	if math.Abs(score.Range()) < rounding {
		score.Value = math.NaN()
	}
	for _, f := range []struct {
		metric string
		value  float64
	}{
		{"ina_score", score.Value}, {"jct_range", score.Range()},
		{"avg_jct", score.Evaluated}, {"avg_jct_none", score.Without}, {"avg_jct_all", score.With},
	} {
		if math.Abs(f.value) < rounding {
			f.value = 0
		}
		if !math.IsNaN(f.value) {
			out = append(out, study.Exactly(f.metric, results.Cluster, results.Simulated, f.value))
		}
	}
	return out
}

// figures are what a simulation came to.
func (o *Operations) figures(s *spec.Spec, cfg ops.Config, jobs []named, res *ops.Result, curves []results.Curve) []results.Figure {
	out := scores(res.Score(o.byHosts()))
	add := func(metric string, v float64) {
		if !math.IsNaN(v) {
			out = append(out, study.Exactly(metric, results.Cluster, results.Simulated, v))
		}
	}
	add("ina_utilisation", res.Utilisation())
	add("migrations", res.Migrations())
	add("makespan", res.Makespan)
	var conflicts, fragments, free float64
	for i := range res.Series {
		conflicts += res.Series[i].Conflicts() / float64(len(res.Series))
		fragments += float64(res.Series[i].JobFragments) / float64(len(res.Series))
		free += float64(res.Series[i].FreeFragments) / float64(len(res.Series))
	}
	if len(res.Series) > 0 {
		add("conflicts", conflicts)
		add("fragments", fragments)
		add("free_fragments", free)
	}
	if curves != nil {
		add("conflicts_fragments_correlation", results.Pearson(curves[0].Y, curves[1].Y))
	}
	steps := 0.0
	for i := range res.Jobs {
		steps += res.Jobs[i].JCT() / float64(jobs[i].Steps) / float64(len(res.Jobs))
	}
	add("avg_step_time", steps)
	if !slices.ContainsFunc(jobs, func(j named) bool { return j.Pattern != jobs[0].Pattern }) {
		if b, err := cfg.TurningPoint(jobs[0].Pattern); err == nil && !math.IsInf(b, 0) {
			add("turning_point", 8*b)
		}
	}
	if s.Timed() {
		add(spec.PlacementTime, study.Mean(res.Placing))
		add(spec.TreeTime, study.Mean(res.Building))
	}
	return out
}

// spans are when the all-reduces of a step run, where an experiment asks for its communication stage, all jobs are alike, and
// INA is for all operations or none: else a step is not like another, and there are none.
func (o *Operations) spans(s *spec.Spec, cfg ops.Config, jobs []named) ([]tree.Span, error) {
	other := func(j named) bool { return j.Pattern != jobs[0].Pattern || j.Hosts != jobs[0].Hosts }
	if !s.Asks("comm_stage") && !s.Asks("comm_gaps") || o.Sharing != "never" && o.Sharing != "always" || slices.ContainsFunc(jobs, other) {
		return nil, nil
	}
	p, err := cfg.Steps(jobs[0].Pattern, jobs[0].Hosts)
	if err != nil {
		return nil, err
	}
	return p.Spans(o.Sharing == "always"), nil
}

// stageFigures are the length of the communication stage of a step, and of the gaps in it.
func stageFigures(spans []tree.Span) []results.Figure {
	if len(spans) == 0 {
		return nil
	}
	stage, gaps := tree.Stage(spans)
	if gaps < rounding {
		gaps = 0
	}
	return []results.Figure{
		study.Exactly("comm_stage", results.Cluster, results.Simulated, stage),
		study.Exactly("comm_gaps", results.Cluster, results.Simulated, gaps),
	}
}

// stageCurves are the bytes that a step has reduced by when: level where there is a gap.
func stageCurves(spans []tree.Span, jobs []named) []results.Curve {
	if len(spans) == 0 {
		return nil
	}
	c := results.Curve{Metric: "reduced", Unit: "B", Over: "time in a step, s"}
	sum := 0.0
	for i, s := range spans {
		if n := len(c.X); n == 0 || s.Begin > c.X[n-1] {
			c.X, c.Y = append(c.X, s.Begin), append(c.Y, sum)
		}
		sum += float64(jobs[0].Pattern.Ops[i].Bytes)
		c.X, c.Y = append(c.X, s.End), append(c.Y, sum)
	}
	return []results.Curve{c}
}

// operationCurves are conflicts and fragments with the requests that were served.
func operationCurves(res *ops.Result) []results.Curve {
	if len(res.Series) < 2 {
		return nil
	}
	c := []results.Curve{
		{Metric: "conflicts", Unit: "1", Over: "requests"}, {Metric: "fragments", Unit: "1", Over: "requests"},
		{Metric: "free_fragments", Unit: "1", Over: "requests"},
	}
	for i := range res.Series {
		s := &res.Series[i]
		x := float64(s.Requests)
		if n := len(c[0].X); n > 0 && c[0].X[n-1] == x { // trees were built anew when one had left
			continue
		}
		for k, y := range []float64{s.Conflicts(), float64(s.JobFragments), float64(s.FreeFragments)} {
			c[k].X, c[k].Y = append(c[k].X, x), append(c[k].Y, y)
		}
	}
	return c
}

// Columns implements study.Study.
func (o *Operations) Columns() []string {
	return strings.Fields("job model hosts steps arrive_s start_s end_s without_s with_s ina_s migrations fragments")
}

func operationRows(jobs []named, res *ops.Result) [][]string {
	out := make([][]string, len(jobs))
	for i := range jobs {
		out[i] = operationRow(&jobs[i], &res.Jobs[i])
	}
	return out
}

func operationRow(j *named, r *ops.Outcome) []string {
	return []string{
		j.Name, j.Pattern.Model, strconv.Itoa(j.Hosts), strconv.Itoa(j.Steps), study.InSeconds(j.Submit), study.InSeconds(r.Start), study.InSeconds(r.End),
		study.InSeconds(r.Without), study.InSeconds(r.With), study.InSeconds(r.INA), strconv.Itoa(r.Migrations), strconv.Itoa(r.Fragments),
	}
}

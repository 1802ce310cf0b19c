package experiments

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inabench/inabench/experiments/online"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// config is the spec's cluster as policies see it.
func (s *Spec) config() cluster.Config {
	if s.FatTree != nil {
		return s.FatTree.config()
	}
	return placement.ClusterOf(s.inv)
}

// replayed is the predictor of what runs on a testbed: the simulator, with the same jobs
// on the same hosts from the same times on.
const replayed = "replay"

// repetition is one repeat of a point.
type repetition struct {
	*replay.Result
	jobs    []traced
	placing float64 // seconds that placing a job took, on average
}

// stopwatch takes the time of a policy.
type stopwatch struct {
	cluster.Policy
	spent  time.Duration
	placed int
}

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

// overhead is bits on the wire per bit of gradient.
func (s *Spec) overhead() float64 {
	return frameBits(s.Switch.Lanes) / float64(32*s.Switch.Lanes)
}

// replay is one repeat of a point in virtual time.
func (s *Spec) replay(ctx context.Context, repeat int) (*repetition, error) {
	seed := s.Measure.Seed + uint64(repeat)
	cfg := replay.Config{Cluster: s.config(), Period: s.Trace.Period.Std().Seconds(), Seed: seed, Overhead: s.overhead()}
	jobs, err := s.jobs(seed, cfg.Cluster.GPUs())
	if err != nil {
		return nil, err
	}
	p, err := policy(s.Placement.Policy)
	if err != nil {
		return nil, err
	}
	watch := &stopwatch{Policy: p}
	cfg.Policy = watch
	if s.Trace.Fidelity == replay.Phases.String() {
		cfg.Fidelity = replay.Phases
	}
	list := make([]replay.Job, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].Job
	}
	res, err := replay.Run(ctx, cfg, list)
	return &repetition{res, jobs, watch.mean()}, err
}

// simulate does all points and repeats of a trace in virtual time, as many at a time as
// there are processors: but one at a time where the time that placing takes is asked for.
func (r *run) simulate(ctx context.Context) error {
	began := time.Now()
	defer func() { r.timing("measure", began) }()
	r.rec.Kind, r.rec.Switch, r.rec.Hosts = results.Simulated, "model", []results.HostFacts{thisMachine()}
	for i := range r.rec.Expect {
		switch e := &r.rec.Expect[i]; e.Metric {
		case "jct":
			e.Skip = "the simulator is not held to itself"
		case "sum_errors":
			e.Skip = "a model carries no sums"
		}
	}
	limit := runtime.GOMAXPROCS(0)
	if r.timed() {
		limit = 1
	}
	type cell struct {
		*repetition
		done chan struct{}
	}
	cells := make([]cell, len(r.points)*r.opt.Repeats)
	for i := range cells {
		cells[i].done = make(chan struct{})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit + 1)
	g.Go(func() error { // in order, whichever is ready first
		for i := range cells {
			c := &cells[i]
			p := &r.points[i%len(r.points)]
			r.status("simulate", "", 0)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-c.done:
			}
			point := results.Point{
				Index: i % len(r.points), Repeat: i / len(r.points), Params: p.Params, Labels: p.Labels,
				Phases: []results.Phase{{End: c.Summary.Makespan, Figures: r.summary(&c.Summary, c.placing, results.Simulated)}},
			}
			r.rec.Points = append(r.rec.Points, point)
			if err := r.jobRows(&point, c.jobs, c.Jobs); err != nil {
				return err
			}
			*c = cell{}
			r.done++
		}
		return nil
	})
	for i := range cells {
		g.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p := &r.points[i%len(r.points)]
			var err error
			if cells[i].repetition, err = p.Spec.replay(ctx, i/len(r.points)); err != nil {
				return fmt.Errorf("%s%w", prefix(p.Labels), err)
			}
			close(cells[i].done)
			return nil
		})
	}
	return g.Wait()
}

// endTraces is the end of a run of traces.
func (r *run) endTraces() (err error) {
	if r.table != nil {
		err = r.table.close()
	}
	r.rec.Comparison = r.spec.comparison()
	r.ratios()
	return err
}

// online is one repeat of a trace on a testbed: jobs come, are placed, and run for real.
func (r *run) online(ctx context.Context, p planned, repeat int) (point *results.Point, err error) {
	point = &results.Point{}
	s, inv, scale := p.Spec, r.tb.Inventory(), r.rec.Scale
	settings := s.settings(s.Switch.Aggregators)
	if s.FatTree != nil && settings.Aggregators == 0 {
		nic := inv.Hosts[0].NICs[0]
		settings.Aggregators = placement.Memory(float64(s.FatTree.PAT)/scale.Factor, float64(nic.Rate), nic.Delay)
	}
	cfg := online.ClusterOf(inv, settings)
	seed := s.Measure.Seed + uint64(repeat)
	jobs, err := s.jobs(seed, cfg.GPUs())
	if err != nil {
		return point, err
	}
	pol, err := policy(s.Placement.Policy)
	if err != nil {
		return point, err
	}
	watch := &stopwatch{Policy: pol}
	times, bytes := factors(scale)
	list, plain := make([]online.Job, len(jobs)), make([]replay.Job, len(jobs))
	for i := range jobs {
		j := &jobs[i].Job
		j.Submit, j.Compute, j.Bytes = j.Submit*times, j.Compute*times, j.Bytes*bytes
		list[i] = online.Job{Job: *j, Window: s.Trace.Window, Control: s.Trace.Control}
		plain[i] = *j
	}
	r.status("run", labels(p.Labels), r.left())
	began := time.Now()
	dep, err := r.tb.Deploy(ctx, testbed.Setup{Plan: &placement.Plan{Policy: pol.Name()}, Settings: settings})
	if err != nil {
		return point, fmt.Errorf("deploy: %w", err)
	}
	r.timing("deploy", began)
	defer func() {
		if cerr := dep.Close(ctx); cerr != nil {
			err = errors.Join(err, fmt.Errorf("undeploy: %w", cerr))
		}
	}()
	r.clock = (time.Since(r.origin) - dep.Now()).Seconds()
	if _, err := dep.Health(ctx); err != nil { // begins a new interval
		return point, err
	}
	began = time.Now()
	res, err := online.Run(ctx, online.Config{
		Policy: watch, Inventory: inv, Settings: settings, Cluster: cfg, Seed: seed,
		Period: time.Duration(float64(s.Trace.Period) * times), Interval: max(time.Second, time.Duration(s.Measure.Interval)),
		Sample: func(got []results.Sample) error {
			for i := range got {
				got[i].T += r.clock
			}
			return errors.Join(r.dir.Append(got...), r.dir.Flush())
		},
	}, dep, list)
	r.timing("measure", began)
	if err != nil {
		return point, err
	}
	if point.Health, err = dep.Health(ctx); err != nil {
		return point, err
	}
	kind := r.tb.Capabilities().Kind
	ph := results.Phase{Start: r.clock, End: r.clock + res.Summary.Makespan}
	ph.Figures = r.summary(&res.Summary, watch.mean(), kind)
	again, err := replay.Run(ctx, replay.Config{
		Cluster: cfg, Policy: online.Recorded(res.Replayed()), Fidelity: replay.Phases,
		Overhead: s.overhead(),
	}, online.Restarted(plain, res.Replayed()))
	if err != nil {
		return point, fmt.Errorf("simulate what ran: %w", err)
	}
	predicted := map[int]float64{}
	for i := range again.Jobs {
		predicted[again.Jobs[i].ID] = again.Jobs[i].JCT()
	}
	for i := range res.Jobs {
		j := &res.Jobs[i]
		sum := j.Summary
		sum.Job = jobs[j.ID].Name
		point.Jobs = append(point.Jobs, sum)
		ph.Jobs = append(ph.Jobs, sum.Job)
		f := exactly("jct", sum.Job, kind, j.JCT())
		f.N = max(2, j.Iterations) // it is their sum
		ph.Figures = append(ph.Figures, f)
		f = exactly("jct", sum.Job, results.Predicted, predicted[j.ID])
		f.Predictor = replayed
		ph.Figures = append(ph.Figures, f)
		if r.tb.Capabilities().Sums {
			ph.Figures = append(ph.Figures, exactly("sum_errors", sum.Job, kind, float64(sum.SumErrors)))
		}
	}
	point.Phases = []results.Phase{ph}
	point.Repeat, point.Labels = repeat, p.Labels
	return point, r.jobRows(point, jobs, res.Replayed())
}

// timed says whether the run is about the time that placing takes.
func (r *run) timed() bool {
	return r.spec.Compare != nil && slices.Contains(r.spec.Compare.Metrics, placementTime) ||
		slices.ContainsFunc(r.spec.Expects, func(e Expect) bool { return strings.HasPrefix(e.Metric, placementTime) })
}

const placementTime = "placement_time"

// summary is a trace in figures. The time of placing, which is another in every run, is
// only there where it is asked for.
func (r *run) summary(s *replay.Summary, placing float64, kind results.Kind) []results.Figure {
	var out []results.Figure
	for _, f := range []struct {
		metric string
		value  float64
	}{
		{"avg_jct", s.JCT}, {"avg_jct_queued", s.JCTQueued}, {"makespan", s.Makespan}, {"network_time", s.Network},
		{"queueing", s.QueueMean}, {"queueing_p95", s.QueueP95}, {placementTime, placing},
		{"de", s.DE}, {"de_queued", s.DEQueued},
		{"gpu_utilisation", s.GPUs}, {"link_utilisation", s.Links}, {"aggregator_utilisation", s.Aggregators},
	} {
		if f.metric != placementTime || r.timed() {
			out = append(out, exactly(f.metric, results.Cluster, kind, f.value))
		}
	}
	return out
}

// exactly is a figure of a trace without an interval.
func exactly(metric, of string, kind results.Kind, v float64) results.Figure {
	return results.Figure{Metric: metric, Of: of, Kind: kind, Value: v, Lo: v, Hi: v, N: 1, Unit: traceMetrics[metric].unit}
}

// ratios adds to each point its figures over those of the reference in the same repeat.
func (r *run) ratios() {
	c := r.rec.Comparison
	if c == nil {
		return
	}
	others := func(p *results.Point) string {
		var out []string
		for _, l := range p.Labels {
			if !strings.HasPrefix(l, c.Key+"=") {
				out = append(out, l)
			}
		}
		return fmt.Sprint(p.Repeat, out)
	}
	reference := map[string]map[string]float64{}
	for i := range r.rec.Points {
		if p := &r.rec.Points[i]; len(p.Phases) > 0 && format(p.Params[c.Key]) == c.Reference {
			of := map[string]float64{}
			for _, f := range p.Phases[0].Figures {
				of[f.Metric] = f.Value
			}
			reference[others(p)] = of
		}
	}
	for i := range r.rec.Points {
		p := &r.rec.Points[i]
		ref := reference[others(p)]
		if len(p.Phases) == 0 {
			continue // it ended early
		}
		for _, f := range p.Phases[0].Figures {
			if v := ref[f.Metric]; f.Of == results.Cluster && v > 0 {
				p.Phases[0].Figures = append(p.Phases[0].Figures, exactly(f.Metric+ratio, format(p.Params[c.Key]), f.Kind, f.Value/v))
			}
		}
	}
}

// jobTable is jobs.csv.gz in the run directory: what became of every job.
type jobTable struct {
	file *os.File
	gz   *gzip.Writer
	csv  *csv.Writer
}

func newJobTable(dir string) (*jobTable, error) {
	f, err := os.Create(filepath.Join(dir, "jobs.csv.gz"))
	if err != nil {
		return nil, err
	}
	t := &jobTable{file: f, gz: gzip.NewWriter(f)}
	t.csv = csv.NewWriter(t.gz)
	return t, t.csv.Write([]string{"point", "repeat", "job", "model", "submit_s", "start_s", "end_s", "gpus", "iterations", "compute_s", "waited", "servers", "racks", "de"})
}

func (t *jobTable) close() error {
	t.csv.Flush()
	return errors.Join(t.csv.Error(), t.gz.Close(), t.file.Close())
}

// jobRows writes what became of the jobs of a point.
func (r *run) jobRows(p *results.Point, jobs []traced, done []replay.JobResult) (err error) {
	if r.table == nil {
		if r.table, err = newJobTable(r.dir.Path); err != nil {
			return err
		}
	}
	seconds := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	for i := range done {
		j := &done[i]
		if err := r.table.csv.Write([]string{
			strings.Join(p.Labels, " "), strconv.Itoa(p.Repeat), jobs[j.ID].Name, jobs[j.ID].Model,
			seconds(j.Submit), seconds(j.Start), seconds(j.End), strconv.Itoa(j.GPUs), strconv.Itoa(j.Iterations), seconds(j.Compute),
			strconv.Itoa(j.Waited), strconv.Itoa(j.Servers), strconv.Itoa(j.Racks), strconv.FormatFloat(j.DE(), 'g', 6, 64),
		}); err != nil {
			return err
		}
	}
	return nil
}

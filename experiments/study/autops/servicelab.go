package autops

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed/paramservice/control"
	"github.com/inabench/inabench/testbed/paramservice/deploy"
	"github.com/inabench/inabench/testbed/paramservice/migrate"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
	"github.com/inabench/inabench/testbed/remote"
	"github.com/inabench/inabench/testbed/sim/service"
)

// The hidden verbs of pMaster, of Aggregators and workers, and of background flows.
const (
	masterVerb = "pmaster"
	nodeVerb   = "paramservice-node"
	flowsVerb  = "paramservice-flows"
)

// served is the predictor of what a service did on a testbed: the simulator, with the rates and
// delays of that testbed.
const served = "service"

// beat is how long the gradients of the smallest job take that one of its servers gets of a worker,
// the shortest time that matters.
func (o *Service) beat(s *spec.Spec, scale results.Scale) time.Duration {
	times, _ := study.Factors(scale)
	rate := cmp.Or(o.Rate, spec.NewLab(s.Inventory()).Fastest)
	jobs, _ := o.jobs(s) // that they can be had has been checked
	least := math.Inf(1)
	for i := range jobs {
		least = min(least, float64(jobs[i].Bytes())/float64(jobs[i].Servers))
	}
	if len(jobs) == 0 {
		return 0
	}
	return time.Duration(times * 8 * least / float64(rate) * float64(time.Second))
}

// scaled are a point's simulation and jobs in a testbed's units.
func (o *Service) scaled(s *spec.Spec, inv *inventory.Inventory, seed uint64, scale results.Scale) (service.Config, []serving, error) {
	jobs, err := o.jobs(s)
	if err != nil {
		return service.Config{}, nil, err
	}
	times, size := study.Factors(scale)
	longer := func(d time.Duration) time.Duration { return time.Duration(float64(d) * times) }
	for i := range jobs {
		j := &jobs[i]
		j.Arrive, j.Stay = longer(j.Arrive), longer(j.Stay)
		j.Tensors = slices.Clone(j.Tensors)
		for k := range j.Tensors {
			t := &j.Tensors[k]
			t.Bytes, t.Ready = max(4, int64(float64(t.Bytes)*size)/4*4), longer(t.Ready)
		}
	}
	cfg := o.config(s, seed)
	cfg.Rate, cfg.Latency = float64(study.Fastest(inv))/collectives.Wire, 0
	topo := inv.Topology()
	for _, h := range inv.Hosts[1:] {
		if path, err := topo.Path(inv.Hosts[0].Name, h.Name); err == nil {
			cfg.Latency = max(cfg.Latency, topo.PathDelay(path))
		}
	}
	cfg.Sum *= size / times
	cfg.Period, cfg.End, cfg.Packing, cfg.From = longer(cfg.Period), longer(cfg.End), longer(cfg.Packing), longer(cfg.From)
	return cfg, jobs, nil
}

// serviceRate is that of gradients, sums of which change the models.
const serviceRate = 0.01

// training is a job as nodes are told of it. They go forward from the first tensor of a model, and
// back to it; the simulator has them in the order in which gradients are ready.
func (j *serving) training(cfg *service.Config, seed uint64, migrate int) deploy.Job {
	out := deploy.Job{Job: control.Job{Name: j.Name, Workers: j.Workers, Servers: j.Servers, Rate: serviceRate},
		Arrive: j.Arrive, Iterations: j.Iterations, Seed: seed | 1, Migrate: migrate}
	if cfg.Jitter > 0 {
		slower := cfg.Slower(j.Name) // all workers alike, as in the simulator
		for range j.Iterations {
			out.Slower = append(out.Slower, slower())
		}
	}
	tasks := cfg.Tasks(&j.Job)
	n := len(j.Tensors)
	out.Tensors, out.Backward = make([]control.Tensor, n), make([]time.Duration, n)
	before := time.Duration(0)
	for i, t := range j.Tensors {
		out.Tensors[n-1-i] = control.Tensor{Name: strconv.Itoa(i), Elements: int(t.Bytes / 4), Work: tasks[i]}
		out.Backward[n-1-i] = t.Ready - before
		before = t.Ready
	}
	return out
}

// Run implements study.Study: jobs come, train on a service of running processes, and leave. With an error
// the point has what was measured until then.
func (o *Service) Run(ctx context.Context, b *study.Bench) (point *results.Point, rows [][]string, err error) {
	point = &results.Point{}
	tb, err := b.Hosts("a service")
	if err != nil {
		return point, nil, err
	}
	seed := b.Seed()
	cfg, jobs, err := o.scaled(b.Spec, tb.Inventory(), seed, b.Scale())
	if err != nil {
		return point, nil, err
	}
	jobs = inTime(jobs, cfg.End)
	if err := o.hosts(tb.Inventory(), jobs); err != nil {
		return point, nil, err
	}
	l := &serviceLab{o: o, Bench: b, tb: tb, cfg: cfg, seed: seed, point: point}
	ref, err := l.alone(ctx, jobs)
	if err != nil {
		return point, nil, fmt.Errorf("jobs alone: %w", err)
	}
	until(jobs, cfg.End, ref)
	cfg.End = 0
	plain := make([]service.Job, len(jobs))
	for i := range jobs {
		jobs[i].Stay = 0
		plain[i] = jobs[i].Job
	}
	expected, err := service.Run(ctx, cfg, plain)
	if err != nil {
		return point, nil, err
	}
	expectedRef, err := alone(ctx, undisturbed(cfg), plain)
	if err != nil {
		return point, nil, err
	}

	counters, err := b.Sampler(ctx, tb, nil)
	if err != nil {
		return point, nil, err
	}
	counters.Left = b.Countdown(study.PointOverhead + expected.End)
	ph := results.Phase{Start: l.Now().Seconds()}
	out, err := l.serve(ctx, jobs, cfg.Static, cfg.Migrate, func(ctx context.Context) error { return counters.Read(ctx) })
	ph.End = l.Now().Seconds()
	for _, j := range jobs {
		ph.Jobs = append(ph.Jobs, j.Name)
	}
	if kerr := mastered(b, out.Events); err == nil {
		err = kerr
	}
	point.Jobs = l.summaries(jobs, out)
	if err != nil {
		return point, nil, err
	}
	res := observed(jobs, out)
	kind := b.Kind()
	found, missing := serviceFigures(kind, res, plain, ref, cfg.Background > 0)
	ph.Figures, ph.Missing = measuredService(found), missing
	ph.Figures = append(ph.Figures, l.own(kind, out, point.Jobs)...)
	ph.Figures = append(ph.Figures, measuredService(stalls(kind, jobs, res))...)
	predicted, _ := serviceFigures(results.Predicted, expected, plain, expectedRef, cfg.Background > 0)
	for _, f := range predicted {
		if m := serviceMetrics[f.Metric]; m.Predicted && m.Of != "aggregator" {
			f.Predictor = served
			ph.Figures = append(ph.Figures, results.Exact(f))
		}
	}
	ph.Figures = append(ph.Figures, counters.Links.Figures(ph.Start, ph.End)...)
	point.Phases, point.Curves = []results.Phase{ph}, serviceCurves(res, plain, ref)
	return point, serviceRows(jobs, res), nil
}

// hosts reports more servers than there are hosts for them, as each has its own on a testbed, and background flows that
// have no host to go to.
func (o *Service) hosts(inv *inventory.Inventory, jobs []serving) error {
	servers, workers := 0, 0
	for _, j := range jobs {
		servers, workers = servers+j.Servers, workers+j.Workers
	}
	with, without := cpuHosts(inv)
	switch {
	case o.Mode == staticService && servers > without:
		return spec.Invalidf("%d servers, and %d hosts have no GPUs", servers, without)
	case o.Background > 0 && workers >= with:
		return spec.Invalidf("background flows go to a host with GPUs and without a worker, and %d workers are on %d hosts", workers, with)
	}
	return nil
}

// inTime are the jobs that arrive before the end; 0: there is none. The others never begin, as in simulations.
func inTime(jobs []serving, end time.Duration) []serving {
	return slices.DeleteFunc(jobs, func(j serving) bool { return end > 0 && j.Arrive >= end })
}

// until gives jobs that stay for some time as many iterations as they do in it alone.
func until(jobs []serving, end time.Duration, ref []standalone) {
	for i := range jobs {
		j := &jobs[i]
		stay := j.Stay
		if end > 0 && (stay == 0 || j.Arrive+stay > end) {
			stay = end - j.Arrive
		}
		if n := int(math.Round(float64(stay) / float64(ref[i].own))); stay > 0 && (j.Iterations == 0 || n < j.Iterations) {
			j.Iterations = max(1, n)
		}
	}
}

// measuredService has figures decide: each is of all iterations of a time, or of all there were.
func measuredService(figures []results.Figure) []results.Figure {
	for i := range figures {
		figures[i].N = 2 // at least
	}
	return figures
}

// serviceLab is a point on a testbed.
type serviceLab struct {
	*study.Bench
	o     *Service
	tb    *remote.Testbed
	cfg   service.Config
	seed  uint64
	point *results.Point
}

// serve runs jobs on the service, or on servers of their own. What was seen of them is there with an error, too.
func (l *serviceLab) serve(ctx context.Context, jobs []serving, static bool, move int, sample func(context.Context) error) (*deploy.Result, error) {
	if err := study.Anew(ctx, l.tb); err != nil {
		return &deploy.Result{}, err
	}
	began := time.Now()
	defer func() { l.Timing("measure", began) }()
	times, _ := study.Factors(l.Scale())
	// An Aggregator that does not answer is taken for dead when a host would be.
	wait := migrate.DefaultTimes()
	patience := l.Spec.Measure.Patience.Std()
	wait.Resend = l.cfg.Packing + max(time.Duration(float64(wait.Resend)*times), patience>>wait.Attempts)
	cfg := deploy.Config{
		Hosts: l.tb, Verb: nodeVerb, Setup: pmaster.Setup{Times: wait, Lease: patience, Profile: l.cfg.Profile, Period: l.cfg.Period, Plan: &l.cfg.Master},
		Report: reports, Packing: l.cfg.Packing, Now: l.Now, Sample: sample, Interval: l.Spec.Measure.Interval.Std(),
	}
	if !static {
		dir, err := os.MkdirTemp("", "pmaster-")
		if err != nil {
			return &deploy.Result{}, err
		}
		defer os.RemoveAll(dir)
		cfg.Master, cfg.Setup.State = []string{"/proc/self/exe", masterVerb}, filepath.Join(dir, "epoch")
	}
	for _, h := range l.tb.Inventory().Hosts {
		if h.GPUs > 0 {
			cfg.Workers = append(cfg.Workers, h.Name)
		} else {
			cfg.Aggregators = append(cfg.Aggregators, h.Name)
		}
	}
	if n := len(cfg.Workers) - 1; l.cfg.Background > 0 { // where they go to there is no worker
		cfg.Background = &deploy.Background{Verb: flowsVerb, Flows: l.cfg.Background, From: l.cfg.From, To: cfg.Workers[n]}
		cfg.Workers = cfg.Workers[:n]
	}
	all := make([]deploy.Job, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].training(&l.cfg, l.seed, move)
	}
	out, err := deploy.Run(ctx, cfg, all)
	health, herr := l.unwell(ctx, jobs, out)
	l.point.Health = append(l.point.Health, health...)
	if err == nil {
		err = herr
	}
	return out, err
}

// reports is the time between those of an Aggregator.
const reports = 500 * time.Millisecond

// settling is how many iterations a job may take until its tensors have moved.
const settling = 4

// alone measures how long an iteration of each job takes alone, as the experiment has it, and
// with servers of its own.
func (l *serviceLab) alone(ctx context.Context, jobs []serving) ([]standalone, error) {
	out := make([]standalone, len(jobs))
	for i := range jobs {
		j := jobs[i]
		ref, err := study.Once(l.Known(), l.aloneFor(&j), func() (measuredAlone, error) { return l.standalone(ctx, j) })
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out[:i], func(o standalone) bool { return o == ref.standalone }) {
			l.point.Health = append(l.point.Health, ref.health...)
		}
		out[i] = ref.standalone
	}
	return out, nil
}

// aloneFor names what the time that a job takes alone depends on.
func (l *serviceLab) aloneFor(j *serving) string {
	return fmt.Sprint("alone ", study.NetworkOf(l.Spec), " ", l.cfg.Static, l.cfg.Profile, l.cfg.Rate, l.cfg.Sum, j.Tensors, j.Workers, j.Servers)
}

// measuredAlone is what a job took alone on a testbed, and why that may be wrong.
type measuredAlone struct {
	standalone
	health []results.Trouble
}

// standalone measures how long an iteration of a job takes alone. With an error the point has what was wrong.
func (l *serviceLab) standalone(ctx context.Context, j serving) (measuredAlone, error) {
	l.Status("measure "+j.Model+" alone", 0)
	ref, err := measureAlone(j.Model, l.cfg.Static, func(static bool, about time.Duration) (time.Duration, []results.Trouble, error) {
		return l.mean(ctx, j, static, about)
	})
	if err != nil {
		l.point.Health = append(l.point.Health, ref.health...)
	}
	return ref, err
}

// measureAlone measures how long an iteration of a model takes alone, with servers of its own and, unless that is how the
// experiment has it, on a service. Each is measured again where the machine has spoilt it; see study.Calibrate. On a service
// mean is told about how long an iteration takes.
func measureAlone(model string, static bool, mean func(static bool, about time.Duration) (time.Duration, []results.Trouble, error)) (ref measuredAlone, err error) {
	measure := func(static bool) (took time.Duration) {
		health, failed := study.Calibrate(func() (troubles []results.Trouble, err error) {
			took, troubles, err = mean(static, ref.static)
			return troubles, err
		})
		for i := range health {
			health[i].Where = strings.TrimSuffix(model+" alone: "+health[i].Where, ": ")
		}
		ref.health, err = append(ref.health, health...), failed
		return took
	}
	ref.static = measure(true)
	ref.own = ref.static
	if err == nil && !static {
		ref.own = measure(false)
	}
	return ref, err
}

// undisturbed is a configuration as a job has it alone: iterations are all alike, as long as with jitter on average, and tensors
// that leave temporary Aggregators are ready at once.
func undisturbed(cfg service.Config) service.Config {
	cfg.Jitter, cfg.Background, cfg.Packing = 0, 0, 0
	return cfg
}

// mean is how long an iteration of a job takes, when nothing changes any more, and why that may be wrong. On a service
// iterations take about so long.
func (l *serviceLab) mean(ctx context.Context, j serving, static bool, about time.Duration) (time.Duration, []results.Trouble, error) {
	j.Arrive, j.Stay, j.Iterations = 0, 0, 2+l.cfg.Profile
	if !static {
		j.Iterations += settling + l.cfg.Profile + untilReported(about)
	}
	jobs := []serving{j}
	quiet := *l
	quiet.cfg, quiet.point = undisturbed(l.cfg), &results.Point{}
	out, err := quiet.serve(ctx, jobs, static, 0, nil)
	health := quiet.point.Health
	if err != nil {
		return 0, health, err
	}
	if out.Jobs[0].Profiled == 0 && !static {
		return 0, health, fmt.Errorf("job %s: pMaster had no profile of it after %d iterations", j.Name, j.Iterations)
	}
	seen := observed(jobs, out).Jobs[0]
	if !static {
		health = append(health, unsettled(seen.Iterations, j.Iterations-l.cfg.Profile, out.Jobs[0].Profiled-out.Begin)...)
	}
	return seen.Mean(j.Iterations-l.cfg.Profile, j.Iterations), health, nil
}

// untilReported is how many iterations of about such a length there are until all Aggregators have reported for certain.
func untilReported(about time.Duration) int {
	return int(2 * reports / max(about, reports/mostUnreported))
}

// mostUnreported bounds untilReported: iterations of less than half a millisecond are not waited for.
const mostUnreported = 1000

// unsettled is the trouble of iterations from a number on that were to be measured when nothing changes any more, where tensors
// may still have moved then: the profile came too late.
func unsettled(its []service.Iteration, from int, profiled time.Duration) []results.Trouble {
	if before := from - settling; before > 0 && before <= len(its) && profiled <= its[before-1].End {
		return nil
	}
	return []results.Trouble{{Where: "pMaster", What: fmt.Sprintf("had the profile later than %d iterations before those that were measured", settling), Fatal: true}}
}

// observed is what was seen, as the simulator says it. Time counts from the beginning.
func observed(jobs []serving, out *deploy.Result) *service.Result {
	since := func(at time.Duration) time.Duration { return at - out.Begin }
	res := &service.Result{End: since(out.End)}
	type step struct {
		at                    time.Duration
		aggregators, required int
	}
	var steps []step
	names := map[uint32]string{}
	for i := range out.Jobs {
		j := &out.Jobs[i]
		o := service.Outcome{Started: j.Start > 0, Start: since(j.Start), End: since(j.End), Moved: j.Moved, Loss: j.Loss}
		if j.End == 0 {
			o.End = res.End
		}
		for _, a := range out.Aggregators {
			for key, busy := range a.Tensors {
				if key.Job == j.ID {
					o.CPU += busy
				}
			}
		}
		for k := 0; ; k++ { // iterations that all have ended
			it := service.Iteration{}
			for _, w := range j.Workers {
				if k >= len(w) {
					it.End = 0
					break
				}
				it.End, it.Took = max(it.End, since(w[k].End)), max(it.Took, w[k].Spent)
			}
			if it.End == 0 {
				break
			}
			o.Iterations = append(o.Iterations, it)
		}
		res.Jobs = append(res.Jobs, o)
		if o.Started {
			steps = append(steps, step{o.Start, 0, jobs[i].Servers}, step{o.End, 0, -jobs[i].Servers})
			res.Changes = append(res.Changes, service.Change{At: o.Start, What: service.Arrived, Job: jobs[i].Name}, service.Change{At: o.End, What: service.Left, Job: jobs[i].Name})
			for _, at := range j.Told {
				res.Changes = append(res.Changes, service.Change{At: since(at), What: service.Migrated, Job: jobs[i].Name})
			}
		}
	}
	for _, a := range out.Aggregators {
		res.Machines = append(res.Machines, service.Machine{From: since(a.From), To: since(a.To), Busy: a.Stats.Busy, Disturbed: a.Disturbed > 0})
		if a.Disturbed > 0 {
			res.Changes = append(res.Changes, service.Change{At: since(a.Disturbed), What: service.Disturbed})
		}
		steps = append(steps, step{since(a.From), 1, 0}, step{since(a.To), -1, 0})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		c := service.Count{At: s.at}
		if n := len(res.Counts); n > 0 {
			c.Aggregators, c.Required = res.Counts[n-1].Aggregators, res.Counts[n-1].Required
		}
		c.Aggregators += s.aggregators
		c.Required += s.required
		res.Counts = append(res.Counts, c)
	}
	for _, e := range out.Events {
		at := since(time.Duration(e.T * 1e9))
		if e.Name != "" {
			names[e.Job] = e.Name
		}
		switch {
		case e.Event == "profiled" || e.Event == "migrated":
			res.Changes = append(res.Changes, service.Change{At: at, What: service.Settled, Job: names[e.Job]})
		case e.Event == "verdict":
			if what, ok := service.OfVerdict(e.Verdict); ok {
				res.Changes = append(res.Changes, service.Change{At: at, What: what, Job: cmp.Or(e.Other, e.Name)})
			}
		}
	}
	slices.SortStableFunc(res.Changes, func(a, b service.Change) int { return cmp.Compare(a.At, b.At) })
	return res
}

// moving is how many iterations a job may be longer after it was told to have its tensors moved: that in
// which it is told, that whose models name the new Aggregators, and that which waits for copies.
const moving = 3

// stalls is by how much longer jobs take for each time that all their tensors move, against their
// other iterations: the median of all times.
func stalls(kind results.Kind, jobs []serving, res *service.Result) []results.Figure {
	var longer, parts []float64
	for i := range jobs {
		its := res.Jobs[i].Iterations
		stirred := make([]bool, len(its))
		var first []int
		for _, c := range res.Changes {
			k, _ := slices.BinarySearchFunc(its, c.At, func(it service.Iteration, at time.Duration) int { return cmp.Compare(it.End, at) })
			if c.Job != jobs[i].Name || k+moving > len(its) {
				continue
			}
			if c.What == service.Migrated {
				first = append(first, k)
			}
			for n := range moving {
				stirred[k+n] = true
			}
		}
		var quiet []float64
		for k, it := range its {
			if !stirred[k] {
				quiet = append(quiet, it.Took.Seconds())
			}
		}
		if len(quiet) == 0 {
			continue
		}
		usual := results.Median(quiet)
		for _, k := range first {
			extra := -moving * usual
			for n := range moving {
				extra += its[k+n].Took.Seconds()
			}
			longer, parts = append(longer, extra), append(parts, extra/usual)
		}
	}
	if len(longer) == 0 {
		return nil
	}
	return []results.Figure{
		study.Exactly("stall", results.Cluster, kind, results.Median(longer)), study.Exactly("stall_part", results.Cluster, kind, results.Median(parts)),
	}
}

// summaries are what workers reported, also of jobs that were cut short. A worker's last models have
// all sums in them: one wrong bit in one of them stays in all models after it.
func (l *serviceLab) summaries(jobs []serving, out *deploy.Result) []results.JobSummary {
	var all []results.JobSummary
	for i := range out.Jobs {
		j, o := jobs[i].training(&l.cfg, l.seed, 0), &out.Jobs[i]
		sum := results.JobSummary{Job: j.Name, Workers: j.Workers}
		want := ""
		for rank, its := range o.Workers {
			if n := int64(len(its)); rank == 0 || n < sum.Iterations {
				sum.Iterations = n
			}
			if o.Digests[rank] == "" {
				continue
			}
			if want == "" {
				want = deploy.Reference(j)
			}
			sums := int64(len(j.Tensors) * len(its))
			sum.SumsChecked += sums
			if o.Digests[rank] != want {
				sum.SumErrors += sums
			}
		}
		if o.End > 0 {
			sum.JCT = (o.End - o.Start).Seconds()
		}
		all = append(all, sum)
	}
	return all
}

// own are figures that no simulator has.
func (l *serviceLab) own(kind results.Kind, out *deploy.Result, jobs []results.JobSummary) (figures []results.Figure) {
	add := func(metric, of string, v float64) {
		f := study.Exactly(metric, of, kind, v)
		f.N = 2 // at least
		figures = append(figures, f)
	}
	for _, j := range jobs {
		add("sum_errors", j.Job, float64(j.SumErrors))
	}
	var cpu, there float64
	var turns [3]int
	for i, a := range out.Aggregators {
		span := (a.To - a.From).Seconds()
		if span > 0 {
			add("cpu", strconv.Itoa(i), a.Stats.CPU.Seconds()/span)
		}
		cpu, there = cpu+a.Stats.CPU.Seconds(), there+span
		for t, n := range a.Turns {
			turns[t] += n
		}
	}
	if there > 0 {
		add("cpu_used", results.Cluster, cpu/there)
	}
	if n := float64(turns[0] + turns[1] + turns[2]); n > 0 && !l.cfg.Static {
		add("late", results.Cluster, float64(turns[1]+turns[2])/n)
		add("postponed", results.Cluster, float64(turns[2])/n)
	}
	return figures
}

// unwell is what limited nodes other than the testbed that is emulated.
func (l *serviceLab) unwell(ctx context.Context, jobs []serving, out *deploy.Result) ([]results.Trouble, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	all, err := l.tb.Health(ctx)
	late := func(where, what string, by, of time.Duration) {
		if share := by.Seconds() / of.Seconds(); of > 0 && share > study.LateShare {
			all = append(all, results.Trouble{
				Where: where, What: fmt.Sprintf("%s by %s in all, %s of its time (limit %s)",
					what, human.Quantity(by.Seconds(), "s"), human.Percent(share), human.Percent(study.LateShare)),
				Value: share, Limit: study.LateShare, Fatal: true,
			})
		}
	}
	for i := range out.Jobs {
		for rank, its := range out.Jobs[i].Workers {
			var by, of time.Duration
			for _, it := range its {
				by, of = by+it.Late, of+it.Spent
			}
			late(fmt.Sprintf("worker %s/%d on host %s", jobs[i].Name, rank, out.Jobs[i].On[rank]), "woke up late", by, of)
		}
	}
	for _, a := range out.Aggregators {
		late(fmt.Sprintf("Aggregator %d on host %s", a.ID, a.Host), "summed more slowly than it is to emulate", a.Stats.Late, a.To-a.From)
	}
	return all, err
}

// mastered keeps what pMaster told.
func mastered(b *study.Bench, events []pmaster.Event) error {
	return b.Lines("pmaster.jsonl", len(events), func(i int) any {
		return struct {
			study.Told
			pmaster.Event
		}{b.Told(), events[i]}
	})
}

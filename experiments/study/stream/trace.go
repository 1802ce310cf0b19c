// Package stream is the study of jobs that come over time, [trace]: they are submitted, wait, are placed in batches by a
// policy, run and leave, as NetPack's evaluation has them. It simulates whole traces, and runs short ones.
package stream

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/queue"
	"github.com/inabench/inabench/placement/trace"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/sim/replay"
)

// Kind is that of jobs that come over time, as NetPack places them.
var Kind = spec.Kind{
	Table: "trace", Type: reflect.TypeFor[*Trace](),
	Unplanned: tomlfile.WithHint("`inabench place` places some jobs at once, `inabench run --on sim` all of them as they come", "the jobs of a trace are placed as they come: there is no plan"),
}

// Trace is a stream of jobs in place of [[job]] tables: they are submitted over time,
// wait, are placed in batches by the policy, and leave when their iterations are done.
type Trace struct {
	// From is where the jobs are from: "philly", "poisson", "normal", "elasticflow" or
	// "seren", which are generated (see package trace), or the path of a CSV file ("*.csv"), or of what `inabench trace
	// fit` found in one ("*.toml"), which is generated, too. Paths are relative to the experiment's folder.
	From string `toml:"from,required"`

	Jobs    int      `toml:"jobs"`    // so many; of a file, drawn from its jobs. 0: all of a file's
	Sources []string `toml:"sources"` // of a file: only jobs of these
	// Load is the offered load: the jobs' GPU time over that of all GPUs between the first
	// submission and the last; of a file that is drawn again, that of the whole. 0, or not there: 1 of a generated trace, what
	// it is of a file or a fit.
	Load float64 `toml:"load"`
	// Scale multiplies all durations, and submissions with them. 0: 1.
	Scale float64 `toml:"scale"`
	// Oversized says what becomes of a file's jobs that want more GPUs than there are:
	// "refuse" the file, "drop" them, or "clamp" them to all GPUs.
	Oversized string `toml:"oversized" default:"refuse" words:"refuse,drop,clamp"`

	// Resample says how the jobs of a file differ from repeat to repeat: "windows" gives each a window of its own, one after
	// the other, which begins with an empty cluster, so that intervals hold for other parts of that cluster's time, too; and
	// "block" draws each from blocks of the file that begin anywhere (the circular block bootstrap), as long as the file, so
	// that the standard deviation of the repeats is the error of what the whole file gives: the interval of their mean is
	// none. Without it all repeats have the same jobs, but for those that `jobs` draws.
	Resample string `toml:"resample" words:"block,windows"`
	// Block is how long a block or a window is, in the file's time: long against what ties neighbouring jobs together,
	// such as a day, and short enough that the file has many.
	Block inventory.Duration `toml:"block"`

	MaxGPUs int                `toml:"max_gpus"`           // of a generated job; 0: all of the cluster's
	Mean    float64            `toml:"mean" default:"8"`   // GPUs of a job, of "normal" and "poisson"
	StdDev  float64            `toml:"stddev" default:"4"` // of GPUs of a job, of "normal"
	Length  inventory.Duration `toml:"mean_duration"`      // of generated jobs, exponential; 0: as published

	// Models are drawn from with equal chances: NetPack's six by default, and for a file
	// that names models, those.
	Models []string `toml:"models"`
	// Collective is by what all jobs reduce: "ina", "ps" or "ring", at the rates that they
	// leave each other; or in a simulation "halving-doubling", "halving-doubling-near" or
	// "recursive-doubling", with one worker for each GPU and the links to itself.
	Collective string `toml:"collective" default:"ina"`
	Pricing    string `toml:"pricing" default:"gpu-time"`                 // what jobs pay, for the profit: by "job", by "gpus", or by "gpu-time"
	PSes       int    `toml:"parameter_servers" default:"1"`              // of each job that has any
	Window     int    `toml:"window" default:"64"`                        // packets outstanding per worker, on a testbed
	Control    string `toml:"control" default:"fixed" words:"fixed,aimd"` // "aimd": the window follows ECN marks

	Period   inventory.Duration `toml:"period" default:"60s"`     // between batches, in the trace's time; 0: whenever something changed
	Fidelity string             `toml:"fidelity" default:"fluid"` // "fluid": jobs send all the time; "phases": they compute and send in turn, for short traces

	// Queue says who of the jobs that wait may start, before the policy says where: as the
	// "policy" has it, of all that wait; "fcfs", first come, first served: the first that does not fit blocks
	// all behind it; "backfill", EASY: that one has GPUs reserved, and a later job may start if it does not delay it, by
	// the estimate that jobs take their iterations times their computing, without the network.
	Queue string `toml:"queue" default:"policy"`
	// Ageing is by how much NetPack multiplies the value of a job for every batch that passes it over; 1 to 10: with
	// 1 jobs do not age. It is for queue = "policy".
	Ageing float64 `toml:"ageing" default:"1.1"`
	// Reservation has NetPack keep GPUs for a job that does not fit, as soon as it is worth more than all that could
	// start in its place. That ends such a job's wait, and makes all others wait longer; without it, the job waits until
	// enough GPUs are free at once.
	Reservation bool `toml:"reservation" default:"false"`
	// UserValues are by how much the jobs of a user are worth more to NetPack, or less: "alice=2"; 1e-6 to
	// 1e6. They are for a file that says whose a job is; its jobs may have values of their own, too.
	UserValues []string `toml:"user_values"`
}

// generated says whether the jobs are made rather than read.
func (t *Trace) generated() bool { return Generated(t.From) }

// Demands are the traces that are generated, by what the jobs ask for.
var Demands = trace.Demands()

// Generated says whether the jobs of a trace are made rather than read: as one of the Demands has them, or as
// `inabench trace fit` found them in a file, which is a TOML file.
func Generated(from string) bool { return slices.Contains(Demands, from) || fitted(from) }

func fitted(from string) bool { return strings.HasSuffix(from, ".toml") }

// InFile says whether a trace is from a file, of jobs or of what was fitted to them.
func InFile(from string) bool { return !slices.Contains(Demands, from) }

// CheckFrom finds what is wrong with where the jobs of a trace are from, how many they are, and their load, in a table of
// an experiment at a path. For a file of jobs, 0 of either is what the file has; a load of 0 is also that of a fit.
func CheckFrom(c *spec.Checker, table, from string, jobs int, load float64) {
	file := strings.HasSuffix(from, ".csv")
	if at := table + ".from"; !Generated(from) && !file && !c.Reported(at) && c.Has(at) {
		c.Problemf(at, tomlfile.OneOf(from, append(slices.Clone(Demands), "a file.csv", "a fit.toml")), "unknown trace %q", from)
	}
	if Generated(from) && jobs < 1 && !c.Reported(table+".jobs") {
		c.KeyProblemf(table, "write jobs = 1000", "how many jobs are to be generated?")
	}
	if !file || jobs != 0 {
		spec.Positive(c, table+".jobs", jobs)
	}
	if !file && !fitted(from) || load != 0 {
		spec.Positive(c, table+".load", load)
	}
}

// traffics are what the jobs of a trace may do together, in one network.
var traffics = map[string]cluster.Traffic{"ina": cluster.INA, "ps": cluster.PS, "ring": cluster.Ring}

// reductions are the operations that the jobs of a trace may reduce by instead, each as if the
// network were its own (replay.Config.Collective).
var reductions = map[string]func(workers int) collectives.Schedule{
	"halving-doubling":      collectives.HalvingDoubling,
	"halving-doubling-near": collectives.HalvingDoublingNear,
	"recursive-doubling":    collectives.RecursiveDoubling,
}

// WordsOf implements tomlfile.Wordy.
func (*Trace) WordsOf(key string) []string {
	switch key {
	case "collective":
		return append([]string{"ina", "ps", "ring"}, slices.Sorted(maps.Keys(reductions))...)
	case "pricing":
		return replay.Pricings()
	case "queue":
		return queue.Disciplines()
	case "fidelity":
		return []string{replay.Fluid.String(), replay.Phases.String()}
	}
	return nil
}

// Check implements study.Study.
func (t *Trace) Check(c *spec.Checker) {
	CheckFrom(c, "trace", t.From, t.Jobs, t.Load)
	for _, key := range []string{"sources", "oversized", "user_values", "resample", "block"} {
		if t.generated() && c.Has("trace."+key) {
			c.Problemf("trace."+key, "", "%s is about a file's jobs, and trace.from is %q", key, t.From)
		}
	}
	for key, v := range map[string]float64{"scale": t.Scale, "max_gpus": float64(t.MaxGPUs), "mean_duration": float64(t.Length), "block": float64(t.Block)} {
		spec.Positive(c, "trace."+key, v)
	}
	t.checkQueue(c)
	t.checkResample(c)
	if t.Collective == "ina" && c.Spec.Switch.Mode == "synchronous" && !c.Reported("switch.mode") {
		c.Problemf("switch.mode", `write mode = "statistical"`, "jobs of a trace come and go, and own no memory of switches: they take what is free")
	}
	if t.PSes < 1 || t.PSes > 64 {
		c.Problemf("trace.parameter_servers", "", "parameter_servers must be 1 to 64")
	}
	if (t.Window < 1 || t.Window > spec.MaxWindow) && !c.Reported("trace.window") {
		c.Problemf("trace.window", "", "window must be 1 to %d packets", spec.MaxWindow)
	}
	for i, m := range t.Models {
		at := fmt.Sprintf("trace.models[%d]", i)
		switch p, ok := c.Spec.Models().Lookup(m); {
		case !ok:
			c.Problemf(at, tomlfile.DidYouMean(m, c.Spec.Models().Names()), "no model %q", m)
		case p.Basis == workload.Unknown:
			c.Problemf(at, "give one in a file of your own, and name that in catalogue", "nobody knows how long a step of %s takes", m)
		}
	}
}

// checkResample finds what is wrong with how a file is drawn again.
func (t *Trace) checkResample(c *spec.Checker) {
	switch {
	case t.generated() || c.Reported("trace.resample") || c.Reported("trace.block"):
	case t.Resample == "" && t.Block > 0:
		c.KeyProblemf("trace.block", `write resample = "block" or "windows"`, "a block without resample, which draws it")
	case t.Resample != "" && t.Block == 0:
		c.Problemf("trace.resample", `write block = "24h"`, "how long is a block?")
	case t.Resample != "" && t.Jobs > 0:
		c.Problemf("trace.jobs", "inabench trace import --sample draws jobs once, for all repeats", "jobs draws from the file's jobs, and resample from its blocks: keep one")
	}
}

// traced is a job of a trace, as a replay takes it, with what it is called.
type traced struct {
	replay.Job
	Name, Model string
}

// traceMetrics are the figures of a trace of jobs.
var traceMetrics = spec.Measurables{}.
	Add("job", "jct sum_errors").
	Add(results.Cluster, "avg_jct avg_jct_queued makespan network_time queueing queueing_p95 placement_time "+
		"de de_queued gpu_utilisation link_utilisation aggregator_utilisation "+
		"used_machines machine_hours fragmentation cross_traffic profit_rate total_profit").
	Predict("jct").Ratios()

// Metrics implements study.Study.
func (t *Trace) Metrics() spec.Measurables { return traceMetrics }

// Headline implements study.Study.
func (t *Trace) Headline() []string { return []string{"avg_jct_queued", "avg_jct", "de"} }

// Predictors implements study.Study.
func (t *Trace) Predictors() []string { return []string{spec.Replayed} }

// Count implements study.Study.
func (t *Trace) Count() int { return t.Jobs }

// Files implements study.Reader.
func (t *Trace) Files(add func(path, key string)) {
	if InFile(t.From) {
		add(t.From, "trace.from")
	}
}

// Supports implements study.Study: workers that are GPUs of their own are only simulated.
func (t *Trace) Supports(driver string) error {
	if reductions[t.Collective] != nil && driver != "sim" {
		return fmt.Errorf("a trace of jobs that reduce by %s: %w", t.Collective, errors.ErrUnsupported)
	}
	return nil
}

// Switched implements study.Switched: rings are unicast.
func (t *Trace) Switched() (of, use string) {
	if traffics[t.Collective] == cluster.Ring {
		return "", ""
	}
	return "the trace's jobs", `use trace.collective = "ring"`
}

// Ready implements study.Study. Of a file that is drawn again, the jobs that all draws are from are looked at, and whether
// every repeat has a window.
func (t *Trace) Ready(p study.Planned) error {
	s, gpus := p.Spec, clusterConfig(p.Spec).GPUs()
	if t.Resample == "" {
		_, err := t.jobs(s, s.Measure.Seed, gpus)
		return err
	}
	tr, scale, err := t.file(s, s.Measure.Seed, gpus)
	if err != nil {
		return err
	}
	if err := t.checkUsers(tr); err != nil {
		return err
	}
	if _, err := t.traced(s, tr, s.Measure.Seed); err != nil {
		return err
	}
	return p.EachSeed(t.Resample == windows, func(seed uint64) error { // if there is one draw of blocks, there are others
		_, err := t.again(tr, scale, s, seed)
		return err
	})
}

// jobs makes the trace of one repeat: the same for all policies.
func (t *Trace) jobs(s *spec.Spec, seed uint64, gpus int) ([]traced, error) {
	tr, err := t.Read(s, seed, gpus)
	if err != nil {
		return nil, err
	}
	if t.Jobs == 0 && t.Resample == "" { // a sample or a draw may have no job of a user
		if err := t.checkUsers(tr); err != nil {
			return nil, err
		}
	}
	return t.traced(s, tr, seed)
}

// traced is the jobs of a trace as a replay takes them.
func (t *Trace) traced(s *spec.Spec, tr *trace.Trace, seed uint64) ([]traced, error) {
	values := t.values(tr)
	models := t.Models
	named := len(models) == 0 && slices.ContainsFunc(tr.Jobs, func(j trace.Job) bool { return j.Model != "" })
	if len(models) == 0 {
		models = trace.NetPackModels()
	}
	pick := rand.New(rand.NewPCG(seed, 0x6d6f_6465_6c73))
	profiles := map[string]workload.Profile{} // a look-up copies all layers
	out := make([]traced, len(tr.Jobs))
	for i, j := range tr.Jobs {
		model := models[pick.IntN(len(models))]
		if named {
			model = j.Model
		}
		p, ok := profiles[model]
		if !ok {
			p, ok = s.Models().Lookup(model)
			profiles[model] = p
		}
		if !ok || p.Basis == workload.Unknown {
			return nil, spec.Invalidf("%s: job %s is of model %q, of which no step is known: give trace.models, or a catalogue of your own", tr.Name, j.ID, model)
		}
		out[i] = traced{Name: j.ID, Model: model, Job: replay.Job{
			ID: i, Submit: j.Submit, GPUs: j.GPUs, Compute: p.Compute().Seconds(), Bytes: float64(p.Bytes()),
			Iterations: replay.Iterations(j.Duration, p.Compute().Seconds()),
			Traffic:    traffics[t.Collective], PSes: t.PSes, Skew: p.Skew(), Value: values[i],
		}}
	}
	return out, nil
}

// Read reads or generates the trace of one repeat and cuts it to size.
func (t *Trace) Read(s *spec.Spec, seed uint64, gpus int) (*trace.Trace, error) {
	if t.generated() {
		return t.generate(s, seed, gpus)
	}
	tr, scale, err := t.file(s, seed, gpus)
	if err != nil {
		return nil, err
	}
	return t.again(tr, scale, s, seed)
}

// scale is by how much durations and submissions are multiplied.
func (t *Trace) scale() float64 { return cmp.Or(t.Scale, 1) }

// generate makes the trace of one repeat.
func (t *Trace) generate(s *spec.Spec, seed uint64, gpus int) (*trace.Trace, error) {
	g := trace.Generator{
		Demand: trace.Demand(t.From), Jobs: t.Jobs, Seed: seed, Mean: t.Mean, StdDev: t.StdDev,
		MaxGPUs: gpus, MeanDuration: t.Length.Std().Seconds(), Load: t.Load, Capacity: gpus,
	}
	if t.MaxGPUs > 0 {
		g.MaxGPUs = min(gpus, t.MaxGPUs)
	}
	switch {
	case fitted(t.From):
		fit, err := trace.LoadFit(s.Beside(t.From, "trace.from"))
		if err != nil {
			return nil, spec.Invalid(err)
		}
		g.Demand, g.Fit = trace.Fitted, fit
	case g.Load == 0:
		g.Load = 1
	}
	tr, err := trace.Generate(g)
	if err != nil {
		return nil, spec.Invalid(err)
	}
	if scale := t.scale(); scale != 1 {
		if _, err := (trace.Transform{ScaleSubmit: scale, ScaleDuration: scale}).ApplyTo(tr); err != nil {
			return nil, spec.Invalid(err)
		}
	}
	return tr, nil
}

// file reads the jobs of a file that are wanted, and says by how much their submissions were multiplied. The seed is that
// of a sample.
func (t *Trace) file(s *spec.Spec, seed uint64, gpus int) (tr *trace.Trace, scale float64, err error) {
	if tr, _, err = trace.Load(s.Beside(t.From, "trace.from"), trace.Options{}); err != nil {
		return nil, 0, spec.Invalid(err)
	}
	scale = t.scale()
	x := trace.Transform{Sources: t.Sources, Sample: t.Jobs, Seed: seed, ScaleSubmit: scale, ScaleDuration: scale, Rebase: true}
	if t.Oversized != "refuse" {
		x.MaxGPUs, x.Clamp = gpus, t.Oversized == "clamp"
	}
	if _, err := x.ApplyTo(tr); err != nil {
		return nil, 0, spec.Invalid(err)
	}
	if t.Oversized == "refuse" {
		if err := tr.CheckGPUs(gpus); err != nil {
			return nil, 0, spec.Invalid(err)
		}
	}
	if has := trace.Inspect(tr).Load; t.Load > 0 && has > 0 {
		factor := has / (t.Load * float64(gpus))
		if _, err := (trace.Transform{ScaleSubmit: factor}).ApplyTo(tr); err != nil {
			return nil, 0, spec.Invalid(err)
		}
		scale *= factor
	}
	return tr, scale, nil
}

// The ways in which a file's repeats are drawn.
const (
	blocks  = "block"
	windows = "windows"
)

// again is what one repeat has of a file's jobs, whose submissions were multiplied by scale.
func (t *Trace) again(tr *trace.Trace, scale float64, s *spec.Spec, seed uint64) (*trace.Trace, error) {
	length := t.Block.Std().Seconds() * scale
	var err error
	switch t.Resample {
	case blocks:
		tr, err = tr.Bootstrap(length, seed)
	case windows:
		tr, err = tr.Window(int(seed-s.Measure.Seed), length)
	}
	if err != nil {
		return nil, spec.Invalid(err)
	}
	return tr, nil
}

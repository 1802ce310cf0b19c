// Package autops is the study of jobs that share a Parameter Service, [service]: pMaster assigns their tensors to
// Aggregators, and moves them, as AutoPS does.
package autops

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/stream"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/paramservice/background"
	"github.com/inabench/inabench/testbed/paramservice/node"
	"github.com/inabench/inabench/testbed/paramservice/pmaster"
)

// Kind is that of jobs that share a Parameter Service, as AutoPS does.
var Kind = spec.Kind{
	Table: "service", Type: reflect.TypeFor[*Service](), Jobs: "[[service.job]]", Mute: true, Leaving: true, Single: true,
	Faultless: "the processes of a Parameter Service have no faults",
	Unplanned: tomlfile.WithHint("`inabench run --on sim` simulates them in seconds", "Aggregators of a service are chosen as jobs come: there is no plan"),
	Parts:     map[string]spec.Part{masterVerb: pmaster.Main, nodeVerb: node.Main, flowsVerb: background.Main},
}

// Service are training jobs whose gradients are added up on CPU machines: by a Parameter Service
// that all jobs share (AutoPS), or by parameter servers that each job has for itself. Workers are
// on hosts with GPUs, one each, Aggregators and servers on those without.
type Service struct {
	Mode string `toml:"mode" default:"shared" words:"shared,static"` // "shared": by the service; "static": as with ps-lite, as many servers as the job asks for, its tensors in turn

	Table    []ServiceJob       `toml:"job"`      // with all requests of all tensors; or
	Trace    *ServiceTrace      `toml:"trace"`    // only in simulations: only arrivals, exits and the planner are followed
	Duration inventory.Duration `toml:"duration"` // ends all jobs that have not ended before; on a testbed a job does, in place of staying for some time, as many iterations as it would alone in that time

	// Sum is how many bits of gradients an Aggregator adds up and applies in a second. By default so
	// many that a server of VGG19 with two workers is busy for 16 % of the time (AutoPS, Figure 2).
	Sum     inventory.BitRate  `toml:"sum" default:"114Gbit/s"`
	Rate    inventory.BitRate  `toml:"rate"`                   // of a NIC, as the service gets to use it, not in a lab; 0: as the inventory says
	Latency inventory.Duration `toml:"latency" default:"10us"` // of a message, in simulations
	Slice   inventory.Bytes    `toml:"slice" default:"16MiB"`  // larger tensors are cut into equal parts, at most so large; 0: they are not
	Jitter  float64            `toml:"jitter" default:"0.02"`  // standard deviation of an iteration's computing, as a part of it; drawn by the seed, for all workers of a job alike, and cut off at half of it

	Aggregators int                `toml:"aggregators"`              // at most, temporary ones among them; 0: as many as there are hosts without GPUs, in a trace any number
	Cluster     int                `toml:"cluster" default:"32"`     // Aggregators under one controller
	LossLimit   float64            `toml:"loss_limit" default:"0.1"` // part of its speed that a job may lose by the planner's model
	LowPerf     float64            `toml:"low_perf" default:"0.9"`   // part of its speed alone below which a job is assigned anew
	Observe     int                `toml:"observe" default:"100"`    // iterations after which that is looked at
	Interfered  float64            `toml:"interference" default:"2"` // how many times as long transfers are of an Aggregator that is interfered with
	Profile     int                `toml:"profile" default:"10"`     // iterations on temporary Aggregators
	Period      inventory.Duration `toml:"period"`                   // between scaling; 0: at every arrival and exit
	Threshold   int                `toml:"threshold" default:"4"`    // Aggregators that waiting jobs need together, above which a period is not waited for

	// Migrate has all tensors of a job go to other machines after every so many iterations, to
	// see what that costs.
	Migrate int                `toml:"migrate"`
	Packing inventory.Duration `toml:"packing"` // how long an Aggregator takes to get a tensor ready to be copied, as with protobuf
	// Background is how many flows there are on the link of the Aggregator with most bytes,
	// from From on until that Aggregator is given back, also a temporary one of a job that is profiled then. On a testbed they go
	// to the last host with GPUs, which is to have no worker.
	Background int                `toml:"background"`
	From       inventory.Duration `toml:"background_from" default:"10s"` // from when on there are background flows

	Usage inventory.Duration `toml:"usage"` // length of the intervals in which the use of each Aggregator's core is looked at, in simulations; 0: it is not
}

// ServiceJob is one training job, or several that are alike.
type ServiceJob struct {
	At      string             `toml:",path"`
	Name    string             `toml:"name,required"`       // of several: name1, name2, ...
	Model   string             `toml:"model,required"`      // one of the catalogue
	Servers int                `toml:"servers" default:"1"` // parameter servers that the user asks for
	Workers int                `toml:"workers" default:"2"` // on GPUs of their own
	Copies  int                `toml:"copies" default:"1"`  // so many jobs that are alike
	Every   inventory.Duration `toml:"every"`               // between arrivals of copies
	Arrive  inventory.Duration `toml:"arrive"`              // of the first, from the beginning
	// Compute is how long a worker computes in an iteration; 0: as the catalogue says.
	Compute    inventory.Duration `toml:"compute"`
	Iterations int                `toml:"iterations"` // after which it ends; 0: as stay says
	Stay       inventory.Duration `toml:"stay"`       // how long it trains; 0: until all end
}

// ServiceTrace is where the jobs of a long simulation are from. No trace says what servers jobs asked
// for, nor which models they train: Servers, Smallest and Models say what is assumed.
type ServiceTrace struct {
	From string  `toml:"from" default:"philly"` // generated, or a CSV file or a fit to one, relative to the experiment's folder
	Jobs int     `toml:"jobs"`                  // so many; of a file, drawn from its jobs. 0: all of a file's
	Load float64 `toml:"load"`                  // GPU time asked for over that of all GPUs; 0: 0.8 of a generated trace, what it is of a file or a fit

	Models  []string             `toml:"models"`                  // drawn from with equal chances; none: the paper's four
	Compute []inventory.Duration `toml:"compute"`                 // of an iteration of each, in their order; none: as the catalogue says
	GPUs    int                  `toml:"worker_gpus" default:"4"` // GPUs for each worker
	// Servers is how many a job asks for, for each of its workers, rounded up; jobs with fewer than
	// Smallest workers ask for none.
	Servers   float64            `toml:"servers_per_worker" default:"1"`
	Smallest  int                `toml:"smallest" default:"2"`    // workers of the smallest job that asks for servers
	Profiling inventory.Duration `toml:"profiling" default:"30s"` // how long a job is on temporary Aggregators
}

// autopsModels are those of the paper's evaluation, as the catalogue calls them.
var autopsModels = []string{"alexnet", "vgg19", "awd-lstm", "bert-base"}

// mostOfJob bounds the servers and workers of a job, and how many jobs are alike: each worker is on a host of its own.
const mostOfJob = 100_000

// staticService is the mode in which jobs have servers of their own.
const staticService = "static"

// Check implements study.Study.
func (o *Service) Check(c *spec.Checker) {
	switch {
	case len(o.Table) == 0 && o.Trace == nil:
		c.KeyProblemf("service", "add [[service.job]] tables, or [service.trace]", "which jobs?")
	case len(o.Table) > 0 && o.Trace != nil:
		c.KeyProblemf("service.trace", "keep one of them", "[[service.job]] and [service.trace] exclude each other")
	}
	for key, n := range map[string]float64{
		"duration": float64(o.Duration), "rate": float64(o.Rate), "sum": float64(o.Sum),
		"aggregators": float64(o.Aggregators), "cluster": float64(o.Cluster), "observe": float64(o.Observe), "period": float64(o.Period), "usage": float64(o.Usage),
	} {
		spec.Positive(c, "service."+key, n)
	}
	for key, n := range map[string]int{"migrate": o.Migrate, "background": o.Background, "threshold": o.Threshold} {
		if n < 0 && !c.Reported("service."+key) {
			c.Problemf("service."+key, "", "%s must not be negative", key)
		}
	}
	if o.Background > background.MaxFlows && !c.Reported("service.background") {
		c.Problemf("service.background", "", "background is %d flows at most", background.MaxFlows)
	}
	for key, n := range map[string]float64{"jitter": o.Jitter, "loss_limit": o.LossLimit, "low_perf": o.LowPerf} {
		if !(n >= 0 && n < 1) && !c.Reported("service."+key) {
			c.Problemf("service."+key, "", "%s is a part, at least 0 and less than 1", key)
		}
	}
	if o.Profile < 2 && !c.Reported("service.profile") {
		c.Problemf("service.profile", "the first one is not counted", "profile must be at least 2")
	}
	if o.Interfered <= 1 && !c.Reported("service.interference") {
		c.Problemf("service.interference", "", "interference must be above 1")
	}
	if o.Trace != nil {
		o.Trace.check(c)
		for _, key := range []string{"duration", "migrate", "packing", "background", "background_from", "usage"} {
			if c.Has("service." + key) {
				c.Problemf("service."+key, "", "%s is about [[service.job]] tables", key)
			}
		}
		return
	}
	o.table(c)
}

// table checks the jobs of a table.
func (o *Service) table(c *spec.Checker) {
	names := map[string]string{}
	workers := 0
	for i := range o.Table {
		j := &o.Table[i]
		for key, n := range map[string]int{"servers": j.Servers, "workers": j.Workers, "copies": j.Copies, "iterations": j.Iterations} {
			spec.Positive(c, j.At+"."+key, n)
		}
		spec.Positive(c, j.At+".stay", j.Stay)
		spec.Positive(c, j.At+".compute", j.Compute)
		c.AtMost(j.At+".servers", j.Servers, mostOfJob, "servers")
		c.AtMost(j.At+".workers", j.Workers, mostOfJob, "workers")
		if j.Name != "" && !spec.JobName.MatchString(j.Name) {
			c.Problemf(j.At+".name", "letters, digits, '_' and '-'", "%q is not a job name", j.Name)
		}
		if !c.AtMost(j.At+".copies", j.Copies, mostOfJob, "copies") {
			continue // nobody names so many
		}
		for _, name := range j.names() {
			if first, dup := names[name]; dup {
				c.KeyProblemf(j.At, "first at "+c.Pos(first).String(), "duplicate job %q", name)
			}
			names[name] = j.At
		}
		if c.Has(j.At + ".model") {
			checkTrained(c, j.At+".model", j.Model, c.Has(j.At+".compute"))
		}
		if c.Has(j.At+".iterations") && c.Has(j.At+".stay") {
			c.Problemf(j.At+".stay", "keep one of them", "iterations and stay exclude each other")
		}
		if !c.Has(j.At+".iterations") && !c.Has(j.At+".stay") && !c.Has("service.duration") {
			c.KeyProblemf(j.At, `write iterations = 1000, or duration = "60s" in [service]`, "job %s never ends", j.Name)
		}
		workers += max(0, j.Workers) * max(0, j.Copies)
	}
	begins := func(j ServiceJob) bool { return j.Arrive < o.Duration }
	if o.Duration > 0 && len(o.Table) > 0 && !slices.ContainsFunc(o.Table, begins) {
		c.Problemf("service.duration", "", "all jobs arrive when duration is over")
	}
	if c.Lab == nil || len(o.Table) == 0 {
		return
	}
	with, without := cpuHosts(c.Lab.Inv)
	switch {
	case workers > with:
		c.KeyProblemf("service", "a worker is on a host of its own", "%d workers, and %d hosts have GPUs", workers, with)
	case without == 0:
		c.KeyProblemf("service", "give some gpus = 0", "Aggregators are on hosts without GPUs, and there are none")
	case o.Aggregators > without && !c.Reported("service.aggregators"):
		c.Problemf("service.aggregators", "", "%d Aggregators, and %d hosts have no GPUs", o.Aggregators, without)
	}
}

// cpuHosts counts the hosts with GPUs and those without.
func cpuHosts(inv *inventory.Inventory) (with, without int) {
	for _, h := range inv.Hosts {
		if h.GPUs > 0 {
			with++
		} else {
			without++
		}
	}
	return with, without
}

// checkTrained reports a model that nobody knows, or knows how long its steps take.
func checkTrained(c *spec.Checker, at, name string, timed bool) {
	switch p, ok := c.Spec.Models().Lookup(name); {
	case c.Reported(at):
	case !ok:
		c.Problemf(at, tomlfile.DidYouMean(name, c.Spec.Models().Names()), "no model %q", name)
	case p.Basis == workload.Unknown && !timed:
		c.Problemf(at, `say it: compute = "100ms"`, "nobody knows how long a step of %s takes", name)
	}
}

// names are those of the copies.
func (j *ServiceJob) names() []string {
	if j.Copies <= 1 {
		return []string{j.Name}
	}
	out := make([]string, j.Copies)
	for i := range out {
		out[i] = fmt.Sprint(j.Name, i+1)
	}
	return out
}

// check finds what is wrong with a trace.
func (t *ServiceTrace) check(c *spec.Checker) {
	const table = "service.trace"
	const at = table + "."
	stream.CheckFrom(c, table, t.From, t.Jobs, t.Load)
	for key, n := range map[string]float64{"worker_gpus": float64(t.GPUs),
		"servers_per_worker": t.Servers, "smallest": float64(t.Smallest), "profiling": float64(t.Profiling)} {
		spec.Positive(c, at+key, n)
	}
	if len(t.Compute) > 0 && len(t.Compute) != len(t.models()) {
		c.Problemf(at+"compute", "", "%d times for %d models", len(t.Compute), len(t.models()))
	}
	for i, m := range t.Models {
		checkTrained(c, fmt.Sprintf("%smodels[%d]", at, i), m, len(t.Compute) > 0)
	}
	for i, d := range t.Compute {
		if d <= 0 {
			c.Problemf(fmt.Sprintf("%scompute[%d]", at, i), "", "compute must be above zero")
		}
	}
}

func (t *ServiceTrace) models() []string {
	if len(t.Models) > 0 {
		return t.Models
	}
	return autopsModels
}

// Count implements study.Study.
func (o *Service) Count() int {
	if o.Trace != nil {
		return o.Trace.Jobs
	}
	n := 0
	for i := range o.Table {
		n += o.Table[i].Copies
	}
	return n
}

// Supports implements study.Study.
func (o *Service) Supports(driver string) error {
	what := ""
	switch {
	case driver == "sim":
	case o.Trace != nil:
		what = "[service.trace] is simulated"
	case o.Usage > 0:
		what = "usage of [service] is simulated"
	case driver == "lab" && o.Rate > 0:
		what = "rate of [service] is for emulated NICs"
	}
	if what != "" {
		return fmt.Errorf("%s, not run on %s: %w", what, driver, errors.ErrUnsupported)
	}
	return nil
}

var serviceMetrics = spec.Measurables{}.
	Add("job", "jct iteration_time speed speed_static loss sum_errors").
	Add("aggregator", "busy busy_peak idle cpu").
	Add(results.Cluster, "stall avg_iteration_time aggregators most_aggregators servers cpu_reduction cpu_saving cpu_busy cpu_used "+
		"avg_speed min_speed avg_speed_static min_speed_static max_loss moves reverts reverted_at evacuations late postponed stall_part "+
		"ratio_above_1 ratio_p50 ratio_p99 ratio_worst").
	Predict("jct iteration_time speed busy aggregators cpu_reduction cpu_busy avg_speed min_speed reverted_at").Ratios()

// Metrics implements study.Study.
func (o *Service) Metrics() spec.Measurables { return serviceMetrics }

// Headline implements study.Study.
func (o *Service) Headline() []string {
	if o.Trace != nil {
		return []string{"cpu_saving", "ratio_above_1", "ratio_worst"}
	}
	return []string{"aggregators", "cpu_reduction", "avg_speed", "min_speed"}
}

// Predictors implements study.Study.
func (o *Service) Predictors() []string { return []string{served} }

// Files implements study.Reader.
func (o *Service) Files(add func(path, key string)) {
	if o.Trace != nil && stream.InFile(o.Trace.From) {
		add(o.Trace.From, "service.trace.from")
	}
}

// Build implements study.Builder.
func (o *Service) Build(k *study.FabricKey, s *spec.Spec, driver string) {
	k.Beat = o.beat(s, k.Scale)
	if driver == "netns" {
		k.Rate = o.Rate
	}
}

// Columns implements study.Study.
func (o *Service) Columns() []string {
	return strings.Fields("job model servers workers arrive_s start_s end_s iterations iteration_s aggregator_s moved loss")
}

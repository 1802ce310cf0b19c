// Package turns is the study of jobs that take turns with aggregation trees, [operations]: hosts, trees and who may use
// them when are decided as MINA does (INFOCOM '24), or part by part by a baseline.
package turns

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/mina"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed/mina/controller"
	"github.com/inabench/inabench/testbed/sim/ops"
)

// Kind is that of jobs that take turns with trees, as MINA has them.
var Kind = spec.Kind{
	Table: "operations", Type: reflect.TypeFor[*Operations](), Jobs: "[[operations.job]]", Virtual: true, Ranks: true, Trees: true,
	Unplanned: tomlfile.WithHint("`inabench run --on sim` simulates them in seconds", "hosts and trees of operations are chosen as jobs come: there is no plan"),
	Parts:     map[string]spec.Part{controllerVerb: controller.Main},
}

// Operations are jobs that share aggregation trees: each step of a job computes and reduces
// its gradients, one all-reduce after the other, with INA or without. Hosts, trees and who
// may use them when are decided as MINA does (INFOCOM '24), or part by part by a baseline.
type Operations struct {
	// From is a file of jobs in the order in which they come, a line each: model, hosts and
	// steps with tabs between. Empty: Table, or Jobs that are drawn.
	From  string         `toml:"from"`
	Table []OperationJob `toml:"job"` // a list of jobs; or

	Jobs      int      `toml:"jobs"`                       // of a file or table: the first so many; 0: all
	Histogram string   `toml:"histogram" default:"mina-0"` // of how many hosts jobs ask for, by its name
	Models    []string `toml:"models"`                     // drawn from with equal chances; none: the seven of MINA
	Batch     int      `toml:"batch" default:"4"`          // samples of a worker in a step
	Steps     []int    `toml:"steps"`                      // from and to; none: 10 to 100, in tens
	// Load is the hosts' time that jobs ask for, over that of all hosts, between the first
	// arrival and the last, which are drawn. 0: all jobs are there from the beginning, unless
	// a file or table says when they come.
	Load float64 `toml:"load"`

	// Modules are those of MINA's three parts that are on, of "JP" (placement), "TB" (trees)
	// and "RS" (sharing), as in the paper's Table I: "JP TB RS". The others are its baselines:
	// first-fit, first-idle, greedy. It takes the place of the next three keys.
	Modules    string  `toml:"modules"`
	Placement  string  `toml:"placement" default:"minimal"` // who decides on hosts
	Alpha      float64 `toml:"alpha" default:"0.5"`         // weight of MINA's score for free fragments, 0 to 4
	Trees      string  `toml:"trees" default:"mina"`        // who builds trees
	Candidates int     `toml:"candidates" default:"5"`      // trees to choose from for each job; 0: all
	Groups     string  `toml:"groups" default:"apart"`      // who may join a sharing group
	Weighted   bool    `toml:"weighted"`                    // trees go to those that gain most by INA
	Sharing    string  `toml:"sharing" default:"mina"`      // who of a sharing group may use its tree when
	// Maintenance takes one cable between switches after the other from the trees, each for so
	// long, so that they migrate. On testbeds; rings go on using the cable.
	Maintenance inventory.Duration `toml:"maintenance"`
	// Profiled says that the patterns of jobs are known before they run, as they are to the
	// simulator. Otherwise ranks find out, and share from then on. On testbeds.
	Profiled bool `toml:"profiled" default:"true"`
	// Share has all jobs want one and the same tree for so long, whatever their steps: the
	// score is over those that they finish. Only in simulations.
	Share inventory.Duration `toml:"share"`

	Latency   inventory.Duration `toml:"latency" default:"50us"` // of an all-reduce, besides its bytes over bandwidth
	Bandwidth inventory.BitRate  `toml:"bandwidth"`              // of gradients without INA; 0: the rate of a cable
	Ratio     float64            `toml:"ratio" default:"2"`      // how many times as fast operations are with INA
	GPUSpeed  float64            `toml:"gpu_speed" default:"1"`  // over those that models were measured on
	Migration inventory.Duration `toml:"migration"`              // how long a job is without a tree when it gets another

	Score string `toml:"score" default:"jobs" words:"jobs,hosts"` // what a job counts in means: 1 ("jobs"), or as it has "hosts"
}

// OperationJob is one job of a table.
type OperationJob struct {
	At     string             `toml:",path"`
	Name   string             `toml:"name"`           // default: job1, job2, ...
	Model  string             `toml:"model,required"` // with a known pattern
	Hosts  int                `toml:"hosts,required"` // so many
	Steps  int                `toml:"steps,required"` // after which it ends
	Arrive inventory.Duration `toml:"arrive"`         // from the beginning
}

// The modules of MINA and what can stand in their place.
var (
	hostPolicies, treeBuilders, groupings = mina.Words()

	sharingRules  = ops.Sharings()
	operationKeys = []string{"jobs", "histogram", "models", "steps"}
)

// WordsOf implements tomlfile.Wordy.
func (*Operations) WordsOf(key string) []string {
	switch key {
	case "placement":
		return hostPolicies
	case "trees":
		return treeBuilders
	case "groups":
		return groupings
	case "sharing":
		return sharingRules
	}
	return nil
}

// Check implements study.Study.
func (o *Operations) Check(c *spec.Checker) {
	if c.Spec.Clos == nil && !c.Has("inventory") {
		c.KeyProblemf("operations", "add [clos]", "trees are built on a fat-tree of several layers")
	}
	given := 0
	for _, key := range []string{"from", "job", "jobs"} {
		if c.Has("operations." + key) {
			given++
		}
	}
	switch {
	case given == 0:
		c.KeyProblemf("operations", "write jobs = 2000", "which jobs?")
	case c.Has("operations.job") && c.Has("operations.from"):
		c.Problemf("operations.from", "keep one of them", "[[operations.job]] and a file of jobs")
	case c.Has("operations.job") && o.Jobs > len(o.Table):
		c.Problemf("operations.jobs", "", "the first %d of %d jobs", o.Jobs, len(o.Table))
	}
	for _, key := range operationKeys[1:] {
		if c.Has("operations."+key) && (c.Has("operations.from") || c.Has("operations.job")) {
			c.Problemf("operations."+key, "", "%s is about jobs that are drawn", key)
		}
	}
	spec.Positive(c, "operations.jobs", o.Jobs)
	c.AtMost("operations.jobs", o.Jobs, spec.MostJobs, "jobs")
	spec.Positive(c, "operations.load", o.Load)
	if o.Load > 0 && slices.ContainsFunc(o.Table, func(j OperationJob) bool { return j.Arrive > 0 }) {
		c.Problemf("operations.load", "keep one of them", "load draws when jobs come, and arrive says it")
	}
	spec.Positive(c, "operations.share", o.Share)
	spec.Positive(c, "operations.maintenance", o.Maintenance)
	spec.Positive(c, "operations.bandwidth", o.Bandwidth)
	spec.Positive(c, "operations.gpu_speed", o.GPUSpeed)
	if o.Ratio < 1 && !c.Reported("operations.ratio") {
		c.Problemf("operations.ratio", "", "ratio must be at least 1: with INA an operation is not slower")
	}
	if (o.Alpha < 0 || o.Alpha > 4) && !c.Reported("operations.alpha") {
		c.Problemf("operations.alpha", "", "alpha must be 0 to 4")
	}
	if o.Candidates < 0 && !c.Reported("operations.candidates") {
		c.Problemf("operations.candidates", "", "candidates must be 0, for all, or more")
	}
	if s := o.Steps; len(s) > 0 && (len(s) != 2 || s[0] < 1 || s[1] < s[0]) && !c.Reported("operations.steps") {
		c.Problemf("operations.steps", "write steps = [10, 100]", "steps are from a number to one that is not smaller")
	}
	o.modules(c)
	if _, ok := workload.BuiltinHistograms().Lookup(o.Histogram); !ok && !c.Reported("operations.histogram") {
		c.Problemf("operations.histogram", tomlfile.OneOf(o.Histogram, workload.BuiltinHistograms().Names()), "no histogram %q", o.Histogram)
	}
	patterns := c.Spec.Patterns()
	model := func(at, name string) {
		if _, ok := patterns.Lookup(name, o.Batch); !ok && !c.Reported(at) {
			c.Problemf(at, tomlfile.OneOf(name, patterns.Models(o.Batch)), "nobody knows the pattern of %q at batch %d", name, o.Batch)
		}
	}
	for i, m := range o.Models {
		model(fmt.Sprintf("operations.models[%d]", i), m)
	}
	names := map[string]string{}
	for i := range o.Table {
		j := &o.Table[i]
		if j.Name == "" {
			j.Name = fmt.Sprintf("job%d", i+1)
		}
		switch first, dup := names[j.Name]; {
		case dup:
			c.KeyProblemf(j.At, "first at "+c.Pos(first).String(), "duplicate job %q", j.Name)
		case !spec.JobName.MatchString(j.Name):
			c.Problemf(j.At+".name", "letters, digits, '_' and '-'", "%q is not a job name", j.Name)
		}
		names[j.Name] = j.At
		if c.Has(j.At + ".model") {
			model(j.At+".model", j.Model)
		}
		spec.Positive(c, j.At+".steps", j.Steps)
		spec.Positive(c, j.At+".hosts", j.Hosts)
		if c.Lab != nil && j.Hosts > len(c.Lab.Hosts) && !c.Reported(j.At+".hosts") {
			c.Problemf(j.At+".hosts", "", "%d hosts, and there are %d", j.Hosts, len(c.Lab.Hosts))
		}
	}
	if len(o.Models) == 0 && !slices.Contains(patterns.Models(o.Batch), "vit-large") && !c.Has("operations.job") && !c.Has("operations.from") {
		c.Problemf("operations.batch", "", "MINA's models are not known at batch %d", o.Batch)
	}
}

// Supports implements study.Study.
func (o *Operations) Supports(driver string) error {
	switch {
	case driver == "sim":
		return nil
	case o.Sharing == "thrifty":
		return fmt.Errorf("sharing = \"thrifty\" is only simulated so far: %w", errors.ErrUnsupported)
	case o.Share > 0:
		return fmt.Errorf("share is about simulations, on a testbed jobs need steps: %w", errors.ErrUnsupported)
	}
	return nil
}

// Switched implements study.Switched.
func (o *Operations) Switched() (of, use string) {
	return "jobs that share trees", "use switches that inabench programs"
}

// modules turns parts of MINA off.
func (o *Operations) modules(c *spec.Checker) {
	if !c.Has("operations.modules") {
		return
	}
	for _, key := range []string{"placement", "trees", "sharing"} {
		if c.Has("operations." + key) {
			c.Problemf("operations."+key, "keep one of them", "%s and modules exclude each other", key)
		}
	}
	on := strings.Fields(o.Modules)
	o.Placement, o.Trees, o.Sharing = "first-fit", "first-idle", "greedy"
	for _, m := range on {
		switch m {
		case "JP":
			o.Placement = "minimal"
		case "TB":
			o.Trees = "mina"
		case "RS":
			o.Sharing = "mina"
		case "none":
		default:
			c.Problemf("operations.modules", tomlfile.OneOf(m, []string{"JP", "TB", "RS", "none"}), "unknown module %q", m)
		}
	}
}

var operationMetrics = spec.Measurables{}.
	Add("job", "jct step_time sum_errors pattern_error").
	Add(results.Cluster, "avg_jct avg_jct_none avg_jct_all placement_time tree_time avg_step_time comm_stage comm_gaps makespan launch_time decision_time "+
		"migration_time migration_leave migration_release migration_wait migration_acquire migration_adopt "+
		"ina_score jct_range ina_utilisation refused migrations conflicts fragments free_fragments conflicts_fragments_correlation turning_point").
	Predict("jct step_time ina_score jct_range ina_utilisation avg_jct").Ratios()

// Metrics implements study.Study.
func (o *Operations) Metrics() spec.Measurables { return operationMetrics }

// Headline implements study.Study.
func (o *Operations) Headline() []string {
	return []string{"ina_score", "jct_range", "ina_utilisation"}
}

// Predictors implements study.Study.
func (o *Operations) Predictors() []string { return []string{operated} }

// Count implements study.Study.
func (o *Operations) Count() int { return cmp.Or(o.Jobs, len(o.Table)) }

// Files implements study.Reader.
func (o *Operations) Files(add func(path, key string)) { add(o.From, "operations.from") }

// Build implements study.Builder.
func (o *Operations) Build(k *study.FabricKey, s *spec.Spec, _ string) {
	k.Freely, k.Beat = o.Sharing == "always", o.beat(s, k.Scale)
}

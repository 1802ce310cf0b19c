package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
)

// Measurable is what an expectation may be about.
type Measurable struct {
	metric.Metric
	Predicted bool // by what predicts the experiment's figures
	// Of is what its figures are about: "job", "job@switch", "link", results.Cluster, or
	// "comparison" (of the jobs' "goodput", of what they have "aggregated@switch", or of a value
	// with the reference); jobs are those that produce it, where named jobs do.
	Of    string
	Jobs  func(j *Job) bool
	none  string            // why there is none, when no job produces it
	local func(j *Job) bool // which of the jobs produce it on one host too, without traffic; nil: none
}

// number says whether values are plain numbers, without a unit.
func (m Measurable) number() bool { return m.Unit == "1" || m.Unit == "1/s" }

// Example is a value as an experiment has it.
func (m Measurable) Example() string {
	switch {
	case m.Name == "sum_errors":
		return "0"
	case m.Name == "jain":
		return "0.99"
	case strings.HasSuffix(m.Name, metric.Ratio):
		return "1"
	}
	return map[string]string{"1": "0.5", "1/s": "1000", "bit/s": `"10Gbit/s"`, "s": `"2s"`, "B": `"100MB"`}[m.Unit]
}

// By says whether a job produces the metric.
func (m Measurable) By(j *Job, local bool) bool {
	return m.Jobs(j) && (!local || m.local != nil && m.local(j))
}

// Subjects are what the job's figures of the metric can be about.
func (m Measurable) Subjects(job string, l *Lab) []string {
	switch m.Of {
	case "job":
		return []string{job}
	case "job@switch":
		return l.atSwitches(job)
	}
	return nil
}

func every(*Job) bool        { return true }
func aggregates(j *Job) bool { return j.Collective == "ina" }
func iterates(j *Job) bool   { return j.Message > 0 || j.Model != "" }
func ends(j *Job) bool       { return j.Iterations > 0 }
func computes(j *Job) bool   { return j.Model != "" || j.Iterations > 0 }

// Measurables are metrics by name.
type Measurables map[string]Measurable

// JobMetrics are those of named jobs.
var JobMetrics = Measurables{
	"share":      {Predicted: true, Of: "job@switch", Jobs: aggregates, none: "no job aggregates in switches"},
	"granted":    {Predicted: true, Of: "job@switch", Jobs: aggregates, none: "no job aggregates in switches"},
	"goodput":    {Predicted: true, Of: "job", Jobs: every},
	"wire_rate":  {Predicted: true, Of: "job", Jobs: every},
	"link_rate":  {Predicted: true, Of: "link", Jobs: every},
	"jain":       {Predicted: true, Of: "comparison", Jobs: every},
	"sum_errors": {Of: "job", Jobs: every},
	"step_rate":  {Of: "job", Jobs: iterates, none: "no job has a message or a model"},
	"iterations": {Of: "job", Jobs: iterates, none: "no job has a message or a model", local: computes},
	"jct":        {Of: "job", Jobs: ends, none: "no job has a number of iterations", local: ends},
}.named()

// named are the same with what the table of metrics says of them.
func (ms Measurables) named() Measurables {
	for name, m := range ms {
		m.Metric = metric.Of(name, m.Unit)
		ms[name] = m
	}
	return ms
}

// Add adds metrics, a word each, of the same thing.
func (ms Measurables) Add(of, names string) Measurables {
	for _, name := range strings.Fields(names) {
		ms[name] = Measurable{Metric: metric.Of(name, ""), Of: of}
	}
	return ms
}

// Predict says of metrics, a word each, that they are predicted.
func (ms Measurables) Predict(names string) Measurables {
	for _, name := range strings.Fields(names) {
		m := ms[name]
		m.Predicted = true
		ms[name] = m
	}
	return ms
}

// Ratios adds what those of a cluster are over another value's of a comparison.
func (ms Measurables) Ratios() Measurables {
	for name, m := range maps.Clone(ms) {
		if m.Of == results.Cluster {
			ms[name+metric.Ratio] = Measurable{Metric: metric.Of(name+metric.Ratio, ""), Of: "comparison"}
		}
	}
	return ms
}

// compared are those that can be compared, sorted.
func (ms Measurables) compared() (names []string) {
	for name, m := range ms {
		if m.Of == results.Cluster {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

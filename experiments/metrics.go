package experiments

import (
	"maps"
	"slices"
	"strings"

	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/metric"
)

// measurable is what an expectation may be about.
type measurable struct {
	metric.Metric
	predicted bool // by what predicts the experiment's figures
	// of is what its figures are about: "job", "job@switch", "link", results.Cluster, or
	// "comparison" (of the jobs' "goodput", of what they have "aggregated@switch", or of a value
	// with the reference); jobs are those that produce it, where named jobs do.
	of    string
	jobs  func(j *Job) bool
	none  string            // why there is none, when no job produces it
	local func(j *Job) bool // which of the jobs produce it on one host too, without traffic; nil: none
}

// number says whether values are plain numbers, without a unit.
func (m measurable) number() bool { return m.Unit == "1" || m.Unit == "1/s" }

// example is a value as an experiment has it.
func (m measurable) example() string {
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

// by says whether a job produces the metric.
func (m measurable) by(j *Job, local bool) bool {
	return m.jobs(j) && (!local || m.local != nil && m.local(j))
}

// subjects are what the job's figures of the metric can be about.
func (m measurable) subjects(job string, l *lab) []string {
	switch m.of {
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

// measurables are metrics by name.
type measurables map[string]measurable

// jobMetrics are those of named jobs.
var jobMetrics = measurables{
	"share":      {predicted: true, of: "job@switch", jobs: aggregates, none: "no job aggregates in switches"},
	"granted":    {predicted: true, of: "job@switch", jobs: aggregates, none: "no job aggregates in switches"},
	"goodput":    {predicted: true, of: "job", jobs: every},
	"wire_rate":  {predicted: true, of: "job", jobs: every},
	"link_rate":  {predicted: true, of: "link", jobs: every},
	"jain":       {predicted: true, of: "comparison", jobs: every},
	"sum_errors": {of: "job", jobs: every},
	"step_rate":  {of: "job", jobs: iterates, none: "no job has a message or a model"},
	"iterations": {of: "job", jobs: iterates, none: "no job has a message or a model", local: computes},
	"jct":        {of: "job", jobs: ends, none: "no job has a number of iterations", local: ends},
}.named()

// named are the same with what the table of metrics says of them.
func (ms measurables) named() measurables {
	for name, m := range ms {
		m.Metric = metric.Of(name, m.Unit)
		ms[name] = m
	}
	return ms
}

// add adds metrics, a word each, of the same thing.
func (ms measurables) add(of, names string) measurables {
	for _, name := range strings.Fields(names) {
		ms[name] = measurable{Metric: metric.Of(name, ""), of: of}
	}
	return ms
}

// predict says of metrics, a word each, that they are predicted.
func (ms measurables) predict(names string) measurables {
	for _, name := range strings.Fields(names) {
		m := ms[name]
		m.predicted = true
		ms[name] = m
	}
	return ms
}

// ratios adds what those of a cluster are over another value's of a comparison.
func (ms measurables) ratios() measurables {
	for name, m := range maps.Clone(ms) {
		if m.of == results.Cluster {
			ms[name+metric.Ratio] = measurable{Metric: metric.Of(name+metric.Ratio, ""), of: "comparison"}
		}
	}
	return ms
}

// compared are those that can be compared, sorted.
func (ms measurables) compared() (names []string) {
	for name, m := range ms {
		if m.of == results.Cluster {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

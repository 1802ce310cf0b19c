package experiments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inabench/inabench/placement"
)

// Who makes sums wrong is told by which jobs and which workers get wrong ones. Processes belong to one
// job and switches to many: what several jobs have in common is a switch, and a switch that adds up for
// others without an error is not the one.

// sums is what a job's workers compared.
type sums struct {
	job            placement.JobPlan
	checked, wrong int64 // values
}

// cleared is how many wrong values another job would have had to find, were a switch wrong as often for it,
// for having found none to clear the switch.
const cleared = 8

// suspects says who may have made a job's sums wrong: all that its wrong sums have in common, of the jobs
// of a run.
func suspects(of sums, all []sums) string {
	switches := adders(of.job)
	shared := false // another job's wrong sums have a switch in common with these
	for _, o := range all {
		if o.job.Name == of.job.Name {
			continue
		}
		common := slices.DeleteFunc(slices.Clone(switches), func(s string) bool { return !slices.Contains(adders(o.job), s) })
		switch expected := float64(of.wrong) / float64(of.checked) * float64(o.checked); {
		case o.wrong > 0 && len(common) > 0:
			switches, shared = common, true
		case o.wrong == 0 && expected >= cleared:
			switches = slices.DeleteFunc(switches, func(s string) bool { return slices.Contains(common, s) })
		}
	}
	if shared {
		return "; other jobs got wrong ones too, and what they have in common is " + either("switch ", switches)
	}
	var who []string
	if len(switches) > 0 {
		who = append(who, either("switch ", switches))
	}
	var workers []string
	for _, w := range of.job.Workers {
		workers = append(workers, fmt.Sprintf("%s/%d on host %s", of.job.Name, w.Rank, w.Host))
	}
	if who = append(who, either("worker ", workers)); of.job.PS != "" {
		who = append(who, "its PS on host "+of.job.PS)
	}
	if len(switches) == 0 && len(adders(of.job)) > 0 {
		return "; switches add up for other jobs without an error, so that it is " + strings.Join(who, " or ")
	}
	return "; all of its workers got wrong ones, so that it is " + strings.Join(who, " or ")
}

// adders are the switches that add up for a job.
func adders(j placement.JobPlan) (out []string) {
	for _, n := range j.Tree {
		if n.Aggregate {
			out = append(out, n.Switch)
		}
	}
	return out
}

// either is a list of names of a kind, any of which may be meant.
func either(kind string, names []string) string {
	return kind + strings.Join(names, " or ")
}

// compared is what the workers of a run's jobs compared, of jobs that the plan has.
func (in *inspection) compared() (out []sums) {
	if in.setup.Plan == nil {
		return nil
	}
	for _, sum := range in.obs.summaries {
		i := slices.IndexFunc(in.setup.Plan.Jobs, func(j placement.JobPlan) bool { return j.Name == in.named(sum.Job) })
		if i >= 0 && sum.SumsChecked > 0 {
			out = append(out, sums{in.setup.Plan.Jobs[i], sum.SumsChecked, sum.SumErrors})
		}
	}
	return out
}

// wrong says of a job's wrong sums whose they may be. Where not all workers got wrong ones, what is between
// these and the others is suspect.
func (in *inspection) wrong(job string) string {
	all := in.compared()
	job = in.named(job)
	i := slices.IndexFunc(all, func(s sums) bool { return s.job.Name == job })
	if i < 0 {
		return ""
	}
	var bad []string
	said := 0
	for _, w := range all[i].job.Workers {
		n, ok := in.latest("worker_sum_errors", job, w)
		if ok {
			said++
		}
		if n > 0 {
			bad = append(bad, fmt.Sprintf("%s/%d on host %s", job, w.Rank, w.Host))
		}
	}
	if len(bad) > 0 && len(bad) < said {
		return "; only worker " + strings.Join(bad, ", ") + " got wrong ones: what carries results to it alone"
	}
	return suspects(all[i], all)
}

package inspect

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/placement"
)

// Who makes sums wrong is told by which jobs and which workers get wrong ones. Processes belong to one
// job and switches to many: what several jobs have in common is a switch, and a switch that adds up for
// others without an error is not the one.

// Sums is what a job's workers compared.
type sums struct {
	job            placement.JobPlan
	checked, wrong int64              // values
	damaged        int64              // results with wrong ones, over all workers; 0: nobody counts them
	added          map[string]float64 // packets that each switch added up; nil: nobody tells
}

// cleared is how many wrong sums of packets another job would have had to find, were a switch wrong as often for it,
// for having found none to clear the switch: values of one packet are wrong together.
const cleared = 8

// times is how often sums went wrong, as far as it is known: once for each result that is wrong at all workers.
func (o sums) times() float64 {
	if o.damaged == 0 {
		return float64(o.wrong)
	}
	return float64(o.damaged) / float64(max(1, len(o.job.Workers)))
}

// clears says whether a job that found nothing wrong clears a switch that another one's wrong sums could
// come from: were that wrong as often for both, of what passes it and of what it adds up, the job would have
// found some.
func (o sums) clears(sw string, of sums) bool {
	passing := below(o.job, sw) / below(of.job, sw)
	if passing == 0 {
		return false
	}
	expected := of.times() / float64(of.checked) * float64(o.checked) * min(1, passing)
	if n := of.added[sw]; n > 0 && o.added != nil {
		expected = min(expected, of.times()*o.added[sw]/n)
	}
	return expected >= cleared
}

// suspects says who may have made a job's sums wrong: all that its wrong sums have in common, of the jobs
// of a run. That several jobs have causes of their own is less likely than that one was spared: what they
// have in common is suspect even where another job clears all of it.
func suspects(of sums, all []sums) string {
	switches, common := passed(of.job), passed(of.job)
	others := 0 // that got wrong ones too, and cross a switch of this one
	for _, o := range all {
		if o.job.Name == of.job.Name {
			continue
		}
		meet := func(s string) bool { return below(o.job, s) > 0 }
		switch {
		case o.wrong > 0 && slices.ContainsFunc(switches, meet):
			others++
			common = slices.DeleteFunc(common, func(s string) bool { return !meet(s) })
		case o.wrong == 0:
			switches = slices.DeleteFunc(switches, func(s string) bool { return o.clears(s, of) })
		}
	}
	if left := slices.DeleteFunc(slices.Clone(common), func(s string) bool { return !slices.Contains(switches, s) }); len(left) > 0 {
		common = left
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
	one := strings.Join(who, " or ")
	switch {
	case others > 0 && len(common) > 0:
		return fmt.Sprintf("; %d other jobs on its way got wrong ones too: if all have one cause it is %s, and else %s", others, either("switch ", common), one)
	case len(switches) == 0 && len(of.job.Tree) > 0:
		return "; the switches on its way carry other jobs without an error, so that it is " + one
	}
	return "; all of its workers got wrong ones, so that it is " + one
}

// passed are the switches that a job's gradients pass, whether they add up or not: each could damage them.
func passed(j placement.JobPlan) (out []string) {
	for _, n := range j.Tree {
		out = append(out, n.Switch)
	}
	return out
}

// below is the part of a job's workers whose gradients pass a switch; 0 where none do.
func below(j placement.JobPlan, sw string) float64 {
	for _, n := range j.Tree {
		if n.Switch == sw {
			return float64(max(1, bits.OnesCount64(n.Expect))) / float64(len(j.Workers))
		}
	}
	return 0
}

// either is a list of names of a kind, any of which may be meant.
func either(kind string, names []string) string {
	return kind + strings.Join(names, " or ")
}

// compared is what the workers of a run's jobs compared, of jobs that the plan has.
func (in *Inspection) compared() (out []sums) {
	for _, sum := range in.Jobs {
		if j := in.planned(sum.Job); j.Name != "" && sum.SumsChecked > 0 {
			s := sums{job: j, checked: sum.SumsChecked, wrong: sum.SumErrors, damaged: sum.Damaged}
			for _, n := range j.Tree {
				if by, _, ok := grown(in.Counter("job_aggregated_packets", spec.AtSwitch(j.Name, n.Switch)), 0); ok {
					if s.added == nil {
						s.added = map[string]float64{}
					}
					s.added[n.Switch] = by
				}
			}
			out = append(out, s)
		}
	}
	return out
}

// wrong says of a job's wrong sums whose they may be. Where not all workers got wrong ones, what is between
// these and the others is suspect, and where they are of a few packets that may be chance.
func (in *Inspection) wrong(job string) string {
	all := in.compared()
	job = in.planned(job).Name
	i := slices.IndexFunc(all, func(s sums) bool { return s.job.Name == job })
	if i < 0 {
		return ""
	}
	var bad []string
	said, values := 0, 0.0
	for _, w := range all[i].job.Workers {
		n, ok := in.Latest("worker_sum_errors", job, w)
		if ok {
			said++
		}
		if values += n; n > 0 {
			bad = append(bad, fmt.Sprintf("%s/%d on host %s", job, w.Rank, w.Host))
		}
	}
	if len(bad) > 0 && len(bad) < said {
		only := "; only worker " + strings.Join(bad, ", ") + " got wrong ones: what carries results to it alone"
		if of := passed(all[i].job); len(of) > 0 && values < cleared*float64(in.Spec.Switch.Lanes) { // of a few packets
			only += ", or, since they are few, " + either("switch ", of)
		}
		return only
	}
	return suspects(all[i], all)
}

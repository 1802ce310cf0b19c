package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// Excused are findings of which the testbed's own trouble explains what it can: all but wrong
// sums.
func Excused(out []results.Finding, point *results.Point) []results.Finding {
	why := point.Unsound()
	for i := range out {
		if f := &out[i]; f.Outcome == results.Fail && why != "" && f.Code != results.CodeSums {
			f.Outcome = results.Inconclusive
			f.What += "; but " + why
		}
	}
	return out
}

// Study looks at the point when it was measured, by what its jobs said at their end and by the ends of
// cables, beside what the study has found itself.
func Study(b *study.Bench, point *results.Point) []results.Finding {
	inv, caps := b.Testbed().Inventory(), b.Testbed().Capabilities()
	if caps.Kind != results.Measured || len(point.Jobs) == 0 {
		return point.Findings
	}
	in := Inspection{
		Spec: b.Spec, Inv: inv, Plan: &b.Placed.Plan, Caps: caps, Jobs: point.Jobs, Readings: &b.Placed.Readings,
		From: math.Inf(1), Begun: b.Placed.Begun, Names: b.Placed.Names, Beside: b.Placed.Beside, Once: b.Placed.Once, Lost: Swallowed(point.Health), Iteration: b.Placed.Iteration,
	}
	if b.Spec.Kind().Leaving { // jobs that leave before their end compare nothing: somebody must have
		in.Jobs = slices.DeleteFunc(slices.Clone(point.Jobs), func(j results.JobSummary) bool { return j.SumsChecked == 0 })
		if len(in.Jobs) == 0 {
			in.Jobs = point.Jobs
		}
	}
	out := slices.Concat(point.Findings, in.Work(), in.Sums(), Crossed(point.Health, inv.Topology(), nil), Slow(point.Health), in.Again(), in.Handed())
	if len(out) == 0 {
		return []results.Finding{in.Whole()}
	}
	return Excused(out, point)
}

// Broken is the finding of an error that says which job did not do what it was asked.
func Broken(err error) []results.Finding {
	var b interface {
		error
		Broken() (code, job string)
	}
	if !errors.As(err, &b) {
		return nil
	}
	f := results.Finding{Name: study.GoesOn, Outcome: results.Fail, What: b.Error()}
	if f.Code, f.Of = b.Broken(); f.Code == results.CodeIterations || f.Code == results.CodeJobEnded {
		f.Name = study.AllDone
	}
	return []results.Finding{f}
}

// Whole is the finding of a run in which all of it holds.
func (in *Inspection) Whole() results.Finding {
	what := "every job did what it was asked"
	if in.Phased {
		what = "every job got results in all of every phase and did what it was asked"
	}
	var checked int64
	for _, sum := range in.Jobs {
		checked += sum.SumsChecked
	}
	if checked > 0 {
		what += fmt.Sprintf("; %s values were compared with what was sent", human.Quantity(float64(checked), "1"))
	}
	what += "; all who count traffic tell the same of it"
	if in.hopsAll > 0 {
		exactly := "to the packet"
		if in.hopsWithin > 0 {
			exactly = fmt.Sprintf("within %.0f packets, which may have been on their way at the end,", in.hopsWithin)
		}
		what += fmt.Sprintf(", %s at %d of %d hops", exactly, in.hopsHeld, in.hopsAll)
	}
	return results.Finding{Name: study.AllHold, Code: results.CodeJobStopped, Of: "jobs", Outcome: results.Pass, What: what, Implied: true}
}

// Inspection is what is looked at, once everything has been read.
type Inspection struct {
	Spec     *spec.Spec
	Inv      *inventory.Inventory
	Plan     *placement.Plan // nil: nobody knows where jobs were
	Caps     testbed.Capabilities
	Jobs     []results.JobSummary
	Readings *results.Readings
	RTTs     map[string]float64 // of jobs, in seconds, as far as they are known
	Stalls   []study.Standstill // of the testbed and its processes, as far as they are known
	Early    map[string]float64 // jobs that ended by themselves and were not to, and when, on the run's clock

	From   float64            // when the first job began, on the run's clock, of those that Begun does not have
	Begun  map[string]float64 // when jobs were told to begin, on the run's clock
	Names  map[string]string  // of jobs in the plan, by those that summaries have where these are others
	Beside bool               // packets of jobs that are not in the plan pass the same ports, or packets that no hop counts
	Phased bool               // jobs have phases
	Once   bool               // no job comes again under its name, after which its counters may begin anew
	Lost   float64            // frames that the testbed says it lost itself
	// Iteration is of how many PSNs one of a job is, under its name in the plan, the last of them padded; 0 of a stream.
	Iteration map[string]float64

	fell    map[[2]string]bool // counters of hops, by metric and of what, that began again
	silent  []string           // those that should have told of hops and did not
	metrics map[string]bool    // that anybody tells; nil: nobody has looked

	hopsHeld, hopsAll int     // places where packets of a job are handed over: where both ends told of all, and all
	hopsWithin        float64 // packets that may be missing at one of these
}

// Counter is what a counter said, without readings where nobody has it.
func (in *Inspection) Counter(metric, of string) results.Series {
	s, _ := in.Readings.Counter("", metric, of) // two sources are an error of the phase's figures
	return s
}

// Work finds jobs that ended by themselves or did less than they were asked.
func (in *Inspection) Work() []results.Finding {
	var out []results.Finding
	for _, sum := range in.Jobs {
		if at, ok := in.Early[sum.Job]; ok {
			out = append(out, results.Finding{Name: study.AllDone, Code: results.CodeJobEnded, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s ended by itself at %.2f s and was to send until it is stopped%s", sum.Job, at, in.hosts(sum.Job))})
		}
		if sum.Asked > 0 && sum.Iterations != sum.Asked {
			out = append(out, results.Finding{Name: study.AllDone, Code: results.CodeIterations, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s did %d iterations of %d%s", sum.Job, sum.Iterations, sum.Asked, in.behind(sum.Job, sum.Asked))})
		}
	}
	return append(out, in.iterated()...)
}

// iterated finds workers that say that they did more iterations than the results they got are enough for: rates of
// iterations, and times of jobs, would be of less than was asked for.
func (in *Inspection) iterated() (out []results.Finding) {
	if in.Plan == nil || in.Caps.Kind != results.Measured {
		return nil // a model has parts of packets
	}
	for _, j := range in.Plan.Jobs {
		psns := in.Iteration[j.Name]
		if psns == 0 || j.Collective == placement.Ring { // a ring counts messages, not packets
			continue
		}
		for _, w := range j.Workers {
			did, ok := in.Latest("worker_iterations", j.Name, w)
			got, told := in.Latest("worker_psns", j.Name, w)
			if ok && told && got < did*psns {
				out = append(out, results.Finding{Name: study.AllDone, Code: results.CodeIterations, Of: j.Name, Outcome: results.Fail,
					What: fmt.Sprintf("worker %s/%d on host %s says that it did %.0f iterations of %.0f PSNs, and that it got results of %.0f PSNs", j.Name, w.Rank, w.Host, did, psns, got)})
			}
		}
	}
	return out
}

// planned is the job of a summary as the plan has it, under its name there; without a name or workers if
// none has it.
func (in *Inspection) planned(job string) placement.JobPlan {
	if in.Plan != nil {
		for _, j := range in.Plan.Jobs {
			if j.Name == cmp.Or(in.Names[job], job) {
				return j
			}
		}
	}
	return placement.JobPlan{}
}

// Latest is last of a worker.
func (in *Inspection) Latest(metric, job string, w placement.Worker) (float64, bool) {
	return in.Last(metric, fmt.Sprintf("%s/%d", job, w.Rank))
}

// hosts is where a job was, for a message.
func (in *Inspection) hosts(job string) string {
	var all []string
	for _, w := range in.planned(job).Workers {
		all = append(all, w.Host)
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(" (hosts %s)", strings.Join(all, ", "))
}

// behind names the workers that did fewer iterations.
func (in *Inspection) behind(job string, want int64) string {
	var all []string
	j := in.planned(job)
	for _, w := range j.Workers {
		if n, ok := in.Latest("worker_iterations", j.Name, w); ok && int64(n) != want {
			all = append(all, fmt.Sprintf("worker %s/%d on host %s did %.0f", job, w.Rank, w.Host, n))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// Sums finds sums that are wrong, and such that nobody looked at.
func (in *Inspection) Sums() []results.Finding {
	if !in.Caps.Sums {
		return nil
	}
	var out []results.Finding
	for _, sum := range in.Jobs {
		unlooked := in.unlooked(sum.Job)
		switch {
		case sum.SumErrors > 0: // of one worker, too: nothing on the way may change what it sent
			out = append(out, results.Finding{Name: study.SumsRight, Code: results.CodeSums, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("%d of %d values that job %s got are not the sums of what was sent%s", sum.SumErrors, sum.SumsChecked, sum.Job, in.wrong(sum.Job))})
		case sum.SumsChecked == 0 && sum.Workers > 1 && !sum.Local:
			out = append(out, results.Finding{Name: study.SumsRight, Code: results.CodeUnchecked, Of: sum.Job, Outcome: results.Inconclusive,
				What: fmt.Sprintf("job %s compared no sums: it got no results%s", sum.Job, in.hosts(sum.Job))})
		case unlooked > 0: // each worker compares all that it gets, and says in one report how much both are
			out = append(out, results.Finding{Name: study.SumsRight, Code: results.CodeUnchecked, Of: sum.Job, Outcome: results.Inconclusive,
				What: fmt.Sprintf("job %s got %s values that nobody compared with what was sent, and %d that its workers did%s",
					sum.Job, human.Quantity(unlooked, "1"), sum.SumsChecked, in.hosts(sum.Job))})
		}
	}
	return out
}

// unlooked is how many of the values that workers of a job got they did not compare, of those that say both.
func (in *Inspection) unlooked(job string) (n float64) {
	j := in.planned(job)
	for _, w := range j.Workers {
		psns, ok := in.Latest("worker_psns", j.Name, w)
		checked, told := in.Latest("worker_sums_checked", j.Name, w)
		if ok && told {
			n += max(0, psns*float64(in.Spec.Switch.Lanes)-checked)
		}
	}
	return n
}

// What the two ends of a cable may count differently, beyond what may be on its way, before
// the run cannot be believed: as a part of what was sent, and in frames. A burst between the
// readings of the two ends is no more than that, however seldom something is sent.
const (
	SlackPart  = 2e-3
	slackBurst = 64
)

// Crossed are the links whose two ends do not tell of the same traffic. Readings, where there are
// any, tell which switches count at all: one whose ports all stand at 0 has no counters, which is
// among the troubles and cannot be held against the cables.
func Crossed(health []results.Trouble, topo *inventory.Topology, read *results.Readings) []results.Finding {
	counts := map[string]bool{} // switches that have ports' counters, and whether one of those does not stand at 0
	for of, s := range read.All() {
		if sw, ok := strings.CutPrefix(of.Source, "switch "); ok && strings.HasPrefix(of.Metric, "port_") {
			counts[sw] = counts[sw] || slices.Max(s.V) > 0
		}
	}
	silent := func(link string) bool {
		i := slices.IndexFunc(topo.Links, func(l inventory.DirectedLink) bool { return l.Name == link })
		switch {
		case i < 0:
			return false
		case read.Len() == 0:
			return uncounted(health, topo, topo.Links[i].From) || uncounted(health, topo, topo.Links[i].To)
		}
		return slices.ContainsFunc([]string{topo.Links[i].From, topo.Links[i].To}, func(node string) bool {
			some, told := counts[node]
			return told && !some
		})
	}
	out := []results.Finding{}
	for _, t := range health {
		link, ok := strings.CutPrefix(t.Where, "link ")
		if !ok || t.Code != results.CodeLost || t.Asked || silent(link) {
			continue
		}
		f := results.Finding{Name: study.Agree, Code: results.CodeLost, Of: link, Outcome: results.Fail, What: t.String()}
		if t.Value <= t.Limit+max(slackBurst, SlackPart*t.Of) {
			continue // frames of others, or readings that were late: it is among the troubles
		}
		out = append(out, f)
	}
	return out
}

// Slow are the links that carried less than their cables can, while frames waited for them.
func Slow(health []results.Trouble) (out []results.Finding) {
	for _, t := range health {
		if link, ok := strings.CutPrefix(t.Where, "link "); ok && t.Code == results.CodeLinkSlow {
			out = append(out, results.Finding{Name: study.CablesHold, Code: t.Code, Of: link, Outcome: results.Fail, What: t.String()})
		}
	}
	return out
}

// uncounted says whether a switch counts nothing, as far as troubles tell: there are several of its
// links, and each lacks everything.
func uncounted(health []results.Trouble, topo *inventory.Topology, node string) bool {
	n := 0
	for _, t := range health {
		link, _ := strings.CutPrefix(t.Where, "link ")
		for _, l := range topo.Links {
			if t.Code != results.CodeLost || l.Name != link || l.From != node && l.To != node {
				continue
			}
			if n++; t.Value < t.Of {
				return false
			}
		}
	}
	return n > 2 // a host counts, or nothing was heard of it
}

// Last is what a counter said last; false if it said nothing.
func (in *Inspection) Last(metric, of string) (float64, bool) {
	s := in.Counter(metric, of)
	if len(s.V) == 0 {
		return 0, false
	}
	return s.V[len(s.V)-1], true
}

// Again finds results that workers got again though nobody asked: each packet that any worker of
// the job resends brings each of them one more at most.
func (in *Inspection) Again() []results.Finding {
	var out []results.Finding
	for _, j := range in.Plan.Jobs {
		if j.Collective != placement.INA || j.Local() {
			continue
		}
		var resends, most float64
		var worst placement.Worker
		said := true
		for _, w := range j.Workers {
			n, ok := in.Latest("worker_resends", j.Name, w)
			said, resends = said && ok, resends+n
			if n, _ := in.Latest("worker_duplicates", j.Name, w); n > most {
				most, worst = n, w
			}
		}
		got, _ := in.Latest("worker_psns", j.Name, worst)
		if said && most > resends+in.doubled(j)*got+slackBurst+SlackPart*got {
			out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: j.Name, Outcome: results.Fail,
				What: fmt.Sprintf("worker %s/%d on host %s got %.0f results a second time, of %.0f PSNs, and the job's workers sent %.0f packets again: %s sends them twice",
					j.Name, worst.Rank, worst.Host, most, got, resends, senders(j))})
		}
	}
	return out
}

// doubled is the part of a job's results that the experiment doubles on the way to a worker: of
// those that a packet leaves behind, and of the packets before.
func (in *Inspection) doubled(j placement.JobPlan) float64 {
	var most float64
	for _, l := range in.Spec.LinkStates {
		most = max(most, l.Duplicate)
	}
	return most * 2 * float64(len(j.Tree)+1)
}

// senders are who sends a job's results on.
func senders(j placement.JobPlan) string {
	var all []string
	for _, n := range j.Tree {
		all = append(all, "switch "+n.Switch)
	}
	if j.PS != "" {
		all = append(all, "the PS on host "+j.PS)
	}
	return strings.Join(all, " or ")
}

package experiments

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/handover"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// What must hold of every run, whatever its experiment expects: jobs go on as long as they are
// to, do what they were asked, and get sums that are right; and who sent and who received tell
// of the same traffic. A run in which that is not so does not pass.

// integrity looks at one point of which everything has been read.
func (r *run) integrity(s *spec.Spec, setup testbed.Setup, base Baseline, obs observation, point *results.Point) []results.Finding {
	caps := r.tb.Capabilities()
	in := inspection{spec: s, inv: r.tb.Inventory(), setup: setup, base: base, obs: obs, caps: caps, damaged: len(s.LinkStates) > 0 || r.overflows(setup, base, obs)}
	out := append(in.progress(), heldUp(point.Health)...)
	out = append(out, in.missed()...)
	out = append(out, in.unmeasured(point.Labels)...)
	out = append(out, in.work()...)
	out = append(out, in.sums()...)
	out = append(out, crossed(point.Health, r.tb.Inventory().Topology(), obs.samples)...)
	out = append(out, in.received()...)
	out = append(out, in.handed()...)
	out = append(out, in.claims()...)
	stopped := in.stopped()
	if len(out)+len(stopped) == 0 && len(setup.Plan.Jobs) > 0 && caps.Kind == results.Measured { // of a model it goes without saying
		return []results.Finding{in.whole()}
	}
	return append(excused(out, point), stopped...)
}

// excused are findings of which the testbed's own trouble explains what it can: all but wrong
// sums.
func excused(out []results.Finding, point *results.Point) []results.Finding {
	why := point.Unsound()
	for i := range out {
		if f := &out[i]; f.Outcome == results.Fail && why != "" && f.Code != results.CodeSums {
			f.Outcome = results.Inconclusive
			f.What += "; but " + why
		}
	}
	return out
}

// inspectStudy looks at the point when it was measured, by what its jobs said at their end and by the ends of
// cables, beside what the study has found itself.
func inspectStudy(b *study.Bench, point *results.Point) []results.Finding {
	inv, caps := b.Testbed().Inventory(), b.Testbed().Capabilities()
	if caps.Kind != results.Measured || len(point.Jobs) == 0 {
		return point.Findings
	}
	in := inspection{
		spec: b.Spec, inv: inv, caps: caps, setup: testbed.Setup{Plan: &b.Placed.Plan}, names: b.Placed.Names, begun: b.Placed.Begun, beside: b.Placed.Beside,
		obs: observation{summaries: point.Jobs, samples: b.Placed.InOrder()},
	}
	if b.Spec.Kind().Leaving { // jobs that leave before their end compare nothing: somebody must have
		in.obs.summaries = slices.DeleteFunc(slices.Clone(point.Jobs), func(j results.JobSummary) bool { return j.SumsChecked == 0 })
		if len(in.obs.summaries) == 0 {
			in.obs.summaries = point.Jobs
		}
	}
	out := slices.Concat(point.Findings, in.work(), in.sums(), crossed(point.Health, inv.Topology(), nil), in.again(), in.handed())
	if len(out) == 0 {
		return []results.Finding{in.whole()}
	}
	return excused(out, point)
}

// broken is the finding of an error that says which job did not do what it was asked.
func broken(err error) []results.Finding {
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

// missed finds phases that were planned and not measured, where the plan says when all of them end.
func (in *inspection) missed() (out []results.Finding) {
	if slices.ContainsFunc(in.spec.Jobs, func(j spec.Job) bool { return j.Iterations > 0 }) {
		return nil
	}
	seen := in.obs.timeline.spans()
	for i, sp := range timelineOf(in.spec).spans() {
		if len(seen) > 0 && slices.Equal(seen[0].jobs, sp.jobs) {
			seen = seen[1:]
			continue
		}
		out = append(out, results.Finding{Name: study.AllMeasured, Code: results.CodeNoFigure, Of: fmt.Sprintf("phase %d", i+1), Outcome: results.Inconclusive,
			What: fmt.Sprintf("the plan's phase %d, from %v to %v with %s, was not measured: less than a warm-up of %v lay between its first event and the next",
				i+1, sp.start, sp.end, strings.Join(sp.jobs, ", "), in.obs.timeline.warmup)})
	}
	return out
}

// unmeasured finds jobs that send and are in no phase, though something is expected of what they do in one.
func (in *inspection) unmeasured(labels []string) (out []results.Finding) {
	expected := func(job string) string {
		asked, ok := in.spec.Job(job)
		for _, e := range in.spec.Expectations() {
			m := spec.JobMetrics[e.Metric]
			here := ok && e.Gate && slices.Contains(spec.InPhase, e.Metric) && m.By(asked, false) && results.Labelled(labels, e.Points)
			if here && slices.ContainsFunc(m.Subjects(job, spec.NewLab(in.inv)), func(of string) bool { return results.Glob(e.Of, of) }) {
				return e.Name
			}
		}
		return ""
	}
	seen := map[string]bool{}
	for _, sp := range in.obs.timeline.spans() {
		for _, j := range sp.jobs {
			seen[j] = true
		}
	}
	for _, j := range in.setup.Plan.Jobs {
		if seen[j.Name] || j.Local() {
			continue
		}
		if name := expected(j.Name); name != "" {
			out = append(out, results.Finding{Name: study.AllMeasured, Code: results.CodeNoFigure, Of: j.Name, Outcome: results.Inconclusive,
				What: fmt.Sprintf("job %s was in no phase that was measured, and %q is expected of it: never did more than a warm-up of %v lie between one event and the next while it sent; let it send for longer, or write a shorter measure.warmup, or an of that leaves it out",
					j.Name, name, in.obs.timeline.warmup)})
		}
	}
	return out
}

// whole is the finding of a run in which all of it holds.
func (in *inspection) whole() results.Finding {
	what := "every job did what it was asked"
	if len(in.obs.timeline.events) > 0 {
		what = "every job got results in all of every phase and did what it was asked"
	}
	var checked int64
	for _, sum := range in.obs.summaries {
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

// inspection is what is looked at.
type inspection struct {
	spec    *spec.Spec
	inv     *inventory.Inventory
	setup   testbed.Setup
	base    Baseline
	obs     observation
	caps    testbed.Capabilities
	damaged bool               // links, on purpose, or queues overflow as predicted: packets are lost and sent again
	names   map[string]string  // of jobs in the plan, by those that summaries have where these are others
	begun   map[string]float64 // when jobs of a trace were told to begin, on the run's clock
	beside  bool               // packets of jobs that are not in the plan pass the same ports, or packets that no hop counts

	counters map[[2]string][]results.Sample // by metric and of what, once they are asked for
	fell     map[[2]string]bool             // those of hops that began again

	hopsHeld, hopsAll int     // places where packets of a job are handed over: where both ends told of all, and all
	hopsWithin        float64 // packets that may be missing at one of these
}

func (in *inspection) counter(metric, of string) results.Series {
	if in.counters == nil {
		in.counters = map[[2]string][]results.Sample{}
		for _, s := range in.obs.samples {
			in.counters[[2]string{s.Metric, s.Of}] = append(in.counters[[2]string{s.Metric, s.Of}], s)
		}
	}
	s, _ := results.Counter(in.counters[[2]string{metric, of}], "", metric, of) // two sources are an error of the phase's figures
	return s
}

// workload is what a job was asked to send.
func (in *inspection) workload(job string) testbed.Workload { return workloadOf(in.setup, job) }

// workloadOf is what a job of a setup was asked to send.
func workloadOf(setup testbed.Setup, job string) testbed.Workload {
	return setup.Workloads[slices.IndexFunc(setup.Plan.Jobs, func(j placement.JobPlan) bool { return j.Name == job })]
}

// patience is how long a job may be without any result in a phase in which these run, in seconds.
func (in *inspection) patience(j placement.JobPlan, running []string, length float64) float64 {
	w := in.workload(j.Name)
	var compute float64
	for _, l := range w.Layers {
		compute += l.Compute.Seconds()
	}
	limit := max(study.StillLeast, study.StillPart*length, 2*compute, study.StillTrips*in.base.RTTs[j.Name])
	if in.damaged || w.Control == "aimd" { // packets are lost on purpose, and waiting for a resend doubles each time
		limit = max(limit, 100*w.RTO.Seconds()) // six times at the longest timeout, of 16 RTO
	}
	if in.spec.Reallocates() { // who comes in between waits for the next period, and then for its turn
		limit = max(limit, (1+in.turn(j, running))*time.Duration(in.spec.Switch.Reallocate).Seconds())
	}
	return limit
}

// turn is how many periods of reallocation in a row a job has no memory while these run; without end
// where it is never given any, and is not to send.
func (in *inspection) turn(j placement.JobPlan, running []string) (longest float64) {
	has := func(job string) bool { return slices.Contains(running, job) }
	periods, all := 0.0, 2*len(running)
	for round := range all {
		if periods++; j.Collective != placement.INA || divide(in.inv, in.setup, has, round)[j.Name].Window > 0 {
			periods = 0
		}
		longest = max(longest, periods)
	}
	if longest == float64(all) {
		return math.Inf(1)
	}
	return longest
}

// progress finds jobs that stood still within a phase.
func (in *inspection) progress() []results.Finding {
	var out []results.Finding
	for _, sp := range in.obs.timeline.spans() {
		start, end := sp.start.Seconds(), sp.end.Seconds()
		for _, j := range in.setup.Plan.Jobs {
			if !slices.Contains(sp.jobs, j.Name) || j.Local() {
				continue
			}
			limit := in.patience(j, sp.jobs, end-start)
			if f, bad := in.still(j, start, end, limit); bad {
				out = append(out, f)
			}
		}
	}
	return out
}

// heldUp are the findings of processes that were late and neither ran nor waited for a processor.
func heldUp(health []results.Trouble) (out []results.Finding) {
	for _, t := range health {
		if t.Code != results.CodeJobStopped {
			continue
		}
		s := study.Standstill{Where: t.Where}
		out = append(out, results.Finding{Name: study.GoesOn, Code: t.Code, Of: s.Job(), Outcome: results.Fail, What: t.String()})
	}
	return out
}

// stopped finds processes of jobs that stood still for long within a phase while all else ran: that one was
// stopped, and no load of the machine explains it. What lateness comes of it excuses nothing. One that did so
// for a part of a phase, a little at a time, may have been kept from a processor; but figures that leave its
// pauses out are not those of the phase.
func (in *inspection) stopped() []results.Finding {
	var out []results.Finding
	for _, sp := range in.obs.timeline.spans() {
		start, end := sp.start.Seconds(), sp.end.Seconds()
		phase := fmt.Sprintf("within a phase from %.2f s to %.2f s", start, end)
		for _, j := range in.setup.Plan.Jobs {
			told := slices.ContainsFunc(out, func(f results.Finding) bool { return f.Of == j.Name }) // it goes on in the next phase
			if told || !slices.Contains(sp.jobs, j.Name) {
				continue
			}
			found := results.Finding{Name: study.GoesOn, Code: results.CodeJobStopped, Of: j.Name}
			for _, p := range study.StoppedAlone(in.obs.stalls, j.Name, start, end) {
				switch s := p.Longest; {
				case p.Most > study.StillLeast && found.Outcome != results.Fail:
					found.Outcome = results.Fail
					found.What = fmt.Sprintf("job %s stood still: %s from %.2f s to %.2f s, %s: %s, and meanwhile all else went on", j.Name, s.Where, s.Start, s.End, phase, s.What)
				case p.Sum > max(study.StillLeast, study.StillPart*(end-start)) && found.Outcome == "":
					found.Outcome = results.Inconclusive
					found.What = fmt.Sprintf("job %s stood still: %s did so %d times, for %s in all, %s, the longest: %s, and meanwhile all else went on", j.Name, p.Where, p.N, human.Quantity(p.Sum, "s"), phase, s.What)
				}
			}
			if found.Outcome != "" {
				out = append(out, found)
			}
		}
	}
	return out
}

// still finds out whether a job stood still between start and end, and who made it so: who did
// not report, then who did not send, then who did not get results.
func (in *inspection) still(j placement.JobPlan, start, end, limit float64) (f results.Finding, bad bool) {
	type part struct {
		who       string
		got, sent results.Span // without growth
		silent    results.Span // without a report
		limit     float64
	}
	var worst *part
	kind := ""
	for _, w := range j.Workers {
		of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
		got := results.Sum(in.counter("worker_psns", of), in.counter("worker_goodput_bytes", of), in.counter("worker_iterations", of))
		if j.Collective == placement.Ring { // it counts whole messages
			got = results.Sum(got, in.counter("worker_rx_bytes", of))
		}
		sent := in.counter("worker_tx_bytes", of)
		p := part{who: fmt.Sprintf("worker %s on host %s", of, w.Host)}
		end := in.until(j.Name, of, end)
		p.limit = max(limit, study.StillReports*got.Spacing())
		p.got, p.sent = got.Stood(start, end, 0), sent.Stood(start, end, 0)
		p.silent = got.Silent(start, end)
		long := func(s results.Span) bool { return s.End-s.Start > p.limit }
		rank := map[string]int{"": 0, "got no result": 1, "sent nothing": 2, "did not report": 3}
		now := ""
		switch {
		case long(p.silent):
			now = "did not report"
		case long(p.got) && long(p.sent):
			now = "sent nothing"
		case long(p.got):
			now = "got no result"
		}
		if rank[now] > rank[kind] {
			kind, worst = now, &p
		}
	}
	if worst == nil {
		return f, false
	}
	when := map[string]results.Span{"did not report": worst.silent, "sent nothing": worst.sent, "got no result": worst.got}[kind]
	f = results.Finding{Name: study.GoesOn, Code: results.CodeJobStopped, Of: j.Name, Outcome: results.Fail,
		What: fmt.Sprintf("job %s stood still: %s %s from %.2f s to %.2f s, within a phase from %.2f s to %.2f s", j.Name, worst.who, kind, when.Start, when.End, start, end)}
	if ps := in.quietPS(j, when); ps != "" && kind == "got no result" {
		f.What += "; " + ps
	}
	// The testbed's own record explains it if it says as much of that time.
	times := study.SpoiltTimes(study.OfMachine(in.obs.stalls), when.Start, when.End, recovery(in.base))
	if lost := results.Total(times); when.End-when.Start-lost <= worst.limit {
		f.Outcome = results.Inconclusive
		f.What += "; the testbed stood still meanwhile: " + times[0].Why
	}
	return f, true
}

// until is when a worker is no longer to send: at the end, or when it has done its iterations.
func (in *inspection) until(job, of string, end float64) float64 {
	spec, ok := in.spec.Job(job)
	s := in.counter("worker_iterations", of)
	if n := len(s.V); ok && spec.Iterations > 0 && n > 0 && s.V[n-1] >= float64(spec.Iterations) {
		return min(end, s.T[n-1])
	}
	return end
}

// quietPS says whether a job's PS stood still too.
func (in *inspection) quietPS(j placement.JobPlan, when results.Span) string {
	if j.PS == "" {
		return ""
	}
	arrived, done := in.counter("worker_arrived", j.Name+"/ps"), in.counter("worker_completed", j.Name+"/ps")
	half := (when.End - when.Start) / 2
	stood := func(s results.Series) bool { w := s.Stood(when.Start, when.End, 0); return w.End-w.Start > half }
	switch {
	case len(arrived.T) == 0:
		return fmt.Sprintf("its PS on host %s never reported", j.PS)
	case stood(arrived):
		return fmt.Sprintf("nothing arrived at its PS on host %s", j.PS)
	case stood(done):
		return fmt.Sprintf("its PS on host %s completed nothing of what arrived", j.PS)
	}
	return ""
}

// work finds jobs that ended by themselves or did less than they were asked.
func (in *inspection) work() []results.Finding {
	var out []results.Finding
	for _, sum := range in.obs.summaries {
		if at, ok := in.obs.early[sum.Job]; ok {
			out = append(out, results.Finding{Name: study.AllDone, Code: results.CodeJobEnded, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s ended by itself at %.2f s and was to send until it is stopped%s", sum.Job, at, in.hosts(sum.Job))})
		}
		if sum.Asked > 0 && sum.Iterations != sum.Asked {
			out = append(out, results.Finding{Name: study.AllDone, Code: results.CodeIterations, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("job %s did %d iterations of %d%s", sum.Job, sum.Iterations, sum.Asked, in.behind(sum.Job, sum.Asked))})
		}
	}
	return out
}

// planned is the job of a summary as the plan has it, under its name there; without a name or workers if
// none has it.
func (in *inspection) planned(job string) placement.JobPlan {
	if in.setup.Plan != nil {
		for _, j := range in.setup.Plan.Jobs {
			if j.Name == cmp.Or(in.names[job], job) {
				return j
			}
		}
	}
	return placement.JobPlan{}
}

// latest is last of a worker.
func (in *inspection) latest(metric, job string, w placement.Worker) (float64, bool) {
	return in.last(metric, fmt.Sprintf("%s/%d", job, w.Rank))
}

// hosts is where a job was, for a message.
func (in *inspection) hosts(job string) string {
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
func (in *inspection) behind(job string, want int64) string {
	var all []string
	j := in.planned(job)
	for _, w := range j.Workers {
		if n, ok := in.latest("worker_iterations", j.Name, w); ok && int64(n) != want {
			all = append(all, fmt.Sprintf("worker %s/%d on host %s did %.0f", job, w.Rank, w.Host, n))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// sums finds sums that are wrong, and such that nobody looked at.
func (in *inspection) sums() []results.Finding {
	if !in.caps.Sums {
		return nil
	}
	var out []results.Finding
	for _, sum := range in.obs.summaries {
		switch {
		case sum.SumErrors > 0: // of one worker, too: nothing on the way may change what it sent
			out = append(out, results.Finding{Name: study.SumsRight, Code: results.CodeSums, Of: sum.Job, Outcome: results.Fail,
				What: fmt.Sprintf("%d of %d values that job %s got are not the sums of what was sent%s", sum.SumErrors, sum.SumsChecked, sum.Job, in.wrong(sum.Job))})
		case sum.SumsChecked == 0 && sum.Workers > 1 && !sum.Local:
			out = append(out, results.Finding{Name: study.SumsRight, Code: results.CodeUnchecked, Of: sum.Job, Outcome: results.Inconclusive,
				What: fmt.Sprintf("job %s compared no sums: it got no results%s", sum.Job, in.hosts(sum.Job))})
		}
	}
	return out
}

// What the two ends of a cable may count differently, beyond what may be on its way, before
// the run cannot be believed: as a part of what was sent, and in frames. A burst between the
// readings of the two ends is no more than that, however seldom something is sent.
const (
	crossedPart  = 2e-3
	crossedBurst = 64
)

// crossed are the links whose two ends do not tell of the same traffic. Samples, where there are
// any, tell which switches count at all: one whose ports all stand at 0 has no counters, which is
// among the troubles and cannot be held against the cables.
func crossed(health []results.Trouble, topo *inventory.Topology, samples []results.Sample) []results.Finding {
	counts := map[string]bool{}
	for _, s := range samples {
		if sw, ok := strings.CutPrefix(s.Source, "switch "); ok && s.Value > 0 && strings.HasPrefix(s.Metric, "port_") {
			counts[sw] = true
		}
	}
	silent := func(link string) bool {
		i := slices.IndexFunc(topo.Links, func(l inventory.DirectedLink) bool { return l.Name == link })
		switch {
		case i < 0:
			return false
		case len(samples) == 0:
			return uncounted(health, topo, topo.Links[i].From) || uncounted(health, topo, topo.Links[i].To)
		}
		return slices.ContainsFunc([]string{topo.Links[i].From, topo.Links[i].To}, func(node string) bool {
			return !counts[node] && slices.ContainsFunc(samples, func(s results.Sample) bool { return s.Source == "switch "+node && strings.HasPrefix(s.Metric, "port_") })
		})
	}
	out := []results.Finding{}
	for _, t := range health {
		link, ok := strings.CutPrefix(t.Where, "link ")
		if !ok || t.Code != results.CodeLost || t.Asked || silent(link) {
			continue
		}
		f := results.Finding{Name: study.Agree, Code: results.CodeLost, Of: link, Outcome: results.Fail, What: t.String()}
		if t.Value <= t.Limit+max(crossedBurst, crossedPart*t.Of) {
			continue // frames of others, or readings that were late: it is among the troubles
		}
		out = append(out, f)
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

// last is what a counter said last; false if it said nothing.
func (in *inspection) last(metric, of string) (float64, bool) {
	s := in.counter(metric, of)
	if len(s.V) == 0 {
		return 0, false
	}
	return s.V[len(s.V)-1], true
}

// received compares what each end of a job says of the same packets.
func (in *inspection) received() []results.Finding {
	out := in.again()
	for _, j := range in.setup.Plan.Jobs {
		if j.PS == "" || j.Local() {
			continue
		}
		completed, ok := in.last("worker_completed", j.Name+"/ps")
		if !ok {
			continue
		}
		slack := 2*float64(in.workload(j.Name).Window) + 64
		for _, w := range j.Workers {
			of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
			if got, ok := in.last("worker_psns", of); ok && math.Abs(got-completed) > slack+crossedPart*completed {
				out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: of, Outcome: results.Fail,
					What: fmt.Sprintf("worker %s on host %s says that it got results of %.0f PSNs, and its PS on host %s that it completed %.0f", of, w.Host, got, j.PS, completed)})
			}
		}
	}
	return out
}

// again finds results that workers got again though nobody asked: each packet that any worker of
// the job resends brings each of them one more at most.
func (in *inspection) again() []results.Finding {
	var out []results.Finding
	for _, j := range in.setup.Plan.Jobs {
		if j.Collective != placement.INA || j.Local() {
			continue
		}
		var resends, most float64
		var worst placement.Worker
		said := true
		for _, w := range j.Workers {
			n, ok := in.latest("worker_resends", j.Name, w)
			said, resends = said && ok, resends+n
			if n, _ := in.latest("worker_duplicates", j.Name, w); n > most {
				most, worst = n, w
			}
		}
		got, _ := in.latest("worker_psns", j.Name, worst)
		if said && most > resends+in.doubled(j)*got+crossedBurst+crossedPart*got {
			out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: j.Name, Outcome: results.Fail,
				What: fmt.Sprintf("worker %s/%d on host %s got %.0f results a second time, of %.0f PSNs, and the job's workers sent %.0f packets again: %s sends them twice",
					j.Name, worst.Rank, worst.Host, most, got, resends, senders(j))})
		}
	}
	return out
}

// doubled is the part of a job's results that the experiment doubles on the way to a worker: of
// those that a packet leaves behind, and of the packets before.
func (in *inspection) doubled(j placement.JobPlan) float64 {
	var most float64
	for _, l := range in.spec.LinkStates {
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

// claimed is by how much the part that a switch claims to have added up may differ from what
// left it towards the PS.
const claimed = 0.04

// says is the share that a switch claims. Where as many packets of each PSN come to it, that is
// the part of PSNs that it granted. Above switches that add up, those that it grants may have
// more or fewer packets than those that it denies, and of some one packet comes, which is complete
// and neither: there it follows from what the switch says that it sent on as it was, of which one
// of each PSN had to be.
func (in *inspection) says(w results.Window, j placement.JobPlan, node int, seen share) (results.Figure, error) {
	of := spec.AtSwitch(j.Name, j.Tree[node].Switch)
	granted, denied := in.counter("job_granted_packets", of), in.counter("job_denied_packets", of)
	if !j.AboveSums(j.Tree[node].Switch) {
		return results.Ratio(w, granted, results.Sum(granted, denied))
	}
	return results.Share(w, results.Sum(seen.in, denied), results.Sum(seen.psns, in.counter("job_fallback_packets", of)), results.Sum(seen.psns, denied))
}

// copies is how much of a share the copies may be that cables made of packets on their way to the PS.
func (in *inspection) copies(w results.Window, seen share) float64 {
	var made []results.Series
	for of := range seen.way {
		made = append(made, in.counter("port_tx_dup_packets", of), in.counter("port_rx_dup_packets", of))
	}
	doubled, err := results.Rate(w, results.Sum(slices.DeleteFunc(made, func(s results.Series) bool { return len(s.T) < 2 })...))
	if err != nil || doubled.Value == 0 {
		return 0
	}
	sent, err := results.Rate(w, seen.in)
	psns, perr := results.Rate(w, seen.psns)
	if err != nil || perr != nil || sent.Value <= psns.Value {
		return 0
	}
	return doubled.Value / (sent.Value - psns.Value)
}

// claims compares the shares that switches claim with what was seen to leave them. Resends
// explain a difference, and then the share is what was seen.
func (in *inspection) claims() []results.Finding {
	var out []results.Finding
	for _, sp := range in.obs.timeline.spans() {
		start, end := sp.start.Seconds(), sp.end.Seconds()
		w := without(start, end, lostTimes(in.obs.stalls, start, end, in.base))
		for _, j := range in.setup.Plan.Jobs {
			if !slices.Contains(sp.jobs, j.Name) || j.PS == "" || j.Local() {
				continue
			}
			for i := range j.Tree {
				if !j.Tree[i].Aggregate {
					continue
				}
				sw := j.Tree[i].Switch
				seen, ok := seenShare(in.counter, j, i)
				if !ok {
					continue
				}
				if seen.way = nil; last(j, i) && in.inv != nil {
					seen.way = in.between([]handover.End{{Node: sw}}, []handover.End{{Node: j.PS}})
				}
				granted, denied := in.counter("job_granted_packets", spec.AtSwitch(j.Name, sw)), in.counter("job_denied_packets", spec.AtSwitch(j.Name, sw))
				says, err := in.says(w, j, i, seen)
				got, gerr := seen.of(w)
				var resends results.Figure
				var rerr error
				if r := in.counter("job_resends_packets", spec.AtSwitch(j.Name, sw)); len(r.T) > 0 { // a model has none
					resends, rerr = results.Ratio(w, r, results.Sum(granted, denied))
				}
				if errors.Is(err, results.ErrCounterFell) {
					out = append(out, results.Finding{Name: study.SharesHold, Code: results.CodeCounters, Of: spec.AtSwitch(j.Name, sw), Outcome: results.Inconclusive,
						What: fmt.Sprintf("what switch %s says that it added up of job %s's gradients cannot be held against what %s: its count began again, %v", sw, j.Name, seen.by, err)})
				}
				if err != nil || gerr != nil || rerr != nil {
					continue
				}
				gap := math.Abs(says.Value - got.Value)
				// While queues grow or drain, what passes a switch is not what the PS completes meanwhile. What the
				// switch itself counts as come and sent on decides then, which hops hold to the counts of others.
				if own, err := seen.counted(w, in.counter, j, i).of(w); err == nil {
					gap = min(gap, math.Abs(says.Value-own.Value))
				}
				noise := max(got.Hi-got.Lo, says.Hi-says.Lo) / 2
				load := in.workload(j.Name)
				if got.N < 2 || len(w.Out) > 0 || load.Control == "aimd" { // nothing says how much there is, there are more ends than two, or queues grow and empty
					noise = max(noise, seen.flying(w, load.Window))
				}
				if gap <= claimed+noise+2*resends.Value+in.copies(w, seen) {
					continue
				}
				out = append(out, results.Finding{Name: study.SharesHold, Code: results.CodeCounters, Of: spec.AtSwitch(j.Name, sw), Outcome: results.Fail,
					What: fmt.Sprintf("switch %s says that it added up %s of job %s's gradients, and by what %s it was %s", sw, human.Quantity(says.Value, "1"), j.Name, seen.by, human.Quantity(got.Value, "1"))})
			}
		}
	}
	return out
}

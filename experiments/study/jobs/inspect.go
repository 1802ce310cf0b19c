package jobs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/experiments/study/inspect"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// inspection is an inspection of jobs with phases.
type inspection struct {
	*inspect.Inspection
	setup   testbed.Setup
	base    Baseline
	obs     observation
	damaged bool // links, on purpose, or queues overflow as predicted: packets are lost and sent again
}

// inspectionOf begins one of what was seen of a point.
func inspectionOf(s *spec.Spec, inv *inventory.Inventory, caps testbed.Capabilities, setup testbed.Setup, base Baseline, obs observation) *inspection {
	in := &inspection{setup: setup, base: base, obs: obs, damaged: len(s.LinkStates) > 0, Inspection: &inspect.Inspection{
		Spec: s, Inv: inv, Plan: setup.Plan, Caps: caps, Jobs: obs.summaries, Readings: obs.readings, RTTs: base.RTTs, Stalls: obs.stalls, Early: obs.early,
		From: math.Inf(1), Phased: len(obs.timeline.events) > 0, Once: true,
	}}
	if setup.Plan != nil {
		in.Iteration = map[string]float64{}
		for i, j := range setup.Plan.Jobs {
			in.Iteration[j.Name] = float64(setup.Workloads[i].Frames(s.Switch.Lanes).PSNs())
		}
	}
	for _, e := range obs.timeline.events {
		if !e.stop {
			in.From = min(in.From, e.begun.Seconds())
		}
	}
	return in
}

// integrity looks at one point of which everything has been read.
func (r *run) integrity(ctx context.Context, setup testbed.Setup, base Baseline, obs observation, point *results.Point) []results.Finding {
	caps, inv := r.Testbed().Capabilities(), r.Testbed().Inventory()
	in := inspectionOf(r.Spec, inv, caps, setup, base, obs)
	in.Lost = inspect.Swallowed(point.Health)
	in.damaged = in.damaged || r.overflows(ctx, setup, base, obs)
	out := slices.Concat(in.progress(), heldUp(point.Health), in.missed(), in.unmeasured(point.Labels), in.calibrated(), in.Work(), in.Sums(),
		inspect.Crossed(point.Health, inv.Topology(), obs.readings), inspect.Slow(point.Health), in.received(), in.Handed(), in.claims(), in.ahead())
	stopped := in.stopped()
	if len(out)+len(stopped) == 0 && len(setup.Plan.Jobs) > 0 && caps.Kind == results.Measured { // of a model it goes without saying
		return []results.Finding{in.Whole()}
	}
	return append(inspect.Excused(out, point), stopped...)
}

// ahead finds agents whose clock jumped: all that they counted is of other times than it says.
func (in *inspection) ahead() (out []results.Finding) {
	for i := range in.setup.Plan.Jobs {
		out = append(out, in.obs.clocks.Wrong(&in.setup.Plan.Jobs[i])...)
	}
	return out
}

// missed finds phases that were planned and not measured, where the plan says when all of them end.
func (in *inspection) missed() (out []results.Finding) {
	if slices.ContainsFunc(in.Spec.Jobs, func(j spec.Job) bool { return j.Iterations > 0 }) {
		return nil
	}
	seen := in.obs.timeline.spans()
	for i, sp := range timelineOf(in.Spec).spans() {
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
		asked, ok := in.Spec.Job(job)
		for _, e := range in.Spec.Expectations() {
			m := spec.JobMetrics[e.Metric]
			here := ok && e.Gate && slices.Contains(spec.InPhase, e.Metric) && m.By(asked, false) && results.Labelled(labels, e.Points)
			if here && slices.ContainsFunc(m.Subjects(job, spec.NewLab(in.Inv)), func(of string) bool { return results.Glob(e.Of, of) }) {
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

// miscalibrated is by how much of it what was calibrated may differ from what follows from an emulation's topology, besides
// what processes take to look for packets.
const miscalibrated = 0.1

// calibrated finds what took longer or less long, while an emulation was calibrated, than follows from its topology: what is
// predicted takes it for granted, so that nothing else would show a PS that answers late, or a switch that keeps aggregators.
func (in *inspection) calibrated() (out []results.Finding) {
	pace := in.Caps.Pace
	if pace.Within == 0 { // in a lab nobody else knows it; cables are damaged, and queues full, after it
		return nil
	}
	topology, err := placement.Resolve(in.Inv, in.setup.Plan, conditions(in.setup, Baseline{}, nil))
	if err != nil {
		return nil // the prediction says so
	}
	for _, known := range topology {
		i := slices.IndexFunc(in.setup.Plan.Jobs, func(j placement.JobPlan) bool { return j.Name == known.Job })
		j := &in.setup.Plan.Jobs[i]
		look := func(of, what string, got, want float64) {
			looks := float64(2 * (deepest(j) + 2)) // there and back
			slack := miscalibrated*want + looks*(4*pace.Rest+tail*pace.Wake).Seconds()
			if got == 0 || want-slack <= got && got <= want+known.Crowd+slack {
				return
			}
			follow := human.Quantity(want, "s")
			if known.Crowd > 0 {
				follow += " to " + human.Quantity(want+known.Crowd, "s")
			}
			out = append(out, results.Finding{Name: study.AllMeasured, Code: results.CodeLimited, Of: of, Outcome: results.Inconclusive, What: fmt.Sprintf(
				"%s took %s while the testbed was calibrated, and %s follow from its topology, ± %s: who answers late, be it this machine, would not show in anything else, since what is predicted takes it for granted",
				what, human.Quantity(got, "s"), follow, human.Quantity(slack, "s"))})
		}
		look(j.Name, "a round trip of job "+j.Name, in.base.RTTs[j.Name], known.RTT)
		for k, n := range j.Tree {
			if of := spec.AtSwitch(j.Name, n.Switch); n.Aggregate && k < len(known.Holds) {
				look(of, fmt.Sprintf("an aggregator of job %s at %s", j.Name, n.Switch), in.base.Holds[of], known.Holds[k])
			}
		}
	}
	return out
}

// deepest is how many switches are between a worker of a job and the root of its tree, that included.
func deepest(j *placement.JobPlan) (most int) {
	depth := map[string]int{}
	for _, n := range slices.Backward(j.Tree) { // the root is last
		depth[n.Switch] = depth[n.Parent] + 1 // of none it is 0
		most = max(most, depth[n.Switch])
	}
	return most
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
	trip, step := in.base.RTTs[j.Name], 0.0
	if in.Inv != nil {
		topo := in.Inv.Topology()
		trip = max(trip, testbed.RoundTrip(&j, topo).Seconds()) // which few results do not tell
		step = testbed.Step(&j, &w, topo, int(study.FrameBits(in.setup.Settings.Lanes))/8, len(in.setup.Plan.Jobs)).Seconds()
	}
	limit := max(study.StillLeast, study.StillPart*length, 2*compute, study.StillTrips*trip, step)
	if in.damaged || w.Control == "aimd" { // packets are lost on purpose, and waiting for a resend doubles each time
		limit = max(limit, 100*w.RTO.Seconds()) // six times at the longest timeout, of 16 RTO
	}
	if in.Spec.Reallocates() { // who comes in between waits for the next period, and then for its turn
		limit = max(limit, (1+in.turn(j, running))*time.Duration(in.Spec.Switch.Reallocate).Seconds())
	}
	return limit
}

// turn is how many periods of reallocation in a row a job has no memory while these run; without end
// where it is never given any, and is not to send.
func (in *inspection) turn(j placement.JobPlan, running []string) (longest float64) {
	has := func(job string) bool { return slices.Contains(running, job) }
	periods, all := 0.0, 2*len(running)
	for round := range all {
		if periods++; j.Collective != placement.INA || divide(in.Inv, in.setup, has, round)[j.Name].Window > 0 {
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
		out = append(out, results.Finding{Name: study.GoesOn, Code: t.Code, Of: t.Job, Outcome: results.Fail, What: t.String()})
	}
	return out
}

// stopped finds processes of jobs that stood still for long within a phase while all else ran: that one was
// stopped, and no load of the machine explains it. What lateness comes of it excuses nothing. One that did so
// for a part of a phase, a little at a time, may have been kept from a processor; but figures that leave its
// pauses out are not those of the phase, once they are more of it than a figure may be off by.
func (in *inspection) stopped() []results.Finding {
	var out []results.Finding
	part := in.tightest()
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
				case p.Sum > part*(end-start) && found.Outcome == "":
					found.Outcome = results.Inconclusive
					often := fmt.Sprintf("%d times, for %s in all, %s, the longest", p.N, human.Quantity(p.Sum, "s"), phase)
					if p.N == 1 {
						often = fmt.Sprintf("once, for %s, %s", human.Quantity(p.Sum, "s"), phase)
					}
					found.What = fmt.Sprintf("job %s stood still: %s did so %s: %s, and meanwhile all else went on", j.Name, p.Where, often, s.What)
				}
			}
			if found.Outcome != "" {
				out = append(out, found)
			}
		}
	}
	return out
}

// tightest is by how much a part of what is expected a figure may be off at least, and study.StillPart at most.
func (in *inspection) tightest() float64 {
	part := study.StillPart
	for _, e := range in.Spec.Expectations() {
		if e.Gate && e.Relative && e.Statistic != results.Correlation && e.Tolerance > 0 {
			part = min(part, e.Tolerance)
		}
	}
	return part
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
		got := results.Sum(in.Counter("worker_psns", of), in.Counter("worker_goodput_bytes", of), in.Counter("worker_iterations", of))
		if j.Collective == placement.Ring { // it counts whole messages
			got = results.Sum(got, in.Counter("worker_rx_bytes", of))
		}
		sent := in.Counter("worker_tx_bytes", of)
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
	spec, ok := in.Spec.Job(job)
	s := in.Counter("worker_iterations", of)
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
	arrived, done := in.Counter("worker_arrived", j.Name+"/ps"), in.Counter("worker_completed", j.Name+"/ps")
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

// received compares what each end of a job says of the same packets.
func (in *inspection) received() []results.Finding {
	out := in.Again()
	for _, j := range in.setup.Plan.Jobs {
		if j.PS == "" || j.Local() {
			continue
		}
		completed, ok := in.Last("worker_completed", j.Name+"/ps")
		if !ok {
			continue
		}
		slack := 2*float64(in.workload(j.Name).Window) + 64
		for _, w := range j.Workers {
			of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
			if got, ok := in.Last("worker_psns", of); ok && math.Abs(got-completed) > slack+inspect.SlackPart*completed {
				out = append(out, results.Finding{Name: study.Agree, Code: results.CodeCounters, Of: of, Outcome: results.Fail,
					What: fmt.Sprintf("worker %s on host %s says that it got results of %.0f PSNs, and its PS on host %s that it completed %.0f", of, w.Host, got, j.PS, completed)})
			}
		}
	}
	return out
}

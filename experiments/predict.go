package experiments

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// Baseline is what was measured at low load before anything was predicted: how
// long an aggregator stays taken, by job and switch ("A@tor1"), and the round trip
// of a gradient and its result by job. Both in seconds.
type Baseline struct{ Holds, RTTs map[string]float64 }

// period is the first job's period of grants at its first switch, in seconds; 0 if
// it is not known.
func period(setup testbed.Setup, base Baseline) float64 {
	for _, j := range setup.Plan.Jobs {
		for _, n := range j.Tree {
			if p := grants(setup, base, j.Name, n.Switch); n.Aggregate && p > 0 {
				return p
			}
		}
	}
	return 0
}

// conditions are what a setup's jobs meet, for predictors.
func conditions(setup testbed.Setup, base Baseline, active []string) placement.Conditions {
	c := placement.Conditions{
		Seed:   setup.Settings.Seed,
		Active: active, Mode: setup.Settings.Mode, Addressing: setup.Settings.Addressing,
		Aggregators: setup.Settings.Aggregators, Lanes: setup.Settings.Lanes,
		Senders: map[string]placement.Sender{}, Holds: base.Holds, RTTs: base.RTTs,
	}
	for i, j := range setup.Plan.Jobs {
		w := setup.Workloads[i]
		c.Senders[j.Name] = placement.Sender{Rate: w.Rate, Window: w.Window, Control: w.Control, Slots: w.Slots, Timeout: w.RTO.Seconds(), Layers: layers(w)}
	}
	for link, s := range setup.Damage {
		if c.Damage == nil {
			c.Damage = map[string]flow.Damage{}
		}
		c.Damage[link] = flow.Damage{Loss: s.Loss, Twice: s.Duplicate, Late: s.Reorder, Delay: s.ReorderBy.Seconds()}
	}
	return c
}

// layers are what a job reduces in an iteration; none of a stream. A ring has a message even
// where none is asked for.
func layers(w testbed.Workload) (out []placement.Layer) {
	for _, l := range w.Layers {
		out = append(out, placement.Layer{Bytes: float64(l.Bytes), Compute: l.Compute.Seconds()})
	}
	switch {
	case len(out) > 0:
	case w.Message > 0:
		out = []placement.Layer{{Bytes: float64(w.Message)}}
	case w.Job.Collective == placement.Ring:
		out = []placement.Layer{{Bytes: collectives.RingMessage}}
	}
	return out
}

// granted makes the windows of jobs what they are granted in the first period of
// reallocation. Jobs that wait for their turn send nothing.
func granted(c *placement.Conditions, inv *inventory.Inventory, setup testbed.Setup) {
	active := c.Active
	grants := divide(inv, setup, func(job string) bool { return slices.Contains(active, job) }, 0)
	c.Active = []string{}
	for _, j := range setup.Plan.Jobs {
		g := grants[j.Name]
		switch {
		case !slices.Contains(active, j.Name):
		case j.Collective != placement.INA || j.Local():
			c.Active = append(c.Active, j.Name)
		case g.Window > 0:
			c.Active = append(c.Active, j.Name)
			s := c.Senders[j.Name]
			s.Window = g.Window
			c.Senders[j.Name] = s
		}
	}
}

// predict is a prediction of a steady state by each of some models, in the units of inv.
func predict(inv *inventory.Inventory, setup testbed.Setup, base Baseline, active []string, models []string) ([]*placement.Prediction, error) {
	var out []*placement.Prediction
	for _, name := range models {
		c := conditions(setup, base, active)
		c.Predictor = name
		if setup.Grants != nil {
			granted(&c, inv, setup)
		}
		p, err := placement.Predict(inv, setup.Plan, c)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// predict is what every model predicts of a timeline's spans. Where the testbed says when jobs begin, that is of the
// one run, from its beginning to its end, and elsewhere of steady states.
func (r *run) predict(setup testbed.Setup, base Baseline, t timeline) ([][]*placement.Prediction, error) {
	inv := r.tb.Inventory()
	var run []*placement.Prediction
	if pace := r.pace(t); pace.Within > 0 && setup.Grants == nil {
		var err error
		if run, err = r.replay(setup, base, t.schedule(base, pace)); err != nil {
			return nil, err
		}
	}
	models := spec.Predictors
	if run != nil { // which is the first one's
		models = spec.Predictors[1:]
	}
	var out [][]*placement.Prediction
	for i, sp := range t.spans() {
		p, err := remember(r, []any{setup, base, sp.jobs, models}, func() ([]*placement.Prediction, error) {
			return predict(inv, setup, base, sp.jobs, models)
		})
		if err != nil {
			return nil, err
		}
		if run != nil {
			p = append([]*placement.Prediction{run[i]}, p...)
		}
		out = append(out, p)
	}
	return out, nil
}

// tail is how many times their median is exceeded once in a hundred by what wakes of processes take, see flow.Lag.
const tail = 9

// pace is how well the testbed kept to its times in a run, as far as that is over: where frames left later than they
// use to, so did those that are followed.
func (r *run) pace(t timeline) testbed.Pace {
	pace := r.tb.Capabilities().Pace
	pace.Wake = max(pace.Wake, time.Duration(t.late/tail*float64(time.Second)))
	return pace
}

// replay is what Occupancy predicts of the phases of one run; nil: only their steady states are known.
func (r *run) replay(setup testbed.Setup, base Baseline, s placement.Schedule) ([]*placement.Prediction, error) {
	return remember(r, []any{setup, base, s}, func() ([]*placement.Prediction, error) {
		return placement.Replay(r.tb.Inventory(), setup.Plan, conditions(setup, base, nil), s)
	})
}

// remember is what do says of a question, which repeats and phases ask more than once: following packets takes
// its time.
func remember(r *run, question any, do func() ([]*placement.Prediction, error)) ([]*placement.Prediction, error) {
	key, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	if p, ok := r.predicted[string(key)]; ok {
		return p, nil
	}
	p, err := do()
	if err == nil {
		if r.predicted == nil {
			r.predicted = map[string][]*placement.Prediction{}
		}
		r.predicted[string(key)] = p
	}
	return p, err
}

// figures are a prediction's numbers as a record keeps them.
func figures(p *placement.Prediction, topo *inventory.Topology) []results.Figure {
	links := topo.Links
	exact := func(metric, of string, v float64, unit, bottleneck string) results.Figure {
		return results.Figure{Metric: metric, Of: of, Kind: results.Predicted, Value: v, Lo: v, Hi: v, N: 1,
			Unit: unit, Predictor: p.Predictor, Bottleneck: bottleneck, OfRun: p.Replayed}
	}
	var out []results.Figure
	var goodputs []float64
	shares := map[string][]float64{} // by switch: each job's aggregated throughput
	var switches []string
	for _, j := range p.Jobs {
		if j.Local {
			continue
		}
		out = append(out,
			within(exact("goodput", j.Name, j.Goodput, "bit/s", j.Bottleneck), j.Spread*j.Goodput),
			within(exact("wire_rate", j.Name, j.WireRate, "bit/s", j.Bottleneck), j.Spread*j.WireRate))
		goodputs = append(goodputs, j.Goodput)
		for _, s := range j.Shares {
			part := func(metric string, v float64) results.Figure {
				f := within(exact(metric, spec.AtSwitch(j.Name, s.Switch), v, "1", j.Bottleneck), s.Spread)
				f.Hi = min(1, f.Hi)
				return f
			}
			if out = append(out, part("granted", s.Granted)); s.In >= placement.LeastIn {
				out = append(out, part("share", s.Share))
			}
			if !slices.Contains(switches, s.Switch) {
				switches = append(switches, s.Switch)
			}
			shares[s.Switch] = append(shares[s.Switch], s.Granted*j.Goodput)
		}
	}
	if len(goodputs) > 1 {
		out = append(out, exact("jain", "goodput", results.JainIndex(goodputs), "1", ""))
	}
	for _, sw := range switches {
		if len(shares[sw]) > 1 {
			out = append(out, exact("jain", spec.AtSwitch("aggregated", sw), results.JainIndex(shares[sw]), "1", ""))
		}
	}
	loads := map[string]placement.LinkPrediction{}
	for _, l := range p.Links {
		loads[l.Link] = l
	}
	for _, l := range links {
		// Algorithm 1 knows cables, not their directions: it is held to the busier one.
		load, ok := loads[l.Name]
		if _, other := loads[links[l.Reverse].Name]; ok || p.Predictor == placement.Occupancy || !other {
			// What hosts send is counted before a cable damages it, and what switches send after that.
			rate := load.Load - load.Lost
			if topo.IsHost(l.From) {
				rate = load.Load
			}
			out = append(out, within(exact("link_rate", l.Name, rate, "bit/s", ""), load.Spread*load.Load))
		}
	}
	return out
}

// within is a predicted figure of which one run may be off by a standard deviation.
func within(f results.Figure, deviation float64) results.Figure {
	f.Lo, f.Hi = max(0, f.Value-1.96*deviation), f.Value+1.96*deviation
	return f
}

// phase draws a span's figures from what was seen in it, and puts the predictions
// beside them.
func (r *run) phase(measure spec.Measure, setup testbed.Setup, base Baseline, obs observation, sp span, predictions []*placement.Prediction) (results.Phase, error) {
	ph := results.Phase{Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs, Longer: sp.longer.Seconds()}
	caps := r.tb.Capabilities()
	m := study.NewMeasurer(obs.samples, leaveOut(&ph, obs.stalls, base, setup.Interval.Seconds(), measure.Stretch), caps.Kind)
	inv := r.tb.Inventory()
	var goodputs []results.Series
	unknown := "" // a job whose goodput is
	aggregated := map[string][]results.Series{}
	longest := map[string]float64{} // period of grants, by switch
	var switches []string
	for _, j := range setup.Plan.Jobs {
		if !slices.Contains(sp.jobs, j.Name) || j.Local() {
			continue
		}
		var good, wire, rttSum, rttCount, steps, stepping []results.Series
		for _, w := range j.Workers {
			of := fmt.Sprintf("%s/%d", j.Name, w.Rank)
			good = append(good, m.Series("worker_goodput_bytes", of))
			wire = append(wire, m.Series("worker_tx_bytes", of))
			rttSum = append(rttSum, m.Series("worker_rtt_seconds", of))
			rttCount = append(rttCount, m.Series("worker_rtt_count", of))
			steps = append(steps, m.Series("worker_iterations", of))
			stepping = append(stepping, m.Series("worker_iteration_seconds", of))
		}
		n := float64(len(j.Workers))
		goodput := results.Sum(good...)
		goodputs = append(goodputs, goodput.Times(1/n))
		switch still := goodput.Stood(ph.Start, ph.End, 0); {
		case j.Collective != placement.Ring:
			ph.Figures = m.Rate(ph.Figures, "goodput", j.Name, goodput, 8/n, "bit/s")
		case still.End-still.Start > (ph.End-ph.Start)/2:
			// A ring counts a message when it is done: what it carried of one that is not is not known.
			unknown = j.Name
			m.Add(nil, "goodput", j.Name, "bit/s", results.Figure{}, fmt.Errorf("one message takes more than half of the phase: %w", results.ErrShort))
		default:
			ph.Figures = m.Whole(goodput).Rate(ph.Figures, "goodput", j.Name, goodput, 8/n, "bit/s")
		}
		ph.Figures = m.Rate(ph.Figures, "wire_rate", j.Name, results.Sum(wire...), 8/n, "bit/s")
		ph.Figures = m.Ratio(ph.Figures, "rtt", j.Name, results.Sum(rttSum...), results.Sum(rttCount...), "s")
		if w := workloadOf(setup, j.Name); w.Message > 0 || len(w.Layers) > 0 {
			ph.Figures = m.Steps(ph.Figures, j.Name, results.Sum(steps...), results.Sum(stepping...), n)
		}
		for i, node := range j.Tree {
			if !node.Aggregate {
				continue
			}
			of := spec.AtSwitch(j.Name, node.Switch)
			granted, denied := m.Series("job_granted_packets", of), m.Series("job_denied_packets", of)
			// Readings a whole period of the grants apart: see grants. Of a phase that was followed all counts.
			apart := grants(setup, base, j.Name, node.Switch)
			if predictions[0].Replayed {
				apart = 0
			}
			longest[node.Switch] = max(longest[node.Switch], apart)
			ph.Figures = m.Every(apart).Ratio(ph.Figures, "granted", of, granted, results.Sum(granted, denied), "1")
			if seen, ok := seenShare(m.Series, j, i); ok {
				w := m.Every(apart).Window
				seen = seen.counted(w, m.Series, j, i)
				f, err := seen.of(w)
				f.Loose = seen.flying(w, workloadOf(setup, j.Name).Window)
				ph.Figures = m.Add(ph.Figures, "share", of, "1", f, err)
			} else { // what it says is all that there is
				ph.Figures = m.Every(apart).Ratio(ph.Figures, "share", of, granted, results.Sum(granted, denied), "1")
			}
			if !slices.Contains(switches, node.Switch) {
				switches = append(switches, node.Switch)
			}
			aggregated[node.Switch] = append(aggregated[node.Switch], granted)
		}
	}
	if unknown == "" {
		ph.Figures = m.Jain(ph.Figures, "goodput", goodputs)
	} else if len(goodputs) > 1 {
		m.Add(nil, "jain", "goodput", "1", results.Figure{}, fmt.Errorf("job %s has no goodput: %w", unknown, results.ErrShort))
	}
	for _, sw := range switches {
		ph.Figures = m.Every(longest[sw]).Jain(ph.Figures, spec.AtSwitch("aggregated", sw), aggregated[sw])
	}
	topo := inv.Topology()
	for _, l := range topo.Links {
		ph.Figures = m.Rate(ph.Figures, "link_rate", l.Name, m.Series(study.LinkMetric(caps, inv, l), l.Name), 8, "bit/s")
	}
	for _, p := range predictions {
		ph.Figures = append(ph.Figures, figures(p, topo)...)
	}
	ph.Missing = m.Log.Missing
	for _, o := range predictions[0].Overflows(inv, buffer) {
		if f, err := results.Rate(m.Window, m.Series("port_tx_drop_packets", o.Link)); err == nil && f.Value > 0 {
			ph.Unlike = overflow(o)
		}
	}
	ph.Unlike = cmp.Or(ph.Unlike, predictions[0].Beyond, unsteady(setup, predictions[0]), inStep(setup, ph.End-ph.Start, predictions[0]), chance(m, setup, sp.jobs), early(measure.Warmup.Std().Seconds(), predictions[0]),
		brief(ph.End-ph.Start, predictions[0]), coarse(ph.End-ph.Start, setup.Interval.Seconds(), predictions[0]))
	return ph, m.Log.Err
}

// tipped says that a followed phase is not as predicted, and all that was measured of its jobs is between that and what
// the same run comes to where one process stands still once, for half a round trip; empty: it is not so. A setting may have
// more than one state: workers that keep step find a memory long enough that is shorter than their windows, and once one of
// them is behind the others take each other's slots for good.
func (r *run) tipped(setup testbed.Setup, base Baseline, t timeline, span int, ph *results.Phase) (string, error) {
	longest := 0.0
	for _, rtt := range base.RTTs {
		longest = max(longest, rtt)
	}
	if longest == 0 || !short(ph.Figures, nil) {
		return "", nil
	}
	s := t.schedule(base, r.pace(t))
	s.Lag.Hitch = longest / 2
	shaken, err := r.replay(setup, base, s)
	if err != nil || shaken == nil || short(ph.Figures, figures(shaken[span], r.tb.Inventory().Topology())) {
		return "", err
	}
	return fmt.Sprintf("the setting tips: where one process stands still for %s, half a round trip, it may go on at what was measured here; windows that are no longer than the memory have one state",
		human.Quantity(s.Lag.Hitch, "s")), nil
}

// short says that some goodput or share among figures is not as predicted, and that it is more than that, or less than
// least predicts: all figures are, if that is nil.
func short(figures, least []results.Figure) bool {
	predicted := func(among []results.Figure, like results.Figure) (f results.Figure, ok bool) {
		i := slices.IndexFunc(among, func(f results.Figure) bool {
			return f.Kind == results.Predicted && f.Predictor == placement.Occupancy && f.Metric == like.Metric && f.Of == like.Of
		})
		if i < 0 {
			return f, false
		}
		return among[i], true
	}
	for _, f := range figures {
		p, ok := predicted(figures, f)
		if f.Kind == results.Predicted || !ok {
			continue
		}
		var off float64
		switch f.Metric {
		case "goodput":
			off = 0.05 * p.Value
		case "share":
			off = 0.04
		default:
			continue
		}
		if f.Value >= p.Lo-off && f.Value <= p.Hi+off {
			continue
		}
		if l, ok := predicted(least, f); !ok || f.Value < l.Lo-off || f.Value > p.Hi+off {
			return true
		}
	}
	return false
}

// early says that a phase is measured, after a warm-up of so many seconds, long before what is predicted of it
// has come about, or before a job that was followed can have a result, which is when workers are first read; empty: it
// is not.
func early(warmup float64, p *placement.Prediction) string {
	for _, j := range p.Jobs {
		if p.Replayed && warmup < j.Trip {
			return fmt.Sprintf("the warm-up is %s, and a round trip of job %s takes %s: it may have no result yet when the phase begins; a longer measure.warmup would do",
				human.Quantity(warmup, "s"), j.Name, human.Quantity(j.Trip, "s"))
		}
	}
	if warmup >= p.Settled/2 {
		return ""
	}
	return fmt.Sprintf("queues take some %s until they are as long as they stay, and the warm-up is %s: what is predicted is what comes then; a longer measure.warmup would do",
		human.Quantity(p.Settled, "s"), human.Quantity(warmup, "s"))
}

// fewTrips is how many round trips a phase lasts at least for its figures to be those of a steady state: a window
// that is counted, or is not, is 5 % of what 20 of them carry. What was followed packet by packet counts as it did.
const fewTrips = 20

// brief says that a phase of so many seconds lasts few round trips of a job, queues included; empty: it does not.
func brief(length float64, p *placement.Prediction) string {
	if p.Replayed {
		return ""
	}
	for _, j := range p.Jobs {
		trip := j.Trip
		if j.WireRate > 0 {
			trip += 8 * j.Queue / j.WireRate
		}
		if length < fewTrips*trip {
			return fmt.Sprintf("the phase is %s, and a round trip of job %s takes %s: what is predicted is the mean of many; a longer measure.duration would do",
				human.Quantity(length, "s"), j.Name, human.Quantity(trip, "s"))
		}
	}
	return ""
}

// fewReadings is how many intervals of readings a phase lasts at least for what was followed of it to be what was
// counted: jobs that have just begun, and queues that drain, change within an interval, and at each end of
// the phase a part of one is not counted.
const fewReadings = 10

// coarse says that a phase of so many seconds, which was followed, is read at long intervals; empty: it is not.
func coarse(length, interval float64, p *placement.Prediction) string {
	if !p.Replayed || length >= fewReadings*interval {
		return ""
	}
	return fmt.Sprintf("the phase is %s and is read every %s: what happened at its ends is not counted; a longer measure.duration, or a shorter measure.interval, would do",
		human.Quantity(length, "s"), human.Quantity(interval, "s"))
}

// fewLosses is how many packets a job has to send again in a phase for its figures to be those of many losses:
// each stops a window for a timeout, and 1,600 of them are known to 5 % (two standard deviations of a count).
const fewLosses = 1600

// chance says which jobs lost so few packets, of those that cables lose on purpose, that what is predicted of
// their mean need not be what a phase has; empty: none.
func chance(m *study.Measurer, setup testbed.Setup, jobs []string) string {
	lossy := false
	for _, d := range setup.Damage {
		lossy = lossy || d.Loss > 0
	}
	if !lossy || m.Kind != results.Measured {
		return ""
	}
	for _, j := range setup.Plan.Jobs {
		if !slices.Contains(jobs, j.Name) || j.Local() || j.Collective == placement.Ring {
			continue
		}
		var again []results.Series
		for _, w := range j.Workers {
			again = append(again, m.Series("worker_resends", fmt.Sprintf("%s/%d", j.Name, w.Rank)))
		}
		f, err := results.Rate(m.Window, results.Sum(again...))
		if n := f.Value * m.Window.Length(); err != nil || n < fewLosses {
			return fmt.Sprintf("job %s sent %.0f packets again in this phase: what losses cost is known to 5 %% from some %d on; a longer phase would do", j.Name, n, fewLosses)
		}
	}
	return ""
}

// unscaled says why an emulation of lossy cables is not the lab in slow motion; empty: it is, or none lose.
func unscaled(s *spec.Spec) string {
	scale := spec.EmulationScale(s, "netns")
	if scale.Mode != "slow-motion" || scale.Factor <= 1 || !slices.ContainsFunc(s.LinkStates, func(l spec.LinkState) bool { return l.Loss > 0 }) {
		return ""
	}
	return fmt.Sprintf("cables lose packets, and of a sender's timeout %v are not slowed down: in slow motion losses cost less than in a lab, so that what netns measures, times %g, is not a lab's; a run there is held to a prediction of its own",
		testbed.Margin, scale.Factor)
}

// unsteady says which jobs' messages end before what is predicted is what they meet; empty: none.
func unsteady(setup testbed.Setup, p *placement.Prediction) string {
	if p.Replayed {
		return ""
	}
	for _, j := range p.Jobs {
		w := workloadOf(setup, j.Name)
		full := !slices.ContainsFunc(j.Shares, func(s placement.SharePrediction) bool { return s.Granted < 1-claimed })
		message := layers(w)
		if full || len(message) == 0 {
			continue
		}
		psns := 0.0
		for _, l := range message {
			psns += l.Bytes / float64(4*setup.Settings.Lanes)
		}
		for _, s := range j.Shares {
			flight := float64(w.Window)
			if w.Rate > 0 && j.Bottleneck == "rate limit" {
				flight = min(flight, w.Rate*s.Hold/float64(8*(placement.INAOverhead+4*setup.Settings.Lanes)))
			}
			alone := !slices.ContainsFunc(p.Jobs, func(o placement.JobPrediction) bool {
				return o.Name != j.Name && slices.ContainsFunc(o.Shares, func(t placement.SharePrediction) bool { return t.Switch == s.Switch })
			})
			if placement.Bias(s.Granted, flight, psns, 1, alone) > placement.MostBias {
				return placement.Short(j.Name, psns, flight)
			}
		}
		if j.Queue == 0 {
			continue
		}
		if need := placement.SteadyWindows * float64(w.Window); psns < need {
			return fmt.Sprintf("a message of job %s has %.0f PSNs, and its windows fill queues at %s until some %.0f have passed: aggregators are found more often than in the steady state that is predicted; longer messages, a smaller window or more aggregators would do",
				j.Name, math.Ceil(psns), j.Bottleneck, need)
		}
	}
	return ""
}

// idle is the least part of an iteration without traffic for which it matters with whom a job sends at once.
const idle = 0.05

// inStep says which jobs share a memory that is short, and send and pause equally long, so that in a phase of so many
// seconds they keep the phase in which they began: what is predicted is the mean over all; empty: none.
func inStep(setup testbed.Setup, length float64, p *placement.Prediction) string {
	if p.Replayed {
		return ""
	}
	iteration := func(j placement.JobPrediction) float64 { // s; 0: it has none, or hardly pauses
		var bytes float64
		pause := j.Trip
		for _, l := range layers(workloadOf(setup, j.Name)) {
			bytes += l.Bytes
			pause += l.Compute
		}
		if t := 8 * bytes / j.Goodput; pause > idle*t && !math.IsInf(t, 0) {
			return t
		}
		return 0
	}
	for i, a := range p.Jobs {
		for _, b := range p.Jobs[i+1:] {
			short := slices.ContainsFunc(a.Shares, func(s placement.SharePrediction) bool {
				return s.Granted > claimed && s.Granted < 1-claimed && slices.ContainsFunc(b.Shares, func(t placement.SharePrediction) bool { return t.Switch == s.Switch })
			})
			if s, t := iteration(a), iteration(b); short && s > 0 && t > 0 && length*math.Abs(1/s-1/t) < 1 {
				return fmt.Sprintf("iterations of jobs %s and %s take equally long, so that they share memory always or never, as they happened to begin: what is predicted is the mean over both; messages of other sizes would do", a.Name, b.Name)
			}
		}
	}
	return ""
}

// buffer is that of each port of a switch, in bytes: as the inventory says, or as emulated switches have it.
func buffer(sw *inventory.Switch) int64 {
	switch {
	case sw.Buffer > 0:
		return int64(sw.Buffer)
	case sw.Kind == "soft" || sw.Kind == "bmv2":
		return inventory.DefaultBuffer
	}
	return 0
}

// overflow says of a queue that it has no room for what is predicted.
func overflow(o placement.Overflow) string {
	return fmt.Sprintf("the windows of %s need %s of queue at %s, whose buffer has %s: packets are lost and sent again, of which no prediction knows; a smaller window, switch.buffer or more aggregators would do",
		strings.Join(o.Jobs, ", "), human.Quantity(o.Needs, "B"), o.Link, human.Quantity(o.Buffer, "B"))
}

// overflows says whether what is predicted of any phase overflows a buffer.
func (r *run) overflows(setup testbed.Setup, base Baseline, obs observation) bool {
	phases, err := r.predict(setup, base, obs.timeline)
	return err == nil && slices.ContainsFunc(phases, func(p []*placement.Prediction) bool {
		return len(p[0].Overflows(r.tb.Inventory(), buffer)) > 0
	})
}

// provisos are those of a prediction that are known before anything runs: queues that no buffer has room
// for, what it leaves out, and messages that end too soon for it. Where one fails a figure is undecided.
func provisos(s *spec.Spec, setup testbed.Setup, p *placement.Prediction, inv *inventory.Inventory) (out []string) {
	asked := func(sw *inventory.Switch) int64 {
		if s.Switch.Buffer > 0 {
			return int64(s.Switch.Buffer)
		}
		return buffer(sw)
	}
	for _, o := range p.Overflows(inv, asked) {
		out = append(out, overflow(o))
	}
	for _, what := range []string{p.Beyond, unsteady(setup, p), unscaled(s)} {
		if what != "" {
			out = append(out, what)
		}
	}
	return out
}

// grants is the period, in seconds, in which a memory that is too small for a job
// is granted and denied. A pool is granted in a block, then denied until the block
// is released, T later. An array that is indexed by PSN comes round to a slot every
// M/C seconds, and grants it again the first time after T. Readings that are not
// whole periods apart see more or fewer blocks by chance, and would say that the
// share is less sure than it is. 0: not known.
func grants(setup testbed.Setup, base Baseline, job, sw string) float64 {
	hold := base.Holds[spec.AtSwitch(job, sw)]
	i := slices.IndexFunc(setup.Plan.Jobs, func(j placement.JobPlan) bool { return j.Name == job })
	if i < 0 {
		return hold
	}
	size := 0
	switch setup.Settings.Addressing {
	case "linear":
		size = setup.Settings.Aggregators
	case "atp":
		size = setup.Workloads[i].Slots
	}
	c := setup.Workloads[i].Rate / frameBits(setup.Settings.Lanes)
	if size == 0 || c == 0 {
		return hold
	}
	round := float64(size) / c
	return math.Ceil(hold/round) * round
}

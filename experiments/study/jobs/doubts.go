package jobs

import (
	"context"
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
	"github.com/inabench/inabench/testbed/ina"
)

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

// brief says that a phase of so many seconds lasts few round trips of a job, queues included, and what part of what is
// predicted a figure may be off for it: a window at each end. Where windows change from trip to trip, or there are less
// than two, that is any, 0. Empty: it does not.
func brief(length float64, setup testbed.Setup, p *placement.Prediction) (why string, by float64) {
	if p.Replayed {
		return "", 0
	}
	var job string
	var long float64
	for _, j := range p.Jobs {
		trip := j.Trip
		if j.WireRate > 0 {
			trip += 8 * j.Queue / j.WireRate
		}
		ends := 2 * trip / length
		if workloadOf(setup, j.Name).Control == "aimd" {
			ends = max(ends, 1)
		}
		if length < fewTrips*trip && ends > by {
			job, long, by = j.Name, trip, ends
		}
	}
	limit := fmt.Sprintf(", and a window at each end of it is %.2g %% of what it carries", 100*by)
	switch {
	case job == "":
		return "", 0
	case by >= 1:
		limit, by = "", 0
	}
	return fmt.Sprintf("the phase is %s, and a round trip of job %s takes %s: what is predicted is the mean of many%s; a longer measure.duration, or jobs that send for longer where they say how long, would do",
		human.Quantity(length, "s"), job, human.Quantity(long, "s"), limit), by
}

// sparse says that a phase of so many seconds, after a warm-up of so many, has few packets of a job with a limit of rate:
// they leave at random times of blocks, the first of which begins a block after its time; empty: it has many, or they were
// followed, or are a model's, whose packets are evenly apart.
func sparse(setup testbed.Setup, warmup, length float64, kind results.Kind, p *placement.Prediction) string {
	if p.Replayed || kind != results.Measured {
		return ""
	}
	for _, j := range p.Jobs {
		i := slices.IndexFunc(setup.Plan.Jobs, func(k placement.JobPlan) bool { return k.Name == j.Name })
		if i < 0 || setup.Plan.Jobs[i].Collective == placement.Ring {
			continue
		}
		block := testbed.Block(setup.Workloads[i].Rate, int(study.FrameBits(setup.Settings.Lanes))/8).Seconds()
		about := fmt.Sprintf("at its rate job %s sends %d packets in %s, at random times of these", j.Name, ina.Block, human.Quantity(block, "s"))
		switch {
		case warmup < testbed.FirstBlocks*block:
			return fmt.Sprintf("%s, and the warm-up is %s: a phase may begin before any; a measure.warmup of %s or more, a higher rate, or a smaller emulation.factor would do",
				about, human.Quantity(warmup, "s"), human.Quantity(testbed.FirstBlocks*block, "s"))
		case length < testbed.LeastBlocks*block:
			return fmt.Sprintf("%s, and the phase is %s: what is predicted is the mean of many; a measure.duration of %s or more, a higher rate, or a smaller emulation.factor would do",
				about, human.Quantity(length, "s"), human.Quantity(testbed.LeastBlocks*block, "s"))
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

// chance says which of a phase's jobs that cross lossy cables lost so few packets that what is predicted of
// their mean need not be what the phase has; empty: none.
func chance(m *study.Measurer, setup testbed.Setup, jobs []string, inv *inventory.Inventory) string {
	if len(setup.Damage) == 0 || m.Kind != results.Measured {
		return ""
	}
	known, err := placement.Resolve(inv, setup.Plan, conditions(setup, Baseline{}, nil))
	if err != nil {
		return "" // the prediction says so
	}
	for _, j := range setup.Plan.Jobs {
		lossy := slices.ContainsFunc(known, func(r placement.Resolved) bool { return r.Job == j.Name && r.Lossy })
		if !lossy || !slices.Contains(jobs, j.Name) || j.Collective == placement.Ring {
			continue
		}
		f, err := results.Rate(m.Window, again(m.Series, j))
		if n := f.Value * m.Window.Length(); err != nil || n < fewLosses {
			return fmt.Sprintf("job %s sent %.0f packets again in this phase: what losses cost is known to 5 %% from some %d on; a longer phase would do", j.Name, n, fewLosses)
		}
	}
	return ""
}

// unscaled says why an emulation of lossy cables is not the lab in slow motion; empty: it is, or none lose.
func unscaled(s *spec.Spec) string {
	scale := spec.EmulationScale(s, "netns")
	if scale.Mode != results.SlowMotion || scale.Factor <= 1 || !slices.ContainsFunc(s.LinkStates, func(l spec.LinkState) bool { return l.Loss > 0 }) {
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
			if w.Rate > 0 && j.HeldBy() == "rate limit" {
				flight = min(flight, w.Rate*s.Hold/study.FrameBits(setup.Settings.Lanes))
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
				j.Name, math.Ceil(psns), j.HeldBy(), need)
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
func (r *run) overflows(ctx context.Context, setup testbed.Setup, base Baseline, obs observation) bool {
	phases, err := r.predict(ctx, setup, base, obs.timeline)
	return err == nil && slices.ContainsFunc(phases, func(p []*placement.Prediction) bool {
		return len(p[0].Overflows(r.Testbed().Inventory(), buffer)) > 0
	})
}

// crowded says which job's windows come round later than its round trip has it, because all packets of a PSN wait for one
// another, by which a goodput that is predicted before anything is calibrated is too large; empty: none.
func crowded(setup testbed.Setup, p *placement.Prediction, inv *inventory.Inventory) string {
	known, err := placement.Resolve(inv, setup.Plan, conditions(setup, Baseline{}, nil))
	if err != nil {
		return "" // the prediction says so
	}
	for _, j := range p.Jobs {
		i := slices.IndexFunc(known, func(k placement.Resolved) bool { return k.Job == j.Name })
		if i < 0 || j.HeldBy() != "window" || known[i].Crowd < crowd*known[i].RTT {
			continue
		}
		return fmt.Sprintf("windows of job %s come round by up to %s later than its round trip says, since packets of a PSN wait for one another, and it gets less by as much: a run predicts that from what it calibrates; a larger window would do",
			j.Name, human.Percent(known[i].Crowd/known[i].RTT))
	}
	return ""
}

// crowd is how much of a round trip packets of one PSN may wait for one another before that is worth telling.
const crowd = 0.01

// provisos are those of a prediction that are known before anything runs: queues that no buffer has room
// for, what it leaves out, messages that end too soon for it, and windows of which only a run knows how long they take to come
// round. Where one of the others fails a figure is undecided.
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
	for _, what := range []string{p.Beyond, unsteady(setup, p), crowded(setup, p, inv), unscaled(s)} {
		if what != "" {
			out = append(out, what)
		}
	}
	return out
}

// figureOf is the figure among some that is of a kind, by a predictor if it is predicted, and of a metric of somebody.
func figureOf(among []results.Figure, kind results.Kind, predictor, metric, of string) (f results.Figure, ok bool) {
	i := slices.IndexFunc(among, func(f results.Figure) bool {
		return f.Kind == kind && f.Predictor == predictor && f.Metric == metric && f.Of == of
	})
	if i < 0 {
		return f, false
	}
	return among[i], true
}

// predicted is what Occupancy predicts of a metric among figures, if it does.
func predicted(among []results.Figure, metric, of string) (results.Figure, bool) {
	return figureOf(among, results.Predicted, placement.Occupancy, metric, of)
}

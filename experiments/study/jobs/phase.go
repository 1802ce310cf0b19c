package jobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// phase draws a span's figures from what was seen in it, and puts the predictions
// beside them.
func (r *run) phase(setup testbed.Setup, base Baseline, obs observation, sp span, predictions []*placement.Prediction) (results.Phase, error) {
	ph := results.Phase{Start: sp.start.Seconds(), End: sp.end.Seconds(), Jobs: sp.jobs, Longer: sp.longer.Seconds()}
	caps := r.Testbed().Capabilities()
	m := study.NewMeasurer(obs.readings, leaveOut(&ph, obs.stalls, base, setup.Interval.Seconds(), sp.planned.Seconds()), caps.Kind)
	inv := r.Testbed().Inventory()
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
		series := m.Series(study.LinkMetric(caps, inv, l), l.Name)
		if len(series.T) == 0 && len(topo.Links) > testbed.ManyLinks {
			continue
		}
		ph.Figures = m.Rate(ph.Figures, "link_rate", l.Name, series, 8, "bit/s")
	}
	for _, p := range predictions {
		ph.Figures = append(ph.Figures, figures(p, topo, base)...)
	}
	ph.Missing = m.Log.Missing
	for _, o := range predictions[0].Overflows(inv, buffer) {
		if f, err := results.Rate(m.Window, m.Series("port_tx_drop_packets", o.Link)); err == nil && f.Value > 0 {
			ph.Unlike = overflow(o)
		}
	}
	p, length, warmup := predictions[0], ph.End-ph.Start, r.Spec.Measure.Warmup.Std().Seconds()
	ph.Unlike = cmp.Or(ph.Unlike, p.Beyond, unsteady(setup, p), inStep(setup, length, p), chance(m, setup, sp.jobs, inv), early(warmup, p),
		sparse(setup, warmup, length, m.Kind, p), coarse(length, setup.Interval.Seconds(), p))
	if ph.Unlike == "" {
		ph.Unlike, ph.UnlikeBy = brief(length, setup, p)
	}
	return ph, m.Log.Err
}

// whole is the point from beginning to end as a phase of its own: what only counts
// when everything is done.
func (r *run) whole(obs observation) results.Phase {
	kind := r.Testbed().Capabilities().Kind
	ph := results.Phase{Start: obs.began.Seconds(), End: obs.ended.Seconds(), Jobs: obs.timeline.jobs}
	for _, j := range obs.summaries {
		exact := func(metric string, v float64) { ph.Figures = append(ph.Figures, study.Exactly(metric, j.Job, kind, v)) }
		asked, _ := r.Spec.Job(j.Job)
		if r.Testbed().Capabilities().Sums && spec.JobMetrics["sum_errors"].By(asked, j.Local) {
			exact("sum_errors", float64(j.SumErrors))
		}
		if spec.JobMetrics["iterations"].By(asked, j.Local) {
			exact("iterations", float64(j.Iterations))
		}
		if spec.JobMetrics["jct"].By(asked, j.Local) {
			exact("jct", j.JCT)
		}
	}
	return ph
}

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
	c := setup.Workloads[i].Rate / study.FrameBits(setup.Settings.Lanes)
	if size == 0 || c == 0 {
		return hold
	}
	round := float64(size) / c
	return math.Ceil(hold/round) * round
}

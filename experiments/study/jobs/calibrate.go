package jobs

import (
	"context"
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
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// How calibration measures: all jobs of a placement, with all aggregators, together
// at a rate so low that nothing queues, long enough for a few hundred results.
const (
	calibrationLoad    = 0.2 // of the slowest link, by all jobs together, of each worker's gradients
	calibrationFull    = 0.5 // of any link at most, where packets of several workers share it
	calibrationResults = 200 // PSNs of each job to average over
	calibrationMin     = 500 * time.Millisecond
	calibrationMax     = 10 * time.Second
	calibrationError   = 0.03 // half of the widest interval, as a part of its value, that is not measured again
	calibrationTimes   = 4    // that it is measured at most, within calibrationMax,
	calibrationLeast   = 3    // or so many times
)

// baseline is the calibration of a point's placement; it is measured once for each
// placement that a testbed runs.
func (r *run) baseline(ctx context.Context) (Baseline, error) {
	if !r.Spec.Calibrate.Enabled || !r.Testbed().Capabilities().Calibrates {
		return Baseline{}, nil
	}
	asked := []any{r.Plan, r.Spec.Switch.Lanes, r.Spec.Switch.Mode, r.Spec.Emulation.Switch, r.Spec.CalibratedBy()}
	return remember(r, "calibrated", asked, func() (Baseline, error) {
		r.Progress("calibrate", spec.Labels(r.Labels), r.Left())
		began := time.Now()
		b, cal, err := calibrate(ctx, r.Testbed(), r.Spec, r.Plan, r.Scale())
		if err != nil {
			return b, fmt.Errorf("calibrate: %w", err)
		}
		r.Timing("calibrate", began)
		r.Calibrated(cal...)
		return b, nil
	})
}

// calibrate measures, at low load, how long an aggregator stays taken for each job
// at each switch (T of the NetPack paper, section 4.1) and each job's round trip.
func calibrate(ctx context.Context, tb testbed.Testbed, s *spec.Spec, plan *placement.Plan, scale results.Scale) (_ Baseline, _ []results.Calibration, err error) {
	base := Baseline{Holds: map[string]float64{}, RTTs: map[string]float64{}, Unsure: map[string]float64{}}
	inv := tb.Inventory()
	topo := inv.Topology()
	slowest := math.Inf(1)
	for _, l := range topo.Links {
		slowest = min(slowest, float64(l.Rate))
	}
	setup := testbed.Setup{
		Plan:     &placement.Plan{Policy: plan.Policy},
		Settings: testbed.Settings{Mode: s.Switch.Mode, Addressing: s.CalibratedBy(), Queue: s.Switch.Queue, Lanes: s.Switch.Lanes, Seed: s.Measure.Seed},
	}
	var starts, stops []event
	for i, j := range plan.Jobs {
		if j.Collective == placement.Ring || len(j.Tree) == 0 {
			continue
		}
		w, err := workloadAt(s, i, plan, topo, scale)
		if err != nil {
			return base, nil, err
		}
		w.Control, w.Message, w.Layers, w.Iterations = "fixed", 0, nil, 0
		starts, stops = append(starts, event{job: j.Name}), append(stops, event{job: j.Name, stop: true})
		setup.Plan.Jobs = append(setup.Plan.Jobs, j)
		setup.Workloads = append(setup.Workloads, w)
	}
	if len(setup.Workloads) == 0 {
		return base, nil, nil
	}
	packets := 0
	for i := range setup.Plan.Jobs {
		packets += slices.Max(setup.Plan.Jobs[i].Packets()) // on its fullest link
	}
	rate := slowest * min(calibrationLoad/float64(len(setup.Workloads)), calibrationFull/float64(packets))
	psns := rate / study.FrameBits(s.Switch.Lanes) // per second
	settle := time.Duration(0)
	for i := range setup.Workloads {
		w := &setup.Workloads[i]
		rtt := testbed.RoundTrip(&w.Job, topo)
		w.Rate = rate
		// More than is ever on its way, but not so much that the end takes long.
		w.Window = min(w.Window, 16+int(2*psns*rtt.Seconds()))
		settle = max(settle, 2*rtt)
	}
	long := time.Duration(calibrationResults / psns * float64(time.Second))
	long = min(max(long, calibrationMin), calibrationMax)

	dep, err := tb.Deploy(ctx, setup)
	if err != nil {
		return base, nil, err
	}
	defer func() { err = errors.Join(err, dep.Close(ctx)) }()
	if _, err := perform(ctx, dep, starts); err != nil {
		return base, nil, err
	}
	cal, err := surest(min(calibrationTimes, max(calibrationLeast, int(calibrationMax/long))), func() (measured, error) {
		m, err := watch(ctx, dep, settle, long)
		if err != nil {
			return measured{}, err
		}
		settle = 0 // the next time all is as it goes on
		return costs(m, setup.Plan), m.Log.Err
	})
	if err != nil {
		return base, nil, err
	}
	if _, err := perform(ctx, dep, stops); err != nil {
		return base, nil, err
	}
	for _, c := range cal.values {
		if c.What == "RTT" {
			base.RTTs[c.Of] = c.Value
			continue
		}
		base.Holds[c.Of], base.Unsure[c.Of] = c.Value, unsure(c)
	}
	for _, of := range cal.lost {
		base.Unsure[of] = 1
	}
	return base, cal.values, nil
}

// measured is what a calibration says of jobs.
type measured struct {
	values []results.Calibration
	lost   []string // of what there are readings, which say nothing: the machine stood still meanwhile
}

// costs are what was measured of each job: how long an aggregator stays taken, and a round trip. What a switch does not
// count is left out: the topology says it then.
func costs(m *study.Measurer, plan *placement.Plan) (out measured) {
	add := func(what, of, sum, count, at string) {
		f, err := results.Ratio(m.Window, m.Series(sum, at), m.Series(count, at))
		switch {
		case err == nil:
			out.values = append(out.values, results.Calibration{What: what, Of: of, Value: f.Value, Lo: f.Lo, Hi: f.Hi, N: f.N, Unit: "s"})
		case len(m.Series(count, at).T) > 0 && (errors.Is(err, results.ErrUncovered) || errors.Is(err, results.ErrFewSamples)):
			out.lost = append(out.lost, of)
		}
	}
	for _, j := range plan.Jobs {
		for _, n := range j.Tree {
			if n.Aggregate {
				of := spec.AtSwitch(j.Name, n.Switch)
				add("T", of, "job_hold_seconds", "job_hold_packets", of)
			}
		}
		add("RTT", j.Name, "worker_rtt_seconds", "worker_rtt_count", j.Name+"/0")
	}
	return out
}

// surest measures until no value is less sure than calibrationError, so many times at most, and returns those of the
// time whose worst is the surest, one that is lost being the worst: while a machine stands still all takes longer than it
// does at other times, and a memory that is a part of what is needed then is more than that.
func surest(times int, measure func() (measured, error)) (best measured, err error) {
	least := math.Inf(1)
	for range times {
		cal, err := measure()
		if err != nil {
			return measured{}, err
		}
		worst := float64(len(cal.lost))
		for _, c := range cal.values {
			worst = max(worst, unsure(c))
		}
		if worst < least {
			best, least = cal, worst
		}
		if least <= calibrationError {
			break
		}
	}
	return best, nil
}

// unsure is half of a value's interval, as a part of it: at most all of it. A single reading has none.
func unsure(c results.Calibration) float64 {
	if !(c.Value > 0) || c.N < 2 {
		return 1
	}
	return min(1, (c.Hi-c.Lo)/2/c.Value)
}

// watch reads all counters eleven times at even distances, from after the given time
// on, and returns what figures are drawn from.
func watch(ctx context.Context, dep testbed.Deployment, after, long time.Duration) (*study.Measurer, error) {
	begin := dep.Now() + after
	m := study.NewMeasurer(&results.Readings{}, results.Window{Start: begin.Seconds()}, results.Measured)
	for k := range time.Duration(11) {
		if err := dep.Sleep(ctx, begin+long*k/10); err != nil {
			return nil, err
		}
		got, err := dep.Sample(ctx)
		if err != nil {
			return nil, err
		}
		m.Readings.Add(got...)
	}
	m.Window.End = dep.Now().Seconds()
	return m, nil
}

// Calibrate measures a testbed for a placement: each job's round trip and how long aggregators stay taken for it, how
// much memory there is in bits per second, and what links really carry. Progress is told of each stage.
func Calibrate(ctx context.Context, tb testbed.Testbed, s *spec.Spec, plan *placement.Plan, scale results.Scale, progress func(stage string)) ([]results.Calibration, error) {
	progress("calibrate")
	_, cal, err := calibrate(ctx, tb, s, plan, scale)
	if err != nil {
		return cal, err
	}
	frame := study.FrameBits(s.Switch.Lanes)
	for _, c := range cal {
		_, sw, ok := strings.Cut(c.Of, "@")
		if node, found := tb.Inventory().Switch(sw); ok && found && c.What == "T" && c.Value > 0 {
			m := float64(node.Aggregators) * frame
			cal = append(cal, results.Calibration{What: "PAT", Of: c.Of, Value: m / c.Value, Lo: m / c.Hi, Hi: m / c.Lo, N: c.N, Unit: "bit/s"})
		}
	}
	progress("link rates")
	rates, err := linkRates(ctx, tb, s)
	return append(cal, rates...), err
}

// linkRates saturates every host's cable, in both directions, with a stream of one
// worker to a PS on the next host, and reports what it carried.
func linkRates(ctx context.Context, tb testbed.Testbed, s *spec.Spec) ([]results.Calibration, error) {
	inv := tb.Inventory()
	topo := inv.Topology()
	var out []results.Calibration
	for i, h := range inv.Hosts {
		if len(h.NICs) == 0 || len(inv.Hosts) < 2 {
			continue
		}
		to := inv.Hosts[(i+1)%len(inv.Hosts)]
		job := placement.JobPlan{
			ID: 1, Name: "probe", Collective: placement.PS, PS: to.Name,
			Workers: []placement.Worker{{Host: h.Name, NIC: h.NICs[0].Device}},
		}
		if err := placement.BuildTree(topo, inv, &job); err != nil {
			return out, err
		}
		got, err := probe(ctx, tb, topo, s, job)
		if err != nil {
			return out, fmt.Errorf("host %s to %s: %w", h.Name, to.Name, err)
		}
		out = append(out, got...)
	}
	return out, nil
}

// probe runs a stream that is only limited by the network, and reports the rate of
// every link on its way up.
func probe(ctx context.Context, tb testbed.Testbed, topo *inventory.Topology, s *spec.Spec, job placement.JobPlan) (_ []results.Calibration, err error) {
	frame := study.FrameBits(s.Switch.Lanes)
	w := testbed.Workload{Job: job, Window: 2048, Control: "fixed"}
	w.RTO = testbed.RTO(&job, topo, float64(w.Window)*frame)
	dep, err := tb.Deploy(ctx, testbed.Setup{
		Plan:      &placement.Plan{Jobs: []placement.JobPlan{job}},
		Settings:  testbed.Settings{Mode: s.Switch.Mode, Queue: s.Switch.Queue, Lanes: s.Switch.Lanes, Seed: s.Measure.Seed},
		Workloads: []testbed.Workload{w},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dep.Close(ctx)) }()
	if err := dep.Start(ctx, job.Name); err != nil {
		return nil, err
	}
	m, err := watch(ctx, dep, w.RTO, time.Second)
	if err != nil {
		return nil, err
	}
	path, err := topo.PathBy(job.Workers[0].End(), job.Goal(0))
	if err != nil {
		return nil, err
	}
	var out []results.Calibration
	for _, l := range path {
		name := topo.Links[l].Name
		if f, err := results.Rate(m.Window, m.Series(study.LinkMetric(tb.Capabilities(), tb.Inventory(), topo.Links[l]), name)); err == nil {
			f = f.Affine(8, 0)
			out = append(out, results.Calibration{What: "link_rate", Of: name, Value: f.Value, Lo: f.Lo, Hi: f.Hi, N: f.N, Unit: "bit/s"})
		}
	}
	return out, errors.Join(m.Log.Err, dep.Stop(ctx, job.Name))
}

package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
)

// How calibration measures: every job of a placement alone, with all aggregators,
// at a rate so low that nothing queues, long enough for a few hundred results.
const (
	calibrationLoad    = 0.02 // of the slowest link on the job's way
	calibrationResults = 300  // PSNs to average over
	calibrationMin     = 500 * time.Millisecond
	calibrationMax     = 10 * time.Second
)

// baseline is the calibration of a point's placement; it is measured once for each
// placement that a testbed runs.
func (r *run) baseline(ctx context.Context, p planned) (Baseline, error) {
	if !p.Spec.Calibrate.Enabled || !r.tb.Capabilities().Calibrates {
		return Baseline{}, nil
	}
	key, err := json.Marshal([]any{p.plan, p.Spec.Switch.Lanes, p.Spec.Switch.Mode})
	if err != nil {
		return Baseline{}, err
	}
	if b, ok := r.bases[string(key)]; ok {
		return b, nil
	}
	r.status("calibrate", labels(p.Labels), r.left())
	began := time.Now()
	b, cal, err := calibrate(ctx, r.tb, p.Spec, p.plan, r.rec.Scale)
	if err != nil {
		return b, fmt.Errorf("calibrate: %w", err)
	}
	r.timing("calibrate", began)
	r.bases[string(key)] = b
	r.rec.Calibration = append(r.rec.Calibration, cal...)
	return b, nil
}

// calibrate measures, at low load, how long an aggregator stays taken for each job
// at each switch (T of the NetPack paper, section 4.1) and each job's round trip.
// Jobs are measured one after the other, so that they do not meet.
func calibrate(ctx context.Context, tb testbed.Testbed, s *Spec, plan *placement.Plan, scale results.Scale) (Baseline, []results.Calibration, error) {
	b := Baseline{Holds: map[string]float64{}, RTTs: map[string]float64{}}
	var cal []results.Calibration
	for i, j := range plan.Jobs {
		if j.Collective == placement.Ring || len(j.Tree) == 0 {
			continue
		}
		got, err := calibrateJob(ctx, tb, s, plan, i, scale)
		if err != nil {
			return b, cal, fmt.Errorf("job %s: %w", j.Name, err)
		}
		for _, c := range got {
			if c.What == "T" {
				b.Holds[c.Of] = c.Value
			} else {
				b.RTTs[c.Of] = c.Value
			}
		}
		cal = append(cal, got...)
	}
	return b, cal, nil
}

func calibrateJob(ctx context.Context, tb testbed.Testbed, s *Spec, plan *placement.Plan, i int, scale results.Scale) (_ []results.Calibration, err error) {
	inv := tb.Inventory()
	job := plan.Jobs[i]
	w, err := s.workload(i, plan, inv, 0, scale)
	if err != nil {
		return nil, err
	}
	slowest := math.Inf(1)
	for _, l := range inv.Topology().Links {
		slowest = min(slowest, float64(l.Rate))
	}
	w.Rate, w.Control = calibrationLoad*slowest, "fixed"
	w.Message, w.Layers, w.Iterations = 0, nil, 0
	w.Job = job
	settings := testbed.Settings{Mode: s.Switch.Mode, Addressing: "pool", Queue: s.Switch.Queue, Lanes: s.Switch.Lanes, Seed: s.Measure.Seed}
	psns := w.Rate / frameBits(s.Switch.Lanes) // per second
	long := time.Duration(calibrationResults / psns * float64(time.Second))
	long = min(max(long, calibrationMin), calibrationMax)

	dep, err := tb.Deploy(ctx, testbed.Setup{
		Plan: &placement.Plan{Policy: plan.Policy, Jobs: []placement.JobPlan{job}}, Settings: settings, Workloads: []testbed.Workload{w},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := dep.Close(ctx); err == nil {
			err = cerr
		}
	}()
	if err := dep.Start(ctx, job.Name); err != nil {
		return nil, err
	}
	var samples []results.Sample
	start := dep.Now() + w.RTO/3 // the first round trip
	for t := start; t <= start+long; t += long / 10 {
		if err := dep.Sleep(ctx, t); err != nil {
			return nil, err
		}
		got, err := dep.Sample(ctx)
		if err != nil {
			return nil, err
		}
		samples = append(samples, got...)
	}
	end := dep.Now()
	if err := dep.Stop(ctx, job.Name); err != nil {
		return nil, err
	}
	m := measurer{samples: samples, start: start.Seconds(), end: end.Seconds(), kind: tb.Capabilities().Kind}
	var out []results.Calibration
	keep := func(what, of string, f results.Figure, err error) {
		if err == nil {
			out = append(out, results.Calibration{What: what, Of: of, Value: f.Value, Lo: f.Lo, Hi: f.Hi, N: f.N, Unit: "s"})
		}
	}
	for _, n := range job.Tree {
		if n.Aggregate {
			of := at(job.Name, n.Switch)
			f, err := results.Ratio(m.start, m.end, m.series("job_hold_seconds", of), m.series("job_hold_packets", of))
			keep("T", of, f, err)
		}
	}
	of := fmt.Sprintf("%s/%d", job.Name, job.Workers[0].Rank)
	f, err := results.Ratio(m.start, m.end, m.series("worker_rtt_seconds", of), m.series("worker_rtt_count", of))
	keep("RTT", job.Name, f, err)
	return out, m.err
}

// MeasureBaseline brings a testbed up, measures its baseline for the placement of the
// spec's first point, and what its links really carry, and takes it down.
func MeasureBaseline(ctx context.Context, driver string, s *Spec, progress func(Status)) (cal []results.Calibration, err error) {
	points, err := plans(s, nil)
	if err != nil {
		return nil, err
	}
	p := points[0]
	progress(Status{Stage: "bring up"})
	scale := emulationScale(s, driver)
	tb, err := openTestbed(ctx, driver, p.Spec, fabricOf(p.Spec, driver), "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tb.Close(ctx)) }()
	if !tb.Capabilities().Calibrates {
		return nil, fmt.Errorf("driver %s has nothing to calibrate: %w", driver, errors.ErrUnsupported)
	}
	progress(Status{Stage: "calibrate"})
	_, cal, err = calibrate(ctx, tb, p.Spec, p.plan, scale)
	if err != nil {
		return nil, err
	}
	frame := frameBits(p.Spec.Switch.Lanes)
	for _, c := range cal {
		_, sw, ok := strings.Cut(c.Of, "@")
		if node, found := tb.Inventory().Switch(sw); ok && found && c.What == "T" && c.Value > 0 {
			m := float64(node.Aggregators) * frame
			cal = append(cal, results.Calibration{What: "PAT", Of: c.Of, Value: m / c.Value, Lo: m / c.Hi, Hi: m / c.Lo, N: c.N, Unit: "bit/s"})
		}
	}
	progress(Status{Stage: "link rates"})
	rates, err := linkRates(ctx, tb, p.Spec)
	return append(cal, rates...), err
}

// linkRates saturates every host's cable, in both directions, with a stream of one
// worker to a PS on the next host, and reports what it carried.
func linkRates(ctx context.Context, tb testbed.Testbed, s *Spec) ([]results.Calibration, error) {
	inv := tb.Inventory()
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
		if err := placement.BuildTree(inv.Topology(), inv, &job); err != nil {
			return out, err
		}
		got, err := probe(ctx, tb, s, job)
		if err != nil {
			return out, fmt.Errorf("host %s to %s: %w", h.Name, to.Name, err)
		}
		out = append(out, got...)
	}
	return out, nil
}

// probe runs a stream that is only limited by the network, and reports the rate of
// every link on its way up.
func probe(ctx context.Context, tb testbed.Testbed, s *Spec, job placement.JobPlan) (_ []results.Calibration, err error) {
	inv := tb.Inventory()
	frame := frameBits(s.Switch.Lanes)
	w := testbed.Workload{Job: job, Window: 2048, Control: "fixed"}
	w.RTO = retransmitAfter(job, inv, w.Window, frame)
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
	var samples []results.Sample
	start := dep.Now() + w.RTO/2
	for k := range 11 {
		if err := dep.Sleep(ctx, start+time.Duration(k)*100*time.Millisecond); err != nil {
			return nil, err
		}
		got, err := dep.Sample(ctx)
		if err != nil {
			return nil, err
		}
		samples = append(samples, got...)
	}
	m := measurer{samples: samples, start: start.Seconds(), end: dep.Now().Seconds(), kind: results.Measured}
	topo := inv.Topology()
	path, err := topo.Path(job.Workers[0].Host, job.PS)
	if err != nil {
		return nil, err
	}
	var out []results.Calibration
	for _, l := range path {
		name := topo.Links[l].Name
		if f, err := results.Rate(m.start, m.end, m.series(linkMetric(inv, topo.Links[l]), name)); err == nil {
			f = f.Affine(8, 0)
			out = append(out, results.Calibration{What: "link_rate", Of: name, Value: f.Value, Lo: f.Lo, Hi: f.Hi, N: f.N, Unit: "bit/s"})
		}
	}
	return out, errors.Join(m.err, dep.Stop(ctx, job.Name))
}

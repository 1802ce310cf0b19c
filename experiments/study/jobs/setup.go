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
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
	"github.com/inabench/inabench/testbed"
)

// setupOf turns a spec and its placement into what a testbed deploys, in the
// testbed's own units.
func setupOf(s *spec.Spec, plan *placement.Plan, inv *inventory.Inventory, base Baseline, scale results.Scale) (testbed.Setup, error) {
	m, err := aggregatorsOf(s, plan, inv, base, scale)
	if err != nil {
		return testbed.Setup{}, err
	}
	topo := inv.Topology()
	out := testbed.Setup{Plan: plan, Settings: study.SettingsOf(s, m), Damage: damageOf(s, topo, scale)}
	for i := range s.Jobs {
		w, err := workloadAt(s, i, plan, topo, scale)
		if err != nil {
			return testbed.Setup{}, err
		}
		if w.Slots, err = slotsOf(s, &w.Job, inv, m); err != nil {
			return testbed.Setup{}, err
		}
		out.Workloads = append(out.Workloads, w)
	}
	if s.Reallocates() {
		out.Grants = divide(inv, out, func(job string) bool {
			j, ok := s.Job(job)
			return ok && j.Start == 0
		}, 0)
	}
	return out, nil
}

// timed gives jobs of a lab the round trips that were calibrated: an emulation's are those of its topology, to which calibration
// is held.
func timed(setup testbed.Setup, pace testbed.Pace, base Baseline) {
	if pace.Within > 0 {
		return
	}
	for i := range setup.Workloads {
		w := &setup.Workloads[i]
		w.Trip = time.Duration(math.Round(base.RTTs[w.Job.Name] * 1e9))
	}
}

// workloadAt is what one job sends, but for its slots.
func workloadAt(s *spec.Spec, i int, plan *placement.Plan, topo *inventory.Topology, scale results.Scale) (testbed.Workload, error) {
	j := s.Jobs[i]
	times, bytes := study.Factors(scale)
	small := func(n int64) int64 { return max(4, int64(float64(n)*bytes)) } // one value at least
	w := testbed.Workload{
		Job: plan.Jobs[i], Rate: float64(j.Rate) / scale.Factor, Window: j.Window, Control: j.Control,
		Iterations: j.Iterations,
	}
	if j.Message > 0 { // none is a stream
		w.Message = small(int64(j.Message))
	}
	if j.Model != "" {
		p, ok := s.Models().Lookup(j.Model)
		if !ok {
			return w, spec.Invalidf("job %s: no model %q; there are %s", j.Name, j.Model, strings.Join(s.Models().Names(), ", "))
		}
		p, err := p.Step(0)
		if err != nil {
			return w, spec.Invalidf("job %s: %v", j.Name, err)
		}
		for _, l := range p.Layers {
			w.Layers = append(w.Layers, testbed.Layer{
				Bytes:   small(l.Bytes),
				Compute: time.Duration(float64(l.Compute) * times),
			})
		}
	}
	w.RTO = testbed.RTO(&plan.Jobs[i], topo, backlogOf(s, plan, i))
	return w, nil
}

// mostSlots is how many aggregators slots may be chosen among: packets have 16 bits for a slot.
const mostSlots = 1 << 16

// slotsOf is how many slots the job picks under atp addressing, where each switch uses so many aggregators; 0: none.
func slotsOf(s *spec.Spec, j *placement.JobPlan, inv *inventory.Inventory, use int) (int, error) {
	if s.Switch.Addressing != "atp" {
		return 0, nil
	}
	least, most := memory(j, inv, use)
	slots := s.Switch.Slots
	if s.Switch.SlotsRatio > 0 {
		slots = int(math.Round(s.Switch.SlotsRatio * float64(least)))
	}
	switch {
	case least == 0 || slots == 0 && s.Switch.SlotsRatio == 0:
		return slots, nil // no switch adds up for it, or none by slots
	case slots == 0:
		return 0, spec.Invalidf("job %s: switch.slots_ratio %v of %s is less than one slot: write slots, or a larger part",
			j.Name, s.Switch.SlotsRatio, human.Plural(least, "aggregator"))
	case slots > least:
		return 0, spec.Invalidf("job %s: switch.slots is %d, and a switch that adds up for it has %s: write at most that, or slots_ratio",
			j.Name, slots, human.Plural(least, "aggregator"))
	case most > mostSlots:
		return 0, spec.Invalidf("job %s: a switch that adds up for it has %s, and slots are chosen among %d at most: write that as switch.aggregators, or less",
			j.Name, human.Plural(most, "aggregator"), mostSlots)
	}
	return slots, nil
}

// memory is what the job's aggregating switches have, or use: the least of one, and the most.
func memory(j *placement.JobPlan, inv *inventory.Inventory, use int) (least, most int) {
	for _, n := range j.Tree {
		sw, ok := inv.Switch(n.Switch)
		if !ok || !n.Aggregate {
			continue
		}
		m := placement.Aggregators(sw, use)
		if least == 0 || m < least {
			least = m
		}
		most = max(most, m)
	}
	return least, most
}

// backlogOf is how many bits a job's packet may find before it in front of one link, at most: those of all
// jobs, or with fair queues all of its own and as many of each other job. Where memory may be short,
// windows are fixed and nothing is lost on purpose, that is what comes from each worker: a queue of
// what switches could not add up must not look like a loss.
func backlogOf(s *spec.Spec, plan *placement.Plan, job int) float64 {
	var all, own float64
	patient := len(s.LinkStates) == 0
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		b := testbed.Backlog(j, s.Jobs[i].Window, study.FrameBits(s.Switch.Lanes))
		if j.Collective == placement.INA && s.Switch.Mode != "synchronous" && s.Jobs[i].Control != "aimd" && patient {
			b *= float64(len(j.Workers))
		}
		if all += b; i == job && s.Jobs[i].Control != "aimd" {
			own = b
		}
	}
	if s.Switch.Queue == "fair" && patient { // a ring, too, may always have something there
		return max(all, own*float64(len(plan.Jobs)))
	}
	return all
}

// aggregatorsOf is how many aggregators each switch uses: as the spec says, or what
// its PAT ratio means with the calibrated hold time of its reference job.
func aggregatorsOf(s *spec.Spec, plan *placement.Plan, inv *inventory.Inventory, base Baseline, scale results.Scale) (int, error) {
	if s.Switch.PATRatio == 0 {
		return s.Switch.Aggregators, nil
	}
	i := 0
	if s.Switch.PATJob != "" {
		i = slices.IndexFunc(s.Jobs, func(j spec.Job) bool { return j.Name == s.Switch.PATJob })
	}
	j := plan.Jobs[i]
	for _, n := range j.Tree {
		if !n.Aggregate {
			continue
		}
		hold, err := holdOf(s, plan, inv, base, j.Name, n.Switch)
		if err != nil {
			return 0, err
		}
		c := float64(s.Jobs[i].Rate) / scale.Factor / study.FrameBits(s.Switch.Lanes) // packets/s
		exact := math.Round(s.Switch.PATRatio * c * hold)
		if exact < 1 {
			return 0, spec.Invalidf("switch.pat_ratio %v of the %.1f packets that job %s holds is less than one aggregator: "+
				"give it a higher rate or longer cables", s.Switch.PATRatio, c*hold, j.Name)
		}
		if sw, ok := inv.Switch(n.Switch); ok && exact > float64(sw.Aggregators) {
			return 0, spec.Invalidf("switch.pat_ratio %v needs %.6g aggregators, switch %s has %d: give it a lower one",
				s.Switch.PATRatio, exact, sw.Name, sw.Aggregators)
		}
		return int(exact), nil
	}
	return 0, spec.Invalidf("switch.pat_ratio: no switch aggregates for job %s", j.Name)
}

// holdOf is T of a job at a switch in seconds: calibrated, or what the topology says.
func holdOf(s *spec.Spec, plan *placement.Plan, inv *inventory.Inventory, base Baseline, job, sw string) (float64, error) {
	// Its packets are not followed: a link alone holds it back.
	p, err := placement.Predict(context.Background(), inv, plan, placement.Conditions{Active: []string{job}, Lanes: s.Switch.Lanes, Holds: base.Holds})
	if err != nil {
		return 0, err
	}
	for _, sh := range p.Jobs[0].Shares {
		if sh.Switch == sw {
			return sh.Hold, nil
		}
	}
	return 0, fmt.Errorf("job %s: no share at switch %s", job, sw)
}

// damageOf is that of each directed link that has some: of several that match, the last counts.
func damageOf(s *spec.Spec, topo *inventory.Topology, scale results.Scale) map[string]testbed.LinkState {
	out := map[string]testbed.LinkState{}
	for _, l := range s.LinkStates {
		for _, d := range topo.Links {
			if results.Glob(l.Of, d.Name) {
				out[d.Name] = linkState(l, scale)
			}
		}
	}
	return out
}

// linkState is a link's damage in the testbed's own units.
func linkState(l spec.LinkState, scale results.Scale) testbed.LinkState {
	by := time.Duration(l.ReorderBy)
	if scale.Mode == results.SlowMotion {
		by = time.Duration(float64(by) * scale.Factor)
	}
	return testbed.LinkState{Loss: l.Loss, Duplicate: l.Duplicate, Reorder: l.Reorder, ReorderBy: by}
}

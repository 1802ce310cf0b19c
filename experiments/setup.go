package experiments

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
	"github.com/inabench/inabench/testbed/netns"
)

// ErrInput is wrapped by errors about what the user asked for that only show when
// a plan is made: exit code 3.
var ErrInput = errors.New("invalid input")

// invalid wraps ErrInput without a word of it: what is wrong says enough.
type invalid struct{ error }

func (e invalid) Unwrap() error        { return e.error }
func (e invalid) Is(target error) bool { return target == ErrInput }

func invalidf(format string, args ...any) error { return invalid{fmt.Errorf(format, args...)} }

// frameBits is the size of a gradient packet on the wire in bits, Ethernet header
// in, preamble and FCS out.
func frameBits(lanes int) float64 { return 8 * float64(ina.Overhead+4*lanes) }

// emulationScale is how a driver relates to the lab: only netns changes scale, the
// model and the lab are the lab's own.
func emulationScale(s *Spec, driver string) results.Scale {
	if driver != "netns" || s.Emulation.Scale == "none" {
		return results.Scale{Mode: "none", Factor: 1}
	}
	return results.Scale{Mode: s.Emulation.Scale, Factor: s.Emulation.Factor}
}

// Place decides where the spec's jobs run. The error is an
// *placement.InfeasibleError when they do not fit.
func (s *Spec) Place() (*placement.Plan, error) {
	p, err := policy(s.Placement.Policy, titan.Options{})
	if err != nil {
		return nil, err
	}
	return placement.On(p).Place(s.inv, s.PlacementJobs(), s.Measure.Seed)
}

// PlacementJobs are the spec's jobs as policies see them.
func (s *Spec) PlacementJobs() []placement.Job {
	jobs := make([]placement.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		jobs[i] = placement.Job{
			ID: uint16(i + 1), Name: j.Name, GPUs: j.GPUs, Hosts: j.Hosts, PS: j.PS,
			Collective: placement.Collective(j.Collective), Model: j.Model,
			NoPS: s.Switch.Mode == "synchronous" && j.Collective == "ina", Bytes: float64(j.Message),
		}
		if p, ok := s.catalogue.Lookup(j.Model); ok {
			jobs[i].Bytes, jobs[i].Compute, jobs[i].Skew = float64(p.Bytes()), p.Compute().Seconds(), p.Skew()
		}
		if jobs[i].NoPS {
			jobs[i].PS = "" // one that other points of a sweep need
		}
	}
	return jobs
}

// setup turns a spec and its placement into what a testbed deploys, in the
// testbed's own units.
func (s *Spec) setup(plan *placement.Plan, inv *inventory.Inventory, base Baseline, scale results.Scale) (testbed.Setup, error) {
	m, err := s.aggregators(plan, inv, base, scale)
	if err != nil {
		return testbed.Setup{}, err
	}
	topo := inv.Topology()
	out := testbed.Setup{Plan: plan, Settings: s.settings(m), Damage: s.damage(topo, scale)}
	for i := range s.Jobs {
		w, err := s.workload(i, plan, inv, topo, m, scale)
		if err != nil {
			return testbed.Setup{}, err
		}
		out.Workloads = append(out.Workloads, w)
	}
	if s.reallocates() {
		out.Grants = divide(inv, out, func(job string) bool {
			j, ok := s.Job(job)
			return ok && j.Start == 0
		}, 0)
	}
	return out, nil
}

// settings are what the spec says of all switches and senders, which use so many
// aggregators.
func (s *Spec) settings(aggregators int) testbed.Settings {
	return testbed.Settings{
		Mode: s.Switch.Mode, Addressing: s.Switch.Addressing, Aggregators: aggregators,
		Queue: s.Switch.Queue, Lanes: s.Switch.Lanes, Seed: s.Measure.Seed,
	}
}

// factors are what computing times and gradients are multiplied by on a testbed.
func factors(scale results.Scale) (times, bytes float64) {
	switch scale.Mode {
	case netns.SlowMotion:
		return scale.Factor, 1
	case netns.Shrunk:
		return 1, 1 / scale.Factor
	}
	return 1, 1
}

// workload is what one job sends.
func (s *Spec) workload(i int, plan *placement.Plan, inv *inventory.Inventory, topo *inventory.Topology, aggregators int, scale results.Scale) (testbed.Workload, error) {
	j := s.Jobs[i]
	times, bytes := factors(scale)
	w := testbed.Workload{
		Job: plan.Jobs[i], Rate: float64(j.Rate) / scale.Factor, Window: j.Window, Control: j.Control,
		Message: int64(float64(j.Message) * bytes), Iterations: j.Iterations,
	}
	if j.Model != "" {
		p, ok := s.catalogue.Lookup(j.Model)
		if !ok {
			return w, invalidf("job %s: no model %q; there are %s", j.Name, j.Model, strings.Join(s.catalogue.Names(), ", "))
		}
		p, err := p.Step(0)
		if err != nil {
			return w, invalidf("job %s: %v", j.Name, err)
		}
		for _, l := range p.Layers {
			w.Layers = append(w.Layers, testbed.Layer{
				Bytes:   max(4, int64(float64(l.Bytes)*bytes)),
				Compute: time.Duration(float64(l.Compute) * times),
			})
		}
	}
	if s.Switch.Addressing == "atp" {
		w.Slots = s.Switch.Slots
		if s.Switch.SlotsRatio > 0 {
			w.Slots = int(math.Round(s.Switch.SlotsRatio * float64(memory(plan.Jobs[i], inv, aggregators))))
		}
	}
	w.RTO = testbed.RTO(&plan.Jobs[i], topo, s.backlog(plan, i))
	return w, nil
}

// memory is the least that the job's aggregating switches have, or use.
func memory(j placement.JobPlan, inv *inventory.Inventory, use int) int {
	least := 0
	for _, n := range j.Tree {
		sw, ok := inv.Switch(n.Switch)
		if !ok || !n.Aggregate {
			continue
		}
		if m := placement.Aggregators(sw, use); least == 0 || m < least {
			least = m
		}
	}
	return least
}

// backlog is how many bits a job's packet may find before it in front of one link, at most: those of all
// jobs, or with fair queues all of its own and as many of each other job. Where memory may be short,
// windows are fixed and nothing is lost on purpose, that is what comes from each worker: a queue of
// what switches could not add up must not look like a loss.
func (s *Spec) backlog(plan *placement.Plan, job int) float64 {
	var all, own float64
	patient := len(s.LinkStates) == 0
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		b := testbed.Backlog(j, s.Jobs[i].Window, frameBits(s.Switch.Lanes))
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

// aggregators is how many aggregators each switch uses: as the spec says, or what
// its PAT ratio means with the calibrated hold time of its reference job.
func (s *Spec) aggregators(plan *placement.Plan, inv *inventory.Inventory, base Baseline, scale results.Scale) (int, error) {
	if s.Switch.PATRatio == 0 {
		return s.Switch.Aggregators, nil
	}
	i := 0
	if s.Switch.PATJob != "" {
		i = slices.IndexFunc(s.Jobs, func(j Job) bool { return j.Name == s.Switch.PATJob })
	}
	j := plan.Jobs[i]
	for _, n := range j.Tree {
		if !n.Aggregate {
			continue
		}
		hold, err := s.hold(plan, inv, base, j.Name, n.Switch)
		if err != nil {
			return 0, err
		}
		c := float64(s.Jobs[i].Rate) / scale.Factor / frameBits(s.Switch.Lanes) // packets/s
		m := int(math.Round(s.Switch.PATRatio * c * hold))
		if m < 1 {
			return 0, invalidf("switch.pat_ratio %v of the %.1f packets that job %s holds is less than one aggregator: "+
				"give it a higher rate or longer cables", s.Switch.PATRatio, c*hold, j.Name)
		}
		if sw, ok := inv.Switch(n.Switch); ok && m > sw.Aggregators {
			return 0, invalidf("switch.pat_ratio %v needs %d aggregators, switch %s has %d",
				s.Switch.PATRatio, m, sw.Name, sw.Aggregators)
		}
		return m, nil
	}
	return 0, invalidf("switch.pat_ratio: no switch aggregates for job %s", j.Name)
}

// hold is T of a job at a switch in seconds: calibrated, or what the topology says.
func (s *Spec) hold(plan *placement.Plan, inv *inventory.Inventory, base Baseline, job, sw string) (float64, error) {
	p, err := placement.Predict(inv, plan, placement.Conditions{Active: []string{job}, Lanes: s.Switch.Lanes, Holds: base.Holds})
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

// damage is that of each directed link that has some: of several that match, the last counts.
func (s *Spec) damage(topo *inventory.Topology, scale results.Scale) map[string]testbed.LinkState {
	out := map[string]testbed.LinkState{}
	for _, l := range s.LinkStates {
		for _, d := range topo.Links {
			if results.Glob(l.Of, d.Name) {
				out[d.Name] = l.state(scale)
			}
		}
	}
	return out
}

// state is a link's damage in the testbed's own units.
func (l LinkState) state(scale results.Scale) testbed.LinkState {
	by := time.Duration(l.ReorderBy)
	if scale.Mode == netns.SlowMotion {
		by = time.Duration(float64(by) * scale.Factor)
	}
	return testbed.LinkState{Loss: l.Loss, Duplicate: l.Duplicate, Reorder: l.Reorder, ReorderBy: by}
}

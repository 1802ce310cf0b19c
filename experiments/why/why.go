// Package why places jobs and says why each is where it is, in the names of an inventory.
package why

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/experiments/study"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/results/human"
)

// Placed is a batch of jobs placed by a policy, and why.
type Placed struct {
	Plan     *placement.Plan              // of the jobs that fit
	Waiting  []*placement.InfeasibleError // the others, in their order
	Machines []results.Machine            // with the plan; jobs that name their hosts were there before
	Why      study.Why
}

// Place places jobs as one batch, by a policy that the spec s can name; one that is empty has no policies of its own.
func Place(ctx context.Context, s *spec.Spec, name string, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*Placed, error) {
	p, end, err := s.OpenPolicy(ctx, name, spec.Options{})
	if err != nil {
		return nil, err
	}
	defer end()
	out := &Placed{Why: study.Why{Policy: p.Name(), Rule: rule(p)}}
	var told []netpack.Explanation
	explained, weighs := netpack.Explained(p, func(e netpack.Explanation) { told = append(told, e) })
	if weighs {
		p = explained
	}
	var spread []titan.Explanation
	spreading, spreads := titan.Explained(p, func(e titan.Explanation) { spread = append(spread, e) })
	if spreads {
		p = spreading
	}
	if out.Plan, out.Waiting, err = placement.Batch(p, placement.WithMemory(inv, s.Switch.Aggregators), jobs, seed); err != nil {
		return nil, err
	}
	out.Machines = study.Machines(inv, out.Plan, study.There(jobs))
	if !weighs && !spreads {
		return out, nil
	}
	for i := range jobs {
		if len(jobs[i].Hosts) > 0 {
			out.Why.Jobs = append(out.Why.Jobs, study.Reason{Job: jobs[i].Name, Text: "it names its hosts"})
		}
	}
	for _, e := range spread {
		out.Why.Jobs = append(out.Why.Jobs, spreadReason(e, jobs[e.Job.ID].Name, inv))
	}
	hosts := map[string][]string{} // of jobs, with those of their PS
	for i := range out.Plan.Jobs {
		j := &out.Plan.Jobs[i]
		hosts[j.Name] = append(hosts[j.Name], j.PS)
		for _, w := range j.Workers {
			hosts[j.Name] = append(hosts[j.Name], w.Host)
		}
	}
	for _, e := range told {
		job := &jobs[e.Job.ID]
		r := reason(e, job.Name, inv, p.Name() == "netpack-published")
		own := job.PS
		if own == "" && len(e.Chosen.Placement.PS) > 0 {
			own = inv.Hosts[e.Chosen.Placement.PS[0]].Name
		}
		were := []string{own}
		for _, w := range e.Chosen.Placement.Parts {
			were = append(were, inv.Hosts[w.Server].Name)
		}
		if now := hosts[job.Name]; e.Selected && now != nil && !slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(were))) {
			r.Text += "; the search after that moved it to where it is now"
		}
		out.Why.Jobs = append(out.Why.Jobs, r)
	}
	return out, nil
}

// Rule is by what a policy that the spec s can name chooses servers; empty where nobody says.
func Rule(s *spec.Spec, name string) string {
	if own := s.OwnPolicy(name); own != nil {
		return own.Rule()
	}
	p, err := spec.Policy(name, spec.Options{})
	if err != nil {
		return ""
	}
	return rule(p)
}

func rule(p cluster.Policy) string {
	if r, ok := p.(interface{ Rule() string }); ok {
		return r.Rule()
	}
	return ""
}

// reason names what an explanation numbers. As it is published, NetPack wants a server with more GPUs than a job asks for.
func reason(e netpack.Explanation, job string, inv *inventory.Inventory, published bool) study.Reason {
	r := study.Reason{Job: job}
	switch parts := e.Chosen.Placement.Parts; {
	case !e.Selected && e.Job.GPUs > inv.GPUs():
		r.Text = fmt.Sprintf("it waits: it asks for %d GPUs, there are %d", e.Job.GPUs, inv.GPUs())
	case !e.Selected:
		r.Text = fmt.Sprintf("it waits: without its %d GPUs more jobs fit, or more valuable ones", e.Job.GPUs)
	case len(parts) == 1 && e.Plans == 0:
		host := inv.Hosts[parts[0].Server].Name
		r.Text = fmt.Sprintf("one server is enough, and %s has the fewest free GPUs of those: %d", host, e.Chosen.GPUs)
		if e.Chosen.GPUs == e.Job.GPUs {
			r.Text = fmt.Sprintf("one server is enough, and %s has just as many free GPUs as it asks for: %d", host, e.Job.GPUs)
		}
	default:
		enough := fmt.Sprint(e.Job.GPUs)
		if published {
			enough = "more than " + enough
		}
		r.Text = fmt.Sprintf("no server has %s free GPUs, %d have some; %s weighed", enough, e.Servers, count(e.Plans, "plan"))
		chosen := choice(e.Chosen, inv)
		r.Chosen = &chosen
		for _, c := range e.Alternatives {
			r.Others = append(r.Others, choice(c, inv))
		}
	}
	return r
}

// spreadReason names what an explanation of Titan numbers.
func spreadReason(e titan.Explanation, job string, inv *inventory.Inventory) study.Reason {
	r := study.Reason{Job: job}
	at := e.Solution
	if len(at.At) == 0 {
		r.Text = "it waits: " + e.Err.Error()
		return r
	}
	p := collectives.HalvingDoubling(len(at.At)).Pattern()
	r.Spread = &study.Spread{Idle: at.Idle, Machines: at.Used, Cross: float64(at.Cross) / float64(p.Parts)}
	r.Text = fmt.Sprintf("%s, %s; %s between machines", count(at.Idle, "idle machine"), count(at.Used-at.Idle, "other"), study.InParts(at.Cross, p.Parts))
	var congested *titan.CongestedError
	if errors.As(e.Err, &congested) {
		c := &study.Congested{
			Phase: congested.Phase + 1, From: inv.Hosts[congested.From].Name, To: inv.Hosts[congested.To].Name,
			Bits: congested.Bits, Passing: congested.Passing, Seconds: congested.Seconds,
		}
		r.Spread.Congested = c
		r.Text += fmt.Sprintf("; more than passes: in phase %d %s sends %s %s, of which %s pass in %s", c.Phase, c.From, c.To,
			human.Quantity(c.Bits, "bit"), human.Quantity(c.Passing, "bit"), human.Quantity(c.Seconds, "s"))
	}
	return r
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func choice(c netpack.Choice, inv *inventory.Inventory) study.Choice {
	out := study.Choice{
		Hosts: []string{}, GPUs: []int{}, PS: []string{}, Flows: c.Flows,
		Workers: study.Rate(c.Workers), PSBandwidth: study.Rate(c.PSBandwidth), PSDecrement: study.Rate(c.PSDecrement),
		HotSpot: study.Rate(c.HotSpot), Uplinks: study.Rate(c.Racks), Total: study.Rate(c.Total),
	}
	if out.Uplinks == 0 { // as published: it uses none
		out.Uplinks = study.Rate(math.Inf(1))
	}
	parts := slices.SortedFunc(slices.Values(c.Placement.Parts), func(a, b cluster.Part) int { return a.Server - b.Server })
	for _, w := range parts {
		out.Hosts, out.GPUs = append(out.Hosts, inv.Hosts[w.Server].Name), append(out.GPUs, w.GPUs)
	}
	for _, s := range c.Placement.PS {
		out.PS = append(out.PS, inv.Hosts[s].Name)
	}
	return out
}

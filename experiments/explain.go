package experiments

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/experiments/spec"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/netpack"
	"github.com/inabench/inabench/placement/titan"
	"github.com/inabench/inabench/results"
)

// Placed is a batch of jobs placed by a policy, and why.
type Placed struct {
	Plan     *placement.Plan              // of the jobs that fit
	Waiting  []*placement.InfeasibleError // the others, in their order
	Machines []results.Machine            // with the plan; jobs that name their hosts were there before
	Why      Why
}

// Why is why jobs are where they are.
type Why struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"` // by what the policy chooses servers
	// Jobs are in the order in which the policy placed them, those that wait last. Only
	// policies that weigh plans say more than their rule: none for the others.
	Jobs []Reason `json:"jobs,omitempty"`
}

// Reason is why a job is where it is, or waits.
type Reason struct {
	Job    string   `json:"job"`
	Text   string   `json:"text"`
	Chosen *Choice  `json:"chosen,omitempty"` // where plans were weighed
	Others []Choice `json:"others,omitempty"` // that lost: the best of them, the best first
	Spread *Spread  `json:"spread,omitempty"` // by Titan
}

// Spread is a placement by what Titan makes small, in this order.
type Spread struct {
	Idle     int `json:"idle_machines"` // it takes, on which nothing ran: objective O1
	Machines int `json:"machines"`      // it takes: objective O2
	// Cross is what its workers send each other between machines by halving and doubling,
	// in gradients; both ways of an exchange count once.
	Cross float64 `json:"cross_traffic"`
	// Congested is where its traffic exceeds the bandwidth most; nil: nowhere, or nobody
	// knows how large its gradient is.
	Congested *Congested `json:"congested,omitempty"`
}

// Congested is a pair of machines between which too much is sent.
type Congested struct {
	Phase   int     `json:"phase"` // of the operation, from 1
	From    string  `json:"from"`
	To      string  `json:"to"`
	Bits    float64 `json:"bits"`    // sent
	Passing float64 `json:"passing"` // bits that pass in Seconds
	Seconds float64 `json:"seconds"` // that a phase may last
}

// Choice is a plan that was weighed by Equation 1 of NetPack:
//
//	Workers + PSBandwidth - PSDecrement + min(HotSpot, Uplinks)
//
// and as published Workers + PSBandwidth - PSDecrement - max(HotSpot, Uplinks).
type Choice struct {
	Hosts       []string `json:"hosts"`
	GPUs        []int    `json:"gpus"` // on each; those of a plan that lost are all that are free
	PS          []string `json:"ps"`
	Flows       int      `json:"flows"`        // on the busiest of its links
	Workers     Rate     `json:"workers"`      // sum of the servers' values
	PSBandwidth Rate     `json:"ps_bandwidth"` // left on the PS's link
	PSDecrement Rate     `json:"ps_decrement"` // what the PS costs the jobs there
	HotSpot     Rate     `json:"hot_spot"`     // to expect on the busiest link
	Uplinks     Rate     `json:"uplinks"`      // to expect between racks; infinite where it uses no such link
	Total       Rate     `json:"total"`
}

// Rate is in bit/s. In JSON one that is not finite is null.
type Rate float64

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(r), 0) || math.IsNaN(float64(r)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(r))
}

// PlaceJobs places jobs as one batch, by a policy that a spec can name.
func PlaceJobs(name string, inv *inventory.Inventory, jobs []placement.Job, seed uint64) (*Placed, error) {
	p, err := spec.Policy(name, titan.Options{})
	if err != nil {
		return nil, err
	}
	out := &Placed{Why: Why{Policy: p.Name(), Rule: rule(p)}}
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
	if out.Plan, out.Waiting, err = placement.Batch(p, inv, jobs, seed); err != nil {
		return nil, err
	}
	out.Machines = Machines(inv, out.Plan, there(jobs))
	if !weighs && !spreads {
		return out, nil
	}
	for i := range jobs {
		if len(jobs[i].Hosts) > 0 {
			out.Why.Jobs = append(out.Why.Jobs, Reason{Job: jobs[i].Name, Text: "it names its hosts"})
		}
	}
	for _, e := range spread {
		out.Why.Jobs = append(out.Why.Jobs, spreadReason(e, jobs[e.Job.ID].Name, inv))
	}
	total := 0
	for i := range inv.Hosts {
		total += inv.Hosts[i].GPUs
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
		r := reason(e, job.Name, inv, total, p.Name() == "netpack-published")
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

// Rule is by what a policy that a spec can name chooses servers; empty for others.
func Rule(name string) string {
	p, err := spec.Policy(name, titan.Options{})
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

// reason names what an explanation numbers, on an inventory with so many GPUs. As it is
// published, NetPack wants a server with more GPUs than a job asks for.
func reason(e netpack.Explanation, job string, inv *inventory.Inventory, total int, published bool) Reason {
	r := Reason{Job: job}
	switch parts := e.Chosen.Placement.Parts; {
	case !e.Selected && e.Job.GPUs > total:
		r.Text = fmt.Sprintf("it waits: it asks for %d GPUs, there are %d", e.Job.GPUs, total)
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
func spreadReason(e titan.Explanation, job string, inv *inventory.Inventory) Reason {
	r := Reason{Job: job}
	at := e.Solution
	if len(at.At) == 0 {
		r.Text = "it waits: " + e.Err.Error()
		return r
	}
	p := collectives.HalvingDoubling(len(at.At)).Pattern()
	r.Spread = &Spread{Idle: at.Idle, Machines: at.Used, Cross: float64(at.Cross) / float64(p.Parts)}
	r.Text = fmt.Sprintf("%s, %s; %s between machines", count(at.Idle, "idle machine"), count(at.Used-at.Idle, "other"), inParts(at.Cross, p.Parts))
	var congested *titan.CongestedError
	if errors.As(e.Err, &congested) {
		c := &Congested{
			Phase: congested.Phase + 1, From: inv.Hosts[congested.From].Name, To: inv.Hosts[congested.To].Name,
			Bits: congested.Bits, Passing: congested.Passing, Seconds: congested.Seconds,
		}
		r.Spread.Congested = c
		r.Text += fmt.Sprintf("; more than passes: in phase %d %s sends %s %s, of which %s pass in %s", c.Phase, c.From, c.To,
			results.Quantity(c.Bits, "bit"), results.Quantity(c.Passing, "bit"), results.Quantity(c.Seconds, "s"))
	}
	return r
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func choice(c netpack.Choice, inv *inventory.Inventory) Choice {
	out := Choice{
		Hosts: []string{}, GPUs: []int{}, PS: []string{}, Flows: c.Flows,
		Workers: Rate(c.Workers), PSBandwidth: Rate(c.PSBandwidth), PSDecrement: Rate(c.PSDecrement),
		HotSpot: Rate(c.HotSpot), Uplinks: Rate(c.Racks), Total: Rate(c.Total),
	}
	if out.Uplinks == 0 { // as published: it uses none
		out.Uplinks = Rate(math.Inf(1))
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

// Explain adds to the plan of every point why its jobs are where they are.
func (p *SavedPlan) Explain() error {
	for i, pt := range p.spec.Points() {
		if _, ok := studyOf(pt.Spec).(placer); !ok {
			p.Points[i].Why = &Why{Policy: pt.Spec.Placement.Policy, Rule: Rule(pt.Spec.Placement.Policy)}
			continue
		}
		placed, err := PlaceJobs(pt.Spec.Placement.Policy, pt.Spec.Inventory(), pt.Spec.PlacementJobs(), pt.Spec.Measure.Seed)
		if err != nil {
			return err
		}
		p.Points[i].Why = &placed.Why
	}
	return nil
}

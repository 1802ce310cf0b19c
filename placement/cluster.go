package placement

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/cluster"
)

// On is a policy that decides on clusters, for inventories: jobs that name their hosts
// get them first, the others are one batch.
func On(p cluster.Policy) Policy { return onCluster{p} }

type onCluster struct{ policy cluster.Policy }

// Name implements Policy.
func (o onCluster) Name() string { return o.policy.Name() }

// Place implements Policy.
func (o onCluster) Place(inv *inventory.Inventory, jobs []Job, seed uint64) (*Plan, error) {
	plan, waiting, err := Batch(o.policy, inv, jobs, seed)
	if err != nil {
		return nil, err
	}
	if len(waiting) > 0 {
		return nil, waiting[0]
	}
	return plan, nil
}

// Batch is what On(p) does, for jobs that need not all fit. The plan has those that do;
// waiting says of each of the others, in their order, what it asked for and what is free
// where once those that fit are in. To p a job's ID is its index.
func Batch(p cluster.Policy, inv *inventory.Inventory, jobs []Job, seed uint64) (plan *Plan, waiting []*InfeasibleError, err error) {
	ledger := NewLedger(inv)
	c := cluster.New(ClusterOf(inv))
	at := map[string]int{}
	for i := range inv.Hosts {
		at[inv.Hosts[i].Name] = i
	}
	placed := make([]*JobPlan, len(jobs))
	reasons := make([]string, len(jobs)) // why a job waits, where it is not for GPUs
	// A job that does not fit waits, whatever else is wrong ends this.
	waits := func(i int, err error) error {
		var infeasible *InfeasibleError
		if !errors.As(err, &infeasible) {
			return err
		}
		reasons[i] = infeasible.Reason
		return nil
	}
	var batch []cluster.Job
	for i := range jobs {
		job := &jobs[i]
		j := cluster.Job{ID: i, GPUs: job.GPUs, Traffic: traffic(job), Bytes: job.Bytes, Compute: job.Compute, Skew: job.Skew}
		if len(job.Hosts) == 0 {
			if job.GPUs > 0 {
				batch = append(batch, j)
			}
			continue
		}
		workers, err := ledger.Hosts(job)
		if err != nil {
			if err := waits(i, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		ps := job.PS
		if ps == "" && NeedsPS(job, len(workers)) {
			ps = ledger.LeastLoaded(workers)
		}
		plan, err := ledger.Place(job, workers, ps)
		if err != nil {
			if err := waits(i, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		placed[i] = &plan
		where := cluster.Placement{}
		j.GPUs = 0
		for _, w := range workers {
			where.Parts = append(where.Parts, cluster.Part{Server: at[w.Host], GPUs: w.GPUs})
			j.GPUs += w.GPUs
		}
		if ps != "" && j.NeedsPS(len(workers)) {
			where.PS = []int{at[ps]}
		}
		if err := c.Enter(j, where); err != nil {
			return nil, nil, fmt.Errorf("job %s: %w", job.Name, err)
		}
	}
	for again := true; again; { // once more where a job that was placed may not run, and others may have its GPUs
		again = false
		places := p.Place(c, batch, seed)
		if err := cluster.Err(p); err != nil {
			return nil, nil, err
		}
		var rest []cluster.Job
		for k, where := range places {
			i := batch[k].ID
			job := &jobs[i]
			if len(where.Parts) == 0 {
				rest = append(rest, batch[k])
				continue
			}
			if err := ledger.room(job, len(where.Parts)); err != nil {
				if err := errors.Join(waits(i, err), c.Leave(i)); err != nil {
					return nil, nil, err
				}
				again = true
				continue
			}
			plan, err := JobPlanOf(ledger.topo, inv, job, where)
			if err != nil {
				return nil, nil, err
			}
			ledger.take(&plan)
			placed[i] = &plan
		}
		batch = rest
		again = again && len(batch) > 0
	}
	plan = &Plan{Policy: p.Name(), Jobs: []JobPlan{}}
	for i, jp := range placed {
		if jp != nil {
			plan.Jobs = append(plan.Jobs, *jp)
			continue
		}
		e := ledger.Infeasible(&jobs[i])
		e.Reason = reasons[i]
		waiting = append(waiting, e)
	}
	return plan, waiting, nil
}

// JobPlanOf is where a cluster of ClusterOf(inv) has a job, by name, with the
// aggregation tree. The PS is the job's own if it names one, otherwise the first of the
// placement's: a job plan has one. Where the placement says so, a switch forwards plainly;
// what it says of the ToR switch of a PS that the job names itself counts where the PS that
// it has in mind is there too, or several workers are.
func JobPlanOf(t *inventory.Topology, inv *inventory.Inventory, job *Job, at cluster.Placement) (JobPlan, error) {
	p := JobPlan{ID: job.ID, Name: job.Name, Collective: job.Collective, PS: job.PS}
	for rank, w := range at.Parts {
		p.Workers = append(p.Workers, Worker{Rank: rank, Host: inv.Hosts[w.Server].Name, GPUs: w.GPUs})
	}
	for _, server := range at.Ranks {
		p.Ranks = append(p.Ranks, inv.Hosts[server].Name)
	}
	for _, s := range at.Spare {
		p.Spare = append(p.Spare, HostGPUs{inv.Hosts[s.Server].Name, s.GPUs})
	}
	if p.PS == "" && len(at.PS) > 0 {
		p.PS = inv.Hosts[at.PS[0]].Name
	}
	if err := BuildTree(t, inv, &p); err != nil {
		return JobPlan{}, err
	}
	if len(at.Plain) > 0 {
		racks := racksOf(inv)
		for n := range p.Tree {
			node := &p.Tree[n]
			if node.Parent == "" && elsewhere(inv, node.Switch, job, at) {
				continue
			}
			if slices.ContainsFunc(at.Plain, func(r int) bool { return racks.names[r] == node.Switch }) {
				node.Aggregate = false
			}
		}
	}
	return p, nil
}

// elsewhere says whether a placement takes another ToR switch than root for that of the PS,
// and has at most one worker at root, so that nothing would meet there.
func elsewhere(inv *inventory.Inventory, root string, job *Job, at cluster.Placement) bool {
	if job.PS == "" || len(at.PS) == 0 || tor(&inv.Hosts[at.PS[0]]) == root {
		return false
	}
	workers := 0
	for _, w := range at.Parts {
		if tor(&inv.Hosts[w.Server]) == root {
			workers++
		}
	}
	return workers < 2
}

func traffic(job *Job) cluster.Traffic {
	switch {
	case job.Collective == PS:
		return cluster.PS
	case job.Collective == Ring:
		return cluster.Ring
	case job.NoPS:
		return cluster.Tree
	}
	return cluster.INA
}

// racks are the switches that hosts are cabled to.
type racks struct {
	names []string
	index map[string]int
}

func racksOf(inv *inventory.Inventory) racks {
	r := racks{index: map[string]int{}}
	for i := range inv.Hosts {
		if name := tor(&inv.Hosts[i]); name != "" {
			if _, ok := r.index[name]; !ok {
				r.index[name] = len(r.names)
				r.names = append(r.names, name)
			}
		}
	}
	return r
}

// tor is the switch that a host's first NIC is cabled to.
func tor(h *inventory.Host) string {
	if len(h.NICs) == 0 {
		return ""
	}
	return h.NICs[0].Switch
}

// RackNames are the switches of the racks that ClusterOf makes of an inventory, in their order.
func RackNames(inv *inventory.Inventory) []string { return racksOf(inv).names }

// ClusterOf is an inventory as policies see it: servers in the order of its hosts,
// racks in the order in which hosts name their switches. A server's link is its first
// NIC's, a rack's uplink is all cables of its switch to other switches together. PAT
// is the memory over the shortest time that an aggregator can be held: from the switch
// to a host of the rack and back. Hosts without a NIC have no GPUs there.
func ClusterOf(inv *inventory.Inventory) cluster.Config {
	var cfg cluster.Config
	r := racksOf(inv)
	shortest := make([]float64, len(r.names)) // hold, seconds
	for _, name := range r.names {
		rack := cluster.Rack{Uplink: math.Inf(1)}
		var up float64
		for _, l := range inv.Links {
			if (l.A.Switch == name) == (l.B.Switch == name) {
				continue
			}
			up += float64(l.Rate)
			d := hop(float64(l.Rate), l.Delay)
			if _, a := r.index[l.A.Switch]; a {
				if _, b := r.index[l.B.Switch]; b {
					d /= 2 // there is no core: the other half is the other rack's
				}
			}
			rack.Delay = max(rack.Delay, d)
		}
		if up > 0 {
			rack.Uplink = up
		}
		cfg.Racks = append(cfg.Racks, rack)
	}
	for i := range inv.Hosts {
		h := &inv.Hosts[i]
		s := cluster.Server{GPUs: h.GPUs, Link: cluster.NoLink}
		if name := tor(h); name == "" {
			s.GPUs = 0
		} else {
			nic := h.NICs[0]
			s.Rack, s.Link, s.Delay = r.index[name], float64(nic.Rate), hop(float64(nic.Rate), nic.Delay)
			if t, h := &shortest[s.Rack], hold(float64(nic.Rate), nic.Delay); *t == 0 || h < *t {
				*t = h
			}
		}
		cfg.Servers = append(cfg.Servers, s)
	}
	if len(cfg.Racks) == 0 {
		cfg.Racks = []cluster.Rack{{Uplink: math.Inf(1)}}
	}
	for i, name := range r.names {
		if sw, ok := inv.Switch(name); ok && shortest[i] > 0 {
			cfg.Racks[i].PAT = float64(sw.Aggregators) * frame / shortest[i]
		}
	}
	return cfg
}

// Memory is how many aggregators give a ToR switch a peak aggregation throughput in bit/s
// where its hosts are linked at a rate in bit/s by cables with a delay, rounded to the
// nearest, and at least one where there is any: what ClusterOf says of them.
func Memory(pat, rate float64, delay time.Duration) int {
	m := int(min(math.Round(pat*hold(rate, delay)/frame), math.MaxInt32))
	if pat > 0 {
		m = max(1, m)
	}
	return m
}

const frame = 8 * 1024 // bits of a packet with 240 gradients

// hold is the shortest time in seconds that an aggregator of a ToR switch can be taken:
// from there to a PS of the rack and back.
func hold(rate float64, delay time.Duration) float64 { return 2 * hop(rate, delay) }

// hop is how long a packet is on a cable, in seconds.
func hop(rate float64, delay time.Duration) float64 { return delay.Seconds() + frame/rate }

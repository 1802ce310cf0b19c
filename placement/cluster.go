package placement

import (
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
	ledger := NewLedger(inv)
	c := cluster.New(ClusterOf(inv))
	at := map[string]int{}
	for i := range inv.Hosts {
		at[inv.Hosts[i].Name] = i
	}
	placed := make([]JobPlan, len(jobs))
	var batch []cluster.Job
	var open []int // their indices in jobs
	for i := range jobs {
		job := &jobs[i]
		j := cluster.Job{ID: i, GPUs: job.GPUs, Traffic: traffic(job)}
		if len(job.Hosts) == 0 {
			if job.GPUs < 1 {
				return nil, ledger.Infeasible(job)
			}
			batch, open = append(batch, j), append(open, i)
			continue
		}
		workers, err := ledger.Hosts(job)
		if err != nil {
			return nil, err
		}
		ps := job.PS
		if ps == "" && NeedsPS(job, len(workers)) {
			ps = ledger.LeastLoaded(workers)
		}
		if placed[i], err = ledger.Place(job, workers, ps); err != nil {
			return nil, err
		}
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
			return nil, fmt.Errorf("job %s: %w", job.Name, err)
		}
	}
	racks := racksOf(inv)
	for k, where := range o.policy.Place(c, batch, seed) {
		job := &jobs[open[k]]
		if len(where.Parts) == 0 {
			return nil, ledger.Infeasible(job)
		}
		var workers []Worker
		for rank, w := range where.Parts {
			workers = append(workers, Worker{Rank: rank, Host: inv.Hosts[w.Server].Name, GPUs: w.GPUs})
		}
		ps := job.PS
		if ps == "" && len(where.PS) > 0 {
			ps = inv.Hosts[where.PS[0]].Name
		}
		plan, err := ledger.Place(job, workers, ps)
		if err != nil {
			return nil, err
		}
		for n := range plan.Tree {
			if slices.ContainsFunc(where.Plain, func(r int) bool { return racks.names[r] == plan.Tree[n].Switch }) {
				plan.Tree[n].Aggregate = false
			}
		}
		placed[open[k]] = plan
	}
	return &Plan{Policy: o.Name(), Jobs: placed}, nil
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

// ClusterOf is an inventory as policies see it: servers in the order of its hosts,
// racks in the order in which hosts name their switches. A server's link is its first
// NIC's, a rack's uplink is all cables of its switch to other switches together. PAT
// is the memory over the shortest time that an aggregator can be held: a round trip
// between two hosts of the rack. Hosts without a NIC have no GPUs there.
func ClusterOf(inv *inventory.Inventory) cluster.Config {
	const frame = 8 * 1024 // bits
	var cfg cluster.Config
	r := racksOf(inv)
	shortest := make([]time.Duration, len(r.names)) // from a host to the switch
	for _, name := range r.names {
		rack := cluster.Rack{Uplink: math.Inf(1)}
		var up float64
		for _, l := range inv.Links {
			if (l.A.Switch == name) != (l.B.Switch == name) {
				up += float64(l.Rate)
			}
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
			s.Rack, s.Link = r.index[name], float64(nic.Rate)
			hop := nic.Delay + time.Duration(frame/float64(nic.Rate)*1e9)
			if t := &shortest[s.Rack]; *t == 0 || hop < *t {
				*t = hop
			}
		}
		cfg.Servers = append(cfg.Servers, s)
	}
	if len(cfg.Racks) == 0 {
		cfg.Racks = []cluster.Rack{{Uplink: math.Inf(1)}}
	}
	for i, name := range r.names {
		if sw, ok := inv.Switch(name); ok && shortest[i] > 0 {
			cfg.Racks[i].PAT = float64(sw.Aggregators) * frame / (4 * shortest[i].Seconds())
		}
	}
	return cfg
}

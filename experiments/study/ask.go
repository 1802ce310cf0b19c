package study

import (
	"slices"

	"github.com/inabench/inabench/experiments/predictor"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/testbed"
)

// Asked is what predictors of others are told of a point, in the units of inv, but for its jobs and phases.
func Asked(p Planned, inv *inventory.Inventory, set testbed.Settings, repeat int, duration float64) *predictor.Request {
	frame := int(FrameBits(set.Lanes) / 8)
	req := &predictor.Request{
		Schema: predictor.Schema, Experiment: p.Spec.Name, Point: slices.Clone(p.Labels), Repeat: repeat, Seed: set.Seed, Duration: duration,
		Frame: predictor.Frame{Bytes: frame, Payload: 4 * set.Lanes}, Mode: set.Mode, Addressing: set.Addressing, Queue: set.Queue,
		Phases: []predictor.Phase{}, Jobs: []predictor.Job{},
	}
	if req.Point == nil {
		req.Point = []string{}
	}
	topo := inv.Topology()
	for _, h := range inv.Hosts {
		req.Hosts = append(req.Hosts, predictor.Host{Name: h.Name, Rack: h.Rack, GPUs: h.GPUs})
	}
	for i := range inv.Switches {
		sw := &inv.Switches[i]
		req.Switches = append(req.Switches, predictor.Switch{Name: sw.Name, Kind: string(sw.Kind), Tier: topo.Tier(sw.Name),
			Aggregators: placement.Aggregators(sw, set.Aggregators), Buffer: int64(sw.Buffer), ECN: int64(sw.ECN)})
	}
	for _, l := range topo.Links {
		req.Links = append(req.Links, predictor.Link{Name: l.Name, From: l.From, To: l.To, Reverse: topo.Links[l.Reverse].Name,
			Rate: float64(l.Rate), Delay: l.Delay.Seconds()})
	}
	return req
}

// AskedOf is what they are told of a job that is placed, with what is known of its links and holds.
func AskedOf(j *placement.JobPlan, known []placement.Resolved) predictor.Job {
	out := predictor.Job{Name: j.Name, Collective: string(j.Collective), Local: j.Local(), PS: j.PS,
		Workers: []predictor.Worker{}, Tree: []predictor.Node{}, Hops: []string{}, Layers: []predictor.Layer{}}
	var r placement.Resolved
	if i := slices.IndexFunc(known, func(r placement.Resolved) bool { return r.Job == j.Name }); i >= 0 {
		r = known[i]
	}
	out.RTT = r.RTT
	ring := j.Collective == placement.Ring
	up := func(k int) string {
		if !ring && k < len(r.Up) {
			return r.Up[k]
		}
		return ""
	}
	for k, w := range j.Workers {
		out.Workers = append(out.Workers, predictor.Worker{Rank: w.Rank, Host: w.Host, GPUs: w.GPUs, Up: up(k)})
	}
	if ring {
		out.Hops = append(out.Hops, r.Up...)
	}
	for k, n := range j.Tree {
		node := predictor.Node{Switch: n.Switch, Parent: n.Parent, Up: up(len(j.Workers) + k), Aggregate: n.Aggregate && j.Collective == placement.INA}
		if node.Aggregate && k < len(r.Holds) {
			node.Hold = r.Holds[k]
		}
		out.Tree = append(out.Tree, node)
	}
	return out
}

package sim

import (
	"strings"

	"github.com/inabench/inabench/placement"
)

// predict sets the shares and rates of the jobs that send, where they are streams of fixed
// windows: those that package packets finds when it follows their packets one by one, which
// what is sampled here step by step is only near to (queues and grants take turns, and levels
// of a tree decide together). They are worked out once for each set of jobs. Other jobs, whose
// messages end before anything is steady or whose windows change, go on with what is sampled,
// and so do windows that meet a hash at one switch of theirs each, of which what is sampled is
// right.
func (d *deployment) predict() {
	var names []string
	streams, apart := d.setup.Grants == nil, d.setup.Settings.Addressing != "hash"
	for _, j := range d.jobs {
		if !j.sends() {
			continue
		}
		names = append(names, j.plan.Name)
		levels := 0
		for i := range j.nodes {
			if j.nodes[i].tenant != nil {
				levels++
			}
		}
		apart = apart || levels > 1 || j.limit > 0
		streams = streams && !j.aimd && (len(j.msg.layers) == 0 || j.plan.Collective == placement.Ring)
	}
	key := strings.Join(names, "\n")
	if !streams || !apart || len(names) == 0 {
		key = ""
	}
	if key == d.streams {
		return
	}
	d.streams = key
	var p *placement.Prediction
	if key != "" {
		p = d.prediction(key, names)
	}
	if p == nil {
		d.streams = ""
	}
	for _, j := range d.jobs {
		j.steady = 0
		for i := range j.nodes {
			j.nodes[i].outward = 0
		}
		if p != nil {
			j.follow(p, d.fair && !d.flows)
		}
		j.weigh()
	}
}

// prediction is the steady state of the named streams, or nil where there is none.
func (d *deployment) prediction(key string, names []string) *placement.Prediction {
	if p, ok := d.steady[key]; ok {
		return p
	}
	c := placement.Conditions{
		Active: names, Mode: d.setup.Settings.Mode, Addressing: d.setup.Settings.Addressing, Aggregators: d.setup.Settings.Aggregators,
		Lanes: d.setup.Settings.Lanes, Senders: map[string]placement.Sender{},
	}
	plan := &placement.Plan{}
	for _, j := range d.jobs {
		plan.Jobs = append(plan.Jobs, j.plan)
		c.Senders[j.plan.Name] = placement.Sender{Rate: j.limit * 8 * j.frame, Window: int(j.window), Slots: j.slots}
	}
	p, err := placement.Predict(d.tb.inv, plan, c)
	if err != nil {
		p = nil // there is no steady state: what is sampled stands
	}
	if d.steady == nil {
		d.steady = map[string]*placement.Prediction{}
	}
	d.steady[key] = p
	return p
}

// follow takes a job's shares from a prediction, and its rate where queues are those that are
// predicted.
func (j *job) follow(p *placement.Prediction, rate bool) {
	for _, jp := range p.Jobs {
		if jp.Name != j.plan.Name {
			continue
		}
		if rate && j.circle == nil {
			j.steady = jp.WireRate / (8 * j.frame)
		}
		for i := range j.nodes {
			n := &j.nodes[i]
			if n.tenant == nil {
				continue
			}
			n.tenant.share = 1 // where nothing is to be aggregated
			for _, s := range jp.Shares {
				if s.Switch == n.name {
					n.tenant.share, n.outward = s.Granted, s.Up
				}
			}
		}
	}
}

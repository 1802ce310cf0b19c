package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/testbed/ina"
)

// predict sets the shares and rates of the jobs that send, where they have fixed
// windows: those that package packets finds when it follows their packets one
// by one, which what is sampled here step by step is only near to (queues and grants take turns, and levels
// of a tree decide together). They are worked out once for each set of jobs: while a job waits for the end of a
// message, or computes, it is in none. Jobs whose windows change, and more than placement.MostTurns with
// messages, go on with what is sampled, and so do streams whose windows, of some blocks, meet a hash at one switch of theirs
// each, of which what is sampled is right.
func (d *deployment) predict(ctx context.Context) {
	whole := d.messages()
	names := d.senders(whole)
	p := d.prediction(ctx, names, whole)
	if whole && (p == nil || !p.Rings) {
		whole = false
		names = d.senders(false)
		p = d.prediction(ctx, names, false)
	}
	if ctx.Err() != nil {
		return
	}
	d.beyond = cmp.Or(d.beyond, d.leavesOut(p))
	if p != nil && p.Beyond != "" {
		p = nil // what is sampled stands, and loses nothing
	}
	key := d.key(whole, names)
	if p == nil {
		key = ""
	}
	if key == d.streams {
		return
	}
	d.streams, d.lossy = key, nil
	if p != nil && len(d.damage) > 0 {
		d.lossy = p
	}
	asPredicted := d.fair && !d.flows || d.lossy != nil || p != nil && !congested(p) // queues
	for _, j := range d.jobs {
		j.steady, j.again = 0, 0
		if j.circle != nil {
			j.circle.mean = p != nil && whole
		}
		for i := range j.nodes {
			j.nodes[i].outward, j.nodes[i].arrives = 0, 0
		}
		if p != nil {
			j.follow(p, asPredicted)
		}
		j.weigh()
	}
}

// leavesOut says what of damaged links is left out while jobs send of which p is the prediction; empty: nothing.
func (d *deployment) leavesOut(p *placement.Prediction) string {
	const none = "; the simulator leaves that out"
	if p != nil && p.Beyond != "" {
		return p.Beyond + none
	}
	nothing := func(j *job) bool { // is predicted to come through
		return slices.ContainsFunc(p.Jobs, func(jp placement.JobPrediction) bool { return jp.Name == j.plan.Name && jp.Goodput == 0 })
	}
	for _, j := range d.jobs {
		switch {
		case !j.sends() || !slices.ContainsFunc(j.uses, func(u use) bool { return d.damage[d.topo.Links[u.link].Name] != flow.Damage{} }):
		case p == nil:
			return fmt.Sprintf("links of job %s are damaged, and what it then gets is not known", j.plan.Name) + none
		case nothing(j):
			return fmt.Sprintf("links of job %s are damaged, and nothing of it comes through", j.plan.Name) + none
		case len(j.msg.layers) > 0:
			return fmt.Sprintf("links of job %s are damaged, and it sends messages: how long the last packets of one wait for timeouts is not known", j.plan.Name) + none
		}
	}
	return ""
}

// congested says that a link holds some job back, so that it matters whom its queue serves.
func congested(p *placement.Prediction) bool {
	return slices.ContainsFunc(p.Jobs, func(j placement.JobPrediction) bool {
		return slices.ContainsFunc(p.Links, func(l placement.LinkPrediction) bool { return l.Link == j.HeldBy() })
	})
}

// messages says that there is a ring, and that all that there are do nothing but to reduce one
// message after the other.
func (d *deployment) messages() bool {
	rings := false
	for _, j := range d.jobs {
		if j.circle != nil && j.running {
			rings = true
			if len(j.msg.layers) != 1 || j.msg.layers[0].ready > 0 {
				return false
			}
		}
	}
	return rings
}

// senders are the names of the jobs that send, or nil where what they do is to be sampled.
// With whole, a ring that has a message after the other sends while its last frames are on
// their way, too.
func (d *deployment) senders(whole bool) (names []string) {
	turns := 0 // jobs that pause
	streams, apart := true, d.setup.Settings.Addressing != "hash"
	for _, j := range d.jobs {
		pauses := j.running && !j.local && j.circle == nil && len(j.msg.layers) > 0
		if pauses {
			turns++
		}
		if !j.sends() && !(whole && j.circle != nil && j.running && !j.halted) {
			continue
		}
		names = append(names, j.plan.Name)
		levels := 0
		for i := range j.nodes {
			if j.nodes[i].tenant != nil {
				levels++
			}
		}
		small := j.window < 2*ina.Block // its workers wait for the places of a block
		apart = apart || levels != 1 || j.limit > 0 || pauses || small
		streams = streams && !j.aimd
	}
	streams = streams && turns <= placement.MostTurns
	if len(d.damage) == 0 && (!streams || !apart) {
		return nil
	}
	return names
}

// key is what the steady state of the named streams depends on, of all that changes: also their windows, where memory is
// reallocated.
func (d *deployment) key(whole bool, names []string) string {
	var windows []float64
	if d.setup.Grants != nil {
		for _, j := range d.jobs {
			windows = append(windows, j.window)
		}
	}
	return fmt.Sprint(whole, names, windows)
}

// prediction is the steady state of the named streams, or nil where there is none. With whole,
// rings are what they get in the mean over their all-reduces.
func (d *deployment) prediction(ctx context.Context, names []string, whole bool) *placement.Prediction {
	if len(names) == 0 {
		return nil
	}
	key := d.key(whole, names)
	if p, ok := d.steady[key]; ok {
		return p
	}
	c := placement.Conditions{
		Active: names, Mode: d.setup.Settings.Mode, Addressing: d.setup.Settings.Addressing, Aggregators: d.setup.Settings.Aggregators,
		Lanes: d.setup.Settings.Lanes, Senders: map[string]placement.Sender{}, Damage: d.damage,
	}
	plan := &placement.Plan{}
	for _, j := range d.jobs {
		plan.Jobs = append(plan.Jobs, j.plan)
		s := placement.Sender{Rate: j.limit * 8 * j.frame, Window: int(j.window), Slots: j.slots, Timeout: j.timeout}
		if d.setup.Grants != nil && !slices.Contains(names, j.plan.Name) {
			s.Window = 0 // what is granted fits: of others nobody's memory is taken
		}
		if j.aimd {
			s.Control = "aimd"
		}
		if whole && j.circle != nil {
			for _, l := range j.msg.layers {
				s.Layers = append(s.Layers, placement.Layer{Bytes: l.packets * j.good, Compute: l.ready})
			}
		}
		c.Senders[j.plan.Name] = s
	}
	p, err := placement.Predict(ctx, d.tb.inv, plan, c)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		p = nil // there is no steady state: what is sampled stands
	}
	if d.steady == nil {
		d.steady = map[string]*placement.Prediction{}
	}
	d.steady[key] = p
	return p
}

// follow takes a job's shares from a prediction, and its rate where queues are those that are
// predicted, or hold nobody up.
func (j *job) follow(p *placement.Prediction, rate bool) {
	for _, jp := range p.Jobs {
		if jp.Name != j.plan.Name {
			continue
		}
		switch {
		case j.circle == nil && rate:
			j.steady = jp.Goodput / (8 * j.full) // a stream's, while it sends
			if j.steady > 0 {
				j.again = max(0, jp.WireRate/(8*j.frame)/j.steady-1)
			}
		case j.circle != nil && j.circle.mean:
			j.steady = jp.Goodput / (8 * j.good)
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
					if j.again > 0 && n.parent == len(j.nodes)-1 {
						j.nodes[n.parent].arrives = s.In - s.Share*(s.In-1)
					}
				}
			}
		}
	}
}

// turn is called when rates are set: where others send than before, shares that are sampled are those of what is
// shared now, and not of a step ago.
func (d *deployment) turn() {
	var sending, running []string
	for _, j := range d.jobs {
		if j.sends() {
			sending = append(sending, j.plan.Name)
		}
		if j.running {
			running = append(running, j.plan.Name)
		}
	}
	if now := fmt.Sprint(sending); now != d.sending {
		d.sending = now
		others := fmt.Sprint(running)
		if d.streams == "" {
			d.settle(others != d.running)
		}
		d.running = others
		d.beyond = cmp.Or(d.beyond, d.short())
	}
}

// settle samples memories until their shares are those of the jobs that send now. Where jobs began or ended, all
// of a hold is looked at, once after the other and with the queues that windows then make: a job has its share within a
// few round trips, while samples of steps take the longer to show that, the more packets are under way. Jobs that only
// paused, which may be often, come back to memories that know them.
func (d *deployment) settle(anew bool) {
	const rounds = 8
	contended := slices.ContainsFunc(d.switches, func(name string) bool { return len(d.memories[name].tenants) > 1 })
	for range rounds {
		if !contended && !anew {
			return
		}
		most := sampled
		if anew {
			most = whole
			for _, j := range d.jobs {
				if !j.aimd {
					d.queue(j, 0)
				}
			}
		}
		hold := 0.0
		for _, j := range d.jobs {
			hold = max(hold, d.tell(j))
		}
		for _, name := range d.switches {
			d.memories[name].run(hold, most)
		}
		for _, j := range d.jobs {
			j.weigh()
		}
		d.allocate()
	}
}

// short says of a job that its messages are too short for the share that it is taken to have; empty: none's are.
func (d *deployment) short() string {
	for _, j := range d.jobs {
		if !j.sends() || len(j.msg.layers) == 0 || j.circle != nil {
			continue
		}
		psns, bursts := j.bursts()
		for i := range j.nodes {
			n := &j.nodes[i]
			if n.tenant == nil {
				continue
			}
			flight := j.window
			if j.limit > 0 && j.rate > 0.99*j.limit {
				flight = min(flight, j.limit*n.hold)
			}
			alone := !slices.ContainsFunc(d.jobs, func(o *job) bool {
				return o != j && o.sends() && slices.ContainsFunc(o.nodes, func(m node) bool { return m.tenant != nil && m.mem == n.mem })
			})
			if placement.Bias(n.tenant.share, flight, psns, bursts, alone) > placement.MostBias {
				return placement.Short(j.plan.Name, psns/float64(bursts), flight)
			}
		}
	}
	return ""
}

// bursts is how many PSNs an iteration has, and in how many pieces they are sent, at the rate that the job has now.
func (j *job) bursts() (psns float64, n int) {
	end := math.Inf(-1)
	for _, l := range j.msg.layers {
		if l.packets == 0 {
			continue
		}
		if psns += l.packets; l.ready > end {
			n++
		}
		end = max(end, l.ready) + l.packets/j.rate
	}
	return psns, n
}

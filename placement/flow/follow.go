package flow

import (
	"context"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/flow/packets"
)

// What following packets may take: some 200 ns an event. Where the fewest runs need more, a
// packet stands for several, maxScale at most: what is lost is how much windows and
// memories fluctuate, which is little where they are that large. So it is where queues take
// longer than that to fill, as what is counted before they have is no steady state.
const (
	followEvents = 6_000_000
	followError  = 0.003
	maxScale     = 64
)

// grown is how much more than it carries a link was sent while packets were counted, as a part of that, before
// rates are said to be off by as much.
const grown = 0.01

// scatter is the most PSNs by which a sender with a rate limit may be behind its even
// schedule: two blocks of 16.
const scatter = 32

// exact reports whether the closed forms behind r leave nothing out: where no
// memory is ever short, or a hash meets only paced jobs in trees of one level, and no
// window is short of what its rate limit needs.
func exact(p *Problem, r *Result) bool {
	most := make([]float64, len(p.Switches)) // aggregators that can be taken at once
	simple := make([]bool, len(p.Switches))  // only paced jobs in trees of one level
	contend := make([]bool, len(p.Switches)) // somebody aggregates there
	for s := range simple {
		simple[s] = true
	}
	for ji := range p.Jobs {
		j, jr := &p.Jobs[ji], &r.Jobs[ji]
		if jr.Rate == 0 {
			continue
		}
		if j.Ring != nil || p.Damaged(j) || j.Layers != nil {
			return false
		}
		pps := jr.Rate / packet(j)
		paced := jr.Bottleneck.Kind == ByLimit
		if j.Window > 0 && j.RTT > 0 {
			// A schedule that scatters packets needs more of a window than even spacing, and a
			// window that just fits what a link leaves is neither full nor free.
			trip := j.RTT
			if j.Limit > 0 {
				trip += scatter * packet(j) / j.Limit
			}
			own := j.Window * packet(j) / trip
			switch {
			case paced && own < jr.Rate,
				jr.Bottleneck.Kind == ByLink && own < 1.05*jr.Rate,
				jr.Bottleneck.Kind == ByWindow && (j.Limit > 0 || waits(p, r, j)),
				!paced && j.Window < 16:
				return false
			}
		}
		levels := 0
		for k := range j.Nodes {
			if n := &j.Nodes[k]; j.aggregates(n) {
				levels++
			}
		}
		for k := range j.Nodes {
			n := &j.Nodes[k]
			if !j.aggregates(n) || j.Kind != Statistical {
				continue
			}
			s := n.Switch
			contend[s] = true
			held := j.Window
			if paced || j.Window == 0 {
				held = pps*n.Hold + scatter
				if j.Window > 0 {
					held = min(held, j.Window)
				}
			}
			most[s] += held
			if !paced || levels > 1 {
				simple[s] = false
			}
			if p.Switches[s].Addressing == ATP && held > min(j.Slots, p.Switches[s].Aggregators) {
				simple[s] = false
			}
		}
	}
	for s := range p.Switches {
		sw := &p.Switches[s]
		switch {
		case !contend[s] || sw.Aggregators < 1:
		case sw.Addressing == Pool && most[s] <= sw.Aggregators:
		case sw.Addressing == Hash && simple[s] && sw.Aggregators >= 64:
		case sw.Addressing == ATP && simple[s] && alone(p, r, s):
		default:
			return false
		}
	}
	return true
}

// waits reports whether j crosses a link that is so busy that its packets wait there now
// and then.
func waits(p *Problem, r *Result, j *Job) bool {
	for k := range j.Nodes {
		for _, l := range []int{j.Nodes[k].Up, j.Nodes[k].Down} {
			if l != None && r.Links[l].Load > 0.8*p.Links[l].Capacity {
				return true
			}
		}
	}
	return false
}

// alone reports whether only one job that sends aggregates at a switch.
func alone(p *Problem, r *Result, s int) bool {
	jobs := 0
	for ji := range p.Jobs {
		j := &p.Jobs[ji]
		for k := range j.Nodes {
			if n := &j.Nodes[k]; r.Jobs[ji].Rate > 0 && j.Kind == Statistical && j.aggregates(n) && n.Switch == s {
				jobs++
			}
		}
	}
	return jobs == 1
}

// moved is how much shares may differ between what is counted once all is level and later, before they are
// said to move. Whether they do is looked for with a few times the events, soon of the first count.
const (
	moved = 0.01
	soon  = 4
)

// rest is what was counted in got, or, if its shares move, as late as followEvents allow: jobs that share
// memory may be level in all that is under way, and their shares move for long. Which slots a job holds when
// others look for some, or which PSNs of a window find none, takes hundreds of windows to even out.
func rest(ctx context.Context, n *packets.Network, got *packets.Result) *packets.Result {
	if !divided(got) {
		return got
	}
	later := func(events int) *packets.Result { // nil: what is counted then is no other
		late, ok := packets.Run(ctx, n, packets.Limits{Seed: 1, Error: followError, Events: events, Late: true})
		if !ok || late.Settled < 2*got.Settled || got.Agrees(late, moved) {
			return nil
		}
		return late
	}
	first := min(soon*got.Events, followEvents)
	late := later(first)
	if late != nil && first < followEvents {
		late = later(followEvents)
	}
	if late == nil {
		return got
	}
	late.Widen(got, 0.5) // they may go on moving, and what disturbs a run takes it back
	return late
}

// divided says whether some job's PSNs find aggregators at a switch and others do not.
func divided(r *packets.Result) bool {
	for i := range r.Jobs {
		for _, s := range r.Jobs[i].Share {
			if s > 0.02 && s < 0.98 {
				return true
			}
		}
	}
	return false
}

// traffic is a problem's jobs as the model of packets has them.
type traffic struct {
	net     *packets.Network
	of      []int   // job of each of net's
	work    float64 // events of a run, about
	damaged bool    // somebody's links are
}

// traffic is nil where packets cannot be followed: where somebody has neither window nor rate limit, or
// memories are too large. Of average, which may be nil, are the jobs that do not send, and what holds the
// others back.
func (p *Problem) traffic(average *Result) *traffic {
	t := &traffic{net: &packets.Network{Turn: p.Turn}}
	for _, l := range p.Links {
		t.net.Links, t.net.Damage = append(t.net.Links, l.Capacity), append(t.net.Damage, l.Damage)
	}
	const most = 1 << 22 // aggregators one by one
	for i := range p.Switches {
		sw := &p.Switches[i]
		if sw.Addressing != Pool && sw.Aggregators > most {
			return nil
		}
		t.net.Switches = append(t.net.Switches, int(min(sw.Aggregators, 1<<40)))
	}
	for ji := range p.Jobs {
		j := &p.Jobs[ji]
		if j.starved() != None || average != nil && average.Jobs[ji].Rate == 0 || len(j.Nodes) == 0 {
			continue
		}
		f, ok := p.follow(j)
		if p.Damaged(j) {
			if f.Kind >= packets.Stream || j.Window == 0 || j.Timeout == 0 {
				return nil
			}
			t.damaged, f.Timeout = true, j.Timeout
		}
		if !ok || average != nil && j.Window == 0 && f.Kind < packets.Stream && average.Jobs[ji].Bottleneck.Kind == ByLink {
			return nil
		}
		f.Behind = average != nil && f.Gap > 0 && average.Jobs[ji].Bottleneck.Kind == ByLink
		t.net.Jobs = append(t.net.Jobs, f)
		t.of = append(t.of, ji)
		psns := 8 * float64(f.Window)
		if average != nil && average.Jobs[ji].Bottleneck.Kind == ByLimit {
			psns = min(psns, 10*(j.RTT*j.Limit/packet(j)+scatter))
		}
		if f.Kind == packets.Ring {
			psns = 30 * 2 * float64(len(j.Ring.Hops)-1) * float64(len(j.Ring.Chunks[0].Frames))
		}
		t.work += max(psns, 800) * 2 * float64(len(j.Nodes))
	}
	if len(t.of) == 0 {
		return nil
	}
	return t
}

// follow is the steady state as packets show it; average, which may be nil, tells what
// to expect. It is nil where packets cannot be followed, or there is too much to follow.
func follow(ctx context.Context, p *Problem, average *Result) *Result {
	t := p.traffic(average)
	if t == nil {
		return nil
	}
	var got *packets.Result
	for _, settled := range []bool{true, false} {
		for scale := 1; scale <= maxScale && got == nil && ctx.Err() == nil; scale *= 2 {
			// What waits for timeouts is never as it goes on, and several packets are not lost as one is.
			if t.damaged && (settled || scale > 1) || !t.damaged && 4*t.work/float64(scale) > followEvents {
				continue
			}
			small := t.net
			if scale > 1 {
				small = shrunk(t.net, scale)
			}
			got, _ = packets.Run(ctx, small, packets.Limits{Seed: 1, Error: followError, Events: followEvents, Settled: settled})
			if got != nil {
				if settled {
					got = rest(ctx, small, got)
				}
				unshrink(t.net, got, scale)
			}
		}
	}
	if got == nil {
		return nil
	}
	r := &Result{Jobs: make([]JobResult, len(p.Jobs)), Links: make([]LinkResult, len(p.Links)), Settled: got.Settled}
	if average != nil {
		copy(r.Jobs, average.Jobs)
	}
	p.followed(t.of, got, r)
	return r
}

// followed puts into r what was counted of the given jobs, which are got's, and what they load links with.
func (p *Problem) followed(of []int, got *packets.Result, r *Result) {
	r.Rings = true
	for i, ji := range of {
		j, out := &p.Jobs[ji], &got.Jobs[i]
		if j.Ring != nil {
			r.Jobs[ji] = p.ringResult(j, out, r)
			continue
		}
		jr := JobResult{Rate: out.Rate * packet(j), RateSpread: out.RateSpread * packet(j), Up: out.Up, Share: make([]float64, len(j.Nodes)), ShareSpread: make([]float64, len(j.Nodes)), Bottleneck: Bottleneck{Unlimited, None}}
		if j.Layers != nil { // what holds it back while it sends is not seen in the mean over its pauses
			jr.Bottleneck = r.Jobs[ji].Bottleneck
		}
		for k := range j.Nodes {
			if j.aggregates(&j.Nodes[k]) {
				jr.Share[k], jr.ShareSpread[k] = out.Share[k], out.ShareSpread[k]
			}
		}
		if got.Over > grown { // queues were still filling
			jr.RateSpread = max(jr.RateSpread, got.Over*jr.Rate)
		}
		// What is held back by its own limit keeps to it to the last packet, but for what waited in a queue before.
		if j.Limit > 0 && jr.Rate > 0.995*j.Limit {
			if jr.Bottleneck.Kind = ByLimit; !r.Replayed {
				jr.Rate, jr.RateSpread = j.Limit, 0
			}
		}
		jr.UpCame, jr.Down, jr.DownCame = out.UpCame, out.Down, out.DownCame
		jr.Got = out.Got * packet(j)
		r.Jobs[ji] = jr
		below := j.below()
		for k := range j.Nodes {
			nd := &j.Nodes[k]
			if nd.Up != None {
				r.Links[nd.Up].Load += jr.Rate * out.Up[k]
				r.Links[nd.Up].Flows += out.Up[k]
				r.Links[nd.Up].Spread += max(out.UpSpread[k]*packet(j), jr.RateSpread*out.Up[k])
				if jr.UpCame != nil {
					r.Links[nd.Up].Lost += jr.Rate * (out.Up[k] - jr.UpCame[k])
				}
			}
			if nd.Down != None {
				w := 1.0
				if j.Kind == Unicast {
					w = below[k]
				}
				if jr.Down != nil {
					w = jr.Down[k]
					r.Links[nd.Down].Lost += jr.Rate * (w - jr.DownCame[k])
				}
				r.Links[nd.Down].Load += jr.Rate * w
				r.Links[nd.Down].Flows += w
				r.Links[nd.Down].Spread += jr.RateSpread * w
			}
		}
	}
	for l, crossed := range got.Links {
		r.Links[l].Load, r.Links[l].Spread, r.Links[l].Lost = crossed.Load, crossed.Spread, crossed.Lost
	}
	for l := range r.Links {
		if c := p.Links[l].Capacity; !r.Replayed && c > 0 { // counts of PSNs are of their own ends, and no more than near to it
			r.Links[l].Load = min(r.Links[l].Load, c)
		}
	}
	for _, ji := range of {
		p.bottleneck(ji, r)
	}
}

// ringResult is what following a ring's frames says of it, and adds what it loads links with.
func (p *Problem) ringResult(j *Job, out *packets.JobResult, r *Result) JobResult {
	n := len(j.Nodes)
	jr := JobResult{
		Rate: out.Rate * j.Ring.Bits, RateSpread: out.RateSpread * j.Ring.Bits,
		Up: make([]float64, n), Share: make([]float64, n), ShareSpread: make([]float64, n), Bottleneck: Bottleneck{Unlimited, None},
	}
	var vector float64
	for _, c := range j.Ring.Chunks {
		for _, bits := range c.Frames {
			vector += bits
		}
	}
	workers := float64(len(j.Ring.Hops))
	sent := 2 * (workers - 1) / workers * vector / j.Ring.Bits
	for k := range j.Nodes {
		jr.Up[k] = sent
		l := &r.Links[j.Nodes[k].Up]
		l.Load += jr.Rate * sent
		l.Flows += sent
		l.Spread += jr.RateSpread * sent
	}
	if j.Limit > 0 && jr.Rate > 0.995*j.Limit {
		jr.Bottleneck.Kind = ByLimit
	}
	return jr
}

// shrunk is n with one packet for several: what is counted in packets is less, and what a
// packet takes is more.
func shrunk(n *packets.Network, scale int) *packets.Network {
	fewer := func(v int) int {
		if v > 0 {
			v = max(1, (v+scale/2)/scale)
		}
		return v
	}
	out := &packets.Network{Links: n.Links, Turn: n.Turn, Block: max(1, 16/scale)}
	for _, m := range n.Switches {
		out.Switches = append(out.Switches, fewer(m))
	}
	for _, j := range n.Jobs {
		if j.Kind == packets.Ring {
			out.Jobs = append(out.Jobs, j)
			continue
		}
		j.Bits *= float64(scale)
		j.Gap *= float64(scale)
		j.Window, j.Slots = fewer(j.Window), fewer(j.Slots)
		j.ID = 0 // these slots are others
		out.Jobs = append(out.Jobs, j)
	}
	return out
}

// unshrink makes the rates of a network that was shrunk those of the whole one.
func unshrink(n *packets.Network, r *packets.Result, scale int) {
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if n.Jobs[i].Kind == packets.Ring {
			continue
		}
		j.Rate *= float64(scale)
		j.RateSpread *= float64(scale)
		for k := range j.UpSpread {
			j.UpSpread[k] *= float64(scale)
		}
	}
}

// bottleneck sets what holds a job back whose packets were followed.
func (p *Problem) bottleneck(ji int, r *Result) {
	j, b := &p.Jobs[ji], &r.Jobs[ji].Bottleneck
	if b.Kind == ByLimit {
		return
	}
	// The fullest of its links; of those as full, the one nearest the PS.
	fullest := 0.98
	consider := func(l int) {
		if l == None {
			return
		}
		if f := r.Links[l].Load / p.Links[l].Capacity; f > fullest+0.005 {
			fullest, *b = f, Bottleneck{ByLink, l}
		}
	}
	for k := len(j.Nodes) - 1; k >= 0; k-- {
		consider(j.Nodes[k].Up)
	}
	for k := len(j.Nodes) - 1; k >= 0; k-- {
		consider(j.Nodes[k].Down)
	}
	if b.Kind != ByLink && j.Window > 0 && j.Layers == nil {
		b.Kind = ByWindow
	}
}

// follow is a job as the model of packets has it. It is not ok for one without a window
// or a limit, unless it is a stream.
func (p *Problem) follow(j *Job) (packets.Job, bool) {
	f := packets.Job{
		Kind: j.Kind, Bits: packet(j), Window: int(math.Round(j.Window)),
		Slots: int(math.Round(j.Slots)), ID: j.ID, Offset: j.Offset, Layers: j.Layers,
	}
	if j.Limit > 0 {
		f.Gap = packet(j) / j.Limit
	}
	if j.Ring != nil {
		return j.followRing(p), true
	}
	if j.Nodes[0].Parent == None && j.Nodes[0].Up != None {
		f.Kind = packets.Stream
		if f.Window == 0 {
			f.Window = streamWindow
		}
	}
	if f.Window == 0 {
		if j.Limit == 0 {
			return f, false
		}
		longest := j.RTT
		for k := range j.Nodes {
			longest = max(longest, j.Nodes[k].Hold)
		}
		f.Window = int(4*(longest/f.Gap)) + 4*scatter
	}
	trip := p.trips(j, &f)
	children := make([]bool, len(j.Nodes)) // with switches that aggregate
	for k := range j.Nodes {
		n := &j.Nodes[k]
		nd := packets.Node{Parent: n.Parent, Up: n.Up, Down: n.Down, Switch: None, Delay: trip[k] / 2}
		for _, l := range []int{n.Up, n.Down} {
			if l != None {
				nd.Delay -= packet(j) / p.Links[l].Capacity / 2
			}
		}
		nd.Delay = max(0, nd.Delay)
		if j.aggregates(n) && f.Kind != packets.Stream {
			nd.Switch = n.Switch
			nd.Addressing = p.Switches[n.Switch].Addressing
			if nd.Addressing == packets.ATP && children[k] {
				nd.Addressing = packets.Hash // it sees sums, which come from no slot
			}
		}
		if n.Parent != None && (children[k] || nd.Switch != None) {
			children[n.Parent] = true
		}
		f.Nodes = append(f.Nodes, nd)
	}
	return f, true
}

// followRing is a ring as the model of packets has it.
func (j *Job) followRing(p *Problem) packets.Job {
	f := packets.Job{Kind: packets.Ring, Window: 1, Chunks: j.Ring.Chunks}
	for _, c := range f.Chunks {
		f.Bits = max(f.Bits, slices.Max(c.Frames))
	}
	if j.Limit > 0 {
		f.Gap = f.Bits / j.Limit
	}
	for _, hops := range j.Ring.Hops {
		for i := range hops {
			k := len(f.Nodes)
			nd := packets.Node{Parent: k + 1, Up: j.Nodes[k].Up, Down: None, Switch: None, Delay: j.Ring.Delays[k]}
			if i == hops-1 {
				nd.Parent = None
			}
			f.Nodes = append(f.Nodes, nd)
		}
	}
	return f
}

// streamWindow is what a stream has under way: enough to fill its slowest link, and no
// more than a queue holds.
const streamWindow = 64

// trips are seconds from each node to its parent and back with empty queues, frames'
// transmissions included, so that the job's holds and round trip come out. What hosts
// add to what the links say is put to the parameter server and the workers.
func (p *Problem) trips(j *Job, f *packets.Job) []float64 {
	trip := make([]float64, len(j.Nodes))
	whole := make([]float64, len(j.Nodes)) // to the root and back
	known := false
	for k := range j.Nodes {
		trip[k] = j.Nodes[k].Trip
		known = known || trip[k] > 0
	}
	leaf := make([]bool, len(j.Nodes))
	for k := range leaf {
		leaf[k] = true
	}
	for k := range j.Nodes {
		if n := j.Nodes[k].Parent; n != None {
			leaf[n] = false
		}
	}
	if !known {
		for k := len(j.Nodes) - 1; k >= 0; k-- {
			n := &j.Nodes[k]
			if n.Parent == None || leaf[k] {
				continue
			}
			whole[k] = whole[n.Parent]
			if j.aggregates(n) {
				whole[k] = max(whole[k], n.Hold)
			}
			trip[k] = whole[k] - whole[n.Parent]
		}
		far := 0.0
		for k := range j.Nodes {
			if n := &j.Nodes[k]; leaf[k] && n.Parent != None {
				far = max(far, whole[n.Parent])
			}
		}
		for k := range j.Nodes {
			if leaf[k] && j.Nodes[k].Parent != None {
				trip[k] = max(0, j.RTT-far)
			}
		}
		return trip
	}
	holds, rtt := Holds(j)
	count, more := 0.0, 0.0
	for k := range j.Nodes {
		if n := &j.Nodes[k]; j.aggregates(n) && j.Kind == Statistical {
			count++
			more += n.Hold - holds[k]
		}
	}
	if count > 0 {
		f.Answer = max(0, more/count)
	}
	if j.RTT > rtt { // it was measured too, and is what counts
		f.Answer = min(f.Answer, j.RTT-rtt)
	}
	add := max(0, j.RTT-rtt-f.Answer)
	for k := range j.Nodes {
		if leaf[k] {
			trip[k] += add
		}
	}
	return trip
}

// Holds says from the trips of a job's nodes how long an aggregator of each node stays
// taken with empty queues, and the round trip of the job's workers: seconds, the same for
// all of them. An aggregator is taken from the first packet of a PSN on, until the result has
// passed. Workers send when they hear a result, which those nearest hear first and whose next
// packets are back first: they, and the aggregators that have only theirs, wait for the
// farthest worker of all.
func Holds(j *Job) (hold []float64, rtt float64) {
	n := len(j.Nodes)
	hold = make([]float64, n)
	far, near := make([]float64, n), make([]float64, n) // trips to workers
	for k := range near {
		near[k] = math.Inf(1)
	}
	for k := range j.Nodes {
		if math.IsInf(near[k], 1) {
			near[k] = 0 // a worker
		}
		if p := j.Nodes[k].Parent; p != None {
			far[p] = max(far[p], far[k]+j.Nodes[k].Trip)
			// A node that aggregates sends up when its farthest worker's packet is there.
			first := near[k]
			if j.aggregates(&j.Nodes[k]) {
				first = far[k]
			}
			near[p] = min(near[p], first+j.Nodes[k].Trip)
		}
	}
	if n > 0 {
		rtt = far[n-1]
	}
	for k := range hold {
		hold[k] = rtt - near[k]
	}
	return hold, rtt
}

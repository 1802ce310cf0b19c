package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/flow"
)

// Sizes of frames, without preamble and FCS.
const (
	// INAOverhead is what a gradient or result frame carries beside gradients:
	// Ethernet 14, IPv4 20, UDP 8, INA header 22 bytes.
	INAOverhead = 64
	minFrame    = 60
)

// leastSpread and leastRateSpread are the least uncertainty of a share, and of a rate as part of
// it, that are worth telling.
const (
	leastSpread     = 0.02
	leastRateSpread = 0.02
)

// Predictors.
const (
	Occupancy = "occupancy" // flow.Occupancy: what verdicts use
	WaterFill = "waterfill" // flow.WaterFill: NetPack's Algorithm 1 as published
)

// Conditions are what a prediction depends on beside the plan and the inventory.
type Conditions struct {
	Predictor string   // Occupancy (also if empty) or WaterFill
	Active    []string // jobs that send; nil: all of the plan

	Mode        string  // "statistical" (also if empty) or "synchronous"
	Addressing  string  // "pool" (also if empty), "hash", "linear" or "atp"
	Aggregators int     // used on every switch; 0: all it has
	Lanes       int     // int32 values per frame
	Overhead    int     // further bytes per frame; 0: INAOverhead
	Jitter      float64 // standard deviation of aggregator holds over their mean, blurs linear addressing

	Seed uint64 // of Offset; Replay only

	// Queue is what switches' ports have: "fair" (also if empty), one for each job, as is predicted; "flows", one for each
	// worker, or "fifo", which Occupancy says that it does not know where a link holds one of several jobs back.
	Queue string

	// Damage is what directed links do to frames, by their names. Occupancy only.
	Damage map[string]flow.Damage

	Senders map[string]Sender  // by job
	Holds   map[string]float64 // calibrated T in seconds, by "job@switch"; missing ones come from the topology
	RTTs    map[string]float64 // calibrated round trip in seconds, by job; missing ones come from the topology
}

// Sender is how the workers of one job send.
type Sender struct {
	Rate   float64 // wire rate limit per worker, bit/s of frame bytes; 0: none
	Window int     // packets outstanding per worker; 0: no such limit
	// Control "fixed" (also if empty) keeps the window as it is; with "aimd" it is
	// only an upper bound, links are shared as if AIMD were max-min fair, and no
	// standing queue is assumed beyond what the calibrated T contains.
	Control string
	Slots   int // atp: distinct slots of the job; 0: its window
	// Timeout is the least time after which it sends again what is unanswered, in seconds.
	Timeout float64
	// Layers are what an iteration computes and reduces, one after another; none: the job
	// sends all the time, as WaterFill has all do.
	Layers []Layer
}

// Prediction is a steady state, or what one run has in a phase.
type Prediction struct {
	Predictor string           `json:"predictor"`
	Jobs      []JobPrediction  `json:"jobs"` // the active ones, in the plan's order
	Links     []LinkPrediction `json:"links"`
	// Rings says that a ring's rates were found by following its frames, from one message to
	// the next (flow.Result.Rings).
	Rings bool `json:"-"`
	// Settled is after how many seconds queues are as long as they stay, as packets show that were followed
	// from empty ones; 0: none were.
	Settled float64 `json:"settled,omitempty"`
	// Replayed says that it is of a phase as it was in one run, whose packets were followed from its beginning, and of no
	// steady state.
	Replayed bool `json:"replayed,omitempty"`
	// Each are the runs that such a prediction is the mean of, each by itself: where jobs may come to more than one state,
	// every run is in one of them, and none need be near the mean.
	Each []*Prediction `json:"-"`
	// Beyond says what of the conditions the prediction leaves out, and why; empty: nothing that matters.
	Beyond string `json:"beyond,omitempty"`
	// Approximate says of which job shares are only near to what they will be, and how near; empty: of none. It excuses
	// nothing: a tolerance has to.
	Approximate string `json:"approximate,omitempty"`
}

// JobPrediction is what one job gets.
type JobPrediction struct {
	Name  string `json:"name"`
	Local bool   `json:"local,omitempty"` // all on one host: it sends nothing, and has no rate to predict
	// WireRate is bit/s of frame bytes that each worker sends, in the mean over computing
	// and waiting; of a ring with the acknowledgements of what it receives.
	WireRate float64 `json:"wire_rate"`
	// Goodput is bit/s of gradients reduced: what each worker contributes and gets
	// back. What pads the last frame of an iteration is none. Of a ring's wire rate,
	// 2(n-1)/n bits move per bit reduced.
	Goodput float64 `json:"goodput"`
	// Spread is by how much one run's rates may be off, as a part of them: their standard
	// deviation over the phases that jobs can have and the times at which queues fill; 0: they
	// follow from neither.
	Spread float64           `json:"spread,omitempty"`
	Shares []SharePrediction `json:"shares,omitempty"` // per switch with something to aggregate, leaves first
	// Bottleneck is what limits it: "tor1->h3", "tor1 aggregators", "rate limit", "window"; "none" if it crosses no link.
	// RoundTrip or Computing of one with layers of which an iteration takes longer for that than to send.
	Bottleneck string `json:"bottleneck"`
	// Sending is what limits such a job while it sends; empty: Bottleneck.
	Sending string `json:"sending,omitempty"`
	// Queue is how many bytes of the job wait before what holds it back while it sends, at most, where that is a link:
	// what of its windows, or of a message that is shorter, is on no way. Queues are taken to be as long as that needs: see Overflows.
	Queue float64 `json:"queue,omitempty"`
	// Trip is a round trip in seconds with empty queues, of a job that waits for results.
	Trip float64 `json:"trip,omitempty"`
}

// Bottlenecks of jobs that have messages and do not send all the time.
const (
	RoundTrip = "round trip" // the way of gradients and of what answers them, or of a ring from worker to worker
	Computing = "computing"
)

// HeldBy is what limits the job while it sends.
func (j *JobPrediction) HeldBy() string { return cmp.Or(j.Sending, j.Bottleneck) }

// SharePrediction is the part of a job that a switch aggregates.
type SharePrediction struct {
	Switch string `json:"switch"`
	// Share is the part of the packets that could be taken out of the flow that are:
	// (in-out)/(in-1) of the packets per PSN that come and that leave. This is what links
	// and the PS see.
	Share float64 `json:"share"`
	// Granted is the part of the job's PSNs that find an aggregator, which is what the
	// switch counts. It differs from Share where switches below decide alike, so that PSNs
	// of which more packets come are granted more seldom, or more often.
	Granted float64 `json:"granted"`
	In      float64 `json:"in"`           // packets per PSN that come
	Hold    float64 `json:"hold"`         // T that was used, seconds, without queueing
	Up      float64 `json:"up,omitempty"` // packets per PSN that the switch sends towards the PS; 0: not told
	// Spread is by how much one run's share may be off: its standard deviation over the
	// phases that jobs can have; 0: it follows from no phase.
	Spread float64 `json:"spread,omitempty"`
}

// Deviations is how many standard deviations, which spreads are, half of a 95 % interval is.
const Deviations = 1.96

// Widen is the prediction with spreads no less than those of another one of the same jobs and links, and than what
// these differ by: a run may be as either says, or between. What the other one lacks, such as the share of a switch to
// which whole sums come but for chance, stays as it is. Neither is changed.
func (p *Prediction) Widen(o *Prediction) *Prediction {
	out := *p
	wider := func(spread *float64, other, differ float64) {
		*spread = max(*spread, other, math.Abs(differ)/Deviations)
	}
	shares := func(j *JobPrediction) map[string]SharePrediction {
		at := map[string]SharePrediction{}
		for _, s := range j.Shares {
			at[s.Switch] = s
		}
		return at
	}
	jobs, links := map[string]*JobPrediction{}, map[string]LinkPrediction{}
	for i := range o.Jobs {
		jobs[o.Jobs[i].Name] = &o.Jobs[i]
	}
	for _, l := range o.Links {
		links[l.Link] = l
	}
	out.Jobs = slices.Clone(p.Jobs)
	for i := range out.Jobs {
		a := &out.Jobs[i]
		b, ok := jobs[a.Name]
		if !ok {
			continue
		}
		if a.WireRate > 0 {
			wider(&a.Spread, b.Spread, 1-b.WireRate/a.WireRate)
		}
		a.Shares = slices.Clone(a.Shares)
		at := shares(b)
		for k := range a.Shares {
			if s, ok := at[a.Shares[k].Switch]; ok {
				wider(&a.Shares[k].Spread, s.Spread, a.Shares[k].Share-s.Share)
			}
		}
	}
	out.Links = slices.Clone(p.Links)
	for i := range out.Links {
		a := &out.Links[i]
		if b, ok := links[a.Link]; ok && a.Load > 0 {
			wider(&a.Spread, b.Spread, 1-b.Load/a.Load)
		}
	}
	out.Each = slices.Concat(p.Each, o.Each)
	return &out
}

// LeastIn is the fewest packets per PSN that must come to a switch for its share to say anything:
// where less is to be taken out of the flow, chance makes it.
const LeastIn = 1.05

// SteadyWindows is how many windows of PSNs a message needs for the steady state to be nearly all of it:
// while queues before a bottleneck still fill, aggregators are held for less long, and more PSNs find one.
const SteadyWindows = 16

// LinkPrediction is the load of one directed link. WaterFill knows only cables: it
// is given on the direction in which gradients load the cable most, and the other
// direction is left out.
type LinkPrediction struct {
	Link string  `json:"link"`
	Load float64 `json:"load"` // bit/s of frame bytes that are sent on it
	// Peak is the most of it, while jobs send together that do not send all the time; 0: Load.
	Peak float64 `json:"peak,omitempty"`
	// Lost is how much less comes out at its other end, negative where it is more.
	Lost  float64 `json:"lost,omitempty"`
	Rate  float64 `json:"rate"` // capacity, bit/s
	Flows float64 `json:"flows"`
	// Spread is as in JobPrediction.
	Spread float64 `json:"spread,omitempty"`
}

// FrameBytes is the size of a gradient frame (without preamble and FCS).
func (c *Conditions) FrameBytes() int {
	over := c.Overhead
	if over == 0 {
		over = INAOverhead
	}
	return max(minFrame, over+4*c.Lanes)
}

// frames are those that gradients of a job fill over a tree.
func (c *Conditions) frames(job string) collectives.Frames {
	bytes := 0.0
	for _, l := range c.Senders[job].Layers {
		bytes += l.Bytes
	}
	return collectives.FramesOf(int64(math.Ceil(bytes)), c.Lanes)
}

// Predict computes the steady state of a plan's active jobs.
//
// T of a job at a switch, unless calibrated, is twice the delay between the switch
// and the PS plus the time to put one frame on each link there and back, and beside
// that how much farther its farthest worker is than its nearest, there and back; the
// round trip is that of the farthest worker. The PAT of WaterFill is the switch's
// aggregators over the mean T of the jobs there. Jobs with layers do not send all the
// time: see problem.turns. Packets are followed until ctx ends, of which there is then the error.
func Predict(ctx context.Context, inv *inventory.Inventory, plan *Plan, c Conditions) (*Prediction, error) {
	b, err := newProblem(inv, plan, &c)
	if err != nil {
		return nil, err
	}
	var r *flow.Result
	switch c.Predictor {
	case "", Occupancy:
		c.Predictor = Occupancy
		r, err = b.turns(ctx, b.pauses)
	case WaterFill:
		r, err = flow.WaterFill(&b.Problem)
	default:
		return nil, fmt.Errorf("unknown predictor %q: %q or %q", c.Predictor, Occupancy, WaterFill)
	}
	if err != nil {
		return nil, fmt.Errorf("predict with %s: %w", c.Predictor, err)
	}
	return b.prediction(plan, r, c.active), nil
}

// Schedule is when jobs of a plan send, and the phases of which a prediction is asked for. Times are in seconds
// since the run began.
type Schedule struct {
	Jobs   map[string]flow.Times // by name; who is missing never sends
	Phases []Phase               // in order
	Lag    flow.Lag
}

// Phase is a time in which the set of jobs that send does not change.
type Phase struct {
	flow.Count
	Jobs []string
}

// Replay predicts what a plan's jobs get in the phases of one run, as flow.Replay does; c says nothing of who is
// active. It is nil where only steady states are known: of other
// predictors than Occupancy, of phases that begin before all their jobs send or end after one has left, and of what
// there is too much to follow. Following packets ends with ctx, of which there is then the error.
func Replay(ctx context.Context, inv *inventory.Inventory, plan *Plan, c Conditions, s Schedule) ([]*Prediction, error) {
	if c.Predictor != "" && c.Predictor != Occupancy {
		return nil, nil
	}
	c.Predictor, c.Active = Occupancy, []string{}
	fs := flow.Schedule{Lag: s.Lag}
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		if t, ok := s.Jobs[j.Name]; ok {
			c.Active = append(c.Active, j.Name)
			if !j.Local() {
				fs.Jobs = append(fs.Jobs, t)
			}
		}
	}
	for _, ph := range s.Phases {
		for _, name := range ph.Jobs {
			if t, ok := s.Jobs[name]; !ok || !t.Cover(ph.Count) {
				return nil, nil
			}
		}
		fs.Counts = append(fs.Counts, ph.Count)
	}
	b, err := newProblem(inv, plan, &c)
	if err != nil {
		return nil, err
	}
	for _, t := range b.pauses {
		if j := &b.Jobs[t.job]; j.Ring == nil {
			j.Layers = packets(t.layers, t.perFrame(j, &c))
		}
	}
	results, err := flow.Replay(ctx, &b.Problem, fs)
	if err != nil {
		return nil, fmt.Errorf("predict with %s: %w", c.Predictor, err)
	}
	var out []*Prediction
	for i, r := range results {
		out = append(out, b.prediction(plan, r, func(job string) bool { return slices.Contains(s.Phases[i].Jobs, job) }))
	}
	return out, nil
}

// prediction is a result in names, of those of b's jobs that send.
func (b *problem) prediction(plan *Plan, r *flow.Result, sends func(job string) bool) *Prediction {
	out := &Prediction{Predictor: b.c.Predictor, Rings: r.Rings, Settled: r.Settled, Replayed: r.Replayed}
	n := 0 // of b.Jobs
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		switch {
		case !b.c.active(j.Name):
		case j.Local():
			if sends(j.Name) {
				out.Jobs = append(out.Jobs, JobPrediction{Name: j.Name, Local: true, Bottleneck: "none"})
			}
		default:
			if sends(j.Name) {
				out.Jobs = append(out.Jobs, b.job(j, &b.Jobs[n], &r.Jobs[n]))
				if out.Predictor == Occupancy {
					out.Beyond = cmp.Or(out.Beyond, b.beyond(j, &b.Jobs[n], r), b.unshared(j, n, r))
				}
				if out.Predictor == Occupancy && out.Approximate == "" && r.Approximate && contends(&b.Jobs[n], &r.Jobs[n]) {
					out.Approximate = fmt.Sprintf("shares of job %s are predicted within some 0.1 only: memory is short, its sender's window is not fixed or there is too much to follow packet by packet", j.Name)
				}
			}
			n++
		}
	}
	for l, link := range r.Links {
		dl := &b.topo.Links[l]
		if link.Flows > 0 {
			out.Links = append(out.Links, LinkPrediction{dl.Name, link.Load, link.Peak, link.Lost, float64(dl.Rate), link.Flows, spread(link.Spread, link.Load)})
		}
	}
	for _, one := range r.Each {
		out.Each = append(out.Each, b.prediction(plan, one, sends))
	}
	return out
}

// contends says whether a switch is predicted to aggregate some of what it could of a job.
func contends(j *flow.Job, r *flow.JobResult) bool {
	for k := range j.Nodes {
		if share := r.Share[k]; j.Nodes[k].Aggregate && share > 0 && share < 1-1e-9 {
			return true
		}
	}
	return false
}

// beyond says of damaged links of a job what the prediction r does not know.
func (b *problem) beyond(j *JobPlan, f *flow.Job, r *flow.Result) string {
	switch s := b.c.Senders[j.Name]; {
	case !b.Damaged(f):
	case j.Collective == Ring:
		return fmt.Sprintf("links of job %s are damaged, and it is a ring: what TCP makes of that is not predicted", j.Name)
	case s.Control == "aimd":
		return fmt.Sprintf("links of job %s are damaged, and it changes its window by what it notices of that, which is not predicted", j.Name)
	case len(s.Layers) > 0:
		return fmt.Sprintf("links of job %s are damaged, and it sends messages: how long the last packets of one wait for timeouts is not predicted", j.Name)
	case f.Window == 0 || f.Timeout == 0:
		return fmt.Sprintf("links of job %s are damaged, and its window or its timeout is not known", j.Name)
	case r.Lossless:
		return fmt.Sprintf("links of job %s are damaged, and there is too much to follow packet by packet", j.Name)
	}
	return ""
}

// alike is by what part packets of two jobs on a link may differ and share it by streams as by jobs.
const alike = 0.05

// unshared says of the link that holds b's n-th job back why it is not shared as is predicted: by a queue for each job.
func (b *problem) unshared(j *JobPlan, n int, r *flow.Result) string {
	at := r.Jobs[n].Bottleneck
	aimd := b.c.Senders[j.Name].Control == "aimd" // shares links as if these were fair, says the model
	if b.c.Queue == "" || b.c.Queue == "fair" || aimd || at.Kind != flow.ByLink {
		return ""
	}
	own := b.Jobs[n].Crossing(&r.Jobs[n], at.Index)
	for i := range b.Jobs {
		other := b.Jobs[i].Crossing(&r.Jobs[i], at.Index)
		if i == n || other == 0 || r.Jobs[i].Rate == 0 || b.c.Queue == "flows" && math.Abs(own-other) < alike*own {
			continue
		}
		return fmt.Sprintf("switch.queue is %q, and job %s shares %s with others: what each gets there is predicted for a queue for each job (\"fair\") only",
			b.c.Queue, j.Name, b.topo.Links[at.Index].Name)
	}
	return ""
}

// active reports whether a job sends.
func (c *Conditions) active(job string) bool {
	return c.Active == nil || slices.Contains(c.Active, job)
}

// problem is a flow.Problem with the names of what is in it: links as in the
// topology, switches as in the inventory.
type problem struct {
	flow.Problem
	inv    *inventory.Inventory
	topo   *inventory.Topology
	c      *Conditions
	sw     map[string]int
	pauses []turn // of jobs that do not send all the time
	left   []int  // switch -> aggregators no synchronous job has

	late, crossed float64 // calibrated round trips: seconds beyond what links say, and links in them
}

// fairTurn is what a fair queue sends in its turn, bits: a full Ethernet frame, which is what deficit
// round robin needs for its turns to be short work (Shreedhar, Varghese, SIGCOMM 1995, section 3.1).
// The emulated switch has the same (testbed/softswitch).
const fairTurn = 8 * collectives.Segment

func newProblem(inv *inventory.Inventory, plan *Plan, c *Conditions) (*problem, error) {
	b := &problem{Problem: flow.Problem{Turn: fairTurn}, inv: inv, topo: inv.Topology(), c: c, sw: map[string]int{}}
	addressing, ok := map[string]flow.Addressing{"": flow.Pool, "pool": flow.Pool, "hash": flow.Hash, "linear": flow.Linear, "atp": flow.ATP}[c.Addressing]
	if !ok {
		return nil, fmt.Errorf("unknown addressing %q", c.Addressing)
	}
	if c.Mode != "" && c.Mode != "statistical" && c.Mode != "synchronous" {
		return nil, fmt.Errorf("unknown switch mode %q", c.Mode)
	}
	if c.Lanes < 0 || c.Overhead < 0 {
		return nil, fmt.Errorf("a frame of %d lanes and %d other bytes", c.Lanes, c.Overhead)
	}
	for _, l := range b.topo.Links {
		b.Links = append(b.Links, flow.Link{Capacity: float64(l.Rate), Cable: 1 + min(l.Index, l.Reverse), Damage: c.Damage[l.Name]})
	}
	for i := range inv.Switches {
		s := &inv.Switches[i]
		m := Aggregators(s, c.Aggregators)
		b.sw[s.Name] = i
		b.left = append(b.left, m)
		b.Switches = append(b.Switches, flow.Switch{Aggregators: float64(m), Addressing: addressing, Jitter: c.Jitter})
	}
	for _, name := range c.Active {
		if !slices.ContainsFunc(plan.Jobs, func(j JobPlan) bool { return j.Name == name }) {
			return nil, fmt.Errorf("no job %q in the plan", name)
		}
	}
	for i := range plan.Jobs {
		j := &plan.Jobs[i]
		if j.Local() {
			continue
		}
		f, err := b.flowJob(j)
		if err != nil {
			return nil, fmt.Errorf("predict job %s: %w", j.Name, err)
		}
		// Inactive synchronous jobs keep their memory, so they are looked at too.
		if c.active(j.Name) {
			b.Jobs = append(b.Jobs, f)
			if t, ok := b.newTurn(len(b.Jobs)-1, j); ok {
				b.pauses = append(b.pauses, t)
			}
		}
	}
	b.delayRings()
	b.pat()
	return b, nil
}

// delayRings adds to the way of rings what calibrated round trips of the jobs beside them take
// beyond what links say, as much for each link: of rings, no round trip is calibrated, and the
// hosts and switches that their frames cross are the same.
func (b *problem) delayRings() {
	if b.crossed == 0 {
		return
	}
	late := b.late / b.crossed
	for i := range b.Jobs {
		if r := b.Jobs[i].Ring; r != nil {
			for k := range r.Delays {
				r.Delays[k] += late
			}
		}
	}
	for _, t := range b.pauses {
		for i := range t.hops {
			t.hops[i] += late * float64(t.links[i])
		}
	}
}

// pat sets every switch's peak aggregation throughput, M frames per mean T.
func (b *problem) pat() {
	hold := make([]float64, len(b.Switches))
	jobs := make([]float64, len(b.Switches))
	for i := range b.Jobs {
		for _, n := range b.Jobs[i].Nodes {
			if n.Aggregate {
				hold[n.Switch] += n.Hold
				jobs[n.Switch]++
			}
		}
	}
	for s := range b.Switches {
		if hold[s] > 0 {
			b.Switches[s].PAT = b.Switches[s].Aggregators * 8 * float64(b.c.FrameBytes()) / (hold[s] / jobs[s])
		}
	}
}

func (b *problem) flowJob(j *JobPlan) (flow.Job, error) {
	s := b.c.Senders[j.Name]
	bits := 8 * float64(b.c.FrameBytes())
	f := flow.Job{Limit: s.Rate, Packet: bits, Timeout: s.Timeout}
	if j.Collective == Ring {
		f.Kind = flow.Unicast
		return f, b.ring(j, &f)
	}
	if len(j.Tree) == 0 {
		return f, errors.New("has no tree")
	}
	if s.Control != "aimd" {
		f.Window = float64(s.Window)
	}
	f.Slots = float64(s.Slots)
	if s.Slots == 0 {
		f.Slots = float64(s.Window)
	}
	// Workers, then the tree, then the PS: children before parents.
	at := map[string]int{}
	for i, n := range j.Tree {
		at[n.Switch] = len(j.Workers) + i
	}
	root := flow.None
	for _, w := range j.Workers {
		l, err := hostLink(b.topo, w.Host, w.NIC, j.Tree[len(j.Tree)-1].Switch)
		if err != nil {
			return f, err
		}
		parent, ok := at[l.To]
		if !ok {
			return f, fmt.Errorf("tree lacks switch %s, which host %s is cabled to", l.To, w.Host)
		}
		node := flow.Node{Parent: parent, Up: l.Index, Down: l.Reverse, Switch: flow.None, Trip: b.loop(l, bits)}
		if j.Beside(w) {
			node.Down, node.Trip = flow.None, 0 // to the PS and back it is once up and once down
		}
		f.Nodes = append(f.Nodes, node)
	}
	for i := range j.Tree {
		n := &j.Tree[i]
		s, ok := b.sw[n.Switch]
		if !ok {
			return f, fmt.Errorf("no switch %q in the inventory", n.Switch)
		}
		node := flow.Node{Parent: root, Up: flow.None, Down: flow.None, Switch: s, Aggregate: n.Aggregate && j.Collective == INA}
		if n.Parent != "" {
			p, ok := at[n.Parent]
			if !ok {
				return f, fmt.Errorf("tree lacks switch %s, the parent of %s", n.Parent, n.Switch)
			}
			node.Parent = p
		} else if j.PS != "" {
			node.Parent = len(j.Workers) + len(j.Tree)
		}
		if node.Parent != flow.None {
			l, ok := portLink(b.topo, n.Switch, n.UpPort)
			if !ok {
				return f, fmt.Errorf("switch %s has nothing at port %d", n.Switch, n.UpPort)
			}
			node.Up, node.Down, node.Trip = l.Index, l.Reverse, b.loop(l, bits)
		}
		f.Nodes = append(f.Nodes, node)
	}
	if j.PS != "" {
		f.Nodes = append(f.Nodes, flow.Node{Parent: flow.None, Up: flow.None, Down: flow.None, Switch: flow.None})
	}
	holds, rtt := flow.Holds(&f)
	for i, n := range j.Tree {
		node := &f.Nodes[len(j.Workers)+i]
		node.Hold = holds[len(j.Workers)+i]
		if t, ok := b.c.Holds[j.Name+"@"+n.Switch]; ok {
			node.Hold = t
		}
	}
	f.RTT = rtt
	if t, ok := b.c.RTTs[j.Name]; ok {
		f.RTT = t
		b.late += max(0, t-rtt-b.crowd(&f, j))
		b.crossed += 2 * float64(depth(&f))
	}
	f.ID, f.Offset = j.ID, Offset(b.c.Seed, j.ID)
	switch {
	case j.Collective == PS:
		f.Kind = flow.Unicast
	case b.c.Mode == "synchronous":
		f.Kind = flow.Synchronous
		f.Slots = b.reserve(j, s.Window)
	}
	return f, nil
}

// depth is the most links between a worker of a job and its root.
func depth(f *flow.Job) int {
	links, most := make([]int, len(f.Nodes)), 0
	for k := len(f.Nodes) - 1; k >= 0; k-- {
		if p := f.Nodes[k].Parent; p != flow.None {
			links[k] = links[p] + 1
			most = max(most, links[k])
		}
	}
	return most
}

// reserve gives a synchronous job two windows of aggregators in each of its
// switches, and returns the fewest it got.
func (b *problem) reserve(j *JobPlan, window int) float64 {
	slots := 2 * window
	for _, n := range j.Tree {
		if n.Aggregate {
			s := b.sw[n.Switch]
			slots = min(slots, b.left[s])
			b.left[s] -= min(2*window, b.left[s])
		}
	}
	return float64(slots)
}

// loop is how long a frame takes over a link and its answer back, seconds.
func (b *problem) loop(l inventory.DirectedLink, bits float64) float64 {
	back := &b.topo.Links[l.Reverse]
	t := l.Delay.Seconds() + back.Delay.Seconds()
	if l.Rate > 0 {
		t += bits / float64(l.Rate)
	}
	if back.Rate > 0 {
		t += bits / float64(back.Rate)
	}
	return t
}

// ring adds the links of every hop of a ring, each carrying the job's rate once: segments one
// way, and acknowledgements of those that go the other way.
func (b *problem) ring(j *JobPlan, f *flow.Job) error {
	var hops []int
	for i := range j.Workers {
		path, err := b.topo.PathBy(j.Workers[i].End(), j.Goal(i))
		if err != nil {
			return err
		}
		for _, l := range path {
			f.Nodes = append(f.Nodes, flow.Node{Parent: flow.None, Up: l, Down: flow.None, Switch: flow.None})
		}
		hops = append(hops, len(path))
	}
	acks := collectives.Acks
	// A short message, again and again, is followed frame by frame.
	if layers := b.c.Senders[j.Name].Layers; len(layers) == 1 && layers[0].Compute == 0 && layers[0].Bytes > 0 && !slices.Contains(hops, 0) {
		if r, a := b.chunks(layers[0].Bytes, hops, f.Nodes); r != nil {
			f.Ring, acks = r, a
		}
	}
	f.Limit *= 1 + acks // which pacing leaves alone
	return nil
}

// mostFrames is how many frames a worker of a ring sends in an all-reduce that is short. Of
// longer ones the way of the last frame is nothing.
const mostFrames = 2000

// chunks is what the workers of a ring pass on of a message of so many bytes, nil if it is long, and
// how much acknowledges that, as part of it. Each frame is as long as it is with its part of what
// acknowledges as much that comes.
func (b *problem) chunks(bytes float64, hops []int, nodes []flow.Node) (_ *flow.Ring, acks float64) {
	n := len(hops)
	if 2*float64(n-1)/float64(n)*bytes > mostFrames*collectives.Payload {
		return nil, 0
	}
	bytes = float64(collectives.Values(int64(bytes)))
	r := &flow.Ring{Hops: hops, Bits: 8 * bytes * collectives.Duplex * 2 * float64(n-1) / float64(n)}
	sizes, block := collectives.RingChunks(n, int64(bytes))
	var data float64
	for _, size := range sizes {
		var c flow.Chunk
		// pass adds what is sent at a time, in frames. Each two of them are acknowledged, and the last one.
		pass := func(bytes int64) {
			frames := (bytes + collectives.Payload - 1) / collectives.Payload
			ack := 8 * math.Ceil(float64(frames)*collectives.AcksPerSegment) * collectives.Ack
			for ; bytes > 0; bytes -= collectives.Payload {
				frame := 8 * float64(min(bytes, collectives.Payload)+collectives.Segment-collectives.Payload)
				c.Frames = append(c.Frames, frame+ack/float64(frames))
				data += frame
			}
			acks += ack
			c.Blocks = append(c.Blocks, len(c.Frames))
		}
		pass(collectives.RingHeader)
		for ; size > 0; size -= block {
			pass(min(block, size))
		}
		r.Chunks = append(r.Chunks, c)
	}
	for k := range nodes {
		r.Delays = append(r.Delays, b.topo.Links[nodes[k].Up].Delay.Seconds())
	}
	return r, acks / data
}

// counted is what a switch counts in a replayed phase where nothing is lost: packets that come to it, and
// PSNs, both per PSN that the parameter server completes. Where only workers are below, PSNs are
// those that come to it: while queues grow or drain they are more, or fewer, than are completed.
func counted(j *JobPlan, f *flow.Job, r *flow.JobResult, k int) (came, psns float64) {
	for c := range f.Nodes {
		if f.Nodes[c].Parent == k {
			came += r.UpCame[c]
		}
	}
	if n := &j.Tree[k-len(j.Workers)]; !j.AboveSums(n.Switch) {
		return came, came / float64(bits.OnesCount64(n.Expect))
	}
	return came, 1
}

// leaves is packets per PSN that leave an aggregating node as others count them: those that arrive at
// the parameter server, if all of what does comes from there, and else those that it sends.
func leaves(f *flow.Job, r *flow.JobResult, k int) float64 {
	for at := k; ; at = f.Nodes[at].Parent {
		parent := f.Nodes[at].Parent
		others := func(n flow.Node) bool { return n.Parent == parent }
		switch {
		case f.Nodes[parent].Aggregate || count(f.Nodes, others) > 1:
			return r.Up[k]
		case f.Nodes[parent].Parent == flow.None:
			return r.UpCame[at]
		}
	}
}

// count is how many nodes are as is asked.
func count(nodes []flow.Node, is func(flow.Node) bool) (n int) {
	for _, node := range nodes {
		if is(node) {
			n++
		}
	}
	return n
}

// spread is an uncertainty as part of a rate; 0 if it is not worth telling.
func spread(of, rate float64) float64 {
	if of <= leastRateSpread*rate {
		return 0
	}
	return of / rate
}

// pausing is how a job spends an iteration; nil: it sends all the time, or is predicted as if it did.
func (b *problem) pausing(f *flow.Job) *turn {
	i := slices.IndexFunc(b.pauses, func(t turn) bool { return &b.Jobs[t.job] == f })
	if i < 0 || b.c.Predictor != Occupancy {
		return nil
	}
	return &b.pauses[i]
}

// waiting is how many PSNs of a job with a window wait before its bottleneck at most: those under way but for what is on its way
// with empty queues. An iteration begins with these: of what has come nothing waits that has left meanwhile, from a window until
// the first results are back, from an iteration until all of it has come.
func (b *problem) waiting(f *flow.Job, r *flow.JobResult) float64 {
	t, rate := b.pausing(f), r.Rate/f.Packet
	if t == nil || rate == 0 {
		return max(0, f.Window-rate*f.RTT)
	}
	rate = t.sends(r.Rate, packetBits(f)) / f.Packet
	psns, comes := t.bits/f.Packet, b.comes(f, r.Bottleneck)
	return max(0, min(f.Window-rate*min(f.RTT, f.Window/comes), psns-rate*psns/comes))
}

// comes is how many PSN/s a job's workers send at most if all but the bottleneck is free: as its limit and the slowest of their
// cables say.
func (b *problem) comes(f *flow.Job, neck flow.Bottleneck) float64 {
	rate := math.Inf(1)
	if f.Limit > 0 {
		rate = f.Limit
	}
	for _, n := range f.Nodes {
		if n.Switch == flow.None && n.Up != flow.None && (neck.Kind != flow.ByLink || neck.Index != n.Up) {
			rate = min(rate, b.Links[n.Up].Capacity)
		}
	}
	return rate / f.Packet
}

func (b *problem) job(j *JobPlan, f *flow.Job, r *flow.JobResult) JobPrediction {
	out := JobPrediction{Name: j.Name, WireRate: r.Rate, Spread: spread(r.RateSpread, r.Rate), Trip: f.RTT}
	if j.Collective == Ring {
		if n := float64(len(j.Workers)); n > 1 {
			out.Goodput = r.Rate / collectives.Duplex * n / (2 * (n - 1))
		}
	} else {
		out.Goodput = cmp.Or(r.Got, r.Rate) * b.c.frames(j.Name).Mean() / float64(b.c.FrameBytes())
		in := make([]float64, len(f.Nodes)) // packets per PSN that arrive at a node, or that were sent there
		narrow := 0.0                       // that cross the bottleneck
		share := slices.Clone(r.Share)
		if r.UpCame != nil { // with what is sent again
			sent := 0.0
			for k := range j.Workers {
				sent += r.Up[k] / float64(len(j.Workers))
			}
			out.WireRate *= sent
		}
		for k, n := range f.Nodes {
			up := 1.0
			switch {
			case in[k] == 0: // a worker, which is asked once
			case r.UpCame != nil && !f.Nodes[k].Aggregate:
				up = in[k]
			case r.UpCame != nil && f.Kind == flow.Statistical && f.Nodes[k].Parent != flow.None && !b.Damaged(f):
				came, psns := counted(j, f, r, k)
				if up, in[k] = r.Up[k], came/psns; in[k] > 1+1e-9 {
					share[k] = min(1, (came-up)/(came-psns))
				}
			case r.UpCame != nil && f.Kind == flow.Statistical && f.Nodes[k].Parent != flow.None:
				if up = r.Up[k]; in[k] > 1+1e-9 {
					share[k] = (in[k] - leaves(f, r, k)) / (in[k] - 1)
				}
			case r.UpCame != nil && f.Kind == flow.Synchronous && f.Nodes[k].Parent != flow.None:
				up = r.Up[k] // what switches have there, they all sum
			case len(r.Up) == 0 || f.Nodes[k].Parent == flow.None:
				up = in[k] - share[k]*(in[k]-1)
			default:
				up = r.Up[k]
				if f.Nodes[k].Aggregate && in[k] > 1+1e-9 {
					share[k] = min(1, (in[k]-up)/(in[k]-1))
				}
			}
			if parent := f.Nodes[k].Parent; parent != flow.None {
				in[parent] += up
			}
			if k := r.Bottleneck; k.Kind == flow.ByLink && k.Index == n.Up {
				narrow += up
			} else if k.Kind == flow.ByLink && k.Index == n.Down {
				narrow = 1 // results, once for all who wait beyond
			}
		}
		if f.Window > 0 {
			out.Queue = b.waiting(f, r) * narrow * f.Packet / 8
		}
		for i := range j.Tree {
			k := len(j.Workers) + i
			// A switch that only ever sees whole sums from below has no share to measure.
			if n := &f.Nodes[k]; n.Aggregate && in[k] > 1+1e-9 {
				s := SharePrediction{Switch: j.Tree[i].Switch, Share: share[k], Granted: r.Share[k], In: in[k], Hold: n.Hold}
				if r.Up != nil {
					s.Up = r.Up[k]
				}
				if r.ShareSpread != nil && r.ShareSpread[k] > leastSpread {
					s.Spread = r.ShareSpread[k]
				}
				out.Shares = append(out.Shares, s)
			}
		}
	}
	switch k := r.Bottleneck; k.Kind {
	case flow.ByLink:
		out.Bottleneck = b.topo.Links[k.Index].Name
	case flow.BySwitch:
		out.Bottleneck = b.inv.Switches[k.Index].Name + " aggregators"
	case flow.ByLimit:
		out.Bottleneck = "rate limit"
	case flow.ByWindow:
		out.Bottleneck = "window"
	default:
		out.Bottleneck = "none"
	}
	if t := b.pausing(f); t != nil {
		if waits := t.limits(r.Rate, packetBits(f)); waits != "" {
			out.Bottleneck, out.Sending = waits, out.Bottleneck
		}
	}
	return out
}

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/inabench/inabench/internal/blame"
	"github.com/inabench/inabench/inventory"
	"github.com/inabench/inabench/placement"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/flow"
	"github.com/inabench/inabench/results"
	"github.com/inabench/inabench/testbed"
	"github.com/inabench/inabench/testbed/ina"
)

const none = -1

// job is one job of a deployment. Its unit is the PSN: what every worker sends one
// packet of (for a ring, one TCP segment).
type job struct {
	plan     placement.JobPlan
	nodes    []node // workers, switches, PS: children before parents
	uses     []use  // of links
	frame    float64
	full     float64 // gradient bytes that fill a PSN of a tree
	good     float64 // gradient bytes reduced per PSN, in the mean over iterations: the last one of each is padded
	limit    float64 // PSN/s; 0: none
	window   float64 // packets; 0: none
	slots    int     // atp addressing: W; 0: as many as the window
	aimd     bool
	rtt      float64 // seconds, with empty queues
	steady   float64 // PSN/s of streams whose packets were followed; 0: not known
	timeout  float64 // s, the least after which it sends again
	again    float64 // packets that a worker sends again per PSN
	unicast  bool    // the PS answers every worker separately
	circle   *circle // of a ring; nil: it is none
	local    bool    // all on one host: it only computes
	halted   bool    // synchronous, and without memory
	grant    placement.Grant
	started  bool
	running  bool
	done     chan struct{}
	msg      message
	cwnd     float64
	cutUntil float64 // no second halving before
	free     float64 // PSN/s that its window and its rate limit allow
	want     float64 // PSN/s it would send if no link were overloaded
	rate     float64 // PSN/s
	backlog  float64 // PSNs that wait in queues
	at       int     // use whose queue has the backlog, or none
	total    totals
}

// totals are a job's counters; those of its workers are all the same.
type totals struct {
	psns, rtts, rttSum, marks float64
	resends                   float64 // of each worker
	iterations                int64
	iterating, communicating  float64 // seconds
	arrived                   float64 // packets at the PS
}

// node is a worker, a switch or a PS of the job's tree.
type node struct {
	parent    int // index, or none
	up, down  int // uses of the links to and from the parent, or none
	name      string
	isSwitch  bool
	aggregate bool
	hold      float64 // seconds an aggregator is taken, with empty queues
	tenant    *tenant // of the switch's memory; nil: granted always
	mem       *memory

	in, out float64 // packets per PSN
	outward float64 // out as streams have it that are steady; 0: it follows from the share
	arrives float64 // what arrives at the PS of that, per PSN, over damaged links; 0: all
	below   float64 // workers
	held    bool    // the link to or from the parent holds the job back

	total struct{ in, out, granted, denied, hold, resends float64 }
}

// use is a job's use of a directed link.
type use struct {
	link   int
	weight float64 // packets per PSN
	acks   float64 // acknowledgements per PSN, of a ring
}

// bytes are those per PSN.
func (u use) bytes(frame float64) float64 { return u.weight*frame + u.acks*collectives.Ack }

// message is what a worker sends in one iteration, and where it is in it.
type message struct {
	layers     []layer // empty: a stream
	iterations int64   // 0: until stopped
	start      float64
	next       int     // layer
	left       float64 // PSNs of layers that are ready
	last       float64 // when the last result arrives, once all are sent; else 0
}

type layer struct {
	packets float64
	ready   float64 // seconds after the iteration's start
}

// newJob builds the tree of a job over the topology's links, and the counters.
func newJob(d *deployment, jp placement.JobPlan, w testbed.Workload) (*job, error) {
	s := d.setup.Settings
	j := &job{
		plan: jp, done: make(chan struct{}), aimd: w.Control == "aimd", at: none,
		frame: float64(ina.Overhead + 4*s.Lanes), full: float64(4 * s.Lanes), good: w.Frames(s.Lanes).Mean(),
		window: float64(w.Window), slots: w.Slots, timeout: w.RTO.Seconds(), unicast: jp.Collective == placement.PS,
	}
	if len(jp.Workers) == 0 {
		return nil, errors.New("no workers")
	}
	for _, wk := range jp.Workers {
		if _, ok := d.tb.inv.Host(wk.Host); !ok {
			return nil, fmt.Errorf("worker %d: no host %q", wk.Rank, wk.Host)
		}
	}
	if jp.Local() {
		j.compute(w)
		return j, nil
	}
	var err error
	if jp.Collective == placement.Ring {
		err = j.ring(d, w)
	} else {
		if s.Lanes <= 0 {
			return nil, fmt.Errorf("%d lanes", s.Lanes)
		}
		if w.Window <= 0 {
			return nil, fmt.Errorf("window of %d packets", w.Window)
		}
		err = j.tree(d)
		j.msg = newMessage(w, j.full)
	}
	if err != nil {
		return nil, err
	}
	j.limit = w.Rate / (8 * j.frame)
	j.cwnd = j.window
	if s.Mode == "synchronous" && d.setup.Grants != nil {
		j.take(d.setup.Grants[jp.Name])
	}
	j.msg.iterations = w.Iterations
	j.weigh()
	return j, nil
}

// take gives a job memory in synchronous mode.
func (j *job) take(g placement.Grant) {
	if j.local || j.plan.Collective != placement.INA {
		return
	}
	j.grant, j.halted = g, g.Window == 0
	if g.Window > 0 {
		j.window = float64(g.Window)
		if j.cwnd = min(j.cwnd, j.window); !j.aimd {
			j.cwnd = j.window
		}
	}
}

// compute makes j a job without traffic: an iteration is the computing of its layers.
func (j *job) compute(w testbed.Workload) {
	j.local, j.window, j.aimd = true, 0, false
	j.msg.iterations = w.Iterations
	var ready time.Duration
	for _, l := range w.Layers {
		ready += l.Compute
	}
	if ready > 0 || w.Iterations > 0 { // otherwise there is nothing to do
		j.msg.layers = []layer{{ready: ready.Seconds()}}
	}
}

func (j *job) tree(d *deployment) error {
	p := &j.plan
	if len(p.Tree) == 0 {
		return errors.New("has no tree")
	}
	at := map[string]int{}
	for i, n := range p.Tree {
		at[n.Switch] = len(p.Workers) + i
	}
	ps := len(p.Workers) + len(p.Tree)
	links, trips := make([]int, ps), make([]float64, ps) // of each node, to its parent
	for i := len(p.Tree) - 1; i >= 0; i-- {
		n := &p.Tree[i]
		links[len(p.Workers)+i] = none
		if n.Parent == "" && p.PS == "" {
			continue
		}
		l, ok := d.link(n.Switch, func(l inventory.DirectedLink) bool { return l.FromPort == n.UpPort })
		if !ok {
			return fmt.Errorf("switch %q has nothing at port %d", n.Switch, n.UpPort)
		}
		if n.Parent != "" {
			if _, ok = at[n.Parent]; !ok {
				return fmt.Errorf("tree lacks switch %q, the parent of %s", n.Parent, n.Switch)
			}
		} else if _, ok := d.tb.inv.Host(p.PS); !ok {
			return fmt.Errorf("PS: no host %q", p.PS)
		}
		links[len(p.Workers)+i], trips[len(p.Workers)+i] = l.Index, d.loop(l.Index, j.frame)
	}
	edge := func(n *node, link int) {
		n.up, n.down = none, none
		if link != none {
			n.up, n.down = j.use(link), j.use(d.topo.Links[link].Reverse)
		}
	}
	var far flow.Job
	for _, w := range p.Workers {
		l, ok := d.link(w.Host, func(l inventory.DirectedLink) bool {
			_, in := at[l.To]
			return in && (w.NIC == "" || l.NIC == w.NIC)
		})
		if !ok {
			return fmt.Errorf("worker %d: host %s has no NIC %q at a switch of the tree", w.Rank, w.Host, w.NIC)
		}
		n, trip := node{parent: at[l.To], name: w.Host}, d.loop(l.Index, j.frame)
		edge(&n, l.Index)
		if p.Beside(w) {
			n.down, trip = none, 0
		}
		far.Nodes = append(far.Nodes, flow.Node{Parent: n.parent, Trip: trip, Switch: flow.None})
		j.nodes = append(j.nodes, n)
	}
	for i, t := range p.Tree {
		k := len(p.Workers) + i
		n := node{
			parent: none, name: t.Switch, isSwitch: true,
			aggregate: t.Aggregate && p.Collective == placement.INA,
		}
		if t.Parent != "" {
			n.parent = at[t.Parent]
		} else if p.PS != "" {
			n.parent = ps
		}
		edge(&n, links[k])
		sums := flow.Node{Parent: n.parent, Trip: trips[k], Switch: flow.None, Aggregate: n.aggregate}
		if n.aggregate {
			sums.Switch = 0
		}
		far.Nodes = append(far.Nodes, sums)
		if n.aggregate {
			if err := d.occupy(j, &n); err != nil {
				return err
			}
		}
		j.nodes = append(j.nodes, n)
	}
	if p.PS != "" {
		j.nodes = append(j.nodes, node{parent: none, up: none, down: none, name: p.PS})
		far.Nodes = append(far.Nodes, flow.Node{Parent: flow.None, Switch: flow.None})
	}
	// An aggregator is taken from the first packet on, and some workers may be nearer.
	holds, rtt := flow.Holds(&far)
	for i := range j.nodes {
		j.nodes[i].hold = holds[i]
	}
	j.rtt = rtt
	return nil
}

// occupy gives a job its part of a switch's memory.
func (d *deployment) occupy(j *job, n *node) error {
	s := d.setup.Settings
	sw, ok := d.tb.inv.Switch(n.name)
	if !ok {
		return fmt.Errorf("no switch %q in the inventory", n.name)
	}
	if s.Mode == "synchronous" {
		if d.setup.Grants != nil {
			return nil
		}
		base, _, err := d.regions.Take(sw, j.plan.Name, int(j.window))
		if j.grant.Base == nil {
			j.grant = placement.Grant{Window: int(j.window), Base: map[string]int{}}
		}
		j.grant.Base[n.name] = base
		return err
	}
	m := placement.Aggregators(sw, s.Aggregators)
	if d.memories[n.name] == nil {
		d.memories[n.name] = &memory{pooled: addressings[s.Addressing] == pool, until: make([]float64, m), rng: d.rng}
		d.switches = append(d.switches, n.name)
	}
	n.mem = d.memories[n.name]
	n.tenant = &tenant{share: 1, addressing: addressings[j.plan.Addressing(n.name, s.Addressing)]}
	if n.tenant.addressing == linear && m > 0 {
		n.tenant.offset = rand.New(rand.NewPCG(s.Seed, uint64(j.plan.ID))).IntN(m)
	}
	if n.tenant.addressing == atp && m > 0 {
		w := j.slots
		if w == 0 {
			w = min(int(j.window), m)
		}
		slots, err := ina.ATPSlots(j.plan.ID, w, m)
		if err != nil {
			return blame.Switch(n.name, err)
		}
		n.tenant.slots = slots
	}
	n.mem.tenants = append(n.mem.tenants, n.tenant)
	return nil
}

// use is the index of the job's use of a link.
func (j *job) use(link int) int {
	i := slices.IndexFunc(j.uses, func(u use) bool { return u.link == link })
	if i < 0 {
		i = len(j.uses)
		j.uses = append(j.uses, use{link: link})
	}
	return i
}

// newMessage cuts layers into packets as the agent does: bytes follow each other,
// a packet that two layers share is ready with the later one, the last is padded.
func newMessage(w testbed.Workload, size float64) message {
	var m message
	in := w.Layers
	if len(in) == 0 && w.Message > 0 {
		in = []testbed.Layer{{Bytes: w.Message}}
	}
	var bytes, packets int64
	var ready time.Duration
	for i, l := range in {
		bytes += l.Bytes
		ready += l.Compute
		whole := int64(float64(bytes) / size)
		if float64(whole)*size < float64(bytes) && i == len(in)-1 {
			whole++
		}
		if i == len(in)-1 {
			whole = max(whole, 1)
		}
		m.layers = append(m.layers, layer{float64(whole - packets), ready.Seconds()})
		packets = whole
	}
	return m
}

// cut is newMessage for a ring, which sends its vector as bytes: of whole values, but not of whole
// packets of so many bytes.
func cut(w testbed.Workload, size float64) (m message) {
	in := w.Layers
	if len(in) == 0 {
		in = []testbed.Layer{{Bytes: w.Message}}
	}
	var ready time.Duration
	for _, l := range in {
		ready += l.Compute
		m.layers = append(m.layers, layer{float64(collectives.Values(l.Bytes)) / size, ready.Seconds()})
	}
	return m
}

// advance takes the job past everything that is due at now: layers that are ready,
// iterations that end.
func (j *job) advance(now float64) {
	if j.circle != nil {
		j.advanceRing(now)
		return
	}
	m := &j.msg
	for j.running && len(m.layers) > 0 {
		switch {
		case m.next < len(m.layers) && m.start+m.layers[m.next].ready <= now:
			m.left += m.layers[m.next].packets
			m.next++
		case m.next < len(m.layers) || m.left > 0:
			return
		case j.local:
			j.iterated(m.start + m.layers[0].ready)
		case m.last == 0:
			// The first packet's transmission is in the round trip already.
			m.last = now
			if j.rate > 0 {
				m.last += max(0, j.rtt-1/j.rate)
			}
		case m.last > now:
			return
		default:
			j.iterated(m.last)
		}
	}
}

// iterated ends an iteration at t, and begins the next if there is one.
func (j *job) iterated(t float64) {
	m := &j.msg
	j.total.iterations++
	j.total.iterating += t - m.start
	for _, l := range m.layers {
		if l.packets > 0 {
			j.total.communicating += t - m.start - l.ready
			break
		}
	}
	if j.total.iterations == m.iterations {
		j.stop()
		return
	}
	m.start, m.next, m.last = t, 0, 0
}

// event is when advance has to be called next; not ok when only sending brings it.
func (j *job) event() (float64, bool) {
	m := &j.msg
	switch {
	case m.last > 0:
		return m.last, true
	case j.circle != nil && j.circle.reducing: // what is ready next waits for that
	case m.next < len(m.layers):
		return m.start + m.layers[m.next].ready, true
	}
	return 0, false
}

// sends reports whether the job has something to send.
func (j *job) sends() bool {
	return j.running && !j.local && !j.halted && (len(j.msg.layers) == 0 || j.msg.left > 0)
}

func (j *job) stop() {
	if j.running || !j.started {
		close(j.done)
	}
	j.started, j.running = true, false
	j.rate, j.backlog = 0, 0
}

// weigh computes packets per PSN at every node and on every link from the shares.
func (j *job) weigh() {
	if len(j.nodes) == 0 {
		return // a ring's stay
	}
	for i := range j.uses {
		j.uses[i].weight = 0
	}
	for i := range j.nodes {
		j.nodes[i].in, j.nodes[i].below = 0, 0
	}
	for i := range j.nodes {
		n := &j.nodes[i]
		switch {
		case !n.isSwitch && n.parent != none:
			n.out, n.below = 1, 1
			if n.down == none { // its PS is on its host
				n.below = 0
			}
		case n.outward > 0:
			n.out = n.outward
		case n.aggregate:
			a := n.share()
			n.out = a + (1-a)*n.in
		default:
			n.out = n.in
		}
		if n.parent != none {
			j.nodes[n.parent].in += n.out
			j.nodes[n.parent].below += n.below
		}
		if n.up != none {
			j.uses[n.up].weight += n.out
			switch {
			case n.down == none:
			case j.unicast:
				j.uses[n.down].weight += n.below
			default:
				j.uses[n.down].weight++
			}
		}
	}
}

func (n *node) share() float64 {
	if n.tenant == nil {
		return 1
	}
	return n.tenant.share
}

// wait is how much longer than without queues node k's aggregators are taken, when
// packets wait for the given time where the job is held back. A queue that all
// workers of k have below it delays them alike, and k sees nothing of it.
func (j *job) wait(k int, queued float64) float64 {
	for n := k; n != none; n = j.nodes[n].parent {
		if j.nodes[n].held {
			return queued
		}
	}
	for i := range j.plan.Workers {
		held := false
		n := i
		for ; n != none && n != k; n = j.nodes[n].parent {
			held = held || j.nodes[n].held
		}
		if n == k && !held {
			return queued
		}
	}
	return 0
}

// count adds a step of h seconds to the job's counters and returns the PSNs reduced
// in it.
func (j *job) count(h float64) float64 {
	psns := j.rate * h
	if len(j.msg.layers) > 0 {
		if psns = min(psns, j.msg.left); j.msg.left-psns < 1e-6 {
			psns = j.msg.left
		}
		j.msg.left -= psns
	}
	if psns == 0 {
		return 0
	}
	queued := j.backlog / j.rate
	j.total.psns += psns
	j.total.resends += psns * j.again
	if j.circle == nil { // of TCP nobody measures round trips
		j.total.rtts += psns
		j.total.rttSum += psns * (j.rtt + queued)
	}
	for i := range j.nodes {
		n := &j.nodes[i]
		n.total.in += psns * n.in
		n.total.out += psns * n.out
		n.total.resends += psns * j.again * n.below
		if n.aggregate {
			granted := psns * n.share()
			n.total.granted += granted
			n.total.denied += psns - granted
			n.total.hold += granted * (n.hold + j.wait(i, queued))
		}
	}
	if j.plan.PS != "" {
		j.total.arrived += psns * cmp.Or(j.nodes[len(j.nodes)-1].arrives, j.nodes[len(j.nodes)-1].in)
	}
	return psns
}

// summary is what the job has to say of itself.
func (j *job) summary() results.JobSummary {
	n := float64(len(j.plan.Workers))
	s := results.JobSummary{
		Job: j.plan.Name, Workers: len(j.plan.Workers), Local: j.local, Iterations: j.total.iterations,
		Packets: int64(math.Round((j.total.psns + j.total.resends) * n)), Resends: int64(math.Round(j.total.resends * n)), JCT: j.total.iterating,
	}
	if j.total.communicating > 0 {
		packets := 0.0 // of an iteration: of the one under way, neither these nor its time count
		for _, l := range j.msg.layers {
			packets += l.packets
		}
		s.AlgBW = 8 * packets * j.good * float64(j.total.iterations) / j.total.communicating
		s.BusBW = s.AlgBW * 2 * (n - 1) / n
	}
	return s
}

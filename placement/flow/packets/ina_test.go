package packets

import (
	"cmp"
	"container/heap"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/inabench/inabench/internal/proof"
	"github.com/inabench/inabench/testbed/ina"
)

var (
	seed     = flag.Uint64("seed", 1, "seed of random settings")
	settings = flag.Int("settings", 2, "how many random settings are run against testbed/ina")
)

// runs is how many random settings a test runs: with -short one, since it takes millions of events, which the race
// detector slows down tenfold.
func runs() int {
	if !proof.Wanted() {
		return min(1, *settings)
	}
	return *settings
}

// protocol is a network in which the packets are real: the switches, workers and
// parameter servers of testbed/ina, in virtual time, with cables and senders' schedules
// that this test has of its own. Nothing of the model is in it.
type protocol struct {
	n        *Network
	now      time.Duration
	todo     todo
	serial   int
	switches []*ina.Switch
	jobs     []*protocolJob
	cables   []*cable
	rnd      *rand.Rand
}

type protocolJob struct {
	in      *Job
	id      uint16
	expect  []uint64
	child   [][]int
	ps      *ina.PS
	workers []*sender
	up      []int   // by node, packets that it sends to its parent
	came    []int   // and that come there
	down    []int   // results that the parent sends to it
	got     []int   // and that come
	done    int     // PSNs
	opened  float64 // when the last worker opened its window
}

// sender is a worker and its schedule, as testbed/agent keeps it.
type sender struct {
	w      *ina.Worker
	node   int
	gap, u float64 // ns
	at     time.Duration
	waits  bool
	opened time.Duration
	begun  bool
	left   int // layers of its iteration that are not there yet
	woken  bool
	alarm  time.Duration // when it looks whether to send again; 0: never
	paced  time.Duration // no resend before
}

type cable struct {
	rate   float64
	damage Damage
	queues map[int][]func() // by job: transmissions' ends
	ring   []int
	busy   bool
	sent   float64 // bits, see crossed
}

type event struct {
	at     time.Duration
	serial int
	do     func()
}

type todo []event

func (t todo) Len() int { return len(t) }
func (t todo) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(t[i].at, t[j].at), cmp.Compare(t[i].serial, t[j].serial)) < 0
}
func (t todo) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *todo) Push(x any)   { *t = append(*t, x.(event)) }
func (t *todo) Pop() any {
	e := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return e
}

func (p *protocol) after(s float64, do func()) {
	p.serial++
	heap.Push(&p.todo, event{p.now + time.Duration(s*1e9), p.serial, do})
}

// newProtocol is n with jobs that begin within a span, or at the times of a schedule, with the offsets that they have.
func newProtocol(t *testing.T, n *Network, rnd *rand.Rand, span float64, s *Schedule) *protocol {
	t.Helper()
	p := &protocol{n: n, rnd: rnd}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range n.Switches {
		own := 0 // aggregators that synchronous jobs have to themselves, behind those that others share
		for ji := range n.Jobs {
			for k := range n.Jobs[ji].Nodes {
				if n.Jobs[ji].Kind == Synchronous && n.Jobs[ji].Nodes[k].Switch == i {
					own += 2 * n.Jobs[ji].Window
				}
			}
		}
		p.switches = append(p.switches, ina.NewSwitch(m+own))
	}
	base := slices.Clone(n.Switches) // where the next such job's begin
	for i, r := range n.Links {
		c := &cable{rate: r, queues: map[int][]func(){}}
		if n.Damage != nil {
			c.damage = n.Damage[i]
		}
		p.cables = append(p.cables, c)
	}
	for ji := range n.Jobs {
		in := &n.Jobs[ji]
		j := &protocolJob{in: in, id: cmp.Or(in.ID, uint16(ji+1)), expect: make([]uint64, len(in.Nodes)), child: make([][]int, len(in.Nodes)),
			up: make([]int, len(in.Nodes)), came: make([]int, len(in.Nodes)), down: make([]int, len(in.Nodes)), got: make([]int, len(in.Nodes))}
		p.jobs = append(p.jobs, j)
		workers := 0
		for k := range in.Nodes {
			if len(j.child[k]) == 0 {
				j.expect[k] = 1 << workers
				workers++
			}
			if q := in.Nodes[k].Parent; q != None {
				j.expect[q] |= j.expect[k]
				j.child[q] = append(j.child[q], k)
			}
		}
		offset, begin := rnd.Float64(), rnd.Float64()*span
		if s != nil {
			offset, begin = in.Offset, s.Jobs[ji].Begin-rnd.Float64()*s.Jobs[ji].Within
			p.after(s.Jobs[ji].End, func() { // as a controller does
				last := uint64(0)
				for _, s := range j.workers {
					last = max(last, s.w.Hold())
				}
				for _, s := range j.workers {
					s.w.Pause(last, p.now)
					p.wake(ji, s)
				}
			})
		}
		jobSeed := rnd.Uint64()
		for k := range in.Nodes {
			nd := &in.Nodes[k]
			if len(j.child[k]) == 0 {
				wc := ina.WorkerConfig{Job: j.id, Rank: len(j.workers), Workers: workers, Lanes: 1, Window: in.Window, RTO: 1000 * time.Hour, Seed: jobSeed}
				if in.Timeout > 0 {
					wc.RTO = time.Duration(in.Timeout * 1e9)
				}
				if in.Kind == Synchronous {
					wc.Region = 2 * in.Window
				}
				if in.Slots > 0 {
					m := 0 // of the job's last switch, as hosts are told
					for _, o := range in.Nodes {
						if o.Switch != None {
							m = n.Switches[o.Switch]
						}
					}
					if m > 0 {
						slots, err := ina.ATPSlots(j.id, min(in.Slots, m), m)
						must(err)
						wc.Slots = slots
					}
				}
				w, err := ina.NewWorker(wc)
				must(err)
				s := &sender{w: w, node: k, gap: in.Gap * 1e9}
				if in.Gap == 0 && nd.Up != None {
					s.gap = in.Bits / n.Links[nd.Up] / 1.25 * 1e9
				}
				j.workers = append(j.workers, s)
			}
			if nd.Switch != None && in.Kind == Statistical {
				m := n.Switches[nd.Switch]
				must(p.switches[nd.Switch].SetJob(ina.JobEntry{
					Job: j.id, Mode: ina.Statistical, Addressing: ina.Addressing(nd.Addressing), Size: uint32(m), Offset: uint32(offset * float64(m)),
					Expect: j.expect[k], Window: uint32(in.Window),
				}))
			}
			if nd.Switch != None && in.Kind == Synchronous {
				must(p.switches[nd.Switch].SetJob(ina.JobEntry{
					Job: j.id, Mode: ina.Synchronous, Base: uint32(base[nd.Switch]), Size: uint32(2 * in.Window),
					Expect: j.expect[k], Window: uint32(in.Window), Root: nd.Parent == None,
				}))
				base[nd.Switch] += 2 * in.Window
			}
		}
		var err error
		j.ps, err = ina.NewPS(ina.PSConfig{Job: j.id, Workers: workers, Lanes: 1, Window: in.Window, Unicast: in.Kind == Unicast})
		must(err)
		p.after(max(0, begin), func() {
			for _, s := range j.workers {
				s.w.Allow(ina.Startup, p.now)
				p.wake(ji, s)
			}
		})
	}
	return p
}

// wake schedules a worker's next packet, if the window lets it send one.
func (p *protocol) wake(ji int, s *sender) {
	if s.woken {
		return
	}
	at, ok := p.due(ji, s)
	if !ok {
		return
	}
	s.woken = true
	p.after(max(0, (at-p.now).Seconds()), func() {
		s.woken, s.waits = false, false
		b := make([]byte, s.w.PacketLen())
		s.w.Send(p.now, b)
		p.up(ji, s.node, b)
		p.wake(ji, s)
		p.arm(ji, s)
	})
}

// arm has a worker look whether to send again when it may have to: resends never come faster than
// its rate, or its NIC, but for eight of them at once.
func (p *protocol) arm(ji int, s *sender) {
	at, ok := s.w.Deadline()
	if at = max(at, s.paced, p.now); !ok || s.alarm != 0 && s.alarm <= at {
		return
	}
	s.alarm = at
	p.after((at - p.now).Seconds(), func() {
		if s.alarm != at {
			return // it was set anew
		}
		s.alarm = 0
		for {
			d, ok := s.w.Deadline()
			if !ok || max(d, s.paced) > p.now {
				break
			}
			s.paced = max(s.paced, p.now-time.Duration(8*s.gap)) + time.Duration(s.gap)
			b := make([]byte, s.w.PacketLen())
			s.w.Resend(p.now, b)
			p.up(ji, s.node, b)
		}
		p.arm(ji, s)
	})
}

func (p *protocol) due(ji int, s *sender) (time.Duration, bool) {
	psn, opened, ok := s.w.Next()
	if !ok || s.waits && opened == s.opened {
		return s.at, ok
	}
	spacing := float64(s.w.Spacing())
	gap := max(s.gap, spacing/2)
	if !s.waits {
		s.u += gap
	}
	if o := float64(opened); o > s.u {
		s.u = o
		gap = max(s.gap, spacing)
	}
	delay := s.w.Dither(psn) * gap / 2
	if p.n.Jobs[ji].Gap > 0 {
		i := psn % ina.Block
		delay = (s.w.Scatter(psn / ina.Block)[i]*ina.Block - float64(i) + ina.Block) * s.gap
	}
	s.at = max(s.at, time.Duration(math.Round(s.u+delay)))
	s.waits, s.opened = true, opened
	return s.at, true
}

// cross takes a packet of a job over a link and a delay: queues by job take turns.
func (p *protocol) cross(ji, link int, host bool, delay float64, do func()) {
	if link == None {
		p.after(delay, do)
		return
	}
	c := p.cables[link]
	if size := p.n.Jobs[ji].Bits; host {
		c.sent += size
	} else {
		arrive := do
		do = func() {
			c.sent += size
			arrive()
		}
	}
	if len(c.queues[ji]) == 0 {
		c.ring = append(c.ring, ji)
	}
	c.queues[ji] = append(c.queues[ji], func() {
		d := c.damage
		lost, twice, late := p.rnd.Float64() < d.Loss, p.rnd.Float64() < d.Twice, p.rnd.Float64() < d.Late
		if lost {
			return
		}
		if twice {
			p.after(delay, do)
		}
		if late {
			delay += d.Delay
		}
		p.after(delay, do)
	})
	if !c.busy {
		p.transmit(c)
	}
}

func (p *protocol) transmit(c *cable) {
	ji := c.ring[0]
	c.ring = c.ring[1:]
	end := c.queues[ji][0]
	c.queues[ji] = c.queues[ji][1:]
	if len(c.queues[ji]) > 0 {
		c.ring = append(c.ring, ji)
	}
	c.busy = true
	p.after(p.n.Jobs[ji].Bits/c.rate, func() {
		end()
		if c.busy = len(c.ring) > 0; c.busy {
			p.transmit(c)
		}
	})
}

func (p *protocol) up(ji, k int, b []byte) {
	j := p.jobs[ji]
	j.up[k]++
	nd := &j.in.Nodes[k]
	p.cross(ji, nd.Up, len(j.child[k]) == 0, nd.Delay, func() {
		j.came[k]++
		p.arrive(ji, nd.Parent, k, slices.Clone(b))
	})
}

func (p *protocol) arrive(ji, k, from int, b []byte) {
	j := p.jobs[ji]
	nd := &j.in.Nodes[k]
	switch {
	case nd.Parent == None && j.in.Kind != Synchronous:
		before := j.ps.Stats().Completed
		result, to := j.ps.Receive(b)
		if result == nil {
			return
		}
		j.done += int(j.ps.Stats().Completed - before)
		result = slices.Clone(result)
		p.after(j.in.Answer, func() {
			if j.in.Kind != Unicast {
				p.multicast(ji, k, to, result)
				return
			}
			for w := range ina.Ranks(to) {
				p.multicast(ji, k, 1<<w, result)
			}
		})
	case nd.Switch == None || j.in.Kind == Unicast:
		p.up(ji, k, b)
	default:
		v := p.switches[nd.Switch].Process(uint32(from), b, p.now)
		for _, o := range v.Out[:v.N] {
			switch b := slices.Clone(o.Data); o.Dir {
			case ina.Up:
				p.up(ji, k, b)
			case ina.Back:
				p.back(ji, int(o.Port), j.expect[k], b)
			case ina.Down:
				j.done++
				p.multicast(ji, k, j.expect[k], b)
			}
		}
	}
}

func (p *protocol) multicast(ji, k int, to uint64, b []byte) {
	j := p.jobs[ji]
	for _, c := range j.child[k] {
		if j.expect[c]&to != 0 {
			p.back(ji, c, to, b)
		}
	}
}

// back sends a result to a node from its parent.
func (p *protocol) back(ji, k int, to uint64, b []byte) {
	j := p.jobs[ji]
	j.down[k]++
	nd := &j.in.Nodes[k]
	p.cross(ji, nd.Down, j.in.Kind != Synchronous && j.in.Nodes[nd.Parent].Parent == None, nd.Delay, func() {
		j.got[k]++
		p.down(ji, k, to, slices.Clone(b))
	})
}

func (p *protocol) down(ji, k int, to uint64, b []byte) {
	j := p.jobs[ji]
	nd := &j.in.Nodes[k]
	if len(j.child[k]) > 0 {
		if nd.Switch != None && j.in.Kind != Unicast {
			p.switches[nd.Switch].Process(0, b, p.now)
		}
		p.multicast(ji, k, to, b)
		return
	}
	for _, s := range j.workers {
		if s.node == k {
			s.w.Receive(b, p.now)
			if !s.begun && s.w.Idle() {
				s.begun = true
				j.opened = p.now.Seconds()
				if len(j.in.Layers) == 0 {
					s.w.Allow(ina.Endless, p.now)
				}
			}
			p.iterate(ji, s)
			p.wake(ji, s)
			p.arm(ji, s)
		}
	}
}

// iterate begins a worker's next iteration where it has all results of the one before.
func (p *protocol) iterate(ji int, s *sender) {
	layers := p.jobs[ji].in.Layers
	if !s.begun || len(layers) == 0 || s.left > 0 || !s.w.Idle() || s.w.Stopped() {
		return
	}
	s.left = len(layers)
	for _, l := range layers {
		allow := func() {
			s.w.Allow(int64(l.PSNs), p.now)
			s.left--
			p.wake(ji, s)
		}
		if l.Ready == 0 {
			allow()
			continue
		}
		p.after(l.Ready, allow)
	}
}

func (p *protocol) run(until time.Duration) {
	for len(p.todo) > 0 && p.todo[0].at < until {
		e := heap.Pop(&p.todo).(event)
		p.now = e.at
		e.do()
	}
	p.now = until
}

// figures are how many counts there are of a node.
const figures = 6

// counts are what a run has counted: by job PSNs, and by node packets up, granted, decided, packets
// that came to the parent, results sent to it and received.
func (p *protocol) counts() [][]float64 {
	var out [][]float64
	for _, j := range p.jobs {
		row := []float64{float64(j.done)}
		for k := range j.in.Nodes {
			g, d := 0.0, 0.0
			if s := j.in.Nodes[k].Switch; s != None && j.in.Kind == Statistical {
				c := p.switches[s].Counters(j.id)
				g, d = float64(c.Granted.Packets), float64(c.Granted.Packets+c.Denied.Packets)
			}
			row = append(row, float64(j.up[k]), g, d, float64(j.came[k]), float64(j.down[k]), float64(j.got[k]))
		}
		out = append(out, row)
	}
	return out
}

// crossed are the bits of each link, a host's as it hands them over and others as they come out, as a row of counts.
func (p *protocol) crossed() [][]float64 {
	row := make([]float64, len(p.cables))
	for l, c := range p.cables {
		row[l] = c.sent
	}
	return [][]float64{row}
}

// randomNetwork is one to three racks of four hosts, whose switches may hang on one that
// aggregates too, with one to four jobs.
func randomNetwork(rnd *rand.Rand) *Network {
	n := &Network{}
	racks := 1 + rnd.IntN(3)
	pick := func(v ...float64) float64 { return v[rnd.IntN(len(v))] }
	const hosts = 4
	m := 32 + rnd.IntN(300)
	equal := rnd.IntN(2) == 0
	for range racks + 1 { // the last is the core
		if !equal {
			m = 32 + rnd.IntN(300)
		}
		n.Switches = append(n.Switches, m)
	}
	address := Addressing(rnd.IntN(4))
	three := rnd.IntN(3) == 0
	const line = 1000
	for range 2 * racks * hosts {
		n.Links = append(n.Links, line*pick(1, 1, 1, .6))
	}
	core := len(n.Links)
	for range 2 * racks {
		n.Links = append(n.Links, line*pick(1, 1, 2))
	}
	hop := pick(.01, .05, .1)
	shared := 1 + rnd.IntN(4)
	for ji := range shared {
		j := Job{Bits: 1, Window: 16 << rnd.IntN(4), ID: uint16(ji + 1)}
		if rnd.IntN(6) == 0 {
			j.Kind = Unicast
		}
		perm := rnd.Perm(racks * hosts)
		workers := perm[:2+rnd.IntN(min(4, len(perm)-1))]
		ps := perm[rnd.IntN(len(perm))]
		root := ps / hosts
		far := map[int]int{} // rack -> node
		for _, w := range workers {
			if r := w / hosts; r != root {
				far[r] = -1
			}
		}
		at := len(workers)
		for r := range racks {
			if _, ok := far[r]; ok {
				far[r] = at
				at++
			}
		}
		spine := -1
		if len(far) > 0 {
			spine = at
			at++
		}
		top := at
		for _, w := range workers {
			parent := top
			if r := w / hosts; r != root {
				parent = far[r]
			}
			j.Nodes = append(j.Nodes, Node{Parent: parent, Up: 2 * w, Down: 2*w + 1, Switch: None, Delay: hop})
		}
		for r := range racks {
			if _, ok := far[r]; ok {
				j.Nodes = append(j.Nodes, Node{Parent: spine, Up: core + 2*r, Down: core + 2*r + 1, Switch: r, Addressing: address, Delay: hop})
			}
		}
		below := address
		if below == ATP {
			below = Hash
		}
		if spine >= 0 {
			s := None
			if three {
				s = racks
			}
			j.Nodes = append(j.Nodes, Node{Parent: top, Up: core + 2*root + 1, Down: core + 2*root, Switch: s, Addressing: below, Delay: hop})
		} else {
			below = address
		}
		j.Nodes = append(j.Nodes,
			Node{Parent: top + 1, Up: 2*ps + 1, Down: 2 * ps, Switch: root, Addressing: below, Delay: hop},
			Node{Parent: None, Up: None, Down: None, Switch: None})
		if j.Kind == Unicast {
			for k := range j.Nodes {
				j.Nodes[k].Switch = None
			}
		}
		j.Slots = j.Window
		if rnd.IntN(2) == 0 {
			j.Gap = 1 / (line * (.1 + .5*rnd.Float64()) / float64(shared))
		}
		n.Jobs = append(n.Jobs, j)
	}
	return n
}

// damaged is a random network whose links, all or some of them, lose packets, and of which some
// have two made of one or come late. A job of three that aggregates has no parameter server.
func damaged(rnd *rand.Rand) *Network {
	n := randomNetwork(rnd)
	n.Damage = make([]Damage, len(n.Links))
	loss := math.Pow(10, -3+2*rnd.Float64())
	all := rnd.IntN(2) == 0
	var twice, late float64
	if rnd.IntN(3) == 0 {
		twice, late = .05*rnd.Float64(), .05*rnd.Float64()
	}
	for i := range n.Damage {
		if all || rnd.IntN(3) == 0 {
			n.Damage[i] = Damage{Loss: loss, Twice: twice, Late: late, Delay: .02}
		}
	}
	resends(n, rnd)
	return n
}

// resends gives jobs timeouts, and a third of those that aggregate no parameter server.
func resends(n *Network, rnd *rand.Rand) {
	var backlog float64 // s, of all windows at a link
	for ji := range n.Jobs {
		backlog += float64(n.Jobs[ji].Window) / 600
	}
	for ji := range n.Jobs {
		j := &n.Jobs[ji]
		if j.Kind == Statistical && rnd.IntN(3) == 0 {
			j.Kind = Synchronous
			j.Nodes = j.Nodes[:len(j.Nodes)-1]
			root := &j.Nodes[len(j.Nodes)-1]
			root.Parent, root.Up, root.Down = None, None, None
		}
		j.Timeout = .02 + 2*newModel(n).jobs[ji].trip() + backlog*rnd.Float64()
	}
}

// observe is what runs of a network with real packets count in a second, and what they leave open
// of it: two standard errors. Where r is the model's result, rows are those of counts; where links
// lose packets, what is counted of nodes is per PSN.
func observe(t *testing.T, n *Network, r *Result, rnd *rand.Rand, runs int) (mean, open [][]float64) {
	t.Helper()
	psns := 800. // of the slowest job
	if n.Damage != nil {
		psns = 4000
	}
	span := newModel(n).span()
	warm, slowest := max(6*span, r.Settled), 0.0
	for ji := range r.Jobs {
		warm = max(warm, 8*float64(n.Jobs[ji].Window)/r.Jobs[ji].Rate)
		slowest = max(slowest, 1/r.Jobs[ji].Rate)
	}
	length := max(warm/2, psns*slowest)
	var of tally
	for range runs {
		p := newProtocol(t, n, rnd, span, nil)
		p.run(time.Duration(warm * 1e9))
		before := p.counts()
		p.run(p.now + time.Duration(length*1e9))
		of.add(p.counts(), before, length, n.Damage != nil)
	}
	return of.mean, of.open()
}

// tally is the mean of what runs count in a second, by job and count, and the sum of squares about it.
type tally struct {
	runs          float64
	mean, squares [][]float64
}

// add is what a run has counted between two times, a length apart. Per PSN, all but the PSNs themselves is.
func (t *tally) add(got, before [][]float64, length float64, perPSN bool) {
	t.runs++
	for ji, row := range got {
		if ji == len(t.mean) {
			t.mean, t.squares = append(t.mean, make([]float64, len(row))), append(t.squares, make([]float64, len(row)))
		}
		for k := range row { // Welford 1962
			v := (row[k] - before[ji][k]) / length
			if k > 0 && perPSN {
				v /= max(1, row[0]-before[ji][0]) / length
			}
			d := v - t.mean[ji][k]
			t.mean[ji][k] += d / t.runs
			t.squares[ji][k] += d * (v - t.mean[ji][k])
		}
	}
}

// open is what the runs leave open of the mean: two standard errors.
func (t *tally) open() [][]float64 {
	out := make([][]float64, len(t.squares))
	for ji, row := range t.squares {
		for _, squares := range row {
			out[ji] = append(out[ji], 2*math.Sqrt(squares/t.runs/(t.runs-1)))
		}
	}
	return out
}

// TestAgainstProtocol runs random settings with the packets of testbed/ina and holds the
// model to what is counted there, beyond what the few runs of that leave open of a mean.
// The figures of the package's documentation are those of
//
//	go test ./placement/flow/packets -run TestAgainstProtocol -v -settings 100 -seed 1 -timeout 1h
func TestAgainstProtocol(t *testing.T) { against(t, randomNetwork) }

// TestLossAgainstProtocol is TestAgainstProtocol over links that lose packets.
func TestLossAgainstProtocol(t *testing.T) { against(t, damaged) }

// misses are by how much figures of the model are off what real packets have, beyond what few runs leave open.
type misses []miss

type miss struct {
	off  float64
	what string
}

func (m *misses) add(off, open float64, format string, args ...any) {
	*m = append(*m, miss{math.Copysign(max(0, math.Abs(off)-open), off), fmt.Sprintf(format, args...)})
}

// judge holds misses to what is promised: 95 % within so much, and a mean of .02.
func (m misses) judge(t *testing.T, name string, within float64) {
	t.Helper()
	if len(m) == 0 {
		return
	}
	slices.SortFunc(m, func(a, b miss) int { return cmp.Compare(math.Abs(b.off), math.Abs(a.off)) })
	mean, inside := 0.0, 0
	for _, f := range m {
		mean += math.Abs(f.off) / float64(len(m))
		if math.Abs(f.off) <= within {
			inside++
		}
	}
	part := float64(inside) / float64(len(m))
	t.Logf("%s: %d figures, mean %.4f, %.1f %% within %v", name, len(m), mean, 100*part, within)
	for _, f := range m[:min(5, len(m))] {
		t.Logf("   off by %.4f: %s", f.off, f.what)
	}
	if outside := len(m) - inside; part < .95 && outside > 1 || mean > .02 {
		t.Errorf("%s: 95 %% within %v and a mean of .02 were promised", name, within)
	}
}

// against holds the model to real packets in the random settings that the flags ask for.
func against(t *testing.T, draw func(*rand.Rand) *Network) {
	s := *seed // the same few settings every time: the bar is one for hundreds of figures
	t.Logf("-seed=%d", s)
	var shares, rates, ups, downs misses
	var spent time.Duration
	for i := range runs() {
		rnd := rand.New(rand.NewPCG(s, uint64(i)))
		n := draw(rnd)
		began := time.Now()
		events := 1.2e6
		if n.Damage != nil {
			events = 6e6
		}
		r, ok := Run(t.Context(), n, Limits{Seed: 1, Error: .003, Events: int(events)})
		spent += time.Since(began)
		if !ok {
			t.Errorf("setting %d: the model has no result", i)
			continue
		}
		mean, open := observe(t, n, r, rnd, 6)
		for ji := range mean {
			in, out := &n.Jobs[ji], &r.Jobs[ji]
			what := fmt.Sprintf("setting %d job %d (%d runs)", i, ji, r.Runs)
			rate := mean[ji][0]
			off, per, unsure := out.Rate/rate-1, out.Rate, 0.0
			if n.Damage != nil {
				unsure, per = math.Hypot(open[ji][0], 2*out.RateError)/rate, 1
			}
			psns := rate / out.Rate * per
			rates.add(off, unsure, "%s: rate %.4g +- %.2g, protocol %.4g +- %.2g", what, out.Rate, 2*out.RateError, rate, open[ji][0])
			inPSN := make([]float64, len(in.Nodes)) // packets per PSN that come to a node
			inReal := make([]float64, len(in.Nodes))
			for k := range in.Nodes {
				at := 1 + figures*k
				u, g, d := mean[ji][at], mean[ji][at+1], mean[ji][at+2]
				if p := in.Nodes[k].Parent; p != None {
					inPSN[p] += out.Up[k]
					inReal[p] += u / psns
					here := fmt.Sprintf("%s node %d", what, k)
					rated := func(to *misses, what string, model, real, open float64) {
						if real > 0 {
							to.add(model/real-1, open/real, "%s: %s %.4g, protocol %.4g", here, what, model, real)
						}
					}
					rated(&ups, "sends up", per*out.Up[k], u, open[ji][at])
					if in.Timeout > 0 {
						rated(&ups, "of that comes", per*out.UpCame[k], mean[ji][at+3], open[ji][at+3])
						rated(&downs, "is sent down", per*out.Down[k], mean[ji][at+4], open[ji][at+4])
						rated(&downs, "of that gets", per*out.DownCame[k], mean[ji][at+5], open[ji][at+5])
					}
				}
				if d > 0 {
					shares.add(out.Share[k]-g/d, open[ji][at+1]/d, "%s node %d: granted %.4f +- %.4f, protocol %.4f +- %.4f", what, k, out.Share[k], 2*out.ShareError[k], g/d, open[ji][at+1]/d)
				}
				if in.Timeout > 0 && in.Nodes[k].Switch != None && in.Nodes[k].Parent != None && inReal[k] > 1.05 {
					model, real := (inPSN[k]-out.Up[k])/(inPSN[k]-1), (inReal[k]-u/psns)/(inReal[k]-1)
					shares.add(model-real, open[ji][at]/psns/(inReal[k]-1), "%s node %d: share %.4f, protocol %.4f +- %.4f", what, k, model, real, open[ji][at]/psns/(inReal[k]-1))
				}
			}
		}
	}
	t.Logf("%d settings in %v", runs(), spent)
	shares.judge(t, "share", .04)
	rates.judge(t, "rate", .05)
	ups.judge(t, "link", .05)
	downs.judge(t, "link down", .05)
}

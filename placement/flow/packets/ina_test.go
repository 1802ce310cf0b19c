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

	"github.com/inabench/inabench/testbed/ina"
)

var (
	seed     = flag.Uint64("seed", 1, "seed of random settings")
	settings = flag.Int("settings", 2, "how many random settings are run against testbed/ina")
)

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
}

type protocolJob struct {
	in      *Job
	id      uint16
	expect  []uint64
	child   [][]int
	ps      *ina.PS
	workers []*sender
	up      []int // by node, packets
	done    int   // PSNs
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
	woken  bool
}

type cable struct {
	rate   float64
	queues map[int][]func() // by job: transmissions' ends
	ring   []int
	busy   bool
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

func newProtocol(t *testing.T, n *Network, rnd *rand.Rand, span float64) *protocol {
	t.Helper()
	p := &protocol{n: n}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range n.Switches {
		p.switches = append(p.switches, ina.NewSwitch(m))
	}
	for _, r := range n.Links {
		p.cables = append(p.cables, &cable{rate: r, queues: map[int][]func(){}})
	}
	for ji := range n.Jobs {
		in := &n.Jobs[ji]
		j := &protocolJob{in: in, id: cmp.Or(in.ID, uint16(ji+1)), expect: make([]uint64, len(in.Nodes)), child: make([][]int, len(in.Nodes)), up: make([]int, len(in.Nodes))}
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
		offset := rnd.Float64()
		jobSeed := rnd.Uint64()
		for k := range in.Nodes {
			nd := &in.Nodes[k]
			if len(j.child[k]) == 0 {
				wc := ina.WorkerConfig{Job: j.id, Rank: len(j.workers), Workers: workers, Lanes: 1, Window: in.Window, RTO: 1000 * time.Hour, Seed: jobSeed}
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
		}
		var err error
		j.ps, err = ina.NewPS(ina.PSConfig{Job: j.id, Workers: workers, Lanes: 1, Window: in.Window, Unicast: in.Kind == Unicast})
		must(err)
		p.after(rnd.Float64()*span, func() {
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
func (p *protocol) cross(ji, link int, delay float64, do func()) {
	if link == None {
		p.after(delay, do)
		return
	}
	c := p.cables[link]
	if len(c.queues[ji]) == 0 {
		c.ring = append(c.ring, ji)
	}
	c.queues[ji] = append(c.queues[ji], func() { p.after(delay, do) })
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
	p.cross(ji, nd.Up, nd.Delay, func() { p.arrive(ji, nd.Parent, b) })
}

func (p *protocol) arrive(ji, k int, b []byte) {
	j := p.jobs[ji]
	nd := &j.in.Nodes[k]
	switch {
	case nd.Parent == None:
		result, to := j.ps.Receive(b)
		if result == nil {
			return
		}
		j.done++
		result = slices.Clone(result)
		p.after(j.in.Answer, func() {
			if j.in.Kind != Unicast {
				p.multicast(ji, k, to, result)
				return
			}
			for w := range j.workers {
				p.multicast(ji, k, 1<<w, result)
			}
		})
	case nd.Switch == None || j.in.Kind == Unicast:
		p.up(ji, k, b)
	default:
		v := p.switches[nd.Switch].Process(0, b, p.now)
		for _, o := range v.Out[:v.N] {
			p.up(ji, k, slices.Clone(o.Data))
		}
	}
}

func (p *protocol) multicast(ji, k int, to uint64, b []byte) {
	j := p.jobs[ji]
	for _, c := range j.child[k] {
		if j.expect[c]&to != 0 {
			nd := &j.in.Nodes[c]
			b := slices.Clone(b)
			p.cross(ji, nd.Down, nd.Delay, func() { p.down(ji, c, to, b) })
		}
	}
}

func (p *protocol) down(ji, k int, to uint64, b []byte) {
	j := p.jobs[ji]
	nd := &j.in.Nodes[k]
	if len(j.child[k]) > 0 {
		if nd.Switch != None && j.in.Kind == Statistical {
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
				s.w.Allow(ina.Endless, p.now)
			}
			p.wake(ji, s)
		}
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

// counts are what a run has counted: by job PSNs, and by node packets up, granted, decided.
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
			row = append(row, float64(j.up[k]), g, d)
		}
		out = append(out, row)
	}
	return out
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

// observe is what runs of a network with real packets count in a second, and what they leave open
// of it: two standard errors. Where r is the model's result, rows are those of counts.
func observe(t *testing.T, n *Network, r *Result, rnd *rand.Rand, runs int) (mean, open [][]float64) {
	t.Helper()
	span := newModel(n).span()
	warm, slowest := 6*span, 0.0
	for ji := range r.Jobs {
		warm = max(warm, 8*float64(n.Jobs[ji].Window)/r.Jobs[ji].Rate)
		slowest = max(slowest, 1/r.Jobs[ji].Rate)
	}
	length := max(warm/2, 800*slowest)
	for run := range runs {
		p := newProtocol(t, n, rnd, span)
		p.run(time.Duration(warm * 1e9))
		before := p.counts()
		p.run(p.now + time.Duration(length*1e9))
		got := p.counts()
		if run == 0 {
			for _, row := range got {
				mean, open = append(mean, make([]float64, len(row))), append(open, make([]float64, len(row)))
			}
		}
		for ji := range got {
			for k := range got[ji] { // Welford 1962; until the end, open is the sum of squares
				v := (got[ji][k] - before[ji][k]) / length
				d := v - mean[ji][k]
				mean[ji][k] += d / float64(run+1)
				open[ji][k] += d * (v - mean[ji][k])
			}
		}
	}
	for ji := range open {
		for k, squares := range open[ji] {
			open[ji][k] = 2 * math.Sqrt(squares/float64(runs)/float64(runs-1))
		}
	}
	return mean, open
}

// TestAgainstProtocol runs random settings with the packets of testbed/ina and holds the
// model to what is counted there, beyond what the few runs of that leave open of a mean.
// The figures of the package's documentation are those of
//
//	go test ./placement/flow/packets -run TestAgainstProtocol -v -settings 100 -seed 1 -timeout 1h
func TestAgainstProtocol(t *testing.T) {
	s := *seed // the same few settings every time: the bar is one for hundreds of figures
	t.Logf("-seed=%d", s)
	type miss struct {
		off  float64
		what string
	}
	var shares, rates, ups []miss
	var spent time.Duration
	for i := range *settings {
		rnd := rand.New(rand.NewPCG(s, uint64(i)))
		n := randomNetwork(rnd)
		began := time.Now()
		r, ok := Run(n, Limits{Seed: 1, Error: .003, Events: 1.2e6})
		spent += time.Since(began)
		if !ok {
			t.Errorf("setting %d: the model has no result", i)
			continue
		}
		mean, open := observe(t, n, r, rnd, 6)
		beyond := func(off, by float64) float64 { return math.Copysign(max(0, math.Abs(off)-by), off) }
		for ji := range mean {
			out := &r.Jobs[ji]
			what := fmt.Sprintf("setting %d job %d (%d runs)", i, ji, r.Runs)
			rate := mean[ji][0]
			rates = append(rates, miss{out.Rate/rate - 1, fmt.Sprintf("%s: rate %.4g, protocol %.4g", what, out.Rate, rate)})
			for k := range n.Jobs[ji].Nodes {
				at := 1 + 3*k
				u, g, d := mean[ji][at], mean[ji][at+1], mean[ji][at+2]
				if n.Jobs[ji].Nodes[k].Parent != None {
					ups = append(ups, miss{beyond(out.Rate*out.Up[k]/u-1, open[ji][at]/u), fmt.Sprintf("%s node %d: sends up %.4g, protocol %.4g", what, k, out.Rate*out.Up[k], u)})
				}
				if d > 0 {
					shares = append(shares, miss{beyond(out.Share[k]-g/d, open[ji][at+1]/d), fmt.Sprintf("%s node %d: share %.4f +- %.4f, protocol %.4f +- %.4f", what, k, out.Share[k], 2*out.ShareError[k], g/d, open[ji][at+1]/d)})
				}
			}
		}
	}
	t.Logf("%d settings in %v", *settings, spent)
	for _, of := range []struct {
		name         string
		of           []miss
		within, mean float64
	}{{"share", shares, .04, .02}, {"rate", rates, .05, .02}, {"link", ups, .05, .02}} {
		if len(of.of) == 0 {
			continue
		}
		slices.SortFunc(of.of, func(a, b miss) int { return cmp.Compare(math.Abs(b.off), math.Abs(a.off)) })
		mean, inside := 0.0, 0
		for _, m := range of.of {
			mean += math.Abs(m.off) / float64(len(of.of))
			if math.Abs(m.off) <= of.within {
				inside++
			}
		}
		part := float64(inside) / float64(len(of.of))
		t.Logf("%s: %d figures, mean %.4f, %.1f %% within %v", of.name, len(of.of), mean, 100*part, of.within)
		for _, m := range of.of[:min(5, len(of.of))] {
			t.Logf("   off by %.4f: %s", m.off, m.what)
		}
		if part < .95 || mean > of.mean {
			t.Errorf("%s: 95 %% within %v and a mean of %v were promised", of.name, of.within, of.mean)
		}
	}
}

package flow

import (
	"context"
	"errors"
	"math"
	"slices"
)

// ErrNoSteadyState is wrapped when Occupancy finds no rates and shares that agree
// with each other.
var ErrNoSteadyState = errors.New("no steady state found")

const (
	tolerance = 1e-9 // by which shares may still move when they count as found, if possible
	maxSteps  = 500
)

// Occupancy predicts what jobs get from a network of duplex links and addressed
// switch memory, when links are shared by per-job fair queues (DRR). Frames are lost where a link
// says so (Link.Damage), and nowhere else: buffers have room for all windows.
//
// Exact, by closed forms: max-min shares of links whose queues hold what windows allow;
// a memory that is never short; a hash that paced jobs meet at one switch of theirs each,
// 1/(1 + sum u) (see shares); ATP for one job. "Exact" is within .01 of a share and 2 % of a
// rate of what packets do (TestExactIsExact).
//
// Everything else is followed packet by packet, until shares are known to a standard
// error of .003 or 6 million events are used up, some 1 s: unequal jobs under linear and
// atp, levels of a tree (which decide alike where the same function addresses memories
// of the same size, and later for near workers than for far ones), memories that are short
// behind a queue, rate limits whose window is hardly enough, windows on links that are
// nearly full, links that lose frames, which are sent again after timeouts, rings of short messages where others cross their way,
// and rings, parameter servers and synchronous jobs beside all those. How near that is to the protocol itself
// stands in package packets.
//
// Unknown (Result.Lossless): what TCP makes of a ring's losses, and senders that change their windows
// because of them.
//
// Approximate, within some .1 of a share where memory is short: jobs that have neither
// a window nor a rate limit (as those with AIMD are put here), and networks of so many
// jobs that following them takes too long even with one packet for 64. They get the state of
// average loads: per PSN of a job, a switch with share a lets a + (1-a)*n packets through
// towards the PS where n entered, and one result comes down every link of the tree (one
// per worker below for Unicast). That makes a job's load on each directed link a multiple
// of its rate; at a saturated link no job is given less than another unless it asks for
// less. A share depends on the in-flight packets at the switch (see shares), which is
// C*T as long as queues are empty. A job that a saturated link holds back has its
// whole window in flight (Little's law): W - C*(RTT - T) of it is between this
// switch, the PS and back, except where the queue is below the switch for all of
// the job's workers. (Where only some workers queue, the others' packets come
// early and hold aggregators for the slow ones.) If the queue may be in several
// places it is taken to be nearest the PS, where partial aggregation puts it.
//
// Rates and shares follow from each other. The iteration starts from empty queues
// and full aggregation, so where both a state with and one without standing
// queues would last, it finds the one that a paced job reaches. Where jobs hold each
// other back at several links at once, with equal capacities and whole numbers of
// packets, their division can be left open; then ErrNoSteadyState is possible, in
// tests for less than one in 10,000 random problems made of such ties. Following packets takes seconds,
// and ends with ctx, of which there is then the error.
func Occupancy(ctx context.Context, p *Problem) (*Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r, err := average(p)
	if err == nil && exact(p, r) {
		return r, nil
	}
	f := follow(ctx, p, r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case f != nil:
		return f, nil
	}
	if r != nil {
		r.Approximate = true
		r.Lossless = slices.ContainsFunc(p.Jobs, func(j Job) bool { return p.Damaged(&j) })
	}
	return r, err
}

// average is the steady state of average loads, from the closed forms of shares.
func average(p *Problem) (*Result, error) {
	o := newOccupancy(p)
	// Shares that go on swinging a little, between solutions that are as good, are
	// taken when nothing else helps.
	for _, try := range []struct{ ramp, swing float64 }{
		{0.005, tolerance}, {0.02, tolerance}, {0.1, tolerance}, {0.5, tolerance}, {0.02, 0.002}, {0.5, 0.01},
	} {
		o.ramp = try.ramp
		if o.solve(try.swing) {
			return o.result(), nil
		}
	}
	return nil, ErrNoSteadyState
}

// use is a job's use of one directed link.
type use struct {
	job, link int
	weight    float64 // packets per PSN
}

type occupancy struct {
	p     *Problem
	first []int // job -> its first node
	share []float64
	exit  []float64 // node -> packets per PSN it sends up
	below []float64 // node -> workers below to whom results pass it

	uses     []use
	perJob   []int   // job -> its first use
	perLink  [][]int // link -> uses
	up, down []int   // node -> use of the link to and from its parent, or -1

	atSwitch [][]int // switch -> nodes that compete for its memory
	owner    []int   // node -> job

	level    []float64 // link -> the most a job may load it with
	before   []float64 // and a sweep ago
	ramp     float64
	own      []float64 // job -> what it would send if no link held it back
	rate     []float64
	inFlight []float64 // node -> offered occupancy
	demand   []float64
}

func newOccupancy(p *Problem) *occupancy {
	o := &occupancy{
		p:        p,
		first:    make([]int, len(p.Jobs)+1),
		perJob:   make([]int, len(p.Jobs)+1),
		perLink:  make([][]int, len(p.Links)),
		atSwitch: make([][]int, len(p.Switches)),
		level:    make([]float64, len(p.Links)),
		before:   make([]float64, len(p.Links)),
		own:      make([]float64, len(p.Jobs)),
		rate:     make([]float64, len(p.Jobs)),
	}
	for ji := range p.Jobs {
		j := &p.Jobs[ji]
		base := len(o.owner)
		o.first[ji], o.perJob[ji] = base, len(o.uses)
		useOf := func(link int) int {
			if link == None {
				return -1
			}
			for u := o.perJob[ji]; u < len(o.uses); u++ {
				if o.uses[u].link == link {
					return u
				}
			}
			o.uses = append(o.uses, use{job: ji, link: link})
			o.perLink[link] = append(o.perLink[link], len(o.uses)-1)
			return len(o.uses) - 1
		}
		for k := range j.Nodes {
			n := &j.Nodes[k]
			o.owner = append(o.owner, ji)
			o.up, o.down = append(o.up, useOf(n.Up)), append(o.down, useOf(n.Down))
			if j.aggregates(n) && j.Kind == Statistical {
				o.atSwitch[n.Switch] = append(o.atSwitch[n.Switch], base+k)
			}
		}
		o.below = append(o.below, j.below()...)
		own := math.Inf(1)
		if j.Limit > 0 {
			own = j.Limit
		}
		if j.Window > 0 && j.RTT > 0 {
			own = min(own, j.Window*packet(j)/j.RTT)
		}
		if j.starved() != None || math.IsInf(own, 1) && len(o.uses) == o.perJob[ji] {
			own = 0
		}
		o.own[ji] = own
	}
	n := len(o.owner)
	o.first[len(p.Jobs)], o.perJob[len(p.Jobs)] = n, len(o.uses)
	o.share, o.exit, o.inFlight = make([]float64, n), make([]float64, n), make([]float64, n)
	return o
}

// packet is the bits of one of j's frames.
func packet(j *Job) float64 {
	if j.Packet == 0 {
		return 1
	}
	return j.Packet
}

// solve looks for shares that follow from their own rates, to within swing.
func (o *occupancy) solve(swing float64) bool {
	next := make([]float64, len(o.share))
	step := make([]float64, len(o.share)) // of each share, signed like its last move
	for n, ji := range o.owner {
		step[n], o.share[n] = 1, 0
		if j := &o.p.Jobs[ji]; j.aggregates(&j.Nodes[n-o.first[ji]]) && j.starved() == None {
			o.share[n] = 1
		}
	}
	for range maxSteps {
		o.weigh()
		if !o.fair() {
			return false
		}
		o.occupy()
		copy(next, o.share)
		o.allot(next)
		still := true
		for i := range next {
			if math.Abs(next[i]-o.share[i]) > swing {
				still = false
			}
		}
		if still {
			return true
		}
		for i := range next {
			move := next[i] - o.share[i]
			if math.Abs(move) > tolerance {
				// Smaller steps where a share swings, larger ones where it keeps on.
				size := min(1, 1.2*math.Abs(step[i]))
				if move*step[i] < 0 {
					size = max(1e-4, size/2.4)
				}
				step[i] = math.Copysign(size, move)
			}
			o.share[i] += math.Abs(step[i]) * move
		}
	}
	return false
}

// weigh computes packets per PSN on every link of every job from the shares.
func (o *occupancy) weigh() {
	for i := range o.uses {
		o.uses[i].weight = 0
	}
	clear(o.exit)
	for ji := range o.p.Jobs {
		j := &o.p.Jobs[ji]
		base := o.first[ji]
		for k := range j.Nodes {
			n := base + k
			in := o.exit[n] // what the children sent so far
			if in == 0 {
				in = 1 // a worker
			}
			a := o.share[n]
			out := a + (1-a)*in
			o.exit[n] = out
			if p := j.Nodes[k].Parent; p != None {
				o.exit[base+p] += out
			}
			if u := o.up[n]; u >= 0 {
				o.uses[u].weight += out
			}
			if u := o.down[n]; u >= 0 {
				if j.Kind == Unicast {
					o.uses[u].weight += o.below[n]
				} else {
					o.uses[u].weight++
				}
			}
		}
	}
}

// allowed is the rate that u's link allows its job.
func (o *occupancy) allowed(u int) float64 {
	return o.level[o.uses[u].link] / o.uses[u].weight
}

// fair computes the rates for the present weights: at every link the water level
// for what its jobs would send if only the others held them back, until no level
// moves. Where rates follow each other in circles that takes long, so now and then
// the rates are solved for as if every job's bottleneck were already the right one.
func (o *occupancy) fair() bool {
	for i := range o.level {
		o.level[i] = math.Inf(1)
	}
	done := false
	for round := 0; round < 200 && !done; round++ {
		off := 1e-12
		if round > 100 {
			off = 1e-5 // as good as still
		}
		for sweep := 0; sweep < 20 && !done; sweep++ {
			copy(o.before, o.level)
			done = o.sweep(round > 1, off)
		}
		if done || round == 0 {
			continue
		}
		saved := slices.Clone(o.level)
		o.jump()
		o.sweep(false, 1e-12)
		if done = o.sweep(false, 1e-12); done {
			continue
		}
		// Nearly any division will do for rates that hardly move: go on faster the
		// way they drift.
		for l, level := range saved {
			if round > 5 {
				level += math.Exp2(float64(round%27)) * (level - o.before[l])
			}
			o.level[l] = max(0, level)
		}
	}
	for ji := range o.rate {
		o.rate[ji] = o.own[ji]
		for u := o.perJob[ji]; u < o.perJob[ji+1]; u++ {
			o.rate[ji] = min(o.rate[ji], o.allowed(u))
		}
	}
	return done
}

// sweep renews every link's level, half way if damped, and reports whether all
// stayed where they were to within a fraction off.
func (o *occupancy) sweep(damped bool, off float64) bool {
	still := true
	for l, on := range o.perLink {
		if len(on) == 0 {
			continue
		}
		o.demand = o.demand[:0]
		for _, u := range on {
			ji := o.uses[u].job
			r := o.own[ji]
			for v := o.perJob[ji]; v < o.perJob[ji+1]; v++ {
				if v != u {
					r = min(r, o.allowed(v))
				}
			}
			o.demand = append(o.demand, r*o.uses[u].weight)
		}
		level := waterLevel(o.demand, o.p.Links[l].Capacity)
		old := o.level[l]
		if !(math.Abs(level-old) <= off*level) {
			still = false
		}
		if damped && !math.IsInf(old, 1) {
			level = (level + old) / 2
		}
		o.level[l] = level
	}
	return still
}

// jump sets the levels that follow if every job stays with the bottleneck that it
// has at the present ones: a linear equation per link that is one,
// count*level(l) + sum over other jobs of weight*rate = capacity.
func (o *occupancy) jump() {
	at := make([]int, len(o.p.Jobs)) // job -> the use that is its bottleneck, or -1
	row := make(map[int]int)
	var links []int
	for ji := range at {
		at[ji] = -1
		r := o.own[ji]
		for u := o.perJob[ji]; u < o.perJob[ji+1]; u++ {
			if a := o.allowed(u); a < r {
				r, at[ji] = a, u
			}
		}
		if u := at[ji]; u >= 0 {
			l := o.uses[u].link
			if _, ok := row[l]; !ok {
				row[l] = len(links)
				links = append(links, l)
			}
		}
	}
	n := len(links)
	m := make([][]float64, n)
	for i, l := range links {
		m[i] = make([]float64, n+1)
		m[i][n] = o.p.Links[l].Capacity
		for _, u := range o.perLink[l] {
			ji, w := o.uses[u].job, o.uses[u].weight
			if at[ji] < 0 {
				m[i][n] -= w * o.own[ji]
			} else {
				b := o.uses[at[ji]]
				m[i][row[b.link]] += w / b.weight
			}
		}
	}
	x, ok := solveLinear(m)
	if !ok {
		return
	}
	for i := range o.level {
		o.level[i] = math.Inf(1)
	}
	for i, l := range links {
		o.level[l] = max(0, x[i])
	}
}

// solveLinear solves the equations in the rows of m, right side last, by Gauss
// elimination; m is destroyed. It reports false when they have no single solution.
func solveLinear(m [][]float64) ([]float64, bool) {
	n := len(m)
	for c := range n {
		best := c
		for r := c; r < n; r++ {
			if math.Abs(m[r][c]) > math.Abs(m[best][c]) {
				best = r
			}
		}
		m[c], m[best] = m[best], m[c]
		if math.Abs(m[c][c]) < 1e-12 {
			return nil, false
		}
		for r := range n {
			if f := m[r][c] / m[c][c]; r != c && f != 0 {
				for k := c; k <= n; k++ {
					m[r][k] -= f * m[c][k]
				}
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = m[i][n] / m[i][i]
	}
	return x, true
}

// waterLevel is the largest level at which the sum of min(level, demand) fits the
// capacity; with capacity left over, what the greatest demand could grow to. It
// reorders demand.
func waterLevel(demand []float64, capacity float64) float64 {
	left := capacity
	for n := len(demand); n > 0; n-- {
		fair := left / float64(n)
		least := 0
		for i, d := range demand[:n] {
			if d < demand[least] {
				least = i
			}
		}
		d := demand[least]
		if d >= fair {
			return fair
		}
		if n == 1 {
			return left
		}
		left -= d
		demand[least] = demand[n-1]
	}
	return left
}

// occupy computes from the rates how many aggregators each job would hold at each
// of its switches.
func (o *occupancy) occupy() {
	for ji := range o.p.Jobs {
		j := &o.p.Jobs[ji]
		base := o.first[ji]
		pps := o.rate[ji] / packet(j)
		link := math.Inf(1) // what its links allow
		for u := o.perJob[ji]; u < o.perJob[ji+1]; u++ {
			link = min(link, o.allowed(u))
		}
		// Packets that wait in the queue of a saturated link.
		waiting := max(0, j.Window-pps*j.RTT) * o.rise(o.own[ji]/link)
		for k := range j.Nodes {
			n := base + k
			if !j.aggregates(&j.Nodes[k]) || j.Kind != Statistical {
				continue
			}
			o.inFlight[n] = pps * j.Nodes[k].Hold
			if waiting > 0 {
				o.inFlight[n] += waiting * (1 - o.hidden(ji, k, link))
			}
		}
	}
}

// rise is 0 up to 1, 1 from 1+ramp, and straight between. Deciding by comparison
// of two limits this way makes the fixed point one of a continuous map. The ramp
// is half a per cent, more where the iteration does not settle with that.
func (o *occupancy) rise(ratio float64) float64 { return max(0, min(1, (ratio-1)/o.ramp)) }

// hidden is 1 when job ji's queue is below its node k for all workers there, so
// that packets come to the switch as if it were not there, and 0 otherwise. link
// is the rate that the job's links allow it.
func (o *occupancy) hidden(ji, k int, link float64) float64 {
	j := &o.p.Jobs[ji]
	base := o.first[ji]
	// best[c]: what the least held back worker below c is allowed, up to and with
	// c's links to its parent. Nodes above k collect what the rest allows.
	above, beneath := math.Inf(1), 0.0
	var best func(c int) float64
	best = func(c int) float64 {
		r := 0.0
		for d := range c {
			if j.Nodes[d].Parent == c {
				r = max(r, best(d))
			}
		}
		if r == 0 {
			r = math.Inf(1)
		}
		return min(r, o.edge(base+c))
	}
	for d := range k {
		if j.Nodes[d].Parent == k {
			beneath = max(beneath, best(d))
		}
	}
	in := func(c int) bool {
		for c != None && c < k {
			c = j.Nodes[c].Parent
		}
		return c == k
	}
	for c := range j.Nodes {
		if c == k || !in(c) {
			above = min(above, o.edge(base+c))
		}
	}
	if beneath == 0 || math.IsInf(beneath, 1) {
		return 0
	}
	return o.rise(above/beneath) * (1 - o.rise(beneath/link))
}

// edge is the rate that the links between node n and its parent allow its job.
func (o *occupancy) edge(n int) float64 {
	r := math.Inf(1)
	if u := o.up[n]; u >= 0 {
		r = o.allowed(u)
	}
	if u := o.down[n]; u >= 0 {
		r = min(r, o.allowed(u))
	}
	return r
}

// allot writes the shares that follow from the occupancy to share.
func (o *occupancy) allot(share []float64) {
	var demands []demand
	var got []float64
	for s, nodes := range o.atSwitch {
		if len(nodes) == 0 {
			continue
		}
		demands, got = demands[:0], got[:0]
		for _, n := range nodes {
			demands = append(demands, demand{o.inFlight[n], o.p.Jobs[o.owner[n]].Slots})
			got = append(got, 0)
		}
		o.p.Switches[s].shares(demands, got)
		for i, n := range nodes {
			share[n] = got[i]
		}
	}
}

func (o *occupancy) result() *Result {
	r := &Result{Jobs: make([]JobResult, len(o.p.Jobs)), Links: make([]LinkResult, len(o.p.Links))}
	for ji := range o.p.Jobs {
		j := &o.p.Jobs[ji]
		if o.rate[ji] > o.own[ji]*(1-1e-9) {
			o.rate[ji] = o.own[ji] // a link that is just as tight does not count
		}
		r.Jobs[ji] = JobResult{
			Rate:       o.rate[ji],
			Share:      o.share[o.first[ji]:o.first[ji+1]:o.first[ji+1]],
			Up:         o.exit[o.first[ji]:o.first[ji+1]:o.first[ji+1]],
			Bottleneck: o.bottleneck(ji, j),
		}
	}
	for _, u := range o.uses {
		r.Links[u.link].Load += u.weight * o.rate[u.job]
		r.Links[u.link].Flows += u.weight
	}
	return r
}

func (o *occupancy) bottleneck(ji int, j *Job) Bottleneck {
	if s := j.starved(); s != None {
		return Bottleneck{BySwitch, s}
	}
	out := Bottleneck{Unlimited, None}
	least := math.Inf(1)
	if o.own[ji] > 0 && !math.IsInf(o.own[ji], 1) {
		least = o.own[ji]
		out.Kind = ByLimit
		if j.Limit == 0 || least < j.Limit {
			out.Kind = ByWindow
		}
	}
	// Of links that allow the same, the one nearest the PS.
	consider := func(u int) {
		if u < 0 {
			return
		}
		if r := o.allowed(u); r < least*(1-1e-9) || math.IsInf(least, 1) {
			least, out = r, Bottleneck{ByLink, o.uses[u].link}
		}
	}
	for n := o.first[ji+1] - 1; n >= o.first[ji]; n-- {
		consider(o.up[n])
	}
	for n := o.first[ji+1] - 1; n >= o.first[ji]; n-- {
		consider(o.down[n])
	}
	return out
}

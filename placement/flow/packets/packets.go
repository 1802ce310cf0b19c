package packets

import (
	"context"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// None stands for "no link", "no switch" and "no parent".
const None = -1

// Network is what packets cross, and who sends them.
type Network struct {
	Links    []float64 // bit/s of each; 0 or +Inf: no queue
	Damage   []Damage  // of each link; nil: none is damaged
	Switches []int     // aggregators of each
	Jobs     []Job
	// Turn is how many bits a job's queue at a link may send before it is the next one's turn, at least
	// a frame of the largest; 0: that.
	Turn float64
	// Block is how many PSNs a rate limit's schedule scatters together; 0: 16, as agents do.
	// Less is for networks in which a packet stands for several.
	Block int
}

// Damage is what a link does to frames that it has transmitted: probabilities, 0 to 1.
type Damage struct {
	Loss  float64 // a frame does not arrive
	Twice float64 // one that does arrives twice
	Late  float64 // it arrives later by Delay than the others
	Delay float64 // s
}

// Addressing is how a switch finds the aggregator of a PSN.
type Addressing uint8

const (
	Pool   Addressing = iota // any that is free
	Hash                     // by a hash of job and PSN, the same at every switch
	Linear                   // (offset of the job + PSN) mod M
	ATP                      // the job's slot PSN mod Slots
)

// Kind is what a job's packets do.
type Kind uint8

const (
	Statistical Kind = iota // aggregators are reserved by first packets and freed by results
	Synchronous             // every switch of the job sums everything; the root makes the results
	Unicast                 // nothing is summed; the parameter server answers each worker
	Stream                  // a packet of every node with a link, all of which end one PSN
	Ring                    // all-reduces around the workers, one after the other; each ends one PSN
)

// Job is one job. Its tree has children before parents; workers are the nodes without
// children, at most 64. The last is the parameter server, or of a synchronous job the root
// switch. Nodes of a Stream have no parents, and their number is free. Those of a Ring are
// the ways from each worker to the next one, in that order: a node for every link, whose
// parent is the next one on the way.
type Job struct {
	Kind   Kind
	Nodes  []Node
	Bits   float64 // of a frame
	Gap    float64 // s between a worker's packets by its rate limit; 0: none
	Window int     // packets that a worker has outstanding, at most
	Slots  int     // ATP: W
	ID     uint16  // ATP: from which the slots are chosen; 0: every run draws others
	Offset float64 // Linear: where in a memory the first PSN looks, as a part of its size; of a Replay
	Answer float64 // s that the parameter server takes
	// Timeout is the least time, in s, after which a worker sends again what nothing has answered; 0:
	// it never does, and links do not damage its packets. Streams and rings have none.
	Timeout float64
	// Behind says that the job has fallen behind its rate limit, which would take long to
	// come about by itself: it has its whole window under way from the start.
	Behind bool
	Chunks []Chunk // of a Ring, one of each worker; its Bits are those of a full frame, to which Gap belongs
	Layers []Layer // of an iteration, of a Replay, of all but a Ring; none: a worker sends all the time
}

// Layer is a part of an iteration: so many PSNs, which a worker has Ready seconds after it began that. It begins the next
// one when it has the results of all.
type Layer struct {
	PSNs  int
	Ready float64
}

// Chunk is one of as many parts of a ring's vector as it has workers. A worker sends its own,
// and then passes on what comes from the one before, 2(n-1) chunks in all: a block as soon as
// all of it is there.
type Chunk struct {
	Frames []float64 // bits of each
	Blocks []int     // of frames, how many there are up to the end of each block; ascending
}

// program is what a worker of a ring sends in an all-reduce, which is what the next one receives.
type program struct {
	frames []float64
	whole  []int // by frames, how many of so many are in whole blocks
	own    int   // frames of the first chunk
	last   int   // and of the last one, which goes no farther
}

// program is that of a worker.
func (j *Job) program(worker int) (p program) {
	n := len(j.Chunks)
	p.whole = []int{0}
	for step := range 2 * (n - 1) {
		c := &j.Chunks[((worker-step)%n+n)%n]
		first, block := len(p.frames), 0
		for i, bits := range c.Frames {
			p.frames = append(p.frames, bits)
			if block < len(c.Blocks) && i+1 == c.Blocks[block] {
				block++
				p.whole = append(p.whole, first+i+1)
			} else {
				p.whole = append(p.whole, p.whole[len(p.whole)-1])
			}
		}
		if p.last = len(c.Frames); step == 0 {
			p.own = p.last
		}
	}
	return p
}

// Node is a worker, a switch or the parameter server in a job's tree.
type Node struct {
	Parent     int     // index in Nodes, greater than the node's own; None at the root
	Up, Down   int     // links to and from the parent, or None
	Delay      float64 // s on the way to the parent beside the frame's transmission, and as much on the way back
	Switch     int     // index in Network.Switches, where it aggregates for this job; else None
	Addressing Addressing
}

// Limits bound what Run may take.
type Limits struct {
	Seed   uint64
	Error  float64 // standard error of shares and relative one of rates that is good enough
	Events int     // the most events, over all runs
	// Settled refuses runs that begin to count before all is as it goes on, for want of events.
	Settled bool
	// Late has half of a run's events pass before anything is counted, and counts the rest: what
	// comes to rest long after queues have is seen so. There are no more runs of it than a standard error needs.
	Late bool
}

// Result is the mean over random phases of the jobs, or of a Replay over what is not known of them, with
// standard errors between runs.
type Result struct {
	Jobs   []JobResult
	Links  []LinkResult // of a Replay: what crossed each link
	Runs   int
	Events int
	// Each are the runs of a Replay that this is the mean of, in which nothing has a spread.
	Each []*Result
	// Over is how much more than a link carries was sent to it, as a part of that, in the mean of the
	// runs, of which each had no time for its queues to be full: rates are off by as much.
	Over float64
	// Settled is after how many seconds, in the mean of the runs, all was as it went on: from empty queues,
	// and jobs that begin within the time in which the slowest window comes round.
	Settled float64
}

// Agrees says whether two results are one within off and the standard error of their difference:
// shares, and rates relatively.
func (r *Result) Agrees(o *Result, off float64) bool {
	for i := range r.Jobs {
		a, b := &r.Jobs[i], &o.Jobs[i]
		if math.Abs(a.Rate-b.Rate) > off*b.Rate+math.Hypot(a.RateError, b.RateError) {
			return false
		}
		for k := range a.Share {
			if math.Abs(a.Share[k]-b.Share[k]) > off+math.Hypot(a.ShareError[k], b.ShareError[k]) {
				return false
			}
		}
	}
	return true
}

// Widen makes spreads no less than those of o, whose runs may be more, and than a part of what r differs from o by.
func (r *Result) Widen(o *Result, part float64) {
	for i := range r.Jobs {
		a, b := &r.Jobs[i], &o.Jobs[i]
		a.RateSpread = max(a.RateSpread, b.RateSpread, part*math.Abs(a.Rate-b.Rate))
		for k := range a.Share {
			a.ShareSpread[k] = max(a.ShareSpread[k], b.ShareSpread[k], part*math.Abs(a.Share[k]-b.Share[k]))
			a.UpSpread[k] = max(a.UpSpread[k], b.UpSpread[k], part*math.Abs(a.Up[k]*a.Rate-b.Up[k]*b.Rate))
		}
	}
}

// JobResult is one job's steady state.
type JobResult struct {
	Rate, RateError float64   // PSN/s
	RateSpread      float64   // by how much a run's rate may be off the mean: 95 % are within 1.96 of it
	Share           []float64 // by node: PSNs granted of those decided; 1 where none was
	ShareError      []float64
	ShareSpread     []float64 // and of a run's share
	Up              []float64 // by node: packets towards the parent, per PSN, those that are lost included; no more than come where none are sent again
	UpSpread        []float64 // by node: and of a run's packets/s towards the parent
	// Of a Replay, and of a job with a timeout, whose packets may be lost and whose results may be repeated, by
	// node and per PSN: packets that the parent receives, and results that it sends to the node and that come there.
	UpCame, Down, DownCame []float64
	// Got is PSN/s of which a worker got the result, of a Replay: while queues grow that is not Rate.
	Got float64
}

// LinkResult is what crosses a link while a Replay counts, as testbeds count it: of a host's link what the host hands
// over, which may have to queue, and of a switch's what comes out of it, or is lost on it.
type LinkResult struct {
	Load   float64 // bit/s
	Spread float64 // of a run's, as JobResult.RateSpread
	Lost   float64 // bit/s of them that do not come out at its other end, less those that come out twice
}

// minRuns is how many runs a standard error is drawn from, at least.
const minRuns = 4

// manyRuns are as many as it takes to see, with a probability of .92, what one run in ten comes to otherwise than
// the others (1 - .9^24, and .995 of one in five): where windows fill a memory to within a few slots, some runs
// find a place for each beside the others for good, and others never do. The first minRuns may well come to the same.
const manyRuns = 24

// rareRuns are made where runs differ by more than alike, shares by so much and rates by such a part: there is more
// than one state then, and which of them is rare depends on how late a machine is, of which little is known.
const (
	rareRuns = 48
	alike    = .05
)

// Run simulates n with random phases until its means are known well enough. It is
// deterministic. ok is false where not even minRuns runs fit the limits, or where n
// has no steady state to speak of (a job that cannot send, or with Limits.Settled one that
// takes too long to settle), or once ctx has ended.
func Run(ctx context.Context, n *Network, l Limits) (r *Result, ok bool) {
	m := newModel(n)
	m.late = l.Late
	span := m.span()
	if span == 0 || math.IsInf(span, 0) {
		return nil, false
	}
	var acc accumulator
	acc.init(n, 0)
	used, over, settled := 0, 0.0, 0.0
	for run := 0; ; run++ {
		if run >= minRuns && (l.Late || used+used/run > l.Events) {
			break
		}
		m.reset(mix(l.Seed ^ uint64(run)*golden))
		left := l.Events - used
		if run < minRuns {
			left /= minRuns - run
		}
		e, fine := m.run(ctx, span, max(left, 0))
		used += e
		if !fine || l.Settled && m.early {
			return nil, false
		}
		acc.add(m)
		over += m.over
		settled += m.begin
		if run+1 >= manyRuns && acc.worst() <= l.Error {
			break
		}
	}
	out := acc.result()
	out.Events, out.Over = used, over/float64(acc.runs)
	out.Settled = settled / float64(acc.runs)
	return out, true
}

// accumulator sums what runs say, and its squares.
type accumulator struct {
	runs     int
	sum, sq  []float64 // values in the order of JobResult's fields, job after job
	lo, hi   []float64 // the least and the most
	relative []bool
	jobs     []Job
	extra    [][]seen // by job and node, what is only summed
	got      []float64
	lost     []float64 // by link, of a Replay; else none
}

func (a *accumulator) init(n *Network, links int) {
	a.jobs, a.got, a.lost = n.Jobs, make([]float64, len(n.Jobs)), make([]float64, links)
	for i := range n.Jobs {
		a.relative = append(a.relative, true)
		for range n.Jobs[i].Nodes {
			a.relative = append(a.relative, false, true)
		}
		a.extra = append(a.extra, make([]seen, len(n.Jobs[i].Nodes)))
	}
	for range links {
		a.relative = append(a.relative, true)
	}
	a.sum, a.sq = make([]float64, len(a.relative)), make([]float64, len(a.relative))
	a.lo, a.hi = make([]float64, len(a.relative)), make([]float64, len(a.relative))
}

func (a *accumulator) add(m *model) {
	a.runs++
	k := 0
	put := func(v float64) {
		a.sum[k] += v
		a.sq[k] += v * v
		if a.runs == 1 {
			a.lo[k], a.hi[k] = v, v
		}
		a.lo[k], a.hi[k] = min(a.lo[k], v), max(a.hi[k], v)
		k++
	}
	for i := range m.jobs {
		j := &m.jobs[i]
		psns := j.seen.psns
		put(psns / m.length)
		a.got[i] += j.seen.got / m.length / float64(len(j.workers))
		for v := range j.nodes {
			c := &j.seen.nodes[v]
			share := 1.0
			if d := c.granted + c.denied; d > 0 {
				share = c.granted / d
			}
			put(share)
			put(c.up / m.length)
			a.extra[i][v].add(c, m.length)
		}
	}
	for l := range a.lost {
		put(m.wires[l].sent / m.length)
		a.lost[l] += m.wires[l].lost / m.length
	}
}

// worst is the greatest standard error.
func (a *accumulator) worst() float64 { return a.most(a.err) }

// differ is the greatest difference between two runs.
func (a *accumulator) differ() float64 {
	return a.most(func(k int) float64 { return a.hi[k] - a.lo[k] })
}

// most is the greatest of something that there is of each value, relatively where the value counts so.
func (a *accumulator) most(of func(k int) float64) float64 {
	w := 0.0
	for k := range a.sum {
		v := of(k)
		if a.relative[k] && a.sum[k] > 0 {
			v /= a.sum[k] / float64(a.runs)
		}
		w = max(w, v)
	}
	return w
}

func (a *accumulator) err(k int) float64 {
	if a.runs < 2 {
		return 0
	}
	n := float64(a.runs)
	mean := a.sum[k] / n
	return math.Sqrt(max(0, a.sq[k]/n-mean*mean) / (n - 1))
}

// likely is how many standard deviations of a normal distribution 95 % are within.
const likely = 1.96

// spread is by how much a further run may be off the mean of those so far: 95 % are within likely times that, as far
// as so few tell (Student's distribution, by the expansion of Cornish and Fisher), and so are all so far: who wins
// a memory that others then never get has all or nothing of it.
func (a *accumulator) spread(k int) float64 {
	if a.runs < 2 {
		return 0
	}
	const z, z2 = likely, likely * likely
	n := float64(a.runs)
	f := 1 / (n - 1)
	t := 1 + f*((z2+1)/4+f*(((5*z2+16)*z2+3)/96+f*(((3*z2+19)*z2+17)*z2-15)/384))
	mean := a.sum[k] / n
	return max(t*a.err(k)*math.Sqrt(n+1), max(a.hi[k]-mean, mean-a.lo[k])/likely)
}

// merge adds the runs of b, which are of the same jobs.
func (a *accumulator) merge(b *accumulator) {
	for k := range a.sum {
		a.sum[k] += b.sum[k]
		a.sq[k] += b.sq[k]
		if a.runs == 0 {
			a.lo[k], a.hi[k] = b.lo[k], b.hi[k]
		}
		a.lo[k], a.hi[k] = min(a.lo[k], b.lo[k]), max(a.hi[k], b.hi[k])
	}
	for i := range a.extra {
		for v := range a.extra[i] {
			a.extra[i][v].add(&b.extra[i][v], 1)
		}
		a.got[i] += b.got[i]
	}
	for l := range a.lost {
		a.lost[l] += b.lost[l]
	}
	a.runs += b.runs
}

func (a *accumulator) result() *Result {
	r := &Result{Runs: a.runs, Jobs: make([]JobResult, len(a.jobs))}
	n := float64(a.runs)
	k := 0
	for i := range a.jobs {
		j := &r.Jobs[i]
		j.Rate, j.RateError = a.sum[k]/n, a.err(k)
		j.RateSpread = a.spread(k)
		k++
		for v := range a.jobs[i].Nodes {
			share := a.sum[k] / n
			if x := &a.extra[i][v]; x.granted+x.denied > 0 { // of means, as Up is: runs that are faster count for more
				share = x.granted / (x.granted + x.denied)
			}
			j.Share = append(j.Share, share)
			j.ShareError = append(j.ShareError, a.err(k))
			j.ShareSpread = append(j.ShareSpread, a.spread(k))
			up := 0.0
			switch {
			case a.steady(i):
				up = a.leaving(i, v, a.sum[k+1], j.Up)
			case j.Rate > 0:
				up = a.sum[k+1] / n / j.Rate
			}
			j.Up = append(j.Up, up)
			j.UpSpread = append(j.UpSpread, a.spread(k+1))
			k += 2
		}
		if len(a.lost) > 0 {
			j.Got = a.got[i] / n
		}
		if psns := j.Rate * n; (len(a.lost) > 0 && a.jobs[i].Kind != Ring || a.jobs[i].Timeout > 0) && psns > 0 {
			for _, x := range a.extra[i] {
				j.UpCame, j.Down, j.DownCame = append(j.UpCame, x.came/psns), append(j.Down, x.down/psns), append(j.DownCame, x.got/psns)
			}
		}
	}
	for l := range a.lost {
		r.Links = append(r.Links, LinkResult{Load: a.sum[k] / n, Spread: a.spread(k), Lost: a.lost[l] / n})
		k++
	}
	return r
}

// steady says of a job that what enters a node of it is what leaves, in the long run: each PSN is sent once, and
// what was counted is to be as it goes on. Of a Replay it is what it is, resends come beside, and of a ring an
// all-reduce has many packets.
func (a *accumulator) steady(job int) bool {
	return len(a.lost) == 0 && a.jobs[job].Timeout == 0 && a.jobs[job].Kind != Ring
}

// leaving is how many packets per PSN leave a node of a steady job, which has sent so many, in the order of nodes: one
// leaves a worker, and of those that came to a switch the part that it sent on at the time. What it sends for each
// PSN that is completed meanwhile is more as long as a queue above it grows, and a link carries none of that.
func (a *accumulator) leaving(job, node int, sent float64, ups []float64) float64 {
	came, in := 0.0, 0.0
	leaf := true
	for c := range node {
		if a.jobs[job].Nodes[c].Parent == node {
			came, in, leaf = came+a.extra[job][c].came, in+ups[c], false
		}
	}
	switch {
	case leaf:
		return 1
	case came == 0:
		return 0
	}
	return sent / came * in
}

// maxBlock is the number of PSNs that a rate limit's schedule scatters together.
const maxBlock = 16

const golden = 0x9E37_79B9_7F4A_7C15

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ x>>30) * 0xBF58_476D_1CE4_E5B9
	x = (x ^ x>>27) * 0x94D0_49BB_1331_11EB
	return x ^ x>>31
}

// fraction is x as a number in [0, 1).
func fraction(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// model is the state of one run.
type model struct {
	net      *Network
	block    int
	jobs     []job
	mem      []memory
	links    []link
	wires    []wire // of each link
	switches []looker
	paths    []path // of every job's nodes, up then down
	owner    []int  // job of each entity of the calendar that is a worker or a parameter server

	now      float64
	queue    calendar
	counting bool
	early    bool      // it counts before all has settled
	late     bool      // Limits.Late
	patient  bool      // a job has a timeout: it never settles as others do
	schedule *Schedule // of a replay; else nil
	begin    float64   // of counting
	length   float64
	weight   float64 // of what happens now
	over     float64 // overload of the run
	slots    map[[3]int][]int
	rnd      uint64
}

// wire counts the bits of a link, as a LinkResult has them; weighted, see model.weight.
type wire struct{ sent, lost float64 }

// memory is one switch's aggregators.
type memory struct {
	size  int
	free  int    // of a pool, where it does not matter which are
	taken []bool // where it does
}

// packet is on its way from or to a node of its job.
type packet struct {
	psn     int
	workers uint64 // whose gradients it carries, or for whom it is where results are unicast
	resend  bool   // its sum is to be pushed out of switches
	asks    bool   // a worker sent it again: nothing has answered it
}

// path is a directed edge of a job's tree: a link that it shares, and a delay.
type path struct {
	job, node int // the child's
	up        bool
	wire      int  // the link; None for none
	host      bool // who sends is one
	link      int  // the same where it has a rate, and so queues
	class     int  // of the link's queues
	delay     float64
	bits      float64
	frames    []float64 // bits by PSN, of a ring's
	damage    *Damage   // nil: none
	looker    *looker   // of a switch that sends; nil: nobody is late
	flying    fifo
	looked    fifo // frames that the switch has sent
}

// size is the bits of a packet.
func (p *path) size(k packet) float64 {
	if p.frames != nil {
		return p.frames[k.psn%len(p.frames)]
	}
	return p.bits
}

// flight is a packet and when it arrives.
type flight struct {
	packet
	at float64
}

// fifo is a queue of packets in the order of their times.
type fifo struct {
	buf  []flight
	head int
	n    int
}

// push adds a packet behind those that are not later, and says whether it is the first.
func (f *fifo) push(p packet, at float64) bool {
	if f.n == len(f.buf) {
		grown := make([]flight, max(16, 2*f.n))
		for i := range f.n {
			grown[i] = f.buf[(f.head+i)&(len(f.buf)-1)]
		}
		f.buf, f.head = grown, 0
	}
	i, last := f.n, len(f.buf)-1
	for ; i > 0 && f.buf[(f.head+i-1)&last].at > at; i-- {
		f.buf[(f.head+i)&last] = f.buf[(f.head+i-1)&last]
	}
	f.buf[(f.head+i)&last] = flight{p, at}
	f.n++
	return i == 0
}

func (f *fifo) pop() packet {
	p := f.buf[f.head].packet
	f.head = (f.head + 1) & (len(f.buf) - 1)
	f.n--
	return p
}

func (f *fifo) first() float64 { return f.buf[f.head].at }

// link is a transmitter with a queue for each job.
type link struct {
	rate    float64
	busy    float64 // until then
	classes []class
	ring    []int // those with packets, whose turn it is first
	quantum float64
	load    float64 // bits that were sent to it, weighted, see model.weight
}

// class is one job's queue at a link.
type class struct {
	job     int
	waiting []waiting
	head    int
	deficit float64
	served  bool // has had its quantum in this turn
}

type waiting struct {
	packet
	path int
}

// fate is what a switch decided for a PSN.
type fate uint8

const (
	undecided fate = iota
	granted
	denied
	passed // arrived complete, or its result went by
)

// decision is a switch's, about a PSN of a job.
type decision struct {
	psn     int
	fate    fate
	slot    int
	workers uint64
}

type node struct {
	parent   int
	children []int
	up, down int // paths
	sw       int
	address  Addressing
	looker   looker // of a switch that only forwards
	expect   uint64 // workers below
	beside   bool   // a worker that gets results from a parameter server on its host
	ring     []decision
	offset   int
	chosen   []int
	// Packets for the parent that the node has sent and the parent has received, and how many
	// were on their way when level looked last.
	sent, came, flying int
}

type job struct {
	*Job
	nodes   []node
	workers []worker
	ready   fifo  // results that the parameter server will send
	server  int   // its entity in the calendar
	sums    []sum // at the parameter server
	ps      looker
	reply   float64 // s that it takes until it looks whether to answer
	counts  []int   // of a stream
	heirs   []int   // of a ring: by node, the worker to which the last link of a way leads; or None
	// programs are those of a ring's workers, and frames is how many they send in all.
	programs []program
	frames   float64
	mask     int
	start    float64
	started  bool
	end      int // nothing is sent from this PSN on
	done     int // PSNs
	checked  int // done when level looked last
	settled  bool
	key      uint64

	blocks [8]struct {
		at     int
		places [maxBlock]float64
	}

	seen struct { // weighted, see model.weight
		psns  float64
		got   float64 // results that workers had not had before
		nodes []seen
	}
}

// seen is what is counted of a node: what it decides as a switch, packets that it sends to its
// parent and that come there, and those that the parent sends to it and that it gets.
type seen struct{ granted, denied, up, came, down, got float64 }

// add adds what another one counted in so many seconds, per second. What was sent has a mean of its own.
func (s *seen) add(o *seen, seconds float64) {
	s.granted += o.granted / seconds
	s.denied += o.denied / seconds
	s.came += o.came / seconds
	s.down += o.down / seconds
	s.got += o.got / seconds
}

// sum is what the parameter server has of a PSN.
type sum struct {
	psn     int
	done    bool
	have    uint64 // whose gradients are in it
	asked   uint64 // workers that sent theirs again before it was complete
	covered uint64 // workers whose next resend a result on its way will have answered
}

// worker sends one job's packets from one host.
type worker struct {
	node   int
	entity int // in the calendar
	looker looker

	base, next, newest int
	done               []bool
	opened, sent       []float64
	u, at              float64
	gap                float64 // of the rate limit, or of the NIC
	srtt               float64
	// The most packets under way, and results that the parameter server has made and this
	// worker lacks, since level looked last and before.
	sentPeak, lackPeak, sentBefore, lackBefore int

	shut   bool // its window has held it back, first when base was shutAt
	shutAt int

	// Of a job with a timeout. unanswered is what was sent, in the order of the last time: what has
	// been answered, or sent again, is in it until it comes first.
	timer      int // entity in the calendar
	unanswered fifo
	again      []bool // by PSN: it was sent more than once
	rttvar     float64
	backoff    int
	backedOff  float64 // when it did last
	paced      float64 // the next resend not before

	// Of a ring: frames that it has sent and received in the operations that it has done; base
	// is what has come in all.
	begun, come int

	iteration
}

// iteration is where a worker is: when it began, which layer is next, PSNs below which are there to be sent, and
// how far that and the window reach. waits says that it sends nothing before the next layer is there. All of what is sent
// without end is there from the start.
type iteration struct {
	began                float64
	layer, allowed, edge int
	waits                bool
}

// allow lets a worker send what layers are there at a time, and begin its next iteration where it has all results.
func (j *job) allow(w *worker, at float64) {
	for {
		switch {
		case w.layer < len(j.Layers) && w.began+j.Layers[w.layer].Ready <= at:
			w.allowed += j.Layers[w.layer].PSNs
			w.layer++
		case w.layer == len(j.Layers) && w.base == w.allowed:
			w.began, w.layer = at, 0
		default:
			for edge := min(w.base+j.Window, w.allowed); w.edge < edge; w.edge++ {
				w.opened[w.edge&j.mask] = at
			}
			return
		}
	}
}

// reach is up to which PSN a worker may send.
func (j *job) reach(w *worker) int {
	return min(w.edge, j.end)
}

// next has a worker send its next packet when it is due, or look for the next layer when that is there.
func (m *model) next(j *job, w *worker) {
	at := math.Inf(1)
	switch {
	case w.next < j.reach(w):
		w.waits, at = false, m.due(j, w)
	case w.layer < len(j.Layers) && w.next < j.end && w.next == w.allowed:
		w.waits, at = true, w.began+j.Layers[w.layer].Ready
	}
	m.queue.set(w.entity, at)
}

func newModel(n *Network) *model {
	m := &model{net: n, block: n.Block, mem: make([]memory, len(n.Switches)), links: make([]link, len(n.Links)), wires: make([]wire, len(n.Links)), switches: make([]looker, len(n.Switches))}
	if m.block < 1 || m.block > maxBlock {
		m.block = maxBlock
	}
	for i, rate := range n.Links {
		m.links[i].rate = rate
	}
	for i := range m.mem {
		m.mem[i].size = n.Switches[i]
	}
	m.jobs = make([]job, len(n.Jobs))
	for ji := range n.Jobs {
		in := &n.Jobs[ji]
		j := &m.jobs[ji]
		j.Job, j.reply = in, in.Answer
		j.nodes = make([]node, len(in.Nodes))
		j.seen.nodes = make([]seen, len(in.Nodes))
		size := 1 << bits.Len(uint(2*in.Window-1))
		j.mask = size - 1
		switch in.Kind {
		case Stream:
			j.counts = make([]int, size)
		case Ring:
			j.heirs = in.heirs()
			for w := range in.Chunks {
				j.programs = append(j.programs, in.program(w))
				j.frames += float64(len(j.programs[w].frames))
			}
		default:
			j.sums = make([]sum, size)
		}
		for k := range in.Nodes {
			v := &in.Nodes[k]
			nd := &j.nodes[k]
			*nd = node{parent: v.Parent, sw: v.Switch, address: v.Addressing, children: nd.children, expect: nd.expect, beside: in.Kind == Unicast && v.Up != None && v.Down == None}
			if len(nd.children) == 0 {
				nd.expect = 1 << (len(j.workers) & 63)
				w := worker{node: k, done: make([]bool, size), opened: make([]float64, size), sent: make([]float64, size), gap: in.Gap}
				if w.gap == 0 && v.Up != None && n.Links[v.Up] > 0 {
					w.gap = in.Bits / n.Links[v.Up] / 1.25 // as much faster than its NIC as agents are
				}
				if in.Timeout > 0 {
					m.patient = true
					w.again = make([]bool, size)
				}
				j.workers = append(j.workers, w)
			}
			if v.Parent != None {
				p := &j.nodes[v.Parent]
				p.children = append(p.children, k)
				p.expect |= nd.expect
			}
			if nd.sw != None && in.Kind == Statistical && nd.address != Pool && m.mem[nd.sw].taken == nil {
				m.mem[nd.sw].taken = make([]bool, m.mem[nd.sw].size)
			}
			if nd.sw != None || in.Kind == Synchronous {
				nd.ring = make([]decision, size)
			}
			nd.up = m.addPath(ji, k, true, v.Up)
			nd.down = m.addPath(ji, k, false, v.Down)
		}
	}
	// Entities of the calendar: paths, links, and of each job workers, its parameter server, timers.
	e := len(m.paths) + len(m.links)
	for ji := range m.jobs {
		j := &m.jobs[ji]
		for w := range j.workers {
			j.workers[w].entity = e
			m.owner = append(m.owner, ji)
			e++
		}
		j.server = e
		m.owner = append(m.owner, ji)
		e++
		for w := range j.workers {
			if j.workers[w].again != nil {
				j.workers[w].timer = e
				m.owner = append(m.owner, ji)
				e++
			}
		}
	}
	m.queue.init(e)
	return m
}

// heirs is, by node, the worker of a ring to which the node's link leads; None where it leads
// to another link.
func (j *Job) heirs() []int {
	out := make([]int, len(j.Nodes))
	ways := 0
	for k := range j.Nodes {
		out[k] = None
		if j.Nodes[k].Parent == None {
			ways++
			out[k] = ways
		}
	}
	for k := range out {
		if out[k] == ways {
			out[k] = 0
		}
	}
	return out
}

func (m *model) addPath(ji, k int, up bool, l int) int {
	j := &m.net.Jobs[ji]
	p := path{job: ji, node: k, up: up, wire: l, link: None, delay: j.Nodes[k].Delay, bits: j.Bits}
	if j.Kind == Ring {
		p.frames = m.jobs[ji].programs[len(m.jobs[ji].workers)-1].frames // the way of the last worker so far
	}
	if up {
		p.host = len(m.jobs[ji].nodes[k].children) == 0
	} else {
		root := j.Nodes[k].Parent
		p.host = j.Kind != Synchronous && root != None && j.Nodes[root].Parent == None
	}
	if l != None && m.net.Links[l] > 0 && !math.IsInf(m.net.Links[l], 1) {
		p.link = l
		lk := &m.links[l]
		p.class = slices.IndexFunc(lk.classes, func(c class) bool { return c.job == ji })
		if p.class < 0 {
			p.class = len(lk.classes)
			lk.classes = append(lk.classes, class{job: ji})
		}
		lk.quantum = max(lk.quantum, j.Bits, m.net.Turn)
	}
	if l != None && j.Timeout > 0 && m.net.Damage != nil && m.net.Damage[l] != (Damage{}) {
		p.damage = &m.net.Damage[l]
	}
	m.paths = append(m.paths, p)
	return len(m.paths) - 1
}

// random is the next number of the run's generator.
func (m *model) random() uint64 {
	m.rnd += golden
	return mix(m.rnd)
}

// reset prepares another run: all is empty, phases and offsets are drawn anew.
func (m *model) reset(seed uint64) {
	m.rnd, m.now, m.counting, m.weight, m.over = seed, 0, false, 0, 0
	m.queue.clear()
	for i := range m.paths {
		m.paths[i].flying.head, m.paths[i].flying.n = 0, 0
		m.paths[i].looked.head, m.paths[i].looked.n = 0, 0
	}
	for i := range m.links {
		l := &m.links[i]
		l.busy, l.ring = 0, l.ring[:0]
		for c := range l.classes {
			l.classes[c].empty()
		}
	}
	for i := range m.mem {
		m.mem[i].free = m.mem[i].size
		clear(m.mem[i].taken)
	}
	for ji := range m.jobs {
		j := &m.jobs[ji]
		j.key = m.random()
		j.started, j.settled, j.done, j.checked = false, false, 0, 0
		j.end = math.MaxInt
		j.ready.head, j.ready.n = 0, 0
		for i := range j.sums {
			j.sums[i] = sum{psn: -1}
		}
		clear(j.counts)
		for b := range j.blocks {
			j.blocks[b].at = -1
		}
		// One offset for all switches of a size, and slots: as a controller that knows
		// nothing of phases gives them.
		offset := fraction(m.random())
		if m.schedule != nil {
			offset = j.Offset
		}
		var chosen []int
		for k := range j.nodes {
			nd := &j.nodes[k]
			for i := range nd.ring {
				nd.ring[i] = decision{psn: -1}
			}
			nd.sent, nd.came, nd.flying = 0, 0, 0
			if nd.sw == None || j.Kind != Statistical {
				continue
			}
			size := m.net.Switches[nd.sw]
			nd.offset = int(offset * float64(size))
			if nd.address == ATP && size > 0 {
				if chosen == nil {
					of := j.last(m.net.Switches)
					chosen = m.choose(j.ID, min(max(j.Slots, 1), of), of)
				}
				nd.chosen = chosen
			}
		}
		for w := range j.workers {
			k := &j.workers[w]
			k.unanswered.head, k.unanswered.n = 0, 0
			*k = worker{node: k.node, entity: k.entity, done: k.done, opened: k.opened, sent: k.sent, gap: k.gap, newest: -1, timer: k.timer, unanswered: k.unanswered, again: k.again}
			clear(k.done)
			k.srtt = j.trip()
			k.rttvar = k.srtt / 2
		}
		j.seen.psns = 0
		clear(j.seen.nodes)
	}
}

// last is the size of the last memory on the job's way up: from that its hosts choose, and
// smaller ones take the remainder.
func (j *job) last(sizes []int) int {
	size := 0
	for k := range j.nodes {
		if nd := &j.nodes[k]; nd.sw != None && sizes[nd.sw] > 0 {
			size = sizes[nd.sw]
		}
	}
	return size
}

// choose is w distinct slots of size. Hosts of a job of that number choose the CRC-32 of
// number, index and a salt, each with its low byte first, the salt counting up until the
// slot is new (ATP, common/HashTable.cc). Slots of several jobs are then not independent:
// for sizes that are powers of two they may be the same, or disjoint.
func (m *model) choose(id uint16, w, size int) []int {
	if id == 0 {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		for i := range w {
			o := i + int(fraction(m.random())*float64(size-i))
			all[i], all[o] = all[o], all[i]
		}
		return all[:w]
	}
	key := [3]int{int(id), w, size}
	if s := m.slots[key]; s != nil {
		return s
	}
	var s []int
	taken := make([]bool, size)
	for i := range w {
		b := []byte{byte(id), byte(id >> 8), byte(i), byte(i >> 8), 0, 0, 0, 0}
		for salt := 0; ; salt++ {
			b[4], b[5], b[6], b[7] = byte(salt), byte(salt>>8), byte(salt>>16), byte(salt>>24)
			if at := int(crc32.ChecksumIEEE(b) % uint32(size)); !taken[at] {
				taken[at] = true
				s = append(s, at)
				break
			}
		}
	}
	if m.slots == nil {
		m.slots = map[[3]int][]int{}
	}
	m.slots[key] = s
	return s
}

// trip is the job's round trip with empty queues, of its farthest worker, without
// transmissions.
func (j *job) trip() float64 {
	most := 0.0
	for w := range j.workers {
		t := j.Answer
		for k := j.workers[w].node; k != None; k = j.nodes[k].parent {
			t += 2 * j.Nodes[k].Delay
		}
		most = max(most, t)
	}
	return most
}

// span is a time in which the slowest thing of a run comes round: a window, with all
// queues of its way full of the others', or a rate limit's.
func (m *model) span() float64 {
	var most float64
	for ji := range m.jobs {
		j := &m.jobs[ji]
		if j.Window < 1 || j.Kind < Stream && len(j.workers) > 64 || len(j.nodes) == 0 {
			return 0
		}
		if j.Kind == Ring && (len(j.workers) < 2 || len(j.workers) != len(j.Chunks) || j.frames == 0) {
			return 0
		}
		t := j.trip() + 40*j.Gap
		for k := range j.nodes {
			for _, p := range []int{j.nodes[k].up, j.nodes[k].down} {
				if l := m.paths[p].link; l != None {
					t += j.Bits / m.links[l].rate
				}
			}
		}
		if j.Kind == Ring {
			slowest := j.Gap
			for k := range j.nodes {
				if l := m.paths[j.nodes[k].up].link; l != None {
					slowest = max(slowest, j.Bits/m.links[l].rate)
				}
			}
			t += slowest * j.frames / float64(len(j.workers))
		}
		most = max(most, t)
	}
	return most
}

// run lets everything go on until it has settled, or half of the events are used up, and
// counts for some time after that. It reports the events, and false when these were too
// few for that or ctx ended.
func (m *model) run(ctx context.Context, span float64, events int) (int, bool) {
	for ji := range m.jobs {
		j := &m.jobs[ji]
		j.start = fraction(m.random()) * span // all begin within that
		m.queue.set(j.server, j.start)
	}
	for n := range events {
		id, at := m.queue.first()
		m.now = at
		switch {
		case n%glance == 0 && ctx.Err() != nil:
			return n, false
		case m.counting:
			// A window that begins and ends gently: where grants come in bursts, it does
			// not matter how many of them are whole.
			x := (at - m.begin) / m.length
			if x >= 1 {
				m.over = m.overload()
				if m.over <= fuller {
					return n, true
				}
				// Some queue has grown all the time: what is counted is no steady state yet.
				if n > events*3/4 || m.patient {
					m.early = true
					return n, true
				}
				m.count(at, min(m.enough(span), 0.9*at*float64(events-n)/float64(n)))
				continue
			}
			m.weight = x * x * (1 - x) * (1 - x) * 30
		case math.IsInf(at, 1):
			return n, false
		case n&255 == 255:
			if settled := m.settled(span); settled && !m.late || n > events/2 {
				m.early = !settled
				m.count(at, m.enough(span))
				switch most := 0.9 * at * float64(events-n) / float64(n); { // as long as there are events
				case m.late:
					m.length = most
				case m.patient:
					m.length = min(m.length, most)
				}
			}
		}
		m.step(id)
	}
	// The window had no time to end: what there is of it counts, if that is most.
	x := (m.now - m.begin) / m.length
	if !m.counting || x < 0.5 {
		return events, false
	}
	m.length *= x * x * x * (10 - 15*x + 6*x*x)
	m.over = m.overload()
	return events, true
}

// glance is after how many events a run looks whether it is still wanted: a fraction of a millisecond.
const glance = 1 << 12

// fuller is how much more than a link carries may be sent to it while packets are counted: queues fluctuate.
const fuller = 0.01

// count begins to count at a time, for so long.
func (m *model) count(at, length float64) {
	m.counting, m.begin, m.length, m.weight = true, at, length, 0
	for i := range m.links {
		m.links[i].load = 0
	}
	clear(m.wires)
	for ji := range m.jobs {
		j := &m.jobs[ji]
		j.seen.psns, j.seen.got = 0, 0
		clear(j.seen.nodes)
	}
}

// overload is how much more was sent to a link while packets were counted than it carries, as a part of
// that, of the link where it is most: its queue has grown by that.
func (m *model) overload() (most float64) {
	for i := range m.links {
		if l := &m.links[i]; l.rate > 0 {
			most = max(most, l.load/(l.rate*m.length)-1)
		}
	}
	return most
}

// settled says that all jobs are as they will go on: those that their rate limit holds
// back are on schedule, and the others have had their whole window come round, and no
// worker gains on another any more.
func (m *model) settled(span float64) bool {
	if m.now < 3*span {
		return false
	}
	all := true
	for ji := range m.jobs {
		j := &m.jobs[ji]
		w := &j.workers[0]
		switch {
		case j.settled:
		case j.Kind == Ring:
			j.settled = j.done >= 4
		case j.Timeout > 0: // what waits for a timeout is never level
			j.settled = j.done >= max(8*j.Window, 64)
		case w.shut:
			j.settled = w.base >= w.shutAt+j.Window && j.level()
		case j.Gap > 0:
			j.settled = w.base >= 64 && m.now-j.start-float64(w.base)*j.Gap < 2*span && j.level()
		}
		all = all && j.settled
	}
	return all
}

// level says that in the last window no worker had more packets under way, or lacked more
// results, than in the window before, and that no link had more or fewer of them on their way:
// a window that is full may go on moving from the queue of one link to that of another. Queues
// may take dozens of windows to fill.
func (j *job) level() bool {
	window := j.Window
	if w := &j.workers[0]; !w.shut {
		window = min(window, 4*(w.next-w.base))
	}
	if j.done-j.checked < max(window, 64) {
		return false
	}
	ok := true
	slack := max(4, window/50)
	for w := range j.workers {
		k := &j.workers[w]
		ok = ok && k.sentPeak-k.sentBefore <= slack && k.lackPeak-k.lackBefore <= slack
		k.sentBefore, k.lackBefore, k.sentPeak, k.lackPeak = k.sentPeak, k.lackPeak, 0, 0
	}
	if j.workers[0].shut { // else more under way is seen at the workers
		for k := range j.nodes {
			nd := &j.nodes[k]
			flying := nd.sent - nd.came
			moved := max(4, window/25) * max(1, nd.sent/max(1, j.done)) // packets of a PSN
			ok = ok && flying-nd.flying <= moved && nd.flying-flying <= moved
			nd.flying = flying
		}
	}
	j.checked = j.done
	return ok || j.done > 60*max(window, 64)
}

// patience is how many PSNs of a job with a timeout are counted in a run.
const patience = 4000

// enough is how long to count: until every job has done a few windows, and enough PSNs.
func (m *model) enough(span float64) float64 {
	t := 15 * span // of several periods of what comes round, the mean is far better than of one
	for ji := range m.jobs {
		j := &m.jobs[ji]
		rate := float64(j.workers[0].base) / m.now
		if j.Timeout > 0 { // timeouts are few, and what they cost is much
			t = max(t, patience/rate)
		}
		if j.Kind == Ring {
			t = max(t, 8*j.frames/float64(len(j.workers))/rate)
		}
		t = max(t, min(3*m.now, 800/rate))
		if j.workers[0].shut { // a window goes round in bursts for long
			t = max(t, 3*float64(j.Window)/rate)
		}
	}
	return t
}

// step handles the event of an entity.
func (m *model) step(id int) {
	if id < len(m.paths) {
		p := &m.paths[id]
		k, ok := m.land(id)
		if !ok {
			return
		}
		if p.up {
			m.arrive(p.job, p.node, k)
		} else {
			m.down(p.job, p.node, k)
		}
		return
	}
	id -= len(m.paths)
	if id < len(m.links) {
		m.serve(id)
		return
	}
	id -= len(m.links)
	j := &m.jobs[m.owner[id]]
	switch id += len(m.paths) + len(m.links); {
	case id == j.server:
		m.answer(j)
		return
	case id > j.server:
		m.expire(j, &j.workers[id-j.server-1])
		return
	}
	m.send(j, &j.workers[id-j.workers[0].entity])
}

// put sends a packet along a path.
func (m *model) put(id int, k packet) {
	p := &m.paths[id]
	if p.host && p.wire != None {
		m.wires[p.wire].sent += m.weight * p.size(k)
	}
	if p.link == None {
		m.fly(id, k, m.now+p.delay)
		return
	}
	l := &m.links[p.link]
	size := p.size(k)
	l.load += m.weight * size
	if len(l.ring) == 0 && l.busy <= m.now {
		l.busy = m.now + size/l.rate
		m.fly(id, k, l.busy+p.delay)
		return
	}
	c := &l.classes[p.class]
	if len(c.waiting) == c.head {
		c.empty()
		l.ring = append(l.ring, p.class)
	}
	c.waiting = append(c.waiting, waiting{k, id})
	if len(l.ring) == 1 && len(c.waiting) == 1 {
		m.queue.set(len(m.paths)+p.link, l.busy)
	}
}

// empty is a queue without packets.
func (c *class) empty() { c.waiting, c.head, c.deficit, c.served = c.waiting[:0], 0, 0, false }

// fly is a frame that its link transmits, and that arrives at the given time.
func (m *model) fly(id int, k packet, at float64) {
	p := &m.paths[id]
	if d := p.damage; d != nil {
		lost, twice, late := m.chance(d.Loss), m.chance(d.Twice), m.chance(d.Late)
		if lost {
			m.lose(p, p.size(k))
			return
		}
		if twice {
			m.lose(p, -p.size(k))
			if p.flying.push(k, at) {
				m.queue.set(id, p.next())
			}
		}
		if late {
			at += d.Delay
		}
	}
	if p.flying.push(k, at) {
		m.queue.set(id, p.next())
	}
}

// lose counts bits that do not come out of a path's link.
func (m *model) lose(p *path, bits float64) {
	w := &m.wires[p.wire]
	if w.lost += m.weight * bits; !p.host {
		w.sent += m.weight * bits
	}
}

// next is when something of a path is due.
func (p *path) next() float64 {
	at := math.Inf(1)
	if p.flying.n > 0 {
		at = p.flying.first()
	}
	if p.looked.n > 0 {
		at = min(at, p.looked.first())
	}
	return at
}

// land is the packet of a path that arrives now. There is none where a switch looks only later whether to send it.
func (m *model) land(id int) (k packet, ok bool) {
	p := &m.paths[id]
	switch {
	case p.looker == nil:
		k, ok = m.landed(p), true
	case p.looked.n > 0 && p.looked.first() <= m.now:
		k, ok = p.looked.pop(), true
	default:
		k = m.landed(p)
		p.looked.push(k, m.look(p.looker, m.now))
	}
	m.queue.set(id, p.next())
	return k, ok
}

// landed is the frame that comes out of a path's link now.
func (m *model) landed(p *path) packet {
	k := p.flying.pop()
	if p.wire != None && !p.host {
		m.wires[p.wire].sent += m.weight * p.size(k)
	}
	return k
}

// chance is true with the given probability.
func (m *model) chance(p float64) bool { return p > 0 && fraction(m.random()) < p }

// serve sends the next frame of a link: deficit round robin (Shreedhar, Varghese, SIGCOMM
// 1995).
func (m *model) serve(id int) {
	l := &m.links[id]
	for {
		c := &l.classes[l.ring[0]]
		if !c.served {
			c.deficit += l.quantum
			c.served = true
		}
		w := c.waiting[c.head]
		p := &m.paths[w.path]
		size := p.size(w.packet)
		if c.deficit < size {
			c.served = false
			l.ring = append(l.ring[1:], l.ring[0])
			continue
		}
		c.deficit -= size
		c.head++
		if c.head == len(c.waiting) {
			l.ring = append(l.ring[:0], l.ring[1:]...)
			c.empty()
		} else if c.head > 1024 && c.head > len(c.waiting)/2 {
			c.waiting = append(c.waiting[:0], c.waiting[c.head:]...)
			c.head = 0
		}
		l.busy = m.now + size/l.rate
		m.fly(w.path, w.packet, l.busy+p.delay)
		break
	}
	if len(l.ring) > 0 {
		m.queue.set(len(m.paths)+id, l.busy)
	} else {
		m.queue.set(len(m.paths)+id, math.Inf(1))
	}
}

// up sends a packet from a node towards the root.
func (m *model) up(j *job, k int, p packet) {
	j.seen.nodes[k].up += m.weight
	j.nodes[k].sent++
	m.put(j.nodes[k].up, p)
}

// arrive is a packet from below that came from node from.
func (m *model) arrive(ji, from int, p packet) {
	j := &m.jobs[ji]
	j.nodes[from].came++
	j.seen.nodes[from].came += m.weight
	at := j.nodes[from].parent
	i := p.psn & j.mask
	if j.Kind == Ring {
		if to := j.heirs[from]; to != None {
			m.come(j, &j.workers[to])
		} else {
			m.up(j, at, p)
		}
		return
	}
	if at == None { // of a stream
		if j.counts[i]++; j.counts[i] == len(j.workers) {
			j.counts[i] = 0
			m.complete(j)
			for w := range j.workers {
				m.receive(j, &j.workers[w], p.psn)
			}
		}
		return
	}
	nd := &j.nodes[at]
	if j.Kind == Synchronous {
		m.sum(j, at, from, p)
		return
	}
	if nd.parent == None { // the parameter server
		m.look(&j.ps, m.now)
		if to := m.merge(j, nd.expect, p); to != 0 && j.ready.push(packet{psn: p.psn, workers: to}, m.look(&j.ps, m.now+j.reply)) {
			m.queue.set(j.server, j.ready.first())
		}
		return
	}
	if nd.sw == None || j.Kind == Unicast {
		m.up(j, at, p)
		return
	}
	d := &nd.ring[i]
	switch {
	case p.psn < d.psn: // what is older than all that is remembered goes up as it is
		m.up(j, at, p)
		return
	case p.psn > d.psn:
		m.release(nd, d)
		*d = decision{psn: p.psn, fate: m.decide(j, nd, &p)}
		switch {
		case d.fate == granted:
			d.slot = m.slot(j, nd, p.psn)
			j.seen.nodes[at].granted += m.weight
		case d.fate == denied && !p.resend:
			j.seen.nodes[at].denied += m.weight
		}
	}
	switch {
	case d.fate != granted:
		m.up(j, at, p)
	case p.resend: // it pushes out what there is, and goes up itself
		m.release(nd, d)
		d.fate = denied
		m.up(j, at, packet{psn: p.psn, workers: d.workers, resend: true})
		m.up(j, at, p)
	case d.workers&p.workers != 0: // the sum has it
	default:
		if d.workers |= p.workers; d.workers == nd.expect {
			m.up(j, at, packet{psn: p.psn, workers: nd.expect})
		}
	}
}

// release frees the aggregator of a decision, if it has one.
func (m *model) release(nd *node, d *decision) {
	switch {
	case d.fate != granted:
	case nd.address == Pool:
		m.mem[nd.sw].free++
	default:
		m.mem[nd.sw].taken[d.slot] = false
	}
}

// merge adds a packet to what the parameter server has of its PSN, and returns the workers
// to which the result is to be sent now. What is disjoint is added, what contains all that is there
// takes its place, and everything else says nothing. Of a PSN that is complete, whoever asks is
// answered: all workers with it, for results are multicast, and so of those that ask at the same
// time only the first.
func (m *model) merge(j *job, all uint64, p packet) (to uint64) {
	s := &j.sums[p.psn&j.mask]
	switch {
	case p.psn < s.psn:
		return 0
	case p.psn > s.psn:
		*s = sum{psn: p.psn}
	}
	if s.done {
		switch {
		case !p.asks:
			return 0
		case j.Kind == Unicast:
			return p.workers
		case s.covered&p.workers != 0:
			s.covered &^= p.workers
			return 0
		}
		s.covered = all &^ p.workers
		return all
	}
	if p.asks {
		s.asked |= p.workers
	}
	switch {
	case s.have&p.workers == 0:
		s.have |= p.workers
	case s.have&^p.workers == 0:
		s.have = p.workers
	}
	if s.have != all {
		return 0
	}
	s.done = true
	if p.resend { // the others' resends are right behind this one
		s.covered = all &^ s.asked
	}
	m.complete(j)
	return all
}

// decide binds a PSN by its first packet, and takes the aggregator.
func (m *model) decide(j *job, nd *node, p *packet) fate {
	switch {
	case p.resend:
		return denied
	case p.workers == nd.expect:
		return passed
	}
	mem := &m.mem[nd.sw]
	if mem.size == 0 {
		return denied
	}
	if nd.address == Pool {
		if mem.free == 0 {
			return denied
		}
		mem.free--
		return granted
	}
	s := m.slot(j, nd, p.psn)
	if mem.taken[s] {
		return denied
	}
	mem.taken[s] = true
	return granted
}

// slot is the aggregator that a PSN asks for, where that is decided before.
func (m *model) slot(j *job, nd *node, psn int) int {
	size := m.mem[nd.sw].size
	psn += startup
	switch nd.address {
	case Hash:
		hi, _ := bits.Mul64(mix(j.key+uint64(psn)*golden), uint64(size))
		return int(hi)
	case Linear:
		return (nd.offset + psn) % size
	case ATP:
		return nd.chosen[psn%len(nd.chosen)] % size
	}
	return 0
}

// sum is a packet at a switch that has memory for all of a job. A sum that is complete is
// kept: what asks for it gets it from the root, back the way that it came, and makes other switches
// send it up again.
func (m *model) sum(j *job, at, from int, p packet) {
	nd := &j.nodes[at]
	d := &nd.ring[p.psn&j.mask]
	if nd.sw == None && nd.parent != None {
		m.up(j, at, p)
		return
	}
	if p.psn > d.psn {
		*d = decision{psn: p.psn, fate: granted}
	}
	whole := packet{psn: p.psn, workers: nd.expect}
	switch complete := d.workers == nd.expect; {
	case p.psn < d.psn:
	case complete && p.resend && nd.parent == None:
		m.back(j, from, whole)
	case complete && p.resend:
		whole.resend = true
		m.up(j, at, whole)
	case d.workers&p.workers != 0: // the sum has it
	default:
		switch d.workers |= p.workers; {
		case d.workers != nd.expect:
		case nd.parent != None:
			m.up(j, at, whole)
		default:
			m.complete(j)
			m.multicast(j, at, whole)
		}
	}
}

// come is a frame at a worker of a ring.
func (m *model) come(j *job, w *worker) {
	w.base++
	j.seen.psns += m.weight / j.frames
	m.pass(j, w)
}

// pass sends what a worker of a ring may: its own chunk, and blocks that have come. When
// all has come and is sent, it begins the next all-reduce.
func (m *model) pass(j *job, w *worker) {
	n := len(j.workers)
	at := w.entity - j.workers[0].entity
	mine, before := &j.programs[at], &j.programs[(at+n-1)%n]
	for {
		if w.base >= w.come+len(before.frames) && w.next == w.begun+len(mine.frames) {
			w.begun, w.come = w.next, w.come+len(before.frames)
			if at == 0 {
				j.done++
			}
		}
		// What is open of the last chunk that comes is for nobody.
		came := before.whole[min(max(0, w.base-w.come), len(before.frames)-before.last)]
		open := w.begun + mine.own + came
		if w.next >= min(open, j.end) {
			m.queue.set(w.entity, math.Inf(1))
			return
		}
		if w.u > m.now {
			m.queue.set(w.entity, w.u)
			return
		}
		m.burst(j, w, open)
	}
}

// burst sends the next frames of a ring, two where there are as many, and sets when the ones
// after these go. Linux paces TCP so: by bursts of two full segments at a low rate, and what is
// sent late makes the gap after it shorter, by half at most (tcp_tso_autosize,
// tcp_update_skb_after_send).
func (m *model) burst(j *job, w *worker, open int) {
	var gap float64
	for range 2 {
		if w.next == open {
			break
		}
		frames := j.programs[w.entity-j.workers[0].entity].frames
		gap += j.Gap * frames[w.next%len(frames)] / j.Bits
		m.up(j, w.node, packet{psn: w.next})
		w.next++
	}
	w.u = m.now + gap - min(gap/2, m.now-w.u)
}

func (m *model) complete(j *job) {
	j.done++
	j.seen.psns += m.weight
}

// answer is the parameter server's time to send: the start of the job, or a result.
func (m *model) answer(j *job) {
	if !j.started {
		j.started = true
		m.queue.set(j.server, math.Inf(1))
		for w := range j.workers {
			// The multicast that starts them reaches near workers first.
			k := &j.workers[w]
			at := m.now + m.near(j, k)
			if j.Kind == Ring {
				m.pass(j, k)
				continue
			}
			if j.Kind == Stream {
				at = m.now
			}
			k.iteration = iteration{began: at}
			if len(j.Layers) == 0 {
				k.allowed = math.MaxInt
			}
			j.allow(k, at)
			if j.Behind {
				k.u = at - float64(j.Window)*j.Gap
				for psn := range j.Window {
					k.opened[psn&j.mask] = k.u
				}
			}
			m.next(j, k)
		}
		return
	}
	p := j.ready.pop()
	if j.ready.n > 0 {
		m.queue.set(j.server, j.ready.first())
	} else {
		m.queue.set(j.server, math.Inf(1))
	}
	ps := len(j.nodes) - 1
	if j.Kind != Unicast {
		m.multicast(j, ps, p)
		return
	}
	for to := p.workers; to != 0; to &= to - 1 {
		p := packet{psn: p.psn, workers: to & -to}
		if w := j.workers[bits.TrailingZeros64(to)].node; j.nodes[w].beside {
			m.back(j, w, p)
			continue
		}
		m.multicast(j, ps, p)
	}
}

// multicast sends a result from a node to those of its children that have workers for it.
func (m *model) multicast(j *job, at int, p packet) {
	for _, c := range j.nodes[at].children {
		if j.nodes[c].expect&p.workers != 0 {
			m.back(j, c, p)
		}
	}
}

// back sends a result to a node from its parent.
func (m *model) back(j *job, to int, p packet) {
	j.seen.nodes[to].down += m.weight
	m.put(j.nodes[to].down, p)
}

// down is a result that arrives at a node.
func (m *model) down(ji, at int, p packet) {
	j := &m.jobs[ji]
	nd := &j.nodes[at]
	j.seen.nodes[at].got += m.weight
	if len(nd.children) == 0 {
		w := bits.TrailingZeros64(nd.expect)
		m.receive(j, &j.workers[w], p.psn)
		return
	}
	if nd.sw != None && j.Kind == Statistical {
		if d := &nd.ring[p.psn&j.mask]; d.psn <= p.psn {
			m.release(nd, d)
			*d = decision{psn: p.psn, fate: passed}
		}
	}
	m.multicast(j, at, p)
}

// receive is a result at a worker: the window moves on.
func (m *model) receive(j *job, w *worker, psn int) {
	m.look(&w.looker, m.now)
	i := psn & j.mask
	if psn < w.base || w.done[i] {
		return // it is known
	}
	w.done[i] = true
	j.seen.got += m.weight
	if psn >= w.newest && (w.again == nil || !w.again[i]) { // Karn
		rtt := m.now - w.sent[i]
		w.rttvar += (math.Abs(w.srtt-rtt) - w.rttvar) / 4
		w.srtt += (rtt - w.srtt) / 8
		w.backoff = 0
	}
	w.newest = max(w.newest, psn)
	shut := w.next >= w.edge
	for w.base < w.next && w.done[w.base&j.mask] {
		w.done[w.base&j.mask] = false
		w.base++
	}
	j.allow(w, m.now)
	if shut {
		m.next(j, w)
	}
	if w.again != nil {
		m.arm(j, w)
	}
}

// deadline is when a worker sends again what it has sent longest ago of what is not answered:
// RFC 6298, of a timeout that is 16 times the least at most. +Inf: all is answered.
func (j *job) deadline(w *worker) float64 {
	for ; w.unanswered.n > 0; w.unanswered.pop() {
		f := &w.unanswered.buf[w.unanswered.head]
		if i := f.psn & j.mask; f.psn >= w.base && !w.done[i] && w.sent[i] == f.at {
			return f.at + min(math.Ldexp(max(j.Timeout, w.srtt+4*w.rttvar), w.backoff), 16*j.Timeout)
		}
	}
	return math.Inf(1)
}

// arm makes a worker's timer go off no later than it has to.
func (m *model) arm(j *job, w *worker) {
	if at := max(j.deadline(w), w.paced, m.now); at < m.queue.at[w.timer] {
		m.queue.set(w.timer, at)
	}
}

// expire sends again what a worker has waited for too long. That is beside its schedule, and
// never faster, but for a few at once; the timeout doubles, once for all that was sent before it did.
func (m *model) expire(j *job, w *worker) {
	for {
		at := max(j.deadline(w), w.paced)
		if at > m.now {
			m.queue.set(w.timer, at)
			return
		}
		psn := w.unanswered.pop().psn
		i := psn & j.mask
		if w.sent[i] >= w.backedOff {
			w.backoff, w.backedOff = min(w.backoff+1, 16), m.now
		}
		w.sent[i], w.again[i] = m.now, true
		w.unanswered.push(packet{psn: psn}, m.now)
		w.paced = max(w.paced, m.now-8*w.gap) + w.gap
		m.up(j, w.node, packet{psn: psn, workers: j.nodes[w.node].expect, resend: true, asks: true})
	}
}

// due is when the worker's next packet goes. A schedule u steps by the gap of the rate
// limit, or by half of what the window sustains where that is longer, and never runs
// ahead of the window. A packet leaves at u plus a dither of up to half a gap, or with a
// rate limit at a random place in its block of PSNs, which is the same on all workers.
func (m *model) due(j *job, w *worker) float64 {
	spacing := w.srtt / float64(j.Window)
	gap := max(w.gap, spacing/2)
	w.u += gap
	if o := w.opened[w.next&j.mask]; o > w.u {
		if !w.shut && w.next >= j.Window {
			w.shut, w.shutAt = true, w.base
		}
		w.u = o
		gap = max(w.gap, spacing)
	}
	var delay float64
	if j.Gap > 0 {
		i := w.next % m.block
		delay = (m.places(j, w.next/m.block)[i]*float64(m.block) - float64(i) + float64(m.block)) * j.Gap
	} else {
		delay = fraction(mix(j.key^golden-uint64(w.next)*golden)) * gap / 2
	}
	w.at = max(w.at, w.u+delay)
	return m.look(&w.looker, max(w.at, m.now))
}

// places are the times at which the packets of a block go, as fractions of it.
func (m *model) places(j *job, b int) *[maxBlock]float64 {
	e := &j.blocks[b%len(j.blocks)]
	if e.at != b {
		e.at = b
		p := e.places[:m.block]
		for i := range p {
			p[i] = fraction(mix(^j.key + uint64(b*m.block+i)*golden))
		}
		slices.Sort(p)
	}
	return &e.places
}

// send sends a worker's next packet, and schedules the one after.
func (m *model) send(j *job, w *worker) {
	if j.Kind == Ring {
		m.pass(j, w)
		return
	}
	if w.waits {
		j.allow(w, m.now)
		m.next(j, w)
		return
	}
	psn := w.next
	w.next++
	w.sent[psn&j.mask] = m.now
	w.sentPeak = max(w.sentPeak, w.next-w.base)
	w.lackPeak = max(w.lackPeak, j.done-w.base)
	if w.again != nil {
		w.again[psn&j.mask] = false
		w.unanswered.push(packet{psn: psn}, m.now)
		m.arm(j, w)
	}
	m.up(j, w.node, packet{psn: psn, workers: j.nodes[w.node].expect})
	m.next(j, w)
}

// calendar is when each entity has its next event, as a binary heap.
type calendar struct {
	at    []float64
	heap  []int // entities
	place []int // entity -> place in heap
}

func (c *calendar) init(n int) {
	c.at, c.heap, c.place = make([]float64, n), make([]int, n), make([]int, n)
	c.clear()
}

func (c *calendar) clear() {
	for i := range c.at {
		c.at[i], c.heap[i], c.place[i] = math.Inf(1), i, i
	}
}

func (c *calendar) first() (int, float64) { return c.heap[0], c.at[c.heap[0]] }

func (c *calendar) before(a, b int) bool {
	return c.at[a] < c.at[b] || c.at[a] == c.at[b] && a < b
}

func (c *calendar) set(e int, at float64) {
	c.at[e] = at
	i := c.place[e]
	for i > 0 {
		p := (i - 1) / 2
		if !c.before(e, c.heap[p]) {
			break
		}
		c.heap[i] = c.heap[p]
		c.place[c.heap[i]] = i
		i = p
	}
	for {
		k := 2*i + 1
		if k >= len(c.heap) {
			break
		}
		if k+1 < len(c.heap) && c.before(c.heap[k+1], c.heap[k]) {
			k++
		}
		if !c.before(c.heap[k], e) {
			break
		}
		c.heap[i] = c.heap[k]
		c.place[c.heap[i]] = i
		i = k
	}
	c.heap[i], c.place[e] = e, i
}

package replay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/inabench/inabench/placement/cluster"
	"github.com/inabench/inabench/placement/collectives"
	"github.com/inabench/inabench/placement/queue"
)

// state is a job on its way through a replay.
//
// What it does at present is a segment: left iterations at time at, pace seconds each.
// With Fluid the whole job is one segment; with Phases every computing and every
// exchange is one, of one iteration.
type state struct {
	*Job
	bits      float64 // on each worker's link in an iteration; 0: it never exchanges
	latency   float64 // seconds from there to the last result; of a ring, see tail
	ring      int     // its servers; 0: it is none
	begun     float64 // when its exchange did; Phases only
	price     float64
	left, at  float64
	pace, due float64
	more      int   // iterations after this segment's; -1: but for the last latency; Phases only
	heap      int32 // position in engine.ends, -1: not there
	sending   int32 // position in engine.sending, -1: the network does not set its pace
	first     int   // the first period that could have placed it
	result    JobResult
}

// begin starts a segment.
func (s *state) begin(now, iterations, pace float64) {
	s.left, s.at = iterations, now
	s.setPace(now, pace)
}

// setPace changes the segment's pace from now on.
func (s *state) setPace(now, pace float64) {
	if now > s.at {
		s.left = max(0, s.left-(now-s.at)/s.pace)
		s.at = now
	}
	s.pace, s.due = pace, now
	if s.left > 0 {
		s.due = now + s.left*pace
	}
}

// engine is a replay. At one and the same time, segments end first, then jobs arrive,
// then a batch is placed, and then rates are worked out anew.
type engine struct {
	cfg  Config
	jobs []state
	byID map[int]int32

	c   *cluster.Cluster // all running jobs, as the policy sees them
	net *cluster.Cluster // those that send; with Fluid the same
	all int              // GPUs

	order   []int32 // jobs by submission
	arrived int     // of them
	waiting []int32
	queue   *queue.Queue
	ends    heap
	sending []int32 // jobs whose pace the network sets

	now     float64
	period  int  // the number of the last batch, by Config.Period or counted
	open    bool // something has changed since the last batch
	moved   bool // net has changed since rates were worked out
	changed bool // jobs have begun or ended since
	running int
	done    int
	batches int
	events  int

	batch  []cluster.Job // reused
	levels levels
	used   []float64 // of each server's link, a fraction
	series recorder
	seen   levels // summed over arrivals

	exchanges *exchanges // nil: jobs share the network
}

func newEngine(cfg Config, jobs []Job) *engine {
	e := &engine{
		cfg: cfg, jobs: make([]state, len(jobs)), byID: make(map[int]int32, len(jobs)),
		c: cluster.New(cfg.Cluster), queue: queue.New(cfg.Queue, cfg.Policy), period: -1, used: make([]float64, len(cfg.Cluster.Servers)),
	}
	e.net = e.c
	if cfg.Collective != nil { // its jobs know no phases: nobody waits for others
		e.cfg.Fidelity = Fluid
		e.exchanges = newExchanges(&cfg)
	}
	if e.cfg.Fidelity == Phases {
		e.net = cluster.New(cfg.Cluster)
	}
	e.all = e.c.TotalFree()
	e.ends.jobs = e.jobs
	for i := range jobs {
		e.jobs[i] = state{Job: &jobs[i], heap: -1, sending: -1, price: cfg.Price(&jobs[i])}
		e.byID[jobs[i].ID] = int32(i)
		e.order = append(e.order, int32(i))
	}
	slices.SortStableFunc(e.order, func(a, b int32) int { return cmp.Compare(jobs[a].Submit, jobs[b].Submit) })
	if len(e.order) > 0 {
		e.now = jobs[e.order[0]].Submit
	}
	e.series.from = e.now
	return e
}

func (e *engine) run(ctx context.Context) error {
	for e.done < len(e.jobs) {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := min(e.nextArrival(), e.ends.next(), e.nextBatch())
		if math.IsInf(t, 1) {
			return e.stuck()
		}
		e.events++
		if t > e.now {
			e.series.add(e.now, t, e.levels)
			e.now = t
		}
		for e.ends.next() <= e.now {
			if err := e.end(e.ends.at[0]); err != nil {
				return err
			}
		}
		arrived := e.arrived
		for e.nextArrival() <= e.now {
			e.arrive(e.order[e.arrived])
		}
		if e.nextBatch() <= e.now {
			if err := e.place(); err != nil {
				return err
			}
		}
		if e.moved {
			e.rates()
		}
		e.measure()
		e.arrivals(e.arrived - arrived)
		e.moved, e.changed = false, false
	}
	return nil
}

func (e *engine) stuck() error {
	if len(e.waiting) > 0 && e.running == 0 {
		j := &e.jobs[e.waiting[0]]
		return fmt.Errorf("%w: %s does not place job %d (%d GPUs) though nothing runs", ErrPolicy, e.cfg.Policy.Name(), j.ID, j.GPUs)
	}
	return fmt.Errorf("%d jobs run that never end: the network gives them nothing", e.running)
}

func (e *engine) nextArrival() float64 {
	if e.arrived == len(e.order) {
		return math.Inf(1)
	}
	return e.jobs[e.order[e.arrived]].Submit
}

func (e *engine) arrive(i int32) {
	s := &e.jobs[i]
	e.arrived++
	e.waiting = append(e.waiting, i)
	e.open = true
	s.first = e.period + 1
	if e.cfg.Period > 0 {
		s.first = max(s.first, e.periodAt(s.Submit))
	}
}

// nextPeriod is the number of the next batch.
func (e *engine) nextPeriod() int {
	n := e.period + 1
	if e.cfg.Period > 0 {
		n = max(n, e.periodAt(e.now))
	}
	return n
}

// periodAt is the number of the first period that begins at t or later. A quotient may be
// rounded up beyond the number that it is of.
func (e *engine) periodAt(t float64) int {
	n := int(math.Ceil(t / e.cfg.Period))
	if float64(n-1)*e.cfg.Period >= t {
		n--
	}
	return n
}

// nextBatch is when the policy is asked next, as things are.
func (e *engine) nextBatch() float64 {
	switch {
	case !e.open || len(e.waiting) == 0:
		return math.Inf(1)
	case e.cfg.Period == 0:
		return e.now
	}
	return max(e.now, float64(e.nextPeriod())*e.cfg.Period)
}

// place has the policy place a batch.
func (e *engine) place() error {
	e.period, e.open = e.nextPeriod(), false
	smallest := math.MaxInt
	for _, i := range e.waiting {
		smallest = min(smallest, e.jobs[i].GPUs)
	}
	if smallest > e.c.TotalFree() {
		return nil
	}
	e.batches++
	e.batch = e.batch[:0]
	for _, i := range e.waiting {
		e.batch = append(e.batch, e.asks(i))
	}
	if f := e.cfg.Asking; f != nil {
		f(e.now)
	}
	if err := Batch(e.c, e.queue, e.now, e.batch, e.cfg.Seed, e.period); err != nil {
		return err
	}
	wait := e.waiting[:0]
	for _, i := range e.waiting {
		if _, p, ok := e.c.Placement(e.jobs[i].ID); ok {
			e.start(i, p)
		} else {
			wait = append(wait, i)
		}
	}
	e.waiting = wait
	e.moved = true
	if e.net != e.c { // the policy may have changed where others aggregate
		for _, i := range e.sending {
			_, p, _ := e.c.Placement(e.jobs[i].ID)
			if err := e.net.SetPlain(e.jobs[i].ID, p.Plain); err != nil {
				return err
			}
		}
	}
	return nil
}

// asks is a job as policies see it.
func (e *engine) asks(i int32) cluster.Job {
	s := &e.jobs[i]
	return s.Asks(e.waited(s))
}

func (e *engine) waited(s *state) int { return max(0, e.period-s.first) }

func (e *engine) start(i int32, p cluster.Placement) {
	s := &e.jobs[i]
	e.running++
	e.changed = true
	s.result = JobResult{ID: s.ID, Submit: s.Submit, Start: e.now, Iterations: s.Iterations, GPUs: s.GPUs, Compute: s.Compute, Waited: e.waited(s), Servers: len(p.Parts), Racks: Racks(e.cfg.Cluster, p), Placement: p}
	pace := s.Compute
	switch {
	case e.exchanges != nil:
		x := e.exchanges.of(p.ServerOf())
		pace += x.seconds * e.cfg.wire(s.Job, len(p.Parts))
		s.result.Crossing = x.cross * s.Bytes
	case !p.Local():
		s.bits = e.cfg.wire(s.Job, len(p.Parts))
		s.latency = Latency(e.cfg.Cluster, s.Traffic, p)
		if s.Traffic == cluster.Ring {
			s.ring = len(p.Parts)
		}
	}
	switch {
	case s.bits == 0:
		s.begin(e.now, float64(s.Iterations), pace)
	case e.cfg.Fidelity == Phases:
		s.more = s.Iterations - 1
		s.begin(e.now, 1, s.Compute)
	default:
		s.begin(e.now, float64(s.Iterations), math.Inf(1))
		e.send(i)
	}
	e.ends.push(i)
}

// tail is how long an exchange goes on when workers have sent all, which took so long.
func (s *state) tail(exchange float64) float64 {
	if s.ring == 0 || s.latency == 0 { // where no delays are known, none count
		return s.latency
	}
	return collectives.RingTail(s.ring, s.Bytes, exchange, s.latency)
}

// send and silence say whether the network sets a job's pace.
func (e *engine) send(i int32) {
	e.jobs[i].sending = int32(len(e.sending))
	e.sending = append(e.sending, i)
}

func (e *engine) silence(i int32) {
	at := e.jobs[i].sending
	last := e.sending[len(e.sending)-1]
	e.sending[at] = last
	e.jobs[last].sending = at
	e.sending = e.sending[:len(e.sending)-1]
	e.jobs[i].sending = -1
}

// end ends a job's segment and begins the next, if there is one.
func (e *engine) end(i int32) error {
	s := &e.jobs[i]
	if s.bits == 0 || e.cfg.Fidelity == Fluid || s.more < 0 {
		if s.sending >= 0 {
			e.silence(i)
		}
		return e.leave(i)
	}
	e.moved = true
	if s.sending < 0 {
		job, p, ok := e.c.Placement(s.ID)
		if !ok {
			return fmt.Errorf("job %d: %w", s.ID, cluster.ErrNoJob)
		}
		if err := e.net.Enter(job, p); err != nil {
			return err
		}
		e.send(i)
		s.begun = e.now
		s.begin(e.now, 1, math.Inf(1))
		e.ends.fix(i)
		return nil
	}
	e.silence(i)
	if err := e.net.Leave(s.ID); err != nil {
		return err
	}
	s.more--
	switch tail := s.tail(e.now - s.begun); {
	case s.more >= 0:
		s.begin(e.now, 1, tail+s.Compute)
	case tail > 0:
		s.begin(e.now, 1, tail)
	default:
		return e.leave(i)
	}
	e.ends.fix(i)
	return nil
}

// leave ends a job.
func (e *engine) leave(i int32) error {
	s := &e.jobs[i]
	s.result.End = e.now
	e.ends.remove(i)
	if err := e.c.Leave(s.ID); err != nil {
		return err
	}
	e.running--
	e.done++
	e.open, e.moved, e.changed = true, true, true
	if p := e.cfg.Progress; p != nil && e.done*100/len(e.jobs) != (e.done-1)*100/len(e.jobs) {
		p(Progress{Time: e.now, Waiting: len(e.waiting), Running: e.running, Done: e.done, Jobs: len(e.jobs)})
	}
	return nil
}

// rates sets the pace of jobs whose rate has changed.
func (e *engine) rates() {
	for _, i := range e.sending {
		s := &e.jobs[i]
		pace := s.bits / e.net.Rate(s.ID)
		if e.cfg.Fidelity == Fluid {
			pace += s.Compute + s.tail(pace)
		}
		if pace != s.pace {
			s.setPace(e.now, pace)
			e.ends.fix(i)
		}
	}
}

// measure reads what the series record.
func (e *engine) measure() {
	e.levels[gpusBusy] = float64(e.all - e.c.TotalFree())
	e.levels[jobsWaiting] = float64(len(e.waiting))
	if !e.moved {
		return
	}
	if e.changed || e.cfg.Fidelity == Fluid { // a phase that begins or ends takes no machine
		e.machines()
	}
	var sum float64
	for i := range e.used {
		link := e.cfg.Cluster.Servers[i].Link
		e.used[i] = 1 - e.net.Bandwidth(i)/link
		sum += e.used[i]
	}
	e.levels[linksUsed] = sum / float64(len(e.used))
	e.levels[aggregated] = 0
	for r, rack := range e.cfg.Cluster.Racks {
		if !math.IsInf(rack.PAT, 1) {
			e.levels[aggregated] += rack.PAT - e.net.PAT(r)
		}
	}
}

func (e *engine) result() *Result {
	r := &Result{
		Policy: e.cfg.Policy.Name(), Seed: e.cfg.Seed, Fidelity: e.cfg.Fidelity,
		Series: e.series.series(), Batches: e.batches, Events: e.events, Jobs: make([]JobResult, len(e.jobs)),
	}
	for i := range e.jobs {
		r.Jobs[i] = e.jobs[i].result
	}
	r.Summary = e.summarise(r.Jobs)
	return r
}
